/* Upcalls: a plugin's thread that asks Python something and waits for the answer. It takes the GIL,
   no exception leaves, and once Python is ending nothing is asked of it any more. */
#include "upcall.h"

#include <stdatomic.h>
#include <string.h>
#include <time.h>

static atomic_long asking; /* threads that are inside Python */
static atomic_bool ended;
static _Thread_local int depth;

/* Between these two Python may be asked; false where it is ending. */
bool upcall_begins(PyGILState_STATE *state) {
  atomic_fetch_add(&asking, 1); /* before looking at `ended`, whose setter then waits for us */
  if (atomic_load(&ended)) {
    atomic_fetch_sub(&asking, 1);
    return false;
  }
  *state = PyGILState_Ensure();
  depth++;
  return true;
}

/* Whether this thread is a plugin's that waits for Python. */
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

/* The main thread raises it, itself, in its next step or wait: for an interrupt that arrived where
   nothing may be raised. Not before the last step of what must not see it. */
void raise_later(PyObject *exception) {
  if (Py_AddPendingCall(raise_it, Py_NewRef(exception)) == 0) return;
  Py_DECREF(exception); /* too many are pending */
  PyErr_SetInterrupt();
}

/* What Python answers where it fails: (code, text), and an interrupt, which is the main thread's.
   False where it is no such answer. */
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

/* What the plugin asks about, as an argument "N". Formats with `#` would do the same, but built with
   Python 3.13 they fail on 3.11: each version takes the length in its own way. */
PyObject *upcall_bytes(const char *data, size_t size) {
  return PyBytes_FromStringAndSize(data != NULL ? data : "", data != NULL ? (Py_ssize_t)size : 0);
}

/* (code, text) as an error of the plugin's own making; anything else is a fault of ours. */
PJRT_Error *upcall_error(PJRT_CallbackError *maker, PyObject *answer) {
  int code;
  const char *text;
  size_t size;
  if (upcall_failure(answer, &code, &text, &size))
    return (*maker)((PJRT_Error_Code)code, text, size); /* it copies the text */
  return upcall_plain_error(maker, PJRT_Error_Code_INTERNAL, "Python gave no answer");
}

PJRT_Error *upcall_plain_error(PJRT_CallbackError *maker, PJRT_Error_Code code, const char *text) {
  return (*maker)(code, text, strlen(text));
}

PJRT_Error *upcall_refused(PJRT_CallbackError *maker) {
  return upcall_plain_error(maker, PJRT_Error_Code_CANCELLED, "Python is ending");
}

/* upcalls_end(seconds) -> whether the last answer was given in time. From here on Python is not asked. */
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

/* The threads that asked do not exist in a forked child. */
void upcall_reset(void) { atomic_store(&asking, 0); }
