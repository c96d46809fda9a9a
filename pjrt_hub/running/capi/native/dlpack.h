/* DLPack: lending and borrowing memory. */
#pragma once

#include "process.h"

PyObject *dlpack_lend(PyObject *module, PyObject *args);
PyObject *dlpack_borrow(PyObject *module, PyObject *capsule);
