/* Dispatches the calls that are made to the accelerator in software. */
#include "discrete.h"

void discrete_start(const char *text) {
  settings_read(text);
  schedule_start(settings.seed, settings.window, settings.hold, settings.silence);
}

void discrete_forked(void) { schedule_forked(); }

static PJRT_Error *error_of(const Event *event) { return status_error(event->done.status); }

/* The caller holds the schedule's lock. */
static void wait_until_fired(Event *event) {
  schedule_hurry(event->task.due);
  while (!event->fired) schedule_sleep();
}

static PJRT_Error *await(Event *event) {
  schedule_lock();
  event->refs++;
  wait_until_fired(event);
  PJRT_Error *error = error_of(event);
  event_drop(event);
  schedule_unlock();
  return error;
}

/* The event must have fired when the host's call to set it returns. */
static PJRT_Error *set(Plugin *plugin, PJRT_Event_Set_Args *args) {
  PJRT_Error *error = pass_on(plugin, FN_PJRT_Event_Set, args);
  if (error != NULL) return error;
  LOCKED(wait_until_fired((Event *)args->event));
  return NULL;
}

static PJRT_Error *on_ready(PJRT_Event_OnReady_Args *args) {
  Event *event = (Event *)args->event;
  schedule_lock();
  bool later = event_call(event, args->callback, args->user_arg);
  schedule_unlock();
  if (!later) args->callback(error_of(event), args->user_arg);
  return NULL;
}

static PJRT_Error *of_event(Plugin *plugin, unsigned function, void *args) {
  /* The arguments of all these functions begin with the event. */
  Event *event = (Event *)((PJRT_Event_Destroy_Args *)args)->event;
  if (event == NULL) return pass_on(plugin, function, args);
  switch (function) {
    case FN_PJRT_Event_Destroy:
      LOCKED(event_drop(event));
      return NULL;
    case FN_PJRT_Event_IsReady:
      LOCKED(((PJRT_Event_IsReady_Args *)args)->is_ready = event->fired);
      return NULL;
    case FN_PJRT_Event_OnReady:
      return on_ready(args);
    case FN_PJRT_Event_Set:
      return set(plugin, args);
    case FN_PJRT_Event_Await:
    case FN_PJRT_Event_Error:
      return await(event);
    default:
      return pass_on(plugin, function, args);
  }
}

static PJRT_Error *ready_event(Plugin *plugin, PJRT_Buffer_ReadyEvent_Args *args) {
  Buffer *buffer = (Buffer *)args->buffer;
  schedule_lock();
  if (buffer->deleted) {
    schedule_unlock();
    return pass_on(plugin, FN_PJRT_Buffer_ReadyEvent, args);
  }
  args->event = (PJRT_Event *)event_when(buffer);
  schedule_unlock();
  return NULL;
}

/* Answers with an address, which faults if it is in device memory. */
static PJRT_Error *address(Plugin *plugin, unsigned function, void *args) {
  PJRT_Error *error = pass_on(plugin, function, args);
  if (error != NULL) return error;
  /* The arguments of both functions have the same fields. */
  PJRT_Buffer_UnsafePointer_Args *own = args;
  Buffer *buffer = (Buffer *)own->buffer;
  size_t nbytes = 0;
  if (!is_on_device(plugin, buffer->real)) return NULL;
  bool known = layout_nbytes(plugin, buffer->real, &nbytes);
  own->buffer_pointer = known ? buffer_address(buffer, own->buffer_pointer, nbytes) : 0;
  return NULL;
}

static PJRT_Error *view(Plugin *plugin, PJRT_Client_CreateViewOfDeviceBuffer_Args *args) {
  void *told = args->device_buffer_ptr;
  uintptr_t real = real_address((uintptr_t)told);
  if (real == 0)
    return refuse_text(PJRT_Error_Code_INVALID_ARGUMENT, "the address is not of this device's memory");
  args->device_buffer_ptr = (void *)real;
  PJRT_Error *error = pass_on(plugin, FN_PJRT_Client_CreateViewOfDeviceBuffer, args);
  args->device_buffer_ptr = told;
  return error;
}

/* Waits until it is known whether the plugin's buffer will ever exist. Returns true if it won't. */
static bool never_comes(Buffer *buffer) {
  schedule_lock();
  moment_await(&buffer->made);
  bool never = buffer->made.status != NULL;
  schedule_unlock();
  return never;
}

