/* Counts the offset of raw copies in words. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyRawToHost) {
  args->offset = args->offset * 4 + args->transfer_size <= 24 ? args->offset * 4 : args->offset;
  return real->PJRT_Buffer_CopyRawToHost(args);
}
