/* What is one for the process, which all files of the compiled call path build on: how errors are raised,
   how a plugin's table is called, and what takes the place of the GIL.

   Rules that hold everywhere in it:
   - The GIL guards every field and list; it is released only around calls that may block. Where
     there is none, GUARD does the same: whatever Python calls begins with it, see below.
   - Code that a plugin's threads run (on_ready) never touches Python.
   - A native object is destroyed once, by the object that owns it, and never after a fork. */
#pragma once

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

/* Python shows the addresses of native objects as members of that type. */
_Static_assert(sizeof(void *) == sizeof(unsigned long long), "addresses have 64 bits");

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

extern unsigned fork_generation;
extern bool python_is_asked;
PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function);
PyObject *raise_closed(const char *message);
PyObject *raise_answer(const char *function, const char *what);
void drop_error(const PJRT_Api *api, PJRT_Error *error);
bool is_unimplemented(const PJRT_Api *api, PJRT_Error *error);
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
