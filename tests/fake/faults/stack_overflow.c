/* Calls itself until its stack ends. */
static int deeper(volatile int *above);
#define ON_INITIALIZE deeper(NULL)
#include "../plugin.c"

static int deeper(volatile int *above) {
  volatile int here[1024] = {above != NULL};
  return deeper(here) + here[above != NULL];
}
