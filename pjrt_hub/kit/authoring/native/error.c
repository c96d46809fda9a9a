/* Errors: a code and its text, owned by whoever holds the pointer. */
#include "plugin.h"

#include <stdarg.h>
#include <stdio.h>

typedef struct {
  PJRT_Error base; /* what a host of 0.107 or newer calls through */
  PJRT_Error_Code code;
  PJRT_NamedValue *payloads; /* texts */
  size_t num_payloads, size;
  char text[];
} Error;

static void vtable_message(const PJRT_Error *error, const char **text, size_t *size) {
  error_text(error, text, size);
}

void error_visit(const PJRT_Error *error, PJRT_Error_PayloadVisitor visit, void *argument) {
  const Error *of = (const Error *)error;
  for (size_t i = 0; i < of->num_payloads; i++)
    visit(of->payloads[i].name, of->payloads[i].name_size, of->payloads[i].string_value,
          of->payloads[i].value_size, argument);
}

static const PJRT_Error_FunctionTable vtable = {
    .struct_size = PJRT_Error_FunctionTable_STRUCT_SIZE,
    .instance_size = sizeof(Error),
    .destroy = destroy_error,
    .message = vtable_message,
    .get_code = error_code,
    .for_each_payload = error_visit,
};

PJRT_Error *make_error_of(PJRT_Error_Code code, const char *text, size_t size) {
  Error *error = need(1, sizeof(Error) + size + 1);
  error->base.vtable = &vtable;
  error->code = code;
  error->size = size;
  if (size > 0) memcpy(error->text, text, size);
  return &error->base;
}

PJRT_Error *make_error(PJRT_Error_Code code, const char *format, ...) {
  char text[1024];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  return make_error_of(code, text, strlen(text));
}

PJRT_Error *wrong_size(const char *name, size_t expected, size_t found) {
  return make_error(PJRT_Error_Code_INVALID_ARGUMENT,
                    "unexpected %s_Args size: expected %zu, got %zu: the caller is older than the "
                    "versions that this plugin serves",
                    name, expected, found);
}

PJRT_Error *no_memory(size_t size) {
  return make_error(PJRT_Error_Code_RESOURCE_EXHAUSTED, "there is no memory for %zu bytes", size);
}

/* Adds copies of what is a text among the payloads. */
PJRT_Error *with_payloads(PJRT_Error *error, const PJRT_NamedValue *payloads, size_t count) {
  Error *to = (Error *)error;
  to->payloads = need(count + 1, sizeof(PJRT_NamedValue));
  for (size_t i = 0; i < count; i++) {
    if (payloads[i].type != PJRT_NamedValue_kString) continue;
    PJRT_NamedValue *copy = &to->payloads[to->num_payloads++];
    *copy = payloads[i];
    copy->name = copy_text(payloads[i].name, payloads[i].name_size);
    copy->string_value = copy_text(payloads[i].string_value, payloads[i].value_size);
  }
  return error;
}

PJRT_Error *copy_error(const PJRT_Error *error) {
  const Error *from = (const Error *)error;
  if (error == NULL) return NULL;
  PJRT_Error *copy = make_error_of(from->code, from->text, from->size);
  return from->num_payloads == 0 ? copy : with_payloads(copy, from->payloads, from->num_payloads);
}

PJRT_Error_Code error_code(const PJRT_Error *error) { return ((const Error *)error)->code; }

void error_text(const PJRT_Error *error, const char **text, size_t *size) {
  *text = ((const Error *)error)->text;
  *size = ((const Error *)error)->size;
}

void destroy_error(PJRT_Error *error) {
  if (error == NULL) return;
  named_values_free(((Error *)error)->payloads, ((Error *)error)->num_payloads);
  free(error);
}
