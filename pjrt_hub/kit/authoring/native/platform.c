/* Platforms: a backend describes itself and its devices once, and then C answers without Python. */
#include "plugin.h"

/* Reads (id, process index, local hardware id, kind, text, attributes). */
static bool read_description(PluginArena *arena, PyObject *item, PJRT_DeviceDescription *to) {
  PyObject *kind, *text, *attributes;
  if (!PyArg_ParseTuple(item, "iiiUUO", &to->id, &to->process_index, &to->local_hardware_id, &kind, &text,
                        &attributes))
    return false;
  to->kind = take_text(arena, kind);
  to->text = take_text(arena, text);
  return to->kind != NULL && to->text != NULL &&
         named_values(arena, attributes, &to->attributes, &to->num_attributes);
}

/* Reads (name, version, process index, serialized, fingerprint, devices). */
static PJRT_TopologyDescription *topology_of(Plugin *plugin, PyObject *answer) {
  PyObject *name, *version, *serialized, *devices;
  unsigned long long fingerprint;
  int process_index;
  if (!PyArg_ParseTuple(answer, "UUiSKO", &name, &version, &process_index, &serialized, &fingerprint,
                        &devices) ||
      !PyList_Check(devices))
    return NULL;
  PJRT_TopologyDescription *topology = plugin_topology(plugin, (size_t)PyList_Size(devices));
  topology->name = take_text(&topology->arena, name);
  topology->version = take_text(&topology->arena, version);
  topology->serialized = take_text(&topology->arena, serialized);
  topology->serialized_size = (size_t)PyBytes_Size(serialized);
  topology->fingerprint = fingerprint;
  topology->process_index = process_index;
  bool well = topology->name != NULL && topology->version != NULL;
  for (size_t i = 0; well && i < topology->num_devices; i++)
    well = read_description(&topology->arena, PyList_GetItem(devices, (Py_ssize_t)i), topology->list[i]);
  if (well) return topology;
  plugin_topology_end(topology);
  return NULL;
}

static PJRT_Error *topology_asked(Plugin *plugin, const char *name, PyObject *arguments,
                                  PJRT_TopologyDescription **topology) {
  PJRT_Error *error = NULL;
  PyObject *answer = ask(plugin->bridge, name, arguments, &error);
  if (answer != NULL) {
    *topology = topology_of(plugin, answer);
    if (*topology == NULL) error = wrong_answer(name);
  }
  Py_XDECREF(answer);
  return error;
}

PJRT_Error *plugin_describe_topology(Plugin *plugin, PJRT_TopologyDescription_Create_Args *args) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *options = dict_of(args->create_options, args->num_options);
  PyObject *arguments = options == NULL ? NULL : Py_BuildValue(
      "(NN)",
      PyUnicode_FromStringAndSize(args->topology_name, (Py_ssize_t)args->topology_name_size), options);
  PJRT_Error *error = topology_asked(plugin, "topology", arguments, &args->topology);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_read_topology(Plugin *plugin, PJRT_TopologyDescription_Deserialize_Args *args) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(N)", upcall_bytes(args->serialized_topology, args->serialized_topology_size));
  PJRT_Error *error = topology_asked(plugin, "topology_of", arguments, &args->topology);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_open_client(Plugin *plugin, PJRT_Client_Create_Args *args) {
  PyGILState_STATE state;
  PJRT_TopologyDescription *topology = NULL;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *options = dict_of(args->create_options, args->num_options);
  PyObject *arguments = options == NULL ? NULL : Py_BuildValue("(N)", options);
  PyObject *answer = ask(plugin->bridge, "client", arguments, &error); /* (handle, description) */
  PyObject *known_by, *described;
  if (answer != NULL) {
    if (PyArg_ParseTuple(answer, "OO", &known_by, &described)) topology = topology_of(plugin, described);
    if (topology == NULL)
      error = wrong_answer("client");
    else
      (args->client = plugin_client(topology))->opened = Py_NewRef(known_by);
  }
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

void plugin_close_client(PJRT_Client *client) { let_go_of_python(client->opened); }
