/* Buffers: arrays on a device, row-major and without gaps. */
#include "plugin.h"

/* Makes a buffer, which takes the array type, the storage and the promise over. */
PJRT_Buffer *buffer_new(PJRT_Device *device, ArrayType array, Storage *storage, PluginPromise *ready) {
  PJRT_Buffer *buffer = plugin_zeroed(1, sizeof(PJRT_Buffer));
  client_share(device->client);
  buffer->device = device;
  buffer->array = array;
  buffer->storage = storage;
  buffer->ready = ready;
  pthread_mutex_init(&buffer->lock, NULL);
  return buffer;
}

static PJRT_Error *deleted(void) {
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer was deleted or donated");
}

/* Shares the storage and the promise of a buffer; either pointer may be NULL. */
PJRT_Error *buffer_take(PJRT_Buffer *buffer, Storage **storage, PluginPromise **ready) {
  pthread_mutex_lock(&buffer->lock);
  bool there = buffer->storage != NULL;
  if (there && storage != NULL) *storage = storage_share(buffer->storage);
  if (there && ready != NULL) *ready = plugin_promise_share(buffer->ready);
  pthread_mutex_unlock(&buffer->lock);
  return there ? NULL : deleted();
}

/* Does the same and deletes the buffer, unless there are references by pointer. */
PJRT_Error *buffer_donate(PJRT_Buffer *buffer, Storage **storage, PluginPromise **ready) {
  pthread_mutex_lock(&buffer->lock);
  *storage = buffer->storage;
  if (*storage != NULL) *ready = plugin_promise_share(buffer->ready);
  if (*storage != NULL && buffer->external > 0)
    storage_share(*storage);
  else
    buffer->storage = NULL;
  pthread_mutex_unlock(&buffer->lock);
  return *storage != NULL ? NULL : deleted();
}

/* Undoes a donation for a call that failed. */
void buffer_give_back(PJRT_Buffer *buffer, Storage *storage) {
  pthread_mutex_lock(&buffer->lock);
  if (buffer->storage == NULL) buffer->storage = storage_share(storage);
  pthread_mutex_unlock(&buffer->lock);
}

void buffer_delete(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&buffer->lock);
  Storage *storage = buffer->storage;
  buffer->storage = NULL;
  pthread_mutex_unlock(&buffer->lock);
  storage_let_go(storage);
}

void buffer_destroy(PJRT_Buffer *buffer) {
  if (buffer == NULL) return;
  PJRT_Client *client = buffer->device->client;
  storage_let_go(buffer->storage);
  storage_let_go(buffer->pinned);
  plugin_promise_let_go(buffer->ready);
  free(buffer->array.dims);
  pthread_mutex_destroy(&buffer->lock);
  free(buffer);
  client_let_go(client);
}

FUNCTION(PJRT_Buffer_Destroy) {
  buffer_destroy(args->buffer);
  return NULL;
}

TELLS(PJRT_Buffer_ElementType, type, (PJRT_Buffer_Type)args->buffer->array.type)
TELLS_LIST(PJRT_Buffer_Dimensions, dims, args->buffer->array.dims, args->buffer->array.rank)

FUNCTION(PJRT_Buffer_UnpaddedDimensions) {
  args->unpadded_dims = args->buffer->array.dims;
  args->num_dims = args->buffer->array.rank;
  return NULL;
}

FUNCTION(PJRT_Buffer_DynamicDimensionIndices) {
  static const size_t none[1];
  args->dynamic_dim_indices = none;
  args->num_dynamic_dims = 0;
  return NULL;
}

/* The row-major order of every rank is the end of this list. */
static int64_t numbers[MAX_RANK];

static void count_down(void) {
  for (int i = 0; i < MAX_RANK; i++) numbers[i] = MAX_RANK - 1 - i;
}

static const int64_t *row_major(size_t rank) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, count_down);
  return &numbers[MAX_RANK - rank];
}

FUNCTION(PJRT_Buffer_GetMemoryLayout) {
  args->layout = (PJRT_Buffer_MemoryLayout){
      .struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE,
      .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
      .tiled = {.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE,
                .minor_to_major = row_major(args->buffer->array.rank),
                .minor_to_major_size = args->buffer->array.rank},
  };
  return NULL;
}

