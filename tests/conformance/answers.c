/* The real plugin, except that FUNCTION does what ANSWER says: -DANSWER=ABORTS and so on. */
#include <stdbool.h>
#include <unistd.h>

#include "real.h"

#define ABORTS abort();
#define HANGS sleep(1000);
#define HANGS_LATER     \
  static int calls;     \
  if (++calls >= 10) HANGS
#define FAILS return failure_of(13, "broken on purpose");
#define UNIMPLEMENTED return failure_of(12, "FUNCTION is not implemented");
#define NOTHING return NULL; /* it reports success, but fills in nothing */
#define SLOW sleep(SECONDS);

/* These answers are for PJRT_Client_Compile only. */
#define BEGINS(word) \
  (args->program->code_size >= strlen(word) && memcmp(args->program->code, word, strlen(word)) == 0)
#define BYTECODE BEGINS("ML\xefR")
#define ARTIFACT (BYTECODE && memcmp(args->program->code + 5, "StableHLO_v", 11) == 0)
#define REFUSE return failure_of(3, "this form is not known");
#define NO_TEXT if (!BYTECODE) REFUSE
#define NO_ARTIFACTS if (ARTIFACT) REFUSE
#define ONLY_ARTIFACTS if (!ARTIFACT) REFUSE
#define ONLY_BYTECODE if (!BYTECODE || ARTIFACT) REFUSE
#define DIES_OF_ARTIFACTS if (ARTIFACT) abort();

typedef struct {
  int code;
  const char *message;
} Failure;

/* Every error of this file is one of these, so that it can be told from the real plugin's. */
static Failure failures[17];

static bool is_ours(const void *error) {
  return (const char *)error >= (char *)failures && (const char *)error < (char *)(failures + 17);
}

static inline PJRT_Error *failure_of(int code, const char *message) {
  failures[code] = (Failure){code, message};
  return (PJRT_Error *)&failures[code];
}

static void destroy(PJRT_Error_Destroy_Args *args) {
  if (!is_ours(args->error)) real->PJRT_Error_Destroy(args);
}

static void message(PJRT_Error_Message_Args *args) {
  if (!is_ours(args->error)) return real->PJRT_Error_Message(args);
  args->message = ((const Failure *)args->error)->message;
  args->message_size = strlen(args->message);
}

static PJRT_Error *payloads(PJRT_Error_ForEachPayload_Args *args) {
  return is_ours(args->error) ? NULL : real->PJRT_Error_ForEachPayload(args);
}

static PJRT_Error *code(PJRT_Error_GetCode_Args *args) {
  if (!is_ours(args->error)) return real->PJRT_Error_GetCode(args);
  args->code = ((const Failure *)args->error)->code;
  return NULL;
}

#define ARGS_OF(name) name##_Args
#define ARGS(name) ARGS_OF(name)

static PJRT_Error *answer(ARGS(FUNCTION) * args) {
  ANSWER
  return real->FUNCTION(args);
}

const PJRT_Api *GetPjrtApi(void) {
  PJRT_Api *api = copy_of_real();
  api->PJRT_Error_Destroy = destroy;
  api->PJRT_Error_Message = message;
  api->PJRT_Error_GetCode = code;
  if (api->PJRT_Error_ForEachPayload != NULL) api->PJRT_Error_ForEachPayload = payloads;
  api->FUNCTION = answer;
  return api;
}
