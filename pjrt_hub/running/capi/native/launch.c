/* Launch: one execution. It waits for its turn, calls PJRT_LoadedExecutable_Execute, and wraps the
   outputs as Buffers.

   The caller of launch_prepare must call launch_end. Until then, close() frees nothing. */
#include "native.h"

enum {
  SAMPLED = 32,  /* One of this many launches is timed. */
  BRIEF = 20000, /* The longest time, in ns, of a launch that keeps the GIL. */
};

/* Begins a launch, which launch_end must end; on failure, returns -1 with an exception set. */
int launch_prepare(Launch *launch, ExecutableObject *exe, Py_ssize_t devices, Py_ssize_t arguments,
                   Gate *gate) {
  Py_ssize_t in = arguments, out = exe->num_outputs;
  PJRT_Buffer **inputs = launch->buffers, **outputs = inputs + ON_STACK;
  PJRT_Buffer ***rows = launch->rows;
  launch->num_devices = devices;
  launch->num_arguments = arguments;
  launch->gate = gate;
  launch->puts.device = NULL;
  launch->asked = launch->puts.done = false;
  launch->heap = NULL;
  launch->puts.kept = NULL;
  launch->puts.num_made = 0;
  launch->puts.made = outputs + ON_STACK;
  launch->events = &launch->event;
  if (devices != 1 || in > ON_STACK || out > ON_STACK) {
    size_t pointers = (size_t)devices * (size_t)(2 * in + out + 3);
    launch->heap = calloc(pointers + 1, sizeof(void *));
    if (launch->heap == NULL) return failed(PyErr_NoMemory());
    inputs = launch->heap;
    outputs = inputs + devices * in;
    launch->puts.made = outputs + devices * out;
    rows = (PJRT_Buffer ***)(launch->puts.made + devices * in);
    launch->events = (PJRT_Event **)(rows + 2 * devices);
  }
  for (Py_ssize_t d = 0; d < devices; d++) {
    rows[d] = inputs + d * in;
    rows[devices + d] = outputs + d * out;
  }
  launch->inputs = (PJRT_Buffer *const *const *)rows;
  launch->outputs = rows + devices;
  client_enter(exe->client);
  return 0;
}

/* Frees what only this launch used. The plugin keeps the inputs of a program that still runs. */
void launch_end(Launch *launch, ExecutableObject *exe) {
  for (Py_ssize_t i = 0; i < launch->puts.num_made; i++)
    buffer_destroy_native(exe->client, launch->puts.made[i]);
  if (launch->puts.kept != NULL) {
    PyObject *type, *value, *traceback; /* A destructor must not run with an exception set. */
    PyErr_Fetch(&type, &value, &traceback);
    Py_DECREF(launch->puts.kept);
    PyErr_Restore(type, value, traceback);
  }
  free(launch->heap);
  client_leave(exe->client);
}

/* Waits for the launch's turn, which launch_run uses up; returns false with an exception set. */
bool launch_turn(Launch *launch, ExecutableObject *exe) {
  Gate *gate = launch->gate;
  launch->together = exe->num_devices > 1;
  if (gate == NULL) return true;
  bool begun = gate_begin(gate, launch->together);
  if (!begun || executable_usable(exe)) return begun;
  gate_give_up(gate, launch->together, false); /* The executable was closed during the wait. */
  return false;
}

static PJRT_Error *execute_released(const PJRT_Api *api,
                                    PJRT_LoadedExecutable_Execute_Args *args) {
  PJRT_Error *error = RELEASED(CALL(api, PJRT_LoadedExecutable_Execute, args));
  return error;
}

/* Takes the time of a launch into account. One long launch may be chance; two in a row are not. */
static void note_time(ExecutableObject *exe, int64_t nanoseconds) {
  bool brief = nanoseconds < BRIEF, doubtful = !brief && exe->brief && !exe->doubted;
  exe->doubted = doubtful;
  exe->brief = brief || doubtful;
  exe->unsampled = doubtful ? 0 : SAMPLED - 1;
}

/* Keeps the GIL during brief launches: another thread that computes in Python may keep it for 5 ms
   after each release. Execute may block until earlier work has ended, so the GIL is kept only if no
   such work can wait for Python: no callback, no promise and no call of another thread. */
static PJRT_Error *execute_adaptively(ExecutableObject *exe,
                                      PJRT_LoadedExecutable_Execute_Args *args) {
  const ClientObject *client = exe->client;
  bool hold = exe->brief && !python_is_asked && client->owned == 0 && client->busy == 1;
  bool sample = exe->unsampled == 0;
  if (!sample) exe->unsampled--;
  int64_t start = sample ? monotonic_ns() : 0, taken = 0;
  PJRT_Error *error;
  if (hold) {
    error = CALL(client->api, PJRT_LoadedExecutable_Execute, args);
    if (sample) taken = monotonic_ns() - start;
  } else {
    Py_BEGIN_ALLOW_THREADS;
    error = CALL(client->api, PJRT_LoadedExecutable_Execute, args);
    if (sample) taken = monotonic_ns() - start;
    Py_END_ALLOW_THREADS;
  }
  if (sample) note_time(exe, taken);
  return error;
}

