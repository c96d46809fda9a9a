/* Frees what a buffer held, but not the buffer. */
#include "../real.h"

REPLACE(PJRT_Buffer_Destroy) {
  PJRT_Buffer_Delete_Args delete = {.struct_size = PJRT_Buffer_Delete_Args_STRUCT_SIZE,
                                    .buffer = args->buffer};
  return args->buffer != NULL ? real->PJRT_Buffer_Delete(&delete) : NULL;
}
