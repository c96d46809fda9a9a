/* An accelerator in software: it makes the plugin's devices behave like a GPU or a TPU.

   Hosts hold proxies of buffers and events, which get the plugin's own objects once these exist. A
   call that moves data or runs a program becomes an operation: the call returns before the
   operation begins, a seeded schedule decides when it begins and when its events fire, and its
   errors arrive in these events. Addresses of device memory fault, no memory is shared with the
   host's arrays, and the capacity of a device is limited.

   The schedule's lock guards all of this. It is never held while the plugin or the host is called.

   Each file uses those before it: schedule, settings, tiling, proxy, transfer, layout, room,
   arguments, program, operation, question, answers, discrete. */
#ifndef PJRT_HUB_DISCRETE_H
#define PJRT_HUB_DISCRETE_H

#include "../layers.h"

/* Returns zeroed memory, or aborts the process if there is none. */
static inline void *take(size_t nbytes) {
  void *taken = calloc(1, nbytes + 1);
  if (taken == NULL) abort();
  return taken;
}

/* An outcome: an error, or success if it is NULL. It is never freed, because errors are few. */
typedef struct {
  PJRT_Error_Code code;
  size_t length;
  char text[];
} Status;

/* schedule.c: time advances with the host's calls that move data or run programs. */

/* Work that begins at the time `due`, once the moments that `waits` counts have happened. */
typedef struct Task Task;
struct Task {
  Task *next;
  uint64_t due;
  unsigned waits;
  bool fires; /* It tells the host something, and the next task begins afterwards. */
  bool ends;  /* The plugin is working on it and will end it by itself. */
  bool late;  /* Later tasks no longer wait for it. */
  void (*run)(Task *task);
};

/* Something that happens once, not before the time `due`, and the tasks that wait for it. */
typedef struct Wait Wait;
typedef struct {
  bool happened;
  const Status *status;
  uint64_t due;
  Wait *waits;
} Moment;

HIDDEN void schedule_start(uint64_t seed, unsigned window, bool hold, uint64_t silence);
HIDDEN void schedule_lock(void);
HIDDEN void schedule_unlock(void);
#define LOCKED(step)   \
  do {                 \
    schedule_lock();   \
    step;              \
    schedule_unlock(); \
  } while (0)
HIDDEN void schedule_forked(void);
/* The caller of the functions below holds the lock. */
HIDDEN uint64_t schedule_due(uint64_t after);
HIDDEN void schedule_add(Task *task);
HIDDEN void schedule_after(Task *task, Moment *moment);
HIDDEN void schedule_hurry(uint64_t due);
HIDDEN void schedule_wake(void); /* Wakes all threads that sleep here. */
HIDDEN void schedule_sleep(void); /* Sleeps until schedule_wake is called. */
/* Sleeps until schedule_wake is called or `end` is reached. Returns false in the second case. */
HIDDEN bool schedule_sleep_until(const struct timespec *end);
HIDDEN struct timespec schedule_from_now(uint64_t ns);
HIDDEN void schedule_drain(void);
HIDDEN void moment_happen(Moment *moment, const Status *status);
HIDDEN void moment_await(Moment *moment);

/* settings.c: PJRT_HUB_DISCRETE */
typedef struct {
  char platform[32];
  uint64_t seed, capacity, silence; /* `capacity` is in bytes, `silence` in ms; 0 is unset. */
  unsigned window;
  bool hold, prompt, tiled;
} Settings;
extern HIDDEN Settings settings;
HIDDEN void settings_read(const char *text);

/* tiling.c: arrays in tiles */

enum { MOST_RANK = 16, MOST_TILES = 3, MOST_SIZES = MOST_RANK + 2 * MOST_TILES };
typedef struct {
  size_t rank, count, bits; /* There are `count` elements of `bits` bits; a scalar has rank 1. */
  size_t nbytes, dense_nbytes;
  int64_t sizes[MOST_RANK]; /* The dimensions, with the slowest one first. */
  size_t num_tiles, tile_ranks[MOST_TILES];
  int64_t tile_dims[2 * MOST_TILES];
} Tiling;
HIDDEN size_t bits_of(PJRT_Buffer_Type type);
HIDDEN const int64_t *tiling_order(const PJRT_Buffer_MemoryLayout *layout, size_t num_dims);
HIDDEN bool tiling_find(Tiling *tiling, PJRT_Buffer_Type type, const int64_t *dims, size_t rank,
                        const int64_t *order);
