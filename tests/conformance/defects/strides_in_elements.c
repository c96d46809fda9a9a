/* Tells strides in elements where bytes are meant. */
#include "../real.h"

REPLACE(PJRT_Buffer_GetMemoryLayout) {
  static int64_t strides[16];
  PJRT_Buffer_Dimensions_Args asked = {
      .struct_size = PJRT_Buffer_Dimensions_Args_STRUCT_SIZE, .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_Dimensions(&asked);
  if (error != NULL || asked.num_dims > 16) return error;
  int64_t stride = 1;
  for (size_t i = asked.num_dims; i-- > 0; stride *= asked.dims[i]) strides[i] = stride;
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
  args->layout.strides.byte_strides = strides;
  args->layout.strides.num_byte_strides = asked.num_dims;
  return NULL;
}
