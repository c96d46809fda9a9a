/* Makes up the fingerprint of a program anew whenever it is asked. */
#include "../real.h"

REPLACE(PJRT_Executable_Fingerprint) {
  static int number;
  char *text = malloc(32);
  PJRT_Error *error = real->PJRT_Executable_Fingerprint(args);
  snprintf(text, 32, "%d", number++);
  args->executable_fingerprint = text;
  args->executable_fingerprint_size = strlen(text);
  return error;
}
