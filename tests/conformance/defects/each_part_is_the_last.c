/* Takes the first part of a transfer for the last one. */
#include "../real.h"

REPLACE(PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  args->is_last_transfer = true;
  return real->PJRT_AsyncHostToDeviceTransferManager_TransferData(args);
}
