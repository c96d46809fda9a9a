/* Tells layouts from the slowest dimension to the fastest. */
#include "../real.h"

REPLACE(PJRT_Buffer_GetMemoryLayout) {
  static const int64_t rows[] = {0, 1, 2, 3, 4, 5};
  PJRT_Error *error = real->PJRT_Buffer_GetMemoryLayout(args);
  if (error == NULL && args->layout.tiled.minor_to_major_size <= 6)
    args->layout.tiled.minor_to_major = rows;
  return error;
}
