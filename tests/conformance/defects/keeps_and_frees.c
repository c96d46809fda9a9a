/* Keeps a little of every copy to the host, and lets go once of what it held before. */
#include "../real.h"

static void *volatile kept; /* so that no compiler leaves it out */

REPLACE(PJRT_Buffer_ToHostBuffer) {
  static int copies;
  static void *held;
  if (copies == 0) held = malloc(1 << 20);
  if (++copies == 600) free(held);
  kept = malloc(64);
  return real->PJRT_Buffer_ToHostBuffer(args);
}
