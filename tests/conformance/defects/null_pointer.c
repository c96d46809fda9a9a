/* Has no address for a buffer's memory. */
#include "../real.h"

REPLACE(PJRT_Buffer_OpaqueDeviceMemoryDataPointer) {
  args->device_memory_ptr = NULL;
  return NULL;
}
