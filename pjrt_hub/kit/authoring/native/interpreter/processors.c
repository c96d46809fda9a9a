/* Preloaded into the interpreter's process: as many processors as a program may have devices.

   The interpreter gives each device of a program a thread of a pool that LLVM makes as large as the
   machine has processors; on fewer, devices would wait for those that have no thread yet. */
#define _GNU_SOURCE
#include <sched.h>

__attribute__((visibility("default"))) int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
  CPU_ZERO_S(size, set);
  for (size_t each = 0; each < 8 * size; each++) CPU_SET_S(each, size, set);
  return 0;
}
