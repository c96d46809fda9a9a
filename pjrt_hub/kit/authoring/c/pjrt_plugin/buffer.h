/* A buffer is an array in the memory of a device. Everything that still reads its memory shares it. */
#ifndef PJRT_PLUGIN_BUFFER_H
#define PJRT_PLUGIN_BUFFER_H

#include "array.h"
#include "client.h"

/* A storage is memory of a device, or memory that a host lent. */
typedef struct {
  int references;
  PJRT_Device *device;
  void *memory;
  size_t size;
  bool lent;
  void (*give_back)(void *memory, void *argument);
  void *argument;
} PluginStorage;

struct PJRT_Buffer {
  PJRT_Device *device;
  PluginArray array;
  pthread_mutex_t lock;   /* Guards the fields below. */
  PluginStorage *storage; /* It is NULL after the buffer is deleted. */
  PluginPromise *ready;
  size_t external; /* Counts the references by pointer, which keep `pinned`. */
  PluginStorage *pinned;
};

/* The plugin's functions for memory. plugin_write copies from host memory or another device. The plugin may keep the
   host's storage, and *memory may stay NULL until it is written. */
PLUGIN_ASKED PJRT_Error *plugin_allocate(PJRT_Device *device, size_t size, void **memory);
PLUGIN_ASKED void plugin_release(PJRT_Device *device, void *memory);
PLUGIN_ASKED PJRT_Error *plugin_write(PluginStorage *to, PluginStorage *from, const PluginArray *array);
PLUGIN_ASKED PJRT_Error *plugin_read(PluginStorage *from, PluginStorage *host, const PluginArray *array);

static inline PluginStorage *plugin_storage_of(PJRT_Device *device, void *memory, size_t size) {
  PluginStorage *storage = PLUGIN_NEW(PluginStorage, 1);
  plugin_client_share(device->client);
  storage->references = 1;
  storage->device = device;
  storage->memory = memory;
  storage->size = size;
  return storage;
}

/* Makes a storage of memory that was lent. */
static inline PluginStorage *plugin_storage_lent(PJRT_Device *device, void *memory, size_t size,
                                                 void (*give_back)(void *, void *), void *argument) {
  PluginStorage *storage = plugin_storage_of(device, memory, size);
  storage->lent = true;
  storage->give_back = give_back;
  storage->argument = argument;
  return storage;
}

/* Allocates memory for an array on a device. */
static inline PJRT_Error *plugin_storage(PJRT_Device *device, size_t size, PluginStorage **storage) {
  void *memory = NULL;
  PJRT_Error *error = plugin_allocate(device, size > 0 ? size : 1, &memory);
  if (error != NULL) return error;
  *storage = plugin_storage_of(device, memory, size);
  pthread_mutex_lock(&device->lock);
  device->in_use += (int64_t)size;
  device->count++;
  if (device->in_use > device->peak) device->peak = device->in_use;
  if ((int64_t)size > device->largest) device->largest = (int64_t)size;
  pthread_mutex_unlock(&device->lock);
  return NULL;
}

static inline PluginStorage *plugin_storage_share(PluginStorage *storage) {
  plugin_count_up(&storage->references);
  return storage;
}

static inline void plugin_storage_let_go(PluginStorage *storage) {
  if (storage == NULL || !plugin_count_down(&storage->references)) return;
  PJRT_Device *device = storage->device;
  if (!storage->lent) {
    plugin_release(device, storage->memory);
    pthread_mutex_lock(&device->lock);
    device->in_use -= (int64_t)storage->size;
    pthread_mutex_unlock(&device->lock);
  } else if (storage->give_back != NULL) {
    storage->give_back(storage->memory, storage->argument);
  }
  free(storage);
  plugin_client_let_go(device->client);
}

static inline void plugin_free_lent(void *memory, void *argument) {
  (void)argument;
  free(memory);
}

/* Gives host memory as large as a storage, or the storage itself if any thread may write its host memory. */
static inline PJRT_Error *plugin_staging(PluginStorage *storage, PluginStorage **host) {
  const Plugin *plugin = storage->device->client->plugin;
  *host = plugin->any_thread && plugin->host_memory ? plugin_storage_share(storage) : NULL;
  if (*host != NULL) return NULL;
  void *memory = malloc(storage->size > 0 ? storage->size : 1);
  if (memory == NULL) return plugin_no_memory(storage->size);
  *host = plugin_storage_lent(storage->device, memory, storage->size, plugin_free_lent, NULL);
  return NULL;
}

