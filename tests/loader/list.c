/* Prints what the loader finds, in the lines that manifest_trees.py describes.

   Each request is a folder that stands for "/", the variables as NAME=VALUE, and an empty line; an empty line ends
   each answer, too. It includes the loader's source, because only that knows what is loaded before a plugin. */
static char root[4096];
#define PJRT_LOADER_ROOT root
#include "pjrt_loader.c"

static void print_all(Work *work) {
  static const char *const words[] = {"usable", "hidden", "refused", "absent", "disabled"};
  find_manifests(work);
  for (const Manifest *each = work->first; each != NULL; each = each->next) {
    const pjrt_loader_entry *entry = &each->entry;
    bool is_absent = entry->hardware == PJRT_LOADER_HARDWARE_ABSENT;
    printf("%s ", words[entry->state]);
    if (entry->state == PJRT_LOADER_REFUSED)
      printf("%s %s\n", entry->manifest, entry->reason);
    else if (entry->state == PJRT_LOADER_HIDDEN)
      printf("%s %s\n", entry->name, entry->manifest);
    else if (entry->state != PJRT_LOADER_USABLE)
      printf("%s %s\n", entry->name, entry->reason);
    else
      printf("%s %s %d %s %s\n", entry->name, entry->platform, entry->priority, is_absent ? "absent" : "present",
             entry->library);
    if (entry->state != PJRT_LOADER_USABLE) continue;
    for (size_t i = 0; i < each->before.count; i++) printf("preload %s\n", each->before.items[i]);
    for (size_t i = 0; i < each->defaults.count; i++) printf("set %s\n", each->defaults.items[i]);
  }
  puts("");
  fflush(stdout);
}

int main(void) {
  char line[8192];
  while (fgets(root, sizeof root, stdin) != NULL) {
    root[strcspn(root, "\n")] = 0;
    clearenv();
    while (fgets(line, sizeof line, stdin) != NULL && *line != '\n') {
      char *value = strchr(line, '=');
      value[strcspn(value, "\n")] = 0;
      *value = 0;
      setenv(line, value + 1, 1);
    }
    Work work = {.what = NULL};
    bool is_done = run(&work, print_all, NULL);
    release(&work.kept);
    if (!is_done) return 1;
  }
  return 0;
}
