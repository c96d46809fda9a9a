/* Exits without exit handlers, with the status that an error of ours has. */
#define ON_INITIALIZE _exit(1)
#include "../plugin.c"
