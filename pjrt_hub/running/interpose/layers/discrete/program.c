/* Asks executables about their outputs and devices, so that hosts need not wait for the outputs. */
#include "discrete.h"

/* Reads a layout such as "{1,0}", fastest dimension first. Returns false if it has other parts. */
static bool read_order(const char *text, size_t length, Description *result) {
  const char *end = text + length;
  size_t count = 0;
  if (length < 2 || *text++ != '{' || *--end != '}') return false;
  while (text < end) {
    char *next;
    if (count == result->num_dims || *text < '0' || *text > '9') return false;
    result->minor_to_major[count++] = strtoll(text, &next, 10);
    text = next;
    if (text < end && *text++ != ',') return false;
  }
  return count == result->num_dims;
}

static void ask_layouts(Plugin *plugin, Program *program, PJRT_Executable *executable) {
  SIZED(PJRT_Layouts_PJRT_Executable_GetOutputLayouts_Args, args, .executable = executable);
  if (!ask(plugin, FN_PJRT_Layouts_PJRT_Executable_GetOutputLayouts, &args) ||
      args.num_outputs != program->num_outputs)
    return;
  for (size_t i = 0; i < args.num_outputs; i++) {
    SIZED(PJRT_Layouts_MemoryLayout_Serialize_Args, text, .layout = args.layouts[i]);
    if (!ask(plugin, FN_PJRT_Layouts_MemoryLayout_Serialize, &text)) return;
    Description *output = &program->outputs[i];
    output->laid_out = read_order(text.serialized_bytes, text.serialized_bytes_size, output);
    if (text.serialized_layout_deleter != NULL)
      text.serialized_layout_deleter(text.serialized_layout);
  }
}

static void ask_kinds(Plugin *plugin, Program *program, PJRT_Executable *executable) {
  SIZED(PJRT_Executable_OutputMemoryKinds_Args, args, .executable = executable);
  if (!ask(plugin, FN_PJRT_Executable_OutputMemoryKinds, &args)) return;
  for (size_t i = 0; i < args.num_outputs && i < program->num_outputs; i++)
    if (args.memory_kind_sizes[i] < sizeof program->outputs[i].kind)
      memcpy(program->outputs[i].kind, args.memory_kinds[i], args.memory_kind_sizes[i]);
}

static void ask_outputs(Plugin *plugin, Program *program, PJRT_Executable *executable) {
  SIZED(PJRT_Executable_NumOutputs_Args, number, .executable = executable);
  if (!ask(plugin, FN_PJRT_Executable_NumOutputs, &number)) return;
  program->num_outputs = number.num_outputs;
  program->outputs = take((program->num_outputs + 1) * sizeof *program->outputs);
  SIZED(PJRT_Executable_OutputElementTypes_Args, types, .executable = executable);
  SIZED(PJRT_Executable_OutputDimensions_Args, dims, .executable = executable);
  if (!ask(plugin, FN_PJRT_Executable_OutputElementTypes, &types) ||
      !ask(plugin, FN_PJRT_Executable_OutputDimensions, &dims) ||
      types.num_output_types != program->num_outputs || dims.num_outputs != program->num_outputs)
    return;
  const int64_t *at = dims.dims;
  for (size_t i = 0; i < program->num_outputs; i++) {
    description_fill(&program->outputs[i], types.output_types[i], at, dims.dim_sizes[i]);
    at += dims.dim_sizes[i];
  }
  ask_layouts(plugin, program, executable);
  ask_kinds(plugin, program, executable);
}

Program *program_ask(Plugin *plugin, PJRT_LoadedExecutable *loaded) {
  Program *program = take(sizeof *program);
  SIZED(PJRT_LoadedExecutable_GetExecutable_Args, get, .loaded_executable = loaded);
  if (ask(plugin, FN_PJRT_LoadedExecutable_GetExecutable, &get)) {
    ask_outputs(plugin, program, get.executable);
    TELL(plugin, Executable_Destroy, .executable = get.executable);
  }
  SIZED(PJRT_LoadedExecutable_AddressableDevices_Args, on, .executable = loaded);
  if (ask(plugin, FN_PJRT_LoadedExecutable_AddressableDevices, &on)) {
    size_t nbytes = on.num_addressable_devices * sizeof *program->devices;
    program->devices = take(nbytes);
    if (nbytes > 0) memcpy(program->devices, on.addressable_devices, nbytes);
    program->num_devices = on.num_addressable_devices;
  }
  return program;
}

void program_free(Program *program) {
  for (size_t i = 0; i < program->num_outputs; i++) free(program->outputs[i].dims);
  free(program->outputs);
  free(program->devices);
  free(program);
}

/* Notes the memory kind of an output once it exists, because a plugin may tell it only then. */
void program_learn(Plugin *plugin, Description *output, PJRT_Buffer *real) {
  schedule_lock();
  bool known = output->kind[0] != 0;
  schedule_unlock();
  SIZED(PJRT_Buffer_Memory_Args, of, .buffer = real);
  if (known || !ask(plugin, FN_PJRT_Buffer_Memory, &of)) return;
  SIZED(PJRT_Memory_Kind_Args, kind, .memory = of.memory);
  if (!ask(plugin, FN_PJRT_Memory_Kind, &kind) || kind.kind_size >= sizeof output->kind) return;
  LOCKED(memcpy(output->kind, kind.kind, kind.kind_size));
}

/* Returns the memory in which an output of a device lies, or NULL if that is not known yet. */
PJRT_Memory *program_memory(Plugin *plugin, const Description *output, PJRT_Device *device) {
  SIZED(PJRT_Device_AddressableMemories_Args, args, .device = device);
  size_t length = strlen(output->kind);
  if (length == 0 || !ask(plugin, FN_PJRT_Device_AddressableMemories, &args)) return NULL;
  for (size_t i = 0; i < args.num_memories; i++) {
    SIZED(PJRT_Memory_Kind_Args, kind, .memory = args.memories[i]);
    if (ask(plugin, FN_PJRT_Memory_Kind, &kind) && kind.kind_size == length &&
        memcmp(kind.kind, output->kind, length) == 0)
      return args.memories[i];
  }
  return NULL;
}
