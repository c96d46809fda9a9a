/* Storage: the memory of a buffer. In host memory, unless the backend keeps it on a device of its own. */
#include "plugin.h"

/* In memory every element has a byte at least, also those of fewer bits: as numpy has them. */
size_t element_size(int type) {
  switch (type) {
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
    case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16: return 2;
    case PJRT_Buffer_Type_S32:
    case PJRT_Buffer_Type_U32:
    case PJRT_Buffer_Type_F32: return 4;
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
    case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C64: return 8;
    case PJRT_Buffer_Type_C128: return 16;
    case PJRT_Buffer_Type_INVALID:
    case PJRT_Buffer_Type_TOKEN: return 0;
    default: return type > 0 && type <= PJRT_Buffer_Type_F6E3M2FN ? 1 : 0;
  }
}

/* False for a shape that no memory holds. */
bool shape_size(int type, const int64_t *dims, size_t rank, size_t *size) {
  *size = element_size(type);
  if (*size == 0 || rank > MAX_RANK) return false;
  bool empty = false;
  for (size_t i = 0; i < rank; i++) {
    if (dims[i] < 0) return false;
    if (dims[i] == 0)
      empty = true;
    else if (__builtin_mul_overflow(*size, (size_t)dims[i], size) || *size > PTRDIFF_MAX)
      return false;
  }
  if (empty) *size = 0;
  return true;
}

/* The steps in bytes of an array without gaps; row-major where the order of dimensions is NULL. */
void dense_strides(int64_t *strides, const int64_t *dims, size_t rank, size_t width,
                   const int64_t *minor_to_major) {
  int64_t step = (int64_t)width;
  for (size_t i = 0; i < rank; i++) {
    size_t dimension = minor_to_major != NULL ? (size_t)minor_to_major[i] : rank - 1 - i;
    strides[dimension] = step;
    step *= dims[dimension];
  }
}

/* Copies element by element, the innermost runs whole where both sides have no gaps. */
void copy_strided(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides,
                  const int64_t *dims, size_t rank, size_t width) {
  size_t run = width;
  while (rank > 0 && to_strides[rank - 1] == (int64_t)run && from_strides[rank - 1] == (int64_t)run)
    run *= (size_t)dims[--rank];
  int64_t index[MAX_RANK] = {0};
  for (size_t i = 0; i < rank; i++)
    if (dims[i] == 0) return;
  for (;;) {
    memcpy(to, from, run);
    size_t i = rank;
    for (; i > 0; i--) {
      to += to_strides[i - 1];
      from += from_strides[i - 1];
      if (++index[i - 1] < dims[i - 1]) break;
      index[i - 1] = 0;
      to -= to_strides[i - 1] * dims[i - 1];
      from -= from_strides[i - 1] * dims[i - 1];
    }
    if (i == 0) return;
  }
}

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

/* Host memory; NULL where there is not enough. */
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

/* Somebody else's memory, which release(data, argument) gives back. */
Storage *storage_view(void *data, size_t size, void (*release)(void *, void *), void *argument) {
  Storage *storage = make(NULL, size);
  if (storage == NULL) return NULL;
  storage->data = data;
  storage->borrowed = true;
  storage->release = release;
  storage->release_argument = argument;
  return storage;
}

/* Where a device keeps a buffer: a handle to come, if the backend has memory of its own. */
Storage *storage_room(PJRT_Device *device, size_t size) {
  return device->client->backend->own_memory ? make(device, size) : storage_new(device, size);
}

/* Host memory from which that is filled: itself, where it is host memory. */
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

/* How Python sees host memory: an object with the buffer protocol that holds a reference. */
typedef struct {
  PyObject_HEAD
  Storage *storage;
} StorageObject;

PyTypeObject *StorageType;

PyObject *storage_for_python(Storage *storage) {
  if (storage->handle != NULL) return Py_NewRef(storage->handle);
  StorageObject *object = PyObject_New(StorageObject, StorageType);
  if (object != NULL) object->storage = storage_share(storage);
  return (PyObject *)object;
}

static int get_buffer(PyObject *self, Py_buffer *view, int flags) {
  Storage *storage = ((StorageObject *)self)->storage;
  return PyBuffer_FillInfo(view, self, storage->data, (Py_ssize_t)storage->size, 1, flags);
}

static void dealloc(PyObject *self) {
  PyTypeObject *type = Py_TYPE(self);
  storage_let_go(((StorageObject *)self)->storage);
  PyObject_Free(self);
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
