/* Functions of a plugin, called as tables describe them. */
#pragma once

#include "process.h"

#define MOST_BYTES ((Py_ssize_t)1 << 32)    /* The longest text, in bytes. */
#define MOST_ELEMENTS ((Py_ssize_t)1 << 20) /* The longest list, in elements. */
extern PyTypeObject *FunctionType, *FunctionsType;
extern PyType_Spec function_spec, functions_spec;
PyObject *functions_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);