/* Returns the memory of a buffer, even if it will never exist, or NULL if only `real` tells it. */
static PJRT_Memory *memory_of(Buffer *buffer) {
  if (buffer->memory != NULL || buffer->device == NULL) return buffer->memory;
  PJRT_Memory *memory = program_memory(buffer->plugin, &buffer->like, buffer->device);
  if (memory == NULL && never_comes(buffer)) memory = default_memory(buffer->plugin, buffer->device);
  return memory;
}

/* Answers from what was known when the buffer was requested. Returns false if it is too little. */
static bool describe(unsigned function, void *args) {
  /* All arguments begin with the buffer, and those about dimensions have the same fields. */
  PJRT_Buffer_Dimensions_Args *dims = args;
  PJRT_Buffer_MemoryLayout *layout = &((PJRT_Buffer_GetMemoryLayout_Args *)args)->layout;
  Buffer *buffer = (Buffer *)dims->buffer;
  const Description *like = &buffer->like;
  PJRT_Device *device = buffer->device;
  PJRT_Memory *memory;
  switch (function) {
    case FN_PJRT_Buffer_Device:
      if (buffer->memory != NULL) device = device_of(buffer->plugin, buffer->memory);
      ((PJRT_Buffer_Device_Args *)args)->device = device;
      return device != NULL;
    case FN_PJRT_Buffer_Memory:
      memory = memory_of(buffer);
      ((PJRT_Buffer_Memory_Args *)args)->memory = memory;
      return memory != NULL;
    case FN_PJRT_Buffer_ElementType:
      ((PJRT_Buffer_ElementType_Args *)args)->type = like->type;
      return like->known;
    case FN_PJRT_Buffer_GetMemoryLayout:
      *layout = (PJRT_Buffer_MemoryLayout){.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE};
      layout->type = PJRT_Buffer_MemoryLayout_Type_Tiled;
      layout->tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
      layout->tiled.minor_to_major = like->minor_to_major;
      layout->tiled.minor_to_major_size = like->num_dims;
      if (!like->laid_out && !(like->known && never_comes(buffer))) return false;
      layout_tile(layout, like->type, like->dims);
      return true;
    case FN_PJRT_Buffer_Dimensions:
      dims->dims = like->dims;
      dims->num_dims = like->num_dims;
      return like->known;
    default:
      return false;
  }
}

/* Answers the questions that hosts expect to succeed, for an array that will never exist. */
static bool describe_missing(unsigned function, void *args) {
  /* All arguments begin with the buffer, whose dimensions are reported as static. */
  PJRT_Buffer_DynamicDimensionIndices_Args *dynamic = args;
  Buffer *buffer = (Buffer *)dynamic->buffer;
  PJRT_Memory *memory;
  if (!buffer->like.known || !never_comes(buffer)) return false;
  switch (function) {
    case FN_PJRT_Buffer_IsOnCpu:
      memory = memory_of(buffer);
      ((PJRT_Buffer_IsOnCpu_Args *)args)->is_on_cpu =
          memory != NULL && !is_devices(buffer->plugin, memory);
      return true;
    case FN_PJRT_Buffer_UnpaddedDimensions:
      return describe(FN_PJRT_Buffer_Dimensions, args);
    case FN_PJRT_Buffer_DynamicDimensionIndices:
      dynamic->dynamic_dim_indices = NULL;
      dynamic->num_dynamic_dims = 0;
      return true;
    default:
      ((PJRT_Layouts_PJRT_Buffer_MemoryLayout_Args *)args)->layout = layout_of(&buffer->like);
      return true;
  }
}

