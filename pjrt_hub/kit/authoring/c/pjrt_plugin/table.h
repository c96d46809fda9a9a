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

PLUGIN_FUNCTION(PJRT_Error_ForEachPayload) {
  plugin_error_visit(args->error, args->visitor, args->user_arg);
  return NULL;
}

PLUGIN_FUNCTION(PJRT_Plugin_Initialize) { return NULL; }
PLUGIN_TELLS_LIST(PJRT_Plugin_Attributes, attributes, plugin_no_values, 0)

#define PLUGIN_ABSENT(function)                                                                   \
  static inline PJRT_Error *plugin_##function(function##_Args *args) {                            \
    (void)args;                                                                                   \
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "%s has no " #function, plugin_self.name); \
  }
PLUGIN_ABSENT(PJRT_Executable_OptimizedProgram)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_Destroy)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_AddChunk)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_TotalBytes)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_GranuleSize)
PLUGIN_ABSENT(PJRT_CopyToDeviceStream_CurrentBytes)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_Destroy)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_TransferData)
PLUGIN_ABSENT(PJRT_Client_CreateBuffersForAsyncHostToDevice)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_RetrieveBuffer)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_Device)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_BufferCount)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_BufferSize)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_SetBufferError)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_AddMetadata)
PLUGIN_ABSENT(PJRT_Client_DmaMap)
PLUGIN_ABSENT(PJRT_Client_DmaUnmap)
PLUGIN_ABSENT(PJRT_Client_UpdateGlobalProcessInfo)
PLUGIN_ABSENT(PJRT_Client_CreateAliasBuffer)
PLUGIN_ABSENT(PJRT_Client_FulfillAliasBuffer)
PLUGIN_ABSENT(PJRT_AsyncHostToDeviceTransferManager_TransferLiteral)
PLUGIN_ABSENT(PJRT_Buffer_CopyRawToHostFuture)
PLUGIN_ABSENT(PJRT_Device_PoisonExecution)
PLUGIN_ABSENT(PJRT_Device_CreateAsyncTrackingEvent)
PLUGIN_ABSENT(PJRT_AsyncTrackingEvent_Destroy)
PLUGIN_ABSENT(PJRT_Buffer_DonateWithControlDependency)
PLUGIN_ABSENT(PJRT_Buffer_Bitcast)
PLUGIN_ABSENT(PJRT_TopologyDescription_MakeCanonicalShapeForMemorySpace)

static PJRT_Api plugin_table;
static void (*plugin_describe)(Plugin *plugin);

/* Called once. */
static inline void plugin_begin(void) {
  plugin_describe(&plugin_self);
  plugin_table.struct_size = PJRT_Api_STRUCT_SIZE;
  plugin_table.pjrt_api_version.struct_size = PJRT_Api_Version_STRUCT_SIZE;
  plugin_table.pjrt_api_version.major_version = PJRT_API_MAJOR;
  plugin_table.pjrt_api_version.minor_version = PJRT_API_MINOR;
  plugin_table.PJRT_Error_Destroy = plugin_PJRT_Error_Destroy;
  plugin_table.PJRT_Error_Message = plugin_PJRT_Error_Message;
#define PLUGIN_ENTER(function) plugin_table.function = plugin_##function;
  PJRT_API_FUNCTIONS(PLUGIN_ENTER)
}

#endif
