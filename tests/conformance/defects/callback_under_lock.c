/* Calls callbacks of events while it holds the lock that every question to an event takes. */
#include "../real.h"

#include <pthread.h>

static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define UNDER_LOCK(name)                            \
  static PJRT_Error *my_##name(name##_Args *args) { \
    pthread_mutex_lock(&lock);                      \
    PJRT_Error *error = real->name(args);           \
    pthread_mutex_unlock(&lock);                    \
    return error;                                   \
  }

UNDER_LOCK(PJRT_Event_IsReady)
UNDER_LOCK(PJRT_Event_Error)
UNDER_LOCK(PJRT_Event_Destroy)

typedef struct {
  PJRT_Event_OnReadyCallback call;
  void *user_arg;
} Callback;

static void call_under_lock(PJRT_Error *error, void *user_arg) {
  Callback *callback = user_arg;
  pthread_mutex_lock(&lock);
  callback->call(error, callback->user_arg);
  pthread_mutex_unlock(&lock);
  free(callback);
}

static PJRT_Error *on_ready(PJRT_Event_OnReady_Args *args) {
  Callback *callback = malloc(sizeof(Callback));
  *callback = (Callback){args->callback, args->user_arg};
  args->callback = call_under_lock;
  args->user_arg = callback;
  return real->PJRT_Event_OnReady(args);
}

DEFECT(api) {
  api->PJRT_Event_IsReady = my_PJRT_Event_IsReady;
  api->PJRT_Event_Error = my_PJRT_Event_Error;
  api->PJRT_Event_Destroy = my_PJRT_Event_Destroy;
  api->PJRT_Event_OnReady = on_ready;
}
