/* Checks whether a device has room for arrays that are to come and for buffers that exist. */
#include "discrete.h"

/* Returns the device whose memory an array of the host goes to, or NULL if that is host memory. */
PJRT_Device *room_device(Plugin *plugin, const PJRT_Client_BufferFromHostBuffer_Args *args) {
  if (args->memory == NULL) return args->device;
  return is_devices(plugin, args->memory) ? device_of(plugin, args->memory) : NULL;
}

/* Returns an error if there is no room even after what the host gave up is freed. */
const Status *room_make(PJRT_Device *device, size_t nbytes) {
  if (store_full(device, nbytes) == NULL) return NULL;
  schedule_drain();
  return store_full(device, nbytes);
}

/* Charges the bytes of a plugin's buffer to its device; returns an error if there is no room. */
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
