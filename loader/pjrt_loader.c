/* Finds PJRT plugins by their manifests, and opens them. pjrt_loader.h says how to use it; "rule" and a number is a
   rule of docs/spec/manifest.md. Texts about manifests are those of pjrt-hub.

   All that a call allocates is in its Work, which run() frees. What cannot go on calls refuse(), which jumps back to
   attempt(); no function of a plugin is between the two. */
#ifndef _GNU_SOURCE
#define _GNU_SOURCE
#endif
#include "pjrt_loader.h"

#include <errno.h>
#include <limits.h>
#include <locale.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <dirent.h>
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <sys/stat.h>
#include <unistd.h>
#ifdef __linux__
#include <sys/auxv.h>
#endif

/* What stands for "/" before /etc, /sys, /dev and /proc; tests put a folder of theirs there. */
#ifndef PJRT_LOADER_ROOT
#define PJRT_LOADER_ROOT ""
#endif

#define DIGITS "0123456789"
#define NAME "abcdefghijklmnopqrstuvwxyz" DIGITS "_"

enum {
  MOST_BYTES = 65536, /* of a manifest */
  MOST_NAMES = 256,   /* manifests of a folder */
  MOST_SYSTEM = 4096, /* bytes of a file of the kernel's */
  MOST_SHOWN = 200,   /* characters of a text in a message */
};

static const char no_memory[] = "there is no memory left";
static const char correct[] = "correct that file; docs/spec/manifest.md of pjrt-hub has its form";
static const char own[] = "give it to root or yourself, and `chmod go-w` it";
static const char reinstall[] = "install the plugin again, with the manifest of that release";

/* ---- Memory, texts and refusals ---- */

typedef struct Block {
  struct Block *next;
  size_t size, used;
  max_align_t bytes[];
} Block;

typedef struct { size_t count, room; const char **items; } Names;

/* A call of a public function: what it asks for, what it gives, and what it needs. */
typedef struct {
  const char *what;
  pjrt_loader_settings settings;
  pjrt_loader_plugin *plugin;
  const pjrt_loader_option *given;
  size_t count;
  struct Result *result;
  struct Manifest *first, *last;     /* those that were found; the last is read */
  size_t found;
  Names folders, places;             /* what was looked in, by its path, and by what identify() returns */
  Names selected, disabled;          /* patterns of the user's */
  DIR *folder;                       /* the one that is read */
  Block *kept, *borrowed;            /* what goes with the result, and what goes with one manifest */
  bool is_owned;                     /* whether a plugin owns what is kept */
  jmp_buf *stop;                     /* where refuse() goes on */
  const char *refusal, *hint;
} Work;

/* Tells whether a name in a folder is meant. */
typedef bool (*Accept)(Work *work, const char *folder, const char *name, const void *context);

static int compare_names(const void *one, const void *other) {
  return strcmp(*(const char *const *)one, *(const char *const *)other);
}

_Noreturn static void refuse(Work *work, const char *hint, const char *text) {
  work->refusal = text;
  work->hint = hint;
  longjmp(*work->stop, 1);
}

static void *allocate(Work *work, Block **blocks, size_t size) {
  const size_t step = sizeof(max_align_t);
  if (size < SIZE_MAX / 4) size = (size + step - 1) / step * step;
  if (*blocks == NULL || size > (*blocks)->size - (*blocks)->used) {
    size_t room = size > 4000 ? size : 4000;
    Block *block = room < SIZE_MAX / 4 ? malloc(sizeof *block + room) : NULL;
    if (block == NULL) refuse(work, "", no_memory);
    *block = (Block){.next = *blocks, .size = room};
    *blocks = block;
  }
  (*blocks)->used += size;
  return memset((char *)(*blocks)->bytes + (*blocks)->used - size, 0, size);
}

static void *take(Work *work, size_t size) { return allocate(work, &work->kept, size); }
static void *borrow(Work *work, size_t size) { return allocate(work, &work->borrowed, size); }

static void release(Block **blocks) {
  while (*blocks != NULL) {
    Block *next = (*blocks)->next;
    free(*blocks);
    *blocks = next;
  }
}

#ifdef __GNUC__
__attribute__((format(printf, 2, 3)))
#endif
static const char *print(Work *work, const char *format, ...) {
  va_list values;
  va_start(values, format);
  int size = vsnprintf(NULL, 0, format, values);
  va_end(values);
  size_t room = (size_t)(size < 0 ? 0 : size) + 1;
  char *text = take(work, room);
  va_start(values, format);
  vsnprintf(text, room, format, values);
  va_end(values);
  return text;
}

static const char *copy(Work *work, const char *text) { return print(work, "%s", text); }

#define REFUSE(work, hint, ...) refuse(work, hint, print(work, __VA_ARGS__))

/* Calls a function; false means that it refused. */
static bool attempt(Work *work, void (*act)(Work *)) {
  jmp_buf here, *outer = work->stop;
  volatile bool is_done = false;
  work->stop = &here;
  if (setjmp(here) == 0) act(work), is_done = true;
  work->stop = outer;
  return is_done;
}

static void push(Work *work, Names *names, const char *text) {
  if (names->count == names->room) {
    const char **items = take(work, (names->room = 2 * names->room + 8) * sizeof *items);
    if (names->count > 0) memcpy(items, names->items, names->count * sizeof *items);
    names->items = items;
  }
  names->items[names->count++] = text;
}

static const char *join(Work *work, const Names *names, const char *between) {
  size_t size = 1;
  for (size_t i = 0; i < names->count; i++) size += strlen(names->items[i]) + strlen(between);
  char *joined = take(work, size), *to = joined;
  for (size_t i = 0; i < names->count; i++) to += sprintf(to, "%s%s", i > 0 ? between : "", names->items[i]);
  return joined;
}

/* ---- SHA-256 ---- */

static uint32_t rotate(uint32_t word, unsigned by) { return word >> by | word << (32 - by); }

static void hash_block(uint32_t state[8], const unsigned char *block) {
  static const uint32_t constants[64] = {
      0x428a2f98, 0x71374491, 0xb5c0fbcf, 0xe9b5dba5, 0x3956c25b, 0x59f111f1, 0x923f82a4, 0xab1c5ed5, 0xd807aa98,
      0x12835b01, 0x243185be, 0x550c7dc3, 0x72be5d74, 0x80deb1fe, 0x9bdc06a7, 0xc19bf174, 0xe49b69c1, 0xefbe4786,
      0x0fc19dc6, 0x240ca1cc, 0x2de92c6f, 0x4a7484aa, 0x5cb0a9dc, 0x76f988da, 0x983e5152, 0xa831c66d, 0xb00327c8,
      0xbf597fc7, 0xc6e00bf3, 0xd5a79147, 0x06ca6351, 0x14292967, 0x27b70a85, 0x2e1b2138, 0x4d2c6dfc, 0x53380d13,
      0x650a7354, 0x766a0abb, 0x81c2c92e, 0x92722c85, 0xa2bfe8a1, 0xa81a664b, 0xc24b8b70, 0xc76c51a3, 0xd192e819,
      0xd6990624, 0xf40e3585, 0x106aa070, 0x19a4c116, 0x1e376c08, 0x2748774c, 0x34b0bcb5, 0x391c0cb3, 0x4ed8aa4a,
      0x5b9cca4f, 0x682e6ff3, 0x748f82ee, 0x78a5636f, 0x84c87814, 0x8cc70208, 0x90befffa, 0xa4506ceb, 0xbef9a3f7,
      0xc67178f2};
  uint32_t words[64], now[8];
  for (int i = 0; i < 16; i++, block += 4)
    words[i] = (uint32_t)block[0] << 24 | (uint32_t)block[1] << 16 | (uint32_t)block[2] << 8 | block[3];
  for (int i = 16; i < 64; i++) {
    uint32_t one = words[i - 15], two = words[i - 2];
    words[i] = words[i - 16] + words[i - 7] + (rotate(one, 7) ^ rotate(one, 18) ^ one >> 3) +
               (rotate(two, 17) ^ rotate(two, 19) ^ two >> 10);
  }
  memcpy(now, state, sizeof now);
#define AT(place) now[((place) - i) % 8] /* the places move on with each round */
  for (unsigned i = 0; i < 64; i++) {
    uint32_t a = AT(0), e = AT(4), one = AT(7) + constants[i] + words[i], two = (a & AT(1)) | (AT(2) & (a | AT(1)));
    one += (rotate(e, 6) ^ rotate(e, 11) ^ rotate(e, 25)) + (AT(6) ^ (e & (AT(5) ^ AT(6))));
    AT(3) += one;
    AT(7) = one + two + (rotate(a, 2) ^ rotate(a, 13) ^ rotate(a, 22));
  }
  for (int i = 0; i < 8; i++) state[i] += now[i];
}

