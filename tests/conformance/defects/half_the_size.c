/* Tells half of a buffer's size on the device. */
#include "../real.h"

REPLACE(PJRT_Buffer_OnDeviceSizeInBytes) {
  PJRT_Error *error = real->PJRT_Buffer_OnDeviceSizeInBytes(args);
  args->on_device_size_in_bytes /= 2;
  return error;
}
