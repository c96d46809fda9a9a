/* Copies from and to the host, and between devices. The devices' threads make them, unless any thread may. */
#ifndef PJRT_PLUGIN_TRANSFER_H
#define PJRT_PLUGIN_TRANSFER_H

#include "buffer.h"

static inline void plugin_copy_begin(PluginStorage *storage, PluginWork *work, PluginPromise *const *promise) {
  PJRT_Device *device = storage->device;
  plugin_work_begin(work, device->client->plugin->any_thread ? NULL : device->queue, promise, 1);
}

/* Work that writes the contents of another storage to a device, once that storage is filled. */
typedef struct {
  PluginWork work;
  PluginArray array;
  PluginStorage *to, *from;
  PluginPromise *filled, *done;
} PluginCopyIn;

static inline void plugin_copy_in_run(PluginWork *work) {
  PluginCopyIn *copy = (PluginCopyIn *)work;
  PJRT_Error *error = plugin_error_copy(copy->filled->error);
  if (error == NULL && copy->to != copy->from) error = plugin_write(copy->to, copy->from, &copy->array);
  plugin_promise_keep(copy->done, error);
  plugin_promise_let_go(copy->done);
  plugin_promise_let_go(copy->filled);
  plugin_storage_let_go(copy->from);
  plugin_storage_let_go(copy->to);
  free(copy);
}

/* Begins to copy to a device. It takes over `from` and `filled`, the promise of its contents, and shares the rest. */
static inline void plugin_copy_in(PluginStorage *to, PluginStorage *from, const PluginArray *array,
                                  PluginPromise *filled, PluginPromise *done) {
  PluginCopyIn *copy = PLUGIN_NEW(PluginCopyIn, 1);
  copy->work.run = plugin_copy_in_run;
  copy->array = *array;
  copy->to = plugin_storage_share(to);
  copy->from = from;
  copy->filled = filled;
  copy->done = plugin_promise_share(done);
  plugin_copy_begin(to, &copy->work, &copy->filled);
}

PLUGIN_FUNCTION(PJRT_Client_BufferFromHostBuffer) {
  PJRT_Device *device;
  PluginArray array;
  PluginStorage *storage = NULL, *host = NULL;
  int64_t dense[PLUGIN_MAX_RANK];
  PJRT_Error *error = plugin_place(args->device, args->memory, &device);
  if (error == NULL) error = plugin_layout_check(args->device_layout, args->num_dims);
  if (error == NULL) error = plugin_array_check(&array, args->type, args->dims, args->num_dims);
  if (error != NULL) return error;
  size_t size = plugin_array_size(&array);
  if (args->num_byte_strides != 0 && args->num_byte_strides != args->num_dims)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu strides for %zu dimensions",
                        args->num_byte_strides, args->num_dims);
  if (args->data == NULL && size > 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the host's memory is NULL");
  if ((error = plugin_storage(device, size, &storage)) != NULL) return error;
  if ((error = plugin_staging(storage, &host)) != NULL) {
    plugin_storage_let_go(storage);
    return error;
  }
  plugin_strides(&array, NULL, dense);
  if (args->num_byte_strides == 0 || memcmp(args->byte_strides, dense, array.rank * sizeof *dense) == 0)
    memcpy(host->memory, size > 0 ? args->data : host->memory, size);
  else
    plugin_copy_strided(&array, (char *)host->memory, dense, (const char *)args->data, args->byte_strides);
  PluginPromise *ready = plugin_promise();
  plugin_copy_in(storage, host, &array, plugin_promise_kept(NULL), ready);
  args->buffer = plugin_buffer(&array, storage, ready);
  if (device->client->plugin->any_thread) error = plugin_error_copy(ready->error); /* The copy was made. */
  if (error == NULL)
    args->done_with_host_buffer = plugin_event(plugin_promise_kept(NULL)); /* There is a copy. */
  else
    plugin_buffer_end(args->buffer);
  return error;
}

