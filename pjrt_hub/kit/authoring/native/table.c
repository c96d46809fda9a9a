/* The function table. A function that is given no object exists once per plugin, so that it knows its plugin. */
#include "plugin.h"

static Plugin *plugins[PLUGINS];
static PJRT_Api tables[PLUGINS];
static int num_plugins; /* The GIL guards it. */

static _Thread_local int current;
Plugin *plugin_here(void) { return plugins[current]; }

/* SIXTEEN repeats DO for each last digit of a plugin's hexadecimal number, and EACH_PLUGIN for each number. */
#define SIXTEEN(DO, function, row)                                                            \
  DO(function, row##0) DO(function, row##1) DO(function, row##2) DO(function, row##3)         \
  DO(function, row##4) DO(function, row##5) DO(function, row##6) DO(function, row##7)         \
  DO(function, row##8) DO(function, row##9) DO(function, row##a) DO(function, row##b)         \
  DO(function, row##c) DO(function, row##d) DO(function, row##e) DO(function, row##f)
#define EACH_PLUGIN(DO, function)                                                     \
  SIXTEEN(DO, function, 0) SIXTEEN(DO, function, 1) SIXTEEN(DO, function, 2)          \
  SIXTEEN(DO, function, 3) SIXTEEN(DO, function, 4) SIXTEEN(DO, function, 5)          \
  SIXTEEN(DO, function, 6) SIXTEEN(DO, function, 7) SIXTEEN(DO, function, 8)          \
  SIXTEEN(DO, function, 9) SIXTEEN(DO, function, a) SIXTEEN(DO, function, b)          \
  SIXTEEN(DO, function, c) SIXTEEN(DO, function, d) SIXTEEN(DO, function, e)          \
  SIXTEEN(DO, function, f)
#define ENTRY(function, n)                                   \
  static PJRT_Error *function##_##n(function##_Args *args) { \
    current = 0x##n;                                         \
    return plugin_##function(args);                          \
  }
#define NAME(function, n) function##_##n,
#define OWN_ENTRIES(function)                                                  \
  EACH_PLUGIN(ENTRY, function)                                                 \
  static PJRT_Error *(*const function##_entries[PLUGINS])(function##_Args *) = \
      {EACH_PLUGIN(NAME, function)};
OWN_ENTRIES(PJRT_Plugin_Attributes)
OWN_ENTRIES(PJRT_Client_Create)
OWN_ENTRIES(PJRT_TopologyDescription_Create)
OWN_ENTRIES(PJRT_TopologyDescription_Deserialize)

/* Returns a new table, or NULL if there are too many. It is never freed, because a host keeps it. */
const PJRT_Api *table_new(Plugin *plugin) {
  if (num_plugins == PLUGINS) return NULL;
  int n = num_plugins++;
  PJRT_Api *table = &tables[n];
  plugins[n] = plugin;
  plugin_fill(table);
  table->PJRT_Plugin_Attributes = PJRT_Plugin_Attributes_entries[n];
  table->PJRT_Client_Create = PJRT_Client_Create_entries[n];
  table->PJRT_TopologyDescription_Create = PJRT_TopologyDescription_Create_entries[n];
  table->PJRT_TopologyDescription_Deserialize = PJRT_TopologyDescription_Deserialize_entries[n];
  return table;
}
