/* A plugin with one defect: the real one at the path REAL, but for one function of its table. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdlib.h>
#include <stdio.h>
#include <string.h>

#include "pjrt_api.h"

static const PJRT_Api *real;

static PJRT_Api *copy_of_real(void) {
  static PJRT_Api copy;
  if (real == NULL) {
    const PJRT_Api *(*entry)(void) = dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), "GetPjrtApi");
    real = entry();
    memcpy(&copy, real, real->struct_size);
  }
  return &copy;
}

/* REPLACE(PJRT_Buffer_Delete) { return NULL; } */
#define REPLACE(name) REPLACE_GIVING(PJRT_Error *, name)
#define REPLACE_GIVING(result, name)              \
  static result replacement(name##_Args *args);   \
  const PJRT_Api *GetPjrtApi(void) {              \
    PJRT_Api *api = copy_of_real();               \
    api->name = replacement;                      \
    return api;                                   \
  }                                               \
  static result replacement(name##_Args *args)

#define AWAIT(event_)                                                                        \
  do {                                                                                       \
    PJRT_Event_Await_Args await = {.struct_size = PJRT_Event_Await_Args_STRUCT_SIZE};        \
    await.event = event_;                                                                    \
    real->PJRT_Event_Await(&await);                                                          \
  } while (0)

/* An event that has come already: that a host array of one byte was read. */
static PJRT_Event *ready_event(PJRT_Client *client, PJRT_Device *device) {
  PJRT_Client_BufferFromHostBuffer_Args put = {
      .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,
      .client = client, .device = device, .data = "", .type = PJRT_Buffer_Type_U8};
  if (real->PJRT_Client_BufferFromHostBuffer(&put) != NULL) abort();
  AWAIT(put.done_with_host_buffer);
  PJRT_Buffer_Destroy_Args destroy = {.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE,
                                      .buffer = put.buffer};
  real->PJRT_Buffer_Destroy(&destroy);
  return put.done_with_host_buffer;
}

static bool is_ready(PJRT_Event *event) {
  PJRT_Event_IsReady_Args asked = {.struct_size = PJRT_Event_IsReady_Args_STRUCT_SIZE,
                                   .event = event};
  return real->PJRT_Event_IsReady(&asked) == NULL && asked.is_ready;
}

/* DEFECT(api) { api->extension_start = NULL; } */
#define DEFECT(api)                       \
  static void change(PJRT_Api *api);      \
  const PJRT_Api *GetPjrtApi(void) {      \
    change(copy_of_real());               \
    return copy_of_real();                \
  }                                       \
  static void change(PJRT_Api *api)
