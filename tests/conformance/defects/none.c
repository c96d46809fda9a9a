/* Has no defect. */
#include "../complete.h"
