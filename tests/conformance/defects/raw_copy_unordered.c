/* Copies raw bytes at once, also those of a buffer that is still being computed. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyRawToHost) {
  PJRT_Buffer_ReadyEvent_Args ready = {.struct_size = PJRT_Buffer_ReadyEvent_Args_STRUCT_SIZE,
                                       .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_ReadyEvent(&ready);
  bool there = error == NULL && is_ready(ready.event);
  if (error == NULL) AWAIT(ready.event);
  if (error == NULL) error = real->PJRT_Buffer_CopyRawToHost(args);
  if (error != NULL) return error;
  AWAIT(args->event);
  if (!there) memset(args->dst, 0, (size_t)args->transfer_size); /* as fresh memory has it */
  return NULL;
}
