/* LoadedExecutable: exe(a, b) from Python's call to PJRT_LoadedExecutable_Execute and back.

   Every argument is compared with the signature that was prepared at compile time, because plugins
   check only the byte size: f32[8] code run on an s32[8] buffer answers OK. */
#include "hotpath.h"

#include <stdlib.h>

PyTypeObject *ExecutableType;

enum { ON_STACK = 64 };

/* Frees the native executable and leaves an object that refuses every call. Work in flight ends.
   The object may be freed by another thread meanwhile. */
static void executable_destroy(Child *child) {
  ExecutableObject *exe = OWNER(ExecutableObject, child);
  ClientObject *client = exe->client;
  const PJRT_Api *api = client->api;
  client_disown(client, child);
  PJRT_LoadedExecutable_Destroy_Args args = {
      .struct_size = PJRT_LoadedExecutable_Destroy_Args_STRUCT_SIZE};
  args.executable = exe->ptr;
  exe->ptr = NULL;
  client_enter(client);
  Py_BEGIN_ALLOW_THREADS;
  drop_error(api, api->PJRT_LoadedExecutable_Destroy(&args));
  Py_END_ALLOW_THREADS;
  client_leave(client);
}

static void free_slots(Slot *slots, Py_ssize_t count) {
  for (Py_ssize_t i = 0; slots != NULL && i < count; i++) {
    Py_XDECREF(slots[i].shape);
    Py_XDECREF(slots[i].layout);
  }
  free(slots);
}

/* Reads a tuple of (dtype, shape, layout, dynamic dimensions). */
static Slot *read_slots(PyObject *tuple, Py_ssize_t *count) {
  *count = PyTuple_Size(tuple);
  Slot *slots = calloc((size_t)*count + 1, sizeof(Slot));
  if (slots == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  for (Py_ssize_t i = 0; i < *count; i++) {
    PyObject *shape, *layout, *dynamic;
    if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "iO!OO!", &slots[i].dtype, &PyTuple_Type,
                          &shape, &layout, &PyTuple_Type, &dynamic)) {
      free_slots(slots, i);
      return NULL;
    }
    slots[i].shape = Py_NewRef(shape);
    slots[i].layout = Py_NewRef(layout);
    slots[i].dynamic = PyTuple_Size(dynamic) > 0;
  }
  return slots;
}

/* The message is made in Python, where the names of dtypes and devices are. */
static int reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument) {
  PyObject *none = PyObject_CallMethod((PyObject *)exe, "_reject", "nO", index, argument);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an argument was refused silently");
  return -1;
}

static inline int take_argument(ExecutableObject *exe, Py_ssize_t index, PyObject *device,
                                PyObject *argument, PJRT_Buffer **out) {
  if (Py_TYPE(argument) != exe->buffer_type && !PyObject_TypeCheck(argument, BufferType))
    return reject(exe, index, argument);
  BufferObject *buffer = (BufferObject *)argument;
  if (buffer->ptr == NULL || buffer->deleted || buffer->client != exe->client)
    return reject(exe, index, argument);
  Slot *slot = &exe->parameters[index];
  if (buffer->dtype != slot->dtype) return reject(exe, index, argument);
  if (buffer->shape != slot->shape) {
    int same = PyObject_RichCompareBool(buffer->shape, slot->shape, Py_EQ);
    if (same < 0) return -1;
    if (!same) return reject(exe, index, argument);
  }
  /* A column-major result fed to a row-major parameter would be read transposed, and nobody says. */
  if (buffer->layout != NULL && buffer->layout != slot->layout) {
    int same = PyObject_RichCompareBool(buffer->layout, slot->layout, Py_EQ);
    if (same < 0) return -1;
    if (!same) return reject(exe, index, argument);
  }
  /* Memory of a dynamic shape holds less than its bound, and tells how much. */
  if (buffer->dynamic != slot->dynamic) return reject(exe, index, argument);
  if (buffer->device != device) return reject(exe, index, argument);
  *out = buffer->ptr;
  return 0;
}

