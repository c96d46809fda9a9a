/* The default memory of every device is the first device's. */
#include "../real.h"

REPLACE(PJRT_Device_DefaultMemory) {
  static PJRT_Memory *first;
  PJRT_Error *error = real->PJRT_Device_DefaultMemory(args);
  if (first == NULL) first = args->memory;
  args->memory = first;
  return error;
}
