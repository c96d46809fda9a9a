/* Visits the handles among a call's arguments and results. */
#include "layers.h"

void each_handle(const Plugin *plugin, unsigned function, char *args, Direction direction,
                 unsigned kind, size_t outputs, Visit visit, void *context) {
  const Function *called = &functions[function];
  size_t size = known_size(called->args, args);
  for (unsigned i = 0; i < called->num_handles; i++) {
    const Handle *row = &called->handles[i];
    if (row->direction != direction || row->at + sizeof(void *) > size) continue;
    if (kind != KIND_NONE && row->kind != kind) continue;
    /* Older plugins do not set newer results. */
    if (direction == OUT && row->since > plugin->minor) continue;
    void **slots = pointer_at(args, row->at);
    if (row->form == ONE || (slots == NULL && row->required)) {
      visit(context, row, (void **)(void *)(args + row->at));
      continue;
    }
    size_t count = word_at(args, row->count_at);
    for (size_t at = 0; slots != NULL && at < count; at++) {
      if (row->form == COUNTED) {
        visit(context, row, &slots[at]);
        continue;
      }
      size_t inner = row->form == ROWS ? word_at(args, row->inner_at) : outputs;
      void **list = slots[at];
      for (size_t k = 0; list != NULL && k < inner; k++) visit(context, row, &list[k]);
    }
  }
}
