/* Tells that no buffer is on the host's CPU and lacks what JAX calls only where one is. */
#include "costs.h"

static PJRT_Error *is_not(PJRT_Buffer_IsOnCpu_Args *args) {
  args->is_on_cpu = false;
  return NULL;
}

static PJRT_Error *name(PJRT_Client_PlatformName_Args *args) {
  args->platform_name = "mychip";
  args->platform_name_size = 6;
  return NULL;
}

DEFECT(api) {
  api->extension_start = NULL;
  api->PJRT_Executable_GetCostAnalysis = count_costs; /* which JAX calls, and newer ones lack */
  api->PJRT_Buffer_IsOnCpu = is_not;
  api->PJRT_Client_PlatformName = name;
  api->PJRT_Buffer_IncreaseExternalReferenceCount = NULL;
  api->PJRT_Buffer_DecreaseExternalReferenceCount = NULL;
  api->PJRT_Buffer_OpaqueDeviceMemoryDataPointer = NULL;
  api->PJRT_ExecuteContext_Create = NULL;
  api->PJRT_ExecuteContext_Destroy = NULL;
  api->PJRT_TopologyDescription_Serialize = NULL;
}
