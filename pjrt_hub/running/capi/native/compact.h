/* Types without a dict. */
#pragma once

#include "process.h"

PyObject *compact_type(PyObject *module, PyObject *statement);
