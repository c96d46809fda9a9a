/* Uploads: buffers that a host fills in parts. The C API names their functions after a transfer manager. */
#ifndef PJRT_PLUGIN_UPLOAD_H
#define PJRT_PLUGIN_UPLOAD_H

#include "alias.h"

typedef struct {
  PluginArray array;
  PluginStorage *storage, *host;
  PluginPromise *ready;
  bool last, retrieved;
} PluginUpload;

struct PJRT_AsyncHostToDeviceTransferManager {
  PJRT_Device *device;
  pthread_mutex_t lock; /* Guards `last`, `retrieved` and what is written to host memory. */
  size_t count;
  PluginUpload *uploads;
};

static inline void plugin_uploads_end(PJRT_AsyncHostToDeviceTransferManager *manager) {
  if (manager == NULL) return;
  for (size_t i = 0; i < manager->count; i++) {
    PluginUpload *upload = &manager->uploads[i];
    if (upload->ready != NULL && !upload->last)
      plugin_promise_keep(upload->ready, plugin_error(PJRT_Error_Code_INTERNAL,
                                                      "the transfer ended before all of the buffer had come"));
    plugin_storage_let_go(upload->host);
    plugin_storage_let_go(upload->storage);
    plugin_promise_let_go(upload->ready);
  }
  pthread_mutex_destroy(&manager->lock);
  free(manager->uploads);
  free(manager);
}

PLUGIN_DOES(PJRT_AsyncHostToDeviceTransferManager_Destroy,
            plugin_uploads_end(args->transfer_manager))

PLUGIN_FUNCTION(PJRT_Client_CreateBuffersForAsyncHostToDevice) {
  if (args->memory == NULL)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "no memory is given for the buffers");
  PJRT_AsyncHostToDeviceTransferManager *manager = PLUGIN_NEW(PJRT_AsyncHostToDeviceTransferManager, 1);
  PJRT_Error *error = NULL;
  manager->device = plugin_device_of(args->memory);
  manager->uploads = PLUGIN_NEW(PluginUpload, args->num_shape_specs);
  pthread_mutex_init(&manager->lock, NULL);
  for (size_t i = 0; error == NULL && i < args->num_shape_specs; i++) {
    const PJRT_ShapeSpec *spec = &args->shape_specs[i];
    PluginUpload *upload = &manager->uploads[manager->count++];
    if (i < args->num_device_layouts) error = plugin_layout_check(args->device_layouts[i], spec->num_dims);
    if (error == NULL)
      error = plugin_array_check(&upload->array, spec->element_type, spec->dims, spec->num_dims);
    if (error == NULL)
      error = plugin_storage(manager->device, plugin_array_size(&upload->array), &upload->storage);
    if (error == NULL) error = plugin_staging(upload->storage, &upload->host);
    if (error == NULL) upload->ready = plugin_promise();
  }
  if (error == NULL)
    args->transfer_manager = manager;
  else
    plugin_uploads_end(manager);
  return error;
}

static inline PJRT_Error *plugin_upload_of(PJRT_AsyncHostToDeviceTransferManager *manager, int index,
                                           PluginUpload **upload) {
  *upload = index < 0 || (size_t)index >= manager->count ? NULL : &manager->uploads[index];
  if (*upload != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the transfer has no buffer %d", index);
}

static inline PJRT_Error *plugin_upload_over(int index) {
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "of buffer %d all has come, or an error", index);
}

