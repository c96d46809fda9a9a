/* The layer that reports misuse of the C API. It passes a call on unless that would certainly crash
   the process: a second destroy, for example, is answered here. */
#include <stdio.h>

#include "objects.h"

/* A walk over a call's handles. `client` is the client of the handles seen so far, or 0. */
typedef struct {
  Call *call;
  uintptr_t client;
} Walk;

/* Visits every handle of the arguments (IN) or of the results (OUT). */
static void walk_handles(Walk *walk, Direction direction, Visit visit) {
  const Call *call = walk->call;
  const PJRT_LoadedExecutable_Execute_Args *args = (const void *)call->args;
  bool made = direction == OUT && number_of(call) == FN_PJRT_LoadedExecutable_Execute;
  size_t outputs = made ? executable_of(call->plugin, args->executable).outputs : 0;
  each_handle(call->plugin, number_of(call), call->args, direction, KIND_NONE, outputs, visit, walk);
}

/* Before the call */

static void check_size(const Call *call, const Shape *shape, const char *base, const char *field) {
  if (!shape->sized) return;
  char more[96];
  size_t said = word_at(base, 0);
  if (said >= shape->base_size) return;
  snprintf(more, sizeof more, "it says %zu, and the first version of the struct has %u bytes", said,
           shape->base_size);
  report(said == 0 ? NO_STRUCT_SIZE : SHORT_STRUCT, call, field, NULL, said == 0 ? NULL : more);
}

static void check_sizes(const Call *call) {
  const Shape *args = call->function->args;
  check_size(call, args, call->args, NULL);
  for (unsigned i = 0; i < args->num_pointers; i++) {
    const Pointer *pointer = &args->pointers[i];
    if (pointer->form != ONE || pointer->shape == NULL || pointer->direction == OUT) continue;
    if (pointer->at + sizeof(void *) > call->size) continue;
    const char *target = pointer_at(call->args, pointer->at);
    if (target != NULL) check_size(call, pointer->shape, target, "a struct that it points at");
  }
}

/* Returns whether a function uses the contents of a buffer or runs an executable. */
static bool needs_contents(unsigned function) {
  switch (function) {
    case FN_PJRT_LoadedExecutable_Execute:
    case FN_PJRT_Buffer_ToHostBuffer:
    case FN_PJRT_Buffer_CopyRawToHost:
    case FN_PJRT_Buffer_CopyRawToHostFuture:
    case FN_PJRT_Buffer_CopyToDevice:
    case FN_PJRT_Buffer_CopyToMemory:
    case FN_PJRT_Buffer_UnsafePointer:
    case FN_PJRT_Buffer_OpaqueDeviceMemoryDataPointer:
    case FN_PJRT_Buffer_IncreaseExternalReferenceCount:
    case FN_PJRT_Buffer_DonateWithControlDependency:
    case FN_PJRT_Buffer_Bitcast:
      return true;
    default:
      return false;
  }
}

static bool is_deleted(Plugin *plugin, uintptr_t buffer) {
  SIZED(PJRT_Buffer_IsDeleted_Args, args, .buffer = (PJRT_Buffer *)buffer);
  return plugin_answers(plugin, FN_PJRT_Buffer_IsDeleted, &args) && args.is_deleted;
}

static bool is_gone(uintptr_t address, unsigned kind) {
  const Object *object = address != 0 ? object_at(address, kind) : NULL;
  return object != NULL && object->state == DESTROYED;
}

static void check_use(const Walk *walk, const Handle *row, const Object *seen, bool client_gone,
                      bool parent_gone) {
  Call *call = walk->call;
  if (seen->state == DESTROYED) {
    report(USE_AFTER_DESTROY, call, row->name, seen, NULL);
    return;
  }
  if (client_gone) report(CLIENT_GONE, call, row->name, seen, NULL);
  if (parent_gone) report(STALE_EXECUTABLE, call, row->name, seen, NULL);
  if (!needs_contents(number_of(call))) return;
  if (seen->state == DELETED) {
    report(USE_AFTER_DELETE, call, row->name, seen, NULL);
  } else if (seen->state == DONATED ||
             (seen->kind == KIND_PJRT_Buffer && seen->executed != 0 && !client_gone &&
              is_deleted(call->plugin, seen->address))) {
    Object donated = *seen;
    donated.state = DONATED;
    if (donated.ended == 0) {
      donated.ended = seen->executed;
      donated.ended_by = FN_PJRT_LoadedExecutable_Execute;
    }
    report(USE_AFTER_DONATION, call, row->name, &donated, NULL);
  }
}

