/* Deletion: frees the device memory of a buffer, and tells whether it was deleted here, donated, or
   deleted by other code. */
#include "native.h"

static PJRT_Error *delete_native(BufferObject *buffer) {
  SIZED(PJRT_Buffer_Delete_Args, args, .buffer = buffer->ptr);
  client_enter(buffer->client);
  PJRT_Error *error = RELEASED(CALL(buffer->client->api, PJRT_Buffer_Delete, &args));
  client_leave(buffer->client);
  return error;
}

/* Ends the use of the buffer by a launch on several devices; does a deletion that had to wait. */
void deletion_catch_up(BufferObject *buffer) {
  if (--buffer->launches == 0 && buffer->deleted)
    drop_error(buffer->client->api, delete_native(buffer));
}

/* Frees only the device memory: the object keeps its PJRT_Buffer until it dies, because another
   thread may be inside a call with it. */
PyObject *deletion_delete(PyObject *self, PyObject *unused) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (buffer->deleted || buffer->ptr == NULL || buffer->client->closed) Py_RETURN_NONE;
  if (!client_usable(buffer->client)) return NULL;
  buffer->deleted = true;
  if (buffer->launches > 0) Py_RETURN_NONE; /* A launch must not fail on only some devices. */
  PJRT_Error *error = delete_native(buffer);
  /* Without the function, the memory is freed when the object dies. */
  if (error == NULL || drop_unimplemented(buffer->client->api, error)) Py_RETURN_NONE;
  return raise_status(buffer->client->api, error, "PJRT_Buffer_Delete");
}

static PJRT_Error *ask_deleted(const PJRT_Api *api, PJRT_Buffer *ptr, bool *deleted) {
  SIZED(PJRT_Buffer_IsDeleted_Args, args, .buffer = ptr);
  PJRT_Error *error = CALL(api, PJRT_Buffer_IsDeleted, &args);
  *deleted = error == NULL && args.is_deleted;
  return error;
}

/* Returns whether the buffer is deleted, as far as the plugin tells. */
bool deletion_known(const PJRT_Api *api, PJRT_Buffer *ptr) {
  bool deleted;
  drop_error(api, ask_deleted(api, ptr, &deleted));
  return deleted;
}

static bool is_over(const BufferObject *buffer) {
  return buffer->ptr == NULL || buffer->deleted || client_is_over(buffer->client);
}

/* Returns True if the buffer is deleted, donated or destroyed with its client. The plugin may wait
   for a program that waits for Python, so the GIL is released. */
PyObject *deletion_asked(PyObject *self, void *unused) {
  GUARD;
  BufferObject *buffer = (BufferObject *)self;
  if (is_over(buffer)) Py_RETURN_TRUE;
  bool deleted;
  client_enter(buffer->client);
  PJRT_Error *error = RELEASED(ask_deleted(buffer->client->api, buffer->ptr, &deleted));
  client_leave(buffer->client);
  if (error != NULL) return raise_status(buffer->client->api, error, "PJRT_Buffer_IsDeleted");
  return PyBool_FromLong(deleted);
}

/* Works like deletion_asked, but raises nothing; returns false if the plugin does not tell. */
bool deletion_seen(const BufferObject *buffer) {
  return is_over(buffer) || deletion_known(buffer->client->api, buffer->ptr);
}

PyObject *deletion_looked(PyObject *self, void *unused) {
  GUARD;
  return PyBool_FromLong(deletion_seen((BufferObject *)self));
}
