/* What faults of tests/fake/faulty.py do that are more than a word. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static PJRT_Extension_Base chain[501]; /* more than there are kinds */

static void fill_chain(void) {
  for (int i = 0; i < 500; i++)
    chain[i] = (PJRT_Extension_Base){sizeof chain[0], 7000 + i, &chain[i + 1]};
}

/* Leaves a process in a session of its own that holds every file, and maybe refuses to end. */
static void leave_daemon(bool refuses) {
  int ends[2];
  char nothing;
  if (pipe(ends) != 0) abort();
  pid_t first = fork();
  if (first != 0) {
    close(ends[1]);
    while (read(ends[0], &nothing, 1) != 0) continue; /* until it has left its trace */
    close(ends[0]);
    waitpid(first, NULL, 0); /* so that it is the only one left */
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  if (refuses) signal(SIGTERM, SIG_IGN);
  leave_trace();
  close(ends[1]);
  for (;;) pause();
}

/* Takes over the signals of the process. */
static void handle_all(void (*handler)(int)) {
  for (int each = 1; each < 32; each++) signal(each, handler);
}
static void swallow(int number) {}

/* Changes what the process may use, and where it is. */
static void raise_limits(void) {
  struct rlimit few = {16, 16};
  setrlimit(RLIMIT_NOFILE, &few);
  umask(0);
  if (chdir("/") != 0) abort();
}

/* Calls itself until its stack ends. */
static int deeper(volatile int *above) {
  volatile int here[1024] = {above != NULL};
  return getpid() != 0 ? deeper(here) + here[above != NULL] : 0;
}
