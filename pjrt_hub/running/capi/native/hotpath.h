/* What the files of the compiled call path share: the objects and the few functions between them.
   Each file uses those before it: process, ticket, upcall, function, staging, native_event, dispatcher,
   gate, client, owned, event, dlpack, buffer, deletion, layout, upload, copy, view, buffer_type,
   kv_store, host_transfer, ffi, compiler, argument, output, launch, executable, bound_call, compact,
   module.

   Rules that hold everywhere in it:
   - The GIL guards every field and list; it is released only around calls that may block. Where
     there is none, GUARD does the same: whatever Python calls begins with it, see below.
   - Code that a plugin's threads run (on_ready) never touches Python.
   - A native object is destroyed once, by the object that owns it, and never after a fork. */
#ifndef PJRT_HUB_HOTPATH_H
#define PJRT_HUB_HOTPATH_H

#include "upcall.h"

#include <structmember.h>

/* Python 3.11's limited API lacks these names; the layout behind them is stable since 3.8. */
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#define PyVectorcall_NARGS(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
#endif

/* Python without a GIL: one lock for all of the call path, from here to the end of the block. As the GIL
   would be, it is let go between Py_BEGIN_ALLOW_THREADS and its end, and where the thread waits for a
   lock of Python's; so whatever is right under the GIL is right under it. With a GIL it is nothing.
   Functions that only read what never changes, and those that run a program's own Python, lack it. */
#ifdef Py_GIL_DISABLED
extern PyObject *guard;
#define GUARD                                                                    \
  __attribute__((cleanup(PyCriticalSection_End))) PyCriticalSection guard_section; \
  PyCriticalSection_Begin(&guard_section, guard)
#else
#define GUARD
#endif

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
  struct Gate *gate; /* NULL: nobody knows where executions are */
  bool sparing;              /* they need no turns: only some are followed, see gate_for */
  bool outlived; /* by children that the plugin cannot destroy, so it stays, too */
  int skip, skipped;         /* launches until the next that is; between it and the latest */
} ClientObject;

typedef struct Latch Latch; /* native_event.c: what waits block on */

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Event *ptr; /* NULL once destroyed */
  Latch *latch;    /* NULL until somebody waits while it is pending */
  PyObject *kept;  /* what the work uses, let go once the event is known to be ready; or NULL */
} EventObject;

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Buffer *ptr; /* NULL once destroyed */
  PyObject *shape;  /* tuple of int */
  PyObject *layout; /* minor_to_major as a tuple, None for row-major, NULL for not asked yet */
  PyObject *device;
  PyObject *source; /* the host array whose memory the buffer shares, or NULL */
  PJRT_Event *done; /* with source: the plugin no longer looks into it */
  int dtype;        /* PJRT_Buffer_Type */
  bool dynamic;     /* the shape is a bound: what lies in memory is less, packed */
  bool scattered;   /* there are tiles or gaps: only the plugin can read it */
  bool deleted;
  int launches;     /* on several devices, that have checked it and not used it yet */
  /* Python's attributes: were they slots of the Python class, the end of each Buffer would look for
     them by their descriptions. */
  PyObject *weakrefs, *ready;
} BufferObject;

/* What one parameter must be, or what one output is. What nobody tells (dtype 0, shape and layout
   NULL) is any for a parameter, and asked of each buffer for an output. */
typedef struct {
  int dtype;
  PyObject *shape;
  PyObject *layout;
  bool dynamic;     /* some dimensions are bounds */
  int rank;
  int64_t *dims;        /* the shape */
  PyObject *host_dtype; /* of a numpy array that was put as it lies, or NULL */
} Slot;

typedef struct {
  PyObject_HEAD
  Child child;
  vectorcallfunc vectorcall;
  ClientObject *client;
  PJRT_LoadedExecutable *ptr;
  PyTypeObject *buffer_type;
  PyObject *devices; /* tuple, in the order of the argument lists */
  PyObject *device;  /* the first of them, which the tuple holds, or NULL */
  PJRT_Device **places; /* the same */
  Slot *parameters, *outputs;
  Py_ssize_t num_parameters, num_outputs, num_devices; /* the first -1 where it cannot be called */
  bool open; /* nobody tells what it takes: any number of arguments, each like the one parameter */
  bool closed;
  bool proven;   /* the outputs' layouts were compared with those of buffers */
  bool adaptive; /* launches that are known to be short keep the GIL: see launch.c */
  bool brief;    /* they are, as far as is known */
  bool doubted;  /* the last sample said otherwise */
  int unsampled; /* launches until the next sample */
} ExecutableObject;

