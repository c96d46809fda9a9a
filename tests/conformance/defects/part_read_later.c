/* Says that a part of a transfer has been read, and reads it a moment later. */
#include "../real.h"

#include <pthread.h>
#include <unistd.h>

static void *read_later(void *user_arg) {
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args = user_arg;
  usleep(50000);
  if (real->PJRT_AsyncHostToDeviceTransferManager_TransferData(args) != NULL) abort();
  return NULL;
}

static PJRT_Client *client;

static PJRT_Error *put(PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args) {
  client = args->client;
  return real->PJRT_Client_CreateBuffersForAsyncHostToDevice(args);
}

static PJRT_Error *transfer(PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args) {
  PJRT_AsyncHostToDeviceTransferManager_Device_Args asked = {
      .struct_size = PJRT_AsyncHostToDeviceTransferManager_Device_Args_STRUCT_SIZE,
      .transfer_manager = args->transfer_manager};
  PJRT_Error *error = real->PJRT_AsyncHostToDeviceTransferManager_Device(&asked);
  if (error != NULL) return error;
  pthread_t thread;
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *later = malloc(sizeof *later);
  *later = *args;
  pthread_create(&thread, NULL, read_later, later);
  pthread_detach(thread);
  args->done_with_h2d_transfer = ready_event(client, asked.device_out);
  return NULL;
}

DEFECT(api) {
  api->PJRT_Client_CreateBuffersForAsyncHostToDevice = put;
  api->PJRT_AsyncHostToDeviceTransferManager_TransferData = transfer;
}
