/* Tells the owner of viewed memory that it is let go while it is viewed. */
#include "../real.h"

static void ignore(void *memory, void *arg) {}

REPLACE(PJRT_Client_CreateViewOfDeviceBuffer) {
  args->on_delete_callback(args->device_buffer_ptr, args->on_delete_callback_arg);
  args->on_delete_callback = ignore;
  return real->PJRT_Client_CreateViewOfDeviceBuffer(args);
}
