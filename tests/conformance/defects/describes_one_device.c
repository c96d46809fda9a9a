/* Describes one device less than it has. */
#include "../real.h"

REPLACE(PJRT_TopologyDescription_GetDeviceDescriptions) {
  PJRT_Error *error = real->PJRT_TopologyDescription_GetDeviceDescriptions(args);
  args->num_descriptions--;
  return error;
}
