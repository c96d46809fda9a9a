/* Clients and their devices. */
#include "plugin.h"

static PJRT_Client *client_of(PJRT_TopologyDescription *topology) {
  PJRT_Client *client = plugin_zeroed(1, sizeof(PJRT_Client));
  size_t count = topology->num_devices;
  atomic_init(&client->references, 1);
  client->backend = topology->backend;
  client->topology = topology;
  client->num_devices = count;
  client->devices = plugin_zeroed(count + 1, sizeof(PJRT_Device));
  client->list = plugin_zeroed(count + 1, sizeof(PJRT_Device *));
  client->addressable = plugin_zeroed(count + 1, sizeof(PJRT_Device *));
  client->memories = plugin_zeroed(count + 1, sizeof(PJRT_Memory *));
  pthread_mutex_init(&client->lock, NULL);
  for (size_t i = 0; i < count; i++) {
    PJRT_Device *device = client->list[i] = &client->devices[i];
    device->description = topology->list[i];
    device->client = client;
    memory_init(device);
    if (device->description->process_index != topology->process_index) continue;
    client->memories[client->num_addressable] = device->memories[0];
    client->addressable[client->num_addressable++] = device;
  }
  return client;
}

PJRT_Error *client_create(Backend *backend, PJRT_Client_Create_Args *args) {
  PyGILState_STATE state;
  PJRT_TopologyDescription *topology = NULL;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *options = dict_of(args->create_options, args->num_options);
  PyObject *arguments = options == NULL ? NULL : Py_BuildValue("(N)", options);
  PyObject *answer = ask(backend->bridge, "client", arguments, &error); /* (state, topology) */
  PyObject *known_by, *described;
  if (answer != NULL) {
    if (PyArg_ParseTuple(answer, "OO", &known_by, &described))
      topology = topology_of(backend, described);
    if (topology == NULL)
      error = wrong_answer("client");
    else
      (args->client = client_of(topology))->state = Py_NewRef(known_by);
  }
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

PJRT_Client *client_share(PJRT_Client *client) {
  atomic_fetch_add(&client->references, 1);
  return client;
}

void client_let_go(PJRT_Client *client) {
  if (atomic_fetch_sub(&client->references, 1) > 1) return;
  for (size_t i = 0; i < client->num_devices; i++) memory_end(&client->devices[i].memory);
  topology_free(client->topology);
  free(client->devices);
  free(client->list);
  free(client->addressable);
  free(client->memories);
  pthread_mutex_destroy(&client->lock);
  free(client);
}

/* Starts the client's worker if it has none; false if there can be no more threads. */
bool client_has_worker(PJRT_Client *client) {
  pthread_mutex_lock(&client->lock);
  if (client->worker == NULL) client->worker = worker_new();
  bool has = client->worker != NULL;
  pthread_mutex_unlock(&client->lock);
  return has;
}

FUNCTION(PJRT_Client_Destroy) {
  if (args->client == NULL) return NULL;
  worker_end(args->client->worker);
  let_go_of_python(args->client->state);
  client_let_go(args->client);
  return NULL;
}

PJRT_Device *client_device(PJRT_Client *client, int64_t id) {
  for (size_t i = 0; i < client->num_devices; i++)
    if (client->devices[i].description->id == id) return &client->devices[i];
  return NULL;
}

TELLS_TEXT(PJRT_Client_PlatformName, platform_name, args->client->topology->name)
TELLS_TEXT(PJRT_Client_PlatformVersion, platform_version, args->client->topology->version)
TELLS(PJRT_Client_ProcessIndex, process_index, args->client->topology->process_index)
TELLS(PJRT_Client_TopologyDescription, topology, args->client->topology)
TELLS_LIST(PJRT_Client_Devices, devices, args->client->list, args->client->num_devices)
TELLS_LIST(PJRT_Client_AddressableDevices, addressable_devices, args->client->addressable,
           args->client->num_addressable)
TELLS_LIST(PJRT_Client_AddressableMemories, addressable_memories, args->client->memories,
           args->client->num_addressable)

FUNCTION(PJRT_Client_LookupDevice) {
  args->device = client_device(args->client, args->id);
  if (args->device != NULL) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there is no device with the id %d", args->id);
}

FUNCTION(PJRT_Client_LookupAddressableDevice) {
  for (size_t i = 0; i < args->client->num_addressable; i++) {
    args->addressable_device = args->client->addressable[i];
    if (args->addressable_device->description->local_hardware_id == args->local_hardware_id)
      return NULL;
  }
  args->addressable_device = NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                      "there is no addressable device with the local hardware id %d",
                      args->local_hardware_id);
}