/* Hashes the rest of a file, and writes 64 digits; false where it cannot be read. */
static bool hash_file(FILE *file, char digits[65]) {
  uint32_t state[8] = {0x6a09e667, 0xbb67ae85, 0x3c6ef372, 0xa54ff53a,
                       0x510e527f, 0x9b05688c, 0x1f83d9ab, 0x5be0cd19};
  unsigned char block[128];
  uint64_t count = 0;
  size_t size;
  for (; (size = fread(block, 1, 64, file)) == 64; count += 64) hash_block(state, block);
  count = (count + size) * 8;
  memset(block + size, 0, sizeof block - size);
  block[size] = 0x80;
  size_t whole = size < 56 ? 64 : 128; /* the number of bits is at the end of a block */
  for (size_t i = 1; i <= 8; i++, count >>= 8) block[whole - i] = (unsigned char)count;
  for (size_t i = 0; i < whole; i += 64) hash_block(state, block + i);
  for (int i = 0; i < 8; i++) snprintf(digits + 8 * i, 9, "%08lx", (unsigned long)state[i]);
  return !ferror(file);
}

/* ---- The system: the only functions that are of POSIX ---- */

static pthread_mutex_t mutex = PTHREAD_MUTEX_INITIALIZER;
static void lock(void) { pthread_mutex_lock(&mutex); }
static void unlock(void) { pthread_mutex_unlock(&mutex); }

/* Tells whether the process has more rights than its caller: rule 7. */
static bool is_elevated(void) {
#ifdef __linux__
  bool is_secure = getauxval(AT_SECURE) != 0;
#else
  bool is_secure = issetugid() != 0;
#endif
  return is_secure || getuid() != geteuid() || getgid() != getegid();
}

static bool is_absolute(const char *path) { return *path == '/'; }
static bool exists(const char *path) { return faccessat(AT_FDCWD, path, F_OK, AT_EACCESS) == 0; }

static bool is_file(const char *path) {
  struct stat status;
  return stat(path, &status) == 0 && S_ISREG(status.st_mode);
}

/* Returns why a path is no file that this process may open, or NULL. */
static const char *find_fault(Work *work, const char *path) {
  if (is_file(path)) return NULL;
  const char *why = exists(path) || errno == ENOENT || errno == ENOTDIR ? NULL : strerror(errno);
  return print(work, "%s %s%s", path, why == NULL ? "is not a file" : "cannot be read: ", why == NULL ? "" : why);
}

/* Returns who else may have written a file, or NULL: rule 8. */
static const char *distrust(Work *work, const struct stat *status) {
  if (status->st_uid != 0 && status->st_uid != geteuid())
    return print(work, "it belongs to user %lu", (unsigned long)status->st_uid);
  if ((status->st_mode & S_IWOTH) != 0) return "everybody may write to it";
  bool has_group = (status->st_mode & S_IWGRP) != 0 && status->st_gid != status->st_uid;
  return has_group ? "its group may write to it" : NULL;
}

static const char *distrust_path(Work *work, const char *path) {
  struct stat status;
  return stat(path, &status) == 0 ? distrust(work, &status) : NULL;
}

/* Returns what is the same for all paths to a folder: rule 2. */
static const char *identify(Work *work, const char *path) {
  struct stat status;
  if (!is_absolute(path) || stat(path, &status) != 0) return path;
  return print(work, "%llu:%llu", (unsigned long long)status.st_dev, (unsigned long long)status.st_ino);
}

/* Opens a file, or with O_DIRECTORY a folder, that rule 8 allows, or says why not; -1 and NULL mean that nothing is
   there. What is asked is what is open, so nobody can put another in its place. */
static int open_path(Work *work, const char *path, int flags, const char **refusal) {
  struct stat status;
  work->hint = "give the path of what is there, and let this process read it";
  int number = open(path, O_RDONLY | O_CLOEXEC | O_NONBLOCK | O_NOCTTY | flags);
  *refusal = number >= 0 || errno == ENOENT ? NULL : print(work, "cannot be read: %s", strerror(errno));
  if (number < 0) return -1;
  bool is_one = fstat(number, &status) == 0 && (flags == O_DIRECTORY || S_ISREG(status.st_mode));
  *refusal = is_one ? distrust(work, &status) : "it is not a file";
  if (is_one) work->hint = own;
  if (*refusal != NULL) close(number);
  return *refusal == NULL ? number : -1;
}

static void close_folder(Work *work) {
  if (work->folder != NULL) closedir(work->folder);
  work->folder = NULL;
}

static FILE *open_file(Work *work, const char *path, const char **refusal) {
  int number = open_path(work, path, 0, refusal);
  FILE *file = number < 0 ? NULL : fdopen(number, "rb");
  if (number >= 0 && file == NULL) close(number);
  if (*refusal == NULL && file == NULL) *refusal = "cannot be read: No such file or directory";
  return file;
}

/* Lists the names in a folder that are meant, by their bytes, up to one more than the most. */
static Names list_names(Work *work, const char *path, Accept accept, const void *context) {
  Names names = {0};
  if (work->folder == NULL) work->folder = opendir(path);
  if (work->folder == NULL) return names;
  for (struct dirent *entry; names.count <= MOST_NAMES && (entry = readdir(work->folder)) != NULL;)
    if (accept(work, path, entry->d_name, context)) push(work, &names, copy(work, entry->d_name));
  close_folder(work);
  if (names.count > 0) qsort(names.items, names.count, sizeof *names.items, compare_names);
  return names;
}

/* Lists a folder that rule 8 allows, or says why not. */
static Names list_trusted(Work *work, const char *path, Accept accept, const char **refusal) {
  int number = open_path(work, path, O_DIRECTORY, refusal);
  if (number >= 0 && (work->folder = fdopendir(number)) == NULL) close(number);
  return work->folder == NULL ? (Names){0} : list_names(work, path, accept, NULL);
}

/* Returns the folder of a file, whose path may lead over links: rule 9. */
static const char *real_folder(Work *work, const char *path) {
  char *real = borrow(work, PATH_MAX + 2);
  if (realpath(path, real) == NULL) REFUSE(work, "", "cannot be read: %s", strerror(errno));
  *strrchr(real, '/') = 0;
  return *real == 0 ? "/" : copy(work, real);
}

/* Returns a copy of a variable, or NULL where it is unset or empty. */
static const char *variable(Work *work, const char *name) {
  const char *value = getenv(name);
  return value == NULL || *value == 0 ? NULL : copy(work, value);
}

/* Sets a variable, "NAME=VALUE", that the process does not have. */
static void set_variable(Work *work, const char *given) {
  const char *value = strchr(given, '=') + 1;
  if (setenv(print(work, "%.*s", (int)(value - given - 1), given), value, 0) != 0) refuse(work, "", no_memory);
}

/* Loads a library, which stays until the process ends. */
static void *load_library(Work *work, const char *path, bool is_global) {
  void *library = dlopen(path, RTLD_NOW | RTLD_NODELETE | (is_global ? RTLD_GLOBAL : RTLD_LOCAL));
  const char *error = library == NULL ? dlerror() : NULL;
  if (error != NULL) REFUSE(work, "check that it is a library for this machine, and install what it lacks",
                            "the library %s cannot be loaded: %s", path, error);
  return library;
}

static void *find_symbol(void *library, const char *name) { return dlsym(library, name); }

/* ---- The text of a manifest: rules 12 to 15 ---- */

typedef enum { TEXT, INTEGER, LIST, NUMBER, TRUTH, TABLE } Kind; /* in the order of pjrt_loader_type */

typedef struct Value {
  Kind kind;
  bool by_header;            /* a header made it, so that another one may add to it */
  const char *key;           /* in its table */
  const struct Value *outer; /* the table or the list that it is in */
  struct Value *next;        /* there: in a table by the keys, in a list in its order */
  struct Value *first;
  size_t count;
  union { const char *text; int64_t integer; double number; bool truth; struct Value *last; };
} Value;

/* What is read, from `at` to the end of the line. */
typedef struct { Work *work; char *at, *end; unsigned line; Value *top; } Text;

_Noreturn static void refuse_line(const Text *text, const char *reason) {
  REFUSE(text->work, correct, "line %u: %s", text->line, reason);
}

static Value *make(Text *text, Kind kind) {
  Value *value = borrow(text->work, sizeof *value);
  value->kind = kind;
  return value;
}

/* Returns where a key is in a table, or where it would be. */
static Value **place(Value *table, const char *key) {
  Value **at = &table->first;
  while (*at != NULL && strcmp((*at)->key, key) < 0) at = &(*at)->next;
  return at;
}

static Value *find(const Value *table, const char *key) {
  Value *found = *place((Value *)table, key);
  return found != NULL && strcmp(found->key, key) == 0 ? found : NULL;
}

/* Adds a value to a table, or to a list, where `key` is NULL. */
static Value *add(Text *text, Value *whole, const char *key, Value *value) {
  Value **at = key != NULL ? place(whole, key) : whole->first == NULL ? &whole->first : &whole->last->next;
  if (key != NULL && *at != NULL && strcmp((*at)->key, key) == 0) refuse_line(text, "given twice");
  value->key = key;
  value->outer = whole;
  value->next = *at;
  whole->count++;
  return whole->last = *at = value;
}

