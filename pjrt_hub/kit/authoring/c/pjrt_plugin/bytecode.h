/* Reads StableHLO as bytecode: the portable artifacts that frameworks send, without control flow.

   The layout is that of MLIR's BytecodeFormat documentation, versions 4 to 6; the numbers of types and
   attributes are those of StableHLO's VhloBytecode.cpp. Nothing is read beyond the bytes that are given. */
#ifndef PJRT_PLUGIN_BYTECODE_H
#define PJRT_PLUGIN_BYTECODE_H

#include "number.h"

/* A part of the bytes. Reading past its end gives 0 and sets `bad`. */
typedef struct {
  const unsigned char *at, *end;
  bool bad;
} PluginBytes;

/* An attribute or a type, whose bytes are read only when something needs it. */
typedef struct {
  bool ours; /* Whether it is in the binary form of VHLO, StableHLO's stable dialect. */
  PluginBytes bytes;
} PluginEntry;

enum { PLUGIN_SECTIONS = 9 };
enum { PLUGIN_STRINGS, PLUGIN_DIALECTS, PLUGIN_ENTRIES, PLUGIN_OFFSETS, PLUGIN_IR, PLUGIN_PROPERTIES = 8 };

typedef struct {
  PluginModule *module;
  PluginArena *arena;
  uint64_t version;
  PluginBytes sections[PLUGIN_SECTIONS];
  const char **strings, **operations;
  bool *ours; /* Whether each dialect is VHLO. */
  PluginEntry *attributes, *types;
  PluginBytes *properties;
  size_t num_strings, num_dialects, num_operations, num_attributes, num_types, num_properties;
  PJRT_Error *error;
} PluginBytecode;

static inline bool plugin_is_bytecode(const char *code, size_t size) {
  return size >= 4 && memcmp(code, "ML\xefR", 4) == 0;
}

static inline bool plugin_malformed(PluginBytecode *code, const char *what) {
  if (code->error == NULL)
    code->error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the bytecode is malformed: %s", what);
  return false;
}

static inline bool plugin_unknown(PluginBytecode *code, const char *what) {
  if (code->error == NULL)
    code->error = plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "this plugin cannot read %s", what);
  return false;
}

static inline unsigned char plugin_byte(PluginBytes *bytes) {
  bytes->bad = bytes->bad || bytes->at >= bytes->end;
  return bytes->bad ? 0 : *bytes->at++;
}

/* Reads a number; the trailing zeros of its first byte tell how many bytes follow. */
static inline uint64_t plugin_read_varint(PluginBytes *bytes) {
  unsigned char first = plugin_byte(bytes);
  uint64_t value = first;
  int more = 0;
  while (more < 8 && !(first >> more & 1)) more++;
  for (int i = 1; i <= more; i++) {
    unsigned char byte = plugin_byte(bytes);
    value = more == 8 ? (value >> 8 | (uint64_t)byte << 56) : value | (uint64_t)byte << (8 * i);
  }
  if (bytes->bad) return 0;
  return more == 8 ? value : value >> (more + 1);
}

static inline int64_t plugin_read_signed(PluginBytes *bytes) {
  uint64_t value = plugin_read_varint(bytes);
  return (int64_t)(value >> 1) ^ -(int64_t)(value & 1);
}

/* Reads the number of things that take at least a byte each. */
static inline size_t plugin_read_count(PluginBytes *bytes) {
  uint64_t count = plugin_read_varint(bytes);
  if (!bytes->bad && count > (uint64_t)(bytes->end - bytes->at)) bytes->bad = true;
  return bytes->bad ? 0 : (size_t)count;
}

/* Cuts the next bytes off as a part of their own. */
static inline PluginBytes plugin_part(PluginBytes *bytes, uint64_t size) {
  PluginBytes part = *bytes;
  if (!bytes->bad && size > (uint64_t)(bytes->end - bytes->at)) bytes->bad = part.bad = true;
  if (!bytes->bad) part.end = bytes->at += size;
  return part;
}

/* Reads a section and returns its number, or -1 at the end. */
static inline int plugin_section(PluginBytes *bytes, const unsigned char *begin, PluginBytes *section) {
  if (bytes->bad || bytes->at == bytes->end) return -1;
  unsigned char number = plugin_byte(bytes);
  uint64_t size = plugin_read_varint(bytes), alignment = number & 0x80 ? plugin_read_varint(bytes) : 1;
  if (alignment == 0 || alignment > 1 << 16) bytes->bad = true;
  if (!bytes->bad) plugin_part(bytes, (alignment - (uint64_t)(bytes->at - begin) % alignment) % alignment);
  *section = plugin_part(bytes, size);
  return number & 0x7f;
}

