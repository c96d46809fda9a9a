/* PJRT_Event: its queries, and how a thread waits for one. */
#pragma once

#include "process.h"

#include <time.h>

typedef struct Latch Latch; /* Threads block on a latch to wait for an event. */
enum { UNTOLD = 2 }; /* The plugin lacks the function that would tell the event's state. */
int event_state(const PJRT_Api *api, PJRT_Event *event);
int event_when_ready(const PJRT_Api *api, PJRT_Event *event, void (*act)(void *), void *holder);
int event_await(const PJRT_Api *api, PJRT_Event *event);
int event_await_pending(const PJRT_Api *api, PJRT_Event *event, Latch **shared, double seconds);
PJRT_Error *event_take_error(const PJRT_Api *api, PJRT_Event *event);
void event_destroy_native(const PJRT_Api *api, PJRT_Event *ptr);
struct timespec seconds_from_now(double seconds);
void latch_release(Latch *latch);
