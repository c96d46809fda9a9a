/* Operations, which move data or run programs, from the host's call to their end. */
#include <stdio.h>

#include "discrete.h"

/* An object that operations belong to: a device, whose programs run one after another, or a
   transfer manager or executable, which is destroyed after the last operation that needs it. The
   fields from `program` on describe an executable. */
typedef struct Operation Operation;
typedef struct Owner Owner;
struct Owner {
  Owner *next;
  void *key;
  Operation *last;
  unsigned pending;
  unsigned end; /* The function that is to destroy it as soon as possible, or 0. */
  Program *program;
  size_t num_inputs;
  bool sure, *takes; /* If `sure`, `takes` tells which inputs the program takes. */
};

typedef struct {
  void **slot;
  Buffer *buffer; /* Either this or `event` is set. */
  Event *event;
} Result;

/* An operation that has not begun and has the buffer as an input. */
struct Use {
  Use *next;
  Operation *by;
};

struct Operation {
  Task task; /* The task that begins the operation, and later ends it. */
  unsigned refs;
  Plugin *plugin;
  unsigned function;
  char *args;
  Arena arena;
  Owner *owner;
  Buffer **inputs;
  Result *results;
  size_t num_inputs, num_results;
  bool unsure;
  Moment begun, complete;
};

enum { BUCKETS = 256 };
static const uint64_t LONGEST_ANSWER_NS = 10000000000;
static Owner *owners[BUCKETS];

static Owner **place_of(void *key) {
  Owner **at = &owners[((uintptr_t)key >> 4) * 0x9e3779b97f4a7c15u >> 56];
  while (*at != NULL && (*at)->key != key) at = &(*at)->next;
  return at;
}

static Owner *owner_of(void *key) {
  Owner **at = place_of(key);
  if (*at == NULL) {
    *at = take(sizeof **at);
    (*at)->key = key;
  }
  return *at;
}

static void drop(Operation *operation) {
  if (--operation->refs > 0) return;
  arena_free(&operation->arena);
  free(operation);
}

static void forget(Owner *owner) {
  *place_of(owner->key) = owner->next;
  if (owner->last != NULL) drop(owner->last);
  if (owner->program != NULL) program_free(owner->program);
  free(owner->takes);
  free(owner);
}

/* Destroys an owner if the host has asked for that and no operation needs it any more. */
static PJRT_Error *end_if_free(Plugin *plugin, Owner *owner) {
  if (owner->end == 0 || owner->pending > 0) return NULL;
  /* The arguments of all functions that destroy something begin with it. */
  SIZED(PJRT_LoadedExecutable_Destroy_Args, args, .executable = owner->key);
  unsigned function = owner->end;
  forget(owner);
  schedule_unlock();
  PJRT_Error *error = layout_call(plugin, function, &args);
  schedule_lock();
  return error;
}

PJRT_Error *operation_end_owner(Plugin *plugin, unsigned function, void *owner) {
  schedule_lock();
  Owner *known = owner_of(owner);
  known->end = function;
  PJRT_Error *error = end_if_free(plugin, known);
  schedule_unlock();
  return error;
}

/* Passes a call on once all earlier operations of its owner are complete. */
PJRT_Error *operation_pass_on_after(Plugin *plugin, unsigned function, void *args, void *owner) {
  schedule_lock();
  Operation *last = owner_of(owner)->last;
  if (last != NULL) {
    last->refs++;
    moment_await(&last->complete);
    drop(last);
  }
  schedule_unlock();
  return layout_call(plugin, function, args);
}

/* From the beginning of an operation to its end */

static void fail(Operation *operation, const Status *status) {
  schedule_lock();
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (result->buffer != NULL) {
      moment_happen(&result->buffer->made, status);
      moment_happen(&result->buffer->defined, status);
    } else {
      moment_happen(&result->event->done, status);
    }
  }
  schedule_unlock();
}

static void end(Task *task) {
  Operation *operation = (Operation *)task;
  schedule_lock();
  for (size_t i = 0; i < operation->num_inputs; i++) {
    Buffer *buffer = operation->inputs[i];
    buffer->uses--;
    buffer_release(buffer);
    buffer_drop(buffer);
  }
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (result->buffer != NULL) {
      buffer_release(result->buffer); /* The host may have deleted it already. */
      buffer_drop(result->buffer);
    } else {
      event_drop(result->event);
    }
  }
  moment_happen(&operation->complete, NULL);
  if (operation->owner != NULL) {
    operation->owner->pending--;
    PJRT_Error *error = end_if_free(operation->plugin, operation->owner);
    schedule_unlock();
    answered(operation->plugin, error);
    schedule_lock();
  }
  drop(operation);
  schedule_unlock();
}

