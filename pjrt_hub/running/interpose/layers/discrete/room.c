/* Checks whether a device has room for arrays that are to come and for buffers that exist. */
#include "discrete.h"

/* Returns the device whose memory an array of the host goes to, or NULL if that is host memory. */
PJRT_Device *room_device(Plugin *plugin, const PJRT_Client_BufferFromHostBuffer_Args *args) {
  if (args->memory == NULL) return args->device;
  return is_devices(plugin, args->memory) ? device_of(plugin, args->memory) : NULL;
}

/* Returns the memory of the array that a call makes, or NULL if only `real` tells it. */
PJRT_Memory *room_memory(Plugin *plugin, unsigned function, void *args) {
  PJRT_Client_BufferFromHostBuffer_Args *array = args;
  switch (function) {
    case FN_PJRT_Client_BufferFromHostBuffer:
      return array->memory != NULL ? array->memory : default_memory(plugin, array->device);
    case FN_PJRT_Buffer_CopyToDevice:
      return default_memory(plugin, ((PJRT_Buffer_CopyToDevice_Args *)args)->dst_device);
    case FN_PJRT_Buffer_CopyToMemory:
      return ((PJRT_Buffer_CopyToMemory_Args *)args)->dst_memory;
    default:
      return NULL;
  }
}

/* Returns an error if there is no room even after what the host gave up is freed. */
const Status *room_make(PJRT_Device *device, size_t nbytes) {
  if (store_full(device, nbytes) == NULL) return NULL;
  schedule_drain();
  return store_full(device, nbytes);
}

/* Returns an error if there is no room for a transfer's arrays, which are charged when retrieved. */
const Status *room_for_transfer(Plugin *plugin,
                                const PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args) {
  size_t nbytes = 0;
  for (size_t i = 0; i < args->num_shape_specs; i++) {
    const PJRT_ShapeSpec *spec = &args->shape_specs[i];
    SIZED(PJRT_Client_BufferFromHostBuffer_Args, array, .type = spec->element_type,
          .dims = spec->dims, .num_dims = spec->num_dims);
    nbytes += layout_nbytes_of(&array);
  }
  if (args->memory == NULL || !is_devices(plugin, args->memory)) return NULL;
  PJRT_Device *device = device_of(plugin, args->memory);
  schedule_lock();
  const Status *full = room_make(device, nbytes);
  schedule_unlock();
  return full;
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
