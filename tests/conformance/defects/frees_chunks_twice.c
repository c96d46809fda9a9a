/* Frees each chunk that a program receives twice. */
#include "../complete.h"

REPLACE(PJRT_CopyToDeviceStream_AddChunk) {
  args->chunk->deleter(args->chunk->data, args->chunk->deleter_arg);
  return PJRT_CopyToDeviceStream_AddChunk(args);
}
