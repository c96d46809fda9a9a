/* The kind of its devices is no text. */
#include "../real.h"

REPLACE(PJRT_DeviceDescription_Kind) {
  PJRT_Error *error = real->PJRT_DeviceDescription_Kind(args);
  args->device_kind = "\xff\xfe";
  args->device_kind_size = 2;
  return error;
}
