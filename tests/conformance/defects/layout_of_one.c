/* Gives the default layout of one dimension, whatever is asked. */
#include "../real.h"

static PJRT_Error *(*ask)(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *);

static PJRT_Error *of_one(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args) {
  args->num_dims = 1;
  return ask(args);
}

DEFECT(api) {
  for (PJRT_Extension_Base *node = api->extension_start; node != NULL; node = node->next) {
    PJRT_Layouts_Extension *layouts = (PJRT_Layouts_Extension *)node;
    if (node->type != PJRT_Extension_Type_Layouts || ask != NULL) continue;
    ask = layouts->PJRT_Layouts_PJRT_Client_GetDefaultLayout;
    layouts->PJRT_Layouts_PJRT_Client_GetDefaultLayout = of_one;
  }
}
