/* A PJRT plugin whose backend is in Python: a copy of this library with its `words` filled in.

   In a process with Python it uses that Python; otherwise it loads and starts one. It is not linked
   with Python. It reports failures on stderr, because GetPjrtApi cannot return an error. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdio.h>
#include <string.h>
#include <wchar.h>

/* The lines are module:Class, Python's version, library, program, guest.py, sys.path's folders. */
static const volatile struct {
  char mark[32], words[16352];
} filled_in __attribute__((used)) = {.mark = "pjrt-hub backend is written here"};

static const void *table;

static void say(const char *what, const char *about) {
  fprintf(stderr, "pjrt-hub: the plugin in Python cannot start: %s %s\n", what, about);
}

/* Cuts the next line off `*rest`. */
static char *line(char **rest) {
  char *found = *rest, *end = strchr(found, '\n');
  *rest = end != NULL ? end + 1 : found + strlen(found);
  if (end != NULL) *end = '\0';
  return found;
}

/* Finds a function of Python, which has the type `type`. */
#define PYTHON(type, name) ((type)dlsym(RTLD_DEFAULT, #name))

/* Starts Python under the name of the program that built the plugin, and releases the GIL. */
static bool start(const char *library, const char *program) {
  static wchar_t name[4096]; /* Python keeps the pointer. */
  if (dlopen(library, RTLD_NOW | RTLD_GLOBAL) == NULL) {
    say("there is no Python in this process, and", dlerror());
    return false;
  }
  void (*set_program_name)(const wchar_t *) = PYTHON(void (*)(const wchar_t *), Py_SetProgramName);
  size_t size = 0;
  for (; program[size] != '\0' && size + 1 < sizeof name / sizeof *name; size++)
    name[size] = (unsigned char)program[size];
  if (set_program_name != NULL && size > 0) set_program_name(name);
  PYTHON(void (*)(int), Py_InitializeEx)(0); /* 0 leaves signals to the host. */
  PYTHON(void *(*)(void), PyEval_SaveThread)();
  return true;
}

/* Runs guest.py by its path, because a host's Python need not have the package. */
static void *guest(const char *file, void *(*call)(void *, const char *, const char *, ...)) {
  void *util = PYTHON(void *(*)(const char *), PyImport_ImportModule)("importlib.util");
  if (util == NULL) return NULL;
  void *spec = call(util, "spec_from_file_location", "ss", "pjrt_hub_guest", file);
  void *module = spec == NULL ? NULL : call(util, "module_from_spec", "O", spec);
  if (module == NULL) return NULL;
  void *loader = PYTHON(void *(*)(void *, const char *), PyObject_GetAttrString)(spec, "loader");
  return loader != NULL && call(loader, "exec_module", "O", module) != NULL ? module : NULL;
}

static const void *ask(const char *backend, char *rest, bool started) {
  void *(*call)(void *, const char *, const char *, ...) =
      PYTHON(void *(*)(void *, const char *, const char *, ...), PyObject_CallMethod);
  void *module = guest(line(&rest), call);
  void *answer = module == NULL ? NULL : call(module, "table", "ssi", backend, rest, (int)started);
  if (answer == NULL) {
    say("it failed in", backend);
    PYTHON(void (*)(void), PyErr_Print)();
    return NULL;
  }
  return (const void *)PYTHON(unsigned long long (*)(void *), PyLong_AsUnsignedLongLong)(answer);
}

static void begin(void) {
  static char words[sizeof filled_in.words];
  memcpy(words, (const void *)filled_in.words, sizeof words - 1);
  char *rest = words, *backend = line(&rest), *version = line(&rest);
  char *library = line(&rest), *program = line(&rest);
  if (*backend == '\0') return say("no backend is written into the library:", "use pjrt-hub build");
  bool there = dlsym(RTLD_DEFAULT, "Py_IsInitialized") != NULL;
  bool started = !(there && PYTHON(int (*)(void), Py_IsInitialized)());
  if (started && !start(library, program)) return;
  const char *running = PYTHON(const char *(*)(void), Py_GetVersion)();
  if (strncmp(running, version, strlen(version)) != 0 || running[strlen(version)] != '.')
    return say("it was made for another Python than", running);
  int state = PYTHON(int (*)(void), PyGILState_Ensure)();
  table = ask(backend, rest, started);
  PYTHON(void (*)(int), PyGILState_Release)(state);
}

__attribute__((visibility("default"))) const void *GetPjrtApi(void) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, begin);
  return table;
}
