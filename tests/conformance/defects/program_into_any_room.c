/* Writes an optimized program into room that is too small for it. */
#include "../real.h"

REPLACE(PJRT_Executable_OptimizedProgram) {
  PJRT_Program whole = *args->program;
  whole.code = NULL;
  PJRT_Executable_OptimizedProgram_Args ask = {
      .struct_size = PJRT_Executable_OptimizedProgram_Args_STRUCT_SIZE,
      .executable = args->executable, .program = &whole};
  PJRT_Error *error = real->PJRT_Executable_OptimizedProgram(&ask);
  if (error == NULL && args->program->code != NULL) args->program->code_size = whole.code_size;
  return error != NULL ? error : real->PJRT_Executable_OptimizedProgram(args);
}
