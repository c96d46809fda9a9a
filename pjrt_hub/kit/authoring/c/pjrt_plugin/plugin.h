/* A PJRT plugin in C11 or C++17: say here what your device does, and this kit does the rest.

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

/* What a device is and does. Each function returns NULL, or an error from plugin_error(). `device` is what open gave.
   Allocated memory goes back to release; arrays in it are always row-major, without gaps. Each device has one thread,
   which makes all copies and runs all programs, unless `any_thread` says otherwise. */
typedef struct Plugin {
  const char *name;        /* the platform's, in lower case: "mychip" */
  const char *version;     /* the platform's */
  const char *device_kind; /* "MyChip 1" */
  int num_devices;         /* 0 means one */
  bool host_memory;        /* its memory is host memory: hosts may read it, and lend theirs */

  /* Any thread may call these functions. What can begin at once runs on the caller's thread, and a copy that must wait
     on the thread that ends its wait. One thread for all devices runs all other programs; if they are asynchronous,
     all. Hosts' arrays get into host memory without copy_in. */
  bool any_thread, asynchronous;

  PJRT_NamedValue *attributes; /* of the plugin: what some hosts look for, by name */
  size_t num_attributes;

  PJRT_Error *(*open)(int number, void **device); /* NULL if there is nothing to open */
  void (*close)(void *device);
  PJRT_Error *(*allocate)(void *device, size_t size, void **memory);
  void (*release)(void *device, void *memory);
  PJRT_Error *(*copy_in)(void *device, void *memory, const void *host, size_t size);
  PJRT_Error *(*copy_out)(void *device, void *host, const void *memory, size_t size);

  /* Accepts a program, or says why not. *code is whatever run needs of it, and may stay NULL. The program lives as
     long as the code. Any thread may call this. */
  PJRT_Error *(*compile)(const PluginProgram *program, void **code);
  void (*discard)(void *code);
  PJRT_Error *(*run)(void *device, const PluginProgram *program, void *code, void *const *inputs,
                     void *const *outputs);

  /* Takes an option of a new client, or says why not; NULL if there are no options. */
  PJRT_Error *(*configure)(const PJRT_NamedValue *option);
} Plugin;

/* This is what the author described; it never changes after the table is made. */
static Plugin plugin_self;

#include "device.h"

static PJRT_Api plugin_table;
static void (*plugin_describe)(Plugin *plugin);

/* Called once. */
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
