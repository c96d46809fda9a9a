/* Layouts: the order of a buffer's dimensions in memory. */
#pragma once

#include "buffer.h"

int layout_know(BufferObject *buffer);
void layout_prove(PyObject **word, BufferObject *output);
void layout_of_put(BufferObject *buffer);
PyObject *buffer_order(PyObject *self, PyObject *unused);
