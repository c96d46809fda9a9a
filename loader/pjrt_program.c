/* See pjrt_program.h.

   PJRT_PROGRAM_API is the header that declares the PJRT C API: by default that of pjrt-hub, which
   is in the folder that `python -c "import pjrt_hub.kit.authoring as a; print(*a.__path__)"` prints,
   below c/; define it as OpenXLA's "xla/pjrt/c/pjrt_c_api.h" in a project that has that one. */
#include "pjrt_program.h"

#include <errno.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#ifndef PJRT_PROGRAM_API
#define PJRT_PROGRAM_API "pjrt_plugin/api.h"
#endif
#include PJRT_PROGRAM_API

#define ARGS(name, args) \
  PJRT_##name##_Args args; \
  memset(&args, 0, sizeof args); \
  args.struct_size = PJRT_##name##_Args_STRUCT_SIZE

/* Whether a plugin's table has a function. */
#define HAS(api, name) \
  (offsetof(PJRT_Api, name) + sizeof(void *) <= (api)->struct_size && (api)->name != NULL)

/* ---- Errors ---- */

static char no_memory[] = "there is no memory left";

void pjrt_program_free_error(char *error) {
  if (error != no_memory) free(error);
}

/* Writes an error's text, and returns -1. */
static int fail(char **error, const char *format, ...) {
  if (error == NULL) return -1;
  va_list args, again;
  va_start(args, format);
  va_copy(again, args);
  int size = vsnprintf(NULL, 0, format, args);
  char *text = size < 0 ? NULL : malloc((size_t)size + 1);
  if (text != NULL) vsnprintf(text, (size_t)size + 1, format, again);
  va_end(again);
  va_end(args);
  *error = text != NULL ? text : no_memory;
  return -1;
}

static int fail_memory(char **error) {
  if (error != NULL) *error = no_memory;
  return -1;
}

static void begin(char **error) {
  if (error != NULL) *error = NULL;
}

/* Takes a plugin's error, if there is one, and returns -1 then. */
static int check(const PJRT_Api *api, PJRT_Error *failure, const char *what, const char *hint,
                 char **error) {
  if (failure == NULL) return 0;
  ARGS(Error_Message, message);
  message.error = failure;
  api->PJRT_Error_Message(&message);
  const char *text = message.message != NULL ? message.message : "no reason was given";
  size_t size = message.message != NULL ? message.message_size : strlen(text);
  if (size > 1 << 16) size = 1 << 16;
  fail(error, "%s: %.*s%s%s", what, (int)size, text, hint != NULL ? "\n\nhint: " : "",
       hint != NULL ? hint : "");
  ARGS(Error_Destroy, destroy);
  destroy.error = failure;
  api->PJRT_Error_Destroy(&destroy);
  return -1;
}

/* ---- Files ---- */

enum {
  HEAD_NBYTES = 24,
  SECTION_NBYTES = 24,
  VALUE_NBYTES = 16,
  MOST_SECTIONS = 64,
  MOST_VALUES = 65536,
  MOST_DIMS = 64,
  MOST_NAME_NBYTES = 65536,
};
enum { FORMAT = 1, CODE, OPTIONS, PARAMETERS, RESULTS, NUM_KINDS };

static const uint64_t MOST_NBYTES = (uint64_t)1 << 32;

/* A part of the file, or what is left of it. */
typedef struct {
  const unsigned char *data;
  size_t size;
} Span;

typedef struct {
  size_t count;
  pjrt_program_value *values;
  int64_t *dims;
  char *names;
} Values;

struct pjrt_program {
  atomic_size_t references;
  unsigned char *data;
  Span sections[NUM_KINDS];
  Values parameters, results;
};

static uint32_t u32(const unsigned char *at) {
  return at[0] | (uint32_t)at[1] << 8 | (uint32_t)at[2] << 16 | (uint32_t)at[3] << 24;
}

static uint64_t u64(const unsigned char *at) { return u32(at) | (uint64_t)u32(at + 4) << 32; }

/* Returns the bytes of an element in a host array, or 0 for a type that no array has. */
static size_t element_nbytes(uint32_t type) {
  static const unsigned char nbytes[] = {
      0, 1, 1, 2, 4, 8, 1, 2, 4, 8, 2, 4, 8, 2, 8, 16, 1, /* to F8E5M2 */
      1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 1, 1, 1, 1, 1, 1, 1,  /* 23 is a token */
  };
  return type < sizeof nbytes ? nbytes[type] : 0;
}

static bool is_text(const unsigned char *at, size_t size) {
  for (size_t i = 0; i < size;) {
    unsigned char first = at[i++];
    if (first == 0) return false;
    if (first < 0x80) continue;
    int more = first >= 0xC2 && first <= 0xDF ? 1 : (first & 0xF0) == 0xE0 ? 2
               : first >= 0xF0 && first <= 0xF4 ? 3 : 0;
    if (more == 0 || size - i < (size_t)more) return false;
    unsigned char next = at[i];
    if ((first == 0xE0 && next < 0xA0) || (first == 0xED && next > 0x9F) ||
        (first == 0xF0 && next < 0x90) || (first == 0xF4 && next > 0x8F))
      return false;
    for (; more > 0; more--)
      if ((at[i++] & 0xC0) != 0x80) return false;
  }
  return true;
}

