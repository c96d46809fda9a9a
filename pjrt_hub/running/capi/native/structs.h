/* What every C file of ours shares, here, in interpose/layers and in kit/authoring/native: the structs of the
   C API, and how one is filled.

   Memory is malloc's, calloc's and realloc's, and goes by free: what one file takes, often another frees, on a
   thread of a plugin that has no GIL and may outlive Python. Python's objects come from their types. */
#ifndef PJRT_HUB_STRUCTS_H
#define PJRT_HUB_STRUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "pjrt_api.h"

/* Declares a struct that tells its size, with such fields; all others are zero, as the C API asks for
   (extension_start and priv are NULL). */
#define SIZED(type, name, ...) type name = {.struct_size = type##_STRUCT_SIZE, __VA_ARGS__}

/* A buffer has no more dimensions, as bounds.py says. */
enum { MAX_RANK = 64 };

#endif
