/* Says of every event that it has come. */
#include "../real.h"

REPLACE(PJRT_Event_IsReady) {
  args->is_ready = true;
  return NULL;
}
