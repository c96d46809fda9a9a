/* Runs programs. The caller's thread checks the arguments. The rest is done by a device's thread, or at once. */
#ifndef PJRT_PLUGIN_EXECUTE_H
#define PJRT_PLUGIN_EXECUTE_H

#include "executable.h"

typedef struct {
  PluginWork work;
  PJRT_Executable *executable;
  PJRT_Client *client;
  PJRT_Device *device; /* The first device. */
  size_t num_devices, num_inputs, num_outputs;
  PluginStorage **inputs, **outputs; /* The rows of all devices, one after another. */
  PluginPromise **ready;             /* The promises of the inputs. */
  PJRT_Buffer **donors;              /* The buffers that donate inputs, which they get back if the call fails. */
  PluginPromise *done;               /* All outputs wait for this. */
  int launch_id;
  int64_t *kept; /* The numbers of parameters that the host does not donate this time. */
  size_t num_kept;
} PluginRun;

/* Runs a program, all of whose inputs are there, and fills the outputs. */
PLUGIN_ASKED PJRT_Error *plugin_execute(PluginRun *run);

static inline void plugin_run_end(PluginRun *run) {
  PJRT_Client *client = run->client;
  for (size_t i = 0; i < run->num_inputs; i++) {
    plugin_storage_let_go(run->inputs[i]);
    plugin_promise_let_go(run->ready[i]);
  }
  for (size_t i = 0; i < run->num_outputs; i++) plugin_storage_let_go(run->outputs[i]);
  plugin_promise_let_go(run->done);
  plugin_executable_let_go(run->executable);
  free(run->inputs);
  free(run->outputs);
  free(run->ready);
  free(run->donors);
  free(run->kept);
  free(run);
  plugin_client_let_go(client);
}

/* Returns the error of an input, which becomes that of the outputs. */
static inline PJRT_Error *plugin_input_error(const PluginRun *run) {
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < run->num_inputs; i++)
    error = plugin_error_copy(run->ready[i]->error);
  return error;
}

static inline void plugin_run_work(PluginWork *work) {
  PluginRun *run = (PluginRun *)work;
  PJRT_Error *error = plugin_input_error(run);
  if (error == NULL) error = plugin_execute(run);
  plugin_promise_keep(run->done, error);
  plugin_run_end(run);
}

/* Says whether the program runs on this thread. If so, the call fails if the program fails. */
static inline bool plugin_runs_here(const PluginRun *run) {
  bool here = run->client->plugin->any_thread && !run->client->plugin->asynchronous;
  for (size_t i = 0; here && i < run->num_inputs; i++) here = plugin_promise_is_kept(run->ready[i]);
  return here;
}

static inline PJRT_Error *plugin_run_here(PluginRun *run) {
  PJRT_Error *carried = plugin_input_error(run);
  PJRT_Error *error = carried == NULL ? plugin_execute(run) : NULL;
  if (error == NULL) plugin_promise_keep(run->done, carried);
  return error;
}

static inline PJRT_Error *plugin_check_argument(const PJRT_Executable *executable, size_t number,
                                                PJRT_Buffer *buffer, PJRT_Device *device) {
  if (buffer == NULL)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is NULL", number);
  if (buffer->device != device)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is on device %d, not on device %d", number,
                        buffer->device->description->id, device->description->id);
  const PluginArray *found = &buffer->array, *wanted = &executable->parameters[number];
  if (plugin_array_equal(found, wanted)) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                      "argument %zu has another element type or shape than the program's parameter: "
                      "type %d of %zu bytes instead of type %d of %zu bytes",
                      number, (int)found->type, plugin_array_size(found), (int)wanted->type,
                      plugin_array_size(wanted));
}

static inline PJRT_Error *plugin_check_call(const PJRT_LoadedExecutable_Execute_Args *args) {
  const PJRT_Executable *executable = args->executable->executable;
  size_t num_devices = args->execute_device != NULL ? 1 : executable->num_devices;
  if (__atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE))
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the executable was deleted");
  if (args->options != NULL && (args->options->num_send_ops > 0 || args->options->num_recv_ops > 0))
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "programs cannot talk to the host here");
  if (num_devices == 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "a portable program needs an execute_device");
  if (executable->num_devices > num_devices)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED,
                        "a program on %zu devices is run by one call for all of them", executable->num_devices);
  if (args->num_devices != num_devices)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "arguments for %zu devices, the program has %zu",
                        args->num_devices, num_devices);
  if (args->num_args == executable->num_parameters) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu arguments, the program takes %zu",
                      args->num_args, executable->num_parameters);
}

static inline bool plugin_is_donated(const PluginRun *run, size_t number) {
  if (run->executable->donated == NULL || !run->executable->donated[number]) return false;
  for (size_t i = 0; i < run->num_kept; i++)
    if (run->kept[i] == (int64_t)number) return false;
  return true;
}

