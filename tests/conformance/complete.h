/* A plugin with one defect in what is newer than the real plugin: the stub of tests/fake, with what
   checks ask of every plugin besides. */
#define EXCHANGED 1024 /* the elements that the check of it exchanges */
#include "../fake/plugin.c"

TELLS(PJRT_Client_PlatformVersion, client, CLIENT, args->platform_version = "1",
      args->platform_version_size = 1)

FUNCTION(PJRT_Event_Await) {
  PJRT_Event *event = enter(args->event, EVENT);
  while (!event->signal->fired) nap(0.001);
  PJRT_Error *error = failure_of(event->signal);
  leave(event);
  return error;
}

TELLS(PJRT_Executable_NumOutputs, executable, VIEW, args->num_outputs = 1)

TELLS(PJRT_Buffer_ElementType, buffer, BUFFER, args->type = it->type)

TELLS(PJRT_Buffer_Dimensions, buffer, BUFFER, args->dims = it->dims, args->num_dims = it->rank)

__attribute__((constructor)) static void complete(void) {
  api.PJRT_Client_PlatformVersion = PJRT_Client_PlatformVersion;
  api.PJRT_Event_Await = PJRT_Event_Await;
  api.PJRT_Executable_NumOutputs = PJRT_Executable_NumOutputs;
  api.PJRT_Buffer_ElementType = PJRT_Buffer_ElementType;
  api.PJRT_Buffer_Dimensions = PJRT_Buffer_Dimensions;
}

/* REPLACE(PJRT_Event_Set) { return NULL; } */
#define REPLACE(name)                                          \
  static PJRT_Error *replacement(name##_Args *args);           \
  __attribute__((constructor)) static void replace(void) {     \
    api.name = replacement;                                    \
  }                                                            \
  static PJRT_Error *replacement(name##_Args *args)
