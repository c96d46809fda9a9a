/* Copies: from the host to a device, back, and between devices. All are made by the devices' threads. */
#ifndef PJRT_PLUGIN_TRANSFER_H
#define PJRT_PLUGIN_TRANSFER_H

#include "buffer.h"

/* Copies to a device, from memory that the copy owns, once the memory is filled. */
typedef struct {
  PluginWork work;
  PluginStorage *to;
  char *host;
  PluginPromise *filled, *done;
} PluginCopyIn;

static inline void plugin_copy_in_run(PluginWork *work) {
  PluginCopyIn *copy = (PluginCopyIn *)work;
  PJRT_Error *error = plugin_error_copy(copy->filled->error);
  if (error == NULL && copy->to->size > 0)
    error = plugin_self.copy_in(copy->to->device->opened, copy->to->memory, copy->host, copy->to->size);
  free(copy->host);
  plugin_promise_keep(copy->done, error);
  plugin_promise_let_go(copy->done);
  plugin_promise_let_go(copy->filled);
  plugin_storage_let_go(copy->to);
  free(copy);
}

/* Takes the host memory over, and the promise that it will be filled; shares the rest. */
static inline void plugin_copy_in(PluginStorage *to, char *host, PluginPromise *filled,
                                  PluginPromise *done) {
  PluginCopyIn *copy = PLUGIN_NEW(PluginCopyIn, 1);
  copy->work.run = plugin_copy_in_run;
  copy->to = plugin_storage_share(to);
  copy->host = host;
  copy->filled = filled;
  copy->done = plugin_promise_share(done);
  plugin_work_begin(&copy->work, to->device->queue, &copy->filled, 1);
}

PLUGIN_FUNCTION(PJRT_Client_BufferFromHostBuffer) {
  PJRT_Device *device;
  PluginArray array;
  PluginStorage *storage = NULL;
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
  char *host = (char *)malloc(size > 0 ? size : 1);
  if (host == NULL) {
    plugin_storage_let_go(storage);
    return plugin_no_memory(size);
  }
  plugin_strides(&array, NULL, dense);
  if (args->num_byte_strides == 0 || memcmp(args->byte_strides, dense, array.rank * sizeof *dense) == 0)
    memcpy(host, size > 0 ? args->data : host, size);
  else
    plugin_copy_strided(&array, host, dense, (const char *)args->data, args->byte_strides);
  PluginPromise *ready = plugin_promise();
  plugin_copy_in(storage, host, plugin_promise_kept(NULL), ready);
  args->buffer = plugin_buffer(&array, storage, ready);
  args->done_with_host_buffer = plugin_event(plugin_promise_kept(NULL)); /* The copy is queued. */
  return NULL;
}

/* Copies to the host once the buffer is ready: an array in some order of dimensions, or some bytes. */
typedef struct {
  PluginWork work;
  PluginStorage *from;
  PluginPromise *ready, *done;
  PluginArray array;
  char *to;
  bool whole; /* dense, row-major */
  int64_t strides[PLUGIN_MAX_RANK];
  int64_t offset, size; /* of some bytes; -1 for an array */
} PluginCopyOut;

static inline void plugin_copy_out_run(PluginWork *work) {
  PluginCopyOut *copy = (PluginCopyOut *)work;
  PluginStorage *from = copy->from;
  int64_t dense[PLUGIN_MAX_RANK];
  char *host = copy->whole || from->size == 0 ? copy->to : (char *)malloc(from->size);
  PJRT_Error *error = plugin_error_copy(copy->ready->error);
  if (error == NULL && host == NULL && from->size > 0) error = plugin_no_memory(from->size);
  if (error == NULL && from->size > 0)
    error = plugin_self.copy_out(from->device->opened, host, from->memory, from->size);
  if (error == NULL && host != copy->to && copy->size >= 0) {
    memcpy(copy->to, host + copy->offset, (size_t)copy->size);
  } else if (error == NULL && host != copy->to) {
    plugin_strides(&copy->array, NULL, dense);
    plugin_copy_strided(&copy->array, copy->to, copy->strides, host, dense);
  }
  if (host != copy->to) free(host);
  plugin_promise_keep(copy->done, error);
  plugin_promise_let_go(copy->done);
  plugin_promise_let_go(copy->ready);
  plugin_storage_let_go(from);
  free(copy);
}

