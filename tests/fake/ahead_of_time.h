/* Compiles for a device of a topology; a client can load the result once, which empties it. */

struct PJRT_TopologyDescription {
  PJRT_Client nobody; /* a description of a device asks whether it is alive */
  PJRT_DeviceDescription description, *descriptions[1];
};

#ifndef ON_DESCRIBE
#define ON_DESCRIBE (void)0
#endif

FUNCTION(PJRT_TopologyDescription_Create) {
  ON_DESCRIBE;
  PJRT_TopologyDescription *topology = calloc(1, sizeof *topology);
  topology->nobody.head.kind = CLIENT;
  topology->description.client = &topology->nobody;
  topology->descriptions[0] = &topology->description;
  args->topology = topology;
  return NULL;
}

DOES(PJRT_TopologyDescription_Destroy, (void)0)

DOES(PJRT_TopologyDescription_PlatformName, args->platform_name = "stub",
     args->platform_name_size = 4)

DOES(PJRT_TopologyDescription_GetDeviceDescriptions,
     args->descriptions = ((PJRT_TopologyDescription *)args->topology)->descriptions,
     args->num_descriptions = 1)

static char *compiled_text; /* it belongs to the last program */

DOES(PJRT_Compile, args->executable = make(sizeof(PJRT_Executable), VIEW, NULL);
     compiled_text = strndup(args->program->code, args->program->code_size))

FUNCTION(PJRT_Client_Load) {
  PJRT_Executable *given = enter(args->executable, VIEW);
  if (compiled_text == NULL) die("loaded a second time", EXECUTABLE);
  PJRT_Program program = {.code = compiled_text, .code_size = strlen(compiled_text)};
  PJRT_Client_Compile_Args compile = {.client = args->client, .program = &program,
                                      .compile_options = args->compile_options,
                                      .compile_options_size = args->compile_options_size};
  PJRT_Error *error = PJRT_Client_Compile(&compile);
  args->loaded_executable = compile.executable;
  compiled_text = NULL;
  leave(given);
  return error;
}
