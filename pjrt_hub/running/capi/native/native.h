/* The declarations that all files of the compiled call path share.

   Rules for all of these files:
   - The GIL guards every field and list; it is released only around calls that may block. In a
     Python without one, GUARD (below) does the same; functions that Python calls begin with it.
   - Callbacks of events run on threads of plugins (on_ready) and never touch Python.
   - A native object is destroyed once, by the object that owns it, and never after a fork.

   Each file uses those before it: upcall, process, ticket, function, staging, native_event,
   dispatcher, gate, client, owned, event, dlpack, buffer, deletion, layout, upload, copy, view,
   buffer_type, kv_store, host_transfer, ffi, compiler, argument, output, launch, executable,
   bound_call, stepper, module. */
#pragma once

#include "upcall.h"

#include <pthread.h>
#include <string.h>
#include <structmember.h>
#include <time.h>

/* The limited API of Python 3.11 lacks these names, but they have not changed since 3.8. */
#if defined(Py_LIMITED_API) && Py_LIMITED_API < 0x030c0000
typedef PyObject *(*vectorcallfunc)(PyObject *, PyObject *const *, size_t, PyObject *);
#define Py_TPFLAGS_HAVE_VECTORCALL (1UL << 11)
#define PyVectorcall_NARGS(n) ((Py_ssize_t)((n) & ~((size_t)1 << (8 * sizeof(size_t) - 1))))
#endif

/* In a Python without a GIL, one lock guards the whole call path, from GUARD to the end of the
   block. Like the GIL, it is released between Py_BEGIN_ALLOW_THREADS and its end, and while the
   thread waits for a lock of Python, so code that is right with the GIL is right with this lock.
   Functions that only read constants or that run the user's Python code do without it. */
#ifdef Py_GIL_DISABLED
extern PyObject *guard;
#define GUARD                                                                    \
  __attribute__((cleanup(PyCriticalSection_End))) PyCriticalSection guard_section; \
  PyCriticalSection_Begin(&guard_section, guard)
#else
#define GUARD
#endif

/* Members of type unsigned long long show the addresses of native objects to Python. */
_Static_assert(sizeof(void *) == sizeof(unsigned long long), "addresses have 64 bits");

/* The address of a native object, as Python gets it ("K"). */
#define ADDRESS(pointer) ((unsigned long long)(uintptr_t)(pointer))

/* Tells whether a plugin's table has a function. Older tables are shorter; slots may be empty. */
#define OFFERS(api, function)                                                       \
  ((api)->struct_size >= offsetof(PJRT_Api, function) + sizeof((api)->function) && \
   (api)->function != NULL)

/* The error of calling a function that a plugin lacks. Its address identifies it: the functions of
   process.c that read errors recognize it, and never pass it to the plugin. */
extern char absent_functions[];
#define ABSENT(function) \
  ((PJRT_Error *)&absent_functions[offsetof(PJRT_Api, function) / sizeof(void *)])

/* Calls a function that every accepted table has room for (library.REACHED); it may be missing. */
#define CALL(api, function, args) \
  ((api)->function != NULL ? (api)->function(args) : ABSENT(function))

/* Makes a call that may block, perhaps for work that waits for Python: the GIL is released. */
#define RELEASED(call)       \
  ({                         \
    PJRT_Error *released;    \
    Py_BEGIN_ALLOW_THREADS;  \
    released = (call);       \
    Py_END_ALLOW_THREADS;    \
    released;                \
  })

/* Returns the time of the monotonic clock in nanoseconds. */
static inline int64_t monotonic_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (int64_t)time.tv_sec * 1000000000 + time.tv_nsec;
}

/* Marks functions that few calls need. Kept out of line, they cost the other calls nothing. */
#define COLD __attribute__((cold, noinline))

/* process.c: state that exists once per process, how errors are raised, and how waits end */
extern unsigned fork_generation;
extern bool python_is_asked;
PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function);
PyObject *raise_closed(const char *message);
PyObject *raise_answer(const char *function, const char *what);
int failed(PyObject *raised);
void drop_error(const PJRT_Api *api, PJRT_Error *error);
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error);
bool drop_unimplemented(const PJRT_Api *api, PJRT_Error *error);
bool reclaim(const PJRT_Api *api, PJRT_Error *error);
PyObject *process_reclaim(PyObject *module, PyObject *args);
PyObject *process_read_error(PyObject *module, PyObject *args);
void object_free(PyObject *self);
PyObject *tuple_of(const int64_t *numbers, Py_ssize_t count);
PyObject *process_install(PyObject *module, PyObject *args);
extern bool wait_interrupted;
bool thread_ends(void);
bool wait_goes_on(void);
PyObject *process_ends(PyObject *module, PyObject *unused);
PyObject *process_interrupted(PyObject *module, PyObject *unused);
PyObject *process_interrupt(PyObject *module, PyObject *unused);
PyObject *process_leave(PyObject *module, PyObject *unused);
PyObject *process_aside(PyObject *module, PyObject *callable);

