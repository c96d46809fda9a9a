/* Loads a program of its own where the bytes are junk. */
#include "../real.h"

REPLACE(PJRT_Executable_DeserializeAndLoad) {
  PJRT_Error *error = real->PJRT_Executable_DeserializeAndLoad(args);
  if (error == NULL) return NULL;
  char code[] = "func.func @main(%a: tensor<f32>) -> tensor<f32> { return %a : tensor<f32> }";
  PJRT_Program program = {.struct_size = PJRT_Program_STRUCT_SIZE, .code = code,
                          .code_size = sizeof code - 1, .format = "mlir", .format_size = 4};
  PJRT_Client_Compile_Args compile = {.struct_size = PJRT_Client_Compile_Args_STRUCT_SIZE,
                                      .client = args->client, .program = &program,
                                      .compile_options = "\x1a\x04\x20\x01\x28\x01",
                                      .compile_options_size = 6};
  error = real->PJRT_Client_Compile(&compile);
  args->loaded_executable = compile.executable;
  return error;
}
