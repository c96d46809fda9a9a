/* Executables: what the backend states about a program that it compiled. */
#include "plugin.h"

/* Reading the bridge's answers; the functions return false for a wrong one */

static bool read_arrays(PyObject *list, ArrayType **arrays, size_t *count) {
  if (!PyList_Check(list)) return false;
  size_t size = (size_t)PyList_Size(list);
  *arrays = plugin_zeroed(size + 1, sizeof(ArrayType));
  for (*count = 0; *count < size; (*count)++) {
    int type;
    PyObject *dims;
    int64_t numbers[MAX_RANK];
    if (!PyArg_ParseTuple(PyList_GetItem(list, (Py_ssize_t)*count), "iO", &type, &dims)) return false;
    Py_ssize_t rank = PyTuple_Check(dims) ? PyTuple_Size(dims) : MAX_RANK + 1;
    for (Py_ssize_t i = 0; i < rank && rank <= MAX_RANK; i++)
      numbers[i] = PyLong_AsLongLong(PyTuple_GetItem(dims, i));
    if (rank > MAX_RANK || PyErr_Occurred()) return false;
    PJRT_Error *error = array_type(type, numbers, (size_t)rank, &(*arrays)[*count]);
    if (error == NULL) continue;
    plugin_error_destroy(error);
    return false;
  }
  return true;
}

static bool read_numbers(PyObject *list, int64_t **numbers, size_t *count) {
  if (!PyList_Check(list)) return false;
  *count = (size_t)PyList_Size(list);
  *numbers = plugin_zeroed(*count + 1, sizeof(int64_t));
  for (size_t i = 0; i < *count; i++)
    (*numbers)[i] = PyLong_AsLongLong(PyList_GetItem(list, (Py_ssize_t)i));
  return !PyErr_Occurred();
}

/* Makes the lists by which the C API describes parameters and outputs. */
static void lay_out(PJRT_Executable *executable) {
  size_t count = executable->num_outputs, dims = 0, kinds = count;
  for (size_t i = 0; i < count; i++) dims += executable->outputs[i].rank;
  if (executable->num_parameters > kinds) kinds = executable->num_parameters;
  executable->output_types = plugin_zeroed(count + 1, sizeof(PJRT_Buffer_Type));
  executable->output_ranks = plugin_zeroed(count + 1, sizeof(size_t));
  executable->output_dims = plugin_zeroed(dims + 1, sizeof(int64_t));
  executable->kinds = plugin_zeroed(kinds + 1, sizeof(char *));
  executable->kind_sizes = plugin_zeroed(kinds + 1, sizeof(size_t));
  dims = 0;
  for (size_t i = 0; i < count; i++) {
    const ArrayType *output = &executable->outputs[i];
    executable->output_types[i] = (PJRT_Buffer_Type)output->type;
    executable->output_ranks[i] = output->rank;
    memcpy(&executable->output_dims[dims], output->dims, output->rank * sizeof(int64_t));
    dims += output->rank;
  }
  for (size_t i = 0; i < kinds; i++) {
    executable->kinds[i] = MEMORY_KIND;
    executable->kind_sizes[i] = strlen(MEMORY_KIND);
  }
}

static PJRT_Executable *executable_of(Backend *backend, PyObject *answer) {
  PyObject *object, *name, *fingerprint, *options, *assignment;
  PyObject *parameters, *outputs, *donated, *devices, *cost;
  long long code_size;
  Py_ssize_t replicas, partitions;
  if (!PyArg_ParseTuple(answer, "OUSSSnnOOOOOL", &object, &name, &fingerprint, &options, &assignment,
                        &replicas, &partitions, &parameters, &outputs, &donated, &devices, &cost,
                        &code_size))
    return NULL;
  PJRT_Executable *executable = plugin_zeroed(1, sizeof(PJRT_Executable));
  atomic_init(&executable->references, 1);
  executable->backend = backend;
  executable->object = Py_NewRef(object);
  executable->name = text_of(name);
  executable->fingerprint = text_of(fingerprint);
  executable->options = text_of(options);
  executable->assignment = text_of(assignment);
  executable->num_replicas = (size_t)replicas;
  executable->num_partitions = (size_t)partitions;
  executable->code_size = code_size;
  if (read_arrays(parameters, &executable->parameters, &executable->num_parameters) &&
      read_arrays(outputs, &executable->outputs, &executable->num_outputs) &&
      read_numbers(donated, &executable->donated, &executable->num_donated) &&
      read_numbers(devices, &executable->devices, &executable->num_devices) &&
      named_values(cost, &executable->cost, &executable->num_cost)) {
    lay_out(executable);
    return executable;
  }
  executable_let_go(executable);
  return NULL;
}

