/* Makes events that are ready from the beginning. */
#include "../complete.h"

REPLACE(PJRT_Event_Create) {
  args->event = new_event(NULL, new_signal());
  args->event->signal->fired = true;
  return NULL;
}
