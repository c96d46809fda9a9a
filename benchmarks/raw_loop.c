/* The same calls that pjrt-hub makes, in a loop without Python: the floor of every ratio. */
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#include "pjrt_api.h"

#define ARGS(function) {.struct_size = function##_Args_STRUCT_SIZE}

enum { MOST_DEVICES = 8, MOST_THREADS = 8 };

static double now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + 1e-9 * (double)time.tv_nsec;
}

static void check(const PJRT_Api *api, PJRT_Error *error) {
  if (error == NULL) return;
  PJRT_Error_Message_Args args = ARGS(PJRT_Error_Message);
  args.error = error;
  api->PJRT_Error_Message(&args);
  fprintf(stderr, "raw loop: %.*s\n", (int)args.message_size, args.message);
  exit(1);
}

static void destroy_buffer(const PJRT_Api *api, PJRT_Buffer *buffer) {
  PJRT_Buffer_Destroy_Args args = ARGS(PJRT_Buffer_Destroy);
  args.buffer = buffer;
  check(api, api->PJRT_Buffer_Destroy(&args));
}

static void destroy_event(const PJRT_Api *api, PJRT_Event *event) {
  PJRT_Event_Destroy_Args args = ARGS(PJRT_Event_Destroy);
  args.event = event;
  check(api, api->PJRT_Event_Destroy(&args));
}

static void execute(const PJRT_Api *api, PJRT_LoadedExecutable *executable, PJRT_Buffer **arguments,
                    size_t num_arguments, PJRT_Buffer **outputs) {
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_LoadedExecutable_Execute_Args args = ARGS(PJRT_LoadedExecutable_Execute);
  PJRT_Buffer *const *argument_lists[] = {arguments};
  PJRT_Buffer **output_lists[] = {outputs};
  args.executable = executable;
  args.options = &options;
  args.argument_lists = argument_lists;
  args.num_devices = 1;
  args.num_args = num_arguments;
  args.output_lists = output_lists;
  check(api, api->PJRT_LoadedExecutable_Execute(&args));
}

typedef struct {
  PJRT_Client *client;
  PJRT_Device *device;
  const void *data;
  PJRT_Buffer_Type type;
  int64_t *dims;
  size_t num_dims;
  PJRT_HostBufferSemantics semantics;
} Host;

static PJRT_Buffer *put(const PJRT_Api *api, const Host *host) {
  PJRT_Client_BufferFromHostBuffer_Args args = ARGS(PJRT_Client_BufferFromHostBuffer);
  args.client = host->client;
  args.data = host->data;
  args.type = host->type;
  args.dims = host->dims;
  args.num_dims = host->num_dims;
  args.host_buffer_semantics = host->semantics;
  args.device = host->device;
  check(api, api->PJRT_Client_BufferFromHostBuffer(&args));
  destroy_event(api, args.done_with_host_buffer);
  return args.buffer;
}

/* Waits for the value, takes an external reference to it, and returns its address. */
static void *hold(const PJRT_Api *api, PJRT_Buffer *buffer) {
  PJRT_Buffer_ReadyEvent_Args ready = ARGS(PJRT_Buffer_ReadyEvent);
  ready.buffer = buffer;
  check(api, api->PJRT_Buffer_ReadyEvent(&ready));
  PJRT_Event_Await_Args await = ARGS(PJRT_Event_Await);
  await.event = ready.event;
  check(api, api->PJRT_Event_Await(&await));
  destroy_event(api, ready.event);
  PJRT_Buffer_IncreaseExternalReferenceCount_Args more =
      ARGS(PJRT_Buffer_IncreaseExternalReferenceCount);
  more.buffer = buffer;
  check(api, api->PJRT_Buffer_IncreaseExternalReferenceCount(&more));
  PJRT_Buffer_OpaqueDeviceMemoryDataPointer_Args where =
      ARGS(PJRT_Buffer_OpaqueDeviceMemoryDataPointer);
  where.buffer = buffer;
  check(api, api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer(&where));
  return where.device_memory_ptr;
}

static void let_go(const PJRT_Api *api, PJRT_Buffer *buffer) {
  PJRT_Buffer_DecreaseExternalReferenceCount_Args args =
      ARGS(PJRT_Buffer_DecreaseExternalReferenceCount);
  args.buffer = buffer;
  check(api, api->PJRT_Buffer_DecreaseExternalReferenceCount(&args));
}

/* Each of the functions below returns the seconds of `count` turns. */

