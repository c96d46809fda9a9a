/* Reads StableHLO as text: functions without control flow, in the pretty or the generic form. */
#ifndef PJRT_PLUGIN_TEXT_H
#define PJRT_PLUGIN_TEXT_H

#include "number.h"

typedef struct {
  const char *name;
  int first;
  size_t count;
} PluginName;

typedef struct {
  PluginModule *module;
  PluginArena *arena;
  const char *begin, *at, *end;
  PluginProgram *body; /* The body of the function that is being read. */
  PluginName *names;   /* The names of its values. */
  size_t num_names;
  PJRT_Error *error;
} PluginText;

static inline bool plugin_fail(PluginText *text, PJRT_Error_Code code, const char *why) {
  size_t line = 1;
  if (text->error != NULL) return false;
  for (const char *at = text->begin; at < text->at; at++) line += *at == '\n';
  text->error = plugin_error(code, "line %zu of the program: %s", line, why);
  return false;
}

static inline bool plugin_unread(PluginText *text) {
  return plugin_fail(text, PJRT_Error_Code_UNIMPLEMENTED, "this is not StableHLO that this plugin reads");
}

static inline bool plugin_wordly(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') || c == '_' ||
         c == '.' || c == '$';
}

/* Returns the next character that is neither space nor comment, or '\0' at the end. */
static inline char plugin_peek(PluginText *text) {
  while (text->at < text->end) {
    if (*text->at == '/' && text->end - text->at > 1 && text->at[1] == '/')
      while (text->at < text->end && *text->at != '\n') text->at++;
    else if (*text->at == ' ' || (*text->at >= '\t' && *text->at <= '\r'))
      text->at++;
    else
      return *text->at;
  }
  return '\0';
}

/* Reads the given characters if they are next; a word must also end there. */
static inline bool plugin_see(PluginText *text, const char *what) {
  size_t size = strlen(what);
  plugin_peek(text);
  if ((size_t)(text->end - text->at) < size || memcmp(text->at, what, size) != 0) return false;
  if (plugin_wordly(what[size - 1]) && text->at + size < text->end && plugin_wordly(text->at[size]))
    return false;
  text->at += size;
  return true;
}

static inline bool plugin_expect(PluginText *text, const char *what) {
  return plugin_see(text, what) || plugin_unread(text);
}

/* Reads a word, or returns NULL if none is next. */
static inline const char *plugin_word(PluginText *text) {
  plugin_peek(text);
  const char *begin = text->at;
  while (text->at < text->end && plugin_wordly(*text->at)) text->at++;
  return text->at > begin ? plugin_take_text(text->arena, begin, (size_t)(text->at - begin)) : NULL;
}

/* Reads "a string", and leaves its escapes as they are. */
static inline const char *plugin_string(PluginText *text) {
  if (!plugin_see(text, "\"")) return NULL;
  const char *begin = text->at;
  while (text->at < text->end && *text->at != '"') text->at += *text->at == '\\' ? 2 : 1;
  if (text->at >= text->end) return NULL;
  return plugin_take_text(text->arena, begin, (size_t)(text->at++ - begin));
}

/* Skips the brackets that are next, with all that is in them. */
static inline bool plugin_skip(PluginText *text) {
  long depth = 0;
  do {
    char c = plugin_peek(text);
    if (c == '\0') return plugin_unread(text);
    if (c == '"') {
      if (plugin_string(text) == NULL) return plugin_unread(text);
      continue;
    }
    bool arrow = c == '-' && text->end - text->at > 1 && text->at[1] == '>';
    depth += (c == '(' || c == '{' || c == '[' || c == '<') - (c == ')' || c == '}' || c == ']' || c == '>');
    text->at += arrow ? 2 : 1;
  } while (depth > 0);
  return true;
}

static inline void plugin_location(PluginText *text) {
  if (plugin_see(text, "loc")) plugin_skip(text);
}

/* Types */

