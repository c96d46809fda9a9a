/* Buffer: the owner of one PJRT_Buffer. */
#pragma once

#include "client.h"

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Buffer *ptr; /* NULL once destroyed */
  PyObject *shape;  /* tuple of int */
  PyObject *layout; /* minor_to_major as a tuple, None for row-major, NULL for not asked yet */
  PyObject *device;
  PyObject *source; /* the host array whose memory the buffer shares, or NULL */
  PJRT_Event *done; /* with source: the plugin no longer looks into it */
  int dtype;        /* PJRT_Buffer_Type */
  bool dynamic;     /* the shape is a bound: what lies in memory is less, packed */
  bool scattered;   /* there are tiles or gaps: only the plugin can read it */
  bool deleted;
  int launches;     /* on several devices, that have checked it and not used it yet */
  /* Python's attributes: were they slots of the Python class, the end of each Buffer would look for
     them by their descriptions. */
  PyObject *weakrefs, *ready;
} BufferObject;

extern PyTypeObject *BufferType;
extern PyType_Slot buffer_slots[];
bool buffer_refuse(const BufferObject *buffer);
void buffer_type_made(PyTypeObject *type);
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device);
bool buffer_ask_dynamic(const PJRT_Api *api, PJRT_Buffer *ptr);
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr);
int buffer_traverse(PyObject *self, visitproc visit, void *arg);
void buffer_dealloc(PyObject *self);

/* Whether there is one to use; raises ClosedError. */
static inline bool buffer_usable(const BufferObject *buffer) {
  if (buffer->client == NULL || buffer->ptr == NULL || buffer->deleted) return buffer_refuse(buffer);
  return client_usable(buffer->client);
}
