/* HostView: a buffer's host memory, lent to numpy without a copy. */
#include "native.h"

PyTypeObject *HostViewType;

typedef struct {
  PyObject_HEAD
  BufferObject *buffer; /* It stays alive, with its client, while the memory is lent. */
  void *data;
  Py_ssize_t nbytes;
} HostViewObject;

static bool has_elements(const BufferObject *buffer) {
  for (Py_ssize_t i = PyTuple_Size(buffer->shape); i-- > 0;)
    if (PyLong_AsSsize_t(PyTuple_GetItem(buffer->shape, i)) == 0) return false;
  return true;
}

/* Raises for an error while memory is lent. A function that is in the table but answers
   UNIMPLEMENTED counts as missing: values are copied from then on. */
static PyObject *raise_unlent(ClientObject *client, PJRT_Error *error, const char *function) {
  if (is_unimplemented(client->api, error)) client->lends = false;
  return raise_status(client->api, error, function);
}

/* Waits for the value and lends its host memory. An external reference keeps the memory through
   deletion and donation, and the view keeps the client through close(). */
static PyObject *lend(PyObject *self, Py_ssize_t nbytes) {
  BufferObject *buffer = (BufferObject *)self;
  ClientObject *client = buffer->client;
  if (!buffer_usable(buffer)) return NULL;
  const PJRT_Api *api = client->api;
  SIZED(PJRT_Buffer_ReadyEvent_Args, ready, .buffer = buffer->ptr);
  PJRT_Error *error = CALL(api, PJRT_Buffer_ReadyEvent, &ready);
  if (error != NULL) return raise_unlent(client, error, "PJRT_Buffer_ReadyEvent");
  if (ready.event == NULL) return raise_answer("PJRT_Buffer_ReadyEvent", "no event");
  client_enter(client);
  PyObject *result = NULL;
  HostViewObject *view = NULL;
  int waited = event_await(api, ready.event);
  error = waited == 1 ? event_take_error(api, ready.event) : NULL;
  event_destroy_native(api, ready.event);
  if (waited != 1) goto leave; /* The wait was interrupted; an exception is set. */
  if (error != NULL) {
    raise_status(api, error, "");
    goto leave;
  }
  SIZED(PJRT_Buffer_IncreaseExternalReferenceCount_Args, hold, .buffer = buffer->ptr);
  error = api->PJRT_Buffer_IncreaseExternalReferenceCount(&hold);
  if (error != NULL) {
    raise_unlent(client, error, "PJRT_Buffer_IncreaseExternalReferenceCount");
    goto leave;
  }
  SIZED(PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args, where, .buffer = buffer->ptr);
  error = api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&where);
  if (error == NULL && where.device_memory_ptr == NULL && has_elements(buffer))
    raise_answer("PJRT_Buffer_OpaqueDeviceMemoryDataPointer", "no address of a value's memory");
  else if (error == NULL)
    view = (HostViewObject *)PyType_GenericAlloc(HostViewType, 0);
  if (view == NULL) {
    SIZED(PJRT_Buffer_DecreaseExternalReferenceCount_Args, drop, .buffer = buffer->ptr);
    drop_error(api, api->PJRT_Buffer_DecreaseExternalReferenceCount(&drop));
    if (error != NULL) raise_unlent(client, error, "PJRT_Buffer_OpaqueDeviceMemoryDataPointer");
    goto leave;
  }
  view->buffer = (BufferObject *)Py_NewRef(self);
  view->data = where.device_memory_ptr;
  view->nbytes = nbytes;
  client_view_begins(client, &buffer->child);
  result = (PyObject *)view;
leave:
  client_leave(client);
  return result;
}

PyObject *buffer_view(PyObject *self, PyObject *args) {
  GUARD;
  Py_ssize_t nbytes;
  if (!PyArg_ParseTuple(args, "n", &nbytes)) return NULL;
  return lend(self, nbytes);
}

/* numpy's dtypes and their sizes in bytes, by PJRT_Buffer_Type. They are never freed. */
static struct {
  PyObject *dtype;
  Py_ssize_t size;
} numpy_types[64];

static bool know_numpy_type(BufferObject *buffer) {
  if (numpy_types[buffer->dtype].dtype != NULL) return true;
  PyObject *dtype = PyObject_GetAttrString((PyObject *)buffer, "dtype");
  PyObject *size = dtype == NULL ? NULL : PyObject_GetAttrString(dtype, "itemsize");
  if (size != NULL) numpy_types[buffer->dtype].size = PyLong_AsSsize_t(size);
  Py_XDECREF(size);
  if (size != NULL && !PyErr_Occurred()) {
    numpy_types[buffer->dtype].dtype = dtype;
    return true;
  }
  Py_XDECREF(dtype);
  return false;
}

