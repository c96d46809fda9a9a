/* Buffers and events that the host holds instead of the plugin's, and the memory of devices. */
#include <stdarg.h>
#include <stdio.h>
#include <sys/mman.h>

#include "discrete.h"

struct Callback {
  Callback *next;
  PJRT_Event_OnReadyCallback call;
  void *user_arg;
};

/* Errors as outcomes */

const Status *status_make(PJRT_Error_Code code, const char *format, ...) {
  char text[256];
  va_list values;
  va_start(values, format);
  int wrote = vsnprintf(text, sizeof text, format, values);
  va_end(values);
  size_t length = wrote < (int)sizeof text ? (size_t)wrote : sizeof text - 1;
  Status *status = take(sizeof *status + length);
  status->code = code;
  status->length = length;
  memcpy(status->text, text, length);
  return status;
}

/* Returns whether a call of this library's own succeeded, and destroys its error if not. */
bool answered(Plugin *plugin, PJRT_Error *error) {
  if (error == NULL) return true;
  SIZED(PJRT_Error_Destroy_Args, destroy, .error = error);
  if (!refusal_answer(FN_PJRT_Error_Destroy, &destroy))
    plugin->real[FN_PJRT_Error_Destroy](&destroy);
  return false;
}

const Status *status_take(Plugin *plugin, PJRT_Error *error) {
  if (error == NULL) return NULL;
  SIZED(PJRT_Error_Message_Args, message, .error = error);
  if (!refusal_answer(FN_PJRT_Error_Message, &message))
    plugin->real[FN_PJRT_Error_Message](&message);
  SIZED(PJRT_Error_GetCode_Args, code, .error = error);
  if (!refusal_answer(FN_PJRT_Error_GetCode, &code)) plugin->real[FN_PJRT_Error_GetCode](&code);
  Status *status = take(sizeof *status + message.message_size);
  status->code = code.code;
  status->length = message.message_size;
  memcpy(status->text, message.message, message.message_size);
  answered(plugin, error);
  return status;
}

PJRT_Error *status_error(const Status *status) {
  return status == NULL ? NULL : refuse(status->code, status->text, status->length);
}

/* Calls a function of the plugin. Returns false if the plugin lacks it or returns an error. */
bool ask(Plugin *plugin, unsigned function, void *args) {
  return plugin->real[function] != NULL && answered(plugin, plugin->real[function](args));
}

/* The plugin's events */

/* Receives the outcome of an event. It is called once, without the lock. */
typedef void (*Heard)(void *what, const Status *status);

typedef struct {
  Plugin *plugin;
  PJRT_Event *ends; /* The event to destroy afterwards; NULL if its proxy does that. */
  Heard heard;
  void *what;
} Listener;

static void hear(PJRT_Error *error, void *user_arg) {
  Listener *listener = user_arg;
  listener->heard(listener->what, status_take(listener->plugin, error));
  if (listener->ends != NULL) TELL(listener->plugin, Event_Destroy, .event = listener->ends);
  free(listener);
}

static void listen(Plugin *plugin, PJRT_Event *real, bool ends, Heard heard, void *what) {
  Listener *listener = take(sizeof *listener);
  *listener = (Listener){plugin, ends ? real : NULL, heard, what};
  SIZED(PJRT_Event_OnReady_Args, args, .event = real, .callback = hear, .user_arg = listener);
  PJRT_Error *error = plugin->real[FN_PJRT_Event_OnReady](&args);
  if (error != NULL) hear(error, listener);
}

/* Events */

/* Tells the host that an event has fired, on a thread of this library. */
static void fire(Task *task) {
  Event *event = (Event *)task;
  schedule_lock();
  Callback *callbacks = event->callbacks;
  event->callbacks = NULL;
  event->fired = true;
  if (event->about != NULL) {
    event->done.status = event->about->defined.status;
    buffer_drop(event->about);
    event->about = NULL;
  }
  schedule_wake(); /* This ends the host's PJRT_Event_Await. */
  schedule_unlock();
  for (Callback *next; callbacks != NULL; callbacks = next) {
    next = callbacks->next;
    callbacks->call(status_error(event->done.status), callbacks->user_arg);
    free(callbacks);
  }
  LOCKED(event_drop(event));
}

/* The host has one reference, and the schedule has the other. */
Event *event_make(Plugin *plugin) {
  Event *event = take(sizeof *event);
  event->plugin = plugin;
  event->refs = 2;
  event->task.run = fire;
  event->task.fires = true;
  return event;
}

