/* What is one for the process: how errors are raised, and what a fork changes. */
#include "hotpath.h"

/* Grows in every forked child. An object made before has another generation and is refused:
   the plugin's threads do not exist in the child, so a call could hang or abort. */
unsigned fork_generation = 1;

/* Whether plugins were given something that calls Python while a program runs, ever. A launch that
   keeps the GIL would wait for it, and it for the GIL. */
bool python_is_asked;

static PyObject *status_raiser;  /* status.raise_error(api address, error address, function) */
static PyObject *answer_refuser; /* status.refuse_answer(function, what it gave) */
static PyObject *closed_error;   /* errors.ClosedError */

PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function) {
  PyObject *none = PyObject_CallFunction(status_raiser, "KKs", (unsigned long long)(uintptr_t)api,
                                         (unsigned long long)(uintptr_t)error, function);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the status raiser returned");
  return NULL;
}

PyObject *raise_closed(const char *message) {
  PyErr_SetString(closed_error, message);
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

/* For an error that nobody can act on: only its memory is of interest. */
void drop_error(const PJRT_Api *api, PJRT_Error *error) {
  if (error == NULL) return;
  PJRT_Error_Destroy_Args args = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE};
  args.error = error;
  api->PJRT_Error_Destroy(&args);
}

PyObject *process_install(PyObject *module, PyObject *args) {
  PyObject *raiser, *refuser, *closed;
  if (!PyArg_ParseTuple(args, "OOO", &raiser, &refuser, &closed)) return NULL;
  Py_INCREF(raiser); /* for the life of the process, as the module itself */
  Py_INCREF(refuser);
  Py_INCREF(closed);
  status_raiser = raiser;
  answer_refuser = refuser;
  closed_error = closed;
  Py_RETURN_NONE;
}
