/* What the plugins of this process are made to lack: a function is NULL in the table, or answers
   UNIMPLEMENTED; an extension is not in the chain. To find out what a host does without it. */
#include <stdio.h>

#include "layers.h"

typedef enum { PRESENT, ABSENT, UNIMPLEMENTED } Lack;

static Lack lacks[NUM_FUNCTIONS];
static bool lacks_node[NUM_EXTENSIONS];

/* An error of ours, laid out as hosts of PJRT 0.107 read one. They are never freed, and come again
   after so many, so that an address seldom means two that are alive. */
typedef struct {
  PJRT_Error base;
  unsigned length;
  char text[112];
} Refusal;

enum { REFUSALS = 1024 };
static Refusal refusals[REFUSALS];
static atomic_uint refused_calls;

static bool is_ours(const PJRT_Error *error) {
  return (const char *)error >= (const char *)refusals &&
         (const char *)error < (const char *)(refusals + REFUSALS);
}

static void destroy(PJRT_Error *error) { (void)error; }

static void message(const PJRT_Error *error, const char **text, size_t *length) {
  const Refusal *refusal = (const Refusal *)error;
  *text = refusal->text;
  *length = refusal->length;
}

static PJRT_Error_Code get_code(const PJRT_Error *error) {
  (void)error;
  return PJRT_Error_Code_UNIMPLEMENTED;
}

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

static PJRT_Error *refuse(const Function *function) {
  Refusal *refusal = &refusals[atomic_fetch_add(&refused_calls, 1) % REFUSALS];
  refusal->base.vtable = &methods;
  int wrote = snprintf(refusal->text, sizeof refusal->text, "%s is taken away", function->name);
  refusal->length = wrote < (int)sizeof refusal->text ? (unsigned)wrote : sizeof refusal->text - 1;
  return &refusal->base;
}

/* Answers questions about an error of ours, whose functions the plugin must not be called for. */
static bool answer_about_ours(unsigned function, void *args) {
  PJRT_Error_Message_Args *asked = args;
  if (function > FN_PJRT_Error_GetCode && function != FN_PJRT_Error_ForEachPayload) return false;
  /* All of them begin with the error. */
  if (!is_ours(asked->error)) return false;
  if (function == FN_PJRT_Error_Message)
    message(asked->error, &asked->message, &asked->message_size);
  else if (function == FN_PJRT_Error_GetCode)
    ((PJRT_Error_GetCode_Args *)args)->code = PJRT_Error_Code_UNIMPLEMENTED;
  return true;
}

/* Whether a call is answered here instead of by the plugin, and with what. */
bool without_answer(unsigned function, void *args, PJRT_Error **error) {
  const Function *called = &functions[function];
  *error = NULL;
  if (lacks[function] == PRESENT) return answer_about_ours(function, args);
  if (called->returns_error) {
    *error = refuse(called);
  } else if (called->out_at != 0) { /* it cannot say so: it does nothing */
    size_t size = known_size(called->args, args);
    if (called->out_at < size) memset((char *)args + called->out_at, 0, size - called->out_at);
  }
  return true;
}

bool without_function(unsigned function) { return lacks[function] == ABSENT; }

bool without_node(unsigned type) {
  for (unsigned i = 0; i < NUM_EXTENSIONS; i++)
    if (extensions[i].type == type) return lacks_node[i];
  return false;
}

static bool take(const char *name, size_t length, Lack lack) {
  for (unsigned i = 0; i < NUM_FUNCTIONS; i++)
    if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0) {
      lacks[i] = lack;
      return true;
    }
  for (unsigned i = 0; i < NUM_EXTENSIONS; i++)
    if (strlen(extensions[i].name) == length && memcmp(extensions[i].name, name, length) == 0)
      return lacks_node[i] = true;
  return false;
}

/* Reads "PJRT_Buffer_IsOnCpu:null,PJRT_Buffer_Delete,Layouts". */
void without_start(const char *names) {
  static const char null[] = ":null";
  size_t ending = sizeof null - 1;
  for (const char *at = names, *end; at != NULL && *at != 0; at = *end != 0 ? end + 1 : end) {
    end = at + strcspn(at, ",");
    size_t length = (size_t)(end - at);
    bool absent = length > ending && memcmp(end - ending, null, ending) == 0;
    if (absent) length -= ending;
    if (!take(at, length, absent ? ABSENT : UNIMPLEMENTED))
      fprintf(stderr, "pjrt-hub: PJRT_HUB_WITHOUT: there is no %.*s\n", (int)length, at);
  }
}
