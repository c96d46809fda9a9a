/* Clients and their topologies, devices and memories. Each device has one memory. */
#ifndef PJRT_PLUGIN_CLIENT_H
#define PJRT_PLUGIN_CLIENT_H

#include "arena.h"
#include "queue.h"

#define PLUGIN_MEMORY_KIND "device"
static const int plugin_memory_kind_id = 1;
static PJRT_NamedValue plugin_no_values[1];

/* Returns the plugin that is called, for functions that are given no object. */
PLUGIN_ASKED Plugin *plugin_here(void);

/* Topologies */

struct PJRT_DeviceDescription {
  int id, process_index, local_hardware_id;
  const char *kind, *text;
  PJRT_NamedValue *attributes;
  size_t num_attributes;
};

struct PJRT_TopologyDescription {
  PluginArena arena; /* Memory for its texts, devices and attributes. */
  Plugin *plugin;
  const char *name, *version, *serialized;
  size_t serialized_size;
  uint64_t fingerprint;
  int process_index;
  size_t num_devices;
  PJRT_DeviceDescription *devices;
  PJRT_DeviceDescription **list;
};

PLUGIN_ASKED PJRT_Error *plugin_describe_topology(Plugin *plugin, PJRT_TopologyDescription_Create_Args *args);
PLUGIN_ASKED PJRT_Error *plugin_read_topology(Plugin *plugin, PJRT_TopologyDescription_Deserialize_Args *args);

/* Makes a topology whose devices the caller must describe. */
static inline PJRT_TopologyDescription *plugin_topology(Plugin *plugin, size_t num_devices) {
  PJRT_TopologyDescription *topology = PLUGIN_NEW(PJRT_TopologyDescription, 1);
  topology->plugin = plugin;
  topology->num_devices = num_devices;
  topology->devices = PLUGIN_TAKE(&topology->arena, PJRT_DeviceDescription, num_devices);
  topology->list = PLUGIN_TAKE(&topology->arena, PJRT_DeviceDescription *, num_devices);
  for (size_t i = 0; i < num_devices; i++) topology->list[i] = &topology->devices[i];
  return topology;
}

static inline void plugin_topology_end(PJRT_TopologyDescription *topology) {
  if (topology == NULL) return;
  plugin_arena_end(&topology->arena);
  free(topology);
}

PLUGIN_FUNCTION(PJRT_TopologyDescription_Create) { return plugin_describe_topology(plugin_here(), args); }
PLUGIN_FUNCTION(PJRT_TopologyDescription_Deserialize) { return plugin_read_topology(plugin_here(), args); }

PLUGIN_DOES(PJRT_TopologyDescription_Destroy, plugin_topology_end(args->topology))
PLUGIN_TELLS_TEXT(PJRT_TopologyDescription_PlatformName, platform_name, args->topology->name)
PLUGIN_TELLS_TEXT(PJRT_TopologyDescription_PlatformVersion, platform_version, args->topology->version)
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_Attributes, attributes, plugin_no_values, 0)
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_GetDeviceDescriptions, descriptions, args->topology->list,
                  args->topology->num_devices)
PLUGIN_TELLS_BYTES(PJRT_TopologyDescription_Serialize, serialized_topology, PJRT_SerializedTopology,
                   args->topology->serialized, args->topology->serialized_size)
PLUGIN_TELLS(PJRT_TopologyDescription_Fingerprint, fingerprint, args->topology->fingerprint)
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_GetMemorySpaceKindIds, memory_space_kind_ids,
                  &plugin_memory_kind_id, 1)
PLUGIN_TELLS(PJRT_DeviceDescription_Id, id, args->device_description->id)
PLUGIN_TELLS(PJRT_DeviceDescription_ProcessIndex, process_index, args->device_description->process_index)
PLUGIN_TELLS_LIST(PJRT_DeviceDescription_Attributes, attributes, args->device_description->attributes,
                  args->device_description->num_attributes)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_Kind, device_kind, args->device_description->kind)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_DebugString, debug_string, args->device_description->text)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_ToString, to_string, args->device_description->text)