/* Takes part of a buffer, or all of it in the host's strides. After the last part, the copy to the device begins. */
static inline PJRT_Error *plugin_upload_take(PJRT_AsyncHostToDeviceTransferManager *manager, int index,
                                             const void *data, const int64_t *strides, int64_t offset,
                                             int64_t size, bool last) {
  PluginUpload *upload = &manager->uploads[index];
  int64_t whole = (int64_t)plugin_array_size(&upload->array), dense[PLUGIN_MAX_RANK];
  if (offset < 0 || size < 0 || offset > whole || size > whole - offset)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "%lld bytes at %lld are not all in a buffer of %lld bytes", (long long)size,
                        (long long)offset, (long long)whole);
  plugin_strides(&upload->array, NULL, dense);
  pthread_mutex_lock(&manager->lock);
  bool over = upload->last || plugin_promise_is_kept(upload->ready);
  char *to = (char *)upload->host->memory + offset;
  if (!over && strides != NULL)
    plugin_copy_strided(&upload->array, to, dense, (const char *)data, strides);
  else if (!over && size > 0)
    memcpy(to, data, (size_t)size);
  if (!over) upload->last = last;
  pthread_mutex_unlock(&manager->lock);
  if (over) return plugin_upload_over(index);
  if (last)
    plugin_copy_in(upload->storage, plugin_storage_share(upload->host), &upload->array,
                   plugin_promise_kept(NULL), upload->ready);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  PluginUpload *upload;
  PJRT_Error *error = plugin_upload_of(args->transfer_manager, args->buffer_index, &upload);
  if (error == NULL)
    error = plugin_upload_take(args->transfer_manager, args->buffer_index, args->data, NULL, args->offset,
                               args->transfer_size, args->is_last_transfer);
  if (error == NULL) args->done_with_h2d_transfer = plugin_event(plugin_promise_kept(NULL));
  return error;
}

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral) {
  PluginUpload *upload;
  const int64_t *order;
  int64_t strides[PLUGIN_MAX_RANK];
  PJRT_Error *error = plugin_upload_of(args->transfer_manager, args->buffer_index, &upload);
  if (error != NULL) return error;
  const PluginArray *array = &upload->array;
  if (args->shape_element_type != array->type || args->shape_num_dims != array->rank ||
      memcmp(args->shape_dims, array->dims, array->rank * sizeof *array->dims) != 0)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the literal has another shape than buffer %d",
                         args->buffer_index);
  if (error == NULL) error = plugin_layout_order(args->shape_layout, array->rank, &order);
  if (error != NULL) return error;
  plugin_strides(array, order, strides);
  error = plugin_upload_take(args->transfer_manager, args->buffer_index, args->data, strides, 0,
                             (int64_t)plugin_array_size(array), true);
  if (error == NULL) args->done_with_h2d_transfer = plugin_event(plugin_promise_kept(NULL));
  return error;
}

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer) {
  PluginUpload *upload;
  PJRT_Error *error = plugin_upload_of(args->transfer_manager, args->buffer_index, &upload);
  if (error != NULL) return error;
  pthread_mutex_lock(&args->transfer_manager->lock);
  bool again = upload->retrieved;
  upload->retrieved = true;
  pthread_mutex_unlock(&args->transfer_manager->lock);
  if (again)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "buffer %d was retrieved before",
                        args->buffer_index);
  args->buffer_out = plugin_buffer(&upload->array, plugin_storage_share(upload->storage),
                                   plugin_promise_share(upload->ready));
  return NULL;
}

PLUGIN_TELLS(PJRT_AsyncHostToDeviceTransferManager_Device, device_out, args->transfer_manager->device)
PLUGIN_TELLS(PJRT_AsyncHostToDeviceTransferManager_BufferCount, buffer_count, args->transfer_manager->count)

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_BufferSize) {
  PluginUpload *upload;
  PJRT_Error *error = plugin_upload_of(args->transfer_manager, args->buffer_index, &upload);
  if (error == NULL) args->buffer_size = plugin_array_size(&upload->array);
  return error;
}

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_SetBufferError) {
  PluginUpload *upload;
  PJRT_Error *error = plugin_upload_of(args->transfer_manager, args->buffer_index, &upload);
  if (error != NULL) return error;
  PJRT_Error *carried =
      plugin_error_of(args->error_code, args->error_message, args->error_message_size);
  pthread_mutex_lock(&args->transfer_manager->lock);
  bool last = upload->last;
  upload->last = true;
  pthread_mutex_unlock(&args->transfer_manager->lock);
  if (!last) {
    plugin_promise_keep(upload->ready, carried);
    return NULL;
  }
  plugin_error_destroy(carried);
  return plugin_upload_over(args->buffer_index);
}

PLUGIN_FUNCTION(PJRT_AsyncHostToDeviceTransferManager_AddMetadata) { return NULL; }

#endif
