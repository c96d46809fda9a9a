/* Five create options, one of each type, and how a plugin answers those that it does not like.

   STRANGER is a statement that runs if the name of `given` is unknown, MISTYPED if its type is not
   `wanted`, and VALUE if the option is right. REFUSE(form) makes an error of the words of the form,
   which may use the name, the wanted type and the type that was found, in this order. */
#ifndef STRANGER
#define STRANGER (void)0
#endif
#ifndef MISTYPED
#define MISTYPED (void)0
#endif
#ifndef VALUE
#define VALUE (void)0
#endif

#define REFUSE(form) return refuse(form, given, WORDS[wanted], WORDS[given->type])

static const char *const WORDS[] = {"string", "int64", "int64_list", "float", "bool"};
static const char *const OPTIONS[] = {"stub_string", "stub_int64", "stub_int64_list", "stub_float",
                                      "stub_bool"};

static PJRT_Error *refuse(const char *form, const PJRT_NamedValue *given, const char *wanted,
                          const char *found) {
  char name[64] = "", *text = NULL;
  memcpy(name, given->name, given->name_size < 63 ? given->name_size : 63);
  if (asprintf(&text, form, name, wanted, found) < 0) abort();
  return fail(3, text);
}

static PJRT_Error *look_at_options(const PJRT_Client_Create_Args *args) {
  for (size_t i = 0; i < args->num_options; i++) {
    const PJRT_NamedValue *given = &args->create_options[i];
    int wanted = 0;
    while (wanted < 5 && (given->name_size != strlen(OPTIONS[wanted]) ||
                          memcmp(given->name, OPTIONS[wanted], given->name_size) != 0))
      wanted++;
    if (wanted == 5) {
      wanted = 0;
      STRANGER;
    } else if ((int)given->type != wanted) {
      MISTYPED;
    } else {
      VALUE;
    }
  }
  return NULL;
}
