/* Says of a node of its chain that it has no function. */
#include "../real.h"

DEFECT(api) {
  for (PJRT_Extension_Base *node = api->extension_start; node != NULL; node = node->next)
    if (node->type == PJRT_Extension_Type_Layouts) node->struct_size = sizeof *node;
}
