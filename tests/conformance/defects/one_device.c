/* Copies to another device by leaving the copy where it is. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyToDevice) {
  PJRT_Buffer_Device_Args of = {.struct_size = PJRT_Buffer_Device_Args_STRUCT_SIZE,
                                .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_Device(&of);
  args->dst_device = of.device;
  return error != NULL ? error : real->PJRT_Buffer_CopyToDevice(args);
}
