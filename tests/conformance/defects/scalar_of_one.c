/* Gives scalars a dimension. */
#include "../real.h"

REPLACE(PJRT_Buffer_Dimensions) {
  static const int64_t one = 1;
  PJRT_Error *error = real->PJRT_Buffer_Dimensions(args);
  if (error == NULL && args->num_dims == 0) args->dims = &one, args->num_dims = 1;
  return error;
}
