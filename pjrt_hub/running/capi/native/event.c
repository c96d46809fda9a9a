/* Events: waiting that Ctrl-C can end, and a queue that carries "it is ready" from a plugin's thread
   to Python. A plugin's thread never takes the GIL here: it may run during interpreter exit, or
   while a thread that holds the GIL waits for it. */
#include "hotpath.h"

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <time.h>
#include <unistd.h>

PyTypeObject *EventType;

/* Shared by those that wait and the plugin's callback; whoever leaves last frees it. A plugin forgets
   no callback before the event fires, so an event has one latch, however often it is waited for. */
struct Latch {
  pthread_mutex_t mutex;
  pthread_cond_t ready;
  bool fired;
  int holders;
};

static void latch_release(Latch *latch) {
  pthread_mutex_lock(&latch->mutex);
  int left = --latch->holders;
  pthread_mutex_unlock(&latch->mutex);
  if (left > 0) return;
  pthread_cond_destroy(&latch->ready);
  pthread_mutex_destroy(&latch->mutex);
  free(latch);
}

static void latch_fire(void *holder) {
  Latch *latch = holder;
  pthread_mutex_lock(&latch->mutex);
  latch->fired = true;
  pthread_cond_broadcast(&latch->ready);
  pthread_mutex_unlock(&latch->mutex);
  latch_release(latch);
}

static void add_seconds(struct timespec *time, double seconds) {
  time->tv_sec += (time_t)seconds;
  time->tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (time->tv_nsec >= 1000000000L) {
    time->tv_nsec -= 1000000000L;
    time->tv_sec++;
  }
}

static bool before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Waits in slices so that a signal's handler runs soon. 1 ready, 0 timed out, -1 exception set. */
static int latch_await(Latch *latch, double seconds) {
  const double slice = 0.05;
  struct timespec deadline;
  bool bounded = seconds >= 0 && seconds < 1e9;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  if (bounded) add_seconds(&deadline, seconds);
  for (;;) {
    struct timespec until;
    bool fired, last = false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    add_seconds(&until, slice);
    if (bounded && !before(&until, &deadline)) {
      until = deadline;
      last = true;
    }
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&latch->mutex);
    int status = 0;
    while (!latch->fired && status == 0)
      status = pthread_cond_timedwait(&latch->ready, &latch->mutex, &until);
    fired = latch->fired;
    pthread_mutex_unlock(&latch->mutex);
    Py_END_ALLOW_THREADS;
    if (fired) {
      wait_interrupted = false;
      return 1;
    }
    if (thread_ends()) return -1;
    if (Py_MakePendingCalls() < 0) { /* signals, and what was to be raised later */
      wait_interrupted = true;
      return -1;
    }
    if (last) return 0;
  }
}

enum { UNTOLD = 2 }; /* the plugin has no function that says it */

/* 1 ready, 0 not yet, UNTOLD, or -1 with an exception set. */
static int is_ready(const PJRT_Api *api, PJRT_Event *event) {
  PJRT_Event_IsReady_Args args = {.struct_size = PJRT_Event_IsReady_Args_STRUCT_SIZE};
  args.event = event;
  PJRT_Error *error = CALL(api, PJRT_Event_IsReady, &args);
  if (error == NULL) return args.is_ready ? 1 : 0;
  if (is_unimplemented(api, error)) {
    drop_error(api, error);
    return UNTOLD;
  }
  raise_status(api, error, "PJRT_Event_IsReady");
  return -1;
}

/* Has `act(holder)` called once it is ready, on any thread, which must not touch Python. Whoever waits
   finds the event's error in the event. 0; UNTOLD; -1 with an exception set. */
static int when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder) {
  PJRT_Error *error;
  bool will;
  Py_BEGIN_ALLOW_THREADS; /* runs inline where the event is already ready */
  will = ticket_when_ready(event, (Ticket){api, act, holder}, &error);
  Py_END_ALLOW_THREADS;
  if (will) return 0;
  if (error == NULL) {
    PyErr_NoMemory();
  } else if (is_unimplemented(api, error)) {
    drop_error(api, error);
    return UNTOLD;
  } else {
    raise_status(api, error, "PJRT_Event_OnReady");
  }
  return -1;
}

/* A latch that fires with the event, for the caller to release; NULL with an exception set, or without
   one where the plugin calls nobody back. */
