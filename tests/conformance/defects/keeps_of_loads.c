/* Keeps what belonged to programs that were loaded. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_Executable_DeserializeAndLoad) {
  kept = malloc(4096);
  return real->PJRT_Executable_DeserializeAndLoad(args);
}
