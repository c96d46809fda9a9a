/* DLPack: memory lent to other frameworks and borrowed from them, in their common C structs. This
   file knows nothing of PJRT: its callers decide when a loan ends and what the memory means. */
#include "native.h"

enum { MAJOR = 1, MINOR = 1 };

typedef struct {
  void *data;
  int32_t device_type, device_id;
  int32_t ndim;
  uint8_t code, bits;
  uint16_t lanes;
  int64_t *shape, *strides; /* `strides` counts elements; it may be NULL before DLPack 1.2. */
  uint64_t byte_offset;
} Tensor;

/* The struct without a version, and the struct of DLPack 1, which has one. */
typedef struct Managed {
  Tensor tensor;
  void *context;
  void (*deleter)(struct Managed *self);
} Managed;

typedef struct Versioned {
  uint32_t major, minor;
  void *context;
  void (*deleter)(struct Versioned *self);
  uint64_t flags;
  Tensor tensor;
} Versioned;

static const char FRESH[] = "dltensor", USED[] = "used_dltensor";
static const char FRESH_VERSIONED[] = "dltensor_versioned";
static const char USED_VERSIONED[] = "used_dltensor_versioned";
static const char BORROWED[] = "pjrt_hub.dltensor";
static const char BORROWED_VERSIONED[] = "pjrt_hub.dltensor_versioned";

/* A loan of memory. It may end on any thread, in a forked child and after Python has ended, so
   nothing here touches Python: `release` queues what must be done. */
typedef struct {
  union {
    Managed managed;
    Versioned versioned;
  } as;
  void (*release)(void *memory, void *argument);
  void *argument;
  int64_t extents[]; /* The shape, then the strides. */
} Loan;

static void loan_end(Loan *loan) {
  loan->release(NULL, loan->argument);
  free(loan);
}

static void end_managed(Managed *self) { loan_end(self->context); }

static void end_versioned(Versioned *self) { loan_end(self->context); }

/* Ends the loan of a capsule that no framework took. */
static void drop_fresh(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, FRESH))
    end_managed(PyCapsule_GetPointer(capsule, FRESH));
  else if (PyCapsule_IsValid(capsule, FRESH_VERSIONED))
    end_versioned(PyCapsule_GetPointer(capsule, FRESH_VERSIONED));
}

/* Reads a tuple of `count` integers; returns false with an exception set if one is not an int64. */
static bool read_extents(PyObject *tuple, int64_t *extents, Py_ssize_t count) {
  for (Py_ssize_t i = 0; i < count; i++) {
    extents[i] = PyLong_AsLongLong(PyTuple_GetItem(tuple, i));
    if (extents[i] == -1 && PyErr_Occurred()) return false;
  }
  return true;
}

/* lend(address, (device type, id), (code, bits), shape, strides, flags or None for the unversioned
   struct, (release, argument)) -> a capsule. `release(void *, argument)` is called exactly once,
   even if the capsule is never taken or never made. */
PyObject *dlpack_lend(PyObject *module, PyObject *args) {
  unsigned long long address, release, argument;
  int device_type, device_id;
  unsigned char code, bits;
  PyObject *shape, *strides, *flags;
  if (!PyArg_ParseTuple(args, "K(ii)(bb)O!O!O(KK)", &address, &device_type, &device_id, &code, &bits,
                        &PyTuple_Type, &shape, &PyTuple_Type, &strides, &flags, &release,
                        &argument))
    return NULL;
  Py_ssize_t rank = PyTuple_Size(shape);
  Loan *loan = calloc(1, sizeof(Loan) + 2 * (size_t)rank * sizeof(int64_t));
  if (loan == NULL) {
    ((void (*)(void *, void *))(uintptr_t)release)(NULL, (void *)(uintptr_t)argument);
    return PyErr_NoMemory();
  }
  loan->release = (void (*)(void *, void *))(uintptr_t)release;
  loan->argument = (void *)(uintptr_t)argument;
  Tensor tensor = {.data = (void *)(uintptr_t)address,
                   .device_type = device_type,
                   .device_id = device_id,
                   .ndim = (int32_t)rank,
                   .code = code,
                   .bits = bits,
                   .lanes = 1,
                   .shape = loan->extents,
                   .strides = loan->extents + rank};
  uint64_t bitmask = flags == Py_None ? 0 : PyLong_AsUnsignedLongLong(flags);
  PyObject *capsule = NULL;
  if (PyErr_Occurred() || !read_extents(shape, tensor.shape, rank) ||
      !read_extents(strides, tensor.strides, rank)) {
    loan_end(loan);
    return NULL;
  }
  if (flags == Py_None) {
    loan->as.managed = (Managed){tensor, loan, end_managed};
    capsule = PyCapsule_New(&loan->as.managed, FRESH, drop_fresh);
  } else {
    loan->as.versioned = (Versioned){MAJOR, MINOR, loan, end_versioned, bitmask, tensor};
    capsule = PyCapsule_New(&loan->as.versioned, FRESH_VERSIONED, drop_fresh);
  }
  if (capsule == NULL) loan_end(loan);
  return capsule;
}

