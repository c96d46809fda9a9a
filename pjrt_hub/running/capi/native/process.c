/* What is one for the process: how errors are raised, what a fork changes, and how it ends. */
#include "process.h"

#include <pthread.h>
#include <stdio.h>
#include <unistd.h>

/* Grows in every forked child. An object made before has another generation and is refused:
   the plugin's threads do not exist in the child, so a call could hang or abort. */
unsigned fork_generation = 1;

#ifdef Py_GIL_DISABLED
PyObject *guard; /* any object: its lock is what GUARD takes */
#endif

/* Whether plugins were given something that calls Python while a program runs, ever. A launch that
   keeps the GIL would wait for it, and it for the GIL. */
bool python_is_asked;

static PyObject *status_raiser;  /* status.raise_error(api address, error address, function) */
static PyObject *absence_raiser; /* status.raise_absent(api address, slot in words) */
static PyObject *answer_refuser; /* status.refuse_answer(function, what it gave) */
static PyObject *closed_error;   /* errors.ClosedError */

char absent_functions[sizeof(PJRT_Api) / sizeof(void *)];

static bool is_absent(const PJRT_Error *error) {
  uintptr_t at = (uintptr_t)error - (uintptr_t)absent_functions;
  return at < sizeof absent_functions;
}

PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function) {
  PyObject *none =
      is_absent(error)
          ? PyObject_CallFunction(absence_raiser, "KK", (unsigned long long)(uintptr_t)api,
                                  (unsigned long long)((const char *)error - absent_functions))
          : PyObject_CallFunction(status_raiser, "KKs", (unsigned long long)(uintptr_t)api,
                                  (unsigned long long)(uintptr_t)error, function);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the status raiser returned");
  return NULL;
}

/* Once Python ends, its other threads end where they find that out, as by sys.exit(): quietly. */
static bool ending;
static _Thread_local bool ends_others; /* of the thread that ends Python, and those it starts */

bool thread_ends(void) {
  if (!ending || ends_others) return false;
  PyErr_SetNone(PyExc_SystemExit);
  return true;
}

PyObject *raise_closed(const char *message) {
  if (!thread_ends()) PyErr_SetString(closed_error, message);
  return NULL;
}

/* For an answer without an error that cannot be: NULL with an exception set. */
PyObject *raise_answer(const char *function, const char *what) {
  if (PyErr_Occurred()) return NULL; /* an earlier one is told */
  PyObject *none = PyObject_CallFunction(answer_refuser, "ss", function, what);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an answer was refused silently");
  return NULL;
}

/* process_ends(): on the thread that ends Python. No other waits any more. */
PyObject *process_ends(PyObject *module, PyObject *unused) {
  ending = ends_others = true;
  Py_RETURN_NONE;
}

/* Whether the latest wait was ended by what a signal's handler raised: nobody waits for that work. */
bool wait_interrupted;

/* Whether one did. */
PyObject *process_interrupted(PyObject *module, PyObject *unused) {
  return PyBool_FromLong(wait_interrupted);
}

/* Notes that a signal's handler ended the latest wait. */
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

/* process_leave(): work of a plugin outlives Python, and would use what the plugin's static
   destructors free. They do not run: the process ends with its status right after Python. Of other C
   libraries none tells a handler the status, so there the destructors run.
   The handler registered last runs first, and a plugin registers one with its first kernel: so ours
   is registered again as the last that Python does. */
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

/* aside(callable) calls it on a thread of its own, also where Python ends and starts none. */
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

/* For an error that nobody can act on: only its memory is of interest. */
void drop_error(const PJRT_Api *api, PJRT_Error *error) {
  if (error == NULL || is_absent(error)) return;
  SIZED(PJRT_Error_Destroy_Args, args, .error = error);
  api->PJRT_Error_Destroy(&args);
}

/* Whether the function of the error does not exist, as far as the plugin is concerned. */
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error) {
  if (error == NULL || is_absent(error)) return error != NULL;
  SIZED(PJRT_Error_GetCode_Args, code, .error = error);
  PJRT_Error *failure = api->PJRT_Error_GetCode(&code);
  drop_error(api, failure);
  return failure == NULL && code.code == PJRT_Error_Code_UNIMPLEMENTED;
}

/* The end of an object of a type of ours, once what it holds is let go. */
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
  PyObject *raiser, *absence, *refuser, *closed;
  if (!PyArg_ParseTuple(args, "OOOO", &raiser, &absence, &refuser, &closed)) return NULL;
  Py_INCREF(raiser); /* for the life of the process, as the module itself */
  Py_INCREF(absence);
  Py_INCREF(refuser);
  Py_INCREF(closed);
  status_raiser = raiser;
  absence_raiser = absence;
  answer_refuser = refuser;
  closed_error = closed;
  Py_RETURN_NONE;
}
