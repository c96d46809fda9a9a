/* Tickets: numbers that a plugin gets instead of addresses. */
#pragma once

#include "process.h"

typedef struct {
  const PJRT_Api *api;
  void (*act)(void *holder); /* A function that runs on any thread. */
  void *holder;
} Ticket;
void *ticket_issue(Ticket ticket);
bool ticket_look(void *number, Ticket *ticket);
bool ticket_take(void *number, Ticket *ticket);
void ticket_on_delete(void *memory, void *number);
bool ticket_when_ready(PJRT_Event *event, Ticket ticket, PJRT_Error **error);
void ticket_before_fork(void);
void ticket_after_fork(void);
