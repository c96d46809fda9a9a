/* Says that all outputs are of the first one's type. */
#include "../real.h"

REPLACE(PJRT_Executable_OutputElementTypes) {
  PJRT_Error *error = real->PJRT_Executable_OutputElementTypes(args);
  for (size_t i = 1; i < args->num_output_types; i++) args->output_types[i] = args->output_types[0];
  return error;
}
