/* Has more bytes in use than it can have. */
#include "../real.h"

REPLACE(PJRT_Device_MemoryStats) {
  args->bytes_in_use = 10;
  args->bytes_limit = 5;
  args->bytes_limit_is_set = true;
  return NULL;
}
