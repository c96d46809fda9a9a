/* A host in C: `misuse PLUGIN... NAME` uses the API as it should until it makes one mistake. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "pjrt_api.h"

static const char *plugin;
static const PJRT_Api *api, *other;
static PJRT_Client *client;
static PJRT_Device *device;
static float values[4] = {1, 2, 3, 4};
static int64_t dims[1] = {4}, strides[2] = {4, 4};

#define ARGS(function, ...) \
  function##_Args args = {.struct_size = function##_Args_STRUCT_SIZE, __VA_ARGS__}
#define CALL(function, ...)         \
  do {                              \
    ARGS(function, __VA_ARGS__);    \
    drop(api->function(&args));     \
  } while (0)

static void drop(PJRT_Error *error) {
  if (error == NULL) return;
  ARGS(PJRT_Error_Destroy, .error = error);
  api->PJRT_Error_Destroy(&args);
}

static const PJRT_Api *load(const char *path) {
  void *library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  const PJRT_Api *(*entry)(void);
  *(void **)&entry = dlsym(library, "GetPjrtApi");
  return entry();
}

/* Returns the address of a variable of the stub. */
static volatile void *told(const char *name) { return dlsym(dlopen(plugin, RTLD_NOW), name); }

static PJRT_Client *connect(void) {
  ARGS(PJRT_Client_Create);
  drop(api->PJRT_Client_Create(&args));
  return args.client;
}

static PJRT_Device *device_of(PJRT_Client *of) {
  ARGS(PJRT_Client_AddressableDevices, .client = of);
  drop(api->PJRT_Client_AddressableDevices(&args));
  return args.addressable_devices[0];
}

static void destroy_event(PJRT_Event *event) { CALL(PJRT_Event_Destroy, .event = event); }

static PJRT_Buffer *put_as(PJRT_Client_BufferFromHostBuffer_Args args) {
  drop(api->PJRT_Client_BufferFromHostBuffer(&args));
  destroy_event(args.done_with_host_buffer);
  return args.buffer;
}

/* Puts the host array `values`; a mistake replaces an argument: PUT(.device = NULL). */
#define PUT(...)                                                                        \
  put_as((PJRT_Client_BufferFromHostBuffer_Args){                                       \
      .struct_size = PJRT_Client_BufferFromHostBuffer_Args_STRUCT_SIZE,                 \
      .client = client, .data = values, .dims = dims, .num_dims = 1,                    \
      .type = PJRT_Buffer_Type_F32, .device = device, __VA_ARGS__})

static PJRT_Buffer *put(void) { return PUT(); }
static void destroy(PJRT_Buffer *buffer) { CALL(PJRT_Buffer_Destroy, .buffer = buffer); }
static void ask(PJRT_Buffer *buffer) { CALL(PJRT_Buffer_IsDeleted, .buffer = buffer); }

static PJRT_LoadedExecutable *compile(const char *text) {
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE, .code = (char *)text,
                          .code_size = strlen(text), .format = "mlir", .format_size = 4};
  ARGS(PJRT_Client_Compile, .client = client, .program = &program);
  drop(api->PJRT_Client_Compile(&args));
  return args.executable;
}

static PJRT_Error *execute(PJRT_LoadedExecutable *executable, PJRT_Buffer *buffer,
                           PJRT_Buffer **output) {
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  PJRT_Buffer *const *arguments[] = {&buffer};
  PJRT_Buffer **outputs[] = {output};
  ARGS(PJRT_LoadedExecutable_Execute, .executable = executable, .options = &options,
       .argument_lists = arguments, .num_devices = 1, .num_args = 1, .output_lists = outputs);
  return api->PJRT_LoadedExecutable_Execute(&args);
}

static void destroy_executable(PJRT_LoadedExecutable *executable) {
  CALL(PJRT_LoadedExecutable_Destroy, .executable = executable);
}

static PJRT_Event *ready(PJRT_Buffer *buffer) {
  ARGS(PJRT_Buffer_ReadyEvent, .buffer = buffer);
  drop(api->PJRT_Buffer_ReadyEvent(&args));
  return args.event;
}

static PJRT_AsyncHostToDeviceTransferManager *transfer(void) {
  PJRT_ShapeSpec shape = {.struct_size = PJRT_ShapeSpec_STRUCT_SIZE, .dims = dims, .num_dims = 1,
                          .element_type = PJRT_Buffer_Type_F32};
  PJRT_Device_DefaultMemory_Args place = {
      .struct_size = PJRT_Device_DefaultMemory_Args_STRUCT_SIZE, .device = device};
  drop(api->PJRT_Device_DefaultMemory(&place));
  ARGS(PJRT_Client_CreateBuffersForAsyncHostToDevice, .client = client, .shape_specs = &shape,
       .num_shape_specs = 1, .memory = place.memory);
  drop(api->PJRT_Client_CreateBuffersForAsyncHostToDevice(&args));
  return args.transfer_manager;
}

