/* Speaks a minor version from before the order of functions was fixed. */
#define MINOR 55
#include "../plugin.c"
