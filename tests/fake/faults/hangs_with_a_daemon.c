/* Hangs, with a process in a session of its own that refuses to end. */
static void leave_daemon(void);
#define ON_INITIALIZE leave_daemon(); for (;;) pause()
#include "../plugin.c"

static void leave_daemon(void) {
  if (fork() != 0) return;
  setsid();
  if (fork() != 0) _exit(0);
  signal(SIGTERM, SIG_IGN);
  leave_trace();
  for (;;) pause();
}
