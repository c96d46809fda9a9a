/* Stepper: a program whose results are arguments of its next call. */
#pragma once

#include "process.h"

extern PyTypeObject *StepperType;
extern PyType_Spec stepper_spec;
