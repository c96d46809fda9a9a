/* Platforms: a backend describes itself and its devices once; C then answers without Python. */
#include "plugin.h"

#include <stdio.h>

const char MEMORY_KIND[] = "device";
const int MEMORY_KIND_ID = 1;

PJRT_Error *plugin_attributes(Backend *backend, PJRT_Plugin_Attributes_Args *args) {
  args->attributes = backend->attributes;
  args->num_attributes = backend->num_attributes;
  return NULL;
}

FUNCTION(PJRT_Plugin_Initialize) { return NULL; }

/* Topologies */

static bool read_description(PyObject *item, PJRT_DeviceDescription *to) {
  PyObject *kind, *debug, *text, *attributes;
  if (!PyArg_ParseTuple(item, "iiiUUUO", &to->id, &to->process_index, &to->local_hardware_id, &kind,
                        &debug, &text, &attributes))
    return false;
  to->kind = text_of(kind);
  to->debug = text_of(debug);
  to->text = text_of(text);
  return named_values(attributes, &to->attributes, &to->num_attributes);
}

void topology_free(PJRT_TopologyDescription *topology) {
  for (size_t i = 0; i < topology->num_devices; i++) {
    PJRT_DeviceDescription *device = &topology->devices[i];
    text_free(device->kind);
    text_free(device->debug);
    text_free(device->text);
    named_values_free(device->attributes, device->num_attributes);
  }
  free(topology->devices);
  free(topology->list);
  text_free(topology->name);
  text_free(topology->version);
  text_free(topology->serialized);
  named_values_free(topology->attributes, topology->num_attributes);
  free(topology);
}

/* Reads (name, version, process index, serialized, fingerprint, attributes, devices). */
PJRT_TopologyDescription *topology_of(Backend *backend, PyObject *answer) {
  PyObject *name, *version, *serialized, *attributes, *devices;
  unsigned long long fingerprint;
  int process_index;
  if (!PyArg_ParseTuple(answer, "UUiSKOO", &name, &version, &process_index, &serialized,
                        &fingerprint, &attributes, &devices) ||
      !PyList_Check(devices))
    return NULL;
  PJRT_TopologyDescription *topology = plugin_zeroed(1, sizeof(PJRT_TopologyDescription));
  size_t count = (size_t)PyList_Size(devices);
  topology->backend = backend;
  topology->name = text_of(name);
  topology->version = text_of(version);
  topology->serialized = text_of(serialized);
  topology->fingerprint = fingerprint;
  topology->process_index = process_index;
  topology->devices = plugin_zeroed(count + 1, sizeof(PJRT_DeviceDescription));
  topology->list = plugin_zeroed(count + 1, sizeof(PJRT_DeviceDescription *));
  bool well = named_values(attributes, &topology->attributes, &topology->num_attributes);
  for (size_t i = 0; well && i < count; i++) {
    PJRT_DeviceDescription *device = topology->list[i] = &topology->devices[i];
    topology->num_devices++;
    well = read_description(PyList_GetItem(devices, (Py_ssize_t)i), device);
  }
  if (well) return topology;
  topology_free(topology);
  return NULL;
}

static PJRT_Error *topology_asked(Backend *backend, const char *name, PyObject *arguments,
                                  PJRT_TopologyDescription **topology) {
  PJRT_Error *error = NULL;
  PyObject *answer = ask(backend->bridge, name, arguments, &error);
  if (answer != NULL) {
    *topology = topology_of(backend, answer);
    if (*topology == NULL) error = wrong_answer(name);
  }
  Py_XDECREF(answer);
  return error;
}

PJRT_Error *topology_create(Backend *backend, PJRT_TopologyDescription_Create_Args *args) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *options = dict_of(args->create_options, args->num_options);
  PyObject *arguments = options == NULL ? NULL : Py_BuildValue(
      "(NN)",
      PyUnicode_FromStringAndSize(args->topology_name, (Py_ssize_t)args->topology_name_size), options);
  PJRT_Error *error = topology_asked(backend, "topology", arguments, &args->topology);
  upcall_ends(state);
  return error;
}

PJRT_Error *topology_deserialize(Backend *backend, PJRT_TopologyDescription_Deserialize_Args *args) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(N)", upcall_bytes(args->serialized_topology, args->serialized_topology_size));
  PJRT_Error *error = topology_asked(backend, "topology_of", arguments, &args->topology);
  upcall_ends(state);
  return error;
}

