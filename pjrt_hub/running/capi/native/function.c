/* Function: one C function of a plugin, whose argument struct is filled and read as a table says.
   Functions: all functions of a plugin, found by their names. The tables come from call.py, so no
   function is named here. Functions that have fields of other kinds are called by Python. */
#include "native.h"

PyTypeObject *FunctionType, *FunctionsType;

/* The largest argument struct, in bytes; Python calls the functions with larger ones. */
enum { LARGEST = 512 };

typedef union {
  char bytes[LARGEST];
  max_align_t aligned;
} Arguments;

/* Kinds are letters of Python's `struct` module; 'O' is an object of the plugin and never NULL. */
typedef struct {
  PyObject *name;
  Py_ssize_t offset;
  Py_ssize_t count; /* The offset of the field that counts the elements, or -1. */
  char kind;        /* The kind of the value or of each counted element; 's' is a text, as bytes. */
  bool known;       /* False if the field is newer than the plugin, which then never writes it. */
} Field;

typedef struct {
  PyObject_HEAD
  PJRT_Error *(*pointer)(void *args); /* NULL if only Python can call the function. */
  size_t size, struct_size;           /* The struct's size, and its field struct_size or 0. */
  Field *inputs, *outputs;
  Py_ssize_t num_inputs, num_outputs;
  PyObject *namespace; /* The type that holds several outputs. */
} FunctionObject;

static bool out_of_range(const Field *field, const char *what) {
  PyErr_Format(PyExc_OverflowError, "%U does not fit %s", field->name, what);
  return false;
}

static bool write_value(char *at, const Field *field, PyObject *value) {
  if (field->kind == 'd' || field->kind == 'f') {
    double number = PyFloat_AsDouble(value);
    float narrow = (float)number;
    if (number == -1.0 && PyErr_Occurred()) return false;
    if (field->kind == 'd')
      memcpy(at, &number, sizeof number);
    else
      memcpy(at, &narrow, sizeof narrow);
    return true;
  }
  if (field->kind == 'P' || field->kind == 'Q') {
    PyObject *index = PyNumber_Index(value);
    if (index == NULL) return false;
    unsigned long long number = PyLong_AsUnsignedLongLong(index);
    Py_DECREF(index);
    if (number == (unsigned long long)-1 && PyErr_Occurred()) return false;
    memcpy(at, &number, sizeof number);
    return true;
  }
  long long number = PyLong_AsLongLong(value);
  if (number == -1 && PyErr_Occurred()) return false;
  int32_t narrow = (int32_t)number;
  uint32_t natural = (uint32_t)number;
  bool flag = number != 0;
  switch (field->kind) {
    case 'q':
      memcpy(at, &number, sizeof number);
      return true;
    case 'i':
      if (number != narrow) return out_of_range(field, "int32");
      memcpy(at, &narrow, sizeof narrow);
      return true;
    case 'I':
      if (number != natural) return out_of_range(field, "uint32");
      memcpy(at, &natural, sizeof natural);
      return true;
    default: /* '?' */
      if (number != flag) return out_of_range(field, "bool");
      memcpy(at, &flag, sizeof flag);
      return true;
  }
}

static size_t width(char kind) {
  switch (kind) {
    case '?':
    case 's':
      return 1;
    case 'i':
    case 'I':
    case 'f':
      return 4;
    default:
      return 8;
  }
}

#define READ(type, convert)            \
  do {                                 \
    type value;                        \
    memcpy(&value, at, sizeof value);  \
    return convert(value);             \
  } while (0)

static PyObject *read_value(const char *at, char kind) {
  switch (kind) {
    case '?':
      READ(bool, PyBool_FromLong);
    case 'i':
      READ(int32_t, PyLong_FromLong);
    case 'I':
      READ(uint32_t, PyLong_FromUnsignedLong);
    case 'q':
      READ(int64_t, PyLong_FromLongLong);
    case 'f':
      READ(float, PyFloat_FromDouble);
    case 'd':
      READ(double, PyFloat_FromDouble);
    default: /* 'P', 'O', 'Q' */
      READ(uint64_t, PyLong_FromUnsignedLongLong);
  }
}

