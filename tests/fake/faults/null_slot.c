/* A function that every plugin has is NULL. */
#define ON_LOAD api.PJRT_Event_OnReady = NULL
#include "../plugin.c"