/* Work that copies to the host once the buffer is ready: an array in some order of dimensions, or some bytes. */
typedef struct {
  PluginWork work;
  PluginStorage *from;
  PluginPromise *ready, *done;
  PluginArray array;
  char *to;
  bool whole; /* The copy is dense and row-major. */
  int64_t strides[PLUGIN_MAX_RANK];
  int64_t offset, size; /* The bytes to copy; `size` is -1 for an array. */
} PluginCopyOut;

static inline void plugin_copy_out_run(PluginWork *work) {
  PluginCopyOut *copy = (PluginCopyOut *)work;
  PluginStorage *from = copy->from, *host = NULL;
  int64_t dense[PLUGIN_MAX_RANK];
  PJRT_Error *error = plugin_error_copy(copy->ready->error);
  if (error == NULL && copy->whole)
    host = plugin_storage_lent(from->device, copy->to, from->size, NULL, NULL);
  else if (error == NULL)
    error = plugin_staging(from, &host);
  if (error == NULL && host != from && from->size > 0) error = plugin_read(from, host, &copy->array);
  if (error == NULL && copy->size >= 0) {
    memcpy(copy->to, (char *)host->memory + copy->offset, (size_t)copy->size);
  } else if (error == NULL && !copy->whole) {
    plugin_strides(&copy->array, NULL, dense);
    plugin_copy_strided(&copy->array, copy->to, copy->strides, (const char *)host->memory, dense);
  }
  plugin_storage_let_go(host);
  plugin_promise_keep(copy->done, error);
  plugin_promise_let_go(copy->done);
  plugin_promise_let_go(copy->ready);
  plugin_storage_let_go(from);
  free(copy);
}

/* Makes work that copies a dense, row-major array to `to`, which may be set later. Takes over `from` and `ready`. */
static inline PluginCopyOut *plugin_copy_out_of(PluginStorage *from, PluginPromise *ready,
                                                const PluginArray *array, char *to) {
  PluginCopyOut *copy = PLUGIN_NEW(PluginCopyOut, 1);
  copy->work.run = plugin_copy_out_run;
  copy->from = from;
  copy->ready = ready;
  copy->array = *array;
  copy->done = plugin_promise();
  copy->to = to;
  copy->whole = true;
  copy->size = -1;
  return copy;
}

/* Begins to fill the host's memory. Returns a promise that is kept when it is full. */
static inline PluginPromise *plugin_copy_out(PluginCopyOut *copy) {
  PluginPromise *done = plugin_promise_share(copy->done);
  plugin_copy_begin(copy->from, &copy->work, &copy->ready);
  return done;
}

PLUGIN_FUNCTION(PJRT_Buffer_ToHostBuffer) {
  const PluginArray *array = &args->src->array;
  const int64_t *order;
  size_t size = plugin_array_size(array);
  PluginStorage *from = NULL;
  PluginPromise *ready = NULL;
  PJRT_Error *error = plugin_layout_order(args->host_layout, array->rank, &order);
  if (error != NULL) return error;
  if (args->dst == NULL) {
    args->dst_size = size;
    return NULL;
  }
  if (args->dst_size < size)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes do not fit into %zu", size,
                        args->dst_size);
  if ((error = plugin_buffer_take(args->src, &from, &ready)) != NULL) return error;
  PluginCopyOut *copy = plugin_copy_out_of(from, ready, array, (char *)args->dst);
  int64_t dense[PLUGIN_MAX_RANK];
  plugin_strides(array, NULL, dense);
  plugin_strides(array, order, copy->strides);
  copy->whole = memcmp(dense, copy->strides, array->rank * sizeof *dense) == 0;
  args->event = plugin_event(plugin_copy_out(copy));
  return NULL;
}

