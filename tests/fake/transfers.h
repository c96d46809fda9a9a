/* The stub's programs exchange data with the host on a thread of the plugin's own.

   With the word "exchange", each HLO output callback sees the first argument; then each send
   callback gets it in chunks of 8 bytes; then each receive callback gives the result, and the last
   one's stays. */

atomic_long stub_chunks;  /* chunks of both ways that were not freed yet */
atomic_long stub_streams; /* streams that are alive */
static atomic_long exchanging;

enum { GRANULE = 4 };
#ifndef EXCHANGED
#define EXCHANGED 4 /* the number of elements that are sent and received */
#endif

struct PJRT_CopyToDeviceStream {
  PJRT_Client *client;
  pthread_mutex_t mutex;
  pthread_cond_t changed;
  char *to;
  int64_t total, current, arrived;
  bool failed, destroyed;
};

static PJRT_CopyToDeviceStream *alive(PJRT_CopyToDeviceStream *stream) {
  if (stream->destroyed) die("use of a destroyed stream", DEAD);
  return stream;
}

FUNCTION(PJRT_CopyToDeviceStream_Destroy) {
  PJRT_CopyToDeviceStream *stream = alive(args->stream);
  pthread_mutex_lock(&stream->mutex);
  stream->destroyed = true;
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  stub_streams--;
  return NULL;
}

DOES(PJRT_CopyToDeviceStream_TotalBytes, args->total_bytes = alive(args->stream)->total)

DOES(PJRT_CopyToDeviceStream_GranuleSize,
     args->granule_size_in_bytes = alive(args->stream) != NULL ? GRANULE : 0)

DOES(PJRT_CopyToDeviceStream_CurrentBytes, args->current_bytes = alive(args->stream)->current)

typedef struct {
  PJRT_CopyToDeviceStream *stream;
  PJRT_Chunk chunk;
  int64_t offset;
  Signal *signal;
} Arrival;

/* Takes the bytes of a chunk late, so that a test fails if they were freed or changed before. */
static void *arrive(void *arg) {
  Arrival *arrival = arg;
  PJRT_CopyToDeviceStream *stream = arrival->stream;
  nap(0.01);
  pthread_mutex_lock(&stream->mutex);
  if (arrival->signal->code == 0) {
    memcpy(stream->to + arrival->offset, arrival->chunk.data, arrival->chunk.size);
    stream->arrived += (int64_t)arrival->chunk.size;
  }
  pthread_cond_signal(&stream->changed);
  pthread_mutex_unlock(&stream->mutex);
  for (int i = 0; i <= TWICE; i++)
    arrival->chunk.deleter(arrival->chunk.data, arrival->chunk.deleter_arg);
  stub_chunks--;
  exchanging--;
  fire(arrival->signal);
  return NULL;
}

FUNCTION(PJRT_CopyToDeviceStream_AddChunk) {
  PJRT_CopyToDeviceStream *stream = alive(args->stream);
  Arrival *arrival = calloc(1, sizeof(Arrival));
  *arrival = (Arrival){stream, *args->chunk, stream->current, new_signal()};
  pthread_mutex_lock(&stream->mutex);
  int64_t after = stream->current + (int64_t)args->chunk->size;
  if (after > stream->total || args->chunk->size % GRANULE != 0) {
    arrival->signal->code = 3;
    stream->failed = true;
  } else {
    stream->current = after;
  }
  pthread_mutex_unlock(&stream->mutex);
  args->transfer_complete = new_event(stream->client, arrival->signal);
  stub_chunks++;
  exchanging++;
  in_background(arrive, arrival);
  return NULL;
}

typedef struct {
  PJRT_Client *client;
  PJRT_SendCallbackInfo *sends;
  PJRT_RecvCallbackInfo *recvs;
  PJRT_HloOutputCallbackInfo *outputs;
  size_t num_sends, num_recvs, num_outputs;
  float in[EXCHANGED], *out;
  Signal *signal;
  char text[256];
} Exchange;

char stub_failure[256]; /* the text of the last error that a send callback gave */

static void free_sent(void *data, void *arg) {
  if (arg != &stub_chunks) die("another argument than the deleter's", DEAD);
  free(data);
  stub_chunks--;
}

