/* Stepper: a program whose results are arguments of its next call.

   The state never becomes a Python object, unless somebody asks for it: a call takes the native
   buffers that the last one returned. What stays the same from call to call is checked once. */
#include "native.h"

PyTypeObject *StepperType;

/* A result that becomes an argument. */
typedef struct {
  Py_ssize_t output, parameter;
} Carried;

typedef struct {
  PyObject_HEAD
  Child child;
  ExecutableObject *exe; /* NULL until the stepper is bound. */
  Py_ssize_t num_parameters, num_carried, num_fed;
  Carried *carried;
  Py_ssize_t *fed;      /* The parameters that each call gives, in their order. */
  bool *is_carried;     /* One for each output. */
  PJRT_Buffer **inputs; /* One for each parameter; NULL for those that calls give. */
  PyObject **held;      /* The Buffers that own some of the inputs; the stepper owns the others. */
  bool ready;           /* There is a state. */
  bool checked;         /* The first results were compared with the parameters that they become. */
  bool listed;          /* The client lists the stepper among its children. */
  PyThread_type_lock lock; /* Held by the thread that takes a step, or reads or sets the state. */
  unsigned long owner;
} StepperObject;
LISTED(StepperObject);

/* Waits until no other thread uses the state, or until Ctrl-C; returns false with an exception
   set. */
static bool stepper_enter(StepperObject *stepper) {
  if (stepper->exe == NULL)
    return raise_closed("this stepper was never bound to an executable") != NULL;
  if (!executable_usable(stepper->exe)) return false;
  if (stepper->owner == PyThread_get_thread_ident()) {
    PyErr_SetString(PyExc_RuntimeError, "this thread is inside a step of the same stepper");
    return false;
  }
  PyLockStatus got = PyThread_acquire_lock_timed(stepper->lock, 0, 0);
  while (got != PY_LOCK_ACQUIRED) {
    if (PyErr_CheckSignals() < 0) return false;
    Py_BEGIN_ALLOW_THREADS;
    got = PyThread_acquire_lock_timed(stepper->lock, -1, 1);
    Py_END_ALLOW_THREADS;
  }
  stepper->owner = PyThread_get_thread_ident();
  client_enter(stepper->exe->client);
  return true;
}

static void stepper_leave(StepperObject *stepper) {
  stepper->owner = 0;
  PyThread_release_lock(stepper->lock);
  client_leave(stepper->exe->client);
}

/* Lets go of the input of a parameter. */
static void drop_input(StepperObject *stepper, Py_ssize_t parameter) {
  PyObject *holder = stepper->held[parameter];
  PJRT_Buffer *input = stepper->inputs[parameter];
  stepper->held[parameter] = NULL;
  stepper->inputs[parameter] = NULL;
  if (holder != NULL)
    Py_DECREF(holder);
  else if (input != NULL)
    buffer_destroy_native(stepper->exe->client, input);
}

static void drop_state(StepperObject *stepper) {
  stepper->ready = false;
  for (Py_ssize_t i = 0; i < stepper->num_carried; i++)
    drop_input(stepper, stepper->carried[i].parameter);
}

/* Frees the state before the client is closed. No call is in flight then. */
static void stepper_destroy(Child *child) {
  StepperObject *stepper = OWNER(StepperObject, child);
  ClientObject *client = stepper->exe->client;
  client_disown(client, child);
  stepper->listed = false;
  client_enter(client);
  drop_state(stepper);
  client_leave(client);
}

/* Refuses a Buffer that was deleted since it was given; returns -1 with an exception set. */
static int refuse_gone(StepperObject *stepper) {
  for (Py_ssize_t i = 0; i < stepper->num_parameters; i++) {
    const BufferObject *buffer = (const BufferObject *)stepper->held[i];
    if (buffer != NULL && (buffer->deleted || buffer->ptr == NULL))
      return argument_reject(stepper->exe, i, stepper->held[i]);
  }
  return 0;
}

