/* The layers between a host and a plugin: the declarations that all files here share.

   A host that asks a library for GetPjrtApi, or that calls pjrt_hub_wrap, gets a copy of the
   plugin's table whose functions are trampolines. Each call goes through the layers that are on,
   from the host to the plugin, and back. The plugin's memory is never changed. Nothing here uses
   Python, because the library is also loaded into programs that have none.

   Each file uses those before it: options, refusal, without, plugin, executables, handles,
   recording, trace, device, objects, findings, validate, pad, sha256, entry, cache, chain, preload. */
#ifndef PJRT_HUB_LAYERS_H
#define PJRT_HUB_LAYERS_H

#include <pthread.h>
#include <stdatomic.h>
#include <string.h>

#include "functions.h"
#include "options.h"

#define EXPORTED __attribute__((visibility("default")))

/* Tables of the C API's declarations, which functions.c defines */

typedef enum { IN = 1, OUT = 2, INOUT = 4 } Direction;

/* What a pointer points at: ONE object; COUNTED elements; ROWS of `inner` elements each; RAGGED
   rows, whose lengths are in an array; as many elements as the SUM of an array; OUTPUTS: rows with
   an element for each output of an executable; a text that is TERMINATED by a NUL. */
typedef enum { ONE, COUNTED, ROWS, RAGGED, SUM, OUTPUTS, TERMINATED } Form;

typedef struct Shape Shape;

/* A pointer in a struct: its offset and what it points at. If `tag` is not 0, the pointer is valid
   only where the int at tag_at is tag - 1. */
typedef struct {
  uint16_t at, count_at, inner_at, tag_at;
  uint16_t element; /* The size of an element in bytes. */
  uint8_t form, direction, since, tag;
  const Shape *shape; /* The struct of the elements; NULL if they are plain. */
} Pointer;

/* A struct: its struct_size, its sizeof, the struct_size of its first version, the offset of the
   fields after the common head, and whether it has a field struct_size. */
struct Shape {
  uint16_t struct_size, nbytes, base_size, first_at;
  uint8_t sized;
  uint16_t num_pointers;
  const Pointer *pointers;
};

/* An argument that is a handle, an array of handles, or rows of them. */
typedef struct {
  const char *name;
  uint16_t at, count_at, inner_at;
  uint8_t since, kind, form, direction, required;
} Handle;

typedef struct {
  const char *name;
  const Shape *args;
  uint16_t out_at;  /* The offset of the first field that the plugin sets, or 0. */
  uint16_t type_at; /* The offset of a PJRT_Buffer_Type that the host sets, or 0. */
  bool returns_error, destroys;
  uint8_t num_handles;
  const Handle *handles;
} Function;

/* A function's place in a node of the extension chain. */
typedef struct {
  uint16_t type, at, function;
} Node;

typedef struct {
  uint16_t type;
  const char *name;
} Extension;

extern HIDDEN const Function functions[];
extern HIDDEN const Extension extensions[];
extern HIDDEN const Node nodes[];
extern HIDDEN const size_t num_nodes;
extern HIDDEN const char *const kind_names[];
extern HIDDEN const uint8_t buffer_type_since[];
extern HIDDEN const unsigned num_buffer_types;
extern HIDDEN const char *const compiler_variables[]; /* NULL is behind the last. */

/* Plugins, calls and layers */

enum { SHA256 = 32, ENTRY = 2 * SHA256 + 1 };
typedef struct {
  uint32_t state[8];
  uint64_t nbytes;
  uint8_t block[64];
} Sha256;

typedef PJRT_Error *(*Call_Target)(void *args);

typedef struct {
  unsigned number;
  const PJRT_Api *api;   /* The plugin's own table. */
  PJRT_Api *wrapped;     /* The table that the host sees. */
  unsigned minor;
  bool discrete;         /* Its devices are shown as accelerators (see discrete/). */
  bool caches;           /* Its programs are kept on disk (see cache.c). */
  Sha256 context;        /* What these depend on beside the client: its library and variables. */
  Call_Target real[NUM_FUNCTIONS]; /* An entry is NULL if the plugin lacks the function. */
} Plugin;

typedef struct {
  Plugin *plugin;
  const Function *function;
  char *args;
  size_t size;     /* The bytes of args that both the host and this library know. */
  uint64_t number; /* Counts the process's calls from 1. */
  PJRT_Error *error;
  bool answered;           /* A layer answered, so the plugin is not called. */
  struct Padding *padding; /* What the layer pad undoes after the call. */
  PJRT_Event **events;     /* What the layer device does. */
} Call;

/* An event's callback on its way from the plugin to the host. */
typedef enum { WAITING, CALLED, REFUSED } Stage;
typedef struct {
  PJRT_Event_OnReadyCallback call;
  void *user_arg;
  PJRT_Event *event;
  Plugin *plugin;
  uint64_t number; /* The number of the call that registered the callback. */
  atomic_int stage;
} Upcall;

typedef struct {
  const char *name;
  void (*before)(Call *call); /* It may change args if `after` undoes the change. */
  void (*after)(Call *call);
  void (*upcall)(const Upcall *upcall, PJRT_Error *error);
  void (*returned)(const Upcall *upcall);
  void (*uncalled_for)(const Upcall *upcall, Stage stage); /* The upcall comes at a wrong stage. */
} Layer;

