/* Keeps the room in which it compiled each program. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_Client_Compile) {
  kept = malloc(1 << 16);
  return real->PJRT_Client_Compile(args);
}
