/* Names its options where one is unknown, and aborts where one is a bool that should be none. */
#define STRANGER REFUSE("there is no option %s; there are stub_string, stub_int64 and stub_float")
#define MISTYPED                                             \
  if (given->type == PJRT_NamedValue_kBool) abort();         \
  REFUSE("the option %s is of type %s, and was given as %s")
#include "../complete.h"
