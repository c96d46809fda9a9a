/* Lets nobody end an async tracking event. */
#include "../complete.h"

REPLACE(PJRT_AsyncTrackingEvent_Destroy) { return fail(9, "it is tracked"); }
