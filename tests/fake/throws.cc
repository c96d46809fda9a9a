// Throws through GetPjrtApi, which is C, or while it is loaded.
#include <stdexcept>

#ifdef WHILE_LOADED
static int begin() { throw std::runtime_error("no memory of ours"); }
static int begun = begin();
#endif

extern "C" const void *GetPjrtApi() { throw std::runtime_error("no driver of ours"); }
