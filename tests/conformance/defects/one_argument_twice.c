/* Takes the first argument for all others too. */
#include "../real.h"

REPLACE(PJRT_LoadedExecutable_Execute) {
  PJRT_Buffer *row[16], *const *rows[] = {row};
  if (args->num_devices == 1 && args->num_args <= 16) {
    for (size_t i = 0; i < args->num_args; i++) row[i] = args->argument_lists[0][0];
    args->argument_lists = rows;
  }
  return real->PJRT_LoadedExecutable_Execute(args);
}
