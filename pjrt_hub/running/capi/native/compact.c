/* Compact types: what `compact` of capi/handle.py makes of Python's classes over the call path's types. */
#include "compact.h"
#include "bound_call.h"
#include "buffer.h"

/* compact_type(base, name) -> a subclass as C makes it, whose instances have nothing more. */
PyObject *compact_type(PyObject *module, PyObject *args) {
  PyObject *base;
  const char *name;
  if (!PyArg_ParseTuple(args, "Os", &base, &name)) return NULL;
  bool is_call = base == (PyObject *)BoundCallType;
  if (!is_call && base != (PyObject *)BufferType)
    return PyErr_Format(PyExc_TypeError, "%s: %R has no compact subclasses", name, base);
  PyType_Spec spec = {name, 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                      is_call ? bound_call_slots : buffer_slots};
  spec.flags |= is_call ? Py_TPFLAGS_HAVE_VECTORCALL : Py_TPFLAGS_DISALLOW_INSTANTIATION;
  PyObject *type = PyType_FromSpecWithBases(&spec, base);
  if (type != NULL && !is_call) buffer_type_made((PyTypeObject *)type);
  return type;
}