/* Makes a buffer, which takes over the storage and the promise. */
static inline PJRT_Buffer *plugin_buffer(const PluginArray *array, PluginStorage *storage,
                                         PluginPromise *ready) {
  PJRT_Buffer *buffer = PLUGIN_NEW(PJRT_Buffer, 1);
  plugin_client_share(storage->device->client);
  buffer->device = storage->device;
  buffer->array = *array;
  buffer->storage = storage;
  buffer->ready = ready;
  pthread_mutex_init(&buffer->lock, NULL);
  return buffer;
}

/* Shares the storage and the promise of a buffer that was not deleted; either pointer may be NULL. */
static inline PJRT_Error *plugin_buffer_take(PJRT_Buffer *buffer, PluginStorage **storage,
                                             PluginPromise **ready) {
  pthread_mutex_lock(&buffer->lock);
  bool there = buffer->storage != NULL;
  if (there && storage != NULL) *storage = plugin_storage_share(buffer->storage);
  if (there && ready != NULL) *ready = plugin_promise_share(buffer->ready);
  pthread_mutex_unlock(&buffer->lock);
  if (there) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer was deleted or donated");
}

/* Does what plugin_buffer_take does, and deletes the buffer unless there are references by pointer. */
static inline PJRT_Error *plugin_buffer_donate(PJRT_Buffer *buffer, PluginStorage **storage,
                                               PluginPromise **ready) {
  pthread_mutex_lock(&buffer->lock);
  *storage = buffer->storage;
  if (*storage != NULL) *ready = plugin_promise_share(buffer->ready);
  if (buffer->external == 0) {
    buffer->storage = NULL;
  } else if (*storage != NULL) {
    plugin_storage_share(*storage);
  }
  pthread_mutex_unlock(&buffer->lock);
  if (*storage != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer was deleted or donated");
}

/* Undoes plugin_buffer_donate for a call that failed. */
static inline void plugin_buffer_give_back(PJRT_Buffer *buffer, PluginStorage *storage) {
  pthread_mutex_lock(&buffer->lock);
  if (buffer->storage == NULL) buffer->storage = plugin_storage_share(storage);
  pthread_mutex_unlock(&buffer->lock);
}

static inline void plugin_buffer_delete(PJRT_Buffer *buffer) {
  pthread_mutex_lock(&buffer->lock);
  PluginStorage *storage = buffer->storage;
  buffer->storage = NULL;
  pthread_mutex_unlock(&buffer->lock);
  plugin_storage_let_go(storage);
}

static inline void plugin_buffer_end(PJRT_Buffer *buffer) {
  if (buffer == NULL) return;
  PJRT_Client *client = buffer->device->client;
  plugin_storage_let_go(buffer->storage);
  plugin_storage_let_go(buffer->pinned);
  plugin_promise_let_go(buffer->ready);
  pthread_mutex_destroy(&buffer->lock);
  free(buffer);
  plugin_client_let_go(client);
}

PLUGIN_DOES(PJRT_Buffer_Destroy, plugin_buffer_end(args->buffer))
PLUGIN_DOES(PJRT_Buffer_Delete, plugin_buffer_delete(args->buffer))

PLUGIN_FUNCTION(PJRT_Buffer_IsDeleted) {
  pthread_mutex_lock(&args->buffer->lock);
  args->is_deleted = args->buffer->storage == NULL;
  pthread_mutex_unlock(&args->buffer->lock);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_ReadyEvent) {
  PluginPromise *ready = NULL;
  PJRT_Error *error = plugin_buffer_take(args->buffer, NULL, &ready);
  args->event = plugin_event(error == NULL ? ready : plugin_promise_kept(error));
  return NULL;
}

/* Properties of buffers */

PLUGIN_TELLS(PJRT_Buffer_ElementType, type, args->buffer->array.type)
PLUGIN_TELLS_LIST(PJRT_Buffer_Dimensions, dims, args->buffer->array.dims, args->buffer->array.rank)
PLUGIN_TELLS(PJRT_Buffer_OnDeviceSizeInBytes, on_device_size_in_bytes,
             plugin_array_size(&args->buffer->array))
PLUGIN_TELLS(PJRT_Buffer_Device, device, args->buffer->device)
PLUGIN_TELLS(PJRT_Buffer_Memory, memory, args->buffer->device->memories[0])
PLUGIN_TELLS(PJRT_Buffer_IsOnCpu, is_on_cpu, args->buffer->device->client->plugin->host_memory)

PLUGIN_FUNCTION(PJRT_Buffer_UnpaddedDimensions) {
  args->unpadded_dims = args->buffer->array.dims;
  args->num_dims = args->buffer->array.rank;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_DynamicDimensionIndices) {
  static const size_t none[1] = {0};
  args->dynamic_dim_indices = none;
  args->num_dynamic_dims = 0;
  return NULL;
}

/* Returns the row-major order of a rank, which is the end of one list for all ranks. */
static inline const int64_t *plugin_row_major(size_t rank) {
  static const int64_t order[PLUGIN_MAX_RANK] = {
      63, 62, 61, 60, 59, 58, 57, 56, 55, 54, 53, 52, 51, 50, 49, 48,
      47, 46, 45, 44, 43, 42, 41, 40, 39, 38, 37, 36, 35, 34, 33, 32,
      31, 30, 29, 28, 27, 26, 25, 24, 23, 22, 21, 20, 19, 18, 17, 16,
      15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0};
  return order + (PLUGIN_MAX_RANK - rank);
}

PLUGIN_FUNCTION(PJRT_Buffer_GetMemoryLayout) {
  memset(&args->layout, 0, sizeof args->layout);
  args->layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  args->layout.tiled.minor_to_major = plugin_row_major(args->buffer->array.rank);
  args->layout.tiled.minor_to_major_size = args->buffer->array.rank;
  return NULL;
}

/* References by pointer */

static inline PJRT_Error *plugin_no_pointer(PJRT_Client *client) {
  if (client->plugin->host_memory) return NULL;
  return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "the device's memory has no address in this process");
}

