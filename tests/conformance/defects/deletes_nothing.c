/* Takes a Delete without a word and keeps the buffer. */
#include "../real.h"

REPLACE(PJRT_Buffer_Delete) { return NULL; }
