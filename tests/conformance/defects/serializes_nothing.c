/* Serializes an executable to no bytes and tells an optimized program of none; loads anything. */
#include "../real.h"

static PJRT_Error *serialize(PJRT_Executable_Serialize_Args *args) {
  args->serialized_bytes = "";
  args->serialized_bytes_size = 0;
  args->serialized_executable = NULL;
  args->serialized_executable_deleter = NULL;
  return NULL;
}

static PJRT_Error *tell(PJRT_Executable_OptimizedProgram_Args *args) {
  args->program->code_size = 0;
  args->program->format = "mlir";
  args->program->format_size = 4;
  return NULL;
}

DEFECT(api) {
  api->PJRT_Executable_Serialize = serialize;
  api->PJRT_Executable_OptimizedProgram = tell;
}
