/* Client: the owner of native objects. They may be closed in any order, because destruction waits
   for the last native call in flight and for the last host view of the client's memory. */
#include "native.h"

PyTypeObject *ClientType, *InCallType;

/* Raises ClosedError for a client that cannot be used; returns false. */
bool client_refuse(const ClientObject *client) {
  raise_closed(
      client->generation == fork_generation
          ? "the client is closed"
          : "this client was made before a fork; the plugin's threads do not exist in the child\n\n"
            "hint: start workers with the 'spawn' method and make the client inside them");
  return false;
}

/* Adds an object to the client's list; `destroy` frees its native part. */
void client_adopt(ClientObject *client, Child *child, void (*destroy)(Child *child)) {
  child->destroy = destroy;
  child->previous = NULL;
  child->next = client->children;
  if (client->children != NULL) client->children->previous = child;
  client->children = child;
}

/* Removes an object from the client's list, which must happen before its native part is freed. */
void client_disown(ClientObject *client, Child *child) {
  if (child->previous != NULL)
    child->previous->next = child->next;
  else
    client->children = child->next;
  if (child->next != NULL) child->next->previous = child->previous;
  child->previous = child->next = NULL;
}

static void destroy_client(ClientObject *client) {
  SIZED(PJRT_Client_Destroy_Args, args, .client = client->ptr);
  client->ptr = NULL;
  PJRT_Error *error = NULL;
  bool outlived = client->outlived || client->api->PJRT_Event_Destroy == NULL;
  Py_BEGIN_ALLOW_THREADS; /* The plugin waits for work in flight. */
  if (!outlived) error = CALL(client->api, PJRT_Client_Destroy, &args);
  Py_END_ALLOW_THREADS;
  drop_error(client->api, error); /* The client is gone even after an error. */
  staging_trim();
}

/* Destroys what can be destroyed now: the children without views and, if there are no views at all,
   the client. */
static void destroy_idle(ClientObject *client) {
  if (client->generation != fork_generation) return; /* A forked child leaks everything. */
  if (client->busy > 0 || client->ptr == NULL) return;
  client->freeing = true;
  client->busy++; /* This keeps out other threads, which may run while a child is destroyed. */
  Child *child = client->children;
  while (child != NULL) {
    if (child->views > 0) {
      child = child->next;
    } else {
      child->destroy(child);
      child = client->children; /* Another thread may have changed the list meanwhile. */
    }
  }
  client->busy--;
  if (client->busy == 0 && client->views == 0) destroy_client(client);
  client->freeing = false;
}

/* Does the work of close(); is called again when the last call and the last view end. A plugin's
   thread would wait here for the program that waits for it, so the dispatcher does the work. */
void client_finish_close(ClientObject *client) {
  if (!upcall_running()) {
    destroy_idle(client);
    return;
  }
  PyObject *type, *value, *traceback; /* This may run in a destructor with an exception set. */
  PyErr_Fetch(&type, &value, &traceback);
  PyObject *later = PyObject_GetAttrString((PyObject *)client, "_destroy_idle");
  if (later == NULL || !dispatcher_call(later)) PyErr_WriteUnraisable((PyObject *)client);
  Py_XDECREF(later);
  PyErr_Restore(type, value, traceback);
}

static PyObject *client_destroy_idle(PyObject *self, PyObject *unused) {
  GUARD;
  destroy_idle((ClientObject *)self);
  Py_RETURN_NONE;
}

void client_view_begins(ClientObject *client, Child *child) {
  child->views++;
  client->views++;
}

void client_view_ended(ClientObject *client, Child *child) {
  child->views--;
  client->views--;
  if (client->closed) client_finish_close(client);
}

