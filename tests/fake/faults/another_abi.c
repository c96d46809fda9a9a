/* Speaks major version 1. */
#define MAJOR 1
#include "../plugin.c"
