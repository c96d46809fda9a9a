/* What a device has room for: of what comes, and of what is there. */
#include "discrete.h"

/* The device whose memory an array of the host is for; NULL where it is for the host's. */
PJRT_Device *room_device(Plugin *plugin, const PJRT_Client_BufferFromHostBuffer_Args *args) {
  if (args->memory == NULL) return args->device;
  return is_devices(plugin, args->memory) ? device_of(plugin, args->memory) : NULL;
}

/* Says why there is no room, even once what the host gave up is gone. */
const Status *room_make(PJRT_Device *device, size_t nbytes) {
  if (store_full(device, nbytes) == NULL) return NULL;
  schedule_drain();
  return store_full(device, nbytes);
}

/* Counts what a buffer of the plugin's takes of its device; says why there is no room. */
const Status *room_charge(Plugin *plugin, Buffer *buffer, PJRT_Buffer *real) {
  SIZED(PJRT_Buffer_Device_Args, of, .buffer = real);
  size_t nbytes;
  if (!is_on_device(plugin, real) || !ask(plugin, FN_PJRT_Buffer_Device, &of) ||
      !layout_nbytes(plugin, real, &nbytes))
    return NULL;
  schedule_lock();
  const Status *full = store_full(of.device, nbytes);
  if (full == NULL) store_charge(buffer, of.device, nbytes);
  schedule_unlock();
  return full;
}
