/* Arrays: element types, dimensions and sizes, and copies between any two orders in memory. */
#include "plugin.h"

/* Returns the bytes of an element, which are at least 1 as in numpy, or 0 for no possible type. */
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

/* Computes the bytes of an array; false for a shape that no memory can hold. */
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

/* Computes the strides, in bytes, of an array without gaps; without an order, it is row-major. */
void dense_strides(int64_t *strides, const int64_t *dims, size_t rank, size_t width,
                   const int64_t *minor_to_major) {
  int64_t step = (int64_t)width;
  for (size_t i = 0; i < rank; i++) {
    size_t dimension = minor_to_major != NULL ? (size_t)minor_to_major[i] : rank - 1 - i;
    strides[dimension] = step;
    step *= dims[dimension];
  }
}

/* Copies element by element, or whole inner runs in which neither side has gaps. */
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

/* Fills *array; the caller must free its dims. */
PJRT_Error *array_type(int type, const int64_t *dims, size_t rank, ArrayType *array) {
  *array = (ArrayType){.type = type, .rank = rank};
  if (element_size(type) == 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there are no buffers of the type %d", type);
  if (!shape_size(type, dims, rank, &array->size))
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                        "no array has such dimensions: %zu of them, negative or too large", rank);
  array->dims = malloc((rank + 1) * sizeof(int64_t));
  if (array->dims == NULL) return plugin_no_memory(array->size);
  if (rank > 0) memcpy(array->dims, dims, rank * sizeof(int64_t));
  return NULL;
}

ArrayType array_type_copy(const ArrayType *array) {
  ArrayType copy = *array;
  copy.dims = plugin_zeroed(1, (array->rank + 1) * sizeof(int64_t));
  memcpy(copy.dims, array->dims, array->rank * sizeof(int64_t));
  return copy;
}

/* Returns (type, dims). */
PyObject *array_type_for_python(const ArrayType *array) {
  PyObject *dims = PyTuple_New((Py_ssize_t)array->rank);
  for (size_t i = 0; dims != NULL && i < array->rank; i++)
    PyTuple_SetItem(dims, (Py_ssize_t)i, PyLong_FromLongLong(array->dims[i]));
  return dims == NULL ? NULL : Py_BuildValue("(iN)", array->type, dims);
}

/* Refuses any layout that is not row-major, because all buffers are. */
PJRT_Error *check_layout(const PJRT_Buffer_MemoryLayout *layout, size_t rank) {
  if (layout == NULL) return NULL;
  bool row_major = layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
                   layout->tiled.num_tiles == 0 && layout->tiled.minor_to_major_size == rank;
  for (size_t i = 0; row_major && i < rank; i++)
    row_major = layout->tiled.minor_to_major[i] == (int64_t)(rank - 1 - i);
  if (row_major) return NULL;
  return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "this plugin has row-major buffers only");
}
