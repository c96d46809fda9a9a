/* Events: the functions of the headers for plugins in C, which go through faults here. */
#include "plugin.h"

#define PLUGIN_FUNCTION FUNCTION
#define PLUGIN_TELLS TELLS
#include "pjrt_plugin/event.h"
