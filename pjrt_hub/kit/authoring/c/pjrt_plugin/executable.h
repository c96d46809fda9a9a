/* Executables: programs that the device's compiler accepted, each for one device. */
#ifndef PJRT_PLUGIN_EXECUTABLE_H
#define PJRT_PLUGIN_EXECUTABLE_H

#include "bytecode.h"
#include "text.h"
#include "transfer.h"

/* An executable is made again from these. */
typedef struct {
  const char *code, *format, *options;
  size_t code_size, format_size, options_size;
} PluginSource;

struct PJRT_Executable {
  int references;
  PluginArena arena;
  PluginProgram program;
  void *code;
  int device;
  char fingerprint[17], assignment[24];
  size_t assignment_size, serialized_size, options_size;
  char *serialized, *options;
  PJRT_Buffer_Type *types; /* of the outputs */
  int64_t *dims;
  size_t *ranks;
  const char **kinds; /* as many as there are parameters or outputs */
  size_t *kind_sizes;
};

struct PJRT_LoadedExecutable {
  PJRT_Executable *executable;
  PJRT_Client *client;
  PJRT_Device *devices[1];
  PJRT_LogicalDeviceIds logical[1];
  int deleted;
};

/* Compile options are a protobuf message, of which few fields matter to one device. */

typedef struct {
  const unsigned char *at, *end;
} PluginMessage;

static inline bool plugin_varint(PluginMessage *message, uint64_t *value) {
  *value = 0;
  for (int shift = 0; shift < 64 && message->at < message->end; shift += 7) {
    unsigned char byte = *message->at++;
    *value |= (uint64_t)(byte & 0x7f) << shift;
    if (byte < 0x80) return true;
  }
  return false;
}

/* Reads a field: its number, and its value or, in *inner, its bytes; 0 at the end, -1 if malformed. */
static inline int plugin_field(PluginMessage *message, uint64_t *value, PluginMessage *inner) {
  uint64_t tag;
  inner->at = inner->end = NULL;
  if (message->at == message->end) return 0;
  if (!plugin_varint(message, &tag) || tag >> 3 == 0 || tag >> 3 > 1 << 28) return -1;
  size_t left = (size_t)(message->end - message->at), size = (tag & 7) == 1 ? 8 : 4;
  if ((tag & 7) == 0) return plugin_varint(message, value) ? (int)(tag >> 3) : -1;
  if ((tag & 7) == 2) {
    if (!plugin_varint(message, value) || *value > (uint64_t)(message->end - message->at)) return -1;
    size = (size_t)*value;
  } else if (((tag & 7) != 1 && (tag & 7) != 5) || left < size) {
    return -1;
  }
  inner->at = message->at;
  inner->end = message->at += size;
  return (int)(tag >> 3);
}

/* Finds the one device of an assignment, which is lists of numbers in lists. */
static inline bool plugin_assigned(PluginMessage assignment, int *device) {
  enum { COMPUTATION = 3, DEVICES = 1 };
  PluginMessage computation, ids;
  uint64_t value = 0;
  int field;
  while ((field = plugin_field(&assignment, &value, &computation)) > 0) {
    if (field != COMPUTATION) continue;
    while ((field = plugin_field(&computation, &value, &ids)) > 0) {
      if (field != DEVICES) continue;
      if (ids.at != NULL && !plugin_varint(&ids, &value)) return false;
      *device = value < INT32_MAX ? (int)value : -1;
    }
    if (field < 0) return false;
  }
  return field == 0;
}

static inline PJRT_Error *plugin_options(const char *options, size_t size, int *device) {
  enum { BUILD = 3, ORDINAL = 1, REPLICAS = 4, PARTITIONS = 5, ASSIGNMENT = 9 };
  PluginMessage message, build, inner;
  uint64_t value = 0, replicas = 1, partitions = 1;
  int field, known = 0;
  message.at = (const unsigned char *)options;
  message.end = message.at + size;
  *device = 0;
  while ((field = plugin_field(&message, &value, &build)) > 0) {
    if (field != BUILD || build.at == NULL) continue;
    while ((known = plugin_field(&build, &value, &inner)) > 0) {
      if (known == ORDINAL && (int64_t)value >= 0) *device = value < INT32_MAX ? (int)value : -1;
      if (known == REPLICAS && value > 0) replicas = value;
      if (known == PARTITIONS && value > 0) partitions = value;
      if (known == ASSIGNMENT && !plugin_assigned(inner, device)) known = -1;
      if (known < 0) break;
    }
    if (known < 0) break;
  }
  if (field < 0 || known < 0)
    return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the compile options are malformed");
  if (replicas == 1 && partitions == 1) return NULL;
  return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "a program runs on one device here");
}

