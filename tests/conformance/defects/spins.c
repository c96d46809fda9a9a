/* Has a thread that asks for ever whether there is work. */
#include "../real.h"

#include <pthread.h>

static volatile bool work;

static void *look(void *nothing) {
  while (!work) continue;
  return nothing;
}

REPLACE(PJRT_Client_Create) {
  pthread_t thread;
  pthread_create(&thread, NULL, look, NULL);
  pthread_detach(thread);
  return real->PJRT_Client_Create(args);
}
