/* PJRT_Event by itself: what is asked of one, and waiting that Ctrl-C can end. */
#include "native_event.h"
#include "ticket.h"

#include <errno.h>
#include <pthread.h>
#include <time.h>

/* Shared by those that wait and the plugin's callback; whoever leaves last frees it. A plugin forgets
   no callback before the event fires, so an event has one latch, however often it is waited for. */
struct Latch {
  pthread_mutex_t mutex;
  pthread_cond_t ready;
  bool fired;
  int holders;
};

void latch_release(Latch *latch) {
  pthread_mutex_lock(&latch->mutex);
  int left = --latch->holders;
  pthread_mutex_unlock(&latch->mutex);
  if (left > 0) return;
  pthread_cond_destroy(&latch->ready);
  pthread_mutex_destroy(&latch->mutex);
  free(latch);
}

static void latch_fire(void *holder) {
  Latch *latch = holder;
  pthread_mutex_lock(&latch->mutex);
  latch->fired = true;
  pthread_cond_broadcast(&latch->ready);
  pthread_mutex_unlock(&latch->mutex);
  latch_release(latch);
}

static void add_seconds(struct timespec *time, double seconds) {
  time->tv_sec += (time_t)seconds;
  time->tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (time->tv_nsec >= 1000000000L) {
    time->tv_nsec -= 1000000000L;
    time->tv_sec++;
  }
}

static bool before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Waits in slices so that a signal's handler runs soon. 1 ready, 0 timed out, -1 exception set. */
static int latch_await(Latch *latch, double seconds) {
  const double slice = 0.05;
  struct timespec deadline;
  bool bounded = seconds >= 0 && seconds < 1e9;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  if (bounded) add_seconds(&deadline, seconds);
  for (;;) {
    struct timespec until;
    bool fired, last = false;
    clock_gettime(CLOCK_MONOTONIC, &until);
    add_seconds(&until, slice);
    if (bounded && !before(&until, &deadline)) {
      until = deadline;
      last = true;
    }
    Py_BEGIN_ALLOW_THREADS;
    pthread_mutex_lock(&latch->mutex);
    int status = 0;
    while (!latch->fired && status == 0)
      status = pthread_cond_timedwait(&latch->ready, &latch->mutex, &until);
    fired = latch->fired;
    pthread_mutex_unlock(&latch->mutex);
    Py_END_ALLOW_THREADS;
    if (fired) {
      wait_interrupted = false;
      return 1;
    }
    if (thread_ends()) return -1;
    if (Py_MakePendingCalls() < 0) { /* signals, and what was to be raised later */
      wait_interrupted = true;
      return -1;
    }
    if (last) return 0;
  }
}

/* 1 ready, 0 not yet, UNTOLD, or -1 with an exception set. */
int event_state(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_IsReady_Args, args, .event = event);
  PJRT_Error *error = CALL(api, PJRT_Event_IsReady, &args);
  if (error == NULL) return args.is_ready ? 1 : 0;
  if (is_unimplemented(api, error)) {
    drop_error(api, error);
    return UNTOLD;
  }
  raise_status(api, error, "PJRT_Event_IsReady");
  return -1;
}

/* Has `act(holder)` called once it is ready, on any thread, which must not touch Python. Whoever waits
   finds the event's error in the event. 0; UNTOLD; -1 with an exception set. */
int event_when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder) {
  PJRT_Error *error;
  bool will;
  Py_BEGIN_ALLOW_THREADS; /* runs inline where the event is already ready */
  will = ticket_when_ready(event, (Ticket){api, act, holder}, &error);
  Py_END_ALLOW_THREADS;
  if (will) return 0;
  if (error == NULL) {
    PyErr_NoMemory();
  } else if (is_unimplemented(api, error)) {
    drop_error(api, error);
    return UNTOLD;
  } else {
    raise_status(api, error, "PJRT_Event_OnReady");
  }
  return -1;
}

/* A latch that fires with the event, for the caller to release; NULL with an exception set, or without
   one where the plugin calls nobody back. */
