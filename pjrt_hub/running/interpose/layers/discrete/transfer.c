/* Copies raw bytes from and to arrays in tiles. The plugin's own arrays have no tiles. */
#include "discrete.h"

/* A buffer that a transfer manager fills. `bytes` collects the host's data until it is complete. */
typedef struct {
  Tiling tiling;
  bool tiled;
  char *bytes;
} Filling;

typedef struct Transfer Transfer;
struct Transfer {
  Transfer *next;
  PJRT_AsyncHostToDeviceTransferManager *manager;
  size_t count;
  Filling fillings[];
};

static Transfer *transfers;
static const char outside[] = "the bytes lie outside of the buffer's";

/* Waits for an event of the plugin and destroys it. */
static PJRT_Error *await(Plugin *plugin, PJRT_Event *event) {
  if (event == NULL) return NULL;
  PJRT_Error *error =
      plugin->real[FN_PJRT_Event_Await](UNREAD(PJRT_Event_Await_Args, .event = event));
  TELL(plugin, Event_Destroy, .event = event);
  return error;
}

/* Copies bytes of an array's tiles to the host. `tiling` is NULL for an array without tiles. */
PJRT_Error *transfer_raw(Plugin *plugin, const Tiling *tiling, PJRT_Buffer_CopyRawToHost_Args *args) {
  if (tiling == NULL) return plugin->real[FN_PJRT_Buffer_CopyRawToHost](args);
  size_t offset = (size_t)args->offset, nbytes = (size_t)args->transfer_size;
  if (offset > tiling->nbytes || nbytes > tiling->nbytes - offset)
    return refuse_text(PJRT_Error_Code_INVALID_ARGUMENT, outside);
  char *dense = take(tiling->dense_nbytes), *tiles = take(tiling->nbytes);
  SIZED(PJRT_Buffer_CopyRawToHost_Args, copy, .buffer = args->buffer, .dst = dense);
  copy.transfer_size = (int64_t)tiling->dense_nbytes;
  PJRT_Error *error = plugin->real[FN_PJRT_Buffer_CopyRawToHost](&copy);
  if (error == NULL) error = await(plugin, copy.event);
  if (error == NULL) {
    tiling_copy(tiling, tiles, dense, true);
    memcpy(args->dst, tiles + offset, nbytes);
  }
  free(dense);
  free(tiles);
  return error;
}

static Transfer *find(PJRT_AsyncHostToDeviceTransferManager *manager) {
  schedule_lock();
  Transfer *found = transfers;
  while (found != NULL && found->manager != manager) found = found->next;
  schedule_unlock();
  return found;
}

void transfer_begin(const PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args) {
  size_t count = args->num_shape_specs;
  Transfer *transfer = take(sizeof *transfer + count * sizeof *transfer->fillings);
  transfer->manager = args->transfer_manager;
  transfer->count = count;
  for (size_t i = 0; i < count; i++) {
    const PJRT_ShapeSpec *spec = &args->shape_specs[i];
    Filling *filling = &transfer->fillings[i];
    const PJRT_Buffer_MemoryLayout *layout =
        i < args->num_device_layouts ? args->device_layouts[i] : NULL;
    filling->tiled = tiling_find(&filling->tiling, spec->element_type, spec->dims, spec->num_dims,
                                 tiling_order(layout, spec->num_dims));
  }
  schedule_lock();
  transfer->next = transfers;
  transfers = transfer;
  schedule_unlock();
}

static Filling *filling_of(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  Transfer *transfer = find(manager);
  bool known = transfer != NULL && index >= 0 && (size_t)index < transfer->count;
  return known && transfer->fillings[index].tiled ? &transfer->fillings[index] : NULL;
}

/* Returns how many bytes a buffer has in tiles, or 0 if it has no tiles. */
size_t transfer_nbytes(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  const Filling *filling = filling_of(manager, index);
  return filling != NULL ? filling->tiling.nbytes : 0;
}

/* Takes a part of an array's tiles, and gives the plugin the array after the last part. A manager's
   parts come one after another, so no lock is needed. */
PJRT_Error *transfer_data(Plugin *plugin,
                          PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args) {
  const unsigned function = FN_PJRT_AsyncHostToDeviceTransferManager_TransferData;
  Filling *filling = filling_of(args->transfer_manager, args->buffer_index);
  if (filling == NULL) return plugin->real[function](args);
  const Tiling *tiling = &filling->tiling;
  size_t offset = (size_t)args->offset, nbytes = (size_t)args->transfer_size;
  if (offset > tiling->nbytes || nbytes > tiling->nbytes - offset)
    return refuse_text(PJRT_Error_Code_INVALID_ARGUMENT, outside);
  if (filling->bytes == NULL) filling->bytes = take(tiling->nbytes);
  if (nbytes > 0) memcpy(filling->bytes + offset, args->data, nbytes);
  if (!args->is_last_transfer) return NULL;
  char *dense = take(tiling->dense_nbytes);
  tiling_copy(tiling, filling->bytes, dense, false);
  free(filling->bytes);
  filling->bytes = NULL;
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args whole = *args;
  whole.data = dense;
  whole.offset = 0;
  whole.transfer_size = (int64_t)tiling->dense_nbytes;
  PJRT_Error *error = plugin->real[function](&whole);
  if (error == NULL) error = await(plugin, whole.done_with_h2d_transfer);
  free(dense);
  return error;
}

void transfer_end(PJRT_AsyncHostToDeviceTransferManager *manager) {
  Transfer *found = find(manager), **at = &transfers;
  if (found == NULL) return;
  schedule_lock();
  while (*at != found) at = &(*at)->next;
  *at = found->next;
  schedule_unlock();
  for (size_t i = 0; i < found->count; i++) free(found->fillings[i].bytes);
  free(found);
}
