/* Events: the functions from the headers for plugins in C, to which faults are added here. */
#include "plugin.h"

#define PLUGIN_FUNCTION FUNCTION
#define PLUGIN_TELLS TELLS
#include "pjrt_plugin/event.h"
