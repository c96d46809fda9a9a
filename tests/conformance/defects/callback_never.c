/* Forgets the callbacks of events. */
#include "../real.h"

REPLACE(PJRT_Event_OnReady) { return NULL; }
