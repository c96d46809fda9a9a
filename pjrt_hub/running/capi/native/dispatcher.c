/* The dispatcher's queue, through which a plugin's thread tells Python that an event is ready. The
   thread never takes the GIL here: it may run during interpreter exit, or while a thread that holds
   the GIL waits for it. */
#include "native.h"

#include <unistd.h>

/* An object that the dispatcher has to call or to release. */
typedef struct Notice {
  struct Notice *next; /* The next in the queue; any thread may append a notice that is due. */
  struct Notice *previous_call, *next_call;
  PyObject *object;
  PyObject *kept; /* Another object, which stays alive as long as the notice. */
  bool call;      /* Whether `object` is called; if not, it is only released. */
} Notice;

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Notice *queue_first, **queue_end = &queue_first;
static int queue_fd = -1; /* A byte written to it wakes the dispatcher. */
static Notice calls = {.previous_call = &calls, .next_call = &calls}; /* Pending callbacks. */
static bool ending;

/* Another thread may hold the mutex during a fork, so the child starts with a new queue. */
void dispatcher_reset(void) {
  pthread_mutex_init(&queue_mutex, NULL);
  queue_first = NULL;
  queue_end = &queue_first;
  queue_fd = -1;
  calls.previous_call = calls.next_call = &calls;
}

static Notice *new_notice(PyObject *object, bool call) {
  GUARD;
  Notice *notice = calloc(1, sizeof(Notice));
  if (notice == NULL) return (Notice *)PyErr_NoMemory();
  notice->call = call;
  if (call && ending) return notice;
  notice->object = Py_NewRef(object);
  if (call) {
    notice->previous_call = &calls;
    notice->next_call = calls.next_call;
    calls.next_call = calls.next_call->previous_call = notice;
  }
  return notice;
}

static PyObject *notice_take(Notice *notice) {
  GUARD;
  PyObject *object = notice->object;
  notice->object = NULL;
  if (notice->call && object != NULL) {
    notice->previous_call->next_call = notice->next_call;
    notice->next_call->previous_call = notice->previous_call;
  }
  return object;
}

static void drop_notice(Notice *notice) {
  Py_XDECREF(notice_take(notice));
  Py_XDECREF(notice->kept);
  free(notice);
}

/* Releases the callbacks when Python ends, because the objects that they refer to, often a
   program's globals, must not outlive Python. Host arrays stay: the plugin may still read them. */
PyObject *dispatcher_end(PyObject *module, PyObject *unused) {
  GUARD;
  ending = true;
  while (calls.next_call != &calls) Py_XDECREF(notice_take(calls.next_call));
  Py_RETURN_NONE;
}

static void post(void *holder) {
  Notice *notice = holder;
  pthread_mutex_lock(&queue_mutex);
  *queue_end = notice;
  queue_end = &notice->next;
  pthread_mutex_unlock(&queue_mutex);
  /* A full pipe already holds a wake-up, so a failed write loses nothing. */
  ssize_t written = write(queue_fd, "", 1);
  (void)written;
}

/* Has the dispatcher call a function; returns false with an exception set. */
bool dispatcher_call(PyObject *callable) {
  Notice *notice = new_notice(callable, true);
  if (notice == NULL) return false;
  post(notice);
  return true;
}

