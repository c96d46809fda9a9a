/* Copies of a buffer: to another device, and of its bytes into host memory. */
#pragma once

#include "process.h"

PyObject *buffer_copy_to_device(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *buffer_copy_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
