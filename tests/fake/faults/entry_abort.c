/* Aborts in GetPjrtApi. */
#define TABLE (abort(), &api)
#include "../plugin.c"
