/* XLA FFI custom calls: functions that a plugin calls in the middle of a program.

   A plugin passes a handler nothing but a frame: no user pointer and no name. So each registration
   takes one of a fixed number of compiled entry points, which know their own numbers. If an entry
   is asked for its FFI version, it answers with the plugin's own version, because plugins silently
   drop handlers of another minor version, though the calls have the same layout. Plugins never
   forget a handler, so an entry is held for the life of the process. */
#include "native.h"

typedef XLA_FFI_Error *Handler(XLA_FFI_CallFrame *frame);

typedef struct {
  Handler *native;    /* A handler in C, or NULL. */
  PyObject *callable; /* callable(frame address) -> None or (code, text as bytes). */
  uint32_t traits;
  bool taken;
} Entry;

enum { NUM_ENTRIES = 1024 };
static Entry entries[NUM_ENTRIES];

static XLA_FFI_Error *make_error(const XLA_FFI_CallFrame *frame, XLA_FFI_Error_Code code,
                                 const char *text) {
  SIZED(XLA_FFI_Error_Create_Args, args, .message = text, .errc = code);
  return frame->api->XLA_FFI_Error_Create(&args);
}

/* The FFI version of plugins that ask without passing their table, as those of PJRT API 0.58 do. */
enum { UNSHOWN_MAJOR = 0, UNSHOWN_MINOR = 1 };

/* The FFI table of the plugin that asked last. It registers handlers with stages before the
   execution, which PJRT's extension cannot. A lock in Python allows one registration at a time. */
static const XLA_FFI_Api *shown;

static bool answers_metadata(const XLA_FFI_CallFrame *frame, const Entry *entry) {
  for (XLA_FFI_InternalExtension *each = frame->extension_start; each != NULL; each = each->next) {
    if (each->type != XLA_FFI_Extension_Metadata) continue;
    XLA_FFI_Metadata *metadata = ((XLA_FFI_Metadata_Extension *)each)->metadata;
    metadata->api_version.struct_size = XLA_FFI_Api_Version_STRUCT_SIZE;
    metadata->api_version.extension_start = NULL;
    metadata->api_version.major_version =
        frame->api != NULL ? frame->api->api_version.major_version : UNSHOWN_MAJOR;
    metadata->api_version.minor_version =
        frame->api != NULL ? frame->api->api_version.minor_version : UNSHOWN_MINOR;
    metadata->traits = entry->traits;
    shown = frame->api;
    return true;
  }
  return false;
}

