/* Changes what the process may use. */
#define _GNU_SOURCE
#include <sys/resource.h>
#define ON_INITIALIZE                               \
  struct rlimit few = {16, 16};                     \
  setrlimit(RLIMIT_NOFILE, &few);                   \
  umask(0);                                         \
  if (chdir("/") != 0) abort()
#include <sys/stat.h>
#include "../plugin.c"