/* Shares the memory of a device's arguments, deletes those that are donated, and makes room for its outputs. */
static inline PJRT_Error *plugin_take_row(PluginRun *run, size_t row, PJRT_Device *device,
                                          PJRT_Buffer *const *arguments) {
  const PJRT_Executable *executable = run->executable;
  size_t width = executable->num_parameters;
  PJRT_Error *error = NULL;
  for (size_t i = 0; error == NULL && i < width; i++)
    error = plugin_check_argument(executable, i, arguments[i], device);
  for (size_t i = 0; error == NULL && i < width; i++)
    for (size_t k = 0; error == NULL && k < width && plugin_is_donated(run, i); k++)
      if (i != k && arguments[i] == arguments[k])
        error = plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                             "argument %zu is donated, and argument %zu is the same buffer", i, k);
  for (size_t i = 0; error == NULL && i < executable->num_outputs; i++)
    error = plugin_storage(device, plugin_array_size(&executable->outputs[i]),
                           &run->outputs[row * executable->num_outputs + i]);
  for (size_t i = 0; error == NULL && i < width; i++) {
    size_t place = row * width + i;
    bool donated = plugin_is_donated(run, i);
    error = (donated ? plugin_buffer_donate : plugin_buffer_take)(arguments[i], &run->inputs[place],
                                                                  &run->ready[place]);
    if (error == NULL && donated) run->donors[place] = arguments[i];
  }
  return error;
}

static inline PluginRun *plugin_run(const PJRT_LoadedExecutable_Execute_Args *args, PJRT_Device *device) {
  const PJRT_ExecuteOptions *options = args->options;
  PluginRun *run = PLUGIN_NEW(PluginRun, 1);
  run->work.run = plugin_run_work;
  run->executable = plugin_executable_share(args->executable->executable);
  run->client = plugin_client_share(args->executable->client);
  run->device = device;
  run->num_devices = args->num_devices;
  run->num_inputs = args->num_devices * run->executable->num_parameters;
  run->num_outputs = args->num_devices * run->executable->num_outputs;
  run->inputs = PLUGIN_NEW(PluginStorage *, run->num_inputs);
  run->ready = PLUGIN_NEW(PluginPromise *, run->num_inputs);
  run->donors = PLUGIN_NEW(PJRT_Buffer *, run->num_inputs);
  run->outputs = PLUGIN_NEW(PluginStorage *, run->num_outputs);
  run->done = plugin_promise();
  run->launch_id = options != NULL ? options->launch_id : 0;
  if (options != NULL && PLUGIN_HAS(options, PJRT_ExecuteOptions, num_non_donatable_input_indices))
    run->num_kept = options->num_non_donatable_input_indices;
  run->kept = PLUGIN_NEW(int64_t, run->num_kept);
  if (run->num_kept > 0) memcpy(run->kept, options->non_donatable_input_indices, run->num_kept * sizeof(int64_t));
  return run;
}

PLUGIN_FUNCTION(PJRT_LoadedExecutable_Execute) {
  const PJRT_Executable *executable = args->executable->executable;
  PJRT_Device *const *devices = args->execute_device != NULL ? &args->execute_device : args->executable->devices;
  PJRT_Error *error = plugin_check_call(args);
  if (error != NULL) return error;
  PluginRun *run = plugin_run(args, devices[0]);
  for (size_t row = 0; error == NULL && row < args->num_devices; row++)
    error = plugin_take_row(run, row, devices[row], args->num_args > 0 ? args->argument_lists[row] : NULL);
  bool here = error == NULL && plugin_runs_here(run);
  if (here) error = plugin_run_here(run);
  if (error != NULL) {
    for (size_t i = 0; i < run->num_inputs; i++)
      if (run->donors[i] != NULL) plugin_buffer_give_back(run->donors[i], run->inputs[i]);
    plugin_run_end(run);
    return error;
  }
  for (size_t row = 0; row < args->num_devices; row++) {
    for (size_t i = 0; i < executable->num_outputs; i++)
      args->output_lists[row][i] = plugin_buffer(
          &executable->outputs[i], plugin_storage_share(run->outputs[row * executable->num_outputs + i]),
          plugin_promise_share(run->done));
    if (args->device_complete_events != NULL)
      args->device_complete_events[row] = plugin_event(plugin_promise_share(run->done));
  }
  if (here)
    plugin_run_end(run);
  else
    plugin_work_begin(&run->work, run->device->queue, run->ready, run->num_inputs);
  return NULL;
}

struct PJRT_ExecuteContext {
  char unused;
};

PLUGIN_TELLS(PJRT_ExecuteContext_Create, context, PLUGIN_NEW(PJRT_ExecuteContext, 1))
PLUGIN_DOES(PJRT_ExecuteContext_Destroy, free(args->context))

#endif
