/* The create options that a plugin gets in place of the host's own. */
#ifndef PJRT_HUB_OPTIONS_H
#define PJRT_HUB_OPTIONS_H

#include "structs.h"

#define HIDDEN __attribute__((visibility("hidden")))

/* Reads the rules, which are joined by semicolons: NAME lets the host's option of that name through,
   and NAME=VALUE gives the plugin an option in place of the host's. Other options are left out. */
HIDDEN void options_start(const char *text);

/* The host's own options, while the arguments hold the plugin's. */
typedef struct {
  const PJRT_NamedValue *options;
  size_t num_options;
} HostOptions;

/* Puts the plugin's options into the arguments. Without a text, these are the host's. */
HIDDEN HostOptions options_replace(PJRT_Client_Create_Args *args);
HIDDEN void options_restore(PJRT_Client_Create_Args *args, HostOptions own);

#endif
