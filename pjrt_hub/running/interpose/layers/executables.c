/* The number of each executable's outputs, and its name. Execute's arguments lack both, so plugins
   are asked, once for each executable. */
#include <stdio.h>

#include "layers.h"

enum { EXECUTABLES = 1024 };
static pthread_mutex_t asking = PTHREAD_MUTEX_INITIALIZER;
static Executable known[EXECUTABLES];

static Executable ask_executable(Plugin *plugin, PJRT_LoadedExecutable *loaded) {
  Executable found = {.loaded = loaded};
  SIZED(PJRT_LoadedExecutable_GetExecutable_Args, get, .loaded_executable = loaded);
  if (!plugin_answers(plugin, FN_PJRT_LoadedExecutable_GetExecutable, &get)) return found;
  SIZED(PJRT_Executable_NumOutputs_Args, count, .executable = get.executable);
  SIZED(PJRT_Executable_Name_Args, told, .executable = get.executable);
  SIZED(PJRT_Executable_Destroy_Args, destroy, .executable = get.executable);
  if (plugin_answers(plugin, FN_PJRT_Executable_NumOutputs, &count)) found.outputs = count.num_outputs;
  if (plugin_answers(plugin, FN_PJRT_Executable_Name, &told))
    snprintf(found.name, sizeof found.name, "%.*s", (int)told.executable_name_size,
             told.executable_name);
  plugin_answers(plugin, FN_PJRT_Executable_Destroy, &destroy);
  return found;
}

static Executable *place_of(const PJRT_LoadedExecutable *loaded) {
  return &known[((uintptr_t)loaded >> 4) % EXECUTABLES];
}

Executable executable_of(Plugin *plugin, PJRT_LoadedExecutable *loaded) {
  Executable *place = place_of(loaded);
  pthread_mutex_lock(&asking);
  if (place->loaded != loaded) *place = ask_executable(plugin, loaded);
  Executable found = *place;
  pthread_mutex_unlock(&asking);
  return found;
}

/* Another executable may get the address of one that is destroyed. */
void executable_forget(PJRT_LoadedExecutable *loaded) {
  Executable *place = place_of(loaded);
  pthread_mutex_lock(&asking);
  if (place->loaded == loaded) place->loaded = NULL;
  pthread_mutex_unlock(&asking);
}

void executables_forked(void) { pthread_mutex_init(&asking, NULL); }