static int take_fed(StepperObject *stepper, Launch *launch, PyObject *args) {
  ExecutableObject *exe = stepper->exe;
  PJRT_Buffer **row = launch_row(launch, 0);
  for (Py_ssize_t i = 0; i < stepper->num_fed; i++) {
    Py_ssize_t index = stepper->fed[i];
    if (take_argument(&launch->puts, exe, 0, index, exe->device, PyTuple_GetItem(args, i),
                      &row[index]) < 0)
      return -1;
  }
  return refuse_gone(stepper);
}

/* Works like begin_row of executable.c. */
static bool begin_step(StepperObject *stepper, Launch *launch, PyObject *args) {
  memcpy(launch_row(launch, 0), stepper->inputs,
         (size_t)stepper->num_parameters * sizeof(PJRT_Buffer *));
  if (take_fed(stepper, launch, args) < 0) return false;
  if (!launch_turn(launch, stepper->exe)) return false;
  if (launch->gate == NULL) return true;
  launch->puts.done = true;
  if (take_fed(stepper, launch, args) == 0) return true;
  launch_refused(launch, stepper->exe);
  return false;
}

/* Makes the results of the first call Buffers, and compares them with their parameters. */
static int carry_first(StepperObject *stepper, PyObject *results) {
  ExecutableObject *exe = stepper->exe;
  for (Py_ssize_t i = 0; i < stepper->num_carried; i++) {
    Carried each = stepper->carried[i];
    PyObject *buffer = PyTuple_GetItem(results, each.output);
    PJRT_Buffer *taken;
    if (take_argument(NULL, exe, 0, each.parameter, exe->device, buffer, &taken) < 0) return -1;
    drop_input(stepper, each.parameter);
    stepper->inputs[each.parameter] = taken;
    stepper->held[each.parameter] = Py_NewRef(buffer);
  }
  stepper->checked = true;
  return 0;
}

/* Returns the results that are not carried: one, or a tuple of them. */
static PyObject *given_results(StepperObject *stepper, PyObject *all, PJRT_Buffer **outputs) {
  ExecutableObject *exe = stepper->exe;
  Py_ssize_t count = exe->num_outputs - stepper->num_carried, place = 0;
  PyObject *results = count == 1 ? NULL : PyTuple_New(count);
  for (Py_ssize_t i = 0; i < exe->num_outputs; i++) {
    if (stepper->is_carried[i]) continue;
    PyObject *result = all != NULL ? Py_NewRef(PyTuple_GetItem(all, i))
                                   : output_buffer(exe, i, outputs[i], exe->device);
    if (count == 1) return result;
    if (result == NULL)
      Py_CLEAR(results); /* The outputs that follow leak, as memory is exhausted anyway. */
    if (results == NULL) return NULL;
    PyTuple_SetItem(results, place++, result);
  }
  return results;
}

static PyObject *finish_first(StepperObject *stepper, PJRT_Buffer **outputs) {
  PyObject *all = output_result(stepper->exe, stepper->exe->device, outputs, false), *given = NULL;
  if (all == NULL || carry_first(stepper, all) < 0)
    drop_state(stepper); /* The arguments were donated. */
  else
    given = given_results(stepper, all, NULL);
  Py_XDECREF(all);
  return given;
}

static PyObject *finish_step(StepperObject *stepper, PJRT_Buffer **outputs) {
  if (!stepper->checked) return finish_first(stepper, outputs);
  for (Py_ssize_t i = 0; i < stepper->num_carried; i++) {
    Carried each = stepper->carried[i];
    drop_input(stepper, each.parameter);
    stepper->inputs[each.parameter] = outputs[each.output];
    if (outputs[each.output] == NULL) stepper->ready = false;
  }
  if (stepper->ready) return given_results(stepper, NULL, outputs);
  raise_answer("PJRT_LoadedExecutable_Execute", "no buffer for an output");
  return NULL;
}

