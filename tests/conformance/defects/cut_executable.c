/* Serializes the first half of an executable. */
#include "../real.h"

REPLACE(PJRT_Executable_Serialize) {
  PJRT_Error *error = real->PJRT_Executable_Serialize(args);
  args->serialized_bytes_size /= 2;
  return error;
}
