/* Loads an executable for the device that it was compiled for, whatever it is told. */
#include "../real.h"

REPLACE(PJRT_Executable_DeserializeAndLoad) {
  args->overridden_serialized_compile_options_size = 0;
  return real->PJRT_Executable_DeserializeAndLoad(args);
}