/* Waits until a program has written the storage, and shares it. */
static inline PJRT_Error *plugin_buffer_finish(PJRT_Buffer *buffer, PluginStorage **storage) {
  PluginPromise *ready = NULL;
  PJRT_Error *error = plugin_no_pointer(buffer->device->client);
  if (error == NULL) error = plugin_buffer_take(buffer, storage, &ready);
  if (error != NULL) return error;
  error = plugin_promise_await(ready);
  plugin_promise_let_go(ready);
  if (error != NULL) plugin_storage_let_go(*storage);
  return error;
}

PLUGIN_FUNCTION(PJRT_Buffer_UnsafePointer) {
  PluginStorage *storage = NULL;
  PJRT_Error *error = plugin_no_pointer(args->buffer->device->client);
  if (error == NULL) error = plugin_buffer_take(args->buffer, &storage, NULL);
  if (error != NULL) return error;
  args->buffer_pointer = (uintptr_t)storage->memory;
  plugin_storage_let_go(storage);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_OpaqueDeviceMemoryDataPointer) {
  PluginStorage *storage = NULL;
  PJRT_Error *error = plugin_buffer_finish(args->buffer, &storage);
  if (error != NULL) return error;
  args->device_memory_ptr = storage->memory;
  plugin_storage_let_go(storage);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_IncreaseExternalReferenceCount) {
  PluginStorage *storage = NULL;
  PJRT_Error *error = plugin_buffer_finish(args->buffer, &storage);
  if (error != NULL) return error;
  pthread_mutex_lock(&args->buffer->lock);
  if (args->buffer->external++ == 0) {
    args->buffer->pinned = storage;
    storage = NULL;
  }
  pthread_mutex_unlock(&args->buffer->lock);
  plugin_storage_let_go(storage);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_DecreaseExternalReferenceCount) {
  PluginStorage *pinned = NULL;
  pthread_mutex_lock(&args->buffer->lock);
  bool held = args->buffer->external > 0;
  if (held && --args->buffer->external == 0) {
    pinned = args->buffer->pinned;
    args->buffer->pinned = NULL;
  }
  pthread_mutex_unlock(&args->buffer->lock);
  plugin_storage_let_go(pinned);
  if (held) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "nobody holds a reference to the buffer");
}

