/* The dispatcher: it calls Python functions once a plugin's work is done. */
#pragma once

#include "process.h"

bool dispatcher_call(PyObject *callable);
void dispatcher_let_go(const PJRT_Api *api, PJRT_Event *event, PyObject *object);
PyObject *dispatcher_notify(PyObject *module, PyObject *args);
PyObject *dispatcher_keep(PyObject *module, PyObject *args);
PyObject *dispatcher_deleter(PyObject *module, PyObject *args);
PyObject *dispatcher_wake(PyObject *module, PyObject *fd);
PyObject *dispatcher_dispatch(PyObject *module, PyObject *unused);
PyObject *dispatcher_end(PyObject *module, PyObject *unused);
void dispatcher_reset(void);
void report_unraisable(PyObject *callable);
