/* Takes functions and extensions away from plugins, to find out what a host does without them. A
   function is NULL in the table or answers UNIMPLEMENTED; an extension is not in the chain. */
#include <stdio.h>

#include "layers.h"

typedef enum { PRESENT, ABSENT, UNIMPLEMENTED } Lack;

static Lack lacks[NUM_FUNCTIONS];
static bool lacks_node[NUM_EXTENSIONS];

/* Answers a call to a function that was taken away. Returns false if the plugin has to answer. */
bool without_answer(unsigned function, void *args, PJRT_Error **error) {
  const Function *called = &functions[function];
  char text[112];
  *error = NULL;
  if (lacks[function] == PRESENT) return false;
  if (called->returns_error) {
    int wrote = snprintf(text, sizeof text, "%s is taken away", called->name);
    *error = refuse(PJRT_Error_Code_UNIMPLEMENTED, text, (size_t)wrote);
  } else if (called->out_at != 0) { /* The function cannot fail, so its results are zeros. */
    size_t size = known_size(called->args, args);
    if (called->out_at < size) memset((char *)args + called->out_at, 0, size - called->out_at);
  }
  return true;
}

bool without_function(unsigned function) { return lacks[function] == ABSENT; }

bool without_node(unsigned type) {
  for (unsigned i = 0; i < NUM_EXTENSIONS; i++)
    if (extensions[i].type == type) return lacks_node[i];
  return false;
}

static bool take(const char *name, size_t length, Lack lack) {
  for (unsigned i = 0; i < NUM_FUNCTIONS; i++)
    if (strlen(functions[i].name) == length && memcmp(functions[i].name, name, length) == 0) {
      lacks[i] = lack;
      return true;
    }
  for (unsigned i = 0; i < NUM_EXTENSIONS; i++)
    if (strlen(extensions[i].name) == length && memcmp(extensions[i].name, name, length) == 0)
      return lacks_node[i] = true;
  return false;
}

/* Reads "PJRT_Buffer_IsOnCpu:null,PJRT_Buffer_Delete,Layouts". */
void without_start(const char *names) {
  static const char null[] = ":null";
  size_t ending = sizeof null - 1;
  for (const char *at = names, *end; at != NULL && *at != 0; at = *end != 0 ? end + 1 : end) {
    end = at + strcspn(at, ",");
    size_t length = (size_t)(end - at);
    bool absent = length > ending && memcmp(end - ending, null, ending) == 0;
    if (absent) length -= ending;
    if (!take(at, length, absent ? ABSENT : UNIMPLEMENTED))
      fprintf(stderr, "pjrt-hub: PJRT_HUB_WITHOUT: there is no %.*s\n", (int)length, at);
  }
}