TELLS(PJRT_Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes, args->buffer->array.size)
TELLS(PJRT_Buffer_Device, device, args->buffer->device)
TELLS(PJRT_Buffer_Memory, memory, args->buffer->device->memories[0])

FUNCTION(PJRT_Buffer_Delete) {
  buffer_delete(args->buffer);
  return NULL;
}

FUNCTION(PJRT_Buffer_IsDeleted) {
  pthread_mutex_lock(&args->buffer->lock);
  args->is_deleted = args->buffer->storage == NULL;
  pthread_mutex_unlock(&args->buffer->lock);
  return NULL;
}

TELLS(PJRT_Buffer_IsOnCpu, is_on_cpu, !args->buffer->device->client->backend->own_memory)

FUNCTION(PJRT_Buffer_ReadyEvent) {
  PluginPromise *ready;
  PJRT_Error *error = buffer_take(args->buffer, NULL, &ready);
  args->event = plugin_event(error == NULL ? ready : plugin_promise_kept(error));
  return NULL;
}

/* References by pointer */

static PJRT_Error *no_pointer(PJRT_Buffer *buffer) {
  if (!buffer->device->client->backend->own_memory) return NULL;
  return plugin_error(PJRT_Error_Code_UNIMPLEMENTED,
                      "the backend's device memory has no address in this process");
}

/* Waits until a program has written the storage, and shares it. */
static PJRT_Error *finished(PJRT_Buffer *buffer, Storage **storage) {
  PluginPromise *ready;
  PJRT_Error *error = no_pointer(buffer);
  if (error == NULL) error = buffer_take(buffer, storage, &ready);
  if (error != NULL) return error;
  error = plugin_promise_await(ready);
  plugin_promise_let_go(ready);
  if (error != NULL) storage_let_go(*storage);
  return error;
}

FUNCTION(PJRT_Buffer_UnsafePointer) {
  Storage *storage;
  PJRT_Error *error = no_pointer(args->buffer);
  if (error == NULL) error = buffer_take(args->buffer, &storage, NULL);
  if (error != NULL) return error;
  args->buffer_pointer = (uintptr_t)storage->data;
  storage_let_go(storage);
  return NULL;
}

FUNCTION(PJRT_Buffer_OpaqueDeviceMemoryDataPointer) {
  Storage *storage;
  PJRT_Error *error = finished(args->buffer, &storage);
  if (error != NULL) return error;
  args->device_memory_ptr = storage->data;
  storage_let_go(storage);
  return NULL;
}

FUNCTION(PJRT_Buffer_IncreaseExternalReferenceCount) {
  PJRT_Buffer *buffer = args->buffer;
  Storage *storage;
  PJRT_Error *error = finished(buffer, &storage);
  if (error != NULL) return error;
  pthread_mutex_lock(&buffer->lock);
  if (buffer->external++ == 0) {
    buffer->pinned = storage;
    storage = NULL;
  }
  pthread_mutex_unlock(&buffer->lock);
  storage_let_go(storage);
  return NULL;
}

FUNCTION(PJRT_Buffer_DecreaseExternalReferenceCount) {
  PJRT_Buffer *buffer = args->buffer;
  Storage *pinned = NULL;
  pthread_mutex_lock(&buffer->lock);
  bool held = buffer->external > 0;
  if (held && --buffer->external == 0) {
    pinned = buffer->pinned;
    buffer->pinned = NULL;
  }
  pthread_mutex_unlock(&buffer->lock);
  storage_let_go(pinned);
  if (held) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "nobody holds a reference to the buffer");
}

/* Buffers of borrowed memory, without a value, or with a later one */

/* Chooses the device of a memory or, without a memory, the device itself. */
static PJRT_Error *place(PJRT_Device *device, PJRT_Memory *memory, PJRT_Device **chosen) {
  *chosen = memory != NULL ? DEVICE_OF(memory) : device;
  if (*chosen != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "neither a device nor a memory is given");
}