/* Returns the rule of docs/spec/program.md that a value breaks, or 0. */
static int read_value(Span *left, pjrt_program_value *value, int64_t **dims, char **names) {
  if (left->size < VALUE_NBYTES) return 8;
  uint32_t type = u32(left->data), num_dims = u32(left->data + 4), name = u32(left->data + 8);
  if (num_dims > MOST_DIMS || name > MOST_NAME_NBYTES || u32(left->data + 12) != 0) return 9;
  size_t padded = ((size_t)name + 7) / 8 * 8, nbytes = element_nbytes(type);
  if (left->size - VALUE_NBYTES < 8 * (size_t)num_dims + padded) return 8;
  if (nbytes == 0) return 9;
  const unsigned char *at = left->data + VALUE_NBYTES;
  bool is_empty = false;
  *value = (pjrt_program_value){*names, (int)type, num_dims, *dims, 0};
  for (uint32_t i = 0; i < num_dims; i++, at += 8) {
    uint64_t size = u64(at);
    if (size > INT64_MAX) return 9;
    *(*dims)++ = (int64_t)size;
    is_empty = is_empty || size == 0;
  }
  for (uint32_t i = 0; !is_empty && i < num_dims; i++) {
    uint64_t size = (uint64_t)value->dims[i];
    if (size > (SIZE_MAX >> 1) / nbytes) return 10;
    nbytes *= (size_t)size;
  }
  value->nbytes = is_empty ? 0 : nbytes;
  if (!is_text(at, name)) return 9;
  for (size_t i = name; i < padded; i++)
    if (at[i] != 0) return 9;
  memcpy(*names, at, name);
  (*names)[name] = '\0';
  *names += name + 1;
  left->data = at + padded;
  left->size -= VALUE_NBYTES + 8 * (size_t)num_dims + padded;
  return 0;
}

/* Returns the rule that a section of values breaks, 0, or -1 where there is no memory. */
static int read_values(Span section, Values *values) {
  if (section.size < 8) return 8;
  uint32_t count = u32(section.data);
  if (count > MOST_VALUES || u32(section.data + 4) != 0) return 8;
  Span left = {section.data + 8, section.size - 8};
  if (count > left.size / VALUE_NBYTES) return 8;
  /* Dimensions and names have together no more bytes than the section; each name gets a zero. */
  values->values = calloc((size_t)count + 1, sizeof *values->values);
  values->dims = malloc(left.size + 8);
  values->names = malloc(left.size + count + 1);
  if (values->values == NULL || values->dims == NULL || values->names == NULL) return -1;
  int64_t *dims = values->dims;
  char *names = values->names;
  for (uint32_t i = 0; i < count; i++) {
    int rule = read_value(&left, &values->values[i], &dims, &names);
    if (rule != 0) return rule;
  }
  values->count = count;
  return left.size == 0 ? 0 : 8;
}

static int read_sections(pjrt_program *program, size_t nbytes) {
  const unsigned char *data = program->data;
  if (nbytes < HEAD_NBYTES || memcmp(data, "PJRTPROG", 8) != 0 || u32(data + 8) != 1) return 1;
  uint32_t count = u32(data + 12);
  if (count < NUM_KINDS - 1 || count > MOST_SECTIONS || u64(data + 16) != nbytes) return 1;
  size_t table = HEAD_NBYTES + (size_t)count * SECTION_NBYTES;
  if (nbytes < table) return 2;
  for (uint32_t i = 0; i < count; i++) {
    const unsigned char *row = data + HEAD_NBYTES + (size_t)i * SECTION_NBYTES;
    uint32_t kind = u32(row);
    uint64_t first = u64(row + 8), size = u64(row + 16);
    if (u32(row + 4) != 0) return 2;
    if (first < table || first % 8 != 0 || first > nbytes || size > nbytes - first) return 3;
    for (uint32_t j = 0; j < i; j++) {
      const unsigned char *other = data + HEAD_NBYTES + (size_t)j * SECTION_NBYTES;
      if (u32(other) == kind) return 4;
      uint64_t begin = u64(other + 8), end = begin + u64(other + 16);
      if (first < end && begin < first + size) return 3;
    }
    if (kind < NUM_KINDS) program->sections[kind] = (Span){data + first, (size_t)size};
  }
  for (int kind = FORMAT; kind < NUM_KINDS; kind++)
    if (program->sections[kind].data == NULL) return 4;
  Span format = program->sections[FORMAT];
  if (format.size < 1 || format.size > 64 || !is_text(format.data, format.size)) return 5;
  if (program->sections[CODE].size == 0) return 6;
  int rule = read_values(program->sections[PARAMETERS], &program->parameters);
  return rule != 0 ? rule : read_values(program->sections[RESULTS], &program->results);
}

