/* Reads the settings in PJRT_HUB_DISCRETE: "seed=7,capacity=64MiB,hold". */
#include <stdio.h>

#include "discrete.h"

Settings settings = {.platform = "discrete", .window = 8};

static bool is_key(const char *at, size_t length, const char *key) {
  return strlen(key) == length && memcmp(at, key, length) == 0;
}

static uint64_t number(const char *at) {
  char *end;
  uint64_t value = strtoull(at, &end, 10);
  if (strncmp(end, "KiB", 3) == 0) value <<= 10;
  if (strncmp(end, "MiB", 3) == 0) value <<= 20;
  if (strncmp(end, "GiB", 3) == 0) value <<= 30;
  return value;
}

void settings_read(const char *text) {
  for (const char *at = text, *end; at != NULL && *at != 0; at = *end != 0 ? end + 1 : end) {
    end = at + strcspn(at, ",");
    size_t length = strcspn(at, "=,");
    const char *value = at + length + (at[length] == '=');
    size_t nbytes = (size_t)(end - value);
    if (is_key(at, length, "seed")) {
      settings.seed = number(value);
    } else if (is_key(at, length, "capacity")) {
      settings.capacity = number(value);
    } else if (is_key(at, length, "window")) {
      settings.window = (unsigned)number(value);
    } else if (is_key(at, length, "silence")) {
      settings.silence = number(value);
    } else if (is_key(at, length, "hold")) {
      settings.hold = true;
    } else if (is_key(at, length, "prompt")) {
      settings.prompt = true;
    } else if (is_key(at, length, "tiled")) {
      settings.tiled = true;
    } else if (is_key(at, length, "platform") && nbytes < sizeof settings.platform) {
      memcpy(settings.platform, value, nbytes);
      settings.platform[nbytes] = 0;
    } else if (length > 0) {
      fprintf(stderr, "pjrt-hub: PJRT_HUB_DISCRETE: there is no %.*s\n", (int)(end - at), at);
    }
  }
}
