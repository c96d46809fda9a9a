/* Feeds the loader's parsers with seeds that it changes itself: fuzz SECONDS START FILE..., one seed in each file.

   It includes the loader's source, whose functions nobody else reaches. A broken promise aborts, and so does whatever
   the sanitizers find. With `memory` in place of SECONDS, it reads each seed again and again, and lets the first, the
   second, the third... allocation fail. */
#define _GNU_SOURCE
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <time.h>

static long allocations, failing = -1;

static void *allocate_or_fail(size_t size) { return allocations++ == failing ? NULL : malloc(size); }

#define malloc allocate_or_fail
#include "pjrt_loader.c"
#undef malloc

enum { MOST_SEEDS = 2000 };

typedef struct {
  char *bytes;
  size_t size;
} Seed;

static Seed seeds[MOST_SEEDS], input;
static size_t seed_count;
static uint64_t state;
static const char *const words[] = {
    "[[library]]\n", "[options.a]\n", "[probe]\n", "[[preload]]\n", "[environment]\n", "[api]\n", "path = ",
    "name = ", "schema = 1\n", "type = ", "default = ", "minimum = ", "maximum = ", "kind = ", "\"", "'", "[",
    "]", "{", "}", "=", ",", "\\u0000", "\\U0010FFFF", "\\", "\r\n", "\n", "-9223372036854775808", "1e999",
    "0.1", "true", "..", "\xef\xbb\xbf", "\xf4\x8f\xbf\xbf", "\xed\xa0\x80", "#", "linux-x86_64-glibc2.17",
    "\"0.81\"", "*", "simd_count 1", " 550.54.15 "};

static size_t number(size_t below) {
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return below == 0 ? 0 : (size_t)(state >> 11) % below;
}

/* Replaces a part of the input. */
static void replace(size_t at, size_t size, const char *by, size_t by_size) {
  if (input.size - size + by_size > MOST_BYTES) return;
  memmove(input.bytes + at + by_size, input.bytes + at + size, input.size - at - size);
  memcpy(input.bytes + at, by, by_size);
  input.size += by_size - size;
}

static void mutate(void) {
  size_t at = number(input.size + 1), size = number(input.size - at + 1), kind = number(7);
  const Seed *other = &seeds[number(seed_count)];
  size_t from = number(other->size + 1), part = number(other->size - from + 1);
  const char *word = words[number(sizeof words / sizeof *words)];
  char letter = (char)number(256);
  if (size > 40 && number(8) > 0) size = number(40);
  if (part > 200 && number(8) > 0) part = number(200);
  if (kind == 0) replace(at, size, "", 0);
  if (kind == 1) replace(at, number(2) * size, other->bytes + from, part);
  if (kind == 2 || kind == 3) replace(at, number(2) * size, word, strlen(word));
  if (kind == 4 && at < input.size) input.bytes[at] = letter;
  if (kind == 5) replace(at, 0, &letter, 1);
  if (kind == 6 && at < input.size) input.bytes[at] = (char)(input.bytes[at] ^ 1 << number(8));
}

static void must(bool is_so, const char *promise) {
  if (is_so) return;
  fprintf(stderr, "broken: %s\n", promise);
  abort();
}

static const char *text;
static size_t text_size;

static void finish(Work *work) {
  close_folder(work);
  release(&work->borrowed);
  release(&work->kept);
}

static void read_input(Work *work) {
  char *bytes = memcpy(borrow(work, text_size + 1), text, text_size);
  Manifest *manifest = add_entry(work, "toy", "/etc/pjrt/plugins/toy.toml");
  manifest->folder = "/nowhere";
  read_keys(work, read_text(work, bytes, text_size), manifest);
}

static void merge_input(Work *work) {
  merge_options(work);
  must(work->result->options.count <= 64, "no more options than there are");
}

/* Reads the input as a manifest. Returns whether it is one. */
static bool read_manifest_text(void) {
  Work work = {.what = NULL};
  bool is_one = attempt(&work, read_input);
  must(is_one || *work.refusal != 0, "a reason");
  if (!is_one)
    for (const char *at = work.refusal; *at != 0; at++) must(*at >= ' ' && *at <= '~', "a reason in plain ASCII");
  if (is_one) {
    must(is_name(work.last->entry.platform), "a platform");
    must(work.last->entry.priority >= 0 && work.last->entry.priority <= 1000, "a priority");
    pjrt_loader_option given[] = {{.name = "a", .type = PJRT_LOADER_INT64, .value.int64 = 7},
                                  {.name = "b", .type = PJRT_LOADER_STRING, .value.string = "c"}};
    pjrt_loader_plugin plugin = {.manifest = work.last, .version = to_version(0, 90)};
    Work merging = {.plugin = &plugin, .given = given, .count = number(3)};
    attempt(&merging, merge_input);
    finish(&merging);
  }
  finish(&work);
  return is_one;
}

/* Reads the input as what the other parsers read, which all take a text that ends with NUL. */
static void read_other(Work *work) {
  char *bytes = memcpy(take(work, text_size + 1), text, text_size);
  must(strlen(find_version(work, bytes)) <= text_size, "a version of the text");
  must(strlen(quote(work, bytes)) <= MOST_SHOWN * 10 + 5, "a short text");
  must(strlen(join_path(work, "/a", bytes)) <= text_size + 4, "a short path");
  matches("a_long_name_of_32_letters_as_all", bytes);
  parse_target(bytes);
  setenv("FUZZ", bytes, 1);
  Names parts = split(work, "FUZZ", ",", " \t\n\v\f\r");
  for (size_t i = 0; i < parts.count; i++) must(strchr(parts.items[i], ',') == NULL, "a part without a comma");
}

static void fail_each_allocation(void) {
  for (size_t i = 0; i < seed_count; i++) {
    text = seeds[i].bytes;
    text_size = seeds[i].size;
    failing = -1;
    allocations = 0;
    read_manifest_text();
    long count = allocations;
    for (failing = 0; failing < count; failing++) {
      allocations = 0;
      read_manifest_text();
    }
  }
  printf("%zu seeds, each allocation of each failed\n", seed_count);
}

int main(int count, char **given) {
  for (int i = 3; i < count && seed_count < MOST_SEEDS; i++) {
    FILE *file = fopen(given[i], "rb");
    Seed *seed = &seeds[seed_count++];
    seed->bytes = calloc(1, MOST_BYTES + 1);
    seed->size = fread(seed->bytes, 1, MOST_BYTES, file);
    fclose(file);
  }
  if (strcmp(given[1], "memory") == 0) return fail_each_allocation(), 0;
  input.bytes = calloc(1, MOST_BYTES + 1);
  state = strtoull(given[2], NULL, 10) * 2654435761u + 88172645463325252u;
  long runs = 0, taken = 0;
  for (time_t end = time(NULL) + atol(given[1]); time(NULL) < end; runs++) {
    const Seed *seed = &seeds[number(seed_count)];
    input.size = seed->size;
    memcpy(input.bytes, seed->bytes, input.size);
    for (size_t steps = number(8); steps > 0; steps--) mutate();
    /* Of its own size, so that the sanitizers see a read behind its end. */
    text_size = input.size;
    char *exact = malloc(text_size + 1);
    text = memcpy(exact, input.bytes, text_size);
    taken += read_manifest_text();
    Work work = {.what = NULL};
    attempt(&work, read_other);
    finish(&work);
    free(exact);
  }
  printf("%ld runs, %ld manifests taken\n", runs, taken);
  return 0;
}
