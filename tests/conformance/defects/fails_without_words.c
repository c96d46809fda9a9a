/* Forgets why a buffer of a transfer has failed. */
#include "../real.h"

REPLACE(PJRT_AsyncHostToDeviceTransferManager_SetBufferError) {
  args->error_message = "failed";
  args->error_message_size = 6;
  return real->PJRT_AsyncHostToDeviceTransferManager_SetBufferError(args);
}
