/* The name of its platform has a NUL inside. */
#include "../real.h"

REPLACE(PJRT_Client_PlatformName) {
  PJRT_Error *error = real->PJRT_Client_PlatformName(args);
  args->platform_name = "c\0pu";
  args->platform_name_size = 4;
  return error;
}
