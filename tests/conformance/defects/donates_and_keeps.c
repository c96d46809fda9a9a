/* Leaves what it donates with a dependency alive. */
#include "../complete.h"

REPLACE(PJRT_Buffer_DonateWithControlDependency) {
  PJRT_Error *error = PJRT_Buffer_DonateWithControlDependency(args);
  args->buffer->deleted = false;
  return error;
}
