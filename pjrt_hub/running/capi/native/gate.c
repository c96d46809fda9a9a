/* Gate: where launches on a host client wait until there is room for them.

   The rule for launches on several devices: a plugin gets whole ones only, one after the other. A
   launch that has entered is in XLA's own order, the same on all devices, and starts on all or on
   none. Parts of one would enter one by one, and XLA cannot know what is still to come. Its CPU
   client lets no other launch begin before the last part of this one, which may never come: then
   nothing on several devices ends any more, and a collective ends the process after 40 s. Without a
   launch id it takes each part for a launch of its own. GPUs, which have a queue each, would get the
   parts of two launches in two orders. So executable/parts.py puts the parts together, for every
   plugin. And two with one launch id that enter at once get mixed up, so that the second waits here
   until the call of the first has returned; its results may still be under way.

   XLA's CPU client runs all its devices on one pool of as many threads. A launch on several devices
   keeps a thread for each until all have met, and one that finds 32 executions under way on a device
   keeps a thread until one of them ends: together they take every thread and wait for ever. So
   launches wait here, in the thread that asks, where Ctrl-C ends it.

   On one device a launch only must not be the 33rd, which would wait inside the plugin and hear no
   signal. To follow each would cost too much where all are done when Execute returns, as small
   programs are: some are followed, and every one as long as such a one is under way. */
#include "gate.h"
#include "ticket.h"

#include <errno.h>
#include <pthread.h>
#include <stdatomic.h>
#include <time.h>

enum {
  MOST = 32,  /* under way at once: no device has more, so no launch waits on the pool */
  LEAST = 16, /* on one device so many launches are not followed, */
  SPREAD = 8, /* and up to so many more: together they come upon every rhythm below 41 */
};

struct Gate {
  const PJRT_Api *api;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int running, most;
  int entering; /* of them, those on several devices whose Execute has not returned */
  bool broken;  /* a launch failed on some devices: the next would wait for them */
  bool client_gone;
};

/* One execution, until its last device is done. */
typedef struct {
  Gate *gate;
  atomic_int devices;
} Flight;

/* Has launches take turns from here on; false with an exception set. */
bool gate_open(Turns *turns, const PJRT_Api *api, bool sparing) {
  Gate *gate = calloc(1, sizeof(Gate));
  if (gate == NULL) {
    PyErr_NoMemory();
    return false;
  }
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&gate->mutex, NULL);
  pthread_cond_init(&gate->ended, &monotonic);
  pthread_condattr_destroy(&monotonic);
  gate->api = api;
  gate->most = MOST;
  turns->gate = gate;
  turns->sparing = sparing;
  if (sparing) gate_skip(turns); /* nothing is under way */
  return true;
}

/* Of a sparing client, whose next launch is to be followed. Those that nobody followed since the
   latest may be under way as well. */
Gate *gate_find(Turns *turns) {
  Gate *gate = turns->gate;
  turns->skip = 0;
  pthread_mutex_lock(&gate->mutex);
  if (gate->running == 0) gate->most = MOST - turns->skipped;
  pthread_mutex_unlock(&gate->mutex);
  return gate;
}

/* All that were followed are done: so may be the next few, in no one's rhythm. */
void gate_skip(Turns *turns) {
  turns->skip = turns->skipped = LEAST + (5 * turns->skipped + 3) % SPREAD;
}

static void gate_free(Gate *gate) {
  pthread_cond_destroy(&gate->ended);
  pthread_mutex_destroy(&gate->mutex);
  free(gate);
}

/* The client is gone; the last execution frees it. */
void gate_let_go(Gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->client_gone = true;
  bool idle = gate->running == 0;
  pthread_mutex_unlock(&gate->mutex);
  if (idle) gate_free(gate);
}

static bool begin(Gate *gate, bool together) {
  bool full = gate->running >= gate->most || (together && gate->entering > 0);
  /* A program that runs waits for its own callback, which therefore waits for nobody. */
  if (full && !upcall_running()) return false;
  gate->running++;
  gate->entering += together;
  return true;
}