/* Reads a character of UTF-8, and moves `at` behind it; returns its code, or 0 for what is none. */
static uint32_t next_code(const unsigned char **at, const unsigned char *end) {
  static const uint32_t least[] = {0, 0x80, 0x800, 0x10000};
  unsigned char lead = *(*at)++;
  int more = lead < 0x80 ? 0 : lead >> 5 == 6 ? 1 : lead >> 4 == 14 ? 2 : lead >> 3 == 30 ? 3 : -1;
  if (more < 0 || end - *at < more) return 0;
  uint32_t code = more == 0 ? lead : lead & (0x3fu >> more);
  for (int i = 0; i < more; i++, ++*at) {
    if (**at >> 6 != 2) return 0;
    code = code << 6 | (**at & 0x3f);
  }
  return code < least[more] || code >= 0x110000 || code >> 11 == 0x1b ? 0 : code;
}

static void check_line(const Text *text) {
  const unsigned char *at = (const unsigned char *)text->at, *end = (const unsigned char *)text->end;
  bool has_control = false;
  while (at < end) {
    bool is_control = (*at < 0x20 && *at != '\t') || *at == 0x7f;
    if (next_code(&at, end) == 0 && !is_control) refuse_line(text, "not UTF-8");
    has_control |= is_control;
  }
  if (has_control) refuse_line(text, "a control character");
}

/* No word and no set has what ends a line, and NUL ends the text: so neither goes beyond the line. */
static bool skip(Text *text, const char *word) {
  bool is_there = strncmp(text->at, word, strlen(word)) == 0;
  if (is_there) text->at += strlen(word);
  return is_there;
}

/* Skips the characters of a set; returns how many there were. */
static size_t skip_all(Text *text, const char *set) {
  size_t size = strspn(text->at, set);
  text->at += size;
  return size;
}

/* Skips a word with the blanks around it; without the word, those before it. */
static bool skip_spaced(Text *text, const char *word) {
  skip_all(text, " \t");
  bool is_there = skip(text, word);
  if (is_there) skip_all(text, " \t");
  return is_there;
}

static bool is_at_end(Text *text) { return skip_spaced(text, "") && (text->at == text->end || *text->at == '#'); }

static void finish_line(Text *text) {
  if (!is_at_end(text)) refuse_line(text, "expected the end of the line");
}

/* Reads a name of a header or a key; "" where it is too short or too long. */
static const char *read_name(Text *text) {
  const char *begin = text->at;
  size_t size = skip_all(text, NAME "-ABCDEFGHIJKLMNOPQRSTUVWXYZ");
  return memcpy(borrow(text->work, size + 1), begin, size <= 64 ? size : 0);
}

/* Reads what follows a backslash, and writes the character that it stands for. */
static char *read_escape(Text *text, char *to) {
  static const char letters[] = "\"\\btnfr", meant[] = "\"\\\b\t\n\f\r";
  char letter = text->at < text->end ? *text->at++ : ' ';
  const char *known = strchr(letters, letter);
  if (known != NULL) return *to = meant[known - letters], to + 1;
  size_t digits = letter == 'u' ? 4 : letter == 'U' ? 8 : 0;
  char spelled[9] = "";
  if (strspn(text->at, DIGITS "abcdefABCDEF") >= digits) memcpy(spelled, text->at, digits);
  unsigned long code = strtoul(spelled, NULL, 16);
  if (code == 0 || code >= 0x110000 || code >> 11 == 0x1b)
    refuse_line(text, "an escape that stands for no character");
  text->at += digits;
  int more = code < 0x80 ? 0 : code < 0x800 ? 1 : code < 0x10000 ? 2 : 3;
  *to++ = (char)(code >> 6 * more | (more == 0 ? 0 : 0xff00u >> (more + 1) & 0xff));
  while (more-- > 0) *to++ = (char)(0x80 | (code >> 6 * more & 0x3f));
  return to;
}

/* Reads a string after its first quote. It is written over its own text, as no character is longer than what stands
   for it. */
static Value *read_string(Text *text, char quote) {
  char *to = text->at;
  Value *value = make(text, TEXT);
  value->text = to;
  while (text->at < text->end && *text->at != quote) {
    char c = *text->at++;
    if (c == '\\' && quote == '"')
      to = read_escape(text, to);
    else
      *to++ = c;
  }
  if (text->at == text->end) refuse_line(text, "a string without an end");
  text->at++;
  *to = 0;
  return value;
}

/* Converts digits, whose point strtod() expects as the program's locale writes it. */
static double to_number(Work *work, const char *at, size_t size) {
  char *digits = memcpy(borrow(work, size + 1), at, size), *point = strchr(digits, '.');
  if (point == NULL) return strtod(digits, NULL);
  *point = 0;
  return strtod(print(work, "%s%s%s", digits, localeconv()->decimal_point, point + 1), NULL);
}

static Value *read_number(Text *text) {
  char *begin = text->at, *whole, *fraction;
  if (!skip(text, "-")) skip(text, "+");
  if (!skip(text, "0") && skip_all(text, DIGITS) == 0)
    refuse_line(text, "expected a string, a number, true, false, an array or a table");
  whole = text->at;
  if (skip(text, ".") && skip_all(text, DIGITS) == 0) text->at = whole;
  fraction = text->at;
  if (skip(text, "e") || skip(text, "E")) {
    if (!skip(text, "-")) skip(text, "+");
    if (skip_all(text, DIGITS) == 0) text->at = fraction;
  }
  Value *value = make(text, text->at > whole ? NUMBER : INTEGER);
  errno = 0;
  if (value->kind == NUMBER) value->number = to_number(text->work, begin, (size_t)(text->at - begin));
  if (value->kind == INTEGER) value->integer = strtoll(begin, NULL, 10);
  if (value->kind == INTEGER && errno == ERANGE) refuse_line(text, "an integer of more than 64 bits");
  return value;
}

static Value *read_value(Text *text, Kind inside);

static const char *read_key(Text *text) {
  const char *key = read_name(text);
  if (*key == 0) refuse_line(text, "expected a name of 1 to 64 of [A-Za-z0-9_-]");
  if (!skip_spaced(text, "=")) refuse_line(text, "expected =");
  return key;
}

static Value *read_items(Text *text, Kind kind) {
  const char *close = kind == LIST ? "]" : "}";
  Value *whole = make(text, kind);
  if (skip_spaced(text, close)) return whole;
  do {
    const char *key = kind == TABLE ? read_key(text) : NULL;
    add(text, whole, key, read_value(text, kind));
    if (skip_spaced(text, close)) return whole;
  } while (skip_spaced(text, ","));
  refuse_line(text, kind == LIST ? "expected , or ]" : "expected , or }");
}

/* Reads a value that is in a table, in a list, or else (TEXT) on a line by itself. An inline table holds lists, but
   no table, and a list neither, so the depth is three. */
static Value *read_value(Text *text, Kind inside) {
  if (skip(text, "'") || skip(text, "\"")) return read_string(text, text->at[-1]);
  if (inside != LIST && skip(text, "[")) return read_items(text, LIST);
  if (inside == TEXT && skip(text, "{")) return read_items(text, TABLE);
  bool is_true = skip(text, "true");
  if (!is_true && !skip(text, "false")) return read_number(text);
  Value *value = make(text, TRUTH);
  return value->truth = is_true, value;
}

/* Reads [name], [name.name] or [[name]], and returns the table that the next lines fill. */
static Value *read_header(Text *text) {
  bool is_list = skip(text, "[[");
  if (!is_list) skip(text, "[");
  const char *name = read_name(text), *inner = !is_list && skip(text, ".") ? read_name(text) : NULL;
  if (*name == 0 || (inner != NULL && *inner == 0) || !skip(text, is_list ? "]]" : "]"))
    refuse_line(text, "expected [name], [[name]] or [name.name]");
  finish_line(text);
  Value *table = make(text, TABLE), *outer = find(text->top, name);
  Kind kind = is_list ? LIST : TABLE;
  table->by_header = true;
  if (!is_list && inner == NULL) return add(text, text->top, name, table);
  if (outer == NULL || !outer->by_header || outer->kind != kind)
    outer = add(text, text->top, name, make(text, kind)), outer->by_header = true;
  return add(text, outer, inner, table);
}

/* Reads a text, which ends with NUL, into a table. */
static Value *read_text(Work *work, char *bytes, size_t size) {
  Text text = {.work = work};
  Value *table = text.top = make(&text, TABLE);
  for (char *end = bytes + size, *next; bytes <= end; bytes = next) {
    char *line_end = memchr(bytes, '\n', (size_t)(end - bytes));
    next = line_end == NULL ? end + 1 : line_end + 1;
    text.line++;
    text.at = bytes;
    text.end = line_end == NULL ? end : line_end;
    if (line_end != NULL && text.end > bytes && text.end[-1] == '\r') text.end--;
    if (text.line == 1 && skip(&text, "\xef\xbb\xbf")) refuse_line(&text, "a byte order mark");
    check_line(&text);
    if (is_at_end(&text)) continue;
    if (*text.at == '[') {
      table = read_header(&text);
      continue;
    }
    const char *key = read_key(&text);
    Value *value = read_value(&text, TEXT);
    finish_line(&text);
    add(&text, table, key, value);
  }
  return text.top;
}

/* ---- The keys of a manifest: rules 16 to 24 ---- */

typedef int64_t Version; /* the major version, and in the lower half the minor one */

