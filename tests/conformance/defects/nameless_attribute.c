/* One of a device's attributes has no name. */
#include "../complete.h"

REPLACE(PJRT_Device_GetAttributes) {
  PJRT_Error *error = PJRT_Device_GetAttributes(args);
  ((PJRT_NamedValue *)args->attributes)[0].name_size = 0;
  return error;
}
