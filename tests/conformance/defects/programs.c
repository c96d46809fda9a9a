/* Defects of compiling, running and serializing programs. */
#include "real.h"

#define FOR_THE_FIRST_DEVICE "\x1a\x04\x20\x01\x28\x01"

/* Compiling */

BEFORE(assigned_to_the_first, PJRT_Client_Compile,
       args->compile_options = FOR_THE_FIRST_DEVICE, args->compile_options_size = 6)

/* Compiles with options of its own where the given ones are junk. */
REPLACE(any_options, PJRT_Client_Compile) {
  PJRT_Error *error = real->PJRT_Client_Compile(args);
  if (error == NULL) return NULL;
  args->compile_options = FOR_THE_FIRST_DEVICE;
  args->compile_options_size = 6;
  return real->PJRT_Client_Compile(args);
}

/* Accepts a program whose format does not exist. */
BEFORE(any_format, PJRT_Client_Compile,
       PJRT_Program program = *args->program;
       if (program.format_size == 7) program.format = "mlir", program.format_size = 4;
       args->program = &program)

/* Loses half of each artifact of StableHLO 0.9.0, the plugin's minimum version. */
BEFORE(any_artifact, PJRT_Client_Compile,
       PJRT_Program program = *args->program;
       if (program.code_size > 17 && memcmp(program.code + 5, "StableHLO_v0.9.0", 16) == 0)
         program.code_size /= 2;
       args->program = &program)

/* Properties that an executable reports */

AFTER(one_output, PJRT_Executable_NumOutputs, args->num_outputs = 1)
AFTER(name_in_one_place, PJRT_Executable_Name,
      args->executable_name = in_one_place(args->executable_name, args->executable_name_size))
AFTER(one_fingerprint, PJRT_Executable_Fingerprint,
      args->executable_fingerprint = "1234", args->executable_fingerprint_size = 4)
AFTER(another_fingerprint_each_time, PJRT_Executable_Fingerprint,
      static int number;
      char *text = malloc(32);
      snprintf(text, 32, "%d", number++);
      args->executable_fingerprint = text, args->executable_fingerprint_size = strlen(text))
AFTER(outputs_of_one_type, PJRT_Executable_OutputElementTypes,
      for (size_t i = 1; i < args->num_output_types; i++)
        args->output_types[i] = args->output_types[0])
AFTER(shapes_in_one_place, PJRT_Executable_OutputDimensions,
      size_t count = 0;
      for (size_t i = 0; i < args->num_outputs; i++) count += args->dim_sizes[i];
      args->dims = in_one_place(args->dims, count * sizeof *args->dims))
AFTER(aliases_nothing, PJRT_Executable_GetCompiledMemoryStats, args->alias_size_in_bytes = 0)
AFTER(arguments_of_no_size, PJRT_Executable_GetCompiledMemoryStats,
      args->argument_size_in_bytes = 0)

/* Returns the real plugin's costs, or one of ours where it counts none, for defects to falsify. */
static PJRT_Error *count_costs(PJRT_Executable_GetCostAnalysis_Args *args) {
  static STRUCT(PJRT_NamedValue, flops, .name = "flops", .name_size = 5,
                .type = PJRT_NamedValue_kFloat, .float_value = 1, .value_size = 1);
  PJRT_Error *error = real->PJRT_Executable_GetCostAnalysis(args);
  if (error == NULL) return NULL;
  STRUCT(PJRT_Error_Destroy_Args, destroy, .error = error);
  real->PJRT_Error_Destroy(&destroy);
  args->properties = &flops;
  args->num_properties = 1;
  return NULL;
}

INSTEAD(costs_not_finite, PJRT_Executable_GetCostAnalysis,
        count_costs(args);
        ((PJRT_NamedValue *)args->properties)[0].float_value = 0.0f / 0.0f)
INSTEAD(costs_change, PJRT_Executable_GetCostAnalysis,
        static float more;
        count_costs(args);
        size_t size = args->num_properties * sizeof args->properties[0];
        PJRT_NamedValue *costs = copied(args->properties, size);
        costs[0].float_value += more++;
        args->properties = costs)
INSTEAD(no_flops, PJRT_Executable_GetCostAnalysis, /* it reports 7 for every program */
        count_costs(args);
        for (size_t i = 0; i < args->num_properties; i++)
          if (strncmp(args->properties[i].name, "flops", args->properties[i].name_size) == 0)
            ((PJRT_NamedValue *)args->properties)[i].float_value = 7)

/* Running */

BEFORE(refuses_launch_ids, PJRT_LoadedExecutable_Execute,
       if (args->options->launch_id != 0) args->num_args = 0) /* this call is refused */
BEFORE(drops_arguments, PJRT_LoadedExecutable_Execute,
       if (args->num_args > 2) args->num_args = 2)
BEFORE(no_complete_events, PJRT_LoadedExecutable_Execute, args->device_complete_events = NULL)

/* Passes the first argument in place of all others, too. */
BEFORE(one_argument_twice, PJRT_LoadedExecutable_Execute,
       PJRT_Buffer *row[16], *const *rows[] = {row};
       if (args->num_devices == 1 && args->num_args <= 16) {
         for (size_t i = 0; i < args->num_args; i++) row[i] = args->argument_lists[0][0];
         args->argument_lists = rows;
       })

/* Deletes the arguments of each run, donated or not. */
AFTER(eats_arguments, PJRT_LoadedExecutable_Execute,
      for (size_t i = 0; i < args->num_args; i++) {
        STRUCT(PJRT_Buffer_Delete_Args, delete, .buffer = args->argument_lists[0][i]);
        real->PJRT_Buffer_Delete(&delete);
      })

