/* Says that no device can be used from here. */
#include "../real.h"

REPLACE(PJRT_Device_IsAddressable) {
  PJRT_Error *error = real->PJRT_Device_IsAddressable(args);
  args->is_addressable = false;
  return error;
}
