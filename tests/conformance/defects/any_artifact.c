/* Takes any artifact for one of version 0.9.0, and refuses what is newer. */
#include "../real.h"

REPLACE(PJRT_Client_Compile) {
  PJRT_Program program = *args->program;
  if (program.code_size > 17 && memcmp(program.code + 5, "StableHLO_v0.9.0", 16) == 0)
    program.code_size /= 2;
  args->program = &program;
  return real->PJRT_Client_Compile(args);
}
