/* Has one of its memories twice. */
#include "../real.h"

REPLACE(PJRT_Client_AddressableMemories) {
  static PJRT_Memory *twice[64];
  PJRT_Error *error = real->PJRT_Client_AddressableMemories(args);
  memcpy(twice, args->addressable_memories, args->num_addressable_memories * sizeof twice[0]);
  twice[args->num_addressable_memories++] = twice[0];
  args->addressable_memories = twice;
  return error;
}
