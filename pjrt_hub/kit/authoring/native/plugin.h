/* The declarations that all files of a plugin in Python share. C implements the objects, their
   lifetimes and every answer that needs no Python; only compilation, execution and separate device
   memory call Python. Each file uses those before it: value, fault, bridge, event, worker,
   platform, client, array, storage, buffer, transfer, executable, execute, table, module.
   interpreter/ and launcher/ hold separate libraries; the headers for plugins in C have the errors.

   Rules for all of these files:
   - Python is called only between upcall_begins and upcall_ends, and while no lock is held. When
     Python is ending, it is not called any more, and its objects are not released.
   - Shared objects have reference counts; a handle that the host destroys holds one reference. */
#ifndef PJRT_HUB_PLUGIN_H
#define PJRT_HUB_PLUGIN_H

#include "upcall.h"

#include "pjrt_plugin/promise.h"

#include <stdatomic.h>

enum { PLUGINS = 256 }; /* The largest number of backends in one process. */

/* value.c */
typedef struct {
  char *text;
  size_t size;
} Text;
Text text_of(PyObject *object);
void text_free(Text text);
bool named_values(PyObject *dict, PJRT_NamedValue **values, size_t *count);
PyObject *dict_of(const PJRT_NamedValue *values, size_t count);
void named_values_free(PJRT_NamedValue *values, size_t count);

/* fault.c */
PJRT_Error *wrong_size(const char *name, size_t expected, size_t found);
PJRT_Error *fault_answer(int slot, bool *answered);
extern atomic_bool faults_armed;
PyObject *record_begins(PyObject *module, PyObject *unused);
PyObject *record_ends(PyObject *module, PyObject *unused);
PyObject *recorded(PyObject *module, PyObject *unused);
PyObject *fault(PyObject *module, PyObject *args);

/* Functions of the table. Each refuses a struct without the fields that all versions have, and then
   looks for a fault that a test has set. */
