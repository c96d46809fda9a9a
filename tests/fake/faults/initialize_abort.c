/* Aborts in PJRT_Plugin_Initialize. */
#define ON_INITIALIZE abort()
#include "../plugin.c"
