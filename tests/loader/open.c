/* Opens plugins as its arguments say, by the public functions alone, and prints what comes of it.

   open WHAT, api=MAJOR.MINOR and verify for the next ones, threads=COUNT WHAT, print=VARIABLE, list, and
   merge NAME=TYPE:VALUE... with the plugin that was opened last, up to the end. */
#define _GNU_SOURCE
#include <inttypes.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "pjrt_loader.h"

static pjrt_loader_settings settings;
static pjrt_loader_plugin *plugin;
static const char *thread_what;
static pthread_barrier_t barrier;

static void print_error(char *error) {
  printf("error: %s\n", error);
  pjrt_loader_free_error(error);
}

static void open_plugin(const char *what) {
  char *error = NULL;
  pjrt_loader_plugin *opened = pjrt_loader_open(*what == 0 ? NULL : what, &settings, &error);
  if (opened == NULL) {
    print_error(error);
    return;
  }
  const pjrt_loader_entry *entry = pjrt_loader_describe(opened);
  printf("opened %s, platform %s, API %d.%d%s\n", entry->name, entry->platform, entry->api_major, entry->api_minor,
         opened == plugin ? ", again" : "");
  printf("%s\n%s\n%s\n", entry->manifest, entry->library, entry->reason);
  if (pjrt_loader_api(opened) == NULL) abort();
  pjrt_loader_close(plugin);
  plugin = opened;
}

static void *open_here(void *nothing) {
  (void)nothing;
  pthread_barrier_wait(&barrier);
  char *error = NULL;
  pjrt_loader_plugin *opened = pjrt_loader_open(thread_what, &settings, &error);
  if (opened == NULL) print_error(error);
  return opened;
}

static void open_in_threads(unsigned count, const char *what) {
  pthread_t threads[64];
  void *first = NULL, *opened;
  unsigned equal = 0;
  thread_what = what;
  pthread_barrier_init(&barrier, NULL, count);
  for (unsigned i = 0; i < count; i++)
    if (pthread_create(&threads[i], NULL, open_here, NULL) != 0) abort();
  for (unsigned i = 0; i < count; i++) {
    pthread_join(threads[i], &opened);
    if (i == 0) first = opened;
    equal += opened == first;
  }
  printf("%u of %u threads have the same plugin\n", equal, count);
}

static pjrt_loader_option parse(char *word, int64_t *numbers) {
  char *type = strchr(word, '=') + 1, *value = strchr(type, ':') + 1;
  type[-1] = value[-1] = 0;
  pjrt_loader_option option = {.name = word, .type = (pjrt_loader_type)9};
  if (strcmp(type, "string") == 0) option.type = PJRT_LOADER_STRING, option.value.string = value;
  if (strcmp(type, "int64") == 0) option.type = PJRT_LOADER_INT64, option.value.int64 = strtoll(value, NULL, 10);
  if (strcmp(type, "float") == 0) option.type = PJRT_LOADER_FLOAT, option.value.number = strtof(value, NULL);
  if (strcmp(type, "bool") == 0) option.type = PJRT_LOADER_BOOL, option.value.truth = *value == '1';
  if (strcmp(type, "int64_list") != 0) return option;
  option.type = PJRT_LOADER_INT64_LIST;
  option.value.int64_list = numbers;
  for (char *at = value; *at != 0; option.count++) {
    numbers[option.count] = strtoll(at, &at, 10);
    at += *at == ',';
  }
  return option;
}

static void print_option(const pjrt_loader_option *option) {
  printf("%s (%zu) = ", option->name, option->count);
  if (option->type == PJRT_LOADER_STRING) printf("\"%.*s\"", (int)option->count, option->value.string);
  if (option->type == PJRT_LOADER_INT64) printf("%" PRId64, option->value.int64);
  if (option->type == PJRT_LOADER_FLOAT) printf("%.9gf", (double)option->value.number);
  if (option->type == PJRT_LOADER_BOOL) printf("%s", option->value.truth ? "true" : "false");
  if (option->type == PJRT_LOADER_INT64_LIST) printf("[");
  for (size_t i = 0; option->type == PJRT_LOADER_INT64_LIST && i < option->count; i++)
    printf("%s%" PRId64, i > 0 ? "," : "", option->value.int64_list[i]);
  printf("%s\n", option->type == PJRT_LOADER_INT64_LIST ? "]" : "");
}

static void merge(int count, char **words) {
  pjrt_loader_option given[32];
  static int64_t numbers[32][8];
  char *error = NULL;
  for (int i = 0; i < count; i++) given[i] = parse(words[i], numbers[i]);
  pjrt_loader_options *options = pjrt_loader_create_options(plugin, given, (size_t)count, &error);
  if (options == NULL) {
    print_error(error);
    return;
  }
  for (size_t i = 0; i < options->count; i++) print_option(&options->options[i]);
  pjrt_loader_free_options(options);
}

static void list(void) {
  static const char *const states[] = {"usable", "hidden", "refused", "absent", "disabled"};
  static const char *const hardware[] = {"unknown", "present", "absent"};
  pjrt_loader_listing *listing = pjrt_loader_list(NULL);
  for (size_t i = 0; i < listing->count; i++) {
    const pjrt_loader_entry *each = &listing->entries[i];
    printf("%s | %s | %s | %s | %d | %s | %s | %s | %s | %s\n", states[each->state], each->name, each->platform,
           each->description, each->priority, hardware[each->hardware], each->manifest, each->library, each->reason,
           each->hint);
  }
  pjrt_loader_free_listing(listing);
}

int main(int count, char **words) {
  setvbuf(stdout, NULL, _IOLBF, 0);
  for (int i = 1; i < count; i++) {
    const char *word = words[i], *value = strchr(word, '=');
    if (strcmp(word, "list") == 0)
      list();
    else if (strcmp(word, "verify") == 0)
      settings.verify = 1;
    else if (strncmp(word, "api=", 4) == 0)
      sscanf(value, "=%d.%d", &settings.api_major, &settings.api_minor);
    else if (strncmp(word, "print=", 6) == 0)
      printf("%s\n", getenv(value + 1) == NULL ? "unset" : getenv(value + 1));
    else if (strncmp(word, "threads=", 8) == 0)
      open_in_threads((unsigned)atoi(value + 1), words[++i]);
    else if (strcmp(word, "merge") == 0)
      return merge(count - i - 1, words + i + 1), 0;
    else
      open_plugin(strcmp(word, "open") == 0 ? words[++i] : word);
  }
  return 0;
}