double raw_call(const PJRT_Api *api, PJRT_LoadedExecutable *executable, PJRT_Buffer **arguments,
                size_t num_arguments, size_t num_outputs, long count) {
  PJRT_Buffer **outputs = calloc(num_outputs, sizeof(PJRT_Buffer *));
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    execute(api, executable, arguments, num_arguments, outputs);
    for (size_t i = 0; i < num_outputs; i++) destroy_buffer(api, outputs[i]);
  }
  double seconds = now() - start;
  free(outputs);
  return seconds;
}

/* Runs on several devices. Each turn waits for all of them, because a program that exchanges values
   behind too many executions would take every thread of the plugin and wait for ever. */
double raw_call_rows(const PJRT_Api *api, PJRT_LoadedExecutable *executable,
                     PJRT_Buffer **arguments, size_t num_devices, size_t num_arguments,
                     long count) {
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Buffer *const *argument_lists[MOST_DEVICES];
  PJRT_Buffer *outputs[MOST_DEVICES], **output_lists[MOST_DEVICES];
  PJRT_Event *events[MOST_DEVICES];
  for (size_t d = 0; d < num_devices; d++) {
    argument_lists[d] = arguments + d * num_arguments;
    output_lists[d] = outputs + d; /* each device has one output */
  }
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_LoadedExecutable_Execute_Args args = ARGS(PJRT_LoadedExecutable_Execute);
    args.executable = executable;
    args.options = &options;
    args.argument_lists = argument_lists;
    args.num_devices = num_devices;
    args.num_args = num_arguments;
    args.output_lists = output_lists;
    args.device_complete_events = events;
    check(api, api->PJRT_LoadedExecutable_Execute(&args));
    for (size_t d = 0; d < num_devices; d++) {
      PJRT_Event_Await_Args await = ARGS(PJRT_Event_Await);
      await.event = events[d];
      check(api, api->PJRT_Event_Await(&await));
      destroy_event(api, events[d]);
      destroy_buffer(api, outputs[d]);
    }
  }
  return now() - start;
}

/* The first results are the first arguments of the next turn, in which the program reuses their
   memory; the others are destroyed. The caller keeps the arguments of the first turn. */
double raw_carry(const PJRT_Api *api, PJRT_LoadedExecutable *executable, PJRT_Buffer **given,
                 size_t num_arguments, size_t num_carried, size_t num_outputs, long count) {
  PJRT_Buffer **arguments = calloc(num_arguments, sizeof(PJRT_Buffer *));
  PJRT_Buffer **outputs = calloc(num_outputs, sizeof(PJRT_Buffer *));
  memcpy(arguments, given, num_arguments * sizeof(PJRT_Buffer *));
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    execute(api, executable, arguments, num_arguments, outputs);
    for (size_t i = 0; i < num_carried; i++) {
      if (turn > 0) destroy_buffer(api, arguments[i]);
      arguments[i] = outputs[i];
    }
    for (size_t i = num_carried; i < num_outputs; i++) destroy_buffer(api, outputs[i]);
  }
  for (size_t i = 0; count > 0 && i < num_carried; i++) destroy_buffer(api, arguments[i]);
  double seconds = now() - start;
  free(arguments);
  free(outputs);
  return seconds;
}

typedef struct {
  const PJRT_Api *api;
  PJRT_LoadedExecutable *executable;
  PJRT_Buffer **arguments;
  size_t num_arguments, num_outputs;
  long count;
} Calls;

static void *call_many(void *given) {
  const Calls *calls = given;
  raw_call(calls->api, calls->executable, calls->arguments, calls->num_arguments,
           calls->num_outputs, calls->count);
  return NULL;
}

/* Makes `count` calls in each of `threads` threads. */
double raw_threads(const PJRT_Api *api, PJRT_LoadedExecutable *executable, PJRT_Buffer **arguments,
                   size_t num_arguments, size_t num_outputs, long count, size_t threads) {
  Calls calls = {api, executable, arguments, num_arguments, num_outputs, count};
  pthread_t running[MOST_THREADS];
  double start = now();
  for (size_t i = 0; i < threads; i++)
    if (pthread_create(&running[i], NULL, call_many, &calls) != 0) exit(1);
  for (size_t i = 0; i < threads; i++) pthread_join(running[i], NULL);
  return now() - start;
}

double raw_put(const PJRT_Api *api, const Host *host, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) destroy_buffer(api, put(api, host));
  return now() - start;
}

