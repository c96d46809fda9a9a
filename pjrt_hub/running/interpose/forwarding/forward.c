/* A library that looks like a plugin: its GetPjrtApi returns a copy of a table that is already in
   this process. It serves hosts that accept only a path and would open the plugin themselves. */
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"

#define EXPORTED __attribute__((visibility("default")))

/* The host gets a copy, because the plugin's own memory must not be written to. */
static const PJRT_Api *given;
static PJRT_Api *copy;

/* This does nothing: the plugin is initialized already, and some plugins refuse a second time. */
static PJRT_Error *initialized(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* Sets the table to forward to and returns the one in use. That is always the first, because a host
   keeps its table. The caller lets only one thread at a time in. */
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