/* Tables, whose entries later parts name by number */

static inline bool plugin_read_strings(PluginBytecode *code) {
  PluginBytes *bytes = &code->sections[PLUGIN_STRINGS];
  size_t count = plugin_read_count(bytes);
  uint64_t *sizes = (uint64_t *)plugin_take(code->arena, (count + 1) * sizeof *sizes);
  code->strings = (const char **)plugin_take(code->arena, (count + 1) * sizeof(char *));
  for (size_t i = count; i-- > 0;) sizes[i] = plugin_read_varint(bytes); /* The last one comes first. */
  for (size_t i = 0; i < count; i++) {
    PluginBytes part = plugin_part(bytes, sizes[i]);
    if (bytes->bad || part.at == part.end || part.end[-1] != '\0') return plugin_malformed(code, "a string");
    code->strings[i] = (const char *)part.at;
  }
  code->num_strings = count;
  return !bytes->bad || plugin_malformed(code, "the strings");
}

static inline const char *plugin_string_at(PluginBytecode *code, uint64_t number) {
  return number < code->num_strings ? code->strings[number] : "";
}

static inline bool plugin_read_dialects(PluginBytecode *code) {
  PluginBytes *bytes = &code->sections[PLUGIN_DIALECTS], ignored;
  size_t count = plugin_read_count(bytes);
  const char **names = (const char **)plugin_take(code->arena, (count + 1) * sizeof(char *));
  code->ours = (bool *)plugin_take(code->arena, count + 1);
  for (size_t i = 0; i < count; i++) {
    uint64_t name = plugin_read_varint(bytes);
    names[i] = plugin_string_at(code, name >> 1);
    code->ours[i] = strcmp(names[i], "vhlo") == 0;
    if (name & 1) plugin_section(bytes, code->sections[PLUGIN_STRINGS].at, &ignored); /* This skips its version. */
  }
  code->num_dialects = count;
  plugin_read_varint(bytes); /* This skips the number of all operations. */
  while (!bytes->bad && bytes->at < bytes->end) {
    uint64_t dialect = plugin_read_varint(bytes);
    for (size_t left = plugin_read_count(bytes); left > 0; left--) {
      uint64_t name = plugin_read_varint(bytes);
      const char *base = plugin_string_at(code, code->version > 4 ? name >> 1 : name);
      const char *of = dialect < count ? names[dialect] : "";
      char *full = (char *)plugin_take(code->arena, strlen(of) + strlen(base) + 2);
      memcpy(full, of, strlen(of));
      full[strlen(of)] = '.';
      memcpy(full + strlen(of) + 1, base, strlen(base) + 1);
      PLUGIN_ADD(code->arena, code->operations, code->num_operations, full);
    }
  }
  return !bytes->bad || plugin_malformed(code, "the dialects");
}

static inline bool plugin_read_entries(PluginBytecode *code) {
  PluginBytes *offsets = &code->sections[PLUGIN_OFFSETS], *data = &code->sections[PLUGIN_ENTRIES];
  size_t num_attributes = plugin_read_count(offsets), num_types = plugin_read_count(offsets);
  while (!offsets->bad && code->num_attributes + code->num_types < num_attributes + num_types) {
    uint64_t dialect = plugin_read_varint(offsets);
    size_t left = plugin_read_count(offsets);
    if (left == 0) return plugin_malformed(code, "a group of nothing");
    for (; left > 0 && !offsets->bad; left--) {
      uint64_t size = plugin_read_varint(offsets);
      PluginEntry entry = {dialect < code->num_dialects && code->ours[dialect] && (size & 1) != 0,
                           plugin_part(data, size >> 1)};
      if (data->bad) return plugin_malformed(code, "the attributes");
      if (code->num_attributes < num_attributes)
        PLUGIN_ADD(code->arena, code->attributes, code->num_attributes, entry);
      else
        PLUGIN_ADD(code->arena, code->types, code->num_types, entry);
    }
  }
  return !offsets->bad || plugin_malformed(code, "the offsets");
}