/* Begins to fill the host's memory; *done is kept when it is full. */
static inline PJRT_Error *plugin_copy_out(PJRT_Buffer *buffer, PluginCopyOut *copy, PluginPromise **done) {
  PJRT_Error *error = plugin_buffer_take(buffer, &copy->from, &copy->ready);
  if (error != NULL) {
    free(copy);
    return error;
  }
  copy->work.run = plugin_copy_out_run;
  copy->array = buffer->array;
  copy->done = plugin_promise();
  *done = plugin_promise_share(copy->done);
  plugin_work_begin(&copy->work, buffer->device->queue, &copy->ready, 1);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Buffer_ToHostBuffer) {
  const PluginArray *array = &args->src->array;
  const int64_t *order;
  size_t size = plugin_array_size(array);
  PluginPromise *done = NULL;
  PJRT_Error *error = plugin_layout_order(args->host_layout, array->rank, &order);
  if (error != NULL) return error;
  if (args->dst == NULL) {
    args->dst_size = size;
    return NULL;
  }
  if (args->dst_size < size)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes do not fit into %zu", size,
                        args->dst_size);
  PluginCopyOut *copy = PLUGIN_NEW(PluginCopyOut, 1);
  int64_t dense[PLUGIN_MAX_RANK];
  plugin_strides(array, NULL, dense);
  plugin_strides(array, order, copy->strides);
  copy->to = (char *)args->dst;
  copy->whole = memcmp(dense, copy->strides, array->rank * sizeof *dense) == 0;
  copy->size = -1;
  error = plugin_copy_out(args->src, copy, &done);
  if (error == NULL) args->event = plugin_event(done);
  return error;
}

PLUGIN_FUNCTION(PJRT_Buffer_CopyRawToHost) {
  int64_t whole = (int64_t)plugin_array_size(&args->buffer->array);
  PluginPromise *done = NULL;
  if (args->offset < 0 || args->transfer_size < 0 || args->offset > whole ||
      args->transfer_size > whole - args->offset)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "%lld bytes from %lld on are not all in a buffer of %lld bytes",
                        (long long)args->transfer_size, (long long)args->offset, (long long)whole);
  PluginCopyOut *copy = PLUGIN_NEW(PluginCopyOut, 1);
  copy->to = (char *)args->dst;
  copy->offset = args->offset;
  copy->size = args->transfer_size;
  PJRT_Error *error = plugin_copy_out(args->buffer, copy, &done);
  if (error == NULL) args->event = plugin_event(done);
  return error;
}

/* Copies between devices: the first device's thread reads, the second one's writes. */
static inline PJRT_Error *plugin_copy_between(PJRT_Buffer *from, PJRT_Device *device, PJRT_Buffer **made) {
  size_t size = plugin_array_size(&from->array);
  PluginStorage *storage = NULL;
  PluginPromise *filled = NULL;
  PJRT_Error *error = plugin_storage(device, size, &storage);
  if (error != NULL) return error;
  PluginCopyOut *copy = PLUGIN_NEW(PluginCopyOut, 1);
  char *host = (char *)malloc(size > 0 ? size : 1);
  copy->to = host;
  copy->whole = true;
  copy->size = -1;
  error = host == NULL ? plugin_no_memory(size) : NULL;
  if (error == NULL)
    error = plugin_copy_out(from, copy, &filled);
  else
    free(copy);
  if (error != NULL) {
    free(host);
    plugin_storage_let_go(storage);
    return error;
  }
  PluginPromise *ready = plugin_promise();
  *made = plugin_buffer(&from->array, storage, plugin_promise_share(ready));
  plugin_copy_in(storage, host, filled, ready);
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
