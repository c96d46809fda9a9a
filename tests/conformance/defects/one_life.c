/* Makes one client in a process, and dies when asked for another. */
#include "../real.h"

REPLACE(PJRT_Client_Create) {
  static int lives;
  if (lives++ > 0) abort();
  return real->PJRT_Client_Create(args);
}
