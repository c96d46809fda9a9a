/* Writes every part of a transfer to the beginning. */
#include "../real.h"

REPLACE(PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  args->offset = 0;
  return real->PJRT_AsyncHostToDeviceTransferManager_TransferData(args);
}