double raw_get(const PJRT_Api *api, PJRT_Buffer *buffer, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    hold(api, buffer);
    let_go(api, buffer);
  }
  return now() - start;
}

/* Copies host memory through a program of two arguments and one result to host memory. */
double raw_round_trip(const PJRT_Api *api, const Host *host, PJRT_LoadedExecutable *executable,
                      void *result, size_t nbytes, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer *arguments[] = {put(api, host), put(api, host)}, *output;
    execute(api, executable, arguments, 2, &output);
    memcpy(result, hold(api, output), nbytes);
    let_go(api, output);
    destroy_buffer(api, output);
    destroy_buffer(api, arguments[0]);
    destroy_buffer(api, arguments[1]);
  }
  return now() - start;
}

/* Each of the functions below does the same with one buffer in every turn. */

double raw_ready(const PJRT_Api *api, PJRT_Buffer *buffer, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_ReadyEvent_Args ready = ARGS(PJRT_Buffer_ReadyEvent);
    ready.buffer = buffer;
    check(api, api->PJRT_Buffer_ReadyEvent(&ready));
    PJRT_Event_Await_Args await = ARGS(PJRT_Event_Await);
    await.event = ready.event;
    check(api, api->PJRT_Event_Await(&await));
    PJRT_Event_Destroy_Args destroy = ARGS(PJRT_Event_Destroy);
    destroy.event = ready.event;
    check(api, api->PJRT_Event_Destroy(&destroy));
  }
  return now() - start;
}

double raw_copy(const PJRT_Api *api, PJRT_Buffer *buffer, PJRT_Device *device, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_CopyToDevice_Args args = ARGS(PJRT_Buffer_CopyToDevice);
    args.buffer = buffer;
    args.dst_device = device;
    check(api, api->PJRT_Buffer_CopyToDevice(&args));
    destroy_buffer(api, args.dst_buffer);
  }
  return now() - start;
}

double raw_copy_to_host(const PJRT_Api *api, PJRT_Buffer *buffer, void *to, size_t nbytes,
                        long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_CopyRawToHost_Args args = ARGS(PJRT_Buffer_CopyRawToHost);
    args.buffer = buffer;
    args.dst = to;
    args.transfer_size = (int64_t)nbytes;
    check(api, api->PJRT_Buffer_CopyRawToHost(&args));
    PJRT_Event_Await_Args await = ARGS(PJRT_Event_Await);
    await.event = args.event;
    check(api, api->PJRT_Event_Await(&await));
    PJRT_Event_Destroy_Args destroy = ARGS(PJRT_Event_Destroy);
    destroy.event = args.event;
    check(api, api->PJRT_Event_Destroy(&destroy));
  }
  return now() - start;
}

double raw_delete(const PJRT_Api *api, const Host *host, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_Delete_Args args = ARGS(PJRT_Buffer_Delete);
    args.buffer = put(api, host);
    check(api, api->PJRT_Buffer_Delete(&args));
    destroy_buffer(api, args.buffer);
  }
  return now() - start;
}

double raw_is_deleted(const PJRT_Api *api, PJRT_Buffer *buffer, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_IsDeleted_Args args = ARGS(PJRT_Buffer_IsDeleted);
    args.buffer = buffer;
    check(api, api->PJRT_Buffer_IsDeleted(&args));
  }
  return now() - start;
}

double raw_size(const PJRT_Api *api, PJRT_Buffer *buffer, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_OnDeviceSizeInBytes_Args args = ARGS(PJRT_Buffer_OnDeviceSizeInBytes);
    args.buffer = buffer;
    check(api, api->PJRT_Buffer_OnDeviceSizeInBytes(&args));
  }
  return now() - start;
}

double raw_memory(const PJRT_Api *api, PJRT_Buffer *buffer, long count) {
  double start = now();
  for (long turn = 0; turn < count; turn++) {
    PJRT_Buffer_Memory_Args args = ARGS(PJRT_Buffer_Memory);
    args.buffer = buffer;
    check(api, api->PJRT_Buffer_Memory(&args));
  }
  return now() - start;
}

/* Callgrind collects what runs in here, in this thread. It does not see libffi's own call,
   so there are two functions. */
__attribute__((noinline)) void raw_collected(void (*turns)(void)) {
  turns();
  __asm__ volatile("" ::: "memory"); /* prevents a tail call, which would leave at once */
}

void raw_counted(void (*turns)(void)) {
  raw_collected(turns);
  __asm__ volatile("" ::: "memory");
}
