/* Kills every process of its group. */
#define ON_INITIALIZE kill(0, SIGKILL)
#include "../plugin.c"
