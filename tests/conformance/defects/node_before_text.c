/* The last node of its chain points at what is none. */
#include "../real.h"

DEFECT(api) {
  PJRT_Extension_Base *node = api->extension_start;
  while (node->next != NULL) node = node->next;
  node->next = (PJRT_Extension_Base *)"a text of more than the twenty-four bytes of a node";
}
