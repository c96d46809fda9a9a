/* Owned: a native object that has nothing but an owner and an end. */
#pragma once

#include "process.h"

extern PyTypeObject *OwnedType;
extern PyType_Spec owned_spec;
