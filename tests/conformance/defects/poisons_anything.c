/* Says that it poisoned a launch that there is not. */
#include "../complete.h"

REPLACE(PJRT_Device_PoisonExecution) {
  args->poisoned = true;
  return NULL;
}
