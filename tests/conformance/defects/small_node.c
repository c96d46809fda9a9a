/* A node of its chain is smaller than its own beginning. */
#include "../real.h"

DEFECT(api) { api->extension_start->struct_size = 16; }
