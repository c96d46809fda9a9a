/* Has room for one message, which each error overwrites. */
#include "../real.h"

static void replacement(PJRT_Error_Message_Args *args) {
  static char message[4096];
  static const PJRT_Error *newest, *older;
  real->PJRT_Error_Message(args);
  if (args->error != newest && args->error != older) {
    older = newest, newest = args->error;
    snprintf(message, sizeof message, "%.*s", (int)args->message_size, args->message);
  }
  args->message = message;
  args->message_size = strlen(message);
}

DEFECT(api) { api->PJRT_Error_Message = replacement; }
