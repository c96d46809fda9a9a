/* All its devices have the same id. */
#include "../real.h"

REPLACE(PJRT_DeviceDescription_Id) {
  PJRT_Error *error = real->PJRT_DeviceDescription_Id(args);
  args->id = 0;
  return error;
}
