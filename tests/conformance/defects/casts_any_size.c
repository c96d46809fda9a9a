/* Casts to a shape of any size. */
#include "../complete.h"

REPLACE(PJRT_Buffer_Bitcast) {
  args->out_buffer = heir(args->buffer, args->element_type, args->dims, args->num_dims, NULL);
  args->out_buffer->signal = args->buffer->signal;
  return NULL;
}
