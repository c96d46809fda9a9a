/* LoadedExecutable: exe(a, b) and exe.execute(rows), from the call in Python to a launch and back.

   argument.c checks the arguments, and launch.c executes the program. */
#include "native.h"

PyTypeObject *ExecutableType;

/* Frees the native executable and leaves an object that refuses every call. Work in flight still
   finishes. Another thread may free the object meanwhile. */
static void executable_destroy(Child *child) {
  ExecutableObject *exe = OWNER(ExecutableObject, child);
  ClientObject *client = exe->client;
  const PJRT_Api *api = client->api;
  client_disown(client, child);
  SIZED(PJRT_LoadedExecutable_Destroy_Args, args, .executable = exe->ptr);
  exe->ptr = NULL;
  client_enter(client);
  Py_BEGIN_ALLOW_THREADS;
  PJRT_Error *error = CALL(api, PJRT_LoadedExecutable_Destroy, &args);
  if (error != NULL && is_unimplemented(api, error)) client->outlived = true;
  drop_error(api, error);
  Py_END_ALLOW_THREADS;
  client_leave(client);
}

static void free_slots(Slot *slots, Py_ssize_t count) {
  for (Py_ssize_t i = 0; slots != NULL && i < count; i++) {
    Py_XDECREF(slots[i].shape);
    Py_XDECREF(slots[i].layout);
    Py_XDECREF(slots[i].host_dtype);
    free(slots[i].dims);
  }
  free(slots);
}

/* Reads None or a tuple of (dtype or 0, shape or None, layout, dynamic dimensions). The layout is
   None for row-major, () if it is unknown. */
static Slot *read_slots(PyObject *tuple, Py_ssize_t *count) {
  *count = PyTuple_Check(tuple) ? PyTuple_Size(tuple) : 0;
  Slot *slots = calloc((size_t)*count + 1, sizeof(Slot));
  if (slots == NULL) return (Slot *)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < *count; i++) {
    PyObject *shape, *layout, *dynamic;
    if (!PyArg_ParseTuple(PyTuple_GetItem(tuple, i), "iOOO!", &slots[i].dtype, &shape, &layout,
                          &PyTuple_Type, &dynamic)) {
      free_slots(slots, i);
      return NULL;
    }
    bool told = layout == Py_None || (PyTuple_Check(layout) && PyTuple_Size(layout) > 0);
    slots[i].layout = told ? Py_NewRef(layout) : NULL;
    slots[i].dynamic = PyTuple_Size(dynamic) > 0;
    if (!PyTuple_Check(shape)) continue; /* The shape is unknown. */
    slots[i].shape = Py_NewRef(shape);
    slots[i].rank = (int)PyTuple_Size(shape);
    slots[i].dims = calloc((size_t)slots[i].rank + 1, sizeof(int64_t));
    for (int d = 0; slots[i].dims != NULL && d < slots[i].rank; d++)
      slots[i].dims[d] = PyLong_AsLongLong(PyTuple_GetItem(shape, d));
    if (slots[i].dims == NULL) PyErr_NoMemory();
    if (PyErr_Occurred()) {
      free_slots(slots, i + 1);
      return NULL;
    }
  }
  return slots;
}

static PJRT_Device **read_places(PyObject *devices) {
  Py_ssize_t count = PyTuple_Size(devices);
  PJRT_Device **places = calloc((size_t)count + 1, sizeof(PJRT_Device *));
  if (places == NULL) PyErr_NoMemory();
  for (Py_ssize_t d = 0; places != NULL && d < count; d++) {
    PyObject *address = PyObject_GetAttrString(PyTuple_GetItem(devices, d), "address");
    if (address != NULL) places[d] = PyLong_AsVoidPtr(address);
    Py_XDECREF(address);
    if (PyErr_Occurred()) {
      free(places);
      return NULL;
    }
  }
  return places;
}

PyObject *executable_wrong_count(ExecutableObject *exe, Py_ssize_t given) {
  if (exe->num_parameters < 0) /* The outputs are unknown, so `signature` raises. */
    return PyObject_GetAttrString((PyObject *)exe, "signature");
  return PyErr_Format(PyExc_TypeError, "the program takes %zd argument%s, %zd given",
                      exe->num_parameters, exe->num_parameters == 1 ? "" : "s", given);
}

