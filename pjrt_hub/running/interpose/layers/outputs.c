/* The number of each executable's outputs. Execute's arguments lack it, so plugins are asked. */
#include "layers.h"

enum { EXECUTABLES = 1024 };
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static struct {
  PJRT_LoadedExecutable *executable;
  size_t outputs;
} known[EXECUTABLES];

static size_t ask_outputs(Plugin *plugin, PJRT_LoadedExecutable *executable) {
  if (plugin->real[FN_PJRT_LoadedExecutable_GetExecutable] == NULL ||
      plugin->real[FN_PJRT_Executable_NumOutputs] == NULL)
    return 0;
  SIZED(PJRT_LoadedExecutable_GetExecutable_Args, get, .loaded_executable = executable);
  if (refused(plugin, call_plugin(plugin, FN_PJRT_LoadedExecutable_GetExecutable, &get))) return 0;
  SIZED(PJRT_Executable_NumOutputs_Args, count, .executable = get.executable);
  bool failed = refused(plugin, call_plugin(plugin, FN_PJRT_Executable_NumOutputs, &count));
  SIZED(PJRT_Executable_Destroy_Args, destroy, .executable = get.executable);
  refused(plugin, call_plugin(plugin, FN_PJRT_Executable_Destroy, &destroy));
  return failed ? 0 : count.num_outputs;
}

static size_t place_of(const PJRT_LoadedExecutable *executable) {
  return ((uintptr_t)executable >> 4) % EXECUTABLES;
}

size_t outputs_of(Plugin *plugin, PJRT_LoadedExecutable *executable) {
  size_t place = place_of(executable), outputs;
  pthread_mutex_lock(&asking);
  if (known[place].executable != executable) {
    known[place].executable = executable;
    known[place].outputs = ask_outputs(plugin, executable);
  }
  outputs = known[place].outputs;
  pthread_mutex_unlock(&asking);
  return outputs;
}

/* Another executable may get the address of one that is destroyed. */
void outputs_forget(PJRT_LoadedExecutable *executable) {
  size_t place = place_of(executable);
  pthread_mutex_lock(&asking);
  if (known[place].executable == executable) known[place].executable = NULL;
  pthread_mutex_unlock(&asking);
}

void outputs_forked(void) { pthread_mutex_init(&asking, NULL); }
