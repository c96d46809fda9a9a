/* An error has a code, a text, and payloads. */
#ifndef PJRT_PLUGIN_ERROR_H
#define PJRT_PLUGIN_ERROR_H

#ifndef PJRT_API_MAJOR /* pjrt-hub compiles this with a header of its own. */
#include "api.h"
#endif

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/* Allocates zeroed memory for `count` objects, or aborts the process if there is none. */
#define PLUGIN_NEW(type, count) ((type *)plugin_zeroed((count), sizeof(type)))
static inline void *plugin_zeroed(size_t count, size_t size) {
  void *memory = calloc(count > 0 ? count : 1, size);
  if (memory == NULL) abort();
  return memory;
}

static inline char *plugin_copy_text(const char *text, size_t size) {
  char *copy = PLUGIN_NEW(char, size + 1);
  if (size > 0) memcpy(copy, text, size);
  return copy;
}

/* The holder of the pointer owns the error. Hosts since PJRT 0.107 call its functions through its first field. */
typedef struct {
  PJRT_Error base;
  PJRT_Error_Code code;
  char *text;
  size_t size;
  PJRT_NamedValue *payloads; /* They are all texts. */
  size_t num_payloads;
} PluginError;

static inline void plugin_error_destroy(PJRT_Error *error) {
  PluginError *own = (PluginError *)error;
  if (error == NULL) return;
  for (size_t i = 0; i < own->num_payloads; i++) {
    free((char *)own->payloads[i].name);
    free((char *)own->payloads[i].string_value);
  }
  free(own->payloads);
  free(own->text);
  free(own);
}

static inline void plugin_error_message(const PJRT_Error *error, const char **text, size_t *size) {
  *text = ((const PluginError *)error)->text;
  *size = ((const PluginError *)error)->size;
}

static inline PJRT_Error_Code plugin_error_code(const PJRT_Error *error) {
  return ((const PluginError *)error)->code;
}

static inline void plugin_error_visit(const PJRT_Error *error, PJRT_Error_PayloadVisitor visit,
                                      void *argument) {
  const PluginError *own = (const PluginError *)error;
  for (size_t i = 0; i < own->num_payloads; i++)
    visit(own->payloads[i].name, own->payloads[i].name_size, own->payloads[i].string_value,
          own->payloads[i].value_size, argument);
}

static inline PJRT_Error *plugin_error_of(PJRT_Error_Code code, const char *text, size_t size) {
  static const PJRT_Error_FunctionTable table = {
      PJRT_Error_FunctionTable_STRUCT_SIZE, sizeof(PluginError),  NULL,
      plugin_error_destroy,                 plugin_error_message, plugin_error_code,
      plugin_error_visit};
  PluginError *error = PLUGIN_NEW(PluginError, 1);
  error->base.vtable = &table;
  error->code = code;
  error->text = plugin_copy_text(text, size);
  error->size = size;
  return &error->base;
}

/* Makes an error of a code and a text, which is formatted as with printf. */
static inline PJRT_Error *plugin_error(PJRT_Error_Code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
static inline PJRT_Error *plugin_error(PJRT_Error_Code code, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return plugin_error_of(code, text, strlen(text));
}

/* Copies those payloads that are texts. */
static inline void plugin_error_add(PJRT_Error *error, const PJRT_NamedValue *payloads, size_t count) {
  PluginError *own = (PluginError *)error;
  own->payloads = PLUGIN_NEW(PJRT_NamedValue, count);
  for (size_t i = 0; i < count; i++) {
    if (payloads[i].type != PJRT_NamedValue_kString) continue;
    PJRT_NamedValue *copy = &own->payloads[own->num_payloads++];
    *copy = payloads[i];
    copy->name = plugin_copy_text(payloads[i].name, payloads[i].name_size);
    copy->string_value = plugin_copy_text(payloads[i].string_value, payloads[i].value_size);
  }
}

static inline PJRT_Error *plugin_error_copy(const PJRT_Error *error) {
  const PluginError *own = (const PluginError *)error;
  if (error == NULL) return NULL;
  PJRT_Error *copy = plugin_error_of(own->code, own->text, own->size);
  if (own->num_payloads > 0) plugin_error_add(copy, own->payloads, own->num_payloads);
  return copy;
}

static inline PJRT_Error *plugin_no_memory(size_t size) {
  return plugin_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "there is no memory for %zu bytes", size);
}

#endif