FUNCTION(PJRT_TopologyDescription_Destroy) {
  if (args->topology != NULL) topology_free(args->topology);
  return NULL;
}

TELLS_TEXT(PJRT_TopologyDescription_PlatformName, platform_name, args->topology->name)
TELLS_TEXT(PJRT_TopologyDescription_PlatformVersion, platform_version, args->topology->version)
TELLS_LIST(PJRT_TopologyDescription_Attributes, attributes, args->topology->attributes,
           args->topology->num_attributes)
TELLS_LIST(PJRT_TopologyDescription_GetDeviceDescriptions, descriptions, args->topology->list,
           args->topology->num_devices)
TELLS_KEPT(PJRT_TopologyDescription_Serialize, serialized_topology, PJRT_SerializedTopology,
           args->topology, args->topology->serialized)
TELLS(PJRT_TopologyDescription_Fingerprint, fingerprint, args->topology->fingerprint)
TELLS_LIST(PJRT_TopologyDescription_GetMemorySpaceKindIds, memory_space_kind_ids, &MEMORY_KIND_ID,
           1)
TELLS_TEXT(PJRT_DeviceDescription_Kind, device_kind, args->device_description->kind)
TELLS_TEXT(PJRT_DeviceDescription_DebugString, debug_string, args->device_description->debug)
TELLS_TEXT(PJRT_DeviceDescription_ToString, to_string, args->device_description->text)
TELLS_LIST(PJRT_DeviceDescription_Attributes, attributes, args->device_description->attributes,
           args->device_description->num_attributes)
TELLS(PJRT_DeviceDescription_Id, id, args->device_description->id)
TELLS(PJRT_DeviceDescription_ProcessIndex, process_index, args->device_description->process_index)

/* Memories: one for each device */

struct UserData {
  UserData *next;
  const void *key;
  void *data;
  void (*deleter)(void *);
};

static pthread_mutex_t user_data_lock = PTHREAD_MUTEX_INITIALIZER;

static void *get_user_data(PJRT_Memory *memory, const void *key) {
  void *found = NULL;
  pthread_mutex_lock(&user_data_lock);
  for (UserData *each = ((Memory *)memory)->data; each != NULL; each = each->next)
    if (each->key == key && found == NULL) found = each->data;
  pthread_mutex_unlock(&user_data_lock);
  return found;
}

static void set_user_data(PJRT_Memory *memory, const void *key, void *data, void (*deleter)(void *)) {
  UserData *new = plugin_zeroed(1, sizeof(UserData));
  pthread_mutex_lock(&user_data_lock);
  *new = (UserData){((Memory *)memory)->data, key, data, deleter};
  ((Memory *)memory)->data = new;
  pthread_mutex_unlock(&user_data_lock);
}

static const PJRT_Memory_FunctionTable memory_vtable = {
    .struct_size = PJRT_Memory_FunctionTable_STRUCT_SIZE,
    .instance_struct_size = sizeof(Memory),
    .get_user_data = get_user_data,
    .set_user_data = set_user_data,
};

void memory_init(PJRT_Device *device) {
  char text[64];
  int id = device->description->id;
  Memory *memory = &device->memory;
  int size = snprintf(text, sizeof text, "%s(id=%d)", MEMORY_KIND, id);
  memory->base.vtable = &memory_vtable;
  memory->device = device;
  memory->debug = (Text){plugin_copy_text(text, (size_t)size), (size_t)size};
  device->memories[0] = &memory->base;
}

void memory_end(Memory *memory) {
  while (memory->data != NULL) {
    UserData *each = memory->data;
    memory->data = each->next;
    if (each->deleter != NULL) each->deleter(each->data);
    free(each);
  }
  text_free(memory->debug);
}

TELLS(PJRT_Memory_Id, id, DEVICE_OF(args->memory)->description->id)

FUNCTION(PJRT_Memory_Kind) {
  args->kind = MEMORY_KIND;
  args->kind_size = strlen(MEMORY_KIND);
  return NULL;
}

TELLS(PJRT_Memory_Kind_Id, kind_id, MEMORY_KIND_ID)
TELLS_TEXT(PJRT_Memory_DebugString, debug_string, ((Memory *)args->memory)->debug)
TELLS_TEXT(PJRT_Memory_ToString, to_string, ((Memory *)args->memory)->debug)