static XLA_FFI_Error *run_python(const Entry *entry, const XLA_FFI_CallFrame *frame) {
  PyGILState_STATE state;
  XLA_FFI_Error *error = NULL;
  int code;
  const char *text;
  size_t size;
  if (!upcall_begins(&state))
    return make_error(frame, XLA_FFI_Error_Code_CANCELLED, "Python is ending");
  PyObject *answer = PyObject_CallFunction(entry->callable, "K", ADDRESS(frame));
  if (upcall_failure(answer, &code, &text, &size))
    error = make_error(frame, (XLA_FFI_Error_Code)code, text);
  else if (answer != Py_None)
    error = make_error(frame, XLA_FFI_Error_Code_INTERNAL, "the Python function cannot be called");
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

static XLA_FFI_Error *enter(XLA_FFI_CallFrame *frame, int number) {
  const Entry *entry = &entries[number];
  if (answers_metadata(frame, entry)) return NULL;
  return entry->native != NULL ? entry->native(frame) : run_python(entry, frame);
}

/* ENTRY(n) defines entry 0xn. EACH_ROW is a copy of EACH, because a macro cannot expand itself. */
#define ENTRY(n) \
  static XLA_FFI_Error *entry_##n(XLA_FFI_CallFrame *frame) { return enter(frame, 0x##n); }
#define EACH(of, n) \
  of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7) \
  of(n##8) of(n##9) of(n##a) of(n##b) of(n##c) of(n##d) of(n##e) of(n##f)
#define ROW(n) EACH(ENTRY, n)
#define NAME(n) entry_##n,
#define EACH_ROW(of, n) \
  of(n##0) of(n##1) of(n##2) of(n##3) of(n##4) of(n##5) of(n##6) of(n##7) \
  of(n##8) of(n##9) of(n##a) of(n##b) of(n##c) of(n##d) of(n##e) of(n##f)
#define NAMES(n) EACH(NAME, n)

EACH_ROW(ROW, 0) EACH_ROW(ROW, 1) EACH_ROW(ROW, 2) EACH_ROW(ROW, 3)

static Handler *const entry_points[NUM_ENTRIES] = {
    EACH_ROW(NAMES, 0) EACH_ROW(NAMES, 1) EACH_ROW(NAMES, 2) EACH_ROW(NAMES, 3)};

static bool set_target(Entry *entry, PyObject *target) {
  if (PyLong_Check(target)) {
    entry->native = (Handler *)(uintptr_t)PyLong_AsUnsignedLongLong(target);
    return !PyErr_Occurred();
  }
  if (PyCallable_Check(target)) {
    entry->callable = Py_NewRef(target);
    return true;
  }
  PyErr_SetString(PyExc_TypeError, "neither an address nor callable");
  return false;
}

/* ffi_entry(address or callable, traits) -> address of an entry point, or None if all are taken. */
PyObject *ffi_entry(PyObject *module, PyObject *args) {
  GUARD;
  PyObject *target;
  unsigned traits;
  if (!PyArg_ParseTuple(args, "OI", &target, &traits)) return NULL;
  python_is_asked = true; /* A function given by its address may call Python, too. */
  for (int i = 0; i < NUM_ENTRIES; i++) {
    if (entries[i].taken) continue;
    entries[i] = (Entry){.traits = traits, .taken = true};
    if (set_target(&entries[i], target))
      return PyLong_FromUnsignedLongLong(ADDRESS(entry_points[i]));
    entries[i].taken = false;
    return NULL;
  }
  Py_RETURN_NONE;
}

/* ffi_return(entry): gives back an entry point that no plugin took. */
PyObject *ffi_return(PyObject *module, PyObject *arg) {
  GUARD;
  unsigned long long address = PyLong_AsUnsignedLongLong(arg);
  if (PyErr_Occurred()) return NULL;
  for (int i = 0; i < NUM_ENTRIES; i++) {
    if (ADDRESS(entry_points[i]) != address) continue;
    PyObject *callable = entries[i].callable;
    entries[i] = (Entry){.taken = false};
    Py_XDECREF(callable);
  }
  Py_RETURN_NONE;
}

/* An empty execute context for each plugin whose programs may call handlers made here: asking for
   user data crashes the XLA CPU plugin if the execution has no context at all. */
enum { MAX_PLUGINS = 64 };
static struct {
  const PJRT_Api *api;
  PJRT_ExecuteContext *context;
} contexts[MAX_PLUGINS];
static int num_contexts;

PJRT_ExecuteContext *ffi_context(const PJRT_Api *api) {
  for (int i = 0; i < num_contexts; i++)
    if (contexts[i].api == api) return contexts[i].context;
  return NULL;
}

/* ffi_share(api, context) -> whether executions without a context use this one from now on. */
PyObject *ffi_share(PyObject *module, PyObject *args) {
  GUARD;
  unsigned long long api, context;
  if (!PyArg_ParseTuple(args, "KK", &api, &context)) return NULL;
  if (num_contexts == MAX_PLUGINS) Py_RETURN_FALSE;
  contexts[num_contexts].api = (const PJRT_Api *)(uintptr_t)api;
  contexts[num_contexts].context = (PJRT_ExecuteContext *)(uintptr_t)context;
  num_contexts++;
  Py_RETURN_TRUE;
}

/* A handler's state is a Python object, which the plugin releases with the program. */
static void forget_state(void *number) {
  PyGILState_STATE gil;
  Ticket ticket;
  if (!upcall_begins(&gil)) return;
  {
    GUARD;
    if (ticket_take(number, &ticket)) Py_DECREF((PyObject *)ticket.holder);
  }
  upcall_ends(gil);
}

/* ffi_shown() -> address of the table that a plugin passed since the last call, 0 for none. */
PyObject *ffi_shown(PyObject *module, PyObject *unused) {
  GUARD;
  const XLA_FFI_Api *last = shown;
  shown = NULL;
  return PyLong_FromVoidPtr((void *)last);
}

/* ffi_deleter() -> address of the deleter of states. */
PyObject *ffi_deleter(PyObject *module, PyObject *unused) {
  return PyLong_FromUnsignedLongLong(ADDRESS(forget_state));
}

/* ffi_keep(object) -> a ticket for the object, which the deleter of states takes. */
PyObject *ffi_keep(PyObject *module, PyObject *object) {
  GUARD;
  void *number = ticket_issue((Ticket){.holder = object});
  if (number == NULL) return PyErr_NoMemory();
  Py_INCREF(object);
  return PyLong_FromVoidPtr(number);
}

/* ffi_kept(ticket, whether to give up the ticket) -> the object. */
PyObject *ffi_kept(PyObject *module, PyObject *args) {
  GUARD;
  unsigned long long number;
  int last;
  Ticket ticket;
  if (!PyArg_ParseTuple(args, "Kp", &number, &last)) return NULL;
  void *given = (void *)(uintptr_t)number;
  if (!(last ? ticket_take(given, &ticket) : ticket_look(given, &ticket)))
    return raise_answer("XLA_FFI_State_Get", "a state that was let go");
  return last ? ticket.holder : Py_NewRef(ticket.holder);
}

/* capsule_address(capsule) -> the pointer inside, whatever its name. */
PyObject *capsule_address(PyObject *module, PyObject *capsule) {
  void *pointer = PyCapsule_GetPointer(capsule, PyCapsule_GetName(capsule));
  return pointer != NULL ? PyLong_FromVoidPtr(pointer) : NULL;
}
