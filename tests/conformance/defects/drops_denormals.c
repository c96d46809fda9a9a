/* Leaves the thread that put an array without what floats below the normal ones are. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x0040);
#elif defined(__aarch64__)
  __builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | 1 << 24);
#endif
  return real->PJRT_Client_BufferFromHostBuffer(args);
}
