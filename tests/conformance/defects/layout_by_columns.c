/* Says of matrices with three rows that they lie by columns; they lie by rows. */
#include "../real.h"

REPLACE(PJRT_Buffer_GetMemoryLayout) {
  static const int64_t by_columns[] = {0, 1};
  PJRT_Buffer_Dimensions_Args dimensions = {
      .struct_size = PJRT_Buffer_Dimensions_Args_STRUCT_SIZE, .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_Dimensions(&dimensions);
  if (error == NULL) error = real->PJRT_Buffer_GetMemoryLayout(args);
  if (error == NULL && dimensions.num_dims == 2 && dimensions.dims[0] == 3)
    args->layout.tiled.minor_to_major = by_columns;
  return error;
}
