/* Writes to stderr without end. */
#define ON_INITIALIZE for (;;) dprintf(2, "and another line of words that nobody reads\n")
#include "../plugin.c"
