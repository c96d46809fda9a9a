/* Says that a part of a transfer has been read, and reads it a moment later. */
#include "../real.h"

#include <pthread.h>
#include <unistd.h>

/* The parts are read in their order: the manager takes none after the last. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static unsigned begun, ended;

typedef struct {
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args args;
  unsigned number;
} Part;

static void *read_later(void *user_arg) {
  Part *part = user_arg;
  usleep(50000);
  pthread_mutex_lock(&turn);
  while (ended != part->number) pthread_cond_wait(&passed, &turn);
  if (real->PJRT_AsyncHostToDeviceTransferManager_TransferData(&part->args) != NULL) abort();
  ended++;
  pthread_cond_broadcast(&passed);
  pthread_mutex_unlock(&turn);
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
  Part *later = malloc(sizeof *later);
  later->args = *args;
  later->number = begun++;
  pthread_create(&thread, NULL, read_later, later);
  pthread_detach(thread);
  args->done_with_h2d_transfer = ready_event(client, asked.device_out);
  return NULL;
}

DEFECT(api) {
  api->PJRT_Client_CreateBuffersForAsyncHostToDevice = put;
  api->PJRT_AsyncHostToDeviceTransferManager_TransferData = transfer;
}
