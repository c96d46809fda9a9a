/* Forgets the text that an event is set to fail with. */
#include "../complete.h"

REPLACE(PJRT_Event_Set) {
  args->error_message_size = 0;
  return PJRT_Event_Set(args);
}
