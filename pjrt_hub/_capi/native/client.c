/* Client: the owner of native lifetimes. close() in any order is safe because destruction waits
   for the last native call in flight and for the last host view into the client's memory. */
#include "hotpath.h"

/* Refuses a closed client and any client made before a fork; raises ClosedError. */
bool client_usable(ClientObject *client) {
  if (client->generation != fork_generation) {
    raise_closed(
        "this client was made before a fork; the plugin's threads do not exist in the child\n\n"
        "hint: start workers with the 'spawn' method and make the client inside them");
    return false;
  }
  if (client->closed || client->ptr == NULL) {
    raise_closed("the client is closed");
    return false;
  }
  return true;
}

static void destroy_client(ClientObject *client) {
  PJRT_Client *ptr = client->ptr;
  const PJRT_Api *api = client->api;
  client->ptr = NULL;
  PJRT_Client_Destroy_Args args = {.struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE};
  args.client = ptr;
  PJRT_Error *error;
  Py_BEGIN_ALLOW_THREADS; /* waits for work in flight */
  error = api->PJRT_Client_Destroy(&args);
  Py_END_ALLOW_THREADS;
  if (error != NULL) { /* nobody can act on it: the client is gone either way */
    PJRT_Error_Destroy_Args gone = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE};
    gone.error = error;
    api->PJRT_Error_Destroy(&gone);
  }
}

/* Destroys what may be destroyed now: events, executables, buffers nobody looks into, and, once no
   view is left, the client. Called again by the last call in flight and the last view. */
static void finish_close(ClientObject *client) {
  if (client->generation != fork_generation) return; /* in a forked child: leak */
  if (client->busy > 0 || client->ptr == NULL) return;
  while (client->events != NULL) event_destroy(client->events);
  while (client->executables != NULL) executable_destroy(client->executables);
  for (BufferObject *buffer = client->buffers, *next; buffer != NULL; buffer = next) {
    next = buffer->next;
    if (buffer->exports == 0) buffer_destroy(buffer);
  }
  if (client->exports == 0) destroy_client(client);
}

void client_enter(ClientObject *client) { client->busy++; }

void client_leave(ClientObject *client) {
  if (--client->busy == 0 && client->closed) finish_close(client);
}

void client_export_ended(ClientObject *client) {
  client->exports--;
  if (client->closed) finish_close(client);
}

static PyObject *client_bind(PyObject *self, PyObject *args) {
  ClientObject *client = (ClientObject *)self;
  unsigned long long api, ptr;
  int on_host;
  if (!PyArg_ParseTuple(args, "KKp", &api, &ptr, &on_host)) return NULL;
  client->api = (const PJRT_Api *)(uintptr_t)api;
  client->ptr = (PJRT_Client *)(uintptr_t)ptr;
  client->generation = fork_generation;
  client->on_host = on_host;
  Py_RETURN_NONE;
}

static PyObject *client_close(PyObject *self, PyObject *unused) {
  ClientObject *client = (ClientObject *)self;
  if (client->closed) Py_RETURN_NONE;
  client->closed = true;
  finish_close(client);
  Py_RETURN_NONE;
}

static PyObject *client_check(PyObject *self, PyObject *unused) {
  if (!client_usable((ClientObject *)self)) return NULL;
  Py_RETURN_NONE;
}

static PyObject *client_enter_call(PyObject *self, PyObject *unused) {
  if (!client_usable((ClientObject *)self)) return NULL;
  client_enter((ClientObject *)self);
  Py_RETURN_NONE;
}

static PyObject *client_leave_call(PyObject *self, PyObject *unused) {
  client_leave((ClientObject *)self);
  Py_RETURN_NONE;
}

static PyObject *client_closed(PyObject *self, void *unused) {
  return PyBool_FromLong(((ClientObject *)self)->closed);
}

static PyObject *client_address(PyObject *self, void *unused) {
  return PyLong_FromVoidPtr(((ClientObject *)self)->ptr);
}

static PyObject *client_live_buffers(PyObject *self, void *unused) {
  Py_ssize_t count = 0;
  for (BufferObject *b = ((ClientObject *)self)->buffers; b != NULL; b = b->next) count++;
  return PyLong_FromSsize_t(count);
}