static PyObject *wrap_output(ExecutableObject *exe, Slot *slot, PJRT_Buffer *output,
                             PyObject *where) {
  PyObject *buffer = buffer_wrap(exe->buffer_type, exe->client, output, slot->dtype, slot->shape,
                                 slot->layout, where);
  if (buffer != NULL) ((BufferObject *)buffer)->dynamic = slot->dynamic;
  return buffer;
}

static PyObject *wrap_outputs(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                              bool simplify) {
  if (simplify && exe->num_outputs == 1)
    return wrap_output(exe, &exe->outputs[0], outputs[0], where);
  PyObject *result = PyTuple_New(exe->num_outputs);
  for (Py_ssize_t i = 0; i < exe->num_outputs; i++) {
    PyObject *buffer = NULL;
    if (result != NULL)
      buffer = wrap_output(exe, &exe->outputs[i], outputs[i], where);
    else
      buffer_destroy_native(exe->client, outputs[i]);
    if (buffer != NULL)
      PyTuple_SetItem(result, i, buffer);
    else
      Py_CLEAR(result);
  }
  return result;
}

/* What one launch needs; on the stack for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *buffers[2 * ON_STACK];
  PJRT_Buffer **lists[2];
  PJRT_Buffer **inputs, **outputs; /* [num_devices][num_parameters], [num_devices][num_outputs] */
  PJRT_Buffer ***rows;             /* the rows of inputs, then the rows of outputs */
  Py_ssize_t num_devices;
  PJRT_Device *execute_device; /* NULL: the executable's own devices */
  PJRT_Event *event, **events; /* of each device, where the caller or the client's turns need them */
  bool asked;                  /* the caller does */
  Turn turn;
  void *heap;
} Launch;

static int launch_prepare(Launch *launch, ExecutableObject *exe, Py_ssize_t devices) {
  Py_ssize_t in = exe->num_parameters, out = exe->num_outputs;
  launch->num_devices = devices;
  launch->execute_device = NULL;
  launch->asked = false;
  launch->heap = NULL;
  if (devices == 1 && in <= ON_STACK && out <= ON_STACK) {
    launch->inputs = launch->buffers;
    launch->outputs = launch->buffers + ON_STACK;
    launch->rows = launch->lists;
    launch->events = &launch->event;
  } else {
    size_t pointers = (size_t)devices * (size_t)(in + out + 3);
    launch->heap = calloc(pointers + 1, sizeof(void *));
    if (launch->heap == NULL) {
      PyErr_NoMemory();
      return -1;
    }
    launch->inputs = launch->heap;
    launch->outputs = launch->inputs + devices * in;
    launch->rows = (PJRT_Buffer ***)(launch->outputs + devices * out);
    launch->events = (PJRT_Event **)(launch->rows + 2 * devices);
  }
  for (Py_ssize_t d = 0; d < devices; d++) {
    launch->rows[d] = launch->inputs + d * in;
    launch->rows[devices + d] = launch->outputs + d * out;
  }
  return 0;
}

static bool executable_usable(ExecutableObject *exe) {
  if (exe->client == NULL) {
    raise_closed("this executable was never loaded by a client");
    return false;
  }
  if (!client_usable(exe->client)) return false;
  if (exe->ptr == NULL || exe->closed) {
    raise_closed("the executable is closed");
    return false;
  }
  return true;
}

/* Waits for the launch's turn: false with an exception set. It is used up by launch_run. */
static bool launch_turn(Launch *launch, ExecutableObject *exe, int launch_id) {
  Launches *launches = exe->client->launches;
  launch->turn = (Turn){.together = exe->num_devices > 1};
  if (launch->turn.together && launch->execute_device != NULL) {
    launch->turn.exe = exe;
    launch->turn.launch_id = launch_id;
  }
  if (launches == NULL) return true;
  client_enter(exe->client);
  bool begun = launches_begin(launches, launch->turn);
  client_leave(exe->client);
  if (!begun || executable_usable(exe)) return begun;
  launches_give_up(launches, launch->turn, false); /* closed meanwhile */
  return false;
}

