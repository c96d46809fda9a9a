/* Compiles with options of its own where those given are junk. */
#include "../real.h"

REPLACE(PJRT_Client_Compile) {
  PJRT_Error *error = real->PJRT_Client_Compile(args);
  if (error == NULL) return NULL;
  args->compile_options = "\x1a\x04\x20\x01\x28\x01";
  args->compile_options_size = 6;
  return real->PJRT_Client_Compile(args);
}
