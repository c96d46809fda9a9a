/* The functions that faults of tests/fake/faulty.py call. */
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>

static PJRT_Extension_Base chain[501]; /* there are fewer kinds of extensions */

static void fill_chain(void) {
  for (int i = 0; i < 500; i++)
    chain[i] = (PJRT_Extension_Base){sizeof chain[0], 7000 + i, &chain[i + 1]};
}

/* Leaves a process behind that has its own session, keeps all files open, and may refuse to end. */
static void leave_daemon(bool refuses) {
  int ends[2];
  char nothing;
  if (pipe(ends) != 0) abort();
  pid_t first = fork();
  if (first != 0) {
    close(ends[1]);
    while (read(ends[0], &nothing, 1) != 0) continue; /* this waits for the daemon's trace */
    close(ends[0]);
    waitpid(first, NULL, 0); /* only the daemon is left behind */
    return;
  }
  setsid();
  if (fork() != 0) _exit(0);
  if (refuses) signal(SIGTERM, SIG_IGN);
  leave_trace();
  close(ends[1]);
  for (;;) pause();
}

/* Sets one handler for all signals of the process. */
static void handle_all(void (*handler)(int)) {
  for (int each = 1; each < 32; each++) signal(each, handler);
}
static void swallow(int number) {}

/* Changes the limit of open files, the umask and the working directory of the process. */
static void raise_limits(void) {
  struct rlimit few = {16, 16};
  setrlimit(RLIMIT_NOFILE, &few);
  umask(0);
  if (chdir("/") != 0) abort();
}

/* Calls itself until the stack overflows. */
static int deeper(volatile int *above) {
  volatile int here[1024] = {above != NULL};
  return getpid() != 0 ? deeper(here) + here[above != NULL] : 0;
}
