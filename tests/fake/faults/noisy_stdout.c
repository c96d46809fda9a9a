/* Writes what looks like an answer to stdout. */
#define ON_INITIALIZE dprintf(1, "{\"error\": \"InternalError\"}\n{\"status\": 9} no end of line")
#include "../plugin.c"
