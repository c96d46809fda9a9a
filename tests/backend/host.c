/* A host of plugins without Python: it adds (1 2 3 4) to itself on the plugin at the given path. */
#include <dlfcn.h>
#include <stdio.h>
#include <stdlib.h>

#include "pjrt_api.h"

static const PJRT_Api *api;

static void must(PJRT_Error *error, const char *function) {
  if (error == NULL) return;
  PJRT_Error_Message_Args message = {.struct_size = PJRT_Error_Message_Args_STRUCT_SIZE, .error = error};
  api->PJRT_Error_Message(&message);
  fprintf(stderr, "%s: %.*s\n", function, (int)message.message_size, message.message);
  exit(2);
}

/* Calls a function with the given fields; a variable of its name then holds its arguments. */
#define CALL(function, ...)                                                                      \
  function##_Args function = {.struct_size = function##_Args_STRUCT_SIZE __VA_OPT__(, ) __VA_ARGS__}; \
  must(api->function(&function), #function)

int main(int count, char **words) {
  void *library = dlopen(words[1], RTLD_NOW | RTLD_LOCAL);
  if (library == NULL) return fprintf(stderr, "%s\n", dlerror()), 3;
  const PJRT_Api *(*get)(void) = (const PJRT_Api *(*)(void))dlsym(library, "GetPjrtApi");
  api = get();
  if (api == NULL) return 4;
  CALL(PJRT_Plugin_Initialize);
  CALL(PJRT_Client_Create);
  PJRT_Client *client = PJRT_Client_Create.client;
  CALL(PJRT_Client_AddressableDevices, .client = client);
  float data[4] = {1, 2, 3, 4};
  int64_t dims[1] = {4};
  CALL(PJRT_Client_BufferFromHostBuffer, .client = client, .data = data, .type = PJRT_Buffer_Type_F32,
       .dims = dims, .num_dims = 1, .device = PJRT_Client_AddressableDevices.addressable_devices[0]);
  char code[] = "module {}", format[] = "mlir";
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE, .code = code,
                          .code_size = sizeof code - 1, .format = format,
                          .format_size = sizeof format - 1};
  CALL(PJRT_Client_Compile, .client = client, .program = &program, .compile_options = "");
  PJRT_Buffer *buffer = PJRT_Client_BufferFromHostBuffer.buffer;
  PJRT_Buffer *row[2] = {buffer, buffer}, *outputs[1], **output_lists[1] = {outputs};
  PJRT_Buffer *const *argument_lists[1] = {row};
  PJRT_ExecuteOptions options = {.struct_size = PJRT_ExecuteOptions_STRUCT_SIZE};
  CALL(PJRT_LoadedExecutable_Execute, .executable = PJRT_Client_Compile.executable, .options = &options,
       .argument_lists = argument_lists, .num_devices = 1, .num_args = 2,
       .output_lists = output_lists);
  CALL(PJRT_Buffer_ToHostBuffer, .src = outputs[0], .dst = data, .dst_size = sizeof data);
  CALL(PJRT_Event_Await, .event = PJRT_Buffer_ToHostBuffer.event);
  printf("%g %g %g %g\n", data[0], data[1], data[2], data[3]);
  return 0;
}