/* Raises for a plugin's answer, which `what` describes; takes over the reference to `what`. */
static PyObject *refuse(const FunctionObject *function, PyObject *what) {
  PyObject *name = PyObject_GetAttrString((PyObject *)function, "name");
  const char *words[2] = {name != NULL ? PyUnicode_AsUTF8AndSize(name, NULL) : NULL,
                          what != NULL ? PyUnicode_AsUTF8AndSize(what, NULL) : NULL};
  if (words[0] != NULL && words[1] != NULL) raise_answer(words[0], words[1]);
  Py_XDECREF(name);
  Py_XDECREF(what);
  return NULL;
}

static PyObject *refuse_null(const FunctionObject *function, const Field *field) {
  return refuse(function, PyUnicode_FromFormat("NULL as %U", field->name));
}

static PyObject *read_elements(const FunctionObject *function, const Field *field,
                               const char *first, size_t count) {
  char kind = field->kind;
  if (count > (size_t)(kind == 's' ? MOST_BYTES : MOST_ELEMENTS))
    return refuse(function, PyUnicode_FromFormat("%zu as the size of %U", count, field->name));
  if (first == NULL && count > 0) return refuse_null(function, field);
  if (kind == 's')
    return PyBytes_FromStringAndSize(count > 0 ? first : "", (Py_ssize_t)count);
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; i++) {
    PyObject *element = read_value(first + i * width(kind), kind);
    if (kind == 'O' && element != NULL && PyObject_Not(element)) {
      Py_CLEAR(element);
      refuse_null(function, field);
    }
    if (element == NULL || PyList_SetItem(list, (Py_ssize_t)i, element) < 0) Py_CLEAR(list);
  }
  return list;
}

static PyObject *read_output(const FunctionObject *function, const char *args,
                             const Field *field) {
  if (!field->known) Py_RETURN_NONE;
  const char *first;
  size_t count;
  if (field->count < 0 && field->kind != 'O') return read_value(args + field->offset, field->kind);
  memcpy(&first, args + field->offset, sizeof first);
  if (field->count < 0)
    return first != NULL ? PyLong_FromVoidPtr((void *)first) : refuse_null(function, field);
  memcpy(&count, args + field->count, sizeof count);
  return read_elements(function, field, first, count);
}

static PyObject *read_outputs(const FunctionObject *function, const char *args) {
  if (function->num_outputs == 0) Py_RETURN_NONE;
  if (function->num_outputs == 1) return read_output(function, args, function->outputs);
  PyObject *each = PyDict_New(), *none = PyTuple_New(0), *all = NULL;
  for (Py_ssize_t i = 0; each != NULL && i < function->num_outputs; i++) {
    PyObject *output = read_output(function, args, &function->outputs[i]);
    if (output == NULL || PyDict_SetItem(each, function->outputs[i].name, output) < 0)
      Py_CLEAR(each);
    Py_XDECREF(output);
  }
  if (each != NULL && none != NULL) all = PyObject_Call(function->namespace, none, each);
  Py_XDECREF(each);
  Py_XDECREF(none);
  return all;
}

static const Field *find_input(const FunctionObject *function, PyObject *name) {
  for (Py_ssize_t i = 0; i < function->num_inputs; i++)
    if (function->inputs[i].name == name) return &function->inputs[i]; /* The names are interned. */
  for (Py_ssize_t i = 0; i < function->num_inputs; i++)
    if (PyUnicode_Compare(function->inputs[i].name, name) == 0) return &function->inputs[i];
  PyErr_Format(PyExc_TypeError, "the function has no argument %R", name);
  return NULL;
}

static bool write_input(const FunctionObject *function, char *args, PyObject *name,
                        PyObject *value) {
  const Field *field = find_input(function, name);
  return field != NULL && write_value(args + field->offset, field, value);
}

/* Zeroes the struct and sets its newest size; an older plugin reads only a part of the struct. */
static void begin(const FunctionObject *function, Arguments *args) {
  memset(args->bytes, 0, function->size);
  if (function->struct_size > 0) memcpy(args->bytes, &function->struct_size, sizeof(size_t));
}

/* Calls the function, and again if `_fail` raises nothing for its error. */
static PyObject *finish(FunctionObject *function, Arguments *args) {
  for (int again = 0;; again = 1) {
    PJRT_Error *error = RELEASED(function->pointer(args->bytes));
    if (error == NULL) return read_outputs(function, args->bytes);
    PyObject *none =
        PyObject_CallMethod((PyObject *)function, "_fail", "Ki", ADDRESS(error), again);
    if (none == NULL) return NULL;
    Py_DECREF(none);
  }
}