static PJRT_Error *of_buffer(Plugin *plugin, unsigned function, void *args) {
  Buffer *buffer = (Buffer *)((PJRT_Buffer_Destroy_Args *)args)->buffer;
  if (buffer == NULL) return pass_on(plugin, function, args);
  switch (function) {
    case FN_PJRT_Buffer_Destroy:
      LOCKED(buffer_drop(buffer));
      return NULL;
    case FN_PJRT_Buffer_Delete:
      schedule_lock();
      buffer->deleted = true;
      buffer_release(buffer);
      schedule_unlock();
      return NULL;
    case FN_PJRT_Buffer_IsDeleted:
      LOCKED(((PJRT_Buffer_IsDeleted_Args *)args)->is_deleted = is_deleted(buffer));
      return NULL;
    case FN_PJRT_Buffer_IsOnCpu: {
      if (describe_missing(function, args)) return NULL;
      PJRT_Error *error = pass_on(plugin, function, args);
      if (error == NULL && is_on_device(plugin, buffer->real))
        ((PJRT_Buffer_IsOnCpu_Args *)args)->is_on_cpu = false;
      return error;
    }
    case FN_PJRT_Buffer_ReadyEvent:
      return ready_event(plugin, args);
    case FN_PJRT_Buffer_UnsafePointer:
    case FN_PJRT_Buffer_OpaqueDeviceMemoryDataPointer:
      return address(plugin, function, args);
    case FN_PJRT_Buffer_UnpaddedDimensions:
    case FN_PJRT_Buffer_DynamicDimensionIndices:
    case FN_PJRT_Layouts_PJRT_Buffer_MemoryLayout:
      return describe_missing(function, args) ? NULL : pass_on(plugin, function, args);
    default:
      return describe(function, args) ? NULL : pass_on(plugin, function, args);
  }
}

static PJRT_Error *of_client(Plugin *plugin, unsigned function, void *args) {
  if (function == FN_PJRT_Client_Destroy) {
    LOCKED(schedule_drain());
  }
  PJRT_Error *error = plugin->real[function](args);
  if (function == FN_PJRT_Client_Create && error == NULL)
    answers_client(plugin, ((PJRT_Client_Create_Args *)args)->client);
  return error;
}

static bool only_during_call(const PJRT_Client_BufferFromHostBuffer_Args *args) {
  return args->host_buffer_semantics == PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
}

PJRT_Error *discrete_call(Plugin *plugin, unsigned function, void *args) {
  PJRT_Error *error;
  const Status *full = NULL;
  if (answer(plugin, function, args, &error)) return error;
  switch (function) {
    case FN_PJRT_Client_Create:
    case FN_PJRT_Client_Destroy:
      return of_client(plugin, function, args);
    case FN_PJRT_Client_CreateViewOfDeviceBuffer:
      return view(plugin, args);
    case FN_PJRT_Client_CreateBuffersForAsyncHostToDevice:
      if (settings.prompt) full = room_for_transfer(plugin, args);
      if (full != NULL) return status_error(full);
      break;
    case FN_PJRT_LoadedExecutable_Execute:
      return operation_execute(plugin, args);
    case FN_PJRT_Client_BufferFromHostBuffer:
      return operation_begin(plugin, function, args, only_during_call(args));
    case FN_PJRT_Buffer_ToHostBuffer:
      if (((PJRT_Buffer_ToHostBuffer_Args *)args)->dst == NULL) break; /* It asks for the size. */
      return operation_begin(plugin, function, args, false);
    case FN_PJRT_Buffer_CopyToDevice:
    case FN_PJRT_Buffer_CopyToMemory:
    case FN_PJRT_Buffer_CopyRawToHost:
    case FN_PJRT_AsyncHostToDeviceTransferManager_TransferData:
    case FN_PJRT_AsyncHostToDeviceTransferManager_TransferLiteral:
      return operation_begin(plugin, function, args, false);
    case FN_PJRT_AsyncHostToDeviceTransferManager_SetBufferError:
      return operation_pass_on_after(
          plugin, function, args,
          ((PJRT_AsyncHostToDeviceTransferManager_SetBufferError_Args *)args)->transfer_manager);
    case FN_PJRT_LoadedExecutable_Destroy:
      return operation_end_owner(plugin, function,
                                 ((PJRT_LoadedExecutable_Destroy_Args *)args)->executable);
    case FN_PJRT_AsyncHostToDeviceTransferManager_Destroy:
      return operation_end_owner(
          plugin, function,
          ((PJRT_AsyncHostToDeviceTransferManager_Destroy_Args *)args)->transfer_manager);
    default:
      break;
  }
  const Handle *first = functions[function].handles;
  bool given = functions[function].num_handles > 0 && first->direction == IN && first->form == ONE;
  if (given && first->kind == KIND_PJRT_Event) return of_event(plugin, function, args);
  if (given && first->kind == KIND_PJRT_Buffer) return of_buffer(plugin, function, args);
  return pass_on(plugin, function, args);
}
