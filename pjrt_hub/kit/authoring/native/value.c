/* Values: texts and PJRT_NamedValue, copied from objects of Python and turned into them again. */
#include "plugin.h"

/* Copies a str or bytes and adds a NUL. On failure, it is {NULL, 0} with an exception set. */
Text text_of(PyObject *object) {
  Text text = {NULL, 0};
  const char *data = NULL;
  Py_ssize_t size = 0;
  if (object != NULL && PyBytes_Check(object))
    PyBytes_AsStringAndSize(object, (char **)&data, &size);
  else if (object != NULL)
    data = PyUnicode_AsUTF8AndSize(object, &size);
  if (data == NULL) return text;
  return (Text){plugin_copy_text(data, (size_t)size), (size_t)size};
}

void text_free(Text text) { free(text.text); }

static bool named_value(PyObject *name, PyObject *value, PJRT_NamedValue *to) {
  Text key = text_of(name);
  *to = (PJRT_NamedValue){.struct_size = PJRT_NamedValue_STRUCT_SIZE,
                          .name = key.text,
                          .name_size = key.size,
                          .value_size = 1};
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
    Text text = text_of(value);
    to->type = PJRT_NamedValue_kString;
    to->string_value = text.text;
    to->value_size = text.size;
  } else if (PySequence_Check(value)) {
    Py_ssize_t count = PySequence_Size(value);
    int64_t *numbers = plugin_zeroed((size_t)(count > 0 ? count : 1), sizeof(int64_t));
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

/* Returns false with an exception set if these are no attributes. */
bool named_values(PyObject *dict, PJRT_NamedValue **values, size_t *count) {
  PyObject *name, *value;
  Py_ssize_t position = 0;
  if (!PyDict_Check(dict)) {
    PyErr_SetString(PyExc_TypeError, "attributes are a dict");
    return false;
  }
  *count = 0;
  *values = plugin_zeroed((size_t)PyDict_Size(dict) + 1, sizeof(PJRT_NamedValue));
  while (PyDict_Next(dict, &position, &name, &value))
    if (!named_value(name, value, &(*values)[(*count)++])) return false;
  return true;
}

void named_values_free(PJRT_NamedValue *values, size_t count) {
  for (size_t i = 0; i < count; i++) {
    free((char *)values[i].name);
    if (values[i].type == PJRT_NamedValue_kString || values[i].type == PJRT_NamedValue_kInt64List)
      free((char *)values[i].string_value);
  }
  free(values);
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
