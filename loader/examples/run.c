/* Runs a program on a plugin: run PLUGIN PROGRAM [ARRAY ...]. Arrays are files of raw elements;
   prints the elements of the results, which must be f32. */
#include <stdio.h>
#include <stdlib.h>

#include "pjrt_loader.h"
#include "pjrt_program.h"

enum { MOST = 64, F32 = 11 };

static void require(int is_right, const char *error) {
  if (is_right) return;
  fprintf(stderr, "%s\n", error != NULL ? error : "wrong arguments");
  exit(1);
}

int main(int argc, char **argv) {
  char *error = NULL;
  const void *arguments[MOST];
  void *results[MOST];
  require(argc >= 3, "usage: run PLUGIN PROGRAM [ARRAY ...]");
  pjrt_loader_plugin *plugin = pjrt_loader_open(argv[1], NULL, &error);
  require(plugin != NULL, error);
  pjrt_program *program = pjrt_program_read(argv[2], &error);
  require(program != NULL, error);
  size_t takes = pjrt_program_num_parameters(program), gives = pjrt_program_num_results(program);
  require(takes == (size_t)argc - 3 && takes <= MOST && gives <= MOST, NULL);
  pjrt_program_client *client = pjrt_program_client_create(pjrt_loader_api(plugin), NULL, 0, &error);
  require(client != NULL, error);
  pjrt_program_executable *executable = pjrt_program_compile(client, program, &error);
  require(executable != NULL, error);
  pjrt_program_call *call = pjrt_program_call_create(executable, &error);
  require(call != NULL, error);

  for (size_t i = 0; i < takes; i++) {
    size_t nbytes = pjrt_program_parameters(program)[i].nbytes;
    FILE *file = fopen(argv[3 + i], "rb");
    void *array = malloc(nbytes + 1);
    require(file != NULL && fread(array, 1, nbytes + 1, file) == nbytes, argv[3 + i]);
    fclose(file);
    arguments[i] = array;
  }
  for (size_t i = 0; i < gives; i++) results[i] = malloc(pjrt_program_results(program)[i].nbytes);
  require(pjrt_program_call_arrays(call, arguments, results, &error) == 0, error);
  for (size_t i = 0; i < gives; i++) {
    require(pjrt_program_results(program)[i].type == F32, "a result is not f32");
    for (size_t n = 0; n < pjrt_program_results(program)[i].nbytes / sizeof(float); n++)
      printf("%.9g\n", ((float *)results[i])[n]);
    free(results[i]);
  }
  for (size_t i = 0; i < takes; i++) free((void *)arguments[i]);
  pjrt_program_call_free(call);
  pjrt_program_executable_free(executable);
  pjrt_program_client_free(client);
  pjrt_program_free(program);
  pjrt_loader_close(plugin);
}
