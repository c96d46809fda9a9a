/* The common part of the stub plugin's objects, with its errors and its events.

   The stub is stricter than any real plugin: it aborts at a use after destroy, a second destroy, a
   destroy of something in use, and a client that dies before its children. Nothing is ever freed,
   so every such mistake is seen; `stub_live` counts what is alive. */
#define _GNU_SOURCE
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "pjrt_api.h"

/* Code that runs inside every call: a delay here makes races more likely. */
#ifndef ON_CALL
#define ON_CALL (void)0
#endif

enum { DEAD, ERROR, EVENT, BUFFER, EXECUTABLE, VIEW, CLIENT, KINDS };
static const char *const kind_names[KINDS] = {"dead object", "error", "event", "buffer",
                                              "executable",  "view",  "client"};
atomic_long stub_live[KINDS];
atomic_long stub_destroys; /* the number of destroyed objects, without errors */

typedef struct {
  atomic_int kind;
  atomic_int uses; /* the number of calls that use it now */
  PJRT_Client *client;
} Head;

struct PJRT_Device {
  PJRT_Client *client;
};
struct PJRT_DeviceDescription {
  PJRT_Client *client;
};
typedef struct {
  PJRT_Memory memory;
  PJRT_Client *client;
} StubMemory;
struct PJRT_Client {
  Head head;
  atomic_int children;
  StubMemory memory;
  PJRT_Device device, *devices[1];
  PJRT_DeviceDescription description;
};

static void die(const char *what, int kind) {
  dprintf(2, "stub: %s: %s\n", what, kind_names[kind]);
  abort();
}

static void *make(size_t size, int kind, PJRT_Client *client) {
  Head *head = calloc(1, size);
  head->kind = kind;
  head->client = client;
  if (client != NULL) client->children++;
  stub_live[kind]++;
  return head;
}

static void *enter(const void *object, int kind) {
  Head *head = (Head *)object;
  if (head == NULL) die("NULL", kind);
  head->uses++;
  if (head->kind != kind) die("use after destroy", kind);
  ON_CALL;
  return head;
}

static void leave(const void *object) { ((Head *)object)->uses--; }

static void destroy(void *object, int kind) {
  Head *head = object;
  int alive = kind;
  if (!atomic_compare_exchange_strong(&head->kind, &alive, DEAD)) die("second destroy", kind);
  ON_CALL;
  if (head->uses != 0) die("destroyed in use", kind);
  if (head->client != NULL) {
    if (head->client->head.kind != CLIENT) die("outlived its client", kind);
    head->client->children--;
  }
  if (kind != ERROR) stub_destroys++;
  stub_live[kind]--;
}

static void nap(double seconds) {
  struct timespec left = {(time_t)seconds, (long)((seconds - (double)(time_t)seconds) * 1e9)};
  while (nanosleep(&left, &left) != 0 && errno == EINTR) continue;
}

static void *copied(const void *from, size_t size) {
  return size != 0 ? memcpy(malloc(size), from, size) : NULL;
}

static void in_background(void *(*work)(void *), void *arg) {
  pthread_t thread;
  pthread_create(&thread, NULL, work, arg);
  pthread_detach(thread);
}

/* Whatever `hold` delays goes on once a test sets this. */
atomic_bool stub_released;

static void hold(void) {
  while (!stub_released) nap(0.001);
}

/* Appends the id of this process to the file that STUB_LOADS names. */
static void leave_trace(void) {
  const char *path = getenv("STUB_LOADS");
  int file = path != NULL ? open(path, O_WRONLY | O_CREAT | O_APPEND, 0600) : -1;
  if (file < 0) return;
  dprintf(file, "%d\n", getpid());
  close(file);
}

/* Errors */

/* The reason that a host gave for a failure. */
typedef struct {
  char *message;
  size_t size, num_payload;
  PJRT_NamedValue payload[4];
} Reason;


static Reason *new_reason(const char *message, size_t size, const PJRT_NamedValue *payload,
                          size_t num_payload) {
  Reason *reason = calloc(1, sizeof(Reason));
  reason->message = copied(message, size);
  reason->size = size;
  reason->num_payload = num_payload;
  for (size_t i = 0; i < num_payload; i++) {
    reason->payload[i] = payload[i];
    reason->payload[i].name = copied(payload[i].name, payload[i].name_size);
    reason->payload[i].string_value = copied(payload[i].string_value, payload[i].value_size);
  }
  return reason;
}