/* ticket.c: numbers that a plugin gets instead of addresses */
typedef struct {
  const PJRT_Api *api;
  void (*act)(void *holder); /* A function that runs on any thread. */
  void *holder;
} Ticket;
void *ticket_issue(Ticket ticket);
bool ticket_look(void *number, Ticket *ticket);
bool ticket_take(void *number, Ticket *ticket);
void ticket_on_delete(void *memory, void *number);
bool ticket_when_ready(PJRT_Event *event, Ticket ticket, PJRT_Error **error);
void ticket_before_fork(void);
void ticket_after_fork(void);

/* function.c: functions of a plugin, called as tables describe them */
#define MOST_BYTES ((Py_ssize_t)1 << 32)    /* The longest text, in bytes. */
#define MOST_ELEMENTS ((Py_ssize_t)1 << 20) /* The longest list, in elements. */
extern PyTypeObject *FunctionType, *FunctionsType;
extern PyType_Spec function_spec, functions_spec;
PyObject *functions_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs, PyObject *names);

/* staging.c: host memory from which uploads are made, and which is kept for later ones */
typedef struct Block Block;
extern PyTypeObject *StagingType;
extern PyType_Spec staging_spec;
Block *staging_take(size_t nbytes);
char *staging_memory(const Block *block);
void staging_give_back(Block *block);
void staging_trim(void);
void staging_before_fork(void);
void staging_after_fork(void);

/* native_event.c: queries of a PJRT_Event, and how a thread waits for one */
typedef struct Latch Latch; /* Threads block on a latch to wait for an event. */
enum { UNTOLD = 2 }; /* The plugin lacks the function that would tell the event's state. */
int event_state(const PJRT_Api *api, PJRT_Event *event);
int event_when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder);
int event_await(const PJRT_Api *api, PJRT_Event *event);
int event_await_pending(const PJRT_Api *api, PJRT_Event *event, Latch **shared, double seconds);
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event);
void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr);
struct timespec seconds_from_now(double seconds);
void monotonic_condition(pthread_cond_t *condition);
void latch_release(Latch *latch);

/* dispatcher.c: calls Python functions once a plugin's work is done */
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

/* gate.c: where launches on a host client wait for their turn */
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

/* client.c: the owner of the native objects, which it frees */
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
/* Returns whether the client was closed, or belongs to the process that this one was forked from. */
static inline bool client_is_over(const ClientObject *client) {
  return client->closed || client->generation != fork_generation;
}
static inline void client_enter(ClientObject *client) { client->busy++; }
static inline void client_leave(ClientObject *client) {
  if (--client->busy == 0 && client->closed) client_finish_close(client);
}

/* owned.c: a native object of a client that a Python function frees */
extern PyTypeObject *OwnedType;
extern PyType_Spec owned_spec;

/* event.c: a PJRT_Event that Python waits for */
typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Event *ptr; /* NULL once the native event is destroyed. */
  Latch *latch;    /* NULL until a thread has to wait for the event. */
  PyObject *kept;  /* An object that the work uses until the event is known to be ready, or NULL. */
} EventObject;
LISTED(EventObject);

extern PyTypeObject *EventType;
extern PyType_Spec event_spec;
PyObject *event_wrap(PyTypeObject *type, ClientObject *client, PJRT_Event *ptr);

/* dlpack.c: lending and borrowing memory */
PyObject *dlpack_lend(PyObject *module, PyObject *args);
PyObject *dlpack_borrow(PyObject *module, PyObject *capsule);