FUNCTION_OF_SIZE(PJRT_Client_CreateViewOfDeviceBuffer,
                 THROUGH(PJRT_Client_CreateViewOfDeviceBuffer, buffer)) {
  PJRT_Memory *memory =
      HAS(args, PJRT_Client_CreateViewOfDeviceBuffer_Args, memory) ? args->memory : NULL;
  PJRT_Device *device;
  ArrayType array;
  PJRT_Error *error = place(args->device, memory, &device);
  if (error == NULL) error = check_layout(args->layout, args->num_dims);
  if (error == NULL && device->client->backend->own_memory)
    error = plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "the backend has memory of its own");
  if (error == NULL && (uintptr_t)args->device_buffer_ptr % ALIGNMENT)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the memory is not aligned for its elements");
  if (error == NULL) error = array_type(args->element_type, args->dims, args->num_dims, &array);
  if (error != NULL) return error;
  Storage *storage = storage_view(args->device_buffer_ptr, array.size, args->on_delete_callback,
                                  args->on_delete_callback_arg);
  args->buffer = buffer_new(device, array, storage, plugin_promise_kept(NULL));
  return NULL;
}

/* Makes a buffer with memory for its array; it takes the promise over. */
static PJRT_Error *with_room(PJRT_Device *device, int type, const int64_t *dims, size_t rank,
                             const PJRT_Buffer_MemoryLayout *layout, PluginPromise *ready,
                             PJRT_Buffer **buffer) {
  ArrayType array;
  PJRT_Error *error = check_layout(layout, rank);
  if (error == NULL) error = array_type(type, dims, rank, &array);
  Storage *storage = error == NULL ? storage_room(device, array.size) : NULL;
  if (error == NULL && storage == NULL) {
    error = plugin_no_memory(array.size);
    free(array.dims);
  }
  if (error == NULL)
    *buffer = buffer_new(device, array, storage, ready);
  else
    plugin_promise_let_go(ready);
  return error;
}

FUNCTION(PJRT_Client_CreateUninitializedBuffer) {
  PJRT_Device *device;
  PJRT_Error *error = place(args->device, args->memory, &device);
  if (error == NULL)
    error = with_room(device, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, plugin_promise_kept(NULL), &args->buffer);
  if (error != NULL) return error;
  Storage *storage = args->buffer->storage, *staging = storage_staging(storage);
  error = staging == NULL ? plugin_no_memory(storage->size)
                          : storage_fill(storage, staging, &args->buffer->array);
  storage_let_go(staging);
  if (error != NULL) buffer_destroy(args->buffer);
  return error;
}

FUNCTION_OF_SIZE(PJRT_Client_CreateErrorBuffer, THROUGH(PJRT_Client_CreateErrorBuffer, buffer)) {
  PJRT_Device *device;
  PJRT_Error *error = place(NULL, args->memory, &device);
  if (error != NULL) return error;
  PJRT_Error *carried =
      plugin_error_of(args->error_code, args->error_message, args->error_message_size);
  if (HAS(args, PJRT_Client_CreateErrorBuffer_Args, num_payload) && args->num_payload > 0)
    plugin_error_add(carried, args->payload, args->num_payload);
  return with_room(device, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                   args->shape_layout, plugin_promise_kept(carried), &args->buffer);
}

/* An alias is filled with a copy of the buffer that fulfills it. */
struct PJRT_FulfillAliasBufferCallback {
  ArrayType array;
  Storage *to, *from;
  PluginPromise *ready;
};

static void alias_end(PJRT_FulfillAliasBufferCallback *alias) {
  free(alias->array.dims);
  storage_let_go(alias->to);
  storage_let_go(alias->from);
  plugin_promise_let_go(alias->ready);
  free(alias);
}

