/* Decides when each operation begins and each event fires. The order depends on nothing but the
   seed as long as the host makes calls without a pause or waits. */
#include <errno.h>
#include <time.h>

#include "discrete.h"

/* After a silence of SILENCE_NS, or HELD_NS with the setting hold, time advances by itself. A due
   task waits up to PATIENCE_NS for earlier ones, so the seed decides their order if possible. */
enum { SILENCE_NS = 300000, HELD_NS = 5000000, PATIENCE_NS = 200000000, SECOND_NS = 1000000000 };
/* The delay with the setting hold: tasks begin only when the host waits for them or is silent. */
static const uint64_t HELD = (uint64_t)1 << 40;

struct Wait {
  Wait *next;
  Task *task;
};

typedef struct Job Job;
struct Job {
  Job *next;
  Task *task;
  bool fires;
};

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t changed, job_added;
static Task *tasks; /* The tasks in the order of their due times. */
static Job *jobs, **last_job = &jobs;
static unsigned idle_workers, running, firing, late; /* `late` counts firing tasks to ignore. */
static uint64_t now, random_state, calls;
static unsigned widest;
static bool holds;
static uint64_t silence_ns;
static bool keeps_time;          /* A thread of this process runs keep_time. */
static _Thread_local bool works; /* This thread runs tasks. */

void schedule_lock(void) { pthread_mutex_lock(&lock); }
void schedule_unlock(void) { pthread_mutex_unlock(&lock); }
void schedule_sleep(void) { pthread_cond_wait(&changed, &lock); }

void schedule_wake(void) { pthread_cond_broadcast(&changed); }

bool schedule_sleep_until(const struct timespec *end) {
  return pthread_cond_timedwait(&changed, &lock, end) != ETIMEDOUT;
}

struct timespec schedule_from_now(uint64_t ns) {
  struct timespec end;
  clock_gettime(CLOCK_MONOTONIC, &end);
  ns += (uint64_t)end.tv_nsec;
  end.tv_sec += (time_t)(ns / SECOND_NS);
  end.tv_nsec = (long)(ns % SECOND_NS);
  return end;
}

static uint64_t draw(void) { /* This is splitmix64. */
  uint64_t value = random_state += 0x9e3779b97f4a7c15u;
  value = (value ^ value >> 30) * 0xbf58476d1ce4e5b9u;
  value = (value ^ value >> 27) * 0x94d049bb133111ebu;
  return value ^ value >> 31;
}

/* Returns the due time of something new, which comes after the time `after`. */
uint64_t schedule_due(uint64_t after) {
  calls++;
  now++;
  return (after > now ? after : now) + (holds ? HELD : 0) + 1 + draw() % widest;
}

void schedule_after(Task *task, Moment *moment) {
  if (moment->happened) return;
  Wait *wait = take(sizeof *wait);
  *wait = (Wait){moment->waits, task};
  moment->waits = wait;
  task->waits++;
}

/* Advances the time, because the host waits for what is due then. */
void schedule_hurry(uint64_t due) {
  if (due <= now) return;
  now = due;
  schedule_wake();
}

void moment_happen(Moment *moment, const Status *status) {
  if (moment->happened) return;
  moment->happened = true;
  moment->status = status;
  for (Wait *wait = moment->waits, *next; wait != NULL; wait = next) {
    next = wait->next;
    wait->task->waits--;
    free(wait);
  }
  moment->waits = NULL;
  schedule_wake();
}

void moment_await(Moment *moment) {
  if (moment->happened) return;
  schedule_hurry(moment->due);
  while (!moment->happened) schedule_sleep();
}

static void *work(void *nothing) {
  works = true;
  schedule_lock();
  for (;;) {
    while (jobs == NULL) {
      idle_workers++;
      pthread_cond_wait(&job_added, &lock);
      idle_workers--;
    }
    Job *job = jobs;
    jobs = job->next;
    if (jobs == NULL) last_job = &jobs;
    Task *task = job->task;
    bool fires = job->fires;
    free(job);
    schedule_unlock();
    task->run(task);
    schedule_lock();
    running--;
    if (fires) firing--;
    if (fires && late > 0) late--;
    schedule_wake();
  }
  return nothing;
}

