/* Layouts: the order of a buffer's dimensions in memory. Only a buffer's answer is trusted
   (PJRT_Buffer_GetMemoryLayout): a layout that a compiler states for its outputs, or that a host
   would guess, is used only after a buffer has confirmed it. */
#include "native.h"

static const char FUNCTION[] = "PJRT_Buffer_GetMemoryLayout";

/* Sorts the dimensions by their strides. Two strides are equal only if one of the dimensions has
   one element; the later dimension then comes first. */
static void sort_strides(const int64_t *strides, Py_ssize_t rank, int64_t *order) {
  for (Py_ssize_t i = 0; i < rank; i++) {
    Py_ssize_t d = rank - 1 - i, place = i;
    for (; place > 0 && strides[order[place - 1]] > strides[d]; place--)
      order[place] = order[place - 1];
    order[place] = d;
  }
}

static bool is_permutation(const int64_t *order, Py_ssize_t rank) {
  bool seen[MAX_RANK] = {false};
  for (Py_ssize_t i = 0; i < rank; i++) {
    if (order[i] < 0 || order[i] >= rank || seen[order[i]]) return false;
    seen[order[i]] = true;
  }
  return true;
}

/* Returns the order of dimensions in the form that a Buffer stores, which is None for row-major. */
static PyObject *to_tuple(const int64_t *order, Py_ssize_t rank) {
  Py_ssize_t in_place = 0;
  while (in_place < rank && order[in_place] == rank - 1 - in_place) in_place++;
  return in_place == rank ? Py_NewRef(Py_None) : tuple_of(order, rank);
}

/* Reads a layout of memory with so many dimensions; returns as `ask`. */
static int read_layout(const PJRT_Buffer_MemoryLayout *told, Py_ssize_t rank, PyObject **layout,
                       bool *scattered) {
  bool strided = told->type == PJRT_Buffer_MemoryLayout_Type_Strides;
  const int64_t *members = strided ? told->strides.byte_strides : told->tiled.minor_to_major;
  size_t count = strided ? told->strides.num_byte_strides : told->tiled.minor_to_major_size;
  if (count == 0 && rank > 0) return 0; /* The plugin filled in nothing, which JAX never notices. */
  if (count != (size_t)rank || rank > MAX_RANK || (members == NULL && rank > 0))
    return failed(
        raise_answer(FUNCTION, "a layout of another number of dimensions than the buffer has"));
  int64_t sorted[MAX_RANK];
  if (strided) sort_strides(members, rank, sorted);
  const int64_t *order = strided ? sorted : members;
  if (!is_permutation(order, rank))
    return failed(raise_answer(FUNCTION, "a layout that is not a permutation of the dimensions"));
  *scattered = strided || told->tiled.num_tiles > 0;
  *layout = to_tuple(order, rank);
  return *layout != NULL ? 1 : -1;
}

/* Asks for a layout; returns 1, 0 if the plugin does not say, or -1 with an exception set. What it
   tells lies in the buffer, which dies at the end of the call if the client was closed meanwhile. */
static int ask(const BufferObject *buffer, PyObject **layout, bool *scattered) {
  const PJRT_Api *api = buffer->client->api;
  SIZED(PJRT_Buffer_GetMemoryLayout_Args, args);
  if (!OFFERS(api, PJRT_Buffer_GetMemoryLayout)) return 0;
  args.buffer = buffer->ptr;
  int told;
  client_enter(buffer->client);
  PJRT_Error *error = RELEASED(api->PJRT_Buffer_GetMemoryLayout(&args));
  if (error == NULL)
    told = read_layout(&args.layout, PyTuple_Size(buffer->shape), layout, scattered);
  else
    told = drop_unimplemented(api, error) ? 0 : failed(raise_status(api, error, FUNCTION));
  client_leave(buffer->client);
  return told;
}

/* Asks for a buffer's layout if that was not done before; returns -1 with an exception set. If the
   plugin does not say, the layout is row-major. */
int layout_know(BufferObject *buffer) {
  if (buffer->layout != NULL) return 0;
  PyObject *layout = NULL;
  int told = ask(buffer, &layout, &buffer->scattered);
  if (told < 0) return -1;
  if (buffer->layout != NULL) { /* Another thread has asked meanwhile. */
    Py_XDECREF(layout);
    return 0;
  }
  buffer->layout = told == 1 ? layout : Py_NewRef(Py_None);
  return 0;
}

/* Compares the compiler's layout for an output with that of the first buffer. If they agree, or the
   plugin does not say, it holds for all; otherwise each buffer is asked when its layout matters. */
void layout_prove(PyObject **word, BufferObject *output) {
  if (*word == NULL) return;
  PyObject *said = output->layout;
  output->layout = NULL;
  int told = ask(output, &output->layout, &output->scattered);
  if (told < 0) PyErr_Clear(); /* The error is raised when the layout matters. */
  bool agreed =
      told == 0 || (told == 1 && !output->scattered &&
                    PyObject_RichCompareBool(output->layout, said, Py_EQ) == 1);
  if (agreed) {
    Py_XDECREF(output->layout);
    output->layout = said;
  } else {
    Py_XDECREF(said);
    Py_CLEAR(*word);
  }
}

/* Sets the layout of a buffer that was put without a requested layout, if no call is needed. In
   host memory, the first buffer shows for all whether the plugin keeps arrays row-major. */
void layout_of_put(BufferObject *buffer) {
  ClientObject *client = buffer->client;
  if (!client->on_host || client->lays == ITS_WAY) return;
  if (PyTuple_Size(buffer->shape) > 1 && client->lays == NOT_SEEN) {
    if (layout_know(buffer) < 0) PyErr_Clear(); /* The error is raised when the layout matters. */
    client->lays = buffer->layout == Py_None && !buffer->scattered ? ROWS : ITS_WAY;
  }
  if (buffer->layout == NULL && client->lays != ITS_WAY) buffer->layout = Py_NewRef(Py_None);
}

/* Buffer._order() -> minor_to_major, or None for row-major. */
PyObject *buffer_order(PyObject *self, PyObject *unused) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (buffer->layout == NULL && (!buffer_usable(buffer) || layout_know(buffer) < 0)) return NULL;
  return Py_NewRef(buffer->layout);
}
