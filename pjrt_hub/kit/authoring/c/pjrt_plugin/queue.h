/* The main loop of a device: a thread takes work from a queue, in the order in which the work can begin. */
#ifndef PJRT_PLUGIN_QUEUE_H
#define PJRT_PLUGIN_QUEUE_H

#include "event.h"

typedef struct PluginQueue PluginQueue;

/* This is the first field of each kind of work. `run` must free the work. */
typedef struct PluginWork {
  struct PluginWork *next;
  PluginQueue *queue;
  int missing; /* Counts what the work waits for, and one more until all of that is known. */
  void (*run)(struct PluginWork *work);
} PluginWork;

struct PluginQueue {
  pthread_t thread;
  pthread_mutex_t lock; /* Guards the fields below. */
  pthread_cond_t changed;
  bool started, ending, working;
  PluginWork *first, *last;
};

static inline void plugin_queue_free(PluginQueue *queue) {
  pthread_cond_destroy(&queue->changed);
  pthread_mutex_destroy(&queue->lock);
  free(queue);
}

static inline void *plugin_queue_work(void *argument) {
  PluginQueue *queue = (PluginQueue *)argument;
  pthread_mutex_lock(&queue->lock);
  for (;;) {
    while (queue->first == NULL && !queue->ending) pthread_cond_wait(&queue->changed, &queue->lock);
    PluginWork *work = queue->first;
    if (work == NULL) break;
    queue->first = work->next;
    queue->working = true;
    pthread_mutex_unlock(&queue->lock);
    work->run(work);
    pthread_mutex_lock(&queue->lock);
    queue->working = false;
    pthread_cond_broadcast(&queue->changed);
  }
  pthread_mutex_unlock(&queue->lock);
  plugin_queue_free(queue);
  return NULL;
}

static inline PluginQueue *plugin_queue(void) {
  PluginQueue *queue = PLUGIN_NEW(PluginQueue, 1);
  pthread_mutex_init(&queue->lock, NULL);
  pthread_cond_init(&queue->changed, NULL);
  return queue;
}

/* Starts the thread if it does not run yet. Returns false if no thread can be started. */
static inline bool plugin_queue_start(PluginQueue *queue) {
  pthread_mutex_lock(&queue->lock);
  if (!queue->started) queue->started = pthread_create(&queue->thread, NULL, plugin_queue_work, queue) == 0;
  bool started = queue->started;
  pthread_mutex_unlock(&queue->lock);
  return started;
}

/* Waits until the queue is empty, but not for work that still waits for something. */
static inline void plugin_queue_drain(PluginQueue *queue) {
  pthread_mutex_lock(&queue->lock);
  while (queue->first != NULL || queue->working) pthread_cond_wait(&queue->changed, &queue->lock);
  pthread_mutex_unlock(&queue->lock);
}

/* Ends the thread, which frees the queue. With `wait`, the caller waits for the thread, unless it is that thread. */
static inline void plugin_queue_end(PluginQueue *queue, bool wait) {
  if (!queue->started) {
    plugin_queue_free(queue);
    return;
  }
  pthread_t thread = queue->thread;
  pthread_mutex_lock(&queue->lock);
  queue->ending = true;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
  if (!wait || pthread_equal(thread, pthread_self()))
    pthread_detach(thread);
  else
    pthread_join(thread, NULL);
}

/* Counts down what work waits for. At zero, the work is queued, or run here if there is no queue or no thread. */
static inline void plugin_work_nearer(const PJRT_Error *error, void *argument) {
  PluginWork *work = (PluginWork *)argument;
  (void)error;
  if (!plugin_count_down(&work->missing)) return;
  PluginQueue *queue = work->queue;
  if (queue == NULL || !plugin_queue_start(queue)) {
    work->run(work);
    return;
  }
  pthread_mutex_lock(&queue->lock);
  work->next = NULL;
  if (queue->first == NULL)
    queue->first = work;
  else
    queue->last->next = work;
  queue->last = work;
  pthread_cond_broadcast(&queue->changed);
  pthread_mutex_unlock(&queue->lock);
}

/* Queues work once all promises are kept, with success or not; the work holds references to them. Without a queue it
   runs on this thread, or on the one that keeps the last promise. */
static inline void plugin_work_begin(PluginWork *work, PluginQueue *queue, PluginPromise *const *promises,
                                     size_t count) {
  work->queue = queue;
  work->missing = (int)count + 1;
  for (size_t i = 0; i < count; i++) plugin_promise_then(promises[i], plugin_work_nearer, work);
  plugin_work_nearer(NULL, work);
}

#endif