/* Buffers of lent memory, buffers without a value, and buffers of an error */

/* Returns the device for a new buffer. */
static inline PJRT_Error *plugin_place(PJRT_Device *device, PJRT_Memory *memory, PJRT_Device **chosen) {
  *chosen = memory != NULL ? plugin_device_of(memory) : device;
  if (*chosen == NULL)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "neither a device nor a memory is given");
  if (device == NULL || device == *chosen) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the memory is another device's");
}

PLUGIN_FUNCTION(PJRT_Client_CreateViewOfDeviceBuffer) {
  typedef PJRT_Client_CreateViewOfDeviceBuffer_Args Args;
  PJRT_Device *device;
  PluginArray array;
  PJRT_Error *error = plugin_no_pointer(args->client);
  if (error == NULL)
    error = plugin_place(args->device, PLUGIN_HAS(args, Args, memory) ? args->memory : NULL, &device);
  if (error == NULL) error = plugin_layout_check(args->layout, args->num_dims);
  if (error == NULL) error = plugin_array_check(&array, args->element_type, args->dims, args->num_dims);
  if (error == NULL && (uintptr_t)args->device_buffer_ptr % plugin_element_size(array.type) != 0)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the memory is not aligned for its elements");
  if (error == NULL && args->device_buffer_ptr == NULL && plugin_array_size(&array) > 0)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the memory is NULL");
  if (error != NULL) return error;
  PluginStorage *storage =
      plugin_storage_lent(device, args->device_buffer_ptr, plugin_array_size(&array),
                          args->on_delete_callback, args->on_delete_callback_arg);
  args->buffer = plugin_buffer(&array, storage, plugin_promise_kept(NULL));
  return NULL;
}

/* Makes a buffer with memory for its array, and takes over the promise. */
static inline PJRT_Error *plugin_buffer_room(PJRT_Device *device, PJRT_Memory *memory,
                                             PJRT_Buffer_Type type, const int64_t *dims, size_t rank,
                                             const PJRT_Buffer_MemoryLayout *layout,
                                             PluginPromise *ready, PJRT_Buffer **buffer) {
  PluginArray array;
  PluginStorage *storage = NULL;
  PJRT_Error *error = plugin_place(device, memory, &device);
  if (error == NULL) error = plugin_layout_check(layout, rank);
  if (error == NULL) error = plugin_array_check(&array, type, dims, rank);
  if (error == NULL) error = plugin_storage(device, plugin_array_size(&array), &storage);
  if (error == NULL)
    *buffer = plugin_buffer(&array, storage, ready);
  else
    plugin_promise_let_go(ready);
  return error;
}

/* If any thread may write, memory that does not exist yet is made by writing to it. */
PLUGIN_FUNCTION(PJRT_Client_CreateUninitializedBuffer) {
  PJRT_Error *error = plugin_buffer_room(args->device, args->memory, args->shape_element_type,
                                         args->shape_dims, args->shape_num_dims, args->shape_layout,
                                         plugin_promise_kept(NULL), &args->buffer);
  if (error != NULL || !args->client->plugin->any_thread || args->buffer->storage->memory != NULL) return error;
  PluginStorage *host = NULL;
  error = plugin_staging(args->buffer->storage, &host);
  if (error == NULL) error = plugin_write(args->buffer->storage, host, &args->buffer->array);
  plugin_storage_let_go(host);
  if (error != NULL) plugin_buffer_end(args->buffer);
  return error;
}

PLUGIN_FUNCTION(PJRT_Client_CreateErrorBuffer) {
  typedef PJRT_Client_CreateErrorBuffer_Args Args;
  PJRT_Error *carried =
      plugin_error_of(args->error_code, args->error_message, args->error_message_size);
  if (PLUGIN_HAS(args, Args, num_payload)) plugin_error_add(carried, args->payload, args->num_payload);
  return plugin_buffer_room(NULL, args->memory, args->shape_element_type, args->shape_dims,
                            args->shape_num_dims, args->shape_layout, plugin_promise_kept(carried),
                            &args->buffer);
}

#endif
