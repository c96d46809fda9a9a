/* Launch: one execution. */
#pragma once

#include "argument.h"

enum { ON_STACK = 256 };

/* The state of a launch, with memory for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *const *const *inputs; /* [num_devices][num_arguments] */
  PJRT_Buffer ***outputs;            /* [num_devices][num_outputs] */
  Py_ssize_t num_devices, num_arguments;
  PJRT_Event *event, **events; /* An event for each device, if the caller or the gate needs them. */
  bool asked;                  /* The caller wants the events. */
  Puts puts;
  bool together; /* The program runs on several devices. */
  Gate *gate; /* NULL if the launch takes no turn. */
  void *heap;
  PJRT_Buffer **rows[2]; /* The row of inputs and the row of outputs, if there is one device. */
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
PJRT_Error *launch_again(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                         PJRT_Error *error);
PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments);
PyObject *launch_recover(Launch *launch, ExecutableObject *exe, PJRT_Error *error,
                         PyObject *arguments, bool simplify);
int launch_refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows);
PyObject *launch_rows(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                      PyObject *rows, PyObject *devices, PyTypeObject *event_type);

/* Returns a row of inputs for writing. `inputs` must still be what launch_prepare set. */
static inline PJRT_Buffer **launch_row(Launch *launch, Py_ssize_t device) {
  return (PJRT_Buffer **)launch->inputs[device];
}
