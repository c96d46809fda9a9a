/* Its chain has more extensions than there are kinds. */
#define ON_LOAD                                                              \
  for (int i = 0; i < 500; i++)                                              \
  chain[i] = (PJRT_Extension_Base){sizeof chain[0], 7000 + i, &chain[i + 1]}
#define EXTENSIONS chain
#include "pjrt_api.h"
static PJRT_Extension_Base chain[501];
#include "../plugin.c"