typedef struct Option {
  struct Option *next;
  const char *type;
  pjrt_loader_option option; /* its name and its default */
  bool has_default;
  int64_t minimum, maximum;
  Version since;
} Option;

typedef struct Manifest {
  pjrt_loader_entry entry;
  struct Manifest *next;
  const char *folder;    /* where relative paths begin */
  const char *digest;    /* of the library, or "" */
  Names aliases, before, defaults; /* paths to load before the library; variables to set, "NAME=VALUE" */
  Option *options;       /* by their names */
  Version least, most;
} Manifest;

static const char *const types[] = {"string", "int64", "int64_list", "float", "bool", "unknown"};

static bool is_among(const char *text, const char *const *list, size_t count) {
  for (size_t i = 0; i < count; i++)
    if (strcmp(list[i], text) == 0) return true;
  return false;
}

static bool is_name(const char *text) {
  size_t size = strspn(text, NAME);
  return size >= 1 && size <= 32 && text[size] == 0;
}

/* Returns a text as a string of TOML in ASCII. */
static const char *quote(Work *work, const char *text) {
  static const char escaped[] = "\"\\\b\t\n\f\r", letters[] = "\"\\btnfr";
  const unsigned char *at = (const unsigned char *)text, *end = at + strlen(text);
  char *quoted = borrow(work, MOST_SHOWN * 10 + 6), *to = quoted;
  *to++ = '"';
  for (int shown = 0; at < end && shown < MOST_SHOWN; shown++) {
    unsigned long code = next_code(&at, end);
    const char *known = code > 0 && code < 0x80 ? strchr(escaped, (int)code) : NULL;
    if (known != NULL)
      to += sprintf(to, "\\%c", letters[known - escaped]);
    else if (code >= ' ' && code <= '~')
      *to++ = (char)code;
    else
      to += sprintf(to, code > 0xffff ? "\\U%08lX" : "\\u%04lX", code);
  }
  strcpy(to, at < end ? "\"..." : "\"");
  return quoted;
}

static const char *show(Work *work, const Value *value) {
  static const char *const kinds[] = {[NUMBER] = "a float", [LIST] = "an array", [TABLE] = "a table"};
  if (value->kind == TEXT) return quote(work, value->text);
  if (value->kind == INTEGER) return print(work, "%lld", (long long)value->integer);
  return value->kind == TRUTH ? value->truth ? "true" : "false" : kinds[value->kind];
}

/* Returns where a table is, in front of the name of a key, such as "library[0]." */
static const char *path_of(Work *work, const Value *table) {
  const Value *outer = table->outer;
  if (outer == NULL) return "";
  if (outer->kind == TABLE) return print(work, "%s%s.", path_of(work, outer), table->key);
  int at = 0;
  for (const Value *each = outer->first; each != table; each = each->next) at++;
  return print(work, "%s[%d].", outer->key, at);
}

/* Refuses a key whose value is not as expected. */
static void expect(Work *work, bool is_so, const Value *table, const char *key, const char *expected) {
  if (is_so) return;
  const Value *value = find(table, key);
  const char *shown = value == NULL ? "not there" : print(work, "found %s", show(work, value));
  REFUSE(work, correct, "%s%s: %s, expected %s", path_of(work, table), key, shown, expected);
}

/* Returns a value of this kind, or NULL where there is none. */
static const Value *get(Work *work, const Value *table, const char *key, Kind kind) {
  static const char *const kinds[] = {"a string", "an integer", "an array of strings", "", "", "a table"};
  const Value *value = find(table, key);
  expect(work, value == NULL || value->kind == kind, table, key, kinds[kind]);
  return value;
}

/* Returns a string, which must be there where `otherwise` is NULL. */
static const char *get_text(Work *work, const Value *table, const char *key, const char *otherwise) {
  const Value *value = get(work, table, key, TEXT);
  expect(work, value != NULL || otherwise != NULL, table, key, "a string");
  return value == NULL ? otherwise : copy(work, value->text);
}

/* Returns an integer, which must be there where `otherwise` is NULL. */
static int64_t get_integer(Work *work, const Value *table, const char *key, const int64_t *otherwise) {
  const Value *value = get(work, table, key, INTEGER);
  expect(work, value != NULL || otherwise != NULL, table, key, "an integer");
  return value == NULL ? *otherwise : value->integer;
}

static const char *get_name(Work *work, const Value *table, const char *key) {
  const char *name = get_text(work, table, key, NULL);
  expect(work, is_name(name), table, key, "a name of ASCII [a-z0-9_], 1 to 32 characters");
  return name;
}

static Names get_names(Work *work, const Value *table, const char *key) {
  const Value *list = get(work, table, key, LIST);
  Names names = {0};
  for (const Value *each = list == NULL ? NULL : list->first; each != NULL; each = each->next) {
    expect(work, each->kind == TEXT, table, key, "an array of strings");
    push(work, &names, copy(work, each->text));
  }
  return names;
}

static const Value *get_table(Work *work, const Value *table, const char *key) {
  static const Value empty = {.kind = TABLE};
  const Value *found = get(work, table, key, TABLE);
  return found == NULL ? &empty : found;
}

/* Returns the first of an array of tables. */
static const Value *get_tables(Work *work, const Value *top, const char *key) {
  const Value *list = find(top, key);
  bool is_list = list == NULL || list->kind == LIST;
  const Value *first = is_list && list != NULL ? list->first : NULL;
  for (const Value *each = first; each != NULL; each = each->next) is_list &= each->kind == TABLE;
  expect(work, is_list, top, key, print(work, "an array of tables ([[%s]])", key));
  return first;
}

/* Entries that are about Python's packages are for pjrt-hub: rules 19 and 20. */
static bool is_of_package(const Value *table) {
  return find(table, "distribution") || find(table, "module") || find(table, "variable");
}

static Version to_version(int major, int minor) { return (int64_t)major * ((int64_t)1 << 32) + minor; }

static const char *show_version(Work *work, Version version) {
  return print(work, "%d.%d", (int)(version >> 32), (int)(version & INT32_MAX));
}

static Version get_version(Work *work, const Value *table, const char *key, Version otherwise) {
  const char *text = get_text(work, table, key, "0.0");
  int major = 0, minor = 0, size = 0;
  if (text[strspn(text, DIGITS ".")] == 0) sscanf(text, "%9d.%9d%n", &major, &minor, &size);
  expect(work, size > 0 && text[size] == 0, table, key, "a PJRT API version such as '0.81'");
  return find(table, key) == NULL ? otherwise : to_version(major, minor);
}

static const char *get_path(Work *work, const Value *table, const char *key, const char *otherwise) {
  const char *path = get_text(work, table, key, otherwise);
  const char *framed = print(work, "/%s/", path);
  bool is_one = *path != 0 && strpbrk(path, "\\*?[") == NULL && strstr(framed, "/../") == NULL;
  expect(work, is_one, table, key, "a path with forward slashes, without '..', '*', '?', '['");
  return path;
}

/* ---- This machine: rules 19 and 24 ---- */

#ifdef __APPLE__
#define SYSTEM "macos"
#else
#define SYSTEM "linux"
#endif
#ifdef __x86_64__
#define MACHINE SYSTEM "-x86_64"
#elif defined(__aarch64__)
#define MACHINE SYSTEM "-aarch64"
#else
#define MACHINE SYSTEM "-another"
#endif

static const char *this_machine(Work *work) {
#ifdef __GLIBC__
  char version[64] = "";
  size_t size = confstr(_CS_GNU_LIBC_VERSION, version, sizeof version);
  if (size > sizeof "glibc") return print(work, "%s-glibc%s", MACHINE, version + sizeof "glibc");
#elif defined(__linux__)
  return (void)work, MACHINE "-musl";
#endif
  return (void)work, MACHINE;
}

/* A target: the length of its first two words, and of all, and the C library with its version. */
typedef struct { int size, whole; char libc[32], major[5], minor[5]; } Target;

static Target parse_target(const char *text) {
  Target target = {.libc = ""};
  sscanf(text, "%*[a-z0-9_]-%*[a-z0-9_]%n%n-%31[a-z]%n%4[0-9].%4[0-9]%n", &target.size, &target.whole, target.libc,
         &target.whole, target.major, target.minor, &target.whole);
  return target;
}

/* Tells whether a library for a target runs on this machine. */
static bool runs_here(Work *work, const Value *table, const char *target, const char *here) {
  Target needed = parse_target(target), ours = parse_target(here);
  bool is_one = needed.size > 0 && target[needed.whole] == 0;
  expect(work, is_one, table, "target", "a target such as 'linux-x86_64-glibc2.28'");
  int major = atoi(ours.major) - atoi(needed.major);
  bool is_old = major < 0 || (major == 0 && atoi(ours.minor) < atoi(needed.minor));
  return needed.size == ours.size && strncmp(target, here, (size_t)ours.size) == 0 &&
         (*needed.libc == 0 || (strcmp(ours.libc, needed.libc) == 0 && !is_old));
}

static const char *below_root(Work *work, const char *path) {
  return print(work, "%s/%s", PJRT_LOADER_ROOT, path + strspn(path, "/"));
}