/* The leaks of a client. Only the first few of each kind are reported one by one. */
typedef struct {
  const Call *call;
  uintptr_t client;
  unsigned told[NUM_KINDS];
} Leaks;

enum { EACH = 5 };

static void check_leak(Object *object, void *argument) {
  Leaks *leaks = argument;
  if (object->client != leaks->client || object->address == leaks->client || object->lent ||
      object->state == DESTROYED)
    return;
  if (++leaks->told[object->kind] <= EACH)
    report(object->kind == KIND_PJRT_Event ? EVENT_LEAK : LEAK, leaks->call, NULL, object, NULL);
}

static void check_leaks(const Call *call, uintptr_t client) {
  Leaks leaks = {.call = call, .client = client};
  char more[64];
  each_object(check_leak, &leaks);
  for (unsigned kind = 0; kind < NUM_KINDS; kind++) {
    if (leaks.told[kind] <= EACH) continue;
    snprintf(more, sizeof more, "%u more of the kind %s", leaks.told[kind] - EACH,
             kind_names[kind]);
    report(kind == KIND_PJRT_Event ? EVENT_LEAK : LEAK, call, NULL, NULL, more);
  }
}

/* Marks an object as destroyed and returns its earlier state. The caller holds the lock. */
static Object end(Object *object, const Call *call) {
  Object before = *object;
  if (object->state != DESTROYED && !object->lent) {
    if (object->kind == KIND_PJRT_Client) check_leaks(call, object->address);
    object->state = DESTROYED;
    object->ended = call->number;
    object->ended_by = (uint16_t)number_of(call);
  }
  return before;
}

static void check_destroy(Walk *walk, const Handle *row, const Object *before, bool client_gone) {
  Call *call = walk->call;
  if (before->state == DESTROYED) {
    report(DOUBLE_DESTROY, call, row->name, before, "answered without the plugin");
    call->answered = true;
  } else if (before->lent) {
    report(LENT_DESTROYED, call, row->name, before, "answered without the plugin");
    call->answered = true;
  } else {
    if (before->uses > 0) report(DESTROYED_IN_USE, call, row->name, before, NULL);
    if (client_gone) report(CLIENT_GONE, call, row->name, before, NULL);
  }
}

static void unknown(const Walk *walk, const Handle *row, uintptr_t address) {
  objects_lock();
  Object *other = object_of_other_kind(address, row->kind);
  Object seen = other != NULL ? *other : (Object){.kind = KIND_NONE};
  if (other == NULL && walk->call->function->destroys) {
    Object *object = object_made(address, row->kind, walk->call, false);
    if (object != NULL) {
      object->made = 0; /* The call that made it is unknown. */
      end(object, walk->call);
    }
  }
  objects_unlock();
  if (seen.kind != KIND_NONE) report(ANOTHER_KIND, walk->call, row->name, &seen, NULL);
}

/* Returns whether a call's handles must outlive it. OnReady is an exception: a callback that runs
   within the call may destroy the event, as those of frameworks do. */
static bool holds(const Call *call) {
  return !call->function->destroys && number_of(call) != FN_PJRT_Event_OnReady;
}

