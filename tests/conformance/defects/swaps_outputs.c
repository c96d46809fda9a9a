/* Gives the two outputs of a program of one argument in the other order. */
#include "../real.h"

REPLACE(PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
  if (error != NULL || args->num_args != 1) return error;
  PJRT_Buffer *first = args->output_lists[0][0];
  args->output_lists[0][0] = args->output_lists[0][1];
  args->output_lists[0][1] = first;
  return NULL;
}
