/* A function without which no error can be read is NULL. */
#define ON_LOAD api.PJRT_Error_Message = NULL
#include "../plugin.c"