HIDDEN void tiling_copy(const Tiling *tiling, char *tiles, char *dense, bool into_tiles);
HIDDEN void tiling_write(const Tiling *tiling, char *text, size_t nbytes);

/* proxy.c: the buffers and events that hosts hold */

typedef struct Callback Callback;
typedef struct Buffer Buffer;
typedef struct Use Use; /* See operation.c. */
typedef struct {
  Task task; /* The task that lets the event fire. */
  unsigned refs;
  Plugin *plugin;
  Buffer *about;    /* The buffer whose contents the event announces. */
  PJRT_Event *real; /* The plugin's event, if the host sets it. */
  Moment done;
  bool fired;
  Callback *callbacks;
} Event;

/* What is known about an array before it exists. */
typedef struct {
  bool known, laid_out;
  PJRT_Buffer_Type type;
  size_t num_dims;
  int64_t *dims, *minor_to_major; /* Both are in one allocation. */
  char kind[32];                  /* The memory kind of a program's output, or "". */
} Description;

struct Buffer {
  unsigned refs;
  Plugin *plugin;
  PJRT_Buffer *real;
  Moment made, defined; /* The moments when `real` and its contents exist. */
  bool deleted;         /* The host deleted it; `real` stays while an operation needs it. */
  bool released;        /* `real` is deleted. */
  unsigned uses;        /* The number of operations that are not complete. */
  unsigned unbegun;     /* The number of those that have not begun. */
  unsigned unsure;      /* The number of those that run a program which may take it. */
  Use *begins;          /* The operations that have not begun. */
  uint64_t last;        /* The time when all of them will have begun. */
  Description like;
  PJRT_Device *device;  /* The device of a program's output. */
  PJRT_Memory *memory;  /* The memory of an array or a copy; NULL if only `real` tells it. */
  PJRT_Device *charged_to;
  size_t charged;
  void *address; /* The faulting address that the host is told. */
  size_t reserved;
  Buffer *next_mapped;
};