/* Calls a function with fields of other kinds: its type is a Python class, which can be called. */
static PyObject *call_in_python(PyObject *function, PyObject *const *values, PyObject *names,
                                Py_ssize_t count) {
  PyObject *inputs = PyDict_New(), *none = PyTuple_New(0), *answer = NULL;
  for (Py_ssize_t i = 0; inputs != NULL && i < count; i++)
    if (PyDict_SetItem(inputs, PyTuple_GetItem(names, i), values[i]) < 0) Py_CLEAR(inputs);
  if (inputs != NULL && none != NULL) answer = PyObject_Call(function, none, inputs);
  Py_XDECREF(inputs);
  Py_XDECREF(none);
  return answer;
}

/* Calls a function with `values`, whose names are in `names`, a tuple or NULL. */
static PyObject *call_by_names(PyObject *self, PyObject *const *values, PyObject *names) {
  FunctionObject *function = (FunctionObject *)self;
  Py_ssize_t count = names != NULL ? PyTuple_Size(names) : 0;
  if (function->pointer == NULL) return call_in_python(self, values, names, count);
  Arguments struct_;
  begin(function, &struct_);
  for (Py_ssize_t i = 0; i < count; i++)
    if (!write_input(function, struct_.bytes, PyTuple_GetItem(names, i), values[i])) return NULL;
  return finish(function, &struct_);
}

static void free_fields(Field *fields, Py_ssize_t count) {
  for (Py_ssize_t i = 0; fields != NULL && i < count; i++) Py_XDECREF(fields[i].name);
  free(fields);
}

/* Returns whether `bytes` bytes from `offset` on lie in the struct. */
static bool inside(const FunctionObject *function, Py_ssize_t offset, size_t bytes) {
  return offset >= 0 && (size_t)offset + bytes <= function->size;
}

/* Reads tuples of (name, offset, kind, offset of the count or -1, whether the plugin has it). */
static Field *read_fields(const FunctionObject *function, PyObject *rows, Py_ssize_t *count) {
  *count = PyTuple_Size(rows);
  Field *fields = calloc((size_t)*count + 1, sizeof(Field));
  if (fields == NULL) return (Field *)PyErr_NoMemory();
  for (Py_ssize_t i = 0; i < *count; i++) {
    int kind, known;
    Field *field = &fields[i];
    if (!PyArg_ParseTuple(PyTuple_GetItem(rows, i), "UnCnp", &field->name, &field->offset, &kind,
                          &field->count, &known)) {
      field->name = NULL;
      goto failed;
    }
    Py_INCREF(field->name);
    PyUnicode_InternInPlace(&field->name);
    field->kind = (char)kind;
    field->known = known;
    size_t bytes = field->count < 0 ? width(field->kind) : sizeof(void *);
    if (kind == 0 || kind > 127 || strchr("?iIqQPOfds", kind) == NULL ||
        (kind == 's' && field->count < 0) || !inside(function, field->offset, bytes) ||
        (field->count >= 0 && !inside(function, field->count, sizeof(size_t)))) {
      PyErr_Format(PyExc_ValueError, "%U is not a field that can be called in C", field->name);
      goto failed;
    }
  }
  return fields;
failed:
  free_fields(fields, *count);
  return NULL;
}

static PyObject *function_compile(PyObject *self, PyObject *args) {
  FunctionObject *function = (FunctionObject *)self;
  unsigned long long pointer;
  Py_ssize_t size, struct_size;
  PyObject *inputs, *outputs, *namespace;
  if (function->inputs != NULL) return PyErr_Format(PyExc_RuntimeError, "already compiled");
  if (!PyArg_ParseTuple(args, "KnnO!O!O", &pointer, &size, &struct_size, &PyTuple_Type, &inputs,
                        &PyTuple_Type, &outputs, &namespace))
    return NULL;
  if (size < 0 || size > LARGEST || struct_size < 0 || struct_size > size)
    return PyErr_Format(PyExc_ValueError, "a struct of %zd bytes cannot be filled in C", size);
  function->size = (size_t)size;
  function->struct_size = (size_t)struct_size;
  function->inputs = read_fields(function, inputs, &function->num_inputs);
  if (function->inputs == NULL) return NULL;
  function->outputs = read_fields(function, outputs, &function->num_outputs);
  if (function->outputs == NULL) return NULL;
  function->namespace = Py_NewRef(namespace);
  function->pointer = (PJRT_Error * (*)(void *))(uintptr_t)pointer;
  Py_RETURN_NONE;
}

