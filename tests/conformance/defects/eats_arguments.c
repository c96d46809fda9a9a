/* Deletes the arguments of each run, donated or not. */
#include "../real.h"

REPLACE(PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
  for (size_t i = 0; error == NULL && i < args->num_args; i++) {
    PJRT_Buffer_Delete_Args delete = {.struct_size = PJRT_Buffer_Delete_Args_STRUCT_SIZE,
                                      .buffer = args->argument_lists[0][i]};
    real->PJRT_Buffer_Delete(&delete);
  }
  return error;
}
