/* Tells a cost that is no number. */
#include "costs.h"

REPLACE(PJRT_Executable_GetCostAnalysis) {
  PJRT_Error *error = count_costs(args);
  ((PJRT_NamedValue *)args->properties)[0].float_value = 0.0f / 0.0f;
  return error;
}