/* Returns whether a call that failed has consumed a part of the state. */
static bool is_consumed(StepperObject *stepper) {
  const PJRT_Api *api = stepper->exe->client->api;
  for (Py_ssize_t i = 0; i < stepper->num_carried; i++)
    if (deletion_known(api, stepper->inputs[stepper->carried[i].parameter])) return true;
  return false;
}

/* Raises for a failed call, and notes it if the state is gone. */
static PyObject *step_failed(StepperObject *stepper, PJRT_Error *error, PyObject *args) {
  PyObject *row = PyTuple_New(stepper->num_parameters);
  for (Py_ssize_t i = 0; row != NULL && i < stepper->num_parameters; i++)
    PyTuple_SetItem(row, i, Py_NewRef(stepper->held[i] != NULL ? stepper->held[i] : Py_None));
  for (Py_ssize_t i = 0; row != NULL && i < stepper->num_fed; i++)
    PyTuple_SetItem(row, stepper->fed[i], Py_NewRef(PyTuple_GetItem(args, i)));
  if (row != NULL)
    launch_failed(stepper->exe, error, row);
  else
    drop_error(stepper->exe->client->api, error);
  Py_XDECREF(row);
  if (!is_consumed(stepper)) return NULL;
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  drop_state(stepper);
  PyObject *none = PyObject_CallMethod((PyObject *)stepper, "_note_loss", "O", value);
  Py_XDECREF(none);
  PyErr_Restore(type, value, traceback);
  return NULL;
}

static PyObject *step(StepperObject *stepper, PyObject *args) {
  ExecutableObject *exe = stepper->exe;
  if (!executable_usable(exe)) return NULL; /* It may have been closed during the wait. */
  if (!stepper->ready) return PyObject_CallMethod((PyObject *)stepper, "_refuse", NULL);
  if (PyTuple_Size(args) != stepper->num_fed)
    return PyErr_Format(PyExc_TypeError, "a step takes %zd argument%s, %zd given", stepper->num_fed,
                        stepper->num_fed == 1 ? "" : "s", PyTuple_Size(args));
  Launch launch;
  if (launch_prepare(&launch, exe, 1, stepper->num_parameters, gate_for(&exe->client->turns)) < 0)
    return NULL;
  PyObject *result = NULL;
  if (begin_step(stepper, &launch, args)) {
    SIZED(PJRT_ExecuteOptions, options);
    PJRT_Error *error = launch_run(&launch, exe, &options);
    if (error != NULL) error = launch_again(&launch, exe, &options, error);
    if (error != NULL)
      result = step_failed(stepper, error, args);
    else if (!PyErr_Occurred())
      result = finish_step(stepper, launch.outputs[0]);
  }
  launch_end(&launch, exe);
  return result;
}

static PyObject *stepper_call(PyObject *self, PyObject *args, PyObject *kwargs) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  if (kwargs != NULL && PyDict_Size(kwargs) != 0)
    return PyErr_Format(PyExc_TypeError, "a step takes its arguments by position");
  if (!stepper_enter(stepper)) return NULL;
  PyObject *result = step(stepper, args);
  stepper_leave(stepper);
  return result;
}

