/* Calls of a plugin's compiler to Python, which transforms whole programs and partitions custom
   calls. The compiler waits for the answers of the Python functions. */
#include "native.h"

static const char ending[] = "Python is ending";

/* Reports an error in a header; both extensions have these fields. The plugin frees `data`. */
#define FAIL(header, CODE, TEXT, SIZE) \
  do { \
    (header)->data = copy((TEXT), (SIZE)); \
    (header)->cleanup_fn = free; \
    (header)->has_error = true; \
    (header)->code = (CODE); \
    (header)->error_msg.data = (header)->data; \
    (header)->error_msg.size = (header)->data != NULL ? (SIZE) : 0; \
  } while (0)

static void *copy(const char *data, size_t size) {
  char *bytes = malloc(size + 1); /* malloc(0) may return NULL. */
  return bytes != NULL ? memcpy(bytes, data, size) : NULL;
}

/* Reports an answer (code, text) as an error; any other answer is an internal error of pjrt-hub. */
#define FAIL_WITH(header, answer) \
  do { \
    int code_ = PJRT_Error_Code_INTERNAL; \
    const char *text_ = "Python gave no answer"; \
    size_t size_ = strlen(text_); \
    upcall_failure((answer), &code_, &text_, &size_); \
    FAIL((header), (PJRT_Error_Code)code_, text_, size_); \
  } while (0)

/* Begins a call to Python, or reports that none begins any more and returns. */
#define BEGIN(header, state)                                              \
  if (!upcall_begins(&(state))) {                                         \
    FAIL((header), PJRT_Error_Code_CANCELLED, ending, sizeof ending - 1); \
    return;                                                               \
  }

static void end(PyObject *answer, PyGILState_STATE state) {
  PyErr_Clear();
  Py_XDECREF(answer);
  upcall_ends(state);
}

/* Releases a callable. Plugins do so on any thread, even at exit, when it can only be leaked. */
static void let_go(PyObject **callable) {
  PyGILState_STATE state;
  if (!upcall_begins(&state)) return;
  Py_CLEAR(*callable);
  upcall_ends(state);
}

/* Transforms: callable(HloModuleProto as bytes) -> None for no change, a new one, or (code, text).
   The struct is never freed, because only the plugin knows which call was the last. */
typedef struct {
  PJRT_XlaTransform_Callbacks callbacks; /* The first member: the plugin passes its address back. */
  PyObject *callable;
} Transform;

static void forget_transform(PJRT_XlaTransform_Callbacks *callbacks) {
  let_go(&((Transform *)callbacks)->callable);
}

static void transform(PJRT_XlaTransform_Callbacks *callbacks, PJRT_XlaTransform_Args *args) {
  Transform *self = (Transform *)callbacks;
  PyGILState_STATE state;
  char *bytes;
  Py_ssize_t size;
  args->changed = false;
  BEGIN(&args->header, state);
  PyObject *answer = PyObject_CallFunction(
      self->callable, "N", upcall_bytes(args->hlo_module.data, args->hlo_module.size));
  if (answer != NULL && PyBytes_Check(answer) && PyBytes_AsStringAndSize(answer, &bytes, &size) == 0) {
    args->header.data = copy(bytes, (size_t)size);
    args->header.cleanup_fn = free;
    args->transformed_hlo_module.data = args->header.data;
    args->transformed_hlo_module.size = (size_t)size;
    args->changed = args->header.data != NULL;
  } else if (answer != Py_None) {
    FAIL_WITH(&args->header, answer);
  }
  end(answer, state);
}

/* xla_transform(callable) -> address of its PJRT_XlaTransform_Callbacks. */
PyObject *xla_transform(PyObject *module, PyObject *callable) {
  Transform *self = calloc(1, sizeof *self);
  if (self == NULL) return PyErr_NoMemory();
  self->callbacks.version = 1;
  self->callbacks.dtor = forget_transform;
  self->callbacks.transform_hlo_module = transform;
  self->callable = Py_NewRef(callable);
  return PyLong_FromVoidPtr(self);
}

/* Partitioners: callable("partition", arguments, result, backend_config)
     -> (MLIR module, [sharding of each argument], sharding of the result)
   callable("infer", arguments, shape of the result, backend_config) -> its sharding or None
   callable("propagate", shape of the result, its sharding, backend_config) -> its sharding
   Each may also return (code, text). Arguments and results are (shape, sharding or None). */
typedef struct {
  JAX_CustomCallPartitioner_Callbacks callbacks;
  PyObject *callable;
} Partitioner;

typedef JAX_CustomCallPartitioner_string String;

static PyObject *bytes_of(String text) {
  return PyBytes_FromStringAndSize(text.data, (Py_ssize_t)text.size);
}

static PyObject *array_of(const JAX_CustomCallPartitioner_aval *value) {
  if (!value->has_sharding) return Py_BuildValue("(NO)", bytes_of(value->shape), Py_None);
  return Py_BuildValue("(NN)", bytes_of(value->shape), bytes_of(value->sharding));
}

static PyObject *arrays_of(const JAX_CustomCallPartitioner_aval *values, size_t count) {
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; i++) {
    PyObject *each = array_of(&values[i]);
    if (each == NULL || PyList_SetItem(list, (Py_ssize_t)i, each) != 0) Py_CLEAR(list);
  }
  return list;
}

