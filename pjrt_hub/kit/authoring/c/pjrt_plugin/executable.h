/* Executables: programs that the plugin's compiler accepted, and the functions that describe them. */
#ifndef PJRT_PLUGIN_EXECUTABLE_H
#define PJRT_PLUGIN_EXECUTABLE_H

#include "upload.h"

/* The plugin fills in what it knows and calls plugin_lay_out. */
struct PJRT_Executable {
  int references;
  PluginArena arena; /* Memory for its texts, lists and attributes. */
  Plugin *plugin;
  void *code; /* The plugin's own handle of the executable. */
  const char *name, *fingerprint;
  const char *options, *assignment; /* These are serialized messages, not texts. */
  size_t options_size, assignment_size;
  size_t num_replicas, num_partitions, num_parameters, num_outputs, num_devices;
  PluginArray *parameters, *outputs;
  bool *donated;    /* Whether each parameter is donated; NULL if none is. */
  int64_t *devices; /* Device ids, replica by replica; there are none if the caller chooses the device. */
  int64_t code_size;
  PJRT_NamedValue *cost;
  size_t num_cost;
  const char *optimized, *optimized_format; /* They are filled in when they are first needed. */
  size_t optimized_size;
  PJRT_Buffer_Type *types; /* This field, `dims` and `ranks` describe the outputs. */
  int64_t *dims;
  size_t *ranks;
  const char **kinds; /* Memory kinds for the parameters or the outputs, whichever are more. */
  size_t *kind_sizes;
};

struct PJRT_LoadedExecutable {
  PJRT_Executable *executable;
  PJRT_Client *client;
  PJRT_Device **devices;
  PJRT_LogicalDeviceIds *logical;
  int deleted;
};

/* The plugin's functions for programs. `client` is NULL if there is only a topology. plugin_serialize allocates with
   malloc. plugin_discard frees `code`, which may be NULL. */
PLUGIN_ASKED PJRT_Error *plugin_compile(Plugin *plugin, PJRT_Client *client, const PJRT_Program *program,
                                        const char *options, size_t options_size,
                                        PJRT_Executable **executable);
PLUGIN_ASKED PJRT_Error *plugin_deserialize(PJRT_Executable_DeserializeAndLoad_Args *args,
                                            PJRT_Executable **executable);
PLUGIN_ASKED PJRT_Error *plugin_serialize(const PJRT_Executable *executable, char **bytes, size_t *size);
PLUGIN_ASKED PJRT_Error *plugin_optimize(PJRT_Executable *executable);
PLUGIN_ASKED void plugin_discard(PJRT_Executable *executable);

static inline PJRT_Executable *plugin_executable(Plugin *plugin) {
  PJRT_Executable *executable = PLUGIN_NEW(PJRT_Executable, 1);
  executable->references = 1;
  executable->plugin = plugin;
  return executable;
}

static inline void plugin_executable_let_go(PJRT_Executable *executable) {
  if (executable == NULL || !plugin_count_down(&executable->references)) return;
  plugin_discard(executable);
  plugin_arena_end(&executable->arena);
  free(executable);
}

static inline PJRT_Executable *plugin_executable_share(PJRT_Executable *executable) {
  plugin_count_up(&executable->references);
  return executable;
}

/* Makes the lists by which the C API describes outputs. */
static inline void plugin_lay_out(PJRT_Executable *executable) {
  size_t outputs = executable->num_outputs, num_dims = 0;
  size_t kinds = outputs > executable->num_parameters ? outputs : executable->num_parameters;
  for (size_t i = 0; i < outputs; i++) num_dims += executable->outputs[i].rank;
  executable->types = PLUGIN_TAKE(&executable->arena, PJRT_Buffer_Type, outputs);
  executable->ranks = PLUGIN_TAKE(&executable->arena, size_t, outputs);
  executable->dims = PLUGIN_TAKE(&executable->arena, int64_t, num_dims);
  executable->kinds = PLUGIN_TAKE(&executable->arena, const char *, kinds);
  executable->kind_sizes = PLUGIN_TAKE(&executable->arena, size_t, kinds);
  num_dims = 0;
  for (size_t i = 0; i < outputs; i++) {
    const PluginArray *output = &executable->outputs[i];
    executable->types[i] = output->type;
    executable->ranks[i] = output->rank;
    memcpy(executable->dims + num_dims, output->dims, output->rank * sizeof(int64_t));
    num_dims += output->rank;
  }
  for (size_t i = 0; i < kinds; i++) {
    executable->kinds[i] = PLUGIN_MEMORY_KIND;
    executable->kind_sizes[i] = strlen(PLUGIN_MEMORY_KIND);
  }
}

