/* Calls that the plugin answers at once, with its own handles swapped in for the host's proxies. */
#include "discrete.h"

enum { MOST_SWAPS = 64 };
typedef struct {
  struct {
    void **slot, *value;
  } swaps[MOST_SWAPS];
  size_t count;
  bool takes; /* The call takes the buffers, which then count as deleted. */
  const Status *failed;
} Swaps;

static void swap(Swaps *swaps, void **slot, void *real) {
  if (swaps->count == MOST_SWAPS) return;
  swaps->swaps[swaps->count].slot = slot;
  swaps->swaps[swaps->count++].value = *slot;
  *slot = real;
}

static void swap_buffer(void *context, const Handle *row, void **slot) {
  Swaps *swaps = context;
  Buffer *buffer = *slot;
  if (buffer == NULL) return;
  moment_await(&buffer->made);
  while (swaps->takes && buffer->unbegun > 0) {
    schedule_hurry(buffer->last);
    schedule_sleep();
  }
  if (buffer->made.status != NULL) swaps->failed = buffer->made.status;
  buffer->refs++;
  swap(swaps, slot, buffer->real);
}

static void swap_event(void *context, const Handle *row, void **slot) {
  Event *event = *slot;
  if (event != NULL) swap(context, slot, event->real);
}

static void wrap_buffer(void *context, const Handle *row, void **slot) {
  Plugin *plugin = context;
  if (*slot == NULL) return;
  Buffer *buffer = buffer_make(plugin);
  buffer_take(buffer, *slot);
  *slot = buffer;
}

static void wrap(Plugin *plugin, void **slot, bool settable) {
  PJRT_Event *real = *slot;
  if (real == NULL) return;
  schedule_lock();
  Event *event = event_make(plugin);
  if (settable) event->real = real;
  event_fire_after(event);
  schedule_unlock();
  *slot = event;
  event_follow(event, real);
}

static void wrap_event(void *context, const Handle *row, void **slot) { wrap(context, slot, false); }

/* The proxy of an event that the host sets keeps the plugin's event, which has to be set, too. */
static void wrap_settable_event(void *context, const Handle *row, void **slot) { wrap(context, slot, true); }

static void clear(void *context, const Handle *row, void **slot) {
  (void)context;
  *slot = NULL;
}

/* Charges a new buffer to its device. If there is no room, what the host gave up is freed first; if
   there is still none, the buffer is dropped. */
static PJRT_Error *charge(Plugin *plugin, PJRT_Buffer **made) {
  Buffer *buffer = (Buffer *)*made;
  const Status *full = room_charge(plugin, buffer, buffer->real);
  if (full == NULL) return NULL;
  LOCKED(schedule_drain());
  full = room_charge(plugin, buffer, buffer->real);
  if (full == NULL) return NULL;
  LOCKED(buffer_drop(buffer));
  *made = NULL;
  return status_error(full);
}

PJRT_Error *pass_on(Plugin *plugin, unsigned function, void *args) {
  Swaps swaps = {.takes = function == FN_PJRT_Client_FulfillAliasBuffer ||
                          function == FN_PJRT_Buffer_DonateWithControlDependency ||
                          function == FN_PJRT_Buffer_Bitcast};
  schedule_lock();
  each_handle(plugin, function, args, IN, KIND_PJRT_Buffer, 0, swap_buffer, &swaps);
  size_t buffers = swaps.count;
  each_handle(plugin, function, args, IN, KIND_PJRT_Event, 0, swap_event, &swaps);
  schedule_unlock();
  each_handle(plugin, function, args, OUT, KIND_PJRT_Event, 0, clear, NULL);
  PJRT_Error *error =
      swaps.failed == NULL ? layout_call(plugin, function, args) : status_error(swaps.failed);
  schedule_lock();
  for (size_t i = 0; i < swaps.count; i++) {
    *swaps.swaps[i].slot = swaps.swaps[i].value;
    if (i >= buffers) continue;
    Buffer *buffer = swaps.swaps[i].value;
    if (swaps.takes && error == NULL) buffer->deleted = buffer->released = true;
    buffer_drop(buffer);
  }
  schedule_unlock();
  if (error != NULL || !functions[function].returns_error) return error;
  bool settable = function == FN_PJRT_Event_Create;
  each_handle(plugin, function, args, OUT, KIND_PJRT_Buffer, 0, wrap_buffer, plugin);
  each_handle(plugin, function, args, OUT, KIND_PJRT_Event, 0,
              settable ? wrap_settable_event : wrap_event, plugin);
  switch (function) {
    case FN_PJRT_Client_CreateUninitializedBuffer:
      return charge(plugin, &((PJRT_Client_CreateUninitializedBuffer_Args *)args)->buffer);
    case FN_PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer:
      return charge(
          plugin, &((PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer_Args *)args)->buffer_out);
    default:
      return NULL;
  }
}
