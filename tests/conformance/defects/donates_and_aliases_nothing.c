/* Keeps what the program donates, and tells of no memory that outputs share with arguments. */
#include "../real.h"

static PJRT_Error *keep(PJRT_LoadedExecutable_Execute_Args *args) {
  static const int64_t first[] = {0};
  args->options->non_donatable_input_indices = first;
  args->options->num_non_donatable_input_indices = 1;
  return real->PJRT_LoadedExecutable_Execute(args);
}

static PJRT_Error *tell(PJRT_Executable_GetCompiledMemoryStats_Args *args) {
  PJRT_Error *error = real->PJRT_Executable_GetCompiledMemoryStats(args);
  args->alias_size_in_bytes = 0;
  return error;
}

DEFECT(api) {
  api->PJRT_LoadedExecutable_Execute = keep;
  api->PJRT_Executable_GetCompiledMemoryStats = tell;
}
