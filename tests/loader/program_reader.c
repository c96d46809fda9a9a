/* Reads files of programs without a plugin, for test_program.py.

   program_reader FILE ...: prints what each is, or the first line of its error.
   program_reader --fuzz COUNT FILE: reads COUNT damaged copies of a file. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_program.h"

static uint64_t state = 88172645463325252u;

static uint64_t next(void) {
  state ^= state << 13;
  state ^= state >> 7;
  return state ^= state << 17;
}

/* Touches all that a program tells. */
static uint64_t sum_of(const pjrt_program *program) {
  uint64_t sum = 0;
  for (int side = 0; side < 2; side++) {
    size_t count = side == 0 ? pjrt_program_num_parameters(program) : pjrt_program_num_results(program);
    const pjrt_program_value *values =
        side == 0 ? pjrt_program_parameters(program) : pjrt_program_results(program);
    for (size_t i = 0; i < count; i++) {
      sum += strlen(values[i].name) + (uint64_t)values[i].type + values[i].nbytes;
      for (size_t d = 0; d < values[i].num_dims; d++) sum += (uint64_t)values[i].dims[d];
    }
  }
  return sum;
}

static int fuzz(long count, const char *path) {
  FILE *file = fopen(path, "rb");
  static unsigned char whole[1 << 16];
  size_t nbytes = file != NULL ? fread(whole, 1, sizeof whole, file) : 0;
  if (nbytes == 0) return 1;
  fclose(file);
  static const uint64_t extremes[] = {0, 1, 7, 8, 0x7F, 0xFF, 0xFFFF, 0x7FFFFFFF, 0xFFFFFFFF,
                                      (uint64_t)1 << 62, INT64_MAX, UINT64_MAX};
  long readable = 0;
  for (long turn = 0; turn < count; turn++) {
    unsigned char *copy = malloc(nbytes);
    memcpy(copy, whole, nbytes);
    size_t size = next() % 8 == 0 ? next() % (nbytes + 1) : nbytes;
    /* Most changes hit the head, the table or the values, which are short. */
    for (uint64_t changes = 1 + next() % 3; changes > 0; changes--) {
      size_t at = (next() % 2 == 0 ? next() % 144 : next() % nbytes) & ~(size_t)3;
      size_t width = next() % 2 == 0 ? 4 : 8;
      uint64_t value = next() % 2 == 0 ? extremes[next() % 12] : next() % (2 * nbytes);
      if (at + width <= nbytes) memcpy(copy + at, &value, width);
    }
    char *error = NULL;
    pjrt_program *program = pjrt_program_parse(copy, size, &error);
    free(copy);
    if ((program == NULL) != (error != NULL)) return 1;
    if (program != NULL) readable += sum_of(program) > 0;
    pjrt_program_free(program);
    pjrt_program_free_error(error);
  }
  printf("%s\n", readable > 0 && readable < count ? "some of each" : "all alike");
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 4 && strcmp(argv[1], "--fuzz") == 0) return fuzz(atol(argv[2]), argv[3]);
  for (int i = 1; i < argc; i++) {
    char *error = NULL;
    pjrt_program *program = pjrt_program_read(argv[i], &error);
    if (program == NULL) {
      printf("%.*s\n", (int)strcspn(error, "\n"), error);
      pjrt_program_free_error(error);
      continue;
    }
    printf("reads:");
    for (size_t p = 0; p < pjrt_program_num_parameters(program); p++) {
      const pjrt_program_value *value = &pjrt_program_parameters(program)[p];
      printf(" %s=%d/%zu/%zu", value->name, value->type, value->num_dims, value->nbytes);
    }
    printf("\n");
    pjrt_program_free(program);
  }
  return 0;
}