static int take_row(Launch *launch, ExecutableObject *exe, PyObject *const *arguments) {
  PJRT_Buffer **inputs = launch_row(launch, 0);
  for (Py_ssize_t i = 0; i < launch->num_arguments; i++)
    if (take_argument(&launch->puts, exe, 0, i, exe->device, arguments[i], &inputs[i]) < 0) return -1;
  return 0;
}

/* Takes the arguments and waits for the launch's turn; returns false with an exception set. After
   the wait, it checks the arguments again, because Buffers may have been deleted meanwhile. */
static bool begin_row(Launch *launch, ExecutableObject *exe, PyObject *const *arguments) {
  if (take_row(launch, exe, arguments) < 0) return false;
  if (!launch_turn(launch, exe)) return false;
  if (launch->gate == NULL) return true;
  launch->puts.done = true;
  if (take_row(launch, exe, arguments) == 0) return true;
  launch_refused(launch, exe);
  return false;
}

static PyObject *as_tuple(PyObject *const *arguments, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; i++)
    PyTuple_SetItem(tuple, i, Py_NewRef(arguments[i]));
  return tuple;
}

COLD static PyObject *recover(Launch *launch, ExecutableObject *exe, PJRT_Error *error,
                              PyObject *const *arguments, bool simplify) {
  PyObject *tuple = as_tuple(arguments, launch->num_arguments), *result = NULL;
  if (tuple == NULL)
    drop_error(exe->client->api, error);
  else
    result = launch_recover(launch, exe, error, tuple, simplify);
  Py_XDECREF(tuple);
  return result;
}

/* Returns whether exe(a, b) is possible; if not, raises an error that says what to call. */
static inline bool runs_on_one_device(const ExecutableObject *exe) {
  if (!executable_usable(exe)) return false;
  if (exe->num_devices == 1) return true;
  if (exe->num_devices == 0)
    PyErr_SetString(PyExc_TypeError,
                    "the program belongs to no device: give execute_on() one");
  else
    PyErr_Format(PyExc_TypeError,
                 "the program runs on %zd devices: give execute() one list of arguments for "
                 "each of them",
                 exe->num_devices);
  return false;
}

static PyObject *call_one_device(ExecutableObject *exe, PyObject *const *arguments,
                                 Py_ssize_t count, bool simplify) {
  if (!runs_on_one_device(exe)) return NULL;
  if (!executable_takes(exe, count)) return executable_wrong_count(exe, count);
  Launch launch;
  if (launch_prepare(&launch, exe, 1, count, gate_for(&exe->client->turns)) < 0) return NULL;
  PyObject *result = NULL;
  if (begin_row(&launch, exe, arguments)) {
    SIZED(PJRT_ExecuteOptions, options);
    PJRT_Error *error = launch_run(&launch, exe, &options);
    result = error == NULL ? output_result(exe, exe->device, launch.outputs[0], simplify)
                           : recover(&launch, exe, error, arguments, simplify);
  }
  launch_end(&launch, exe);
  return result;
}

/* The keyword arguments of a call. */
typedef struct {
  bool simplify;
  PyObject *options; /* NULL if there are none. */
} Keywords;

static int read_keyword(Keywords *said, PyObject *name, PyObject *value) {
  if (PyUnicode_CompareWithASCIIString(name, "options") == 0) {
    said->options = value != Py_None ? value : NULL;
    return 0;
  }
  if (PyUnicode_CompareWithASCIIString(name, "simplify") != 0) {
    PyErr_Format(PyExc_TypeError,
                 "unexpected keyword argument %R: arguments are given by position, beside them "
                 "simplify and options",
                 name);
    return -1;
  }
  int truth = PyObject_IsTrue(value);
  said->simplify = truth > 0;
  return truth < 0 ? -1 : 0;
}

/* Python makes the options into a struct and keeps alive the objects that the plugin uses. */
static PyObject *call_with(ExecutableObject *exe, PyObject *const *arguments, Py_ssize_t count,
                           const Keywords *said) {
  if (said->options == NULL) return call_one_device(exe, arguments, count, said->simplify);
  if (!runs_on_one_device(exe)) return NULL;
  PyObject *row = as_tuple(arguments, count), *result = NULL;
  if (row != NULL)
    result = PyObject_CallMethod((PyObject *)exe, "_call_with", "OOO", said->options, row,
                                 said->simplify ? Py_True : Py_False);
  Py_XDECREF(row);
  return result;
}

