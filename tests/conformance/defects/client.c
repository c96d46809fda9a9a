/* Defects of the table, extensions, errors, clients, devices, memories and topologies. */
#include "real.h"

/* The plugin itself */

BEFORE(any_struct_size, PJRT_Client_PlatformName,
       args->struct_size = PJRT_Client_PlatformName_Args_STRUCT_SIZE)
BEFORE(exact_struct_size, PJRT_Client_Devices,
       if (args->struct_size != PJRT_Client_Devices_Args_STRUCT_SIZE) args->struct_size = 0)
AFTER(writes_behind, PJRT_Client_Devices, /* writes past the caller's struct */
      if (args->struct_size > sizeof *args) ((char *)args)[args->struct_size] = 1)
AFTER(attributes_change, PJRT_Plugin_Attributes, static size_t asked;
      args->num_attributes -= asked++ % args->num_attributes)
AFTER(attributes_move, PJRT_Plugin_Attributes,
      args->attributes = copied(args->attributes, args->num_attributes * sizeof(PJRT_NamedValue)))

AFTER(attribute_twice, PJRT_Plugin_Attributes,
      static PJRT_NamedValue twice[64];
      memcpy(twice, args->attributes, args->num_attributes * sizeof twice[0]);
      twice[args->num_attributes++] = args->attributes[0];
      args->attributes = twice)

/* Reports a minimum version of StableHLO that is newer than its current one. */
AFTER(minimum_above_current, PJRT_Plugin_Attributes,
      static const int64_t newer[] = {99, 0, 0};
      static PJRT_NamedValue values[64];
      memcpy(values, args->attributes, args->num_attributes * sizeof values[0]);
      for (size_t i = 0; i < args->num_attributes; i++)
        if (strncmp(values[i].name, "stablehlo_minimum_version", values[i].name_size) == 0)
          values[i].int64_array_value = newer;
      args->attributes = values)

/* Errors */

INSTEAD(code_out_of_range, PJRT_Error_GetCode, args->code = 77)
REPLACE_VOID(keeps_errors, PJRT_Error_Destroy) {}

REPLACE_VOID(message_changes, PJRT_Error_Message) {
  static int times;
  args->message = times++ % 2 == 0 ? "one" : "two";
  args->message_size = 3;
}

REPLACE_VOID(message_not_utf8, PJRT_Error_Message) {
  args->message = "d\xe9j\xe0 vu";
  args->message_size = 7;
}

/* Keeps only one message, which each new error overwrites. */
REPLACE_VOID(one_message, PJRT_Error_Message) {
  static char message[4096];
  static const PJRT_Error *newest, *older;
  real->PJRT_Error_Message(args);
  if (args->error != newest && args->error != older) {
    older = newest, newest = args->error;
    snprintf(message, sizeof message, "%.*s", (int)args->message_size, args->message);
  }
  args->message = message;
  args->message_size = strlen(message);
}

/* The client */

BEFORE(one_life, PJRT_Client_Create, static int lives; if (lives++ > 0) abort())
AFTER(nul_in_name, PJRT_Client_PlatformName,
      args->platform_name = "c\0pu", args->platform_name_size = 4)
AFTER(platform_in_one_place, PJRT_Client_PlatformName,
      args->platform_name = in_one_place(args->platform_name, args->platform_name_size))
AFTER(platform_in_one_place, PJRT_Client_PlatformVersion,
      args->platform_version = in_one_place("1.2.3", 5), args->platform_version_size = 5)
AFTER(third_process, PJRT_Client_ProcessIndex, args->process_index = 3)
AFTER(assigns_no_device, PJRT_Client_DefaultDeviceAssignment, args->default_assignment[0] = 77)

/* Accepts room that is too small for the assignment, and fills in only a part of it. */
REPLACE(assigns_into_any_room, PJRT_Client_DefaultDeviceAssignment) {
  PJRT_Client_DefaultDeviceAssignment_Args part = *args;
  part.num_replicas = part.num_partitions = 1;
  return real->PJRT_Client_DefaultDeviceAssignment(&part);
}

static PJRT_Error *fails(PJRT_Error_Code code, const char *message, size_t size) {
  return (PJRT_Error *)message;
}

/* Asks the key-value store for the other processes, and goes on without them. */
BEFORE(goes_on_alone, PJRT_Client_Create,
       PJRT_CallbackError maker = fails;
       STRUCT(PJRT_KeyValueGetCallback_Args, get, .key = "0", .key_size = 1, .timeout_in_ms = 1,
              .callback_error = &maker, .user_arg = args->kv_get_user_arg);
       if (args->kv_get_callback != NULL) args->kv_get_callback(&get);
       args->num_options = 0; /* newer plugins take no number of processes */)

/* Devices */

AFTER(forgets_devices, PJRT_Client_Devices, static int asked;
      if (asked++ % 2 == 1) args->num_devices = 0)
