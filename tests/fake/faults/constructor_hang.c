/* Never returns from being loaded. */
#define ON_LOAD for (;;) pause()
#include "../plugin.c"
