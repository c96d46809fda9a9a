/* Speaks Latin-1. */
#include "../real.h"

REPLACE_GIVING(void, PJRT_Error_Message) {
  args->message = "d\xe9j\xe0 vu";
  args->message_size = 7;
}
