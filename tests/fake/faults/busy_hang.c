/* Computes for ever. */
#define ON_INITIALIZE for (volatile int i = 0;; i++) continue
#include "../plugin.c"
