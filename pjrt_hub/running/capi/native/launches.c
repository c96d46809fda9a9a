/* Launches: the executions that are under way on a host client.

   XLA's CPU client runs all its devices on one pool of as many threads. A launch on several devices
   keeps a thread for each until all have met, and one that finds 32 executions under way on a device
   keeps a thread until one of them ends: together they take every thread and wait for ever. So
   launches wait here, in the thread that asks, where Ctrl-C ends it.

   On one device a launch only must not be the 33rd, which would wait inside the plugin and hear no
   signal. To follow each would cost too much where all are done when Execute returns, as small
   programs are: some are followed, and every one as long as such a one is under way. */
#include "hotpath.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
  MOST = 32,  /* under way at once: no device has more, so no launch waits on the pool */
  LEAST = 16, /* on one device so many launches are not followed, */
  SPREAD = 8, /* and up to so many more: together they come upon every rhythm below 41 */
};

struct Launches {
  const PJRT_Api *api;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int running, most;
  int together;      /* of them, those of programs on several devices */
  Turn turn;         /* what these have in common */
  int waiting_parts; /* go before whole launches, of which there may be no end */
  bool broken;       /* a launch failed on some devices: the next would wait for them */
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
  launches->most = MOST;
  return launches;
}

/* Of a sparing client, whose next launch is to be followed. Those that nobody followed since the
   latest may be under way as well. */
Launches *launches_find(ClientObject *client) {
  Launches *launches = client->launches;
  client->skip = 0;
  pthread_mutex_lock(&launches->mutex);
  if (launches->running == 0) launches->most = MOST - client->skipped;
  pthread_mutex_unlock(&launches->mutex);
  return launches;
}

/* All that were followed are done: so may be the next few, in no one's rhythm. */
void launches_skip(ClientObject *client) {
  client->skip = client->skipped = LEAST + (5 * client->skipped + 3) % SPREAD;
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
  if (launches->running >= launches->most) return false;
  if (!turn.together) return true;
  if (launches->together > 0 && !same) return false;
  return turn.exe != NULL || launches->waiting_parts == 0;
}

static bool begin(Launches *launches, Turn turn) {
  /* A program that runs waits for its own callback, which therefore waits for nobody. */
  if (!may_begin(launches, turn) && !upcall_running()) return false;
  launches->running++;
  if (turn.together) {
    launches->together++;
    launches->turn = turn;
  }
  return true;
}

/* As begin, but waits for a moment, without the GIL. */
static bool begin_soon(Launches *launches, Turn turn) {
  bool begun;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 50000000L; /* a slice, so that a signal's handler runs soon */
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    until.tv_sec++;
  }
  Py_BEGIN_ALLOW_THREADS;
  pthread_mutex_lock(&launches->mutex);
  launches->waiting_parts += turn.exe != NULL;
  int status = 0;
  while (!(begun = begin(launches, turn)) && status == 0)
    status = pthread_cond_timedwait(&launches->ended, &launches->mutex, &until);
  launches->waiting_parts -= turn.exe != NULL;
  pthread_mutex_unlock(&launches->mutex);
  Py_END_ALLOW_THREADS;
  return begun;
}

/* Waits for an execution's turn; false with an exception set. What began ends once: it is followed
   or given up. */
bool launches_begin(Launches *launches, Turn turn) {
  pthread_mutex_lock(&launches->mutex); /* held for moments only, so the GIL is kept */
  bool begun = begin(launches, turn);
  pthread_mutex_unlock(&launches->mutex);
  while (!begun) {
    if (thread_ends()) return false;
    if (Py_MakePendingCalls() < 0) {
      wait_interrupted = true;
      return false;
    }
    begun = begin_soon(launches, turn);
  }
  if (!turn.together || !launches->broken) return true;
  launches_give_up(launches, turn, false);
  raise_closed(
      "the client can run nothing on several devices any more: an execution could not be started on "
      "all of its devices, and the plugin would wait for it for ever\n\nhint: make a new client");
  return false;
}

/* Whether none is left. */
static bool end(Launches *launches, bool together) {
  pthread_mutex_lock(&launches->mutex);
  launches->running--;
  launches->together -= together;
  bool idle = launches->running == 0, last = idle && launches->client_gone;
  pthread_cond_broadcast(&launches->ended);
  pthread_mutex_unlock(&launches->mutex);
  if (last) launches_free(launches);
  return idle;
}

/* An execution did not start. Where it was one of all devices, some may have started. */
void launches_give_up(Launches *launches, Turn turn, bool failed) {
  if (failed && turn.together && turn.exe == NULL) launches->broken = true;
  end(launches, turn.together);
}

/* Runs on a plugin's thread. */
static void device_done(void *holder) {
  Flight *flight = holder;
  Launches *launches = flight->launches;
  if (atomic_fetch_sub(&flight->devices, 1) > 1) return;
  bool together = flight->together;
  free(flight);
  end(launches, together);
}

/* An execution started: it ends with the last of the events, each of which tells of one device. Gives
   whether it ended, and with it the last of all. */
bool launches_follow(Launches *launches, Turn turn, PJRT_Event **events, Py_ssize_t count) {
  if (count == 1) {
    SIZED(PJRT_Event_IsReady_Args, ready, .event = events[0]);
    PJRT_Error *error = CALL(launches->api, PJRT_Event_IsReady, &ready);
    drop_error(launches->api, error);
    if (error == NULL && ready.is_ready) return end(launches, turn.together);
  }
  Flight *flight = malloc(sizeof(Flight));
  if (flight == NULL) { /* better uncounted than counted for ever */
    end(launches, turn.together);
    return false;
  }
  *flight = (Flight){.launches = launches, .devices = (int)count, .together = turn.together};
  Ticket ticket = {launches->api, device_done, flight}; /* whoever reads the results is told of errors */
  for (Py_ssize_t d = 0; d < count; d++) {
    PJRT_Error *error = NULL;
    if (events[d] != NULL && ticket_when_ready(events[d], ticket, &error)) continue;
    drop_error(ticket.api, error);
    device_done(flight);
  }
  return false;
}