static PJRT_Buffer *retrieve(PJRT_AsyncHostToDeviceTransferManager *manager, int index) {
  ARGS(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer, .transfer_manager = manager,
       .buffer_index = index);
  drop(api->PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer(&args));
  return args.buffer_out;
}

static PJRT_Error *an_error(void) {
  PJRT_LoadedExecutable *executable = compile("func error=3:word");
  PJRT_Buffer *buffer = put(), *output;
  PJRT_Error *error = execute(executable, buffer, &output);
  destroy(buffer);
  destroy_executable(executable);
  return error;
}

/* The mistakes, which `main` finds by the names of their functions. A function does not destroy
   what it leaves behind only for its mistake. */

void nothing(void) {
  PJRT_LoadedExecutable *executable = compile("func donate later");
  PJRT_Buffer *buffer = put(), *output;
  drop(execute(executable, buffer, &output));
  destroy(buffer);
  destroy_event(ready(output));
  destroy(output);
  destroy_executable(executable);
  drop(an_error());
}

void double_destroy(void) {
  PJRT_Buffer *buffer = put();
  destroy(buffer);
  destroy(buffer);
}

void use_after_destroy(void) {
  PJRT_Buffer *buffer = put();
  destroy(buffer);
  ask(buffer);
}

void use_after_delete(void) {
  PJRT_Buffer *buffer = put();
  CALL(PJRT_Buffer_Delete, .buffer = buffer);
  CALL(PJRT_Buffer_ToHostBuffer, .src = buffer, .dst = values, .dst_size = sizeof values);
  destroy(buffer);
}

void use_after_donation(void) {
  PJRT_LoadedExecutable *executable = compile("func donate");
  PJRT_Buffer *buffer = put(), *output;
  drop(execute(executable, buffer, &output));
  destroy(output);
  drop(execute(executable, buffer, &output));
  destroy(buffer);
  destroy_executable(executable);
}

void leak(void) { put(); }

void no_struct_size(void) {
  PJRT_Buffer *buffer = put();
  CALL(PJRT_Buffer_IsDeleted, .struct_size = 0, .buffer = buffer);
  destroy(buffer);
}

void short_struct(void) {
  PJRT_Buffer *buffer = put();
  CALL(PJRT_Buffer_IsDeleted, .struct_size = 24, .buffer = buffer);
  destroy(buffer);
}

void another_client(void) {
  PJRT_Client *second = connect();
  destroy(PUT(.device = device_of(second)));
  CALL(PJRT_Client_Destroy, .client = second);
}

void error_leak(void) { an_error(); }

void event_leak(void) {
  PJRT_Buffer *buffer = put();
  ready(buffer);
  destroy(buffer);
}

static void *for_ever(void *executable) {
  PJRT_Buffer *output;
  drop(execute(executable, put(), &output));
  return NULL;
}

void destroyed_in_use(void) {
  pthread_t thread;
  PJRT_LoadedExecutable *executable = compile("func stuck");
  volatile char *executed = told("stub_executed");
  pthread_create(&thread, NULL, for_ever, executable);
  while (*executed == 0) usleep(1000);
  destroy_executable(executable);
  pthread_join(thread, NULL);
}

void null_field(void) { ask(NULL); }

void another_kind(void) {
  PJRT_Buffer *buffer = put();
  ask((PJRT_Buffer *)ready(buffer));
}

void pending_error(void) {
  PJRT_LoadedExecutable *executable = compile("func never");
  PJRT_Buffer *output;
  drop(execute(executable, put(), &output));
  CALL(PJRT_Event_Error, .event = ready(output));
}

static PJRT_Executable *compile_only(void) {
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE, .code = "func", .code_size = 4};
  PJRT_TopologyDescription_Create_Args create = {
      .struct_size = PJRT_TopologyDescription_Create_Args_STRUCT_SIZE};
  drop(api->PJRT_TopologyDescription_Create(&create));
  ARGS(PJRT_Compile, .topology = create.topology, .program = &program, .client = client);
  drop(api->PJRT_Compile(&args));
  CALL(PJRT_TopologyDescription_Destroy, .topology = create.topology);
  return args.executable;
}

void client_gone(void) {
  PJRT_Executable *executable = compile_only();
  CALL(PJRT_Client_Destroy, .client = client);
  CALL(PJRT_Executable_Destroy, .executable = executable);
  exit(0);
}

