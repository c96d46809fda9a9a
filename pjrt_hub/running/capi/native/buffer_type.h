/* The Python type Buffer. */
#pragma once

#include "process.h"

extern PyType_Spec buffer_spec;
