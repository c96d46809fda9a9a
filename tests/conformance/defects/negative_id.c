/* Its devices have negative ids. */
#include "../real.h"

REPLACE(PJRT_DeviceDescription_Id) {
  PJRT_Error *error = real->PJRT_DeviceDescription_Id(args);
  args->id = -1 - args->id;
  return error;
}
