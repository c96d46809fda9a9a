/* Uploads of host memory to a device (PJRT_Client_BufferFromHostBuffer), also from numpy arrays for
   which the buffer protocol tells all that an upload needs. */
#include "native.h"

enum {
  ALIGNED = 64,   /* The alignment, in bytes, of host memory that a plugin can share. */
  HELD = 4096,    /* Up to this many bytes, a copy is cheaper than a hand-over of the GIL. */
};
/* From this many bytes on, a copy into a staging block is faster than the plugin's copy. */
#define STAGED ((size_t)2 << 20)

static char nothing; /* A zero-size array may have no address, and NULL crashes plugins. */

/* Returns whether elements share bytes. Plugins pack these, so they cannot share host memory. */
bool element_packed(int dtype) {
  return dtype > PJRT_Buffer_Type_F8E4M3FNUZ && dtype != PJRT_Buffer_Type_F8E4M3 &&
         dtype != PJRT_Buffer_Type_F8E3M4 && dtype != PJRT_Buffer_Type_F8E8M0FNU;
}

/* Returns whether the plugin is known to use the memory in place. Asking for the address of a value
   that is not ready would crash. */
static bool is_shared(const PJRT_Api *api, PJRT_Buffer *buffer, const void *memory) {
  SIZED(PJRT_Buffer_ReadyEvent_Args, ready);
  SIZED(PJRT_Event_IsReady_Args, there);
  SIZED(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, where);
  ready.buffer = where.buffer = buffer;
  PJRT_Error *error = CALL(api, PJRT_Buffer_ReadyEvent, &ready);
  if (error == NULL && ready.event != NULL) {
    there.event = ready.event;
    error = CALL(api, PJRT_Event_IsReady, &there);
    event_destroy_native(api, ready.event);
  }
  if (error == NULL && there.is_ready) error = api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&where);
  drop_error(api, error);
  return error == NULL && where.device_memory_ptr == memory;
}

static void give_back(void *block) { staging_give_back(block); }

/* Copies the memory into a staging block, which the buffer then uses until the plugin frees that. A
   program to which the buffer is donated may write into it, because nobody else reads it. */
static bool put_staged(ClientObject *client, PJRT_Client_BufferFromHostBuffer_Args put,
                       size_t nbytes, PJRT_Buffer **buffer) {
  const PJRT_Api *api = client->api;
  Block *block = staging_take(nbytes);
  if (block == NULL) return false;
  char *memory = staging_memory(block);
  PJRT_Error *error, *refused;
  bool shared = client->shares == SHARES;
  Py_BEGIN_ALLOW_THREADS;
  memcpy(memory, put.data, nbytes);
  put.data = memory;
  put.host_buffer_semantics = PJRT_HostBufferSemantics_kMutableZeroCopy;
  error = CALL(api, PJRT_Client_BufferFromHostBuffer, &put);
  if (error == NULL && put.buffer != NULL && put.done_with_host_buffer != NULL) {
    if (!shared) shared = is_shared(api, put.buffer, memory);
    /* If nobody can tell when the plugin is done, the block is never freed. */
    if (!ticket_when_ready(put.done_with_host_buffer, (Ticket){api, give_back, block}, &refused))
      shared = false; /* This way, no other block leaks. */
    drop_error(api, refused);
    event_destroy_native(api, put.done_with_host_buffer);
  }
  Py_END_ALLOW_THREADS;
  client->shares = error == NULL && shared ? SHARES : COPIES;
  if (error != NULL) {
    drop_error(api, error);
    staging_give_back(block);
    return false;
  }
  *buffer = put.buffer;
  return true;
}

static bool may_stage(const ClientObject *client, const HostMemory *host) {
  return host->nbytes >= STAGED && client->lends && client->shares != COPIES &&
         host->memory == NULL && !element_packed(host->dtype);
}

/* Puts once more if memory was short and garbage was collected; returns the error that is left. */
COLD static PJRT_Error *put_again(const PJRT_Api *api, PJRT_Client_BufferFromHostBuffer_Args *put,
                                  PJRT_Error *error) {
  if (!reclaim(api, error)) return error;
  error = RELEASED(CALL(api, PJRT_Client_BufferFromHostBuffer, put));
  return error;
}

/* Copies contiguous memory to a device. The caller encloses it in client_enter and client_leave. */
PJRT_Error *upload(ClientObject *client, const HostMemory *host, PJRT_Buffer **buffer) {
  const PJRT_Api *api = client->api;
  SIZED(PJRT_Client_BufferFromHostBuffer_Args, put, .client = client->ptr,
        .data = host->data != NULL ? host->data : &nothing, .type = (PJRT_Buffer_Type)host->dtype,
        .dims = host->dims, .num_dims = host->rank,
        .host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall,
        .device = host->device, .memory = host->memory);
  if (may_stage(client, host) && put_staged(client, put, host->nbytes, buffer)) return NULL;
  PJRT_Error *error;
  if (client->on_host && host->nbytes <= HELD) {
    error = CALL(api, PJRT_Client_BufferFromHostBuffer, &put);
  } else {
    error = RELEASED(CALL(api, PJRT_Client_BufferFromHostBuffer, &put));
  }
  if (error != NULL) error = put_again(api, &put, error);
  if (error != NULL) return error;
  event_destroy_native(api, put.done_with_host_buffer);
  *buffer = put.buffer;
  return NULL;
}

