/* BoundCall: an executable together with its arguments, which are checked once for many calls.

   Each call only checks what may have changed: whether something was deleted or closed. */
#include "native.h"

PyTypeObject *BoundCallType;

typedef struct {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  ExecutableObject *exe;
  PyObject *rows; /* A tuple with a tuple of Buffers for each device. */
  Py_ssize_t num_devices, num_arguments, count; /* `count` is num_devices * num_arguments. */
  BufferObject **arguments;                     /* The Buffers of all rows, borrowed from `rows`. */
  PJRT_Buffer **inputs;
  PJRT_Buffer ***lists; /* The beginning of each device's arguments in `inputs`. */
  PyObject *weakrefs;
  bool single;          /* Whether the call stands for exe(a, b), not for exe.execute(rows). */
  bool simplify;
} BoundCallObject;

static int refuse_gone(BoundCallObject *call) {
  for (Py_ssize_t i = 0; i < call->count; i++) {
    const BufferObject *buffer = call->arguments[i]; /* `rows` keeps the Buffer alive. */
    if (!buffer->deleted) continue;
    return argument_reject(call->exe, i % call->num_arguments, (PyObject *)buffer);
  }
  return 0;
}

static PyObject *run_single(BoundCallObject *call, Launch *launch) {
  ExecutableObject *exe = call->exe;
  SIZED(PJRT_ExecuteOptions, options);
  PJRT_Error *error = launch_run(launch, exe, &options);
  if (error != NULL)
    return launch_recover(launch, exe, error, PyTuple_GetItem(call->rows, 0), call->simplify);
  return output_result(exe, exe->device, launch->outputs[0], call->simplify);
}

/* Goes on after run_alone's launch failed. */
COLD static PyObject *recover(BoundCallObject *call, PJRT_Error *error) {
  Launch launch;
  if (launch_prepare(&launch, call->exe, 1, call->num_arguments, NULL) < 0) {
    drop_error(call->exe->client->api, error);
    return NULL;
  }
  launch.inputs = (PJRT_Buffer *const *const *)call->lists;
  PyObject *row = PyTuple_GetItem(call->rows, 0);
  PyObject *result = launch_recover(&launch, call->exe, error, row, call->simplify);
  launch_end(&launch, call->exe);
  return result;
}

/* Works like run_single, but takes no turn. Most calls come here, so it does nothing more. */
static PyObject *run_alone(BoundCallObject *call) {
  ExecutableObject *exe = call->exe;
  if (refuse_gone(call) < 0) return NULL;
  client_enter(exe->client);
  PJRT_Buffer *outputs[ON_STACK], **list = outputs;
  PJRT_Error *error = launch_alone(exe, (PJRT_Buffer *const *const *)call->lists, call->num_arguments, &list);
  PyObject *result = error == NULL
                         ? output_result(exe, exe->device, outputs, call->simplify)
                         : recover(call, error);
  client_leave(exe->client);
  return result;
}

static PyObject *run_rows(BoundCallObject *call, Launch *launch) {
  ExecutableObject *exe = call->exe;
  if (launch->together && launch_refuse_deleted(exe, launch, call->rows) < 0) {
    launch_refused(launch, exe);
    return NULL;
  }
  SIZED(PJRT_ExecuteOptions, options);
  PyObject *both = launch_rows(launch, exe, &options, call->rows, exe->devices, NULL);
  PyObject *result = both != NULL ? PySequence_List(PyTuple_GetItem(both, 0)) : NULL;
  Py_XDECREF(both);
  return result;
}