/* Reads the beginning of a file of the kernel's as text, "" where there is none. */
static void read_system(const char *path, char text[MOST_SYSTEM]) {
  FILE *file = is_file(path) ? fopen(path, "rb") : NULL;
  text[file == NULL ? 0 : fread(text, 1, MOST_SYSTEM - 1, file)] = 0;
  if (file != NULL) fclose(file);
}

/* Tells whether the word in a file of the kernel's is one of these. */
static bool holds_word(const char *path, const Names *words) {
  char text[MOST_SYSTEM], word[32] = "";
  read_system(path, text);
  sscanf(text, "%31s", word);
  for (size_t i = 0; i < words->count; i++)
    if (strcasecmp(word, words->items[i]) == 0) return true;
  return false;
}

/* The context is the vendors and the devices, of which none stands for all. */
static bool is_device(Work *work, const char *folder, const char *name, const void *context) {
  const Names *wanted = context;
  const char *path = print(work, "%s/%s", folder, name);
  return holds_word(print(work, "%s/vendor", path), &wanted[0]) &&
         (wanted[1].count == 0 || holds_word(print(work, "%s/device", path), &wanted[1]));
}

/* The kernel's AMD compute driver lists processors, too, which have no SIMD units. */
static bool is_node(Work *work, const char *folder, const char *name, const void *context) {
  char text[MOST_SYSTEM];
  read_system(print(work, "%s/%s/properties", folder, name), text);
  for (const char *at = text; at != NULL; at = *at == 0 ? NULL : strchr(at + 1, '\n')) {
    int units;
    if (sscanf(at + (*at == '\n'), "simd_count %d", &units) == 1 && units > 0) return true;
  }
  return (void)context, false;
}

/* Finds a driver's version, the "550.54.15" in "Kernel Module  550.54.15  ..."; "" for none. */
static const char *find_version(Work *work, const char *text) {
  for (const char *at = text + strcspn(text, " \t\r\n"); *at != 0; at += strcspn(at, " \t\r\n")) {
    const char *begin = ++at;
    size_t size = strspn(begin, DIGITS), more = 0;
    while (begin[size + more] == '.' && strspn(begin + size + more + 1, DIGITS) > 0)
      more += 1 + strspn(begin + size + more + 1, DIGITS);
    if (size >= 3 && more > 0) return print(work, "%.*s", (int)(size + more), begin);
  }
  return "";
}

/* Tells whether the hardware is there, from files only, and says why: rule 24. */
static bool is_present(Work *work, const Value *probe, const char **reason) {
  static const char *const kinds[] = {"always", "files", "kfd", "pci"};
  const Value *driver = get_table(work, probe, "driver");
  const char *kind = get_text(work, probe, "kind", "always"), *found = NULL;
  Names files = get_names(work, probe, "files");
  const char *vendor = get_text(work, probe, "vendor", "");
  Names wanted[2] = {{0}, get_names(work, probe, "devices")};
  const char *driver_file = get_text(work, driver, "file", "");
  int64_t minimum = get_integer(work, driver, "minimum", &(int64_t){0});
  expect(work, is_among(kind, kinds, 4), probe, "kind", "one of always, files, kfd, pci");
  expect(work, *kind != 'f' || files.count > 0, probe, "files", "at least one path");
  expect(work, *kind != 'p' || *vendor != 0, probe, "vendor", "a PCI vendor such as '0x1ae0'");
  for (size_t i = 0; i < files.count; i++)
    expect(work, is_absolute(files.items[i]), probe, "files", "absolute paths");
  *reason = "needs no special hardware";
  if (*kind == 'a') return true;
  if (*kind == 'f') {
    for (size_t i = 0; i < files.count && found == NULL; i++)
      if (exists(below_root(work, files.items[i]))) found = print(work, "%s exists", files.items[i]);
    *reason = print(work, "none of %s exists", join(work, &files, ", "));
  } else if (*kind == 'k') {
    const char *nodes = below_root(work, "sys/class/kfd/kfd/topology/nodes");
    Names names = list_names(work, nodes, is_node, NULL);
    if (names.count > 0) found = print(work, "the AMD compute driver lists node %s", names.items[0]);
    *reason = "the AMD compute driver (kfd) lists no GPU";
  } else {
    push(work, &wanted[0], vendor);
    Names names = list_names(work, below_root(work, "sys/bus/pci/devices"), is_device, wanted);
    if (names.count > 0) found = print(work, "PCI device of %s at %s", vendor, names.items[0]);
    *reason = print(work, "no PCI device of vendor %s", vendor);
  }
  if (found == NULL) return false;
  *reason = found;
  char text[MOST_SYSTEM] = "";
  if (*driver_file != 0) read_system(below_root(work, driver_file), text);
  const char *version = find_version(work, text);
  if (*version == 0 || strtoll(version, NULL, 10) >= minimum) return true;
  *reason = print(work, "the driver is %s, %lld or newer is needed", version, (long long)minimum);
  return false;
}

/* ---- What a manifest says ---- */

/* Returns why a value is none of an option's, or NULL; an integer becomes a float where it must. */
static const char *fit(Work *work, const Option *option, pjrt_loader_option *value) {
  bool is_list = value->type == PJRT_LOADER_INT64_LIST, is_integer = value->type == PJRT_LOADER_INT64;
  if (strcmp(option->type, "unknown") == 0) return NULL;
  if (is_integer && strcmp(option->type, "float") == 0) {
    value->value.number = (float)value->value.int64;
    value->type = PJRT_LOADER_FLOAT;
    return NULL;
  }
  if (strcmp(option->type, types[value->type]) != 0)
    return print(work, "is of type %s, found a value of type %s", option->type, types[value->type]);
  const int64_t *numbers = is_list ? value->value.int64_list : &value->value.int64;
  for (size_t i = 0; i < (is_list ? value->count : is_integer); i++)
    if (numbers[i] < option->minimum || numbers[i] > option->maximum)
      return print(work, "is %lld; it must be from %lld to %lld", (long long)numbers[i], (long long)option->minimum,
                   (long long)option->maximum);
  return NULL;
}

/* Reads a value as an option's; false where no option has such a value. */
static bool read_default(Work *work, const Value *value, pjrt_loader_option *option) {
  option->type = (pjrt_loader_type)value->kind;
  option->count = value->kind == LIST ? value->count : 1;
  if (value->kind == TEXT) option->count = strlen(option->value.string = copy(work, value->text));
  if (value->kind == INTEGER) option->value.int64 = value->integer;
  if (value->kind == NUMBER) option->value.number = (float)value->number;
  if (value->kind == TRUTH) option->value.truth = value->truth;
  if (value->kind != LIST) return value->kind != TABLE;
  int64_t *to = take(work, value->count * sizeof *to);
  option->value.int64_list = to;
  const Value *each = value->first;
  for (; each != NULL && each->kind == INTEGER; each = each->next) *to++ = each->integer;
  return each == NULL;
}

static Option *read_option(Work *work, const Value *options, const char *key) {
  const Value *table = get_table(work, options, key), *default_value = find(table, "default");
  Option *option = take(work, sizeof *option);
  option->option.name = copy(work, key);
  option->type = get_text(work, table, "type", NULL);
  expect(work, is_among(option->type, types, 6), table, "type",
         "one of string, int64, int64_list, float, bool, unknown");
  option->minimum = get_integer(work, table, "minimum", &(int64_t){INT64_MIN});
  option->maximum = get_integer(work, table, "maximum", &(int64_t){INT64_MAX});
  option->since = get_version(work, table, "since", 0);
  option->has_default = default_value != NULL;
  bool is_one = !option->has_default ||
                (read_default(work, default_value, &option->option) && fit(work, option, &option->option) == NULL);
  const char *limits = find(table, "minimum") || find(table, "maximum") ? ", within its limits" : "";
  expect(work, is_one, table, "default", print(work, "a value of type %s%s", option->type, limits));
  return option;
}

/* Joins a folder and a path, without what means nothing in them. */
static const char *join_path(Work *work, const char *folder, const char *path) {
  const char *whole = is_absolute(path) || *folder == 0 ? path : print(work, "%s/%s", folder, path);
  char *plain = take(work, strlen(whole) + 2), *to = plain;
  if (*whole == '/') *to++ = '/';
  for (const char *at = whole; *at != 0; at += *at == '/') {
    size_t size = strcspn(at, "/");
    bool is_kept = size > 0 && (size > 1 || *at != '.');
    if (is_kept && to > plain && to[-1] != '/') *to++ = '/';
    if (is_kept) to = (char *)memcpy(to, at, size) + size;
    at += size;
  }
  if (to == plain) *to = '.';
  return plain;
}

/* Chooses the first library that fits and is there; returns why those before it are not. */
static const char *read_libraries(Work *work, const Value *top, Manifest *manifest) {
  const char *here = this_machine(work);
  Names tried = {0};
  for (const Value *each = get_tables(work, top, "library"); each != NULL; each = each->next) {
    if (is_of_package(each)) continue;
    const char *path = join_path(work, manifest->folder, get_path(work, each, "path", NULL));
    const char *digest = get_text(work, each, "sha256", "");
    const char *target = get_text(work, each, "target", MACHINE);
    bool is_for_here = runs_here(work, each, target, here);
    bool is_digest = strlen(digest) == 64 && strspn(digest, DIGITS "abcdef") == 64;
    expect(work, is_digest || !find(each, "sha256"), each, "sha256", "64 digits of [0-9a-f]");
    if (*manifest->entry.library != 0) continue;
    const char *fault = is_for_here ? find_fault(work, path)
                                    : print(work, "%s is for %s, this machine is %s", path, target, here);
    if (fault != NULL) push(work, &tried, fault);
    if (fault == NULL) manifest->entry.library = path, manifest->digest = digest;
  }
  return join(work, &tried, "; ");
}

