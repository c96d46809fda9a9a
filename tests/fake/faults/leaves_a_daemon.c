/* Works, and leaves a process in a session of its own that holds every file. */
static void leave_daemon(void);
#define ON_INITIALIZE leave_daemon()
#include "../plugin.c"

static void leave_daemon(void) {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  leave_trace();
  for (;;) pause();
}
