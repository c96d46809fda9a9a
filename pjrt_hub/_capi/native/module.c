/* The extension module: what it exports, how it raises, and what a fork does to it. */
#include "hotpath.h"

#include <dlfcn.h>
#include <pthread.h>

PyTypeObject *ClientType, *BufferType, *EventType, *ExecutableType, *HostViewType;

/* Grows in every forked child. An object made before has another generation and is refused:
   the plugin's threads do not exist in the child, so a call could hang or abort. */
unsigned fork_generation = 1;

static PyObject *status_raiser; /* status.raise_error(api address, error address, function) */
static PyObject *closed_error;  /* errors.ClosedError */

static void in_forked_child(void) {
  fork_generation++;
  event_queue_reset();
}

PyObject *raise_status(const PJRT_Api *api, PJRT_Error *error, const char *function) {
  PyObject *none = PyObject_CallFunction(status_raiser, "KKs", (unsigned long long)(uintptr_t)api,
                                         (unsigned long long)(uintptr_t)error, function);
  Py_XDECREF(none);
  if (!PyErr_Occurred()) PyErr_SetString(PyExc_SystemError, "the status raiser returned");
  return NULL;
}

PyObject *raise_closed(const char *message) {
  PyErr_SetString(closed_error, message);
  return NULL;
}

int add_type(PyObject *module, PyTypeObject **slot, PyType_Spec *spec, const char *name) {
  *slot = (PyTypeObject *)PyType_FromSpec(spec);
  if (*slot == NULL) return -1;
  return PyModule_AddObjectRef(module, name, (PyObject *)*slot);
}

static PyObject *install(PyObject *module, PyObject *args) {
  PyObject *raiser, *closed;
  if (!PyArg_ParseTuple(args, "OO", &raiser, &closed)) return NULL;
  Py_INCREF(raiser); /* for the life of the process, as the module itself */
  Py_INCREF(closed);
  status_raiser = raiser;
  closed_error = closed;
  Py_RETURN_NONE;
}

static PyObject *forked_since(PyObject *module, PyObject *arg) {
  unsigned long generation = PyLong_AsUnsignedLong(arg);
  if (generation == (unsigned long)-1 && PyErr_Occurred()) return NULL;
  return PyBool_FromLong(generation != fork_generation);
}

static PyObject *current_generation(PyObject *module, PyObject *unused) {
  return PyLong_FromUnsignedLong(fork_generation);
}

/* NODELETE and a handle that is never closed: unloading a plugin crashes at exit, because its
   threads and static destructors outlive the mapping. */
static PyObject *open_library(PyObject *module, PyObject *args) {
  const char *path;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  void *handle;
  const char *why = NULL;
  Py_BEGIN_ALLOW_THREADS;
  handle = dlopen(path, RTLD_NOW | RTLD_LOCAL | RTLD_NODELETE);
  if (handle == NULL) why = dlerror();
  Py_END_ALLOW_THREADS;
  if (handle == NULL) return PyErr_Format(PyExc_OSError, "%s", why ? why : "dlopen failed");
  const PJRT_Api *(*get_api)(void) = (const PJRT_Api *(*)(void))dlsym(handle, "GetPjrtApi");
  if (get_api == NULL) Py_RETURN_NONE;
  const PJRT_Api *api;
  Py_BEGIN_ALLOW_THREADS;
  api = get_api();
  Py_END_ALLOW_THREADS;
  return PyLong_FromUnsignedLongLong((unsigned long long)(uintptr_t)api);
}

/* Dependencies that a plugin looks up by soname are made visible to it this way (RTLD_GLOBAL). */
static PyObject *preload_library(PyObject *module, PyObject *args) {
  const char *path;
  if (!PyArg_ParseTuple(args, "s", &path)) return NULL;
  void *handle;
  const char *why = NULL;
  Py_BEGIN_ALLOW_THREADS;
  handle = dlopen(path, RTLD_NOW | RTLD_GLOBAL | RTLD_NODELETE);
  if (handle == NULL) why = dlerror();
  Py_END_ALLOW_THREADS;
  if (handle == NULL) return PyErr_Format(PyExc_OSError, "%s", why ? why : "dlopen failed");
  Py_RETURN_NONE;
}