static void begin_thread(void *(*run)(void *)) {
  pthread_t thread;
  pthread_attr_t attributes;
  pthread_attr_init(&attributes);
  pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED);
  if (pthread_create(&thread, &attributes, run, NULL) != 0) abort();
  pthread_attr_destroy(&attributes);
}

static void begin(Task *task) {
  Task **at = &tasks;
  while (*at != task) at = &(*at)->next;
  *at = task->next;
  Job *job = take(sizeof *job);
  *job = (Job){NULL, task, task->fires};
  *last_job = job;
  last_job = &job->next;
  running++;
  if (task->fires) firing++;
  size_t waiting = 0;
  for (Job *each = jobs; each != NULL; each = each->next) waiting++;
  if (waiting > idle_workers) begin_thread(work);
  pthread_cond_signal(&job_added);
  schedule_wake();
}

static Task *first_free(void) {
  Task *task = tasks;
  while (task != NULL && task->waits > 0) task = task->next;
  return task;
}

/* Waits until the host has been silent for silence_ns. Returns false if something happens first.
   Once it has returned true, it does so without waiting until the host's next call. */
static bool is_silent(void) {
  static uint64_t silent_at = UINT64_MAX;
  uint64_t before = calls;
  if (silent_at == calls) return true;
  struct timespec end = schedule_from_now(silence_ns);
  Task *task = first_free();
  while (calls == before && task == first_free() && task->due > now)
    if (!schedule_sleep_until(&end)) {
      silent_at = calls;
      return true;
    }
  return false;
}

/* Returns whether a task is the first of those that are not late. */
static bool is_next(const Task *task) {
  const Task *first = tasks;
  while (first != task && first->late) first = first->next;
  return first == task;
}

/* Waits until all earlier tasks have begun and fired. Those that exceed PATIENCE_NS become late. */
static void wait_for_earlier(const Task *task) {
  struct timespec end = schedule_from_now(PATIENCE_NS);
  while ((!is_next(task) || firing > late) && first_free() == task)
    if (!schedule_sleep_until(&end)) {
      for (Task *each = tasks; each != task; each = each->next) each->late = true;
      late = firing;
      return;
    }
}

static void *keep_time(void *nothing) {
  schedule_lock();
  for (;;) {
    Task *task = first_free();
    if (task == NULL) {
      schedule_sleep();
    } else if (task->due > now) {
      if (is_silent()) now = task->due;
    } else {
      wait_for_earlier(task);
      if (first_free() == task) begin(task);
    }
  }
  return nothing;
}

void schedule_add(Task *task) {
  if (!keeps_time) begin_thread(keep_time);
  keeps_time = true;
  task->late = false;
  Task **at = &tasks;
  while (*at != NULL && (*at)->due <= task->due) at = &(*at)->next;
  task->next = *at;
  *at = task;
  schedule_wake();
}

/* Returns whether any task can begin or is under way, except for the one of this thread. */
static bool is_busy(void) {
  const Task *task = tasks;
  while (task != NULL && task->waits > 0 && !task->ends) task = task->next;
  return task != NULL || running > works;
}

/* Begins what can begin and waits until it has ended, or until nothing happens for a minute. */
void schedule_drain(void) {
  while (is_busy()) {
    for (Task *task = tasks; task != NULL; task = task->next) schedule_hurry(task->due);
    struct timespec end = schedule_from_now(60ull * SECOND_NS);
    if (!schedule_sleep_until(&end)) return;
  }
}

static void make_conditions(void) {
  pthread_condattr_t attributes;
  pthread_condattr_init(&attributes);
  pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
  pthread_cond_init(&changed, &attributes);
  pthread_cond_init(&job_added, &attributes);
  pthread_condattr_destroy(&attributes);
}

/* The threads exist only in the parent, so their work is left to the parent. */
void schedule_forked(void) {
  pthread_mutex_init(&lock, NULL);
  make_conditions();
  tasks = NULL;
  jobs = NULL;
  last_job = &jobs;
  idle_workers = running = firing = late = 0;
  keeps_time = false;
}

void schedule_start(uint64_t seed, unsigned window, bool hold, uint64_t silence) {
  make_conditions();
  random_state = seed;
  widest = window > 0 ? window : 1;
  holds = hold;
  silence_ns = silence > 0 ? silence * 1000000 : hold ? HELD_NS : SILENCE_NS;
}