/* Makes a program of memory, which it takes. */
static pjrt_program *take(unsigned char *data, size_t nbytes, const char *origin, char **error) {
  static const char *const rules[] = {
      "", "it is not the file of a program, or is damaged: its head is wrong", "its table is wrong",
      "a section is outside the file or overlaps another one", "a section is missing or doubled",
      "its format has no name", "its program is empty", "", "its list of values is damaged",
      "a value has a wrong type, size or name", "a value is too large",
  };
  pjrt_program *program = calloc(1, sizeof *program);
  if (program == NULL) {
    free(data);
    fail_memory(error);
    return NULL;
  }
  program->data = data;
  atomic_init(&program->references, 1);
  int rule = read_sections(program, nbytes);
  if (rule == 0) return program;
  if (rule < 0)
    fail_memory(error);
  else if (nbytes >= 12 && memcmp(data, "PJRTPROG", 8) == 0 && u32(data + 8) != 1)
    fail(error, "%s cannot be read: it has version %u, not 1\n\n"
         "hint: export it by an older pjrt-hub, or take a newer pjrt_program.c",
         origin, (unsigned)u32(data + 8));
  else
    fail(error, "%s cannot be read: %s (rule %d of docs/spec/program.md)\n\n"
         "hint: `pjrt-hub export PROGRAM --output FILE` writes such files", origin, rules[rule],
         rule);
  pjrt_program_free(program);
  return NULL;
}

pjrt_program *pjrt_program_parse(const void *data, size_t nbytes, char **error) {
  begin(error);
  unsigned char *copy = malloc(nbytes + 1);
  if (copy == NULL) {
    fail_memory(error);
    return NULL;
  }
  if (nbytes > 0) memcpy(copy, data, nbytes);
  return take(copy, nbytes, "the program", error);
}

pjrt_program *pjrt_program_read(const char *path, char **error) {
  begin(error);
  FILE *file = fopen(path, "rb");
  size_t nbytes = 0, room = 1 << 16;
  unsigned char *data = malloc(room);
  while (file != NULL && data != NULL && !ferror(file)) {
    size_t got = fread(data + nbytes, 1, room - nbytes, file);
    nbytes += got;
    if (got == 0 && nbytes < room) break;
    if (nbytes < room) continue;
    unsigned char *more = room < MOST_NBYTES ? realloc(data, 2 * room) : NULL;
    if (more == NULL) {
      free(data);
      data = NULL;
    } else {
      data = more;
      room *= 2;
    }
  }
  int number = errno;
  bool is_bad = file == NULL || ferror(file);
  if (file != NULL) fclose(file);
  if (!is_bad && data != NULL) return take(data, nbytes, path, error);
  if (is_bad)
    fail(error, "%s cannot be read: %s\n\nhint: `pjrt-hub export PROGRAM --output %s` writes it",
         path, strerror(number), path);
  else
    fail(error, "%s cannot be read: it is larger than memory, or than 4 GiB", path);
  free(data);
  return NULL;
}

/* Ends one reference; returns whether it was the last. */
static bool is_last(atomic_size_t *references) {
  return atomic_fetch_sub_explicit(references, 1, memory_order_acq_rel) == 1;
}

static void refer(atomic_size_t *references, size_t count) {
  atomic_fetch_add_explicit(references, count, memory_order_relaxed);
}

static void free_values(Values *values) {
  free(values->values);
  free(values->dims);
  free(values->names);
}

void pjrt_program_free(pjrt_program *program) {
  if (program == NULL || !is_last(&program->references)) return;
  free_values(&program->parameters);
  free_values(&program->results);
  free(program->data);
  free(program);
}

size_t pjrt_program_num_parameters(const pjrt_program *program) {
  return program->parameters.count;
}

size_t pjrt_program_num_results(const pjrt_program *program) { return program->results.count; }

const pjrt_program_value *pjrt_program_parameters(const pjrt_program *program) {
  return program->parameters.values;
}

const pjrt_program_value *pjrt_program_results(const pjrt_program *program) {
  return program->results.values;
}

/* ---- Clients ---- */

struct pjrt_program_client {
  const PJRT_Api *api;
  PJRT_Client *handle;
  PJRT_Device *const *devices;
  size_t num_devices;
  atomic_size_t references; /* those of the caller, of executables, and of buffers */
};

/* What every plugin must have. */
#define NEEDED(DO) \
  DO(PJRT_Error_Destroy) DO(PJRT_Error_Message) DO(PJRT_Event_Await) DO(PJRT_Event_Destroy) \
  DO(PJRT_Client_Create) DO(PJRT_Client_Destroy) DO(PJRT_Client_AddressableDevices) \
  DO(PJRT_Client_Compile) DO(PJRT_Client_BufferFromHostBuffer) DO(PJRT_Executable_Destroy) \
  DO(PJRT_Executable_NumOutputs) DO(PJRT_LoadedExecutable_Destroy) \
  DO(PJRT_LoadedExecutable_GetExecutable) DO(PJRT_LoadedExecutable_AddressableDevices) \
  DO(PJRT_LoadedExecutable_Execute) DO(PJRT_Buffer_Destroy) DO(PJRT_Buffer_ToHostBuffer) \
  DO(PJRT_Buffer_ReadyEvent)