static inline PJRT_Buffer_Type plugin_type_named(const char *name) {
  static const struct {
    const char *name;
    PJRT_Buffer_Type type;
  } types[] = {{"i1", PJRT_Buffer_Type_PRED},     {"i8", PJRT_Buffer_Type_S8},
               {"i16", PJRT_Buffer_Type_S16},     {"i32", PJRT_Buffer_Type_S32},
               {"i64", PJRT_Buffer_Type_S64},     {"ui8", PJRT_Buffer_Type_U8},
               {"ui16", PJRT_Buffer_Type_U16},    {"ui32", PJRT_Buffer_Type_U32},
               {"ui64", PJRT_Buffer_Type_U64},    {"f16", PJRT_Buffer_Type_F16},
               {"bf16", PJRT_Buffer_Type_BF16},   {"f32", PJRT_Buffer_Type_F32},
               {"f64", PJRT_Buffer_Type_F64}};
  for (size_t i = 0; i < sizeof types / sizeof *types; i++)
    if (strcmp(types[i].name, name) == 0) return types[i].type;
  return PJRT_Buffer_Type_INVALID;
}

/* Reads a type such as tensor<2x3xf32>. */
static inline bool plugin_type(PluginText *text, PluginArray *array) {
  int64_t dims[PLUGIN_MAX_RANK];
  size_t rank = 0;
  PJRT_Buffer_Type type;
  if (!plugin_see(text, "tensor<"))
    return plugin_fail(text, PJRT_Error_Code_UNIMPLEMENTED, "values are tensors here");
  while (text->at < text->end && *text->at >= '0' && *text->at <= '9') {
    int64_t dim = 0;
    for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
      if (dim > INT64_MAX / 16) return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "a large dimension");
      dim = dim * 10 + (*text->at - '0');
    }
    if (rank == PLUGIN_MAX_RANK || text->at == text->end || *text->at++ != 'x') return plugin_unread(text);
    dims[rank++] = dim;
  }
  if (plugin_see(text, "complex<")) {
    const char *part = plugin_word(text);
    type = part != NULL && strcmp(part, "f32") == 0   ? PJRT_Buffer_Type_C64
           : part != NULL && strcmp(part, "f64") == 0 ? PJRT_Buffer_Type_C128
                                                      : PJRT_Buffer_Type_INVALID;
    if (!plugin_expect(text, ">")) return false;
  } else {
    const char *name = plugin_word(text);
    type = plugin_type_named(name != NULL ? name : "");
  }
  if (!plugin_see(text, ">") || type == PJRT_Buffer_Type_INVALID)
    return plugin_fail(text, PJRT_Error_Code_UNIMPLEMENTED, "the plugin has no such type");
  text->error = plugin_array_check(array, type, dims, rank);
  return text->error == NULL;
}

static inline int plugin_new_value(PluginText *text, const PluginArray *array) {
  PLUGIN_ADD(text->arena, text->body->values, text->body->num_values, *array);
  return (int)text->body->num_values - 1;
}

/* Attributes */

/* Reads dense<...> : tensor<...> as an array. With `keep_type`, the type can be read again later. */
static inline bool plugin_dense(PluginText *text, PluginAttribute *attribute, bool keep_type) {
  PluginArray array;
  const char *from = text->at, *close, *colon;
  if (!plugin_skip(text)) return false; /* This skips <...>. */
  close = text->at - 1;
  colon = (plugin_peek(text), text->at);
  if (!plugin_expect(text, ":") || !plugin_type(text, &array)) return false;
  if (keep_type) text->at = colon;
  size_t width = plugin_element_size(array.type), size = plugin_array_size(&array), used = 0;
  size_t step = array.type == PJRT_Buffer_Type_C64 || array.type == PJRT_Buffer_Type_C128 ? width / 2 : width;
  char *data = plugin_constant(text->arena, &array, attribute);
  if (data == NULL) return plugin_fail(text, PJRT_Error_Code_RESOURCE_EXHAUSTED, "the constant is too large");
  for (from++; from < close;) {
    char word[80];
    size_t length = 0;
    if (strncmp(from, "\"0x", 3) == 0) { /* One string has the digits of all bytes. */
      for (from += 3; close - from > 1 && *from != '"' && used < size + width; from += 2, used++) {
        const char digits[3] = {from[0], from[1], '\0'};
        if (used < size) data[used] = (char)strtoul(digits, NULL, 16);
      }
      break;
    }
    while (from < close && length < sizeof word - 1 &&
           (plugin_wordly(*from) || *from == '-' || *from == '+'))
      word[length++] = *from++;
    word[length] = '\0';
    if (length == 0) {
      from++;
      continue;
    }
    if (used + step > (size > width ? size : width) || !plugin_number(array.type, word, data + (size > 0 ? used : 0)))
      return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "a constant cannot have this element");
    used += step;
  }
  if (used == width && size > width) plugin_splat(data, size, width);
  else if (used != size && size > 0)
    return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "a constant needs as many elements as its type says");
  plugin_constant_numbers(text->arena, &array, attribute);
  return true;
}

