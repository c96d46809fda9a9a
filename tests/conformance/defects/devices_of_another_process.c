/* Its devices belong to another process than its client. */
#include "../real.h"

REPLACE(PJRT_DeviceDescription_ProcessIndex) {
  PJRT_Error *error = real->PJRT_DeviceDescription_ProcessIndex(args);
  args->process_index = 5;
  return error;
}