/* Returns the PJRT_Buffer_Type of a native format of the buffer protocol, or 0 if there is none. */
static int element_type(const char *format, Py_ssize_t nbytes) {
  if (format == NULL) return PJRT_Buffer_Type_U8;
  bool complex = format[0] == 'Z';
  if (complex) format++;
  if (format[0] == '\0' || format[1] != '\0') return 0;
  switch (format[0]) {
    case '?': return PJRT_Buffer_Type_PRED;
    case 'b': return PJRT_Buffer_Type_S8;
    case 'B': return PJRT_Buffer_Type_U8;
    case 'h': return PJRT_Buffer_Type_S16;
    case 'H': return PJRT_Buffer_Type_U16;
    case 'i': return PJRT_Buffer_Type_S32;
    case 'I': return PJRT_Buffer_Type_U32;
    case 'l': case 'q': return nbytes == 8 ? PJRT_Buffer_Type_S64 : PJRT_Buffer_Type_S32;
    case 'L': case 'Q': return nbytes == 8 ? PJRT_Buffer_Type_U64 : PJRT_Buffer_Type_U32;
    case 'e': return PJRT_Buffer_Type_F16;
    case 'f': return complex ? PJRT_Buffer_Type_C64 : PJRT_Buffer_Type_F32;
    case 'd': return complex ? PJRT_Buffer_Type_C128 : PJRT_Buffer_Type_F64;
  }
  return 0;
}

/* Returns the type numpy.ndarray, or NULL without an exception if numpy is not imported. */
PyObject *numpy_ndarray(void) {
  static PyObject *type; /* It lives as long as the process, like numpy itself. */
  if (type == NULL) {
    PyObject *name = PyUnicode_FromString("numpy");
    PyObject *numpy = name == NULL ? NULL : PyImport_GetModule(name);
    Py_XDECREF(name);
    if (numpy == NULL) {
      PyErr_Clear();
      return NULL;
    }
    type = PyObject_GetAttrString(numpy, "ndarray");
    Py_DECREF(numpy);
    if (type == NULL) PyErr_Clear();
  }
  return type;
}

/* Returns whether it is exactly a numpy.ndarray: in subclasses, memory may have another meaning. */
bool is_ndarray(PyObject *object) { return (PyObject *)Py_TYPE(object) == numpy_ndarray(); }

/* Opens a numpy array whose memory can be put as it is: exactly an ndarray, row-major, aligned, of
   native elements with a format in the buffer protocol. Others give false and no exception. */
bool upload_opens(PyObject *object, Py_buffer *view, int *dtype) {
  if (!is_ndarray(object)) return false;
  if (PyObject_GetBuffer(object, view, PyBUF_ND | PyBUF_FORMAT) < 0) {
    PyErr_Clear();
    return false;
  }
  *dtype = element_type(view->format, view->itemsize);
  if (*dtype != 0 && view->ndim <= MAX_RANK && PyBuffer_IsContiguous(view, 'C')) return true;
  PyBuffer_Release(view);
  return false;
}

/* Returns dimensions as a tuple, and uses the equal tuple in `known` if there is one. */
static PyObject *shape_of(const int64_t *dims, int rank, PyObject *known) {
  PyObject *shape = tuple_of(dims, rank);
  if (shape == NULL) return NULL;
  PyObject *same = PyDict_GetItemWithError(known, shape);
  if (same == NULL) {
    if (!PyErr_Occurred()) return shape;
    Py_DECREF(shape);
    return NULL;
  }
  Py_INCREF(same);
  Py_DECREF(shape);
  return same;
}

/* Buffer._put_plain(client, array, place, known shapes) -> a Buffer with a copy, or None if the
   array needs more than this function. place: (device, its address, address of the memory or 0). */
