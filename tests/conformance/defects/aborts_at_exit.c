/* Ends its host by SIGABRT where that exits after it made a client. */
#include "../real.h"

REPLACE(PJRT_Client_Create) {
  atexit(abort);
  return real->PJRT_Client_Create(args);
}
