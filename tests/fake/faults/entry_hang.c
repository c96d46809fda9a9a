/* Never returns from GetPjrtApi. */
#define TABLE (pause(), &api)
#include "../plugin.c"
