/* Buffer: the owner of one PJRT_Buffer. */
#pragma once

#include "client.h"

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Buffer *ptr; /* NULL once the native buffer is destroyed. */
  PyObject *shape;  /* A tuple of int. */
  PyObject *layout; /* The tuple minor_to_major, None for row-major, NULL while it is unknown. */
  PyObject *device;
  PyObject *source; /* The host array whose memory the buffer shares, or NULL. */
  PJRT_Event *done; /* Once this is ready, the plugin no longer reads `source`. */
  int dtype;        /* A PJRT_Buffer_Type. */
  bool dynamic;     /* `shape` is only a bound: the memory holds fewer elements, packed. */
  bool scattered;   /* The memory has tiles or gaps, so only the plugin can read it. */
  bool deleted;
  int launches;     /* Launches on several devices that checked the buffer and will use it. */
  /* If these were __slots__ in Python, each deallocation would search for their descriptors. */
  PyObject *weakrefs, *ready;
} BufferObject;
LISTED(BufferObject);

extern PyTypeObject *BufferType;
extern PyType_Slot buffer_slots[];
bool buffer_refuse(const BufferObject *buffer);
void buffer_type_made(PyTypeObject *type);
PyObject *buffer_note_origins(PyObject *module, PyObject *callable);
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device);
PyObject *buffer_wrap_copy(const BufferObject *buffer, PJRT_Buffer *ptr, PyObject *device);
bool buffer_ask_dynamic(const PJRT_Api *api, PJRT_Buffer *ptr);
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr);
int buffer_traverse(PyObject *self, visitproc visit, void *arg);
void buffer_dealloc(PyObject *self);

/* Returns whether the buffer can be used; if not, raises ClosedError. */
static inline bool buffer_usable(const BufferObject *buffer) {
  if (buffer->client == NULL || buffer->ptr == NULL || buffer->deleted) return buffer_refuse(buffer);
  return client_usable(buffer->client);
}
