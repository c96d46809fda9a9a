/* Says of no buffer that it is deleted. */
#include "../real.h"

REPLACE(PJRT_Buffer_IsDeleted) {
  PJRT_Error *error = real->PJRT_Buffer_IsDeleted(args);
  args->is_deleted = false;
  return error;
}
