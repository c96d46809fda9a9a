/* Transfers between host memory and devices, and between devices, at once or after a program. */
#include "plugin.h"

/* From the host, whose memory is always read before the call returns, as all semantics allow */

static PJRT_Error *fill_from_host(PJRT_Client_BufferFromHostBuffer_Args *args, const ArrayType *array,
                                  Storage *storage) {
  int64_t from[MAX_RANK], to[MAX_RANK];
  size_t width = element_size(array->type);
  Storage *staging = storage_staging(storage);
  if (staging == NULL) return plugin_no_memory(array->size);
  dense_strides(to, array->dims, array->rank, width, NULL);
  memcpy(from, args->num_byte_strides > 0 ? args->byte_strides : to, array->rank * sizeof(int64_t));
  copy_strided(staging->data, to, args->data, from, array->dims, array->rank, width);
  PJRT_Error *error = storage_fill(storage, staging, array);
  storage_let_go(staging);
  return error;
}

FUNCTION(PJRT_Client_BufferFromHostBuffer) {
  PJRT_Device *device = args->memory != NULL ? DEVICE_OF(args->memory) : args->device;
  if (device == NULL || (args->data == NULL && args->num_dims == 0))
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "no data, or neither a device nor a memory");
  if (args->num_byte_strides > 0 && args->num_byte_strides != args->num_dims)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu strides for %zu dimensions",
                        args->num_byte_strides, args->num_dims);
  ArrayType array;
  PJRT_Error *error = check_layout(args->device_layout, args->num_dims);
  if (error == NULL) error = array_type(args->type, args->dims, args->num_dims, &array);
  if (error != NULL) return error;
  Storage *storage = storage_room(device, array.size);
  error = storage == NULL ? plugin_no_memory(array.size) : fill_from_host(args, &array, storage);
  if (error != NULL) {
    storage_let_go(storage);
    free(array.dims);
    return error;
  }
  args->buffer = buffer_new(device, array, storage, plugin_promise_kept(NULL));
  args->done_with_host_buffer = plugin_event(plugin_promise_kept(NULL));
  return NULL;
}

/* To the host, when the buffer is ready */

typedef struct {
  ArrayType array;
  Storage *storage;
  char *to;
  int64_t strides[MAX_RANK]; /* The strides of the host's array, in bytes. */
  bool raw; /* Instead, `size` bytes from `offset` on are copied unchanged. */
  int64_t offset, size;
  PluginPromise *done;
} Reading;

static PJRT_Error *check_range(const Reading *reading) {
  int64_t whole = (int64_t)reading->storage->size;
  if (reading->offset >= 0 && reading->size >= 0 && reading->offset <= whole &&
      reading->size <= whole - reading->offset)
    return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                      "%lld bytes from %lld on are not all in a buffer of %lld bytes",
                      (long long)reading->size, (long long)reading->offset, (long long)whole);
}

static void read_now(const PJRT_Error *pending, void *argument) {
  Reading *reading = argument;
  const ArrayType *array = &reading->array;
  Storage *host = NULL;
  PJRT_Error *error = plugin_error_copy(pending);
  if (error == NULL && reading->raw) error = check_range(reading);
  if (error == NULL) error = storage_on_host(reading->storage, array, &host);
  if (error == NULL && reading->raw) {
    memcpy(reading->to, (char *)host->data + reading->offset, (size_t)reading->size);
  } else if (error == NULL) {
    int64_t from[MAX_RANK];
    dense_strides(from, array->dims, array->rank, element_size(array->type), NULL);
    copy_strided(reading->to, reading->strides, host->data, from, array->dims, array->rank,
                 element_size(array->type));
  }
  storage_let_go(host);
  storage_let_go(reading->storage);
  plugin_promise_keep(reading->done, error);
  plugin_promise_let_go(reading->done);
  free(reading->array.dims);
  free(reading);
}

/* Prepares a reading of a buffer that was not deleted; begin_reading starts it. */
static PJRT_Error *reading_of(PJRT_Buffer *buffer, Reading **reading, PluginPromise **ready) {
  Storage *storage;
  PJRT_Error *error = buffer_take(buffer, &storage, ready);
  if (error != NULL) return error;
  *reading = plugin_zeroed(1, sizeof(Reading));
  (*reading)->array = array_type_copy(&buffer->array);
  (*reading)->storage = storage;
  (*reading)->done = plugin_promise();
  return NULL;
}

