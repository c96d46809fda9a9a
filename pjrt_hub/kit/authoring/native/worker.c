/* The worker: a thread that runs jobs one after the other when they can run. */
#include "plugin.h"

struct Worker {
  pthread_t thread;
  pthread_mutex_t lock;
  pthread_cond_t changed;
  Job *first, *last;
  size_t expected;
  bool ending;
};

static void *work(void *argument) {
  Worker *worker = argument;
  pthread_mutex_lock(&worker->lock);
  for (;;) {
    Job *job = worker->first;
    if (job != NULL) {
      worker->first = job->next;
      if (worker->first == NULL) worker->last = NULL;
      pthread_mutex_unlock(&worker->lock);
      job->run(job);
      pthread_mutex_lock(&worker->lock);
    } else if (worker->ending && worker->expected == 0) {
      break;
    } else {
      pthread_cond_wait(&worker->changed, &worker->lock);
    }
  }
  pthread_mutex_unlock(&worker->lock);
  pthread_mutex_destroy(&worker->lock);
  pthread_cond_destroy(&worker->changed);
  free(worker);
  return NULL;
}

/* Returns NULL if there can be no more threads. */
Worker *worker_new(void) {
  Worker *worker = plugin_zeroed(1, sizeof(Worker));
  pthread_mutex_init(&worker->lock, NULL);
  pthread_cond_init(&worker->changed, NULL);
  if (pthread_create(&worker->thread, NULL, work, worker) == 0) {
    pthread_detach(worker->thread);
    return worker;
  }
  free(worker);
  return NULL;
}

/* Expected jobs still run; the thread ends after the last one. */
void worker_end(Worker *worker) {
  if (worker == NULL) return;
  pthread_mutex_lock(&worker->lock);
  worker->ending = true;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}

/* Announces a job, which will come at any time. */
void worker_expect(Worker *worker) {
  pthread_mutex_lock(&worker->lock);
  worker->expected++;
  pthread_mutex_unlock(&worker->lock);
}

/* Runs a job that was announced. */
void worker_do(Worker *worker, Job *job) {
  pthread_mutex_lock(&worker->lock);
  if (worker->last == NULL)
    worker->first = job;
  else
    worker->last->next = job;
  worker->last = job;
  worker->expected--;
  pthread_cond_signal(&worker->changed);
  pthread_mutex_unlock(&worker->lock);
}
