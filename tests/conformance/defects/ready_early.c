/* Calls the output of a run ready as soon as that has begun; a copy still waits for its end. */
#include "../real.h"

static PJRT_Client *client;

static PJRT_Error *create(PJRT_Client_Create_Args *args) {
  PJRT_Error *error = real->PJRT_Client_Create(args);
  client = args->client;
  return error;
}

static PJRT_Error *ready(PJRT_Buffer_ReadyEvent_Args *args) {
  PJRT_Error *error = real->PJRT_Buffer_ReadyEvent(args);
  if (error != NULL || is_ready(args->event)) return error;
  PJRT_Buffer_Device_Args asked = {.struct_size = PJRT_Buffer_Device_Args_STRUCT_SIZE,
                                   .buffer = args->buffer};
  PJRT_Event_Destroy_Args destroy = {.struct_size = PJRT_Event_Destroy_Args_STRUCT_SIZE,
                                     .event = args->event};
  error = real->PJRT_Buffer_Device(&asked);
  real->PJRT_Event_Destroy(&destroy);
  args->event = ready_event(client, asked.device);
  return error;
}

DEFECT(api) {
  api->PJRT_Client_Create = create;
  api->PJRT_Buffer_ReadyEvent = ready;
}