static inline bool plugin_read_properties(PluginBytecode *code) {
  PluginBytes *bytes = &code->sections[PLUGIN_PROPERTIES];
  if (bytes->at == NULL) return true;
  for (size_t left = plugin_read_count(bytes); left > 0 && !bytes->bad; left--) {
    PluginBytes part = plugin_part(bytes, plugin_read_varint(bytes));
    PLUGIN_ADD(code->arena, code->properties, code->num_properties, part);
  }
  return !bytes->bad || plugin_malformed(code, "the properties");
}

/* Types and attributes */

/* Finds an entry of a table if it has the form that is read here. *kind is the number of its kind in that form. */
static inline bool plugin_entry(const PluginEntry *entries, size_t count, uint64_t number, uint64_t *kind,
                                PluginBytes *bytes) {
  if (number >= count || !entries[number].ours) return false;
  *bytes = entries[number].bytes;
  *kind = plugin_read_varint(bytes);
  return !bytes->bad;
}

static inline PJRT_Buffer_Type plugin_element_type(PluginBytecode *code, uint64_t number) {
  static const struct {
    unsigned char kind;
    PJRT_Buffer_Type type;
  } types[] = {{0, PJRT_Buffer_Type_PRED}, {2, PJRT_Buffer_Type_BF16}, {3, PJRT_Buffer_Type_F16},
               {4, PJRT_Buffer_Type_F32},  {5, PJRT_Buffer_Type_F64},  {11, PJRT_Buffer_Type_S8},
               {12, PJRT_Buffer_Type_S16}, {13, PJRT_Buffer_Type_S32}, {14, PJRT_Buffer_Type_S64},
               {16, PJRT_Buffer_Type_U8},  {17, PJRT_Buffer_Type_U16}, {18, PJRT_Buffer_Type_U32},
               {19, PJRT_Buffer_Type_U64}, {6, PJRT_Buffer_Type_F8E4M3FN}, {7, PJRT_Buffer_Type_F8E5M2}};
  enum { COMPLEX = 1 };
  PluginBytes bytes;
  uint64_t kind;
  if (!plugin_entry(code->types, code->num_types, number, &kind, &bytes)) return PJRT_Buffer_Type_INVALID;
  if (kind == COMPLEX) {
    if (!plugin_entry(code->types, code->num_types, plugin_read_varint(&bytes), &kind, &bytes) ||
        kind < 4 || kind > 5)
      return PJRT_Buffer_Type_INVALID;
    return kind == 4 ? PJRT_Buffer_Type_C64 : PJRT_Buffer_Type_C128;
  }
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (types[i].kind == kind) return types[i].type;
  return PJRT_Buffer_Type_INVALID;
}

static inline bool plugin_tensor_type(PluginBytecode *code, uint64_t number, PluginArray *array) {
  enum { RANKED_TENSOR = 20 };
  int64_t dims[PLUGIN_MAX_RANK];
  PluginBytes bytes;
  uint64_t kind;
  if (!plugin_entry(code->types, code->num_types, number, &kind, &bytes) || kind != RANKED_TENSOR)
    return plugin_unknown(code, "a value's type: values are tensors of known dimensions here");
  size_t rank = plugin_read_count(&bytes);
  if (rank > PLUGIN_MAX_RANK) return plugin_unknown(code, "so many dimensions");
  for (size_t i = 0; i < rank; i++) dims[i] = plugin_read_signed(&bytes);
  PJRT_Buffer_Type type = plugin_element_type(code, plugin_read_varint(&bytes));
  if (bytes.bad) return plugin_malformed(code, "a type");
  for (size_t i = 0; i < rank; i++)
    if (dims[i] < 0) return plugin_unknown(code, "dynamic dimensions");
  if (type == PJRT_Buffer_Type_INVALID) return plugin_unknown(code, "a tensor's element type");
  PJRT_Error *error = plugin_array_check(array, type, dims, rank);
  if (error != NULL) code->error = error;
  return error == NULL;
}

