/* Copies a call's arguments with all that they point at except host data. */
#include "discrete.h"

enum { CHAIN_AT = sizeof(size_t) }; /* The offset of the extension chain. */

struct Piece {
  Piece *next;
  max_align_t bytes[];
};

void *arena_take(Arena *arena, size_t nbytes) {
  Piece *piece = take(sizeof *piece + nbytes + 1);
  piece->next = arena->pieces;
  arena->pieces = piece;
  return piece->bytes;
}

void arena_free(Arena *arena) {
  for (Piece *piece = arena->pieces, *next; piece != NULL; piece = next) {
    next = piece->next;
    free(piece);
  }
}

static void *keep(Arena *arena, const void *from, size_t nbytes) {
  return memcpy(arena_take(arena, nbytes), from, nbytes);
}

static void put(char *base, unsigned at, const void *pointer) {
  memcpy(base + at, &pointer, sizeof pointer);
}

/* Copies the extension chain of the arguments, by which profilers identify a call. The chains of
   inner structs are cut instead, because some hosts leave these uninitialized. */
static PJRT_Extension_Base *copy_chain(Arena *arena, const PJRT_Extension_Base *node) {
  PJRT_Extension_Base *first = NULL, **last = &first;
  for (; node != NULL; node = node->next) {
    *last = keep(arena, node, node->struct_size);
    last = &(*last)->next;
  }
  return first;
}

/* Limits struct_size to what is copied, because the struct of a newer host is larger. */
static void tell_size(const Shape *shape, char *base) {
  size_t most = shape->struct_size;
  if (shape->sized && word_at(base, 0) > most) memcpy(base, &most, sizeof most);
}

static void copy_contents(Arena *arena, const Shape *shape, char *base, size_t size);

static void copy_pointer(Arena *arena, const Pointer *pointer, char *base) {
  const char *target = pointer_at(base, pointer->at);
  size_t count = count_of(pointer, base);
  if (target == NULL || count == 0) return;
  const Shape *shape = pointer->shape;
  size_t inner = pointer->inner_at != 0 ? word_at(base, pointer->inner_at) : 0, sum = 0;
  void **rows;
  const size_t *lengths;
  char *copy;
  switch ((Form)pointer->form) {
    case ONE:
    case COUNTED:
      copy = arena_take(arena, count * (shape != NULL ? shape->nbytes : pointer->element));
      memcpy(copy, target,
             shape == NULL ? count * pointer->element
             : pointer->form == ONE && shape->sized ? known_size(shape, target)
                                                    : count * shape->nbytes);
      for (size_t i = 0; shape != NULL && i < count; i++) {
        char *each = copy + i * shape->nbytes;
        copy_contents(arena, shape, each, known_size(shape, each));
      }
      put(base, pointer->at, copy);
      break;
    case ROWS:
      rows = keep(arena, target, count * sizeof *rows);
      for (size_t i = 0; i < count; i++)
        if (rows[i] != NULL) rows[i] = keep(arena, rows[i], inner * pointer->element);
      put(base, pointer->at, rows);
      break;
    case SUM:
      lengths = (const size_t *)inner;
      for (size_t i = 0; lengths != NULL && i < count; i++) sum += lengths[i];
      put(base, pointer->at, keep(arena, target, sum * pointer->element));
      break;
    case TERMINATED:
      put(base, pointer->at, keep(arena, target, strlen(target) + 1));
      break;
    case RAGGED:
    case OUTPUTS:
      break;
  }
}

static void copy_contents(Arena *arena, const Shape *shape, char *base, size_t size) {
  tell_size(shape, base);
  if (shape->first_at > CHAIN_AT) put(base, CHAIN_AT, NULL);
  for (unsigned i = 0; i < shape->num_pointers; i++) {
    const Pointer *pointer = &shape->pointers[i];
    if (pointer->direction != IN || pointer->at + sizeof(void *) > size) continue;
    if (is_valid(pointer, base)) copy_pointer(arena, pointer, base);
  }
}

/* Copies an execution's callbacks, a row for each device. The options lack the number of rows. */
static void *copy_callbacks(Arena *arena, void *rows, size_t devices, size_t nbytes) {
  if (rows == NULL || nbytes == 0) return rows;
  void **copy = keep(arena, rows, devices * sizeof *copy);
  for (size_t i = 0; i < devices; i++)
    if (copy[i] != NULL) copy[i] = keep(arena, copy[i], nbytes);
  return copy;
}

char *arguments_copy(Arena *arena, Plugin *plugin, unsigned function, const char *args) {
  const Shape *shape = functions[function].args;
  size_t size = known_size(shape, args);
  char *copy = arena_take(arena, shape->nbytes);
  memcpy(copy, args, size);
  copy_contents(arena, shape, copy, size);
  /* Nodes have a struct_size only since API 0.45. */
  put(copy, CHAIN_AT, plugin->minor < 45 ? NULL : copy_chain(arena, pointer_at(args, CHAIN_AT)));
  if (function == FN_PJRT_LoadedExecutable_Execute) {
    PJRT_LoadedExecutable_Execute_Args *execute = (PJRT_LoadedExecutable_Execute_Args *)copy;
    PJRT_ExecuteOptions *options = execute->options;
    size_t devices = execute->num_devices;
    options->send_callbacks = copy_callbacks(arena, options->send_callbacks, devices,
                                             options->num_send_ops * sizeof(PJRT_SendCallbackInfo));
    options->recv_callbacks = copy_callbacks(arena, options->recv_callbacks, devices,
                                             options->num_recv_ops * sizeof(PJRT_RecvCallbackInfo));
  }
  return copy;
}
