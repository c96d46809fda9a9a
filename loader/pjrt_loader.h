/* Finds PJRT plugins by their manifests, and opens them: a loader of docs/spec/manifest.md.

   Copy pjrt_loader.h and pjrt_loader.c into a project, or link them. They need C11, and on Linux -pthread, and -ldl
   where glibc is older than 2.34. README.md has an example.

   Errors: a function that can fail has a last argument, `error`. Where it fails, it sets *error to a text, which the
   caller gives back by pjrt_loader_free_error(): what failed, what was found, and mostly, after an empty line,
   "hint: ..." with the next step. Where it succeeds, *error is NULL. `error` itself may be NULL. Nothing is printed.

   Threads: any thread may call any function. Calls wait for each other, also while a plugin initializes itself.
   Opening a plugin may set variables of the environment, so do it before other threads read them by getenv(). */
#ifndef PJRT_LOADER_H
#define PJRT_LOADER_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* The table of functions that pjrt_c_api.h declares. */
struct PJRT_Api;

/* What became of a manifest. */
typedef enum {
  PJRT_LOADER_USABLE = 0,   /* it can be opened */
  PJRT_LOADER_HIDDEN = 1,   /* an earlier manifest has its name */
  PJRT_LOADER_REFUSED = 2,  /* it breaks a rule */
  PJRT_LOADER_ABSENT = 3,   /* no library of it fits this machine and is there */
  PJRT_LOADER_DISABLED = 4, /* a variable leaves it out; it was not read */
} pjrt_loader_state;

/* Whether a plugin's hardware is here. */
typedef enum {
  PJRT_LOADER_HARDWARE_UNKNOWN = 0, /* nobody looked, or nobody says what hardware it is */
  PJRT_LOADER_HARDWARE_PRESENT = 1,
  PJRT_LOADER_HARDWARE_ABSENT = 2,
} pjrt_loader_hardware;

/* A manifest, a folder that was refused, or an open plugin. No text is NULL; "" means that there is none. */
typedef struct {
  const char *name;        /* "" for a folder, and for a plugin that was opened by its library's path */
  const char *platform;    /* "" where the manifest was not read; so is `description` */
  const char *description; /* one line */
  const char *manifest;    /* the path of the manifest, or of the folder */
  const char *library;     /* the path of the library */
  int priority;
  pjrt_loader_state state;
  pjrt_loader_hardware hardware;
  const char *reason;       /* why it is in this state; where it is usable, why its hardware is here or not */
  const char *hint;         /* the next step */
  int api_major, api_minor; /* the PJRT API version of an open plugin, else 0 */
} pjrt_loader_entry;

typedef struct {
  size_t count;
  const pjrt_loader_entry *entries; /* in the order in which they were found */
} pjrt_loader_listing;

/* Finds all manifests that this process may use, and loads nothing.

   Returns a listing, which the caller gives back by pjrt_loader_free_listing(), or NULL where there is no memory. */
pjrt_loader_listing *pjrt_loader_list(char **error);

/* Frees a listing with all its texts; NULL is allowed. */
void pjrt_loader_free_listing(pjrt_loader_listing *listing);

/* How to open a plugin; all zeros are the defaults. */
typedef struct {
  int api_major, api_minor; /* the version of the pjrt_c_api.h that the program is written for */
  int verify;               /* not 0: compare the library with the sha256 of its manifest, if that has one */
} pjrt_loader_settings;

typedef struct pjrt_loader_plugin pjrt_loader_plugin;

/* Opens a plugin and calls its PJRT_Plugin_Initialize, once in a process.

   `what` is the name of a plugin, else a platform, else an alias; NULL or "" is the plugin with the highest priority
   whose hardware is here. With a slash in it, it is the absolute path of a library, which no manifest describes.
   `settings` may be NULL. A plugin of another major version than theirs is refused.

   Returns a plugin, which is valid until the process ends, or NULL. Opening a plugin again returns the same one. */
pjrt_loader_plugin *pjrt_loader_open(const char *what, const pjrt_loader_settings *settings, char **error);

/* Says that the program needs a plugin no longer; NULL is allowed. Nothing is unloaded, because plugins keep threads,
   and everything that belongs to it stays valid. Destroy its clients before. */
void pjrt_loader_close(pjrt_loader_plugin *plugin);

/* Returns the plugin's table of functions, valid until the process ends. The program must not use what the plugin
   lacks: functions beyond the table's struct_size, and fields beyond a struct's. */
const struct PJRT_Api *pjrt_loader_api(const pjrt_loader_plugin *plugin);

/* Returns the plugin's name, version and paths, valid until the process ends. */
const pjrt_loader_entry *pjrt_loader_describe(const pjrt_loader_plugin *plugin);

/* The types of options; the numbers are those of PJRT_NamedValue_Type. */
typedef enum {
  PJRT_LOADER_STRING = 0,
  PJRT_LOADER_INT64 = 1,
  PJRT_LOADER_INT64_LIST = 2,
  PJRT_LOADER_FLOAT = 3,
  PJRT_LOADER_BOOL = 4,
} pjrt_loader_type;

/* An option of PJRT_Client_Create, to be copied into a PJRT_NamedValue, whose value_size is `count`. */
typedef struct {
  const char *name;
  pjrt_loader_type type;
  union {
    const char *string;
    int64_t int64;
    const int64_t *int64_list;
    float number;
    int truth;
  } value;
  size_t count; /* the numbers of a list, or the bytes of a string; a program may leave 0 where NUL ends the string */
} pjrt_loader_option;

typedef struct {
  size_t count;
  const pjrt_loader_option *options;
} pjrt_loader_options;

/* Merges a program's options for PJRT_Client_Create with the defaults of the plugin's manifest.

   Refuses an option that the manifest does not have or that is newer than the plugin, and a value of another type or
   beyond its limits. An integer becomes a float where the option is one. What has no manifest takes all options.

   Returns the program's options, then the defaults of the others, which the caller gives back by
   pjrt_loader_free_options(); their texts and lists are the program's and the plugin's own. NULL means failure. */
pjrt_loader_options *pjrt_loader_create_options(const pjrt_loader_plugin *plugin, const pjrt_loader_option *given,
                                                size_t count, char **error);

/* Frees options; NULL is allowed. */
void pjrt_loader_free_options(pjrt_loader_options *options);

/* Frees the text of an error; NULL is allowed. */
void pjrt_loader_free_error(char *error);

#ifdef __cplusplus
}
#endif
#endif