/* Loading */

static inline void plugin_unload(PJRT_LoadedExecutable *loaded) {
  if (loaded == NULL) return;
  plugin_executable_let_go(loaded->executable);
  plugin_client_let_go(loaded->client);
  free(loaded->devices);
  free(loaded->logical);
  free(loaded);
}

/* Loads an executable, and takes it over. */
static inline PJRT_Error *plugin_load(PJRT_Client *client, PJRT_Executable *executable,
                                      PJRT_LoadedExecutable **made) {
  PJRT_LoadedExecutable *loaded = PLUGIN_NEW(PJRT_LoadedExecutable, 1);
  PJRT_Error *error = NULL;
  loaded->executable = executable;
  loaded->client = plugin_client_share(client);
  loaded->devices = PLUGIN_NEW(PJRT_Device *, executable->num_devices);
  loaded->logical = PLUGIN_NEW(PJRT_LogicalDeviceIds, executable->num_devices);
  for (size_t i = 0; error == NULL && i < executable->num_devices; i++) {
    error = plugin_find_device(client, executable->devices[i], &loaded->devices[i]);
    loaded->logical[i].replica = (int)(i / executable->num_partitions);
    loaded->logical[i].partition = (int)(i % executable->num_partitions);
  }
  if (error == NULL)
    *made = loaded;
  else
    plugin_unload(loaded);
  return error;
}

PLUGIN_FUNCTION(PJRT_Client_Compile) {
  PJRT_Executable *executable = NULL;
  PJRT_Error *error = plugin_compile(args->client->plugin, args->client, args->program, args->compile_options,
                                     args->compile_options_size, &executable);
  return error != NULL ? error : plugin_load(args->client, executable, &args->executable);
}

PLUGIN_FUNCTION(PJRT_Compile) {
  return plugin_compile(args->topology->plugin, args->client, args->program, args->compile_options,
                        args->compile_options_size, &args->executable);
}

PLUGIN_FUNCTION(PJRT_Client_Load) {
  if (args->executable->plugin != args->client->plugin)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the executable is another plugin's");
  return plugin_load(args->client, plugin_executable_share(args->executable), &args->loaded_executable);
}

PLUGIN_FUNCTION(PJRT_Executable_DeserializeAndLoad) {
  PJRT_Executable *executable = NULL;
  PJRT_Error *error = plugin_deserialize(args, &executable);
  return error != NULL ? error : plugin_load(args->client, executable, &args->loaded_executable);
}

static inline void plugin_release_serialized(PJRT_SerializedExecutable *serialized) { free(serialized); }

PLUGIN_FUNCTION(PJRT_Executable_Serialize) {
  char *bytes = NULL;
  PJRT_Error *error = plugin_serialize(args->executable, &bytes, &args->serialized_bytes_size);
  args->serialized_bytes = bytes;
  args->serialized_executable = (PJRT_SerializedExecutable *)(void *)bytes;
  args->serialized_executable_deleter = plugin_release_serialized;
  return error;
}

/* Descriptions of executables */

PLUGIN_DOES(PJRT_Executable_Destroy, plugin_executable_let_go(args->executable))

PLUGIN_FUNCTION(PJRT_Executable_OptimizedProgram) {
  PJRT_Executable *executable = args->executable;
  PJRT_Program *program = args->program;
  PJRT_Error *error = executable->optimized == NULL ? plugin_optimize(executable) : NULL;
  if (error != NULL) return error;
  if (program->code != NULL && program->code_size < executable->optimized_size)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "%zu bytes do not fit into %zu",
                        executable->optimized_size, program->code_size);
  program->format = executable->optimized_format;
  program->format_size = strlen(program->format);
  if (program->code == NULL)
    program->code_size = executable->optimized_size;
  else
    memcpy(program->code, executable->optimized, executable->optimized_size);
  return NULL;
}

