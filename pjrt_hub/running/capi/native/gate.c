/* Gate: where launches on a host client wait until there is room for them.

   A launch on several devices reaches the plugin whole, and only one enters at a time. XLA then
   keeps launches in the same order on all devices, and starts each on all or on none. If the parts
   of a launch entered one by one, XLA could not know which are still to come. Its CPU client would
   begin no other launch before the last part, which may never come: no launch on several devices
   would end any more, and a collective would abort the process after 40 s. Without a launch id, XLA
   would take each part for a launch of its own. GPUs have a queue each, and would get the parts of
   two launches in different orders. So executable/parts.py joins the parts, for any plugin. Two
   launches with one launch id that enter at once are mixed up, so the second waits here until the
   Execute call of the first has returned; the results of the first may still be under way.

   XLA's CPU client has one pool of threads, with one for each device. A launch on several devices
   occupies a thread for each until all have met. One that finds 32 executions under way on a device
   occupies a thread until one of them ends. Such launches can occupy every thread and wait for
   ever, so launches wait here, in the calling thread, where Ctrl-C ends the wait.

   On one device, it is enough that no launch is the 33rd, which would wait inside the plugin, where
   no signal ends the wait. A small program is done when Execute returns, and following each of its
   launches would cost too much. So some are followed, and all while a followed one is under way. */
#include "native.h"

#include <errno.h>
#include <stdatomic.h>

enum {
  MOST = 32,  /* The most launches under way at once, so that none has to wait in the plugin. */
  LEAST = 16, /* On one device, at least this many launches in a row are not followed. */
  SPREAD = 8, /* The number varies by this, to hit every place in a pattern of under 41 launches. */
};

struct Gate {
  const PJRT_Api *api;
  pthread_mutex_t mutex;
  pthread_cond_t ended;
  int running, most;
  int entering; /* The running launches on several devices that are still in Execute. */
  bool broken;  /* A launch failed on some devices, so the next one would wait for ever. */
  bool client_gone;
};

/* One execution, until its last device is done. */
typedef struct {
  Gate *gate;
  atomic_int devices;
} Flight;

/* Makes launches take turns from now on; returns false with an exception set. */
bool gate_open(Turns *turns, const PJRT_Api *api, bool sparing) {
  Gate *gate = calloc(1, sizeof(Gate));
  if (gate == NULL) {
    PyErr_NoMemory();
    return false;
  }
  pthread_mutex_init(&gate->mutex, NULL);
  monotonic_condition(&gate->ended);
  gate->api = api;
  gate->most = MOST;
  turns->gate = gate;
  turns->sparing = sparing;
  if (sparing) gate_skip(turns); /* No launch is under way yet. */
  return true;
}

/* Returns the gate of a client that follows only some launches, for a launch that is followed.
   Those that were not followed before it may still be under way, so there is room for fewer. */
Gate *gate_find(Turns *turns) {
  Gate *gate = turns->gate;
  turns->skip = 0;
  pthread_mutex_lock(&gate->mutex);
  if (gate->running == 0) gate->most = MOST - turns->skipped;
  pthread_mutex_unlock(&gate->mutex);
  return gate;
}

/* Leaves the next launches unfollowed, as all followed ones are done. Their number varies. */
void gate_skip(Turns *turns) {
  turns->skip = turns->skipped = LEAST + (5 * turns->skipped + 3) % SPREAD;
}

static void gate_free(Gate *gate) {
  pthread_cond_destroy(&gate->ended);
  pthread_mutex_destroy(&gate->mutex);
  free(gate);
}

/* Frees the gate of a client that is gone, or leaves that to the last execution. */
void gate_let_go(Gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->client_gone = true;
  bool idle = gate->running == 0;
  pthread_mutex_unlock(&gate->mutex);
  if (idle) gate_free(gate);
}

static bool begin(Gate *gate, bool together) {
  bool full = gate->running >= gate->most || (together && gate->entering > 0);
  /* A running program waits for its callbacks, so a launch in a callback never waits. */
  if (full && !upcall_running()) return false;
  gate->running++;
  gate->entering += together;
  return true;
}

