/* Loads the plugin at the path REAL, and copies its table so that it can be changed. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"

static const PJRT_Api *real;

static PJRT_Api *copy_of_real(void) {
  static PJRT_Api copy;
  if (real == NULL) {
    const PJRT_Api *(*entry)(void) = dlsym(dlopen(REAL, RTLD_NOW | RTLD_LOCAL), "GetPjrtApi");
    real = entry();
    memcpy(&copy, real, real->struct_size);
  }
  return &copy;
}
