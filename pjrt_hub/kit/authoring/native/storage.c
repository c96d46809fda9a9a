/* Storage: the memory of a buffer, which is host memory unless the backend has separate memory. */
#include "plugin.h"

static void count(PJRT_Device *device, size_t size) {
  long long now = atomic_fetch_add(&device->in_use, (long long)size) + (long long)size;
  atomic_fetch_add(&device->allocations, 1);
  for (long long peak = atomic_load(&device->peak); now > peak;)
    if (atomic_compare_exchange_weak(&device->peak, &peak, now)) break;
  for (long long largest = atomic_load(&device->largest); (long long)size > largest;)
    if (atomic_compare_exchange_weak(&device->largest, &largest, (long long)size)) break;
}

static Storage *make(PJRT_Device *device, size_t size) {
  Storage *storage = calloc(1, sizeof(Storage));
  if (storage == NULL) return NULL;
  atomic_init(&storage->references, 1);
  storage->size = size;
  storage->device = device;
  if (device != NULL) {
    client_share(device->client);
    count(device, size);
  }
  return storage;
}

/* Allocates host memory; NULL if there is not enough. */
Storage *storage_new(PJRT_Device *device, size_t size) {
  size_t rounded = (size / ALIGNMENT + 1) * ALIGNMENT;
  void *data = aligned_alloc(ALIGNMENT, rounded);
  Storage *storage = data == NULL ? NULL : make(device, size);
  if (storage == NULL) {
    free(data);
    return NULL;
  }
  storage->data = data;
  return storage;
}

/* Makes a storage of memory that is not allocated here; release(data, argument) gives it back. */
Storage *storage_view(void *data, size_t size, void (*release)(void *, void *), void *argument) {
  Storage *storage = make(NULL, size);
  if (storage == NULL) return NULL;
  storage->data = data;
  storage->borrowed = true;
  storage->release = release;
  storage->release_argument = argument;
  return storage;
}

/* Makes the storage of a new buffer. If the backend has separate memory, the handle comes later. */
Storage *storage_room(PJRT_Device *device, size_t size) {
  return device->client->backend->own_memory ? make(device, size) : storage_new(device, size);
}

/* Returns host memory from which a storage is filled; this is the storage if it is host memory. */
Storage *storage_staging(Storage *storage) {
  return storage->data == NULL ? storage_new(NULL, storage->size) : storage_share(storage);
}

Storage *storage_share(Storage *storage) {
  atomic_fetch_add(&storage->references, 1);
  return storage;
}

void storage_let_go(Storage *storage) {
  if (storage == NULL || atomic_fetch_sub(&storage->references, 1) > 1) return;
  let_go_of_python(storage->handle);
  if (!storage->borrowed)
    free(storage->data);
  else if (storage->release != NULL)
    storage->release(storage->data, storage->release_argument);
  if (storage->device != NULL) {
    atomic_fetch_sub(&storage->device->in_use, (long long)storage->size);
    client_let_go(storage->device->client);
  }
  free(storage);
}

/* Python sees host memory as an object with the buffer protocol, which holds a reference. */
typedef struct {
  PyObject_HEAD
  Storage *storage;
} StorageObject;

PyTypeObject *StorageType;

PyObject *storage_for_python(Storage *storage) {
  if (storage->handle != NULL) return Py_NewRef(storage->handle);
  StorageObject *object = (StorageObject *)PyType_GenericAlloc(StorageType, 0);
  if (object != NULL) object->storage = storage_share(storage);
  return (PyObject *)object;
}

/* Separate memory, by calls of the backend */

/* Writes host memory to a device; does nothing if both are the same memory. */
PJRT_Error *storage_fill(Storage *to, Storage *host, const ArrayType *array) {
  if (to == host) return NULL;
  if (to->data != NULL) {
    memcpy(to->data, host->data, to->size);
    return NULL;
  }
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *bridge = to->device->client->backend->bridge;
  PyObject *arguments =
      Py_BuildValue("(NNi)", storage_for_python(host), array_type_for_python(array),
                    to->device->description->id);
  to->handle = ask(bridge, "put", arguments, &error);
  upcall_ends(state);
  return error;
}

/* Copies the bridge's answer, which must be contiguous bytes, into host memory. */
static PJRT_Error *read_bytes(PyObject *answer, Storage *to, const char *name) {
  Py_buffer view;
  if (PyObject_GetBuffer(answer, &view, PyBUF_C_CONTIGUOUS) < 0) return wrong_answer(name);
  bool fits = (size_t)view.len == to->size;
  if (fits) memcpy(to->data, view.buf, to->size);
  PyBuffer_Release(&view);
  return fits ? NULL : wrong_answer(name);
}

/* Returns host memory with the same value: the storage if it is host memory, or else a copy. */
PJRT_Error *storage_on_host(Storage *storage, const ArrayType *array, Storage **host) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  *host = storage_staging(storage);
  if (*host == NULL) return plugin_no_memory(storage->size);
  if (*host == storage) return NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue("(NN)", storage_for_python(storage), array_type_for_python(array));
  PyObject *answer = ask(storage->device->client->backend->bridge, "get", arguments, &error);
  if (answer != NULL) error = read_bytes(answer, *host, "get");
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

/* Copies between devices of one backend. */
PJRT_Error *storage_copy(Storage *to, Storage *from, const ArrayType *array) {
  if (from->data != NULL) return storage_fill(to, from, array);
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) return python_is_ending();
  PyObject *arguments = Py_BuildValue("(NNi)", storage_for_python(from), array_type_for_python(array),
                                      to->device->description->id);
  to->handle = ask(to->device->client->backend->bridge, "copy", arguments, &error);
  upcall_ends(state);
  return error;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
  Storage *storage = ((StorageObject *)self)->storage;
  return PyBuffer_FillInfo(view, self, storage->data, (Py_ssize_t)storage->size, 1, flags);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  storage_let_go(((StorageObject *)self)->storage);
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
