/* Host transfers: PJRT's send, receive and HLO output callbacks, by which a running program
   exchanges data with the host. Python functions answer them, while the plugin's thread waits. */
#include "native.h"

#include <stdarg.h>

/* A plugin passes a ticket back with each call. The ticket is valid as long as the capsule around
   it lives, and its holder is one of these Python functions:
   send(bytes, total size in bytes, whether this is the last chunk) -> None or (code, text)
   receive(stream address) -> None; Python owns the stream from then on
   output(address, dimensions, element type, replica, partition, number) -> None */
static const char capsule_name[] = "pjrt_hub host transfer";

/* Returns a new reference to a ticket's function, or NULL if its capsule is gone. Needs the GIL. */
static PyObject *callable_of(void *number) {
  GUARD;
  Ticket ticket;
  return ticket_look(number, &ticket) ? Py_NewRef(ticket.holder) : NULL;
}

static void free_chunk(PJRT_Chunk *chunk) {
  if (chunk->deleter != NULL) chunk->deleter(chunk->data, chunk->deleter_arg);
}

static PJRT_Error *send(PJRT_Chunk *chunk, PJRT_CallbackError *maker, size_t total, bool done,
                        void *user_arg) {
  PyGILState_STATE state;
  PJRT_Error *error = NULL;
  if (!upcall_begins(&state)) {
    free_chunk(chunk);
    return upcall_refused(maker);
  }
  PyObject *answer = NULL, *bytes = NULL, *callable = callable_of(user_arg);
  if (callable != NULL) bytes = PyBytes_FromStringAndSize(chunk->data, (Py_ssize_t)chunk->size);
  if (bytes != NULL)
    answer = PyObject_CallFunction(callable, "OnO", bytes, (Py_ssize_t)total,
                                   done ? Py_True : Py_False);
  if (callable == NULL)
    error = upcall_plain_error(maker, PJRT_Error_Code_FAILED_PRECONDITION, "the execution is over");
  else if (answer != Py_None)
    error = upcall_error(maker, answer);
  Py_XDECREF(answer);
  Py_XDECREF(bytes);
  Py_XDECREF(callable);
  upcall_ends(state);
  free_chunk(chunk);
  return error;
}

static void free_zeros(void *zeros, void *unused) { free(zeros); }

/* Makes a stream fail by adding a chunk that exceeds it, as AddChunk specifies. The C API cannot
   say "no more data will come", and without a failure the program would wait for ever. */
static void fail_stream(const PJRT_Api *api, PJRT_CopyToDeviceStream *stream, size_t excess) {
  PJRT_Chunk chunk = {.data = calloc(excess, 1), .size = excess, .deleter = free_zeros};
  SIZED(PJRT_CopyToDeviceStream_AddChunk_Args, args);
  if (chunk.data == NULL) return;
  args.stream = stream;
  args.chunk = &chunk;
  drop_error(api, api->PJRT_CopyToDeviceStream_AddChunk(&args));
  if (args.transfer_complete != NULL) event_destroy_native(api, args.transfer_complete);
}

static void end_stream(const PJRT_Api *api, PJRT_CopyToDeviceStream *stream) {
  SIZED(PJRT_CopyToDeviceStream_TotalBytes_Args, total, .stream = stream);
  SIZED(PJRT_CopyToDeviceStream_CurrentBytes_Args, current, .stream = stream);
  SIZED(PJRT_CopyToDeviceStream_GranuleSize_Args, granule, .stream = stream);
  SIZED(PJRT_CopyToDeviceStream_Destroy_Args, end, .stream = stream);
  drop_error(api, api->PJRT_CopyToDeviceStream_TotalBytes(&total));
  drop_error(api, api->PJRT_CopyToDeviceStream_CurrentBytes(&current));
  drop_error(api, api->PJRT_CopyToDeviceStream_GranuleSize(&granule));
  int64_t missing = total.total_bytes - current.current_bytes;
  if (missing > 0) fail_stream(api, stream, (size_t)(missing + granule.granule_size_in_bytes));
  drop_error(api, api->PJRT_CopyToDeviceStream_Destroy(&end));
}