COLD static PyObject *call_named(ExecutableObject *exe, PyObject *const *arguments,
                                 Py_ssize_t count, PyObject *names) {
  Keywords said = {.simplify = true};
  for (Py_ssize_t i = 0; i < PyTuple_Size(names); i++)
    if (read_keyword(&said, PyTuple_GetItem(names, i), arguments[count + i]) < 0) return NULL;
  return call_with(exe, arguments, count, &said);
}

static PyObject *executable_vectorcall(PyObject *self, PyObject *const *arguments, size_t nargsf,
                                       PyObject *names) {
  GUARD;
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (names != NULL) return call_named((ExecutableObject *)self, arguments, count, names);
  return call_one_device((ExecutableObject *)self, arguments, count, true);
}

COLD static PyObject *call_with_dict(ExecutableObject *exe, PyObject *const *arguments,
                                     Py_ssize_t count, PyObject *kwargs) {
  Keywords said = {.simplify = true};
  PyObject *name, *value;
  for (Py_ssize_t at = 0; PyDict_Next(kwargs, &at, &name, &value);)
    if (read_keyword(&said, name, value) < 0) return NULL;
  return call_with(exe, arguments, count, &said);
}

/* In Python 3.11, a subclass does not inherit the vectorcall flag, so its calls come here. */
static PyObject *executable_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  GUARD;
  PyObject *on_stack[ON_STACK], **arguments = on_stack;
  Py_ssize_t count = PyTuple_Size(args);
  if (count > ON_STACK) arguments = calloc((size_t)count, sizeof(PyObject *));
  if (arguments == NULL) return PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < count; i++) arguments[i] = PyTuple_GetItem(args, i);
  PyObject *result =
      kwargs != NULL ? call_with_dict((ExecutableObject *)self, arguments, count, kwargs)
                     : call_one_device((ExecutableObject *)self, arguments, count, true);
  if (arguments != on_stack) free(arguments);
  return result;
}

/* Returns a device's arguments as a tuple of `count`, or NULL with an exception set. */
PyObject *executable_row(ExecutableObject *exe, PyObject *rows, Py_ssize_t device, Py_ssize_t count) {
  PyObject *row = PyTuple_GetItem(rows, device);
  if (!PyTuple_Check(row))
    return PyErr_Format(PyExc_TypeError, "the arguments of a device are not a tuple");
  if (PyTuple_Size(row) == count) return row;
  executable_wrong_count(exe, PyTuple_Size(row));
  return NULL;
}

static int take_rows(Launch *launch, ExecutableObject *exe, PyObject *rows, PyObject *devices) {
  for (Py_ssize_t d = 0; d < launch->num_devices; d++) {
    PyObject *row = executable_row(exe, rows, d, launch->num_arguments);
    if (row == NULL) return -1;
    for (Py_ssize_t i = 0; i < launch->num_arguments; i++)
      if (take_argument(&launch->puts, exe, d, i, PyTuple_GetItem(devices, d), PyTuple_GetItem(row, i),
                        &launch_row(launch, d)[i]) < 0)
        return -1;
  }
  return 0;
}

/* Works like begin_row, but for several devices. */
static bool begin_rows(Launch *launch, ExecutableObject *exe, PyObject *rows, PyObject *devices) {
  if (take_rows(launch, exe, rows, devices) < 0) return false;
  if (!launch_turn(launch, exe)) return false;
  if (launch->gate == NULL && !launch->together) return true;
  launch->puts.done = true;
  if (take_rows(launch, exe, rows, devices) == 0 &&
      (!launch->together || launch_refuse_deleted(exe, launch, rows) == 0))
    return true;
  launch_refused(launch, exe);
  return false;
}

/* Returns the number of arguments that each row must hold. */
Py_ssize_t executable_arguments_in(const ExecutableObject *exe, PyObject *rows) {
  PyObject *first = PyTuple_GetItem(rows, 0);
  return exe->open && PyTuple_Check(first) ? PyTuple_Size(first) : exe->num_parameters;
}