/* Compiling */

static inline void plugin_executable_let_go(PJRT_Executable *executable) {
  if (executable == NULL || !plugin_count_down(&executable->references)) return;
  if (executable->code != NULL && plugin_self.discard != NULL) plugin_self.discard(executable->code);
  plugin_arena_end(&executable->arena);
  free(executable->serialized);
  free(executable->options);
  free(executable);
}

static inline PJRT_Executable *plugin_executable_share(PJRT_Executable *executable) {
  plugin_count_up(&executable->references);
  return executable;
}

/* Makes the lists by which the C API describes outputs, and the assignment to its device. */
static inline void plugin_lay_out(PJRT_Executable *executable) {
  const PluginProgram *program = &executable->program;
  size_t outputs = program->num_outputs, num_dims = 0;
  size_t kinds = outputs > program->num_parameters ? outputs : program->num_parameters;
  for (size_t i = 0; i < outputs; i++) num_dims += program->values[program->outputs[i]].rank;
  executable->types =
      (PJRT_Buffer_Type *)plugin_take(&executable->arena, (outputs + 1) * sizeof(PJRT_Buffer_Type));
  executable->ranks = (size_t *)plugin_take(&executable->arena, (outputs + 1) * sizeof(size_t));
  executable->dims = (int64_t *)plugin_take(&executable->arena, (num_dims + 1) * sizeof(int64_t));
  executable->kinds = (const char **)plugin_take(&executable->arena, (kinds + 1) * sizeof(char *));
  executable->kind_sizes = (size_t *)plugin_take(&executable->arena, (kinds + 1) * sizeof(size_t));
  num_dims = 0;
  for (size_t i = 0; i < outputs; i++) {
    const PluginArray *output = &program->values[program->outputs[i]];
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

static inline size_t plugin_put_varint(char *to, uint64_t value) {
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) to[size++] = (char)(value | 0x80);
  to[size++] = (char)value;
  return size;
}

/* Writes a DeviceAssignmentProto of one replica of one computation on one device. */
static inline void plugin_assign(PJRT_Executable *executable) {
  char id[10], *to = executable->assignment;
  size_t size = plugin_put_varint(id, (uint64_t)executable->device);
  const char head[] = {0x08, 1, 0x10, 1, 0x1a, (char)(size + 2), 0x0a, (char)size};
  memcpy(to, head, sizeof head);
  memcpy(to + sizeof head, id, size);
  executable->assignment_size = sizeof head + size;
}

/* The format of serialized executables: this line, a hash of what follows, three sizes, the source. */
static inline size_t plugin_serialized_head(char *line, size_t size) {
  int length = snprintf(line, size, "program of %s %s\n", plugin_self.name, plugin_self.version);
  return length > 0 && (size_t)length < size ? (size_t)length : size - 1;
}

static inline void plugin_serialize(PJRT_Executable *executable, const PluginSource *source) {
  char line[256];
  size_t head = plugin_serialized_head(line, sizeof line);
  uint64_t sizes[4] = {0, source->format_size, source->options_size, source->code_size};
  size_t size = head + sizeof sizes + source->format_size + source->options_size + source->code_size;
  char *to = executable->serialized = PLUGIN_NEW(char, size);
  executable->serialized_size = size;
  memcpy(to, line, head);
  to += head + sizeof sizes;
  memcpy(to, source->format, source->format_size);
  if (source->options_size > 0) memcpy(to + source->format_size, source->options, source->options_size);
  memcpy(to + source->format_size + source->options_size, source->code, source->code_size);
  memcpy(to - 3 * sizeof *sizes, &sizes[1], 3 * sizeof *sizes);
  sizes[0] = plugin_hash(to - 3 * sizeof *sizes, size - head - sizeof *sizes);
  memcpy(to - sizeof sizes, sizes, sizeof *sizes);
  snprintf(executable->fingerprint, sizeof executable->fingerprint, "%016llx",
           (unsigned long long)sizes[0]);
}

static inline PJRT_Error *plugin_compile(const PluginSource *source, PJRT_Executable **compiled) {
  PJRT_Executable *executable = PLUGIN_NEW(PJRT_Executable, 1);
  PluginModule module;
  memset(&module, 0, sizeof module);
  executable->references = 1;
  module.arena = &executable->arena;
  PJRT_Error *error = plugin_options(source->options, source->options_size, &executable->device);
  if (error == NULL && (source->format_size != 4 || memcmp(source->format, "mlir", 4) != 0))
    error = plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "programs are StableHLO here, not %.*s",
                         (int)source->format_size, source->format);
  if (error == NULL)
    error = plugin_is_bytecode(source->code, source->code_size)
                ? plugin_read_bytecode(&module, source->code, source->code_size)
                : plugin_read_text(&module, source->code, source->code_size);
  if (error == NULL) error = plugin_program(&module, &executable->program);
  if (error == NULL) error = plugin_self.compile(&executable->program, &executable->code);
  if (error != NULL) {
    plugin_executable_let_go(executable);
    return error;
  }
  plugin_lay_out(executable);
  plugin_assign(executable);
  plugin_serialize(executable, source);
  executable->options = plugin_copy_text(source->options, source->options_size);
  executable->options_size = source->options_size;
  *compiled = executable;
  return NULL;
}