/* _reset(row): takes a tuple of Buffers, one for each carried result, as the state. */
static PyObject *stepper_reset(PyObject *self, PyObject *row) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  if (!PyTuple_Check(row) || PyTuple_Size(row) != stepper->num_carried)
    return PyErr_Format(PyExc_TypeError, "the state is a tuple of %zd", stepper->num_carried);
  if (!stepper_enter(stepper)) return NULL;
  ExecutableObject *exe = stepper->exe;
  PJRT_Buffer *taken = NULL;
  bool fits = executable_usable(exe);
  for (Py_ssize_t i = 0; fits && i < stepper->num_carried; i++)
    fits = take_argument(NULL, exe, 0, stepper->carried[i].parameter, exe->device,
                         PyTuple_GetItem(row, i), &taken) == 0;
  for (Py_ssize_t i = 0; fits && i < stepper->num_carried; i++) {
    Py_ssize_t parameter = stepper->carried[i].parameter;
    drop_input(stepper, parameter);
    stepper->held[parameter] = Py_NewRef(PyTuple_GetItem(row, i));
    stepper->inputs[parameter] = ((BufferObject *)PyTuple_GetItem(row, i))->ptr;
  }
  stepper->ready |= fits;
  stepper_leave(stepper);
  if (!fits) return NULL;
  Py_RETURN_NONE;
}

/* _state(take): calls `take` with a tuple of Buffers, which the stepper uses from then on, and
   returns its answer. No step is taken meanwhile. */
static PyObject *stepper_state(PyObject *self, PyObject *take) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  if (!stepper_enter(stepper)) return NULL;
  ExecutableObject *exe = stepper->exe;
  PyObject *row = NULL;
  if (!executable_usable(exe)) {
  } else if (!stepper->ready) {
    row = PyObject_CallMethod(self, "_refuse", NULL);
  } else {
    row = PyTuple_New(stepper->num_carried);
  }
  for (Py_ssize_t i = 0; row != NULL && i < stepper->num_carried; i++) {
    Carried each = stepper->carried[i];
    PyObject **holder = &stepper->held[each.parameter];
    if (*holder == NULL)
      *holder = output_buffer(exe, each.output, stepper->inputs[each.parameter], exe->device);
    if (*holder == NULL) { /* The native buffer is gone, too. */
      stepper->inputs[each.parameter] = NULL;
      drop_state(stepper);
      Py_CLEAR(row);
    } else {
      PyTuple_SetItem(row, i, Py_NewRef(*holder));
    }
  }
  PyObject *answer = row == NULL ? NULL : PyObject_CallFunctionObjArgs(take, row, NULL);
  Py_XDECREF(row);
  stepper_leave(stepper);
  return answer;
}

/* _hidden(): returns the parameters whose state no Buffer holds. It waits for nothing. */
static PyObject *stepper_hidden(PyObject *self, PyObject *unused) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  PyObject *hidden = PyList_New(0);
  for (Py_ssize_t i = 0; hidden != NULL && i < stepper->num_carried; i++) {
    Py_ssize_t parameter = stepper->carried[i].parameter;
    if (stepper->held[parameter] != NULL || stepper->inputs[parameter] == NULL) continue;
    PyObject *number = PyLong_FromSsize_t(parameter);
    if (number == NULL || PyList_Append(hidden, number) < 0) Py_CLEAR(hidden);
    Py_XDECREF(number);
  }
  return hidden;
}

static bool allocate(StepperObject *stepper, const ExecutableObject *exe) {
  size_t parameters = (size_t)exe->num_parameters + 1, outputs = (size_t)exe->num_outputs + 1;
  stepper->carried = calloc(outputs, sizeof(Carried));
  stepper->is_carried = calloc(outputs, sizeof(bool));
  stepper->fed = calloc(parameters, sizeof(Py_ssize_t));
  stepper->inputs = calloc(parameters, sizeof(PJRT_Buffer *));
  stepper->held = calloc(parameters, sizeof(PyObject *));
  stepper->lock = PyThread_allocate_lock();
  if (stepper->carried != NULL && stepper->is_carried != NULL && stepper->fed != NULL &&
      stepper->inputs != NULL && stepper->held != NULL && stepper->lock != NULL)
    return true;
  PyErr_NoMemory();
  return false;
}

/* _bind(executable, carry, fixed): `carry` has a pair of an output and a parameter for each carried
   result, and `fixed` a pair of a parameter and its Buffer. Python has checked their numbers. */
