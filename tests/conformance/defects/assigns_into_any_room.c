/* Takes an assignment that is too small, and fills a part. */
#include "../real.h"

REPLACE(PJRT_Client_DefaultDeviceAssignment) {
  PJRT_Client_DefaultDeviceAssignment_Args part = *args;
  part.num_replicas = part.num_partitions = 1;
  return real->PJRT_Client_DefaultDeviceAssignment(&part);
}