typedef struct {
  Head head;
  int code;
  const char *word;
  const Reason *reason;
} Error;

static PJRT_Error *fail(int code, const char *word) {
  Error *error = make(sizeof(Error), ERROR, NULL);
  error->code = code;
  error->word = word;
  return (PJRT_Error *)error;
}

/* The host's callbacks make their errors with this function. */
static PJRT_Error *make_error(PJRT_Error_Code code, const char *message, size_t size) {
  return fail((int)code, strndup(message, size));
}
static PJRT_CallbackError error_maker = make_error;

static void PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) { destroy(args->error, ERROR); }

static void PJRT_Error_Message(PJRT_Error_Message_Args *args) {
  Error *error = enter(args->error, ERROR);
  static char huge[1 << 20];
  args->message = error->word;
  args->message_size = strlen(error->word);
  if (error->reason != NULL)
    args->message = error->reason->message, args->message_size = error->reason->size;
  else if (strcmp(error->word, "empty") == 0)
    args->message = NULL, args->message_size = 0;
  else if (strcmp(error->word, "bytes") == 0)
    args->message = "caf\xe9 \xff!", args->message_size = 7;
  else if (strcmp(error->word, "huge") == 0)
    args->message = memset(huge, 'x', sizeof huge), args->message_size = sizeof huge;
  leave(error);
}

/* The size of its struct that one function wants: this header's size and `more` bytes, which may be
   negative; it wants exactly this size, or at least this size. */
struct {
  const char *function;
  long more;
  int exactly;
} stub_policy;

static PJRT_Error *wrong_size(const char *function, size_t ours, size_t given) {
  if (stub_policy.function == NULL || strcmp(function, stub_policy.function) != 0) return NULL;
  size_t wanted = ours + (size_t)stub_policy.more;
  bool fits = stub_policy.exactly ? given == wanted : given >= wanted;
  return fits ? NULL : fail(3, "unexpected struct size");
}

static PJRT_Api api;

