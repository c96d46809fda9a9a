/* Closes the standard input. */
#include "../real.h"

#include <unistd.h>

REPLACE(PJRT_Client_Create) {
  close(0);
  return real->PJRT_Client_Create(args);
}