/* Calls a ticket's function with the arguments that `format` describes. An exception is only
   reported, because no caller could catch it. Returns false if Python is ending. */
static bool tell(void *number, const char *format, ...) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return false;
  PyObject *callable = callable_of(number);
  if (callable != NULL) {
    va_list values;
    va_start(values, format);
    PyObject *args = Py_VaBuildValue(format, values), *answer = NULL;
    va_end(values);
    if (args != NULL) answer = PyObject_CallObject(callable, args);
    if (answer == NULL) report_unraisable(callable);
    Py_XDECREF(args);
    Py_XDECREF(answer);
    Py_DECREF(callable);
  }
  upcall_ends(state);
  return true;
}

/* Hands the stream to Python. If Python is ending, the stream ends here and the program fails. */
static void receive(PJRT_CopyToDeviceStream *stream, void *user_arg) {
  Ticket ticket;
  if (!tell(user_arg, "(K)", ADDRESS(stream)) && ticket_look(user_arg, &ticket))
    end_stream(ticket.api, stream);
}

typedef struct {
  const int64_t *dims;
  size_t count;
} Dimensions;

static PyObject *dimensions(void *arg) {
  const Dimensions *given = arg;
  if (given->count > MAX_RANK || (given->count > 0 && given->dims == NULL))
    return PyErr_Format(PyExc_ValueError, "the plugin gave %zu dimensions", given->count);
  return tuple_of(given->dims, (Py_ssize_t)given->count);
}

static void output(int64_t replica, int64_t partition, const void *data, const int64_t *dims,
                   size_t num_dims, PJRT_Buffer_Type type, int64_t number, void *user_arg) {
  Dimensions shape = {dims, num_dims};
  tell(user_arg, "(KO&iLLL)", ADDRESS(data), dimensions, &shape, (int)type, (long long)replica,
       (long long)partition, (long long)number);
}

static void end_transfer(PyObject *capsule) {
  GUARD;
  Ticket ticket;
  if (ticket_take(PyCapsule_GetPointer(capsule, capsule_name), &ticket)) Py_DECREF(ticket.holder);
}

/* host_transfer(api, callable) -> (a capsule that must live as long as a plugin may call, the
   user_arg, the addresses of send, receive and output) */
PyObject *host_transfer(PyObject *module, PyObject *args) {
  GUARD;
  unsigned long long api;
  PyObject *callable;
  if (!PyArg_ParseTuple(args, "KO", &api, &callable)) return NULL;
  python_is_asked = true;
  Ticket ticket = {.api = (const PJRT_Api *)(uintptr_t)api, .holder = callable};
  void *number = ticket_issue(ticket);
  if (number == NULL) return PyErr_NoMemory();
  PyObject *capsule = PyCapsule_New(number, capsule_name, end_transfer);
  if (capsule == NULL) {
    ticket_take(number, &ticket);
    return NULL;
  }
  Py_INCREF(callable);
  return Py_BuildValue("NKKKK", capsule, ADDRESS(number), ADDRESS(send), ADDRESS(receive),
                       ADDRESS(output));
}

/* host_transfer_end(api, stream): ends a stream; a program that still waits for data fails. */
PyObject *host_transfer_end(PyObject *module, PyObject *args) {
  unsigned long long api, stream;
  if (!PyArg_ParseTuple(args, "KK", &api, &stream)) return NULL;
  Py_BEGIN_ALLOW_THREADS;
  end_stream((const PJRT_Api *)(uintptr_t)api, (PJRT_CopyToDeviceStream *)(uintptr_t)stream);
  Py_END_ALLOW_THREADS;
  Py_RETURN_NONE;
}
