/* Counts the costs of a program higher each time. */
#include "costs.h"

REPLACE(PJRT_Executable_GetCostAnalysis) {
  static float more;
  PJRT_Error *error = count_costs(args);
  size_t size = args->num_properties * sizeof args->properties[0];
  PJRT_NamedValue *costs = memcpy(malloc(size), args->properties, size);
  costs[0].float_value += more++;
  args->properties = costs;
  return error;
}
