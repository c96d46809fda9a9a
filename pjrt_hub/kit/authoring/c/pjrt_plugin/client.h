/* Clients, and what they show: topology, devices, memories. Each device has one memory. */
#ifndef PJRT_PLUGIN_CLIENT_H
#define PJRT_PLUGIN_CLIENT_H

#include "queue.h"

#define PLUGIN_MEMORY_KIND "device"
static const int plugin_memory_kind_id = 1;

/* This is what the author described; it never changes after the table is made. */
static Plugin plugin_self;

/* Topologies */

struct PJRT_DeviceDescription {
  int id;
  char text[64];
};

struct PJRT_TopologyDescription {
  size_t num_devices;
  PJRT_DeviceDescription *devices;
  PJRT_DeviceDescription **list;
  char serialized[256];
};

static inline PJRT_TopologyDescription *plugin_topology(void) {
  PJRT_TopologyDescription *topology = PLUGIN_NEW(PJRT_TopologyDescription, 1);
  topology->num_devices = plugin_self.num_devices > 0 ? (size_t)plugin_self.num_devices : 1;
  topology->devices = PLUGIN_NEW(PJRT_DeviceDescription, topology->num_devices);
  topology->list = PLUGIN_NEW(PJRT_DeviceDescription *, topology->num_devices);
  snprintf(topology->serialized, sizeof topology->serialized, "topology of %s %s: %zu", plugin_self.name,
           plugin_self.version, topology->num_devices);
  for (size_t i = 0; i < topology->num_devices; i++) {
    PJRT_DeviceDescription *device = topology->list[i] = &topology->devices[i];
    device->id = (int)i;
    snprintf(device->text, sizeof device->text, "%s:%d", plugin_self.device_kind, device->id);
  }
  return topology;
}

static inline void plugin_topology_end(PJRT_TopologyDescription *topology) {
  if (topology == NULL) return;
  free(topology->devices);
  free(topology->list);
  free(topology);
}

static inline PJRT_Error *plugin_configure(const PJRT_NamedValue *options, size_t count) {
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < count; i++)
    error = plugin_self.configure != NULL
                ? plugin_self.configure(&options[i])
                : plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no option %.*s",
                               (int)options[i].name_size, options[i].name);
  return error;
}

PLUGIN_FUNCTION(PJRT_TopologyDescription_Create) {
  PJRT_Error *error = plugin_configure(args->create_options, args->num_options);
  if (error == NULL && args->topology_name_size > 0)
    error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no topology %.*s",
                         (int)args->topology_name_size, args->topology_name);
  if (error == NULL) args->topology = plugin_topology();
  return error;
}

PLUGIN_FUNCTION(PJRT_TopologyDescription_Deserialize) {
  PJRT_TopologyDescription *topology = plugin_topology();
  size_t size = strlen(topology->serialized);
  args->topology = topology;
  if (args->serialized_topology_size == size &&
      memcmp(args->serialized_topology, topology->serialized, size) == 0)
    return NULL;
  plugin_topology_end(topology);
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the bytes are not a topology of this plugin");
}

PLUGIN_FUNCTION(PJRT_TopologyDescription_Destroy) {
  plugin_topology_end(args->topology);
  return NULL;
}

static inline uint64_t plugin_hash(const char *bytes, size_t size) {
  uint64_t hash = 14695981039346656037u; /* FNV-1a */
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
  return hash;
}

static PJRT_NamedValue plugin_no_values[1];
PLUGIN_TELLS_TEXT(PJRT_TopologyDescription_PlatformName, platform_name, plugin_self.name)
PLUGIN_TELLS_TEXT(PJRT_TopologyDescription_PlatformVersion, platform_version, plugin_self.version)
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_Attributes, attributes, plugin_no_values, 0)
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_GetDeviceDescriptions, descriptions, args->topology->list,
                  args->topology->num_devices)
PLUGIN_TELLS_BYTES(PJRT_TopologyDescription_Serialize, serialized_topology, PJRT_SerializedTopology,
                   args->topology->serialized, strlen(args->topology->serialized))
PLUGIN_TELLS(PJRT_TopologyDescription_Fingerprint, fingerprint,
             plugin_hash(args->topology->serialized, strlen(args->topology->serialized)))
PLUGIN_TELLS_LIST(PJRT_TopologyDescription_GetMemorySpaceKindIds, memory_space_kind_ids,
                  &plugin_memory_kind_id, 1)
PLUGIN_TELLS(PJRT_DeviceDescription_Id, id, args->device_description->id)
PLUGIN_TELLS(PJRT_DeviceDescription_ProcessIndex, process_index, 0)
PLUGIN_TELLS_LIST(PJRT_DeviceDescription_Attributes, attributes, plugin_no_values, 0)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_Kind, device_kind, plugin_self.device_kind)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_DebugString, debug_string, args->device_description->text)
PLUGIN_TELLS_TEXT(PJRT_DeviceDescription_ToString, to_string, args->device_description->text)

/* Clients */

/* User data is whatever a host puts beside a memory. */
typedef struct PluginUserData {
  struct PluginUserData *next;
  const void *key;
  void *data;
  void (*destroy)(void *);
} PluginUserData;

typedef struct {
  PJRT_Memory base; /* hosts call through its first field */
  PJRT_Device *device;
  char text[96];
  pthread_mutex_t lock; /* for the rest */
  PluginUserData *data;
} PluginMemory;

