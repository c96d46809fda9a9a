/* Speaks a newer minor version, with functions that nobody knows yet. */
#define MINOR 999
#include "../plugin.c"
