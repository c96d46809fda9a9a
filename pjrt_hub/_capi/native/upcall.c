/* Upcalls: a plugin's thread that asks Python something and waits for the answer. It takes the GIL,
   no exception leaves, and once Python is ending nothing is asked of it any more. */
#include "hotpath.h"

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

/* What Python answers where it fails: (code, text). Signals that came while it ran on the main
   thread are given back to Python, whose caller waits for them. False where it is no such answer. */
bool upcall_failure(PyObject *answer, int *code, const char **text, size_t *size) {
  enum { INTERRUPTED = -1 };
  Py_ssize_t length;
  if (answer == NULL || !PyTuple_Check(answer) ||
      !PyArg_ParseTuple(answer, "iy#", code, text, &length)) {
    PyErr_Clear();
    return false;
  }
  *size = (size_t)length;
  if (*code == INTERRUPTED) {
    PyErr_SetInterrupt();
    *code = PJRT_Error_Code_CANCELLED;
  }
  return true;
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

/* For an exception that no plugin takes: an interrupt is the main thread's, the rest is reported. */
void upcall_unraisable(PyObject *callable) {
  if (PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_Clear();
    PyErr_SetInterrupt();
  } else {
    PyErr_WriteUnraisable(callable);
  }
}

/* upcalls_end(): from here on Python is not asked; returns when the last answer was given. */
PyObject *upcalls_end(PyObject *module, PyObject *unused) {
  const struct timespec pause = {.tv_nsec = 1000000};
  atomic_store(&ended, true);
  Py_BEGIN_ALLOW_THREADS;
  while (atomic_load(&asking) > 0) nanosleep(&pause, NULL);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}

/* The threads that asked do not exist in a forked child. */
void upcall_reset(void) { atomic_store(&asking, 0); }
