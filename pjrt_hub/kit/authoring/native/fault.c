/* Faults, with which the test of a host changes what calls do, and the record of calls. Both exist
   once per process, because a call does not tell which plugin it is for. */
#include "plugin.h"

#include <limits.h>
#include <time.h>

atomic_bool faults_armed;

static const char *const names[] = {
#define NAME(name) #name,
    PJRT_API_FUNCTIONS(NAME)
#undef NAME
};

typedef struct {
  int slot;
  long first, last; /* The first and the last call with the fault, counted from 1. */
  int code;         /* The code of the error that the calls return, or OK. */
  bool dropped;     /* Calls that return OK do nothing. */
  long delay_ms;    /* The time that the calls wait first, in ms. */
  char text[256];
} Fault;

enum { FAULTS = 64, RECORD = 1 << 16 };
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;
static Fault faults[FAULTS];
static int num_faults;
static long calls[NUM_SLOTS];
static unsigned char record[RECORD]; /* The slots of the first RECORD calls, in order. */
static size_t num_recorded;
_Static_assert(NUM_SLOTS <= 256, "a slot is a byte of the record");

PJRT_Error *fault_answer(int slot, bool *answered) {
  Fault fault = {0};
  pthread_mutex_lock(&lock);
  long number = ++calls[slot];
  if (num_recorded < RECORD) record[num_recorded++] = (unsigned char)slot;
  for (int i = 0; i < num_faults && fault.first == 0; i++)
    if (faults[i].slot == slot && number >= faults[i].first && number <= faults[i].last)
      fault = faults[i];
  pthread_mutex_unlock(&lock);
  if (fault.first == 0) return NULL;
  struct timespec pause = {.tv_sec = fault.delay_ms / 1000,
                           .tv_nsec = fault.delay_ms % 1000 * 1000000};
  nanosleep(&pause, NULL);
  *answered = fault.dropped || fault.code != PJRT_Error_Code_OK;
  if (fault.code == PJRT_Error_Code_OK) return NULL;
  return plugin_error_of((PJRT_Error_Code)fault.code, fault.text, strlen(fault.text));
}

/* record_begins(): forgets all faults and calls, and counts calls from now on. */
PyObject *record_begins(PyObject *module, PyObject *unused) {
  pthread_mutex_lock(&lock);
  num_faults = 0;
  num_recorded = 0;
  memset(calls, 0, sizeof calls);
  pthread_mutex_unlock(&lock);
  atomic_store(&faults_armed, true);
  Py_RETURN_NONE;
}

PyObject *record_ends(PyObject *module, PyObject *unused) {
  atomic_store(&faults_armed, false);
  Py_RETURN_NONE;
}

/* recorded() -> the names of the functions that were called, in order. */
PyObject *recorded(PyObject *module, PyObject *unused) {
  pthread_mutex_lock(&lock);
  size_t count = num_recorded; /* The slots before this number never change. */
  pthread_mutex_unlock(&lock);
  PyObject *list = PyList_New((Py_ssize_t)count);
  for (size_t i = 0; list != NULL && i < count; i++)
    PyList_SetItem(list, (Py_ssize_t)i, PyUnicode_FromString(names[record[i]]));
  return list;
}

/* fault(function, first, last, code, dropped, milliseconds, text): calls are counted from now on. */
PyObject *fault(PyObject *module, PyObject *args) {
  const char *name, *text;
  Fault new = {0};
  int dropped;
  if (!PyArg_ParseTuple(args, "sllipls", &name, &new.first, &new.last, &new.code, &dropped,
                        &new.delay_ms, &text))
    return NULL;
  new.dropped = dropped;
  strncpy(new.text, text, sizeof new.text - 1);
  for (new.slot = 0; new.slot < NUM_SLOTS && strcmp(names[new.slot], name) != 0;) new.slot++;
  if (new.slot == NUM_SLOTS) return PyErr_Format(PyExc_ValueError, "no function %s", name);
  pthread_mutex_lock(&lock);
  bool full = num_faults == FAULTS;
  if (!full) {
    new.first += calls[new.slot];
    if (new.last < LONG_MAX) new.last += calls[new.slot];
    faults[num_faults++] = new;
  }
  pthread_mutex_unlock(&lock);
  if (full) return PyErr_Format(PyExc_ValueError, "there are %d faults already", FAULTS);
  Py_RETURN_NONE;
}
