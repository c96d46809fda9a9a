/* What a call of loader/pjrt_program.c costs beside a raw C loop that makes the same Execute.

   program_call LIBRARY PROGRAM [ROUNDS [CALLS]]: in turns, so that a busy machine slows both down.
   Prints the least time of a call of each, in nanoseconds, and their ratio. */
#define _POSIX_C_SOURCE 199309L
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt_plugin/api.h"
#include "pjrt_program.h"

enum { MOST = 64 };

static const PJRT_Api *api;
static pjrt_program_client *client;
static pjrt_program_call *call;
static PJRT_LoadedExecutable *executable;
static PJRT_Buffer *arguments[MOST], *results[MOST];
static size_t num_arguments, num_results;

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e9 * (double)time.tv_sec + (double)time.tv_nsec;
}

static void require(int is_right, const char *error) {
  if (is_right) return;
  fprintf(stderr, "program_call: %s\n", error);
  exit(1);
}

static void destroy(PJRT_Buffer *buffer) {
  PJRT_Buffer_Destroy_Args args = {.struct_size = PJRT_Buffer_Destroy_Args_STRUCT_SIZE};
  args.buffer = buffer;
  require(api->PJRT_Buffer_Destroy(&args) == NULL, "a buffer cannot be destroyed");
}

/* The raw loop prepares its arguments once, too; none is donated. */
static double raw(long count) {
  int64_t kept[MOST];
  for (size_t i = 0; i < num_arguments; i++) kept[i] = (int64_t)i;
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  options.non_donatable_input_indices = kept;
  options.num_non_donatable_input_indices = num_arguments;
  PJRT_Buffer *const *argument_list = arguments;
  PJRT_Buffer **result_list = results;
  PJRT_LoadedExecutable_Execute_Args args = {
      .struct_size = PJRT_LoadedExecutable_Execute_Args_STRUCT_SIZE,
      .executable = executable,
      .options = &options,
      .argument_lists = &argument_list,
      .num_devices = 1,
      .num_args = num_arguments,
      .output_lists = &result_list,
  };
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    require(api->PJRT_LoadedExecutable_Execute(&args) == NULL, "the raw call failed");
    for (size_t i = 0; i < num_results; i++) destroy(results[i]);
  }
  return (now() - start) / (double)count;
}

static double ours(long count) {
  char *error = NULL;
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    require(pjrt_program_call_buffers(call, arguments, results, &error) == 0, error);
    for (size_t i = 0; i < num_results; i++) pjrt_program_buffer_free(client, results[i]);
  }
  return (now() - start) / (double)count;
}

int main(int argc, char **argv) {
  require(argc >= 3, "usage: program_call LIBRARY PROGRAM [ROUNDS [CALLS]]");
  long rounds = argc > 3 ? atol(argv[3]) : 200, calls = argc > 4 ? atol(argv[4]) : 200;
  char *error = NULL;
  void *library = dlopen(argv[1], RTLD_NOW | RTLD_LOCAL);
  require(library != NULL, "the library cannot be opened");
  api = ((const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi"))();
  PJRT_Plugin_Initialize_Args args = {.struct_size = PJRT_Plugin_Initialize_Args_STRUCT_SIZE};
  require(api->PJRT_Plugin_Initialize(&args) == NULL, "the plugin cannot be initialized");
  pjrt_program *program = pjrt_program_read(argv[2], &error);
  require(program != NULL, error);
  require((client = pjrt_program_client_create(api, NULL, 0, &error)) != NULL, error);
  pjrt_program_executable *compiled = pjrt_program_compile(client, program, &error);
  require(compiled != NULL, error);
  require((call = pjrt_program_call_create(compiled, &error)) != NULL, error);
  executable = pjrt_program_executable_handle(compiled);
  num_arguments = pjrt_program_num_parameters(program);
  num_results = pjrt_program_num_results(program);
  require(num_arguments <= MOST && num_results <= MOST, "too many arguments");
  for (size_t i = 0; i < num_arguments; i++) {
    void *zeros = calloc(1, pjrt_program_parameters(program)[i].nbytes + 1);
    require((arguments[i] = pjrt_program_put(compiled, i, zeros, &error)) != NULL, error);
    free(zeros);
  }
  double best_raw = 1e300, best_ours = 1e300;
  for (long round = 0; round < rounds; round++) {
    double a, b;
    if (round % 2 == 0) {
      a = raw(calls);
      b = ours(calls);
    } else {
      b = ours(calls);
      a = raw(calls);
    }
    if (a < best_raw) best_raw = a;
    if (b < best_ours) best_ours = b;
  }
  printf("raw %.0f ns, pjrt_program %.0f ns, ratio %.4f\n", best_raw, best_ours,
         best_ours / best_raw);
}
