/* Ends its host with status 3 where that exits with a client that it did not destroy. */
#include "../real.h"

#include <unistd.h>

static int clients;

static void count(void) {
  if (clients > 0) _exit(3);
}

static PJRT_Error *create(PJRT_Client_Create_Args *args) {
  if (clients++ == 0) atexit(count);
  return real->PJRT_Client_Create(args);
}

static PJRT_Error *destroy(PJRT_Client_Destroy_Args *args) {
  clients--;
  return real->PJRT_Client_Destroy(args);
}

DEFECT(api) {
  api->PJRT_Client_Create = create;
  api->PJRT_Client_Destroy = destroy;
}
