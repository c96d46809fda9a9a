/* The stub's extensions RawBuffer and HostMemoryAllocator: memory in bytes.
   Use them with -DEXTENSIONS=&raw_buffer_extension.base. */

struct Raw {
  PJRT_RawBuffer raw; /* its table is none that anybody may call */
  PJRT_Buffer *alias;
  PJRT_Client *client;
};
atomic_long stub_raw, stub_host_memory; /* alive */

static struct Raw *raw_of(PJRT_RawBuffer *buffer) {
  struct Raw *raw = (struct Raw *)buffer;
  if (raw == NULL || raw->alias == NULL) die("a raw buffer after its end", BUFFER);
  return raw;
}

FUNCTION(PJRT_RawBuffer_CreateRawAliasOfBuffer) {
  struct Raw *raw = calloc(1, sizeof *raw);
  raw->alias = enter(args->buffer, BUFFER);
  raw->client = raw->alias->head.client;
  leave(args->buffer);
  stub_raw++;
  args->raw_buffer = &raw->raw;
  return NULL;
}

FUNCTION(PJRT_RawBuffer_Destroy) {
  struct Raw *raw = raw_of(args->buffer);
  if (raw->client->head.kind != CLIENT) die("outlived its client", BUFFER);
  raw->alias = NULL;
  stub_raw--;
  return NULL;
}

FUNCTION(PJRT_RawBuffer_GetOnDeviceSizeInBytes) {
  struct Raw *raw = raw_of(args->buffer);
  args->on_device_size_in_bytes = raw->alias->count * raw->alias->width;
  return NULL;
}

FUNCTION(PJRT_RawBuffer_GetMemorySpace) {
  PJRT_Buffer_Memory_Args memory = {.buffer = raw_of(args->buffer)->alias};
  PJRT_Error *error = PJRT_Buffer_Memory(&memory);
  args->memory_space = memory.memory;
  return error;
}

FUNCTION(PJRT_RawBuffer_GetHostPointer) {
  args->host_pointer = raw_of(args->buffer)->alias->data;
  return NULL;
}

FUNCTION(PJRT_RawBuffer_CopyRawHostToDevice) {
  struct Raw *raw = raw_of(args->buffer);
  memcpy((char *)raw->alias->data + args->offset, args->src, (size_t)args->transfer_size);
  args->event = new_event(raw->client, raw->alias->signal);
  return NULL;
}

FUNCTION(PJRT_RawBuffer_CopyRawDeviceToHost) {
  struct Raw *raw = raw_of(args->buffer);
  memcpy(args->dst, (char *)raw->alias->data + args->offset, (size_t)args->transfer_size);
  args->event = new_event(raw->client, raw->alias->signal);
  return NULL;
}

static void free_host_memory(void *memory, void *size) {
  memset(memory, 0xee, (size_t)size);
  stub_host_memory--;
}

FUNCTION(PJRT_HostMemoryAllocator_Allocate) {
  leave(enter(args->client, CLIENT));
  if (args->numa_node > 1) return fail(PJRT_Error_Code_RESOURCE_EXHAUSTED, "no_such_node");
  stub_host_memory++;
  args->ptr = malloc(args->size);
  args->deleter = free_host_memory;
  args->deleter_arg = (void *)args->size;
  return NULL;
}

static PJRT_HostMemoryAllocator_Extension host_memory_extension = {
    .base = {PJRT_HostMemoryAllocator_Extension_STRUCT_SIZE,
             PJRT_Extension_Type_HostMemoryAllocator, NULL},
    .allocate = PJRT_HostMemoryAllocator_Allocate,
};

static PJRT_RawBuffer_Extension raw_buffer_extension = {
    .base = {PJRT_RawBuffer_Extension_STRUCT_SIZE, PJRT_Extension_Type_RawBuffer,
             &host_memory_extension.base},
    .PJRT_RawBuffer_CreateRawAliasOfBuffer = PJRT_RawBuffer_CreateRawAliasOfBuffer,
    .PJRT_RawBuffer_Destroy = PJRT_RawBuffer_Destroy,
    .PJRT_RawBuffer_GetOnDeviceSizeInBytes = PJRT_RawBuffer_GetOnDeviceSizeInBytes,
    .PJRT_RawBuffer_GetMemorySpace = PJRT_RawBuffer_GetMemorySpace,
    .PJRT_RawBuffer_CopyRawHostToDevice = PJRT_RawBuffer_CopyRawHostToDevice,
    .PJRT_RawBuffer_CopyRawDeviceToHost = PJRT_RawBuffer_CopyRawDeviceToHost,
    .PJRT_RawBuffer_GetHostPointer = PJRT_RawBuffer_GetHostPointer,
};
