/* A kit for PJRT plugins in C11 or C++17: you describe what your device does, and it does the rest.

   One file of a plugin includes this, describes the device and ends with PJRT_PLUGIN:

     static void describe(Plugin *plugin) {
       plugin->name = "mychip";
       plugin->allocate = allocate;
       ...
     }
     PJRT_PLUGIN(describe)

   It needs POSIX threads. Compile with -fvisibility=hidden: only GetPjrtApi is exported. */
#ifndef PJRT_PLUGIN_PLUGIN_H
#define PJRT_PLUGIN_PLUGIN_H

#include "error.h"
#include "program.h"

/* The description of a device. Each function returns NULL or an error from plugin_error(). `device` is what open
   gave. Allocated memory is given back to release; arrays in it are always row-major, without gaps. Each device has
   one thread, which makes all copies and runs all programs, unless `any_thread` is set. */
typedef struct Plugin {
  const char *name;        /* The platform's name in lower case, such as "mychip". */
  const char *version;     /* The platform's version. */
  const char *device_kind; /* The kind of the devices, such as "MyChip 1". */
  int num_devices;         /* 0 means one device. */
  bool host_memory;        /* The device's memory is host memory: hosts may read it, and lend theirs. */

  /* With `any_thread`, any thread may call these functions. What can begin at once runs on the caller's thread, and a
     copy that must wait runs on the thread that ends its wait. One thread for all devices runs all other programs, or
     all programs if `asynchronous`. Hosts' arrays get into host memory without copy_in. */
  bool any_thread, asynchronous;

  PJRT_NamedValue *attributes; /* The plugin's attributes, which some hosts look for by name. */
  size_t num_attributes;

  PJRT_Error *(*open)(int number, void **device); /* It is NULL if there is nothing to open. */
  void (*close)(void *device);
  PJRT_Error *(*allocate)(void *device, size_t size, void **memory);
  void (*release)(void *device, void *memory);
  PJRT_Error *(*copy_in)(void *device, void *memory, const void *host, size_t size);
  PJRT_Error *(*copy_out)(void *device, void *host, const void *memory, size_t size);

  /* Accepts a program, or returns an error that says why not. *code is whatever run needs, and may stay NULL. The
     program lives as long as the code. Any thread may call this. */
  PJRT_Error *(*compile)(const PluginProgram *program, void **code);
  void (*discard)(void *code);
  PJRT_Error *(*run)(void *device, const PluginProgram *program, void *code, void *const *inputs,
                     void *const *outputs);

  /* Takes an option of a new client, or returns an error that says why not. It is NULL if there are no options. */
  PJRT_Error *(*configure)(const PJRT_NamedValue *option);
} Plugin;

/* This is what the author described; it never changes after the table is made. */
static Plugin plugin_self;

#include "device.h"

static PJRT_Api plugin_table;
static void (*plugin_describe)(Plugin *plugin);

/* pthread_once calls this. */
static inline void plugin_begin(void) {
  plugin_describe(&plugin_self);
  plugin_fill(&plugin_table);
}

#ifdef __cplusplus
#define PLUGIN_EXPORT extern "C" __attribute__((visibility("default")))
#else
#define PLUGIN_EXPORT __attribute__((visibility("default")))
#endif

/* Defines GetPjrtApi, the one function that a plugin exports. */
#define PJRT_PLUGIN(describe)                                 \
  PLUGIN_EXPORT const PJRT_Api *GetPjrtApi(void);             \
  const PJRT_Api *GetPjrtApi(void) {                          \
    static pthread_once_t once = PTHREAD_ONCE_INIT;           \
    plugin_describe = (describe);                             \
    pthread_once(&once, plugin_begin);                        \
    return &plugin_table;                                     \
  }

#endif