static inline unsigned number_of(const Call *call) {
  return (unsigned)(call->function - functions);
}

static inline size_t word_at(const char *base, unsigned at) {
  size_t value;
  memcpy(&value, base + at, sizeof value);
  return value;
}

static inline void *pointer_at(const char *base, unsigned at) { return (void *)word_at(base, at); }

/* Returns whether a pointer of the struct at `base` is valid, as its tag says. */
static inline bool is_valid(const Pointer *pointer, const char *base) {
  int tag = pointer->tag - 1;
  return pointer->tag == 0 || memcmp(base + pointer->tag_at, &tag, sizeof tag) == 0;
}

static inline size_t count_of(const Pointer *pointer, const char *base) {
  bool counted = pointer->form != ONE && pointer->form != TERMINATED;
  return counted ? word_at(base, pointer->count_at) : 1;
}

/* Returns how many bytes of a struct the host gave and this library knows. A size below the common
   head's cannot be true and counts as that of the first version. */
static inline size_t known_size(const Shape *shape, const char *base) {
  size_t said = shape->sized ? word_at(base, 0) : shape->struct_size;
  if (said > shape->struct_size) said = shape->struct_size;
  return said < 2 * sizeof(size_t) ? shape->base_size : said;
}

/* refusal.c */
HIDDEN PJRT_Error *refuse(PJRT_Error_Code code, const char *text, size_t length);
HIDDEN PJRT_Error *refuse_text(PJRT_Error_Code code, const char *text);
HIDDEN bool refusal_answer(unsigned function, void *args);

/* without.c: takes functions and extensions away. It is not one of the chain's layers, which see a
   plugin that never had these. */
HIDDEN void without_start(const char *names);
HIDDEN bool without_function(unsigned function);
HIDDEN bool without_node(unsigned type);
HIDDEN bool without_answer(unsigned function, void *args, PJRT_Error **error);

/* discrete/: makes the plugin's devices behave like accelerators. It is not in the chain either. */
HIDDEN void discrete_start(const char *settings);
HIDDEN void discrete_forked(void);
HIDDEN PJRT_Error *discrete_call(Plugin *plugin, unsigned function, void *args);

/* plugin.c */
HIDDEN PJRT_Error *call_plugin(Plugin *plugin, unsigned function, void *args);
HIDDEN bool refused(Plugin *plugin, PJRT_Error *error);
HIDDEN bool plugin_answers(Plugin *plugin, unsigned function, void *args);
HIDDEN unsigned generation(void); /* It grows by one in every forked child. */
HIDDEN void plugin_forked(void);

/* executables.c */
typedef struct {
  PJRT_LoadedExecutable *loaded;
  size_t outputs; /* 0 if the plugin does not tell. */
  char name[64];  /* "" if the plugin does not tell. */
} Executable;
HIDDEN Executable executable_of(Plugin *plugin, PJRT_LoadedExecutable *loaded);
HIDDEN void executable_forget(PJRT_LoadedExecutable *loaded);
HIDDEN void executables_forked(void);

/* handles.c: visits the handles of a direction and kind, or of all kinds for KIND_NONE, given the
   number of an executable's outputs. A list that the call needs but lacks is visited as one handle,
   which is NULL. */
typedef void (*Visit)(void *context, const Handle *row, void **slot);
HIDDEN void each_handle(const Plugin *plugin, unsigned function, char *args, Direction direction,
                        unsigned kind, size_t outputs, Visit visit, void *context);

/* recording.c: a file for each thread */
HIDDEN bool recording_start(const char *folder);
HIDDEN bool recording(void);

/* trace.c: the layer that records calls, and the recording of plugins and findings */
extern HIDDEN const Layer trace_layer;
HIDDEN void record_plugin(const Plugin *plugin);
HIDDEN void record_end(const Plugin *plugin, uint64_t number, int device, const char *name);
HIDDEN void record_finding(unsigned code, const Call *call, uint64_t handle, const char *text);

/* device.c: the layer that records what devices do */
extern HIDDEN const Layer device_layer;
HIDDEN void device_forked(void);

/* The other two layers: validate.c, with objects.c and findings.c (see objects.h), and pad.c */
extern HIDDEN const Layer validate_layer, pad_layer;

/* sha256.c */
HIDDEN Sha256 sha256(void);
HIDDEN void sha256_add(Sha256 *sha, const void *data, size_t nbytes);
HIDDEN void sha256_end(Sha256 *sha, uint8_t digest[SHA256]);

/* entry.c: values on disk by name, which is a hash in hexadecimal digits */
HIDDEN bool entries_start(void);
HIDDEN void *entry_read(const char *name, size_t *nbytes);
HIDDEN void entry_write(const char *name, const void *value, size_t nbytes);

/* cache.c: loads programs that were compiled before. It is not in the chain, whose layers see a
   plugin that compiles. */
HIDDEN bool cache_start(Plugin *plugin);
HIDDEN void cache_forked(void);
HIDDEN PJRT_Error *cache_call(Plugin *plugin, unsigned function, void *args);

/* chain.c */
EXPORTED const PJRT_Api *pjrt_hub_wrap(const PJRT_Api *api, const char *layers, const char *folder,
                                       const char *options, const char *without,
                                       const char *discrete);

#endif
