/* Leaves a thread behind of every client. */
#include "../real.h"

#include <pthread.h>
#include <unistd.h>

static void *work(void *nothing) {
  for (;;) pause();
  return nothing;
}

REPLACE(PJRT_Client_Create) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  pthread_detach(thread);
  return real->PJRT_Client_Create(args);
}
