/* Refuses structs that are longer than its own. */
#include "../real.h"

REPLACE(PJRT_Client_Devices) {
  if (args->struct_size != PJRT_Client_Devices_Args_STRUCT_SIZE) args->struct_size = 0;
  return real->PJRT_Client_Devices(args);
}