static int check_api(const PJRT_Api *api, char **error) {
  if (api == NULL || api->struct_size < offsetof(PJRT_Api, PJRT_Error_Destroy))
    return fail(error, "there is no PJRT_Api, or one without a version");
  if (api->pjrt_api_version.major_version != PJRT_API_MAJOR)
    return fail(error, "the plugin has PJRT API %d.%d, and this program was written for %d.%d",
                api->pjrt_api_version.major_version, api->pjrt_api_version.minor_version,
                PJRT_API_MAJOR, PJRT_API_MINOR);
#define REQUIRE(name) \
  if (!HAS(api, name)) return fail(error, "the plugin lacks " #name);
  NEEDED(REQUIRE)
#undef REQUIRE
  return 0;
}

static int write_option(const pjrt_program_option *option, PJRT_NamedValue *to, char **error) {
  memset(to, 0, sizeof *to);
  to->struct_size = PJRT_NamedValue_STRUCT_SIZE;
  to->name = option->name;
  to->name_size = strlen(option->name);
  to->type = (PJRT_NamedValue_Type)option->type;
  to->value_size = option->type == 2 ? option->count : 1;
  switch (option->type) {
    case 0:
      to->string_value = option->value.string;
      to->value_size = option->count > 0 ? option->count : strlen(option->value.string);
      return 0;
    case 1: to->int64_value = option->value.int64; return 0;
    case 2: to->int64_array_value = option->value.int64_list; return 0;
    case 3: to->float_value = option->value.number; return 0;
    case 4: to->bool_value = option->value.truth != 0; return 0;
    default:
      return fail(error, "the option %s has the type %d\n\nhint: types are from 0 to 4",
                  option->name, option->type);
  }
}

static void destroy_client(const PJRT_Api *api, PJRT_Client *handle) {
  ARGS(Client_Destroy, args);
  args.client = handle;
  check(api, api->PJRT_Client_Destroy(&args), "", NULL, NULL);
}

static void leave_client(pjrt_program_client *client) {
  if (!is_last(&client->references)) return;
  destroy_client(client->api, client->handle);
  free(client);
}

pjrt_program_client *pjrt_program_client_create(const PJRT_Api *api,
                                                const pjrt_program_option *options, size_t count,
                                                char **error) {
  begin(error);
  if (check_api(api, error) != 0) return NULL;
  pjrt_program_client *client = calloc(1, sizeof *client);
  PJRT_NamedValue *values = calloc(count + 1, sizeof *values);
  int failed = client == NULL || values == NULL ? fail_memory(error) : 0;
  for (size_t i = 0; failed == 0 && i < count; i++)
    failed = write_option(&options[i], &values[i], error);
  ARGS(Client_Create, args);
  args.create_options = values;
  args.num_options = count;
  if (failed == 0)
    failed = check(api, api->PJRT_Client_Create(&args), "the plugin makes no client",
                   count > 0 ? "check the create options" : NULL, error);
  free(values);
  if (failed != 0) {
    free(client);
    return NULL;
  }
  client->api = api;
  client->handle = args.client;
  atomic_init(&client->references, 1);
  ARGS(Client_AddressableDevices, devices);
  devices.client = client->handle;
  if (check(api, api->PJRT_Client_AddressableDevices(&devices), "the client's devices", NULL,
            error) != 0) {
    leave_client(client);
    return NULL;
  }
  client->devices = devices.addressable_devices;
  client->num_devices = devices.num_addressable_devices;
  return client;
}

void pjrt_program_client_free(pjrt_program_client *client) {
  if (client != NULL) leave_client(client);
}

PJRT_Client *pjrt_program_client_handle(const pjrt_program_client *client) {
  return client->handle;
}

size_t pjrt_program_client_num_devices(const pjrt_program_client *client) {
  return client->num_devices;
}

PJRT_Device *pjrt_program_client_device(const pjrt_program_client *client, size_t number) {
  return number < client->num_devices ? client->devices[number] : NULL;
}

/* ---- Executables ---- */

struct pjrt_program_executable {
  pjrt_program_client *client;
  pjrt_program *program;
  PJRT_LoadedExecutable *handle;
  PJRT_Device *device;
  int64_t *kept; /* the numbers of all parameters, none of which is donated */
  atomic_size_t references; /* those of the caller and of calls */
};

static int refuse_result(const pjrt_program_executable *executable, size_t number, char **error) {
  return fail(error, "result %zu (%s) of the compiled program is not what its file names\n\n"
              "hint: export the program again", number,
              executable->program->results.values[number].name);
}

static bool is_unimplemented(const PJRT_Api *api, PJRT_Error *failure) {
  if (!HAS(api, PJRT_Error_GetCode)) return false;
  ARGS(Error_GetCode, args);
  args.error = failure;
  PJRT_Error *other = api->PJRT_Error_GetCode(&args);
  if (other != NULL) return check(api, other, "", NULL, NULL) == 0;
  return args.code == PJRT_Error_Code_UNIMPLEMENTED;
}

/* Takes an error. Sets `told` to whether the plugin can answer; returns -1 for any other error. */
static int check_answer(const PJRT_Api *api, PJRT_Error *failure, bool *told, char **error) {
  *told = failure == NULL;
  bool lacks = failure != NULL && is_unimplemented(api, failure);
  int failed = check(api, failure, "the plugin cannot tell a shape or layout", NULL,
                     lacks ? NULL : error);
  return lacks ? 0 : failed;
}

static int check_results(const pjrt_program_executable *executable, PJRT_Executable *unloaded,
                         char **error) {
  const PJRT_Api *api = executable->client->api;
  const Values *results = &executable->program->results;
  bool told = false;
  ARGS(Executable_NumOutputs, counted);
  counted.executable = unloaded;
  if (check(api, api->PJRT_Executable_NumOutputs(&counted), "the number of results", NULL,
            error) != 0)
    return -1;
  if (counted.num_outputs != results->count)
    return fail(error, "the compiled program has %zu result(s), and its file names %zu\n\n"
                "hint: export the program again", counted.num_outputs, results->count);
  if (HAS(api, PJRT_Executable_OutputElementTypes)) {
    ARGS(Executable_OutputElementTypes, types);
    types.executable = unloaded;
    PJRT_Error *failure = api->PJRT_Executable_OutputElementTypes(&types);
    if (check_answer(api, failure, &told, error) != 0) return -1;
    for (size_t i = 0; told && i < types.num_output_types && i < results->count; i++)
      if ((int)types.output_types[i] != results->values[i].type)
        return refuse_result(executable, i, error);
  }
  if (HAS(api, PJRT_Executable_OutputDimensions)) {
    ARGS(Executable_OutputDimensions, shapes);
    shapes.executable = unloaded;
    PJRT_Error *failure = api->PJRT_Executable_OutputDimensions(&shapes);
    if (check_answer(api, failure, &told, error) != 0) return -1;
    const int64_t *dims = shapes.dims;
    for (size_t i = 0; told && i < shapes.num_outputs && i < results->count; i++) {
      const pjrt_program_value *result = &results->values[i];
      if (shapes.dim_sizes[i] != result->num_dims) return refuse_result(executable, i, error);
      for (size_t d = 0; d < result->num_dims; d++)
        if (*dims++ != result->dims[d]) return refuse_result(executable, i, error);
    }
  }
  return 0;
}

/* Looks at what was compiled. */
static int examine(pjrt_program_executable *executable, char **error) {
  const PJRT_Api *api = executable->client->api;
  ARGS(LoadedExecutable_AddressableDevices, devices);
  devices.executable = executable->handle;
  if (check(api, api->PJRT_LoadedExecutable_AddressableDevices(&devices), "the program's devices",
            NULL, error) != 0)
    return -1;
  if (devices.num_addressable_devices != 1)
    return fail(error, "the program was compiled for %zu devices, and runs here on one\n\n"
                "hint: export it again, for one replica and one partition",
                devices.num_addressable_devices);
  executable->device = devices.addressable_devices[0];
  ARGS(LoadedExecutable_GetExecutable, got);
  got.loaded_executable = executable->handle;
  if (check(api, api->PJRT_LoadedExecutable_GetExecutable(&got), "the compiled program", NULL,
            error) != 0)
    return -1;
  int failed = check_results(executable, got.executable, error);
  ARGS(Executable_Destroy, destroy);
  destroy.executable = got.executable;
  check(api, api->PJRT_Executable_Destroy(&destroy), "", NULL, NULL);
  return failed;
}

pjrt_program_executable *pjrt_program_compile(pjrt_program_client *client,
                                              const pjrt_program *given, char **error) {
  begin(error);
  const PJRT_Api *api = client->api;
  pjrt_program *program = (pjrt_program *)given; /* only its references change */
  size_t count = program->parameters.count;
  pjrt_program_executable *executable = calloc(1, sizeof *executable);
  int64_t *kept = malloc((count + 1) * sizeof *kept);
  if (executable == NULL || kept == NULL) {
    free(executable);
    free(kept);
    fail_memory(error);
    return NULL;
  }
  for (size_t i = 0; i < count; i++) kept[i] = (int64_t)i;
  refer(&client->references, 1);
  refer(&program->references, 1);
  executable->client = client;
  executable->program = program;
  executable->kept = kept;
  atomic_init(&executable->references, 1);
  PJRT_Program source;
  memset(&source, 0, sizeof source);
  source.struct_size = PJRT_Program_STRUCT_SIZE;
  source.code = (char *)program->sections[CODE].data;
  source.code_size = program->sections[CODE].size;
  source.format = (const char *)program->sections[FORMAT].data;
  source.format_size = program->sections[FORMAT].size;
  ARGS(Client_Compile, args);
  args.client = client->handle;
  args.program = &source;
  args.compile_options = (const char *)program->sections[OPTIONS].data;
  args.compile_options_size = program->sections[OPTIONS].size;
  if (check(api, api->PJRT_Client_Compile(&args), "the plugin cannot compile the program",
            "a newer plugin may, or an export for its platform by an older framework",
            error) == 0) {
    executable->handle = args.executable;
    if (examine(executable, error) == 0) return executable;
  }
  pjrt_program_executable_free(executable);
  return NULL;
}

void pjrt_program_executable_free(pjrt_program_executable *executable) {
  if (executable == NULL || !is_last(&executable->references)) return;
  const PJRT_Api *api = executable->client->api;
  if (executable->handle != NULL) {
    ARGS(LoadedExecutable_Destroy, args);
    args.executable = executable->handle;
    check(api, api->PJRT_LoadedExecutable_Destroy(&args), "", NULL, NULL);
  }
  leave_client(executable->client);
  pjrt_program_free(executable->program);
  free(executable->kept);
  free(executable);
}

PJRT_LoadedExecutable *pjrt_program_executable_handle(const pjrt_program_executable *executable) {
  return executable->handle;
}

/* ---- Buffers ---- */

static void destroy_buffer(const PJRT_Api *api, PJRT_Buffer *buffer) {
  ARGS(Buffer_Destroy, args);
  args.buffer = buffer;
  check(api, api->PJRT_Buffer_Destroy(&args), "", NULL, NULL);
}

void pjrt_program_buffer_free(pjrt_program_client *client, PJRT_Buffer *buffer) {
  if (buffer == NULL) return;
  destroy_buffer(client->api, buffer);
  leave_client(client);
}

/* Waits for an event, which it destroys. */
static int await_event(const PJRT_Api *api, PJRT_Event *event, const char *what, char **error) {
  if (event == NULL) return 0;
  ARGS(Event_Await, args);
  args.event = event;
  int failed = check(api, api->PJRT_Event_Await(&args), what, NULL, error);
  ARGS(Event_Destroy, destroy);
  destroy.event = event;
  check(api, api->PJRT_Event_Destroy(&destroy), "", NULL, NULL);
  return failed;
}

PJRT_Buffer *pjrt_program_put(pjrt_program_executable *executable, size_t number, const void *data,
                              char **error) {
  static const char nothing[16];
  begin(error);
  const PJRT_Api *api = executable->client->api;
  const Values *parameters = &executable->program->parameters;
  if (number >= parameters->count || (data == NULL && parameters->values[number].nbytes > 0)) {
    fail(error, "there is no array for parameter %zu of %zu", number, parameters->count);
    return NULL;
  }
  const pjrt_program_value *value = &parameters->values[number];
  ARGS(Client_BufferFromHostBuffer, args);
  args.client = executable->client->handle;
  args.data = data != NULL ? data : nothing;
  args.type = (PJRT_Buffer_Type)value->type;
  args.dims = value->dims;
  args.num_dims = value->num_dims;
  args.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  args.device = executable->device;
  if (check(api, api->PJRT_Client_BufferFromHostBuffer(&args), "an argument cannot be copied", NULL,
            error) != 0)
    return NULL;
  refer(&executable->client->references, 1);
  if (await_event(api, args.done_with_host_buffer, "an argument cannot be copied", error) != 0) {
    pjrt_program_buffer_free(executable->client, args.buffer);
    return NULL;
  }
  return args.buffer;
}

/* Finds the order of a buffer's dimensions in memory, the fastest first; rows by default. */
static int find_order(const PJRT_Api *api, PJRT_Buffer *buffer, size_t num_dims, int64_t *order,
                      char **error) {
  for (size_t i = 0; i < num_dims; i++) order[i] = (int64_t)(num_dims - 1 - i);
  if (num_dims < 2 || !HAS(api, PJRT_Buffer_GetMemoryLayout)) return 0;
  bool told = false, seen[MOST_DIMS] = {false};
  ARGS(Buffer_GetMemoryLayout, args);
  args.buffer = buffer;
  PJRT_Error *failure = api->PJRT_Buffer_GetMemoryLayout(&args);
  if (check_answer(api, failure, &told, error) != 0) return -1;
  if (!told || args.layout.type != PJRT_Buffer_MemoryLayout_Type_Tiled) return 0;
  const PJRT_Buffer_MemoryLayout_Tiled *tiled = &args.layout.tiled;
  if (tiled->minor_to_major_size != num_dims) return fail(error, "a buffer's layout has no order");
  for (size_t i = 0; i < num_dims; i++) {
    order[i] = tiled->minor_to_major[i];
    if (order[i] < 0 || (size_t)order[i] >= num_dims || seen[order[i]])
      return fail(error, "a buffer's layout has no order");
    seen[order[i]] = true;
  }
  return 0;
}

/* Arranges elements that lie in an order row by row. */
static void arrange(const char *from, char *to, size_t nbytes, const int64_t *dims,
                    size_t num_dims, const int64_t *order) {
  size_t count = 1, steps[MOST_DIMS], index[MOST_DIMS] = {0}, offset = 0;
  for (size_t i = 0; i < num_dims; i++) {
    steps[order[i]] = count;
    count *= (size_t)dims[order[i]];
  }
  size_t width = count > 0 ? nbytes / count : 0;
  for (size_t n = 0; n < count; n++) {
    memcpy(to + n * width, from + offset * width, width);
    for (size_t d = num_dims; d-- > 0;) {
      offset += steps[d];
      if (++index[d] < (size_t)dims[d]) break;
      offset -= steps[d] * (size_t)dims[d];
      index[d] = 0;
    }
  }
}

/* Copies a buffer to a host array in an order of its dimensions, and waits. */
static int copy_ordered(const PJRT_Api *api, PJRT_Buffer *buffer, const int64_t *order,
                        size_t num_dims, void *data, size_t nbytes, char **error) {
  PJRT_Buffer_MemoryLayout layout;
  memset(&layout, 0, sizeof layout);
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = order;
  layout.tiled.minor_to_major_size = num_dims;
  ARGS(Buffer_ToHostBuffer, args);
  args.src = buffer;
  args.host_layout = &layout;
  if (check(api, api->PJRT_Buffer_ToHostBuffer(&args), "a buffer's size", NULL, error) != 0)
    return -1;
  if (args.dst_size != nbytes)
    return fail(error, "a buffer has %zu byte(s) on the host, and the array has %zu",
                args.dst_size, nbytes);
  args.dst = data;
  args.event = NULL;
  if (check(api, api->PJRT_Buffer_ToHostBuffer(&args), "a buffer cannot be copied", NULL,
            error) != 0)
    return -1;
  return await_event(api, args.event, "the program failed", error);
}

/* Copies a buffer to a host array row by row. Plugins before PJRT API 0.106 copy in the device's
   order whatever they are asked for, so that order is asked for, and arranged here. */
static int copy_out(const PJRT_Api *api, PJRT_Buffer *buffer, const int64_t *dims,
                    size_t num_dims, void *data, size_t nbytes, char **error) {
  char nothing[16];
  int64_t order[MOST_DIMS];
  if (find_order(api, buffer, num_dims, order, error) != 0) return -1;
  bool has_rows = true;
  for (size_t i = 0; i < num_dims; i++)
    has_rows = has_rows && order[i] == (int64_t)(num_dims - 1 - i);
  if (nbytes == 0) data = nothing;
  if (has_rows || nbytes == 0)
    return copy_ordered(api, buffer, order, num_dims, data, nbytes, error);
  char *stored = malloc(nbytes);
  if (stored == NULL) return fail_memory(error);
  int failed = copy_ordered(api, buffer, order, num_dims, stored, nbytes, error);
  if (failed == 0) arrange(stored, data, nbytes, dims, num_dims, order);
  free(stored);
  return failed;
}

int pjrt_program_get(pjrt_program_client *client, PJRT_Buffer *buffer, void *data, size_t nbytes,
                     char **error) {
  begin(error);
  if (buffer == NULL) return fail(error, "there is no buffer");
  if (data == NULL && nbytes > 0) return fail(error, "there is no array for %zu byte(s)", nbytes);
  if (!HAS(client->api, PJRT_Buffer_Dimensions))
    return fail(error, "the plugin lacks PJRT_Buffer_Dimensions");
  ARGS(Buffer_Dimensions, args);
  args.buffer = buffer;
  if (check(client->api, client->api->PJRT_Buffer_Dimensions(&args), "a buffer's dimensions", NULL,
            error) != 0)
    return -1;
  if (args.num_dims > MOST_DIMS)
    return fail(error, "a buffer has %zu dimensions", args.num_dims);
  return copy_out(client->api, buffer, args.dims, args.num_dims, data, nbytes, error);
}

int pjrt_program_await(pjrt_program_client *client, PJRT_Buffer *buffer, char **error) {
  begin(error);
  if (buffer == NULL) return fail(error, "there is no buffer");
  ARGS(Buffer_ReadyEvent, args);
  args.buffer = buffer;
  if (check(client->api, client->api->PJRT_Buffer_ReadyEvent(&args), "a buffer's event", NULL,
            error) != 0)
    return -1;
  return await_event(client->api, args.event, "the program failed", error);
}

void *pjrt_program_device_pointer(pjrt_program_client *client, PJRT_Buffer *buffer, char **error) {
  if (pjrt_program_await(client, buffer, error) != 0) return NULL;
  if (!HAS(client->api, PJRT_Buffer_UnsafePointer)) {
    fail(error, "the plugin lacks PJRT_Buffer_UnsafePointer");
    return NULL;
  }
  ARGS(Buffer_UnsafePointer, args);
  args.buffer = buffer;
  if (check(client->api, client->api->PJRT_Buffer_UnsafePointer(&args), "a buffer's address", NULL,
            error) != 0)
    return NULL;
  return (void *)args.buffer_pointer;
}

/* ---- Calls ---- */

struct pjrt_program_call {
  PJRT_LoadedExecutable_Execute_Args args;
  PJRT_ExecuteOptions options;
  PJRT_Buffer *const *argument_list;
  PJRT_Buffer **result_list;
  pjrt_program_executable *executable;
  PJRT_Buffer **buffers; /* arguments and results of calls with host arrays */
};

pjrt_program_call *pjrt_program_call_create(pjrt_program_executable *executable, char **error) {
  begin(error);
  const pjrt_program *program = executable->program;
  size_t num_arguments = program->parameters.count, num_results = program->results.count;
  pjrt_program_call *call = calloc(1, sizeof *call);
  PJRT_Buffer **buffers = calloc(num_arguments + num_results + 1, sizeof *buffers);
  if (call == NULL || buffers == NULL) {
    free(call);
    free(buffers);
    fail_memory(error);
    return NULL;
  }
  refer(&executable->references, 1);
  call->executable = executable;
  call->buffers = buffers;
  call->options.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE;
  call->options.non_donatable_input_indices = executable->kept;
  call->options.num_non_donatable_input_indices = num_arguments;
  call->args.struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE;
  call->args.executable = executable->handle;
  call->args.options = &call->options;
  call->args.argument_lists = &call->argument_list;
  call->args.num_devices = 1;
  call->args.num_args = num_arguments;
  call->args.output_lists = &call->result_list;
  return call;
}

void pjrt_program_call_free(pjrt_program_call *call) {
  if (call == NULL) return;
  pjrt_program_executable_free(call->executable);
  free(call->buffers);
  free(call);
}

int pjrt_program_call_buffers(pjrt_program_call *call, PJRT_Buffer *const *arguments,
                              PJRT_Buffer **results, char **error) {
  begin(error);
  pjrt_program_client *client = call->executable->client;
  for (size_t i = 0; i < call->args.num_args; i++)
    if (arguments[i] == NULL)
      return fail(error, "there is no buffer for parameter %zu of %zu", i, call->args.num_args);
  call->argument_list = arguments;
  call->result_list = results;
  PJRT_Error *failure = client->api->PJRT_LoadedExecutable_Execute(&call->args);
  if (failure != NULL)
    return check(client->api, failure, "the plugin cannot run the program",
                 "arguments must be buffers of the program's client, of the types and dimensions of "
                 "pjrt_program_parameters()", error);
  refer(&client->references, call->executable->program->results.count);
  return 0;
}

int pjrt_program_call_arrays(pjrt_program_call *call, const void *const *arguments,
                             void *const *results, char **error) {
  begin(error);
  pjrt_program_executable *executable = call->executable;
  pjrt_program_client *client = executable->client;
  const Values *values = &executable->program->results;
  size_t num_arguments = executable->program->parameters.count;
  PJRT_Buffer **given = call->buffers, **made = given + num_arguments;
  int failed = 0;
  size_t put = 0;
  for (; failed == 0 && put < num_arguments; put++) {
    given[put] = pjrt_program_put(executable, put, arguments[put], error);
    if (given[put] == NULL) failed = -1;
  }
  bool ran = failed == 0 && pjrt_program_call_buffers(call, given, made, error) == 0;
  if (!ran) failed = -1;
  for (size_t i = 0; i < put; i++) pjrt_program_buffer_free(client, given[i]);
  for (size_t i = 0; ran && i < values->count; i++) {
    const pjrt_program_value *value = &values->values[i];
    if (failed == 0 && results[i] == NULL && value->nbytes > 0)
      failed = fail(error, "there is no array for result %zu of %zu", i, values->count);
    if (failed == 0)
      failed = copy_out(client->api, made[i], value->dims, value->num_dims, results[i],
                        value->nbytes, error);
    pjrt_program_buffer_free(client, made[i]);
  }
  return failed;
}

/* ---- Custom calls ---- */

/* The FFI extension, which OpenXLA declares in a header of its own. */
enum { FFI_EXTENSION = 5, MOST_EXTENSIONS = 256 };

typedef struct {
  size_t struct_size;
  const char *target_name;
  size_t target_name_size;
  void *handler;
  const char *platform_name;
  size_t platform_name_size;
  int traits;
} RegisterArgs;

typedef struct {
  PJRT_Extension_Base base;
  PJRT_Error *(*type_register)(void *);
  PJRT_Error *(*user_data_add)(void *);
  PJRT_Error *(*register_handler)(RegisterArgs *);
} FfiExtension;

int pjrt_program_register_handler(const PJRT_Api *api, const char *name, const char *platform,
                                  void *handler, int traits, char **error) {
  begin(error);
  if (check_api(api, error) != 0) return -1;
  const PJRT_Extension_Base *each = api->extension_start;
  for (int i = 0; each != NULL && (int)each->type != FFI_EXTENSION; each = each->next)
    if (++i > MOST_EXTENSIONS) return fail(error, "the plugin's extensions have no end");
  const FfiExtension *ffi = (const FfiExtension *)each;
  if (each == NULL ||
      each->struct_size < offsetof(FfiExtension, register_handler) + sizeof(void *) ||
      ffi->register_handler == NULL)
    return fail(error, "%s cannot be registered: the plugin has no %s\n\n"
                "hint: take a plugin of PJRT API 0.81 or newer that has custom calls", name,
                each == NULL ? "FFI extension" : "function for it");
  RegisterArgs args = {offsetof(RegisterArgs, traits) + sizeof(int), name, strlen(name), handler,
                       platform, strlen(platform), traits};
  return check(api, ffi->register_handler(&args), "the plugin refuses the handler",
               "a name is registered once on a platform", error);
}