/* Waits, and returns a numpy.ndarray of the buffer's memory, or None if a view is not enough. */
PyObject *buffer_array(PyObject *self, PyObject *unused) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (!buffer_usable(buffer)) return NULL;
  if (buffer->layout == NULL && layout_know(buffer) < 0) return NULL;
  if (!buffer->client->lends || buffer->dynamic || buffer->layout != Py_None || buffer->scattered ||
      element_packed(buffer->dtype) || (size_t)buffer->dtype >= sizeof numpy_types / sizeof *numpy_types)
    Py_RETURN_NONE;
  if (!know_numpy_type(buffer)) return NULL;
  PyObject *ndarray = numpy_ndarray(); /* What has told the dtype has imported numpy. */
  if (ndarray == NULL) Py_RETURN_NONE;
  Py_ssize_t nbytes = numpy_types[buffer->dtype].size;
  for (Py_ssize_t i = PyTuple_Size(buffer->shape); i-- > 0;)
    nbytes *= PyLong_AsSsize_t(PyTuple_GetItem(buffer->shape, i));
  PyObject *view = lend(self, nbytes);
  if (view == NULL) return NULL;
  PyObject *array = PyObject_CallFunctionObjArgs(ndarray, buffer->shape,
                                                 numpy_types[buffer->dtype].dtype, view, NULL);
  Py_DECREF(view); /* The array keeps the view. */
  return array;
}

/* The buffer protocol's formats of element types and their sizes in bytes, by PJRT_Buffer_Type. */
static const struct {
  const char *format;
  Py_ssize_t size;
} FORMATS[] = {
    [PJRT_Buffer_Type_PRED] = {"?", 1}, [PJRT_Buffer_Type_S8] = {"b", 1},
    [PJRT_Buffer_Type_S16] = {"h", 2},  [PJRT_Buffer_Type_S32] = {"i", 4},
    [PJRT_Buffer_Type_S64] = {"l", 8},  [PJRT_Buffer_Type_U8] = {"B", 1},
    [PJRT_Buffer_Type_U16] = {"H", 2},  [PJRT_Buffer_Type_U32] = {"I", 4},
    [PJRT_Buffer_Type_U64] = {"L", 8},  [PJRT_Buffer_Type_F16] = {"e", 2},
    [PJRT_Buffer_Type_F32] = {"f", 4},  [PJRT_Buffer_Type_F64] = {"d", 8},
    [PJRT_Buffer_Type_C64] = {"Zf", 8}, [PJRT_Buffer_Type_C128] = {"Zd", 16},
};

static int refuse_view(const char *why) {
  PyErr_SetString(PyExc_BufferError, why);
  return -1;
}

/* numpy drops an exception of buffer_getbuffer, perhaps from a signal's handler, and then calls
   __array__, which raises it again. A Buffer cannot hold it: its traceback holds the Buffer. */
static struct {
  PyObject *exception, *traceback;
} dropped;

static void forget_dropped(void) {
  Py_CLEAR(dropped.exception);
  Py_CLEAR(dropped.traceback);
}

static void keep_dropped(void) {
  PyObject *type;
  PyErr_Fetch(&type, &dropped.exception, &dropped.traceback);
  PyErr_NormalizeException(&type, &dropped.exception, &dropped.traceback);
  if (dropped.traceback != NULL) PyException_SetTraceback(dropped.exception, dropped.traceback);
  PyErr_Restore(type, Py_NewRef(dropped.exception), Py_XNewRef(dropped.traceback));
}

/* _take_dropped() -> the exception that ended the latest memoryview of a buffer, or None if Python
   code saw it, which made its traceback longer. A second call returns None. */
PyObject *buffer_take_dropped(PyObject *unused, PyObject *none) {
  GUARD;
  PyObject *exception = Py_XNewRef(dropped.exception);
  PyObject *traceback = exception != NULL ? PyException_GetTraceback(exception) : NULL;
  bool seen = traceback != dropped.traceback;
  Py_XDECREF(traceback);
  forget_dropped();
  if (exception != NULL && !seen) return exception;
  Py_XDECREF(exception);
  Py_RETURN_NONE;
}

