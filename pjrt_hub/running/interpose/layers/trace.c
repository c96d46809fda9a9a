/* The layer that records each call, before and after, with what its arguments point at. */
#include <dlfcn.h>

#include "recording.h"

enum { TEXT = 256, ARRAY = 2048, DEEPEST = 4 };

/* Copies memory into the record, as much as fits. */
static void region(Draft *draft, const void *from, size_t nbytes, size_t most) {
  size_t room = (size_t)(draft->end - draft->at);
  if (from == NULL || nbytes == 0 || room < sizeof(Region) + 8) return;
  if (most > room - sizeof(Region)) most = (room - sizeof(Region)) & ~(size_t)7;
  Region head = {(uintptr_t)from, (uint32_t)(nbytes < most ? nbytes : most),
                 (uint32_t)(nbytes < UINT32_MAX ? nbytes : UINT32_MAX)};
  append(draft, &head, sizeof head);
  memcpy(draft->at, from, head.nbytes); /* append() could read past the end. */
  draft->at += (head.nbytes + 7) & ~7u;
}

static void contents(Draft *draft, const Call *call, const Shape *shape, const char *base,
                     size_t size, unsigned directions, int depth);

static size_t limit(const Pointer *pointer) { return pointer->element == 1 ? TEXT : ARRAY; }

static void elements(Draft *draft, const Call *call, const Pointer *pointer, const char *target,
                     size_t count, int depth) {
  const Shape *shape = pointer->shape;
  if (shape == NULL) {
    region(draft, target, count * pointer->element, limit(pointer));
    return;
  }
  size_t stride = shape->nbytes;
  region(draft, target, pointer->form == ONE ? known_size(shape, target) : count * stride, ARRAY);
  for (size_t i = 0; i < count && i * stride < ARRAY; i++) {
    const char *each = target + i * stride;
    contents(draft, call, shape, each, known_size(shape, each), IN | OUT | INOUT, depth + 1);
  }
}

static void rows(Draft *draft, const Pointer *pointer, const char *target, size_t count,
                 const char *base, size_t inner) {
  const char *const *row = (const char *const *)target;
  const size_t *lengths = pointer->form == RAGGED ? pointer_at(base, pointer->inner_at) : NULL;
  region(draft, target, count * sizeof *row, ARRAY);
  if (lengths != NULL) region(draft, lengths, count * sizeof *lengths, ARRAY);
  if (row == NULL || (pointer->form == RAGGED && lengths == NULL)) return;
  for (size_t i = 0; i < count && i < ARRAY / sizeof *row; i++)
    region(draft, row[i], (lengths != NULL ? lengths[i] : inner) * pointer->element,
           limit(pointer));
}

static void follow(Draft *draft, const Call *call, const Pointer *pointer, const char *base,
                   int depth) {
  const char *target = pointer_at(base, pointer->at);
  size_t count = count_of(pointer, base);
  if (target == NULL || count == 0) return;
  const size_t *lengths;
  size_t sum = 0;
  switch ((Form)pointer->form) {
    case ONE:
    case COUNTED:
      elements(draft, call, pointer, target, count, depth);
      break;
    case ROWS:
      rows(draft, pointer, target, count, base, word_at(base, pointer->inner_at));
      break;
    case RAGGED:
      rows(draft, pointer, target, count, base, 0);
      break;
    case OUTPUTS:
      rows(draft, pointer, target, count, base,
           executable_of(call->plugin, ((PJRT_LoadedExecutable_Execute_Args *)call->args)->executable)
               .outputs);
      break;
    case TERMINATED:
      region(draft, target, strnlen(target, TEXT - 1) + 1, TEXT);
      break;
    case SUM:
      lengths = pointer_at(base, pointer->inner_at);
      for (size_t i = 0; lengths != NULL && i < count; i++) sum += lengths[i];
      region(draft, lengths, count * sizeof *lengths, ARRAY);
      region(draft, target, sum * pointer->element, limit(pointer));
  }
}