static void add_payload(const char *key, size_t key_size, const char *value, size_t value_size,
                        void *user_arg) {
  PyObject *name = PyUnicode_DecodeUTF8(key, (Py_ssize_t)key_size, "replace");
  PyObject *bytes = PyBytes_FromStringAndSize(value, (Py_ssize_t)value_size);
  if (name != NULL && bytes != NULL) PyDict_SetItem((PyObject *)user_arg, name, bytes);
  Py_XDECREF(name);
  Py_XDECREF(bytes);
}

/* payloads(api, error) -> dict: PJRT_Error_ForEachPayload, which visits before it returns, so the
   GIL is simply kept. */
static PyObject *error_payloads(PyObject *module, PyObject *args) {
  unsigned long long api_address, error;
  if (!PyArg_ParseTuple(args, "KK", &api_address, &error)) return NULL;
  const PJRT_Api *api = (const PJRT_Api *)(uintptr_t)api_address;
  PyObject *payloads = PyDict_New();
  if (payloads == NULL ||
      api->struct_size < offsetof(PJRT_Api, PJRT_Error_ForEachPayload) + sizeof(void *) ||
      api->PJRT_Error_ForEachPayload == NULL)
    return payloads;
  PJRT_Error_ForEachPayload_Args visit = {
      .struct_size = PJRT_Error_ForEachPayload_Args_STRUCT_SIZE};
  visit.error = (PJRT_Error *)(uintptr_t)error;
  visit.visitor = add_payload;
  visit.user_arg = payloads;
  PJRT_Error *failure = api->PJRT_Error_ForEachPayload(&visit);
  if (failure != NULL) {
    PJRT_Error_Destroy_Args gone = {.struct_size = PJRT_Error_Destroy_Args_STRUCT_SIZE};
    gone.error = failure;
    api->PJRT_Error_Destroy(&gone);
  }
  return payloads;
}

static PyMethodDef functions[] = {
    {"install", install, METH_VARARGS, "install(raise_error, ClosedError)"},
    {"generation", current_generation, METH_NOARGS, "The number of forks above this process."},
    {"forked_since", forked_since, METH_O, "Whether the process forked after that generation."},
    {"open_library", open_library, METH_VARARGS,
     "dlopen(path, NOW | LOCAL | NODELETE) and GetPjrtApi(): its address, or None without it."},
    {"preload_library", preload_library, METH_VARARGS, "dlopen(path, NOW | GLOBAL | NODELETE)."},
    {"payloads", error_payloads, METH_VARARGS, "payloads(api, error) -> dict of str to bytes."},
    {"notify", event_notify, METH_VARARGS,
     "notify(api, event, fd, token): queue the token and wake fd when the event is ready."},
    {"notified", event_notified, METH_NOARGS, "The queued tokens, oldest first."},
    {NULL, NULL, 0, NULL},
};

static struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT,
    "pjrt_hub._capi.hotpath",
    "The compiled call path: the base types of Client, Buffer and LoadedExecutable.",
    -1,
    functions,
    NULL,
    NULL,
    NULL,
    NULL,
};

PyMODINIT_FUNC PyInit_hotpath(void) {
  PyObject *module = PyModule_Create(&definition);
  if (module == NULL) return NULL;
  if (add_type(module, &ClientType, &client_spec, "Client") < 0 ||
      add_type(module, &BufferType, &buffer_spec, "Buffer") < 0 ||
      add_type(module, &EventType, &event_spec, "Event") < 0 ||
      add_type(module, &HostViewType, &host_view_spec, "HostView") < 0 ||
      add_type(module, &ExecutableType, &executable_spec, "LoadedExecutable") < 0 ||
      pthread_atfork(NULL, NULL, in_forked_child) != 0) {
    Py_DECREF(module);
    return NULL;
  }
  return module;
}
