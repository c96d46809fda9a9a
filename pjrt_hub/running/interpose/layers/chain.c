/* Copies a plugin's table with trampolines in it, and passes each call through the layers. */
#include <dlfcn.h>
#include <stdio.h>

#include "objects.h"

/* They go from host to plugin. `pad` is last, so that the others see the host's own structs. */
static const Layer *const known_layers[] = {&validate_layer, &trace_layer, &device_layer, &pad_layer};
enum { KNOWN_LAYERS = sizeof known_layers / sizeof *known_layers };

static const Layer *chain[KNOWN_LAYERS];
static unsigned chain_length;
static Plugin plugins[MAX_PLUGINS];
static unsigned num_plugins;
static bool is_discrete, is_caching;
static pthread_mutex_t wrapping = PTHREAD_MUTEX_INITIALIZER;
static atomic_ullong calls;

/* The last finished upcalls are kept, because a faulty plugin may call one back a second time. */
enum { RETIRED = 4096 };
static _Atomic(Upcall *) retired[RETIRED];

static void retire(Upcall *upcall) {
  static atomic_uint next;
  free(atomic_exchange(&retired[atomic_fetch_add(&next, 1) % RETIRED], upcall));
}

static void uncalled_for(const Upcall *upcall, Stage stage) {
  for (unsigned i = 0; i < chain_length; i++)
    if (chain[i]->uncalled_for != NULL) chain[i]->uncalled_for(upcall, stage);
}

/* The callback that the plugin gets in place of the host's. A second call ends here, because the
   host may have freed its user_arg after the first. */
static void fired(PJRT_Error *error, void *user_arg) {
  Upcall *upcall = user_arg;
  Stage stage = (Stage)atomic_exchange(&upcall->stage, CALLED);
  if (stage != WAITING) {
    uncalled_for(upcall, stage);
    return;
  }
  for (unsigned i = chain_length; i-- > 0;)
    if (chain[i]->upcall != NULL) chain[i]->upcall(upcall, error);
  upcall->call(error, upcall->user_arg);
  for (unsigned i = 0; i < chain_length; i++)
    if (chain[i]->returned != NULL) chain[i]->returned(upcall);
  retire(upcall);
}

/* Replaces the host's callback with `fired` for the duration of the call. */
static Upcall *intercept(const Call *call, PJRT_Event_OnReady_Args *args) {
  Upcall *upcall = args->callback != NULL ? malloc(sizeof *upcall) : NULL;
  if (upcall == NULL) return NULL;
  *upcall = (Upcall){args->callback, args->user_arg, args->event, call->plugin, call->number, WAITING};
  args->callback = fired;
  args->user_arg = upcall;
  return upcall;
}

static PJRT_Error *on_ready(const Call *call) {
  PJRT_Event_OnReady_Args *args = (PJRT_Event_OnReady_Args *)call->args;
  PJRT_Event_OnReadyCallback callback = args->callback;
  void *user_arg = args->user_arg;
  Upcall *upcall = intercept(call, args);
  PJRT_Error *error = call_plugin(call->plugin, FN_PJRT_Event_OnReady, args);
  args->callback = callback;
  args->user_arg = user_arg;
  if (error != NULL && upcall != NULL) { /* After an error, the plugin must not call back. */
    if (atomic_exchange(&upcall->stage, REFUSED) == CALLED)
      uncalled_for(upcall, REFUSED);
    else
      retire(upcall);
  }
  return error;
}

static PJRT_Error *reach(const Call *call, unsigned function) {
  if (function == FN_PJRT_Event_OnReady) return on_ready(call);
  if (function == FN_PJRT_LoadedExecutable_Destroy)
    executable_forget(((PJRT_LoadedExecutable_Destroy_Args *)call->args)->executable);
  PJRT_Error *error = cache_call(call->plugin, function, call->args);
  return call->function->returns_error ? error : NULL;
}

static PJRT_Error *pass(unsigned plugin, unsigned function, void *args) {
  Call call;
  call.plugin = &plugins[plugin];
  call.function = &functions[function];
  call.args = args;
  call.size = known_size(call.function->args, args);
  call.number = atomic_fetch_add_explicit(&calls, 1, memory_order_relaxed) + 1;
  call.error = NULL;
  call.answered = false;
  call.padding = NULL;
  call.events = NULL;
  for (unsigned i = 0; i < chain_length; i++) chain[i]->before(&call);
  if (!call.answered) call.error = reach(&call, function);
  for (unsigned i = chain_length; i-- > 0;) chain[i]->after(&call);
  return call.error;
}

/* Each function of each plugin has its own trampoline, because a call's arguments name neither. */
#define TRAMPOLINE(k, f) \
  static PJRT_Error *call_##k##_##f(void *args) { return pass(k, f, args); }
#define ADDRESS(k, f) call_##k##_##f,
#define TRAMPOLINES(k) EACH_FUNCTION(TRAMPOLINE, k)
#define ROW(k) {EACH_FUNCTION(ADDRESS, k)},

