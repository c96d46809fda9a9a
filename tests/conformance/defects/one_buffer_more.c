/* Counts one buffer more than it transfers. */
#include "../real.h"

REPLACE(PJRT_AsyncHostToDeviceTransferManager_BufferCount) {
  PJRT_Error *error = real->PJRT_AsyncHostToDeviceTransferManager_BufferCount(args);
  args->buffer_count += 1;
  return error;
}
