/* Says of a node of its chain that it has more functions than there are. */
#include "../real.h"

DEFECT(api) {
  static PJRT_Layouts_Extension node;
  memset(&node, 0x5a, sizeof node);
  node.base = (PJRT_Extension_Base){sizeof node, PJRT_Extension_Type_Layouts, NULL};
  api->extension_start = &node.base;
}