static PJRT_Error *launch_run(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options) {
  PJRT_LoadedExecutable_Execute_Args args = {
      .struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE};
  args.executable = exe->ptr;
  if (options->context == NULL) options->context = ffi_context(exe->client->api);
  args.options = options;
  args.argument_lists = (PJRT_Buffer *const *const *)launch->rows;
  args.num_devices = (size_t)launch->num_devices;
  args.num_args = (size_t)exe->num_parameters;
  args.output_lists = (PJRT_Buffer **const *)(launch->rows + launch->num_devices);
  args.execute_device = launch->execute_device;
  Launches *launches = exe->client->launches;
  if (launch->asked || launches != NULL) args.device_complete_events = launch->events;
  PJRT_Error *error;
  client_enter(exe->client);
  Py_BEGIN_ALLOW_THREADS;
  error = exe->client->api->PJRT_LoadedExecutable_Execute(&args);
  Py_END_ALLOW_THREADS;
  if (launches == NULL) return error;
  if (error != NULL) {
    launches_give_up(launches, launch->turn, true);
    return error;
  }
  launches_follow(launches, launch->turn, launch->events, launch->num_devices);
  for (Py_ssize_t d = 0; !launch->asked && d < launch->num_devices; d++)
    event_destroy_native(exe->client->api, launch->events[d]);
  return NULL;
}

static void launch_refused(Launch *launch, ExecutableObject *exe) {
  if (exe->client->launches != NULL)
    launches_give_up(exe->client->launches, launch->turn, false);
}

/* An input that was donated in an earlier call is the usual cause: say so before the plugin does. */
static PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments) {
  PyObject *none = PyObject_CallMethod((PyObject *)exe, "_refuse_deleted", "(O)", arguments);
  if (none == NULL) {
    drop_error(exe->client->api, error);
    return NULL;
  }
  Py_DECREF(none);
  return raise_status(exe->client->api, error, "PJRT_LoadedExecutable_Execute");
}

static PyObject *wrong_count(ExecutableObject *exe, Py_ssize_t given) {
  return PyErr_Format(PyExc_TypeError, "the program takes %zd argument%s, %zd given",
                      exe->num_parameters, exe->num_parameters == 1 ? "" : "s", given);
}

static PyObject *call_one_device(ExecutableObject *exe, PyObject *const *arguments,
                                 Py_ssize_t count, bool simplify) {
  if (!executable_usable(exe)) return NULL;
  if (exe->num_devices == 0)
    return PyErr_Format(PyExc_TypeError,
                        "the program belongs to no device: give execute_portable() one");
  if (exe->num_devices != 1)
    return PyErr_Format(PyExc_TypeError,
                        "the program runs on %zd devices: give execute() one list of arguments for "
                        "each of them",
                        exe->num_devices);
  if (count != exe->num_parameters) return wrong_count(exe, count);
  Launch launch;
  if (launch_prepare(&launch, exe, 1) < 0) return NULL;
  PyObject *result = NULL, *device = PyTuple_GetItem(exe->devices, 0);
  if (!launch_turn(&launch, exe, 0)) goto done;
  for (Py_ssize_t i = 0; i < count; i++) {
    if (take_argument(exe, i, device, arguments[i], &launch.inputs[i]) < 0) {
      launch_refused(&launch, exe);
      goto done;
    }
  }
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Error *error = launch_run(&launch, exe, &options);
  if (error == NULL) {
    result = wrap_outputs(exe, device, launch.outputs, simplify);
  } else {
    PyObject *tuple = PyTuple_New(count);
    for (Py_ssize_t i = 0; tuple != NULL && i < count; i++)
      PyTuple_SetItem(tuple, i, Py_NewRef(arguments[i]));
    result = tuple != NULL ? launch_failed(exe, error, tuple) : NULL;
    Py_XDECREF(tuple);
  }
  client_leave(exe->client);
done:
  free(launch.heap);
  return result;
}

