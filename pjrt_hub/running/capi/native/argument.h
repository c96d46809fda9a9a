/* Arguments: each compared with its parameter, and arrays put on its device. */
#pragma once

#include "loaded_executable.h"

/* Arrays among the arguments, put for one launch. */
typedef struct {
  PJRT_Device *device; /* NULL: the executable's own devices */
  bool done;           /* the launch has them already */
  PyObject *kept;      /* NULL, or a list of Buffers of this launch alone */
  PJRT_Buffer **made;  /* native ones of this launch alone */
  Py_ssize_t num_made;
} Puts;

int argument_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument);
int argument_resolve(Puts *puts, ExecutableObject *exe, Py_ssize_t place, Py_ssize_t index,
                     PyObject *device, PyObject *argument, PJRT_Buffer **out);

/* Compares an argument with its parameter, and puts an array; -1 with an exception set. Most are
   Buffers that hold the very objects of the program's signature. `place` is the number of the row.
   Without `puts` arrays are refused. */
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
