/* XLA FFI: custom calls, and the contexts of executions. */
#pragma once

#include "process.h"

PyObject *ffi_entry(PyObject *module, PyObject *args);
PyObject *ffi_return(PyObject *module, PyObject *entry);
PyObject *ffi_share(PyObject *module, PyObject *args);
PyObject *ffi_shown(PyObject *module, PyObject *unused);
PyObject *ffi_deleter(PyObject *module, PyObject *unused);
PyObject *ffi_keep(PyObject *module, PyObject *object);
PyObject *ffi_kept(PyObject *module, PyObject *args);
PyObject *capsule_address(PyObject *module, PyObject *capsule);
PJRT_ExecuteContext *ffi_context(const PJRT_Api *api);
