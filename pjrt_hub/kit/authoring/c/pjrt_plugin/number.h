/* Turns the elements of constants, as MLIR spells them, into the bytes of an array. */
#ifndef PJRT_PLUGIN_NUMBER_H
#define PJRT_PLUGIN_NUMBER_H

#include "program.h"

/* A constant may have at most this many bytes. */
#define PLUGIN_MOST_CONSTANT ((size_t)1 << 30)

static inline uint32_t plugin_float_bits(float value) {
  uint32_t bits;
  memcpy(&bits, &value, sizeof bits);
  return bits;
}

/* Rounds a float's bits to the nearest shorter float, ties to even. */
static inline uint16_t plugin_bfloat16(float value) {
  uint32_t bits = plugin_float_bits(value);
  if (value != value) return (uint16_t)(bits >> 16 | 0x40);
  return (uint16_t)((bits + 0x7fff + (bits >> 16 & 1)) >> 16);
}

static inline uint16_t plugin_float16(float value) {
  uint32_t bits = plugin_float_bits(value), sign = bits >> 16 & 0x8000, rest = bits & 0x7fffffff;
  if (rest > 0x7f800000) return (uint16_t)(sign | 0x7e00);
  if (rest >= 0x477ff000) return (uint16_t)(sign | 0x7c00);
  if (rest < 0x38800000) { /* A number below the smallest normal one is a multiple of 2**-24. */
    double scaled = (double)(value < 0 ? -value : value) * 16777216.0;
    uint32_t whole = (uint32_t)scaled;
    double left = scaled - whole;
    return (uint16_t)(sign | (whole + (left > 0.5 || (left == 0.5 && (whole & 1)))));
  }
  rest -= 0x38000000;
  return (uint16_t)(sign | ((rest + 0xfff + (rest >> 13 & 1)) >> 13));
}

/* Writes a word as an element, or as half of a complex one. Returns false if the word is not a number. */
static inline bool plugin_number(PJRT_Buffer_Type type, const char *word, char *to) {
  char *end;
  size_t width = plugin_element_size(type);
  bool negative = word[0] == '-', bits = strncmp(word + negative, "0x", 2) == 0;
  bool whole = type == PJRT_Buffer_Type_PRED ||
               (type >= PJRT_Buffer_Type_S8 && type <= PJRT_Buffer_Type_U64);
  if (strcmp(word, "true") == 0 || strcmp(word, "false") == 0) {
    *to = word[0] == 't';
    return type == PJRT_Buffer_Type_PRED;
  }
  if (whole || bits) {
    uint64_t value = strtoull(word + negative, &end, 0);
    if (negative) value = 0 - value;
    if (type == PJRT_Buffer_Type_PRED) value = value != 0;
    if (type == PJRT_Buffer_Type_C64) width = 4;
    if (type == PJRT_Buffer_Type_C128) width = 8;
    memcpy(to, &value, width); /* The low bytes come first. */
    return *end == '\0' && end != word + negative;
  }
  double value = strtod(word, &end);
  float single = (float)value;
  uint16_t half = type == PJRT_Buffer_Type_F16 ? plugin_float16(single) : plugin_bfloat16(single);
  if (type == PJRT_Buffer_Type_F64 || type == PJRT_Buffer_Type_C128)
    memcpy(to, &value, sizeof value);
  else if (type == PJRT_Buffer_Type_F32 || type == PJRT_Buffer_Type_C64)
    memcpy(to, &single, sizeof single);
  else if (type == PJRT_Buffer_Type_F16 || type == PJRT_Buffer_Type_BF16)
    memcpy(to, &half, sizeof half);
  else
    return false;
  return *end == '\0' && end != word;
}

/* Allocates memory for the elements of a constant, or returns NULL if it is too large. */
static inline char *plugin_constant(PluginArena *arena, const PluginArray *array, PluginAttribute *attribute) {
  size_t size = plugin_array_size(array);
  if (size > PLUGIN_MOST_CONSTANT) return NULL;
  char *data = (char *)plugin_take(arena, size + 16);
  attribute->data = data;
  attribute->size = size;
  return data;
}

/* Copies the first element to all others. */
static inline void plugin_splat(char *data, size_t size, size_t width) {
  for (size_t i = width; i < size; i += width) memcpy(data + i, data, width);
}

/* Keeps 64-bit integers as the attribute's numbers, too. */
static inline void plugin_constant_numbers(PluginArena *arena, const PluginArray *array,
                                           PluginAttribute *attribute) {
  size_t count = plugin_array_count(array);
  if (array->type != PJRT_Buffer_Type_S64) return;
  int64_t *numbers = (int64_t *)plugin_take(arena, (count + 1) * sizeof(int64_t));
  memcpy(numbers, attribute->data, count * sizeof(int64_t));
  attribute->numbers = numbers;
  attribute->num_numbers = count;
}

#endif
