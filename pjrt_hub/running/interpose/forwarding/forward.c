/* A library that looks like a plugin: its GetPjrtApi returns a copy of a table that is already in
   this process. It serves hosts that accept only a path and would open the plugin themselves. */
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"

#define EXPORTED __attribute__((visibility("default")))

/* The host gets a copy, because the plugin's own memory must not be written to. */
static const PJRT_Api *given;
static PJRT_Api *copy;

/* Does nothing, because the plugin is initialized already and some plugins refuse a second call. */
static PJRT_Error *initialized(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* Sets the table that the host gets a copy of and returns the one in use. That is always the first,
   because a host keeps its table. The caller must let only one thread in at a time. */
EXPORTED const PJRT_Api *pjrt_hub_forward(const PJRT_Api *api) {
  if (given != NULL || api == NULL) return given;
  copy = malloc(api->struct_size);
  if (copy == NULL) return NULL;
  memcpy(copy, api, api->struct_size);
  copy->PJRT_Plugin_Initialize = initialized;
  return given = api;
}

/* Returns NULL until a table is set. */
EXPORTED const PJRT_Api *GetPjrtApi(void) { return copy; }
