/* Event: a PJRT_Event that Python waits for. */
#pragma once

#include "client.h"
#include "native_event.h"

typedef struct {
  PyObject_HEAD
  Child child;
  ClientObject *client;
  PJRT_Event *ptr; /* NULL once the native event is destroyed. */
  Latch *latch;    /* NULL until a thread has to wait for the event. */
  PyObject *kept;  /* An object that the work uses until the event is known to be ready, or NULL. */
} EventObject;
LISTED(EventObject);

extern PyTypeObject *EventType;
extern PyType_Spec event_spec;
PyObject *event_wrap(PyTypeObject *type, ClientObject *client, PJRT_Event *ptr);
