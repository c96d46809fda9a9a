/* Launch: one execution. */
#pragma once

#include "argument.h"

enum { ON_STACK = 256 };

/* What few calls need, apart from the others, which so pay nothing for it. */
#define COLD __attribute__((cold, noinline))

/* What one launch needs; on the stack for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *const *const *inputs; /* [num_devices][num_arguments] */
  PJRT_Buffer ***outputs;            /* [num_devices][num_outputs] */
  Py_ssize_t num_devices, num_arguments;
  PJRT_Event *event, **events; /* of each device, where the caller or the client's turns need them */
  bool asked;                  /* the caller does */
  Puts puts;
  bool together; /* on several devices */
  Gate *gate; /* NULL: it takes no turn */
  void *heap;
  PJRT_Buffer **rows[2]; /* of one device: of the inputs, of the outputs */
  PJRT_Buffer *buffers[3 * ON_STACK];
} Launch;

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

/* Where `rows` were written by launch_prepare. */
static inline PJRT_Buffer **launch_row(Launch *launch, Py_ssize_t device) {
  return (PJRT_Buffer **)launch->inputs[device];
}
