/* Has one place for the shapes of outputs, whichever program is asked. */
#include "../real.h"

REPLACE(PJRT_Executable_OutputDimensions) {
  static int64_t dims[64];
  size_t count = 0;
  PJRT_Error *error = real->PJRT_Executable_OutputDimensions(args);
  for (size_t i = 0; error == NULL && i < args->num_outputs; i++) count += args->dim_sizes[i];
  if (error != NULL || count > 64) return error;
  args->dims = memcpy(dims, args->dims, count * sizeof *dims);
  return NULL;
}