static void drop_borrowed(PyObject *capsule) {
  if (PyCapsule_IsValid(capsule, BORROWED)) {
    Managed *managed = PyCapsule_GetPointer(capsule, BORROWED);
    if (managed->deleter != NULL) managed->deleter(managed);
  } else {
    Versioned *versioned = PyCapsule_GetPointer(capsule, BORROWED_VERSIONED);
    if (versioned->deleter != NULL) versioned->deleter(versioned);
  }
}

static PyObject *extents_tuple(const int64_t *extents, int rank) {
  return extents == NULL && rank > 0 ? Py_NewRef(Py_None) : tuple_of(extents, rank);
}

/* borrow(capsule) -> (owner, flags, (device type, id), (code, bits, lanes), address, shape, strides
   or None). Takes the tensor out of the capsule: its lender is told when `owner` dies. */
PyObject *dlpack_borrow(PyObject *module, PyObject *capsule) {
  bool versioned = PyCapsule_IsValid(capsule, FRESH_VERSIONED);
  if (!versioned && !PyCapsule_IsValid(capsule, FRESH)) {
    if (PyCapsule_IsValid(capsule, USED) || PyCapsule_IsValid(capsule, USED_VERSIONED))
      return PyErr_Format(PyExc_ValueError, "the DLPack capsule was taken before: each works once");
    return PyErr_Format(PyExc_TypeError, "%R is not a DLPack capsule", capsule);
  }
  void *pointer = PyCapsule_GetPointer(capsule, versioned ? FRESH_VERSIONED : FRESH);
  PyObject *owner =
      PyCapsule_New(pointer, versioned ? BORROWED_VERSIONED : BORROWED, drop_borrowed);
  if (owner == NULL) return NULL;
  PyCapsule_SetName(capsule, versioned ? USED_VERSIONED : USED); /* Now `owner` owns the tensor. */
  if (versioned && ((Versioned *)pointer)->major != MAJOR) {
    PyErr_Format(PyExc_BufferError, "the tensor is of DLPack %u, not %d",
                 ((Versioned *)pointer)->major, MAJOR);
    Py_DECREF(owner);
    return NULL;
  }
  const Tensor *tensor =
      versioned ? &((Versioned *)pointer)->tensor : &((Managed *)pointer)->tensor;
  if (tensor->ndim < 0 || tensor->ndim > MAX_RANK || (tensor->ndim > 0 && tensor->shape == NULL)) {
    PyErr_Format(PyExc_BufferError, "the DLPack tensor says that it has %d dimensions%s",
                 tensor->ndim, tensor->ndim > 0 && tensor->shape == NULL ? " and no shape" : "");
    Py_DECREF(owner);
    return NULL;
  }
  unsigned long long flags = versioned ? ((Versioned *)pointer)->flags : 0;
  unsigned long long address = (uintptr_t)tensor->data + tensor->byte_offset;
  return Py_BuildValue("NK(ii)(iii)KNN", owner, flags, tensor->device_type, tensor->device_id,
                       tensor->code, tensor->bits, tensor->lanes, address,
                       extents_tuple(tensor->shape, tensor->ndim),
                       extents_tuple(tensor->strides, tensor->ndim));
}
