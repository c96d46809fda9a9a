/* Deletion: freeing a buffer's memory, and asking whether it is gone. */
#pragma once

#include "buffer.h"

void deletion_catch_up(BufferObject *buffer);
PyObject *deletion_delete(PyObject *self, PyObject *unused);
PyObject *deletion_asked(PyObject *self, void *unused);
PyObject *deletion_looked(PyObject *self, void *unused);
bool deletion_seen(const BufferObject *buffer);
bool deletion_known(const PJRT_Api *api, PJRT_Buffer *ptr);
