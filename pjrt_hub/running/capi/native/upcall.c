/* Upcalls: a plugin's thread calls Python and waits for the answer. The thread takes the GIL,
   exceptions stay inside, and once Python is ending there are no more calls. */
#include "upcall.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_long asking; /* The number of threads that are inside Python. */
static atomic_bool ended;
static _Thread_local int depth;

/* Allows calls to Python until upcall_ends. Returns false if Python is ending. */
bool upcall_begins(PyGILState_STATE *state) {
  atomic_fetch_add(&asking, 1); /* This comes first: code that sets `ended` waits for it. */
  if (atomic_load(&ended)) {
    atomic_fetch_sub(&asking, 1);
    return false;
  }
  *state = PyGILState_Ensure();
  depth++;
  return true;
}

/* Returns whether this is a plugin's thread that waits for Python. */
bool upcall_running(void) { return depth > 0; }

void upcall_ends(PyGILState_STATE state) {
  depth--;
  PyGILState_Release(state);
  atomic_fetch_sub(&asking, 1);
}

static int raise_it(void *exception) {
  PyErr_SetObject((PyObject *)Py_TYPE((PyObject *)exception), exception);
  Py_DECREF((PyObject *)exception);
  return -1;
}

/* Raises an exception on the main thread, in its next step or wait, if an interrupt arrived where
   nothing may be raised. Code that must not see the exception calls this at its very end. */
void raise_later(PyObject *exception) {
  if (Py_AddPendingCall(raise_it, Py_NewRef(exception)) == 0) return;
  Py_DECREF(exception); /* Too many calls are pending. */
  PyErr_SetInterrupt();
}

/* Reads the answer of a Python function that failed: (code, text) and perhaps an interrupt, which
   the main thread raises. Returns false if the answer has another form. */
bool upcall_failure(PyObject *answer, int *code, const char **text, size_t *size) {
  PyObject *bytes, *interrupt = NULL;
  if (answer == NULL || !PyTuple_Check(answer) ||
      !PyArg_ParseTuple(answer, "iS|O", code, &bytes, &interrupt)) {
    PyErr_Clear();
    return false;
  }
  *text = PyBytes_AsString(bytes);
  *size = (size_t)PyBytes_Size(bytes);
  if (interrupt != NULL) raise_later(interrupt);
  return true;
}

/* Makes bytes for an "N" in a format. A format with `#` would do the same, but one that was built
   with Python 3.13 fails on 3.11, because the versions read the length as different types. */
PyObject *upcall_bytes(const char *data, size_t size) {
  return PyBytes_FromStringAndSize(data != NULL ? data : "", data != NULL ? (Py_ssize_t)size : 0);
}

/* Has the plugin make an error of (code, text). Any other answer is a defect of pjrt-hub. */
PJRT_Error *upcall_error(PJRT_CallbackError *maker, PyObject *answer) {
  int code;
  const char *text;
  size_t size;
  if (upcall_failure(answer, &code, &text, &size))
    return (*maker)((PJRT_Error_Code)code, text, size); /* The plugin copies the text. */
  return upcall_plain_error(maker, PJRT_Error_Code_INTERNAL, "Python gave no answer");
}

PJRT_Error *upcall_plain_error(PJRT_CallbackError *maker, PJRT_Error_Code code, const char *text) {
  return (*maker)(code, text, strlen(text));
}

PJRT_Error *upcall_refused(PJRT_CallbackError *maker) {
  return upcall_plain_error(maker, PJRT_Error_Code_CANCELLED, "Python is ending");
}

/* upcalls_end(seconds) -> whether all calls into Python ended in time. It allows no new calls. */
PyObject *upcalls_end(PyObject *module, PyObject *seconds) {
  const struct timespec pause = {.tv_nsec = 1000000};
  double left = PyFloat_AsDouble(seconds);
  if (left == -1.0 && PyErr_Occurred()) return NULL;
  atomic_store(&ended, true);
  for (; atomic_load(&asking) > 0 && left > 0; left -= 0.001) {
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS;
    if (Py_MakePendingCalls() < 0) return NULL;
  }
  return PyBool_FromLong(atomic_load(&asking) == 0);
}

/* The threads that were inside Python do not exist in a forked child. */
void upcall_reset(void) { atomic_store(&asking, 0); }
