/* The base of all files of the compiled call path, with state that exists once per process: how
   errors are raised, how functions of a plugin's table are called, and what replaces the GIL.

   Rules for all of these files:
   - The GIL guards every field and list; it is released only around calls that may block. In a
     Python without one, GUARD (below) does the same; functions that Python calls begin with it.
   - Callbacks of events run on threads of plugins (on_ready) and never touch Python.
   - A native object is destroyed once, by the object that owns it, and never after a fork. */
#pragma once

#include "upcall.h"

#include <structmember.h>

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

/* Marks functions that few calls need. Kept out of line, they cost the other calls nothing. */
#define COLD __attribute__((cold, noinline))

extern unsigned fork_generation;
extern bool python_is_asked;
PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function);
PyObject *raise_closed(const char *message);
PyObject *raise_answer(const char *function, const char *what);
void drop_error(const PJRT_Api *api, PJRT_Error *error);
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error);
bool reclaim(const PJRT_Api *api, PJRT_Error *error);
PyObject *process_reclaim(PyObject *module, PyObject *args);
PyObject *process_read_error(PyObject *module, PyObject *args);
void object_free(PyObject *self);
PyObject *tuple_of(const int64_t *numbers, Py_ssize_t count);
PyObject *process_install(PyObject *module, PyObject *args);
extern bool wait_interrupted;
bool thread_ends(void);
PyObject *process_ends(PyObject *module, PyObject *unused);
PyObject *process_interrupted(PyObject *module, PyObject *unused);
PyObject *process_interrupt(PyObject *module, PyObject *unused);
PyObject *process_leave(PyObject *module, PyObject *unused);
PyObject *process_aside(PyObject *module, PyObject *callable);
