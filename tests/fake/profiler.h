/* The extension Profiler of the stub: a profile is the file STUB_PROFILE; where that is not there,
   the profiler is busy. With ASKS_TWICE the host gives the memory. STUB_PROFILED is a file that
   gets the names of the functions that were called. A NUL is counted after the profile. */
#include <fcntl.h>
#include <unistd.h>

static char profiled[256];
static uint8_t profile[4096];
static size_t profile_nbytes;

#define PROFILER(name) \
  static PLUGIN_Profiler_Error *profiler_##name(PLUGIN_Profiler_##name##_Args *args)

static void profiler_error_destroy(PLUGIN_Profiler_Error_Destroy_Args *args) {
  strcat(profiled, " Error_Destroy");
}

static void profiler_error_message(PLUGIN_Profiler_Error_Message_Args *args) {
  args->message = "another profiler is busy";
  args->message_size = strlen(args->message);
}

PROFILER(Create) {
  strcat(profiled, "Create");
  args->profiler = (PLUGIN_Profiler *)profile;
  return NULL;
}

PROFILER(Start) {
  strcat(profiled, " Start");
  bool there = access(getenv("STUB_PROFILE"), R_OK) == 0;
  return there ? NULL : (PLUGIN_Profiler_Error *)profile;
}

PROFILER(Stop) {
  strcat(profiled, " Stop");
  return NULL;
}

PROFILER(CollectData) {
  strcat(profiled, " CollectData");
  int file = open(getenv("STUB_PROFILE"), O_RDONLY);
  profile_nbytes = (size_t)read(file, profile, sizeof profile) + 1;
  close(file);
#ifdef ASKS_TWICE
  if (args->buffer != NULL) memcpy(args->buffer, profile, profile_nbytes);
#else
  args->buffer = profile;
#endif
  args->buffer_size_in_bytes = profile_nbytes;
  return NULL;
}

PROFILER(Destroy) {
  strcat(profiled, " Destroy");
  const char *told = getenv("STUB_PROFILED");
  if (told != NULL) {
    int file = open(told, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (write(file, profiled, strlen(profiled)) < 0) abort();
    close(file);
  }
  return NULL;
}

static PLUGIN_Profiler_Api profiler_api = {
    .struct_size = PLUGIN_Profiler_Api_STRUCT_SIZE,
    .error_destroy = profiler_error_destroy,
    .error_message = profiler_error_message,
    .create = profiler_Create,
    .destroy = profiler_Destroy,
    .start = profiler_Start,
    .stop = profiler_Stop,
    .collect_data = profiler_CollectData,
};
static PJRT_Profiler_Extension profiler = {
    .base = {sizeof profiler, PJRT_Extension_Type_Profiler, NULL}, .profiler_api = &profiler_api};
