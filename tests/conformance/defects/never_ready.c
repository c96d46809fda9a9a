/* Has no event that is ready. */
#include "../real.h"

REPLACE(PJRT_Event_IsReady) {
  args->is_ready = false;
  return NULL;
}
