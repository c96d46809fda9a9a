/* One launch of an executable: between executable.c and bound_call.c, who ask for it, and launch.c. */
#ifndef PJRT_HUB_LAUNCH_H
#define PJRT_HUB_LAUNCH_H

#include "hotpath.h"

enum { ON_STACK = 256 };

/* What one launch needs; on the stack for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *const *const *inputs; /* [num_devices][num_parameters] */
  PJRT_Buffer ***outputs;            /* [num_devices][num_outputs] */
  Py_ssize_t num_devices;
  PJRT_Device *execute_device; /* NULL: the executable's own devices */
  PJRT_Event *event, **events; /* of each device, where the caller or the client's turns need them */
  bool asked;                  /* the caller does */
  Turn turn;
  void *heap;
  PJRT_Buffer **rows[2]; /* of one device: of the inputs, of the outputs */
  PJRT_Buffer *buffers[2 * ON_STACK];
} Launch;

int launch_prepare(Launch *launch, ExecutableObject *exe, Py_ssize_t devices);
int launch_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument);
int launch_argument(ExecutableObject *exe, Py_ssize_t index, PyObject *device, PyObject *argument);
bool launch_turn(Launch *launch, ExecutableObject *exe, int launch_id);
PJRT_Error *launch_run(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options);
void launch_refused(Launch *launch, ExecutableObject *exe);
PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments);
int launch_refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows);
PyObject *launch_outputs(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                         bool simplify);
PyObject *launch_rows(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                      PyObject *rows, PyObject *devices, PyTypeObject *event_type);

/* Where `rows` were written by launch_prepare. */
static inline PJRT_Buffer **launch_row(Launch *launch, Py_ssize_t device) {
  return (PJRT_Buffer **)launch->inputs[device];
}

/* Compares an argument with its parameter; -1 with an exception set. Most are what the program's
   signature holds, to the very objects. */
static inline int take_argument(ExecutableObject *exe, Py_ssize_t index, PyObject *device,
                                PyObject *argument, PJRT_Buffer **out) {
  const Slot *slot = &exe->parameters[index];
  const BufferObject *buffer = (const BufferObject *)argument;
  if ((Py_TYPE(argument) != exe->buffer_type || buffer->client != exe->client ||
       buffer->ptr == NULL || buffer->deleted || buffer->dtype != slot->dtype ||
       buffer->shape != slot->shape ||
       (buffer->layout != slot->layout && buffer->layout != NULL) ||
       buffer->dynamic != slot->dynamic || buffer->device != device) &&
      launch_argument(exe, index, device, argument) < 0)
    return -1;
  *out = buffer->ptr;
  return 0;
}

#endif
