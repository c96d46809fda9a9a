/* Changes the first byte of whatever it copies to the host. */
#include "../real.h"

REPLACE(PJRT_Buffer_ToHostBuffer) {
  PJRT_Error *error = real->PJRT_Buffer_ToHostBuffer(args);
  if (error != NULL || args->dst == NULL) return error;
  AWAIT(args->event);
  if (args->dst_size > 0) *(char *)args->dst ^= 1;
  return NULL;
}
