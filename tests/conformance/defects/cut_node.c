/* A node of its chain ends inside a function. */
#include "../real.h"

DEFECT(api) {
  for (PJRT_Extension_Base *node = api->extension_start; node != NULL; node = node->next)
    if (node->type == PJRT_Extension_Type_Layouts) node->struct_size = 60;
}
