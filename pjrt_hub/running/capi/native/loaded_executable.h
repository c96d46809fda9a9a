/* LoadedExecutable: the object's struct. Other files deal with arguments, outputs and launches. */
#pragma once

#include "buffer.h"

/* The type of a parameter or an output. If a part is unknown (dtype 0, shape or layout NULL), a
   parameter accepts anything there, and each buffer of an output is asked for it. */
typedef struct {
  int dtype;
  PyObject *shape;
  PyObject *layout;
  bool dynamic;     /* Some dimensions are upper bounds. */
  int rank;
  int64_t *dims;        /* The dimensions of `shape`. */
  PyObject *host_dtype; /* The dtype of numpy arrays that are put without conversion, or NULL. */
} Slot;

typedef struct {
  PyObject_HEAD
  Child child;
  vectorcallfunc vectorcall;
  ClientObject *client;
  PJRT_LoadedExecutable *ptr;
  PyTypeObject *buffer_type;
  PyObject *devices; /* A tuple in the order of the argument lists. */
  PyObject *device;  /* The first device, a reference borrowed from the tuple, or NULL. */
  PJRT_Device **places; /* The native devices in the same order. */
  Slot *parameters, *outputs;
  Py_ssize_t num_parameters, num_outputs, num_devices; /* The first is -1 if calls must fail. */
  bool open; /* The parameters are unknown, so all arguments are compared with the first slot. */
  bool closed;
  bool proven;   /* The outputs' layouts have been compared with those of buffers. */
  bool adaptive; /* Brief launches keep the GIL, as launch.c explains. */
  bool brief;    /* Launches are brief, as far as the samples show. */
  bool doubted;  /* The last sample contradicted `brief`. */
  int unsampled; /* The number of launches until the next sample. */
} ExecutableObject;
LISTED(ExecutableObject);

/* Returns whether the executable can still run; if not, raises ClosedError. */
static inline bool executable_usable(const ExecutableObject *exe) {
  if (exe->client != NULL && exe->ptr != NULL && !exe->closed) return client_usable(exe->client);
  if (exe->client == NULL)
    raise_closed("this executable was never loaded by a client");
  else if (client_usable(exe->client))
    raise_closed("the executable is closed");
  return false;
}

/* Returns the slot that an argument is compared with. */
static inline Slot *parameter(const ExecutableObject *exe, Py_ssize_t index) {
  return &exe->parameters[exe->open ? 0 : index];
}

/* Returns whether the program may take that many arguments. */
static inline bool executable_takes(const ExecutableObject *exe, Py_ssize_t arguments) {
  return arguments == exe->num_parameters || exe->open;
}
