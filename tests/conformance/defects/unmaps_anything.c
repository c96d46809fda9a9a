/* Unmaps memory that is not mapped. */
#include "../complete.h"

REPLACE(PJRT_Client_DmaUnmap) {
  PJRT_Client_DmaUnmap(args);
  return NULL;
}
