/* Lowers a limit of the process. */
#include "../real.h"

#include <sys/resource.h>

REPLACE(PJRT_Client_Create) {
  struct rlimit limit;
  getrlimit(RLIMIT_NOFILE, &limit);
  limit.rlim_cur /= 2;
  setrlimit(RLIMIT_NOFILE, &limit);
  return real->PJRT_Client_Create(args);
}
