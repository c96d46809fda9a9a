/* Leaves one of the processor's units for floats, of two, rounding upwards. */
#include "../real.h"

REPLACE(PJRT_Buffer_ToHostBuffer) {
#if defined(__x86_64__)
  __builtin_ia32_ldmxcsr(__builtin_ia32_stmxcsr() | 0x4000);
#elif defined(__aarch64__)
  __builtin_aarch64_set_fpcr(__builtin_aarch64_get_fpcr() | 1 << 22);
#endif
  return real->PJRT_Buffer_ToHostBuffer(args);
}
