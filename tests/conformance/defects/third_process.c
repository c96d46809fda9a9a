/* Says that it is process 3 of a job of one. */
#include "../real.h"

REPLACE(PJRT_Client_ProcessIndex) {
  PJRT_Error *error = real->PJRT_Client_ProcessIndex(args);
  args->process_index = 3;
  return error;
}