static PJRT_LoadedExecutable_Execute_Args execute_args(const ExecutableObject *exe,
                                                      PJRT_ExecuteOptions *options,
                                                      PJRT_Buffer *const *const *inputs,
                                                      Py_ssize_t arguments,
                                                      PJRT_Buffer ***outputs, Py_ssize_t devices) {
  SIZED(PJRT_LoadedExecutable_Execute_Args, args);
  if (options->context == NULL) options->context = ffi_context(exe->client->api);
  for (Py_ssize_t d = 0; d < devices; d++) /* An output that a plugin leaves out stays NULL. */
    memset(outputs[d], 0, (size_t)exe->num_outputs * sizeof(PJRT_Buffer *));
  args.executable = exe->ptr;
  args.options = options;
  args.argument_lists = inputs;
  args.num_devices = (size_t)devices;
  args.num_args = (size_t)arguments;
  args.output_lists = (PJRT_Buffer **const *)outputs;
  return args;
}

/* Runs the program on one device, without options and without a turn. */
PJRT_Error *launch_alone(ExecutableObject *exe, PJRT_Buffer *const *const *inputs,
                         Py_ssize_t arguments, PJRT_Buffer ***outputs) {
  SIZED(PJRT_ExecuteOptions, options);
  PJRT_LoadedExecutable_Execute_Args args = execute_args(exe, &options, inputs, arguments, outputs, 1);
  return exe->adaptive ? execute_adaptively(exe, &args)
                       : execute_released(exe->client->api, &args);
}

PJRT_Error *launch_run(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options) {
  PJRT_LoadedExecutable_Execute_Args args =
      execute_args(exe, options, launch->inputs, launch->num_arguments, launch->outputs,
                   launch->num_devices);
  args.execute_device = launch->puts.device;
  Gate *gate = launch->gate;
  if (launch->asked || gate != NULL) {
    memset(launch->events, 0, (size_t)launch->num_devices * sizeof(PJRT_Event *));
    args.device_complete_events = launch->events;
  }
  PJRT_Error *error = exe->adaptive && (gate == NULL || exe->client->turns.sparing)
                          ? execute_adaptively(exe, &args)
                          : execute_released(exe->client->api, &args);
  if (gate == NULL) return error;
  if (error != NULL) {
    gate_give_up(gate, launch->together, launch->together);
    return error;
  }
  if (launch->events[0] == NULL) { /* Without an event, nothing would end the turn. */
    gate_give_up(gate, launch->together, false);
    return NULL;
  }
  bool idle = gate_follow(gate, launch->together, launch->events, launch->num_devices);
  if (idle && exe->client->turns.sparing) gate_skip(&exe->client->turns);
  for (Py_ssize_t d = 0; !launch->asked && d < launch->num_devices; d++)
    event_destroy_native(exe->client->api, launch->events[d]);
  return NULL;
}

void launch_refused(Launch *launch, ExecutableObject *exe) {
  if (launch->gate != NULL) gate_give_up(launch->gate, launch->together, false);
}

/* Runs a program once more that failed on its only device because memory was short. This is not
   done if it donates an argument, into which the first run may have written, or transfers data to
   and from the host. Returns the error that is left; NULL may also mean an exception. */
COLD PJRT_Error *launch_again(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                              PJRT_Error *error) {
  const PJRT_Api *api = exe->client->api;
  PyObject *donates = PyObject_GetAttrString((PyObject *)exe, "_donates");
  if (donates == NULL) {
    drop_error(api, error);
    return NULL;
  }
  Py_DECREF(donates);
  if (donates != Py_False || exe->num_devices > 1 ||
      options->num_send_ops + options->num_recv_ops > 0 || !reclaim(api, error))
    return error;
  if (!executable_usable(exe) || !launch_turn(launch, exe)) return NULL;
  return launch_run(launch, exe, options);
}

/* Raises for a failed launch. The usual cause is an input that an earlier call donated, so that is
   reported instead of the plugin's error. */
PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments) {
  PyObject *none = PyObject_CallMethod((PyObject *)exe, "_refuse_deleted", "(O)", arguments);
  if (none == NULL) {
    drop_error(exe->client->api, error);
    return NULL;
  }
  Py_DECREF(none);
  return raise_status(exe->client->api, error, "PJRT_LoadedExecutable_Execute");
}