static Latch *latch_on(const PJRT_Api *api, PJRT_Event *event) {
  Latch *latch = calloc(1, sizeof(Latch));
  if (latch == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  pthread_condattr_t monotonic; /* a stepped wall clock must not stretch the wait */
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&latch->mutex, NULL);
  pthread_cond_init(&latch->ready, &monotonic);
  pthread_condattr_destroy(&monotonic);
  latch->holders = 2;
  if (when_ready(api, event, latch_fire, latch) == 0) return latch;
  latch_release(latch);
  latch_release(latch);
  return NULL;
}

/* Waits inside the plugin, where no signal is heard: for one that has no other way. */
static int await_inside(const PJRT_Api *api, PJRT_Event *event) {
  PJRT_Event_Await_Args args = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE};
  args.event = event;
  PJRT_Error *error;
  Py_BEGIN_ALLOW_THREADS;
  error = CALL(api, PJRT_Event_Await, &args);
  Py_END_ALLOW_THREADS;
  if (error == NULL) return 1;
  raise_status(api, error, "PJRT_Event_Await"); /* or the event's own, which comes this way too */
  return -1;
}

/* As latch_await, of a plugin that calls nobody back: asks it again and again. */
static int poll(const PJRT_Api *api, PJRT_Event *event, double seconds) {
  const long longest = 5000000L;
  struct timespec deadline, now, pause = {.tv_nsec = 20000L};
  bool bounded = seconds >= 0 && seconds < 1e9;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  if (bounded) add_seconds(&deadline, seconds);
  for (;;) {
    int ready = is_ready(api, event);
    if (ready == UNTOLD && !bounded) return await_inside(api, event);
    if (ready == UNTOLD) {
      raise_status(api, ABSENT(PJRT_Event_IsReady), "");
      return -1;
    }
    if (ready != 0) return ready;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (bounded && !before(&now, &deadline)) return 0;
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS;
    pause.tv_nsec = pause.tv_nsec < longest / 2 ? 2 * pause.tv_nsec : longest;
    if (thread_ends()) return -1;
    if (Py_MakePendingCalls() < 0) {
      wait_interrupted = true;
      return -1;
    }
  }
}

/* Waits for ever until an event that nobody else waits for is ready. 1 ready, -1 exception. */
int event_await(const PJRT_Api *api, PJRT_Event *event) {
  int ready = is_ready(api, event);
  if (ready == 1 || ready == -1) return ready;
  Latch *latch = latch_on(api, event);
  if (latch == NULL) return PyErr_Occurred() ? -1 : poll(api, event, -1);
  ready = latch_await(latch, -1);
  latch_release(latch);
  return ready;
}

/* As latch_await, of an event's own latch. */
static int await_shared(EventObject *event, double seconds) {
  int ready = is_ready(event->client->api, event->ptr);
  if (ready == 1 || ready == -1 || (ready == 0 && seconds == 0)) return ready;
  if (event->latch == NULL) {
    Latch *latch = latch_on(event->client->api, event->ptr);
    if (latch == NULL)
      return PyErr_Occurred() ? -1 : poll(event->client->api, event->ptr, seconds);
    if (event->latch == NULL)
      event->latch = latch;
    else
      latch_release(latch); /* another thread was faster while the GIL was released */
  }
  return latch_await(event->latch, seconds);
}

/* The error of a ready event, owned by the caller, or NULL. Asking a pending event aborts. */
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event) {
  PJRT_Event_Error_Args args = {.struct_size = PJRT_Event_Error_Args_STRUCT_SIZE};
  args.event = event;
  PJRT_Error *error = CALL(api, PJRT_Event_Error, &args);
  if (error == NULL || !is_unimplemented(api, error)) return error;
  drop_error(api, error);
  PJRT_Event_Await_Args again = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE};
  again.event = event; /* it is ready, so this gives its error at once, of whatever code it is */
  return CALL(api, PJRT_Event_Await, &again);
}

void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr) {
  if (ptr == NULL) return; /* a plugin that gave none where nobody waits */
  PJRT_Event_Destroy_Args args = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE};
  args.event = ptr;
  drop_error(api, CALL(api, PJRT_Event_Destroy, &args));
}

/* Frees the native event, fired or not: callbacks registered on it still run. */
static void event_destroy(Child *child) {
  EventObject *event = OWNER(EventObject, child);
  client_disown(event->client, child);
  PJRT_Event *ptr = event->ptr;
  event->ptr = NULL;
  if (event->latch != NULL) latch_release(event->latch); /* nobody waits: the client is not busy */
  event->latch = NULL;
  if (event->kept == NULL)
    event_destroy_native(event->client->api, ptr);
  else
    event_let_go(event->client->api, ptr, event->kept);
  event->kept = NULL;
}

