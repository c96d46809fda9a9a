/* Brings the layers into a program that knows nothing of them: LD_PRELOAD loads this dlsym, which
   replaces the GetPjrtApi that the program looks up. */
#include <dlfcn.h>
#include <stdio.h>

#include "layers.h"

#ifdef __GLIBC__

typedef void *(*Dlsym)(void *handle, const char *name);
typedef const PJRT_Api *(*Entry)(void);

static Entry entries[MAX_PLUGINS];
static pthread_mutex_t entering = PTHREAD_MUTEX_INITIALIZER;

static const PJRT_Api *wrapped(unsigned number) {
  const char *layers = secure_getenv("PJRT_HUB_LAYERS"), *folder = secure_getenv("PJRT_HUB_TRACE");
  return pjrt_hub_wrap(entries[number](), layers, folder, secure_getenv("PJRT_HUB_OPTIONS"),
                       secure_getenv("PJRT_HUB_WITHOUT"), secure_getenv("PJRT_HUB_DISCRETE"));
}

#define ENTRY(k) \
  static const PJRT_Api *entry_##k(void) { return wrapped(k); }
#define ENTRY_ADDRESS(k) entry_##k,
EACH_PLUGIN(ENTRY)
static const Entry own_entries[MAX_PLUGINS] = {EACH_PLUGIN(ENTRY_ADDRESS)};

/* Returns the GetPjrtApi to hand out in place of a library's own. */
static Entry instead_of(Entry entry) {
  const char *layers = secure_getenv("PJRT_HUB_LAYERS");
  if (entry == NULL || layers == NULL || *layers == 0) return entry;
  pthread_mutex_lock(&entering);
  unsigned i = 0;
  while (i < MAX_PLUGINS && entries[i] != NULL && entries[i] != entry) i++;
  if (i < MAX_PLUGINS) entries[i] = entry;
  pthread_mutex_unlock(&entering);
  return i < MAX_PLUGINS ? own_entries[i] : entry;
}

static Dlsym real_dlsym(void) {
  static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.2.5", "GLIBC_2.17", "GLIBC_2.27"};
  static _Atomic(Dlsym) known;
  Dlsym found = atomic_load(&known);
  for (size_t i = 0; found == NULL && i < sizeof versions / sizeof *versions; i++) {
    void *symbol = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    memcpy(&found, &symbol, sizeof found);
  }
  if (found == NULL) abort();
  atomic_store(&known, found);
  return found;
}

/* -O2 must make the last call a tail call, so that RTLD_NEXT starts at the original caller. */
EXPORTED void *dlsym(void *restrict handle, const char *restrict name) {
  Dlsym real = real_dlsym();
  if (strcmp(name, "GetPjrtApi") == 0) {
    Entry entry;
    void *symbol = real(handle, name);
    memcpy(&entry, &symbol, sizeof entry);
    entry = instead_of(entry);
    memcpy(&symbol, &entry, sizeof symbol);
    return symbol;
  }
  return real(handle, name);
}

#endif