static inline bool plugin_integer(PluginText *text, int64_t *value) {
  plugin_peek(text);
  bool negative = plugin_see(text, "-");
  const char *begin = text->at;
  uint64_t sum = 0;
  for (; text->at < text->end && *text->at >= '0' && *text->at <= '9'; text->at++) {
    if (sum > INT64_MAX / 16) return plugin_unread(text);
    sum = sum * 10 + (uint64_t)(*text->at - '0');
  }
  *value = negative ? -(int64_t)sum : (int64_t)sum;
  return text->at > begin && (text->at == text->end || !plugin_wordly(*text->at));
}

/* Reads whole numbers, or words, which count as 1 for `true` and 0 for all others, up to a closing bracket. */
static inline bool plugin_list(PluginText *text, const char *close, PluginAttribute *attribute) {
  int64_t *numbers = NULL;
  size_t count = 0;
  while (!plugin_see(text, close)) {
    char c = plugin_peek(text);
    int64_t value = 0;
    if (c == ',') {
      text->at++;
      continue;
    }
    if (c == '#' || c == '"' || c == '[' || c == '{') return plugin_unread(text);
    if (c == '-' || (c >= '0' && c <= '9')) {
      if (!plugin_integer(text, &value)) return plugin_unread(text);
    } else {
      const char *word = plugin_word(text);
      if (word == NULL) return plugin_unread(text);
      value = strcmp(word, "true") == 0;
    }
    PLUGIN_ADD(text->arena, numbers, count, value);
  }
  attribute->numbers = numbers;
  attribute->num_numbers = count;
  return true;
}

static inline bool plugin_attributes(PluginText *text, PluginOperation *operation, const char *close);

/* Returns StableHLO's name of an attribute, for which the pretty form may have a short one. */
static inline const char *plugin_full_name(const char *operation, const char *name) {
  static const char *const names[][3] = {{"broadcast_in_dim", "dims", "broadcast_dimensions"},
                                         {"transpose", "dims", "permutation"},
                                         {"iota", "dim", "iota_dimension"},
                                         {"concatenate", "dim", "dimension"},
                                         {"reverse", "dims", "dimensions"},
                                         {"dot_general", "contracting_dims", "lhs_contracting_dimensions"},
                                         {"dot_general", "batching_dims", "lhs_batching_dimensions"}};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strcmp(names[i][0], operation) == 0 && strcmp(names[i][1], name) == 0) return names[i][2];
  return name;
}

