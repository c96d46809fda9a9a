/* The files of the recording. Each thread writes to its own, so that no call waits for another. */
#include "recording.h"

#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum { NOTED = 1 << 27 }; /* Ticks after which both clocks are read again, about 50 ms. */

typedef struct {
  Header *header;
  char *window, *at; /* `at` is where the window's free part begins. */
  int file;
  unsigned generation;
} Thread;

static char folder_path[PATH_MAX - 64];
static unsigned long long room; /* The bytes that the whole recording may take. */
static pthread_key_t ending;
static atomic_uint num_threads;
static atomic_ullong taken;
static __thread Thread *self __attribute__((tls_model("initial-exec")));
static __thread bool failed __attribute__((tls_model("initial-exec")));

static uint64_t clock_ns(clockid_t clock) {
  struct timespec now;
  clock_gettime(clock, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

static Moment moment(void) {
  uint64_t before = ticks(), ns = clock_ns(CLOCK_MONOTONIC), after = ticks();
  return (Moment){before + (after - before) / 2, ns};
}

/* Appends the window to the log. If the process ends midway, nothing is read twice, because readers
   skip what lies in the window before `logged`. */
static bool flush(Thread *thread) {
  Header *header = thread->header;
  size_t nbytes = (size_t)(thread->at - thread->window), done = 0;
  off_t end = HEADER + WINDOW + (off_t)header->logged;
  bool fits = atomic_fetch_add(&taken, nbytes) + nbytes <= room;
  while (fits && done < nbytes) {
    ssize_t wrote = pwrite(thread->file, thread->window + done, nbytes - done, end + (off_t)done);
    fits = wrote > 0;
    if (fits) done += (size_t)wrote;
  }
  if (!fits) return false;
  __atomic_store_n(&header->logged, header->logged + nbytes, __ATOMIC_RELEASE);
  ((Record *)thread->window)->nbytes = 0;
  __atomic_store_n(&header->window_from, header->logged, __ATOMIC_RELEASE);
  thread->at = thread->window;
  return true;
}

static bool fill(Thread *thread, unsigned number) {
  /* Disk blocks are allocated first: on a full disk, writing to a page without one is fatal. */
  if (posix_fallocate(thread->file, 0, HEADER + WINDOW) != 0) return false;
  int flags = MAP_SHARED | MAP_POPULATE;
  char *memory = mmap(NULL, HEADER + WINDOW, PROT_READ | PROT_WRITE, flags, thread->file, 0);
  if (memory == MAP_FAILED) return false;
  madvise(memory, HEADER + WINDOW, MADV_DONTFORK); /* A forked child must not write here. */
  Header *header = thread->header = (Header *)memory;
  thread->window = thread->at = memory + HEADER;
  *header = (Header){.magic = "PJRTREC", .version = RECORDING_VERSION, .window = WINDOW,
                     .num_functions = NUM_FUNCTIONS, .pid = (uint32_t)getpid(),
                     .thread = (uint32_t)syscall(SYS_gettid), .number = number};
  pthread_getname_np(pthread_self(), header->name, sizeof header->name);
  header->first = moment();
  header->realtime_ns = clock_ns(CLOCK_REALTIME);
  /* 100 us of waiting tell the rate of the ticks to 0.1 %, even if the process is killed soon. */
  do header->last = moment();
  while (header->last.monotonic_ns - header->first.monotonic_ns < 100000);
  return true;
}

static void finish(void *ended) {
  Thread *thread = ended;
  thread->header->last = moment();
  flush(thread);
  munmap(thread->header, HEADER + WINDOW);
  close(thread->file);
  free(thread);
  self = NULL;
}

int recording_create(unsigned number, const char *ending) {
  char path[PATH_MAX];
  snprintf(path, sizeof path, "%s/%d-%u.%s", folder_path, (int)getpid(), number, ending);
  return open(path, O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
}

static Thread *begin(void) {
  unsigned number = atomic_fetch_add(&num_threads, 1) + 1;
  int file = recording_create(number, "pjrt");
  Thread *thread = file >= 0 ? calloc(1, sizeof *thread) : NULL;
  if (thread == NULL) return NULL;
  thread->file = file;
  thread->generation = generation();
  if (!fill(thread, number)) return NULL;
  pthread_setspecific(ending, thread);
  return thread;
}

/* Returns the file of this thread. After a fork, the child gets a new one. */
static Thread *mine(void) {
  if (self != NULL && self->generation == generation()) return self;
  if (failed) return NULL;
  self = begin();
  failed = self == NULL;
  if (failed)
    fprintf(stderr, "pjrt-hub: this thread is not recorded: no room or no rights in %s\n",
            folder_path);
  return self;
}

bool recording(void) { return folder_path[0] != 0; }

bool recording_start(const char *folder) {
  if (recording()) return true;
  const char *most = secure_getenv("PJRT_HUB_TRACE_NBYTES");
  room = most != NULL ? strtoull(most, NULL, 10) : 0;
  if (room == 0) room = 4ull << 30;
  if (strlen(folder) >= sizeof folder_path || access(folder, W_OK | X_OK) != 0) {
    fprintf(stderr, "pjrt-hub: nothing is recorded: %s is not a folder to write to\n", folder);
    return false;
  }
  if (pthread_key_create(&ending, finish) != 0) return false;
  strcpy(folder_path, folder);
  return true;
}

Draft draft(unsigned type, const Plugin *plugin, unsigned function) {
  Thread *thread = mine();
  if (thread == NULL) return (Draft){NULL, NULL, NULL};
  if (thread->window + WINDOW - thread->at < LARGEST && !flush(thread)) {
    thread->header->lost++;
    return (Draft){NULL, NULL, NULL};
  }
  Record *record = (Record *)thread->at;
  record->fixed = 0;
  record->function = (uint16_t)function;
  record->plugin = (uint8_t)plugin->number;
  record->type = (uint8_t)type;
  return (Draft){record, (char *)(record + 1), thread->at + LARGEST - sizeof(Record)};
}

void commit(Draft *draft, uint64_t now) {
  Thread *thread = self;
  draft->record->ticks = now;
  if (now - thread->header->last.ticks > NOTED) thread->header->last = moment();
  ((Record *)draft->at)->nbytes = 0; /* This marks the end until the next record is complete. */
  uint16_t nbytes = (uint16_t)(draft->at - thread->at);
  thread->at = draft->at;
  __atomic_store_n(&draft->record->nbytes, nbytes, __ATOMIC_RELEASE);
}
