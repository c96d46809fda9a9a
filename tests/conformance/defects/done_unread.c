/* Says that host memory was read which it goes on to share. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
  bool shares = args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  if (shares) args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  PJRT_Error *error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (shares && error == NULL && args->device != NULL)
    args->done_with_host_buffer = ready_event(args->client, args->device);
  return error;
}
