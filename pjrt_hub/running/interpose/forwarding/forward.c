/* A library that is a plugin to whoever opens it: its GetPjrtApi gives a table that this process was
   given before. For hosts that take nothing but a path, and would open the plugin behind our back. */
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"

#define EXPORTED __attribute__((visibility("default")))

/* What the host gets is a copy: the plugin's own memory is never written to. */
static const PJRT_Api *given;
static PJRT_Api *copy;

/* The plugin is initialized already, and some refuse a second time. */
static PJRT_Error *initialized(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* Takes the table to forward to, and gives the one that it forwards to: the first, for ever, because
   a host keeps what it got. The caller lets no second thread in. */
EXPORTED const PJRT_Api *pjrt_hub_forward(const PJRT_Api *api) {
  if (given != NULL || api == NULL) return given;
  copy = malloc(api->struct_size);
  if (copy == NULL) return NULL;
  memcpy(copy, api, api->struct_size);
  copy->PJRT_Plugin_Initialize = initialized;
  return given = api;
}

/* NULL before: the library of no plugin. */
EXPORTED const PJRT_Api *GetPjrtApi(void) { return copy; }
