/* Has a file and a variable as long as there is a client, and neither afterwards. */
#include "../real.h"

#include <fcntl.h>
#include <unistd.h>

static int file;

static PJRT_Error *create(PJRT_Client_Create_Args *args) {
  setenv("OWN_OF_CLIENT", "1", 1);
  file = open("/dev/null", O_RDONLY);
  return real->PJRT_Client_Create(args);
}

static PJRT_Error *destroy(PJRT_Client_Destroy_Args *args) {
  unsetenv("OWN_OF_CLIENT");
  close(file);
  return real->PJRT_Client_Destroy(args);
}

DEFECT(api) {
  api->PJRT_Client_Create = create;
  api->PJRT_Client_Destroy = destroy;
}
