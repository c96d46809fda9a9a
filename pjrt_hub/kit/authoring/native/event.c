/* Promises: something that will be done once, on any thread, well or with an error. */
#include "plugin.h"

typedef struct Waiter {
  struct Waiter *next;
  Then *then;
  void *argument;
} Waiter;

struct Promise {
  atomic_int references;
  pthread_mutex_t lock;
  pthread_cond_t kept;
  bool is_kept;
  PJRT_Error *error;
  Waiter *waiters;
};

struct PJRT_Event {
  Promise *promise;
};

Promise *promise_new(void) {
  Promise *promise = need(1, sizeof(Promise));
  atomic_init(&promise->references, 1);
  pthread_mutex_init(&promise->lock, NULL);
  pthread_cond_init(&promise->kept, NULL);
  return promise;
}

/* One that is kept already; takes the error. */
Promise *promise_kept(PJRT_Error *error) {
  Promise *promise = promise_new();
  promise->is_kept = true;
  promise->error = error;
  return promise;
}

Promise *promise_share(Promise *promise) {
  atomic_fetch_add(&promise->references, 1);
  return promise;
}

void promise_let_go(Promise *promise) {
  if (promise == NULL || atomic_fetch_sub(&promise->references, 1) > 1) return;
  destroy_error(promise->error);
  while (promise->waiters != NULL) { /* nobody can keep it any more */
    Waiter *waiter = promise->waiters;
    promise->waiters = waiter->next;
    free(waiter);
  }
  pthread_cond_destroy(&promise->kept);
  pthread_mutex_destroy(&promise->lock);
  free(promise);
}

/* Takes the error; runs on this thread what waits for it. Only the first time counts. */
void promise_keep(Promise *promise, PJRT_Error *error) {
  promise_share(promise); /* what waits may let go of the last reference */
  pthread_mutex_lock(&promise->lock);
  bool first = !promise->is_kept;
  Waiter *waiters = first ? promise->waiters : NULL;
  if (first) {
    promise->is_kept = true;
    promise->error = error;
    promise->waiters = NULL;
    pthread_cond_broadcast(&promise->kept);
  }
  pthread_mutex_unlock(&promise->lock);
  if (!first) destroy_error(error);
  while (waiters != NULL) {
    Waiter *waiter = waiters;
    waiters = waiter->next;
    waiter->then(promise->error, waiter->argument);
    free(waiter);
  }
  promise_let_go(promise);
}

bool promise_is_kept(Promise *promise) {
  pthread_mutex_lock(&promise->lock);
  bool kept = promise->is_kept;
  pthread_mutex_unlock(&promise->lock);
  return kept;
}

/* Of a promise that is kept. */
PJRT_Error *promise_error(Promise *promise) { return copy_error(promise->error); }

/* Calls then(error, argument), where the error is the promise's, now or on the thread that keeps it. */
void promise_then(Promise *promise, Then *then, void *argument) {
  pthread_mutex_lock(&promise->lock);
  bool kept = promise->is_kept;
  if (!kept) {
    Waiter *waiter = need(1, sizeof(Waiter));
    *waiter = (Waiter){promise->waiters, then, argument};
    promise->waiters = waiter;
  }
  pthread_mutex_unlock(&promise->lock);
  if (kept) then(promise->error, argument);
}

PJRT_Error *promise_await(Promise *promise) {
  pthread_mutex_lock(&promise->lock);
  while (!promise->is_kept) pthread_cond_wait(&promise->kept, &promise->lock);
  pthread_mutex_unlock(&promise->lock);
  return promise_error(promise);
}

/* Takes the reference. */
PJRT_Event *event_of(Promise *promise) {
  PJRT_Event *event = need(1, sizeof(PJRT_Event));
  event->promise = promise;
  return event;
}

FUNCTION(PJRT_Event_Destroy) {
  if (args->event == NULL) return NULL;
  promise_let_go(args->event->promise);
  free(args->event);
  return NULL;
}

TELLS(PJRT_Event_IsReady, is_ready, promise_is_kept(args->event->promise))

FUNCTION(PJRT_Event_Error) {
  if (!promise_is_kept(args->event->promise))
    return make_error(PJRT_Error_Code_FAILED_PRECONDITION, "the event is not ready yet");
  return promise_error(args->event->promise);
}

FUNCTION(PJRT_Event_Await) {
  Promise *promise = promise_share(args->event->promise); /* another thread may destroy the event */
  PJRT_Error *error = promise_await(promise);
  promise_let_go(promise);
  return error;
}

typedef struct {
  PJRT_Event_OnReadyCallback callback;
  void *argument;
} OnReady;

static void call_back(const PJRT_Error *error, void *argument) {
  OnReady on_ready = *(OnReady *)argument;
  free(argument);
  on_ready.callback(copy_error(error), on_ready.argument); /* whose the error is now */
}

FUNCTION(PJRT_Event_OnReady) {
  OnReady *on_ready = need(1, sizeof(OnReady));
  *on_ready = (OnReady){args->callback, args->user_arg};
  promise_then(args->event->promise, call_back, on_ready);
  return NULL;
}

FUNCTION(PJRT_Event_Create) {
  args->event = event_of(promise_new());
  return NULL;
}

FUNCTION(PJRT_Event_Set) {
  if (promise_is_kept(args->event->promise))
    return make_error(PJRT_Error_Code_FAILED_PRECONDITION, "the event was set before");
  PJRT_Error *error = NULL;
  if (args->error_code != PJRT_Error_Code_OK)
    error = make_error_of(args->error_code, args->error_message, args->error_message_size);
  promise_keep(args->event->promise, error);
  return NULL;
}
