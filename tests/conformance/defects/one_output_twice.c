/* Gives equal outputs of a run as one buffer. */
#include "../real.h"

static bool equal(PJRT_Buffer *first, PJRT_Buffer *second) {
  char bytes[2][64] = {{0}};
  for (int i = 0; i < 2; i++) {
    PJRT_Buffer_ToHostBuffer_Args copy = {.struct_size = PJRT_Buffer_ToHostBuffer_Args_STRUCT_SIZE,
                                          .src = i == 0 ? first : second,
                                          .dst = bytes[i],
                                          .dst_size = sizeof bytes[i]};
    if (real->PJRT_Buffer_ToHostBuffer(&copy) != NULL) return false;
    AWAIT(copy.event);
  }
  return memcmp(bytes[0], bytes[1], sizeof bytes[0]) == 0;
}

REPLACE(PJRT_LoadedExecutable_Execute) {
  PJRT_Error *error = real->PJRT_LoadedExecutable_Execute(args);
  PJRT_LoadedExecutable_GetExecutable_Args got = {
      .struct_size = PJRT_LoadedExecutable_GetExecutable_Args_STRUCT_SIZE,
      .loaded_executable = args->executable};
  if (error == NULL) error = real->PJRT_LoadedExecutable_GetExecutable(&got);
  PJRT_Executable_NumOutputs_Args outputs = {
      .struct_size = PJRT_Executable_NumOutputs_Args_STRUCT_SIZE, .executable = got.executable};
  if (error == NULL) error = real->PJRT_Executable_NumOutputs(&outputs);
  if (error == NULL && outputs.num_outputs > 1 &&
      equal(args->output_lists[0][0], args->output_lists[0][1]))
    args->output_lists[0][1] = args->output_lists[0][0];
  return error;
}
