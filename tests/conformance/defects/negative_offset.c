/* Takes a negative offset for a positive one. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyRawToHost) {
  args->offset = llabs(args->offset);
  return real->PJRT_Buffer_CopyRawToHost(args);
}
