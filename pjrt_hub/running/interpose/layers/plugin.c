/* A plugin, as the layers themselves call it. */
#include "layers.h"

static atomic_uint forks;

unsigned generation(void) { return atomic_load_explicit(&forks, memory_order_relaxed); }

PJRT_Error *call_plugin(Plugin *plugin, unsigned function, void *args) {
  PJRT_Error *error;
  /* What is taken away is so for errors of ours as well. */
  if (without_answer(function, args, &error)) return error;
  if (refusal_answer(function, args)) return NULL;
  return plugin->discrete ? discrete_call(plugin, function, args) : plugin->real[function](args);
}

/* Whether a question of ours was answered with an error, whose end this is. */
bool refused(Plugin *plugin, PJRT_Error *error) {
  if (error == NULL) return false;
  SIZED(PJRT_Error_Destroy_Args, args, .error = error);
  call_plugin(plugin, FN_PJRT_Error_Destroy, &args);
  return true;
}

void plugin_forked(void) { atomic_fetch_add(&forks, 1); }
