/* The declarations that the files of a plugin in Python share. The headers for plugins in C do what needs no Python.
   The files here do what those headers ask of a plugin, of which a process may have several. They ask Python only to
   compile, to run, to describe devices, and for memory that a device has of its own.
   Each file uses those before it: value, fault, bridge, platform, storage, executable, execute, table, module.
   interpreter/ and launcher/ each hold a separate library.

   Rules that hold in all of these files:
   - Python is asked only between upcall_begins and upcall_ends, and while none of our locks is held. While Python
     ends, it is not asked any more, and its objects are left alone.
   - No thread is waited for, because the caller may hold Python's lock, which that thread may need to go on. */
#ifndef PJRT_HUB_PLUGIN_H
#define PJRT_HUB_PLUGIN_H

#include "upcall.h"

#include "pjrt_plugin/arena.h"

#include <stdatomic.h>

enum { PLUGINS = 256 }; /* The most plugins that a process can have. */

/* value.c: copies of Python's values, in an arena */
bool is_text(PyObject *object, const char **data, size_t *size);
const char *take_text(PluginArena *arena, PyObject *object);
bool named_values(PluginArena *arena, PyObject *dict, PJRT_NamedValue **values, size_t *count);
PyObject *dict_of(const PJRT_NamedValue *values, size_t count);

/* fault.c */
enum {
#define SLOT(name) SLOT_##name,
  PJRT_API_FUNCTIONS(SLOT)
#undef SLOT
  NUM_SLOTS
};
PJRT_Error *fault_answer(int slot, bool *answered);
extern atomic_bool faults_armed;
PyObject *record_begins(PyObject *module, PyObject *unused);
PyObject *record_ends(PyObject *module, PyObject *unused);
PyObject *recorded(PyObject *module, PyObject *unused);
PyObject *fault(PyObject *module, PyObject *args);

/* bridge.c */
/* Calls bridge.name(*arguments) in Python, and takes over the tuple. Returns the answer, or NULL and *error. */
PyObject *ask(PyObject *bridge, const char *name, PyObject *arguments, PJRT_Error **error);
PJRT_Error *python_is_ending(void);
PJRT_Error *wrong_answer(const char *name);
void let_go_of_python(PyObject *object);

/* platform.c, storage.c, executable.c and execute.c do what the headers for plugins in C ask. Each function of the
   C API looks for a fault first. */
typedef struct Plugin {
  PyObject *bridge; /* It answers what C asks, and is never freed. */
  bool asynchronous, host_memory, any_thread;
  PluginArena arena;
  PJRT_NamedValue *attributes;
  size_t num_attributes;
} Plugin;

#define PLUGIN_ASKED
#define PLUGIN_FIRST(name)                                                   \
  if (atomic_load_explicit(&faults_armed, memory_order_relaxed)) {           \
    bool answered = false;                                                   \
    PJRT_Error *error = fault_answer(SLOT_##name, &answered);                \
    if (answered) return error;                                              \
  }
#include "pjrt_plugin/table.h"

/* storage.c: host memory or, if the device has memory of its own, the bridge's handle of that memory */
PyObject *storage_for_python(PluginStorage *storage);
bool storage_take(PluginStorage *storage, PyObject *answer);
extern PyTypeObject *StorageType;
extern PyType_Spec storage_spec;

/* table.c */
const PJRT_Api *table_new(Plugin *plugin);

#endif
