/* Writes where no memory is. */
#define ON_INITIALIZE *(volatile int *)8 = 1
#include "../plugin.c"
