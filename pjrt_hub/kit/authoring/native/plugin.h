/* What the files of a plugin in Python share. The headers for plugins in C do what needs no Python; here is what they
   ask of a plugin, of which a process has several: only compiling, running, describing devices, and memory that a
   device has of its own ask Python.
   Each file uses those before it: value, fault, bridge, platform, storage, executable, execute, table, module.
   interpreter/ and launcher/ hold a library of their own each.

   Rules that hold everywhere in it:
   - Python is asked between upcall_begins and upcall_ends only, and with no lock of ours held: while it
     ends it is not asked any more, and what belongs to it is left alone.
   - No thread is waited for: the caller may hold what that one needs to go on, Python's lock. */
#ifndef PJRT_HUB_PLUGIN_H
#define PJRT_HUB_PLUGIN_H

#include "upcall.h"

#include "pjrt_plugin/arena.h"

#include <stdatomic.h>

enum { PLUGINS = 256 }; /* of one process */

/* value.c: what is made of Python's values lies in an arena */
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
/* Asking Python: bridge.name(*arguments), whose tuple is taken; the answer or, with *error, NULL. */
PyObject *ask(PyObject *bridge, const char *name, PyObject *arguments, PJRT_Error **error);
PJRT_Error *python_is_ending(void);
PJRT_Error *wrong_answer(const char *name);
void let_go_of_python(PyObject *object);

/* platform.c, storage.c, executable.c, execute.c: what the headers for plugins in C ask. Each function of the C API
   goes through faults first. */
typedef struct Plugin {
  PyObject *bridge; /* answers what C asks; never freed */
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

/* storage.c: memory of the host's or, where the device has memory of its own, what its bridge knows it by */
PyObject *storage_for_python(PluginStorage *storage);
bool storage_take(PluginStorage *storage, PyObject *answer);
extern PyTypeObject *StorageType;
extern PyType_Spec storage_spec;

/* table.c */
const PJRT_Api *table_new(Plugin *plugin);

#endif
