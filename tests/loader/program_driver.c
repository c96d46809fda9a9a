/* Runs a program in every way that pjrt_program.h has, for test_program.py.

   program_driver LIBRARY PROGRAM FOLDER WAY [ARRAY ...]: writes FOLDER/0.raw and so on. */
#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"
#include "pjrt_program.h"

enum { MOST = 64, CALLS = 100, THREADS = 2 };

static char *error;
static const PJRT_Api *plugin;

static void require(int is_right) {
  if (is_right) return;
  fprintf(stderr, "%s\n", error != NULL ? error : "the driver failed");
  pjrt_program_free_error(error);
  exit(1);
}

static const PJRT_Api *open_plugin(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) fprintf(stderr, "%s\n", dlerror());
  const PJRT_Api *(*get)(void) = library == NULL ? NULL : (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
  require(get != NULL);
  PJRT_Plugin_Initialize_Args args = {.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE};
  require(get()->PJRT_Plugin_Initialize(&args) == NULL);
  return get();
}

/* The handler of the custom call loader_triple: each element of its f32 argument, three times. */
static XLA_FFI_Error *triple(XLA_FFI_CallFrame *frame) {
  for (XLA_FFI_InternalExtension *each = frame->extension_start; each != NULL; each = each->next) {
    if (each->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)each)->metadata;
    metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    metadata->api_version.extension_start = NULL;
    metadata->api_version.major_version = frame->api->api_version.major_version;
    metadata->api_version.minor_version = frame->api->api_version.minor_version;
    metadata->traits = 0;
    return NULL;
  }
  const XLA_FFI_Buffer *from = frame->args.args[0], *to = frame->rets.rets[0];
  for (int64_t i = 0; i < from->dims[0]; i++)
    ((float *)to->data)[i] = 3 * ((const float *)from->data)[i];
  return NULL;
}

static pjrt_program *program;
static pjrt_program_client *client;
static pjrt_program_executable *executable;
static size_t takes, gives;
static void *arrays[MOST];

static void **new_results(void) {
  void **results = calloc(gives + 1, sizeof *results);
  for (size_t i = 0; i < gives; i++) {
    size_t nbytes = pjrt_program_results(program)[i].nbytes;
    results[i] = nbytes > 0 ? malloc(nbytes) : NULL;
  }
  return results;
}

static void free_results(void **results) {
  for (size_t i = 0; i < gives; i++) free(results[i]);
  free(results);
}

static int differs(void **results, void **others) {
  for (size_t i = 0; i < gives; i++) {
    size_t nbytes = pjrt_program_results(program)[i].nbytes;
    if (nbytes > 0 && memcmp(results[i], others[i], nbytes) != 0) return 1;
  }
  return 0;
}

static void *call_often(void *expected) {
  char *failure = NULL;
  pjrt_program_call *call = pjrt_program_call_create(executable, &failure);
  void **results = new_results();
  int failed = call == NULL;
  for (int turn = 0; !failed && turn < CALLS; turn++) {
    for (size_t i = 0; i < gives; i++)
      if (results[i] != NULL) memset(results[i], 0x5A, pjrt_program_results(program)[i].nbytes);
    failed = pjrt_program_call_arrays(call, (const void *const *)arrays, results, &failure) != 0 ||
             differs(results, expected);
  }
  free_results(results);
  pjrt_program_call_free(call);
  pjrt_program_free_error(failure);
  return failed ? "failed" : NULL;
}

static void call_threads(void **results) {
  pthread_t threads[THREADS];
  for (int i = 0; i < THREADS; i++) pthread_create(&threads[i], NULL, call_often, results);
  for (int i = 0; i < THREADS; i++) {
    void *failure;
    pthread_join(threads[i], &failure);
    require(failure == NULL);
  }
}

static void require_error(int is_refused, const char *text) {
  require(is_refused && error != NULL && strstr(error, text) != NULL);
  pjrt_program_free_error(error);
  error = NULL;
}

/* Calls that lack an array or a buffer, or have the buffer of another client. */
static void refuse_mistakes(pjrt_program_call *call, PJRT_Buffer **given) {
  PJRT_Buffer *made[MOST], *right = given[0];
  require_error(pjrt_program_await(client, NULL, &error) != 0, "there is no buffer");
  require_error(pjrt_program_get(client, NULL, made, 1, &error) != 0, "there is no buffer");
  require_error(pjrt_program_device_pointer(client, NULL, &error) == NULL, "there is no buffer");
  if (takes == 0) return;
  require_error(pjrt_program_get(client, right, NULL, 16, &error) != 0, "there is no array for 16 byte(s)");
  given[0] = NULL;
  require_error(pjrt_program_call_buffers(call, given, made, &error) != 0, "there is no buffer for parameter 0 of");
  pjrt_program_client *other = pjrt_program_client_create(plugin, NULL, 0, &error);
  pjrt_program_executable *theirs = other == NULL ? NULL : pjrt_program_compile(other, program, &error);
  require(theirs != NULL && (given[0] = pjrt_program_put(theirs, 0, arrays[0], &error)) != NULL);
  require_error(pjrt_program_call_buffers(call, given, made, &error) != 0,
                "arguments must be buffers of the program's client");
  pjrt_program_buffer_free(other, given[0]);
  pjrt_program_executable_free(theirs);
  pjrt_program_client_free(other);
  given[0] = right;
}

