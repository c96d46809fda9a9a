/* Says that no device addresses a memory. */
#include "../real.h"

REPLACE(PJRT_Memory_AddressableByDevices) {
  PJRT_Error *error = real->PJRT_Memory_AddressableByDevices(args);
  args->num_devices = 0;
  return error;
}
