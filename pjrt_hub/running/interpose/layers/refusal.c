/* This library's own errors, laid out as hosts of PJRT 0.107 expect. No plugin may see them. */
#include "layers.h"

typedef struct {
  PJRT_Error base;
  PJRT_Error_Code code;
  size_t length;
  char text[];
} Refusal;

static void destroy(PJRT_Error *error) { free(error); }

static void message(const PJRT_Error *error, const char **text, size_t *length) {
  const Refusal *refusal = (const Refusal *)error;
  *text = refusal->text;
  *length = refusal->length;
}

static PJRT_Error_Code get_code(const PJRT_Error *error) { return ((const Refusal *)error)->code; }

static void for_each_payload(const PJRT_Error *error, PJRT_Error_PayloadVisitor visitor, void *arg) {
  (void)error, (void)visitor, (void)arg;
}

static const PJRT_Error_FunctionTable methods = {
    .struct_size = sizeof methods,
    .instance_size = sizeof(PJRT_Error),
    .destroy = destroy,
    .message = message,
    .get_code = get_code,
    .for_each_payload = for_each_payload,
};

PJRT_Error *refuse(PJRT_Error_Code code, const char *text, size_t length) {
  Refusal *refusal = calloc(1, sizeof *refusal + length + 1);
  if (refusal == NULL) abort(); /* There is no other way to report a failure. */
  refusal->base.vtable = &methods;
  refusal->code = code;
  refusal->length = length;
  memcpy(refusal->text, text, length);
  return &refusal->base;
}

PJRT_Error *refuse_text(PJRT_Error_Code code, const char *text) {
  return refuse(code, text, strlen(text));
}

/* Answers a call about one of this library's errors. Returns false for the plugin's, whose vtable
   may be read, because they have as many bytes, whatever older plugins keep there. */
bool refusal_answer(unsigned function, void *args) {
  PJRT_Error_Message_Args *asked = args;
  if (function > FN_PJRT_Error_GetCode && function != FN_PJRT_Error_ForEachPayload) return false;
  /* The arguments of all these functions begin with the error. */
  if (asked->error == NULL || asked->error->vtable != &methods) return false;
  if (function == FN_PJRT_Error_Message)
    message(asked->error, &asked->message, &asked->message_size);
  else if (function == FN_PJRT_Error_GetCode)
    ((PJRT_Error_GetCode_Args *)args)->code = get_code(asked->error);
  else if (function == FN_PJRT_Error_Destroy)
    free((void *)asked->error);
  return true;
}