/* `devices` are the executable's own, or one other device, whose address is `execute_device`. */
static PyObject *executable_execute(PyObject *self, PyObject *args) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject *rows, *devices;
  unsigned long long options_address, execute_device;
  PyObject *event_type; /* None if the caller wants no events. */
  if (!PyArg_ParseTuple(args, "O!O!KKO", &PyTuple_Type, &rows, &PyTuple_Type, &devices,
                        &options_address, &execute_device, &event_type))
    return NULL;
  if (!executable_usable(exe)) return NULL;
  Py_ssize_t count = PyTuple_Size(devices);
  if (PyTuple_Size(rows) != count || count == 0)
    return PyErr_Format(PyExc_TypeError, "the program runs on %zd devices, arguments for %zd given",
                        count, PyTuple_Size(rows));
  if (exe->num_parameters < 0) return executable_wrong_count(exe, 0);
  Launch launch;
  PyObject *result = NULL;
  if (launch_prepare(&launch, exe, count, executable_arguments_in(exe, rows), gate_for(&exe->client->turns)) < 0) return NULL;
  launch.puts.device = (PJRT_Device *)(uintptr_t)execute_device;
  launch.asked = event_type != Py_None;
  SIZED(PJRT_ExecuteOptions, none);
  PJRT_ExecuteOptions *options = (PJRT_ExecuteOptions *)(uintptr_t)options_address;
  if (options == NULL) options = &none;
  if (begin_rows(&launch, exe, rows, devices))
    result = launch_rows(&launch, exe, options, rows, devices, (PyTypeObject *)event_type);
  launch_end(&launch, exe);
  return result;
}

/* Checks a row of Buffers ahead of the launch, just as the launch would; refuses arrays. */
static PyObject *executable_take(PyObject *self, PyObject *args) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject *row, *device;
  if (!PyArg_ParseTuple(args, "O!O", &PyTuple_Type, &row, &device)) return NULL;
  if (!executable_usable(exe)) return NULL;
  Py_ssize_t count = PyTuple_Size(row);
  if (!executable_takes(exe, count)) return executable_wrong_count(exe, count);
  for (Py_ssize_t i = 0; i < count; i++) {
    PJRT_Buffer *taken;
    if (take_argument(NULL, exe, 0, i, device, PyTuple_GetItem(row, i), &taken) < 0) return NULL;
  }
  Py_RETURN_NONE;
}

static PyObject *executable_bind(PyObject *self, PyObject *args) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject *client, *buffer_type, *parameters, *outputs, *devices;
  unsigned long long ptr;
  if (exe->client != NULL) return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!KOOOO!", ClientType, &client, &ptr, &buffer_type, &parameters,
                        &outputs, &PyTuple_Type, &devices))
    return NULL;
  if (!PyType_Check(buffer_type) || !PyType_IsSubtype((PyTypeObject *)buffer_type, BufferType))
    return PyErr_Format(PyExc_TypeError, "the type of the outputs is not a type of Buffer");
  Py_ssize_t num_parameters, num_outputs;
  Slot *in = read_slots(parameters, &num_parameters);
  if (in == NULL) return NULL;
  Slot *out = read_slots(outputs, &num_outputs);
  PJRT_Device **places = out != NULL ? read_places(devices) : NULL;
  if (places == NULL) {
    free_slots(in, num_parameters);
    free_slots(out, num_outputs);
    return NULL;
  }
  exe->vectorcall = executable_vectorcall;
  exe->client = (ClientObject *)Py_NewRef(client);
  exe->ptr = (PJRT_LoadedExecutable *)(uintptr_t)ptr;
  exe->buffer_type = (PyTypeObject *)Py_NewRef(buffer_type);
  exe->devices = Py_NewRef(devices);
  exe->places = places;
  exe->parameters = in; /* The slot of zeros behind the last one accepts anything. */
  exe->open = parameters == Py_None && outputs != Py_None;
  exe->outputs = out;
  exe->num_parameters = outputs != Py_None ? num_parameters : -1;
  exe->num_outputs = num_outputs;
  exe->num_devices = PyTuple_Size(devices);
  exe->device = exe->num_devices > 0 ? PyTuple_GetItem(devices, 0) : NULL;
  client_adopt(exe->client, &exe->child, executable_destroy);
  Py_RETURN_NONE;
}