/* Lets an operation that the plugin has answered end when all its results are there. */
static void await_results(Operation *operation) {
  schedule_lock();
  operation->task.run = end;
  operation->task.ends = true;
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    schedule_after(&operation->task,
                   result->buffer != NULL ? &result->buffer->defined : &result->event->done);
  }
  schedule_add(&operation->task);
  schedule_unlock();
}

/* Notes which inputs the program took and where its outputs lie, to answer the host's next calls. A
   run that failed, or that may not take all inputs, does not tell what other runs will take. */
static void learn(Operation *operation, bool ran) {
  const PJRT_LoadedExecutable_Execute_Args *execute = (const void *)operation->args;
  Plugin *plugin = operation->plugin;
  Owner *owner = operation->owner;
  for (size_t i = 0; i < operation->num_inputs; i++) {
    Buffer *buffer = operation->inputs[i];
    SIZED(PJRT_Buffer_IsDeleted_Args, args, .buffer = buffer->real);
    bool taken = ask(plugin, FN_PJRT_Buffer_IsDeleted, &args) && args.is_deleted;
    schedule_lock();
    if (taken) buffer->deleted = buffer->released = true;
    if (taken && owner->takes != NULL && owner->num_inputs > 0)
      owner->takes[i % owner->num_inputs] = true;
    if (taken) store_refund(buffer);
    schedule_unlock();
  }
  for (size_t i = 0; ran && i < owner->program->num_outputs && i < operation->num_results; i++)
    program_learn(plugin, &owner->program->outputs[i], *operation->results[i].slot);
  schedule_lock();
  if (ran && execute->options->num_non_donatable_input_indices == 0) owner->sure = true;
  schedule_unlock();
}

static void unwrap_buffer(void *context, const Handle *row, void **slot) {
  Buffer *buffer = *slot;
  const Status **failed = context;
  if (buffer == NULL) return;
  if (buffer->made.status != NULL) *failed = buffer->made.status;
  *slot = buffer->real;
}

/* Calls the plugin, unless an input could not be made. */
static const Status *run(Operation *operation) {
  Plugin *plugin = operation->plugin;
  const Status *failed = NULL;
  each_handle(plugin, operation->function, operation->args, IN, KIND_PJRT_Buffer, 0, unwrap_buffer,
              &failed);
  if (failed != NULL) return failed;
  PJRT_Error *error = layout_call(plugin, operation->function, operation->args);
  if (operation->function == FN_PJRT_LoadedExecutable_Execute) learn(operation, error == NULL);
  if (error != NULL) return status_take(plugin, error);
  for (size_t i = 0; i < operation->num_results; i++) {
    Buffer *buffer = operation->results[i].buffer;
    if (buffer == NULL || buffer->charged > 0) continue;
    const Status *full = room_charge(plugin, buffer, *operation->results[i].slot);
    if (full != NULL) failed = full;
  }
  return failed;
}

/* Hands the plugin's results to the host's proxies. */
static void deliver(Operation *operation) {
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (result->buffer != NULL) {
      buffer_take(result->buffer, *result->slot);
    } else if (*result->slot != NULL) {
      event_follow(result->event, *result->slot);
    } else {
      LOCKED(moment_happen(&result->event->done, NULL));
    }
  }
}

/* Destroys the results of a failed operation, such as those for which the device has no room. */
static void throw_away(Operation *operation) {
  Plugin *plugin = operation->plugin;
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (*result->slot == NULL) continue;
    if (result->buffer != NULL) TELL(plugin, Buffer_Destroy, .buffer = *result->slot);
    else TELL(plugin, Event_Destroy, .event = *result->slot);
  }
}

static void begin(Task *task) {
  Operation *operation = (Operation *)task;
  const Status *failed = run(operation);
  schedule_lock();
  for (size_t i = 0; i < operation->num_inputs; i++) {
    Buffer *buffer = operation->inputs[i];
    Use **at = &buffer->begins;
    while ((*at)->by != operation) at = &(*at)->next;
    *at = (*at)->next;
    buffer->unbegun--;
    if (operation->unsure) buffer->unsure--;
  }
  moment_happen(&operation->begun, NULL);
  schedule_wake(); /* Threads may wait for `unbegun` or `unsure` to become 0. */
  schedule_unlock();
  if (failed == NULL) {
    deliver(operation);
  } else {
    throw_away(operation);
    fail(operation, failed);
  }
  await_results(operation);
}

