/* Uploads: from host memory to buffers. */
#pragma once

#include "client.h"

typedef struct {
  const void *data;
  size_t nbytes;
  int dtype; /* A PJRT_Buffer_Type. */
  const int64_t *dims;
  size_t rank;
  PJRT_Device *device; /* The destination, unless `memory` is set. */
  PJRT_Memory *memory; /* NULL for the device's default memory. */
} HostMemory; /* Contiguous host memory and its destination. */
bool element_packed(int dtype);
PyObject *numpy_ndarray(void);
bool is_ndarray(PyObject *object);
bool upload_opens(PyObject *object, Py_buffer *view, int *dtype);
PJRT_Error *upload(ClientObject *client, const HostMemory *host, PJRT_Buffer **buffer);
PyObject *upload_plain(PyObject *type, PyObject *const *args, Py_ssize_t nargs);
PyObject *upload_put(PyObject *type, PyObject *args);
