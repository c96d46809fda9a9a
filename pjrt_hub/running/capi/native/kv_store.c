/* The key-value store that the processes of a job share. A plugin calls its three callbacks from
   any thread, and Python functions answer them. */
#include "native.h"

#include <limits.h>

/* The Python functions of a store, which is never freed: a plugin may call until the process ends.
   get(key, milliseconds) -> bytes, None if there was no value in that time, or (code, text)
   try_get(key) -> bytes or (code, text)
   put(key, value) -> None or (code, text) */
typedef struct {
  PyObject *get, *try_get, *put;
} Store;

/* The longest wait inside Python, in ms. The end of Python has to wait for it. */
enum { SLICE_MS = 200 };

static void free_value(char *value) { free(value); }

static PJRT_Error *read_value(PJRT_CallbackError *maker, PyObject *answer, char **value,
                              size_t *value_size) {
  char *data;
  Py_ssize_t size;
  if (answer == NULL || !PyBytes_Check(answer)) return upcall_error(maker, answer);
  PyBytes_AsStringAndSize(answer, &data, &size);
  *value = malloc((size_t)size + 1); /* The extra byte keeps an empty value from being NULL. */
  if (*value == NULL) return upcall_plain_error(maker, PJRT_Error_Code_RESOURCE_EXHAUSTED, "no memory");
  memcpy(*value, data, (size_t)size);
  *value_size = (size_t)size;
  return NULL;
}

/* Waits once, for at most `milliseconds`. `*waited` becomes true if there is no value yet. */
static PJRT_Error *get_once(PJRT_KeyValueGetCallback_Args *args, int milliseconds, bool *waited) {
  Store *store = args->user_arg;
  PyGILState_STATE state;
  *waited = false;
  if (!upcall_begins(&state)) return upcall_refused(args->callback_error);
  PyObject *answer = PyObject_CallFunction(store->get, "Ni",
                                           upcall_bytes(args->key, args->key_size), milliseconds);
  PJRT_Error *error = NULL;
  *waited = answer == Py_None;
  if (!*waited) error = read_value(args->callback_error, answer, &args->value, &args->value_size);
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

static int64_t now_ms(void) { return monotonic_ns() / 1000000; }

static PJRT_Error *get(PJRT_KeyValueGetCallback_Args *args) {
  int limit = args->timeout_in_ms < 0 ? INT_MAX : args->timeout_in_ms;
  int64_t deadline = now_ms() + limit;
  args->value_deleter_callback = free_value;
  for (;;) {
    int64_t left = deadline - now_ms();
    bool waited;
    if (left < 0) left = 0;
    PJRT_Error *error = get_once(args, left < SLICE_MS ? (int)left : SLICE_MS, &waited);
    if (!waited) return error;
    if (now_ms() >= deadline)
      return upcall_plain_error(args->callback_error, PJRT_Error_Code_DEADLINE_EXCEEDED,
                          "nobody put a value under the key in time");
  }
}

static PJRT_Error *try_get(PJRT_KeyValueTryGetCallback_Args *args) {
  Store *store = args->user_arg;
  PyGILState_STATE state;
  args->value_deleter_callback = free_value;
  if (!upcall_begins(&state)) return upcall_refused(args->callback_error);
  PyObject *answer =
      PyObject_CallFunction(store->try_get, "N", upcall_bytes(args->key, args->key_size));
  PJRT_Error *error = read_value(args->callback_error, answer, &args->value, &args->value_size);
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

static PJRT_Error *put(PJRT_KeyValuePutCallback_Args *args) {
  Store *store = args->user_arg;
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return upcall_refused(args->callback_error);
  PyObject *answer =
      PyObject_CallFunction(store->put, "NN", upcall_bytes(args->key, args->key_size),
                            upcall_bytes(args->value, args->value_size));
  PJRT_Error *error = answer == Py_None ? NULL : upcall_error(args->callback_error, answer);
  Py_XDECREF(answer);
  upcall_ends(state);
  return error;
}

/* kv_store(get, try_get, put) -> the addresses of the three callbacks, and their user_arg. */
PyObject *kv_store(PyObject *module, PyObject *args) {
  GUARD;
  Store functions;
  if (!PyArg_ParseTuple(args, "OOO", &functions.get, &functions.try_get, &functions.put))
    return NULL;
  python_is_asked = true;
  Store *store = malloc(sizeof(Store));
  if (store == NULL) return PyErr_NoMemory();
  *store = (Store){Py_NewRef(functions.get), Py_NewRef(functions.try_get),
                   Py_NewRef(functions.put)};
  return Py_BuildValue("KKKK", ADDRESS(get), ADDRESS(try_get), ADDRESS(put), ADDRESS(store));
}