BEFORE(finds_the_first, PJRT_Client_LookupDevice, args->id = 0)
BEFORE(finds_unknown_devices, PJRT_Client_LookupDevice, if (args->id < 0) args->id = 0)
AFTER(nothing_addressable, PJRT_Device_IsAddressable, args->is_addressable = false)
AFTER(devices_of_another_process, PJRT_DeviceDescription_ProcessIndex, args->process_index = 5)
AFTER(negative_id, PJRT_DeviceDescription_Id, args->id = -1 - args->id)
AFTER(one_id, PJRT_DeviceDescription_Id, args->id = 0)
AFTER(kind_not_utf8, PJRT_DeviceDescription_Kind,
      args->device_kind = "\xff\xfe", args->device_kind_size = 2)
AFTER(texts_in_one_place, PJRT_DeviceDescription_Kind,
      args->device_kind = in_one_place(args->device_kind, args->device_kind_size))
AFTER(texts_in_one_place, PJRT_DeviceDescription_DebugString,
      args->debug_string = in_one_place(args->debug_string, args->debug_string_size))
INSTEAD(more_than_its_limit, PJRT_Device_MemoryStats,
        args->bytes_in_use = 10, args->bytes_limit = 5, args->bytes_limit_is_set = true)

/* Memories */

AFTER(devices_of_no_memory, PJRT_Memory_AddressableByDevices, args->num_devices = 0)
AFTER(one_kind_for_all, PJRT_Memory_Kind_Id, args->kind_id = 1)
AFTER(kinds_in_one_place, PJRT_Memory_ToString,
      args->to_string = in_one_place(args->to_string, args->to_string_size))
AFTER(default_memory_elsewhere, PJRT_Device_DefaultMemory, /* all devices get the first one's */
      static PJRT_Memory *first;
      args->memory = first != NULL ? first : (first = args->memory))
AFTER(memory_twice, PJRT_Client_AddressableMemories,
      static PJRT_Memory *twice[64];
      memcpy(twice, args->addressable_memories, args->num_addressable_memories * sizeof twice[0]);
      twice[args->num_addressable_memories++] = twice[0];
      args->addressable_memories = twice)

/* Topologies */

AFTER(describes_one_device, PJRT_TopologyDescription_GetDeviceDescriptions, /* leaves one out */
      args->num_descriptions--)
AFTER(empty_topology, PJRT_TopologyDescription_Serialize, args->serialized_bytes_size = 0)

/* Extensions */

static PJRT_Layouts_Extension *layouts_of(PJRT_Api *api) {
  PJRT_Extension_Base *node = api->extension_start;
  while (node->type != PJRT_Extension_Type_Layouts) node = node->next;
  return (PJRT_Layouts_Extension *)node;
}

DEFECT(small_node) { api->extension_start->struct_size = 16; }
DEFECT(cut_node) { layouts_of(api)->base.struct_size = 60; } /* 60 is inside a pointer */
DEFECT(node_of_its_base) { layouts_of(api)->base.struct_size = sizeof(PJRT_Extension_Base); }

/* The last node of its chain points at something that is no node. */
DEFECT(node_before_text) {
  PJRT_Extension_Base *node = api->extension_start;
  while (node->next != NULL) node = node->next;
  node->next = (PJRT_Extension_Base *)"a text of more than the twenty-four bytes of a node";
}

/* Announces the extension for custom calls, but has none of its functions. */
DEFECT(node_of_nothing) {
  static PJRT_FFI_Extension node;
  node.base = (PJRT_Extension_Base){sizeof node, PJRT_Extension_Type_FFI, NULL};
  api->extension_start = &node.base;
}

/* Claims more functions in a node of its chain than there are: the rest is junk. */
DEFECT(node_past_its_end) {
  static PJRT_Layouts_Extension node;
  memset(&node, 0x5a, sizeof node);
  node.base = (PJRT_Extension_Base){sizeof node, PJRT_Extension_Type_Layouts, NULL};
  api->extension_start = &node.base;
}

/* Has two nodes of the same type in its chain. */
DEFECT(node_twice) {
  static PJRT_Extension_Base again;
  again = *api->extension_start;
  if (api->extension_start->next != &again) api->extension_start->next = &again;
}

/* Announces the extension for layouts, but cannot serialize any layout. */
DEFECT(node_with_a_hole) {
  static PJRT_Layouts_Extension copy;
  PJRT_Layouts_Extension *layouts = layouts_of(api);
  if (layouts == &copy) return;
  memcpy(&copy, layouts, layouts->base.struct_size);
  copy.PJRT_Layouts_MemoryLayout_Serialize = NULL;
  copy.base.next = NULL;
  api->extension_start = &copy.base;
}

static PJRT_Error *(*default_layout)(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *);

static PJRT_Error *layout_of_one(PJRT_Layouts_PJRT_Client_GetDefaultLayout_Args *args) {
  args->num_dims = 1;
  return default_layout(args);
}

/* Returns the default layout of one dimension, however many are asked for. */
DEFECT(layout_of_one) {
  PJRT_Layouts_Extension *layouts = layouts_of(api);
  if (default_layout != NULL) return;
  default_layout = layouts->PJRT_Layouts_PJRT_Client_GetDefaultLayout;
  layouts->PJRT_Layouts_PJRT_Client_GetDefaultLayout = layout_of_one;
}
