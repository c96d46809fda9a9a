/* The recording: a folder with a file for each thread of each process, as docs/tracing.md tells.

   The files are mapped, so what was recorded is there however the process ends. */
#ifndef PJRT_HUB_RECORDING_H
#define PJRT_HUB_RECORDING_H

#include "layers.h"

#if defined(__x86_64__) || defined(__i386__)
#include <x86intrin.h>
static inline uint64_t ticks(void) { return __rdtsc(); }
#elif defined(__aarch64__)
static inline uint64_t ticks(void) {
  uint64_t value;
  __asm__ volatile("mrs %0, cntvct_el0" : "=r"(value));
  return value;
}
#else
#include <time.h>
static inline uint64_t ticks(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}
#endif

enum { RECORDING_VERSION = 1, HEADER = 4096, WINDOW = 1 << 16, LARGEST = 1 << 14 };

/* Both clocks at one moment. */
typedef struct {
  uint64_t ticks, monotonic_ns;
} Moment;

/* A file: this, the window, and the log of what the window held before. Records are written to the
   window, which is always the same mapped pages, because fresh ones are dear; a full one is
   appended to the log. */
typedef struct {
  char magic[8];
  uint32_t version, window, num_functions, pid, thread, number; /* number: of the process's files */
  uint64_t logged;      /* bytes of the log */
  uint64_t window_from; /* where in the log the window's first byte belongs */
  uint64_t lost;        /* records for which there was no room */
  Moment first, last;
  char name[16]; /* of the thread */
} Header;

enum {
  RECORD_PLUGIN = 1, /* version, and the library's path */
  RECORD_ENTER,      /* the call's number, its arguments, and what they point at */
  RECORD_LEAVE,      /* its results, and what they point at */
  RECORD_FAILED,     /* as LEAVE: the error */
  RECORD_ANSWERED,   /* as LEAVE: a layer answered, not the plugin */
  RECORD_FINDING,    /* call, code and handle, and a text */
  RECORD_UPCALL,     /* the host is told: call that registered, event, error */
  RECORD_RETURN      /* it was */
};

/* What every record begins with. Its nbytes is written last: 0 means that there is no record. */
typedef struct {
  uint16_t nbytes; /* of the whole record, a multiple of 8 */
  uint16_t fixed;  /* of it, the bytes that follow this head before the regions */
  uint16_t function;
  uint8_t plugin, type;
  uint64_t ticks;
} Record;

/* Bytes of the process's memory, rounded up to 8 in the file. */
typedef struct {
  uint64_t address;
  uint32_t nbytes;
  uint32_t whole; /* how many there were */
} Region;

/* A record that is being written; without a record it has no room and is lost. */
typedef struct {
  Record *record;
  char *at, *end;
} Draft;

HIDDEN Draft draft(unsigned type, const Plugin *plugin, unsigned function);
HIDDEN void commit(Draft *draft);

/* Whole words, because records are small and a call of memcpy is not: reads up to 7 bytes more. */
static inline void append(Draft *draft, const void *from, size_t nbytes) {
  const char *source = from;
  for (size_t done = 0; done < nbytes; done += 8, draft->at += 8) memcpy(draft->at, source + done, 8);
}

static inline void append_word(Draft *draft, uint64_t word) { append(draft, &word, sizeof word); }

/* What was appended so far is fixed; regions follow. */
static inline void fix(Draft *draft) {
  draft->record->fixed = (uint16_t)(draft->at - (char *)(draft->record + 1));
}

#endif
