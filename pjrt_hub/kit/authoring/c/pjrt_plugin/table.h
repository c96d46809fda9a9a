/* The function table. Functions that this kit lacks answer UNIMPLEMENTED, so hosts find no NULL. */
#ifndef PJRT_PLUGIN_TABLE_H
#define PJRT_PLUGIN_TABLE_H

#include "execute.h"

static inline void plugin_PJRT_Error_Destroy(PJRT_Error_Destroy_Args *args) {
  plugin_error_destroy(args->error);
}

static inline void plugin_PJRT_Error_Message(PJRT_Error_Message_Args *args) {
  plugin_error_message(args->error, &args->message, &args->message_size);
}

PLUGIN_TELLS(PJRT_Error_GetCode, code, plugin_error_code(args->error))
PLUGIN_DOES(PJRT_Error_ForEachPayload,
            plugin_error_visit(args->error, args->visitor, args->user_arg))

PLUGIN_FUNCTION(PJRT_Plugin_Initialize) { return NULL; }
PLUGIN_TELLS_LIST(PJRT_Plugin_Attributes, attributes, plugin_here()->attributes,
                  plugin_here()->num_attributes)

#define PLUGIN_ABSENT(function)                                                                   \
  PLUGIN_FUNCTION(function) {                                                                     \
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "this plugin has no " #function);          \
  }
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_Destroy)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_AddChunk)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_TotalBytes)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_GranuleSize)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_CurrentBytes)
PLUGIN_ABSENT(PJRT_Client_DmaMap)
PLUGIN_ABSENT(PJRT_Client_DmaUnmap)
PLUGIN_ABSENT(PJRT_Client_UpdateGlobalProcessInfo)
PLUGIN_ABSENT(PJRT_Device_PoisonExecution)
PLUGIN_ABSENT(PJRT_Device_CreateAsyncTrackingEvent)
PLUGIN_ABSENT(PJRT_AsyncTrackingEvent_Destroy)
PLUGIN_ABSENT(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace)

static inline void plugin_fill(PJRT_Api *table) {
  table->struct_size = PJRT_Api_STRUCT_SIZE;
  table->pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  table->pjrt_api_version.major_version = PJRT_API_MAJOR;
  table->pjrt_api_version.minor_version = PJRT_API_MINOR;
  table->PJRT_Error_Destroy = plugin_PJRT_Error_Destroy;
  table->PJRT_Error_Message = plugin_PJRT_Error_Message;
#define PLUGIN_ENTER(function) table->function = plugin_##function;
  PJRT_API_FUNCTIONS(PLUGIN_ENTER)
}

#endif
