/* The base of all C files of pjrt-hub, here, in interpose/layers and in kit/authoring/native: the
   structs of the C API, and how to fill one.

   Memory comes from malloc, calloc and realloc, never from Python's allocators: one file often
   frees what another allocated, on a plugin's thread that has no GIL and may outlive Python. */
#ifndef PJRT_HUB_STRUCTS_H
#define PJRT_HUB_STRUCTS_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include "pjrt_api.h"

/* Declares a struct and sets its size and the fields that follow. All other fields are zero, as the
   C API requires (extension_start and priv are NULL). */
#define SIZED(type, name, ...) type name = {.struct_size = type##_STRUCT_SIZE, __VA_ARGS__}
/* The address of such a struct, for a call whose results nobody reads. */
#define UNREAD(type, ...) (&(type){.struct_size = type##_STRUCT_SIZE, __VA_ARGS__})

/* The largest number of dimensions of a buffer; array/shape_spec.py states the same limit. */
enum { MAX_RANK = 64 };

#endif
