/* Passes calls to a plugin, both the host's and those that the layers make themselves. */
#include "layers.h"

static atomic_uint forks;

unsigned generation(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

static PJRT_Error *reach(Plugin *plugin, unsigned function, void *args) {
  return plugin->discrete ? discrete_call(plugin, function, args) : plugin->real[function](args);
}

static PJRT_Error *create(Plugin *plugin, PJRT_Client_Create_Args *args) {
  HostOptions own = options_replace(args);
  PJRT_Error *error = reach(plugin, FN_PJRT_Client_Create, args);
  options_restore(args, own);
  return error;
}

PJRT_Error *call_plugin(Plugin *plugin, unsigned function, void *args) {
  PJRT_Error *error;
  /* This comes first, so that what is taken away is missing for this library's errors, too. */
  if (without_answer(function, args, &error)) return error;
  if (refusal_answer(function, args)) return NULL;
  return function == FN_PJRT_Client_Create ? create(plugin, args) : reach(plugin, function, args);
}

/* Returns whether a call of this library's own failed, and destroys the error. */
bool refused(Plugin *plugin, PJRT_Error *error) {
  if (error == NULL) return false;
  call_plugin(plugin, FN_PJRT_Error_Destroy, UNREAD(PJRT_Error_Destroy_Args, .error = error));
  return true;
}

/* Returns whether the plugin has a function and answers it without an error. */
bool plugin_answers(Plugin *plugin, unsigned function, void *args) {
  return plugin->real[function] != NULL && !refused(plugin, call_plugin(plugin, function, args));
}

void plugin_forked(void) { atomic_fetch_add(&forks, 1); }
