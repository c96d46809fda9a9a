/* Donates what the caller wants to keep. */
#include "../real.h"

REPLACE(PJRT_LoadedExecutable_Execute) {
  args->options->num_non_donatable_input_indices = 0;
  return real->PJRT_LoadedExecutable_Execute(args);
}
