/* Finds a device for ids that no device has. */
#include "../real.h"

REPLACE(PJRT_Client_LookupDevice) {
  if (args->id < 0) args->id = 0;
  return real->PJRT_Client_LookupDevice(args);
}
