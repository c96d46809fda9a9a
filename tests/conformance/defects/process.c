/* Defects of plugins that change the process they are in, or keep its resources. */
#include "real.h"

#include <fcntl.h>
#include <fenv.h>
#include <locale.h>
#include <pthread.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

BEFORE(changes_environment, PJRT_Client_Create, setenv("PATH", "/nowhere", 1))
BEFORE(changes_folder, PJRT_Client_Create, if (chdir("/") != 0) abort())
BEFORE(changes_locale, PJRT_Client_Create, setlocale(LC_ALL, "POSIX"))
BEFORE(closes_stdin, PJRT_Client_Create, close(0))
BEFORE(takes_stderr, PJRT_Client_Create, dup2(open("/dev/null", O_WRONLY), 2))
BEFORE(takes_interrupts, PJRT_Client_Create, signal(SIGINT, SIG_DFL))
BEFORE(dies_of_pipes, PJRT_Client_Create, signal(SIGPIPE, SIG_DFL)) /* the host ignores SIGPIPE */
BEFORE(blocks_signals, PJRT_Client_Compile,
       sigset_t all; sigfillset(&all); pthread_sigmask(SIG_BLOCK, &all, NULL))
BEFORE(loses_priority, PJRT_Client_Create, setpriority(PRIO_PROCESS, 0, 19))
BEFORE(lowers_limits, PJRT_Client_Create,
       struct rlimit limit;
       getrlimit(RLIMIT_NOFILE, &limit);
       limit.rlim_cur /= 2;
       setrlimit(RLIMIT_NOFILE, &limit))
BEFORE(renames_thread, PJRT_Client_Compile, prctl(PR_SET_NAME, "compiler"))
BEFORE(waits_for_any_child, PJRT_Client_Compile, while (waitpid(-1, NULL, WNOHANG) > 0) continue)

/* Keeps a file open and a variable set while there is a client, and neither afterwards. */
static int file_of_client;
BEFORE(tidies_up, PJRT_Client_Create,
       setenv("OWN_OF_CLIENT", "1", 1), file_of_client = open("/dev/null", O_RDONLY))
BEFORE(tidies_up, PJRT_Client_Destroy, unsetenv("OWN_OF_CLIENT"), close(file_of_client))

/* Floating-point settings */

/* Sets control bits of one floating-point unit; on x86-64 that is SSE, and x87 is the other. */
static void set_bits(unsigned of_x86_64, unsigned of_aarch64) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | of_x86_64);
#elif defined(__aarch64__)
  __builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | of_aarch64);
#endif
}

AFTER(flushes_denormals, PJRT_LoadedExecutable_Execute, set_bits(0x8040, 1 << 24))
BEFORE(rounds_up_in_one_unit, PJRT_Buffer_ToHostBuffer, set_bits(0x4000, 1 << 22))
AFTER(rounds_up, PJRT_LoadedExecutable_Execute,
      static int (*set)(int); /* it is in libm, which is not linked in here */
      if (set == NULL) set = (int (*)(int))dlsym(RTLD_DEFAULT, "fesetround");
      set(FE_UPWARD))

/* Threads, and the end of the process */

static pthread_t begin(void *(*work)(void *)) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, NULL);
  return thread;
}

static void *sleep_for_ever(void *nothing) {
  for (;;) pause();
  return nothing;
}

static void *look_for_work(void *nothing) {
  static volatile bool work;
  while (!work) continue;
  return nothing;
}

static pthread_t sleeping;
static void join(void) { pthread_join(sleeping, NULL); }

BEFORE(keeps_threads, PJRT_Client_Create, pthread_detach(begin(sleep_for_ever)))
BEFORE(spins, PJRT_Client_Create, pthread_detach(begin(look_for_work)))
BEFORE(hangs_at_exit, PJRT_Client_Create, sleeping = begin(sleep_for_ever), atexit(join))
BEFORE(aborts_at_exit, PJRT_Client_Create, atexit(abort))

static int clients;

static void exit_on_leaks(void) {
  if (clients > 0) _exit(3);
}

BEFORE(exits_on_leaks, PJRT_Client_Create, if (clients++ == 0) atexit(exit_on_leaks))
BEFORE(exits_on_leaks, PJRT_Client_Destroy, clients--)

/* Leaks */

static void *volatile kept; /* volatile keeps the compiler from leaving out malloc */
#define KEEPS(name, function, size) BEFORE(name, function, kept = malloc(size))

KEEPS(keeps_of_callbacks, PJRT_Event_OnReady, 32)
KEEPS(keeps_of_copies, PJRT_Buffer_CopyToDevice, 32)
KEEPS(keeps_of_events, PJRT_Event_Destroy, 32)
KEEPS(keeps_of_gets, PJRT_Buffer_ToHostBuffer, 64)
KEEPS(keeps_of_loads, PJRT_Executable_DeserializeAndLoad, 4096)
KEEPS(keeps_of_programs, PJRT_Client_Compile, 1 << 16)
KEEPS(keeps_of_runs, PJRT_LoadedExecutable_Execute, sizeof *args)
BEFORE(keeps_files, PJRT_Client_Destroy, open("/dev/null", O_RDONLY))

/* Leaks a little memory in every copy to the host, and once frees a large block that it held. */
BEFORE(keeps_and_frees, PJRT_Buffer_ToHostBuffer,
       static int copies;
       static void *held;
       if (copies == 0) held = malloc(1 << 20);
       if (++copies == 600) free(held);
       kept = malloc(64))

/* Frees the memory that a buffer held, but not the buffer itself. */
REPLACE(keeps_buffers, PJRT_Buffer_Destroy) {
  STRUCT(PJRT_Buffer_Delete_Args, delete, .buffer = args->buffer);
  return args->buffer != NULL ? real->PJRT_Buffer_Delete(&delete) : NULL;
}

/* Maps memory for every transfer, and never unmaps it. */
BEFORE(keeps_pages, PJRT_AsyncHostToDeviceTransferManager_TransferData,
       char *page = mmap(NULL, 4096, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
       if (page != MAP_FAILED) *page = 1)
