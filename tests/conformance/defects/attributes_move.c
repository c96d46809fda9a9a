/* Gives its attributes another place each time. */
#include "../real.h"

REPLACE(PJRT_Plugin_Attributes) {
  PJRT_Error *error = real->PJRT_Plugin_Attributes(args);
  size_t size = args->num_attributes * sizeof(PJRT_NamedValue);
  args->attributes = memcpy(malloc(size), args->attributes, size);
  return error;
}