/* Reads a tensor's elements: all of them, or one that stands for all. Truth values may be bits or bytes. */
static inline bool plugin_tensor(PluginBytecode *code, PluginBytes bytes, PluginAttribute *attribute) {
  PluginArray array;
  if (!plugin_tensor_type(code, plugin_read_varint(&bytes), &array)) return false;
  PluginBytes blob = plugin_part(&bytes, plugin_read_varint(&bytes));
  size_t width = plugin_element_size(array.type), size = plugin_array_size(&array);
  size_t given = bytes.bad ? 0 : (size_t)(blob.end - blob.at);
  char *data = plugin_constant(code->arena, &array, attribute);
  if (data == NULL) return plugin_unknown(code, "so large a constant");
  if (size == 0) return true;
  if (given == size && !(array.type == PJRT_Buffer_Type_PRED && size == 1)) {
    memcpy(data, blob.at, size);
  } else if (array.type == PJRT_Buffer_Type_PRED && given == (size + 7) / 8) {
    for (size_t i = 0; i < size; i++) data[i] = blob.at[i / 8] >> (i % 8) & 1;
  } else if (given == width) {
    memcpy(data, blob.at, width);
    if (array.type == PJRT_Buffer_Type_PRED) data[0] = data[0] != 0;
    plugin_splat(data, size, width);
  } else {
    return plugin_malformed(code, "a constant");
  }
  plugin_constant_numbers(code->arena, &array, attribute);
  return true;
}

/* Reads an attribute that is a number, a text, the name of a choice, or a tensor. */
static inline bool plugin_read_attribute(PluginBytecode *code, uint64_t number, PluginAttribute *attribute) {
  enum { BOOLEAN = 2, DIRECTION = 3, COMPARISON = 4, INTEGER = 9, STRING = 14, TENSOR = 15 };
  static const char *const directions[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
  static const char *const comparisons[] = {"NOTYPE", "FLOAT", "TOTALORDER", "SIGNED", "UNSIGNED"};
  PluginBytes bytes;
  uint64_t kind, value = 0;
  if (!plugin_entry(code->attributes, code->num_attributes, number, &kind, &bytes)) return true;
  if (kind == TENSOR) return plugin_tensor(code, bytes, attribute);
  if (kind == INTEGER) plugin_read_varint(&bytes); /* This skips its type. */
  if (kind == BOOLEAN || kind == DIRECTION || kind == COMPARISON || kind == STRING)
    value = plugin_read_varint(&bytes);
  else if (kind == INTEGER)
    value = (uint64_t)plugin_read_signed(&bytes);
  else
    return true; /* This kit does not know the attribute. */
  if (kind == STRING) attribute->text = plugin_string_at(code, value);
  if (kind == DIRECTION) attribute->text = value < 6 ? directions[value] : "";
  if (kind == COMPARISON) attribute->text = value < 5 ? comparisons[value] : "";
  int64_t *numbers = (int64_t *)plugin_take(code->arena, sizeof *numbers);
  *numbers = (int64_t)value;
  attribute->numbers = numbers;
  attribute->num_numbers = kind == BOOLEAN || kind == INTEGER;
  return !bytes.bad || plugin_malformed(code, "an attribute");
}

/* Finds out which parameters are donated, from an array with a dictionary for each parameter. */
static inline void plugin_read_donated(PluginBytecode *code, uint64_t number, PluginProgram *body) {
  enum { ARRAY = 1, DICTIONARY = 6, STRING = 14 };
  PluginBytes array, dictionary, text;
  uint64_t kind;
  size_t count = 0;
  if (!plugin_entry(code->attributes, code->num_attributes, number, &kind, &array) || kind != ARRAY) return;
  for (size_t left = plugin_read_count(&array); left > 0; left--) {
    bool donated = false;
    uint64_t each = plugin_read_varint(&array);
    bool is_one = plugin_entry(code->attributes, code->num_attributes, each, &kind, &dictionary);
    for (size_t pairs = is_one && kind == DICTIONARY ? plugin_read_count(&dictionary) : 0; pairs > 0; pairs--) {
      uint64_t key = plugin_read_varint(&dictionary);
      plugin_read_varint(&dictionary); /* This skips its value. */
      if (!plugin_entry(code->attributes, code->num_attributes, key, &kind, &text) || kind != STRING) continue;
      const char *name = plugin_string_at(code, plugin_read_varint(&text));
      donated = donated || plugin_donates(name, strlen(name));
    }
    PLUGIN_ADD(code->arena, body->donated, count, donated);
  }
  if (count != body->num_parameters) body->donated = NULL;
}

/* Attributes of an operation are stored in the order of their names. */
static inline const char *const *plugin_attribute_names(const char *operation) {
  enum { MOST = 14 };
  static const char *const names[][MOST] = {
      {"vhlo.constant_v1", "value", NULL},
      {"vhlo.broadcast_in_dim_v1", "broadcast_dimensions", NULL},
      {"vhlo.transpose_v1", "permutation", NULL},
      {"vhlo.reverse_v1", "dimensions", NULL},
      {"vhlo.iota_v1", "iota_dimension", NULL},
      {"vhlo.concatenate_v1", "dimension", NULL},
      {"vhlo.slice_v1", "limit_indices", "start_indices", "strides", NULL},
      {"vhlo.compare_v1", "compare_type", "comparison_direction", NULL},
      {"vhlo.call_v1", "callee", NULL},
      {"vhlo.func_v1", "arg_attrs", "function_type", "res_attrs", "sym_name", "sym_visibility", NULL},
      {"vhlo.dot_general_v1", "lhs_batching_dimensions", "lhs_contracting_dimensions", "precision_config",
       "rhs_batching_dimensions", "rhs_contracting_dimensions", NULL},
      {"vhlo.dot_general_v2", "accumulation_type", "allow_imprecise_accumulation",
       "lhs_batching_dimensions", "lhs_component_count", "lhs_contracting_dimensions",
       "lhs_precision_type", "num_primitive_operations", "precision_config", "rhs_batching_dimensions",
       "rhs_component_count", "rhs_contracting_dimensions", "rhs_precision_type", NULL}};
  static const char *const none[] = {NULL};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i][0], operation) == 0) return names[i] + 1;
  return none;
}