static int read_simplify(PyObject *const *values, PyObject *names, bool *simplify) {
  Py_ssize_t count = PyTuple_Size(names);
  for (Py_ssize_t i = 0; i < count; i++) {
    if (PyUnicode_CompareWithASCIIString(PyTuple_GetItem(names, i), "simplify") != 0) {
      PyErr_Format(PyExc_TypeError, "unexpected keyword argument %R: arguments are given by position",
                   PyTuple_GetItem(names, i));
      return -1;
    }
    int truth = PyObject_IsTrue(values[i]);
    if (truth < 0) return -1;
    *simplify = truth;
  }
  return 0;
}

static PyObject *executable_vectorcall(PyObject *self, PyObject *const *arguments, size_t nargsf,
                                       PyObject *names) {
  bool simplify = true;
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (names != NULL && read_simplify(arguments + count, names, &simplify) < 0) return NULL;
  return call_one_device((ExecutableObject *)self, arguments, count, simplify);
}

/* How Python 3.11 calls a subclass: there the vectorcall flag is not inherited. */
static PyObject *executable_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  PyObject *on_stack[ON_STACK], **arguments = on_stack;
  Py_ssize_t count = PyTuple_Size(args);
  if (count > ON_STACK) arguments = calloc((size_t)count, sizeof(PyObject *));
  if (arguments == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) arguments[i] = PyTuple_GetItem(args, i);
  PyObject *simplify = kwargs != NULL ? PyDict_GetItemString(kwargs, "simplify") : NULL;
  PyObject *result = NULL;
  int truth = simplify != NULL ? PyObject_IsTrue(simplify) : 1;
  if (kwargs != NULL && PyDict_Size(kwargs) != (simplify != NULL))
    PyErr_SetString(PyExc_TypeError, "arguments are given by position");
  else if (truth >= 0)
    result = call_one_device((ExecutableObject *)self, arguments, count, truth);
  if (arguments != on_stack) free(arguments);
  return result;
}

static int take_rows(ExecutableObject *exe, Launch *launch, PyObject *rows, PyObject *devices) {
  for (Py_ssize_t d = 0; d < launch->num_devices; d++) {
    PyObject *row = PyTuple_GetItem(rows, d);
    if (!PyTuple_Check(row)) {
      PyErr_SetString(PyExc_TypeError, "the arguments of a device are not a tuple");
      return -1;
    }
    if (PyTuple_Size(row) != exe->num_parameters) {
      wrong_count(exe, PyTuple_Size(row));
      return -1;
    }
    for (Py_ssize_t i = 0; i < exe->num_parameters; i++)
      if (take_argument(exe, i, PyTuple_GetItem(devices, d), PyTuple_GetItem(row, i),
                        &launch->rows[d][i]) < 0)
        return -1;
  }
  return 0;
}

/* A launch that fails on one device has started on others, which wait for it: so what was donated is
   found before. */
static int refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows) {
  PJRT_Buffer_IsDeleted_Args args = {.struct_size = PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE};
  for (Py_ssize_t d = 0; d < launch->num_devices; d++) {
    for (Py_ssize_t i = 0; i < exe->num_parameters; i++) {
      args.buffer = launch->rows[d][i];
      PJRT_Error *error = exe->client->api->PJRT_Buffer_IsDeleted(&args);
      if (error == NULL && !args.is_deleted) continue;
      if (error == NULL) return reject(exe, i, PyTuple_GetItem(PyTuple_GetItem(rows, d), i));
      raise_status(exe->client->api, error, "PJRT_Buffer_IsDeleted");
      return -1;
    }
  }
  return 0;
}

/* Between `begins` and not, what other threads delete stays. */
static void rows_launch(PyObject *rows, bool begins) {
  for (Py_ssize_t d = 0; d < PyTuple_Size(rows); d++) {
    PyObject *row = PyTuple_GetItem(rows, d);
    for (Py_ssize_t i = 0; i < PyTuple_Size(row); i++) {
      BufferObject *buffer = (BufferObject *)PyTuple_GetItem(row, i);
      if (begins)
        buffer->launches++;
      else
        buffer_launched(buffer);
    }
  }
}

