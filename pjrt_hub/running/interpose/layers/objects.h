/* The validation layer's knowledge of every handle that it has seen. */
#ifndef PJRT_HUB_OBJECTS_H
#define PJRT_HUB_OBJECTS_H

#include "layers.h"

typedef enum { LIVE, DELETED, DONATED, DESTROYED } State;

typedef struct Object Object;
struct Object {
  Object *next, *self; /* `self` is the entry in the table, even in a copy of it. */
  uintptr_t address, client, parent; /* `parent` is the loaded executable that it is a view of. */
  const Plugin *plugin;
  uint64_t made, ended, executed; /* Numbers of calls; `executed` is the last Execute with it. */
  uint64_t retrieved;             /* A bit for each buffer taken from a transfer manager. */
  uint16_t made_by, ended_by;     /* The functions of those calls. */
  uint8_t kind, state;
  bool lent;           /* The host must not destroy it. */
  uint32_t told;       /* A bit for each finding that was reported about it. */
  unsigned generation; /* The generation() of the process that made it. */
  int uses;            /* The number of calls that are using it. */
};

/* objects.c: the functions after objects_forked need the lock. */
HIDDEN void objects_lock(void);
HIDDEN void objects_unlock(void);
HIDDEN void objects_forked(void);
HIDDEN Object *object_at(uintptr_t address, unsigned kind);
HIDDEN Object *object_of_other_kind(uintptr_t address, unsigned kind);
HIDDEN Object *object_made(uintptr_t address, unsigned kind, const Call *call, bool lent);
HIDDEN void each_object(void (*act)(Object *object, void *argument), void *argument);

/* findings.c: docs/tracing.md explains these numbers, which never change their meaning. */
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
  /* From here on, the plugin is at fault, not the host. */
  CALLED_TWICE,
  NULL_RESULT,
  GIVEN_TWICE,
  ERROR_CODE
} Code;

/* Reports what is wrong with a call. `field`, `object` and `more` may be NULL. */
HIDDEN void report(Code code, const Call *call, const char *field, const Object *object,
                   const char *more);

#endif
