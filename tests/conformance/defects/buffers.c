/* Defects of events, buffers and transfers. */
#include "real.h"

#include <pthread.h>
#include <unistd.h>

/* Events */

INSTEAD(always_ready, PJRT_Event_IsReady, args->is_ready = true)
INSTEAD(never_ready, PJRT_Event_IsReady, args->is_ready = false)
REPLACE(waits_for_nothing, PJRT_Event_Await) { return NULL; }
REPLACE(callback_never, PJRT_Event_OnReady) { return NULL; }
INSTEAD(called_early, PJRT_Event_OnReady, args->callback(NULL, args->user_arg))

REPLACE(callback_twice, PJRT_Event_OnReady) {
  PJRT_Error *error = real->PJRT_Event_OnReady(args);
  return error != NULL ? error : real->PJRT_Event_OnReady(args);
}

/* Calls the callbacks of events while it holds the lock that every call on an event takes. */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

#define UNDER_LOCK(function)                                 \
  REPLACE(callback_under_lock, function) {                   \
    pthread_mutex_lock(&lock);                               \
    PJRT_Error *error = real->function(args);                \
    pthread_mutex_unlock(&lock);                             \
    return error;                                            \
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

BEFORE(callback_under_lock, PJRT_Event_OnReady,
       Callback callback = {args->callback, args->user_arg};
       args->callback = call_under_lock;
       args->user_arg = copied(&callback, sizeof callback))

/* Reports an output as ready as soon as its run has begun; a copy still waits for the end. */
static PJRT_Client *newest_client;

AFTER(ready_early, PJRT_Client_Create, newest_client = args->client)

REPLACE(ready_early, PJRT_Buffer_ReadyEvent) {
  PJRT_Error *error = real->PJRT_Buffer_ReadyEvent(args);
  if (error != NULL || is_ready(args->event)) return error;
  STRUCT(PJRT_Buffer_Device_Args, asked, .buffer = args->buffer);
  STRUCT(PJRT_Event_Destroy_Args, destroy, .event = args->event);
  error = real->PJRT_Buffer_Device(&asked);
  real->PJRT_Event_Destroy(&destroy);
  args->event = ready_event(newest_client, asked.device);
  return error;
}

/* Buffers */

AFTER(another_type, PJRT_Buffer_ElementType, args->type += 1)
AFTER(half_the_size, PJRT_Buffer_OnDeviceSizeInBytes, args->on_device_size_in_bytes /= 2)
AFTER(never_deleted, PJRT_Buffer_IsDeleted, args->is_deleted = false)
REPLACE(deletes_nothing, PJRT_Buffer_Delete) { return NULL; }
INSTEAD(null_pointer, PJRT_Buffer_OpaqueDeviceMemoryDataPointer, args->device_memory_ptr = NULL)
INSTEAD(all_dynamic, PJRT_Buffer_DynamicDimensionIndices, /* says that dimension 0 is dynamic */
        static const size_t first[] = {0};
        args->dynamic_dim_indices = first, args->num_dynamic_dims = 1)
AFTER(dimensions_in_one_place, PJRT_Buffer_Dimensions,
      args->dims = in_one_place(args->dims, args->num_dims * sizeof *args->dims))
AFTER(scalar_of_one, PJRT_Buffer_Dimensions, static const int64_t one = 1;
      if (args->num_dims == 0) args->dims = &one, args->num_dims = 1)

static PJRT_Buffer_Dimensions_Args dimensions_of(PJRT_Buffer *buffer) {
  STRUCT(PJRT_Buffer_Dimensions_Args, asked, .buffer = buffer);
  if (real->PJRT_Buffer_Dimensions(&asked) != NULL) abort();
  return asked;
}

/* Reports that matrices with three rows lie by columns, although they lie by rows. */
AFTER(layout_by_columns, PJRT_Buffer_GetMemoryLayout,
      static const int64_t by_columns[] = {0, 1};
      PJRT_Buffer_Dimensions_Args found = dimensions_of(args->buffer);
      if (found.num_dims == 2 && found.dims[0] == 3)
        args->layout.tiled.minor_to_major = by_columns)

/* Lists the dimensions of layouts from the slowest to the fastest, which is the wrong order. */
AFTER(major_to_minor, PJRT_Buffer_GetMemoryLayout,
      static const int64_t rows[] = {0, 1, 2, 3, 4, 5};
      if (args->layout.tiled.minor_to_major_size <= 6) args->layout.tiled.minor_to_major = rows)

/* Reports strides in elements where bytes are meant. */
INSTEAD(strides_in_elements, PJRT_Buffer_GetMemoryLayout,
        static int64_t strides[16];
        PJRT_Buffer_Dimensions_Args found = dimensions_of(args->buffer);
        int64_t stride = 1;
        for (size_t i = found.num_dims; i-- > 0; stride *= found.dims[i]) strides[i] = stride;
        args->layout.type = PJRT_Buffer_MemoryLayout_Type_Strides;
        args->layout.strides.byte_strides = strides;
        args->layout.strides.num_byte_strides = found.num_dims)

REPLACE(counts_references_twice, PJRT_Buffer_IncreaseExternalReferenceCount) {
  PJRT_Error *error = real->PJRT_Buffer_IncreaseExternalReferenceCount(args);
  return error != NULL ? error : real->PJRT_Buffer_IncreaseExternalReferenceCount(args);
}
INSTEAD(references_below_zero, PJRT_Buffer_DecreaseExternalReferenceCount,
        real->PJRT_Buffer_DecreaseExternalReferenceCount(args))

/* Views of host memory */

BEFORE(copies_views, PJRT_Client_CreateViewOfDeviceBuffer,
       enum { VIEWED = 16, ALIGNMENT = 64 };
       args->device_buffer_ptr =
           memcpy(aligned_alloc(ALIGNMENT, ALIGNMENT), args->device_buffer_ptr, VIEWED))

static void (*let_go)(void *, void *);
static void ignore(void *memory, void *arg) {}
static void let_go_twice(void *memory, void *arg) {
  let_go(memory, arg);
  let_go(memory, arg);
}

BEFORE(deleter_early, PJRT_Client_CreateViewOfDeviceBuffer,
       args->on_delete_callback(args->device_buffer_ptr, args->on_delete_callback_arg);
       args->on_delete_callback = ignore)
BEFORE(deleter_twice, PJRT_Client_CreateViewOfDeviceBuffer,
       let_go = args->on_delete_callback, args->on_delete_callback = let_go_twice)

/* Copies to the device */

BEFORE(no_strides, PJRT_Client_BufferFromHostBuffer,
       args->byte_strides = NULL, args->num_byte_strides = 0)
BEFORE(strides_as_counts, PJRT_Client_BufferFromHostBuffer, /* counts elements, not bytes */
       int64_t strides[16];
       for (size_t i = 0; i < args->num_byte_strides && i < 16; i++)
         strides[i] = args->byte_strides[i] / 4;
       if (args->num_byte_strides > 0) args->byte_strides = strides)
BEFORE(reads_late, PJRT_Client_BufferFromHostBuffer, /* it should read at once */
       args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy)

/* Returns the buffer that it made before, if it is given the same memory again. */
REPLACE(one_buffer_for_all_puts, PJRT_Client_BufferFromHostBuffer) {
  static const void *data;
  static PJRT_Buffer *made;
  const void *given = args->data;
  PJRT_Error *error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (error == NULL && data == given) args->buffer = made;
  data = given;
  made = args->buffer;
  return error;
}

/* Puts everything into the default memory, whichever memory is asked for. */
BEFORE(one_memory, PJRT_Client_BufferFromHostBuffer,
       STRUCT(PJRT_Memory_AddressableByDevices_Args, of, .memory = args->memory);
       if (args->memory != NULL && real->PJRT_Memory_AddressableByDevices(&of) == NULL)
         args->device = of.devices[0], args->memory = NULL)

/* Reports at once that it is done with host memory, although it goes on sharing that memory. */
REPLACE(done_early, PJRT_Client_BufferFromHostBuffer) {
  PJRT_Client_BufferFromHostBuffer_Args copy = *args;
  PJRT_Error *error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (error != NULL || args->host_buffer_semantics < PJRT_HostBufferSemantics_kImmutableZeroCopy)
    return error;
  copy.host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
  error = real->PJRT_Client_BufferFromHostBuffer(&copy);
  args->done_with_host_buffer = copy.done_with_host_buffer;
  return error;
}

/* Reports that it has read host memory, although it shares that memory instead. */
REPLACE(done_unread, PJRT_Client_BufferFromHostBuffer) {
  bool shares = args->host_buffer_semantics ==
                PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
  if (shares) args->host_buffer_semantics = PJRT_HostBufferSemantics_kImmutableZeroCopy;
  PJRT_Error *error = real->PJRT_Client_BufferFromHostBuffer(args);
  if (shares && error == NULL && args->device != NULL)
    args->done_with_host_buffer = ready_event(args->client, args->device);
  return error;
}

/* Copies from device to device */

BEFORE(copies_stay, PJRT_Buffer_CopyToMemory,
       STRUCT(PJRT_Buffer_Memory_Args, of, .buffer = args->buffer);
       if (real->PJRT_Buffer_Memory(&of) == NULL) args->dst_memory = of.memory)
BEFORE(one_device, PJRT_Buffer_CopyToDevice,
       STRUCT(PJRT_Buffer_Device_Args, of, .buffer = args->buffer);
       if (real->PJRT_Buffer_Device(&of) == NULL) args->dst_device = of.device)

/* Copies to the host */

BEFORE(any_destination, PJRT_Buffer_ToHostBuffer, if (args->dst != NULL) args->dst_size = 1 << 30)
AFTER(no_size, PJRT_Buffer_ToHostBuffer, if (args->dst == NULL) args->dst_size = 0)
AFTER(other_bytes, PJRT_Buffer_ToHostBuffer,
      if (args->dst != NULL) await(args->event);
      if (args->dst != NULL && args->dst_size > 0) *(char *)args->dst ^= 1)
BEFORE(negative_offset, PJRT_Buffer_CopyRawToHost, args->offset = llabs(args->offset))
BEFORE(no_offset, PJRT_Buffer_CopyRawToHost, args->offset = 0)
BEFORE(no_empty_raw_copies, PJRT_Buffer_CopyRawToHost,
       if (args->transfer_size == 0) args->offset = -1) /* this offset is refused */
BEFORE(raw_offset_in_words, PJRT_Buffer_CopyRawToHost,
       if (args->offset * 4 + args->transfer_size <= 24) args->offset *= 4)

/* Copies only the bytes that exist, where more raw bytes are asked for. */
BEFORE(cut_raw_copy, PJRT_Buffer_CopyRawToHost,
       STRUCT(PJRT_Buffer_OnDeviceSizeInBytes_Args, of, .buffer = args->buffer);
       if (real->PJRT_Buffer_OnDeviceSizeInBytes(&of) != NULL) abort();
       int64_t size = (int64_t)of.on_device_size_in_bytes;
       if (args->offset > size) args->offset = size;
       if (args->offset + args->transfer_size > size) args->transfer_size = size - args->offset)

/* Copies raw bytes at once, even from a buffer that is still being computed. */
REPLACE(raw_copy_unordered, PJRT_Buffer_CopyRawToHost) {
  STRUCT(PJRT_Buffer_ReadyEvent_Args, ready, .buffer = args->buffer);
  PJRT_Error *error = real->PJRT_Buffer_ReadyEvent(&ready);
  bool there = error == NULL && is_ready(ready.event);
  if (error == NULL) await(ready.event);
  if (error == NULL) error = real->PJRT_Buffer_CopyRawToHost(args);
  if (error != NULL) return error;
  await(args->event);
  if (!there) memset(args->dst, 0, (size_t)args->transfer_size); /* fresh memory holds zeros */
  return NULL;
}

/* Transfers in parts */

BEFORE(parts_at_the_start, PJRT_AsyncHostToDeviceTransferManager_TransferData, args->offset = 0)
BEFORE(each_part_is_the_last, PJRT_AsyncHostToDeviceTransferManager_TransferData,
       args->is_last_transfer = true)
AFTER(one_buffer_more, PJRT_AsyncHostToDeviceTransferManager_BufferCount, args->buffer_count += 1)
BEFORE(fails_without_words, PJRT_AsyncHostToDeviceTransferManager_SetBufferError,
       args->error_message = "failed", args->error_message_size = 6)

/* Reports that a part of a transfer has been read, but reads it a moment later. The parts are read
   in their order, because the manager takes none after the last one. */
static pthread_mutex_t turn = PTHREAD_MUTEX_INITIALIZER;
static pthread_cond_t passed = PTHREAD_COND_INITIALIZER;
static unsigned begun, ended;

typedef struct {
  PJRT_AsyncHostToDeviceTransferManager_TransferData_Args args;
  unsigned number;
} Part;

static void *read_later(void *user_arg) {
  Part *part = user_arg;
  usleep(50000);
  pthread_mutex_lock(&turn);
  while (ended != part->number) pthread_cond_wait(&passed, &turn);
  if (real->PJRT_AsyncHostToDeviceTransferManager_TransferData(&part->args) != NULL) abort();
  ended++;
  pthread_cond_broadcast(&passed);
  pthread_mutex_unlock(&turn);
  return NULL;
}

BEFORE(part_read_later, PJRT_Client_CreateBuffersForAsyncHostToDevice,
       newest_client = args->client)

REPLACE(part_read_later, PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  STRUCT(PJRT_AsyncHostToDeviceTransferManager_Device_Args, asked,
         .transfer_manager = args->transfer_manager);
  PJRT_Error *error = real->PJRT_AsyncHostToDeviceTransferManager_Device(&asked);
  if (error != NULL) return error;
  pthread_t thread;
  Part later = {*args, begun++};
  pthread_create(&thread, NULL, read_later, copied(&later, sizeof later));
  pthread_detach(thread);
  args->done_with_h2d_transfer = ready_event(newest_client, asked.device_out);
  return NULL;
}