static PyObject *executable_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  ExecutableObject *exe = (ExecutableObject *)PyType_GenericAlloc(type, 0);
  if (exe != NULL) exe->vectorcall = executable_vectorcall;
  return (PyObject *)exe;
}

static PyObject *executable_check(PyObject *self, PyObject *unused) {
  GUARD;
  if (!executable_usable((ExecutableObject *)self)) return NULL;
  Py_RETURN_NONE;
}

/* Frees the native part now, or with this object if another thread may be inside a call with it. */
static PyObject *executable_close(PyObject *self, PyObject *unused) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  exe->closed = true;
  if (exe->ptr != NULL && exe->client->generation == fork_generation && exe->client->busy == 0)
    executable_destroy(&exe->child);
  Py_RETURN_NONE;
}

static int executable_traverse(PyObject *self, visitproc visit, void *arg) {
  ExecutableObject *exe = (ExecutableObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)exe->client);
  Py_VISIT((PyObject *)exe->buffer_type);
  Py_VISIT(exe->devices);
  return 0;
}

static void executable_dealloc(PyObject *self) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  PyObject_GC_UnTrack(self);
  if (exe->ptr != NULL && exe->client->generation == fork_generation)
    executable_destroy(&exe->child);
  free_slots(exe->parameters, exe->num_parameters < 0 ? 0 : exe->num_parameters);
  free_slots(exe->outputs, exe->num_outputs);
  free(exe->places);
  Py_XDECREF(exe->devices);
  Py_XDECREF((PyObject *)exe->buffer_type);
  Py_XDECREF((PyObject *)exe->client);
  object_free(self);
}

static PyObject *executable_adaptive(PyObject *self, void *unused) {
  GUARD;
  return PyBool_FromLong(((ExecutableObject *)self)->adaptive);
}

static int executable_adapt(PyObject *self, PyObject *value, void *unused) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  int truth = value != NULL ? PyObject_IsTrue(value) : 0;
  if (truth < 0) return -1;
  exe->adaptive = truth;
  exe->brief = exe->doubted = false;
  exe->unsampled = 0;
  return 0;
}

static PyObject *executable_closed(PyObject *self, void *unused) {
  GUARD;
  ExecutableObject *exe = (ExecutableObject *)self;
  return PyBool_FromLong(exe->ptr == NULL || exe->closed || client_is_over(exe->client));
}

static PyMethodDef methods[] = {
    {"_bind", executable_bind, METH_VARARGS, NULL},
    {"_require_open", executable_check, METH_NOARGS, "Raises ClosedError unless it can run."},
    {"_execute", executable_execute, METH_VARARGS, "_execute(rows, devices, options, execute_device, type of events or None): outputs and events"},
    {"_take", executable_take, METH_VARARGS, "_take(row, device): raises for a Buffer that does not fit."},
    {"close", executable_close, METH_NOARGS,
     "Frees the executable; may be called again (PJRT_LoadedExecutable_Destroy)."},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "What it gives, for type checkers."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(ExecutableObject, ptr), READONLY, "The PJRT_LoadedExecutable*."},
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(ExecutableObject, vectorcall), READONLY, NULL},
    {"client", T_OBJECT, offsetof(ExecutableObject, client), READONLY, "The client that owns it."},
    {"devices", T_OBJECT, offsetof(ExecutableObject, devices), READONLY,
     "The devices it runs on, in the order of execute()'s rows."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", executable_closed, NULL, "Whether it was closed, itself or with its client.", NULL},
    {"_adaptive", executable_adaptive, executable_adapt, "Whether brief launches keep the GIL.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.LoadedExecutable: owns a PJRT_LoadedExecutable and calls it."},
    {Py_tp_new, executable_new},
    {Py_tp_traverse, executable_traverse},
    {Py_tp_dealloc, executable_dealloc},
    {Py_tp_call, executable_call},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec executable_spec = {
    "pjrt_hub.running.capi.hotpath.LoadedExecutable", sizeof(ExecutableObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    slots};