static void check_handle(void *context, const Handle *row, void **slot) {
  Walk *walk = context;
  uintptr_t address = (uintptr_t)*slot;
  Call *call = walk->call;
  if (address == 0) {
    if (row->required) report(NULL_FIELD, call, row->name, NULL, NULL);
    return;
  }
  if (row->kind == KIND_NONE) return;
  objects_lock();
  Object *object = object_at(address, row->kind);
  if (object == NULL) {
    objects_unlock();
    unknown(walk, row, address);
    return;
  }
  bool client_gone = object->client != address && is_gone(object->client, KIND_PJRT_Client);
  bool parent_gone = is_gone(object->parent, KIND_PJRT_LoadedExecutable);
  bool destroys = call->function->destroys;
  Object seen = destroys ? end(object, call) : *object;
  if (holds(call)) object->uses++;
  objects_unlock();
  if (seen.plugin != call->plugin) report(ANOTHER_PLUGIN, call, row->name, &seen, NULL);
  if (seen.generation != generation()) report(FORKED, call, row->name, &seen, NULL);
  if (destroys)
    check_destroy(walk, row, &seen, client_gone);
  else
    check_use(walk, row, &seen, client_gone, parent_gone);
  unsigned function = number_of(call);
  bool crosses = function == FN_PJRT_Buffer_CopyToDevice || function == FN_PJRT_Buffer_CopyToMemory;
  if (walk->client != 0 && seen.client != 0 && seen.client != walk->client && !crosses)
    report(ANOTHER_CLIENT, call, row->name, &seen, NULL);
  if (walk->client == 0) walk->client = seen.client;
}

static void check_event(Call *call) {
  PJRT_Event_Error_Args *args = (PJRT_Event_Error_Args *)call->args;
  if (args->event == NULL) return;
  objects_lock();
  Object *object = object_at((uintptr_t)args->event, KIND_PJRT_Event);
  Object seen = object != NULL ? *object : (Object){.state = DESTROYED};
  objects_unlock();
  if (seen.state == DESTROYED) return;
  SIZED(PJRT_Event_IsReady_Args, ready, .event = args->event);
  if (plugin_answers(call->plugin, FN_PJRT_Event_IsReady, &ready) && !ready.is_ready)
    report(PENDING_ERROR, call, "event", &seen, NULL);
}

static void check_host_buffer(const Call *call) {
  PJRT_Client_BufferFromHostBuffer_Args *args = (PJRT_Client_BufferFromHostBuffer_Args *)call->args;
  if (args->device == NULL && args->memory == NULL) report(NO_PLACE, call, NULL, NULL, NULL);
  if (args->byte_strides != NULL && args->num_byte_strides != args->num_dims)
    report(STRIDES, call, "byte_strides", NULL, NULL);
}

static void check_type(const Call *call) {
  if (call->function->type_at == 0 || call->function->type_at + sizeof(int) > call->size) return;
  unsigned type;
  char more[48];
  memcpy(&type, call->args + call->function->type_at, sizeof type);
  bool known = type < num_buffer_types && buffer_type_since[type] <= call->plugin->minor;
  if (known && type != PJRT_Buffer_Type_INVALID && type != PJRT_Buffer_Type_TOKEN) return;
  snprintf(more, sizeof more, "type %u", type);
  report(ELEMENT_TYPE, call, NULL, NULL, more);
}

/* A plugin's transfer manager does not check the index, and gives out each buffer only once. */
static void check_index(const Call *call, PJRT_AsyncHostToDeviceTransferManager *manager, int index,
                        bool takes) {
  if (manager == NULL) return;
  objects_lock();
  Object *object = object_at((uintptr_t)manager, KIND_PJRT_AsyncHostToDeviceTransferManager);
  Object seen = object != NULL ? *object : (Object){.state = DESTROYED};
  uint64_t bit = index >= 0 && index < 64 ? 1ull << index : 0;
  if (takes && object != NULL) object->retrieved |= bit;
  objects_unlock();
  if (seen.state == DESTROYED) return;
  SIZED(PJRT_AsyncHostToDeviceTransferManager_BufferCount_Args, count, .transfer_manager = manager);
  bool answers = plugin_answers(
      call->plugin, FN_PJRT_AsyncHostToDeviceTransferManager_BufferCount, &count);
  char more[64];
  snprintf(more, sizeof more, "buffer_index %d", index);
  bool outside = answers && (index < 0 || (size_t)index >= count.buffer_count);
  if (outside || (takes && (seen.retrieved & bit)))
    report(BUFFER_INDEX, call, NULL, &seen, more);
}

