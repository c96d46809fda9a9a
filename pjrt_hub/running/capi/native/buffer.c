/* Buffer: the owner of one PJRT_Buffer, from its creation to its destruction. */
#include "native.h"

PyTypeObject *BufferType;

/* For device memory, this may wait for the device, so the GIL is released. Host memory is only
   freed, and releasing the GIL beside a busy Python thread would cost 5 ms per buffer. */
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr) {
  SIZED(PJRT_Buffer_Destroy_Args, args, .buffer = ptr);
  PJRT_Error *error;
  if (client->on_host) {
    error = CALL(client->api, PJRT_Buffer_Destroy, &args);
  } else {
    error = RELEASED(CALL(client->api, PJRT_Buffer_Destroy, &args));
  }
  if (error == NULL) return;
  if (is_unimplemented(client->api, error)) { /* This frees at least the device memory. */
    client->outlived = true;
    SIZED(PJRT_Buffer_Delete_Args, memory, .buffer = ptr);
    drop_error(client->api, CALL(client->api, PJRT_Buffer_Delete, &memory));
  }
  drop_error(client->api, error);
}

/* Frees the native buffer and leaves an object that refuses every use. Another thread may free the
   object meanwhile, so none of its fields is read after the first native call. */
static void buffer_destroy(Child *child) {
  BufferObject *buffer = OWNER(BufferObject, child);
  ClientObject *client = buffer->client;
  PJRT_Buffer *ptr = buffer->ptr;
  PyObject *source = buffer->source;
  PJRT_Event *done = buffer->done;
  client_disown(client, child);
  buffer->ptr = NULL;
  buffer->source = NULL;
  client_enter(client);
  buffer_destroy_native(client, ptr);
  if (source != NULL) dispatcher_let_go(client->api, done, source);
  client_leave(client);
}

/* Dead Buffers, whose memory is used again for new ones: a new result then needs no allocation,
   which the garbage collector's header makes slower. */
static BufferObject *spares[64];
static int num_spares;
static PyTypeObject *spares_type; /* Instances of other types may be larger. */

void buffer_type_made(PyTypeObject *type) { spares_type = type; }

/* What makes the memory of a Buffer without a spare. */
static allocfunc allocate = PyType_GenericAlloc;
static PyObject *origin_noter;

/* Tells the noter, if there is one, of a new object; returns false with an exception set. */
bool origin_note(const void *object) {
  if (origin_noter == NULL) return true;
  PyObject *none = PyObject_CallFunction(origin_noter, "K", ADDRESS(object));
  Py_XDECREF(none);
  return none != NULL;
}

static PyObject *allocate_noting(PyTypeObject *type, Py_ssize_t items) {
  PyObject *buffer = PyType_GenericAlloc(type, items);
  if (buffer != NULL && !origin_note(buffer)) Py_CLEAR(buffer);
  return buffer;
}

/* note_origins(callable): from now on, the id of each new Buffer and Stepper is told to
   callable(id), on the thread that makes it. No spares are used any more, so this costs nothing
   before it is called. */
PyObject *buffer_note_origins(PyObject *module, PyObject *callable) {
  GUARD;
  Py_XDECREF(origin_noter);
  origin_noter = Py_NewRef(callable);
  allocate = allocate_noting;
  spares_type = NULL;
  Py_RETURN_NONE;
}

static BufferObject *buffer_new(PyTypeObject *type) {
  if (type != spares_type || num_spares == 0) return (BufferObject *)allocate(type, 0);
  BufferObject *buffer = spares[--num_spares];
  memset(&buffer->child, 0, sizeof(*buffer) - offsetof(BufferObject, child));
  PyObject_Init((PyObject *)buffer, type);
  PyObject_GC_Track((PyObject *)buffer);
  return buffer;
}

static void buffer_free(BufferObject *buffer, PyTypeObject *type) {
  if (type == spares_type && num_spares < (int)(sizeof(spares) / sizeof(*spares)))
    spares[num_spares++] = buffer;
  else
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(buffer);
  Py_DECREF(type);
}

/* Makes a Buffer that owns `ptr`; if there is no memory for it, destroys `ptr`. */
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device) {
  BufferObject *buffer = buffer_new(type);
  if (buffer == NULL) {
    buffer_destroy_native(client, ptr);
    return NULL;
  }
  buffer->client = (ClientObject *)Py_NewRef((PyObject *)client);
  buffer->ptr = ptr;
  buffer->dtype = dtype;
  buffer->shape = Py_NewRef(shape);
  buffer->layout = Py_XNewRef(layout);
  buffer->device = Py_NewRef(device);
  client_adopt(client, &buffer->child, buffer_destroy);
  return (PyObject *)buffer;
}

/* Makes the Buffer for a copy of another one, which differs only in its device. */
PyObject *buffer_wrap_copy(const BufferObject *buffer, PJRT_Buffer *ptr, PyObject *device) {
  PyObject *copy = buffer_wrap(Py_TYPE((PyObject *)buffer), buffer->client, ptr, buffer->dtype,
                               buffer->shape, buffer->layout, device);
  if (copy != NULL) {
    ((BufferObject *)copy)->dynamic = buffer->dynamic;
    ((BufferObject *)copy)->scattered = buffer->scattered;
  }
  return copy;
}

/* Raises ClosedError for a buffer that cannot be used; returns false. */
bool buffer_refuse(const BufferObject *buffer) {
  if (buffer->client == NULL)
    raise_closed("this buffer was never made by a client");
  else if (client_usable(buffer->client))
    raise_closed("the buffer was deleted");
  return false;
}

int buffer_traverse(PyObject *self, visitproc visit, void *arg) {
  BufferObject *buffer = (BufferObject *)self;
  Py_VISIT(Py_TYPE(self));
  Py_VISIT((PyObject *)buffer->client);
  Py_VISIT(buffer->device);
  Py_VISIT(buffer->source);
  Py_VISIT(buffer->ready);
  return 0;
}

void buffer_dealloc(PyObject *self) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  PyTypeObject *type = Py_TYPE(self);
  PyObject_GC_UnTrack(self);
  if (buffer->weakrefs != NULL) PyObject_ClearWeakRefs(self);
  if (buffer->ptr != NULL && buffer->client->generation == fork_generation)
    buffer_destroy(&buffer->child);
  Py_XDECREF(buffer->ready);
  Py_XDECREF(buffer->shape);
  Py_XDECREF(buffer->layout);
  Py_XDECREF(buffer->device);
  Py_XDECREF(buffer->source);
  Py_XDECREF((PyObject *)buffer->client);
  buffer_free(buffer, type);
}

/* Returns whether the plugin says that the shape is only a bound. The plugin may wait for work that
   waits for Python, so the GIL is released; the caller must have called client_enter. */
bool buffer_ask_dynamic(const PJRT_Api *api, PJRT_Buffer *ptr) {
  SIZED(PJRT_Buffer_DynamicDimensionIndices_Args, args);
  if (api->PJRT_Buffer_DynamicDimensionIndices == NULL) return false;
  args.buffer = ptr;
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_DynamicDimensionIndices(&args));
  drop_error(api, error);
  return error == NULL && args.num_dynamic_dims > 0;
}

/* The subclasses that compact_type makes need these slots, too. */
PyType_Slot buffer_slots[] = {
    {Py_tp_traverse, buffer_traverse}, {Py_tp_dealloc, buffer_dealloc}, {0, NULL}};
