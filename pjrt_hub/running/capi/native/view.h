/* Views: the host memory of a buffer, lent to numpy. */
#pragma once

#include "process.h"

extern PyTypeObject *HostViewType;
extern PyType_Spec host_view_spec;
PyObject *buffer_view(PyObject *self, PyObject *args);
PyObject *buffer_array(PyObject *self, PyObject *unused);
PyObject *buffer_take_dropped(PyObject *unused, PyObject *none);
int buffer_getbuffer(PyObject *self, Py_buffer *out, int flags);