EACH_PLUGIN(TRAMPOLINES)
static const Call_Target trampolines[MAX_PLUGINS][NUM_FUNCTIONS] = {EACH_PLUGIN(ROW)};

static void replace(Plugin *plugin, char *copy, unsigned at, unsigned function) {
  void *real = pointer_at(copy, at);
  if (real == NULL) return;
  if (without_function(function)) {
    memset(copy + at, 0, sizeof real);
    return;
  }
  memcpy(&plugin->real[function], &real, sizeof real);
  memcpy(copy + at, &trampolines[plugin->number][function], sizeof real);
}

/* Copies the extension nodes of a plugin since API 0.45; earlier nodes have no struct_size. */
static PJRT_Extension_Base *copy_nodes(Plugin *plugin, const PJRT_Extension_Base *node) {
  PJRT_Extension_Base *first = NULL, **last = &first;
  for (int n = 0; node != NULL && n < 64; node = node->next, n++) {
    if (without_node((unsigned)node->type)) continue;
    char *copy = malloc(node->struct_size);
    if (copy == NULL) break;
    memcpy(copy, node, node->struct_size);
    for (size_t i = 0; i < num_nodes; i++) {
      const Node *known = &nodes[i];
      if (known->type != node->type || known->at + sizeof(void *) > node->struct_size) continue;
      replace(plugin, copy, known->at, known->function);
    }
    *last = (PJRT_Extension_Base *)copy;
    last = &(*last)->next;
  }
  *last = NULL;
  return first;
}

static PJRT_Api *copy_table(Plugin *plugin) {
  const PJRT_Api *api = plugin->api;
  char *copy = malloc(api->struct_size);
  if (copy == NULL) return NULL;
  memcpy(copy, api, api->struct_size);
  for (unsigned slot = 0; slot < NUM_SLOTS; slot++) {
    size_t at = offsetof(PJRT_Api, PJRT_Error_Destroy) + slot * sizeof(void *);
    if (at + sizeof(void *) > api->struct_size) break;
    replace(plugin, copy, (unsigned)at, slot);
  }
  PJRT_Api *wrapped = (PJRT_Api *)copy;
  if (plugin->minor >= 45) wrapped->extension_start = copy_nodes(plugin, api->extension_start);
  return wrapped;
}

static bool is_named(const char *layers, const char *name) {
  size_t length = strlen(name);
  for (const char *at = layers; (at = strstr(at, name)) != NULL; at += length)
    if ((at == layers || at[-1] == ',') && (at[length] == 0 || at[length] == ',')) return true;
  return false;
}

/* Initializes all locks again, because the threads that held them do not exist in the child. */
static void forked(void) {
  plugin_forked();
  pthread_mutex_init(&wrapping, NULL);
  executables_forked();
  objects_forked();
  device_forked();
  discrete_forked();
  cache_forked();
}

/* The layers belong to the process, so all plugins get those that the first plugin got. */
static bool start(const char *layers, const char *folder, const char *options,
                  const char *without, const char *discrete) {
  static bool started;
  if (started) return true;
  if (layers == NULL) return false;
  if (folder != NULL && *folder != 0 && !recording_start(folder)) return false;
  unsigned length = 0;
  for (unsigned i = 0; i < KNOWN_LAYERS; i++)
    if (is_named(layers, known_layers[i]->name)) chain[length++] = known_layers[i];
  chain_length = length;
  pthread_atfork(NULL, NULL, forked);
  bool lacking = is_named(layers, "without"), changes_options = is_named(layers, "options");
  if (changes_options) options_start(options);
  if (lacking) without_start(without);
  is_discrete = is_named(layers, "discrete");
  if (is_discrete) discrete_start(discrete);
  is_caching = is_named(layers, "cache") && entries_start();
  return started = length > 0 || changes_options || lacking || is_discrete || is_caching;
}

/* Returns the table to use instead of `api`. That is `api` itself if no layer is on, if it is a
   wrapped table already, or if there are too many plugins. */
const PJRT_Api *pjrt_hub_wrap(const PJRT_Api *api, const char *layers, const char *folder,
                              const char *options, const char *without, const char *discrete) {
  if (api == NULL) return api;
  const PJRT_Api *result = api;
  pthread_mutex_lock(&wrapping);
  unsigned known = 0;
  while (known < num_plugins && plugins[known].api != api && plugins[known].wrapped != api) known++;
  if (known < num_plugins) {
    result = plugins[known].wrapped;
  } else if (known < MAX_PLUGINS && start(layers, folder, options, without, discrete)) {
    Plugin *plugin = &plugins[known];
    plugin->number = known;
    plugin->api = api;
    plugin->discrete = is_discrete;
    plugin->minor = (unsigned)api->pjrt_api_version.minor_version;
    plugin->wrapped = copy_table(plugin);
    plugin->caches = is_caching && cache_start(plugin);
    if (plugin->wrapped != NULL) {
      result = plugin->wrapped;
      num_plugins++;
      record_plugin(plugin);
    }
  }
  pthread_mutex_unlock(&wrapping);
  return result;
}
