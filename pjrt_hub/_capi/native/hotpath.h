/* What the files of the compiled call path share: the objects and the few functions between them.

   Rules that hold everywhere in it:
   - The GIL guards every field and list; it is released only around calls that may block.
   - Code that a plugin's threads run (on_ready) never touches Python.
   - A native object is destroyed once, by the object that owns it, and never after a fork. */
#ifndef PJRT_HUB_HOTPATH_H
#define PJRT_HUB_HOTPATH_H

#define PY_SSIZE_T_CLEAN
#include <Python.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <structmember.h>

#include "pjrt_api.h"

/* Python 3.11's limited API lacks these names; the layout behind them is stable since 3.8. */
#if Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#define PyVectorcall_NARGS(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
#endif

typedef struct BufferObject BufferObject;
typedef struct EventObject EventObject;
typedef struct ExecutableObject ExecutableObject;

/* One PJRT_Client. Its children hold it alive, and it lists them so that close() can destroy them
   before it. */
typedef struct {
  PyObject_HEAD
  const PJRT_Api *api;
  PJRT_Client *ptr;
  BufferObject *buffers;
  EventObject *events;
  ExecutableObject *executables;
  Py_ssize_t busy;    /* native calls in flight without the GIL: destruction waits for them */
  Py_ssize_t exports; /* host views alive: they point into memory that the client owns */
  unsigned generation;
  bool closed;
  bool on_host; /* buffers live in host memory, so destroying one never blocks */
} ClientObject;

struct BufferObject {
  PyObject_HEAD
  ClientObject *client;
  PJRT_Buffer *ptr; /* NULL once destroyed */
  PyObject *shape;  /* tuple of int */
  PyObject *layout; /* minor_to_major as a tuple, None for row-major, NULL for not asked yet */
  PyObject *device;
  int dtype; /* PJRT_Buffer_Type */
  bool deleted;
  Py_ssize_t exports;
  BufferObject *previous, *next;
};

struct EventObject {
  PyObject_HEAD
  ClientObject *client;
  PJRT_Event *ptr; /* NULL once destroyed */
  EventObject *previous, *next;
};

/* What one parameter must be, or what one output is. */
typedef struct {
  int dtype;
  PyObject *shape;
  PyObject *layout;
} Slot;

struct ExecutableObject {
  PyObject_HEAD
  vectorcallfunc vectorcall;
  ClientObject *client;
  PJRT_LoadedExecutable *ptr;
  PyTypeObject *buffer_type;
  PyObject *devices; /* tuple, in the order of the argument lists */
  Slot *parameters, *outputs;
  Py_ssize_t num_parameters, num_outputs, num_devices;
  bool closed;
  ExecutableObject *previous, *next;
};

extern PyTypeObject *ClientType, *BufferType, *EventType, *ExecutableType, *HostViewType;
extern unsigned fork_generation;

/* client.c */
bool client_usable(ClientObject *client);
void client_enter(ClientObject *client);
void client_leave(ClientObject *client);
void client_export_ended(ClientObject *client);

/* buffer.c */
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device);
void buffer_destroy(BufferObject *buffer);
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr);
bool buffer_usable(BufferObject *buffer);

/* executable.c */
void executable_destroy(ExecutableObject *executable);

/* event.c */
int event_await(const PJRT_Api *api, PJRT_Event *event, double seconds);
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event);
void event_destroy(EventObject *event);
void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr);
PyObject *event_notify(PyObject *module, PyObject *args);
PyObject *event_notified(PyObject *module, PyObject *unused);
void event_queue_reset(void);

/* module.c */
PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function);
PyObject *raise_closed(const char *message);
int add_type(PyObject *module, PyTypeObject **slot, PyType_Spec *spec, const char *name);

extern PyType_Spec client_spec, buffer_spec, event_spec, executable_spec, host_view_spec;

#endif