static void read_preloads(Work *work, const Value *top, Manifest *manifest) {
  for (const Value *each = get_tables(work, top, "preload"); each != NULL; each = each->next) {
    if (is_of_package(each)) continue;
    Names names = get_names(work, each, "libraries");
    const char *folder = join_path(work, manifest->folder, get_path(work, each, "folder", "lib"));
    expect(work, names.count > 0 && strchr(join(work, &names, ""), '/') == NULL, each, "libraries",
           "file names such as 'libcudart.so.13'");
    for (size_t i = 0; i < names.count; i++) {
      const char *path = join_path(work, folder, names.items[i]);
      if (is_file(path)) push(work, &manifest->before, path);
    }
  }
}

static void read_variables(Work *work, const Value *variables, Manifest *manifest) {
  static const char *const moments[] = {"always", "present", "absent"};
  bool is_here = manifest->entry.hardware == PJRT_LOADER_HARDWARE_PRESENT;
  for (const Value *each = variables->first; each != NULL; each = each->next) {
    bool is_table = each->kind == TABLE;
    const char *value = get_text(work, is_table ? each : variables, is_table ? "value" : each->key, NULL);
    const char *when = is_table ? get_text(work, each, "when", "always") : "always";
    expect(work, is_among(when, moments, 3), each, "when", "one of always, present, absent");
    if (strcmp(when, is_here ? "absent" : "present") != 0)
      push(work, &manifest->defaults, print(work, "%s=%s", each->key, value));
  }
}

static void settle(Manifest *manifest, pjrt_loader_state state, const char *reason, const char *hint) {
  manifest->entry.state = state;
  manifest->entry.reason = reason;
  manifest->entry.hint = hint;
}

static void read_keys(Work *work, const Value *top, Manifest *manifest) {
  pjrt_loader_entry *entry = &manifest->entry;
  expect(work, get_integer(work, top, "schema", NULL) == 1, top, "schema", "1, the only one that is known here");
  bool is_its_name = strcmp(get_name(work, top, "name"), entry->name) == 0;
  expect(work, is_its_name, top, "name", print(work, "\"%s\", the name of its file", entry->name));
  manifest->aliases = get_names(work, top, "aliases");
  for (size_t i = 0; i < manifest->aliases.count; i++)
    expect(work, is_name(manifest->aliases.items[i]), top, "aliases", "names of [a-z0-9_], 1 to 32 characters");
  int64_t priority = get_integer(work, top, "priority", &(int64_t){400});
  expect(work, priority >= 0 && priority <= 1000, top, "priority", "an integer from 0 to 1000");
  entry->priority = (int)priority;
  const Value *api = get_table(work, top, "api"), *variables = get_table(work, top, "environment");
  entry->platform = get_name(work, top, "platform");
  entry->description = get_text(work, top, "description", "");
  const char *reason, *absent = read_libraries(work, top, manifest);
  read_preloads(work, top, manifest);
  bool is_here = is_present(work, get_table(work, top, "probe"), &reason);
  entry->hardware = is_here ? PJRT_LOADER_HARDWARE_PRESENT : PJRT_LOADER_HARDWARE_ABSENT;
  const Value *options = get_table(work, top, "options");
  Option **end = &manifest->options;
  for (const Value *each = options->first; each != NULL; each = each->next, end = &(*end)->next)
    *end = read_option(work, options, each->key);
  read_variables(work, variables, manifest);
  manifest->least = get_version(work, api, "minimum", 0);
  manifest->most = get_version(work, api, "maximum", INT64_MAX);
  expect(work, *absent != 0 || *entry->library != 0, top, "library", "at least one [[library]] with a path");
  const char *hint = "install the plugin where this process may read it, or remove its manifest";
  settle(manifest, PJRT_LOADER_USABLE, reason, "");
  if (*entry->library == 0) settle(manifest, PJRT_LOADER_ABSENT, absent, hint);
}

static void read_manifest(Work *work) {
  Manifest *manifest = work->last;
  const char *refusal, *path = manifest->entry.manifest;
  char *bytes = borrow(work, MOST_BYTES + 2);
  FILE *file = open_file(work, path, &refusal);
  if (file == NULL) refuse(work, work->hint, refusal);
  size_t size = fread(bytes, 1, MOST_BYTES + 1, file);
  bool has_failed = ferror(file) != 0;
  fclose(file);
  if (has_failed) refuse(work, "", "cannot be read");
  if (size > MOST_BYTES) refuse(work, correct, "cannot be read: larger than 65,536 bytes");
  manifest->folder = real_folder(work, path);
  read_keys(work, read_text(work, bytes, size), manifest);
  if (manifest->entry.state == PJRT_LOADER_USABLE)
    for (size_t i = 0; i <= manifest->before.count; i++) {
      const char *library = i > 0 ? manifest->before.items[i - 1] : manifest->entry.library;
      const char *reason = distrust_path(work, library);
      if (reason != NULL) REFUSE(work, own, "%s: %s", library, reason);
    }
}

/* ---- All manifests: rules 1 to 7 ---- */

static Manifest *add_entry(Work *work, const char *name, const char *path) {
  Manifest *manifest = take(work, sizeof *manifest);
  *manifest = (Manifest){.entry = {name, "", "", path, "", 0, 0, 0, "", "", 0, 0}, .digest = "", .most = INT64_MAX};
  *(work->first == NULL ? &work->first : &work->last->next) = manifest;
  work->found++;
  return work->last = manifest;
}

/* Matches a name against a pattern where only `*` has a meaning. */
static bool matches(const char *name, const char *pattern) {
  const char *star = NULL, *tried = NULL;
  while (*name != 0) {
    if (*pattern == '*')
      star = ++pattern, tried = name;
    else if (*pattern == *name)
      pattern++, name++;
    else if (star != NULL)
      pattern = star, name = ++tried;
    else
      return false;
  }
  return pattern[strspn(pattern, "*")] == 0;
}

/* Returns the parts of a variable, without blanks around them and without empty ones. */
static Names split(Work *work, const char *name, const char *separator, const char *blanks) {
  const char *text = variable(work, name);
  Names parts = {0};
  for (size_t size; text != NULL && *text != 0; text += size + (text[size] != 0)) {
    text += strspn(text, blanks);
    size = strcspn(text, separator);
    size_t end = size;
    while (end > 0 && strchr(blanks, text[end - 1]) != NULL) end--;
    if (end > 0) push(work, &parts, print(work, "%.*s", (int)end, text));
  }
  return parts;
}

static bool is_matched(const char *name, const Names *patterns) {
  for (size_t i = 0; i < patterns->count; i++)
    if (matches(name, patterns->items[i])) return true;
  return false;
}

/* Returns which variable leaves a plugin out, or NULL: rule 6. */
static const char *veto(const Work *work, const char *name) {
  if (work->selected.count == 0) return is_matched(name, &work->disabled) ? "PJRT_HUB_DISABLE names it" : NULL;
  return is_matched(name, &work->selected) ? NULL : "PJRT_HUB_SELECT does not name it";
}

static bool is_manifest(Work *work, const char *folder, const char *name, const void *context) {
  size_t size = strspn(name, NAME);
  bool is_named = size >= 1 && size <= 32 && strcmp(name + size, ".toml") == 0;
  return (void)context, is_named && is_file(print(work, "%s/%s", folder, name));
}

static void add_manifest(Work *work, const char *folder, const char *file) {
  const char *name = print(work, "%.*s", (int)strcspn(file, "."), file);
  const Manifest *winner = work->first;
  while (winner != NULL && strcmp(winner->entry.name, name) != 0) winner = winner->next;
  Manifest *manifest = add_entry(work, name, print(work, "%s/%s", folder, file));
  const char *reason = veto(work, name);
  if (winner != NULL) {
    settle(manifest, PJRT_LOADER_HIDDEN, print(work, "hidden by %s", winner->entry.manifest), "remove one of them");
  } else if (reason != NULL) {
    settle(manifest, PJRT_LOADER_DISABLED, reason, "change that variable");
  } else if (!attempt(work, read_manifest)) {
    manifest->entry.platform = manifest->entry.description = manifest->entry.library = "";
    manifest->entry.hardware = PJRT_LOADER_HARDWARE_UNKNOWN;
    settle(manifest, PJRT_LOADER_REFUSED, work->refusal, work->hint);
  }
  close_folder(work);
  release(&work->borrowed);
}

