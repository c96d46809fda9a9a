/* Makes a client of the plugin that the first argument names, with the options of its manifest, and prints how many
   devices it has. The second argument is that number. */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_api.h"
#include "pjrt_loader.h"

static void *end(char *text) {
  fprintf(stderr, "%s\n", text);
  exit(1);
}

int main(int count, char **words) {
  char *error = NULL;
  pjrt_loader_settings settings = {.api_major = 0, .api_minor = 117};
  pjrt_loader_plugin *plugin = pjrt_loader_open(words[1], &settings, &error);
  if (plugin == NULL) end(error);
  const PJRT_Api *api = pjrt_loader_api(plugin);
  pjrt_loader_option given = {.name = "cpu_device_count", .type = PJRT_LOADER_INT64};
  if (count > 2) given.value.int64 = atoi(words[2]);
  pjrt_loader_options *options = pjrt_loader_create_options(plugin, &given, count > 2, &error);
  if (options == NULL) end(error);
  PJRT_NamedValue values[8] = {0};
  for (size_t i = 0; i < options->count; i++) {
    const pjrt_loader_option *option = &options->options[i];
    PJRT_NamedValue *value = &values[i];
    value->struct_size = PJRT_NamedValue_STRUCT_SIZE;
    value->name = option->name;
    value->name_size = strlen(option->name);
    value->type = (PJRT_NamedValue_Type)option->type;
    value->value_size = option->count;
    if (option->type == PJRT_LOADER_INT64) value->int64_value = option->value.int64;
  }
  PJRT_Client_Create_Args create = {.struct_size = PJRT_Client_Create_Args_STRUCT_SIZE};
  create.create_options = values;
  create.num_options = options->count;
  if (api->PJRT_Client_Create(&create) != NULL) end("no client");
  pjrt_loader_free_options(options);
  PJRT_Client_Devices_Args devices = {.struct_size = PJRT_Client_Devices_Args_STRUCT_SIZE, .client = create.client};
  if (api->PJRT_Client_Devices(&devices) != NULL) end("no devices");
  printf("%zu devices\n", devices.num_devices);
  PJRT_Client_Destroy_Args destroy = {.struct_size = PJRT_Client_Destroy_Args_STRUCT_SIZE, .client = create.client};
  api->PJRT_Client_Destroy(&destroy);
  pjrt_loader_close(plugin);
  return 0;
}
