/* An accelerator in software: the plugin's devices, seen as a GPU's or a TPU's are.

   Hosts hold buffers and events of ours, behind which the plugin's stand once there are some. What
   moves data or runs a program is an operation: the call returns before it begins, a schedule that a
   seed decides begins it and lets its events fire, and its errors come in them. Addresses of device
   memory fault, nothing is shared with the host's arrays, and a device holds so much and no more.

   The schedule's lock guards all of it. No function of the plugin or the host is called with it.

   Each file uses those before it: schedule, settings, tiling, proxy, transfer, layout, room, arguments,
   program, operation, question, answers, discrete. */
#ifndef PJRT_HUB_DISCRETE_H
#define PJRT_HUB_DISCRETE_H

#include "../layers.h"

/* Memory of zeros, which ends with the process where there is none. */
static inline void *take(size_t nbytes) {
  void *taken = calloc(1, nbytes + 1);
  if (taken == NULL) abort();
  return taken;
}

/* What became of something: NULL where all is well. Never freed: errors are few. */
typedef struct {
  PJRT_Error_Code code;
  size_t length;
  char text[];
} Status;

/* schedule.c: time is counted in calls of the host that move data or run programs. */

/* Something that begins at a time, and after others: those are counted in `waits`. */
typedef struct Task Task;
struct Task {
  Task *next;
  uint64_t due;
  unsigned waits;
  bool fires; /* it tells the host something: the next one begins after that */
  bool ends;  /* what the plugin has begun, and ends by itself */
  bool late;  /* nothing waits for it any more */
  void (*run)(Task *task);
};

/* Something that happens once, and the tasks that wait for it. `due`: not before that time. */
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
HIDDEN void schedule_forked(void);
/* All others are for whoever holds the lock. */
HIDDEN uint64_t schedule_due(uint64_t after);
HIDDEN void schedule_add(Task *task);
HIDDEN void schedule_after(Task *task, Moment *moment);
HIDDEN void schedule_hurry(uint64_t due);
HIDDEN void schedule_wake(void); /* whoever sleeps */
HIDDEN void schedule_sleep(void); /* until something happens */
/* The same, or so long; gives whether something happened. */
HIDDEN bool schedule_sleep_until(const struct timespec *end);
HIDDEN struct timespec schedule_from_now(uint64_t ns);
HIDDEN void schedule_drain(void);
HIDDEN void moment_happen(Moment *moment, const Status *status);
HIDDEN void moment_await(Moment *moment);

/* settings.c: PJRT_HUB_DISCRETE */
typedef struct {
  char platform[32];
  uint64_t seed, capacity, silence; /* bytes; ms, 0 where nobody says */
  unsigned window;
  bool hold, tiled;
} Settings;
extern HIDDEN Settings settings;
HIDDEN void settings_read(const char *text);

/* tiling.c: arrays in tiles. */

enum { MOST_RANK = 16, MOST_TILES = 3, MOST_SIZES = MOST_RANK + 2 * MOST_TILES };
typedef struct {
  size_t rank, count, bits; /* of the elements; a scalar has one dimension of one */
  size_t nbytes, dense_nbytes;
  int64_t sizes[MOST_RANK]; /* the dimensions, from the slowest */
  size_t num_tiles, tile_ranks[MOST_TILES];
  int64_t tile_dims[2 * MOST_TILES];
} Tiling;
HIDDEN size_t bits_of(PJRT_Buffer_Type type);
HIDDEN const int64_t *tiling_order(const PJRT_Buffer_MemoryLayout *layout, size_t num_dims);
HIDDEN bool tiling_find(Tiling *tiling, PJRT_Buffer_Type type, const int64_t *dims, size_t rank,
                        const int64_t *order);
HIDDEN void tiling_copy(const Tiling *tiling, char *tiles, char *dense, bool into_tiles);
HIDDEN void tiling_write(const Tiling *tiling, char *text, size_t nbytes);

/* proxy.c: what hosts hold. */

typedef struct Callback Callback;
typedef struct Buffer Buffer;
typedef struct Use Use; /* of operation.c */
typedef struct {
  Task task; /* lets it fire */
  unsigned refs;
  Plugin *plugin;
  Buffer *about;    /* whose contents it tells of */
  PJRT_Event *real; /* of an event that the host sets */
  Moment done;
  bool fired;
  Callback *callbacks;
} Event;

