/* Assigns a device that there is not. */
#include "../real.h"

REPLACE(PJRT_Client_DefaultDeviceAssignment) {
  PJRT_Error *error = real->PJRT_Client_DefaultDeviceAssignment(args);
  if (error == NULL) args->default_assignment[0] = 77;
  return error;
}
