/* Answers what the kit asks of a plugin by calling the author's functions in `Plugin`. */
#ifndef PJRT_PLUGIN_DEVICE_H
#define PJRT_PLUGIN_DEVICE_H

#include "compile.h"
#include "table.h"

static inline Plugin *plugin_here(void) { return &plugin_self; }

/* Devices */

static inline PJRT_TopologyDescription *plugin_own_topology(Plugin *plugin) {
  size_t count = plugin->num_devices > 0 ? (size_t)plugin->num_devices : 1;
  PJRT_TopologyDescription *topology = plugin_topology(plugin, count);
  char text[256];
  topology->name = plugin->name;
  topology->version = plugin->version;
  snprintf(text, sizeof text, "topology of %s %s: %zu", plugin->name, plugin->version, count);
  topology->serialized_size = strlen(text);
  topology->serialized = plugin_take_text(&topology->arena, text, topology->serialized_size);
  topology->fingerprint = plugin_hash(text, topology->serialized_size);
  for (size_t i = 0; i < count; i++) {
    PJRT_DeviceDescription *device = topology->list[i];
    device->id = device->local_hardware_id = (int)i;
    device->kind = plugin->device_kind;
    snprintf(text, sizeof text, "%s:%d", plugin->device_kind, device->id);
    device->text = plugin_take_text(&topology->arena, text, strlen(text));
    device->attributes = plugin_no_values;
  }
  return topology;
}

static inline PJRT_Error *plugin_configure(Plugin *plugin, const PJRT_NamedValue *options, size_t count) {
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < count; i++)
    error = plugin->configure != NULL
                ? plugin->configure(&options[i])
                : plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no option %.*s",
                               (int)options[i].name_size, options[i].name);
  return error;
}

static inline PJRT_Error *plugin_describe_topology(Plugin *plugin, PJRT_TopologyDescription_Create_Args *args) {
  PJRT_Error *error = plugin_configure(plugin, args->create_options, args->num_options);
  if (error == NULL && args->topology_name_size > 0)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no topology %.*s",
                         (int)args->topology_name_size, args->topology_name);
  if (error == NULL) args->topology = plugin_own_topology(plugin);
  return error;
}

static inline PJRT_Error *plugin_read_topology(Plugin *plugin, PJRT_TopologyDescription_Deserialize_Args *args) {
  PJRT_TopologyDescription *topology = plugin_own_topology(plugin);
  size_t size = topology->serialized_size;
  args->topology = topology;
  if (args->serialized_topology_size == size &&
      memcmp(args->serialized_topology, topology->serialized, size) == 0)
    return NULL;
  plugin_topology_end(topology);
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the bytes are not a topology of this plugin");
}

static inline PJRT_Error *plugin_open_client(Plugin *plugin, PJRT_Client_Create_Args *args) {
  PJRT_Error *error = plugin_configure(plugin, args->create_options, args->num_options);
  if (error != NULL) return error;
  PJRT_Client *client = plugin_client(plugin_own_topology(plugin));
  bool *opened = PLUGIN_TAKE(&client->topology->arena, bool, client->num_devices);
  client->opened = opened;
  for (size_t i = 0; error == NULL && i < client->num_devices; i++) {
    PJRT_Device *device = client->list[i];
    if (plugin->open != NULL) error = plugin->open((int)i, &device->opened);
    opened[i] = error == NULL;
    if (error == NULL && !plugin_queue_start(device->queue))
      error = plugin_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "there can be no more threads");
  }
  if (error == NULL)
    args->client = client;
  else
    plugin_client_let_go(client);
  return error;
}

static inline void plugin_close_client(PJRT_Client *client) {
  const bool *opened = (const bool *)client->opened;
  for (size_t i = 0; i < client->num_devices && client->plugin->close != NULL; i++)
    if (opened[i]) client->plugin->close(client->list[i]->opened);
}

/* Memory */

static inline PJRT_Error *plugin_allocate(PJRT_Device *device, size_t size, void **memory) {
  return device->client->plugin->allocate(device->opened, size, memory);
}

static inline void plugin_release(PJRT_Device *device, void *memory) {
  device->client->plugin->release(device->opened, memory);
}

static inline PJRT_Error *plugin_read(PluginStorage *from, PluginStorage *host, const PluginArray *array) {
  (void)array;
  return plugin_self.copy_out(from->device->opened, host->memory, from->memory, from->size);
}

static inline PJRT_Error *plugin_write(PluginStorage *to, PluginStorage *from, const PluginArray *array) {
  PluginStorage *host = NULL;
  PJRT_Error *error = NULL;
  if (to->size == 0) return NULL;
  if (from->lent || plugin_self.host_memory)
    return plugin_self.copy_in(to->device->opened, to->memory, from->memory, to->size);
  error = plugin_staging(from, &host);
  if (error == NULL) error = plugin_read(from, host, array);
  if (error == NULL) error = plugin_write(to, host, array);
  plugin_storage_let_go(host);
  return error;
}

/* Programs */

static inline PJRT_Error *plugin_execute(PluginRun *run) {
  const PJRT_Executable *executable = run->executable;
  const PluginCompiled *compiled = (const PluginCompiled *)executable->code;
  void **inputs = PLUGIN_NEW(void *, executable->num_parameters);
  void **outputs = PLUGIN_NEW(void *, executable->num_outputs);
  for (size_t i = 0; i < executable->num_parameters; i++) inputs[i] = run->inputs[i]->memory;
  for (size_t i = 0; i < executable->num_outputs; i++) outputs[i] = run->outputs[i]->memory;
  PJRT_Error *error =
      plugin_self.run(run->device->opened, &compiled->program, compiled->code, inputs, outputs);
  free(inputs);
  free(outputs);
  return error;
}

#endif