struct PJRT_Device {
  PJRT_DeviceDescription *description;
  PJRT_Client *client;
  PluginMemory memory;
  PJRT_Memory *memories[1];
  PluginQueue *queue;
  void *opened;
  pthread_mutex_t lock; /* for the rest: bytes in use, at most, and what was asked for */
  int64_t in_use, peak, count, largest;
};

struct PJRT_Client {
  int references; /* counts the host's, and one for each buffer and executable */
  PJRT_TopologyDescription *topology;
  size_t num_devices;
  PJRT_Device *devices;
  PJRT_Device **list;
  PJRT_Memory **memories;
};

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
  pthread_mutex_init(&device->lock, NULL);
  pthread_mutex_init(&memory->lock, NULL);
  memory->base.vtable = &table;
  memory->device = device;
  snprintf(memory->text, sizeof memory->text, "%s of %s", PLUGIN_MEMORY_KIND, device->description->text);
  client->memories[number] = device->memories[0] = &memory->base;
}

static inline void plugin_device_end(PJRT_Device *device) {
  PluginMemory *memory = &device->memory;
  if (device->queue != NULL) plugin_queue_end(device->queue);
  if (plugin_self.close != NULL) plugin_self.close(device->opened);
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
  plugin_topology_end(client->topology);
  free(client->devices);
  free(client->list);
  free(client->memories);
  free(client);
}

PLUGIN_FUNCTION(PJRT_Client_Create) {
  PJRT_Error *error = plugin_configure(args->create_options, args->num_options);
  if (error != NULL) return error;
  PJRT_Client *client = PLUGIN_NEW(PJRT_Client, 1);
  client->references = 1;
  client->topology = plugin_topology();
  client->devices = PLUGIN_NEW(PJRT_Device, client->topology->num_devices);
  client->list = PLUGIN_NEW(PJRT_Device *, client->topology->num_devices);
  client->memories = PLUGIN_NEW(PJRT_Memory *, client->topology->num_devices);
  for (size_t i = 0; error == NULL && i < client->topology->num_devices; i++) {
    PJRT_Device *device = &client->devices[i];
    if (plugin_self.open != NULL) error = plugin_self.open((int)i, &device->opened);
    if (error != NULL) break;
    device->queue = plugin_queue();
    plugin_device_begin(client, client->num_devices++);
    if (device->queue == NULL)
      error = plugin_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "there can be no more threads");
  }
  if (error == NULL)
    args->client = client;
  else
    plugin_client_let_go(client);
  return error;
}

PLUGIN_FUNCTION(PJRT_Client_Destroy) {
  if (args->client == NULL) return NULL;
  for (size_t i = 0; i < args->client->num_devices; i++)
    plugin_queue_drain(args->client->devices[i].queue);
  plugin_client_let_go(args->client);
  return NULL;
}

PLUGIN_TELLS_TEXT(PJRT_Client_PlatformName, platform_name, plugin_self.name)
PLUGIN_TELLS_TEXT(PJRT_Client_PlatformVersion, platform_version, plugin_self.version)
PLUGIN_TELLS(PJRT_Client_ProcessIndex, process_index, 0)
PLUGIN_TELLS(PJRT_Client_TopologyDescription, topology, args->client->topology)
PLUGIN_TELLS_LIST(PJRT_Client_Devices, devices, args->client->list, args->client->num_devices)
PLUGIN_TELLS_LIST(PJRT_Client_AddressableDevices, addressable_devices, args->client->list,
                  args->client->num_devices)
PLUGIN_TELLS_LIST(PJRT_Client_AddressableMemories, addressable_memories, args->client->memories,
                  args->client->num_devices)

static inline PJRT_Error *plugin_find_device(PJRT_Client *client, int64_t id, PJRT_Device **device) {
  *device = id >= 0 && (size_t)id < client->num_devices ? client->list[id] : NULL;
  if (*device != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no device %lld", (long long)id);
}

PLUGIN_FUNCTION(PJRT_Client_LookupDevice) {
  return plugin_find_device(args->client, args->id, &args->device);
}

PLUGIN_FUNCTION(PJRT_Client_LookupAddressableDevice) {
  return plugin_find_device(args->client, args->local_hardware_id, &args->addressable_device);
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
  for (int64_t i = 0; i < replicas * partitions; i++) args->default_assignment[i] = (int)i;
  return NULL;
}

/* Devices and memories */

PLUGIN_TELLS(PJRT_Device_GetDescription, device_description, args->device->description)
PLUGIN_TELLS(PJRT_Device_IsAddressable, is_addressable, true)
PLUGIN_TELLS(PJRT_Device_LocalHardwareId, local_hardware_id, args->device->description->id)
PLUGIN_TELLS_LIST(PJRT_Device_AddressableMemories, memories, args->device->memories, 1)
PLUGIN_TELLS(PJRT_Device_DefaultMemory, memory, args->device->memories[0])

static inline void plugin_release_attributes(PJRT_Device_Attributes *attributes) { (void)attributes; }

PLUGIN_FUNCTION(PJRT_Device_GetAttributes) {
  args->attributes = plugin_no_values;
  args->num_attributes = 0;
  args->device_attributes = (PJRT_Device_Attributes *)args->device;
  args->attributes_deleter = plugin_release_attributes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Device_MemoryStats) {
  PJRT_Device *device = args->device;
  const size_t told = offsetof(PJRT_Device_MemoryStats_Args, bytes_in_use);
  size_t size = sizeof *args < args->struct_size ? sizeof *args : args->struct_size;
  memset((char *)args + told, 0, size - told); /* nothing else is known */
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
  args->devices = &device->client->list[device->description->id];
  args->num_devices = 1;
  return NULL;
}

#endif