/* Whether a plugin's table has a function: older ones are shorter, and slots may be empty. */
#define OFFERS(api, function)                                                       \
  ((api)->struct_size >= offsetof(PJRT_Api, function) + sizeof((api)->function) && \
   (api)->function != NULL)

/* The error of calling a function that a plugin lacks. It is told apart by its address: nothing of
   the plugin is asked about it, and every reader of errors in process.c knows it. */
extern char absent_functions[];
#define ABSENT(function) \
  ((PJRT_Error *)&absent_functions[offsetof(PJRT_Api, function) / sizeof(void *)])

/* Calls a function of those that every table is long enough for (library.REACHED), be it there or
   not. */
#define CALL(api, function, args) \
  ((api)->function != NULL ? (api)->function(args) : ABSENT(function))

/* The object that a Child is the member of. */
#define OWNER(type, pointer) ((type *)(void *)((char *)(pointer)-offsetof(type, child)))

/* process.c: what is one for the process. */
extern unsigned fork_generation;
extern bool python_is_asked;
PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function);
PyObject *raise_closed(const char *message);
PyObject *raise_answer(const char *function, const char *what);
void drop_error(const PJRT_Api *api, PJRT_Error *error);
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error);
PyObject *process_install(PyObject *module, PyObject *args);
extern bool wait_interrupted;
bool thread_ends(void);
PyObject *process_ends(PyObject *module, PyObject *unused);
PyObject *process_interrupted(PyObject *module, PyObject *unused);
PyObject *process_interrupt(PyObject *module, PyObject *unused);
PyObject *process_leave(PyObject *module, PyObject *unused);
PyObject *process_aside(PyObject *module, PyObject *callable);

/* ticket.c */
typedef struct {
  const PJRT_Api *api;
  void (*act)(void *holder); /* on any thread */
  void *holder;
} Ticket;
void *ticket_issue(Ticket ticket);
bool ticket_look(void *number, Ticket *ticket);
bool ticket_take(void *number, Ticket *ticket);
void ticket_on_delete(void *memory, void *number);
bool ticket_when_ready(PJRT_Event *event, Ticket ticket, PJRT_Error **error);
void ticket_before_fork(void);
void ticket_after_fork(void);

/* function.c */
#define MOST_BYTES ((Py_ssize_t)1 << 32)    /* what bounds.py says of texts */
#define MOST_ELEMENTS ((Py_ssize_t)1 << 20) /* and of lists */
extern PyTypeObject *FunctionType, *FunctionsType;
extern PyType_Spec function_spec, functions_spec;
PyObject *functions_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);

/* staging.c */
typedef struct Block Block;
extern PyTypeObject *StagingType;
extern PyType_Spec staging_spec;
Block *staging_take(size_t nbytes);
char *staging_memory(const Block *block);
void staging_give_back(Block *block);
void staging_trim(void);
void staging_before_fork(void);
void staging_after_fork(void);

/* native_event.c */
enum { UNTOLD = 2 }; /* the plugin has no function that says it */
int event_state(const PJRT_Api *api, PJRT_Event *event);
int event_when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder);
int event_await(const PJRT_Api *api, PJRT_Event *event);
int event_await_pending(const PJRT_Api *api, PJRT_Event *event, Latch **shared, double seconds);
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event);
void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr);
void latch_release(Latch *latch);

/* dispatcher.c */
bool dispatcher_call(PyObject *callable);
void dispatcher_let_go(const PJRT_Api *api, PJRT_Event *event, PyObject *object);
PyObject *dispatcher_notify(PyObject *module, PyObject *args);
PyObject *dispatcher_keep(PyObject *module, PyObject *args);
PyObject *dispatcher_deleter(PyObject *module, PyObject *args);
PyObject *dispatcher_wake(PyObject *module, PyObject *fd);
PyObject *dispatcher_dispatch(PyObject *module, PyObject *unused);
PyObject *dispatcher_end(PyObject *module, PyObject *unused);
void dispatcher_reset(void);
void report_unraisable(PyObject *callable);

/* gate.c */
typedef struct Gate Gate;
Gate *gate_new(const PJRT_Api *api);
Gate *gate_find(ClientObject *client);
void gate_skip(ClientObject *client);
void gate_let_go(Gate *gate);
bool gate_begin(Gate *gate, bool together);
void gate_give_up(Gate *gate, bool together, bool broke);
bool gate_follow(Gate *gate, bool together, PJRT_Event **events, Py_ssize_t count);

/* What a launch that begins now takes its turn with, or NULL. */
static inline Gate *gate_for(ClientObject *client) {
  if (client->gate == NULL || !client->sparing) return client->gate;
  if (--client->skip >= 0) return NULL;
  return gate_find(client);
}