static PJRT_Error *executable_asked(Backend *backend, const char *name, PyObject *arguments,
                                    PJRT_Executable **executable) {
  PJRT_Error *error = NULL;
  PyObject *answer = ask(backend->bridge, name, arguments, &error);
  if (answer != NULL) {
    *executable = executable_of(backend, answer);
    if (*executable == NULL) error = wrong_answer(name);
  }
  Py_XDECREF(answer);
  return error;
}

static void arrays_free(ArrayType *arrays, size_t count) {
  for (size_t i = 0; arrays != NULL && i < count; i++) free(arrays[i].dims);
  free(arrays);
}

PJRT_Executable *executable_share(PJRT_Executable *executable) {
  atomic_fetch_add(&executable->references, 1);
  return executable;
}

void executable_let_go(PJRT_Executable *executable) {
  if (executable == NULL || atomic_fetch_sub(&executable->references, 1) > 1) return;
  let_go_of_python(executable->object);
  arrays_free(executable->parameters, executable->num_parameters);
  arrays_free(executable->outputs, executable->num_outputs);
  named_values_free(executable->cost, executable->num_cost);
  text_free(executable->name);
  text_free(executable->fingerprint);
  text_free(executable->options);
  text_free(executable->assignment);
  text_free(executable->optimized);
  text_free(executable->optimized_format);
  free(executable->donated);
  free(executable->devices);
  free(executable->output_types);
  free(executable->output_dims);
  free(executable->output_ranks);
  free(executable->kinds);
  free(executable->kind_sizes);
  free(executable);
}

/* Compiling and loading */

static PJRT_Error *compile(Backend *backend, PyObject *known_by, const PJRT_Program *program,
                           const char *options, size_t options_size, PJRT_Executable **executable) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(O,N,N,N)", known_by != NULL ? known_by : Py_None,
      upcall_bytes(program->code, program->code_size),
      PyUnicode_FromStringAndSize(program->format, (Py_ssize_t)program->format_size),
      upcall_bytes(options, options_size));
  PJRT_Error *error = executable_asked(backend, "compile", arguments, executable);
  upcall_ends(state);
  return error;
}

/* This takes the executable over. */
static PJRT_Error *load(PJRT_Client *client, PJRT_Executable *executable,
                        PJRT_LoadedExecutable **loaded) {
  size_t count = executable->num_devices;
  PJRT_Device **devices = plugin_zeroed(count + 1, sizeof(PJRT_Device *));
  for (size_t i = 0; i < count; i++) {
    devices[i] = client_device(client, executable->devices[i]);
    if (devices[i] != NULL) continue;
    free(devices);
    PJRT_Error *error =
        plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the program is for the device %lld, which is not there",
                     (long long)executable->devices[i]);
    executable_let_go(executable);
    return error;
  }
  PJRT_LoadedExecutable *made = plugin_zeroed(1, sizeof(PJRT_LoadedExecutable));
  made->executable = executable;
  made->client = client_share(client);
  made->devices = devices;
  made->logical = plugin_zeroed(count + 1, sizeof(PJRT_LogicalDeviceIds));
  for (size_t i = 0; i < count; i++)
    made->logical[i] = (PJRT_LogicalDeviceIds){(int)(i / executable->num_partitions),
                                               (int)(i % executable->num_partitions)};
  *loaded = made;
  return NULL;
}

FUNCTION(PJRT_Client_Compile) {
  PJRT_Executable *executable;
  PJRT_Error *error = compile(args->client->backend, args->client->state, args->program,
                              args->compile_options, args->compile_options_size, &executable);
  return error != NULL ? error : load(args->client, executable, &args->executable);
}