static PyObject *notify(PyObject *args, bool call) {
  unsigned long long api, event;
  PyObject *object;
  if (!PyArg_ParseTuple(args, "KKO", &api, &event, &object)) return NULL;
  const PJRT_Api *table = (const PJRT_Api *)(uintptr_t)api;
  PJRT_Event *awaited = (PJRT_Event *)(uintptr_t)event;
  Notice *notice = new_notice(object, call);
  if (notice == NULL) return NULL;
  int will = event_when_ready(table, awaited, post, notice);
  if (will == 0) Py_RETURN_NONE;
  if (will == UNTOLD && call) raise_status(table, ABSENT(PJRT_Event_OnReady), "");
  /* A kept object is released once the plugin is done with it, or never if that is unknown. */
  if (call || will != UNTOLD || event_await(table, awaited) == 1) drop_notice(notice);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

/* notify(api, event, callback): dispatch calls the callback when the event is ready. */
PyObject *dispatcher_notify(PyObject *module, PyObject *args) { return notify(args, true); }

/* keep(api, event, object): dispatch releases the object when the event is ready. */
PyObject *dispatcher_keep(PyObject *module, PyObject *args) { return notify(args, false); }

/* Takes over an event, which it destroys, and a reference, which it releases once the event is
   ready: here if it is ready already, else through the dispatcher. */
void dispatcher_let_go(const PJRT_Api *api, PJRT_Event *event, PyObject *object) {
  PyObject *type, *value, *traceback; /* This may run in a destructor with an exception set. */
  PyErr_Fetch(&type, &value, &traceback);
  if (event_state(api, event) == 1) {
    Py_DECREF(object);
  } else {
    Notice *notice = new_notice(object, false);
    /* If nobody can tell when the plugin is done, the object is never released. */
    if (notice != NULL && event_when_ready(api, event, post, notice) == 0)
      Py_DECREF(object);
  }
  event_destroy_native(api, event);
  PyErr_Restore(type, value, traceback);
}

/* deleter(callback, kept) -> (function, argument): a C `void (void *memory, void *argument)` whose
   first call has the dispatcher call `callback`. `kept` stays alive until then. */
PyObject *dispatcher_deleter(PyObject *module, PyObject *args) {
  PyObject *callback, *kept;
  if (!PyArg_ParseTuple(args, "OO", &callback, &kept)) return NULL;
  Notice *notice = new_notice(callback, true);
  if (notice == NULL) return NULL;
  notice->kept = Py_NewRef(kept);
  void *ticket = ticket_issue((Ticket){.act = post, .holder = notice});
  if (ticket == NULL) {
    drop_notice(notice);
    return PyErr_NoMemory();
  }
  return Py_BuildValue("KK", ADDRESS(ticket_on_delete), ADDRESS(ticket));
}

/* Sets the file descriptor that is written to when there is something to dispatch. */
PyObject *dispatcher_wake(PyObject *module, PyObject *fd) {
  long number = PyLong_AsLong(fd);
  if (number == -1 && PyErr_Occurred()) return NULL;
  queue_fd = (int)number;
  Py_RETURN_NONE;
}

/* Handles an exception that no caller can catch. The end of a thread is silent, an interrupt is
   raised in the main thread, and the rest goes to sys.unraisablehook. */
void report_unraisable(PyObject *callable) {
  if (PyErr_ExceptionMatches(PyExc_SystemExit) && thread_ends()) {
    PyErr_Clear();
    return;
  }
  if (!PyErr_ExceptionMatches(PyExc_KeyboardInterrupt)) {
    PyErr_WriteUnraisable(callable);
    return;
  }
  PyObject *type, *value, *traceback;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  raise_later(value);
  Py_DECREF(type);
  Py_DECREF(value);
  Py_XDECREF(traceback);
}

/* Calls or releases all objects in the queue. */
PyObject *dispatcher_dispatch(PyObject *module, PyObject *unused) {
  pthread_mutex_lock(&queue_mutex);
  Notice *notice = queue_first;
  queue_first = NULL;
  queue_end = &queue_first;
  pthread_mutex_unlock(&queue_mutex);
  while (notice != NULL) {
    Notice *next = notice->next;
    PyObject *object = notice_take(notice);
    if (notice->call && object != NULL) {
      PyObject *answer = PyObject_CallFunctionObjArgs(object, NULL);
      if (answer == NULL) report_unraisable(object);
      Py_XDECREF(answer);
    }
    Py_XDECREF(object);
    drop_notice(notice);
    notice = next;
  }
  Py_RETURN_NONE;
}
