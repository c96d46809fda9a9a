/* Two nodes of its chain are of the same type. */
#include "../real.h"

DEFECT(api) {
  static PJRT_Extension_Base again;
  again = *api->extension_start;
  if (api->extension_start->next != &again) api->extension_start->next = &again;
}
