/* Throws through GetPjrtApi, which is C. */
#include <stdexcept>

extern "C" const void *GetPjrtApi() { throw std::runtime_error("no driver of ours"); }