/* Operations */

enum { PLUGIN_HAS_ATTRIBUTES = 1, PLUGIN_HAS_RESULTS = 2, PLUGIN_HAS_OPERANDS = 4, PLUGIN_HAS_SUCCESSORS = 8 };
enum { PLUGIN_HAS_REGIONS = 16, PLUGIN_HAS_USE_LISTS = 32, PLUGIN_HAS_PROPERTIES = 64 };

static inline bool plugin_read_block(PluginBytecode *code, PluginBytes *bytes, PluginProgram *body, int depth);

/* Enters the one region of a module or a function, which numbers its values by itself. */
static inline bool plugin_read_region(PluginBytecode *code, PluginBytes *bytes, PluginProgram *body, int depth) {
  PluginBytes region;
  uint64_t regions = plugin_read_varint(bytes);
  if (regions >> 1 != 1 || !(regions & 1)) return plugin_unknown(code, "operations with regions");
  if (plugin_section(bytes, bytes->at, &region) != PLUGIN_IR) return plugin_malformed(code, "a region");
  if (plugin_read_varint(&region) != 1) return plugin_unknown(code, "functions of several blocks");
  plugin_read_varint(&region); /* This skips the number of values. */
  return plugin_read_block(code, &region, body, depth);
}

static inline bool plugin_read_operation(PluginBytecode *code, PluginBytes *bytes, PluginProgram *body, int depth) {
  PluginOperation operation;
  PluginFunction function;
  memset(&operation, 0, sizeof operation);
  memset(&function, 0, sizeof function);
  uint64_t number = plugin_read_varint(bytes);
  unsigned char mask = plugin_byte(bytes);
  plugin_read_varint(bytes); /* This skips its location. */
  if (mask & PLUGIN_HAS_ATTRIBUTES) plugin_read_varint(bytes);
  uint64_t property = mask & PLUGIN_HAS_PROPERTIES ? plugin_read_varint(bytes) : UINT64_MAX;
  if (bytes->bad || number >= code->num_operations) return plugin_malformed(code, "an operation");
  const char *name = code->operations[number];
  if (mask & (PLUGIN_HAS_SUCCESSORS | PLUGIN_HAS_USE_LISTS)) return plugin_unknown(code, name);
  if (property < code->num_properties) {
    PluginBytes given = code->properties[property];
    for (const char *const *each = plugin_attribute_names(name); *each != NULL && given.at < given.end; each++)
      if (!plugin_read_attribute(code, plugin_read_varint(&given),
                                 plugin_add_attribute(code->arena, &operation, *each)))
        return false;
  }
  if (mask & PLUGIN_HAS_RESULTS) operation.num_results = plugin_read_count(bytes);
  operation.results = body != NULL ? (int)body->num_values : 0;
  for (size_t i = 0; i < operation.num_results; i++) {
    PluginArray array;
    if (body == NULL) return plugin_unknown(code, name);
    if (!plugin_tensor_type(code, plugin_read_varint(bytes), &array)) return false;
    PLUGIN_ADD(code->arena, body->values, body->num_values, array);
  }
  for (size_t left = mask & PLUGIN_HAS_OPERANDS ? plugin_read_count(bytes) : 0; left > 0; left--) {
    uint64_t operand = plugin_read_varint(bytes);
    if (body == NULL || operand >= (uint64_t)operation.results) return plugin_malformed(code, "an operand");
    PLUGIN_ADD(code->arena, operation.operands, operation.num_operands, (int)operand);
  }
  if (bytes->bad) return plugin_malformed(code, "an operation");
  if (depth == 0 && strcmp(name, "builtin.module") == 0 && mask & PLUGIN_HAS_REGIONS)
    return plugin_read_region(code, bytes, NULL, depth + 1);
  if (depth == 1 && strcmp(name, "vhlo.func_v1") == 0 && mask & PLUGIN_HAS_REGIONS) {
    const PluginAttribute *named = plugin_attribute(&operation, "sym_name");
    function.name = named != NULL && named->text != NULL ? named->text : "";
    if (!plugin_read_region(code, bytes, &function.body, depth + 1)) return false;
    if (property < code->num_properties) {
      PluginBytes given = code->properties[property];
      plugin_read_donated(code, plugin_read_varint(&given), &function.body); /* The first is arg_attrs. */
    }
    PLUGIN_ADD(code->arena, code->module->functions, code->module->num_functions, function);
    return true;
  }
  if (depth != 2 || mask & PLUGIN_HAS_REGIONS || strncmp(name, "vhlo.", 5) != 0)
    return plugin_unknown(code, name);
  if (strcmp(name, "vhlo.return_v1") == 0) {
    body->outputs = operation.operands;
    body->num_outputs = operation.num_operands;
    return true;
  }
  const char *version = strrchr(name, '_'); /* "vhlo.add_v1" becomes "add". */
  size_t length = version != NULL ? (size_t)(version - name) : strlen(name);
  operation.name = length > 5 ? plugin_take_text(code->arena, name + 5, length - 5) : "";
  PLUGIN_ADD(code->arena, body->operations, body->num_operations, operation);
  return true;
}

