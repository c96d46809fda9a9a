/* Arguments: each one is compared with its parameter, and arrays are put on a device. */
#pragma once

#include "loaded_executable.h"

/* The arrays among a launch's arguments, which are put on a device for this launch only. */
typedef struct {
  PJRT_Device *device; /* The device to put them on, or NULL for the executable's own devices. */
  bool done;           /* True once all arrays are put. A second pass over arguments skips them. */
  PyObject *kept;      /* A list of Buffers that only this launch holds, or NULL. */
  PJRT_Buffer **made;  /* Native buffers that only this launch holds. */
  Py_ssize_t num_made;
} Puts;

int argument_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument);
int argument_resolve(Puts *puts, ExecutableObject *exe, Py_ssize_t place, Py_ssize_t index,
                     PyObject *device, PyObject *argument, PJRT_Buffer **out);

/* Compares an argument with its parameter, and puts an array; returns -1 with an exception set.
   This fast test accepts Buffers that hold the very objects of the program's signature, as most do.
   `place` is the index of the row. If `puts` is NULL, arrays are refused. */
static inline int take_argument(Puts *puts, ExecutableObject *exe, Py_ssize_t place,
                                Py_ssize_t index, PyObject *device, PyObject *argument,
                                PJRT_Buffer **out) {
  const Slot *slot = parameter(exe, index);
  const BufferObject *buffer = (const BufferObject *)argument;
  if (Py_TYPE(argument) != exe->buffer_type || buffer->client != exe->client ||
      buffer->ptr == NULL || buffer->deleted || buffer->dtype != slot->dtype ||
      buffer->shape != slot->shape ||
      buffer->layout != slot->layout || (buffer->dynamic | slot->dynamic) ||
      buffer->device != device)
    return argument_resolve(puts, exe, place, index, device, argument, out);
  *out = buffer->ptr;
  return 0;
}