/* Reads an attribute's value. With `typed`, the type of a number may follow. */
static inline bool plugin_attribute_value(PluginText *text, PluginOperation *operation, const char *name,
                                          bool typed) {
  name = plugin_full_name(operation->name, name);
  PluginAttribute *attribute = plugin_add_attribute(text->arena, operation, name);
  char c = plugin_peek(text);
  if (plugin_see(text, "[")) {
    if (!plugin_list(text, "]", attribute)) return false;
    if (strncmp(name, "lhs_", 4) != 0 || !plugin_see(text, "x")) return true;
    char *right = plugin_take_text(text->arena, name, strlen(name));
    right[0] = 'r';
    attribute = plugin_add_attribute(text->arena, operation, right);
    return plugin_expect(text, "[") && plugin_list(text, "]", attribute);
  }
  if (plugin_see(text, "array<")) {
    const char *element = plugin_word(text);
    if (element == NULL) return plugin_unread(text);
    return plugin_see(text, ">") || (plugin_expect(text, ":") && plugin_list(text, ">", attribute));
  }
  if (plugin_see(text, "dense")) return plugin_dense(text, attribute, !typed);
  if (c == '"') return (attribute->text = plugin_string(text)) != NULL || plugin_unread(text);
  if (c == '{') return plugin_skip(text);
  if (plugin_see(text, "@")) return (attribute->text = plugin_word(text)) != NULL || plugin_unread(text);
  if (plugin_see(text, "#")) { /* #stablehlo<comparison_direction LT>, #stablehlo.dot<...> */
    const char *kind = plugin_word(text);
    if (kind == NULL || !plugin_see(text, "<")) return plugin_unread(text);
    if (strcmp(kind, "stablehlo") != 0) return plugin_attributes(text, operation, ">");
    if (plugin_word(text) == NULL) return plugin_unread(text);
    attribute->text = plugin_word(text);
    return attribute->text != NULL ? plugin_expect(text, ">") : plugin_unread(text);
  }
  if (c == '-' || (c >= '0' && c <= '9')) {
    int64_t *number = (int64_t *)plugin_take(text->arena, sizeof *number);
    if (!plugin_integer(text, number)) return plugin_unread(text);
    attribute->numbers = number;
    attribute->num_numbers = 1;
    return !typed || !plugin_see(text, ":") || plugin_word(text) != NULL;
  }
  attribute->text = plugin_word(text);
  if (attribute->text == NULL) return plugin_unread(text);
  if (strcmp(attribute->text, "true") == 0 || strcmp(attribute->text, "false") == 0) {
    int64_t *number = (int64_t *)plugin_take(text->arena, sizeof *number);
    *number = attribute->text[0] == 't';
    attribute->numbers = number;
    attribute->num_numbers = 1;
  }
  return plugin_peek(text) != '<' || plugin_skip(text);
}

/* Reads name = value, ... up to a closing bracket. */
static inline bool plugin_attributes(PluginText *text, PluginOperation *operation, const char *close) {
  while (!plugin_see(text, close)) {
    const char *name = plugin_word(text);
    if (name == NULL) return plugin_unread(text);
    if (plugin_see(text, "=") && !plugin_attribute_value(text, operation, name, true)) return false;
    if (plugin_peek(text) == ',') text->at++;
  }
  return true;
}

/* Operations */

/* Reads the name of a value, such as %a or %a#1, and finds its number. */
static inline bool plugin_operand_read(PluginText *text, int *value) {
  int64_t number = 0;
  if (!plugin_expect(text, "%")) return false;
  const char *name = plugin_word(text);
  if (name == NULL || (text->at < text->end && *text->at == '#' && (text->at++, !plugin_integer(text, &number))))
    return plugin_unread(text);
  for (size_t i = text->num_names; i-- > 0;) {
    const PluginName *each = &text->names[i];
    if (strcmp(each->name, name) != 0) continue;
    *value = each->first + (int)number;
    if (number < (int64_t)each->count) return true;
    break;
  }
  if (plugin_peek(text) == '=') return plugin_unread(text); /* This names a loop variable. */
  return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "there is no such value");
}

/* Reads the types after the colon, and makes the results. */
static inline bool plugin_operation_types(PluginText *text, PluginOperation *operation) {
  PluginArray *operands = NULL, *results = NULL;
  PluginArray array;
  size_t num_operands = 0, num_results = 0;
  bool function = plugin_see(text, "(");
  while (!function || !plugin_see(text, ")")) {
    if (!plugin_type(text, &array)) return false;
    PLUGIN_ADD(text->arena, operands, num_operands, array);
    if (!plugin_see(text, ",") && !function) break;
  }
  if (function && !plugin_expect(text, "->")) return false;
  if (function && plugin_see(text, "(")) {
    while (!plugin_see(text, ")")) {
      if (!plugin_type(text, &array)) return false;
      PLUGIN_ADD(text->arena, results, num_results, array);
      plugin_see(text, ",");
    }
  } else {
    array = operands != NULL ? operands[num_operands - 1] : array;
    if (function && !plugin_type(text, &array)) return false;
    PLUGIN_ADD(text->arena, results, num_results, array);
  }
  for (size_t i = 0; i < operation->num_operands; i++) {
    bool each = num_operands == operation->num_operands, one = num_operands == 1 && !function;
    const PluginArray *found = plugin_operand(text->body, operation, i);
    if ((!each && !one && function) || ((each || one) && !plugin_array_equal(found, &operands[each ? i : 0])))
      return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "a value has another type than it says here");
  }
  if (num_results != operation->num_results)
    return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "an operation has another number of results");
  for (size_t i = 0; i < num_results; i++) {
    int value = plugin_new_value(text, &results[i]);
    if (i == 0) operation->results = value;
  }
  plugin_location(text);
  return true;
}

