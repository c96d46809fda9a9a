/* One launch of an executable: what argument.c, output.c and launch.c share with executable.c and
   bound_call.c, which ask for it. */
#ifndef PJRT_HUB_LAUNCH_H
#define PJRT_HUB_LAUNCH_H

#include "hotpath.h"

enum { ON_STACK = 256 };

/* What few calls need, apart from the others, which so pay nothing for it. */
#define COLD __attribute__((cold, noinline))

/* What one launch needs; on the stack for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *const *const *inputs; /* [num_devices][num_arguments] */
  PJRT_Buffer ***outputs;            /* [num_devices][num_outputs] */
  Py_ssize_t num_devices, num_arguments;
  PJRT_Device *execute_device; /* NULL: the executable's own devices */
  PJRT_Event *event, **events; /* of each device, where the caller or the client's turns need them */
  bool asked;                  /* the caller does */
  bool arrays_put;             /* those among the arguments are inputs already */
  PyObject *kept;              /* NULL, or a list of Buffers of this launch alone */
  PJRT_Buffer **made;          /* native ones of this launch alone */
  Py_ssize_t num_made;
  bool together; /* on several devices */
  Gate *gate; /* NULL: it takes no turn */
  void *heap;
  PJRT_Buffer **rows[2]; /* of one device: of the inputs, of the outputs */
  PJRT_Buffer *buffers[3 * ON_STACK];
} Launch;

/* argument.c */
int argument_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument);
int argument_resolve(Launch *launch, ExecutableObject *exe, Py_ssize_t place, Py_ssize_t index,
                     PyObject *device, PyObject *argument, PJRT_Buffer **out);

/* output.c */
PyObject *output_result(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                        bool simplify);

/* launch.c */
int launch_prepare(Launch *launch, ExecutableObject *exe, Py_ssize_t devices, Py_ssize_t arguments,
                   Gate *gate);
void launch_end(Launch *launch, ExecutableObject *exe);
bool launch_turn(Launch *launch, ExecutableObject *exe);
PJRT_Error *launch_alone(ExecutableObject *exe, PJRT_Buffer *const *const *inputs,
                         Py_ssize_t arguments, PJRT_Buffer ***outputs);
PJRT_Error *launch_run(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options);
void launch_refused(Launch *launch, ExecutableObject *exe);
PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments);
int launch_refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows);
PyObject *launch_rows(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                      PyObject *rows, PyObject *devices, PyTypeObject *event_type);

/* executable.c */
Py_ssize_t executable_arguments_in(const ExecutableObject *exe, PyObject *rows);

/* Whether it can still run; raises ClosedError. */
static inline bool executable_usable(const ExecutableObject *exe) {
  if (exe->client != NULL && exe->ptr != NULL && !exe->closed) return client_usable(exe->client);
  if (exe->client == NULL)
    raise_closed("this executable was never loaded by a client");
  else if (client_usable(exe->client))
    raise_closed("the executable is closed");
  return false;
}

/* What an argument is compared with. */
static inline Slot *parameter(const ExecutableObject *exe, Py_ssize_t index) {
  return &exe->parameters[exe->open ? 0 : index];
}

/* Whether so many arguments can be right. */
static inline bool executable_takes(const ExecutableObject *exe, Py_ssize_t arguments) {
  return arguments == exe->num_parameters || exe->open;
}

/* Where `rows` were written by launch_prepare. */
static inline PJRT_Buffer **launch_row(Launch *launch, Py_ssize_t device) {
  return (PJRT_Buffer **)launch->inputs[device];
}

/* Compares an argument with its parameter, and puts an array; -1 with an exception set. Most are
   Buffers that hold the very objects of the program's signature. `place` is the number of the row.
   Without a launch arrays are refused. */
static inline int take_argument(Launch *launch, ExecutableObject *exe, Py_ssize_t place,
                                Py_ssize_t index, PyObject *device, PyObject *argument,
                                PJRT_Buffer **out) {
  const Slot *slot = parameter(exe, index);
  const BufferObject *buffer = (const BufferObject *)argument;
  if (Py_TYPE(argument) != exe->buffer_type || buffer->client != exe->client ||
      buffer->ptr == NULL || buffer->deleted || buffer->dtype != slot->dtype ||
      buffer->shape != slot->shape ||
      buffer->layout != slot->layout || (buffer->dynamic | slot->dynamic) ||
      buffer->device != device)
    return argument_resolve(launch, exe, place, index, device, argument, out);
  *out = buffer->ptr;
  return 0;
}

#endif