/* buffer.c: the owner of one PJRT_Buffer */
typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Buffer *ptr; /* NULL once the native buffer is destroyed. */
  PyObject *shape;  /* A tuple of int. */
  PyObject *layout; /* The tuple minor_to_major, None for row-major, NULL while it is unknown. */
  PyObject *device;
  PyObject *source; /* The host array whose memory the buffer shares, or NULL. */
  PJRT_Event *done; /* Once this is ready, the plugin no longer reads `source`. */
  int dtype;        /* A PJRT_Buffer_Type. */
  bool dynamic;     /* `shape` is only a bound: the memory holds fewer elements, packed. */
  bool scattered;   /* The memory has tiles or gaps, so only the plugin can read it. */
  bool deleted;
  int launches;     /* Launches on several devices that checked the buffer and will use it. */
  /* If these were __slots__ in Python, each deallocation would search for their descriptors. */
  PyObject *weakrefs, *ready;
} BufferObject;
LISTED(BufferObject);

extern PyTypeObject *BufferType;
extern PyType_Slot buffer_slots[];
bool buffer_refuse(const BufferObject *buffer);
void buffer_type_made(PyTypeObject *type);
PyObject *buffer_note_origins(PyObject *module, PyObject *callable);
bool origin_note(const void *object);
PyObject *buffer_wrap(PyTypeObject *type, ClientObject *client, PJRT_Buffer *ptr, int dtype,
                      PyObject *shape, PyObject *layout, PyObject *device);
PyObject *buffer_wrap_copy(const BufferObject *buffer, PJRT_Buffer *ptr, PyObject *device);
bool buffer_ask_dynamic(const PJRT_Api *api, PJRT_Buffer *ptr);
void buffer_destroy_native(ClientObject *client, PJRT_Buffer *ptr);
int buffer_traverse(PyObject *self, visitproc visit, void *arg);
void buffer_dealloc(PyObject *self);

/* Returns whether the buffer can be used; if not, raises ClosedError. */
static inline bool buffer_usable(const BufferObject *buffer) {
  if (buffer->client == NULL || buffer->ptr == NULL || buffer->deleted) return buffer_refuse(buffer);
  return client_usable(buffer->client);
}

/* deletion.c: freeing a buffer's memory, and asking whether it is gone */
void deletion_catch_up(BufferObject *buffer);
PyObject *deletion_delete(PyObject *self, PyObject *unused);
PyObject *deletion_asked(PyObject *self, void *unused);
PyObject *deletion_looked(PyObject *self, void *unused);
bool deletion_seen(const BufferObject *buffer);
bool deletion_known(const PJRT_Api *api, PJRT_Buffer *ptr);

/* layout.c: the order of a buffer's dimensions in memory */
int layout_know(BufferObject *buffer);
void layout_prove(PyObject **word, BufferObject *output);
void layout_of_put(BufferObject *buffer);
PyObject *buffer_order(PyObject *self, PyObject *unused);

/* upload.c: from host memory to buffers */
typedef struct {
  const void *data;
  size_t nbytes;
  int dtype; /* A PJRT_Buffer_Type. */
  const int64_t *dims;
  size_t rank;
  PJRT_Device *device; /* The destination, unless `memory` is set. */
  PJRT_Memory *memory; /* NULL for the device's default memory. */
} HostMemory; /* Contiguous host memory and its destination. */
bool element_packed(int dtype);
PyObject *numpy_ndarray(void);
bool is_ndarray(PyObject *object);
bool upload_opens(PyObject *object, Py_buffer *view, int *dtype);
PJRT_Error *upload(ClientObject *client, const HostMemory *host, PJRT_Buffer **buffer);
PyObject *upload_plain(PyObject *type, PyObject *const *args, Py_ssize_t nargs);
PyObject *upload_put(PyObject *type, PyObject *args);

/* copy.c: copies of a buffer to another device, and of its bytes into host memory */
PyObject *buffer_copy_to_device(PyObject *self, PyObject *const *args, Py_ssize_t nargs);
PyObject *buffer_copy_raw(PyObject *self, PyObject *const *args, Py_ssize_t nargs);

/* view.c: the host memory of a buffer, lent to numpy */
extern PyTypeObject *HostViewType;
extern PyType_Spec host_view_spec;
PyObject *buffer_view(PyObject *self, PyObject *args);
PyObject *buffer_array(PyObject *self, PyObject *unused);
PyObject *buffer_take_dropped(PyObject *unused, PyObject *none);
int buffer_getbuffer(PyObject *self, Py_buffer *out, int flags);

/* buffer_type.c: the Python type Buffer */
extern PyType_Spec buffer_spec;

/* kv_store.c: key-value stores that plugins use */
PyObject *kv_store(PyObject *module, PyObject *args);

