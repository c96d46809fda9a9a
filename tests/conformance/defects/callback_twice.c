/* Calls every callback of an event twice. */
#include "../real.h"

REPLACE(PJRT_Event_OnReady) {
  PJRT_Error *error = real->PJRT_Event_OnReady(args);
  return error != NULL ? error : real->PJRT_Event_OnReady(args);
}
