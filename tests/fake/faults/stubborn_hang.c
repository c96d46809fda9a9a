/* Hangs, and listens to no signal that can be refused. */
#define ON_INITIALIZE                                     \
  for (int each = 1; each < 32; each++) signal(each, SIG_IGN); \
  for (;;) pause()
#include "../plugin.c"