static Latch *latch_on(const PJRT_Api *api, PJRT_Event *event) {
  Latch *latch = calloc(1, sizeof(Latch));
  if (latch == NULL) {
    PyErr_NoMemory();
    return NULL;
  }
  pthread_condattr_t monotonic; /* a stepped wall clock must not stretch the wait */
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_mutex_init(&latch->mutex, NULL);
  pthread_cond_init(&latch->ready, &monotonic);
  pthread_condattr_destroy(&monotonic);
  latch->holders = 2;
  if (event_when_ready(api, event, latch_fire, latch) == 0) return latch;
  latch_release(latch);
  latch_release(latch);
  return NULL;
}

/* Waits inside the plugin, where no signal is heard: for one that has no other way. */
static int await_inside(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_Await_Args, args, .event = event);
  PJRT_Error *error;
  Py_BEGIN_ALLOW_THREADS;
  error = CALL(api, PJRT_Event_Await, &args);
  Py_END_ALLOW_THREADS;
  if (error == NULL) return 1;
  raise_status(api, error, "PJRT_Event_Await"); /* or the event's own, which comes this way too */
  return -1;
}

/* As latch_await, of a plugin that calls nobody back: asks it again and again. */
static int poll(const PJRT_Api *api, PJRT_Event *event, double seconds) {
  const long longest = 5000000L;
  struct timespec deadline, now, pause = {.tv_nsec = 20000L};
  bool bounded = seconds >= 0 && seconds < 1e9;
  clock_gettime(CLOCK_MONOTONIC, &deadline);
  if (bounded) add_seconds(&deadline, seconds);
  for (;;) {
    int ready = event_state(api, event);
    if (ready == UNTOLD && !bounded) return await_inside(api, event);
    if (ready == UNTOLD) {
      raise_status(api, ABSENT(PJRT_Event_IsReady), "");
      return -1;
    }
    if (ready != 0) return ready;
    clock_gettime(CLOCK_MONOTONIC, &now);
    if (bounded && !before(&now, &deadline)) return 0;
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS;
    pause.tv_nsec = pause.tv_nsec < longest / 2 ? 2 * pause.tv_nsec : longest;
    if (thread_ends()) return -1;
    if (Py_MakePendingCalls() < 0) {
      wait_interrupted = true;
      return -1;
    }
  }
}

/* Waits for one that was found pending, with a latch that lives as long as it does, and is made where it
   is needed first. 1 ready, 0 timed out, -1 exception. */
int event_await_pending(const PJRT_Api *api, PJRT_Event *event, Latch **shared, double seconds) {
  if (*shared == NULL) {
    Latch *latch = latch_on(api, event);
    if (latch == NULL) return PyErr_Occurred() ? -1 : poll(api, event, seconds);
    if (*shared == NULL)
      *shared = latch;
    else
      latch_release(latch); /* another thread was faster while the GIL was released */
  }
  return latch_await(*shared, seconds);
}

/* Waits for ever until an event that nobody else waits for is ready. 1 ready, -1 exception. */
int event_await(const PJRT_Api *api, PJRT_Event *event) {
  Latch *latch = NULL;
  int ready = event_state(api, event);
  if (ready == 1 || ready == -1) return ready;
  ready = event_await_pending(api, event, &latch, -1);
  if (latch != NULL) latch_release(latch);
  return ready;
}

/* The error of a ready event, owned by the caller, or NULL. Asking a pending event aborts. */
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_Error_Args, args, .event = event);
  PJRT_Error *error = CALL(api, PJRT_Event_Error, &args);
  if (error == NULL || !is_unimplemented(api, error)) return error;
  drop_error(api, error);
  SIZED(PJRT_Event_Await_Args, again);
  again.event = event; /* it is ready, so this gives its error at once, of whatever code it is */
  return CALL(api, PJRT_Event_Await, &again);
}

void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr) {
  if (ptr == NULL) return; /* a plugin that gave none where nobody waits */
  SIZED(PJRT_Event_Destroy_Args, args, .event = ptr);
  drop_error(api, CALL(api, PJRT_Event_Destroy, &args));
}