FUNCTION(PJRT_Client_CreateAliasBuffer) {
  PJRT_Device *device;
  PJRT_Error *error = place(NULL, args->memory, &device);
  if (error == NULL)
    error = with_room(device, args->shape_element_type, args->shape_dims, args->shape_num_dims,
                      args->shape_layout, plugin_promise(), &args->alias_buffer);
  if (error != NULL) return error;
  PJRT_FulfillAliasBufferCallback *alias = plugin_zeroed(1, sizeof *alias);
  alias->array = array_type_copy(&args->alias_buffer->array);
  alias->to = storage_share(args->alias_buffer->storage);
  alias->ready = plugin_promise_share(args->alias_buffer->ready);
  args->fulfill_alias_buffer_cb = alias;
  return NULL;
}

static void fulfil(const PJRT_Error *error, void *argument) {
  PJRT_FulfillAliasBufferCallback *alias = argument;
  Storage *host = NULL;
  PJRT_Error *failed = plugin_error_copy(error);
  if (failed == NULL) failed = storage_on_host(alias->from, &alias->array, &host);
  if (failed == NULL) failed = storage_fill(alias->to, host, &alias->array);
  storage_let_go(host);
  plugin_promise_keep(alias->ready, failed);
  alias_end(alias);
}

FUNCTION(PJRT_Client_FulfillAliasBuffer) {
  PJRT_FulfillAliasBufferCallback *alias = args->fulfill_alias_buffer_cb;
  PJRT_Error *error = NULL;
  PluginPromise *ready = NULL;
  if (args->status_code != PJRT_Error_Code_OK)
    error = plugin_error_of(args->status_code, args->error_message, args->error_message_size);
  else if (args->buffer->array.size != alias->array.size)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer has another size than its alias");
  else
    error = buffer_take(args->buffer, &alias->from, &ready);
  if (error == NULL) {
    plugin_promise_then(ready, fulfil, alias);
  } else {
    plugin_promise_keep(alias->ready, error);
    alias_end(alias);
  }
  plugin_promise_let_go(ready);
  return NULL;
}

/* Moves the memory of a buffer to a new one of the same size, and deletes the old one. */
FUNCTION(PJRT_Buffer_Bitcast) {
  ArrayType array;
  Storage *storage;
  PluginPromise *ready;
  PJRT_Error *error = no_pointer(args->buffer);
  if (error == NULL) error = check_layout(args->device_layout, args->num_dims);
  if (error == NULL) error = array_type(args->element_type, args->dims, args->num_dims, &array);
  if (error != NULL) return error;
  if (array.size != args->buffer->array.size)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes cannot be read as %zu",
                         args->buffer->array.size, array.size);
  else
    error = buffer_take(args->buffer, &storage, &ready);
  if (error != NULL) {
    free(array.dims);
    return error;
  }
  buffer_delete(args->buffer);
  args->out_buffer = buffer_new(args->buffer->device, array, storage, ready);
  return NULL;
}

/* The new buffer is ready when the program that fills it and the host's dependency are done. */
typedef struct {
  PluginPromise *first, *both;
} Dependency;

static void first_done(const PJRT_Error *error, void *both) {
  plugin_promise_keep(both, plugin_error_copy(error));
  plugin_promise_let_go(both);
}

static void dependency_done(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args) {
  Dependency *dependency = args->callback_data;
  if (args->error_code == PJRT_Error_Code_OK)
    plugin_promise_then(dependency->first, first_done, plugin_promise_share(dependency->both));
  else
    plugin_promise_keep(dependency->both, plugin_error_of(args->error_code, args->error_message,
                                                          args->error_message_size));
  plugin_promise_let_go(dependency->first);
  plugin_promise_let_go(dependency->both);
  free(dependency);
}

FUNCTION(PJRT_Buffer_DonateWithControlDependency) {
  PJRT_Buffer *buffer = args->buffer;
  Storage *storage;
  PluginPromise *ready;
  PJRT_Error *error = buffer_take(buffer, &storage, &ready);
  if (error != NULL) return error;
  buffer_delete(buffer);
  Dependency *dependency = plugin_zeroed(1, sizeof(Dependency));
  *dependency = (Dependency){ready, plugin_promise()};
  args->callback_data = dependency;
  args->dependency_ready_callback = dependency_done;
  args->out_buffer = buffer_new(buffer->device, array_type_copy(&buffer->array), storage,
                                plugin_promise_share(dependency->both));
  return NULL;
}
