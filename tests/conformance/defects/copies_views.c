/* Copies the memory that it is to view. */
#include "../real.h"

REPLACE(PJRT_Client_CreateViewOfDeviceBuffer) {
  enum { VIEWED = 16, ALIGNMENT = 64 };
  args->device_buffer_ptr =
      memcpy(aligned_alloc(ALIGNMENT, ALIGNMENT), args->device_buffer_ptr, VIEWED);
  return real->PJRT_Client_CreateViewOfDeviceBuffer(args);
}
