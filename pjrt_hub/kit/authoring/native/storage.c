/* A storage is the memory of a buffer. It is host memory, unless the backend keeps it on a device of its own. */
#include "plugin.h"

enum { ALIGNMENT = 64 };

static Plugin *plugin_of(const PluginStorage *storage) { return storage->device->client->plugin; }

/* Returns whether only the bridge can read the memory. Otherwise, the host can. */
static bool is_far(const PluginStorage *storage) {
  return !storage->lent && !plugin_of(storage)->host_memory;
}

PJRT_Error *plugin_allocate(PJRT_Device *device, size_t size, void **memory) {
  if (!device->client->plugin->host_memory) return NULL; /* `put`, `copy` or `execute` gives it. */
  *memory = aligned_alloc(ALIGNMENT, (size / ALIGNMENT + 1) * ALIGNMENT);
  return *memory != NULL ? NULL : plugin_no_memory(size);
}

void plugin_release(PJRT_Device *device, void *memory) {
  if (device->client->plugin->host_memory)
    free(memory);
  else
    let_go_of_python(memory);
}

/* Returns (type, dims). */
static PyObject *kind_of(const PluginArray *array) {
  PyObject *dims = PyTuple_New((Py_ssize_t)array->rank);
  for (size_t i = 0; dims != NULL && i < array->rank; i++)
    PyTuple_SetItem(dims, (Py_ssize_t)i, PyLong_FromLongLong(array->dims[i]));
  return dims == NULL ? NULL : Py_BuildValue("(iN)", (int)array->type, dims);
}

PJRT_Error *plugin_write(PluginStorage *to, PluginStorage *from, const PluginArray *array) {
  if (!is_far(to)) {
    memcpy(to->memory, from->memory, to->size);
    return NULL;
  }
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments =
      Py_BuildValue("(NNi)", storage_for_python(from), kind_of(array), to->device->description->id);
  to->memory = ask(plugin_of(to)->bridge, is_far(from) ? "copy" : "put", arguments, &error);
  upcall_ends(state);
  return error;
}

PJRT_Error *plugin_read(PluginStorage *from, PluginStorage *host, const PluginArray *array) {
  if (!is_far(from)) {
    memcpy(host->memory, from->memory, from->size);
    return NULL;
  }
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue("(NN)", storage_for_python(from), kind_of(array));
  PyObject *answer = ask(plugin_of(from)->bridge, "get", arguments, &error);
  if (answer != NULL && !storage_take(host, answer)) error = wrong_answer("get");
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

/* Takes an answer of the bridge: the handle of its memory or, for host memory, contiguous bytes. */
bool storage_take(PluginStorage *storage, PyObject *answer) {
  if (is_far(storage)) {
    storage->memory = Py_NewRef(answer);
    return true;
  }
  Py_buffer view;
  if (PyObject_GetBuffer(answer, &view, PyBUF_C_CONTIGUOUS) < 0) return false;
  bool fits = (size_t)view.len == storage->size;
  if (fits) memcpy(storage->memory, view.buf, storage->size);
  PyBuffer_Release(&view);
  return fits;
}

/* The object as which Python sees host memory. It has the buffer protocol and holds a reference. */
typedef struct {
  PyObject_HEAD
  PluginStorage *storage;
} StorageObject;

PyTypeObject *StorageType;

PyObject *storage_for_python(PluginStorage *storage) {
  if (is_far(storage)) return Py_NewRef(storage->memory);
  StorageObject *object = (StorageObject *)PyType_GenericAlloc(StorageType, 0);
  if (object != NULL) object->storage = plugin_storage_share(storage);
  return (PyObject *)object;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
  PluginStorage *storage = ((StorageObject *)self)->storage;
  return PyBuffer_FillInfo(view, self, storage->memory, (Py_ssize_t)storage->size, 1, flags);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  plugin_storage_let_go(((StorageObject *)self)->storage);
  ((freefunc)PyType_GetSlot(type, Py_tp_free))(self);
  Py_DECREF(type);
}

static PyType_Slot slots[] = {
    {Py_tp_doc, "The host memory of a buffer, read-only."},
    {Py_tp_dealloc, dealloc},
    {Py_bf_getbuffer, get_buffer},
    {0, NULL},
};

PyType_Spec storage_spec = {"pjrt_hub.kit.authoring._plugin.Storage", sizeof(StorageObject), 0,
                            Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