FUNCTION(PJRT_Compile) {
  return compile(args->topology->backend, args->client != NULL ? args->client->state : NULL,
                 args->program, args->compile_options, args->compile_options_size,
                 &args->executable);
}

FUNCTION(PJRT_Client_Load) {
  if (args->executable->backend != args->client->backend)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the executable is another plugin's");
  return load(args->client, executable_share(args->executable), &args->loaded_executable);
}

FUNCTION_OF_SIZE(PJRT_Executable_DeserializeAndLoad,
                 THROUGH(PJRT_Executable_DeserializeAndLoad, loaded_executable)) {
  typedef PJRT_Executable_DeserializeAndLoad_Args Args;
  bool overridden = HAS(args, Args, overridden_serialized_compile_options_size) &&
                    args->overridden_serialized_compile_options_size > 0;
  PJRT_Executable *executable;
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue(
      "(O,N,N)", args->client->state,
      upcall_bytes(args->serialized_executable, args->serialized_executable_size),
      upcall_bytes(overridden ? args->overridden_serialized_compile_options : NULL,
                   overridden ? args->overridden_serialized_compile_options_size : 0));
  PJRT_Error *error =
      executable_asked(args->client->backend, "deserialize", arguments, &executable);
  upcall_ends(state);
  return error != NULL ? error : load(args->client, executable, &args->loaded_executable);
}

FUNCTION(PJRT_Executable_Destroy) {
  executable_let_go(args->executable);
  return NULL;
}

FUNCTION(PJRT_LoadedExecutable_Destroy) {
  PJRT_LoadedExecutable *loaded = args->executable;
  if (loaded == NULL) return NULL;
  executable_let_go(loaded->executable);
  client_let_go(loaded->client);
  free(loaded->devices);
  free(loaded->logical);
  free(loaded);
  return NULL;
}

FUNCTION(PJRT_LoadedExecutable_GetExecutable) {
  args->executable = executable_share(args->loaded_executable->executable);
  return NULL;
}

TELLS_LIST(PJRT_LoadedExecutable_AddressableDevices, addressable_devices,
           args->executable->devices, args->executable->executable->num_devices)
TELLS_LIST(PJRT_LoadedExecutable_AddressableDeviceLogicalIds, addressable_device_logical_ids,
           args->executable->logical, args->executable->executable->num_devices)

FUNCTION(PJRT_LoadedExecutable_Delete) {
  atomic_store(&args->executable->deleted, true);
  return NULL;
}

TELLS(PJRT_LoadedExecutable_IsDeleted, is_deleted, atomic_load(&args->executable->deleted))
TELLS_KEPT(PJRT_LoadedExecutable_GetDeviceAssignment, serialized_device_assignment,
           PJRT_DeviceAssignmentSerialized, args->executable->executable,
           args->executable->executable->assignment)

/* Properties of a program */

TELLS_TEXT(PJRT_Executable_Name, executable_name, args->executable->name)
TELLS_TEXT(PJRT_Executable_Fingerprint, executable_fingerprint, args->executable->fingerprint)
TELLS_TEXT(PJRT_LoadedExecutable_Fingerprint, executable_fingerprint,
           args->executable->executable->fingerprint)
TELLS(PJRT_Executable_NumReplicas, num_replicas, args->executable->num_replicas)
TELLS(PJRT_Executable_NumPartitions, num_partitions, args->executable->num_partitions)
TELLS(PJRT_Executable_NumOutputs, num_outputs, args->executable->num_outputs)
TELLS(PJRT_Executable_SizeOfGeneratedCodeInBytes, size_in_bytes, args->executable->code_size)
TELLS_LIST(PJRT_Executable_OutputElementTypes, output_types, args->executable->output_types,
           args->executable->num_outputs)

FUNCTION(PJRT_Executable_OutputDimensions) {
  args->num_outputs = args->executable->num_outputs;
  args->dims = args->executable->output_dims;
  args->dim_sizes = args->executable->output_ranks;
  return NULL;
}

