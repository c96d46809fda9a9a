/* Plants defects in the real plugin, and gives them access to its working functions. */
#include "frame.h"
#include "../real.h"

#define WORKING(function) real->function

const PJRT_Api *GetPjrtApi(void) { return changed(copy_of_real()); }

#define STRUCT(type, name, ...) type name = {.struct_size = type##_STRUCT_SIZE, __VA_ARGS__}

static void await(PJRT_Event *event) {
  STRUCT(PJRT_Event_Await_Args, awaited, .event = event);
  real->PJRT_Event_Await(&awaited);
}

static bool is_ready(PJRT_Event *event) {
  STRUCT(PJRT_Event_IsReady_Args, asked, .event = event);
  return real->PJRT_Event_IsReady(&asked) == NULL && asked.is_ready;
}

/* Returns an event that is ready already: the end of reading a host array of one byte. */
static PJRT_Event *ready_event(PJRT_Client *client, PJRT_Device *device) {
  STRUCT(PJRT_Client_BufferFromHostBuffer_Args, put, .client = client, .device = device,
         .data = "", .type = PJRT_Buffer_Type_U8);
  if (real->PJRT_Client_BufferFromHostBuffer(&put) != NULL) abort();
  await(put.done_with_host_buffer);
  STRUCT(PJRT_Buffer_Destroy_Args, destroy, .buffer = put.buffer);
  real->PJRT_Buffer_Destroy(&destroy);
  return put.done_with_host_buffer;
}

static void *copied(const void *from, size_t size) { return memcpy(malloc(size), from, size); }

/* Returns a copy in the single place that all copies share. */
static void *in_one_place(const void *from, size_t size) {
  static _Alignas(8) char place[1024];
  return size <= sizeof place ? memcpy(place, from, size) : (void *)from;
}
