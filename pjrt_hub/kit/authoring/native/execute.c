/* Executions, at once on the caller's thread or on the client's worker once inputs are ready. */
#include "plugin.h"

typedef struct {
  Storage *storage;
  PluginPromise *ready;
  PJRT_Buffer *donor; /* It gets the storage back if the call fails. */
} Value;

typedef struct {
  Job job;
  PJRT_Executable *executable;
  PJRT_Client *client;
  size_t num_devices;
  Value *inputs, *outputs; /* The rows of the devices, one after the other. */
  PluginPromise *done;
  atomic_size_t pending; /* The inputs that are not ready, plus 1 until all are registered. */
  int launch_id;
  int64_t *kept; /* The indices of inputs that the host does not donate. */
  size_t num_kept;
} Task;

static size_t inputs_of(const Task *task) {
  return task->num_devices * task->executable->num_parameters;
}

static size_t outputs_of(const Task *task) {
  return task->num_devices * task->executable->num_outputs;
}

static void values_end(Value *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    storage_let_go(values[i].storage);
    plugin_promise_let_go(values[i].ready);
  }
  free(values);
}

static void task_end(Task *task) {
  values_end(task->inputs, inputs_of(task));
  values_end(task->outputs, outputs_of(task));
  plugin_promise_let_go(task->done);
  executable_let_go(task->executable);
  client_let_go(task->client);
  free(task->kept);
  free(task);
}

/* Running */

/* Makes a list for each device, of the objects from which the bridge makes arrays. */
static PyObject *rows_of(const Task *task) {
  size_t width = task->executable->num_parameters;
  PyObject *rows = PyList_New((Py_ssize_t)task->num_devices);
  for (size_t row = 0; rows != NULL && row < task->num_devices; row++) {
    PyObject *list = PyList_New((Py_ssize_t)width);
    for (size_t i = 0; list != NULL && i < width; i++)
      PyList_SetItem(list, (Py_ssize_t)i, storage_for_python(task->inputs[row * width + i].storage));
    PyList_SetItem(rows, (Py_ssize_t)row, list);
  }
  return rows;
}

static PyObject *kept_by(const Task *task) {
  PyObject *numbers = PyTuple_New((Py_ssize_t)task->num_kept);
  for (size_t i = 0; numbers != NULL && i < task->num_kept; i++)
    PyTuple_SetItem(numbers, (Py_ssize_t)i, PyLong_FromLongLong(task->kept[i]));
  return numbers;
}

static bool take_output(PyObject *answer, Storage *to) {
  if (to->data == NULL) {
    to->handle = Py_NewRef(answer);
    return true;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(answer, &view, PyBUF_C_CONTIGUOUS) < 0) return false;
  bool fits = (size_t)view.len == to->size;
  if (fits) memcpy(to->data, view.buf, to->size);
  PyBuffer_Release(&view);
  return fits;
}

/* Takes the outputs. The bridge has already compared them with what the executable promised. */
static bool take_outputs(const Task *task, PyObject *answer) {
  size_t count = outputs_of(task);
  if (!PyList_Check(answer) || (size_t)PyList_Size(answer) != count) return false;
  for (size_t i = 0; i < count; i++)
    if (!take_output(PyList_GetItem(answer, (Py_ssize_t)i), task->outputs[i].storage)) return false;
  return true;
}

static PJRT_Error *run(Task *task) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *rows = rows_of(task), *kept = kept_by(task);
  PyObject *arguments = rows == NULL || kept == NULL
                            ? NULL
                            : Py_BuildValue("(OOiO)", task->executable->object, rows,
                                            task->launch_id, kept);
  Py_XDECREF(rows);
  Py_XDECREF(kept);
  PyObject *answer = ask(task->executable->backend->bridge, "execute", arguments, &error);
  if (answer != NULL && !take_outputs(task, answer)) error = wrong_answer("execute");
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

/* Keeps the promises of an execution; takes the error over. */
static void finish(Task *task, PJRT_Error *error) {
  for (size_t i = 0; i < outputs_of(task); i++)
    plugin_promise_keep(task->outputs[i].ready, plugin_error_copy(error));
  plugin_promise_keep(task->done, error);
}

