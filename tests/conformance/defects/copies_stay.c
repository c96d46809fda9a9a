/* Copies to another memory by leaving the copy where it is. */
#include "../real.h"

REPLACE(PJRT_Buffer_CopyToMemory) {
  PJRT_Buffer_Memory_Args of = {.struct_size = PJRT_Buffer_Memory_Args_STRUCT_SIZE,
                                .buffer = args->buffer};
  PJRT_Error *error = real->PJRT_Buffer_Memory(&of);
  args->dst_memory = of.memory;
  return error != NULL ? error : real->PJRT_Buffer_CopyToMemory(args);
}
