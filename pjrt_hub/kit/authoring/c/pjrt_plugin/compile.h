/* Compiles for an author's device: reads options and programs, and turns executables into bytes and back. */
#ifndef PJRT_PLUGIN_COMPILE_H
#define PJRT_PLUGIN_COMPILE_H

#include "bytecode.h"
#include "executable.h"
#include "text.h"

/* The source of an executable, from which it can be made again. */
typedef struct {
  const char *code, *format, *options;
  size_t code_size, format_size, options_size;
} PluginSource;

/* An executable's program, the author's code for it, and its serialized bytes. */
typedef struct {
  PluginProgram program;
  void *code;
  char *serialized;
  size_t serialized_size;
} PluginCompiled;

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

/* Reads a field's value, or its bytes into *inner. Returns its number, 0 at the end, or -1 if it is malformed. */
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

/* Finds the one device of an assignment, a list of lists of device ids. Returns false if it is malformed. */
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

static inline size_t plugin_put_varint(char *to, uint64_t value) {
  size_t size = 0;
  for (; value >= 0x80; value >>= 7) to[size++] = (char)(value | 0x80);
  to[size++] = (char)value;
  return size;
}

/* Writes a DeviceAssignmentProto of one replica of one computation on one device. */
static inline void plugin_assign(PJRT_Executable *executable, int device) {
  char id[10], *to = PLUGIN_TAKE(&executable->arena, char, 24);
  size_t size = plugin_put_varint(id, (uint64_t)device);
  const char head[] = {0x08, 1, 0x10, 1, 0x1a, (char)(size + 2), 0x0a, (char)size};
  memcpy(to, head, sizeof head);
  memcpy(to + sizeof head, id, size);
  executable->assignment = to;
  executable->assignment_size = sizeof head + size;
  executable->num_replicas = executable->num_partitions = executable->num_devices = 1;
  executable->devices = PLUGIN_TAKE(&executable->arena, int64_t, 1);
  executable->devices[0] = device;
}

static inline uint64_t plugin_hash(const char *bytes, size_t size) {
  uint64_t hash = 14695981039346656037u; /* This is FNV-1a. */
  for (size_t i = 0; i < size; i++) hash = (hash ^ (unsigned char)bytes[i]) * 1099511628211u;
  return hash;
}

/* A serialized executable consists of this line, a hash of what follows, three sizes, and the source. */
static inline size_t plugin_serialized_head(char *line, size_t size) {
  int length = snprintf(line, size, "program of %s %s\n", plugin_self.name, plugin_self.version);
  return length > 0 && (size_t)length < size ? (size_t)length : size - 1;
}

static inline void plugin_write_source(PJRT_Executable *executable, PluginCompiled *compiled,
                                       const PluginSource *source) {
  char line[256], *fingerprint = PLUGIN_TAKE(&executable->arena, char, 16);
  size_t head = plugin_serialized_head(line, sizeof line);
  uint64_t sizes[4] = {0, source->format_size, source->options_size, source->code_size};
  size_t size = head + sizeof sizes + source->format_size + source->options_size + source->code_size;
  char *to = compiled->serialized = PLUGIN_TAKE(&executable->arena, char, size);
  compiled->serialized_size = size;
  memcpy(to, line, head);
  to += head + sizeof sizes;
  memcpy(to, source->format, source->format_size);
  if (source->options_size > 0) memcpy(to + source->format_size, source->options, source->options_size);
  memcpy(to + source->format_size + source->options_size, source->code, source->code_size);
  memcpy(to - 3 * sizeof *sizes, &sizes[1], 3 * sizeof *sizes);
  sizes[0] = plugin_hash(to - 3 * sizeof *sizes, size - head - sizeof *sizes);
  memcpy(to - sizeof sizes, sizes, sizeof *sizes);
  snprintf(fingerprint, 17, "%016llx", (unsigned long long)sizes[0]);
  executable->fingerprint = fingerprint;
  executable->options = to + source->format_size;
  executable->options_size = source->options_size;
}

/* Compiling */

static inline PJRT_Error *plugin_compile_source(Plugin *plugin, const PluginSource *source,
                                                PJRT_Executable **made) {
  PJRT_Executable *executable = plugin_executable(plugin);
  PluginCompiled *compiled = PLUGIN_TAKE(&executable->arena, PluginCompiled, 1);
  PluginProgram *program = &compiled->program;
  PluginModule module;
  int device;
  memset(&module, 0, sizeof module);
  executable->code = compiled;
  module.arena = &executable->arena;
  PJRT_Error *error = plugin_options(source->options, source->options_size, &device);
  if (error == NULL && (source->format_size != 4 || memcmp(source->format, "mlir", 4) != 0))
    error = plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "programs are StableHLO here, not %.*s",
                         (int)source->format_size, source->format);
  if (error == NULL)
    error = plugin_is_bytecode(source->code, source->code_size)
                ? plugin_read_bytecode(&module, source->code, source->code_size)
                : plugin_read_text(&module, source->code, source->code_size);
  if (error == NULL) error = plugin_program(&module, program);
  if (error == NULL) error = plugin->compile(program, &compiled->code);
  if (error != NULL) {
    plugin_executable_let_go(executable);
    return error;
  }
  executable->name = program->name;
  executable->parameters = program->values; /* The first values are the parameters. */
  executable->num_parameters = program->num_parameters;
  executable->donated = program->donated;
  executable->num_outputs = program->num_outputs;
  executable->outputs = PLUGIN_TAKE(&executable->arena, PluginArray, program->num_outputs);
  for (size_t i = 0; i < program->num_outputs; i++)
    executable->outputs[i] = program->values[program->outputs[i]];
  executable->cost = plugin_no_values;
  plugin_assign(executable, device);
  plugin_write_source(executable, compiled, source);
  plugin_lay_out(executable);
  *made = executable;
  return NULL;
}

static inline PJRT_Error *plugin_compile(Plugin *plugin, PJRT_Client *client, const PJRT_Program *program,
                                         const char *options, size_t options_size,
                                         PJRT_Executable **executable) {
  PluginSource source = {program->code,      program->format,      options,
                         program->code_size, program->format_size, options != NULL ? options_size : 0};
  (void)client;
  return plugin_compile_source(plugin, &source, executable);
}

static inline PJRT_Error *plugin_deserialize(PJRT_Executable_DeserializeAndLoad_Args *args,
                                             PJRT_Executable **executable) {
  typedef PJRT_Executable_DeserializeAndLoad_Args Args;
  char line[256];
  uint64_t sizes[4];
  const char *from = args->serialized_executable;
  size_t head = plugin_serialized_head(line, sizeof line), left = args->serialized_executable_size;
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
  return plugin_compile_source(args->client->plugin, &source, executable);
}

static inline PJRT_Error *plugin_serialize(const PJRT_Executable *executable, char **bytes, size_t *size) {
  const PluginCompiled *compiled = (const PluginCompiled *)executable->code;
  *bytes = plugin_copy_text(compiled->serialized, compiled->serialized_size);
  *size = compiled->serialized_size;
  return NULL;
}

static inline PJRT_Error *plugin_optimize(PJRT_Executable *executable) {
  return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "%s has no PJRT_Executable_OptimizedProgram",
                      executable->plugin->name);
}

static inline void plugin_discard(PJRT_Executable *executable) {
  const PluginCompiled *compiled = (const PluginCompiled *)executable->code;
  if (compiled->code != NULL && executable->plugin->discard != NULL)
    executable->plugin->discard(compiled->code);
}

#endif
