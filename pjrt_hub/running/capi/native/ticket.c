/* Tickets: a plugin gets a number with each callback and passes it back when it calls. No number is
   used twice, so a callback that comes twice, or too late, finds nothing instead of memory that was
   freed.

   Callbacks run on threads of plugins, so nothing here touches Python. */
#include "native.h"

/* The low bits of a number are a place in the table; the others count the uses of that place. */
enum { PLACE_BITS = 24, FIRST_PLACES = 64 };
#define PLACES ((uint64_t)1 << PLACE_BITS)

typedef struct {
  uint64_t number; /* 0 if the place is free. */
  uint64_t uses;
  uint64_t next; /* The next free place. */
  Ticket ticket;
} Place;

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Place *places; /* The table never shrinks: its counts of uses must not restart. */
static uint64_t num_places, first_free;

static bool grow(void) {
  uint64_t more = num_places > 0 ? 2 * num_places : FIRST_PLACES;
  Place *grown = more <= PLACES ? realloc(places, more * sizeof(Place)) : NULL;
  if (grown == NULL) return false;
  for (uint64_t i = num_places; i < more; i++) grown[i] = (Place){.next = i + 1};
  places = grown;
  num_places = more;
  return true;
}

/* Returns the number that a plugin is given, or NULL if there is no memory. */
void *ticket_issue(Ticket ticket) {
  uint64_t number = 0;
  pthread_mutex_lock(&mutex);
  if (first_free < num_places || grow()) {
    Place *place = &places[first_free];
    number = place->number = ++place->uses << PLACE_BITS | first_free;
    first_free = place->next;
    place->ticket = ticket;
  }
  pthread_mutex_unlock(&mutex);
  return (void *)(uintptr_t)number;
}

static bool find(void *number, Ticket *ticket, bool take) {
  uint64_t wanted = (uintptr_t)number, i = wanted % PLACES;
  pthread_mutex_lock(&mutex);
  bool found = wanted != 0 && i < num_places && places[i].number == wanted;
  if (found) *ticket = places[i].ticket;
  if (found && take) {
    places[i].number = 0;
    places[i].next = first_free;
    first_free = i;
  }
  pthread_mutex_unlock(&mutex);
  return found;
}

/* Reads the ticket of a callback that may come again; returns false if the ticket was taken. */
bool ticket_look(void *number, Ticket *ticket) { return find(number, ticket, false); }

/* Takes the ticket out of the table; returns false if that was done before. */
bool ticket_take(void *number, Ticket *ticket) { return find(number, ticket, true); }

/* The error of a second call is not freed, because the first call may have freed the same error. */
static void on_ready(PJRT_Error *error, void *number) {
  Ticket ticket;
  if (!ticket_take(number, &ticket)) return;
  drop_error(ticket.api, error);
  ticket.act(ticket.holder);
}

/* Runs a ticket's `act`. This has the form of a callback that deletes memory. */
void ticket_on_delete(void *memory, void *number) {
  Ticket ticket;
  if (ticket_take(number, &ticket)) ticket.act(ticket.holder);
}

/* Registers `act(holder)` to run once when the event is ready, perhaps at once. Returns false if it
   will never run, with the plugin's error, or without an error if there is no memory. */
bool ticket_when_ready(PJRT_Event *event, Ticket ticket, PJRT_Error **error) {
  SIZED(PJRT_Event_OnReady_Args, args);
  *error = NULL;
  args.event = event;
  args.callback = on_ready;
  args.user_arg = ticket_issue(ticket);
  if (args.user_arg == NULL) return false;
  *error = CALL(ticket.api, PJRT_Event_OnReady, &args);
  if (*error == NULL) return true;
  if (ticket_take(args.user_arg, &ticket)) return false;
  drop_error(ticket.api, *error); /* The plugin called back in spite of its error. */
  *error = NULL;
  return true;
}

void ticket_before_fork(void) { pthread_mutex_lock(&mutex); }

void ticket_after_fork(void) { pthread_mutex_unlock(&mutex); }
