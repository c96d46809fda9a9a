/* Keeps what belonged to an event that is destroyed. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_Event_Destroy) {
  kept = malloc(32);
  return real->PJRT_Event_Destroy(args);
}