enum {
#define SLOT(returns, name) SLOT_##name,
#include "pjrt_slots.h"
#undef SLOT
  NUM_SLOTS
};
#define SLOT(returns, name) returns plugin_##name(name##_Args *args);
#include "pjrt_slots.h"
#undef SLOT
#define FUNCTION_OF_SIZE(name, size)                                                   \
  static PJRT_Error *answer_##name(name##_Args *args);                                 \
  __attribute__((noinline)) PJRT_Error *plugin_##name(name##_Args *args) {             \
    if (args->struct_size < (size)) return wrong_size(#name, size, args->struct_size); \
    if (atomic_load_explicit(&faults_armed, memory_order_relaxed)) {                   \
      bool answered = false;                                                           \
      PJRT_Error *error = fault_answer(SLOT_##name, &answered);                        \
      if (answered) return error;                                                      \
    }                                                                                  \
    return answer_##name(args);                                                        \
  }                                                                                    \
  static PJRT_Error *answer_##name(name##_Args *args)
#define FUNCTION(name) FUNCTION_OF_SIZE(name, name##_Args_STRUCT_SIZE)
/* The offset of a field's end, which is the least size of a struct that later versions extended. */
#define THROUGH(name, field) \
  (offsetof(name##_Args, field) + sizeof(((name##_Args *)NULL)->field))
#define HAS(args, type, field) \
  ((args)->struct_size >= offsetof(type, field) + sizeof((args)->field))

/* These define functions that answer a value, a Text, or a list and its length, from `args`. */
#define TELLS(function, field, value) \
  FUNCTION(function) {                \
    args->field = (value);            \
    return NULL;                      \
  }
#define TELLS_TEXT(function, field, value) \
  FUNCTION(function) {                     \
    args->field = (value).text;            \
    args->field##_size = (value).size;     \
    return NULL;                           \
  }
#define TELLS_LIST(function, field, list, count) \
  FUNCTION(function) {                           \
    args->field = (list);                        \
    args->num_##field = (count);                 \
    return NULL;                                 \
  }
/* The object keeps the serialized bytes, so the deleter for the host does nothing. */
#define TELLS_KEPT(function, holder, type, owner, kept)   \
  static void function##_release(type *serialized) {}     \
  FUNCTION(function) {                                    \
    args->serialized_bytes = (kept).text;                 \
    args->serialized_bytes_size = (kept).size;            \
    args->holder = (type *)(owner);                       \
    args->holder##_deleter = function##_release;          \
    return NULL;                                          \
  }

/* bridge.c */
/* Calls bridge.name(*arguments) and releases the tuple. Returns the answer, or NULL and *error. */
PyObject *ask(PyObject *bridge, const char *name, PyObject *arguments, PJRT_Error **error);
PJRT_Error *python_is_ending(void);
PJRT_Error *wrong_answer(const char *name);
void let_go_of_python(PyObject *object);

/* worker.c */
typedef struct Worker Worker;
typedef struct Job {
  struct Job *next;
  void (*run)(struct Job *job); /* It frees the job. */
} Job;
Worker *worker_new(void);
void worker_end(Worker *worker);
void worker_expect(Worker *worker);
void worker_do(Worker *worker, Job *job);

/* platform.c: backends, topologies, memories */
typedef struct {
  PyObject *bridge; /* The Python object that C calls; never freed. */
  bool asynchronous, own_memory;
  PJRT_NamedValue *attributes;
  size_t num_attributes;
} Backend;

struct PJRT_DeviceDescription {
  int id, process_index, local_hardware_id;
  Text kind, debug, text;
  PJRT_NamedValue *attributes;
  size_t num_attributes;
};

struct PJRT_TopologyDescription {
  Backend *backend;
  Text name, version, serialized;
  uint64_t fingerprint;
  int process_index;
  size_t num_devices;
  struct PJRT_DeviceDescription *devices;
  PJRT_DeviceDescription **list;
  PJRT_NamedValue *attributes;
  size_t num_attributes;
};

typedef struct UserData UserData;
typedef struct {
  PJRT_Memory base;
  PJRT_Device *device;
  UserData *data;
  Text debug;
} Memory;

struct PJRT_Device {
  PJRT_DeviceDescription *description;
  PJRT_Client *client;
  Memory memory;
  PJRT_Memory *memories[1];
  atomic_llong in_use, peak, allocations, largest;
};

struct PJRT_Client {
  atomic_int references; /* Those of the host, buffers, executables and executions. */
  Backend *backend;
  PJRT_TopologyDescription *topology;
  size_t num_devices, num_addressable;
  PJRT_Device *devices;
  PJRT_Device **list, **addressable;
  PJRT_Memory **memories;
  PyObject *state; /* The bridge's object for the client. */
  Worker *worker;  /* NULL until something must run later. */
  pthread_mutex_t lock; /* Guards the creation of the worker. */
};

#define DEVICE_OF(memory) (((Memory *)(memory))->device)
PJRT_TopologyDescription *topology_of(Backend *backend, PyObject *answer);
void topology_free(PJRT_TopologyDescription *topology);
void memory_init(PJRT_Device *device);
void memory_end(Memory *memory);
extern const char MEMORY_KIND[];
extern const int MEMORY_KIND_ID;
PJRT_Error *topology_create(Backend *backend, PJRT_TopologyDescription_Create_Args *args);
PJRT_Error *topology_deserialize(Backend *backend, PJRT_TopologyDescription_Deserialize_Args *args);
PJRT_Error *plugin_attributes(Backend *backend, PJRT_Plugin_Attributes_Args *args);

/* client.c: clients, devices */
PJRT_Client *client_share(PJRT_Client *client);
void client_let_go(PJRT_Client *client);
PJRT_Device *client_device(PJRT_Client *client, int64_t id);
bool client_has_worker(PJRT_Client *client);
PJRT_Error *client_create(Backend *backend, PJRT_Client_Create_Args *args);

/* array.c */
typedef struct {
  int type;
  size_t rank, size;
  int64_t *dims;
} ArrayType;
PJRT_Error *array_type(int type, const int64_t *dims, size_t rank, ArrayType *array);
ArrayType array_type_copy(const ArrayType *array);
PyObject *array_type_for_python(const ArrayType *array);
PJRT_Error *check_layout(const PJRT_Buffer_MemoryLayout *layout, size_t rank);
size_t element_size(int type);
bool shape_size(int type, const int64_t *dims, size_t rank, size_t *size);
void dense_strides(int64_t *strides, const int64_t *dims, size_t rank, size_t width,
                   const int64_t *minor_to_major);
void copy_strided(char *to, const int64_t *to_strides, const char *from, const int64_t *from_strides,
                  const int64_t *dims, size_t rank, size_t width);

/* storage.c: the memory of a buffer, which everything that still reads it shares. It is made with
   the buffer, and filled before the buffer's promise is kept. */
typedef struct Storage {
  atomic_int references;
  void *data; /* Host memory, or NULL if the backend has separate memory. */
  PyObject *handle; /* The backend's object for separate memory, or NULL. */
  size_t size;
  PJRT_Device *device; /* The device whose statistics count it, or NULL. */
  bool borrowed;       /* The memory is not allocated here; `release` gives it back. */
  void (*release)(void *, void *);
  void *release_argument;
} Storage;
Storage *storage_new(PJRT_Device *device, size_t size);
Storage *storage_view(void *data, size_t size, void (*release)(void *, void *), void *argument);
Storage *storage_room(PJRT_Device *device, size_t size);
Storage *storage_staging(Storage *storage);
Storage *storage_share(Storage *storage);
void storage_let_go(Storage *storage);
PyObject *storage_for_python(Storage *storage);
PJRT_Error *storage_fill(Storage *to, Storage *host, const ArrayType *array);
PJRT_Error *storage_on_host(Storage *storage, const ArrayType *array, Storage **host);
PJRT_Error *storage_copy(Storage *to, Storage *from, const ArrayType *array);
extern PyTypeObject *StorageType;
extern PyType_Spec storage_spec;
enum { ALIGNMENT = 64 };

/* buffer.c */
struct PJRT_Buffer {
  PJRT_Device *device;
  ArrayType array;
  pthread_mutex_t lock; /* Guards the fields below. */
  Storage *storage;     /* NULL after deletion. */
  PluginPromise *ready;
  size_t external; /* The number of references by pointer, which keep `pinned`. */
  Storage *pinned;
};
PJRT_Buffer *buffer_new(PJRT_Device *device, ArrayType array, Storage *storage, PluginPromise *ready);
PJRT_Error *buffer_take(PJRT_Buffer *buffer, Storage **storage, PluginPromise **ready);
PJRT_Error *buffer_donate(PJRT_Buffer *buffer, Storage **storage, PluginPromise **ready);
void buffer_give_back(PJRT_Buffer *buffer, Storage *storage);
void buffer_delete(PJRT_Buffer *buffer);
void buffer_destroy(PJRT_Buffer *buffer);

/* executable.c */
struct PJRT_Executable {
  atomic_int references;
  Backend *backend;
  PyObject *object; /* The bridge's object for it. */
  Text name, fingerprint, options, assignment;
  Text optimized, optimized_format; /* NULL until a host asks for them. */
  size_t num_replicas, num_partitions, num_parameters, num_outputs, num_donated, num_devices;
  ArrayType *parameters, *outputs;
  int64_t *donated, *devices, code_size;
  PJRT_Buffer_Type *output_types;
  int64_t *output_dims;
  size_t *output_ranks;
  const char **kinds; /* One for each parameter or output, whichever are more. */
  size_t *kind_sizes;
  PJRT_NamedValue *cost;
  size_t num_cost;
};
struct PJRT_LoadedExecutable {
  PJRT_Executable *executable;
  PJRT_Client *client;
  PJRT_Device **devices;
  PJRT_LogicalDeviceIds *logical;
  atomic_bool deleted;
};
PJRT_Executable *executable_share(PJRT_Executable *executable);
void executable_let_go(PJRT_Executable *executable);

/* table.c */
const PJRT_Api *table_new(Backend *backend);

#endif
