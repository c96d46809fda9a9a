/* Answers PJRT_Plugin_Initialize with an error. */
#define ON_INITIALIZE return fail(14, "the device is busy")
#include "../plugin.c"
