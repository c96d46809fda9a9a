/* All functions of the C API for buffers and transfers. Buffers lie in host memory, which is
   poisoned once nobody may look into it; programs read them as float32. */

enum { MAX_RANK = 8 };

struct PJRT_Buffer {
  Head head;
  Signal *signal;
  float *data;
  PJRT_Buffer_Type type;
  size_t count, rank, width;
  int64_t dims[MAX_RANK], minor_to_major[MAX_RANK], strides[MAX_RANK];
  atomic_bool deleted;
  atomic_int lent;
};

atomic_long stub_mapped, stub_transfers; /* how much is alive */
char stub_metadata[256];                 /* the metadata that a transfer got last, as text */

enum { MAX_PARTS = 8 };

struct PJRT_AsyncHostToDeviceTransferManager {
  Head head;
  PJRT_Buffer *buffers[MAX_PARTS];
  bool retrieved[MAX_PARTS];
  size_t count;
};

static size_t width_of(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_PRED:
    case PJRT_Buffer_Type_S8:
    case PJRT_Buffer_Type_U8: return 1;
    case PJRT_Buffer_Type_S16:
    case PJRT_Buffer_Type_U16:
    case PJRT_Buffer_Type_F16: return 2;
    case PJRT_Buffer_Type_S64:
    case PJRT_Buffer_Type_U64:
    case PJRT_Buffer_Type_F64: return 8;
    default: return 4;
  }
}

/* HEEDS_LAYOUTS=0 ignores a layout; MOVES_DATA=0 labels the buffer with it, but moves no data. */
#ifndef HEEDS_LAYOUTS
#define HEEDS_LAYOUTS 1
#endif
#ifndef MOVES_DATA
#define MOVES_DATA 1
#endif

/* COLUMNS=1 makes column-major the layout of buffers for which none is given. */
#ifndef COLUMNS
#define COLUMNS 0
#endif
/* PJRT_Buffer_GetMemoryLayout reports TILES tiles, or strides with STRIDES=1. */
#ifndef TILES
#define TILES 0
#endif
#ifndef STRIDES
#define STRIDES 0
#endif

static void lay_out(PJRT_Buffer *buffer, const PJRT_Buffer_MemoryLayout *layout) {
  if (layout == NULL || !HEEDS_LAYOUTS) return;
  if (layout->type != PJRT_Buffer_MemoryLayout_Type_Tiled) die("a layout of strides", BUFFER);
  if (layout->tiled.minor_to_major_size != buffer->rank) die("a layout of another rank", BUFFER);
  memcpy(buffer->minor_to_major, layout->tiled.minor_to_major, buffer->rank * sizeof(int64_t));
}

static PJRT_Buffer *new_buffer(PJRT_Client *client, PJRT_Buffer_Type type, const int64_t *dims,
                               size_t rank, const PJRT_Buffer_MemoryLayout *layout) {
  PJRT_Buffer *buffer = make(sizeof(PJRT_Buffer), BUFFER, client);
  buffer->signal = new_signal();
  buffer->count = 1;
  buffer->type = type;
  buffer->width = width_of(type);
  buffer->rank = rank;
  for (size_t i = 0; i < rank; i++) {
    buffer->dims[i] = dims[i];
    buffer->minor_to_major[i] = (int64_t)(COLUMNS ? i : rank - 1 - i);
    buffer->count *= (size_t)dims[i];
  }
  lay_out(buffer, layout);
  buffer->data = calloc(buffer->count + 1, buffer->width);
  return buffer;
}

/* Returns where memory of a layout, or row-major for NULL, holds the element that is the i-th when
   an array is read row by row. */
static size_t place_of(const PJRT_Buffer *buffer, size_t i, const int64_t *minor_to_major) {
  size_t index[MAX_RANK], place = 0;
  for (size_t d = buffer->rank; d-- > 0; i /= (size_t)buffer->dims[d])
    index[d] = i % (size_t)buffer->dims[d];
  for (size_t k = buffer->rank; k-- > 0;) {
    size_t d = minor_to_major != NULL ? (size_t)minor_to_major[k] : buffer->rank - 1 - k;
    place = place * (size_t)buffer->dims[d] + index[d];
  }
  return place;
}

static size_t place_in(const PJRT_Buffer *buffer, size_t i) {
  return place_of(buffer, i, MOVES_DATA ? buffer->minor_to_major : NULL);
}

/* Copies an array, which is row-major if it has no strides, into the layout of the buffer. */
static void fill(PJRT_Buffer *buffer, const char *from, const int64_t *strides) {
  for (size_t i = 0; i < buffer->count; i++) {
    size_t left = i;
    int64_t offset = strides != NULL ? 0 : (int64_t)(i * buffer->width);
    for (size_t d = buffer->rank; strides != NULL && d-- > 0; left /= (size_t)buffer->dims[d])
      offset += (int64_t)(left % (size_t)buffer->dims[d]) * strides[d];
    memcpy((char *)buffer->data + place_in(buffer, i) * buffer->width, from + offset, buffer->width);
  }
}