PLUGIN_TELLS_TEXT(PJRT_Executable_Name, executable_name, args->executable->name)
PLUGIN_TELLS_TEXT(PJRT_Executable_Fingerprint, executable_fingerprint, args->executable->fingerprint)
PLUGIN_TELLS(PJRT_Executable_NumReplicas, num_replicas, args->executable->num_replicas)
PLUGIN_TELLS(PJRT_Executable_NumPartitions, num_partitions, args->executable->num_partitions)
PLUGIN_TELLS(PJRT_Executable_NumOutputs, num_outputs, args->executable->num_outputs)
PLUGIN_TELLS(PJRT_Executable_SizeOfGeneratedCodeInBytes, size_in_bytes, args->executable->code_size)
PLUGIN_TELLS_LIST(PJRT_Executable_GetCostAnalysis, properties, args->executable->cost,
                  args->executable->num_cost)
PLUGIN_TELLS_LIST(PJRT_Executable_OutputElementTypes, output_types, args->executable->types,
                  args->executable->num_outputs)
PLUGIN_TELLS_BYTES(PJRT_Executable_GetCompileOptions, serialized_compile_options,
                   PJRT_SerializedCompileOptions, args->executable->options,
                   args->executable->options_size)

PLUGIN_FUNCTION(PJRT_Executable_OutputDimensions) {
  args->num_outputs = args->executable->num_outputs;
  args->dims = args->executable->dims;
  args->dim_sizes = args->executable->ranks;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_OutputMemoryKinds) {
  args->num_outputs = args->executable->num_outputs;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_ParameterMemoryKinds) {
  args->num_parameters = args->executable->num_parameters;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_GetCompiledMemoryStats) {
  typedef PJRT_Executable_GetCompiledMemoryStats_Args Args;
  const PJRT_Executable *executable = args->executable;
  const size_t told = offsetof(Args, generated_code_size_in_bytes);
  size_t size = sizeof *args < args->struct_size ? sizeof *args : args->struct_size;
  memset((char *)args + told, 0, size - told);
  if (executable->code_size > 0) args->generated_code_size_in_bytes = executable->code_size;
  for (size_t i = 0; i < executable->num_parameters; i++) {
    int64_t each = (int64_t)plugin_array_size(&executable->parameters[i]);
    args->argument_size_in_bytes += each;
    if (executable->donated != NULL && executable->donated[i]) args->alias_size_in_bytes += each;
  }
  for (size_t i = 0; i < executable->num_outputs; i++)
    args->output_size_in_bytes += (int64_t)plugin_array_size(&executable->outputs[i]);
  int64_t all = args->argument_size_in_bytes + args->output_size_in_bytes;
  if (PLUGIN_HAS(args, Args, peak_memory_in_bytes)) args->peak_memory_in_bytes = all;
  if (PLUGIN_HAS(args, Args, total_size_in_bytes))
    args->total_size_in_bytes = all + args->generated_code_size_in_bytes;
  if (PLUGIN_HAS(args, Args, peak_unpadded_heap_bytes))
    args->total_allocation_bytes = args->peak_unpadded_heap_bytes = all;
  return NULL;
}

PLUGIN_DOES(PJRT_LoadedExecutable_Destroy, plugin_unload(args->executable))
PLUGIN_TELLS(PJRT_LoadedExecutable_GetExecutable, executable,
             plugin_executable_share(args->loaded_executable->executable))
PLUGIN_DOES(PJRT_LoadedExecutable_Delete,
            __atomic_store_n(&args->executable->deleted, 1, __ATOMIC_RELEASE))
PLUGIN_TELLS(PJRT_LoadedExecutable_IsDeleted, is_deleted,
             __atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE) != 0)
PLUGIN_TELLS_TEXT(PJRT_LoadedExecutable_Fingerprint, executable_fingerprint,
                  args->executable->executable->fingerprint)
PLUGIN_TELLS_LIST(PJRT_LoadedExecutable_AddressableDevices, addressable_devices,
                  args->executable->devices, args->executable->executable->num_devices)
PLUGIN_TELLS_LIST(PJRT_LoadedExecutable_AddressableDeviceLogicalIds, addressable_device_logical_ids,
                  args->executable->logical, args->executable->executable->num_devices)
PLUGIN_TELLS_BYTES(PJRT_LoadedExecutable_GetDeviceAssignment, serialized_device_assignment,
                   PJRT_DeviceAssignmentSerialized, args->executable->executable->assignment,
                   args->executable->executable->assignment_size)

#endif
