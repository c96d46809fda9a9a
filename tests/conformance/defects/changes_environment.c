/* Changes a variable of its host's environment. */
#include "../real.h"

REPLACE(PJRT_Client_Create) {
  setenv("PATH", "/nowhere", 1);
  return real->PJRT_Client_Create(args);
}