FUNCTION(PJRT_Client_DefaultDeviceAssignment) {
  int64_t replicas = args->num_replicas, partitions = args->num_partitions;
  if (replicas < 1 || partitions < 1)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "an assignment of %d replicas and %d partitions is none", args->num_replicas,
                        args->num_partitions);
  if ((uint64_t)(replicas * partitions) > args->default_assignment_size)
    return plugin_error(PJRT_Error_Code_FAILED_PRECONDITION,
                        "%lld ids do not fit into the %zu places of the caller's memory",
                        (long long)(replicas * partitions), args->default_assignment_size);
  if ((uint64_t)(replicas * partitions) > args->client->num_devices)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%lld devices are needed, there are %zu",
                        (long long)(replicas * partitions), args->client->num_devices);
  for (int64_t i = 0; i < replicas * partitions; i++)
    args->default_assignment[i] = args->client->list[i]->description->id;
  return NULL;
}

/* Devices */

TELLS(PJRT_Device_GetDescription, device_description, args->device->description)

FUNCTION(PJRT_Device_IsAddressable) {
  PJRT_Device *device = args->device;
  args->is_addressable =
      device->description->process_index == device->client->topology->process_index;
  return NULL;
}

TELLS(PJRT_Device_LocalHardwareId, local_hardware_id, args->device->description->local_hardware_id)
TELLS_LIST(PJRT_Device_AddressableMemories, memories, args->device->memories, 1)
TELLS(PJRT_Device_DefaultMemory, memory, args->device->memories[0])

/* The struct of an older caller has no room for the fields that came later. */
FUNCTION_OF_SIZE(PJRT_Device_MemoryStats, THROUGH(PJRT_Device_MemoryStats, peak_pool_bytes_is_set)) {
  PJRT_Device *device = args->device;
  args->bytes_in_use = atomic_load(&device->in_use);
  args->peak_bytes_in_use = atomic_load(&device->peak);
  args->num_allocs = atomic_load(&device->allocations);
  args->largest_alloc_size = atomic_load(&device->largest);
  args->peak_bytes_in_use_is_set = args->num_allocs_is_set = args->largest_alloc_size_is_set = true;
  args->bytes_limit_is_set = args->bytes_reserved_is_set = args->peak_bytes_reserved_is_set = false;
  args->bytes_reservable_limit_is_set = args->largest_free_block_bytes_is_set = false;
  args->pool_bytes_is_set = args->peak_pool_bytes_is_set = false;
  if (HAS(args, PJRT_Device_MemoryStats_Args, peak_allocated_bytes_is_set))
    args->peak_allocated_bytes_is_set = false;
  return NULL;
}

FUNCTION(PJRT_Device_ClearMemoryStats) {
  PJRT_Device *device = args->device;
  atomic_store(&device->peak, atomic_load(&device->in_use));
  atomic_store(&device->allocations, 0);
  atomic_store(&device->largest, 0);
  return NULL;
}

static void nothing_to_free(PJRT_Device_Attributes *attributes) {}

FUNCTION(PJRT_Device_GetAttributes) {
  args->attributes = args->device->description->attributes;
  args->num_attributes = args->device->description->num_attributes;
  args->device_attributes = (PJRT_Device_Attributes *)args->device->description;
  args->attributes_deleter = nothing_to_free;
  return NULL;
}

FUNCTION(PJRT_Memory_AddressableByDevices) {
  PJRT_Device *device = DEVICE_OF(args->memory);
  size_t place = (size_t)(device - device->client->devices);
  args->devices = &device->client->list[place];
  args->num_devices = 1;
  return NULL;
}