/* The host's call */

static void count(void *context, const Handle *row, void **slot) {
  (void)slot;
  ++*(size_t *)context;
}

static void take_input(void *context, const Handle *row, void **slot) {
  Operation *operation = context;
  Buffer *buffer = *slot;
  if (buffer == NULL) return;
  buffer->refs++;
  buffer->uses++;
  buffer->unbegun++;
  operation->inputs[operation->num_inputs++] = buffer;
  Use *use = arena_take(&operation->arena, sizeof *use);
  *use = (Use){buffer->begins, operation};
  buffer->begins = use;
  /* This library puts raw bytes into tiles, so the contents must be there first. */
  bool raw = settings.tiled && operation->function == FN_PJRT_Buffer_CopyRawToHost;
  schedule_after(&operation->task, raw ? &buffer->defined : &buffer->made);
  if (buffer->made.due > operation->task.due) operation->task.due = buffer->made.due;
}

/* The host has one reference of a result, and the operation has the other. */
static void add_buffer(void *context, const Handle *row, void **slot) {
  Operation *operation = context;
  Buffer *buffer = buffer_make(operation->plugin);
  buffer->refs++;
  *slot = NULL;
  operation->results[operation->num_results++] = (Result){slot, buffer, NULL};
}

static void add_event(void *context, const Handle *row, void **slot) {
  Operation *operation = context;
  Event *event = event_make(operation->plugin);
  event->refs++;
  *slot = NULL;
  operation->results[operation->num_results++] = (Result){slot, NULL, event};
}

/* Makes an operation from a call's arguments. The caller holds the lock. */
static Operation *make(Plugin *plugin, unsigned function, void *args) {
  Operation *operation = take(sizeof *operation);
  operation->plugin = plugin;
  operation->function = function;
  operation->refs = 1;
  operation->task.run = begin;
  operation->args = arguments_copy(&operation->arena, plugin, function, args);
  return operation;
}

/* Finds an operation's inputs and makes its results. A program has `outputs` on each device. */
static void connect(Operation *operation, size_t outputs) {
  Plugin *plugin = operation->plugin;
  size_t inputs = 0, results = 0;
  unsigned function = operation->function;
  char *args = operation->args;
  each_handle(plugin, function, args, IN, KIND_PJRT_Buffer, outputs, count, &inputs);
  each_handle(plugin, function, args, OUT, KIND_PJRT_Buffer, outputs, count, &results);
  each_handle(plugin, function, args, OUT, KIND_PJRT_Event, outputs, count, &results);
  operation->inputs = arena_take(&operation->arena, inputs * sizeof *operation->inputs);
  operation->results = arena_take(&operation->arena, results * sizeof *operation->results);
  each_handle(plugin, function, args, IN, KIND_PJRT_Buffer, outputs, take_input, operation);
  each_handle(plugin, function, args, OUT, KIND_PJRT_Buffer, outputs, add_buffer, operation);
  each_handle(plugin, function, args, OUT, KIND_PJRT_Event, outputs, add_event, operation);
}

/* Decides when an operation begins, and when its events fire. */
static void set_time(Operation *operation) {
  uint64_t due = operation->task.due = schedule_due(operation->task.due);
  operation->complete.due = due;
  for (size_t i = 0; i < operation->num_inputs; i++)
    if (due > operation->inputs[i]->last) operation->inputs[i]->last = due;
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (result->buffer != NULL) {
      result->buffer->made.due = result->buffer->defined.due = due;
    } else {
      result->event->done.due = due;
      event_fire_after(result->event);
    }
  }
}

static void *host_handle(const Result *result) {
  return result->buffer != NULL ? (void *)result->buffer : (void *)result->event;
}

/* The programs of a device run one after another. */
static void queue_on(Operation *operation, PJRT_Device *device) {
  Owner *owner = owner_of(device);
  Operation *last = owner->last;
  if (last != NULL) {
    schedule_after(&operation->task, &last->complete);
    if (last->task.due > operation->task.due) operation->task.due = last->task.due;
    drop(last);
  }
  operation->refs++;
  owner->last = operation;
}

static void belong_to(Operation *operation, Owner *owner) {
  owner->pending++;
  operation->owner = owner;
}

typedef struct {
  size_t number, outputs;
  const char *function;
  const Status *status;
} Check;

