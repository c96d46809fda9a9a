/* Event: what Python waits for. */
#pragma once

#include "client.h"
#include "native_event.h"

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Event *ptr; /* NULL once destroyed */
  Latch *latch;    /* NULL until somebody waits while it is pending */
  PyObject *kept;  /* what the work uses, let go once the event is known to be ready; or NULL */
} EventObject;

extern PyTypeObject *EventType;
extern PyType_Spec event_spec;
PyObject *event_wrap(PyTypeObject *type, ClientObject *client, PJRT_Event *ptr);
