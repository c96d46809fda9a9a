/* Arenas: memory that is freed all at once, and lists in it that grow. */
#ifndef PJRT_PLUGIN_ARENA_H
#define PJRT_PLUGIN_ARENA_H

#include "error.h"

typedef struct PluginChunk {
  struct PluginChunk *next;
  size_t used, size;
} PluginChunk;

typedef struct {
  PluginChunk *chunks;
} PluginArena;

/* Returns zeroed memory. */
static inline void *plugin_take(PluginArena *arena, size_t size) {
  const size_t aligned = 16, chunk_size = 1 << 14;
  const size_t head = (sizeof(PluginChunk) + aligned - 1) / aligned * aligned;
  size = (size + aligned - 1) / aligned * aligned;
  if (arena->chunks == NULL || size > arena->chunks->size - arena->chunks->used) {
    size_t room = size > chunk_size ? size : chunk_size;
    PluginChunk *chunk = (PluginChunk *)plugin_zeroed(1, head + room);
    chunk->next = arena->chunks;
    chunk->size = room;
    arena->chunks = chunk;
  }
  char *taken = (char *)arena->chunks + head + arena->chunks->used;
  arena->chunks->used += size;
  return taken;
}

/* Returns memory for `count` objects and one more, so that even an empty list is not NULL. */
#define PLUGIN_TAKE(arena, type, count) ((type *)plugin_take((arena), ((count) + 1) * sizeof(type)))

static inline void plugin_arena_end(PluginArena *arena) {
  while (arena->chunks != NULL) {
    PluginChunk *chunk = arena->chunks;
    arena->chunks = chunk->next;
    free(chunk);
  }
}

static inline char *plugin_take_text(PluginArena *arena, const char *text, size_t size) {
  char *copy = (char *)plugin_take(arena, size + 1);
  if (size > 0) memcpy(copy, text, size);
  return copy;
}

static inline void *plugin_more(PluginArena *arena, void *list, size_t count, size_t width) {
  if (count > 0 && (count & (count - 1)) != 0) return list;
  void *larger = plugin_take(arena, (count > 0 ? 2 * count : 1) * width);
  if (count > 0) memcpy(larger, list, count * width);
  return larger;
}

/* Adds an item to a list, whose memory doubles when it is full. */
#define PLUGIN_ADD(arena, list, count, item)                                                      \
  do {                                                                                            \
    (list) = (__typeof__(list))plugin_more((arena), (list), (count), sizeof *(list));             \
    (list)[(count)++] = (item);                                                                   \
  } while (0)

#endif
