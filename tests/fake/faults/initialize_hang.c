/* Never returns from PJRT_Plugin_Initialize. */
#define ON_INITIALIZE for (;;) pause()
#include "../plugin.c"