static void poison(PJRT_Buffer *buffer) {
  memset(buffer->data, 0xdd, buffer->count * buffer->width);
  memset(buffer->minor_to_major, 0xdd, sizeof buffer->minor_to_major);
}

TELLS(PJRT_Client_BufferFromHostBuffer, client, CLIENT,
      args->buffer = new_buffer(it, args->type, args->dims, args->num_dims, args->device_layout);
      fill(args->buffer, args->data, args->byte_strides);
      args->buffer->signal->fired = true;
      args->done_with_host_buffer = new_event(it, args->buffer->signal))

DOES(PJRT_Buffer_Destroy,
     if (args->buffer->lent != 0) die("destroyed while lent out", BUFFER);
     destroy(args->buffer, BUFFER);
     poison(args->buffer))

TELLS(PJRT_Buffer_Delete, buffer, BUFFER, it->deleted = true)

TELLS(PJRT_Buffer_IsDeleted, buffer, BUFFER, args->is_deleted = it->deleted)

/* Defines a function of a buffer, `it`, that fails if the buffer was deleted. */
#define OF_BUFFER(name, buffer_, ...)                                              \
  FUNCTION(name) {                                                                 \
    PJRT_Buffer *it = enter(args->buffer_, BUFFER);                                \
    PJRT_Error *error = it->deleted ? fail(3, "the buffer was deleted") : NULL;    \
    if (error == NULL) {                                                           \
      __VA_ARGS__;                                                                 \
    }                                                                              \
    leave(it);                                                                     \
    return error;                                                                  \
  }

OF_BUFFER(PJRT_Buffer_ReadyEvent, buffer, args->event = new_event(it->head.client, it->signal))

OF_BUFFER(PJRT_Buffer_IncreaseExternalReferenceCount, buffer, it->lent++)

TELLS(PJRT_Buffer_DecreaseExternalReferenceCount, buffer, BUFFER,
      if (it->lent-- == 0) die("taken back more often than lent", BUFFER))

TELLS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer, buffer, BUFFER, args->device_memory_ptr = it->data)

static void tell_strides(PJRT_Buffer *buffer, PJRT_Buffer_MemoryLayout *layout) {
  int64_t step = (int64_t)buffer->width;
  for (size_t i = 0; i < buffer->rank; i++) {
    buffer->strides[buffer->minor_to_major[i]] = step;
    step *= buffer->dims[buffer->minor_to_major[i]];
  }
  layout->type = PJRT_Buffer_MemoryLayout_Type_Strides;
  layout->strides.byte_strides = buffer->strides;
  layout->strides.num_byte_strides = buffer->rank;
}

#ifndef ON_LAYOUT
#define ON_LAYOUT (void)0
#endif

FUNCTION(PJRT_Buffer_GetMemoryLayout) {
  static const int64_t tiles[TILES + 1] = {1};
  static const size_t sizes[TILES + 1] = {1};
  PJRT_Buffer *buffer = enter(args->buffer, BUFFER);
  args->layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  args->layout.tiled.minor_to_major = buffer->minor_to_major;
  args->layout.tiled.minor_to_major_size = buffer->rank;
  args->layout.tiled.tile_dims = tiles;
  args->layout.tiled.tile_dim_sizes = sizes;
  args->layout.tiled.num_tiles = TILES;
  if (STRIDES) tell_strides(buffer, &args->layout);
  leave(buffer);
  ON_LAYOUT;
  return NULL;
}

#ifndef ON_TO_HOST
#define ON_TO_HOST (void)0
#endif

FUNCTION(PJRT_Buffer_ToHostBuffer) {
  ON_TO_HOST;
  PJRT_Buffer *buffer = enter(args->src, BUFFER);
  PJRT_Error *error = buffer->deleted ? fail(3, "the buffer was deleted") : NULL;
  if (error == NULL && args->dst != NULL) {
    const int64_t *wish =
        args->host_layout != NULL ? args->host_layout->tiled.minor_to_major : buffer->minor_to_major;
    for (size_t i = 0; i < buffer->count; i++)
      memcpy((char *)args->dst + place_of(buffer, i, wish) * buffer->width,
             (char *)buffer->data + place_in(buffer, i) * buffer->width, buffer->width);
    args->event = new_event(buffer->head.client, buffer->signal);
  }
  args->dst_size = buffer->count * buffer->width;
  leave(buffer);
  return error;
}