/* Clients */

/* User data is whatever a host attaches to a memory. */
typedef struct PluginUserData {
  struct PluginUserData *next;
  const void *key;
  void *data;
  void (*destroy)(void *);
} PluginUserData;

typedef struct {
  PJRT_Memory base; /* Hosts call functions through its first field. */
  PJRT_Device *device;
  char text[96];
  pthread_mutex_t lock; /* Guards `data`. */
  PluginUserData *data;
} PluginMemory;

struct PJRT_Device {
  PJRT_DeviceDescription *description;
  PJRT_Client *client;
  PluginMemory memory;
  PJRT_Memory *memories[1];
  PluginQueue *queue; /* All devices share one if `any_thread`. */
  void *opened;       /* The plugin's own handle of the device. */
  pthread_mutex_t lock; /* Guards the bytes in use, their peak, the number of allocations, and the largest. */
  int64_t in_use, peak, count, largest;
};

struct PJRT_Client {
  int references; /* Counts the references of the host, buffers, storages, executables and runs. */
  Plugin *plugin;
  PJRT_TopologyDescription *topology;
  size_t num_devices, num_addressable;
  PJRT_Device *devices;
  PJRT_Device **list, **addressable;
  PJRT_Memory **memories; /* The memories of the addressable devices. */
  void *opened;           /* The plugin's own handle of the client. */
};

PLUGIN_ASKED PJRT_Error *plugin_open_client(Plugin *plugin, PJRT_Client_Create_Args *args);
PLUGIN_ASKED void plugin_close_client(PJRT_Client *client);

static inline PJRT_Device *plugin_device_of(PJRT_Memory *memory) {
  return ((PluginMemory *)memory)->device;
}

static inline void *plugin_user_data(PJRT_Memory *base, const void *key) {
  PluginMemory *memory = (PluginMemory *)base;
  void *found = NULL;
  pthread_mutex_lock(&memory->lock);
  for (PluginUserData *each = memory->data; each != NULL && found == NULL; each = each->next)
    if (each->key == key) found = each->data;
  pthread_mutex_unlock(&memory->lock);
  return found;
}

static inline void plugin_set_user_data(PJRT_Memory *base, const void *key, void *data,
                                        void (*destroy)(void *)) {
  PluginMemory *memory = (PluginMemory *)base;
  PluginUserData *added = PLUGIN_NEW(PluginUserData, 1);
  added->key = key;
  added->data = data;
  added->destroy = destroy;
  pthread_mutex_lock(&memory->lock);
  added->next = memory->data;
  memory->data = added;
  pthread_mutex_unlock(&memory->lock);
}

static inline void plugin_device_begin(PJRT_Client *client, size_t number) {
  static const PJRT_Memory_FunctionTable table = {PJRT_Memory_FunctionTable_STRUCT_SIZE, NULL,
                                                  sizeof(PluginMemory), plugin_user_data,
                                                  plugin_set_user_data};
  PJRT_Device *device = client->list[number] = &client->devices[number];
  PluginMemory *memory = &device->memory;
  device->description = client->topology->list[number];
  device->client = client;
  device->queue = client->plugin->any_thread && number > 0 ? client->devices[0].queue : plugin_queue();
  pthread_mutex_init(&device->lock, NULL);
  pthread_mutex_init(&memory->lock, NULL);
  memory->base.vtable = &table;
  memory->device = device;
  snprintf(memory->text, sizeof memory->text, "%s of %s", PLUGIN_MEMORY_KIND, device->description->text);
  device->memories[0] = &memory->base;
  if (device->description->process_index != client->topology->process_index) return;
  client->memories[client->num_addressable] = device->memories[0];
  client->addressable[client->num_addressable++] = device;
}