/* Returns whether a buffer is deleted for the host. Programs that may take it have to begin first,
   but they get limited time: they may wait for a lock that the caller holds, such as Python's. */
bool is_deleted(Buffer *buffer) {
  struct timespec end = schedule_from_now(LONGEST_ANSWER_NS);
  while (buffer->unsure > 0 && !buffer->deleted) {
    schedule_hurry(buffer->last);
    if (!schedule_sleep_until(&end)) break;
  }
  return buffer->deleted;
}

static void check_input(void *context, const Handle *row, void **slot) {
  Check *check = context;
  Buffer *buffer = *slot;
  if (buffer != NULL && is_deleted(buffer) && check->status == NULL)
    check->status = status_make(PJRT_Error_Code_INVALID_ARGUMENT,
                                "%s() called on deleted or donated buffer (argument %zu)",
                                check->function, check->number);
  check->number++;
}

/* Returns an error if a call's buffers cannot be used. */
static const Status *check_inputs(Plugin *plugin, unsigned function, void *args) {
  Check check = {.function = strchr(functions[function].name + 5, '_') + 1};
  each_handle(plugin, function, args, IN, KIND_PJRT_Buffer, 0, check_input, &check);
  return check.status;
}

static void tell_host(const Operation *operation, void *args) {
  for (size_t i = 0; i < operation->num_results; i++) {
    const Result *result = &operation->results[i];
    void *handle = host_handle(result);
    memcpy((char *)args + ((char *)result->slot - operation->args), &handle, sizeof handle);
  }
}

/* Frees an operation that the host does not know, so all references to its results are its own. */
static void discard(Operation *operation) {
  for (size_t i = 0; i < operation->num_results; i++) {
    Result *result = &operation->results[i];
    if (result->buffer != NULL) {
      result->buffer->refs = 1;
      buffer_drop(result->buffer);
    } else {
      result->event->refs = 1;
      event_drop(result->event);
    }
  }
  drop(operation);
}

/* Lets an operation begin. With the setting `prompt`, waits until its results exist; if they cannot,
   takes back what the host was told, and returns the error. */
static PJRT_Error *start(Operation *operation, bool has_events) {
  const Status *failed = NULL;
  operation->refs++;
  schedule_add(&operation->task);
  for (size_t i = 0; settings.prompt && i < operation->num_results; i++) {
    Buffer *buffer = operation->results[i].buffer;
    if (buffer != NULL) moment_await(&buffer->made);
    if (buffer != NULL && buffer->made.status != NULL) failed = buffer->made.status;
  }
  for (size_t i = 0; failed != NULL && i < operation->num_results; i++)
    if (operation->results[i].buffer != NULL) buffer_drop(operation->results[i].buffer);
    else if (has_events) event_drop(operation->results[i].event);
  drop(operation);
  return failed != NULL ? status_error(failed) : NULL;
}

/* Begins a call that moves data. With `at_once` it runs now, before the host reuses its memory. */
PJRT_Error *operation_begin(Plugin *plugin, unsigned function, void *args, bool at_once) {
  PJRT_Client_BufferFromHostBuffer_Args *array =
      function == FN_PJRT_Client_BufferFromHostBuffer ? args : NULL;
  PJRT_Device *device = array != NULL ? room_device(plugin, array) : NULL;
  size_t nbytes = device != NULL ? layout_nbytes_of(array) : 0;
  PJRT_Memory *memory = room_memory(plugin, function, args);
  schedule_lock();
  const Status *refusal = check_inputs(plugin, function, args);
  if (refusal == NULL) refusal = room_make(device, nbytes);
  if (refusal != NULL) {
    schedule_unlock();
    return status_error(refusal);
  }
  Operation *operation = make(plugin, function, args);
  connect(operation, 0);
  Buffer *result = operation->num_results > 0 ? operation->results[0].buffer : NULL;
  if (result != NULL) result->memory = memory;
  if (array != NULL) {
    array = (PJRT_Client_BufferFromHostBuffer_Args *)operation->args;
    array->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    description_fill(&result->like, array->type, array->dims, array->num_dims);
    if (nbytes > 0) store_charge(result, device, nbytes);
  } else if (result != NULL) { /* This is a copy. */
    description_copy(&result->like, &operation->inputs[0]->like);
  } else if (functions[function].handles->kind == KIND_PJRT_AsyncHostToDeviceTransferManager) {
    /* Transfers keep their order: one is marked as last. All arguments begin with the manager. */
    void *manager = ((PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *)args)->transfer_manager;
    belong_to(operation, owner_of(manager));
    queue_on(operation, manager);
  }
  if (at_once) {
    schedule_unlock();
    const Status *failed = run(operation);
    if (failed != NULL) throw_away(operation);
    schedule_lock();
    if (failed != NULL) {
      discard(operation);
      schedule_unlock();
      return status_error(failed);
    }
  }
  set_time(operation);
  tell_host(operation, args);
  PJRT_Error *error = at_once ? NULL : start(operation, true);
  schedule_unlock();
  if (at_once) {
    deliver(operation);
    await_results(operation);
  }
  return error;
}

