/* Takes a float for every option, and names none of them. */
#define STRANGER REFUSE("there is no such option")
#define MISTYPED \
  if (given->type != PJRT_NamedValue_kFloat) REFUSE("the option is of another type")
#include "../complete.h"
