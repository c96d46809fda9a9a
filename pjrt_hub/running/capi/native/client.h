/* Client: what owns the native objects, and frees them. */
#pragma once

#include "gate.h"

/* What a client destroys before itself: the first member of every object that it lists. */
typedef struct Child {
  struct Child *previous, *next;
  void (*destroy)(struct Child *child); /* frees the native object, once */
  Py_ssize_t views; /* host views into it: while there are any, it and its client stay */
} Child;

/* One PJRT_Client. Its children hold it alive, and it lists them so that close() can destroy them
   before it. */
typedef struct {
  PyObject_HEAD
  const PJRT_Api *api;
  PJRT_Client *ptr;
  Child *children;
  Py_ssize_t busy;  /* native calls in flight without the GIL: destruction waits for them */
  Py_ssize_t views; /* of all its children */
  PyObject *functions; /* of its plugin: a Functions */
  unsigned generation;
  bool closed, freeing; /* close() was called; a thread destroys what can be destroyed */
  int owned;    /* objects that only Python frees: somebody may wait for what Python does */
  bool on_host; /* buffers live in host memory, so destroying one never blocks */
  bool lends;   /* and can be looked into */
  enum { NOT_SEEN, ROWS, ITS_WAY } lays; /* how it has what is put without a wish */
  enum { UNKNOWN, SHARES, COPIES } shares; /* what the plugin does with memory that it may share */
  Turns turns;
  bool outlived; /* by children that the plugin cannot destroy, so it stays, too */
} ClientObject;

/* The object that a Child is the member of. */
#define OWNER(type, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, child)))

extern PyTypeObject *ClientType, *InCallType;
extern PyType_Spec client_spec, in_call_spec;
bool client_refuse(const ClientObject *client);
void client_adopt(ClientObject *client, Child *child, void (*destroy)(Child *child));
void client_disown(ClientObject *client, Child *child);
void client_view_begins(ClientObject *client, Child *child);
void client_view_ended(ClientObject *client, Child *child);
void client_finish_close(ClientObject *client);

/* Whether it is open, in the process that made it; raises ClosedError. */
static inline bool client_usable(const ClientObject *client) {
  return (client->generation == fork_generation && !client->closed && client->ptr != NULL) ||
         client_refuse(client);
}
static inline void client_enter(ClientObject *client) { client->busy++; }
static inline void client_leave(ClientObject *client) {
  if (--client->busy == 0 && client->closed) client_finish_close(client);
}
