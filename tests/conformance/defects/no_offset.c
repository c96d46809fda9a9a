/* Copies raw bytes from the beginning, whatever the offset. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyRawToHost) {
  args->offset = 0;
  return real->PJRT_Buffer_CopyRawToHost(args);
}