/* What is known of an array before it is there. */
typedef struct {
  bool known, laid_out;
  PJRT_Buffer_Type type;
  size_t num_dims;
  int64_t *dims, *minor_to_major; /* in one allocation */
  char kind[32];                  /* of a program's output: of its memory, "" where nobody knows */
} Description;

struct Buffer {
  unsigned refs;
  Plugin *plugin;
  PJRT_Buffer *real;
  Moment made, defined; /* `real` is there; its contents are */
  bool deleted;         /* for the host: the plugin's goes once no operation needs it */
  bool released;        /* the plugin's is */
  unsigned uses;        /* operations that are not complete */
  unsigned unbegun;     /* of those, such as have not begun */
  unsigned unsure;      /* of those, programs that may take it */
  Use *begins;          /* those that have not begun */
  uint64_t last;        /* when all will have begun */
  Description like;
  PJRT_Device *device;  /* of an output, */
  PJRT_Memory *memory;  /* of an array or a copy; NULL where only the plugin's tells it */
  PJRT_Device *charged_to;
  size_t charged;
  void *address; /* that the host is told: nobody may touch it */
  size_t reserved;
  Buffer *next_mapped;
};

HIDDEN const Status *status_make(PJRT_Error_Code code, const char *format, ...)
    __attribute__((format(printf, 2, 3)));
HIDDEN const Status *status_take(Plugin *plugin, PJRT_Error *error);
HIDDEN PJRT_Error *status_error(const Status *status);
HIDDEN bool ask(Plugin *plugin, unsigned function, void *args);
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

/* What a device holds, and may. */
typedef struct {
  PJRT_Device *device;
  size_t used, peak, largest, count;
} Store;
HIDDEN Store *store_of(PJRT_Device *device);
HIDDEN const Status *store_full(PJRT_Device *device, size_t nbytes);
HIDDEN void store_charge(Buffer *buffer, PJRT_Device *device, size_t nbytes);
HIDDEN void store_refund(Buffer *buffer);

/* transfer.c: raw bytes on their way from and to arrays in tiles. */
HIDDEN PJRT_Error *transfer_raw(Plugin *plugin, const Tiling *tiling,
                                PJRT_Buffer_CopyRawToHost_Args *args);
HIDDEN void transfer_begin(const PJRT_Client_CreateBuffersForAsyncHostToDevice_Args *args);
HIDDEN size_t transfer_nbytes(PJRT_AsyncHostToDeviceTransferManager *manager, int index);
HIDDEN PJRT_Error *transfer_data(Plugin *plugin,
                                 PJRT_AsyncHostToDeviceTransferManager_TransferData_Args *args);
HIDDEN void transfer_end(PJRT_AsyncHostToDeviceTransferManager *manager);

/* layout.c: the plugin's arrays, in tiles where the setting says so. */
HIDDEN PJRT_Error *layout_call(Plugin *plugin, unsigned function, void *args);
HIDDEN bool layout_nbytes(Plugin *plugin, PJRT_Buffer *real, size_t *nbytes);
HIDDEN size_t layout_nbytes_of(const PJRT_Client_BufferFromHostBuffer_Args *args);
HIDDEN void layout_tile(PJRT_Buffer_MemoryLayout *layout, PJRT_Buffer_Type type, const int64_t *dims);
HIDDEN PJRT_Layouts_MemoryLayout *layout_of(const Description *like);

/* room.c: what a device has room for. */
HIDDEN PJRT_Device *room_device(Plugin *plugin, const PJRT_Client_BufferFromHostBuffer_Args *args);
HIDDEN const Status *room_make(PJRT_Device *device, size_t nbytes);
HIDDEN const Status *room_charge(Plugin *plugin, Buffer *buffer, PJRT_Buffer *real);

/* arguments.c: a call's arguments, for longer than the call. */
typedef struct Piece Piece;
typedef struct {
  Piece *pieces;
} Arena;
HIDDEN void *arena_take(Arena *arena, size_t nbytes);
HIDDEN void arena_free(Arena *arena);
HIDDEN char *arguments_copy(Arena *arena, Plugin *plugin, unsigned function, const char *args);
/* Visits the handles of a direction and kind; `outputs`: how many an executable has. */
typedef void (*Visit)(void *context, void **slot);
HIDDEN void each_handle(Plugin *plugin, unsigned function, char *args, Direction direction,
                        unsigned kind, size_t outputs, Visit visit, void *context);

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

/* answers.c: what it says of itself. */
HIDDEN void answers_client(Plugin *plugin, PJRT_Client *client);
HIDDEN bool answer(Plugin *plugin, unsigned function, void *args, PJRT_Error **error);

#endif
