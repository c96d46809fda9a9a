/* Host transfers: what a running program sends and receives. */
#pragma once

#include "process.h"

PyObject *host_transfer(PyObject *module, PyObject *args);
PyObject *host_transfer_end(PyObject *module, PyObject *args);