/* Reports that a run has ended as soon as it has begun. */
REPLACE(complete_early, PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
  if (error != NULL || args->device_complete_events == NULL || args->num_args == 0) return error;
  STRUCT(PJRT_Event_Destroy_Args, destroy, .event = args->device_complete_events[0]);
  STRUCT(PJRT_Buffer_ReadyEvent_Args, ready, .buffer = args->argument_lists[0][0]);
  real->PJRT_Event_Destroy(&destroy);
  error = real->PJRT_Buffer_ReadyEvent(&ready);
  args->device_complete_events[0] = ready.event;
  return error;
}

/* Swaps the two outputs of a program that takes one argument. */
AFTER(swaps_outputs, PJRT_LoadedExecutable_Execute,
      if (args->num_args == 1) {
        PJRT_Buffer *first = args->output_lists[0][0];
        args->output_lists[0][0] = args->output_lists[0][1];
        args->output_lists[0][1] = first;
      })

static bool equal(PJRT_Buffer *first, PJRT_Buffer *second) {
  char bytes[2][64] = {{0}};
  for (int i = 0; i < 2; i++) {
    STRUCT(PJRT_Buffer_ToHostBuffer_Args, copy, .src = i == 0 ? first : second, .dst = bytes[i],
           .dst_size = sizeof bytes[i]);
    if (real->PJRT_Buffer_ToHostBuffer(&copy) != NULL) return false;
    await(copy.event);
  }
  return memcmp(bytes[0], bytes[1], sizeof bytes[0]) == 0;
}

/* Returns one buffer for the first two outputs of a run if they are equal. */
REPLACE(one_output_twice, PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
  STRUCT(PJRT_LoadedExecutable_GetExecutable_Args, got, .loaded_executable = args->executable);
  if (error == NULL) error = real->PJRT_LoadedExecutable_GetExecutable(&got);
  STRUCT(PJRT_Executable_NumOutputs_Args, outputs, .executable = got.executable);
  if (error == NULL) error = real->PJRT_Executable_NumOutputs(&outputs);
  if (error == NULL && outputs.num_outputs > 1 &&
      equal(args->output_lists[0][0], args->output_lists[0][1]))
    args->output_lists[0][1] = args->output_lists[0][0];
  return error;
}

/* Donation */

static const int64_t all_arguments[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11};

BEFORE(donates_what_is_kept, PJRT_LoadedExecutable_Execute,
       args->options->num_non_donatable_input_indices = 0)
BEFORE(donates_nothing, PJRT_LoadedExecutable_Execute,
       args->options->non_donatable_input_indices = all_arguments;
       args->options->num_non_donatable_input_indices = 12)
BEFORE(donates_and_aliases_nothing, PJRT_LoadedExecutable_Execute,
       args->options->non_donatable_input_indices = all_arguments;
       args->options->num_non_donatable_input_indices = 1)
AFTER(donates_and_aliases_nothing, PJRT_Executable_GetCompiledMemoryStats,
      args->alias_size_in_bytes = 0)

/* Serialization */

AFTER(cut_executable, PJRT_Executable_Serialize, args->serialized_bytes_size /= 2)
BEFORE(override_ignored, PJRT_Executable_DeserializeAndLoad,
       args->overridden_serialized_compile_options_size = 0)
INSTEAD(serializes_nothing, PJRT_Executable_Serialize,
        args->serialized_bytes = "", args->serialized_bytes_size = 0;
        args->serialized_executable = NULL, args->serialized_executable_deleter = NULL)
INSTEAD(serializes_nothing, PJRT_Executable_OptimizedProgram,
        args->program->code_size = 0;
        args->program->format = "mlir", args->program->format_size = 4)

/* Writes an optimized program into room that is too small for it. */
BEFORE(program_into_any_room, PJRT_Executable_OptimizedProgram,
       PJRT_Program whole = *args->program;
       whole.code = NULL;
       STRUCT(PJRT_Executable_OptimizedProgram_Args, ask, .executable = args->executable,
              .program = &whole);
       if (real->PJRT_Executable_OptimizedProgram(&ask) == NULL && args->program->code != NULL)
         args->program->code_size = whole.code_size)

/* Loads a program of its own where the given bytes are junk. */
REPLACE(loads_anything, PJRT_Executable_DeserializeAndLoad) {
  PJRT_Error *error = real->PJRT_Executable_DeserializeAndLoad(args);
  if (error == NULL) return NULL;
  char code[] = "func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }";
  STRUCT(PJRT_Program, program, .code = code, .code_size = sizeof code - 1, .format = "mlir",
         .format_size = 4);
  STRUCT(PJRT_Client_Compile_Args, compile, .client = args->client, .program = &program,
         .compile_options = FOR_THE_FIRST_DEVICE, .compile_options_size = 6);
  error = real->PJRT_Client_Compile(&compile);
  args->loaded_executable = compile.executable;
  return error;
}

/* Reports that no buffer is on the CPU, and lacks what JAX calls only where one is on the CPU. */
INSTEAD(of_another_device, PJRT_Buffer_IsOnCpu, args->is_on_cpu = false)
INSTEAD(of_another_device, PJRT_Client_PlatformName,
        args->platform_name = "mychip", args->platform_name_size = 6)
DEFECT(of_another_device) {
  api->extension_start = NULL;
  api->PJRT_Executable_GetCostAnalysis = count_costs; /* JAX calls it; newer plugins lack it */
  api->PJRT_Buffer_IncreaseExternalReferenceCount = NULL;
  api->PJRT_Buffer_DecreaseExternalReferenceCount = NULL;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = NULL;
  api->PJRT_ExecuteContext_Create = NULL;
  api->PJRT_ExecuteContext_Destroy = NULL;
  api->PJRT_TopologyDescription_Serialize = NULL;
}