/* Copies an answer to `*at` and moves `*at` past it; returns false if the answer is not bytes. */
static bool take(PyObject *answer, String *text, char **at) {
  char *bytes;
  Py_ssize_t size;
  if (answer == NULL || PyBytes_AsStringAndSize(answer, &bytes, &size) != 0) return false;
  text->data = memcpy(*at, bytes, (size_t)size);
  text->size = (size_t)size;
  *at += size;
  return true;
}

static size_t size_of(PyObject *answer) {
  return answer != NULL && PyBytes_Check(answer) ? (size_t)PyBytes_Size(answer) : 0;
}

static bool take_partition(PyObject *answer, JAX_CustomCallPartitioner_Partition_Args *args) {
  PyObject *mlir, *shardings, *result;
  size_t count = args->num_args;
  if (answer == NULL || !PyTuple_Check(answer) ||
      !PyArg_ParseTuple(answer, "SO!S", &mlir, &PyList_Type, &shardings, &result) ||
      (size_t)PyList_Size(shardings) != count)
    return false;
  size_t total = count * sizeof(String) + size_of(mlir) + size_of(result) + 1;
  for (size_t i = 0; i < count; i++) total += size_of(PyList_GetItem(shardings, (Py_ssize_t)i));
  String *strings = malloc(total);
  if (strings == NULL) return false;
  char *at = (char *)(strings + count);
  bool good = take(mlir, &args->mlir_module, &at) && take(result, &args->result_sharding, &at);
  for (size_t i = 0; good && i < count; i++)
    good = take(PyList_GetItem(shardings, (Py_ssize_t)i), &strings[i], &at);
  if (!good) {
    free(strings);
    return false;
  }
  args->args_sharding = strings;
  args->header.data = strings;
  args->header.cleanup_fn = free;
  return true;
}

static bool take_sharding(PyObject *answer, JAX_CustomCallPartitioner_version_and_error *header,
                          String *sharding) {
  if (answer == NULL || !PyBytes_Check(answer)) return false;
  char *at = header->data = malloc(size_of(answer) + 1);
  header->cleanup_fn = free;
  return at != NULL && take(answer, sharding, &at);
}

static void partition(JAX_CustomCallPartitioner_Callbacks *callbacks,
                      JAX_CustomCallPartitioner_Partition_Args *args) {
  PyGILState_STATE state;
  BEGIN(&args->header, state);
  PyObject *answer = PyObject_CallFunction(
      ((Partitioner *)callbacks)->callable, "sNNN", "partition",
      arrays_of(args->op_args, args->num_args), array_of(&args->op_result),
      bytes_of(args->backend_config));
  if (!take_partition(answer, args)) FAIL_WITH(&args->header, answer);
  end(answer, state);
}

static void infer_sharding(JAX_CustomCallPartitioner_Callbacks *callbacks,
                           JAX_CustomCallPartitioner_InferShardingFromOperands_Args *args) {
  PyGILState_STATE state;
  BEGIN(&args->header, state);
  PyObject *answer = PyObject_CallFunction(
      ((Partitioner *)callbacks)->callable, "sNNN", "infer",
      arrays_of(args->op_args, args->num_args), bytes_of(args->result_shape),
      bytes_of(args->backend_config));
  args->has_result_sharding = take_sharding(answer, &args->header, &args->result_sharding);
  if (!args->has_result_sharding && answer != Py_None) FAIL_WITH(&args->header, answer);
  end(answer, state);
}

static void propagate(JAX_CustomCallPartitioner_Callbacks *callbacks,
                      JAX_CustomCallPartitioner_PropagateUserSharding_Args *args) {
  PyGILState_STATE state;
  BEGIN(&args->header, state);
  PyObject *answer = PyObject_CallFunction(
      ((Partitioner *)callbacks)->callable, "sNNN", "propagate", bytes_of(args->result_shape),
      bytes_of(args->result_sharding), bytes_of(args->backend_config));
  if (!take_sharding(answer, &args->header, &args->result_sharding))
    FAIL_WITH(&args->header, answer);
  end(answer, state);
}

static void forget_partitioner(JAX_CustomCallPartitioner_Callbacks *callbacks) {
  let_go(&((Partitioner *)callbacks)->callable);
}

/* custom_partitioner(callable, side effects) -> address of JAX_CustomCallPartitioner_Callbacks. */
PyObject *custom_partitioner(PyObject *module, PyObject *args) {
  PyObject *callable;
  int replicated;
  if (!PyArg_ParseTuple(args, "Op", &callable, &replicated)) return NULL;
  Partitioner *self = calloc(1, sizeof *self);
  if (self == NULL) return PyErr_NoMemory();
  self->callbacks.version = 1;
  self->callbacks.dtor = forget_partitioner;
  self->callbacks.partition = partition;
  self->callbacks.infer_sharding = infer_sharding;
  self->callbacks.propagate_user_sharding = propagate;
  self->callbacks.can_side_effecting_have_replicated_sharding = replicated != 0;
  self->callable = Py_NewRef(callable);
  return PyLong_FromVoidPtr(self);
}
