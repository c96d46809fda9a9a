/* Compact types: Python's classes over the call path's types, made as C makes types.

   An instance of what a `class` statement makes has a slower end, and before Python 3.12 a slower
   call: a quarter of what a call costs beside the plugin's own work. */
#include "hotpath.h"

#include <string.h>

/* What the class of the statement has only for itself. */
static bool stays(const char *name) {
  static const char *const names[] = {"__dict__", "__weakref__", "__slots__", "__module__", NULL};
  for (int i = 0; names[i] != NULL; i++)
    if (strcmp(name, names[i]) == 0) return true;
  return false;
}

static int move_members(PyObject *from, PyObject *to) {
  PyObject *dict = PyObject_GetAttrString(from, "__dict__"), *items = NULL;
  if (dict != NULL) items = PyMapping_Items(dict);
  Py_XDECREF(dict);
  if (items == NULL) return -1;
  int status = 0;
  for (Py_ssize_t i = 0; status == 0 && i < PyList_Size(items); i++) {
    PyObject *item = PyList_GetItem(items, i), *name = PyTuple_GetItem(item, 0);
    PyObject *text = PyUnicode_AsUTF8String(name);
    if (text == NULL)
      status = -1;
    else if (!stays(PyBytes_AsString(text)))
      status = PyObject_SetAttr(to, name, PyTuple_GetItem(item, 1));
    Py_XDECREF(text);
  }
  Py_DECREF(items);
  return status;
}

/* compact(class) -> the same as a type without a head; its base is one of the call path's. */
PyObject *compact_type(PyObject *module, PyObject *statement) {
  PyObject *base = PyObject_GetAttrString(statement, "__base__");
  if (base == NULL) return NULL;
  bool is_call = base == (PyObject *)BoundCallType;
  if (!is_call && base != (PyObject *)BufferType) {
    Py_DECREF(base);
    return PyErr_Format(PyExc_TypeError, "%R has no base that is known to need no collector",
                        statement);
  }
  PyObject *home = PyObject_GetAttrString(statement, "__module__"), *type = NULL;
  PyObject *name = PyObject_GetAttrString(statement, "__qualname__");
  PyObject *full = home != NULL && name != NULL ? PyUnicode_FromFormat("%U.%U", home, name) : NULL;
  PyObject *text = full != NULL ? PyUnicode_AsUTF8String(full) : NULL;
  PyObject *bases = text != NULL ? PyTuple_Pack(1, base) : NULL;
  if (bases != NULL) {
    PyType_Spec spec = {PyBytes_AsString(text), 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                        is_call ? bound_call_slots : buffer_slots};
    spec.flags |= is_call ? Py_TPFLAGS_HAVE_VECTORCALL : Py_TPFLAGS_DISALLOW_INSTANTIATION;
    type = PyType_FromSpecWithBases(&spec, bases);
    if (type != NULL && move_members(statement, type) < 0) Py_CLEAR(type);
    if (type != NULL && !is_call) buffer_type_made((PyTypeObject *)type);
  }
  Py_XDECREF(bases);
  Py_XDECREF(text);
  Py_XDECREF(full);
  Py_XDECREF(name);
  Py_XDECREF(home);
  Py_DECREF(base);
  return type;
}
