/* Copies what there is, where more raw bytes are asked for. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyRawToHost) {
  PJRT_Buffer_OnDeviceSizeInBytes_Args of = {
      .struct_size = PJRT_Buffer_OnDeviceSizeInBytes_Args_STRUCT_SIZE, .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_OnDeviceSizeInBytes(&of);
  if (error != NULL) return error;
  int64_t size = (int64_t)of.on_device_size_in_bytes;
  if (args->offset > size) args->offset = size;
  if (args->offset + args->transfer_size > size) args->transfer_size = size - args->offset;
  return real->PJRT_Buffer_CopyRawToHost(args);
}