static void rows_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *rows) {
  Py_ssize_t last = PyTuple_Size(rows) - 1;
  for (Py_ssize_t d = 0; d < last; d++) { /* the last row raises for all */
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

/* A tuple of output tuples and a tuple of events, one of each for each device. All become objects
   here: where a signal's handler raises in Python's next step, nothing is lost. */
static PyObject *rows_outputs(ExecutableObject *exe, Launch *launch, PyObject *devices,
                              PyTypeObject *event_type) {
  PyObject *outputs = PyTuple_New(launch->num_devices);
  PyObject *events = PyTuple_New(launch->asked ? launch->num_devices : 0);
  for (Py_ssize_t d = 0; outputs != NULL && d < launch->num_devices; d++) {
    PyObject *row = wrap_outputs(exe, PyTuple_GetItem(devices, d),
                                 launch->rows[launch->num_devices + d], false);
    if (row != NULL)
      PyTuple_SetItem(outputs, d, row);
    else
      Py_CLEAR(outputs); /* only out of memory leads here: the other devices' outputs are lost */
  }
  for (Py_ssize_t d = 0; launch->asked && d < launch->num_devices; d++) {
    PyObject *event = event_wrap(event_type, exe->client, launch->events[d]);
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

/* Where `devices` are not the executable's own there is one, whose address is `execute_device`. */
static PyObject *executable_execute(PyObject *self, PyObject *args) {
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject *rows, *devices;
  unsigned long long options_address, execute_device;
  PyObject *event_type; /* or None */
  if (!PyArg_ParseTuple(args, "O!O!KKO", &PyTuple_Type, &rows, &PyTuple_Type, &devices,
                        &options_address, &execute_device, &event_type))
    return NULL;
  if (!executable_usable(exe)) return NULL;
  Py_ssize_t count = PyTuple_Size(devices);
  if (PyTuple_Size(rows) != count || count == 0)
    return PyErr_Format(PyExc_TypeError, "the program runs on %zd devices, arguments for %zd given",
                        count, PyTuple_Size(rows));
  Launch launch;
  PyObject *result = NULL;
  if (launch_prepare(&launch, exe, count) < 0) return NULL;
  launch.execute_device = (PJRT_Device *)(uintptr_t)execute_device;
  launch.asked = event_type != Py_None;
  PJRT_ExecuteOptions none = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_ExecuteOptions *options = (PJRT_ExecuteOptions *)(uintptr_t)options_address;
  if (options == NULL) options = &none;
  if (!launch_turn(&launch, exe, options->launch_id)) goto done;
  if (take_rows(exe, &launch, rows, devices) < 0 ||
      (launch.turn.together && refuse_deleted(exe, &launch, rows) < 0)) {
    launch_refused(&launch, exe);
    goto done;
  }
  if (launch.turn.together) rows_launch(rows, true);
  PJRT_Error *error = launch_run(&launch, exe, options);
  if (launch.turn.together) rows_launch(rows, false);
  if (error == NULL)
    result = rows_outputs(exe, &launch, devices, (PyTypeObject *)event_type);
  else
    rows_failed(exe, error, rows);
  client_leave(exe->client);
done:
  free(launch.heap);
  return result;
}

static PyObject *executable_bind(PyObject *self, PyObject *args) {
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject *client, *buffer_type, *parameters, *outputs, *devices;
  unsigned long long ptr;
  if (exe->client != NULL) return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!KOO!O!O!", ClientType, &client, &ptr, &buffer_type, &PyTuple_Type,
                        &parameters, &PyTuple_Type, &outputs, &PyTuple_Type, &devices))
    return NULL;
  if (!PyType_Check(buffer_type) || !PyType_IsSubtype((PyTypeObject *)buffer_type, BufferType))
    return PyErr_Format(PyExc_TypeError, "the type of the outputs is not a type of Buffer");
  Py_ssize_t num_parameters, num_outputs;
  Slot *in = read_slots(parameters, &num_parameters);
  if (in == NULL) return NULL;
  Slot *out = read_slots(outputs, &num_outputs);
  if (out == NULL) {
    free_slots(in, num_parameters);
    return NULL;
  }
  exe->vectorcall = executable_vectorcall;
  exe->client = (ClientObject *)Py_NewRef(client);
  exe->ptr = (PJRT_LoadedExecutable *)(uintptr_t)ptr;
  exe->buffer_type = (PyTypeObject *)Py_NewRef(buffer_type);
  exe->devices = Py_NewRef(devices);
  exe->parameters = in;
  exe->outputs = out;
  exe->num_parameters = num_parameters;
  exe->num_outputs = num_outputs;
  exe->num_devices = PyTuple_Size(devices);
  client_adopt(exe->client, &exe->child, executable_destroy);
  Py_RETURN_NONE;
}

static PyObject *executable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  ExecutableObject *exe = (ExecutableObject *)PyType_GenericAlloc(type, 0);
  if (exe != NULL) exe->vectorcall = executable_vectorcall;
  return (PyObject *)exe;
}

static PyObject *executable_check(PyObject *self, PyObject *unused) {
  if (!executable_usable((ExecutableObject *)self)) return NULL;
  Py_RETURN_NONE;
}

/* Where another thread may be inside a call with it, the native part waits for this object's end. */
static PyObject *executable_close(PyObject *self, PyObject *unused) {
  ExecutableObject *exe = (ExecutableObject *)self;
  exe->closed = true;
  if (exe->ptr != NULL && exe->client->generation == fork_generation && exe->client->busy == 0)
    executable_destroy(&exe->child);
  Py_RETURN_NONE;
}

static void executable_dealloc(PyObject *self) {
  ExecutableObject *exe = (ExecutableObject *)self;
  PyTypeObject *type = Py_TYPE(self);
  if (exe->ptr != NULL && exe->client->generation == fork_generation)
    executable_destroy(&exe->child);
  free_slots(exe->parameters, exe->num_parameters);
  free_slots(exe->outputs, exe->num_outputs);
  Py_XDECREF(exe->devices);
  Py_XDECREF((PyObject *)exe->buffer_type);
  Py_XDECREF((PyObject *)exe->client);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject *executable_address(PyObject *self, void *unused) {
  return PyLong_FromVoidPtr(((ExecutableObject *)self)->ptr);
}

static PyObject *executable_closed(PyObject *self, void *unused) {
  ExecutableObject *exe = (ExecutableObject *)self;
  return PyBool_FromLong(exe->ptr == NULL || exe->closed || exe->client->closed ||
                         exe->client->generation != fork_generation);
}

static PyMethodDef methods[] = {
    {"_bind", executable_bind, METH_VARARGS,
     "_bind(client, address, Buffer type, parameters, outputs, devices)"},
    {"_check", executable_check, METH_NOARGS, "Raises ClosedError unless it can run."},
    {"_execute", executable_execute, METH_VARARGS, "_execute(rows, devices, options, execute_device, type of events or None): outputs and events"},
    {"close", executable_close, METH_NOARGS,
     "Frees the executable; may be called again (PJRT_LoadedExecutable_Destroy)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ExecutableObject, vectorcall), READONLY, NULL},
    {"client", T_OBJECT, offsetof(ExecutableObject, client), READONLY, "The client that owns it."},
    {"devices", T_OBJECT, offsetof(ExecutableObject, devices), READONLY,
     "The devices it runs on, in the order of execute()'s rows."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", executable_closed, NULL, "Whether it was closed, itself or with its client.", NULL},
    {"_address", executable_address, NULL, "The PJRT_LoadedExecutable*.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of runtime.LoadedExecutable: owns a PJRT_LoadedExecutable and calls it."},
    {Py_tp_new, executable_new},
    {Py_tp_dealloc, executable_dealloc},
    {Py_tp_call, executable_call},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec executable_spec = {
    "pjrt_hub._capi.hotpath.LoadedExecutable", sizeof(ExecutableObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_VECTORCALL, slots};