static PJRT_Event *begin_reading(Reading *reading, PluginPromise *ready) {
  PJRT_Event *event = plugin_event(plugin_promise_share(reading->done));
  plugin_promise_then(ready, read_now, reading);
  plugin_promise_let_go(ready);
  return event;
}

/* Computes the strides of the host's array in the order that the host asks for. */
static PJRT_Error *host_strides(const PJRT_Buffer_MemoryLayout *layout, const ArrayType *array,
                                int64_t *strides) {
  const int64_t *order = layout == NULL ? NULL : layout->tiled.minor_to_major;
  if (layout != NULL &&
      (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout->tiled.num_tiles > 0))
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "host layouts are orders of dimensions here");
  uint64_t seen = 0;
  for (size_t i = 0; layout != NULL && i < array->rank; i++)
    if (layout->tiled.minor_to_major_size == array->rank && order[i] >= 0 &&
        order[i] < (int64_t)array->rank)
      seen |= (uint64_t)1 << order[i];
  if (layout != NULL && (size_t)__builtin_popcountll(seen) != array->rank)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the host layout is not an order of %zu dimensions",
                        array->rank);
  dense_strides(strides, array->dims, array->rank, element_size(array->type), order);
  return NULL;
}

FUNCTION(PJRT_Buffer_ToHostBuffer) {
  const ArrayType *array = &args->src->array;
  int64_t strides[MAX_RANK];
  PJRT_Error *error = host_strides(args->host_layout, array, strides);
  if (error != NULL) return error;
  if (args->dst == NULL) {
    args->dst_size = array->size;
    return NULL;
  }
  if (args->dst_size < array->size)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes do not fit into %zu", array->size,
                        args->dst_size);
  Reading *reading;
  PluginPromise *ready;
  error = reading_of(args->src, &reading, &ready);
  if (error != NULL) return error;
  reading->to = args->dst;
  memcpy(reading->strides, strides, array->rank * sizeof(int64_t));
  args->event = begin_reading(reading, ready);
  return NULL;
}

FUNCTION(PJRT_Buffer_CopyRawToHost) {
  Reading *reading;
  PluginPromise *ready;
  PJRT_Error *error = reading_of(args->buffer, &reading, &ready);
  if (error != NULL) return error;
  reading->raw = true;
  reading->to = args->dst;
  reading->offset = args->offset;
  reading->size = args->transfer_size;
  args->event = begin_reading(reading, ready);
  return NULL;
}

/* A raw copy whose destination the host tells later. */
typedef struct {
  Reading *reading;
  PluginPromise *ready;
} Later;

static void destination_known(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args) {
  Later *later = args->callback_data;
  PluginPromise *ready = later->ready;
  if (args->error_code != PJRT_Error_Code_OK) {
    plugin_promise_let_go(ready);
    ready = plugin_promise_kept(
        plugin_error_of(args->error_code, args->error_message, args->error_message_size));
  }
  later->reading->to = args->dst;
  plugin_promise_then(ready, read_now, later->reading);
  plugin_promise_let_go(ready);
  free(later);
}

FUNCTION(PJRT_Buffer_CopyRawToHostFuture) {
  Later *later = plugin_zeroed(1, sizeof(Later));
  PJRT_Error *error = reading_of(args->buffer, &later->reading, &later->ready);
  if (error != NULL) {
    free(later);
    return error;
  }
  later->reading->raw = true;
  later->reading->offset = args->offset;
  later->reading->size = args->transfer_size;
  args->event = plugin_event(plugin_promise_share(later->reading->done));
  args->callback_data = later;
  args->future_ready_callback = destination_known;
  return NULL;
}

/* Between devices */

typedef struct {
  ArrayType array;
  Storage *to, *from;
  PluginPromise *done;
} Copying;

