/* Compiles for the first device, whatever the options say. */
#include "../real.h"

REPLACE(PJRT_Client_Compile) {
  args->compile_options = "\x1a\x04\x20\x01\x28\x01";
  args->compile_options_size = 6;
  return real->PJRT_Client_Compile(args);
}
