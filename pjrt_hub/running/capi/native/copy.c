/* Copies a buffer to another device, or its bytes into host memory. Both functions return None if
   the plugin lacks a function or if the request needs more; Python then copies, or raises. */
#include "native.h"

/* Buffer._copy_to_device(device, its address) -> Buffer or None (PJRT_Buffer_CopyToDevice). */
PyObject *buffer_copy_to_device(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (nargs != 2) return PyErr_Format(PyExc_TypeError, "_copy_to_device(device, address)");
  SIZED(PJRT_Buffer_CopyToDevice_Args, copy, .dst_device = PyLong_AsVoidPtr(args[1]));
  if (copy.dst_device == NULL && PyErr_Occurred()) return NULL;
  if (!buffer_usable(buffer)) return NULL;
  ClientObject *client = buffer->client;
  const PJRT_Api *api = client->api;
  if (!OFFERS(api, PJRT_Buffer_CopyToDevice) || buffer->layout == NULL) Py_RETURN_NONE;
  copy.buffer = buffer->ptr;
  PyObject *result = NULL;
  client_enter(client);
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_CopyToDevice(&copy));
  if (error != NULL && reclaim(api, error)) {
    error = RELEASED(api->PJRT_Buffer_CopyToDevice(&copy));
  }
  if (error == NULL && copy.dst_buffer == NULL) {
    raise_answer("PJRT_Buffer_CopyToDevice", "no buffer");
  } else if (error == NULL) {
    result = buffer_wrap_copy(buffer, copy.dst_buffer, args[0]);
  } else if (deletion_known(api, buffer->ptr)) {
    drop_error(api, error);
    raise_closed("the buffer was deleted or donated");
  } else {
    raise_status(api, error, "PJRT_Buffer_CopyToDevice");
  }
  client_leave(client);
  return result;
}

/* Finds the writable memory of an object. Returns a view that keeps the memory in place, or NULL
   without an exception if there is none. */
static PyObject *writable(PyObject *object, void **data, Py_ssize_t *nbytes) {
  Py_buffer view;
  PyObject *memory = PyMemoryView_FromObject(object);
  if (memory == NULL || PyObject_GetBuffer(memory, &view, PyBUF_WRITABLE) < 0) {
    PyErr_Clear();
    Py_XDECREF(memory);
    return NULL;
  }
  *data = view.buf;
  *nbytes = view.len;
  PyBuffer_Release(&view);
  return memory;
}

/* Waits for the buffer's value. Returns 1 if it has at least `nbytes` bytes, -1 with an exception
   set, or 0 if it is left to Python to find out what is wrong. */
static int await_bytes(const PJRT_Api *api, PJRT_Buffer *ptr, Py_ssize_t nbytes) {
  SIZED(PJRT_Buffer_OnDeviceSizeInBytes_Args, size);
  SIZED(PJRT_Buffer_ReadyEvent_Args, ready);
  size.buffer = ready.buffer = ptr;
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_OnDeviceSizeInBytes(&size));
  drop_error(api, error);
  if (error != NULL || (size_t)nbytes > size.on_device_size_in_bytes) return 0;
  error = CALL(api, PJRT_Buffer_ReadyEvent, &ready);
  drop_error(api, error);
  if (error != NULL || ready.event == NULL) return 0;
  int there = event_await(api, ready.event);
  error = there == 1 ? event_take_error(api, ready.event) : NULL;
  event_destroy_native(api, ready.event);
  return error == NULL ? there : failed(raise_status(api, error, ""));
}

/* Buffer._copy_raw(destination, event type) -> Event or None: copies the first bytes of the device
   memory (PJRT_Buffer_CopyRawToHost). */
PyObject *buffer_copy_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (nargs != 2) return PyErr_Format(PyExc_TypeError, "_copy_raw(destination, event type)");
  if (!buffer_usable(buffer)) return NULL;
  ClientObject *client = buffer->client;
  const PJRT_Api *api = client->api;
  SIZED(PJRT_Buffer_CopyRawToHost_Args, copy);
  PyObject *memory = NULL, *event = NULL;
  Py_ssize_t nbytes = 0;
  if (OFFERS(api, PJRT_Buffer_CopyRawToHost) && OFFERS(api, PJRT_Buffer_OnDeviceSizeInBytes) &&
      !deletion_known(api, buffer->ptr))
    memory = writable(args[0], &copy.dst, &nbytes);
  if (memory == NULL) Py_RETURN_NONE;
  client_enter(client);
  int there = await_bytes(api, buffer->ptr, nbytes);
  if (there == 1) {
    copy.buffer = buffer->ptr;
    copy.transfer_size = nbytes;
    PJRT_Error *error = RELEASED(api->PJRT_Buffer_CopyRawToHost(&copy));
    if (error != NULL)
      raise_status(api, error, "PJRT_Buffer_CopyRawToHost");
    else if (copy.event == NULL)
      raise_answer("PJRT_Buffer_CopyRawToHost", "no event");
    else if ((event = event_wrap((PyTypeObject *)args[1], client, copy.event)) != NULL)
      ((EventObject *)event)->kept = Py_NewRef(memory);
  }
  client_leave(client);
  Py_DECREF(memory);
  if (there == 0) Py_RETURN_NONE;
  return event;
}
