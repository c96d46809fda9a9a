/* The extension module: its exports, and the functions that belong to no object. */
#include "native.h"

#include <dlfcn.h>

static void in_forked_child(void) {
  fork_generation++;
  staging_after_fork();
  dispatcher_reset();
  upcall_reset();
}

static int add_type(PyObject *module, PyTypeObject **slot, PyType_Spec *spec, const char *name) {
  *slot = (PyTypeObject *)PyType_FromSpec(spec);
  if (*slot == NULL) return -1;
  return PyModule_AddObjectRef(module, name, (PyObject *)*slot);
}

static PyObject *current_generation(PyObject *module, PyObject *unused) {
  return PyLong_FromUnsignedLong(fork_generation);
}

/* asks_python() -> whether a plugin was given something that calls Python while a program runs. */
static PyObject *asks_python(PyObject *module, PyObject *unused) {
  return PyBool_FromLong(python_is_asked);
}

/* Loads a library for good: RTLD_NODELETE is set, and the handle is never closed. Unloading a
   plugin would crash at exit, because its threads and static destructors outlive the mapping. */
static void *open_for_good(const char *path, int visibility) {
  void *handle;
  const char *why = NULL;
  Py_BEGIN_ALLOW_THREADS;
  handle = dlopen(path, RTLD_NOW | RTLD_NODELETE | visibility);
  if (handle == NULL) why = dlerror();
  Py_END_ALLOW_THREADS;
  if (handle == NULL) PyErr_SetString(PyExc_OSError, why != NULL ? why : "dlopen failed");
  return handle;
}

static PyObject *open_library(PyObject *module, PyObject *args) {
  const char *path;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  void *handle = open_for_good(path, RTLD_LOCAL);
  if (handle == NULL) return NULL;
  return PyLong_FromVoidPtr(handle);
}

static PyObject *get_pjrt_api(PyObject *module, PyObject *args) {
  unsigned long long handle;
  if (!PyArg_ParseTuple(args, "K", &handle)) return NULL;
  const PJRT_Api *(*get_api)(void) =
      (const PJRT_Api *(*)(void))dlsym((void *)(uintptr_t)handle, "GetPjrtApi");
  if (get_api == NULL) Py_RETURN_NONE;
  const PJRT_Api *api;
  Py_BEGIN_ALLOW_THREADS;
  api = get_api();
  Py_END_ALLOW_THREADS;
  return PyLong_FromVoidPtr((void *)api);
}

/* preload_library(path): makes a dependency visible to plugins that look it up by its soname. */
static PyObject *preload_library(PyObject *module, PyObject *args) {
  const char *path;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  if (open_for_good(path, RTLD_GLOBAL) == NULL) return NULL;
  Py_RETURN_NONE;
}

/* compact_type(base, name) -> a subclass as C would make it, whose instances are no larger than
   those of `base`. `compact` in capi/handle.py adds the functions of a Python class. */
static PyObject *compact_type(PyObject *module, PyObject *args) {
  PyObject *base;
  const char *name;
  if (!PyArg_ParseTuple(args, "Os", &base, &name)) return NULL;
  bool is_call = base == (PyObject *)BoundCallType;
  if (!is_call && base != (PyObject *)BufferType)
    return PyErr_Format(PyExc_TypeError, "%s: %R has no compact subclasses", name, base);
  PyType_Spec spec = {name, 0, 0, Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE | Py_TPFLAGS_HAVE_GC,
                      is_call ? bound_call_slots : buffer_slots};
  spec.flags |= is_call ? Py_TPFLAGS_HAVE_VECTORCALL : Py_TPFLAGS_DISALLOW_INSTANTIATION;
  PyObject *type = PyType_FromSpecWithBases(&spec, base);
  if (type != NULL && !is_call) buffer_type_made((PyTypeObject *)type);
  return type;
}

