/* Its table ends before the version that every table begins with. */
#define TABLE_SIZE 16
#include "../plugin.c"
