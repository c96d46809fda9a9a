/* The calls of an executable: exe(a, b) and exe.execute(rows). */
#pragma once

#include "loaded_executable.h"

extern PyTypeObject *ExecutableType;
extern PyType_Spec executable_spec;
PyObject *executable_wrong_count(ExecutableObject *exe, Py_ssize_t given);
PyObject *executable_row(ExecutableObject *exe, PyObject *rows, Py_ssize_t device, Py_ssize_t count);
Py_ssize_t executable_arguments_in(const ExecutableObject *exe, PyObject *rows);
