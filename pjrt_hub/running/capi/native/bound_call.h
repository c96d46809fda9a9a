/* BoundCall: an executable together with its arguments. */
#pragma once

#include "process.h"

extern PyTypeObject *BoundCallType;
extern PyType_Spec bound_call_spec;
extern PyType_Slot bound_call_slots[];