/* Goes on after a launch on one device failed: runs it again, or raises. */
COLD PyObject *launch_recover(Launch *launch, ExecutableObject *exe, PJRT_Error *error,
                              PyObject *arguments, bool simplify) {
  SIZED(PJRT_ExecuteOptions, options);
  error = launch_again(launch, exe, &options, error);
  if (error != NULL) return launch_failed(exe, error, arguments);
  return PyErr_Occurred() ? NULL : output_result(exe, exe->device, launch->outputs[0], simplify);
}

/* Refuses deleted inputs early: a launch that failed on one device would block the others. */
int launch_refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows) {
  SIZED(PJRT_Buffer_IsDeleted_Args, args);
  for (Py_ssize_t d = 0; d < launch->num_devices; d++) {
    for (Py_ssize_t i = 0; i < launch->num_arguments; i++) {
      args.buffer = launch->inputs[d][i];
      PJRT_Error *error = CALL(exe->client->api, PJRT_Buffer_IsDeleted, &args);
      if (error == NULL && !args.is_deleted) continue;
      if (error == NULL) return argument_reject(exe, i, PyTuple_GetItem(PyTuple_GetItem(rows, d), i));
      /* A plugin without the function cannot tell whether inputs are deleted. */
      if (drop_unimplemented(exe->client->api, error)) return 0;
      return failed(raise_status(exe->client->api, error, "PJRT_Buffer_IsDeleted"));
    }
  }
  return 0;
}

/* Marks Buffers as used by a launch until it ends; a delete by another thread waits until then. */
static void rows_launch(PyObject *rows, bool begins) {
  for (Py_ssize_t d = 0; d < PyTuple_Size(rows); d++) {
    PyObject *row = PyTuple_GetItem(rows, d);
    for (Py_ssize_t i = 0; i < PyTuple_Size(row); i++) {
      PyObject *argument = PyTuple_GetItem(row, i);
      if (!PyObject_TypeCheck(argument, BufferType)) continue; /* The argument is an array. */
      if (begins)
        ((BufferObject *)argument)->launches++;
      else
        deletion_catch_up((BufferObject *)argument);
    }
  }
}

static PJRT_Error *run_together(Launch *launch, ExecutableObject *exe,
                                PJRT_ExecuteOptions *options, PyObject *rows) {
  rows_launch(rows, true);
  PJRT_Error *error = launch_run(launch, exe, options);
  rows_launch(rows, false);
  return error;
}

static void rows_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *rows) {
  Py_ssize_t last = PyTuple_Size(rows) - 1;
  for (Py_ssize_t d = 0; d < last; d++) { /* launch_failed raises for the last row. */
    PyObject *none =
        PyObject_CallMethod((PyObject *)exe, "_refuse_deleted", "(O)", PyTuple_GetItem(rows, d));
    if (none == NULL) {
      drop_error(exe->client->api, error);
      return;
    }
    Py_DECREF(none);
  }
  launch_failed(exe, error, PyTuple_GetItem(rows, last));
}

/* Returns a tuple of output tuples and a tuple of events, one for each device. All become Python
   objects here, so that nothing leaks if a signal's handler raises in Python's next step. */
static PyObject *rows_outputs(ExecutableObject *exe, Launch *launch, PyObject *devices,
                              PyTypeObject *event_type) {
  PyObject *outputs = PyTuple_New(launch->num_devices);
  PyObject *events = PyTuple_New(launch->asked ? launch->num_devices : 0);
  for (Py_ssize_t d = 0; outputs != NULL && d < launch->num_devices; d++) {
    PyObject *row = output_result(exe, PyTuple_GetItem(devices, d), launch->outputs[d], false);
    if (row != NULL)
      PyTuple_SetItem(outputs, d, row);
    else
      Py_CLEAR(outputs); /* The outputs of the devices that follow leak. */
  }
  for (Py_ssize_t d = 0; launch->asked && d < launch->num_devices; d++) {
    PyObject *event = launch->events[d] != NULL
                          ? event_wrap(event_type, exe->client, launch->events[d])
                          : raise_answer("PJRT_LoadedExecutable_Execute", "no event for a device");
    if (event != NULL && events != NULL) {
      PyTuple_SetItem(events, d, event);
    } else {
      Py_XDECREF(event);
      Py_CLEAR(events);
    }
  }
  PyObject *both = outputs != NULL && events != NULL ? PyTuple_Pack(2, outputs, events) : NULL;
  Py_XDECREF(outputs);
  Py_XDECREF(events);
  return both;
}

/* Runs the program, whose turn it must be, on the rows' devices. Returns rows_outputs' result. */
PyObject *launch_rows(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                      PyObject *rows, PyObject *devices, PyTypeObject *event_type) {
  PJRT_Error *error = launch->together ? run_together(launch, exe, options, rows)
                                       : launch_run(launch, exe, options);
  if (error != NULL) {
    error = launch_again(launch, exe, options, error);
    if (error != NULL) rows_failed(exe, error, rows);
    if (PyErr_Occurred()) return NULL;
  }
  return rows_outputs(exe, launch, devices, event_type);
}
