/* State of the process: how errors are raised, what a fork changes, and how the process ends. */
#include "native.h"

#include <stdio.h>
#include <unistd.h>

/* This number grows in every forked child, where objects of an older generation are refused: the
   plugin's threads do not exist in the child, so a call could hang or abort. */
unsigned fork_generation = 1;

#ifdef Py_GIL_DISABLED
PyObject *guard; /* GUARD takes the lock of this object. Any object would do. */
#endif

/* Whether any plugin was ever given something that calls Python while a program runs. A launch that
   kept the GIL would wait for that call, and that call would wait for the GIL. */
bool python_is_asked;

static PyObject *status_raiser;  /* status.raise_error(api address, error address, function) */
static PyObject *absence_raiser; /* status.raise_absent(api address, offset of the slot in words) */
static PyObject *answer_refuser; /* status.refuse_answer(function, what the plugin answered) */
static PyObject *closed_error;   /* errors.ClosedError */

char absent_functions[sizeof(PJRT_Api) / sizeof(void *)];

static bool is_absent(const PJRT_Error *error) {
  uintptr_t at = (uintptr_t)error - (uintptr_t)absent_functions;
  return at < sizeof absent_functions;
}

PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function) {
  PyObject *none =
      is_absent(error)
          ? PyObject_CallFunction(absence_raiser, "KK", ADDRESS(api),
                                  ADDRESS(error) - ADDRESS(absent_functions))
          : PyObject_CallFunction(status_raiser, "KKs", ADDRESS(api), ADDRESS(error), function);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the status raiser returned");
  return NULL;
}

/* Once Python is ending, its other threads end quietly, by a SystemExit where they notice it. */
static bool ending;
static _Thread_local bool ends_others; /* True on the thread that ends Python and on its helpers. */

bool thread_ends(void) {
  if (!ending || ends_others) return false;
  PyErr_SetNone(PyExc_SystemExit);
  return true;
}

PyObject *raise_closed(const char *message) {
  if (!thread_ends()) PyErr_SetString(closed_error, message);
  return NULL;
}

/* Raises for an impossible answer that came without an error; returns NULL. */
PyObject *raise_answer(const char *function, const char *what) {
  if (PyErr_Occurred()) return NULL; /* The earlier exception is the cause. */
  PyObject *none = PyObject_CallFunction(answer_refuser, "ss", function, what);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an answer was refused silently");
  return NULL;
}

/* Returns the -1 of a function that fails with an exception set. */
int failed(PyObject *raised) { return -1; }

/* ends(): the thread that ends Python calls this, and no other thread waits for events any more. */
PyObject *process_ends(PyObject *module, PyObject *unused) {
  ending = ends_others = true;
  Py_RETURN_NONE;
}

/* Whether a signal's handler ended the latest wait, so that nobody waits for that work any more. */
bool wait_interrupted;

/* Returns whether a wait goes on; if not, an exception is set, perhaps by a signal's handler. */
bool wait_goes_on(void) {
  if (thread_ends()) return false;
  if (Py_MakePendingCalls() == 0) return true; /* Signals' handlers and raise_later raise here. */
  wait_interrupted = true;
  return false;
}

PyObject *process_interrupted(PyObject *module, PyObject *unused) {
  return PyBool_FromLong(wait_interrupted);
}

/* interrupt(): records that a signal's handler ended a wait in Python. */
PyObject *process_interrupt(PyObject *module, PyObject *unused) {
  wait_interrupted = true;
  Py_RETURN_NONE;
}

#ifdef __GLIBC__
static void end_at_once(int status, void *unused) {
  fflush(NULL);
  _exit(status);
}

static void end_before_others(void) { on_exit(end_at_once, NULL); }
#endif

/* leave(): is called if a plugin's work outlives Python, because that work would use what the
   plugin's static destructors free. The process then ends with its status right after Python,
   without running them. Only glibc tells a handler the status, so with other C libraries the
   destructors run. The handler that was registered last runs first, and a plugin registers one with
   its first kernel. So Python's last step registers this handler again. */
PyObject *process_leave(PyObject *module, PyObject *unused) {
#ifdef __GLIBC__
  static bool registered;
  if (!registered) {
    registered = true;
    end_before_others();
    Py_AtExit(end_before_others);
  }
#endif
  Py_RETURN_NONE;
}

/* aside(callable): calls it on a new thread, even if an ending Python would start none. */
static void *run_aside(void *callable) {
  ends_others = true;
  PyGILState_STATE state = PyGILState_Ensure();
  PyObject *answer = PyObject_CallFunctionObjArgs(callable, NULL);
  if (answer == NULL) PyErr_WriteUnraisable(callable);
  Py_XDECREF(answer);
  Py_DECREF((PyObject *)callable);
  PyGILState_Release(state);
  return NULL;
}

PyObject *process_aside(PyObject *module, PyObject *callable) {
  pthread_t thread;
  if (pthread_create(&thread, NULL, run_aside, Py_NewRef(callable)) != 0) {
    Py_DECREF(callable);
    return PyErr_Format(PyExc_RuntimeError, "the system starts no thread");
  }
  pthread_detach(thread);
  Py_RETURN_NONE;
}

/* Frees an error that nobody can act on. */
void drop_error(const PJRT_Api *api, PJRT_Error *error) {
  if (error == NULL || is_absent(error)) return;
  SIZED(PJRT_Error_Destroy_Args, args, .error = error);
  api->PJRT_Error_Destroy(&args);
}