static PyMethodDef functions[] = {
    {"install", process_install, METH_VARARGS, NULL},
    {"ends", process_ends, METH_NOARGS, NULL},
    {"interrupt", process_interrupt, METH_NOARGS, NULL},
    {"interrupted", process_interrupted, METH_NOARGS, NULL},
    {"leave", process_leave, METH_NOARGS, NULL},
    {"aside", process_aside, METH_O, NULL},
    {"generation", current_generation, METH_NOARGS, NULL},
    {"open_library", open_library, METH_VARARGS, NULL},
    {"get_pjrt_api", get_pjrt_api, METH_VARARGS, NULL},
    {"preload_library", preload_library, METH_VARARGS, NULL},
    {"read_error", process_read_error, METH_VARARGS, NULL},
    {"reclaim", process_reclaim, METH_VARARGS, NULL},
    {"note_origins", buffer_note_origins, METH_O, NULL},
    {"wake", dispatcher_wake, METH_O, NULL},
    {"dispatch", dispatcher_dispatch, METH_NOARGS, NULL},
    {"end", dispatcher_end, METH_NOARGS, NULL},
    {"notify", dispatcher_notify, METH_VARARGS, NULL},
    {"keep", dispatcher_keep, METH_VARARGS, NULL},
    {"deleter", dispatcher_deleter, METH_VARARGS, NULL},
    {"kv_store", kv_store, METH_VARARGS, NULL},
    {"upcalls_end", upcalls_end, METH_O, NULL},
    {"host_transfer", host_transfer, METH_VARARGS, NULL},
    {"host_transfer_end", host_transfer_end, METH_VARARGS, NULL},
    {"ffi_entry", ffi_entry, METH_VARARGS, NULL},
    {"ffi_return", ffi_return, METH_O, NULL},
    {"ffi_share", ffi_share, METH_VARARGS, NULL},
    {"ffi_shown", ffi_shown, METH_NOARGS, NULL},
    {"ffi_deleter", ffi_deleter, METH_NOARGS, NULL},
    {"ffi_keep", ffi_keep, METH_O, NULL},
    {"ffi_kept", ffi_kept, METH_VARARGS, NULL},
    {"xla_transform", xla_transform, METH_O, NULL},
    {"custom_partitioner", custom_partitioner, METH_VARARGS, NULL},
    {"asks_python", asks_python, METH_NOARGS, NULL},
    {"compact_type", compact_type, METH_VARARGS, NULL},
    {"capsule_address", capsule_address, METH_O, NULL},
    {"lend", dlpack_lend, METH_VARARGS, NULL},
    {"borrow", dlpack_borrow, METH_O, NULL},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "pjrt_hub.running.capi.hotpath",
    "The compiled call path: the base types of Client, Buffer and LoadedExecutable.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

/* Declares that the module needs no GIL, if Python is a build without one. */
static int free_of_gil(PyObject *module) {
#ifdef Py_GIL_DISABLED
  if (guard == NULL && (guard = PyList_New(0)) == NULL) return -1;
  return PyUnstable_Module_SetGIL(module, Py_MOD_GIL_NOT_USED);
#else
  return 0;
#endif
}

/* Initialization has a single phase, because the static variables allow one module per process. */
PyMODINIT_FUNC PyInit_hotpath(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (free_of_gil(module) < 0 ||
      PyModule_AddObject(module, "MOST_BYTES", PyLong_FromSsize_t(MOST_BYTES)) < 0 ||
      PyModule_AddObject(module, "MOST_ELEMENTS", PyLong_FromSsize_t(MOST_ELEMENTS)) < 0 ||
      add_type(module, &FunctionType, &function_spec, "Function") < 0 ||
      add_type(module, &FunctionsType, &functions_spec, "Functions") < 0 ||
      add_type(module, &StagingType, &staging_spec, "Staging") < 0 ||
      add_type(module, &ClientType, &client_spec, "Client") < 0 ||
      add_type(module, &InCallType, &in_call_spec, "InCall") < 0 ||
      add_type(module, &BufferType, &buffer_spec, "Buffer") < 0 ||
      add_type(module, &OwnedType, &owned_spec, "Owned") < 0 ||
      add_type(module, &EventType, &event_spec, "Event") < 0 ||
      add_type(module, &HostViewType, &host_view_spec, "HostView") < 0 ||
      add_type(module, &ExecutableType, &executable_spec, "LoadedExecutable") < 0 ||
      add_type(module, &BoundCallType, &bound_call_spec, "BoundCall") < 0 ||
      add_type(module, &StepperType, &stepper_spec, "Stepper") < 0 ||
      pthread_atfork(staging_before_fork, staging_after_fork, in_forked_child) != 0 ||
      pthread_atfork(ticket_before_fork, ticket_after_fork, ticket_after_fork) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