/* Makes the work that copies some bytes of a buffer. */
static inline PJRT_Error *plugin_copy_bytes(PJRT_Buffer *buffer, int64_t offset, int64_t size, void *to,
                                            PluginCopyOut **copy) {
  int64_t whole = (int64_t)plugin_array_size(&buffer->array);
  PluginStorage *from = NULL;
  PluginPromise *ready = NULL;
  if (offset < 0 || size < 0 || offset > whole || size > whole - offset)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "%lld bytes from %lld on are not all in a buffer of %lld bytes", (long long)size,
                        (long long)offset, (long long)whole);
  PJRT_Error *error = plugin_buffer_take(buffer, &from, &ready);
  if (error != NULL) return error;
  *copy = plugin_copy_out_of(from, ready, &buffer->array, (char *)to);
  (*copy)->whole = false;
  (*copy)->offset = offset;
  (*copy)->size = size;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_CopyRawToHost) {
  PluginCopyOut *copy = NULL;
  PJRT_Error *error = plugin_copy_bytes(args->buffer, args->offset, args->transfer_size, args->dst, &copy);
  if (error == NULL) args->event = plugin_event(plugin_copy_out(copy));
  return error;
}

/* The host calls this when it knows where the bytes are to go. */
static inline void plugin_destination_known(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args) {
  PluginCopyOut *copy = (PluginCopyOut *)args->callback_data;
  copy->to = (char *)args->dst;
  if (args->error_code != PJRT_Error_Code_OK) {
    plugin_promise_let_go(copy->ready);
    copy->ready = plugin_promise_kept(
        plugin_error_of(args->error_code, args->error_message, args->error_message_size));
  }
  plugin_promise_let_go(plugin_copy_out(copy));
}

PLUGIN_FUNCTION(PJRT_Buffer_CopyRawToHostFuture) {
  PluginCopyOut *copy = NULL;
  PJRT_Error *error = plugin_copy_bytes(args->buffer, args->offset, args->transfer_size, NULL, &copy);
  if (error != NULL) return error;
  args->event = plugin_event(plugin_promise_share(copy->done));
  args->callback_data = copy;
  args->future_ready_callback = plugin_destination_known;
  return NULL;
}

/* Between devices */

/* Copies `from` to `to` once `ready` is kept. It takes over `from` and `ready`, and shares the rest. Without
   `any_thread`, the thread of the device of `from` reads, and that of the other device writes. */
static inline void plugin_copy_across(PluginStorage *to, PluginStorage *from, PluginPromise *ready,
                                      const PluginArray *array, PluginPromise *done) {
  PluginStorage *host = NULL;
  PJRT_Error *error = NULL;
  if (!to->device->client->plugin->any_thread && (error = plugin_staging(from, &host)) == NULL) {
    ready = plugin_copy_out(plugin_copy_out_of(from, ready, array, (char *)host->memory));
    from = host;
  }
  if (error == NULL) {
    plugin_copy_in(to, from, array, ready, done);
    return;
  }
  plugin_promise_keep(done, error);
  plugin_promise_let_go(ready);
  plugin_storage_let_go(from);
}

static inline PJRT_Error *plugin_copy_between(PJRT_Buffer *from, PJRT_Device *device, PJRT_Buffer **made) {
  PluginStorage *storage = NULL, *source = NULL;
  PluginPromise *source_ready = NULL;
  if (device->client->plugin != from->device->client->plugin)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the device is another plugin's");
  PJRT_Error *error = plugin_storage(device, plugin_array_size(&from->array), &storage);
  if (error == NULL) error = plugin_buffer_take(from, &source, &source_ready);
  if (error != NULL) {
    plugin_storage_let_go(storage);
    return error;
  }
  PluginPromise *ready = plugin_promise();
  *made = plugin_buffer(&from->array, storage, plugin_promise_share(ready));
  plugin_copy_across(storage, source, source_ready, &from->array, ready);
  plugin_promise_let_go(ready);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_CopyToDevice) {
  return plugin_copy_between(args->buffer, args->dst_device, &args->dst_buffer);
}

PLUGIN_FUNCTION(PJRT_Buffer_CopyToMemory) {
  return plugin_copy_between(args->buffer, plugin_device_of(args->dst_memory), &args->dst_buffer);
}

#endif
