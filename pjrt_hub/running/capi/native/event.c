/* Event: the owner of one PJRT_Event, which Python waits for and queries. */
#include "native.h"

PyTypeObject *EventType;

/* Destroys the native event, even before it is ready; callbacks registered on it still run. */
static void event_destroy(Child *child) {
  EventObject *event = OWNER(EventObject, child);
  client_disown(event->client, child);
  PJRT_Event *ptr = event->ptr;
  event->ptr = NULL;
  if (event->latch != NULL) latch_release(event->latch); /* No call runs, so no thread waits. */
  event->latch = NULL;
  if (event->kept == NULL)
    event_destroy_native(event->client->api, ptr);
  else
    dispatcher_let_go(event->client->api, ptr, event->kept);
  event->kept = NULL;
}

static bool event_usable(EventObject *event) {
  if (event->client == NULL)
    raise_closed("this event was never made by a client");
  else if (!client_usable(event->client))
    return false;
  else if (event->ptr == NULL)
    raise_closed("the event is closed");
  return event->ptr != NULL;
}

/* Takes over the native event, and destroys it if there is no memory for the object. */
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
  GUARD;
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
  GUARD;
  PyObject *client, *kept = NULL;
  unsigned long long ptr;
  if (!PyArg_ParseTuple(args, "O!K|O", ClientType, &client, &ptr, &kept)) return NULL;
  if (ptr == 0) return raise_answer("PJRT_Event", "no event of what is on its way");
  PyObject *event =
      event_wrap((PyTypeObject *)type, (ClientObject *)client, (PJRT_Event *)(uintptr_t)ptr);
  if (event != NULL) ((EventObject *)event)->kept = Py_XNewRef(kept);
  return event;
}

/* Returns 1 if the event is ready, 0 if it is not ready in time, -1 with an exception set. */
static int await(EventObject *event, double seconds) {
  const PJRT_Api *api = event->client->api;
  int ready = event_state(api, event->ptr);
  if (ready == 1 || ready == -1 || (ready == 0 && seconds == 0)) return ready;
  return event_await_pending(api, event->ptr, &event->latch, seconds);
}

static PyObject *event_is_ready(PyObject *self, PyObject *unused) {
  GUARD;
  EventObject *event = (EventObject *)self;
  if (!event_usable(event)) return NULL;
  int ready = event_state(event->client->api, event->ptr);
  if (ready == UNTOLD) {
    client_enter(event->client);
    ready = await(event, 0);
    client_leave(event->client);
  }
  return ready < 0 ? NULL : PyBool_FromLong(ready);
}

/* _wait(seconds or None) -> whether the event became ready in time; raises the event's error. */
static PyObject *event_wait(PyObject *self, PyObject *seconds) {
  GUARD;
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
  int ready = await(event, limit);
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
  GUARD;
  EventObject *event = (EventObject *)self;
  PyObject_GC_UnTrack(self);
  if (event->ptr != NULL && event->client->generation == fork_generation)
    event_destroy(&event->child);
  Py_XDECREF((PyObject *)event->client);
  object_free(self);
}

static PyMethodDef methods[] = {
    {"of", event_of, METH_VARARGS | METH_CLASS, "of(client, event address, object): owns it, and keeps the object until it is ready."},
    {"_bind", event_bind, METH_VARARGS, "_bind(client, event address)"},
    {"_wait", event_wait, METH_O, "_wait(seconds or None) -> whether it became ready in time."},
    {"is_ready", event_is_ready, METH_NOARGS,
     "Whether what it stands for is done, without waiting (PJRT_Event_IsReady)."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(EventObject, ptr), READONLY, "The PJRT_Event*."},
    {"client", T_OBJECT, offsetof(EventObject, client), READONLY, "The client that owns it."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.Event: owns a PJRT_Event."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, event_traverse},
    {Py_tp_dealloc, event_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {0, NULL},
};

PyType_Spec event_spec = {
    "pjrt_hub.running.capi.hotpath.Event", sizeof(EventObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