static inline void plugin_device_end(PJRT_Device *device) {
  PluginMemory *memory = &device->memory;
  bool shared = device->client->plugin->any_thread;
  if (!shared || device == device->client->devices) plugin_queue_end(device->queue, !shared);
  while (memory->data != NULL) {
    PluginUserData *each = memory->data;
    memory->data = each->next;
    if (each->destroy != NULL) each->destroy(each->data);
    free(each);
  }
  pthread_mutex_destroy(&memory->lock);
  pthread_mutex_destroy(&device->lock);
}

static inline PJRT_Client *plugin_client_share(PJRT_Client *client) {
  plugin_count_up(&client->references);
  return client;
}

static inline void plugin_client_let_go(PJRT_Client *client) {
  if (!plugin_count_down(&client->references)) return;
  for (size_t i = 0; i < client->num_devices; i++) plugin_device_end(&client->devices[i]);
  plugin_close_client(client);
  plugin_topology_end(client->topology);
  free(client->devices);
  free(client->list);
  free(client->addressable);
  free(client->memories);
  free(client);
}

/* Makes a client, which takes over the topology. */
static inline PJRT_Client *plugin_client(PJRT_TopologyDescription *topology) {
  PJRT_Client *client = PLUGIN_NEW(PJRT_Client, 1);
  client->references = 1;
  client->plugin = topology->plugin;
  client->topology = topology;
  client->devices = PLUGIN_NEW(PJRT_Device, topology->num_devices);
  client->list = PLUGIN_NEW(PJRT_Device *, topology->num_devices);
  client->addressable = PLUGIN_NEW(PJRT_Device *, topology->num_devices);
  client->memories = PLUGIN_NEW(PJRT_Memory *, topology->num_devices);
  while (client->num_devices < topology->num_devices) plugin_device_begin(client, client->num_devices++);
  return client;
}

PLUGIN_FUNCTION(PJRT_Client_Create) { return plugin_open_client(plugin_here(), args); }

/* With `any_thread`, nothing is waited for, because the plugin may need a thread that the caller blocks. */
PLUGIN_FUNCTION(PJRT_Client_Destroy) {
  PJRT_Client *client = args->client;
  if (client == NULL) return NULL;
  for (size_t i = 0; !client->plugin->any_thread && i < client->num_devices; i++)
    plugin_queue_drain(client->devices[i].queue);
  plugin_client_let_go(client);
  return NULL;
}

PLUGIN_TELLS_TEXT(PJRT_Client_PlatformName, platform_name, args->client->topology->name)
PLUGIN_TELLS_TEXT(PJRT_Client_PlatformVersion, platform_version, args->client->topology->version)
PLUGIN_TELLS(PJRT_Client_ProcessIndex, process_index, args->client->topology->process_index)
PLUGIN_TELLS(PJRT_Client_TopologyDescription, topology, args->client->topology)
PLUGIN_TELLS_LIST(PJRT_Client_Devices, devices, args->client->list, args->client->num_devices)
PLUGIN_TELLS_LIST(PJRT_Client_AddressableDevices, addressable_devices, args->client->addressable,
                  args->client->num_addressable)
PLUGIN_TELLS_LIST(PJRT_Client_AddressableMemories, addressable_memories, args->client->memories,
                  args->client->num_addressable)

static inline PJRT_Error *plugin_find_device(PJRT_Client *client, int64_t id, PJRT_Device **device) {
  *device = NULL;
  for (size_t i = 0; i < client->num_devices; i++)
    if (client->list[i]->description->id == id) *device = client->list[i];
  if (*device != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no device %lld", (long long)id);
}

PLUGIN_FUNCTION(PJRT_Client_LookupDevice) {
  return plugin_find_device(args->client, args->id, &args->device);
}

PLUGIN_FUNCTION(PJRT_Client_LookupAddressableDevice) {
  for (size_t i = 0; i < args->client->num_addressable; i++) {
    args->addressable_device = args->client->addressable[i];
    if (args->addressable_device->description->local_hardware_id == args->local_hardware_id) return NULL;
  }
  args->addressable_device = NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no addressable device %d",
                      args->local_hardware_id);
}