static void copy_now(const PJRT_Error *pending, void *argument) {
  Copying *copying = argument;
  PJRT_Error *error = plugin_error_copy(pending);
  if (error == NULL) error = storage_copy(copying->to, copying->from, &copying->array);
  plugin_promise_keep(copying->done, error);
  plugin_promise_let_go(copying->done);
  storage_let_go(copying->to);
  storage_let_go(copying->from);
  free(copying->array.dims);
  free(copying);
}

static PJRT_Error *copy_of(PJRT_Buffer *source, PJRT_Device *device, PJRT_Buffer **copy) {
  Storage *from;
  PluginPromise *ready;
  if (device->client->backend != source->device->client->backend)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the device is another plugin's");
  PJRT_Error *error = buffer_take(source, &from, &ready);
  if (error != NULL) return error;
  Storage *to = storage_room(device, source->array.size);
  if (to == NULL) {
    storage_let_go(from);
    plugin_promise_let_go(ready);
    return plugin_no_memory(source->array.size);
  }
  Copying *copying = plugin_zeroed(1, sizeof(Copying));
  *copying = (Copying){array_type_copy(&source->array), storage_share(to), from, plugin_promise()};
  *copy = buffer_new(device, array_type_copy(&source->array), to, plugin_promise_share(copying->done));
  plugin_promise_then(ready, copy_now, copying);
  plugin_promise_let_go(ready);
  return NULL;
}

FUNCTION(PJRT_Buffer_CopyToDevice) { return copy_of(args->buffer, args->dst_device, &args->dst_buffer); }

FUNCTION(PJRT_Buffer_CopyToMemory) {
  return copy_of(args->buffer, DEVICE_OF(args->dst_memory), &args->dst_buffer);
}

/* Buffers filled in parts */

typedef struct {
  ArrayType array;
  Storage *storage, *staging;
  PluginPromise *ready;
  bool last, retrieved;
} Part;

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Device *device;
  pthread_mutex_t lock;
  size_t count;
  Part *parts;
};

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_Destroy) {
  PJRT_AsyncHostToDeviceTransferManager *manager = args->transfer_manager;
  if (manager == NULL) return NULL;
  for (size_t i = 0; i < manager->count; i++) {
    Part *part = &manager->parts[i];
    if (part->ready != NULL && !plugin_promise_is_kept(part->ready))
      plugin_promise_keep(part->ready, plugin_error(PJRT_Error_Code_INTERNAL,
                                                    "the transfer ended before all of the buffer had come"));
    storage_let_go(part->storage);
    storage_let_go(part->staging);
    plugin_promise_let_go(part->ready);
    free(part->array.dims);
  }
  pthread_mutex_destroy(&manager->lock);
  free(manager->parts);
  free(manager);
  return NULL;
}

FUNCTION(PJRT_Client_CreateBuffersForAsyncHostToDevice) {
  if (args->memory == NULL)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "no memory is given for the buffers");
  PJRT_AsyncHostToDeviceTransferManager *manager = plugin_zeroed(1, sizeof *manager);
  manager->device = DEVICE_OF(args->memory);
  manager->parts = plugin_zeroed(args->num_shape_specs + 1, sizeof(Part));
  pthread_mutex_init(&manager->lock, NULL);
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < args->num_shape_specs; i++) {
    const PJRT_ShapeSpec *spec = &args->shape_specs[i];
    Part *part = &manager->parts[manager->count++];
    if (i < args->num_device_layouts) error = check_layout(args->device_layouts[i], spec->num_dims);
    if (error == NULL) error = array_type(spec->element_type, spec->dims, spec->num_dims, &part->array);
    if (error != NULL) break;
    part->storage = storage_room(manager->device, part->array.size);
    part->staging = part->storage == NULL ? NULL : storage_staging(part->storage);
    part->ready = plugin_promise();
    if (part->staging == NULL) error = plugin_no_memory(part->array.size);
  }
  args->transfer_manager = manager;
  if (error == NULL) return NULL;
  PJRT_AsyncHostToDeviceTransferManager_Destroy_Args end = {.transfer_manager = manager};
  answer_PJRT_AsyncHostToDeviceTransferManager_Destroy(&end);
  return error;
}

static Part *part_of(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  return index < 0 || (size_t)index >= manager->count ? NULL : &manager->parts[index];
}

static PJRT_Error *no_part(int index) {
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the transfer has no buffer %d", index);
}

