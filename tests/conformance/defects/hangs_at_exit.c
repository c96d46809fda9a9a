/* Waits at exit for a thread that never ends. */
#include "../real.h"

#include <pthread.h>
#include <unistd.h>

static pthread_t thread;

static void *work(void *nothing) {
  for (;;) pause();
  return nothing;
}

static void join(void) { pthread_join(thread, NULL); }

REPLACE(PJRT_Client_Create) {
  pthread_create(&thread, NULL, work, NULL);
  atexit(join);
  return real->PJRT_Client_Create(args);
}
