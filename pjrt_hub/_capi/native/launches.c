/* Launches: the executions that are under way on a host client of several devices.

   XLA's CPU client runs all its devices on one pool of as many threads. A launch on several devices
   keeps a thread for each until all have met, and one that finds 32 executions under way on a device
   keeps a thread until one of them ends: together they take every thread and wait for ever. So
   launches wait here, in the thread that asks, where Ctrl-C ends it. */
#include "hotpath.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <stdlib.h>
#include <time.h>

enum { MOST = 32 }; /* under way at once: no device has more, so no launch waits on the pool */

struct Launches {
  const PJRT_Api *api;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int running;
  int together;       /* of them, those on several devices */
  Turn turn;          /* what these have in common */
  int waiting_parts;  /* go before whole launches, of which there may be no end */
  bool broken;        /* a launch failed on some devices: the next would wait for it for ever */
  bool client_gone;
};

/* One execution, until its last device is done. */
typedef struct {
  Launches *launches;
  atomic_int devices;
  bool together;
} Flight;

Launches *launches_new(const PJRT_Api *api) {
  Launches *launches = calloc(1, sizeof(Launches));
  if (launches == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&launches->mutex, NULL);
  pthread_cond_init(&launches->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
  launches->api = api;
  return launches;
}

static void launches_free(Launches *launches) {
  pthread_cond_destroy(&launches->ended);
  pthread_mutex_destroy(&launches->mutex);
  free(launches);
}

/* The client is gone; the last execution frees it. */
void launches_let_go(Launches *launches) {
  pthread_mutex_lock(&launches->mutex);
  launches->client_gone = true;
  bool idle = launches->running == 0;
  pthread_mutex_unlock(&launches->mutex);
  if (idle) launches_free(launches);
}

static bool may_begin(const Launches *launches, Turn turn) {
  bool same = launches->together > 0 && turn.exe == launches->turn.exe &&
              turn.launch_id == launches->turn.launch_id;
  if (same && turn.exe != NULL) return true; /* the parts under way wait for this one */
  if (launches->running >= MOST) return false;
  if (!turn.together) return true;
  if (launches->together > 0 && !same) return false;
  return turn.exe != NULL || launches->waiting_parts == 0;
}

static bool begin(Launches *launches, Turn turn) {
  if (!may_begin(launches, turn)) return false;
  launches->running++;
  if (turn.together) {
    launches->together++;
    launches->turn = turn;
  }
  return true;
}

/* Waits until an execution may begin; false with an exception set. Each must end, once. */
bool launches_begin(Launches *launches, Turn turn) {
  pthread_mutex_lock(&launches->mutex);
  bool broken = turn.together && launches->broken;
  bool begun = !broken && begin(launches, turn);
  launches->waiting_parts += !broken && !begun && turn.exe != NULL;
  pthread_mutex_unlock(&launches->mutex);
  if (broken) {
    raise_closed(
        "the client can run nothing on several devices any more: an execution failed to start on "
        "some of them, and this plugin would wait for it for ever\n\nhint: make a new client");
    return false;
  }
  while (!begun) {
    if (PyErr_CheckSignals() < 0) break;
    Py_BEGIN_ALLOW_THREADS;
    struct timespec until;
    clock_gettime(CLOCK_MONOTONIC, &until);
    until.tv_nsec += 50 * 1000 * 1000; /* a slice, so that a signal's handler runs soon */
    if (until.tv_nsec >= 1000000000L) {
      until.tv_nsec -= 1000000000L;
      until.tv_sec++;
    }
    pthread_mutex_lock(&launches->mutex);
    for (int status = 0; status == 0 && !(begun = begin(launches, turn));)
      status = pthread_cond_timedwait(&launches->ended, &launches->mutex, &until);
    pthread_mutex_unlock(&launches->mutex);
    Py_END_ALLOW_THREADS;
    if (!begun) continue;
  }
  if (turn.exe != NULL && launches->waiting_parts > 0) {
    pthread_mutex_lock(&launches->mutex);
    pthread_mutex_unlock(&launches->mutex);
  }
  return begun;
}