/* Reads what stands between an operation's name and its types. */
static inline bool plugin_operation_rest(PluginText *text, PluginOperation *operation) {
  static const char *const words[] = {"comparison_direction", "compare_type"};
  size_t num_words = 0;
  bool opened = false;
  for (char c = plugin_peek(text); c != ':'; c = plugin_peek(text)) {
    int operand = 0;
    const char *name;
    if (c == '%') {
      if (!plugin_operand_read(text, &operand)) return false;
      PLUGIN_ADD(text->arena, operation->operands, operation->num_operands, operand);
    } else if (c == ',' || c == ')' || c == '>' || (c == '(' && !opened)) {
      opened = opened || c == '(';
      text->at++;
    } else if (c == '{' || (c == '<' && plugin_see(text, "<"))) {
      if (!plugin_expect(text, "{") || !plugin_attributes(text, operation, "}")) return false;
    } else if (c == '@') {
      if (!plugin_attribute_value(text, operation, "callee", false)) return false;
    } else if (plugin_see(text, "dense")) {
      if (!plugin_dense(text, plugin_add_attribute(text->arena, operation, "value"), true)) return false;
    } else if ((name = plugin_word(text)) == NULL) {
      return plugin_unread(text);
    } else if (plugin_see(text, "=")) {
      if (!plugin_attribute_value(text, operation, name, false)) return false;
    } else if (num_words == 1 || (num_words == 0 && plugin_peek(text) != ':')) {
      plugin_add_attribute(text->arena, operation, words[num_words++])->text = name;
    } else {
      return plugin_unread(text);
    }
  }
  return plugin_expect(text, ":");
}

/* Reads an operation and the names of its results, as in %r:2 = operation. */
static inline bool plugin_operation_read(PluginText *text) {
  PluginOperation operation;
  PluginName *names = NULL;
  size_t num_names = 0;
  memset(&operation, 0, sizeof operation);
  do {
    PluginName name = {NULL, 0, 1};
    int64_t count = 1;
    if (!plugin_expect(text, "%") || (name.name = plugin_word(text)) == NULL) return plugin_unread(text);
    if (plugin_see(text, ":") && (!plugin_integer(text, &count) || count < 1 || count > 1 << 16))
      return plugin_unread(text);
    name.count = (size_t)count;
    name.first = (int)operation.num_results;
    operation.num_results += name.count;
    PLUGIN_ADD(text->arena, names, num_names, name);
  } while (plugin_see(text, ","));
  if (!plugin_expect(text, "=")) return false;
  const char *full = plugin_peek(text) == '"' ? plugin_string(text) : plugin_word(text);
  if (full == NULL) return plugin_unread(text);
  const char *dot = strchr(full, '.');
  bool known = dot == NULL || strncmp(full, "stablehlo.", 10) == 0 || strncmp(full, "func.", 5) == 0;
  operation.name = known && dot != NULL ? dot + 1 : full;
  if (!plugin_operation_rest(text, &operation) || !plugin_operation_types(text, &operation)) return false;
  for (size_t i = 0; i < num_names; i++) {
    names[i].first += operation.results;
    PLUGIN_ADD(text->arena, text->names, text->num_names, names[i]);
  }
  PLUGIN_ADD(text->arena, text->body->operations, text->body->num_operations, operation);
  return true;
}

static inline bool plugin_return_read(PluginText *text, const PluginArray *types, size_t count) {
  PluginProgram *body = text->body;
  while (plugin_peek(text) == '%') {
    int value = 0;
    if (!plugin_operand_read(text, &value)) return false;
    if (body->num_outputs < count && !plugin_array_equal(&body->values[value], &types[body->num_outputs]))
      return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "another type is returned than announced");
    PLUGIN_ADD(text->arena, body->outputs, body->num_outputs, value);
    plugin_see(text, ",");
  }
  if (body->num_outputs != count)
    return plugin_fail(text, PJRT_Error_Code_INVALID_ARGUMENT, "another number of values is returned");
  for (PluginArray array; count > 0 && (plugin_see(text, ":") || plugin_see(text, ","));)
    if (!plugin_type(text, &array)) return false;
  plugin_location(text);
  return plugin_expect(text, "}");
}

