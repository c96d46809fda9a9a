/* Upcalls: how a plugin's thread calls Python. The compiled call path and plugins in Python
   (kit/authoring/native) follow the same rules, but each has a separate copy of the state. */
#ifndef PJRT_HUB_UPCALL_H
#define PJRT_HUB_UPCALL_H

#include <Python.h>

#include "structs.h"

bool upcall_begins(PyGILState_STATE *state);
void upcall_ends(PyGILState_STATE state);
bool upcall_running(void);
bool upcall_failure(PyObject *answer, int *code, const char **text, size_t *size);
PJRT_Error *upcall_error(PJRT_CallbackError *maker, PyObject *answer);
PJRT_Error *upcall_plain_error(PJRT_CallbackError *maker, PJRT_Error_Code code, const char *text);
PyObject *upcall_bytes(const char *data, size_t size);
PJRT_Error *upcall_refused(PJRT_CallbackError *maker);
void raise_later(PyObject *exception);
PyObject *upcalls_end(PyObject *module, PyObject *unused);
void upcall_reset(void);

#endif
