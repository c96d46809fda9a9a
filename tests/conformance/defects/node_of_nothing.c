/* Announces custom calls, and has none of their functions. */
#include "../real.h"

DEFECT(api) {
  static PJRT_FFI_Extension node;
  node.base.struct_size = sizeof node;
  node.base.type = PJRT_Extension_Type_FFI;
  api->extension_start = &node.base;
}
