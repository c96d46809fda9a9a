/* A small PJRT plugin that works, and that misbehaves where a macro or a word of a program says so.

   Faults of the library are macros (-DON_INITIALIZE=abort()); faults of a run are words of the
   program's text ("func add later fails"). */
#include "objects.h"
#include "kv_store.h"
#include "device.h"
#include "buffers.h"
#include "transfers.h"
#include "create_options.h"
#include "faults.h"
#include "profiler.h"

#ifndef ON_LOAD
#define ON_LOAD (void)0
#endif
#ifndef ON_INITIALIZE
#define ON_INITIALIZE (void)0
#endif
#ifndef ON_ATTRIBUTES
#define ON_ATTRIBUTES (void)0
#endif
#ifndef ON_CREATE
#define ON_CREATE (void)0
#endif
#ifndef ON_COMPILE
#define ON_COMPILE (void)0
#endif
#ifndef ON_EXECUTED
#define ON_EXECUTED (void)0
#endif
#ifndef ON_OPTIMIZED_PROGRAM
#define ON_OPTIMIZED_PROGRAM (void)0
#endif
#ifndef MAJOR
#define MAJOR 0
#endif
#ifndef MINOR
#define MINOR 117
#endif
#ifndef TABLE
#define TABLE &api
#endif
#ifndef TABLE_SIZE
#define TABLE_SIZE PJRT_Api_STRUCT_SIZE
#endif
#ifndef EXTENSIONS
#define EXTENSIONS NULL
#endif
#ifndef PLATFORM
#define PLATFORM "cpu"
#endif
#ifndef DEVICES
#define DEVICES 1
#endif

/* The plugin and its client */

DOES(PJRT_Plugin_Initialize, ON_INITIALIZE)

FUNCTION(PJRT_Plugin_Attributes) {
  ON_ATTRIBUTES;
  static const int64_t version[] = {1, 2, 3};
  static PJRT_NamedValue values[] = {
      {.name = "stub_version", .name_size = 12, .type = PJRT_NamedValue_kInt64List,
       .int64_array_value = version, .value_size = 3},
      {.name = "stub_name", .name_size = 9, .type = PJRT_NamedValue_kString,
       .string_value = "stub", .value_size = 4},
  };
  args->attributes = values;
  args->num_attributes = 2;
  return NULL;
}

FUNCTION(PJRT_Client_Create) {
  ON_CREATE;
  PJRT_Error *error = look_at_options(args);
  if (error == NULL) error = join(args);
  if (error != NULL) return error;
  PJRT_Client *client = make(sizeof(PJRT_Client), CLIENT, NULL);
  client->device.client = client->description.client = client;
  client->devices[0] = &client->device;
  client->memory.client = client;
  args->client = client;
  return NULL;
}

FUNCTION(PJRT_Client_Destroy) {
  finish_exchanges();
  if (args->client->children != 0) die("destroyed before its children", CLIENT);
  destroy(args->client, CLIENT);
  return NULL;
}

TELLS(PJRT_Client_PlatformName, client, CLIENT, args->platform_name = PLATFORM,
      args->platform_name_size = sizeof PLATFORM - 1)

TELLS(PJRT_Client_ProcessIndex, client, CLIENT, args->process_index = (int)node_id)

TELLS(PJRT_Client_Devices, client, CLIENT, args->devices = it->devices, args->num_devices = DEVICES)

TELLS(PJRT_Client_AddressableDevices, client, CLIENT, args->addressable_devices = it->devices,
      args->num_addressable_devices = DEVICES)

TELLS(PJRT_Device_GetDescription, device->client, CLIENT,
      args->device_description = &it->description)

TELLS(PJRT_DeviceDescription_Id, device_description->client, CLIENT, args->id = 0)

TELLS(PJRT_DeviceDescription_ProcessIndex, device_description->client, CLIENT,
      args->process_index = (int)node_id)

TELLS(PJRT_DeviceDescription_Kind, device_description->client, CLIENT, args->device_kind = "stub",
      args->device_kind_size = 4)

/* Programs take float32[4]: "add" returns the sum of two arguments, any other program a copy of its
   only one. The word "matrix" makes them float32[2,3]. With "tells_columns" the compiler tells that
   the result is laid out in columns; with "gives_columns" the result's buffers are. */

struct PJRT_LoadedExecutable {
  Head head;
  char *text, *options;
  size_t options_size;
  int num_args;
  bool deleted;
};

/* The options of the last execution, as text. */
char stub_executed[512];

struct PJRT_Executable {
  Head head;
  PJRT_LoadedExecutable *loaded;
};

/* Returns a program as a C string; the zeros between the words of bytecode become spaces. */
static char *words_of(const PJRT_Program *program) {
  char *words = memcpy(calloc(1, program->code_size + 1), program->code, program->code_size);
  for (size_t i = 0; i < program->code_size; i++)
    if (words[i] == 0) words[i] = ' ';
  return words;
}

static bool says(const PJRT_LoadedExecutable *exe, const char *word) {
  return strstr(exe->text, word) != NULL;
}

/* Returns the error that "error=CODE:WORD" in the program asks for, or NULL. With "crowd=NUMBER",
   there is one only while more buffers than that are alive. */