/* host_transfer.c: the data that a running program sends to the host and receives from it */
PyObject *host_transfer(PyObject *module, PyObject *args);
PyObject *host_transfer_end(PyObject *module, PyObject *args);

/* ffi.c: custom calls of XLA FFI, and the contexts of executions */
PyObject *ffi_entry(PyObject *module, PyObject *args);
PyObject *ffi_return(PyObject *module, PyObject *entry);
PyObject *ffi_share(PyObject *module, PyObject *args);
PyObject *ffi_shown(PyObject *module, PyObject *unused);
PyObject *ffi_deleter(PyObject *module, PyObject *unused);
PyObject *ffi_keep(PyObject *module, PyObject *object);
PyObject *ffi_kept(PyObject *module, PyObject *args);
PyObject *capsule_address(PyObject *module, PyObject *capsule);
PJRT_ExecuteContext *ffi_context(const PJRT_Api *api);

/* compiler.c: calls of a plugin's compiler to Python */
PyObject *xla_transform(PyObject *module, PyObject *callable);
PyObject *custom_partitioner(PyObject *module, PyObject *args);

/* The struct of a LoadedExecutable, which argument, output, launch and executable share */
/* The type of a parameter or an output. If a part is unknown (dtype 0, shape or layout NULL), a
   parameter accepts anything there, and each buffer of an output is asked for it. */
typedef struct {
  int dtype;
  PyObject *shape;
  PyObject *layout;
  bool dynamic;     /* Some dimensions are upper bounds. */
  int rank;
  int64_t *dims;        /* The dimensions of `shape`. */
  PyObject *host_dtype; /* The dtype of numpy arrays that are put without conversion, or NULL. */
} Slot;

typedef struct {
  PyObject_HEAD
  Child child;
  vectorcallfunc vectorcall;
  ClientObject *client;
  PJRT_LoadedExecutable *ptr;
  PyTypeObject *buffer_type;
  PyObject *devices; /* A tuple in the order of the argument lists. */
  PyObject *device;  /* The first device, a reference borrowed from the tuple, or NULL. */
  PJRT_Device **places; /* The native devices in the same order. */
  Slot *parameters, *outputs;
  Py_ssize_t num_parameters, num_outputs, num_devices; /* The first is -1 if calls must fail. */
  bool open; /* The parameters are unknown, so all arguments are compared with the first slot. */
  bool closed;
  bool proven;   /* The outputs' layouts have been compared with those of buffers. */
  bool adaptive; /* Brief launches keep the GIL, as launch.c explains. */
  bool brief;    /* Launches are brief, as far as the samples show. */
  bool doubted;  /* The last sample contradicted `brief`. */
  int unsampled; /* The number of launches until the next sample. */
} ExecutableObject;
LISTED(ExecutableObject);

/* Returns whether the executable can still run; if not, raises ClosedError. */
static inline bool executable_usable(const ExecutableObject *exe) {
  if (exe->client != NULL && exe->ptr != NULL && !exe->closed) return client_usable(exe->client);
  if (exe->client == NULL)
    raise_closed("this executable was never loaded by a client");
  else if (client_usable(exe->client))
    raise_closed("the executable is closed");
  return false;
}

/* Returns the slot that an argument is compared with. */
static inline Slot *parameter(const ExecutableObject *exe, Py_ssize_t index) {
  return &exe->parameters[exe->open ? 0 : index];
}

/* Returns whether the program may take that many arguments. */
static inline bool executable_takes(const ExecutableObject *exe, Py_ssize_t arguments) {
  return arguments == exe->num_parameters || exe->open;
}

/* argument.c: each argument is compared with its parameter, and arrays are put on a device */
/* The arrays among a launch's arguments, which are put on a device for this launch only. */
typedef struct {
  PJRT_Device *device; /* The device to put them on, or NULL for the executable's own devices. */
  bool done;           /* True once all arrays are put. A second pass over arguments skips them. */
  PyObject *kept;      /* A list of Buffers that only this launch holds, or NULL. */
  PJRT_Buffer **made;  /* Native buffers that only this launch holds. */
  Py_ssize_t num_made;
} Puts;

int argument_reject(ExecutableObject *exe, Py_ssize_t index, PyObject *argument);
int argument_resolve(Puts *puts, ExecutableObject *exe, Py_ssize_t place, Py_ssize_t index,
                     PyObject *device, PyObject *argument, PJRT_Buffer **out);

