/* Has one code for every failed buffer. */
#include "../complete.h"

REPLACE(PJRT_Client_CreateErrorBuffer) {
  args->error_code = PJRT_Error_Code_INTERNAL;
  return PJRT_Client_CreateErrorBuffer(args);
}