FUNCTION(PJRT_Executable_OutputMemoryKinds) {
  args->num_outputs = args->executable->num_outputs;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

FUNCTION(PJRT_Executable_ParameterMemoryKinds) {
  args->num_parameters = args->executable->num_parameters;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

TELLS_LIST(PJRT_Executable_GetCostAnalysis, properties, args->executable->cost,
           args->executable->num_cost)

static size_t total(const ArrayType *arrays, size_t count) {
  size_t sum = 0;
  for (size_t i = 0; i < count; i++) sum += arrays[i].size;
  return sum;
}

FUNCTION_OF_SIZE(PJRT_Executable_GetCompiledMemoryStats,
                 THROUGH(PJRT_Executable_GetCompiledMemoryStats, host_temp_size_in_bytes)) {
  typedef PJRT_Executable_GetCompiledMemoryStats_Args Args;
  const PJRT_Executable *executable = args->executable;
  int64_t code = executable->code_size > 0 ? executable->code_size : 0, alias = 0;
  for (size_t i = 0; i < executable->num_donated; i++)
    alias += (int64_t)executable->parameters[executable->donated[i]].size;
  args->generated_code_size_in_bytes = code;
  args->argument_size_in_bytes =
      (int64_t)total(executable->parameters, executable->num_parameters);
  args->output_size_in_bytes = (int64_t)total(executable->outputs, executable->num_outputs);
  args->alias_size_in_bytes = alias;
  args->temp_size_in_bytes = 0;
  args->host_generated_code_size_in_bytes = args->host_argument_size_in_bytes = 0;
  args->host_output_size_in_bytes = args->host_alias_size_in_bytes = 0;
  args->host_temp_size_in_bytes = 0;
  int64_t all = args->argument_size_in_bytes + args->output_size_in_bytes;
  if (HAS(args, Args, peak_memory_in_bytes)) args->peak_memory_in_bytes = all;
  if (HAS(args, Args, total_size_in_bytes)) args->total_size_in_bytes = all + code;
  if (HAS(args, Args, peak_unpadded_heap_bytes)) {
    args->total_allocation_bytes = args->peak_unpadded_heap_bytes = all;
    args->indefinite_allocations = 0;
  }
  return NULL;
}

TELLS_KEPT(PJRT_Executable_GetCompileOptions, serialized_compile_options,
           PJRT_SerializedCompileOptions, args->executable, args->executable->options)

static PJRT_Error *optimize(PJRT_Executable *executable) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue("(O)", executable->object);
  PyObject *answer = ask(executable->backend->bridge, "optimized", arguments, &error);
  PyObject *code, *format;
  if (answer != NULL && !PyArg_ParseTuple(answer, "SU", &code, &format))
    error = wrong_answer("optimized");
  else if (answer != NULL && executable->optimized.text == NULL) { /* The GIL guards this. */
    executable->optimized_format = text_of(format);
    executable->optimized = text_of(code);
  }
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

FUNCTION(PJRT_Executable_OptimizedProgram) {
  PJRT_Executable *executable = args->executable;
  PJRT_Program *program = args->program;
  PJRT_Error *error = executable->optimized.text == NULL ? optimize(executable) : NULL;
  if (error != NULL) return error;
  program->format = executable->optimized_format.text;
  program->format_size = executable->optimized_format.size;
  if (program->code == NULL) {
    program->code_size = executable->optimized.size;
    return NULL;
  }
  if (program->code_size < executable->optimized.size)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes do not fit into %zu",
                        executable->optimized.size, program->code_size);
  memcpy(program->code, executable->optimized.text, executable->optimized.size);
  return NULL;
}

static void serialized_end(PJRT_SerializedExecutable *serialized) { free(serialized); }

FUNCTION(PJRT_Executable_Serialize) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue("(O)", args->executable->object);
  PyObject *answer = ask(args->executable->backend->bridge, "serialize", arguments, &error);
  Text text = {NULL, 0};
  if (answer != NULL) text = text_of(answer);
  if (answer != NULL && text.text == NULL) error = wrong_answer("serialize");
  Py_XDECREF(answer);
  upcall_ends(state);
  args->serialized_bytes = text.text;
  args->serialized_bytes_size = text.size;
  args->serialized_executable = (PJRT_SerializedExecutable *)text.text;
  args->serialized_executable_deleter = serialized_end;
  return error;
}
