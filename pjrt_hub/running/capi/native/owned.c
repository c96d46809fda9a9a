/* Owned: a native object of a client that a Python function frees. Rare kinds of objects use it. */
#include "native.h"

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PyObject *release; /* Frees the native object, then is NULL. It must not refer to the Owned. */
} OwnedObject;
LISTED(OwnedObject);

PyTypeObject *OwnedType;

static void owned_destroy(Child *child) {
  OwnedObject *owned = OWNER(OwnedObject, child);
  ClientObject *client = owned->client; /* During the call, another thread may free `owned`. */
  client_disown(client, child);
  PyObject *release = owned->release;
  owned->release = NULL;
  PyObject *type, *value, *traceback; /* A destructor may run this with an exception set. */
  PyErr_Fetch(&type, &value, &traceback);
  client_enter(client);
  PyObject *answer = PyObject_CallFunctionObjArgs(release, NULL);
  if (answer == NULL) report_unraisable(release);
  Py_XDECREF(answer);
  Py_DECREF(release);
  client->owned--;
  client_leave(client);
  PyErr_Restore(type, value, traceback);
}

static PyObject *owned_bind(PyObject *self, PyObject *args) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  PyObject *client, *release;
  if (owned->client != NULL) return PyErr_Format(PyExc_RuntimeError, "already bound");
  if (!PyArg_ParseTuple(args, "O!O", ClientType, &client, &release)) return NULL;
  owned->client = (ClientObject *)Py_NewRef(client);
  owned->release = Py_NewRef(release);
  client_adopt(owned->client, &owned->child, owned_destroy);
  owned->client->owned++;
  Py_RETURN_NONE;
}

static PyObject *owned_check(PyObject *self, PyObject *unused) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  if (owned->client != NULL && !client_usable(owned->client)) return NULL;
  if (owned->release == NULL) return raise_closed("this was closed");
  Py_RETURN_NONE;
}

static PyObject *owned_release(PyObject *self, PyObject *unused) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  if (owned->release != NULL && owned->client->generation == fork_generation)
    owned_destroy(&owned->child);
  Py_RETURN_NONE;
}

/* _take() -> release, which the caller must call; None if it was called or taken before. */
static PyObject *owned_take(PyObject *self, PyObject *unused) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  if (owned->client != NULL && !client_usable(owned->client)) return NULL;
  if (owned->release == NULL) Py_RETURN_NONE;
  client_disown(owned->client, &owned->child);
  owned->client->owned--; /* The caller is inside a call of the client, which is counted instead. */
  PyObject *release = owned->release;
  owned->release = NULL;
  return release;
}

static PyObject *owned_closed(PyObject *self, void *unused) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  return PyBool_FromLong(owned->release == NULL || client_is_over(owned->client));
}

static int owned_traverse(PyObject *self, visitproc visit, void *arg) {
  OwnedObject *owned = (OwnedObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)owned->client);
  Py_VISIT(owned->release);
  return 0;
}

/* Runs before the garbage collector clears the objects that the call of `release` needs. */
static void owned_finalize(PyObject *self) { Py_XDECREF(owned_release(self, NULL)); }

static void owned_dealloc(PyObject *self) {
  GUARD;
  OwnedObject *owned = (OwnedObject *)self;
  PyObject_GC_UnTrack(self);
  if (owned->release != NULL && owned->client->generation == fork_generation)
    owned_destroy(&owned->child);
  Py_XDECREF(owned->release);
  Py_XDECREF((PyObject *)owned->client);
  object_free(self);
}

static PyMethodDef methods[] = {
    {"_bind", owned_bind, METH_VARARGS, "_bind(client, release): release() frees it, once."},
    {"_require_open", owned_check, METH_NOARGS, "Raises ClosedError unless it can be used."},
    {"_release", owned_release, METH_NOARGS, "Frees it now, if it is not freed."},
    {"_take", owned_take, METH_NOARGS, "Gives release away, or None where it is gone."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"client", T_OBJECT, offsetof(OwnedObject, client), READONLY, "The client that owns it."},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", owned_closed, NULL, "Whether it was closed, itself or with its client.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of what a client frees before itself by calling Python."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_traverse, owned_traverse},
    {Py_tp_finalize, owned_finalize},
    {Py_tp_dealloc, owned_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec owned_spec = {
    "pjrt_hub.running.capi.hotpath.Owned", sizeof(OwnedObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC, slots};