/* client.c */
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

/* owned.c */
extern PyTypeObject *OwnedType;
extern PyType_Spec owned_spec;

/* event.c */
extern PyTypeObject *EventType;
extern PyType_Spec event_spec;
PyObject *event_wrap(PyTypeObject *type, ClientObject *client, PJRT_Event *ptr);

/* dlpack.c */
PyObject *dlpack_lend(PyObject *module, PyObject *args);
PyObject *dlpack_borrow(PyObject *module, PyObject *capsule);

/* buffer.c */
extern PyTypeObject *BufferType;
extern PyType_Slot buffer_slots[];
bool buffer_refuse(const BufferObject *buffer);
void buffer_type_made(PyTypeObject *type);
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device);
bool buffer_ask_dynamic(const PJRT_Api *api, PJRT_Buffer *ptr);
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr);
int buffer_traverse(PyObject *self, visitproc visit, void *arg);
void buffer_dealloc(PyObject *self);
/* Whether there is one to use; raises ClosedError. */
static inline bool buffer_usable(const BufferObject *buffer) {
  if (buffer->client == NULL || buffer->ptr == NULL || buffer->deleted) return buffer_refuse(buffer);
  return client_usable(buffer->client);
}

/* deletion.c */
void deletion_catch_up(BufferObject *buffer);
PyObject *deletion_delete(PyObject *self, PyObject *unused);
PyObject *deletion_asked(PyObject *self, void *unused);
PyObject *deletion_looked(PyObject *self, void *unused);
bool deletion_seen(const BufferObject *buffer);
bool deletion_known(const PJRT_Api *api, PJRT_Buffer *ptr);

/* layout.c */
int layout_know(BufferObject *buffer);
void layout_prove(Slot *slot, BufferObject *output);
void layout_of_put(BufferObject *buffer);
PyObject *buffer_order(PyObject *self, PyObject *unused);

/* upload.c */
typedef struct {
  const void *data;
  size_t nbytes;
  int dtype; /* PJRT_Buffer_Type */
  const int64_t *dims;
  size_t rank;
  PJRT_Device *device; /* or memory */
  PJRT_Memory *memory; /* NULL: the device's own */
} HostMemory; /* contiguous */
bool element_packed(int dtype);
bool upload_opens(PyObject *object, Py_buffer *view, int *dtype);
PJRT_Error *upload(ClientObject *client, const HostMemory *host, PJRT_Buffer **buffer);
PyObject *upload_plain(PyObject *type, PyObject *const *args, Py_ssize_t nargs);
PyObject *upload_put(PyObject *type, PyObject *args);

/* copy.c */
PyObject *buffer_copy_to_device(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *buffer_copy_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

/* view.c */
extern PyTypeObject *HostViewType;
extern PyType_Spec host_view_spec;
PyObject *buffer_view(PyObject *self, PyObject *args);
PyObject *buffer_array(PyObject *self, PyObject *unused);
PyObject *buffer_take_dropped(PyObject *unused, PyObject *none);
int buffer_getbuffer(PyObject *self, Py_buffer *out, int flags);

/* buffer_type.c */
extern PyType_Spec buffer_spec;

/* kv_store.c */
PyObject *kv_store(PyObject *module, PyObject *args);

/* host_transfer.c */
PyObject *host_transfer(PyObject *module, PyObject *args);
PyObject *host_transfer_end(PyObject *module, PyObject *args);

/* ffi.c */
PyObject *ffi_entry(PyObject *module, PyObject *args);
PyObject *ffi_return(PyObject *module, PyObject *entry);
PyObject *ffi_share(PyObject *module, PyObject *args);
PyObject *ffi_shown(PyObject *module, PyObject *unused);
PyObject *ffi_deleter(PyObject *module, PyObject *unused);
PyObject *ffi_keep(PyObject *module, PyObject *object);
PyObject *ffi_kept(PyObject *module, PyObject *args);
PyObject *capsule_address(PyObject *module, PyObject *capsule);
PJRT_ExecuteContext *ffi_context(const PJRT_Api *api);

/* compiler.c */
PyObject *xla_transform(PyObject *module, PyObject *callable);
PyObject *custom_partitioner(PyObject *module, PyObject *args);

/* executable.c */
extern PyTypeObject *ExecutableType;
extern PyType_Spec executable_spec;
PyObject *executable_wrong_count(ExecutableObject *exe, Py_ssize_t given);

/* bound_call.c */
extern PyTypeObject *BoundCallType;
extern PyType_Spec bound_call_spec;
extern PyType_Slot bound_call_slots[];

/* compact.c */
PyObject *compact_type(PyObject *module, PyObject *statement);

#endif