static PyObject *client_bind(PyObject *self, PyObject *args) {
  GUARD;
  ClientObject *client = (ClientObject *)self;
  PyObject *functions;
  unsigned long long api, ptr;
  int on_host;
  if (!PyArg_ParseTuple(args, "O!KKp", FunctionsType, &functions, &api, &ptr, &on_host)) return NULL;
  Py_XDECREF(client->functions);
  client->functions = Py_NewRef(functions);
  client->api = (const PJRT_Api *)(uintptr_t)api;
  client->ptr = (PJRT_Client *)(uintptr_t)ptr;
  client->generation = fork_generation;
  client->on_host = on_host;
  client->lends = on_host && OFFERS(client->api, PJRT_Buffer_IncreaseExternalReferenceCount) &&
                  OFFERS(client->api, PJRT_Buffer_OpaqueDeviceMemoryDataPointer) &&
                  OFFERS(client->api, PJRT_Buffer_DecreaseExternalReferenceCount);
  if (!on_host || client->api->PJRT_Client_AddressableDevices == NULL) Py_RETURN_NONE;
  SIZED(PJRT_Client_AddressableDevices_Args, devices, .client = client->ptr);
  PJRT_Error *error = client->api->PJRT_Client_AddressableDevices(&devices);
  if (drop_unimplemented(client->api, error)) Py_RETURN_NONE; /* The function counts as missing. */
  if (error != NULL) return raise_status(client->api, error, "PJRT_Client_AddressableDevices");
  if (!gate_open(&client->turns, client->api, devices.num_addressable_devices <= 1)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *client_close(PyObject *self, PyObject *unused) {
  GUARD;
  ClientObject *client = (ClientObject *)self;
  if (client->closed) Py_RETURN_NONE;
  client->closed = true;
  client_finish_close(client);
  Py_RETURN_NONE;
}

static PyObject *client_check(PyObject *self, PyObject *unused) {
  GUARD;
  if (!client_usable((ClientObject *)self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *client_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                             PyObject *names) {
  GUARD;
  ClientObject *client = (ClientObject *)self;
  if (!client_usable(client)) return NULL;
  client_enter(client);
  PyObject *answer = functions_call(client->functions, args, nargs, names);
  client_leave(client);
  return answer;
}

typedef struct {
  PyObject_HEAD
  ClientObject *client;
} InCallObject;

static PyObject *client_in_call(PyObject *self, PyObject *unused) {
  InCallObject *call = (InCallObject *)PyType_GenericAlloc(InCallType, 0);
  if (call != NULL) call->client = (ClientObject *)Py_NewRef(self);
  return (PyObject *)call;
}

static PyObject *in_call_enter(PyObject *self, PyObject *unused) {
  GUARD;
  InCallObject *call = (InCallObject *)self;
  if (!client_usable(call->client)) return NULL;
  client_enter(call->client);
  Py_RETURN_NONE;
}

static PyObject *in_call_exit(PyObject *self, PyObject *args) {
  GUARD;
  client_leave(((InCallObject *)self)->client);
  Py_RETURN_NONE;
}

static void in_call_dealloc(PyObject *self) {
  Py_XDECREF((PyObject *)((InCallObject *)self)->client);
  object_free(self);
}

static PyMethodDef in_call_methods[] = {
    {"__enter__", in_call_enter, METH_NOARGS, "Native calls begin: close() waits for them."},
    {"__exit__", in_call_exit, METH_VARARGS, "They ended."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot in_call_slots[] = {
    {Py_tp_doc, "Several native calls, as one for close()."},
    {Py_tp_dealloc, in_call_dealloc},
    {Py_tp_methods, in_call_methods},
    {0, NULL},
};

PyType_Spec in_call_spec = {
    "pjrt_hub.running.capi.hotpath.InCall", sizeof(InCallObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, in_call_slots};

static PyObject *client_closed(PyObject *self, void *unused) {
  GUARD;
  return PyBool_FromLong(client_is_over((ClientObject *)self));
}

/* Returns a new reference to a listed object, or NULL if it is being freed: its last reference is
   gone, and it is listed only until its destructor gets to run. */
static PyObject *living(PyObject *object) {
#ifdef Py_GIL_DISABLED
  PyObject *strong = NULL, *weak = PyWeakref_NewRef(object, NULL);
  if (weak == NULL || PyWeakref_GetRef(weak, &strong) < 0) PyErr_Clear();
  Py_XDECREF(weak);
  return strong;
#else
  return Py_REFCNT(object) > 0 ? Py_NewRef(object) : NULL;
#endif
}

/* _children() -> the native objects' owners, the newest first. */
static PyObject *client_children(PyObject *self, PyObject *unused) {
  GUARD;
  PyObject *list = PyList_New(0);
  Child *child = ((ClientObject *)self)->children;
  for (; list != NULL && child != NULL; child = child->next) {
    PyObject *object = living((PyObject *)(void *)((char *)child - sizeof(PyObject)));
    if (object != NULL && PyList_Append(list, object) < 0) Py_CLEAR(list);
    Py_XDECREF(object);
  }
  return list;
}

static PyObject *client_num_children(PyObject *self, void *unused) {
  GUARD;
  Py_ssize_t count = 0;
  for (Child *child = ((ClientObject *)self)->children; child != NULL; child = child->next) count++;
  return PyLong_FromSsize_t(count);
}

static int client_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT(((ClientObject *)self)->functions);
  return 0;
}

/* Children keep the client alive, so none is left here and no call is in flight. */
static void client_dealloc(PyObject *self) {
  GUARD;
  ClientObject *client = (ClientObject *)self;
  PyObject_GC_UnTrack(self);
  client->closed = true;
  destroy_idle(client);
  if (client->turns.gate != NULL && client->generation == fork_generation)
    gate_let_go(client->turns.gate);
  Py_XDECREF(client->functions);
  object_free(self);
}

static PyMethodDef methods[] = {
    {"_bind", client_bind, METH_VARARGS, "_bind(functions, api address, client address, on_host)"},
    {"_require_open", client_check, METH_NOARGS, "Raises ClosedError unless the client can be used."},
    {"_call", (PyCFunction)(void (*)(void))client_call, METH_FASTCALL | METH_KEYWORDS,
     "_call(function, /, **inputs): calls a C function while close() waits."},
    {"_in_call", client_in_call, METH_NOARGS,
     "As _call, around several steps: until the end of `with` close() frees nothing."},
    {"_children", client_children, METH_NOARGS, "Its events, buffers, executables, ... that live."},
    {"_close", client_close, METH_NOARGS, "Destroys the children and then the client."},
    {"_destroy_idle", client_destroy_idle, METH_NOARGS, "The end of a close that was put off."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(ClientObject, ptr), READONLY, "The PJRT_Client*."},
    {"_num_calls", T_PYSSIZET, offsetof(ClientObject, busy), READONLY, "Native calls in flight."},
    {"_is_freeing", T_BOOL, offsetof(ClientObject, freeing), READONLY, "Whether its end is under way."},
    {"_is_on_host", T_BOOL, offsetof(ClientObject, on_host), READONLY,
     "Whether buffers live in host memory."},
    {"_lends", T_BOOL, offsetof(ClientObject, lends), 0, "Whether buffers' memory can be read."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", client_closed, NULL, "Whether close() was called, or the process forked.", NULL},
    {"_num_children", client_num_children, NULL, "How many native objects of it exist.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.Client: owns a PJRT_Client and lists its children."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, client_traverse},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec client_spec = {
    "pjrt_hub.running.capi.hotpath.Client", sizeof(ClientObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
