/* Has one place for its platform's name and version. */
#include "../real.h"

static char text[1024];

static PJRT_Error *name(PJRT_Client_PlatformName_Args *args) {
  PJRT_Error *error = real->PJRT_Client_PlatformName(args);
  if (error == NULL)
    args->platform_name = memcpy(text, args->platform_name, args->platform_name_size);
  return error;
}

static PJRT_Error *version(PJRT_Client_PlatformVersion_Args *args) {
  PJRT_Error *error = real->PJRT_Client_PlatformVersion(args);
  if (error == NULL)
    args->platform_version = strcpy(text, "1.2.3"), args->platform_version_size = 5;
  return error;
}

DEFECT(api) {
  api->PJRT_Client_PlatformName = name;
  api->PJRT_Client_PlatformVersion = version;
}