static bool event_usable(EventObject *event) {
  if (event->client == NULL) {
    raise_closed("this event was never made by a client");
    return false;
  }
  if (!client_usable(event->client)) return false;
  if (event->ptr == NULL) {
    raise_closed("the event is closed");
    return false;
  }
  return true;
}

/* Takes the native event over; it is freed where there is no object for it. */
PyObject *event_wrap(PyTypeObject *type, ClientObject *client, PJRT_Event *ptr) {
  EventObject *event = (EventObject *)PyType_GenericAlloc(type, 0);
  if (event == NULL) {
    event_destroy_native(client->api, ptr);
    return NULL;
  }
  event->client = (ClientObject *)Py_NewRef((PyObject *)client);
  event->ptr = ptr;
  client_adopt(client, &event->child, event_destroy);
  return (PyObject *)event;
}

static PyObject *event_bind(PyObject *self, PyObject *args) {
  EventObject *event = (EventObject *)self;
  PyObject *client;
  unsigned long long ptr;
  if (event->client != NULL) return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!K", ClientType, &client, &ptr)) return NULL;
  if (ptr == 0) return raise_answer("PJRT_Event", "no event of what is on its way");
  event->client = (ClientObject *)Py_NewRef(client);
  event->ptr = (PJRT_Event *)(uintptr_t)ptr;
  client_adopt(event->client, &event->child, event_destroy);
  Py_RETURN_NONE;
}

static PyObject *event_of(PyObject *type, PyObject *args) {
  PyObject *client, *kept = NULL;
  unsigned long long ptr;
  if (!PyArg_ParseTuple(args, "O!K|O", ClientType, &client, &ptr, &kept)) return NULL;
  if (ptr == 0) return raise_answer("PJRT_Event", "no event of what is on its way");
  PyObject *event =
      event_wrap((PyTypeObject *)type, (ClientObject *)client, (PJRT_Event *)(uintptr_t)ptr);
  if (event != NULL) ((EventObject *)event)->kept = Py_XNewRef(kept);
  return event;
}

static PyObject *event_is_ready(PyObject *self, PyObject *unused) {
  EventObject *event = (EventObject *)self;
  if (!event_usable(event)) return NULL;
  int ready = is_ready(event->client->api, event->ptr);
  if (ready == UNTOLD) {
    client_enter(event->client);
    ready = await_shared(event, 0);
    client_leave(event->client);
  }
  return ready < 0 ? NULL : PyBool_FromLong(ready);
}

/* _wait(seconds or None) -> bool: whether it became ready in time; raises the event's error. */
static PyObject *event_wait(PyObject *self, PyObject *seconds) {
  EventObject *event = (EventObject *)self;
  double limit = -1.0;
  if (seconds != Py_None) {
    limit = PyFloat_AsDouble(seconds);
    if (limit == -1.0 && PyErr_Occurred()) return NULL;
    if (!(limit >= 0)) limit = 0;
  }
  if (!event_usable(event)) return NULL;
  ClientObject *client = event->client;
  client_enter(client);
  int ready = await_shared(event, limit);
  PJRT_Error *error = ready == 1 ? event_take_error(client->api, event->ptr) : NULL;
  client_leave(client);
  if (ready == 1) Py_CLEAR(event->kept);
  if (ready < 0) return NULL;
  if (error != NULL) return raise_status(client->api, error, "");
  return PyBool_FromLong(ready);
}

static int event_traverse(PyObject *self, visitproc visit, void *arg) {
  EventObject *event = (EventObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)event->client);
  Py_VISIT(event->kept);
  return 0;
}

