/* Says that no memory of an argument becomes an output's. */
#include "../real.h"

REPLACE(PJRT_Executable_GetCompiledMemoryStats) {
  PJRT_Error *error = real->PJRT_Executable_GetCompiledMemoryStats(args);
  args->alias_size_in_bytes = 0;
  return error;
}