/* Defines a function and puts it into the table. */
#define FUNCTION(name)                                                                    \
  static PJRT_Error *name##_of_any_size(name##_Args *args);                               \
  static PJRT_Error *name(name##_Args *args) {                                            \
    PJRT_Error *error = wrong_size(#name, name##_Args_STRUCT_SIZE, args->struct_size);    \
    return error != NULL ? error : name##_of_any_size(args);                              \
  }                                                                                       \
  __attribute__((constructor)) static void list_##name(void) { api.name = name; }         \
  static PJRT_Error *name##_of_any_size(name##_Args *args)

/* Defines a function that cannot fail, by what it does: DOES(name, args->a = 1). */
#define DOES(name, ...)   \
  FUNCTION(name) {        \
    __VA_ARGS__;          \
    return NULL;          \
  }

/* Defines one by what it does with its object, which is called `it`:
   TELLS(name, client, CLIENT, args->a = it->b). */
#define TELLS(name, object, kind, ...)                                            \
  DOES(name, __auto_type it = args->object; enter(it, kind); __VA_ARGS__; leave(it))

FUNCTION(PJRT_Error_GetCode) {
  Error *error = enter(args->error, ERROR);
  if (strcmp(error->word, "codeless") == 0) {
    leave(error);
    return fail(13, "no code");
  }
  args->code = error->code;
  leave(error);
  return NULL;
}

TELLS(PJRT_Error_ForEachPayload, error, ERROR, const Error *error = (const Error *)it;
      if (strcmp(error->word, "payload") == 0) {
        args->visitor("stub/first", 10, "\0\1", 2, args->user_arg);
        args->visitor("stub/\xff", 6, "", 0, args->user_arg);
      }
      for (size_t i = 0; error->reason != NULL && i < error->reason->num_payload; i++)
        args->visitor(error->reason->payload[i].name, error->reason->payload[i].name_size,
                      error->reason->payload[i].string_value, error->reason->payload[i].value_size,
                      args->user_arg))

/* Signals hold the state that events look at. They outlive both the events and the work. */

enum { MAX_CALLBACKS = 1000 };
atomic_long stub_callbacks; /* callbacks of events that have not fired */

typedef struct {
  pthread_mutex_t mutex;
  bool fired;
  int code, waiting;
  const Reason *reason;
  struct {
    PJRT_Event_OnReadyCallback call;
    void *user_arg;
  } callbacks[MAX_CALLBACKS];
  double delay;
  bool held;
} Signal;

static Signal *new_signal(void) {
  Signal *signal = calloc(1, sizeof(Signal));
  pthread_mutex_init(&signal->mutex, NULL);
  return signal;
}

static PJRT_Error *failure_of(Signal *signal) {
  if (signal->code == 0) return NULL;
  PJRT_Error *error = fail(signal->code, "the stub failed later");
  ((Error *)error)->reason = signal->reason;
  return error;
}

/* Whether callbacks come again: at once, with the same error, which the host has freed already, and
   later on another thread. */
#ifndef TWICE
#define TWICE 0
#endif
const long stub_twice = TWICE;
atomic_long stub_late; /* callbacks that came late */

typedef struct {
  PJRT_Event_OnReadyCallback call;
  void *user_arg;
  PJRT_Error *error;
} Again;

static void *call_later(void *arg) {
  const Again *again = arg;
  nap(0.2);
  again->call(again->error, again->user_arg);
  stub_late++;
  return NULL;
}

static void call_back(PJRT_Event_OnReadyCallback call, PJRT_Error *error, void *user_arg) {
  call(error, user_arg);
  if (!TWICE) return;
  call(error, user_arg);
  in_background(call_later, copied(&(Again){call, user_arg, error}, sizeof(Again)));
}

static void *fire(void *arg) {
  Signal *signal = arg;
  nap(signal->delay);
  if (signal->held) hold();
  pthread_mutex_lock(&signal->mutex);
  signal->fired = true;
  int waiting = signal->waiting;
  pthread_mutex_unlock(&signal->mutex);
  stub_callbacks -= waiting;
  while (waiting-- > 0) /* the last registered runs first, as in real plugins */
    call_back(signal->callbacks[waiting].call, failure_of(signal),
              signal->callbacks[waiting].user_arg);
  return NULL;
}

struct PJRT_Event {
  Head head;
  Signal *signal;
};

static PJRT_Event *new_event(PJRT_Client *client, Signal *signal) {
  PJRT_Event *event = make(sizeof(PJRT_Event), EVENT, client);
  event->signal = signal;
  return event;
}

DOES(PJRT_Event_Destroy, destroy(args->event, EVENT))

TELLS(PJRT_Event_IsReady, event, EVENT, pthread_mutex_lock(&it->signal->mutex);
      args->is_ready = it->signal->fired;
      pthread_mutex_unlock(&it->signal->mutex))

FUNCTION(PJRT_Event_Error) {
  PJRT_Event *event = enter(args->event, EVENT);
  if (!event->signal->fired) die("asked for the error while pending", EVENT);
  PJRT_Error *error = failure_of(event->signal);
  leave(event);
  return error;
}

#ifndef ON_READY
#define ON_READY (void)0
#endif

FUNCTION(PJRT_Event_OnReady) {
  ON_READY;
  PJRT_Event *event = enter(args->event, EVENT);
  Signal *signal = event->signal;
  pthread_mutex_lock(&signal->mutex);
  bool fired = signal->fired;
  if (!fired) {
    if (signal->waiting == MAX_CALLBACKS) die("too many callbacks", EVENT);
    signal->callbacks[signal->waiting].call = args->callback;
    signal->callbacks[signal->waiting++].user_arg = args->user_arg;
    stub_callbacks++;
  }
  pthread_mutex_unlock(&signal->mutex);
  leave(event);
  if (fired) call_back(args->callback, failure_of(signal), args->user_arg);
  return NULL;
}

DOES(PJRT_Event_Create, args->event = new_event(NULL, new_signal()))

/* Fires a promised signal with the code and the message of an error, or with the code 0. */
static void settle(Signal *signal, int code, const char *message, size_t message_size) {
  if (signal->fired) die("answered twice", EVENT);
  signal->code = code;
  signal->reason = new_reason(message, message_size, NULL, 0);
  fire(signal);
}

TELLS(PJRT_Event_Set, event, EVENT,
      settle(it->signal, (int)args->error_code, args->error_message, args->error_message_size))
