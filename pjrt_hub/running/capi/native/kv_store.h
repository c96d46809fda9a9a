/* Key-value stores that plugins use. */
#pragma once

#include "process.h"

PyObject *kv_store(PyObject *module, PyObject *args);
