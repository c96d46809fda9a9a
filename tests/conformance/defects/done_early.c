/* Says at once that it needs no memory any more which it shares. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
  PJRT_Client_BufferFromHostBuffer_Args copy = *args;
  PJRT_Error *error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (error != NULL || args->host_buffer_semantics < PJRT_HostBufferSemantics_kImmutableZeroCopy)
    return error;
  copy.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  error = real->PJRT_Client_BufferFromHostBuffer(&copy);
  args->done_with_host_buffer = copy.done_with_host_buffer;
  return error;
}
