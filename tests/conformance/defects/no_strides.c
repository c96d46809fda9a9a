/* Reads every host array as if it lay by rows. */
#include "../real.h"

REPLACE(PJRT_Client_BufferFromHostBuffer) {
  args->byte_strides = NULL;
  args->num_byte_strides = 0;
  return real->PJRT_Client_BufferFromHostBuffer(args);
}
