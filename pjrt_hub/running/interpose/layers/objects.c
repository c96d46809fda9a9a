/* The table of handles, by address and kind: an object and its first member share an address. */

#include "objects.h"

enum { BUCKETS = 1 << 14 };
static Object *buckets[BUCKETS];
static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;

void objects_lock(void) { pthread_mutex_lock(&mutex); }
void objects_unlock(void) { pthread_mutex_unlock(&mutex); }
void objects_forked(void) { pthread_mutex_init(&mutex, NULL); }

static Object **bucket_of(uintptr_t address) {
  return &buckets[(address >> 4) * 0x9e3779b97f4a7c15u >> 50];
}

Object *object_at(uintptr_t address, unsigned kind) {
  Object *object = *bucket_of(address);
  while (object != NULL && (object->address != address || object->kind != kind))
    object = object->next;
  return object;
}

/* Returns an object of another kind at the address that is not destroyed, or NULL. */
Object *object_of_other_kind(uintptr_t address, unsigned kind) {
  for (Object *object = *bucket_of(address); object != NULL; object = object->next)
    if (object->address == address && object->kind != kind && object->state != DESTROYED)
      return object;
  return NULL;
}

/* Forgets owned objects of other kinds at the address of a new one. Their end was not seen, like
   that of an error which the host destroyed through the error's own function table. */
static void forget_others(uintptr_t address, unsigned kind) {
  for (Object *object = *bucket_of(address); object != NULL; object = object->next)
    if (object->address == address && object->kind != kind && !object->lent) {
      object->state = DESTROYED;
      object->told = UINT32_MAX;
    }
}

/* Addresses are reused after objects are destroyed, so there may be an entry already. */
Object *object_made(uintptr_t address, unsigned kind, const Call *call, bool lent) {
  if (!lent) forget_others(address, kind);
  Object *object = object_at(address, kind);
  if (object == NULL) {
    object = calloc(1, sizeof *object);
    if (object == NULL) return NULL;
    Object **bucket = bucket_of(address);
    object->next = *bucket;
    *bucket = object;
  }
  *object = (Object){.next = object->next,
                     .self = object,
                     .address = address,
                     .plugin = call->plugin,
                     .made = call->number,
                     .made_by = (uint16_t)number_of(call),
                     .kind = (uint8_t)kind,
                     .lent = lent,
                     .generation = generation()};
  return object;
}

void each_object(void (*act)(Object *object, void *argument), void *argument) {
  for (size_t i = 0; i < BUCKETS; i++)
    for (Object *object = buckets[i]; object != NULL; object = object->next) act(object, argument);
}
