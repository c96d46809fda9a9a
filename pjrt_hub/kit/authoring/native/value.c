/* Copies texts and PJRT_NamedValue from Python's values, and turns them into Python's values again. */
#include "plugin.h"

/* Finds the bytes of a str or bytes. Returns false and sets an exception if that fails. */
bool is_text(PyObject *object, const char **data, size_t *size) {
  Py_ssize_t length = 0;
  *data = NULL;
  if (PyBytes_Check(object))
    PyBytes_AsStringAndSize(object, (char **)data, &length);
  else
    *data = PyUnicode_AsUTF8AndSize(object, &length);
  *size = (size_t)length;
  return *data != NULL;
}

/* Returns a copy that ends with a NUL. Returns NULL and sets an exception if that fails. */
const char *take_text(PluginArena *arena, PyObject *object) {
  const char *data;
  size_t size;
  return is_text(object, &data, &size) ? plugin_take_text(arena, data, size) : NULL;
}

static bool named_value(PluginArena *arena, PyObject *name, PyObject *value, PJRT_NamedValue *to) {
  const char *text;
  *to = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE, .value_size = 1};
  if (!is_text(name, &text, &to->name_size)) return false;
  to->name = plugin_take_text(arena, text, to->name_size);
  if (PyBool_Check(value)) {
    to->type = PJRT_NamedValue_kBool;
    to->bool_value = value == Py_True;
  } else if (PyLong_Check(value)) {
    to->type = PJRT_NamedValue_kInt64;
    to->int64_value = PyLong_AsLongLong(value);
  } else if (PyFloat_Check(value)) {
    to->type = PJRT_NamedValue_kFloat;
    to->float_value = (float)PyFloat_AsDouble(value);
  } else if (PyUnicode_Check(value)) {
    to->type = PJRT_NamedValue_kString;
    if (is_text(value, &text, &to->value_size)) to->string_value = plugin_take_text(arena, text, to->value_size);
  } else if (PySequence_Check(value)) {
    Py_ssize_t count = PySequence_Size(value);
    int64_t *numbers = PLUGIN_TAKE(arena, int64_t, (size_t)(count > 0 ? count : 0));
    for (Py_ssize_t i = 0; i < count; i++) {
      PyObject *item = PySequence_GetItem(value, i);
      numbers[i] = item == NULL ? -1 : PyLong_AsLongLong(item);
      Py_XDECREF(item);
    }
    to->type = PJRT_NamedValue_kInt64List;
    to->int64_array_value = numbers;
    to->value_size = (size_t)count;
  } else {
    PyErr_SetString(PyExc_TypeError, "an attribute is a str, int, float, bool or a list of int");
  }
  return !PyErr_Occurred();
}

/* Returns false and sets an exception if it fails. */
bool named_values(PluginArena *arena, PyObject *dict, PJRT_NamedValue **values, size_t *count) {
  PyObject *name, *value;
  Py_ssize_t position = 0;
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "attributes are a dict");
    return false;
  }
  *count = 0;
  *values = PLUGIN_TAKE(arena, PJRT_NamedValue, (size_t)PyDict_Size(dict));
  while (PyDict_Next(dict, &position, &name, &value))
    if (!named_value(arena, name, value, &(*values)[(*count)++])) return false;
  return true;
}

static PyObject *value_of(const PJRT_NamedValue *value) {
  switch (value->type) {
    case PJRT_NamedValue_kString:
      return PyUnicode_FromStringAndSize(value->string_value, (Py_ssize_t)value->value_size);
    case PJRT_NamedValue_kInt64: return PyLong_FromLongLong(value->int64_value);
    case PJRT_NamedValue_kFloat: return PyFloat_FromDouble((double)value->float_value);
    case PJRT_NamedValue_kBool: return PyBool_FromLong(value->bool_value);
    case PJRT_NamedValue_kInt64List: break;
    default: Py_RETURN_NONE;
  }
  PyObject *list = PyList_New((Py_ssize_t)value->value_size);
  for (size_t i = 0; list != NULL && i < value->value_size; i++)
    PyList_SetItem(list, (Py_ssize_t)i, PyLong_FromLongLong(value->int64_array_value[i]));
  return list;
}

PyObject *dict_of(const PJRT_NamedValue *values, size_t count) {
  PyObject *dict = PyDict_New();
  for (size_t i = 0; dict != NULL && i < count; i++) {
    PyObject *name = PyUnicode_FromStringAndSize(values[i].name, (Py_ssize_t)values[i].name_size);
    PyObject *value = value_of(&values[i]);
    if (name == NULL || value == NULL || PyDict_SetItem(dict, name, value) < 0) Py_CLEAR(dict);
    Py_XDECREF(name);
    Py_XDECREF(value);
  }
  return dict;
}
