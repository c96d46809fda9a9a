/* Has one attribute less each time. */
#include "../real.h"

REPLACE(PJRT_Plugin_Attributes) {
  static size_t asked;
  PJRT_Error *error = real->PJRT_Plugin_Attributes(args);
  args->num_attributes -= asked++ % args->num_attributes;
  return error;
}