static void heard_done(void *what, const Status *status) {
  Event *event = what;
  schedule_lock();
  moment_happen(&event->done, status);
  event_drop(event);
  schedule_unlock();
}

/* Completes an event as soon as the plugin's event `real` has fired. Then destroys `real`, unless
   it is `event->real`. The caller must not hold the lock. */
void event_follow(Event *event, PJRT_Event *real) {
  LOCKED(event->refs++);
  listen(event->plugin, real, real != event->real, heard_done, event);
}

/* Lets an event fire some time after it is done. */
void event_fire_after(Event *event) {
  event->task.due = schedule_due(event->done.due);
  schedule_after(&event->task, &event->done);
  schedule_add(&event->task);
}

void event_drop(Event *event) {
  if (--event->refs > 0) return;
  PJRT_Event *real = event->real;
  Plugin *plugin = event->plugin;
  free(event);
  if (real == NULL) return;
  schedule_unlock();
  TELL(plugin, Event_Destroy, .event = real);
  schedule_lock();
}

/* Returns an event that fires some time after a buffer's contents are there. */
Event *event_when(Buffer *buffer) {
  Event *event = event_make(buffer->plugin);
  event->task.due = schedule_due(buffer->defined.due);
  event->about = buffer;
  buffer->refs++;
  schedule_after(&event->task, &buffer->defined);
  schedule_add(&event->task);
  return event;
}

/* Registers the host's callback. Returns false if the event has fired already. */
bool event_call(Event *event, PJRT_Event_OnReadyCallback call, void *user_arg) {
  if (event->fired) return false;
  Callback *callback = take(sizeof *callback), **last = &event->callbacks;
  *callback = (Callback){NULL, call, user_arg};
  while (*last != NULL) last = &(*last)->next;
  *last = callback;
  return true;
}

/* Buffers */

enum { STORES = 64 };
static Buffer *mapped; /* The buffers whose addresses the host was told. */
static Store stores[STORES];

Buffer *buffer_make(Plugin *plugin) {
  Buffer *buffer = take(sizeof *buffer);
  buffer->plugin = plugin;
  buffer->refs = 1;
  return buffer;
}

void description_fill(Description *like, PJRT_Buffer_Type type, const int64_t *dims, size_t count) {
  like->dims = take((2 * count + 1) * sizeof *dims);
  like->minor_to_major = like->dims + count;
  if (count > 0) memcpy(like->dims, dims, count * sizeof *dims);
  for (size_t i = 0; i < count; i++) like->minor_to_major[i] = (int64_t)(count - 1 - i);
  like->num_dims = count;
  like->type = type;
  like->known = true;
}

void description_copy(Description *like, const Description *other) {
  if (!other->known) return;
  description_fill(like, other->type, other->dims, other->num_dims);
  like->laid_out = other->laid_out;
  if (other->num_dims > 0)
    memcpy(like->minor_to_major, other->minor_to_major, other->num_dims * sizeof *other->dims);
}

static void heard_defined(void *what, const Status *status) {
  Buffer *buffer = what;
  schedule_lock();
  moment_happen(&buffer->defined, status);
  buffer_drop(buffer);
  schedule_unlock();
}

/* Takes the plugin's buffer, whose contents may come later. The caller must not hold the lock. */
void buffer_take(Buffer *buffer, PJRT_Buffer *real) {
  Plugin *plugin = buffer->plugin;
  SIZED(PJRT_Buffer_ReadyEvent_Args, ready, .buffer = real);
  const Status *status = status_take(plugin, plugin->real[FN_PJRT_Buffer_ReadyEvent](&ready));
  schedule_lock();
  buffer->real = real;
  buffer->refs++;
  moment_happen(&buffer->made, NULL);
  if (status != NULL) moment_happen(&buffer->defined, status);
  schedule_unlock();
  if (status == NULL)
    listen(plugin, ready.event, true, heard_defined, buffer);
  else
    heard_defined(buffer, status);
}

/* Frees a buffer's memory if the host has deleted it and no operation uses it. */
void buffer_release(Buffer *buffer) {
  if (!buffer->deleted || buffer->released || buffer->uses > 0 || buffer->real == NULL) return;
  buffer->released = true;
  store_refund(buffer);
  buffer->refs++;
  schedule_unlock();
  TELL(buffer->plugin, Buffer_Delete, .buffer = buffer->real);
  schedule_lock();
  buffer_drop(buffer);
}

