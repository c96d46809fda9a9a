/* The Python type Buffer: its methods and attributes. */
#include "native.h"

static PyObject *buffer_check(PyObject *self, PyObject *unused) {
  GUARD;
  if (!buffer_usable((BufferObject *)self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *buffer_adopt(PyObject *type, PyObject *args) {
  GUARD;
  PyObject *client, *shape, *device;
  unsigned long long ptr;
  int dtype;
  if (!PyArg_ParseTuple(args, "O!KiO!O", ClientType, &client, &ptr, &dtype, &PyTuple_Type, &shape,
                        &device))
    return NULL;
  PyObject *buffer = buffer_wrap((PyTypeObject *)type, (ClientObject *)client,
                                 (PJRT_Buffer *)(uintptr_t)ptr, dtype, shape, NULL, device);
  if (buffer == NULL) return NULL;
  client_enter((ClientObject *)client);
  ((BufferObject *)buffer)->dynamic =
      buffer_ask_dynamic(((ClientObject *)client)->api, ((BufferObject *)buffer)->ptr);
  client_leave((ClientObject *)client);
  return buffer;
}

static PyObject *buffer_like(PyObject *self, PyObject *args) {
  GUARD;
  unsigned long long ptr;
  PyObject *device;
  if (!PyArg_ParseTuple(args, "KO", &ptr, &device)) return NULL;
  return buffer_wrap_copy((BufferObject *)self, (PJRT_Buffer *)(uintptr_t)ptr, device);
}

static PyObject *buffer_lent(PyObject *self, void *unused) {
  GUARD;
  return PyBool_FromLong(((BufferObject *)self)->child.views > 0);
}

static PyMethodDef methods[] = {
    {"_adopt", buffer_adopt, METH_VARARGS | METH_CLASS, NULL},
    {"_copy_to_device", (PyCFunction)(void (*)(void))buffer_copy_to_device, METH_FASTCALL, NULL},
    {"_copy_raw", (PyCFunction)(void (*)(void))buffer_copy_raw, METH_FASTCALL, NULL},
    {"_like", buffer_like, METH_VARARGS, "_like(address of a copy, its device)"},
    {"_put", upload_put, METH_VARARGS | METH_CLASS, NULL},
    {"_put_plain", (PyCFunction)(void (*)(void))upload_plain, METH_FASTCALL | METH_CLASS, NULL},
    {"_order", buffer_order, METH_NOARGS, "As `layout`, but None for row-major."},
    {"_require_open", buffer_check, METH_NOARGS, "Raises ClosedError unless the buffer can be used."},
    {"_array", buffer_array, METH_NOARGS, "As to_numpy(), or None where that takes more than a view."},
    {"_take_dropped", buffer_take_dropped, METH_NOARGS | METH_STATIC, NULL},
    {"_view", buffer_view, METH_VARARGS, "_view(nbytes) -> HostView, once the value is ready."},
    {"delete", deletion_delete, METH_NOARGS,
     "Gives the device memory back without waiting; may be called again (PJRT_Buffer_Delete).\n\n"
     "Work that uses the buffer finishes, and arrays made by to_numpy() stay valid."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef members[] = {
    {"address", T_ULONGLONG, offsetof(BufferObject, ptr), READONLY, "The PJRT_Buffer*."},
    {"client", T_OBJECT, offsetof(BufferObject, client), READONLY, "The client that owns it."},
    {"shape", T_OBJECT, offsetof(BufferObject, shape), READONLY, "The dimensions, a tuple of int."},
    {"device", T_OBJECT, offsetof(BufferObject, device), READONLY, "The device it lives on."},
    {"_dynamic", T_BOOL, offsetof(BufferObject, dynamic), READONLY, "Whether `shape` is a bound."},
    {"_scattered", T_BOOL, offsetof(BufferObject, scattered), READONLY,
     "Whether its elements lie in tiles or with gaps, once `_order` was asked."},
    {"_dtype", T_INT, offsetof(BufferObject, dtype), READONLY, "The PJRT_Buffer_Type."},
    {"_ready", T_OBJECT_EX, offsetof(BufferObject, ready), 0, "Its event, once it was asked for."},
    {"__weaklistoffset__", T_PYSSIZET, offsetof(BufferObject, weakrefs), READONLY, NULL},
    {NULL, 0, 0, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"is_deleted", deletion_asked, NULL,
     "Whether it was deleted, donated, or closed with its client (PJRT_Buffer_IsDeleted).", NULL},
    {"_is_gone", deletion_looked, NULL, "The same, as far as the plugin tells.", NULL},
    {"_is_lent", buffer_lent, NULL, "Whether an array or somebody else looks into its memory.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of pjrt_hub.Buffer: owns one PJRT_Buffer."},
    {Py_tp_traverse, buffer_traverse},
    {Py_tp_dealloc, buffer_dealloc},
    {Py_bf_getbuffer, buffer_getbuffer},
    {Py_tp_methods, methods},
    {Py_tp_members, members},
    {Py_tp_getset, properties},
    {0, NULL},
};

/* Python code cannot instantiate this type: only clients make Buffers, so every Buffer has one. */
PyType_Spec buffer_spec = {
    "pjrt_hub.running.capi.hotpath.Buffer", sizeof(BufferObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION,
    slots};