#define INDEX_OF(name, takes)                                                             \
  case FN_PJRT_AsyncHostToDeviceTransferManager_##name: {                                 \
    PJRT_AsyncHostToDeviceTransferManager_##name##_Args *args = (void *)call->args;       \
    check_index(call, args->transfer_manager, args->buffer_index, takes);                 \
    break;                                                                                \
  }

static void check_fields(Call *call) {
  check_type(call);
  switch (number_of(call)) {
    case FN_PJRT_Event_Error:
      check_event(call);
      break;
    case FN_PJRT_Client_BufferFromHostBuffer:
      check_host_buffer(call);
      break;
      INDEX_OF(RetrieveBuffer, true)
      INDEX_OF(TransferData, false)
      INDEX_OF(TransferLiteral, false)
      INDEX_OF(BufferSize, false)
      INDEX_OF(SetBufferError, false)
  }
}

static void before(Call *call) {
  Walk walk = {.call = call};
  check_sizes(call);
  walk_handles(&walk, IN, check_handle);
  check_fields(call);
}

/* After the call */

static void leave(void *context, const Handle *row, void **slot) {
  Walk *walk = context;
  uintptr_t address = (uintptr_t)*slot;
  if (address == 0 || row->kind == KIND_NONE) return;
  Call *call = walk->call;
  objects_lock();
  Object *object = object_at(address, row->kind);
  if (object != NULL) {
    if (holds(call) && object->uses > 0) object->uses--;
    if (walk->client == 0) walk->client = object->client;
    if (call->error == NULL && row->kind == KIND_PJRT_Buffer &&
        number_of(call) == FN_PJRT_LoadedExecutable_Execute)
      object->executed = call->number;
  }
  objects_unlock();
}

static bool is_lent(const Call *call, const Handle *row) {
  switch (row->kind) {
    case KIND_PJRT_Device:
    case KIND_PJRT_Memory:
    case KIND_PJRT_DeviceDescription:
      return true;
    case KIND_PJRT_TopologyDescription:
      return number_of(call) == FN_PJRT_Client_TopologyDescription;
    case KIND_PJRT_Layouts_MemoryLayout: /* The executable owns its list of layouts. */
      return row->form == COUNTED;
    default:
      return false;
  }
}

/* Reports a handle that the host owns already. Returns the findings to suppress, because two owners
   will destroy it, which is not the host's mistake. The caller holds the lock. */
static uint32_t check_given(Object *object, const Call *call, const char *field) {
  bool owned = object != NULL && object->state == LIVE && !object->lent &&
               object->generation == generation() && object->plugin == call->plugin;
  if (!owned) return 0;
  report(GIVEN_TWICE, call, field, object, NULL);
  return 1u << GIVEN_TWICE | 1u << DOUBLE_DESTROY | 1u << USE_AFTER_DESTROY;
}

/* Returns whether the host asked only for a size, to which no event belongs. */
static bool is_unasked(const Call *call) {
  return number_of(call) == FN_PJRT_Buffer_ToHostBuffer &&
         ((PJRT_Buffer_ToHostBuffer_Args *)call->args)->dst == NULL;
}

static void make(void *context, const Handle *row, void **slot) {
  Walk *walk = context;
  uintptr_t address = (uintptr_t)*slot;
  if (row->kind == KIND_NONE) return;
  const Call *call = walk->call;
  if (address == 0) {
    if (!is_unasked(call)) report(NULL_RESULT, call, row->name, NULL, NULL);
    return;
  }
  bool lent = is_lent(call, row);
  objects_lock();
  Object *object = object_at(address, row->kind);
  bool owner = row->kind == KIND_PJRT_Buffer || row->kind == KIND_PJRT_Event;
  uint32_t told = 0;
  if (owner) told = check_given(object, call, row->name);
  if (object == NULL || !lent || !object->lent || object->state != LIVE ||
      object->client != walk->client)
    object = object_made(address, row->kind, call, lent);
  if (object != NULL) {
    object->told |= told;
    object->client = row->kind == KIND_PJRT_Client ? address : walk->client;
    if (number_of(call) == FN_PJRT_LoadedExecutable_GetExecutable)
      object->parent = word_at(call->args, call->function->handles->at);
  }
  objects_unlock();
}

