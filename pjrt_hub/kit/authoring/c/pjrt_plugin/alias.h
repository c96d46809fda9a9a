/* Buffers that get the contents of another: aliases, bitcasts, and donations that wait for the host. */
#ifndef PJRT_PLUGIN_ALIAS_H
#define PJRT_PLUGIN_ALIAS_H

#include "transfer.h"

/* An alias is a buffer that is filled later, with a copy of the buffer that it stands for. */
struct PJRT_FulfillAliasBufferCallback {
  PluginArray array;
  PluginStorage *to;
  PluginPromise *ready;
};

PLUGIN_FUNCTION(PJRT_Client_CreateAliasBuffer) {
  PJRT_Error *error = plugin_buffer_room(NULL, args->memory, args->shape_element_type, args->shape_dims,
                                         args->shape_num_dims, args->shape_layout, plugin_promise(),
                                         &args->alias_buffer);
  if (error != NULL) return error;
  PJRT_FulfillAliasBufferCallback *alias = PLUGIN_NEW(PJRT_FulfillAliasBufferCallback, 1);
  alias->array = args->alias_buffer->array;
  alias->to = plugin_storage_share(args->alias_buffer->storage);
  alias->ready = plugin_promise_share(args->alias_buffer->ready);
  args->fulfill_alias_buffer_cb = alias;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Client_FulfillAliasBuffer) {
  PJRT_FulfillAliasBufferCallback *alias = args->fulfill_alias_buffer_cb;
  PJRT_Error *error = NULL;
  PluginStorage *from = NULL;
  PluginPromise *ready = NULL;
  if (args->status_code != PJRT_Error_Code_OK)
    error = plugin_error_of(args->status_code, args->error_message, args->error_message_size);
  else if (plugin_array_size(&args->buffer->array) != plugin_array_size(&alias->array))
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the buffer has another size than its alias");
  else
    error = plugin_buffer_take(args->buffer, &from, &ready);
  if (error == NULL)
    plugin_copy_across(alias->to, from, ready, &alias->array, alias->ready);
  else
    plugin_promise_keep(alias->ready, error);
  plugin_promise_let_go(alias->ready);
  plugin_storage_let_go(alias->to);
  free(alias);
  return NULL;
}

/* Moves the memory of a buffer to a new buffer of as many bytes, and deletes the old one. */
PLUGIN_FUNCTION(PJRT_Buffer_Bitcast) {
  PluginArray array;
  PluginStorage *storage = NULL;
  PluginPromise *ready = NULL;
  size_t size = plugin_array_size(&args->buffer->array);
  PJRT_Error *error = plugin_no_pointer(args->buffer->device->client);
  if (error == NULL) error = plugin_layout_check(args->device_layout, args->num_dims);
  if (error == NULL) error = plugin_array_check(&array, args->element_type, args->dims, args->num_dims);
  if (error == NULL && plugin_array_size(&array) != size)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes cannot be read as %zu", size,
                         plugin_array_size(&array));
  if (error == NULL) error = plugin_buffer_take(args->buffer, &storage, &ready);
  if (error != NULL) return error;
  plugin_buffer_delete(args->buffer);
  args->out_buffer = plugin_buffer(&array, storage, ready);
  return NULL;
}

/* `first` is kept when the buffer is filled, and `both` once what the host waits for is done, too. */
typedef struct {
  PluginPromise *first, *both;
} PluginDependency;

static inline void plugin_first_done(const PJRT_Error *error, void *argument) {
  PluginPromise *both = (PluginPromise *)argument;
  plugin_promise_keep(both, plugin_error_copy(error));
  plugin_promise_let_go(both);
}

static inline void plugin_dependency_done(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args) {
  PluginDependency *dependency = (PluginDependency *)args->callback_data;
  if (args->error_code == PJRT_Error_Code_OK)
    plugin_promise_then(dependency->first, plugin_first_done, plugin_promise_share(dependency->both));
  else
    plugin_promise_keep(dependency->both, plugin_error_of(args->error_code, args->error_message,
                                                          args->error_message_size));
  plugin_promise_let_go(dependency->first);
  plugin_promise_let_go(dependency->both);
  free(dependency);
}

PLUGIN_FUNCTION(PJRT_Buffer_DonateWithControlDependency) {
  PluginStorage *storage = NULL;
  PluginPromise *ready = NULL;
  PJRT_Error *error = plugin_buffer_take(args->buffer, &storage, &ready);
  if (error != NULL) return error;
  plugin_buffer_delete(args->buffer);
  PluginDependency *dependency = PLUGIN_NEW(PluginDependency, 1);
  dependency->first = ready;
  dependency->both = plugin_promise();
  args->callback_data = dependency;
  args->dependency_ready_callback = plugin_dependency_done;
  args->out_buffer = plugin_buffer(&args->buffer->array, storage, plugin_promise_share(dependency->both));
  return NULL;
}

#endif