void stale_executable(void) {
  PJRT_LoadedExecutable *executable = compile("func");
  ARGS(PJRT_LoadedExecutable_GetExecutable, .loaded_executable = executable);
  drop(api->PJRT_LoadedExecutable_GetExecutable(&args));
  destroy_executable(executable);
  PJRT_Executable *view = args.executable;
  CALL(PJRT_Executable_Name, .executable = view);
}

void no_place(void) { destroy(PUT(.device = NULL)); }
void another_rank(void) { destroy(PUT(.byte_strides = strides, .num_byte_strides = 2)); }
void element_type(void) { destroy(PUT(.type = PJRT_Buffer_Type_INVALID)); }

void buffer_index(void) {
  PJRT_AsyncHostToDeviceTransferManager *manager = transfer();
  destroy(retrieve(manager, 0));
  retrieve(manager, 0);
}

void forked(void) {
  PJRT_Buffer *buffer = put();
  if (fork() == 0) {
    ask(buffer);
    _exit(0);
  }
  wait(NULL);
  destroy(buffer);
}

void another_plugin(void) {
  PJRT_Error *error = an_error();
  ARGS(PJRT_Error_Message, .error = error);
  other->PJRT_Error_Message(&args);
  drop(error);
}

/* These functions make no mistake: they use or end a process in several ways. */

void killed(void) {
  destroy(put());
  kill(getpid(), 9);
}

void ended(void) {
  destroy(put());
  _exit(0);
}

void left(void) {
  destroy(put());
  exit(0);
}

static void *thread_of_its_own(void *unused) {
  destroy(put());
  return unused;
}

void threads(void) {
  pthread_t thread;
  for (int i = 0; i < 3; i++) {
    pthread_create(&thread, NULL, thread_of_its_own, NULL);
    pthread_join(thread, NULL);
  }
}

void many(void) {
  PJRT_Buffer *buffer = put();
  for (int i = 0; i < 20000; i++) ask(buffer);
  destroy(buffer);
}

/* Gives a smaller size than its struct's, as old frameworks do, and prints what lies behind it. */
void old_host(void) {
  ARGS(PJRT_Plugin_Attributes, .struct_size = 24);
  PJRT_Error *error = api->PJRT_Plugin_Attributes(&args);
  printf("%s, %zu attributes, %zu\n", error != NULL ? "refused" : "taken", args.num_attributes,
         args.struct_size);
  drop(error);
}

/* These hosts make no mistake, but the plugin may make one. */

static void listened(PJRT_Error *error, void *count) {
  drop(error);
  ++*(atomic_int *)count;
}

void listens(void) {
  PJRT_LoadedExecutable *executable = compile("func later");
  PJRT_Buffer *buffer = put(), *output;
  volatile long *twice = told("stub_twice");
  volatile atomic_long *late = told("stub_late");
  atomic_int count = 0;
  drop(execute(executable, buffer, &output));
  PJRT_Event *event = ready(output);
  CALL(PJRT_Event_OnReady, .event = event, .callback = listened, .user_arg = &count);
  while (count == 0 || *late < *twice) usleep(1000);
  destroy_event(event);
  destroy(output);
  destroy(buffer);
  destroy_executable(executable);
  printf("called %d time(s)\n", count);
}

/* Executes twice, and destroys both outputs. */
void executes(void) {
  PJRT_LoadedExecutable *executable = compile("func");
  PJRT_Buffer *buffer = put(), *outputs[2] = {NULL, NULL};
  drop(execute(executable, buffer, &outputs[0]));
  drop(execute(executable, buffer, &outputs[1]));
  for (int i = 0; i < 2; i++)
    if (outputs[i] != NULL) destroy(outputs[i]);
  destroy(buffer);
  destroy_executable(executable);
}

void asks_for_the_code(void) {
  PJRT_LoadedExecutable *executable = compile("func error=77:word");
  PJRT_Buffer *buffer = put(), *output;
  PJRT_Error *error = execute(executable, buffer, &output);
  CALL(PJRT_Error_GetCode, .error = error);
  drop(error);
  destroy(buffer);
  destroy_executable(executable);
}

int main(int count, char **words) {
  void (*act)(void);
  *(void **)&act = dlsym(RTLD_DEFAULT, words[count - 1]);
  api = load(plugin = words[1]);
  other = count > 3 ? load(words[2]) : NULL;
  client = connect();
  device = device_of(client);
  act();
  CALL(PJRT_Client_Destroy, .client = client);
  return 0;
}
