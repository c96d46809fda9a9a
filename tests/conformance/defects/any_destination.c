/* Copies to the host whatever the size of the destination. */
#include "../real.h"

REPLACE(PJRT_Buffer_ToHostBuffer) {
  if (args->dst != NULL) args->dst_size = 1 << 30;
  return real->PJRT_Buffer_ToHostBuffer(args);
}
