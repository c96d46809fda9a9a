/* Has one place for the strings of memories. */
#include "../real.h"

REPLACE(PJRT_Memory_ToString) {
  static char text[1024];
  PJRT_Error *error = real->PJRT_Memory_ToString(args);
  if (error == NULL && args->to_string_size < sizeof text)
    args->to_string = memcpy(text, args->to_string, args->to_string_size);
  return error;
}