PLUGIN_FUNCTION(PJRT_Client_DefaultDeviceAssignment) {
  int64_t replicas = args->num_replicas, partitions = args->num_partitions;
  if (replicas < 1 || partitions < 1 || replicas > (int64_t)args->client->num_devices / partitions)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "%lld replicas of %lld partitions are none, or more than the %zu devices",
                        (long long)replicas, (long long)partitions, args->client->num_devices);
  if ((size_t)(replicas * partitions) > args->default_assignment_size)
    return plugin_error(PJRT_Error_Code_FAILED_PRECONDITION, "%lld ids do not fit into %zu places",
                        (long long)(replicas * partitions), args->default_assignment_size);
  for (int64_t i = 0; i < replicas * partitions; i++)
    args->default_assignment[i] = args->client->list[i]->description->id;
  return NULL;
}

/* Devices and memories */

PLUGIN_TELLS(PJRT_Device_GetDescription, device_description, args->device->description)
PLUGIN_TELLS(PJRT_Device_IsAddressable, is_addressable,
             args->device->description->process_index == args->device->client->topology->process_index)
PLUGIN_TELLS(PJRT_Device_LocalHardwareId, local_hardware_id, args->device->description->local_hardware_id)
PLUGIN_TELLS_LIST(PJRT_Device_AddressableMemories, memories, args->device->memories, 1)
PLUGIN_TELLS(PJRT_Device_DefaultMemory, memory, args->device->memories[0])

static inline void plugin_release_attributes(PJRT_Device_Attributes *attributes) { (void)attributes; }

PLUGIN_FUNCTION(PJRT_Device_GetAttributes) {
  args->attributes = args->device->description->attributes;
  args->num_attributes = args->device->description->num_attributes;
  args->device_attributes = (PJRT_Device_Attributes *)args->device;
  args->attributes_deleter = plugin_release_attributes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Device_MemoryStats) {
  PJRT_Device *device = args->device;
  const size_t told = offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use);
  size_t size = sizeof *args < args->struct_size ? sizeof *args : args->struct_size;
  memset((char *)args + told, 0, size - told); /* The fields that are not set below are unknown. */
  pthread_mutex_lock(&device->lock);
  args->bytes_in_use = device->in_use;
  args->peak_bytes_in_use = device->peak;
  args->num_allocs = device->count;
  args->largest_alloc_size = device->largest;
  pthread_mutex_unlock(&device->lock);
  args->peak_bytes_in_use_is_set = args->num_allocs_is_set = args->largest_alloc_size_is_set = true;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Device_ClearMemoryStats) {
  pthread_mutex_lock(&args->device->lock);
  args->device->peak = args->device->in_use;
  args->device->count = args->device->largest = 0;
  pthread_mutex_unlock(&args->device->lock);
  return NULL;
}

PLUGIN_TELLS(PJRT_Memory_Id, id, plugin_device_of(args->memory)->description->id)
PLUGIN_TELLS_TEXT(PJRT_Memory_Kind, kind, PLUGIN_MEMORY_KIND)
PLUGIN_TELLS(PJRT_Memory_Kind_Id, kind_id, plugin_memory_kind_id)
PLUGIN_TELLS_TEXT(PJRT_Memory_DebugString, debug_string, ((PluginMemory *)args->memory)->text)
PLUGIN_TELLS_TEXT(PJRT_Memory_ToString, to_string, ((PluginMemory *)args->memory)->text)

PLUGIN_FUNCTION(PJRT_Memory_AddressableByDevices) {
  PJRT_Device *device = plugin_device_of(args->memory);
  args->devices = &device->client->list[device - device->client->devices];
  args->num_devices = 1;
  return NULL;
}

#endif