static int send_all(Exchange *exchange, PJRT_SendCallbackInfo *info) {
  enum { CHUNK = 8 };
  for (size_t at = 0; at < sizeof exchange->in; at += CHUNK) {
    PJRT_Chunk chunk = {.size = CHUNK, .deleter = free_sent, .deleter_arg = &stub_chunks};
    chunk.data = memcpy(malloc(CHUNK), (char *)exchange->in + at, CHUNK);
    stub_chunks++;
    PJRT_Error *error = info->send_callback(&chunk, &error_maker, sizeof exchange->in,
                                            at + CHUNK == sizeof exchange->in, info->user_arg);
    if (error == NULL) continue;
    int code = ((Error *)error)->code;
    snprintf(stub_failure, sizeof stub_failure, "%s", ((Error *)error)->word);
    destroy(error, ERROR);
    return code;
  }
  return 0;
}

static int receive_all(Exchange *exchange, PJRT_RecvCallbackInfo *info) {
  PJRT_CopyToDeviceStream *stream = calloc(1, sizeof(PJRT_CopyToDeviceStream));
  stream->client = exchange->client;
  stream->to = (char *)exchange->out;
  stream->total = sizeof exchange->in;
  pthread_mutex_init(&stream->mutex, NULL);
  pthread_cond_init(&stream->changed, NULL);
  stub_streams++;
  info->recv_callback(stream, info->user_arg);
  pthread_mutex_lock(&stream->mutex);
  while (stream->arrived < stream->total && !stream->failed)
    pthread_cond_wait(&stream->changed, &stream->mutex); /* a mere destroy does not end this */
  bool failed = stream->failed;
  pthread_mutex_unlock(&stream->mutex);
  return failed ? 10 : 0;
}

/* Calls every callback again when all is over, as no plugin should. */
static void exchange_late(Exchange *exchange) {
  PJRT_CopyToDeviceStream *stream = calloc(1, sizeof(PJRT_CopyToDeviceStream));
  nap(0.3);
  for (size_t i = 0; i < exchange->num_outputs; i++)
    exchange->outputs[i].callback(1, 2, exchange->in, NULL, 0, PJRT_Buffer_Type_F32, (int64_t)i,
                                  exchange->outputs[i].user_arg);
  for (size_t i = 0; i < exchange->num_sends; i++) send_all(exchange, &exchange->sends[i]);
  for (size_t i = 0; i < exchange->num_recvs; i++)
    exchange->recvs[i].recv_callback(stream, exchange->recvs[i].user_arg);
  stub_late++;
}

static void *run_exchange(void *arg) {
  static const int64_t dims[] = {2, 2};
  Exchange *exchange = arg;
  int code = 0;
  if (strstr(exchange->text, "slow_exchange")) nap(0.3);
  if (strstr(exchange->text, "held_exchange")) hold();
  for (size_t i = 0; i < exchange->num_outputs; i++)
    exchange->outputs[i].callback(1, 2, exchange->in, dims, exchange->outputs[i].num_operands,
                                  PJRT_Buffer_Type_F32, (int64_t)i, exchange->outputs[i].user_arg);
  for (size_t i = 0; i < exchange->num_sends && code == 0; i++)
    code = send_all(exchange, &exchange->sends[i]);
  for (size_t i = 0; i < exchange->num_recvs && code == 0; i++)
    code = receive_all(exchange, &exchange->recvs[i]);
  exchange->signal->code = code;
  exchanging--;
  fire(exchange->signal);
  if (TWICE) exchange_late(exchange);
  return NULL;
}

/* Copies the lists of callbacks, which a host need not keep after the call. */
static void start_exchange(const char *text, PJRT_Client *client, const PJRT_ExecuteOptions *options,
                           const float *in, float *out, Signal *signal) {
  Exchange *exchange = calloc(1, sizeof(Exchange));
  snprintf(exchange->text, sizeof exchange->text, "%s", text);
  exchange->client = client;
  exchange->num_sends = options->num_send_ops;
  exchange->num_recvs = options->num_recv_ops;
  exchange->num_outputs = options->num_hlo_output_callbacks;
  exchange->outputs = copied(options->hlo_output_callbacks,
                             exchange->num_outputs * sizeof *exchange->outputs);
  if (exchange->num_sends > 0)
    exchange->sends =
        copied(options->send_callbacks[0], exchange->num_sends * sizeof *exchange->sends);
  if (exchange->num_recvs > 0)
    exchange->recvs =
        copied(options->recv_callbacks[0], exchange->num_recvs * sizeof *exchange->recvs);
  memcpy(exchange->in, in, sizeof exchange->in);
  exchange->out = out;
  exchange->signal = signal;
  exchanging++;
  if (strstr(text, "inline") != NULL)
    run_exchange(exchange);
  else
    in_background(run_exchange, exchange);
}

static void finish_exchanges(void) {
  while (exchanging > 0) nap(0.001);
}
