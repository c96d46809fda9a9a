/* Calls its host's thread by another name. */
#include "../real.h"

#include <sys/prctl.h>

REPLACE(PJRT_Client_Compile) {
  prctl(PR_SET_NAME, "compiler");
  return real->PJRT_Client_Compile(args);
}
