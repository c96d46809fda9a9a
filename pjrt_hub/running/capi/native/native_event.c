/* PJRT_Event without a Python object: its queries, and a wait that Ctrl-C can end. */
#include "native.h"

#include <errno.h>

/* The waiting threads and the plugin's callback share a latch; the last of them frees it. An event
   has one latch for all waits, because a plugin holds each callback until the event fires. */
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

/* Returns the time of the monotonic clock in so many seconds. */
struct timespec seconds_from_now(double seconds) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  time.tv_sec += (time_t)seconds;
  time.tv_nsec += (long)((seconds - (double)(time_t)seconds) * 1e9);
  if (time.tv_nsec >= 1000000000L) {
    time.tv_nsec -= 1000000000L;
    time.tv_sec++;
  }
  return time;
}

/* Initializes a condition for waits by that clock, which no change of the wall clock stretches. */
void monotonic_condition(pthread_cond_t *condition) {
  pthread_condattr_t monotonic;
  pthread_condattr_init(&monotonic);
  pthread_condattr_setclock(&monotonic, CLOCK_MONOTONIC);
  pthread_cond_init(condition, &monotonic);
  pthread_condattr_destroy(&monotonic);
}

static bool before(const struct timespec *a, const struct timespec *b) {
  return a->tv_sec < b->tv_sec || (a->tv_sec == b->tv_sec && a->tv_nsec < b->tv_nsec);
}

/* Waits in slices, so that a signal's handler runs soon. Returns 1 if the event is ready, 0 after a
   timeout, or -1 with an exception set. */
static int latch_await(Latch *latch, double seconds) {
  const double slice = 0.05;
  bool bounded = seconds >= 0 && seconds < 1e9;
  struct timespec deadline = seconds_from_now(bounded ? seconds : 0);
  for (;;) {
    struct timespec until = seconds_from_now(slice);
    bool fired, last = false;
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
    if (!wait_goes_on()) return -1;
    if (last) return 0;
  }
}

/* Returns 1 if the event is ready, 0 if not, UNTOLD, or -1 with an exception set. */
int event_state(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_IsReady_Args, args, .event = event);
  PJRT_Error *error = CALL(api, PJRT_Event_IsReady, &args);
  if (error == NULL) return args.is_ready ? 1 : 0;
  if (drop_unimplemented(api, error)) return UNTOLD;
  return failed(raise_status(api, error, "PJRT_Event_IsReady"));
}

/* Registers `act(holder)` to run when the event is ready, on any thread, so `act` must not touch
   Python. The event's error stays in the event. Returns 0, UNTOLD, or -1 with an exception set. */
int event_when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder) {
  PJRT_Error *error;
  bool will;
  Py_BEGIN_ALLOW_THREADS; /* If the event is ready, the callback runs inline. */
  will = ticket_when_ready(event, (Ticket){api, act, holder}, &error);
  Py_END_ALLOW_THREADS;
  if (will) return 0;
  if (error == NULL) return failed(PyErr_NoMemory());
  if (drop_unimplemented(api, error)) return UNTOLD;
  return failed(raise_status(api, error, "PJRT_Event_OnReady"));
}

/* Returns a latch that fires with the event, for the caller to release. Returns NULL with an
   exception set, or without one if the plugin has no callbacks. */
static Latch *latch_on(const PJRT_Api *api, PJRT_Event *event) {
  Latch *latch = calloc(1, sizeof(Latch));
  if (latch == NULL) return (Latch *)PyErr_NoMemory();
  pthread_mutex_init(&latch->mutex, NULL);
  monotonic_condition(&latch->ready);
  latch->holders = 2;
  if (event_when_ready(api, event, latch_fire, latch) == 0) return latch;
  latch_release(latch);
  latch_release(latch);
  return NULL;
}

/* Waits inside the plugin, where no signal's handler runs, if the plugin offers no other way. */
static int await_inside(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_Await_Args, args, .event = event);
  PJRT_Error *error = RELEASED(CALL(api, PJRT_Event_Await, &args));
  /* The error may be the event's own. */
  return error == NULL ? 1 : failed(raise_status(api, error, "PJRT_Event_Await"));
}

/* Does the work of latch_await for a plugin without callbacks, by asking it again and again. */
static int poll(const PJRT_Api *api, PJRT_Event *event, double seconds) {
  const long longest = 5000000L;
  bool bounded = seconds >= 0 && seconds < 1e9;
  struct timespec deadline = seconds_from_now(bounded ? seconds : 0), now;
  struct timespec pause = {.tv_nsec = 20000L};
  for (;;) {
    int ready = event_state(api, event);
    if (ready == UNTOLD && !bounded) return await_inside(api, event);
    if (ready == UNTOLD) return failed(raise_status(api, ABSENT(PJRT_Event_IsReady), ""));
    if (ready != 0) return ready;
    now = seconds_from_now(0);
    if (bounded && !before(&now, &deadline)) return 0;
    Py_BEGIN_ALLOW_THREADS;
    nanosleep(&pause, NULL);
    Py_END_ALLOW_THREADS;
    pause.tv_nsec = pause.tv_nsec < longest / 2 ? 2 * pause.tv_nsec : longest;
    if (!wait_goes_on()) return -1;
  }
}

/* Waits for an event that was found pending, with a latch that the first wait makes and that lives
   as long as the event. Returns what latch_await returns. */
int event_await_pending(const PJRT_Api *api, PJRT_Event *event, Latch **shared, double seconds) {
  if (*shared == NULL) {
    Latch *latch = latch_on(api, event);
    if (latch == NULL) return PyErr_Occurred() ? -1 : poll(api, event, seconds);
    if (*shared == NULL)
      *shared = latch;
    else
      latch_release(latch); /* Another thread made a latch while the GIL was released. */
  }
  return latch_await(*shared, seconds);
}

/* Waits for an event that no other thread waits for; returns 1, or -1 with an exception set. */
int event_await(const PJRT_Api *api, PJRT_Event *event) {
  Latch *latch = NULL;
  int ready = event_state(api, event);
  if (ready == 1 || ready == -1) return ready;
  ready = event_await_pending(api, event, &latch, -1);
  if (latch != NULL) latch_release(latch);
  return ready;
}

/* Returns a ready event's error, which the caller owns, or NULL; aborts if the event is pending. */
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event) {
  SIZED(PJRT_Event_Error_Args, args, .event = event);
  PJRT_Error *error = CALL(api, PJRT_Event_Error, &args);
  if (error == NULL || !drop_unimplemented(api, error)) return error;
  /* The event is ready: this returns its error at once, even UNIMPLEMENTED. */
  return CALL(api, PJRT_Event_Await, UNREAD(PJRT_Event_Await_Args, .event = event));
}

void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr) {
  if (ptr == NULL) return; /* The plugin gave no event, and nobody waits for one. */
  drop_error(api, CALL(api, PJRT_Event_Destroy, UNREAD(PJRT_Event_Destroy_Args, .event = ptr)));
}
