/* Running programs: arguments are checked by the caller, the rest is work of the device's thread. */
#ifndef PJRT_PLUGIN_EXECUTE_H
#define PJRT_PLUGIN_EXECUTE_H

#include "executable.h"

typedef struct {
  PluginWork work;
  PJRT_Executable *executable;
  void *device;
  PluginStorage **inputs, **outputs;
  PluginPromise **ready; /* of the inputs */
  PluginPromise *done;   /* all outputs wait for this */
} PluginRun;

static inline void plugin_run_end(PluginRun *run) {
  const PluginProgram *program = &run->executable->program;
  for (size_t i = 0; i < program->num_parameters; i++) {
    plugin_storage_let_go(run->inputs[i]);
    plugin_promise_let_go(run->ready[i]);
  }
  for (size_t i = 0; i < program->num_outputs; i++) plugin_storage_let_go(run->outputs[i]);
  plugin_promise_let_go(run->done);
  plugin_executable_let_go(run->executable);
  free(run->inputs);
  free(run->outputs);
  free(run->ready);
  free(run);
}

static inline void plugin_run_work(PluginWork *work) {
  PluginRun *run = (PluginRun *)work;
  const PluginProgram *program = &run->executable->program;
  void **inputs = PLUGIN_NEW(void *, program->num_parameters);
  void **outputs = PLUGIN_NEW(void *, program->num_outputs);
  PJRT_Error *error = NULL; /* An error of an input becomes that of the outputs. */
  for (size_t i = 0; i < program->num_parameters; i++) {
    inputs[i] = run->inputs[i]->memory;
    if (error == NULL) error = plugin_error_copy(run->ready[i]->error);
  }
  for (size_t i = 0; i < program->num_outputs; i++) outputs[i] = run->outputs[i]->memory;
  if (error == NULL) error = plugin_self.run(run->device, program, run->executable->code, inputs, outputs);
  free(inputs);
  free(outputs);
  plugin_promise_keep(run->done, error);
  plugin_run_end(run);
}

static inline PJRT_Error *plugin_check_argument(const PluginProgram *program, size_t number,
                                                PJRT_Buffer *buffer, PJRT_Device *device) {
  if (buffer == NULL)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is NULL", number);
  if (buffer->device != device)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "argument %zu is on another device", number);
  if (plugin_array_equal(&buffer->array, &program->values[number])) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                      "argument %zu has another element type or shape than the program's parameter",
                      number);
}

static inline PJRT_Error *plugin_check_call(const PJRT_LoadedExecutable_Execute_Args *args) {
  const PluginProgram *program = &args->executable->executable->program;
  if (__atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE))
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the executable was deleted");
  if (args->options != NULL && (args->options->num_send_ops > 0 || args->options->num_recv_ops > 0))
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "programs cannot talk to the host here");
  if (args->num_devices != 1)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "arguments for %zu devices, the program has 1",
                        args->num_devices);
  if (args->num_args == program->num_parameters) return NULL;
  return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu arguments, the program takes %zu",
                      args->num_args, program->num_parameters);
}

static inline bool plugin_is_donated(const PluginProgram *program, const PJRT_ExecuteOptions *options,
                                     size_t number) {
  if (program->donated == NULL || !program->donated[number]) return false;
  if (options == NULL || !PLUGIN_HAS(options, PJRT_ExecuteOptions, num_non_donatable_input_indices)) return true;
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
    if (options->non_donatable_input_indices[i] == (int64_t)number) return false;
  return true;
}

/* Shares the memory of all arguments and deletes those that are donated; on an error it does nothing. */
static inline PJRT_Error *plugin_take_arguments(PluginRun *run, const PJRT_ExecuteOptions *options,
                                                PJRT_Buffer *const *arguments) {
  const PluginProgram *program = &run->executable->program;
  PJRT_Error *error = NULL;
  size_t taken = 0;
  for (size_t i = 0; i < program->num_parameters; i++)
    for (size_t k = 0; k < program->num_parameters && plugin_is_donated(program, options, i); k++)
      if (i != k && arguments[i] == arguments[k])
        return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT,
                            "argument %zu is donated, and argument %zu is the same buffer", i, k);
  while (error == NULL && taken < program->num_parameters) {
    bool donated = plugin_is_donated(program, options, taken);
    error = (donated ? plugin_buffer_donate : plugin_buffer_take)(arguments[taken], &run->inputs[taken],
                                                                  &run->ready[taken]);
    if (error == NULL) taken++;
  }
  for (size_t i = 0; error != NULL && i < taken; i++)
    if (plugin_is_donated(program, options, i)) plugin_buffer_give_back(arguments[i], run->inputs[i]);
  return error;
}

PLUGIN_FUNCTION(PJRT_LoadedExecutable_Execute) {
  PJRT_Executable *executable = args->executable->executable;
  const PluginProgram *program = &executable->program;
  PJRT_Device *device = args->execute_device != NULL ? args->execute_device : args->executable->devices[0];
  PJRT_Error *error = plugin_check_call(args);
  for (size_t i = 0; error == NULL && i < program->num_parameters; i++)
    error = plugin_check_argument(program, i, args->argument_lists[0][i], device);
  if (error != NULL) return error;
  PluginRun *run = PLUGIN_NEW(PluginRun, 1);
  run->work.run = plugin_run_work;
  run->executable = plugin_executable_share(executable);
  run->device = device->opened;
  run->inputs = PLUGIN_NEW(PluginStorage *, program->num_parameters);
  run->ready = PLUGIN_NEW(PluginPromise *, program->num_parameters);
  run->outputs = PLUGIN_NEW(PluginStorage *, program->num_outputs);
  run->done = plugin_promise();
  for (size_t i = 0; error == NULL && i < program->num_outputs; i++)
    error = plugin_storage(device, plugin_array_size(&program->values[program->outputs[i]]),
                           &run->outputs[i]);
  if (error == NULL && program->num_parameters > 0)
    error = plugin_take_arguments(run, args->options, args->argument_lists[0]);
  if (error != NULL) {
    plugin_run_end(run);
    return error;
  }
  for (size_t i = 0; i < program->num_outputs; i++)
    args->output_lists[0][i] =
        plugin_buffer(&program->values[program->outputs[i]], plugin_storage_share(run->outputs[i]),
                      plugin_promise_share(run->done));
  if (args->device_complete_events != NULL)
    args->device_complete_events[0] = plugin_event(plugin_promise_share(run->done));
  plugin_work_begin(&run->work, device->queue, run->ready, program->num_parameters);
  return NULL;
}

struct PJRT_ExecuteContext {
  char unused;
};

PLUGIN_FUNCTION(PJRT_ExecuteContext_Create) {
  args->context = PLUGIN_NEW(PJRT_ExecuteContext, 1);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_ExecuteContext_Destroy) {
  free(args->context);
  return NULL;
}

#endif
