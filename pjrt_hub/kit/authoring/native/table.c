/* The function table. A function that gets no object exists once for each backend. */
#include "plugin.h"

static Backend *backends[PLUGINS];
static PJRT_Api tables[PLUGINS];
static int num_plugins; /* The GIL guards it. */

/* These functions need features that plugins in Python do not have. */
#define ABSENT(name)                                                                  \
  FUNCTION_OF_SIZE(name, sizeof(size_t)) {                                            \
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "this plugin has no %s", #name); \
  }
ABSENT(PJRT_CopyToDeviceStream_Destroy)
ABSENT(PJRT_CopyToDeviceStream_AddChunk)
ABSENT(PJRT_CopyToDeviceStream_TotalBytes)
ABSENT(PJRT_CopyToDeviceStream_GranuleSize)
ABSENT(PJRT_CopyToDeviceStream_CurrentBytes)
ABSENT(PJRT_Client_DmaMap)
ABSENT(PJRT_Client_DmaUnmap)
ABSENT(PJRT_Client_UpdateGlobalProcessInfo)
ABSENT(PJRT_Device_PoisonExecution)
ABSENT(PJRT_Device_CreateAsyncTrackingEvent)
ABSENT(PJRT_AsyncTrackingEvent_Destroy)
ABSENT(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace)

/* These two functions cannot return an error, so they have no faults. */

void plugin_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) { plugin_error_destroy(args->error); }

void plugin_PJRT_Error_Message(PJRT_Error_Message_Args *args) {
  plugin_error_message(args->error, &args->message, &args->message_size);
}

TELLS(PJRT_Error_GetCode, code, plugin_error_code(args->error))

FUNCTION(PJRT_Error_ForEachPayload) {
  plugin_error_visit(args->error, args->visitor, args->user_arg);
  return NULL;
}

/* The backend of the current call without an object, because FUNCTION passes on only `args`. */
static _Thread_local int current;
FUNCTION(PJRT_Plugin_Attributes) { return plugin_attributes(backends[current], args); }
FUNCTION_OF_SIZE(PJRT_Client_Create, THROUGH(PJRT_Client_Create, client)) {
  return client_create(backends[current], args);
}
FUNCTION(PJRT_TopologyDescription_Create) { return topology_create(backends[current], args); }
FUNCTION(PJRT_TopologyDescription_Deserialize) {
  return topology_deserialize(backends[current], args);
}

/* Repeats DO for sixteen plugins, and for all; a plugin's number has two hexadecimal digits. */
#define SIXTEEN(DO, function, row)                                                            \
  DO(function, row##0) DO(function, row##1) DO(function, row##2) DO(function, row##3)         \
  DO(function, row##4) DO(function, row##5) DO(function, row##6) DO(function, row##7)         \
  DO(function, row##8) DO(function, row##9) DO(function, row##a) DO(function, row##b)         \
  DO(function, row##c) DO(function, row##d) DO(function, row##e) DO(function, row##f)
#define EACH_PLUGIN(DO, function)                                                     \
  SIXTEEN(DO, function, 0) SIXTEEN(DO, function, 1) SIXTEEN(DO, function, 2)          \
  SIXTEEN(DO, function, 3) SIXTEEN(DO, function, 4) SIXTEEN(DO, function, 5)          \
  SIXTEEN(DO, function, 6) SIXTEEN(DO, function, 7) SIXTEEN(DO, function, 8)          \
  SIXTEEN(DO, function, 9) SIXTEEN(DO, function, a) SIXTEEN(DO, function, b)          \
  SIXTEEN(DO, function, c) SIXTEEN(DO, function, d) SIXTEEN(DO, function, e)          \
  SIXTEEN(DO, function, f)
#define ENTRY(function, n)                                   \
  static PJRT_Error *function##_##n(function##_Args *args) { \
    current = 0x##n;                                         \
    return plugin_##function(args);                          \
  }
#define NAME(function, n) function##_##n,
#define OWN_ENTRIES(function)                                                  \
  EACH_PLUGIN(ENTRY, function)                                                 \
  static PJRT_Error *(*const function##_entries[PLUGINS])(function##_Args *) = \
      {EACH_PLUGIN(NAME, function)};
OWN_ENTRIES(PJRT_Plugin_Attributes)
OWN_ENTRIES(PJRT_Client_Create)
OWN_ENTRIES(PJRT_TopologyDescription_Create)
OWN_ENTRIES(PJRT_TopologyDescription_Deserialize)

/* Returns a table, or NULL if there are too many. Hosts keep tables, so none is ever freed. */
const PJRT_Api *table_new(Backend *backend) {
  if (num_plugins == PLUGINS) return NULL;
  int n = num_plugins++;
  PJRT_Api *table = &tables[n];
  backends[n] = backend;
  *table = (PJRT_Api){
      .struct_size = PJRT_Api_STRUCT_SIZE,
      .pjrt_api_version = {.struct_size = PJRT_Api_Version_STRUCT_SIZE,
                           .major_version = PJRT_API_MAJOR,
                           .minor_version = PJRT_API_MINOR},
#define SLOT(returns, name) .name = plugin_##name,
#include "pjrt_slots.h"
#undef SLOT
  };
  table->PJRT_Plugin_Attributes = PJRT_Plugin_Attributes_entries[n];
  table->PJRT_Client_Create = PJRT_Client_Create_entries[n];
  table->PJRT_TopologyDescription_Create = PJRT_TopologyDescription_Create_entries[n];
  table->PJRT_TopologyDescription_Deserialize = PJRT_TopologyDescription_Deserialize_entries[n];
  return table;
}
