/* Calls every element type by the next one's number. */
#include "../real.h"

REPLACE(PJRT_Buffer_ElementType) {
  PJRT_Error *error = real->PJRT_Buffer_ElementType(args);
  args->type += 1;
  return error;
}
