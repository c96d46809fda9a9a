/* Tells a cost of seven operations, whatever the program. */
#include "costs.h"

REPLACE(PJRT_Executable_GetCostAnalysis) {
  PJRT_Error *error = count_costs(args);
  for (size_t i = 0; i < args->num_properties; i++)
    if (strncmp(args->properties[i].name, "flops", args->properties[i].name_size) == 0)
      ((PJRT_NamedValue *)args->properties)[i].float_value = 7;
  return error;
}