static void note(const Call *call, unsigned kind, State state) {
  objects_lock();
  Object *object = object_at(word_at(call->args, call->function->handles->at), kind);
  if (object != NULL && object->state == LIVE) {
    object->state = (uint8_t)state;
    object->ended = call->number;
    object->ended_by = (uint16_t)number_of(call);
  }
  objects_unlock();
}

static void error_made(const Call *call, PJRT_Error *error) {
  objects_lock();
  uint32_t told =
      check_given(object_at((uintptr_t)error, KIND_PJRT_Error), call, "its error");
  Object *object = object_made((uintptr_t)error, KIND_PJRT_Error, call, false);
  if (object != NULL) object->told |= told;
  objects_unlock();
}

static void check_code(const Call *call) {
  char more[32];
  int code = (int)((PJRT_Error_GetCode_Args *)call->args)->code;
  if (code >= PJRT_Error_Code_CANCELLED && code <= PJRT_Error_Code_UNAUTHENTICATED) return;
  snprintf(more, sizeof more, "code %d", code);
  report(ERROR_CODE, call, NULL, NULL, more);
}

static void after(Call *call) {
  Walk walk = {.call = call};
  if (!call->function->destroys) walk_handles(&walk, IN, leave);
  if (call->answered) return;
  if (call->error != NULL) {
    error_made(call, call->error);
    return;
  }
  walk_handles(&walk, OUT, make);
  switch (number_of(call)) {
    case FN_PJRT_Error_GetCode:
      check_code(call);
      break;
    case FN_PJRT_Buffer_Delete:
      note(call, KIND_PJRT_Buffer, DELETED);
      break;
    case FN_PJRT_LoadedExecutable_Delete:
      note(call, KIND_PJRT_LoadedExecutable, DELETED);
      break;
    case FN_PJRT_Buffer_DonateWithControlDependency:
      note(call, KIND_PJRT_Buffer, DONATED);
  }
}

/* The host owns the error that its callback gets. */
static void upcall(const Upcall *upcall, PJRT_Error *error) {
  Call call = {.plugin = upcall->plugin,
               .function = &functions[FN_PJRT_Event_OnReady],
               .number = upcall->number};
  if (error != NULL) error_made(&call, error);
}

static void uncalled_for(const Upcall *upcall, Stage stage) {
  Call call = {.plugin = upcall->plugin,
               .function = &functions[FN_PJRT_Event_OnReady],
               .number = upcall->number};
  objects_lock();
  Object *event = object_at((uintptr_t)upcall->event, KIND_PJRT_Event);
  report(CALLED_TWICE, &call, "callback", event,
         stage == REFUSED ? "the call that gave it had failed" : "the host was called once");
  objects_unlock();
}

const Layer validate_layer = {"validate", before, after, upcall, NULL, uncalled_for};

/* At the end of the process: errors and events that belong to no client */

static void check_end(Object *object, void *argument) {
  unsigned *told = argument;
  bool error = object->kind == KIND_PJRT_Error;
  if (!(error || (object->kind == KIND_PJRT_Event && object->client == 0)) ||
      object->state == DESTROYED || object->generation != generation() || ++*told > 4 * EACH)
    return;
  Call made = {.plugin = (Plugin *)object->plugin,
               .function = &functions[object->made_by],
               .number = object->made};
  report(error ? ERROR_LEAK : EVENT_LEAK, &made, NULL, object, NULL);
}

static __attribute__((destructor)) void at_end(void) {
  unsigned told = 0;
  objects_lock();
  each_object(check_end, &told);
  objects_unlock();
}