/* Returns an error's status code. */
static int code_of(const PJRT_Api *api, PJRT_Error *error) {
  if (is_absent(error)) return PJRT_Error_Code_UNIMPLEMENTED;
  SIZED(PJRT_Error_GetCode_Args, code, .error = error);
  PJRT_Error *failure = api->PJRT_Error_GetCode(&code);
  drop_error(api, failure);
  return failure == NULL ? code.code : PJRT_Error_Code_UNKNOWN;
}

/* The sizes are in bytes. What claims to be longer is left out, as the error must still be raised.
   Some plugins put a dump of megabytes into a message, whose beginning says what happened. */
enum { LONGEST = 1 << 28, BEGINNING = 1 << 16 };

static void add_payload(const char *key, size_t key_size, const char *value, size_t value_size,
                        void *user_arg) {
  if (key_size > LONGEST || value_size > LONGEST) return;
  if ((key == NULL && key_size > 0) || (value == NULL && value_size > 0)) return;
  PyObject *name = PyUnicode_DecodeUTF8(key, (Py_ssize_t)key_size, "replace");
  PyObject *bytes = PyBytes_FromStringAndSize(value, (Py_ssize_t)value_size);
  if (name != NULL && bytes != NULL) PyDict_SetItem((PyObject *)user_arg, name, bytes);
  Py_XDECREF(name);
  Py_XDECREF(bytes);
}

/* read_error(api, error, frees) -> (code, message, payloads). The GIL is kept, as all visits end before
   the function returns. */
PyObject *process_read_error(PyObject *module, PyObject *args) {
  unsigned long long api_address, error_address;
  int frees;
  if (!PyArg_ParseTuple(args, "KKp", &api_address, &error_address, &frees)) return NULL;
  const PJRT_Api *api = (const PJRT_Api *)(uintptr_t)api_address;
  PJRT_Error *error = (PJRT_Error *)(uintptr_t)error_address;
  int code = code_of(api, error);
  SIZED(PJRT_Error_Message_Args, told, .error = error);
  api->PJRT_Error_Message(&told);
  size_t size = told.message == NULL || told.message_size > LONGEST ? 0 : told.message_size;
  if (size > BEGINNING) size = BEGINNING;
  PyObject *message = PyUnicode_DecodeUTF8(told.message, (Py_ssize_t)size, "replace");
  PyObject *payloads = PyDict_New();
  if (payloads != NULL && OFFERS(api, PJRT_Error_ForEachPayload)) {
    SIZED(PJRT_Error_ForEachPayload_Args, visit, .error = error, .visitor = add_payload,
          .user_arg = payloads);
    drop_error(api, api->PJRT_Error_ForEachPayload(&visit));
  }
  if (frees) drop_error(api, error);
  return Py_BuildValue("iNN", code, message, payloads);
}

/* Returns whether an error says that the plugin does not have the function that was called. */
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error) {
  return error != NULL && code_of(api, error) == PJRT_Error_Code_UNIMPLEMENTED;
}

/* Returns the same as is_unimplemented, and frees such an error. */
bool drop_unimplemented(const PJRT_Api *api, PJRT_Error *error) {
  if (!is_unimplemented(api, error)) return false;
  drop_error(api, error);
  return true;
}

/* Collects garbage if a call failed because memory is short: buffers in cycles of references hold
   some. Returns whether it did and the call may be made again; the error is then freed. */
COLD bool reclaim(const PJRT_Api *api, PJRT_Error *error) {
  if (code_of(api, error) != PJRT_Error_Code_RESOURCE_EXHAUSTED) return false;
  PyObject *gc = PyImport_ImportModule("gc");
  PyObject *count = gc != NULL ? PyObject_CallMethod(gc, "collect", NULL) : NULL;
  if (count == NULL) PyErr_Clear(); /* Python is ending. */
  Py_XDECREF(gc);
  Py_XDECREF(count);
  drop_error(api, error);
  return true;
}

/* reclaim(api, error) -> what the function above returns. */
PyObject *process_reclaim(PyObject *module, PyObject *args) {
  GUARD;
  unsigned long long api, error;
  if (!PyArg_ParseTuple(args, "KK", &api, &error)) return NULL;
  return PyBool_FromLong(reclaim((const PJRT_Api *)(uintptr_t)api, (PJRT_Error *)(uintptr_t)error));
}

/* Frees an object of a type that is defined here, once the references that it held are released. */
void object_free(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

PyObject *tuple_of(const int64_t *numbers, Py_ssize_t count) {
  PyObject *tuple = PyTuple_New(count);
  for (Py_ssize_t i = 0; tuple != NULL && i < count; i++) {
    PyObject *number = PyLong_FromLongLong(numbers[i]);
    if (number == NULL || PyTuple_SetItem(tuple, i, number) < 0) Py_CLEAR(tuple);
  }
  return tuple;
}

/* install(raise_error, raise_absent, refuse_answer, ClosedError) */
PyObject *process_install(PyObject *module, PyObject *args) {
  if (!PyArg_ParseTuple(args, "OOOO", &status_raiser, &absence_raiser, &answer_refuser,
                        &closed_error))
    return NULL;
  Py_INCREF(status_raiser); /* All four live as long as the process, like this module. */
  Py_INCREF(absence_raiser);
  Py_INCREF(answer_refuser);
  Py_INCREF(closed_error);
  Py_RETURN_NONE;
}
