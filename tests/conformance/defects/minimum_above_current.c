/* Tells a minimum version of StableHLO that is newer than its own. */
#include "../real.h"

REPLACE(PJRT_Plugin_Attributes) {
  static const int64_t newer[] = {99, 0, 0};
  static PJRT_NamedValue values[64];
  PJRT_Error *error = real->PJRT_Plugin_Attributes(args);
  memcpy(values, args->attributes, args->num_attributes * sizeof values[0]);
  for (size_t i = 0; i < args->num_attributes; i++)
    if (strncmp(values[i].name, "stablehlo_minimum_version", values[i].name_size) == 0)
      values[i].int64_array_value = newer;
  args->attributes = values;
  return error;
}
