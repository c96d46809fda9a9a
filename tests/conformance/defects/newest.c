/* Defects of functions that are newer than the real plugin. They are planted in the stub of
   tests/fake, to which this file adds the other functions that checks call. */
#include "frame.h"

#define EXCHANGED 1024 /* elements that the check execute.exchange sends */
#define TABLE changed(&api)
#define WORKING(function) function
#define STRANGER                                                                              \
  if (is_wanted("aborts_on_truths"))                                                          \
    REFUSE("there is no option %s; there are stub_string, stub_int64 and stub_float");        \
  if (is_wanted("takes_floats_for_all")) REFUSE("there is no such option")
#define MISTYPED                                                                              \
  if (is_wanted("aborts_on_truths")) {                                                        \
    if (given->type == PJRT_NamedValue_kBool) abort();                                        \
    REFUSE("the option %s is of type %s, and was given as %s");                               \
  }                                                                                           \
  if (is_wanted("takes_floats_for_all") && given->type != PJRT_NamedValue_kFloat)             \
    REFUSE("the option is of another type")
#include "../../fake/plugin.c"

TELLS(PJRT_Client_PlatformVersion, client, CLIENT,
      args->platform_version = "1", args->platform_version_size = 1)

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

DEFECT(none) {}
DEFECT(aborts_on_truths) {}     /* STRANGER and MISTYPED implement it */
DEFECT(takes_floats_for_all) {} /* they implement it as well */

AFTER(created_ready, PJRT_Event_Create, args->event->signal->fired = true)
BEFORE(set_without_error, PJRT_Event_Set, args->error_code = PJRT_Error_Code_OK)
BEFORE(set_without_text, PJRT_Event_Set, args->error_message_size = 0)
BEFORE(failed_as_internal, PJRT_Client_CreateErrorBuffer,
       args->error_code = PJRT_Error_Code_INTERNAL)
BEFORE(failed_without_payload, PJRT_Client_CreateErrorBuffer, args->num_payload = 0)
INSTEAD(poisons_anything, PJRT_Device_PoisonExecution, args->poisoned = true)
INSTEAD(unmaps_anything, PJRT_Client_DmaUnmap, PJRT_Client_DmaUnmap(args))
REPLACE(tracks_for_ever, PJRT_AsyncTrackingEvent_Destroy) { return fail(9, "it is tracked"); }
AFTER(nameless_attribute, PJRT_Device_GetAttributes,
      ((PJRT_NamedValue *)args->attributes)[0].name_size = 0)
AFTER(forgets_options, PJRT_Executable_GetCompileOptions, args->serialized_bytes_size = 0)
AFTER(donates_and_keeps, PJRT_Buffer_DonateWithControlDependency, args->buffer->deleted = false)
AFTER(casts_and_keeps, PJRT_Buffer_Bitcast, args->buffer->deleted = false)
INSTEAD(casts_any_size, PJRT_Buffer_Bitcast,
        PJRT_Buffer *from = args->buffer;
        args->out_buffer = heir(from, args->element_type, args->dims, args->num_dims, NULL);
        args->out_buffer->signal = from->signal)

/* Reports a raw copy as done before it is told the destination. */
AFTER(answers_early, PJRT_Buffer_CopyRawToHostFuture,
      args->event->signal = new_signal();
      args->event->signal->fired = true)

/* Reads every literal as if it lay by columns. */
BEFORE(literal_by_columns, PJRT_AsyncHostToDeviceTransferManager_TransferLiteral,
       static const int64_t order[] = {0, 1};
       PJRT_Buffer_MemoryLayout layout = {
           .tiled = {.minor_to_major = order, .minor_to_major_size = 2}};
       args->shape_layout = &layout)

/* Data that programs receive */
INSTEAD(stream_stays_empty, PJRT_CopyToDeviceStream_CurrentBytes, args->current_bytes = 0)
BEFORE(frees_chunks_twice, PJRT_CopyToDeviceStream_AddChunk,
       args->chunk->deleter(args->chunk->data, args->chunk->deleter_arg))