TELLS(PJRT_Buffer_OnDeviceSizeInBytes, buffer, BUFFER,
      args->on_device_size_in_bytes = it->count * it->width)

TELLS(PJRT_Buffer_CopyRawToHost, buffer, BUFFER,
      memcpy(args->dst, (char *)it->data + args->offset, (size_t)args->transfer_size);
      args->event = new_event(it->head.client, it->signal))

typedef struct {
  Signal *signal;
  const char *from;
  size_t size;
} RawCopy;

static void raw_copy_ready(PJRT_Buffer_CopyRawToHostFuture_Callback_Args *args) {
  RawCopy *copy = args->callback_data;
  if (args->error_code == 0) memcpy(args->dst, copy->from, copy->size);
  settle(copy->signal, (int)args->error_code, args->error_message, args->error_message_size);
}

TELLS(PJRT_Buffer_CopyRawToHostFuture, buffer, BUFFER,
      RawCopy copy = {new_signal(), (char *)it->data + args->offset, (size_t)args->transfer_size};
      args->event = new_event(it->head.client, copy.signal);
      args->callback_data = copied(&copy, sizeof copy);
      args->future_ready_callback = raw_copy_ready)

TELLS(PJRT_Device_DefaultMemory, device->client, CLIENT, args->memory = &it->memory.memory)

static PJRT_Client *client_of(PJRT_Memory *memory) {
  return enter(((StubMemory *)memory)->client, CLIENT);
}

DOES(PJRT_Memory_AddressableByDevices, PJRT_Client *client = client_of(args->memory);
     args->devices = client->devices, args->num_devices = 1;
     leave(client))

DOES(PJRT_Memory_Id, leave(client_of(args->memory)); args->id = 0)

DOES(PJRT_Memory_Kind, leave(client_of(args->memory));
     args->kind = "device", args->kind_size = 6)

TELLS(PJRT_Buffer_Memory, buffer, BUFFER, args->memory = &it->head.client->memory.memory)

/* The buffer has failed from the beginning, and whatever uses it fails for the same reason. */
FUNCTION(PJRT_Client_CreateErrorBuffer) {
  PJRT_Client *client = client_of(args->memory);
  if (args->client != client) die("the memory of another client", CLIENT);
  PJRT_Buffer *buffer = new_buffer(client, args->shape_element_type, args->shape_dims,
                                   args->shape_num_dims, args->device_layout);
  buffer->signal->code = (int)args->error_code;
  buffer->signal->reason = new_reason(args->error_message, args->error_message_size, args->payload,
                                      args->num_payload);
  buffer->signal->fired = true;
  args->buffer = buffer;
  leave(client);
  return NULL;
}

/* Returns a buffer that takes over the memory of `from`, which is then deleted. */
static PJRT_Buffer *heir(PJRT_Buffer *from, PJRT_Buffer_Type type, const int64_t *dims,
                         size_t rank, const PJRT_Buffer_MemoryLayout *layout) {
  PJRT_Buffer *buffer = new_buffer(from->head.client, type, dims, rank, layout);
  buffer->data = from->data;
  from->data = calloc(from->count + 1, from->width);
  from->deleted = true;
  return buffer;
}

OF_BUFFER(PJRT_Buffer_Bitcast, buffer, size_t nbytes = width_of(args->element_type);
          for (size_t i = 0; i < args->num_dims; i++) nbytes *= (size_t)args->dims[i];
          if (nbytes != it->count * it->width) {
            error = fail(3, "another size");
          } else {
            args->out_buffer =
                heir(it, args->element_type, args->dims, args->num_dims, args->device_layout);
            args->out_buffer->signal = it->signal;
          })

static void dependency_ready(PJRT_Buffer_DonateWithControlDependency_Callback_Args *args) {
  settle(args->callback_data, (int)args->error_code, args->error_message,
         args->error_message_size);
}

/* The new buffer is ready once its dependency is. */
OF_BUFFER(PJRT_Buffer_DonateWithControlDependency, buffer,
          args->out_buffer = heir(it, PJRT_Buffer_Type_F32, it->dims, it->rank, NULL);
          args->callback_data = args->out_buffer->signal;
          args->dependency_ready_callback = dependency_ready)

/* Transfers */

FUNCTION(PJRT_Client_CreateBuffersForAsyncHostToDevice) {
  PJRT_Client *client = enter(args->client, CLIENT);
  PJRT_AsyncHostToDeviceTransferManager *manager = calloc(1, sizeof *manager);
  manager->head.client = client;
  manager->count = args->num_shape_specs;
  for (size_t i = 0; i < manager->count; i++) {
    const PJRT_ShapeSpec *spec = &args->shape_specs[i];
    manager->buffers[i] = new_buffer(client, spec->element_type, spec->dims, spec->num_dims,
                                     args->num_device_layouts ? args->device_layouts[i] : NULL);
  }
  stub_transfers++;
  args->transfer_manager = manager;
  leave(client);
  return NULL;
}

