/* Has one place for what it says of devices. */
#include "../real.h"

static char text[1024];

static void keep(const char **found, size_t *size) {
  if (*size < sizeof text) *found = memcpy(text, *found, *size);
}

static PJRT_Error *kind(PJRT_DeviceDescription_Kind_Args *args) {
  PJRT_Error *error = real->PJRT_DeviceDescription_Kind(args);
  if (error == NULL) keep(&args->device_kind, &args->device_kind_size);
  return error;
}

static PJRT_Error *debug_string(PJRT_DeviceDescription_DebugString_Args *args) {
  PJRT_Error *error = real->PJRT_DeviceDescription_DebugString(args);
  if (error == NULL) keep(&args->debug_string, &args->debug_string_size);
  return error;
}

DEFECT(api) {
  api->PJRT_DeviceDescription_Kind = kind;
  api->PJRT_DeviceDescription_DebugString = debug_string;
}