static PJRT_Error *input_error(const Task *task) {
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < inputs_of(task); i++)
    error = plugin_error_copy(task->inputs[i].ready->error);
  return error;
}

/* The worker */

static void run_now(Job *job) {
  Task *task = (Task *)job;
  PJRT_Error *error = input_error(task);
  finish(task, error != NULL ? error : run(task));
  task_end(task);
}

static void input_ready(const PJRT_Error *error, void *argument) {
  Task *task = argument;
  if (atomic_fetch_sub(&task->pending, 1) == 1) worker_do(task->client->worker, &task->job);
}

static void run_later(Task *task) {
  size_t count = inputs_of(task);
  task->job.run = run_now;
  worker_expect(task->client->worker);
  atomic_init(&task->pending, count + 1);
  for (size_t i = 0; i < count; i++) plugin_promise_then(task->inputs[i].ready, input_ready, task);
  input_ready(NULL, task);
}

/* Launching */

static PJRT_Error *check_argument(const Task *task, PJRT_Buffer *buffer, PJRT_Device *device,
                                  size_t number) {
  const ArrayType *wanted = &task->executable->parameters[number];
  if (buffer == NULL) return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is NULL", number);
  const ArrayType *found = &buffer->array;
  if (buffer->device != device)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "argument %zu is on device %d, the program runs on device %d", number,
                        buffer->device->description->id, device->description->id);
  if (found->type == wanted->type && found->rank == wanted->rank &&
      memcmp(found->dims, wanted->dims, found->rank * sizeof(int64_t)) == 0)
    return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                      "argument %zu has another element type or shape than the program's parameter: "
                      "type %d of %zu bytes instead of type %d of %zu bytes",
                      number, found->type, found->size, wanted->type, wanted->size);
}

static bool is_donated(const PJRT_Executable *executable, const PJRT_ExecuteOptions *options, size_t number) {
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
    if (options->non_donatable_input_indices[i] == (int64_t)number) return false;
  for (size_t i = 0; i < executable->num_donated; i++)
    if (executable->donated[i] == (int64_t)number) return true;
  return false;
}

/* A donated buffer must not be another argument of the same call. */
static PJRT_Error *check_donation(const PJRT_Executable *executable, const PJRT_ExecuteOptions *options,
                                  PJRT_Buffer *const *row) {
  for (size_t i = 0; i < executable->num_parameters; i++)
    for (size_t j = 0; is_donated(executable, options, i) && j < executable->num_parameters; j++)
      if (i != j && row[i] == row[j])
        return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                            "argument %zu is donated, and argument %zu is the same buffer", i, j);
  return NULL;
}

static PJRT_Error *take_row(Task *task, const PJRT_ExecuteOptions *options, PJRT_Buffer *const *row,
                            PJRT_Device *device, size_t number) {
  PJRT_Executable *executable = task->executable;
  size_t width = executable->num_parameters;
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < width; i++) error = check_argument(task, row[i], device, i);
  if (error == NULL && executable->num_donated > 0) error = check_donation(executable, options, row);
  for (size_t i = 0; error == NULL && i < width; i++) {
    Value *value = &task->inputs[number * width + i];
    bool donated = is_donated(executable, options, i);
    error = (donated ? buffer_donate : buffer_take)(row[i], &value->storage, &value->ready);
    if (donated && error == NULL) value->donor = row[i];
  }
  for (size_t i = 0; error == NULL && i < executable->num_outputs; i++) {
    Value *value = &task->outputs[number * executable->num_outputs + i];
    value->storage = storage_room(device, executable->outputs[i].size);
    value->ready = plugin_promise();
    if (value->storage == NULL) error = plugin_no_memory(executable->outputs[i].size);
  }
  return error;
}

static void give_row(const Task *task, PJRT_Buffer **row, PJRT_Device *device, size_t number) {
  const PJRT_Executable *executable = task->executable;
  for (size_t i = 0; i < executable->num_outputs; i++) {
    const Value *value = &task->outputs[number * executable->num_outputs + i];
    row[i] = buffer_new(device, array_type_copy(&executable->outputs[i]),
                        storage_share(value->storage), plugin_promise_share(value->ready));
  }
}