void buffer_drop(Buffer *buffer) {
  if (--buffer->refs > 0) return;
  store_refund(buffer);
  if (buffer->address != NULL) {
    Buffer **at = &mapped;
    while (*at != buffer) at = &(*at)->next_mapped;
    *at = buffer->next_mapped;
    munmap(buffer->address, buffer->reserved);
  }
  PJRT_Buffer *real = buffer->real;
  Plugin *plugin = buffer->plugin;
  free(buffer->like.dims);
  free(buffer);
  if (real == NULL) return;
  schedule_unlock();
  TELL(plugin, Buffer_Destroy, .buffer = real);
  schedule_lock();
}

bool is_devices(Plugin *plugin, PJRT_Memory *memory) {
  SIZED(PJRT_Memory_Kind_Args, kind, .memory = memory);
  return !ask(plugin, FN_PJRT_Memory_Kind, &kind) ||
         (kind.kind_size == 6 && memcmp(kind.kind, "device", 6) == 0);
}

bool is_on_device(Plugin *plugin, PJRT_Buffer *real) {
  SIZED(PJRT_Buffer_Memory_Args, of, .buffer = real);
  return !ask(plugin, FN_PJRT_Buffer_Memory, &of) || is_devices(plugin, of.memory);
}

PJRT_Memory *default_memory(Plugin *plugin, PJRT_Device *device) {
  SIZED(PJRT_Device_DefaultMemory_Args, args, .device = device);
  return device != NULL && ask(plugin, FN_PJRT_Device_DefaultMemory, &args) ? args.memory : NULL;
}

PJRT_Device *device_of(Plugin *plugin, PJRT_Memory *memory) {
  SIZED(PJRT_Memory_AddressableByDevices_Args, by, .memory = memory);
  bool known = ask(plugin, FN_PJRT_Memory_AddressableByDevices, &by) && by.num_devices > 0;
  return known ? by.devices[0] : NULL;
}

/* Returns an address that faults, in place of the plugin's address of `nbytes` bytes. The caller
   must not hold the lock. */
uintptr_t buffer_address(Buffer *buffer, uintptr_t real, size_t nbytes) {
  if (real == 0) return 0;
  schedule_lock();
  if (buffer->address == NULL) {
    size_t reserved = (nbytes + 4096) & ~(size_t)4095;
    int flags = MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE;
    void *address = mmap(NULL, reserved, PROT_NONE, flags, -1, 0);
    if (address == MAP_FAILED) abort();
    buffer->next_mapped = mapped;
    mapped = buffer;
    buffer->address = address;
    buffer->reserved = reserved;
  }
  uintptr_t told = (uintptr_t)buffer->address;
  schedule_unlock();
  return told;
}

/* Returns the plugin's address for an address that the host was told, or 0 for any other. The
   caller must not hold the lock. */
uintptr_t real_address(uintptr_t told) {
  uintptr_t real = 0;
  schedule_lock();
  Buffer *buffer = mapped;
  while (buffer != NULL && told - (uintptr_t)buffer->address >= buffer->reserved)
    buffer = buffer->next_mapped;
  if (buffer != NULL) {
    buffer->refs++;
    schedule_unlock();
    SIZED(PJRT_Buffer_UnsafePointer_Args, args, .buffer = buffer->real);
    if (ask(buffer->plugin, FN_PJRT_Buffer_UnsafePointer, &args))
      real = args.buffer_pointer + (told - (uintptr_t)buffer->address);
    schedule_lock();
    buffer_drop(buffer);
  }
  schedule_unlock();
  return real;
}

Store *store_of(PJRT_Device *device) {
  size_t i = 0;
  while (i < STORES - 1 && stores[i].device != NULL && stores[i].device != device) i++;
  stores[i].device = device;
  return &stores[i];
}

/* Returns an error if a device has no room for `nbytes` more. */
const Status *store_full(PJRT_Device *device, size_t nbytes) {
  if (settings.capacity == 0 || nbytes == 0 ||
      store_of(device)->used + nbytes <= settings.capacity)
    return NULL;
  return status_make(PJRT_Error_Code_RESOURCE_EXHAUSTED,
                     "Out of memory while trying to allocate %zu bytes.", nbytes);
}

void store_charge(Buffer *buffer, PJRT_Device *device, size_t nbytes) {
  Store *store = store_of(device);
  store->used += nbytes;
  store->count++;
  if (store->used > store->peak) store->peak = store->used;
  if (nbytes > store->largest) store->largest = nbytes;
  buffer->charged_to = device;
  buffer->charged = nbytes;
}

void store_refund(Buffer *buffer) {
  if (buffer->charged > 0) store_of(buffer->charged_to)->used -= buffer->charged;
  buffer->charged = 0;
}
