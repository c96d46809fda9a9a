/* Puts everything into the default memory, whichever is asked for. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
  PJRT_Memory_AddressableByDevices_Args of = {
      .struct_size = PJRT_Memory_AddressableByDevices_Args_STRUCT_SIZE, .memory = args->memory};
  if (args->memory != NULL) {
    PJRT_Error *error = real->PJRT_Memory_AddressableByDevices(&of);
    if (error != NULL) return error;
    args->device = of.devices[0];
    args->memory = NULL;
  }
  return real->PJRT_Client_BufferFromHostBuffer(args);
}
