/* Leaves what it casts alive. */
#include "../complete.h"

REPLACE(PJRT_Buffer_Bitcast) {
  PJRT_Error *error = PJRT_Buffer_Bitcast(args);
  args->buffer->deleted = false;
  return error;
}
