/* Gives errors a code that does not exist. */
#include "../real.h"

REPLACE(PJRT_Error_GetCode) {
  args->code = 77;
  return NULL;
}
