/* Owned: a native object of a client that a Python function frees. */
#pragma once

#include "process.h"

extern PyTypeObject *OwnedType;
extern PyType_Spec owned_spec;