/* Calls with buffers, and frees all that they need before they are read. */
static void call_buffers(pjrt_program_call *call, void **results) {
  PJRT_Buffer *given[MOST], *made[MOST], *again[MOST];
  for (size_t i = 0; i < takes; i++)
    require((given[i] = pjrt_program_put(executable, i, arrays[i], &error)) != NULL);
  require(pjrt_program_call_buffers(call, given, made, &error) == 0);
  require(pjrt_program_call_buffers(call, given, again, &error) == 0); /* none was donated */
  refuse_mistakes(call, given);
  for (size_t i = 0; i < takes; i++) pjrt_program_buffer_free(client, given[i]);
  pjrt_program_client_free(client);
  pjrt_program_executable_free(executable);
  for (size_t i = 0; i < gives; i++) {
    size_t nbytes = pjrt_program_results(program)[i].nbytes;
    require(pjrt_program_await(client, made[i], &error) == 0);
    require(pjrt_program_get(client, made[i], results[i], nbytes, &error) == 0);
    void *array = results[i] != NULL ? results[i] : made; /* there is one, of another size */
    require(pjrt_program_get(client, made[i], array, nbytes + 1, &error) != 0);
    require(strstr(error, "and the array has") != NULL);
    pjrt_program_free_error(error);
    /* Elements of less than a byte share bytes on the device. */
    int is_whole = pjrt_program_results(program)[i].type != PJRT_Buffer_Type_S4;
    if (nbytes > 0 && is_whole && pjrt_program_results(program)[i].num_dims < 2) {
      const void *data = pjrt_program_device_pointer(client, again[i], &error);
      require(data != NULL && memcmp(data, results[i], nbytes) == 0);
    }
  }
  pjrt_program_call_free(call);
  for (size_t i = 0; i < gives; i++) {
    pjrt_program_buffer_free(client, made[i]);
    pjrt_program_buffer_free(client, again[i]);
  }
}

int main(int argc, char **argv) {
  require(argc >= 5);
  const PJRT_Api *api = plugin = open_plugin(argv[1]);
  const char *way = argv[4];
  require((program = pjrt_program_read(argv[2], &error)) != NULL);
  takes = pjrt_program_num_parameters(program);
  gives = pjrt_program_num_results(program);
  require(takes == (size_t)argc - 5 && takes <= MOST && gives <= MOST);
  pjrt_program_option options[] = {{"wrong", 9, {.truth = 1}, 1}};
  require(pjrt_program_client_create(api, options, 1, &error) == NULL);
  require(strstr(error, "the option wrong has the type 9") != NULL);
  pjrt_program_free_error(error);
  require((client = pjrt_program_client_create(api, NULL, 0, &error)) != NULL);
  require(pjrt_program_client_handle(client) != NULL);
  require(pjrt_program_client_num_devices(client) >= 1);
  require(pjrt_program_client_device(client, 0) != NULL);
  require(pjrt_program_client_device(client, 1000) == NULL);
  if (strcmp(way, "handler") == 0) {
    void *handler = (void *)triple;
    require(pjrt_program_register_handler(api, "loader_triple", "Host", handler, 0, &error) == 0);
  }
  require((executable = pjrt_program_compile(client, program, &error)) != NULL);
  for (size_t i = 0; i < takes; i++) {
    FILE *file = fopen(argv[5 + i], "rb");
    size_t nbytes = pjrt_program_parameters(program)[i].nbytes;
    arrays[i] = nbytes > 0 ? malloc(nbytes) : NULL;
    require(file != NULL && fread(arrays[i], 1, nbytes, file) == nbytes);
    fclose(file);
  }
  pjrt_program_call *call = pjrt_program_call_create(executable, &error);
  require(call != NULL);
  void **results = new_results();
  if (strcmp(way, "buffers") == 0) {
    call_buffers(call, results);
  } else {
    require(pjrt_program_call_arrays(call, (const void *const *)arrays, results, &error) == 0);
    if (strcmp(way, "threads") == 0) call_threads(results);
    pjrt_program_executable_free(executable); /* the call holds it */
    pjrt_program_client_free(client);
    pjrt_program_call_free(call);
  }
  for (size_t i = 0; i < gives; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%zu.raw", argv[3], i);
    FILE *file = fopen(path, "wb");
    size_t nbytes = pjrt_program_results(program)[i].nbytes;
    require(file != NULL && fwrite(results[i] != NULL ? results[i] : "", 1, nbytes, file) == nbytes);
    fclose(file);
  }
  free_results(results);
  for (size_t i = 0; i < takes; i++) free(arrays[i]);
  pjrt_program_free(program);
}