/* memoryview(buffer): waits, and exports the memory read-only with format, shape and strides. */
int buffer_getbuffer(PyObject *self, Py_buffer *out, int flags) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  out->obj = NULL;
  forget_dropped();
  if (!buffer_usable(buffer)) return -1;
  if (deletion_seen(buffer)) /* For a donated buffer, the plugin's message is vague. */
    return failed(raise_closed("the buffer was deleted or donated"));
  size_t type = (size_t)buffer->dtype;
  if (!buffer->client->lends || type >= sizeof FORMATS / sizeof *FORMATS || FORMATS[type].format == NULL)
    return refuse_view("the buffer protocol cannot say where or what this is: use to_numpy()");
  if (flags & PyBUF_WRITABLE) return refuse_view("buffers are read-only");
  if (buffer->dynamic) return refuse_view("some dimensions are dynamic: use to_numpy()");
  if (layout_know(buffer) < 0) return -1;
  if (buffer->scattered) return refuse_view("the elements lie in tiles or with gaps: use to_numpy()");
  Py_ssize_t rank = PyTuple_Size(buffer->shape), step = FORMATS[type].size;
  bool row_major = buffer->layout == Py_None;
  int by_row = (PyBUF_C_CONTIGUOUS | PyBUF_ANY_CONTIGUOUS) & ~PyBUF_STRIDES;
  int by_column = PyBUF_F_CONTIGUOUS & ~PyBUF_STRIDES;
  if (!row_major && ((flags & PyBUF_STRIDES) != PyBUF_STRIDES || flags & (by_row | by_column)))
    return refuse_view("the buffer is not row-major, and strides were not asked for");
  if (row_major && rank > 1 && flags & by_column)
    return refuse_view("the buffer is row-major, not column-major");
  Py_ssize_t *extents = malloc((size_t)(rank > 0 ? 2 * rank : 1) * sizeof(Py_ssize_t));
  if (extents == NULL) return failed(PyErr_NoMemory());
  for (Py_ssize_t i = 0; i < rank; i++) {
    Py_ssize_t d = row_major ? rank - 1 - i : PyLong_AsSsize_t(PyTuple_GetItem(buffer->layout, i));
    extents[d] = PyLong_AsSsize_t(PyTuple_GetItem(buffer->shape, d));
    extents[rank + d] = step;
    step *= extents[d];
  }
  PyObject *view = lend(self, step);
  if (view == NULL) {
    free(extents);
    if (!buffer->client->lends) { /* The plugin has just refused to lend. numpy then copies. */
      PyErr_Clear();
      return refuse_view("the plugin does not lend its memory: use to_numpy()");
    }
    keep_dropped();
    return -1;
  }
  PyBuffer_FillInfo(out, view, ((HostViewObject *)view)->data, step, 1, PyBUF_SIMPLE);
  Py_DECREF(view); /* `out` keeps the view. */
  static char nothing;
  if (out->buf == NULL) out->buf = &nothing;
  out->internal = extents;
  out->itemsize = FORMATS[type].size;
  if (flags & PyBUF_FORMAT) out->format = (char *)FORMATS[type].format;
  if (flags & PyBUF_ND) {
    out->ndim = (int)rank;
    out->shape = extents;
  }
  if ((flags & PyBUF_STRIDES) == PyBUF_STRIDES) out->strides = extents + rank;
  return 0;
}

static void view_releasebuffer(PyObject *self, Py_buffer *out) { free(out->internal); }

static int view_traverse(PyObject *self, visitproc visit, void *arg) {
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)((HostViewObject *)self)->buffer);
  return 0;
}

static void view_dealloc(PyObject *self) {
  GUARD;
  HostViewObject *view = (HostViewObject *)self;
  PyObject_GC_UnTrack(self);
  BufferObject *buffer = view->buffer;
  if (buffer != NULL) {
    ClientObject *client = buffer->client;
    if (buffer->ptr != NULL && client->generation == fork_generation) {
      SIZED(PJRT_Buffer_DecreaseExternalReferenceCount_Args, drop, .buffer = buffer->ptr);
      drop_error(client->api, client->api->PJRT_Buffer_DecreaseExternalReferenceCount(&drop));
    }
    client_view_ended(client, &buffer->child);
    Py_DECREF((PyObject *)buffer);
  }
  object_free(self);
}

/* The memory is read-only: the plugin may share it with other buffers and running programs. */
static int view_getbuffer(PyObject *self, Py_buffer *out, int flags) {
  HostViewObject *view = (HostViewObject *)self;
  static char nothing;
  return PyBuffer_FillInfo(out, self, view->data != NULL ? view->data : &nothing, view->nbytes, 1,
                           flags);
}

static PyMemberDef view_members[] = {
    {"address", T_ULONGLONG, offsetof(HostViewObject, data), READONLY, "Of the memory."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot view_slots[] = {
    {Py_tp_doc, "Host memory of a buffer, lent out read-only through the buffer protocol."},
    {Py_tp_traverse, view_traverse},
    {Py_tp_dealloc, view_dealloc},
    {Py_bf_getbuffer, view_getbuffer},
    {Py_bf_releasebuffer, view_releasebuffer},
    {Py_tp_members, view_members},
    {0, NULL},
};

PyType_Spec host_view_spec = {
    "pjrt_hub.running.capi.hotpath.HostView", sizeof(HostViewObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_HAVE_GC | Py_TPFLAGS_DISALLOW_INSTANTIATION, view_slots};