static PJRT_Error *error_said(const PJRT_LoadedExecutable *exe) {
  char word[32] = "";
  int code = 0;
  const char *said = strstr(exe->text, "error="), *crowd = strstr(exe->text, "crowd=");
  if (crowd != NULL && stub_live[BUFFER] <= atol(crowd + 6)) return NULL;
  if (said == NULL || sscanf(said, "error=%d:%31[a-z_]", &code, word) != 2) return NULL;
  return fail(code, strdup(word));
}

FUNCTION(PJRT_Client_Compile) {
  ON_COMPILE;
  PJRT_Client *client = enter(args->client, CLIENT);
  PJRT_LoadedExecutable *exe = make(sizeof(PJRT_LoadedExecutable), EXECUTABLE, client);
  exe->text = words_of(args->program);
  exe->options = memcpy(calloc(1, args->compile_options_size + 1), args->compile_options,
                        args->compile_options_size);
  exe->options_size = args->compile_options_size;
  exe->num_args = says(exe, "add") ? 2 : 1;
  if (says(exe, "slow_compile")) nap(30);
  PJRT_Error *error = says(exe, "reject") ? error_said(exe) : NULL;
  if (error != NULL) destroy(exe, EXECUTABLE);
  args->executable = exe;
  leave(client);
  return error;
}

DOES(PJRT_LoadedExecutable_Destroy, destroy(args->executable, EXECUTABLE))

TELLS(PJRT_LoadedExecutable_AddressableDevices, executable, EXECUTABLE,
      args->addressable_devices = it->head.client->devices, args->num_addressable_devices = DEVICES)

TELLS(PJRT_LoadedExecutable_GetExecutable, loaded_executable, EXECUTABLE,
      args->executable = make(sizeof(PJRT_Executable), VIEW, it->head.client);
      args->executable->loaded = it)

DOES(PJRT_Executable_Destroy, destroy(args->executable, VIEW))

#ifdef COUNTS_OUTPUTS
TELLS(PJRT_Executable_NumOutputs, executable, VIEW, args->num_outputs = 1)
#endif

TELLS(PJRT_Executable_Name, executable, VIEW, leave(enter(it->loaded, EXECUTABLE));
      args->executable_name = "stub_program", args->executable_name_size = 12)

static const char *const memory_kinds[] = {"device_not_terminated", "pinned_host"};
static const size_t memory_kind_sizes[] = {6, 11};

TELLS(PJRT_Executable_ParameterMemoryKinds, executable, VIEW,
      args->memory_kinds = memory_kinds, args->memory_kind_sizes = memory_kind_sizes;
      args->num_parameters = (size_t)it->loaded->num_args)

TELLS(PJRT_Executable_OutputMemoryKinds, executable, VIEW,
      args->memory_kinds = memory_kinds, args->memory_kind_sizes = memory_kind_sizes;
      args->num_outputs = 1)

static void release_options(PJRT_SerializedCompileOptions *options) { free(options); }

TELLS(PJRT_Executable_GetCompileOptions, executable, VIEW,
      char *copy = copied(it->loaded->options, it->loaded->options_size);
      args->serialized_bytes = copy, args->serialized_bytes_size = it->loaded->options_size;
      args->serialized_compile_options = (PJRT_SerializedCompileOptions *)copy;
      args->serialized_compile_options_deleter = release_options)

TELLS(PJRT_LoadedExecutable_AddressableDeviceLogicalIds, executable, EXECUTABLE,
      static PJRT_LogicalDeviceIds ids[] = {{.replica = 3, .partition = 4}};
      args->addressable_device_logical_ids = ids, args->num_addressable_device_logical_ids = 1)

TELLS(PJRT_LoadedExecutable_Delete, executable, EXECUTABLE, it->deleted = true)

TELLS(PJRT_LoadedExecutable_IsDeleted, executable, EXECUTABLE, args->is_deleted = it->deleted)

static void remember(const PJRT_LoadedExecutable_Execute_Args *args) {
  const PJRT_ExecuteOptions *options = args->options;
  char *end = stub_executed + sizeof stub_executed, *at = stub_executed;
  at += snprintf(at, (size_t)(end - at), "launch %d at %s on %s", options->launch_id,
                 options->call_location != NULL ? options->call_location : "nowhere",
                 args->execute_device != NULL ? "one" : "all");
  for (size_t i = 0; i < options->num_non_donatable_input_indices; i++)
    at += snprintf(at, (size_t)(end - at), ", keep %d", (int)options->non_donatable_input_indices[i]);
  for (size_t i = 0; i < options->num_tasks; i++)
    at += snprintf(at, (size_t)(end - at), ", task %d is %lld", options->task_ids[i],
                   (long long)options->incarnation_ids[i]);
  for (size_t i = 0; i < options->num_custom_options; i++) {
    const PJRT_NamedValue *value = &options->custom_options[i];
    at += snprintf(at, (size_t)(end - at), ", %.*s type %d", (int)value->name_size, value->name,
                   (int)value->type);
  }
  if (options->use_major_to_minor_data_layout_for_callbacks)
    at += snprintf(at, (size_t)(end - at), ", major to minor");
  if (options->multi_slice_config != NULL)
    at += snprintf(at, (size_t)(end - at), ", slices at %p", (void *)options->multi_slice_config);
}

