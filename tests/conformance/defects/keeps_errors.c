/* Destroys no error. */
#include "../real.h"

static void replacement(PJRT_Error_Destroy_Args *args) {}

DEFECT(api) { api->PJRT_Error_Destroy = replacement; }
