/* Calls of a plugin's compiler to Python. */
#pragma once

#include "process.h"

PyObject *xla_transform(PyObject *module, PyObject *callable);
PyObject *custom_partitioner(PyObject *module, PyObject *args);
