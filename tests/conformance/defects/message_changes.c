/* Has another message each time. */
#include "../real.h"

REPLACE_GIVING(void, PJRT_Error_Message) {
  static const char *const words[] = {"one", "two"};
  static int times;
  args->message = words[times++ % 2];
  args->message_size = 3;
}
