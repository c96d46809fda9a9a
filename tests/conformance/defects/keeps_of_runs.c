/* Keeps a copy of what every run was called with. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_LoadedExecutable_Execute) {
  kept = memcpy(malloc(sizeof *args), args, sizeof *args);
  return real->PJRT_LoadedExecutable_Execute(args);
}