/* As begin, but waits for a moment, without the GIL. */
static bool begin_soon(Gate *gate, bool together) {
  bool begun;
  struct timespec until;
  clock_gettime(CLOCK_MONOTONIC, &until);
  until.tv_nsec += 50000000L; /* a slice, so that a signal's handler runs soon */
  if (until.tv_nsec >= 1000000000L) {
    until.tv_nsec -= 1000000000L;
    until.tv_sec++;
  }
  Py_BEGIN_ALLOW_THREADS;
  pthread_mutex_lock(&gate->mutex);
  int status = 0;
  while (!(begun = begin(gate, together)) && status == 0)
    status = pthread_cond_timedwait(&gate->ended, &gate->mutex, &until);
  pthread_mutex_unlock(&gate->mutex);
  Py_END_ALLOW_THREADS;
  return begun;
}

/* Waits for an execution's turn; false with an exception set. What began ends once: it is followed
   or given up. `together`: it is on several devices. */
bool gate_begin(Gate *gate, bool together) {
  pthread_mutex_lock(&gate->mutex); /* held for moments only, so the GIL is kept */
  bool begun = begin(gate, together);
  pthread_mutex_unlock(&gate->mutex);
  while (!begun) {
    if (thread_ends()) return false;
    if (Py_MakePendingCalls() < 0) {
      wait_interrupted = true;
      return false;
    }
    begun = begin_soon(gate, together);
  }
  if (!together || !gate->broken) return true;
  gate_give_up(gate, together, false);
  raise_closed(
      "the client can run nothing on several devices any more: an execution could not be started on "
      "all of its devices, and the plugin would wait for it for ever\n\nhint: make a new client");
  return false;
}

/* Execute returned, or is not called: the next launch on several devices may enter. */
static void entered(Gate *gate, bool together) {
  if (!together) return;
  pthread_mutex_lock(&gate->mutex);
  gate->entering--;
  pthread_cond_broadcast(&gate->ended);
  pthread_mutex_unlock(&gate->mutex);
}

/* Whether none is left. */
static bool end(Gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->running--;
  bool idle = gate->running == 0, last = idle && gate->client_gone;
  pthread_cond_broadcast(&gate->ended);
  pthread_mutex_unlock(&gate->mutex);
  if (last) gate_free(gate);
  return idle;
}

/* An execution did not start. `broke`: it may have on some of its devices. */
void gate_give_up(Gate *gate, bool together, bool broke) {
  if (broke) gate->broken = true;
  entered(gate, together);
  end(gate);
}

/* Runs on a plugin's thread. */
static void device_done(void *holder) {
  Flight *flight = holder;
  Gate *gate = flight->gate;
  if (atomic_fetch_sub(&flight->devices, 1) > 1) return;
  free(flight);
  end(gate);
}

/* An execution started: it ends with the last of the events, each of which tells of one device. Gives
   whether it ended, and with it the last of all. */
bool gate_follow(Gate *gate, bool together, PJRT_Event **events, Py_ssize_t count) {
  entered(gate, together);
  if (count == 1) {
    SIZED(PJRT_Event_IsReady_Args, ready, .event = events[0]);
    PJRT_Error *error = CALL(gate->api, PJRT_Event_IsReady, &ready);
    drop_error(gate->api, error);
    if (error == NULL && ready.is_ready) return end(gate);
  }
  Flight *flight = malloc(sizeof(Flight));
  if (flight == NULL) { /* better uncounted than counted for ever */
    end(gate);
    return false;
  }
  *flight = (Flight){.gate = gate, .devices = (int)count};
  Ticket ticket = {gate->api, device_done, flight}; /* whoever reads the results is told of errors */
  for (Py_ssize_t d = 0; d < count; d++) {
    PJRT_Error *error = NULL;
    if (events[d] != NULL && ticket_when_ready(events[d], ticket, &error)) continue;
    drop_error(ticket.api, error);
    device_done(flight);
  }
  return false;
}
