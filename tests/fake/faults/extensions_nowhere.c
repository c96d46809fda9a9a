/* Its chain of extensions leads to no memory. */
#define EXTENSIONS (void *)8
#include "../plugin.c"
