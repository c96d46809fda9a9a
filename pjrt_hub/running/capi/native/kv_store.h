/* Key-value stores, which a plugin asks. */
#pragma once

#include "process.h"

PyObject *kv_store(PyObject *module, PyObject *args);
