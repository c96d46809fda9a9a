/* Client: the owner of the native objects, which it frees. */
#pragma once

#include "gate.h"

/* A member of every object that a client lists and must destroy before itself. */
typedef struct Child {
  struct Child *previous, *next;
  void (*destroy)(struct Child *child); /* Frees the native object. It is called once. */
  Py_ssize_t views; /* Host views of the native object's memory, which keep it and its client. */
} Child;

/* The owner of one PJRT_Client. Its children keep it alive, and it lists them so that close() can
   destroy them first. */
typedef struct {
  PyObject_HEAD
  const PJRT_Api *api;
  PJRT_Client *ptr;
  Child *children;
  Py_ssize_t busy;  /* Native calls in flight without the GIL: destruction waits for them. */
  Py_ssize_t views; /* The host views of all children. */
  PyObject *functions; /* The Functions of the client's plugin. */
  unsigned generation;
  bool closed, freeing; /* Whether close() was called, and whether destruction is under way. */
  int owned;    /* Objects that only Python frees: if there are any, native work may wait for it. */
  bool on_host; /* Buffers live in host memory, so destroying one never blocks. */
  bool lends;   /* Buffers live in host memory that can be read in place. */
  enum { NOT_SEEN, ROWS, ITS_WAY } lays; /* The layout that the plugin chooses for buffers. */
  enum { UNKNOWN, SHARES, COPIES } shares; /* What the plugin does with memory that it may share. */
  Turns turns;
  bool outlived; /* The plugin cannot destroy some child, so the client stays, too. */
} ClientObject;

/* The object that contains a Child. */
#define OWNER(type, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, child)))

/* Checks that a type begins with its Child, so that the client finds the object without the type. */
#define LISTED(type) _Static_assert(offsetof(type, child) == sizeof(PyObject), #type)

extern PyTypeObject *ClientType, *InCallType;
extern PyType_Spec client_spec, in_call_spec;
bool client_refuse(const ClientObject *client);
void client_adopt(ClientObject *client, Child *child, void (*destroy)(Child *child));
void client_disown(ClientObject *client, Child *child);
void client_view_begins(ClientObject *client, Child *child);
void client_view_ended(ClientObject *client, Child *child);
void client_finish_close(ClientObject *client);

/* Returns whether the client is open and made by this process; if not, raises ClosedError. */
static inline bool client_usable(const ClientObject *client) {
  return (client->generation == fork_generation && !client->closed && client->ptr != NULL) ||
         client_refuse(client);
}
static inline void client_enter(ClientObject *client) { client->busy++; }
static inline void client_leave(ClientObject *client) {
  if (--client->busy == 0 && client->closed) client_finish_close(client);
}
