/* Takes a struct of no bytes for a whole one. */
#include "../real.h"

REPLACE(PJRT_Client_PlatformName) {
  args->struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE;
  return real->PJRT_Client_PlatformName(args);
}