static PJRT_Error *no_more(int index) {
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "of buffer %d all has come, or an error", index);
}

/* Copies data into a part; after the last data, the part is ready. */
static PJRT_Error *receive(PJRT_AsyncHostToDeviceTransferManager *manager, int index, const char *data,
                           const int64_t *strides, int64_t offset, int64_t size, bool last) {
  Part *part = part_of(manager, index);
  if (part == NULL) return no_part(index);
  int64_t whole = (int64_t)part->array.size;
  if (offset < 0 || size < 0 || offset > whole || size > whole - offset)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "%lld bytes at %lld are not all in a buffer of %lld bytes", (long long)size,
                        (long long)offset, (long long)whole);
  pthread_mutex_lock(&manager->lock);
  if (part->last || plugin_promise_is_kept(part->ready)) {
    pthread_mutex_unlock(&manager->lock);
    return no_more(index);
  }
  part->last = last;
  if (strides != NULL) {
    int64_t dense[MAX_RANK];
    dense_strides(dense, part->array.dims, part->array.rank, element_size(part->array.type), NULL);
    copy_strided(part->staging->data, dense, data, strides, part->array.dims, part->array.rank,
                 element_size(part->array.type));
  } else if (size > 0) {
    memcpy((char *)part->staging->data + offset, data, (size_t)size);
  }
  pthread_mutex_unlock(&manager->lock);
  if (last) plugin_promise_keep(part->ready, storage_fill(part->storage, part->staging, &part->array));
  return NULL;
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  PJRT_Error *error = receive(args->transfer_manager, args->buffer_index, args->data, NULL,
                              args->offset, args->transfer_size, args->is_last_transfer);
  if (error == NULL) args->done_with_h2d_transfer = plugin_event(plugin_promise_kept(NULL));
  return error;
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral) {
  Part *part = part_of(args->transfer_manager, args->buffer_index);
  int64_t strides[MAX_RANK];
  PJRT_Error *error = part == NULL ? no_part(args->buffer_index) : NULL;
  if (error == NULL &&
      (args->shape_element_type != (PJRT_Buffer_Type)part->array.type ||
       args->shape_num_dims != part->array.rank ||
       memcmp(args->shape_dims, part->array.dims, part->array.rank * sizeof(int64_t)) != 0))
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the literal has another shape than buffer %d",
                         args->buffer_index);
  if (error == NULL) error = host_strides(args->shape_layout, &part->array, strides);
  if (error == NULL)
    error = receive(args->transfer_manager, args->buffer_index, args->data, strides, 0,
                    (int64_t)part->array.size, true);
  if (error == NULL) args->done_with_h2d_transfer = plugin_event(plugin_promise_kept(NULL));
  return error;
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer) {
  Part *part = part_of(args->transfer_manager, args->buffer_index);
  if (part == NULL) return no_part(args->buffer_index);
  pthread_mutex_lock(&args->transfer_manager->lock);
  bool again = part->retrieved;
  part->retrieved = true;
  pthread_mutex_unlock(&args->transfer_manager->lock);
  if (again)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "buffer %d was retrieved before",
                        args->buffer_index);
  args->buffer_out = buffer_new(args->transfer_manager->device, array_type_copy(&part->array),
                                storage_share(part->storage), plugin_promise_share(part->ready));
  return NULL;
}

TELLS(PJRT_AsyncHostToDeviceTransferManager_Device, device_out, args->transfer_manager->device)
TELLS(PJRT_AsyncHostToDeviceTransferManager_BufferCount, buffer_count,
      args->transfer_manager->count)

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_BufferSize) {
  Part *part = part_of(args->transfer_manager, args->buffer_index);
  if (part == NULL) return no_part(args->buffer_index);
  args->buffer_size = part->array.size;
  return NULL;
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_SetBufferError) {
  Part *part = part_of(args->transfer_manager, args->buffer_index);
  if (part == NULL) return no_part(args->buffer_index);
  if (plugin_promise_is_kept(part->ready)) return no_more(args->buffer_index);
  plugin_promise_keep(part->ready,
                      plugin_error_of(args->error_code, args->error_message, args->error_message_size));
  return NULL;
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_AddMetadata) { return NULL; }
