/* Arguments: each is compared with its parameter, and arrays are put on a device for one launch.

   Plugins check only the size in bytes: code for f32[8] runs on an s32[8] buffer without an error.
   So each argument is compared with the program's signature, which was prepared at compile time. */
#include "native.h"

/* Python makes the error's message, because it knows the names of dtypes and devices. */
int argument_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument) {
  PyObject *none = PyObject_CallMethod((PyObject *)exe, "_reject", "nO", index, argument);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "an argument was refused silently");
  return -1;
}

/* Compares two shapes or layouts. If they are equal, the wanted object takes the place of the
   argument's own, so that the next comparison succeeds by identity. */
static bool same(PyObject **given, PyObject *wanted) {
  if (*given == wanted) return true;
  int equal = PyObject_RichCompareBool(*given, wanted, Py_EQ);
  if (equal != 1) return false;
  PyObject *old = *given;
  *given = Py_NewRef(wanted);
  Py_DECREF(old);
  return true;
}

static int check_buffer(ExecutableObject *exe, Py_ssize_t index, PyObject *device,
                        PyObject *argument) {
  BufferObject *buffer = (BufferObject *)argument;
  const Slot *slot = parameter(exe, index);
  if (buffer->ptr == NULL || buffer->deleted || buffer->client != exe->client ||
      (slot->dtype != 0 && buffer->dtype != slot->dtype) || buffer->device != device)
    return argument_reject(exe, index, argument);
  /* XLA's CPU plugin returns buffers of dynamic shapes, but reads such arguments as static ones. */
  if (buffer->dynamic && exe->client->on_host) return argument_reject(exe, index, argument);
  /* The memory of a dynamic shape holds fewer elements than the bound, and their number, too. */
  if (slot->shape != NULL && (!same(&buffer->shape, slot->shape) ||
                              buffer->dynamic != slot->dynamic))
    return argument_reject(exe, index, argument);
  if (slot->layout == NULL) return 0;
  if (layout_know(buffer) < 0) return -1;
  /* A column-major buffer for a row-major parameter would be read transposed, with no error. */
  return same(&buffer->layout, slot->layout) ? 0 : argument_reject(exe, index, argument);
}

/* Returns whether the array has the dtype object that Python found to match the parameter. */
static bool known_dtype(const Slot *slot, PyObject *array) {
  static PyObject *name;
  if (name == NULL && (name = PyUnicode_InternFromString("dtype")) == NULL) return false;
  PyObject *dtype = PyObject_GetAttr(array, name);
  Py_XDECREF(dtype); /* The array keeps the dtype alive. */
  return dtype == slot->host_dtype && dtype != NULL;
}

/* Puts an array if its memory matches the parameter; returns 1 if it does, 0 if not, -1 with an
   exception set. Copies during the call, because the array may change once the launch has begun. */
static int put_memory(Puts *puts, ExecutableObject *exe, const Slot *slot, PJRT_Device *place,
                      PyObject *array, PJRT_Buffer **out) {
  Py_buffer view;
  if (!known_dtype(slot, array) || PyObject_GetBuffer(array, &view, PyBUF_ND) < 0) {
    PyErr_Clear();
    return 0;
  }
  bool fits = view.ndim == slot->rank && view.buf != NULL &&
              (uintptr_t)view.buf % (size_t)view.itemsize == 0;
  for (int i = 0; fits && i < view.ndim; i++) fits = view.shape[i] == slot->dims[i];
  if (!fits) {
    PyBuffer_Release(&view);
    return 0;
  }
  HostMemory host = {.data = view.buf,
                     .nbytes = (size_t)view.len,
                     .dtype = slot->dtype,
                     .dims = slot->dims,
                     .rank = (size_t)slot->rank,
                     .device = place};
  PJRT_Error *error = upload(exe->client, &host, out);
  PyBuffer_Release(&view);
  if (error != NULL)
    return failed(raise_status(exe->client->api, error, "PJRT_Client_BufferFromHostBuffer"));
  if (*out == NULL) return failed(raise_answer("PJRT_Client_BufferFromHostBuffer", "no buffer"));
  puts->made[puts->num_made++] = *out;
  return 1;
}

/* Has Python put the argument into a Buffer, which the launch keeps. Python raises if it cannot. */
static int put_object(Puts *puts, ExecutableObject *exe, Py_ssize_t index, PyObject *device,
                      PyObject *argument, PJRT_Buffer **out) {
  PyObject *buffer, *dtype; /* `dtype` is None if put_memory cannot put such an array. */
  PyObject *answer =
      PyObject_CallMethod((PyObject *)exe, "_put", "nOO", index, argument, device);
  if (answer == NULL) return -1;
  if (!PyArg_ParseTuple(answer, "O!O", BufferType, &buffer, &dtype) ||
      (puts->kept == NULL && (puts->kept = PyList_New(0)) == NULL) ||
      PyList_Append(puts->kept, buffer) < 0 || check_buffer(exe, index, device, buffer) < 0) {
    Py_DECREF(answer);
    return -1;
  }
  if (dtype != Py_None) {
    Slot *slot = parameter(exe, index);
    Py_XDECREF(slot->host_dtype);
    slot->host_dtype = Py_NewRef(dtype);
  }
  *out = ((BufferObject *)buffer)->ptr;
  Py_DECREF(answer);
  return executable_usable(exe) ? 0 : -1; /* Python code may have closed the executable. */
}

/* Handles what take_argument's fast test rejects; returns 0, or -1 with an exception set. */
int argument_resolve(Puts *puts, ExecutableObject *exe, Py_ssize_t place, Py_ssize_t index,
                     PyObject *device, PyObject *argument, PJRT_Buffer **out) {
  if (PyObject_TypeCheck(argument, BufferType)) {
    *out = ((BufferObject *)argument)->ptr;
    return check_buffer(exe, index, device, argument);
  }
  if (puts == NULL) return argument_reject(exe, index, argument);
  if (puts->done) return 0;
  const Slot *slot = parameter(exe, index);
  if (slot->host_dtype != NULL && is_ndarray(argument)) {
    PJRT_Device *where =
        puts->device != NULL ? puts->device : exe->places[place];
    int put = put_memory(puts, exe, slot, where, argument, out);
    if (put != 0) return put < 0 ? -1 : 0;
  }
  return put_object(puts, exe, index, device, argument, out);
}
