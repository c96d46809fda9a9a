/* Is killed, as by a system that runs out of memory. */
#define ON_INITIALIZE raise(SIGKILL)
#include "../plugin.c"
