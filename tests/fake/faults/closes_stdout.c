/* Closes the standard streams. */
#define ON_INITIALIZE close(0), close(1), close(2)
#include "../plugin.c"
