/* Makes everything in the process run after others. */
#include "../real.h"

#include <sys/resource.h>

REPLACE(PJRT_Client_Create) {
  setpriority(PRIO_PROCESS, 0, 19);
  return real->PJRT_Client_Create(args);
}
