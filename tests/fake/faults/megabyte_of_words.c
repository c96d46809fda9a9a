/* Writes a megabyte to stderr, then aborts. */
#define ON_INITIALIZE                                                    \
  for (int i = 0; i < 1 << 17; i++) dprintf(2, "%07d\n", i);              \
  dprintf(2, "the last word\n");                                        \
  abort()
#include "../plugin.c"
