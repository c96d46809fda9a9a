/* Has no device when asked a second time. */
#include "../real.h"

REPLACE(PJRT_Client_Devices) {
  static int asked;
  PJRT_Error *error = real->PJRT_Client_Devices(args);
  if (asked++ % 2 == 1) args->num_devices = 0;
  return error;
}
