/* Reports the validation layer's findings into the recording, or to stderr if there is none. */
#include <stdarg.h>
#include <stdio.h>

#include "objects.h"

static const char *const meanings[] = {
    [DOUBLE_DESTROY] = "destroyed twice",
    [USE_AFTER_DESTROY] = "used after it was destroyed",
    [USE_AFTER_DELETE] = "used after it was deleted",
    [USE_AFTER_DONATION] = "used after it was donated",
    [LEAK] = "not destroyed before its client",
    [NO_STRUCT_SIZE] = "struct_size is 0",
    [SHORT_STRUCT] = "struct_size is smaller than the struct ever was",
    [ANOTHER_CLIENT] = "belongs to another client than the call",
    [ERROR_LEAK] = "error never destroyed",
    [EVENT_LEAK] = "event never destroyed",
    [DESTROYED_IN_USE] = "destroyed while another call uses it",
    [NULL_FIELD] = "must not be NULL",
    [ANOTHER_KIND] = "is a handle of another kind",
    [PENDING_ERROR] = "asked for its error while it is pending",
    [CLIENT_GONE] = "used after its client was destroyed",
    [LENT_DESTROYED] = "destroyed, but it belongs to its client",
    [STALE_EXECUTABLE] = "used after the loaded executable that it is a view of",
    [NO_PLACE] = "neither device nor memory is given",
    [STRIDES] = "there are not as many byte strides as dimensions",
    [ELEMENT_TYPE] = "no element type that the plugin knows",
    [BUFFER_INDEX] = "the transfer manager has no such buffer left",
    [FORKED] = "used in a forked child of the process that made it",
    [ANOTHER_PLUGIN] = "belongs to another plugin",
    [CALLED_TWICE] = "called back a second time",
    [NULL_RESULT] = "NULL without an error",
    [GIVEN_TWICE] = "given a second time before it was destroyed",
    [ERROR_CODE] = "an error of no code that there is",
};

typedef struct {
  char text[600];
  size_t length;
} Text;

static __attribute__((format(printf, 2, 3))) void say(Text *text, const char *format, ...) {
  va_list arguments;
  va_start(arguments, format);
  size_t room = sizeof text->text - text->length;
  int wrote = vsnprintf(text->text + text->length, room, format, arguments);
  va_end(arguments);
  if (wrote > 0) text->length += (size_t)wrote < room ? (size_t)wrote : room - 1;
}

static const char *ending(const Object *object) {
  return object->state == DELETED ? "deleted" : object->state == DONATED ? "donated" : "destroyed";
}

void report(Code code, const Call *call, const char *field, const Object *object,
            const char *more) {
  /* Each finding is reported once per object, because a loop would repeat it over and over. */
  if (object != NULL &&
      (__atomic_fetch_or(&object->self->told, 1u << code, __ATOMIC_RELAXED) & 1u << code))
    return;
  Text text = {.length = 0};
  say(&text, "%s: #%llu %s", meanings[code], (unsigned long long)call->number,
      call->function->name);
  if (field != NULL) say(&text, ", %s", field);
  if (object != NULL) {
    say(&text, ", %s %#llx", kind_names[object->kind], (unsigned long long)object->address);
    if (object->made != 0 && object->made != call->number)
      say(&text, " made by #%llu %s", (unsigned long long)object->made,
          functions[object->made_by].name);
    if (object->ended != 0)
      say(&text, ", %s by #%llu %s", ending(object), (unsigned long long)object->ended,
          functions[object->ended_by].name);
  }
  if (more != NULL) say(&text, "; %s", more);
  if (recording())
    record_finding(code, call, object != NULL ? object->address : 0, text.text);
  else
    fprintf(stderr, "pjrt-hub: VAL%03d %s\n", (int)code, text.text);
}
