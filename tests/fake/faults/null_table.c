/* GetPjrtApi returns NULL. */
#define TABLE NULL
#include "../plugin.c"