static PyObject *stepper_bind(PyObject *self, PyObject *args) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  PyObject *executable, *carry, *fixed;
  if (stepper->exe != NULL || stepper->inputs != NULL)
    return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!O!O!", ExecutableType, &executable, &PyTuple_Type, &carry,
                        &PyTuple_Type, &fixed))
    return NULL;
  ExecutableObject *exe = (ExecutableObject *)executable;
  if (!executable_usable(exe) || !allocate(stepper, exe)) return NULL;
  stepper->num_parameters = exe->num_parameters;
  for (Py_ssize_t i = 0; i < PyTuple_Size(carry); i++) {
    Carried *each = &stepper->carried[i];
    if (!PyArg_ParseTuple(PyTuple_GetItem(carry, i), "nn", &each->output, &each->parameter))
      return NULL;
    stepper->is_carried[each->output] = true;
  }
  for (Py_ssize_t i = 0; i < PyTuple_Size(fixed); i++) {
    Py_ssize_t index;
    PyObject *buffer;
    if (!PyArg_ParseTuple(PyTuple_GetItem(fixed, i), "nO", &index, &buffer) ||
        take_argument(NULL, exe, 0, index, exe->device, buffer, &stepper->inputs[index]) < 0)
      return NULL;
    stepper->held[index] = Py_NewRef(buffer);
  }
  stepper->num_carried = PyTuple_Size(carry);
  for (Py_ssize_t i = 0; i < exe->num_parameters; i++) {
    bool fed = stepper->held[i] == NULL;
    for (Py_ssize_t c = 0; c < stepper->num_carried; c++)
      fed &= stepper->carried[c].parameter != i;
    if (fed) stepper->fed[stepper->num_fed++] = i;
  }
  stepper->exe = (ExecutableObject *)Py_NewRef(executable);
  client_adopt(exe->client, &stepper->child, stepper_destroy);
  stepper->listed = true;
  if (!origin_note(stepper)) return NULL;
  Py_RETURN_NONE;
}

static void stepper_dealloc(PyObject *self) {
  GUARD;
  StepperObject *stepper = (StepperObject *)self;
  PyObject_GC_UnTrack(self);
  if (stepper->listed && stepper->exe->client->generation == fork_generation)
    stepper_destroy(&stepper->child);
  for (Py_ssize_t i = 0; stepper->held != NULL && i < stepper->num_parameters; i++)
    Py_XDECREF(stepper->held[i]);
  free(stepper->carried);
  free(stepper->is_carried);
  free(stepper->fed);
  free(stepper->inputs);
  free(stepper->held);
  if (stepper->lock != NULL) PyThread_free_lock(stepper->lock);
  Py_XDECREF((PyObject *)stepper->exe);
  object_free(self);
}

static int stepper_traverse(PyObject *self, visitproc visit, void *arg) {
  StepperObject *stepper = (StepperObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)stepper->exe);
  for (Py_ssize_t i = 0; i < stepper->num_parameters; i++) Py_VISIT(stepper->held[i]);
  return 0;
}

static PyMethodDef methods[] = {
    {"_bind", stepper_bind, METH_VARARGS, "_bind(executable, carry, fixed)"},
    {"_reset", stepper_reset, METH_O, "_reset(row)"},
    {"_state", stepper_state, METH_O, "_state(take) -> take(row)"},
    {"_hidden", stepper_hidden, METH_NOARGS, "_hidden() -> parameters"},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"executable", T_OBJECT, offsetof(StepperObject, exe), READONLY, "What it runs."},
    {"_num_fed", T_PYSSIZET, offsetof(StepperObject, num_fed), READONLY, "Arguments of a call."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.Stepper: an executable and its state."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, stepper_traverse},
    {Py_tp_dealloc, stepper_dealloc},
    {Py_tp_call, stepper_call},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec stepper_spec = {
    "pjrt_hub.running.capi.hotpath.Stepper", sizeof(StepperObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
