/* Functions of a plugin that are called as its tables say. */
#pragma once

#include "process.h"

#define MOST_BYTES ((Py_ssize_t)1 << 32)    /* what bounds.py says of texts */
#define MOST_ELEMENTS ((Py_ssize_t)1 << 20) /* and of lists */
extern PyTypeObject *FunctionType, *FunctionsType;
extern PyType_Spec function_spec, functions_spec;
PyObject *functions_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
