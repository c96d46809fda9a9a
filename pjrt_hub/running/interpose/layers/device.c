/* The layer that records what devices do: by the plugin's profiler, from the first client to the
   end of the last; where there is none, by the end of each execution. */
#include <stdio.h>
#include <stdlib.h>

#include "recording.h"

/* A tensorflow.ProfileOptions: host_tracer_level 1, device_tracer_level 1, version 1. */
static const char options[] = "\x10\1\x18\1\x28\1";

typedef struct {
  const PLUGIN_Profiler_Api *api;
  _Atomic(PLUGIN_Profiler *) started; /* It is NULL where none is. */
  unsigned clients;
} Profile;

static Profile profiles[MAX_PLUGINS];
static pthread_mutex_t profiling = PTHREAD_MUTEX_INITIALIZER;

static bool failed(const PLUGIN_Profiler_Api *api, PLUGIN_Profiler_Error *error) {
  if (error == NULL) return false;
  SIZED(PLUGIN_Profiler_Error_Message_Args, told, .priv = api->priv, .error = error);
  api->error_message(&told);
  fprintf(stderr, "pjrt-hub: there is no profile: %.*s\n", (int)told.message_size, told.message);
  SIZED(PLUGIN_Profiler_Error_Destroy_Args, destroy, .priv = api->priv, .error = error);
  api->error_destroy(&destroy);
  return true;
}

static void start(Profile *profile, const Plugin *plugin) {
  /* Nodes before API 0.45 have no struct_size. */
  const PJRT_Extension_Base *node = plugin->minor >= 45 ? plugin->wrapped->extension_start : NULL;
  while (node != NULL && node->type != PJRT_Extension_Type_Profiler) node = node->next;
  if (node == NULL) return;
  const PLUGIN_Profiler_Api *api = profile->api = ((PJRT_Profiler_Extension *)node)->profiler_api;
  SIZED(PLUGIN_Profiler_Create_Args, create, .options = options, .options_size = sizeof options - 1);
  if (api == NULL || failed(api, api->create(&create))) return;
  SIZED(PLUGIN_Profiler_Start_Args, begin, .profiler = create.profiler);
  SIZED(PLUGIN_Profiler_Destroy_Args, destroy, .profiler = create.profiler);
  if (failed(api, api->start(&begin)))
    failed(api, api->destroy(&destroy));
  else
    profile->started = create.profiler;
}

/* Returns the size of an XSpace without the NUL that CUDA's plugins count after it. All its fields
   have a length, and the key of none is 0. */
static size_t without_nul(const uint8_t *data, size_t nbytes) {
  size_t at = 0;
  while (at < nbytes && data[at] != 0) {
    uint64_t length = 0;
    unsigned shift = 0;
    for (at++; at < nbytes && shift < 64; shift += 7) {
      length |= (uint64_t)(data[at] & 0x7F) << shift;
      if (data[at++] < 0x80) break;
    }
    at += length < nbytes - at ? length : nbytes - at;
  }
  return at;
}

static void save(const uint8_t *data, size_t nbytes) {
  static unsigned number;
  int file = recording_create(number++, "xplane.pb");
  FILE *out = file >= 0 ? fdopen(file, "w") : NULL;
  if (out == NULL || (fwrite(data, 1, nbytes, out) != nbytes) | (fclose(out) != 0))
    fprintf(stderr, "pjrt-hub: there is no room for a profile of %zu bytes\n", nbytes);
}

static void finish(Profile *profile) {
  const PLUGIN_Profiler_Api *api = profile->api;
  PLUGIN_Profiler *profiler = atomic_exchange(&profile->started, NULL);
  if (profiler == NULL) return;
  SIZED(PLUGIN_Profiler_Stop_Args, stop, .profiler = profiler);
  SIZED(PLUGIN_Profiler_CollectData_Args, collect, .profiler = profiler);
  SIZED(PLUGIN_Profiler_Destroy_Args, destroy, .profiler = profiler);
  if (!failed(api, api->stop(&stop)) && !failed(api, api->collect_data(&collect))) {
    /* Most plugins lend their memory; some want the host's, and are asked again. */
    uint8_t *own = collect.buffer == NULL ? malloc(collect.buffer_size_in_bytes + 1) : NULL;
    if (own != NULL) collect.buffer = own;
    if (collect.buffer != NULL && (own == NULL || !failed(api, api->collect_data(&collect))))
      save(collect.buffer, without_nul(collect.buffer, collect.buffer_size_in_bytes));
    free(own);
  }
  failed(api, api->destroy(&destroy));
}