static void event_dealloc(PyObject *self) {
  EventObject *event = (EventObject *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (event->ptr != NULL && event->client->generation == fork_generation)
    event_destroy(&event->child);
  Py_XDECREF((PyObject *)event->client);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyObject *event_address(PyObject *self, void *unused) {
  return PyLong_FromVoidPtr(((EventObject *)self)->ptr);
}

static PyMethodDef methods[] = {
    {"_of", event_of, METH_VARARGS | METH_CLASS, "_of(client, event address, object): owns it, and keeps the object until it is ready."},
    {"_bind", event_bind, METH_VARARGS, "_bind(client, event address)"},
    {"_wait", event_wait, METH_O, "_wait(seconds or None) -> whether it became ready in time."},
    {"is_ready", event_is_ready, METH_NOARGS,
     "Whether what it stands for is done, without waiting (PJRT_Event_IsReady)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"client", T_OBJECT, offsetof(EventObject, client), READONLY, "The client that owns it."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"_address", event_address, NULL, "The PJRT_Event*.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of runtime.Event: owns a PJRT_Event."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, event_traverse},
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec event_spec = {
    "pjrt_hub.running.capi.hotpath.Event", sizeof(EventObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};

/* What Python's dispatcher has to call or to let go of. */
typedef struct Notice {
  struct Notice *next; /* in the queue, where any thread appends it once it is due */
  struct Notice *previous_call, *next_call;
  PyObject *object;
  PyObject *kept; /* besides, whatever becomes of object */
  bool call;      /* or only let go of */
} Notice;

static pthread_mutex_t queue_mutex = PTHREAD_MUTEX_INITIALIZER;
static Notice *queue_first, **queue_end = &queue_first;
static int queue_fd = -1; /* wakes the dispatcher */
static Notice calls = {.previous_call = &calls, .next_call = &calls}; /* not called yet */
static bool ending;

/* A fork may happen while another thread holds the mutex; the child starts with a new queue. */
void event_queue_reset(void) {
  pthread_mutex_init(&queue_mutex, NULL);
  queue_first = NULL;
  queue_end = &queue_first;
  queue_fd = -1;
  calls.previous_call = calls.next_call = &calls;
}

static Notice *new_notice(PyObject *object, bool call) {
  Notice *notice = calloc(1, sizeof(Notice));
  if (notice == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
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

/* Python ends: what callbacks refer to, often the globals of a program and all that they hold, must
   not outlive it. Host arrays stay, because the plugin may still look into them. */
PyObject *event_end(PyObject *module, PyObject *unused) {
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

/* Has the dispatcher call it; false with an exception set. */
bool event_call_soon(PyObject *callable) {
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
  int will = when_ready(table, awaited, post, notice);
  if (will == 0) Py_RETURN_NONE;
  if (will == UNTOLD && call) raise_status(table, ABSENT(PJRT_Event_OnReady), "");
  /* What the plugin may still look at stays: until it is done, or for ever where nobody can tell. */
  if (call || will != UNTOLD || event_await(table, awaited) == 1) drop_notice(notice);
  if (PyErr_Occurred()) return NULL;
  Py_RETURN_NONE;
}

PyObject *event_notify(PyObject *module, PyObject *args) { return notify(args, true); }

PyObject *event_keep(PyObject *module, PyObject *args) { return notify(args, false); }

/* Takes over an event and a reference, and frees the first at once and the second once it is
   ready: where it is already, without the dispatcher. */
void event_let_go(const PJRT_Api *api, PJRT_Event *event, PyObject *object) {
  PyObject *type, *value, *traceback; /* runs in destructors, also while an exception is raised */
  PyErr_Fetch(&type, &value, &traceback);
  if (is_ready(api, event) == 1) {
    Py_DECREF(object);
  } else {
    Notice *notice = new_notice(object, false);
    /* Where nobody can tell when the plugin is done, the object stays for ever. */
    if (notice != NULL && when_ready(api, event, post, notice) == 0)
      Py_DECREF(object);
  }
  event_destroy_native(api, event);
  PyErr_Restore(type, value, traceback);
}

/* deleter(callback, kept) -> (function, argument): a C `void (void *memory, void *argument)` that has
   `callback` called by the dispatcher, once, and keeps `kept` alive until then. */
PyObject *event_deleter(PyObject *module, PyObject *args) {
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
  return Py_BuildValue("KK", (unsigned long long)(uintptr_t)ticket_on_delete,
                       (unsigned long long)(uintptr_t)ticket);
}

PyObject *event_wake(PyObject *module, PyObject *fd) {
  long number = PyLong_AsLong(fd);
  if (number == -1 && PyErr_Occurred()) return NULL;
  queue_fd = (int)number;
  Py_RETURN_NONE;
}

/* Calls what has nobody to raise to: an exception goes to sys.unraisablehook. */
PyObject *event_dispatch(PyObject *module, PyObject *unused) {
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
      if (answer == NULL) PyErr_WriteUnraisable(object);
      Py_XDECREF(answer);
    }
    Py_XDECREF(object);
    drop_notice(notice);
    notice = next;
  }
  Py_RETURN_NONE;
}
