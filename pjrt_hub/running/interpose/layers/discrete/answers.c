/* Answers calls about the accelerator itself, such as its name and its memory statistics. */
#include <stdio.h>

#include "discrete.h"

enum { DESCRIPTIONS = 64, NAME = 64 };
static struct {
  PJRT_DeviceDescription *description;
  char name[NAME];
} names[DESCRIPTIONS];
static char real_platform[32]; /* The plugin's own name for its platform. */

/* Notes what the plugin calls the platform of a new client. */
void answers_client(Plugin *plugin, PJRT_Client *client) {
  SIZED(PJRT_Client_PlatformName_Args, args, .client = client);
  if (!answered(plugin, plugin->real[FN_PJRT_Client_PlatformName](&args))) return;
  if (args.platform_name_size < sizeof real_platform)
    memcpy(real_platform, args.platform_name, args.platform_name_size);
}

/* Returns the name of a device, such as "discrete:1", which lives as long as the device. */
static const char *name_of(Plugin *plugin, PJRT_DeviceDescription *description) {
  SIZED(PJRT_DeviceDescription_Id_Args, args, .device_description = description);
  if (!answered(plugin, plugin->real[FN_PJRT_DeviceDescription_Id](&args))) args.id = 0;
  schedule_lock();
  size_t i = 0;
  while (i < DESCRIPTIONS - 1 && names[i].description != NULL && names[i].description != description)
    i++;
  names[i].description = description;
  snprintf(names[i].name, NAME, "%s:%d", settings.platform, args.id);
  schedule_unlock();
  return names[i].name;
}

static void memory_stats(PJRT_Device_MemoryStats_Args *args) {
  schedule_lock();
  const Store *store = store_of(args->device);
  args->bytes_in_use = (int64_t)store->used;
  args->peak_bytes_in_use = (int64_t)store->peak;
  args->num_allocs = (int64_t)store->count;
  args->largest_alloc_size = (int64_t)store->largest;
  args->bytes_limit = (int64_t)settings.capacity;
  schedule_unlock();
  args->peak_bytes_in_use_is_set = args->num_allocs_is_set = args->largest_alloc_size_is_set = true;
  args->bytes_limit_is_set = settings.capacity > 0;
  args->bytes_reserved_is_set = args->peak_bytes_reserved_is_set = false;
  args->bytes_reservable_limit_is_set = args->largest_free_block_bytes_is_set = false;
  args->pool_bytes_is_set = args->peak_pool_bytes_is_set = false;
}

/* Registers a handler for the plugin's own platform, because the plugin knows no other name. */
static PJRT_Error *register_handler(Plugin *plugin, PJRT_FFI_Register_Handler_Args *args) {
  const char *name = args->platform_name;
  size_t length = args->platform_name_size;
  if (length == strlen(settings.platform) && strncasecmp(name, settings.platform, length) == 0) {
    args->platform_name = real_platform;
    args->platform_name_size = strlen(real_platform);
  }
  PJRT_Error *error = plugin->real[FN_PJRT_FFI_Register_Handler](args);
  args->platform_name = name;
  args->platform_name_size = length;
  return error;
}

static PJRT_Error *no_host_pointer(PJRT_RawBuffer_GetHostPointer_Args *args) {
  args->host_pointer = NULL;
  return refuse_text(PJRT_Error_Code_UNIMPLEMENTED, "device memory has no address on the host");
}

/* Tells a name. The plugin is called first, because it may refuse the caller's struct. */
static PJRT_Error *tell_name(Plugin *plugin, unsigned function, void *args) {
  /* The arguments of all these functions have the same fields. */
  PJRT_DeviceDescription_ToString_Args *named = args;
  bool of_device = function == FN_PJRT_DeviceDescription_ToString ||
                   function == FN_PJRT_DeviceDescription_DebugString;
  PJRT_Error *error = plugin->real[function](args);
  if (error != NULL) return error;
  named->to_string = of_device ? name_of(plugin, named->device_description) : settings.platform;
  named->to_string_size = strlen(named->to_string);
  return NULL;
}

/* Answers a call that the plugin would answer differently. Returns false for all other calls. */
bool answer(Plugin *plugin, unsigned function, void *args, PJRT_Error **error) {
  *error = NULL;
  switch (function) {
    case FN_PJRT_Client_PlatformName:
    case FN_PJRT_TopologyDescription_PlatformName:
    case FN_PJRT_DeviceDescription_Kind:
    case FN_PJRT_DeviceDescription_ToString:
    case FN_PJRT_DeviceDescription_DebugString:
      *error = tell_name(plugin, function, args);
      return true;
    case FN_PJRT_Device_MemoryStats:
      memory_stats(args);
      return true;
    case FN_PJRT_FFI_Register_Handler:
      *error = register_handler(plugin, args);
      return true;
    case FN_PJRT_RawBuffer_GetHostPointer:
      *error = no_host_pointer(args);
      return true;
    default:
      return false;
  }
}
