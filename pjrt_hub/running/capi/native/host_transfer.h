/* Host transfers: the data that a running program sends to the host and receives from it. */
#pragma once

#include "process.h"

PyObject *host_transfer(PyObject *module, PyObject *args);
PyObject *host_transfer_end(PyObject *module, PyObject *args);
