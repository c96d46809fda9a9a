/* Macros for the functions of the table: one begins every function, and others define those that are alike. */
#ifndef PJRT_PLUGIN_FUNCTION_H
#define PJRT_PLUGIN_FUNCTION_H

#include "error.h"

/* Declares what the kit asks of a plugin. A plugin in several files makes it empty and defines each function once. */
#ifndef PLUGIN_ASKED
#define PLUGIN_ASKED static inline
#endif
/* Each function begins with this, which may return an error. */
#ifndef PLUGIN_FIRST
#define PLUGIN_FIRST(name)
#endif

/* Begins a function of the table. `args` may be longer than this version knows. It may also be shorter, if it has all
   fields of the first version; ask PLUGIN_HAS about later fields. */
#define PLUGIN_FUNCTION(name)                                                              \
  static inline PJRT_Error *plugin_answer_##name(name##_Args *args);                       \
  static inline PJRT_Error *plugin_##name(name##_Args *args) {                             \
    if (args->struct_size < name##_Args_FIRST_SIZE)                                        \
      return plugin_wrong_size(#name, name##_Args_FIRST_SIZE, args->struct_size);          \
    PLUGIN_FIRST(name)                                                                     \
    return plugin_answer_##name(args);                                                     \
  }                                                                                        \
  static inline PJRT_Error *plugin_answer_##name(name##_Args *args __attribute__((unused)))
#define PLUGIN_HAS(args, type, field) \
  ((args)->struct_size >= offsetof(type, field) + sizeof((args)->field))

static inline PJRT_Error *plugin_wrong_size(const char *name, size_t expected, size_t found) {
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "Unexpected %s_Args size: expected %zu, got %zu", name,
                      expected, found);
}

/* These define functions that do one thing, or tell a value, a text, or a list and its length. All of that may depend
   on `args`. */
#define PLUGIN_DOES(name, call) \
  PLUGIN_FUNCTION(name) {       \
    call;                       \
    return NULL;                \
  }
#define PLUGIN_TELLS(name, field, value) \
  PLUGIN_FUNCTION(name) {                \
    args->field = (value);               \
    return NULL;                         \
  }
#define PLUGIN_TELLS_TEXT(name, field, value)    \
  PLUGIN_FUNCTION(name) {                        \
    args->field = (value);                       \
    args->field##_size = strlen(args->field);    \
    return NULL;                                 \
  }
#define PLUGIN_TELLS_LIST(name, field, list, count) \
  PLUGIN_FUNCTION(name) {                           \
    args->field = (list);                           \
    args->num_##field = (count);                    \
    return NULL;                                    \
  }
/* Defines a function that tells a copy of some bytes, and the function with which the host frees it. */
#define PLUGIN_TELLS_BYTES(name, holder, type, bytes, size)                        \
  static inline void plugin_release_##name(type *serialized) { free(serialized); } \
  PLUGIN_FUNCTION(name) {                                                          \
    char *copy = plugin_copy_text((bytes), (size));                                \
    args->serialized_bytes = copy;                                                 \
    args->serialized_bytes_size = (size);                                          \
    args->holder = (type *)(void *)copy;                                           \
    args->holder##_deleter = plugin_release_##name;                                \
    return NULL;                                                                   \
  }

#endif