/* Works like begin, but waits up to 50 ms for room, without the GIL. */
static bool begin_soon(Gate *gate, bool together) {
  bool begun;
  struct timespec until = seconds_from_now(0.05); /* A signal's handler then runs soon. */
  Py_BEGIN_ALLOW_THREADS;
  pthread_mutex_lock(&gate->mutex);
  int status = 0;
  while (!(begun = begin(gate, together)) && status == 0)
    status = pthread_cond_timedwait(&gate->ended, &gate->mutex, &until);
  pthread_mutex_unlock(&gate->mutex);
  Py_END_ALLOW_THREADS;
  return begun;
}

/* Waits for an execution's turn; returns false with an exception set. The caller ends a turn
   exactly once, by gate_follow or gate_give_up. `together` says that it is on several devices. */
bool gate_begin(Gate *gate, bool together) {
  pthread_mutex_lock(&gate->mutex); /* The mutex is held only briefly, so the GIL is kept. */
  bool begun = begin(gate, together);
  pthread_mutex_unlock(&gate->mutex);
  while (!begun) {
    if (!wait_goes_on()) return false;
    begun = begin_soon(gate, together);
  }
  if (!together || !gate->broken) return true;
  gate_give_up(gate, together, false);
  raise_closed(
      "the client can run nothing on several devices any more: an execution could not be started on "
      "all of its devices, and the plugin would wait for it for ever\n\nhint: make a new client");
  return false;
}

/* Lets the next launch on several devices enter, because Execute has returned or is not called. */
static void entered(Gate *gate, bool together) {
  if (!together) return;
  pthread_mutex_lock(&gate->mutex);
  gate->entering--;
  pthread_cond_broadcast(&gate->ended);
  pthread_mutex_unlock(&gate->mutex);
}

/* Ends an execution; returns whether no other is left. */
static bool end(Gate *gate) {
  pthread_mutex_lock(&gate->mutex);
  gate->running--;
  bool idle = gate->running == 0, last = idle && gate->client_gone;
  pthread_cond_broadcast(&gate->ended);
  pthread_mutex_unlock(&gate->mutex);
  if (last) gate_free(gate);
  return idle;
}

/* Ends the turn of an execution that did not start; if `broke`, it may have on some devices. */
void gate_give_up(Gate *gate, bool together, bool broke) {
  if (broke) gate->broken = true;
  entered(gate, together);
  end(gate);
}

/* This runs on a plugin's thread. */
static void device_done(void *holder) {
  Flight *flight = holder;
  Gate *gate = flight->gate;
  if (atomic_fetch_sub(&flight->devices, 1) > 1) return;
  free(flight);
  end(gate);
}

/* Follows an execution that has started until the last of its events, one for each device, is
   ready. Returns whether it has ended already, and no other is under way. */
bool gate_follow(Gate *gate, bool together, PJRT_Event **events, Py_ssize_t count) {
  entered(gate, together);
  if (count == 1) {
    SIZED(PJRT_Event_IsReady_Args, ready, .event = events[0]);
    PJRT_Error *error = CALL(gate->api, PJRT_Event_IsReady, &ready);
    drop_error(gate->api, error);
    if (error == NULL && ready.is_ready) return end(gate);
  }
  Flight *flight = malloc(sizeof(Flight));
  if (flight == NULL) { /* It is better to stop counting it than to count it for ever. */
    end(gate);
    return false;
  }
  *flight = (Flight){.gate = gate, .devices = (int)count};
  Ticket ticket = {gate->api, device_done, flight}; /* Errors reach code that reads the results. */
  for (Py_ssize_t d = 0; d < count; d++) {
    PJRT_Error *error = NULL;
    if (events[d] != NULL && ticket_when_ready(events[d], ticket, &error)) continue;
    drop_error(ticket.api, error);
    device_done(flight);
  }
  return false;
}
