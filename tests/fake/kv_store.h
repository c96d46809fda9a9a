/* The stub's use of a key-value store: it joins the other processes while a client is made, and its
   own threads ask the questions of a test. */

static PJRT_Client_Create_Args kv; /* those of the newest client with callbacks */
static int64_t node_id, num_nodes;

enum { GET, TRY_GET, PUT };

typedef struct {
  int operation, timeout_in_ms;
  const char *key;
  size_t key_size;
  char *value; /* the value to put, or room for an answer */
  size_t value_size;
  int code; /* the error's code, or 0 */
  char text[256];
} Question;

/* Declares `args`, the arguments of a callback for the key of `question`. */
#define ABOUT(type, way)                                                                 \
  type args = {.key = question->key, .key_size = question->key_size,                     \
               .callback_error = &error_maker, .user_arg = kv.kv_##way##_user_arg}

static void ask(Question *question) {
  PJRT_Error *error = NULL;
  void (*deleter)(char *) = NULL;
  char *value = NULL;
  size_t size = 0;
  if (question->operation == GET) {
    ABOUT(PJRT_KeyValueGetCallback_Args, get);
    args.timeout_in_ms = question->timeout_in_ms;
    error = kv.kv_get_callback(&args);
    value = args.value, size = args.value_size, deleter = args.value_deleter_callback;
  } else if (question->operation == TRY_GET) {
    ABOUT(PJRT_KeyValueTryGetCallback_Args, try_get);
    error = kv.kv_try_get_callback(&args);
    value = args.value, size = args.value_size, deleter = args.value_deleter_callback;
  } else {
    ABOUT(PJRT_KeyValuePutCallback_Args, put);
    args.value = question->value, args.value_size = question->value_size;
    error = kv.kv_put_callback(&args);
  }
  question->code = 0;
  if (error != NULL) {
    question->code = ((Error *)error)->code;
    snprintf(question->text, sizeof question->text, "%s", ((Error *)error)->word);
    destroy(error, ERROR);
  } else if (question->operation != PUT) {
    if (size > question->value_size) die("too large an answer", ERROR);
    memcpy(question->value, value, size);
    question->value_size = size;
    deleter(value);
  }
}

static void *ask_once(void *question) {
  ask(question);
  return NULL;
}

static void *ask_always(void *question) {
  for (;;) {
    ask(question);
    if (((Question *)question)->code == 1) nap(0.001); /* it was cancelled: Python ends */
  }
  return NULL;
}

/* Asks from a thread of the plugin, and waits for that thread. */
void stub_ask(Question *question) {
  pthread_t thread;
  pthread_create(&thread, NULL, ask_once, question);
  pthread_join(thread, NULL);
}

/* Asks from a thread of the plugin until the process ends. */
void stub_ask_always(Question *question) { in_background(ask_always, question); }

static int64_t option(const PJRT_Client_Create_Args *args, const char *name, int64_t otherwise) {
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *value = &args->create_options[i];
    if (value->name_size == strlen(name) && memcmp(value->name, name, value->name_size) == 0)
      return value->int64_value;
  }
  return otherwise;
}

/* Joins the others as real plugins do: puts this process's value, and waits for all values. */
static PJRT_Error *join(const PJRT_Client_Create_Args *args) {
  if (args->kv_get_callback == NULL || args->kv_put_callback == NULL ||
      args->kv_try_get_callback == NULL)
    return NULL;
  kv = *args;
  node_id = option(args, "node_id", 0);
  num_nodes = option(args, "num_nodes", 1);
  for (int64_t step = -1; step < num_nodes; step++) {
    char key[32], value[32];
    Question question = {.key = key, .value = value, .timeout_in_ms = 20000};
    question.operation = step < 0 ? PUT : GET;
    question.key_size = (size_t)sprintf(key, "node:%ld", (long)(step < 0 ? node_id : step));
    question.value_size = step < 0 ? (size_t)sprintf(value, "%s", key) : sizeof value;
    stub_ask(&question);
    if (question.code != 0) return fail(question.code, strdup(question.text));
    if (question.value_size != question.key_size || memcmp(key, value, question.key_size) != 0)
      return fail(13, "another value than was put");
  }
  return NULL;
}
