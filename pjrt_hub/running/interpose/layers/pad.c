/* The layer for hosts that are older than their plugin: it enlarges their structs to the size that
   new plugins insist on. The added fields are zeros, which ask for nothing. */

#include "layers.h"

enum { MOST = 4 };

/* A struct of the host, and the larger one that the plugin gets instead. */
typedef struct {
  char *own, *padded;
  size_t nbytes;    /* The size of the host's struct. */
  char **pointer;   /* The pointer to that struct; NULL for the arguments. */
} Twin;

struct Padding {
  unsigned count;
  Twin twins[MOST];
};

static bool is_short(const Shape *shape, const char *own) {
  return shape->sized && word_at(own, 0) < shape->struct_size;
}

/* Makes a twin of a struct of the host and returns it. */
static char *pad(Call *call, const Shape *shape, char *own, char **pointer) {
  if (call->padding == NULL) call->padding = calloc(1, sizeof *call->padding);
  struct Padding *padding = call->padding;
  char *padded = calloc(1, shape->nbytes);
  if (padding == NULL || padded == NULL) abort();
  /* Some hosts give too small a size, but no struct was ever smaller than its first version. */
  size_t said = word_at(own, 0), size = shape->struct_size;
  size_t nbytes = said < shape->base_size ? shape->base_size : said;
  memcpy(padded, own, nbytes);
  memcpy(padded, &size, sizeof size);
  padding->twins[padding->count++] = (Twin){own, padded, nbytes, pointer};
  if (pointer != NULL) *pointer = padded;
  return padded;
}

static void before(Call *call) {
  const Shape *shape = call->function->args;
  if (call->answered) return;
  if (is_short(shape, call->args)) call->args = pad(call, shape, call->args, NULL);
  for (unsigned i = 0; i < shape->num_pointers; i++) {
    const Pointer *pointer = &shape->pointers[i];
    if (pointer->form != ONE || pointer->shape == NULL || pointer->direction == OUT) continue;
    if (pointer->at + sizeof(void *) > call->size) continue;
    char **place = (char **)(call->args + pointer->at);
    if (*place == NULL || !is_short(pointer->shape, *place)) continue;
    if (call->padding != NULL && call->padding->count == MOST) continue;
    pad(call, pointer->shape, *place, place);
  }
}

/* Copies what the plugin wrote to the host's structs, except for struct_size. Inner structs come
   first, because the arguments point at them. */
static void after(Call *call) {
  struct Padding *padding = call->padding;
  if (padding == NULL) return;
  while (padding->count > 0) {
    Twin *twin = &padding->twins[--padding->count];
    size_t head = sizeof(size_t);
    if (twin->pointer != NULL) *twin->pointer = twin->own;
    else call->args = twin->own;
    memcpy(twin->own + head, twin->padded + head, twin->nbytes - head);
    free(twin->padded);
  }
  free(padding);
}

const Layer pad_layer = {.name = "pad", .before = before, .after = after};
