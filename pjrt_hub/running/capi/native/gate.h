/* Gate: where launches on a host client wait for their turn. */
#pragma once

#include "process.h"

typedef struct Gate Gate;

/* How the launches of a client take turns. */
typedef struct {
  Gate *gate;        /* NULL if launches take no turns. */
  bool sparing;      /* Only some launches are followed; see gate.c. */
  int skip, skipped; /* The launches to leave unfollowed: those that remain, and the total. */
} Turns;

bool gate_open(Turns *turns, const PJRT_Api *api, bool sparing);
Gate *gate_find(Turns *turns);
void gate_skip(Turns *turns);
void gate_let_go(Gate *gate);
bool gate_begin(Gate *gate, bool together);
void gate_give_up(Gate *gate, bool together, bool broke);
bool gate_follow(Gate *gate, bool together, PJRT_Event **events, Py_ssize_t count);

/* Returns the gate of a launch that begins now, or NULL if it takes no turn. */
static inline Gate *gate_for(Turns *turns) {
  if (turns->gate == NULL || !turns->sparing) return turns->gate;
  if (--turns->skip >= 0) return NULL;
  return gate_find(turns);
}
