/* A promise is kept once, with success or with an error; a PJRT_Event refers to one. Whatever waits for a promise is
   called without a lock. */
#ifndef PJRT_PLUGIN_PROMISE_H
#define PJRT_PLUGIN_PROMISE_H

#include "error.h"

#include <pthread.h>

typedef void PluginThen(const PJRT_Error *error, void *argument);

typedef struct PluginWaiter {
  struct PluginWaiter *next;
  PluginThen *then;
  void *argument;
} PluginWaiter;

typedef struct {
  int references;
  pthread_mutex_t lock; /* Guards the fields below. */
  pthread_cond_t changed;
  bool kept;
  PJRT_Error *error;
  PluginWaiter *waiters;
} PluginPromise;

struct PJRT_Event {
  PluginPromise *promise;
};

/* References are counted; the last one destroys the promise. */
static inline void plugin_count_up(int *references) {
  __atomic_add_fetch(references, 1, __ATOMIC_RELAXED);
}

static inline bool plugin_count_down(int *references) {
  return __atomic_sub_fetch(references, 1, __ATOMIC_ACQ_REL) == 0;
}

static inline PluginPromise *plugin_promise(void) {
  PluginPromise *promise = PLUGIN_NEW(PluginPromise, 1);
  promise->references = 1;
  pthread_mutex_init(&promise->lock, NULL);
  pthread_cond_init(&promise->changed, NULL);
  return promise;
}

/* Makes a promise that is kept already, and takes over the error. */
static inline PluginPromise *plugin_promise_kept(PJRT_Error *error) {
  PluginPromise *promise = plugin_promise();
  promise->kept = true;
  promise->error = error;
  return promise;
}

static inline PluginPromise *plugin_promise_share(PluginPromise *promise) {
  plugin_count_up(&promise->references);
  return promise;
}

static inline void plugin_promise_let_go(PluginPromise *promise) {
  if (promise == NULL || !plugin_count_down(&promise->references)) return;
  plugin_error_destroy(promise->error);
  while (promise->waiters != NULL) { /* Nobody can keep this promise any more. */
    PluginWaiter *waiter = promise->waiters;
    promise->waiters = waiter->next;
    free(waiter);
  }
  pthread_cond_destroy(&promise->changed);
  pthread_mutex_destroy(&promise->lock);
  free(promise);
}

/* Keeps a promise, takes over the error and calls whatever waits. Returns false and destroys the error if the promise
   was kept before. */
static inline bool plugin_promise_keep(PluginPromise *promise, PJRT_Error *error) {
  plugin_promise_share(promise); /* Whatever waits may release the last reference. */
  pthread_mutex_lock(&promise->lock);
  bool first = !promise->kept;
  PluginWaiter *waiters = first ? promise->waiters : NULL;
  if (first) {
    promise->kept = true;
    promise->error = error;
    promise->waiters = NULL;
    pthread_cond_broadcast(&promise->changed);
  }
  pthread_mutex_unlock(&promise->lock);
  if (!first) plugin_error_destroy(error);
  while (waiters != NULL) {
    PluginWaiter *waiter = waiters;
    waiters = waiter->next;
    waiter->then(promise->error, waiter->argument);
    free(waiter);
  }
  plugin_promise_let_go(promise);
  return first;
}

static inline bool plugin_promise_is_kept(PluginPromise *promise) {
  pthread_mutex_lock(&promise->lock);
  bool kept = promise->kept;
  pthread_mutex_unlock(&promise->lock);
  return kept;
}

/* Waits until a promise is kept, and returns a copy of its error. */
static inline PJRT_Error *plugin_promise_await(PluginPromise *promise) {
  pthread_mutex_lock(&promise->lock);
  while (!promise->kept) pthread_cond_wait(&promise->changed, &promise->lock);
  pthread_mutex_unlock(&promise->lock);
  return plugin_error_copy(promise->error);
}

/* Calls then(error, argument) now or on the thread that keeps the promise. The promise still owns the error. */
static inline void plugin_promise_then(PluginPromise *promise, PluginThen *then, void *argument) {
  pthread_mutex_lock(&promise->lock);
  bool kept = promise->kept;
  if (!kept) {
    PluginWaiter *waiter = PLUGIN_NEW(PluginWaiter, 1);
    waiter->next = promise->waiters;
    waiter->then = then;
    waiter->argument = argument;
    promise->waiters = waiter;
  }
  pthread_mutex_unlock(&promise->lock);
  if (kept) then(promise->error, argument);
}

/* Makes an event, which takes over the reference. */
static inline PJRT_Event *plugin_event(PluginPromise *promise) {
  PJRT_Event *event = PLUGIN_NEW(PJRT_Event, 1);
  event->promise = promise;
  return event;
}

#endif
