/* Passes calls to a plugin, both the host's and those that the layers make themselves. */
#include "layers.h"

static atomic_uint forks;

unsigned generation(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

PJRT_Error *call_plugin(Plugin *plugin, unsigned function, void *args) {
  PJRT_Error *error;
  /* This comes first, so that what is taken away is missing for this library's errors, too. */
  if (without_answer(function, args, &error)) return error;
  if (refusal_answer(function, args)) return NULL;
  return plugin->discrete ? discrete_call(plugin, function, args) : plugin->real[function](args);
}

/* Returns whether a call of this library's own failed, and destroys the error. */
bool refused(Plugin *plugin, PJRT_Error *error) {
  if (error == NULL) return false;
  SIZED(PJRT_Error_Destroy_Args, args, .error = error);
  call_plugin(plugin, FN_PJRT_Error_Destroy, &args);
  return true;
}

void plugin_forked(void) { atomic_fetch_add(&forks, 1); }
