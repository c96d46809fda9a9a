/* A library that looks like a plugin: its GetPjrtApi returns a copy of a table that is already in
   this process. It serves hosts that accept only a path and would open the plugin themselves. */
#include "layers.h"

/* The host gets a copy, because the plugin's own memory must not be written to. */
static const PJRT_Api *given;
static PJRT_Api *copy;

/* What a program must not contain, since the plugin cannot compile it, and what the host is told. */
typedef struct {
  const char *word, *text;
} Obstacle;

static const Obstacle *obstacles;
static const char *added;
static size_t num_obstacles, added_nbytes;

/* Does nothing, because the plugin is initialized already and some plugins refuse a second call. */
static PJRT_Error *initialized(PJRT_Plugin_Initialize_Args *args) {
  (void)args;
  return NULL;
}

/* Makes a client with the options that the rules leave and add. */
static PJRT_Error *create(PJRT_Client_Create_Args *args) {
  HostOptions own = options_replace(args);
  PJRT_Error *error = given->PJRT_Client_Create(args);
  options_restore(args, own);
  return error;
}

static const Obstacle *obstacle_of(const PJRT_Program *program) {
  for (size_t i = 0; i < num_obstacles; i++)
    if (memmem(program->code, program->code_size, obstacles[i].word, strlen(obstacles[i].word)) != NULL)
      return &obstacles[i];
  return NULL;
}

/* Compiles with `added` after the host's own options: of fields, the last ones count. */
static PJRT_Error *compile(PJRT_Client_Compile_Args *args) {
  const Obstacle *obstacle = obstacle_of(args->program);
  if (obstacle != NULL) return refuse_text(PJRT_Error_Code_UNIMPLEMENTED, obstacle->text);
  const char *own = args->compile_options;
  size_t nbytes = args->compile_options_size;
  char *both = malloc(nbytes + added_nbytes + 1);
  if (both == NULL) abort();
  if (nbytes != 0) memcpy(both, own, nbytes);
  memcpy(both + nbytes, added, added_nbytes);
  args->compile_options = both;
  args->compile_options_size = nbytes + added_nbytes;
  PJRT_Error *error = given->PJRT_Client_Compile(args);
  args->compile_options = own;
  args->compile_options_size = nbytes;
  free(both);
  return error;
}

/* The plugin may see no error of `compile`. */
static void destroy(PJRT_Error_Destroy_Args *args) {
  if (!refusal_answer(FN_PJRT_Error_Destroy, args)) given->PJRT_Error_Destroy(args);
}

static void message(PJRT_Error_Message_Args *args) {
  if (!refusal_answer(FN_PJRT_Error_Message, args)) given->PJRT_Error_Message(args);
}

static PJRT_Error *get_code(PJRT_Error_GetCode_Args *args) {
  return refusal_answer(FN_PJRT_Error_GetCode, args) ? NULL : given->PJRT_Error_GetCode(args);
}

static PJRT_Error *for_each_payload(PJRT_Error_ForEachPayload_Args *args) {
  bool ours = refusal_answer(FN_PJRT_Error_ForEachPayload, args);
  return ours ? NULL : given->PJRT_Error_ForEachPayload(args);
}

/* Sets the table that the host gets a copy of and returns the one in use. That is always the first,
   because a host keeps its table. The caller must let only one thread in at a time. */
EXPORTED const PJRT_Api *pjrt_hub_forward(const PJRT_Api *api) {
  if (given != NULL || api == NULL) return given;
  copy = malloc(api->struct_size);
  if (copy == NULL) return NULL;
  memcpy(copy, api, api->struct_size);
  copy->PJRT_Plugin_Initialize = initialized;
  return given = api;
}

/* Changes what the plugin gets from a host that has called nothing yet: create options, by rules as
   for the layer of that name; part of a CompileOptionsProto, for all compilations; and programs,
   of which those with an obstacle are refused. All these must stay. */
EXPORTED void pjrt_hub_change(const char *options, const char *compile_options, size_t nbytes,
                              const Obstacle *refused, size_t num_refused) {
  options_start(options);
  added = compile_options;
  added_nbytes = nbytes;
  obstacles = refused;
  num_obstacles = num_refused;
  copy->PJRT_Client_Create = create;
  copy->PJRT_Client_Compile = compile;
  copy->PJRT_Error_Destroy = destroy;
  copy->PJRT_Error_Message = message;
  copy->PJRT_Error_GetCode = get_code;
  size_t end = offsetof(PJRT_Api, PJRT_Error_ForEachPayload) + sizeof(void *);
  if (copy->struct_size >= end) copy->PJRT_Error_ForEachPayload = for_each_payload;
}

/* Returns NULL until a table is set. */
EXPORTED const PJRT_Api *GetPjrtApi(void) { return copy; }
