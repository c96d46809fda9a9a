/* Plugins with one defect each, in one library: tests write the defect's name into its file. */
#define _GNU_SOURCE
#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"

static const volatile char wanted[64] = "the name of the defect is written over this";

static bool is_wanted(const char *defect) { return strcmp((const char *)wanted, defect) == 0; }

static void (*changes[8])(PJRT_Api *api);
static int num_changes;

static PJRT_Api *changed(PJRT_Api *api) {
  for (int i = 0; i < num_changes; i++) changes[i](api);
  return api;
}

/* An example is DEFECT(no_extensions) { api->extension_start = NULL; }. */
#define DEFECT(name) CHANGE(name, name)
#define CHANGE(name, id)                                               \
  static void change_##id(PJRT_Api *api);                              \
  __attribute__((constructor)) static void choose_##id(void) {         \
    if (is_wanted(#name)) changes[num_changes++] = change_##id;        \
  }                                                                    \
  static void change_##id(PJRT_Api *api)

/* An example is REPLACE(deletes_nothing, PJRT_Buffer_Delete) { return NULL; }. A defect may replace
   several functions. */
#define REPLACE(name, function) REPLACE_GIVING(PJRT_Error *, name, function)
#define REPLACE_VOID(name, function) REPLACE_GIVING(void, name, function)
#define REPLACE_GIVING(result, name, function)                         \
  static result name##_##function(function##_Args *args);              \
  CHANGE(name, name##_##function) { api->function = name##_##function; } \
  static result name##_##function(function##_Args *args)

/* These macros run code before the working function, after its success, or in its place. */
#define BEFORE(name, function, ...)                                    \
  REPLACE(name, function) {                                            \
    __VA_ARGS__;                                                       \
    return WORKING(function)(args);                                    \
  }
#define AFTER(name, function, ...)                                     \
  REPLACE(name, function) {                                            \
    PJRT_Error *error = WORKING(function)(args);                       \
    if (error == NULL) {                                               \
      __VA_ARGS__;                                                     \
    }                                                                  \
    return error;                                                      \
  }
#define INSTEAD(name, function, ...)                                   \
  REPLACE(name, function) {                                            \
    __VA_ARGS__;                                                       \
    return NULL;                                                       \
  }