static PyObject *run(BoundCallObject *call) {
  ExecutableObject *exe = call->exe;
  if (exe == NULL) return raise_closed("this call was never bound to an executable");
  if (!executable_usable(exe)) return NULL;
  Gate *gate = gate_for(&exe->client->turns);
  if (call->single && gate == NULL && exe->num_outputs <= ON_STACK) return run_alone(call);
  Launch launch;
  if (launch_prepare(&launch, exe, call->num_devices, call->num_arguments, gate) < 0) return NULL;
  PyObject *result = NULL;
  launch.inputs = (PJRT_Buffer *const *const *)call->lists;
  if (launch_turn(&launch, exe)) {
    if (refuse_gone(call) < 0)
      launch_refused(&launch, exe);
    else
      result = call->single ? run_single(call, &launch) : run_rows(call, &launch);
  }
  launch_end(&launch, exe);
  return result;
}

COLD static PyObject *takes_none(void) {
  PyErr_SetString(PyExc_TypeError,
                  "a bound call has its arguments already and takes none, only options\n\n"
                  "hint: exe(a, b) runs with others, exe.bind(a, b) binds others");
  return NULL;
}

COLD static PyObject *run_with(PyObject *self, PyObject *name, PyObject *value) {
  if (PyUnicode_CompareWithASCIIString(name, "options") != 0) return takes_none();
  if (value == Py_None || ((BoundCallObject *)self)->exe == NULL) return PyObject_CallNoArgs(self);
  return PyObject_CallMethod(self, "_call_with", "O", value);
}

COLD static PyObject *run_named(PyObject *self, PyObject *const *arguments, Py_ssize_t count,
                                PyObject *names) {
  Py_ssize_t named = names != NULL ? PyTuple_Size(names) : 0;
  if (count == 0 && named == 0) return run((BoundCallObject *)self);
  if (count != 0 || named != 1) return takes_none();
  return run_with(self, PyTuple_GetItem(names, 0), arguments[0]);
}

static PyObject *bound_vectorcall(PyObject *self, PyObject *const *arguments, size_t nargsf,
                                  PyObject *names) {
  GUARD;
  Py_ssize_t count = PyVectorcall_NARGS(nargsf);
  if (count != 0 || names != NULL) return run_named(self, arguments, count, names);
  return run((BoundCallObject *)self);
}

COLD static PyObject *run_with_dict(PyObject *self, PyObject *kwargs) {
  PyObject *name, *value;
  Py_ssize_t at = 0;
  if (PyDict_Size(kwargs) != 1) return takes_none();
  PyDict_Next(kwargs, &at, &name, &value);
  return run_with(self, name, value);
}

/* Python 3.11 calls instances of a subclass this way; see executable_call. */
static PyObject *bound_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  GUARD;
  if (PyTuple_Size(args) != 0) return takes_none();
  if (kwargs != NULL && PyDict_Size(kwargs) != 0) return run_with_dict(self, kwargs);
  return run((BoundCallObject *)self);
}

/* Checks the rows and records where their arguments are. */
static int bind_rows(BoundCallObject *call, ExecutableObject *exe, PyObject *rows) {
  Py_ssize_t devices = exe->num_devices, in = executable_arguments_in(exe, rows);
  call->arguments = calloc((size_t)(devices * in) + 1, sizeof(BufferObject *));
  call->inputs = calloc((size_t)(devices * in) + 1, sizeof(PJRT_Buffer *));
  call->lists = calloc((size_t)devices, sizeof(PJRT_Buffer **));
  if (call->arguments == NULL || call->inputs == NULL || call->lists == NULL)
    return failed(PyErr_NoMemory());
  for (Py_ssize_t d = 0; d < devices; d++) {
    PyObject *row = executable_row(exe, rows, d, in), *device = PyTuple_GetItem(exe->devices, d);
    if (row == NULL) return -1;
    call->lists[d] = call->inputs + d * in;
    for (Py_ssize_t i = 0; i < in; i++) {
      PyObject *argument = PyTuple_GetItem(row, i);
      if (take_argument(NULL, exe, d, i, device, argument, &call->lists[d][i]) < 0) return -1;
      call->arguments[d * in + i] = (BufferObject *)argument;
    }
  }
  call->num_devices = devices;
  call->num_arguments = in;
  call->count = devices * in;
  return 0;
}

