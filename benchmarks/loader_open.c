/* Opens a plugin in a new process, and prints the milliseconds: by the loader where the argument is a name, and by dlopen
   and GetPjrtApi alone where it is a path. */
#include <dlfcn.h>
#include <stdio.h>
#include <string.h>
#include <time.h>

#include "pjrt_loader.h"

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return 1e3 * (double)time.tv_sec + 1e-6 * (double)time.tv_nsec;
}

int main(int count, char **words) {
  if (count != 2) return 1;
  double begun = now();
  if (strchr(words[1], '/') == NULL) {
    if (pjrt_loader_open(words[1], NULL, NULL) == NULL) return 2;
  } else {
    void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
    if (library == NULL) return 3;
    void *(*get)(void);
    *(void **)&get = dlsym(library, "GetPjrtApi");
    if (get == NULL || get() == NULL) return 4;
  }
  printf("%.6f\n", now() - begun);
  return 0;
}
