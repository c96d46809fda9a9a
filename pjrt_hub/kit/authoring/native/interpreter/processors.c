/* Reports as many processors as a program may have devices. It is preloaded into the interpreter.

   The interpreter runs each device of a program on a thread of a pool, which LLVM makes as large as
   the number of processors. With too few, devices would wait for devices that get no thread. */
#define _GNU_SOURCE
#include <sched.h>

__attribute__((visibility("default"))) int sched_getaffinity(pid_t process, size_t size, cpu_set_t *set) {
  CPU_ZERO_S(size, set);
  for (size_t each = 0; each < 8 * size; each++) CPU_SET_S(each, size, set);
  return 0;
}