static void function_dealloc(PyObject *self) {
  FunctionObject *function = (FunctionObject *)self;
  free_fields(function->inputs, function->num_inputs);
  free_fields(function->outputs, function->num_outputs);
  Py_XDECREF(function->namespace);
  object_free(self);
}

static PyMethodDef function_methods[] = {
    {"_compile", function_compile, METH_VARARGS, NULL},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot function_slots[] = {
    {Py_tp_doc, "Base of call.BoundFunction: fills the argument struct, calls, reads the outputs."},
    {Py_tp_new, PyType_GenericNew},
    {Py_tp_dealloc, function_dealloc},
    {Py_tp_methods, function_methods},
    {0, NULL},
};

PyType_Spec function_spec = {
    "pjrt_hub.running.capi.hotpath.Function", sizeof(FunctionObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, function_slots};

typedef struct {
  PyObject_HEAD
  PyObject *bound; /* A dict of the functions used so far, by name. */
  unsigned generation;
} FunctionsObject;

static PyObject *functions_new(PyTypeObject *type, PyObject *args, PyObject *inputs) {
  FunctionsObject *functions = (FunctionsObject *)PyType_GenericAlloc(type, 0);
  if (functions == NULL) return NULL;
  functions->generation = fork_generation;
  functions->bound = PyDict_New();
  if (functions->bound == NULL) Py_CLEAR(functions);
  return (PyObject *)functions;
}

/* `self._bind(name)` makes a function at its first use, or raises if it cannot be called. */
static PyObject *functions_function(PyObject *self, PyObject *name) {
  GUARD;
  FunctionsObject *functions = (FunctionsObject *)self;
  PyObject *function = NULL;
  if (functions->generation == fork_generation)
    function = Py_XNewRef(PyDict_GetItemWithError(functions->bound, name));
  if (function != NULL || PyErr_Occurred()) return function;
  function = PyObject_CallMethod(self, "_bind", "O", name);
  if (function != NULL && !PyObject_TypeCheck(function, FunctionType)) {
    PyErr_Format(PyExc_TypeError, "%R is not a function of a plugin", function);
    Py_CLEAR(function);
  }
  if (function != NULL && PyDict_SetItem(functions->bound, name, function) < 0)
    Py_CLEAR(function);
  return function;
}

PyObject *functions_call(PyObject *self, PyObject *const *args, Py_ssize_t nargs,
                         PyObject *names) {
  if (nargs != 1)
    return PyErr_Format(PyExc_TypeError, "the function's name, and arguments by their names");
  PyObject *function = functions_function(self, args[0]);
  if (function == NULL) return NULL;
  PyObject *answer = call_by_names(function, args + 1, names);
  Py_DECREF(function);
  return answer;
}

static void functions_dealloc(PyObject *self) {
  Py_XDECREF(((FunctionsObject *)self)->bound);
  object_free(self);
}

static PyMethodDef functions_methods[] = {
    {"function", functions_function, METH_O,
     "function(name): binds it, once.\n\n"
     "Raises:\n    UnsupportedByPluginError: the plugin lacks it.\n"
     "    ClosedError: the process forked after the plugin was loaded."},
    {"call", (PyCFunction)(void (*)(void))functions_call, METH_FASTCALL | METH_KEYWORDS,
     "call(name, /, **inputs): calls the function of that name; see `call.BoundFunction`."},
    {NULL, NULL, 0, NULL},
};

static PyMemberDef functions_members[] = {
    {"_functions", T_OBJECT, offsetof(FunctionsObject, bound), READONLY, "Those bound by now."},
    {NULL, 0, 0, 0, NULL},
};

static PyType_Slot functions_slots[] = {
    {Py_tp_doc, "Base of what has a plugin's functions by their names, which `_bind(name)` makes."},
    {Py_tp_new, functions_new},
    {Py_tp_dealloc, functions_dealloc},
    {Py_tp_methods, functions_methods},
    {Py_tp_members, functions_members},
    {0, NULL},
};

PyType_Spec functions_spec = {
    "pjrt_hub.running.capi.hotpath.Functions", sizeof(FunctionsObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_BASETYPE, functions_slots};
