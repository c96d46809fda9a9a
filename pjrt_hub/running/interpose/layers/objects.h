/* What the validation layer knows of every handle that it has seen. */
#ifndef PJRT_HUB_OBJECTS_H
#define PJRT_HUB_OBJECTS_H

#include "layers.h"

typedef enum { LIVE, DELETED, DONATED, DESTROYED } State;

typedef struct Object Object;
struct Object {
  Object *next, *self; /* self: the one in the table, of a copy too */
  uintptr_t address, client, parent; /* client: whose it is; parent: what an executable views */
  const Plugin *plugin;
  uint64_t made, ended, executed; /* numbers of calls; executed: the last that it was given to */
  uint64_t retrieved;             /* of a transfer manager: which buffers were taken, by bit */
  uint16_t made_by, ended_by;     /* functions */
  uint8_t kind, state;
  bool lent;           /* nobody destroys it */
  uint32_t told;       /* the findings that were made about it, by bit */
  unsigned generation; /* of the process, as forks count it */
  int uses;            /* calls that it is in */
};

/* objects.c: what asks and changes is for whoever holds the lock. */
HIDDEN void objects_lock(void);
HIDDEN void objects_unlock(void);
HIDDEN void objects_forked(void);
HIDDEN Object *object_at(uintptr_t address, unsigned kind);
HIDDEN Object *object_of_other_kind(uintptr_t address, unsigned kind);
HIDDEN Object *object_made(uintptr_t address, unsigned kind, const Call *call, bool lent);
HIDDEN void each_object(void (*act)(Object *object, void *argument), void *argument);

/* findings.c: the numbers are told in docs/tracing.md and never change their meaning. */
typedef enum {
  DOUBLE_DESTROY = 1,
  USE_AFTER_DESTROY,
  USE_AFTER_DELETE,
  USE_AFTER_DONATION,
  LEAK,
  NO_STRUCT_SIZE,
  SHORT_STRUCT,
  ANOTHER_CLIENT,
  ERROR_LEAK,
  EVENT_LEAK,
  DESTROYED_IN_USE,
  NULL_FIELD,
  ANOTHER_KIND,
  PENDING_ERROR,
  CLIENT_GONE,
  LENT_DESTROYED,
  STALE_EXECUTABLE,
  NO_PLACE,
  STRIDES,
  ELEMENT_TYPE,
  BUFFER_INDEX,
  FORKED,
  ANOTHER_PLUGIN,
  /* from here on the plugin's fault, not the host's */
  CALLED_TWICE,
  NULL_RESULT,
  GIVEN_TWICE,
  ERROR_CODE
} Code;

/* Says what is wrong with a call: a name for the thing, the object where it is about one, more. */
HIDDEN void report(Code code, const Call *call, const char *field, const Object *object,
                   const char *more);

#endif
