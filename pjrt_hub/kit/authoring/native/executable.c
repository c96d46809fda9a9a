/* Executables, as the backend described them when it compiled their programs. */
#include "plugin.h"

/* These functions read what the bridge answers. They return false if it is wrong. */

static bool read_arrays(PluginArena *arena, PyObject *list, PluginArray **arrays, size_t *count) {
  if (!PyList_Check(list)) return false;
  *count = (size_t)PyList_Size(list);
  *arrays = PLUGIN_TAKE(arena, PluginArray, *count);
  for (size_t i = 0; i < *count; i++) {
    int type;
    PyObject *dims;
    int64_t numbers[PLUGIN_MAX_RANK];
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)i), "iO", &type, &dims)) return false;
    Py_ssize_t rank = PyTuple_Check(dims) ? PyTuple_Size(dims) : PLUGIN_MAX_RANK + 1;
    for (Py_ssize_t k = 0; k < rank && rank <= PLUGIN_MAX_RANK; k++)
      numbers[k] = PyLong_AsLongLong(PyTuple_GetItem(dims, k));
    if (rank > PLUGIN_MAX_RANK || PyErr_Occurred()) return false;
    PJRT_Error *error = plugin_array_check(&(*arrays)[i], (PJRT_Buffer_Type)type, numbers, (size_t)rank);
    plugin_error_destroy(error);
    if (error != NULL) return false;
  }
  return true;
}

static bool read_numbers(PluginArena *arena, PyObject *list, int64_t **numbers, size_t *count) {
  if (!PyList_Check(list)) return false;
  *count = (size_t)PyList_Size(list);
  *numbers = PLUGIN_TAKE(arena, int64_t, *count);
  for (size_t i = 0; i < *count; i++)
    (*numbers)[i] = PyLong_AsLongLong(PyList_GetItem(list, (Py_ssize_t)i));
  return !PyErr_Occurred();
}

static bool read_donated(PJRT_Executable *executable, PyObject *list) {
  int64_t *numbers;
  size_t count;
  if (!read_numbers(&executable->arena, list, &numbers, &count)) return false;
  if (count > 0) executable->donated = PLUGIN_TAKE(&executable->arena, bool, executable->num_parameters);
  for (size_t i = 0; i < count; i++) {
    if (numbers[i] < 0 || numbers[i] >= (int64_t)executable->num_parameters) return false;
    executable->donated[numbers[i]] = true;
  }
  return true;
}

static PJRT_Executable *executable_of(Plugin *plugin, PyObject *answer) {
  PyObject *object, *name, *fingerprint, *options, *assignment;
  PyObject *parameters, *outputs, *donated, *devices, *cost;
  long long code_size;
  Py_ssize_t replicas, partitions;
  if (!PyArg_ParseTuple(answer, "OUSSSnnOOOOOL", &object, &name, &fingerprint, &options, &assignment,
                        &replicas, &partitions, &parameters, &outputs, &donated, &devices, &cost,
                        &code_size))
    return NULL;
  PJRT_Executable *executable = plugin_executable(plugin);
  PluginArena *arena = &executable->arena;
  executable->code = Py_NewRef(object);
  executable->name = take_text(arena, name);
  executable->fingerprint = take_text(arena, fingerprint);
  executable->options = take_text(arena, options);
  executable->options_size = (size_t)PyBytes_Size(options);
  executable->assignment = take_text(arena, assignment);
  executable->assignment_size = (size_t)PyBytes_Size(assignment);
  executable->num_replicas = (size_t)replicas;
  executable->num_partitions = (size_t)partitions;
  executable->code_size = code_size;
  if (executable->name != NULL &&
      read_arrays(arena, parameters, &executable->parameters, &executable->num_parameters) &&
      read_arrays(arena, outputs, &executable->outputs, &executable->num_outputs) &&
      read_donated(executable, donated) &&
      read_numbers(arena, devices, &executable->devices, &executable->num_devices) &&
      named_values(arena, cost, &executable->cost, &executable->num_cost)) {
    plugin_lay_out(executable);
    return executable;
  }
  plugin_executable_let_go(executable);
  return NULL;
}

static PJRT_Error *executable_asked(Plugin *plugin, const char *name, PyObject *arguments,
                                    PJRT_Executable **executable) {
  PJRT_Error *error = NULL;
  PyObject *answer = ask(plugin->bridge, name, arguments, &error);
  if (answer != NULL) {
    *executable = executable_of(plugin, answer);
    if (*executable == NULL) error = wrong_answer(name);
  }
  Py_XDECREF(answer);
  return error;
}

PJRT_Error *plugin_compile(Plugin *plugin, PJRT_Client *client, const PJRT_Program *program,
                           const char *options, size_t options_size, PJRT_Executable **executable) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(O,N,N,N)", client != NULL ? (PyObject *)client->opened : Py_None,
      upcall_bytes(program->code, program->code_size),
      PyUnicode_FromStringAndSize(program->format, (Py_ssize_t)program->format_size),
      upcall_bytes(options, options_size));
  PJRT_Error *error = executable_asked(plugin, "compile", arguments, executable);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_deserialize(PJRT_Executable_DeserializeAndLoad_Args *args, PJRT_Executable **executable) {
  typedef PJRT_Executable_DeserializeAndLoad_Args Args;
  bool overridden = PLUGIN_HAS(args, Args, overridden_serialized_compile_options_size) &&
                    args->overridden_serialized_compile_options_size > 0;
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(O,N,N)", args->client->opened,
      upcall_bytes(args->serialized_executable, args->serialized_executable_size),
      upcall_bytes(overridden ? args->overridden_serialized_compile_options : NULL,
                   overridden ? args->overridden_serialized_compile_options_size : 0));
  PJRT_Error *error = executable_asked(args->client->plugin, "deserialize", arguments, executable);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_optimize(PJRT_Executable *executable) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *answer = ask(executable->plugin->bridge, "optimized", Py_BuildValue("(O)", executable->code), &error);
  PyObject *code, *format;
  if (answer != NULL && !PyArg_ParseTuple(answer, "SU", &code, &format)) {
    error = wrong_answer("optimized");
  } else if (answer != NULL && executable->optimized == NULL) { /* The GIL lets this happen only once. */
    executable->optimized_format = take_text(&executable->arena, format);
    executable->optimized_size = (size_t)PyBytes_Size(code);
    executable->optimized = take_text(&executable->arena, code);
  }
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_serialize(const PJRT_Executable *executable, char **bytes, size_t *size) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  const char *data = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *answer = ask(executable->plugin->bridge, "serialize", Py_BuildValue("(O)", executable->code), &error);
  if (answer != NULL && !is_text(answer, &data, size)) error = wrong_answer("serialize");
  if (data != NULL) *bytes = plugin_copy_text(data, *size);
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

void plugin_discard(PJRT_Executable *executable) { let_go_of_python(executable->code); }
