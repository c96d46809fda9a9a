/* Its table ends after forty functions, whatever its version promises. */
#define TABLE_SIZE (40 + 8 * 40)
#include "../plugin.c"