/* Skips the attributes of a parameter, but finds out whether they donate it. */
static inline bool plugin_parameter_attributes(PluginText *text, bool *donated) {
  const char *at = text->at;
  if (!plugin_skip(text)) return false;
  while (at < text->at) {
    const char *word = at;
    while (at < text->at && plugin_wordly(*at)) at++;
    *donated = *donated || plugin_donates(word, (size_t)(at - word));
    at += at == word;
  }
  return true;
}

/* Reads func.func @name(%a: type {attributes}, ...) -> (type, ...) { ... }. */
static inline bool plugin_function_read(PluginText *text) {
  PluginFunction function;
  PluginArray array, *results = NULL;
  size_t num_results = 0;
  memset(&function, 0, sizeof function);
  text->body = &function.body;
  text->num_names = 0;
  if (!plugin_see(text, "public")) plugin_see(text, "private");
  if (!plugin_expect(text, "@") || (function.name = plugin_word(text)) == NULL) return plugin_unread(text);
  if (!plugin_expect(text, "(")) return false;
  while (!plugin_see(text, ")")) {
    PluginName name = {NULL, 0, 1};
    if (!plugin_expect(text, "%") || (name.name = plugin_word(text)) == NULL) return plugin_unread(text);
    if (!plugin_expect(text, ":") || !plugin_type(text, &array)) return false;
    bool donated = false;
    if (plugin_peek(text) == '{' && !plugin_parameter_attributes(text, &donated)) return false;
    PLUGIN_ADD(text->arena, function.body.donated, function.body.num_parameters, donated);
    plugin_location(text);
    name.first = plugin_new_value(text, &array);
    PLUGIN_ADD(text->arena, text->names, text->num_names, name);
    plugin_see(text, ",");
  }
  if (plugin_see(text, "->")) {
    bool several = plugin_see(text, "(");
    while (!several || !plugin_see(text, ")")) {
      if (!plugin_type(text, &array)) return false;
      PLUGIN_ADD(text->arena, results, num_results, array);
      if (!several) break;
      if (plugin_peek(text) == '{' && !plugin_skip(text)) return false;
      plugin_see(text, ",");
    }
  }
  if (plugin_see(text, "attributes") && !plugin_skip(text)) return false;
  if (!plugin_expect(text, "{")) return false;
  while (!plugin_see(text, "return") && !plugin_see(text, "func.return"))
    if (!plugin_operation_read(text)) return false;
  if (!plugin_return_read(text, results, num_results)) return false;
  plugin_location(text);
  PLUGIN_ADD(text->arena, text->module->functions, text->module->num_functions, function);
  return true;
}

/* Reads a module, or functions outside one. */
static inline PJRT_Error *plugin_read_text(PluginModule *module, const char *code, size_t size) {
  PluginText text;
  bool well = true, inside = false;
  memset(&text, 0, sizeof text);
  text.module = module;
  text.arena = module->arena;
  text.begin = text.at = code;
  text.end = code + size;
  for (char c; well && (c = plugin_peek(&text)) != '\0';) {
    if (c == '#') { /* This line names a location or an attribute. */
      while (text.at < text.end && *text.at != '\n') text.at++;
    } else if (!inside && plugin_see(&text, "module")) {
      inside = true;
      if (plugin_see(&text, "@")) module->name = plugin_word(&text);
      if (plugin_see(&text, "attributes")) well = plugin_skip(&text);
      well = well && plugin_expect(&text, "{");
    } else if (inside && plugin_see(&text, "}")) {
      inside = false;
    } else if (plugin_see(&text, "func.func") || plugin_see(&text, "func")) {
      well = plugin_function_read(&text);
    } else if (plugin_see(&text, "loc")) {
      well = plugin_skip(&text);
    } else {
      well = plugin_fail(&text, PJRT_Error_Code_INVALID_ARGUMENT, "this is not StableHLO");
    }
  }
  if (well && inside) plugin_fail(&text, PJRT_Error_Code_INVALID_ARGUMENT, "the program ends in a module");
  return text.error;
}

#endif