static void add_folder(Work *work, const char *path) {
  path = join_path(work, "", path);
  const char *place = identify(work, path);
  if (is_among(place, work->places.items, work->places.count)) return;
  push(work, &work->places, place);
  push(work, &work->folders, path);
  const char *refusal = "it is not an absolute path";
  work->hint = "write the whole path into the variable";
  Names names = is_absolute(path) ? list_trusted(work, path, is_manifest, &refusal) : (Names){0};
  if (names.count > MOST_NAMES)
    refusal = print(work, "it holds more than %d manifests", MOST_NAMES), work->hint = "remove some";
  if (refusal != NULL) settle(add_entry(work, "", path), PJRT_LOADER_REFUSED, refusal, work->hint);
  for (size_t i = 0; i < names.count && refusal == NULL; i++) add_manifest(work, path, names.items[i]);
}

/* Finds all manifests: rule 2, and rule 7. */
static void find_manifests(Work *work) {
  static const char *const places[][2] = {{"VIRTUAL_ENV", "etc/pjrt/plugins"}, {"CONDA_PREFIX", "etc/pjrt/plugins"},
                                          {"XDG_CONFIG_HOME", "pjrt/plugins"}, {"HOME", ".config/pjrt/plugins"}};
  if (!is_elevated()) {
    work->selected = split(work, "PJRT_HUB_SELECT", ",", " \t");
    work->disabled = split(work, "PJRT_HUB_DISABLE", ",", " \t");
    Names folders = split(work, "PJRT_PLUGIN_MANIFESTS", ":", "");
    for (size_t i = 0; i < folders.count; i++) add_folder(work, folders.items[i]);
    for (size_t i = 0; i < 4; i++) {
      const char *above = variable(work, places[i][0]);
      if (above == NULL) continue;
      add_folder(work, print(work, "%s/%s", above, places[i][1]));
      if (i == 2) break; /* HOME only counts without the one before it */
    }
  }
  add_folder(work, below_root(work, "etc/pjrt/plugins"));
}

/* ---- Which plugin: rule 25 ---- */

/* Ranks a manifest: by whether its name, its platform or an alias is meant, whether its hardware is here, and its
   priority; 0 means that it is not meant. What cannot be opened counts by its name alone, so that nobody gets
   another plugin in its place unawares. */
static int rank(const Manifest *manifest, const char *what) {
  const pjrt_loader_entry *entry = &manifest->entry;
  bool is_usable = entry->state == PJRT_LOADER_USABLE, is_named = *what != 0;
  int how = is_named ? is_usable && is_among(what, manifest->aliases.items, manifest->aliases.count) : is_usable;
  if (is_named && is_usable && strcmp(entry->platform, what) == 0) how = 2;
  if (is_named && entry->state != PJRT_LOADER_HIDDEN && strcmp(entry->name, what) == 0) how = 3;
  return how * 10000 + (how > 0 ? entry->priority : 0) +
         (how > 0 && entry->hardware != PJRT_LOADER_HARDWARE_ABSENT ? 2000 : 0);
}

/* Refuses with what was found, a line for each, and tells how to mend the first that may be what is meant. */
_Noreturn static void refuse_all(Work *work, const char *what, const char *failed) {
  Names lines = {0};
  const char *hint = print(work, "install a manifest in one of %s", join(work, &work->folders, ", ")), *first = NULL;
  push(work, &lines, failed);
  for (const Manifest *each = work->first; each != NULL; each = each->next) {
    const pjrt_loader_entry *entry = &each->entry;
    const char *usable = print(work, "%s, platform %s, priority %d: ", entry->name, entry->platform, entry->priority);
    bool is_usable = entry->state == PJRT_LOADER_USABLE, is_absent = entry->state == PJRT_LOADER_ABSENT;
    bool is_meant = is_absent ? *what == 0 || strcmp(entry->platform, what) == 0
                              : !is_usable && entry->state != PJRT_LOADER_HIDDEN;
    push(work, &lines, print(work, "%s%s: %s", is_usable ? usable : "", entry->manifest, entry->reason));
    if (is_meant && first == NULL) hint = first = print(work, "for %s, %s", entry->manifest, entry->hint);
  }
  refuse(work, hint, join(work, &lines, "\n"));
}

static Manifest *choose(Work *work, const char *what) {
  Manifest *best = NULL;
  const pjrt_loader_entry *rival = NULL, *entry;
  int most = 0;
  for (Manifest *each = work->first; each != NULL; each = each->next) {
    int found_rank = rank(each, what);
    if (found_rank == most) rival = &each->entry;
    if (found_rank > most) most = found_rank, best = each, rival = NULL;
  }
  if (best == NULL && *what != 0)
    refuse_all(work, what, print(work, "no plugin, platform or alias is named %s", quote(work, what)));
  /* By its name or its platform it is opened without its hardware, too: it may serve to compile. */
  if (best == NULL || most < 12000) refuse_all(work, what, "no plugin can be opened on this machine");
  entry = &best->entry;
  if (entry->state != PJRT_LOADER_USABLE)
    REFUSE(work, entry->hint, "the plugin %s cannot be opened: %s: %s", entry->name, entry->manifest, entry->reason);
  if (rival == NULL) return best;
  REFUSE(work, print(work, "open one by its name, %s or %s", entry->name, rival->name),
         "two plugins have the priority %d: %s (%s) and %s (%s)", entry->priority, entry->name, entry->manifest,
         rival->name, rival->manifest);
}

/* ---- Opening: rules 10, 23, 26 and 27 ---- */

/* The arguments of the plugin's first functions. */
typedef struct {
  size_t struct_size;
  void *extension_start, *error;
  union { const char *message; int code; };
  size_t message_size;
} Arguments;

/* The beginning of a PJRT_Api. */
typedef struct {
  size_t struct_size;
  void *extension_start;
  struct { size_t struct_size; void *extension_start; int major, minor; } version;
  void (*error_destroy)(Arguments *);
  void (*error_message)(Arguments *);
  void *(*error_get_code)(Arguments *);
  void *(*plugin_initialize)(Arguments *);
} Api;

typedef const Api *(*GetApi)(void);
enum { INVALID_ARGUMENT = 3, UNIMPLEMENTED = 12, MOST_ERROR = 4096 };

struct pjrt_loader_plugin {
  pjrt_loader_plugin *next;
  Block *blocks; /* where all else is */
  const Manifest *manifest;
  GetApi get; /* it tells one library from another */
  const Api *api;
  Version version;
  const char *refusal; /* why it could not be initialized, or NULL */
};

typedef struct Result {
  union { pjrt_loader_listing listing; pjrt_loader_options options; };
  Block *blocks; /* what it consists of, this struct, too */
} Result;

static pjrt_loader_plugin *all_plugins; /* of this process: none is ever freed */

/* Checks a library's owner and, where `digest` is not "", its sha256. The file is the one that is open; the system
   then opens its path again, and whoever may write to a folder above it could replace the file between the two. */
static void check_library(Work *work, const char *path, const char *digest) {
  const char *refusal;
  char digits[65] = "";
  FILE *file = open_file(work, path, &refusal);
  if (file == NULL) REFUSE(work, work->hint, "the library %s: %s", path, refusal);
  bool is_read = *digest == 0 || hash_file(file, digits);
  fclose(file);
  if (!is_read) REFUSE(work, reinstall, "the library %s cannot be read", path);
  if (strcmp(digits, digest) != 0)
    REFUSE(work, reinstall, "the library %s has the sha256 %s, its manifest expects %s", path, digits, digest);
}

static void check_version(Work *work, const Manifest *manifest, Version version) {
  const char *path = manifest->entry.library, *shown = show_version(work, version);
  Version ours = to_version(work->settings.api_major, work->settings.api_minor);
  bool is_late = version > manifest->most;
  if (version >> 32 != ours >> 32)
    REFUSE(work, "install a release of the plugin that fits, or of the program",
           "%s cannot be used: it has PJRT API %s, the program is written for %s", path, shown,
           show_version(work, ours));
  if (is_late || version < manifest->least)
    REFUSE(work, reinstall, "%s cannot be used: it has PJRT API %s, %s is for %s and %s", path, shown,
           manifest->entry.manifest, show_version(work, is_late ? manifest->most : manifest->least),
           is_late ? "older" : "newer");
}

/* Calls PJRT_Plugin_Initialize, and writes the plugin's error to a text. That it has nothing to do, or that another
   part of the process did it, is no error. */
static bool initialize(const Api *api, char text[MOST_ERROR]) {
  Arguments call = {.struct_size = offsetof(Arguments, error)};
  void *error = api->plugin_initialize == NULL ? NULL : api->plugin_initialize(&call);
  if (error == NULL) return true;
  Arguments code = {.struct_size = offsetof(Arguments, code) + sizeof(int), .error = error};
  if (api->error_get_code != NULL) api->error_get_code(&code);
  Arguments message = {.struct_size = sizeof message, .error = error};
  if (api->error_message != NULL) api->error_message(&message);
  size_t size = message.message_size < MOST_ERROR ? message.message_size : MOST_ERROR - 1;
  if (message.message != NULL) memcpy(text, message.message, size);
  if (*text == 0) strcpy(text, "it does not say why");
  Arguments end = {.struct_size = offsetof(Arguments, message), .error = error};
  if (api->error_destroy != NULL) api->error_destroy(&end);
  return code.code == UNIMPLEMENTED || (code.code == INVALID_ARGUMENT && strstr(text, "already") != NULL);
}

