/* The bridge: the Python object whose functions C calls. */
#include "plugin.h"

PJRT_Error *python_is_ending(void) {
  return plugin_error(PJRT_Error_Code_CANCELLED, "Python is ending, and this plugin is written in it");
}

PJRT_Error *wrong_answer(const char *name) {
  PyErr_Clear();
  return plugin_error(PJRT_Error_Code_INTERNAL, "the backend's %s gave something else than it should", name);
}

/* Turns the exception that is set into an error. */
static PJRT_Error *raised(PyObject *bridge, const char *name) {
  PyObject *type, *value, *traceback;
  int code;
  const char *text;
  size_t size;
  PyErr_Fetch(&type, &value, &traceback);
  PyErr_NormalizeException(&type, &value, &traceback);
  if (traceback != NULL) PyException_SetTraceback(value, traceback);
  PyObject *answer = PyObject_CallMethod(bridge, "failure", "Os", value, name);
  PJRT_Error *error = upcall_failure(answer, &code, &text, &size)
                          ? plugin_error_of((PJRT_Error_Code)code, text, size)
                          : wrong_answer(name);
  Py_XDECREF(answer);
  Py_XDECREF(type);
  Py_XDECREF(value);
  Py_XDECREF(traceback);
  return error;
}

PyObject *ask(PyObject *bridge, const char *name, PyObject *arguments, PJRT_Error **error) {
  PyObject *method = arguments == NULL ? NULL : PyObject_GetAttrString(bridge, name);
  PyObject *answer = method == NULL ? NULL : PyObject_Call(method, arguments, NULL);
  if (answer == NULL) *error = raised(bridge, name);
  Py_XDECREF(method);
  Py_XDECREF(arguments);
  return answer;
}

void let_go_of_python(PyObject *object) {
  PyGILState_STATE state;
  if (object == NULL || !upcall_begins(&state)) return; /* Python frees it when it ends. */
  PyObject *type, *value, *traceback; /* The host may have an exception set. */
  PyErr_Fetch(&type, &value, &traceback);
  Py_DECREF(object);
  PyErr_Restore(type, value, traceback);
  upcall_ends(state);
}
