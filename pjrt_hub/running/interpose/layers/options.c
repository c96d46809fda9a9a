/* Replaces the create options of a client. A host sends options that its own plugin knows; another
   plugin refuses them, or dies of them. */
#include "options.h"

#include <string.h>

enum { MAX_RULES = 256 };

typedef struct {
  bool adds;              /* Whether the plugin gets the value; else the host's own may pass. */
  PJRT_NamedValue option;
} Rule;

static Rule rules[MAX_RULES];
static size_t num_rules;
static bool replaces;

/* Reads "1,2]". */
static void read_list(PJRT_NamedValue *option, const char *text) {
  int64_t *values = calloc(strlen(text), sizeof *values);
  if (values == NULL) abort();
  option->type = PJRT_NamedValue_kInt64List;
  option->int64_array_value = values;
  option->value_size = 0;
  for (char *end; *text != ']' && *text != 0; text = *end == ',' ? end + 1 : end) {
    values[option->value_size++] = strtoll(text, &end, 10);
    if (end == text) break;
  }
}

/* Reads a value, whose form tells its type: 4, 0.5, true, [1,2], 'text'. The text ends with a NUL
   and stays, because the plugin gets parts of it. */
static void read_value(PJRT_NamedValue *option, char *text) {
  size_t length = strlen(text);
  char *end;
  option->value_size = 1;
  if (strcmp(text, "true") == 0 || strcmp(text, "false") == 0) {
    option->type = PJRT_NamedValue_kBool;
    option->bool_value = *text == 't';
  } else if (*text == '[') {
    read_list(option, text + 1);
  } else if (option->int64_value = strtoll(text, &end, 10), end != text && *end == 0) {
    option->type = PJRT_NamedValue_kInt64;
  } else if (option->float_value = strtof(text, &end), end != text && *end == 0) {
    option->type = PJRT_NamedValue_kFloat;
  } else {
    bool quoted = length > 1 && *text == '\'' && text[length - 1] == '\'';
    option->type = PJRT_NamedValue_kString;
    option->string_value = text + quoted;
    option->value_size = length - 2 * quoted;
  }
}

/* Returns the end of a rule. A text may hold a semicolon. */
static char *end_of(char *rule) {
  bool quoted = false;
  for (; *rule != 0 && (quoted || *rule != ';'); rule++) quoted ^= *rule == '\'';
  return rule;
}

void options_start(const char *text) {
  if (text == NULL) return;
  size_t nbytes = strlen(text) + 1;
  char *at = malloc(nbytes); /* It is never freed. */
  if (at == NULL) abort();
  memcpy(at, text, nbytes);
  replaces = true;
  while (*at != 0 && num_rules < MAX_RULES) {
    char *end = end_of(at), *next = *end != 0 ? end + 1 : end, *value;
    *end = 0;
    Rule *rule = &rules[num_rules++];
    value = strchr(at, '=');
    *rule = (Rule){.adds = value != NULL, .option.struct_size = PJRT_NamedValue_STRUCT_SIZE};
    rule->option.name = at;
    rule->option.name_size = value != NULL ? (size_t)(value - at) : strlen(at);
    if (value != NULL) read_value(&rule->option, value + 1);
    at = next;
  }
}

static bool passes(const PJRT_NamedValue *option) {
  for (const Rule *rule = rules; rule < rules + num_rules; rule++)
    if (!rule->adds && rule->option.name_size == option->name_size &&
        memcmp(rule->option.name, option->name, option->name_size) == 0)
      return true;
  return false;
}

HostOptions options_replace(PJRT_Client_Create_Args *args) {
  HostOptions own = {args->create_options, args->num_options};
  if (!replaces) return own;
  PJRT_NamedValue *options = calloc(own.num_options + num_rules + 1, sizeof *options);
  if (options == NULL) abort();
  size_t count = 0;
  for (size_t i = 0; i < own.num_options; i++)
    if (passes(&own.options[i])) options[count++] = own.options[i];
  for (const Rule *rule = rules; rule < rules + num_rules; rule++)
    if (rule->adds) options[count++] = rule->option;
  args->create_options = options;
  args->num_options = count;
  return own;
}

void options_restore(PJRT_Client_Create_Args *args, HostOptions own) {
  if (replaces) free((void *)args->create_options);
  args->create_options = own.options;
  args->num_options = own.num_options;
}
