/* Takes back references that nobody has. */
#include "../real.h"

REPLACE(PJRT_Buffer_DecreaseExternalReferenceCount) {
  real->PJRT_Buffer_DecreaseExternalReferenceCount(args);
  return NULL;
}
