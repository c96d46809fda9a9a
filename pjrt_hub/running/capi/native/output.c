/* Outputs: the results of a launch, as Buffers.

   Each buffer is asked for what the signature leaves open. */
#include "native.h"

/* Raises an error that names a function which the plugin lacks; returns false. */
static bool refuse_without(ExecutableObject *exe, const char *function) {
  PyObject *none = PyObject_CallMethod((PyObject *)exe, "_require", "s", function);
  Py_XDECREF(none);
  return false;
}

/* Calls PJRT_Buffer_ElementType; returns false with an exception set. */
static bool ask_dtype(ExecutableObject *exe, PJRT_Buffer *output, int *dtype) {
  const PJRT_Api *api = exe->client->api;
  if (!OFFERS(api, PJRT_Buffer_ElementType)) return refuse_without(exe, "PJRT_Buffer_ElementType");
  SIZED(PJRT_Buffer_ElementType_Args, args, .buffer = output);
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_ElementType(&args));
  if (error == NULL) *dtype = (int)args.type;
  return error == NULL || raise_status(api, error, "PJRT_Buffer_ElementType") != NULL;
}

/* Calls PJRT_Buffer_Dimensions; returns NULL with an exception set. */
static PyObject *ask_shape(ExecutableObject *exe, PJRT_Buffer *output) {
  const PJRT_Api *api = exe->client->api;
  if (!OFFERS(api, PJRT_Buffer_Dimensions) && !refuse_without(exe, "PJRT_Buffer_Dimensions"))
    return NULL;
  SIZED(PJRT_Buffer_Dimensions_Args, args, .buffer = output);
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_Dimensions(&args));
  if (error != NULL) return raise_status(api, error, "PJRT_Buffer_Dimensions");
  if (args.num_dims > MAX_RANK || (args.dims == NULL && args.num_dims > 0))
    return raise_answer("PJRT_Buffer_Dimensions", "dimensions that no buffer has");
  return tuple_of(args.dims, (Py_ssize_t)args.num_dims);
}

/* Wraps an output whose dtype or shape the signature leaves open. */
static PyObject *wrap_asked(ExecutableObject *exe, const Slot *slot, PJRT_Buffer *output,
                            PyObject *where) {
  int dtype = slot->dtype;
  PyObject *shape = Py_XNewRef(slot->shape);
  if ((dtype == 0 && !ask_dtype(exe, output, &dtype)) ||
      (shape == NULL && (shape = ask_shape(exe, output)) == NULL)) {
    Py_XDECREF(shape);
    buffer_destroy_native(exe->client, output);
    return NULL;
  }
  bool dynamic = slot->shape != NULL ? slot->dynamic : buffer_ask_dynamic(exe->client->api, output);
  PyObject *buffer =
      buffer_wrap(exe->buffer_type, exe->client, output, dtype, shape, slot->layout, where);
  if (buffer != NULL) ((BufferObject *)buffer)->dynamic = dynamic;
  Py_DECREF(shape);
  return buffer;
}

/* Makes a Buffer of an output, which is destroyed if that fails. */
PyObject *output_buffer(ExecutableObject *exe, Py_ssize_t index, PJRT_Buffer *output,
                        PyObject *where) {
  const Slot *slot = &exe->outputs[index];
  if (output == NULL)
    return raise_answer("PJRT_LoadedExecutable_Execute", "no buffer for an output");
  if (slot->dtype == 0 || slot->shape == NULL) return wrap_asked(exe, slot, output, where);
  PyObject *buffer = buffer_wrap(exe->buffer_type, exe->client, output, slot->dtype, slot->shape,
                                 slot->layout, where);
  if (buffer != NULL) ((BufferObject *)buffer)->dynamic = slot->dynamic;
  return buffer;
}

/* Checks whether the first outputs have the layouts that the compiler stated. */
static void prove_layouts(ExecutableObject *exe, PyObject *outputs) {
  exe->proven = true;
  if (!PyTuple_Check(outputs)) {
    layout_prove(&exe->outputs[0].layout, (BufferObject *)outputs);
    return;
  }
  for (Py_ssize_t i = 0; i < exe->num_outputs; i++)
    layout_prove(&exe->outputs[i].layout, (BufferObject *)PyTuple_GetItem(outputs, i));
}

static PyObject *wrap_outputs(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                              bool simplify) {
  if (simplify && exe->num_outputs == 1)
    return output_buffer(exe, 0, outputs[0], where);
  PyObject *result = PyTuple_New(exe->num_outputs);
  for (Py_ssize_t i = 0; i < exe->num_outputs; i++) {
    PyObject *buffer = NULL;
    if (result != NULL)
      buffer = output_buffer(exe, i, outputs[i], where);
    else if (outputs[i] != NULL)
      buffer_destroy_native(exe->client, outputs[i]);
    if (buffer != NULL)
      PyTuple_SetItem(result, i, buffer);
    else
      Py_CLEAR(result);
  }
  return result;
}

PyObject *output_result(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                        bool simplify) {
  PyObject *result = wrap_outputs(exe, where, outputs, simplify);
  if (!exe->proven && result != NULL) prove_layouts(exe, result);
  return result;
}