static PJRT_Buffer *part(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  if (index < 0 || (size_t)index >= manager->count) die("no such part", BUFFER);
  return manager->buffers[index];
}

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_Destroy) {
  PJRT_AsyncHostToDeviceTransferManager *manager = args->transfer_manager;
  for (size_t i = 0; i < manager->count; i++) {
    if (!manager->buffers[i]->signal->fired) {
      manager->buffers[i]->signal->code = 13;
      fire(manager->buffers[i]->signal);
    }
    if (!manager->retrieved[i]) destroy(manager->buffers[i], BUFFER);
  }
  stub_transfers--;
  return NULL;
}

DOES(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer,
     args->buffer_out = part(args->transfer_manager, args->buffer_index);
     if (args->transfer_manager->retrieved[args->buffer_index]) die("retrieved twice", BUFFER);
     args->transfer_manager->retrieved[args->buffer_index] = true)

DOES(PJRT_AsyncHostToDeviceTransferManager_BufferCount,
     args->buffer_count = args->transfer_manager->count)

DOES(PJRT_AsyncHostToDeviceTransferManager_BufferSize,
     PJRT_Buffer *buffer = part(args->transfer_manager, args->buffer_index);
     args->buffer_size = buffer->count * buffer->width)

DOES(PJRT_AsyncHostToDeviceTransferManager_Device,
     args->device_out = args->transfer_manager->head.client->devices[0])

static PJRT_Event *done(PJRT_Buffer *buffer, bool complete) {
  Signal *taken = new_signal();
  taken->fired = true;
  if (complete) {
    if (buffer->signal->fired) die("completed twice", BUFFER);
    fire(buffer->signal);
  }
  return new_event(buffer->head.client, taken);
}

/* The data are bytes as they lie on the device. */
FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferData) {
  PJRT_Buffer *buffer = part(args->transfer_manager, args->buffer_index);
  size_t end = (size_t)(args->offset + args->transfer_size);
  if (args->offset < 0 || end > buffer->count * buffer->width) die("out of bounds", BUFFER);
  memcpy((char *)buffer->data + args->offset, args->data, (size_t)args->transfer_size);
  args->done_with_h2d_transfer = done(buffer, args->is_last_transfer);
  return NULL;
}

/* The data are an array, whose layout may differ from the device's. */
FUNCTION(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral) {
  PJRT_Buffer *buffer = part(args->transfer_manager, args->buffer_index);
  if (args->shape_num_dims != buffer->rank ||
      memcmp(args->shape_dims, buffer->dims, buffer->rank * sizeof(int64_t)) != 0 ||
      width_of(args->shape_element_type) != buffer->width)
    die("a literal of another shape", BUFFER);
  int64_t strides[MAX_RANK], step = (int64_t)buffer->width;
  for (size_t i = 0; args->shape_layout != NULL && i < buffer->rank; i++) {
    int64_t dimension = args->shape_layout->tiled.minor_to_major[i];
    strides[dimension] = step;
    step *= buffer->dims[dimension];
  }
  fill(buffer, args->data, args->shape_layout != NULL ? strides : NULL);
  args->done_with_h2d_transfer = done(buffer, true);
  return NULL;
}

DOES(PJRT_AsyncHostToDeviceTransferManager_SetBufferError,
     settle(part(args->transfer_manager, args->buffer_index)->signal, (int)args->error_code,
            args->error_message, args->error_message_size))

FUNCTION(PJRT_AsyncHostToDeviceTransferManager_AddMetadata) {
  stub_metadata[0] = 0;
  for (size_t i = 0; i < args->num_metadata; i++) {
    const PJRT_NamedValue *each = &args->transfer_metadata[i];
    size_t used = strlen(stub_metadata);
    snprintf(stub_metadata + used, sizeof stub_metadata - used, "%.*s=%.*s;", (int)each->name_size,
             each->name, (int)each->value_size, each->string_value);
  }
  return NULL;
}

/* There is at most one mapping at a time. */
static void *mapped;

FUNCTION(PJRT_Client_DmaMap) {
  leave(enter(args->client, CLIENT));
  if (mapped != NULL) return fail(6, "mapped already");
  mapped = args->data;
  stub_mapped += (long)args->size;
  return NULL;
}

FUNCTION(PJRT_Client_DmaUnmap) {
  leave(enter(args->client, CLIENT));
  if (mapped != args->data) return fail(5, "not mapped");
  mapped = NULL;
  stub_mapped = 0;
  return NULL;
}
