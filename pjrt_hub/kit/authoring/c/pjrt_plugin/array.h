/* An array is an element type and dimensions. On a device it is row-major, without gaps. */
#ifndef PJRT_PLUGIN_ARRAY_H
#define PJRT_PLUGIN_ARRAY_H

#include "error.h"

enum { PLUGIN_MAX_RANK = 64 };

typedef struct {
  PJRT_Buffer_Type type;
  size_t rank;
  int64_t dims[PLUGIN_MAX_RANK];
} PluginArray;

/* Returns the bytes of an element: 1, as in numpy, for fewer than eight bits, and 0 for a type without elements. */
static inline size_t plugin_element_size(PJRT_Buffer_Type type) {
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

/* Returns the number of elements of an array that passed plugin_array_check. */
static inline size_t plugin_array_count(const PluginArray *array) {
  size_t count = 1;
  for (size_t i = 0; i < array->rank; i++) count *= (size_t)array->dims[i];
  return count;
}

static inline size_t plugin_array_size(const PluginArray *array) {
  return plugin_array_count(array) * plugin_element_size(array->type);
}

static inline bool plugin_array_equal(const PluginArray *one, const PluginArray *other) {
  return one->type == other->type && one->rank == other->rank &&
         memcmp(one->dims, other->dims, one->rank * sizeof(int64_t)) == 0;
}

/* Fills in an array, or returns an error that says why there cannot be one. */
static inline PJRT_Error *plugin_array_check(PluginArray *array, PJRT_Buffer_Type type,
                                             const int64_t *dims, size_t rank) {
  int64_t size = (int64_t)plugin_element_size(type);
  bool fits = true, empty = false;
  if (size == 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "there are no buffers of the type %d", (int)type);
  if (rank > PLUGIN_MAX_RANK)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "%zu dimensions are more than %d", rank,
                        (int)PLUGIN_MAX_RANK);
  memset(array, 0, sizeof *array);
  array->type = type;
  array->rank = rank;
  for (size_t i = 0; i < rank; i++) {
    array->dims[i] = dims[i];
    if (dims[i] < 0) return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "a dimension is negative");
    empty = empty || dims[i] == 0;
  }
  for (size_t i = 0; i < rank && !empty; i++) {
    fits = fits && size <= INT64_MAX / dims[i];
    if (fits) size *= dims[i];
  }
  if (fits) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "no memory can hold an array of such dimensions");
}

/* Fills in the bytes from one element to the next in each dimension. `minor_to_major` begins with the fastest one;
   if it is NULL, the array is row-major. */
static inline void plugin_strides(const PluginArray *array, const int64_t *minor_to_major,
                                  int64_t *strides) {
  int64_t step = (int64_t)plugin_element_size(array->type);
  for (size_t i = 0; i < array->rank; i++) {
    size_t dim = minor_to_major != NULL ? (size_t)minor_to_major[i] : array->rank - 1 - i;
    strides[dim] = step;
    step *= array->dims[dim];
  }
}

/* Copies an array to other strides. Elements without gaps between them on both sides are copied together. */
static inline void plugin_copy_strided(const PluginArray *array, char *to, const int64_t *to_strides,
                                       const char *from, const int64_t *from_strides) {
  int64_t index[PLUGIN_MAX_RANK] = {0};
  size_t run = plugin_element_size(array->type), rank = array->rank, i;
  if (plugin_array_count(array) == 0) return;
  for (; rank > 0 && to_strides[rank - 1] == (int64_t)run && from_strides[rank - 1] == (int64_t)run; rank--)
    run *= (size_t)array->dims[rank - 1];
  do {
    memcpy(to, from, run);
    for (i = rank; i > 0; i--) {
      to += to_strides[i - 1];
      from += from_strides[i - 1];
      if (++index[i - 1] < array->dims[i - 1]) break;
      to -= to_strides[i - 1] * array->dims[i - 1];
      from -= from_strides[i - 1] * array->dims[i - 1];
      index[i - 1] = 0;
    }
  } while (i > 0);
}

/* Finds the order of dimensions in a layout, or returns an error. Without a layout, *order is NULL. */
static inline PJRT_Error *plugin_layout_order(const PJRT_Buffer_MemoryLayout *layout, size_t rank,
                                              const int64_t **order) {
  uint64_t seen = 0;
  *order = NULL;
  if (layout == NULL) return NULL;
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled || layout->tiled.num_tiles > 0)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "layouts are orders of dimensions here");
  for (size_t i = 0; i < layout->tiled.minor_to_major_size && i < rank; i++) {
    int64_t dim = layout->tiled.minor_to_major[i];
    if (dim >= 0 && dim < (int64_t)rank) seen |= (uint64_t)1 << dim;
  }
  if (layout->tiled.minor_to_major_size != rank || (size_t)__builtin_popcountll(seen) != rank)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the layout is not an order of %zu dimensions", rank);
  *order = layout->tiled.minor_to_major;
  return NULL;
}

/* Returns an error unless a layout is row-major, as all arrays on a device are. */
static inline PJRT_Error *plugin_layout_check(const PJRT_Buffer_MemoryLayout *layout, size_t rank) {
  const int64_t *order;
  PJRT_Error *error = plugin_layout_order(layout, rank, &order);
  for (size_t i = 0; error == NULL && order != NULL && i < rank; i++)
    if (order[i] != (int64_t)(rank - 1 - i))
      error = plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "arrays on this device are row-major");
  return error;
}

#endif
