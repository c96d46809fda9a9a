/* Sets the locale of the whole process. */
#include "../real.h"

#include <locale.h>

REPLACE(PJRT_Client_Create) {
  setlocale(LC_ALL, "POSIX");
  return real->PJRT_Client_Create(args);
}
