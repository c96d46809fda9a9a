/* Has one place for the names of programs. */
#include "../real.h"

REPLACE(PJRT_Executable_Name) {
  static char name[1024];
  PJRT_Error *error = real->PJRT_Executable_Name(args);
  if (error == NULL && args->executable_name_size < sizeof name)
    args->executable_name = memcpy(name, args->executable_name, args->executable_name_size);
  return error;
}