static void contents(Draft *draft, const Call *call, const Shape *shape, const char *base,
                     size_t size, unsigned directions, int depth) {
  if (depth > DEEPEST) return;
  for (unsigned i = 0; i < shape->num_pointers; i++) {
    const Pointer *pointer = &shape->pointers[i];
    if (!(pointer->direction & directions) || pointer->at + sizeof(void *) > size) continue;
    /* Fields that an older plugin does not set may hold anything. */
    if ((directions & OUT) && pointer->since > call->plugin->minor) continue;
    if (is_valid(pointer, base)) follow(draft, call, pointer, base, depth);
  }
}

static void before(Call *call) {
  Draft to = draft(RECORD_ENTER, call->plugin, number_of(call));
  if (to.record == NULL) return;
  const Shape *args = call->function->args;
  append_word(&to, call->number);
  if (args->first_at < call->size) append(&to, call->args + args->first_at, call->size - args->first_at);
  fix(&to);
  if (args->num_pointers != 0) contents(&to, call, args, call->args, call->size, IN, 0);
  commit(&to, ticks());
}

static void after(Call *call) {
  uint64_t now = ticks();
  unsigned type = call->answered ? RECORD_ANSWERED : call->error ? RECORD_FAILED : RECORD_LEAVE;
  Draft to = draft(type, call->plugin, number_of(call));
  if (to.record == NULL) return;
  const Function *function = call->function;
  if (type == RECORD_FAILED) {
    append_word(&to, (uintptr_t)call->error);
    fix(&to);
  } else if (type == RECORD_LEAVE && function->out_at != 0 && function->out_at < call->size) {
    append(&to, call->args + function->out_at, call->size - function->out_at);
    fix(&to);
    if (function->args->num_pointers != 0)
      contents(&to, call, function->args, call->args, call->size, OUT | INOUT, 0);
  }
  commit(&to, now);
}

static void told(unsigned type, const Upcall *upcall, PJRT_Error *error) {
  Draft to = draft(type, upcall->plugin, FN_PJRT_Event_OnReady);
  if (to.record == NULL) return;
  append_word(&to, upcall->number);
  append_word(&to, (uintptr_t)upcall->event);
  append_word(&to, (uintptr_t)error);
  fix(&to);
  commit(&to, ticks());
}

static void upcall(const Upcall *upcall, PJRT_Error *error) { told(RECORD_UPCALL, upcall, error); }
static void returned(const Upcall *upcall) { told(RECORD_RETURN, upcall, NULL); }

const Layer trace_layer = {"trace", before, after, upcall, returned, NULL};

void record_plugin(const Plugin *plugin) {
  if (!recording()) return;
  Draft to = draft(RECORD_PLUGIN, plugin, 0);
  if (to.record == NULL) return;
  Dl_info info;
  void *inside = (void *)plugin->real[FN_PJRT_Plugin_Initialize];
  const char *path = inside != NULL && dladdr(inside, &info) != 0 ? info.dli_fname : "";
  append_word(&to, (uint64_t)plugin->api->pjrt_api_version.major_version);
  append_word(&to, plugin->minor);
  fix(&to);
  region(&to, path, strlen(path), TEXT * 16);
  commit(&to, ticks());
}

void record_end(const Plugin *plugin, uint64_t number, int device, const char *name) {
  uint64_t now = ticks();
  Draft to = draft(RECORD_END, plugin, FN_PJRT_LoadedExecutable_Execute);
  if (to.record == NULL) return;
  append_word(&to, number);
  append_word(&to, (uint64_t)device);
  fix(&to);
  region(&to, name, strlen(name), TEXT);
  commit(&to, now);
}

void record_finding(unsigned code, const Call *call, uint64_t handle, const char *text) {
  Draft to = draft(RECORD_FINDING, call->plugin, number_of(call));
  if (to.record == NULL) return;
  append_word(&to, call->number);
  append_word(&to, code);
  append_word(&to, handle);
  fix(&to);
  region(&to, text, strlen(text), TEXT * 16);
  commit(&to, ticks());
}
