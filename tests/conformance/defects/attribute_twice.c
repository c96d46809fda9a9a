/* Tells its first attribute twice. */
#include "../real.h"

REPLACE(PJRT_Plugin_Attributes) {
  static PJRT_NamedValue twice[64];
  PJRT_Error *error = real->PJRT_Plugin_Attributes(args);
  memcpy(twice, args->attributes, args->num_attributes * sizeof twice[0]);
  twice[args->num_attributes++] = args->attributes[0];
  args->attributes = twice;
  return error;
}