static PyObject *bound_bind(PyObject *self, PyObject *args) {
  GUARD;
  BoundCallObject *call = (BoundCallObject *)self;
  PyObject *executable, *rows;
  int single, simplify;
  if (call->exe != NULL || call->arguments != NULL)
    return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!O!pp", ExecutableType, &executable, &PyTuple_Type, &rows, &single,
                        &simplify))
    return NULL;
  ExecutableObject *exe = (ExecutableObject *)executable;
  if (!executable_usable(exe)) return NULL;
  if (exe->num_devices == 0 || PyTuple_Size(rows) != exe->num_devices)
    return PyErr_Format(PyExc_TypeError, "the program runs on %zd devices, arguments for %zd given",
                        exe->num_devices, PyTuple_Size(rows));
  if (exe->num_parameters < 0) return executable_wrong_count(exe, 0);
  if (bind_rows(call, exe, rows) < 0) return NULL;
  call->exe = (ExecutableObject *)Py_NewRef(executable);
  call->rows = Py_NewRef(rows);
  call->single = single;
  call->simplify = simplify;
  Py_RETURN_NONE;
}

static PyObject *bound_new(PyTypeObject *type, PyObject *args, PyObject *kwargs) {
  BoundCallObject *call = (BoundCallObject *)PyType_GenericAlloc(type, 0);
  if (call != NULL) call->vectorcall = bound_vectorcall;
  return (PyObject *)call;
}

static void bound_dealloc(PyObject *self) {
  BoundCallObject *call = (BoundCallObject *)self;
  PyObject_GC_UnTrack(self);
  if (call->weakrefs != NULL) PyObject_ClearWeakRefs(self);
  free(call->arguments);
  free(call->inputs);
  free(call->lists);
  Py_XDECREF(call->rows);
  Py_XDECREF((PyObject *)call->exe);
  object_free(self);
}

static int bound_traverse(PyObject *self, visitproc visit, void *arg) {
  BoundCallObject *call = (BoundCallObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)call->exe);
  Py_VISIT(call->rows);
  return 0;
}

static PyMethodDef methods[] = {
    {"_bind", bound_bind, METH_VARARGS, "_bind(executable, rows, single, simplify)"},
    {"__class_getitem__", Py_GenericAlias, METH_O | METH_CLASS, "What it gives, for type checkers."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundCallObject, vectorcall), READONLY, NULL},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BoundCallObject, weakrefs), READONLY, NULL},
    {"executable", T_OBJECT, offsetof(BoundCallObject, exe), READONLY, "What it runs."},
    {"_rows", T_OBJECT, offsetof(BoundCallObject, rows), READONLY, "A row for each device."},
    {"_single", T_BOOL, offsetof(BoundCallObject, single), READONLY, "Whether it is exe(a, b)."},
    {"_simplify", T_BOOL, offsetof(BoundCallObject, simplify), READONLY, "As exe(...) takes it."},
    {NULL, 0, 0, 0, NULL},
};

/* The subclasses that compact_type makes need this member, too. */
static PyMemberDef vectorcall[] = {
    {"__vectorcalloffset__", T_PYSSIZET, offsetof(BoundCallObject, vectorcall), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

PyType_Slot bound_call_slots[] = {
    {Py_tp_traverse, bound_traverse},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_call, bound_call},
    {Py_tp_members, vectorcall},
    {0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.BoundCall: an executable and its arguments."},
    {Py_tp_new, bound_new},
    {Py_tp_traverse, bound_traverse},
    {Py_tp_dealloc, bound_dealloc},
    {Py_tp_call, bound_call},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec bound_call_spec = {
    "pjrt_hub.running.capi.hotpath.BoundCall", sizeof(BoundCallObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_HAVE_VECTORCALL,
    slots};