/* Reads a block: the parameters of a function, followed by operations. */
static inline bool plugin_read_block(PluginBytecode *code, PluginBytes *bytes, PluginProgram *body, int depth) {
  uint64_t head = plugin_read_varint(bytes);
  for (size_t left = head & 1 ? plugin_read_count(bytes) : 0; left > 0; left--) {
    PluginArray array;
    uint64_t type = plugin_read_varint(bytes);
    if (body == NULL) return plugin_malformed(code, "a module with parameters");
    if (type & 1) plugin_read_varint(bytes); /* This skips its location. */
    if (bytes->bad || !plugin_tensor_type(code, type >> 1, &array)) return plugin_malformed(code, "a parameter");
    PLUGIN_ADD(code->arena, body->values, body->num_values, array);
  }
  if (head & 1 && plugin_byte(bytes) != 0) return plugin_unknown(code, "orders of uses");
  if (body != NULL) body->num_parameters = body->num_values;
  for (uint64_t left = head >> 1; left > 0; left--)
    if (!plugin_read_operation(code, bytes, body, depth)) return false;
  return !bytes->bad || plugin_malformed(code, "a block");
}

static inline PJRT_Error *plugin_read_bytecode(PluginModule *module, const char *bytes, size_t size) {
  PluginBytecode code;
  PluginBytes all, section;
  int number;
  memset(&code, 0, sizeof code);
  memset(&all, 0, sizeof all);
  code.module = module;
  code.arena = module->arena;
  const unsigned char *begin = (const unsigned char *)bytes;
  all.at = begin + 4;
  all.end = begin + size;
  code.version = plugin_read_varint(&all);
  if (code.version < 4 || code.version > 6) {
    plugin_unknown(&code, "this version of MLIR's bytecode");
    return code.error;
  }
  while (plugin_byte(&all) != '\0') continue; /* This skips the name of its producer. */
  while ((number = plugin_section(&all, begin, &section)) >= 0 && !all.bad)
    if (number < PLUGIN_SECTIONS) code.sections[number] = section;
  for (int i = 0; i <= PLUGIN_IR; i++)
    if (all.bad || code.sections[i].at == NULL) {
      plugin_malformed(&code, "its sections");
      return code.error;
    }
  if (plugin_read_strings(&code) && plugin_read_dialects(&code) && plugin_read_entries(&code) &&
      plugin_read_properties(&code))
    plugin_read_block(&code, &code.sections[PLUGIN_IR], NULL, 0);
  return code.error;
}

#endif
