/* Outputs: the results of a launch, as Buffers. */
#pragma once

#include "loaded_executable.h"

PyObject *output_buffer(ExecutableObject *exe, Py_ssize_t index, PJRT_Buffer *output,
                        PyObject *where);
PyObject *output_result(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                        bool simplify);
