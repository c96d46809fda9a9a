/* Takes a program of a format that there is not. */
#include "../real.h"

REPLACE(PJRT_Client_Compile) {
  PJRT_Program program = *args->program;
  if (program.format_size == 7) program.format = "mlir", program.format_size = 4;
  args->program = &program;
  return real->PJRT_Client_Compile(args);
}
