/* Executions: one call of the bridge for all devices of a program. */
#include "plugin.h"

/* Returns a list for each device, with the objects from which the bridge makes arrays. */
static PyObject *rows_of(const PluginRun *run) {
  size_t width = run->executable->num_parameters;
  PyObject *rows = PyList_New((Py_ssize_t)run->num_devices);
  for (size_t row = 0; rows != NULL && row < run->num_devices; row++) {
    PyObject *list = PyList_New((Py_ssize_t)width);
    for (size_t i = 0; list != NULL && i < width; i++)
      PyList_SetItem(list, (Py_ssize_t)i, storage_for_python(run->inputs[row * width + i]));
    PyList_SetItem(rows, (Py_ssize_t)row, list);
  }
  return rows;
}

static PyObject *kept_by(const PluginRun *run) {
  PyObject *numbers = PyTuple_New((Py_ssize_t)run->num_kept);
  for (size_t i = 0; numbers != NULL && i < run->num_kept; i++)
    PyTuple_SetItem(numbers, (Py_ssize_t)i, PyLong_FromLongLong(run->kept[i]));
  return numbers;
}

/* The bridge has compared numbers and shapes with what the executable promised. */
static bool take_outputs(const PluginRun *run, PyObject *answer) {
  if (!PyList_Check(answer) || (size_t)PyList_Size(answer) != run->num_outputs) return false;
  for (size_t i = 0; i < run->num_outputs; i++)
    if (!storage_take(run->outputs[i], PyList_GetItem(answer, (Py_ssize_t)i))) return false;
  return true;
}

PJRT_Error *plugin_execute(PluginRun *run) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *rows = rows_of(run), *kept = kept_by(run);
  PyObject *arguments = rows == NULL || kept == NULL
                            ? NULL
                            : Py_BuildValue("(OOiO)", run->executable->code, rows, run->launch_id, kept);
  Py_XDECREF(rows);
  Py_XDECREF(kept);
  PyObject *answer = ask(run->executable->plugin->bridge, "execute", arguments, &error);
  if (answer != NULL && !take_outputs(run, answer)) error = wrong_answer("execute");
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}
