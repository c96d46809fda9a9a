/* Goes on reading the caller's memory after a call that was to read it at once. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
  args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  return real->PJRT_Client_BufferFromHostBuffer(args);
}
