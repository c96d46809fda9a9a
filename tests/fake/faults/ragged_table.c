/* Its table ends in the middle of a function. */
#define TABLE_SIZE 1140
#include "../plugin.c"