/* Loads a library after what it needs, and initializes it, unless this process has tried to. */
static void load(Work *work, Manifest *manifest) {
  const char *path = manifest->entry.library;
  pjrt_loader_plugin *plugin, *other = all_plugins;
  char *text = take(work, MOST_ERROR);
  for (size_t i = 0; i < manifest->defaults.count; i++) set_variable(work, manifest->defaults.items[i]);
  for (size_t i = 0; i < manifest->before.count; i++) {
    check_library(work, manifest->before.items[i], "");
    load_library(work, manifest->before.items[i], true);
  }
  GetApi get = (GetApi)(uintptr_t)find_symbol(load_library(work, path, false), "GetPjrtApi");
  if (get == NULL) REFUSE(work, "give a plugin's library", "%s is not a PJRT plugin: it exports no GetPjrtApi", path);
  while (other != NULL && other->get != get) other = other->next;
  const Api *api = other != NULL ? other->api : get();
  if (api == NULL || api->struct_size < sizeof *api)
    REFUSE(work, reinstall, "%s is not a usable PJRT plugin: GetPjrtApi returns a table of %zu bytes", path,
           api == NULL ? 0 : api->struct_size);
  Version version = to_version(api->version.major, api->version.minor);
  check_version(work, manifest, version);
  manifest->entry.api_major = api->version.major, manifest->entry.api_minor = api->version.minor;
  plugin = malloc(sizeof *plugin);
  if (plugin == NULL) refuse(work, "", no_memory);
  *plugin = (pjrt_loader_plugin){all_plugins, NULL, manifest, get, api, version, NULL};
  all_plugins = work->plugin = plugin;
  work->is_owned = true;
  plugin->refusal = other != NULL ? other->refusal : initialize(api, text) ? NULL : text;
}

static void open_plugin(Work *work, Manifest *manifest) {
  const pjrt_loader_entry *entry = &manifest->entry;
  check_library(work, entry->library, work->settings.verify ? manifest->digest : "");
  for (pjrt_loader_plugin *each = all_plugins; each != NULL; each = each->next)
    if (strcmp(each->manifest->entry.library, entry->library) == 0 &&
        strcmp(each->manifest->entry.manifest, entry->manifest) == 0)
      work->plugin = each;
  if (work->plugin != NULL)
    check_version(work, manifest, work->plugin->version);
  else
    load(work, manifest);
  if (work->plugin->refusal != NULL)
    REFUSE(work, "", "PJRT_Plugin_Initialize of %s failed: %s", entry->library, work->plugin->refusal);
}

static void open_what(Work *work) {
  const char *what = work->what == NULL ? "" : work->what;
  if (strchr(what, '/') == NULL) {
    find_manifests(work);
    open_plugin(work, choose(work, what));
    return;
  }
  if (!is_absolute(what)) REFUSE(work, "give the whole path of the library", "%s is not an absolute path", what);
  Manifest *manifest = add_entry(work, "", "");
  manifest->entry.library = join_path(work, "", what);
  settle(manifest, PJRT_LOADER_USABLE, "its path was given", "");
  open_plugin(work, manifest);
}

/* ---- The options of PJRT_Client_Create: rule 22 ---- */

/* Returns what the program gives for an option, or NULL. */
static const pjrt_loader_option *find_given(const Work *work, const char *name) {
  for (size_t i = 0; i < work->count; i++)
    if (work->given[i].name != NULL && strcmp(work->given[i].name, name) == 0) return &work->given[i];
  return NULL;
}

/* Returns the option of the manifest that a given one is, or NULL where there is no manifest. */
static const Option *find_option(Work *work, const Manifest *manifest, const char *name) {
  Names names = {0};
  for (const Option *each = manifest->options; each != NULL; each = each->next) {
    if (strcmp(each->option.name, name) == 0) return each;
    push(work, &names, each->option.name);
  }
  if (*manifest->entry.manifest == 0) return NULL;
  REFUSE(work, "leave it out", "%s has no create option %s; it has %s", manifest->entry.name, quote(work, name),
         names.count > 0 ? join(work, &names, ", ") : "none");
}

static void merge_options(Work *work) {
  const Manifest *manifest = work->plugin->manifest;
  Version version = work->plugin->version;
  size_t count = 0, room = work->count;
  for (const Option *each = manifest->options; each != NULL; each = each->next) room++;
  pjrt_loader_option *merged = take(work, room * sizeof *merged);
  for (size_t i = 0; i < work->count; i++) {
    const pjrt_loader_option *given = &work->given[i];
    if (given->name == NULL) REFUSE(work, "", "the option %zu has no name", i);
    const char *name = quote(work, given->name);
    const Option *option = find_option(work, manifest, given->name);
    if ((unsigned)given->type > PJRT_LOADER_BOOL)
      REFUSE(work, "", "the option %s is of type %d, which is none", name, (int)given->type);
    if (find_given(work, given->name) != given) REFUSE(work, "", "the option %s is given twice", name);
    bool is_text = given->type == PJRT_LOADER_STRING, is_list = given->type == PJRT_LOADER_INT64_LIST;
    if ((is_text && given->value.string == NULL) || (is_list && given->count > 0 && given->value.int64_list == NULL))
      REFUSE(work, "", "the option %s has no value", name);
    merged[count++] = *given;
    if (!is_list) merged[count - 1].count = is_text ? given->count : 1;
    if (is_text && given->count == 0) merged[count - 1].count = strlen(given->value.string);
    if (option == NULL) continue;
    if (version < option->since)
      REFUSE(work, "leave it out", "the option %s is of PJRT API %s, %s has %s", name,
             show_version(work, option->since), manifest->entry.name, show_version(work, version));
    const char *reason = fit(work, option, &merged[count - 1]);
    if (reason != NULL) REFUSE(work, "", "the option %s of %s %s", name, manifest->entry.name, reason);
  }
  for (const Option *each = manifest->options; each != NULL; each = each->next)
    if (each->has_default && version >= each->since && find_given(work, each->option.name) == NULL)
      merged[count++] = each->option;
  work->result = take(work, sizeof *work->result);
  work->result->options = (pjrt_loader_options){count, merged};
}

/* ---- The public functions ---- */

static void list_all(Work *work) {
  find_manifests(work);
  pjrt_loader_entry *entries = take(work, work->found * sizeof *entries), *to = entries;
  for (const Manifest *each = work->first; each != NULL; each = each->next) *to++ = each->entry;
  work->result = take(work, sizeof *work->result);
  work->result->listing = (pjrt_loader_listing){work->found, entries};
}

/* Calls a function, one at a time; where it refuses, says why, and frees all of the work. */
static bool run(Work *work, void (*act)(Work *), char **error) {
  lock();
  bool is_done = attempt(work, act);
  if (work->is_owned) work->plugin->blocks = work->kept;
  unlock();
  if (error != NULL) *error = NULL;
  if (!is_done && error != NULL) {
    const char *between = *work->hint == 0 ? "" : "\n\nhint: ";
    size_t size = strlen(work->refusal) + strlen(between) + strlen(work->hint) + 1;
    *error = malloc(size);
    if (*error != NULL) snprintf(*error, size, "%s%s%s", work->refusal, between, work->hint);
    if (*error == NULL) *error = (char *)no_memory;
  }
  close_folder(work);
  release(&work->borrowed);
  if (!work->is_owned && (!is_done || work->result == NULL)) release(&work->kept);
  if (is_done && work->result != NULL) work->result->blocks = work->kept;
  return is_done;
}

static void free_result(void *result) {
  Block *blocks = result == NULL ? NULL : ((Result *)result)->blocks;
  release(&blocks);
}

pjrt_loader_listing *pjrt_loader_list(char **error) {
  Work work = {.what = NULL};
  return run(&work, list_all, error) ? &work.result->listing : NULL;
}

pjrt_loader_plugin *pjrt_loader_open(const char *what, const pjrt_loader_settings *settings, char **error) {
  Work work = {.what = what, .settings = settings == NULL ? (pjrt_loader_settings){0} : *settings};
  return run(&work, open_what, error) ? work.plugin : NULL;
}

pjrt_loader_options *pjrt_loader_create_options(const pjrt_loader_plugin *plugin, const pjrt_loader_option *given,
                                                size_t count, char **error) {
  Work work = {.plugin = (pjrt_loader_plugin *)plugin, .given = given, .count = given == NULL ? 0 : count};
  return run(&work, merge_options, error) ? &work.result->options : NULL;
}

const struct PJRT_Api *pjrt_loader_api(const pjrt_loader_plugin *plugin) { return (const void *)plugin->api; }
const pjrt_loader_entry *pjrt_loader_describe(const pjrt_loader_plugin *plugin) { return &plugin->manifest->entry; }
void pjrt_loader_close(pjrt_loader_plugin *plugin) { (void)plugin; }
void pjrt_loader_free_listing(pjrt_loader_listing *listing) { free_result(listing); }
void pjrt_loader_free_options(pjrt_loader_options *options) { free_result(options); }
void pjrt_loader_free_error(char *error) { free(error == no_memory ? NULL : error); }
