/* The stub's extension Callback: it remembers what was registered, and announces when it is told.
   Use it with -DEXTENSIONS=&callback_extension.base. */

static struct {
  PJRT_Client *client;
  PJRT_Callback_Type type;
  PJRT_Callback_Function call;
  void *user_arg;
} registered[16];
static int num_registered;

FUNCTION(PJRT_Callback_RegisterCallback) {
  if (args->type == PJRT_Callback_Type_Unknown) return fail(12, "no such type");
  leave(enter(args->client, CLIENT));
  registered[num_registered].client = args->client;
  registered[num_registered].type = args->type;
  registered[num_registered].call = args->callback;
  registered[num_registered++].user_arg = args->user_arg;
  return NULL;
}

static void *announce(void *arg) {
  PJRT_Callback_InvokeCallback_Args *args = arg;
  for (int i = 0; i < num_registered; i++)
    if (registered[i].type == args->type && registered[i].client == args->client)
      registered[i].call(args->args, registered[i].user_arg);
  return NULL;
}

/* On a thread of the plugin, which it waits for. */
FUNCTION(PJRT_Callback_InvokeCallback) {
  PJRT_Client *client = enter(args->client, CLIENT);
  pthread_t thread;
  pthread_create(&thread, NULL, announce, args);
  pthread_join(thread, NULL);
  leave(client);
  return NULL;
}

static PJRT_Callback_Extension callback_extension = {
    .base = {PJRT_Callback_Extension_STRUCT_SIZE, PJRT_Extension_Type_Callback, NULL},
    .register_callback = PJRT_Callback_RegisterCallback,
    .invoke_callback = PJRT_Callback_InvokeCallback,
};
