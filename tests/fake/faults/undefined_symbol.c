/* Needs a function that no library has. */
void nobody_has_this_function(void);
#define ON_INITIALIZE nobody_has_this_function()
#include "../plugin.c"
