/* Functions of devices in newer plugins: memory statistics, attributes, poison, tracking events. */

char stub_poison[512]; /* the arguments of the last PoisonExecution, as text */
/* Events that are alive, calls that cleared the statistics, lists of attributes that are alive. */
atomic_long stub_tracked, stub_cleared, stub_attributes;

#ifndef ON_MEMORY_STATS
#define ON_MEMORY_STATS (void)0
#endif

FUNCTION(PJRT_Device_MemoryStats) {
  leave(enter(args->device->client, CLIENT));
  ON_MEMORY_STATS;
  args->bytes_in_use = 100;
  args->peak_bytes_in_use = 200;
  args->peak_bytes_in_use_is_set = true;
  args->num_allocs = 7; /* its is_set flag stays false */
  args->peak_allocated_bytes = 300;
  args->peak_allocated_bytes_is_set = true;
  return NULL;
}

TELLS(PJRT_Device_ClearMemoryStats, device->client, CLIENT, stub_cleared++)

static void forget_attributes(PJRT_Device_Attributes *attributes) {
  free(attributes);
  stub_attributes--;
}

TELLS(PJRT_Device_GetAttributes, device->client, CLIENT,
      PJRT_NamedValue value = {.name = "temperature", .name_size = 11, .int64_value = 40,
                               .type = PJRT_NamedValue_kInt64, .value_size = 1};
      args->attributes = copied(&value, sizeof value);
      args->num_attributes = 1;
      args->device_attributes = (PJRT_Device_Attributes *)args->attributes;
      args->attributes_deleter = forget_attributes;
      stub_attributes++)

FUNCTION(PJRT_Device_PoisonExecution) {
  leave(enter(args->device->client, CLIENT));
  int length = snprintf(stub_poison, sizeof stub_poison, "%d %d %.*s", args->launch_id,
                        (int)args->error_code, (int)args->error_message_size, args->error_message);
  for (size_t i = 0; i < args->num_payload; i++) {
    const PJRT_NamedValue *each = &args->payload[i];
    length += snprintf(stub_poison + length, sizeof stub_poison - length, " %.*s=%.*s",
                       (int)each->name_size, each->name, (int)each->value_size, each->string_value);
  }
  args->poisoned = args->launch_id == 5;
  return NULL;
}

TELLS(PJRT_Device_CreateAsyncTrackingEvent, device->client, CLIENT,
      args->event = (PJRT_AsyncTrackingEvent *)strndup(args->description, args->description_size);
      stub_tracked++)

DOES(PJRT_AsyncTrackingEvent_Destroy, free(args->event); stub_tracked--)

char stub_processes[256]; /* the processes that the host told last, as text */

FUNCTION(PJRT_Client_UpdateGlobalProcessInfo) {
  leave(enter(args->client, CLIENT));
  char *end = stub_processes + sizeof stub_processes, *at = stub_processes;
  for (size_t i = 0; i < args->num_process_infos; i++) {
    const PJRT_ProcessInfo *each = &args->process_infos[i];
    at += snprintf(at, (size_t)(end - at), "%zu:%d:%llu:%d:%d:%.*s ", each->struct_size,
                   each->task_id, (unsigned long long)each->incarnation_id, (int)each->state,
                   each->error_code, (int)each->error_message_size, each->error_message);
  }
  return NULL;
}
