/* Writes behind the end of its caller's struct. */
#include "../real.h"

REPLACE(PJRT_Client_Devices) {
  PJRT_Error *error = real->PJRT_Client_Devices(args);
  if (args->struct_size > sizeof *args) ((char *)args)[args->struct_size] = 1;
  return error;
}