HIDDEN const Status *status_make(PJRT_Error_Code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
HIDDEN const Status *status_take(Plugin *plugin, PJRT_Error *error);
HIDDEN PJRT_Error *status_error(const Status *status);
HIDDEN bool ask(Plugin *plugin, unsigned function, void *args);
/* Calls a function by its name with these arguments, where no answer is read. */
#define TELL(plugin, name, ...) \
  ask(plugin, FN_PJRT_##name, UNREAD(PJRT_##name##_Args, __VA_ARGS__))
HIDDEN bool answered(Plugin *plugin, PJRT_Error *error);

HIDDEN Event *event_make(Plugin *plugin);
HIDDEN void event_follow(Event *event, PJRT_Event *real);
HIDDEN void event_fire_after(Event *event);
HIDDEN bool event_call(Event *event, PJRT_Event_OnReadyCallback call, void *user_arg);
HIDDEN void event_drop(Event *event);
HIDDEN Event *event_when(Buffer *buffer);
HIDDEN Buffer *buffer_make(Plugin *plugin);
HIDDEN void description_fill(Description *like, PJRT_Buffer_Type type, const int64_t *dims,
                             size_t count);
HIDDEN void description_copy(Description *like, const Description *other);
HIDDEN void buffer_take(Buffer *buffer, PJRT_Buffer *real);
HIDDEN void buffer_release(Buffer *buffer);
HIDDEN void buffer_drop(Buffer *buffer);
HIDDEN bool is_devices(Plugin *plugin, PJRT_Memory *memory);
HIDDEN PJRT_Memory *default_memory(Plugin *plugin, PJRT_Device *device);
HIDDEN PJRT_Device *device_of(Plugin *plugin, PJRT_Memory *memory);
HIDDEN bool is_on_device(Plugin *plugin, PJRT_Buffer *real);
HIDDEN uintptr_t buffer_address(Buffer *buffer, uintptr_t real, size_t nbytes);
HIDDEN uintptr_t real_address(uintptr_t told);

/* The memory that a device uses, in bytes, and the count of its allocations. */
typedef struct {
  PJRT_Device *device;
  size_t used, peak, largest, count;
} Store;
HIDDEN Store *store_of(PJRT_Device *device);
HIDDEN const Status *store_full(PJRT_Device *device, size_t nbytes);
HIDDEN void store_charge(Buffer *buffer, PJRT_Device *device, size_t nbytes);
HIDDEN void store_refund(Buffer *buffer);

/* transfer.c: copies of raw bytes from and to arrays in tiles */
HIDDEN PJRT_Error *transfer_raw(Plugin *plugin, const Tiling *tiling,
                                PJRT_Buffer_CopyRawToHost_Args *args);
HIDDEN void transfer_begin(const PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args);
HIDDEN size_t transfer_nbytes(PJRT_AsyncHostToDeviceTransferManager *manager, int index);
HIDDEN PJRT_Error *transfer_data(Plugin *plugin,
                                 PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args);
HIDDEN void transfer_end(PJRT_AsyncHostToDeviceTransferManager *manager);

/* layout.c: the layouts of the plugin's arrays, with tiles if the setting says so */
HIDDEN PJRT_Error *layout_call(Plugin *plugin, unsigned function, void *args);
HIDDEN bool layout_nbytes(Plugin *plugin, PJRT_Buffer *real, size_t *nbytes);
HIDDEN size_t layout_nbytes_of(const PJRT_Client_BufferFromHostBuffer_Args *args);
HIDDEN void layout_tile(PJRT_Buffer_MemoryLayout *layout, PJRT_Buffer_Type type, const int64_t *dims);
HIDDEN PJRT_Layouts_MemoryLayout *layout_of(const Description *like);

/* room.c: whether a device has room for a buffer */
HIDDEN PJRT_Device *room_device(Plugin *plugin, const PJRT_Client_BufferFromHostBuffer_Args *args);
HIDDEN PJRT_Memory *room_memory(Plugin *plugin, unsigned function, void *args);
HIDDEN const Status *room_make(PJRT_Device *device, size_t nbytes);
HIDDEN const Status *room_for_transfer(
    Plugin *plugin, const PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args);
HIDDEN const Status *room_charge(Plugin *plugin, Buffer *buffer, PJRT_Buffer *real);

/* arguments.c: copies of a call's arguments, which outlive the call */
typedef struct Piece Piece;
typedef struct {
  Piece *pieces;
} Arena;
HIDDEN void *arena_take(Arena *arena, size_t nbytes);
HIDDEN void arena_free(Arena *arena);
HIDDEN char *arguments_copy(Arena *arena, Plugin *plugin, unsigned function, const char *args);

/* program.c */
typedef struct {
  size_t num_outputs, num_devices;
  Description *outputs;
  PJRT_Device **devices;
} Program;
HIDDEN Program *program_ask(Plugin *plugin, PJRT_LoadedExecutable *loaded);
HIDDEN void program_free(Program *program);
HIDDEN void program_learn(Plugin *plugin, Description *output, PJRT_Buffer *real);
HIDDEN PJRT_Memory *program_memory(Plugin *plugin, const Description *output, PJRT_Device *device);

/* operation.c */
HIDDEN PJRT_Error *operation_begin(Plugin *plugin, unsigned function, void *args, bool at_once);
HIDDEN PJRT_Error *operation_execute(Plugin *plugin, PJRT_LoadedExecutable_Execute_Args *args);
HIDDEN PJRT_Error *operation_pass_on_after(Plugin *plugin, unsigned function, void *args, void *owner);
HIDDEN PJRT_Error *operation_end_owner(Plugin *plugin, unsigned function, void *owner);
HIDDEN bool is_deleted(Buffer *buffer);

/* question.c */
HIDDEN PJRT_Error *pass_on(Plugin *plugin, unsigned function, void *args);

/* answers.c: answers about the accelerator itself */
HIDDEN void answers_client(Plugin *plugin, PJRT_Client *client);
HIDDEN bool answer(Plugin *plugin, unsigned function, void *args, PJRT_Error **error);

#endif
