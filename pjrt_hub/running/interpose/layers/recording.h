/* The recording: a folder with a file for each thread of each process (see docs/tracing.md).

   The files are mapped into memory, so the records survive however the process ends. */
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

/* Both clocks, read at the same moment. */
typedef struct {
  uint64_t ticks, monotonic_ns;
} Moment;

/* A file holds this header, the window, and the log of what the window held before. Records are
   written to the window, which is appended to the log when it is full. The window always consists
   of the same mapped pages, because new ones are expensive. */
typedef struct {
  char magic[8];
  uint32_t version, window, num_functions, pid, thread, number; /* `number` counts files from 1. */
  uint64_t logged;      /* The size of the log in bytes. */
  uint64_t window_from; /* The offset in the log of the window's first byte. */
  uint64_t lost;        /* The number of records for which there was no room. */
  Moment first, last;
  char name[16];        /* The name of the thread. */
  uint64_t realtime_ns; /* The first moment, since 1970. */
} Header;

enum {
  RECORD_PLUGIN = 1, /* The API version and the library's path. */
  RECORD_ENTER,      /* The call's number, its arguments, and what they point at. */
  RECORD_LEAVE,      /* The call's results, and what they point at. */
  RECORD_FAILED,     /* The error; it replaces LEAVE if the call failed. */
  RECORD_ANSWERED,   /* It replaces LEAVE if a layer answered, not the plugin. */
  RECORD_FINDING,    /* The call, the code, the handle and a text. */
  RECORD_UPCALL,     /* The registering call, event and error, before the host's callback. */
  RECORD_RETURN,     /* It marks the end of the host's callback. */
  RECORD_END         /* An execution has ended on a device: the call, the device, the name. */
};

/* The head of every record. Its nbytes is written last: 0 means that there is no record. */
typedef struct {
  uint16_t nbytes; /* The size of the whole record, a multiple of 8. */
  uint16_t fixed;  /* The number of bytes between this head and the regions. */
  uint16_t function;
  uint8_t plugin, type;
  uint64_t ticks;
} Record;

/* The head of a copy of memory, which is padded to a multiple of 8 bytes in the file. */
typedef struct {
  uint64_t address;
  uint32_t nbytes;
  uint32_t whole; /* The size of the original, of which nbytes are copied. */
} Region;

/* A record that is being written. If `record` is NULL, there was no room and it is lost. */
typedef struct {
  Record *record;
  char *at, *end;
} Draft;

/* Makes a file PID-NUMBER.ENDING of the recording; returns its descriptor, or -1. */
HIDDEN int recording_create(unsigned number, const char *ending);

HIDDEN Draft draft(unsigned type, const Plugin *plugin, unsigned function);
HIDDEN void commit(Draft *draft, uint64_t now); /* `now` is in ticks. */

/* Copies whole words, as memcpy is slow for small records. Reads up to 7 bytes past the data. */
static inline void append(Draft *draft, const void *from, size_t nbytes) {
  const char *source = from;
  for (size_t done = 0; done < nbytes; done += 8, draft->at += 8) memcpy(draft->at, source + done, 8);
}

static inline void append_word(Draft *draft, uint64_t word) { append(draft, &word, sizeof word); }

/* Ends the fixed part of the record. Regions follow. */
static inline void fix(Draft *draft) {
  draft->record->fixed = (uint16_t)(draft->at - (char *)(draft->record + 1));
}

#endif