/* Compares an argument with its parameter, and puts an array; returns -1 with an exception set.
   This fast test accepts Buffers that hold the very objects of the program's signature, as most do.
   `place` is the index of the row. If `puts` is NULL, arrays are refused. */
static inline int take_argument(Puts *puts, ExecutableObject *exe, Py_ssize_t place,
                                Py_ssize_t index, PyObject *device, PyObject *argument,
                                PJRT_Buffer **out) {
  const Slot *slot = parameter(exe, index);
  const BufferObject *buffer = (const BufferObject *)argument;
  if (Py_TYPE(argument) != exe->buffer_type || buffer->client != exe->client ||
      buffer->ptr == NULL || buffer->deleted || buffer->dtype != slot->dtype ||
      buffer->shape != slot->shape ||
      buffer->layout != slot->layout || (buffer->dynamic | slot->dynamic) ||
      buffer->device != device)
    return argument_resolve(puts, exe, place, index, device, argument, out);
  *out = buffer->ptr;
  return 0;
}

/* output.c: the results of a launch, as Buffers */
PyObject *output_buffer(ExecutableObject *exe, Py_ssize_t index, PJRT_Buffer *output,
                        PyObject *where);
PyObject *output_result(ExecutableObject *exe, PyObject *where, PJRT_Buffer **outputs,
                        bool simplify);

/* launch.c: one execution */
enum { ON_STACK = 256 };

/* The state of a launch, with memory for one device and up to ON_STACK arguments and outputs. */
typedef struct {
  PJRT_Buffer *const *const *inputs; /* [num_devices][num_arguments] */
  PJRT_Buffer ***outputs;            /* [num_devices][num_outputs] */
  Py_ssize_t num_devices, num_arguments;
  PJRT_Event *event, **events; /* An event for each device, if the caller or the gate needs them. */
  bool asked;                  /* The caller wants the events. */
  Puts puts;
  bool together; /* The program runs on several devices. */
  Gate *gate; /* NULL if the launch takes no turn. */
  void *heap;
  PJRT_Buffer **rows[2]; /* The row of inputs and the row of outputs, if there is one device. */
  PJRT_Buffer *buffers[3 * ON_STACK];
} Launch;

int launch_prepare(Launch *launch, ExecutableObject *exe, Py_ssize_t devices, Py_ssize_t arguments,
                   Gate *gate);
void launch_end(Launch *launch, ExecutableObject *exe);
bool launch_turn(Launch *launch, ExecutableObject *exe);
PJRT_Error *launch_alone(ExecutableObject *exe, PJRT_Buffer *const *const *inputs,
                         Py_ssize_t arguments, PJRT_Buffer ***outputs);
PJRT_Error *launch_run(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options);
void launch_refused(Launch *launch, ExecutableObject *exe);
PJRT_Error *launch_again(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                         PJRT_Error *error);
PyObject *launch_failed(ExecutableObject *exe, PJRT_Error *error, PyObject *arguments);
PyObject *launch_recover(Launch *launch, ExecutableObject *exe, PJRT_Error *error,
                         PyObject *arguments, bool simplify);
int launch_refuse_deleted(ExecutableObject *exe, Launch *launch, PyObject *rows);
PyObject *launch_rows(Launch *launch, ExecutableObject *exe, PJRT_ExecuteOptions *options,
                      PyObject *rows, PyObject *devices, PyTypeObject *event_type);

/* Returns a row of inputs for writing. `inputs` must still be what launch_prepare set. */
static inline PJRT_Buffer **launch_row(Launch *launch, Py_ssize_t device) {
  return (PJRT_Buffer **)launch->inputs[device];
}

/* executable.c: the calls of an executable: exe(a, b) and exe.execute(rows) */
extern PyTypeObject *ExecutableType;
extern PyType_Spec executable_spec;
PyObject *executable_wrong_count(ExecutableObject *exe, Py_ssize_t given);
PyObject *executable_row(ExecutableObject *exe, PyObject *rows, Py_ssize_t device, Py_ssize_t count);
Py_ssize_t executable_arguments_in(const ExecutableObject *exe, PyObject *rows);

/* bound_call.c: an executable together with its arguments */
extern PyTypeObject *BoundCallType;
extern PyType_Spec bound_call_spec;
extern PyType_Slot bound_call_slots[];

/* stepper.c: a program whose results are arguments of its next call */
extern PyTypeObject *StepperType;
extern PyType_Spec stepper_spec;
