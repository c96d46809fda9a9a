/* LoadedExecutable: the object, whose arguments, outputs and launches are in files of their own. */
#pragma once

#include "buffer.h"

/* What one parameter must be, or what one output is. What nobody tells (dtype 0, shape and layout
   NULL) is any for a parameter, and asked of each buffer for an output. */
typedef struct {
  int dtype;
  PyObject *shape;
  PyObject *layout;
  bool dynamic;     /* some dimensions are bounds */
  int rank;
  int64_t *dims;        /* the shape */
  PyObject *host_dtype; /* of a numpy array that was put as it lies, or NULL */
} Slot;

typedef struct {
  PyObject_HEAD
  Child child;
  vectorcallfunc vectorcall;
  ClientObject *client;
  PJRT_LoadedExecutable *ptr;
  PyTypeObject *buffer_type;
  PyObject *devices; /* tuple, in the order of the argument lists */
  PyObject *device;  /* the first of them, which the tuple holds, or NULL */
  PJRT_Device **places; /* the same */
  Slot *parameters, *outputs;
  Py_ssize_t num_parameters, num_outputs, num_devices; /* the first -1 where it cannot be called */
  bool open; /* nobody tells what it takes: any number of arguments, each like the one parameter */
  bool closed;
  bool proven;   /* the outputs' layouts were compared with those of buffers */
  bool adaptive; /* launches that are known to be short keep the GIL: see launch.c */
  bool brief;    /* they are, as far as is known */
  bool doubted;  /* the last sample said otherwise */
  int unsampled; /* launches until the next sample */
} ExecutableObject;

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
