/* Forgets the payload of a failed buffer. */
#include "../complete.h"

REPLACE(PJRT_Client_CreateErrorBuffer) {
  args->num_payload = 0;
  return PJRT_Client_CreateErrorBuffer(args);
}
