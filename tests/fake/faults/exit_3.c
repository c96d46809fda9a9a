/* Exits with a status of its own. */
#define ON_INITIALIZE exit(3)
#include "../plugin.c"
