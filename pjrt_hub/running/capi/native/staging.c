/* Staging: host memory in huge pages, which a plugin uses in place instead of making a copy. Page
   faults take most of the time of a large copy, and a huge page causes one instead of 512.

   Threads of plugins give blocks back, so only the type at the end of this file touches Python. */
#define _GNU_SOURCE
#include "native.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#define HUGE_PAGE ((size_t)1 << 21)
/* The most bytes that are kept for later uploads: touching new memory costs as much as the copy. */
#define KEPT_NBYTES ((size_t)128 << 20)

struct Block {
  Block *next;
  char *memory;
  size_t size; /* The size of the mapping in bytes. */
};

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static Block *kept; /* A list that begins with the block that came back last. */
static size_t kept_nbytes;

/* Returns whether the system gives huge pages to programs that ask for them. */
static bool huge_pages(void) {
#ifndef MADV_HUGEPAGE
  return false;
#endif
  static int known = -1;
  if (known >= 0) return known;
  char text[64] = "";
  int fd = open("/sys/kernel/mm/transparent_hugepage/enabled", O_RDONLY | O_CLOEXEC);
  ssize_t length = fd < 0 ? 0 : read(fd, text, sizeof text - 1);
  if (fd >= 0) close(fd);
  known = length > 0 && strstr(text, "[never]") == NULL;
  return known;
}

static void unmap(Block *block) {
  munmap(block->memory, block->size);
  free(block);
}

static void unmap_all(Block *block) {
  while (block != NULL) {
    Block *next = block->next;
    unmap(block);
    block = next;
  }
}

/* Removes the kept blocks from `*place` on and returns them. */
static Block *cut(Block **place) {
  Block *rest = *place;
  for (Block *block = rest; block != NULL; block = block->next) kept_nbytes -= block->size;
  *place = NULL;
  return rest;
}

/* Returns a kept block that is large enough, but not much larger, or NULL. */
static Block *reuse(size_t size) {
  pthread_mutex_lock(&mutex);
  Block **place = &kept, *block;
  while ((block = *place) != NULL && (block->size < size || block->size - size > size / 8))
    place = &block->next;
  if (block != NULL) {
    *place = block->next;
    kept_nbytes -= block->size;
  }
  pthread_mutex_unlock(&mutex);
  return block;
}

/* Maps a new block of huge pages. A remainder that does not fill one has small pages. */
static Block *map(size_t size) {
  Block *block = malloc(sizeof(Block));
  if (block == NULL) return NULL;
  char *start = mmap(NULL, size + HUGE_PAGE, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (start == MAP_FAILED) {
    free(block);
    return NULL;
  }
  size_t before = -(uintptr_t)start % HUGE_PAGE;
  char *memory = start + before;
  if (before > 0) munmap(start, before);
  munmap(memory + size, HUGE_PAGE - before);
#ifdef MADV_HUGEPAGE
  madvise(memory, size / HUGE_PAGE * HUGE_PAGE, MADV_HUGEPAGE);
#endif
  *block = (Block){.memory = memory, .size = size};
  return block;
}

/* Returns uninitialized memory for `nbytes` bytes, or NULL if memory or huge pages are lacking. */
Block *staging_take(size_t nbytes) {
  if (!huge_pages() || nbytes > SIZE_MAX / 2) return NULL;
  size_t page = (size_t)sysconf(_SC_PAGESIZE), size = (nbytes + page - 1) / page * page;
  Block *block = reuse(size);
  return block != NULL ? block : map(size);
}

char *staging_memory(const Block *block) { return block->memory; }

/* Takes back a block that nobody reads any more. The system may reclaim pages until a write. */
void staging_give_back(Block *block) {
  Block *rest = NULL;
  if (block->size > KEPT_NBYTES) {
    unmap(block);
    return;
  }
#ifdef MADV_FREE /* Small pages are left out, because they would take long. */
  madvise(block->memory, block->size / HUGE_PAGE * HUGE_PAGE, MADV_FREE);
#endif
  pthread_mutex_lock(&mutex);
  block->next = kept;
  kept = block;
  kept_nbytes += block->size;
  size_t nbytes = 0;
  for (Block **place = &kept; *place != NULL; place = &(*place)->next) {
    nbytes += (*place)->size;
    if (nbytes > KEPT_NBYTES) {
      rest = cut(place);
      break;
    }
  }
  pthread_mutex_unlock(&mutex);
  unmap_all(rest);
}

/* Gives all kept blocks back to the system. */
void staging_trim(void) {
  pthread_mutex_lock(&mutex);
  Block *rest = cut(&kept);
  pthread_mutex_unlock(&mutex);
  unmap_all(rest);
}

/* Frees the kept blocks, which the child would keep, too: writing to a page would then copy it. */
void staging_before_fork(void) {
  staging_trim();
  pthread_mutex_lock(&mutex);
}

void staging_after_fork(void) { pthread_mutex_unlock(&mutex); }

typedef struct {
  PyObject_HEAD
  Block *block;
  Py_ssize_t nbytes;
} StagingObject;

PyTypeObject *StagingType;

static void staging_dealloc(PyObject *self) {
  Block *block = ((StagingObject *)self)->block;
  if (block != NULL) staging_give_back(block);
  object_free(self);
}

static int staging_getbuffer(PyObject *self, Py_buffer *out, int flags) {
  StagingObject *staging = (StagingObject *)self;
  return PyBuffer_FillInfo(out, self, staging->block->memory, staging->nbytes, 0, flags);
}

/* Staging.of(nbytes) -> Staging, or None if there is no such memory. */
static PyObject *staging_of(PyObject *type, PyObject *nbytes) {
  Py_ssize_t size = PyLong_AsSsize_t(nbytes);
  if (size == -1 && PyErr_Occurred()) return NULL;
  if (size <= 0) return PyErr_Format(PyExc_ValueError, "%zd bytes cannot be staged", size);
  StagingObject *staging = (StagingObject *)PyType_GenericAlloc((PyTypeObject *)type, 0);
  if (staging == NULL) return NULL;
  staging->nbytes = size;
  staging->block = staging_take((size_t)size);
  if (staging->block != NULL) return (PyObject *)staging;
  Py_DECREF((PyObject *)staging);
  Py_RETURN_NONE;
}

static PyObject *staging_trim_all(PyObject *type, PyObject *unused) {
  staging_trim();
  Py_RETURN_NONE;
}

static PyObject *staging_kept(PyObject *type, PyObject *unused) {
  pthread_mutex_lock(&mutex);
  size_t nbytes = kept_nbytes;
  pthread_mutex_unlock(&mutex);
  return PyLong_FromSize_t(nbytes);
}

static PyMethodDef methods[] = {
    {"of", staging_of, METH_O | METH_CLASS, "of(nbytes) -> Staging, or None where it is of no use."},
    {"_trim", staging_trim_all, METH_NOARGS | METH_CLASS, "Gives what waits for use to the system."},
    {"_kept", staging_kept, METH_NOARGS | METH_CLASS, "How many bytes wait for their next use."},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot slots[] = {
    {Py_tp_doc, "Host memory in huge pages, writable through the buffer protocol."},
    {Py_tp_dealloc, staging_dealloc},
    {Py_bf_getbuffer, staging_getbuffer},
    {Py_tp_methods, methods},
    {0, NULL},
};

PyType_Spec staging_spec = {
    "pjrt_hub.running.capi.hotpath.Staging", sizeof(StagingObject), 0,
    Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION, slots};