/* Programs need not destroy their clients. This runs before the plugin's own destructors. */
static void finish_all(void) {
  pthread_mutex_lock(&profiling);
  for (unsigned i = 0; i < MAX_PLUGINS; i++) finish(&profiles[i]);
  pthread_mutex_unlock(&profiling);
}

static void count_client(const Plugin *plugin, bool begins) {
  static bool at_exit;
  Profile *profile = &profiles[plugin->number];
  pthread_mutex_lock(&profiling);
  if (!at_exit) at_exit = atexit(finish_all) == 0;
  if (begins && profile->clients++ == 0) start(profile, plugin);
  if (!begins && profile->clients > 0 && --profile->clients == 0) finish(profile);
  pthread_mutex_unlock(&profiling);
}

/* A child has neither its parent's clients nor its profilers. */
void device_forked(void) {
  pthread_mutex_init(&profiling, NULL);
  memset(profiles, 0, sizeof profiles);
}

/* Executions */

typedef struct {
  Plugin *plugin;
  uint64_t number;
  int device;
  Executable executable;
} Execution;

static void ended(PJRT_Error *error, void *user_arg) {
  Execution *execution = user_arg;
  record_end(execution->plugin, execution->number, execution->device, execution->executable.name);
  refused(execution->plugin, error);
  free(execution);
}

static void listen(const Call *call, const PJRT_LoadedExecutable_Execute_Args *args) {
  Execution execution = {.plugin = call->plugin, .number = call->number};
  execution.executable = executable_of(call->plugin, args->executable);
  SIZED(PJRT_LoadedExecutable_AddressableDevices_Args, on, .executable = args->executable);
  plugin_answers(call->plugin, FN_PJRT_LoadedExecutable_AddressableDevices, &on);
  for (size_t i = 0; i < args->num_devices; i++) {
    PJRT_Device *device = args->execute_device;
    if (device == NULL && i < on.num_addressable_devices) device = on.addressable_devices[i];
    SIZED(PJRT_Device_LocalHardwareId_Args, told, .device = device);
    bool known = device != NULL && plugin_answers(call->plugin, FN_PJRT_Device_LocalHardwareId, &told);
    execution.device = known && told.local_hardware_id >= 0 ? told.local_hardware_id : (int)i;
    PJRT_Event *event = args->device_complete_events[i];
    Execution *copy = event != NULL ? malloc(sizeof *copy) : NULL;
    if (copy == NULL) continue;
    *copy = execution;
    SIZED(PJRT_Event_OnReady_Args, ready, .event = event, .callback = ended, .user_arg = copy);
    if (!plugin_answers(call->plugin, FN_PJRT_Event_OnReady, &ready)) free(copy);
  }
}

static bool listens(const Call *call) {
  size_t end = offsetof(PJRT_LoadedExecutable_Execute_Args, device_complete_events) + sizeof(void *);
  return number_of(call) == FN_PJRT_LoadedExecutable_Execute && call->size >= end &&
         profiles[call->plugin->number].started == NULL;
}

/* Asks for the events that tell of the ends, where the host does not. */
static void before(Call *call) {
  PJRT_LoadedExecutable_Execute_Args *args = (PJRT_LoadedExecutable_Execute_Args *)call->args;
  bool destroys = number_of(call) == FN_PJRT_Client_Destroy && !call->answered;
  if (destroys) count_client(call->plugin, false);
  if (listens(call) && args->device_complete_events == NULL)
    args->device_complete_events = call->events = calloc(args->num_devices, sizeof *call->events);
}

static void after(Call *call) {
  PJRT_LoadedExecutable_Execute_Args *args = (PJRT_LoadedExecutable_Execute_Args *)call->args;
  bool succeeded = call->error == NULL && !call->answered;
  if (number_of(call) == FN_PJRT_Client_Create && succeeded) count_client(call->plugin, true);
  if (listens(call) && succeeded && args->device_complete_events != NULL) listen(call, args);
  if (call->events == NULL) return;
  for (size_t i = 0; i < args->num_devices; i++) {
    SIZED(PJRT_Event_Destroy_Args, destroy, .event = call->events[i]);
    if (call->events[i] != NULL) plugin_answers(call->plugin, FN_PJRT_Event_Destroy, &destroy);
  }
  free(call->events);
  args->device_complete_events = NULL;
}

const Layer device_layer = {"device", before, after, NULL, NULL, NULL};