static void give_back(const Task *task) {
  for (size_t i = 0; i < inputs_of(task); i++)
    if (task->inputs[i].donor != NULL)
      buffer_give_back(task->inputs[i].donor, task->inputs[i].storage);
}

static PJRT_Error *check_call(const PJRT_LoadedExecutable_Execute_Args *args) {
  const PJRT_Executable *executable = args->executable->executable;
  size_t devices = args->execute_device != NULL ? 1 : executable->num_devices;
  if (atomic_load(&args->executable->deleted))
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the executable was deleted");
  if (args->options->num_send_ops > 0 || args->options->num_recv_ops > 0)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "this plugin has no host transfers");
  if (devices == 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "a portable program needs an execute_device");
  if (args->execute_device != NULL && executable->num_devices > 1)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED,
                        "a program on %zu devices is run by one call for all of them",
                        executable->num_devices);
  if (args->num_devices != devices)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "rows for %zu devices, the program has %zu",
                        args->num_devices, devices);
  if (args->num_args != executable->num_parameters)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu arguments, the program takes %zu",
                        args->num_args, executable->num_parameters);
  return NULL;
}

/* Whether to run on this thread: if all inputs are ready and the backend is not asynchronous. */
static bool at_once(const Task *task) {
  bool ready = !task->executable->backend->asynchronous;
  for (size_t i = 0; ready && i < inputs_of(task); i++) ready = plugin_promise_is_kept(task->inputs[i].ready);
  return ready;
}

FUNCTION(PJRT_LoadedExecutable_Execute) {
  PJRT_LoadedExecutable *loaded = args->executable;
  PJRT_Device *const *devices = args->execute_device != NULL ? &args->execute_device : loaded->devices;
  PJRT_Error *error = check_call(args);
  if (error != NULL) return error;
  Task *task = plugin_zeroed(1, sizeof(Task));
  task->executable = executable_share(loaded->executable);
  task->client = client_share(loaded->client);
  task->num_devices = args->num_devices;
  task->inputs = plugin_zeroed(inputs_of(task) + 1, sizeof(Value));
  task->outputs = plugin_zeroed(outputs_of(task) + 1, sizeof(Value));
  task->done = plugin_promise();
  task->launch_id = args->options->launch_id;
  task->num_kept = args->options->num_non_donatable_input_indices;
  task->kept = plugin_zeroed(task->num_kept + 1, sizeof(int64_t));
  if (task->num_kept > 0)
    memcpy(task->kept, args->options->non_donatable_input_indices, task->num_kept * sizeof(int64_t));
  for (size_t i = 0; error == NULL && i < args->num_devices; i++)
    error = take_row(task, args->options, args->num_args > 0 ? args->argument_lists[i] : NULL,
                     devices[i], i);
  bool now = error == NULL && at_once(task);
  if (now) {
    PJRT_Error *carried = input_error(task); /* An input's error becomes that of the outputs. */
    if (carried == NULL) error = run(task);
    if (error == NULL) finish(task, carried);
  } else if (error == NULL && !client_has_worker(task->client)) {
    error = plugin_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "there can be no more threads");
  }
  if (error != NULL) {
    give_back(task);
    task_end(task);
    return error;
  }
  for (size_t i = 0; i < args->num_devices; i++) {
    give_row(task, args->output_lists[i], devices[i], i);
    if (args->device_complete_events != NULL)
      args->device_complete_events[i] = plugin_event(plugin_promise_share(task->done));
  }
  if (now)
    task_end(task);
  else
    run_later(task);
  return NULL;
}

struct PJRT_ExecuteContext {
  char unused;
};

FUNCTION(PJRT_ExecuteContext_Create) {
  args->context = calloc(1, sizeof(PJRT_ExecuteContext));
  return args->context == NULL ? plugin_no_memory(1) : NULL;
}

FUNCTION(PJRT_ExecuteContext_Destroy) {
  free(args->context);
  return NULL;
}
