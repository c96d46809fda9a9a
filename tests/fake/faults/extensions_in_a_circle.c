/* Its chain of extensions leads back to its beginning. */
#define EXTENSIONS &cycle
#include "../plugin.c"