/* This takes the executable over. */
static inline PJRT_Error *plugin_load(PJRT_Client *client, PJRT_Executable *executable,
                                      PJRT_LoadedExecutable **loaded) {
  PJRT_Device *device;
  PJRT_Error *error = plugin_find_device(client, executable->device, &device);
  if (error != NULL) {
    plugin_executable_let_go(executable);
    return error;
  }
  *loaded = PLUGIN_NEW(PJRT_LoadedExecutable, 1);
  (*loaded)->executable = executable;
  (*loaded)->client = plugin_client_share(client);
  (*loaded)->devices[0] = device;
  return NULL;
}

static inline PluginSource plugin_source(const PJRT_Program *program, const char *options, size_t size) {
  PluginSource source;
  source.code = program->code;
  source.code_size = program->code_size;
  source.format = program->format;
  source.format_size = program->format_size;
  source.options = options;
  source.options_size = options != NULL ? size : 0;
  return source;
}

PLUGIN_FUNCTION(PJRT_Client_Compile) {
  PluginSource source = plugin_source(args->program, args->compile_options, args->compile_options_size);
  PJRT_Executable *executable = NULL;
  PJRT_Error *error = plugin_compile(&source, &executable);
  return error != NULL ? error : plugin_load(args->client, executable, &args->executable);
}

PLUGIN_FUNCTION(PJRT_Compile) {
  PluginSource source = plugin_source(args->program, args->compile_options, args->compile_options_size);
  return plugin_compile(&source, &args->executable);
}

PLUGIN_FUNCTION(PJRT_Client_Load) {
  return plugin_load(args->client, plugin_executable_share(args->executable), &args->loaded_executable);
}

PLUGIN_FUNCTION(PJRT_Executable_DeserializeAndLoad) {
  typedef PJRT_Executable_DeserializeAndLoad_Args Args;
  char line[256];
  uint64_t sizes[4];
  const char *from = args->serialized_executable;
  size_t head = plugin_serialized_head(line, sizeof line), left = args->serialized_executable_size;
  PJRT_Executable *executable = NULL;
  PJRT_Error *foreign =
      plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the bytes are not a program of %s %s, or damaged",
                   plugin_self.name, plugin_self.version);
  if (left < head + sizeof sizes || memcmp(from, line, head) != 0) return foreign;
  memcpy(sizes, from + head, sizeof sizes);
  from += head + sizeof sizes;
  left -= head + sizeof sizes;
  if (sizes[1] > left || sizes[2] > left - sizes[1] || sizes[3] != left - sizes[1] - sizes[2] ||
      sizes[0] != plugin_hash(from - 3 * sizeof *sizes, left + 3 * sizeof *sizes))
    return foreign;
  plugin_error_destroy(foreign);
  PluginSource source = {from + sizes[1] + sizes[2], from,     from + sizes[1],
                         (size_t)sizes[3], (size_t)sizes[1], (size_t)sizes[2]};
  if (PLUGIN_HAS(args, Args, overridden_serialized_compile_options_size) &&
      args->overridden_serialized_compile_options_size > 0) {
    source.options = args->overridden_serialized_compile_options;
    source.options_size = args->overridden_serialized_compile_options_size;
  }
  PJRT_Error *error = plugin_compile(&source, &executable);
  return error != NULL ? error : plugin_load(args->client, executable, &args->loaded_executable);
}

/* What an executable tells */

PLUGIN_FUNCTION(PJRT_Executable_Destroy) {
  plugin_executable_let_go(args->executable);
  return NULL;
}

