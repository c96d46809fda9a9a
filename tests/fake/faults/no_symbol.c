/* Exports no GetPjrtApi. */
#define NO_ENTRY
#include "../plugin.c"