PyObject *upload_plain(PyObject *type, PyObject *const *args, Py_ssize_t nargs) {
  GUARD;
  if (nargs != 4 || !PyObject_TypeCheck(args[0], ClientType) || !PyTuple_Check(args[2]) ||
      PyTuple_Size(args[2]) != 3 || !PyDict_Check(args[3]))
    return PyErr_Format(PyExc_TypeError, "_put_plain(client, array, place, shapes)");
  ClientObject *client = (ClientObject *)args[0];
  if (!client_usable(client)) return NULL;
  PyObject *device = PyTuple_GetItem(args[2], 0);
  HostMemory host = {
      .device = PyLong_AsVoidPtr(PyTuple_GetItem(args[2], 1)),
      .memory = PyLong_AsVoidPtr(PyTuple_GetItem(args[2], 2)),
  };
  if (PyErr_Occurred()) return NULL;
  Py_buffer view;
  if (!upload_opens(args[1], &view, &host.dtype)) Py_RETURN_NONE;
  int64_t dims[MAX_RANK];
  for (int i = 0; i < view.ndim; i++) dims[i] = view.shape[i];
  PyObject *shape = shape_of(dims, view.ndim, args[3]);
  if (shape == NULL) {
    PyBuffer_Release(&view);
    return NULL;
  }
  host.data = view.buf;
  host.nbytes = (size_t)view.len;
  host.dims = dims;
  host.rank = (size_t)view.ndim;
  PJRT_Buffer *ptr = NULL;
  PyObject *buffer = NULL;
  client_enter(client);
  PJRT_Error *error = upload(client, &host, &ptr);
  if (error == NULL && ptr == NULL)
    raise_answer("PJRT_Client_BufferFromHostBuffer", "no buffer");
  else if (error == NULL)
    buffer = buffer_wrap((PyTypeObject *)type, client, ptr, host.dtype, shape, NULL, device);
  if (buffer != NULL) layout_of_put((BufferObject *)buffer);
  client_leave(client);
  PyBuffer_Release(&view);
  Py_DECREF(shape);
  return error == NULL ? buffer : raise_status(client->api, error, "PJRT_Client_BufferFromHostBuffer");
}

/* Puts host memory on a device: PJRT_Client_BufferFromHostBuffer. `source` exports the memory with
   the strides to use. `shape` is the logical shape: arrays of sub-byte and ml_dtypes types are
   exported as plain integers. Returns (buffer, address of the done_with_host_buffer event). The
   address is 0 if no wait is needed: the memory was copied, or the buffer shares and keeps it. */
PyObject *upload_put(PyObject *type, PyObject *args) {
  GUARD;
  PyObject *owner, *source, *shape, *device;
  int dtype, semantics;
  unsigned long long device_ptr, memory_ptr;
  if (!PyArg_ParseTuple(args, "O!OiO!iOKK", ClientType, &owner, &source, &dtype, &PyTuple_Type, &shape,
                        &semantics, &device, &device_ptr, &memory_ptr))
    return NULL;
  ClientObject *client = (ClientObject *)owner;
  if (!client_usable(client)) return NULL;
  Py_buffer view;
  if (PyObject_GetBuffer(source, &view, PyBUF_STRIDED_RO) < 0) return NULL;
  int64_t dims[MAX_RANK], strides[MAX_RANK];
  Py_ssize_t rank = PyTuple_Size(shape);
  if (rank != view.ndim || rank > MAX_RANK) {
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
  SIZED(PJRT_Client_BufferFromHostBuffer_Args, put);
  HostMemory host = {view.buf, (size_t)view.len, dtype, dims, (size_t)rank,
                     (PJRT_Device *)(uintptr_t)device_ptr, (PJRT_Memory *)(uintptr_t)memory_ptr};
  bool whole = PyBuffer_IsContiguous(&view, 'C');
  bool zero_copy = semantics >= PJRT_HostBufferSemantics_kImmutableZeroCopy;
  bool shared = client->on_host && zero_copy && whole && (uintptr_t)view.buf % ALIGNED == 0;
  bool copied = semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  client_enter(client);
  PJRT_Error *error;
  if (whole && (copied || (zero_copy && !shared && may_stage(client, &host)))) {
    copied = true;
    error = upload(client, &host, &put.buffer);
  } else {
    put.client = client->ptr;
    put.data = view.buf != NULL ? view.buf : &nothing;
    put.type = (PJRT_Buffer_Type)dtype;
    put.dims = dims;
    put.num_dims = (size_t)rank;
    if (!whole) {
      put.byte_strides = strides;
      put.num_byte_strides = (size_t)rank;
    }
    put.host_buffer_semantics = (PJRT_HostBufferSemantics)semantics;
    put.device = host.device;
    put.memory = host.memory;
    error = RELEASED(CALL(client->api, PJRT_Client_BufferFromHostBuffer, &put));
    if (error != NULL) error = put_again(client->api, &put, error);
  }
  PyBuffer_Release(&view);
  if (error != NULL) {
    client_leave(client);
    return raise_status(client->api, error, "PJRT_Client_BufferFromHostBuffer");
  }
  if (put.buffer == NULL) {
    client_leave(client);
    return raise_answer("PJRT_Client_BufferFromHostBuffer", "no buffer");
  }
  PyObject *buffer =
      buffer_wrap((PyTypeObject *)type, client, put.buffer, dtype, shape, NULL, device);
  if (buffer != NULL) layout_of_put((BufferObject *)buffer);
  if (buffer != NULL && shared) {
    ((BufferObject *)buffer)->source = Py_NewRef(source);
    ((BufferObject *)buffer)->done = put.done_with_host_buffer;
    put.done_with_host_buffer = NULL;
  } else if (put.done_with_host_buffer != NULL && (buffer == NULL || copied)) {
    event_destroy_native(client->api, put.done_with_host_buffer);
    put.done_with_host_buffer = NULL;
  }
  client_leave(client);
  if (buffer == NULL) return NULL;
  return Py_BuildValue("NK", buffer, ADDRESS(put.done_with_host_buffer));
}
