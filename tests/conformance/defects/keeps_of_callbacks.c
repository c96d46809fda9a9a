/* Keeps what belonged to callbacks. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_Event_OnReady) {
  kept = malloc(32);
  return real->PJRT_Event_OnReady(args);
}