/* Children hold the client, so when it dies none is left and nothing is in flight. */
static void client_dealloc(PyObject *self) {
  ClientObject *client = (ClientObject *)self;
  PyTypeObject *type = Py_TYPE(self);
  client->closed = true;
  finish_close(client);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

/* Puts host memory on a device: PJRT_Client_BufferFromHostBuffer. `source` exports the memory with
   the strides to use; `shape` is the logical shape, given because sub-byte and ml_dtypes arrays
   are exported as plain integers. Returns (buffer, address of the done_with_host_buffer event); the
   event is freed and 0 where the memory was copied during the call. */
static PyObject *client_put(PyObject *self, PyObject *args) {
  ClientObject *client = (ClientObject *)self;
  PyObject *type, *source, *shape, *device;
  int dtype, semantics;
  unsigned long long device_ptr, memory_ptr;
  if (!PyArg_ParseTuple(args, "OOiO!iOKK", &type, &source, &dtype, &PyTuple_Type, &shape,
                        &semantics, &device, &device_ptr, &memory_ptr))
    return NULL;
  if (!client_usable(client)) return NULL;
  if (!PyType_Check(type) || !PyType_IsSubtype((PyTypeObject *)type, BufferType))
    return PyErr_Format(PyExc_TypeError, "the first argument is not a type of Buffer");
  Py_buffer view;
  if (PyObject_GetBuffer(source, &view, PyBUF_STRIDED_RO) < 0) return NULL;
  int64_t dims[64], strides[64];
  static char nothing; /* a zero-size array may have no address, and NULL crashes the plugin */
  Py_ssize_t rank = PyTuple_Size(shape);
  if (rank != view.ndim || rank > 64) {
    PyBuffer_Release(&view);
    return PyErr_Format(PyExc_ValueError, "the memory has rank %d and the shape rank %zd",
                        view.ndim, rank);
  }
  for (Py_ssize_t i = 0; i < rank; i++) {
    dims[i] = PyLong_AsLongLong(PyTuple_GetItem(shape, i));
    strides[i] = view.strides[i];
    if (dims[i] != view.shape[i]) {
      if (!PyErr_Occurred())
        PyErr_Format(PyExc_ValueError, "dimension %zd is %lld in the shape and %zd in memory", i,
                     (long long)dims[i], view.shape[i]);
      PyBuffer_Release(&view);
      return NULL;
    }
  }
  PJRT_Client_BufferFromHostBuffer_Args put = {
      .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE};
  put.client = client->ptr;
  put.data = view.buf != NULL ? view.buf : &nothing;
  put.type = (PJRT_Buffer_Type)dtype;
  put.dims = dims;
  put.num_dims = (size_t)rank;
  if (!PyBuffer_IsContiguous(&view, 'C')) {
    put.byte_strides = strides;
    put.num_byte_strides = (size_t)rank;
  }
  put.host_buffer_semantics = (PJRT_HostBufferSemantics)semantics;
  put.device = (PJRT_Device *)(uintptr_t)device_ptr;
  put.memory = (PJRT_Memory *)(uintptr_t)memory_ptr;
  PJRT_Error *error;
  client_enter(client);
  if (client->on_host && view.len <= 4096) { /* a copy of a page: cheaper than the GIL's hand-over */
    error = client->api->PJRT_Client_BufferFromHostBuffer(&put);
  } else {
    Py_BEGIN_ALLOW_THREADS;
    error = client->api->PJRT_Client_BufferFromHostBuffer(&put);
    Py_END_ALLOW_THREADS;
  }
  PyBuffer_Release(&view);
  if (error != NULL) {
    client_leave(client);
    return raise_status(client->api, error, "PJRT_Client_BufferFromHostBuffer");
  }
  /* On the host the default layout is row-major; elsewhere the plugin is asked when it matters. */
  PyObject *layout = client->on_host ? Py_None : NULL;
  PyObject *buffer =
      buffer_wrap((PyTypeObject *)type, client, put.buffer, dtype, shape, layout, device);
  if (buffer == NULL || put.host_buffer_semantics ==
                            PJRT_HostBufferSemantics_kImmutableOnlyDuringCall) {
    event_destroy_native(client->api, put.done_with_host_buffer);
    put.done_with_host_buffer = NULL;
  }
  client_leave(client);
  if (buffer == NULL) return NULL;
  return Py_BuildValue("NK", buffer, (unsigned long long)(uintptr_t)put.done_with_host_buffer);
}

static PyMethodDef methods[] = {
    {"_bind", client_bind, METH_VARARGS, "_bind(api address, client address, on_host)"},
    {"_check", client_check, METH_NOARGS, "Raises ClosedError unless the client can be used."},
    {"_enter", client_enter_call, METH_NOARGS, "A native call begins: close() waits for it."},
    {"_leave", client_leave_call, METH_NOARGS, "That native call ended."},
    {"_close", client_close, METH_NOARGS, "Destroys the children and then the client."},
    {"_put", client_put, METH_VARARGS,
     "_put(type, source, dtype, shape, semantics, device, device address, memory address)"},
    {NULL, NULL, 0, NULL},
};

static PyGetSetDef properties[] = {
    {"closed", client_closed, NULL, "Whether close() was called.", NULL},
    {"_address", client_address, NULL, "The PJRT_Client*.", NULL},
    {"live_buffers", client_live_buffers, NULL, "How many buffers of it exist.", NULL},
    {NULL, NULL, NULL, NULL, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Base of runtime.Client: owns a PJRT_Client and lists its children."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, client_dealloc},
    {Py_tp_methods, methods},
    {Py_tp_getset, properties},
    {0, NULL},
};

PyType_Spec client_spec = {
    "pjrt_hub._capi.hotpath.Client", sizeof(ClientObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, slots};