/* Programs */

/* A program takes a buffer only after all earlier operations with it have begun. */
static void begin_after_uses(Operation *operation, Buffer *buffer) {
  for (Use *use = buffer->begins; use != NULL; use = use->next)
    if (use->by != operation) schedule_after(&operation->task, &use->by->begun);
  if (buffer->last > operation->task.due) operation->task.due = buffer->last;
}

/* Marks the inputs that an execution takes. While they are unknown, calls with its inputs wait. */
static void mark_taken(Operation *operation, const PJRT_ExecuteOptions *options) {
  Owner *owner = operation->owner;
  operation->unsure = !owner->sure;
  for (size_t i = 0; i < operation->num_inputs; i++) {
    Buffer *buffer = operation->inputs[i];
    size_t number = owner->num_inputs > 0 ? i % owner->num_inputs : 0;
    bool takes = owner->sure && owner->takes[number];
    for (size_t k = 0; k < options->num_non_donatable_input_indices; k++)
      takes &= options->non_donatable_input_indices[k] != (int64_t)number;
    if (takes || operation->unsure) begin_after_uses(operation, buffer);
    if (takes) buffer->deleted = buffer->released = true;
    if (operation->unsure) buffer->unsure++;
  }
}

PJRT_Error *operation_execute(Plugin *plugin, PJRT_LoadedExecutable_Execute_Args *args) {
  const unsigned function = FN_PJRT_LoadedExecutable_Execute;
  schedule_lock();
  Owner *owner = owner_of(args->executable);
  if (owner->program == NULL) {
    schedule_unlock();
    Program *program = program_ask(plugin, args->executable);
    schedule_lock();
    if (owner->program == NULL) {
      owner->program = program;
      owner->num_inputs = args->num_args;
      owner->takes = take((args->num_args + 1) * sizeof *owner->takes);
    } else {
      program_free(program);
    }
  }
  const Program *program = owner->program;
  const Status *refusal = check_inputs(plugin, function, args);
  if (refusal != NULL) {
    schedule_unlock();
    return status_error(refusal);
  }
  Operation *operation = make(plugin, function, args);
  PJRT_LoadedExecutable_Execute_Args *own = (void *)operation->args;
  Arena *arena = &operation->arena;
  size_t rows = args->num_devices;
  own->device_complete_events = arena_take(arena, rows * sizeof(void *));
  PJRT_Buffer ***lists = arena_take(arena, rows * sizeof *lists);
  for (size_t i = 0; i < rows; i++)
    lists[i] = arena_take(arena, program->num_outputs * sizeof **lists);
  own->output_lists = lists;
  belong_to(operation, owner);
  connect(operation, program->num_outputs);
  /* A launch on some of the program's devices may wait while it runs for launches on the others. */
  if (args->execute_device != NULL) queue_on(operation, args->execute_device);
  else if (rows == program->num_devices)
    for (size_t i = 0; i < rows; i++) queue_on(operation, program->devices[i]);
  mark_taken(operation, own->options);
  set_time(operation);
  const Result *result = operation->results;
  for (size_t i = 0; i < rows; i++)
    for (size_t k = 0; k < program->num_outputs; k++, result++) {
      const Description *like = &program->outputs[k];
      Buffer *buffer = result->buffer;
      description_copy(&buffer->like, like);
      memcpy(buffer->like.kind, like->kind, sizeof like->kind);
      if (args->execute_device != NULL) buffer->device = args->execute_device;
      else if (rows == program->num_devices) buffer->device = program->devices[i];
      args->output_lists[i][k] = (PJRT_Buffer *)buffer;
    }
  for (size_t i = 0; i < rows; i++, result++)
    if (args->device_complete_events != NULL)
      args->device_complete_events[i] = (PJRT_Event *)result->event;
    else
      event_drop(result->event);
  PJRT_Error *error = start(operation, args->device_complete_events != NULL);
  schedule_unlock();
  return error;
}
