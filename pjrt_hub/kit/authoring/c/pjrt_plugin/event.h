/* The functions of events. */
#ifndef PJRT_PLUGIN_EVENT_H
#define PJRT_PLUGIN_EVENT_H

#include "function.h"
#include "promise.h"

PLUGIN_FUNCTION(PJRT_Event_Destroy) {
  if (args->event == NULL) return NULL;
  plugin_promise_let_go(args->event->promise);
  free(args->event);
  return NULL;
}

PLUGIN_TELLS(PJRT_Event_IsReady, is_ready, plugin_promise_is_kept(args->event->promise))

PLUGIN_FUNCTION(PJRT_Event_Error) {
  if (plugin_promise_is_kept(args->event->promise))
    return plugin_error_copy(args->event->promise->error);
  return plugin_error(PJRT_Error_Code_FAILED_PRECONDITION, "the event is not ready yet");
}

PLUGIN_FUNCTION(PJRT_Event_Await) {
  PluginPromise *promise = plugin_promise_share(args->event->promise); /* A callback may destroy the event. */
  PJRT_Error *error = plugin_promise_await(promise);
  plugin_promise_let_go(promise);
  return error;
}

typedef struct {
  PJRT_Event_OnReadyCallback callback;
  void *argument;
} PluginOnReady;

static inline void plugin_call_back(const PJRT_Error *error, void *argument) {
  PluginOnReady on_ready = *(PluginOnReady *)argument;
  free(argument);
  on_ready.callback(plugin_error_copy(error), on_ready.argument); /* The callback owns the error now. */
}

PLUGIN_FUNCTION(PJRT_Event_OnReady) {
  PluginOnReady *on_ready = PLUGIN_NEW(PluginOnReady, 1);
  on_ready->callback = args->callback;
  on_ready->argument = args->user_arg;
  plugin_promise_then(args->event->promise, plugin_call_back, on_ready);
  return NULL;
}

PLUGIN_TELLS(PJRT_Event_Create, event, plugin_event(plugin_promise()))

PLUGIN_FUNCTION(PJRT_Event_Set) {
  PJRT_Error *error = NULL;
  if (args->error_code != PJRT_Error_Code_OK)
    error = plugin_error_of(args->error_code, args->error_message, args->error_message_size);
  if (plugin_promise_keep(args->event->promise, error)) return NULL;
  return plugin_error(PJRT_Error_Code_FAILED_PRECONDITION, "the event was set before");
}

#endif
