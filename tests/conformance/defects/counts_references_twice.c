/* Counts each external reference twice. */
#include "../real.h"

REPLACE(PJRT_Buffer_IncreaseExternalReferenceCount) {
  PJRT_Error *error = real->PJRT_Buffer_IncreaseExternalReferenceCount(args);
  return error != NULL ? error : real->PJRT_Buffer_IncreaseExternalReferenceCount(args);
}
