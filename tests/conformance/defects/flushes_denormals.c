/* Leaves the thread that ran a program without the floats below the normal ones. */
#include "../real.h"

REPLACE(PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x8040);
#elif defined(__aarch64__)
  __builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | 1 << 24);
#endif
  return error;
}