PLUGIN_TELLS_TEXT(PJRT_Executable_Name, executable_name, args->executable->program.name)
PLUGIN_TELLS_TEXT(PJRT_Executable_Fingerprint, executable_fingerprint, args->executable->fingerprint)
PLUGIN_TELLS(PJRT_Executable_NumReplicas, num_replicas, 1)
PLUGIN_TELLS(PJRT_Executable_NumPartitions, num_partitions, 1)
PLUGIN_TELLS(PJRT_Executable_NumOutputs, num_outputs, args->executable->program.num_outputs)
PLUGIN_TELLS(PJRT_Executable_SizeOfGeneratedCodeInBytes, size_in_bytes, 0)
PLUGIN_TELLS_LIST(PJRT_Executable_GetCostAnalysis, properties, plugin_no_values, 0)
PLUGIN_TELLS_LIST(PJRT_Executable_OutputElementTypes, output_types, args->executable->types,
                  args->executable->program.num_outputs)
PLUGIN_TELLS_BYTES(PJRT_Executable_Serialize, serialized_executable, PJRT_SerializedExecutable,
                   args->executable->serialized, args->executable->serialized_size)
PLUGIN_TELLS_BYTES(PJRT_Executable_GetCompileOptions, serialized_compile_options,
                   PJRT_SerializedCompileOptions, args->executable->options,
                   args->executable->options_size)

PLUGIN_FUNCTION(PJRT_Executable_OutputDimensions) {
  args->num_outputs = args->executable->program.num_outputs;
  args->dims = args->executable->dims;
  args->dim_sizes = args->executable->ranks;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_OutputMemoryKinds) {
  args->num_outputs = args->executable->program.num_outputs;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_ParameterMemoryKinds) {
  args->num_parameters = args->executable->program.num_parameters;
  args->memory_kinds = args->executable->kinds;
  args->memory_kind_sizes = args->executable->kind_sizes;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Executable_GetCompiledMemoryStats) {
  typedef PJRT_Executable_GetCompiledMemoryStats_Args Args;
  const PluginProgram *program = &args->executable->program;
  const size_t told = offsetof(Args, generated_code_size_in_bytes);
  size_t size = sizeof *args < args->struct_size ? sizeof *args : args->struct_size;
  memset((char *)args + told, 0, size - told);
  for (size_t i = 0; i < program->num_parameters; i++) {
    int64_t each = (int64_t)plugin_array_size(&program->values[i]);
    args->argument_size_in_bytes += each;
    if (program->donated != NULL && program->donated[i]) args->alias_size_in_bytes += each;
  }
  for (size_t i = 0; i < program->num_outputs; i++)
    args->output_size_in_bytes += (int64_t)plugin_array_size(&program->values[program->outputs[i]]);
  int64_t all = args->argument_size_in_bytes + args->output_size_in_bytes;
  if (PLUGIN_HAS(args, Args, peak_memory_in_bytes)) args->peak_memory_in_bytes = all;
  if (PLUGIN_HAS(args, Args, total_size_in_bytes)) args->total_size_in_bytes = all;
  if (PLUGIN_HAS(args, Args, peak_unpadded_heap_bytes))
    args->total_allocation_bytes = args->peak_unpadded_heap_bytes = all;
  return NULL;
}

PLUGIN_FUNCTION(PJRT_LoadedExecutable_Destroy) {
  if (args->executable == NULL) return NULL;
  plugin_executable_let_go(args->executable->executable);
  plugin_client_let_go(args->executable->client);
  free(args->executable);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_LoadedExecutable_GetExecutable) {
  args->executable = plugin_executable_share(args->loaded_executable->executable);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_LoadedExecutable_Delete) {
  __atomic_store_n(&args->executable->deleted, 1, __ATOMIC_RELEASE);
  return NULL;
}

PLUGIN_TELLS(PJRT_LoadedExecutable_IsDeleted, is_deleted,
             __atomic_load_n(&args->executable->deleted, __ATOMIC_ACQUIRE) != 0)
PLUGIN_TELLS_TEXT(PJRT_LoadedExecutable_Fingerprint, executable_fingerprint,
                  args->executable->executable->fingerprint)
PLUGIN_TELLS_LIST(PJRT_LoadedExecutable_AddressableDevices, addressable_devices,
                  args->executable->devices, 1)
PLUGIN_TELLS_LIST(PJRT_LoadedExecutable_AddressableDeviceLogicalIds, addressable_device_logical_ids,
                  args->executable->logical, 1)
PLUGIN_TELLS_BYTES(PJRT_LoadedExecutable_GetDeviceAssignment, serialized_device_assignment,
                   PJRT_DeviceAssignmentSerialized, args->executable->executable->assignment,
                   args->executable->executable->assignment_size)

#endif