/* Writes HloModuleProto {host_program_shape {parameters: f32[4]..., result: f32[4]}} */
FUNCTION(PJRT_Executable_OptimizedProgram) {
  static const char vector[] = "\x10\x0b\x1a\x01\x04\x2a\x03\x0a\x01\x00";
  static const char matrix[] = "\x10\x0b\x1a\x02\x02\x03\x2a\x04\x0a\x02\x01\x00";
  static const char columns[] = "\x10\x0b\x1a\x02\x02\x03\x2a\x04\x0a\x02\x00\x01";
  PJRT_Executable *view = enter(args->executable, VIEW);
  PJRT_LoadedExecutable *exe = enter(view->loaded, EXECUTABLE);
  PJRT_Program *program = args->program;
  ON_OPTIMIZED_PROGRAM;
  size_t size = says(exe, "matrix") ? sizeof matrix - 1 : sizeof vector - 1;
  size_t inside = (size_t)(exe->num_args + 1) * (2 + size);
  program->format = "hlo";
  program->format_size = 3;
  program->code_size = 2 + inside;
  if (program->code != NULL) {
    char *out = program->code;
    *out++ = 0x22;
    *out++ = (char)inside;
    for (int i = 0; i <= exe->num_args; i++) {
      bool result = i == exe->num_args;
      const char *shape = says(exe, "matrix") ? matrix : vector;
      *out++ = result ? 0x12 : 0x0a;
      *out++ = (char)size;
      out = memcpy(out, result && says(exe, "tells_columns") ? columns : shape, size);
      out += size;
    }
  }
  leave(exe);
  leave(view);
  return NULL;
}

FUNCTION(PJRT_LoadedExecutable_Execute) {
  PJRT_LoadedExecutable *exe = enter(args->executable, EXECUTABLE);
  PJRT_Buffer *const *inputs = args->argument_lists[0];
  remember(args);
  PJRT_Error *error = says(exe, "reject") ? NULL : error_said(exe);
  for (size_t i = 0; i < args->num_args; i++) {
    enter(inputs[i], BUFFER);
    if (inputs[i]->deleted && error == NULL) error = fail(3, "an argument was deleted");
  }
  if (says(exe, "stuck")) hold();
  if (error == NULL) {
    PJRT_Buffer_MemoryLayout columns = {
        .type = PJRT_Buffer_MemoryLayout_Type_Tiled,
        .tiled = {.minor_to_major = (int64_t[]){0, 1}, .minor_to_major_size = 2}};
    PJRT_Buffer *out =
        new_buffer(exe->head.client, PJRT_Buffer_Type_F32, inputs[0]->dims, inputs[0]->rank,
                   says(exe, "gives_columns") ? &columns : NULL);
    for (size_t i = 0; i < out->count; i++)
      out->data[place_in(out, i)] =
          inputs[0]->data[place_in(inputs[0], i)] +
          (exe->num_args == 2 ? inputs[1]->data[place_in(inputs[1], i)] : 0);
    if (says(exe, "donate")) inputs[0]->deleted = true;
    out->signal->code = says(exe, "fails") ? 13 : 0;
    for (size_t i = 0; i < args->num_args; i++) {
      if (inputs[i]->signal->code == 0) continue;
      out->signal->code = inputs[i]->signal->code;
      out->signal->reason = inputs[i]->signal->reason;
    }
    if (says(exe, "exchange")) {
      start_exchange(exe->text, exe->head.client, args->options, out->data, out->data, out->signal);
    } else if (says(exe, "later") || says(exe, "held")) {
      out->signal->delay = says(exe, "later") ? 0.2 : 0;
      out->signal->held = says(exe, "held");
      in_background(fire, out->signal);
    } else if (!says(exe, "never")) {
      out->signal->fired = true;
    }
    args->output_lists[0][0] = out;
    if (args->device_complete_events != NULL)
      args->device_complete_events[0] = new_event(exe->head.client, out->signal);
    ON_EXECUTED;
  }
  for (size_t i = 0; i < args->num_args; i++) leave(inputs[i]);
  leave(exe);
  return error;
}

/* The table */

#include "ahead_of_time.h"

static PJRT_Api api = {
    .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                         .major_version = MAJOR,
                         .minor_version = MINOR},
    .PJRT_Error_Destroy = PJRT_Error_Destroy,
    .PJRT_Error_Message = PJRT_Error_Message,
};

static PJRT_Extension_Base cycle = {sizeof cycle, PJRT_Extension_Type_Stream, &cycle};
static PJRT_Extension_Base unknown = {sizeof unknown, 4242, &cycle};

__attribute__((constructor)) static void loaded(void) {
  leave_trace();
  ON_LOAD;
}

#ifndef NO_ENTRY
const PJRT_Api *GetPjrtApi(void) {
  api.struct_size = TABLE_SIZE;
  api.extension_start = EXTENSIONS;
  return TABLE;
}
#endif
