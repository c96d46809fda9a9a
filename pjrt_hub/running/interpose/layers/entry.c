/* Files among those of finding/store/cache/program_cache.py, which removes them when they are too
   many. Whoever can write there can run code in this process. */
#include <fcntl.h>
#include <stdio.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#include "layers.h"

enum { FOLDER = O_RDONLY | O_DIRECTORY | O_CLOEXEC };
static const off_t most = (off_t)2 << 30;
static char root[4096];

static const char *said(const char *name) {
  const char *value = secure_getenv(name);
  return value != NULL && *value != 0 ? value : NULL;
}

/* Finds the cache's root as ProgramCache.from_env does, and makes it. */
bool entries_start(void) {
  char here[2048];
  const char *named = said("PJRT_HUB_COMPILE_CACHE"), *above = said("HOME"), *below;
  if (getuid() != geteuid() || getgid() != getegid()) return false;
  if (named == NULL || strcmp(named, "0") == 0 || strcmp(named, "1") == 0)
    named = said("PJRT_HUB_CACHE");
  if (named == NULL) {
    const char *caches = said("XDG_CACHE_HOME");
    below = caches != NULL ? "pjrt-hub" : ".cache/pjrt-hub";
    if (caches != NULL) above = caches;
  } else if (*named == '~') {
    below = named + 1;
  } else {
    above = *named == '/' ? "" : getcwd(here, sizeof here);
    below = named;
  }
  if (above == NULL || (*above != '/' && *above != 0)) return false;
  while (*below == '/') below++;
  if (snprintf(root, sizeof root, "%s/%s", above, below) >= (int)sizeof root) return false;
  for (char *at = strchr(root + 1, '/'); at != NULL; at = strchr(at + 1, '/')) {
    *at = 0;
    mkdir(root, 0777);
    *at = '/';
  }
  mkdir(root, 0700);
  return true;
}

static bool is_own(const struct stat *found) {
  return found->st_uid == 0 || found->st_uid == geteuid();
}

static bool is_safe(int file, struct stat *found) {
  return fstat(file, found) == 0 && is_own(found) && (found->st_mode & (S_IWGRP | S_IWOTH)) == 0;
}

/* Opens the folder of an entry, and makes it first if asked to; -1 if there is none, or if somebody
   else could have filled a folder on the way. Below the root, no link is followed. */
static int open_folder(const char *name, bool makes) {
  const char first[] = {name[0], name[1], 0}, *const parts[] = {"v1", "compiled", first, NULL};
  struct stat found;
  if (lstat(root, &found) != 0 || (S_ISLNK(found.st_mode) && !is_own(&found))) return -1;
  int folder = open(root, FOLDER);
  for (const char *const *part = parts; folder >= 0; part++) {
    bool safe = is_safe(folder, &found);
    if (safe && *part == NULL) break;
    if (safe && makes) mkdirat(folder, *part, part == parts ? 0755 : 0700);
    int below = safe ? openat(folder, *part, FOLDER | O_NOFOLLOW) : -1;
    close(folder);
    folder = below;
  }
  return folder;
}

/* Stands before a value. Its sums tell damage; a sha256 would take a tenth of a hit's time. */
typedef struct {
  char magic[24];
  uint64_t nbytes, sums[4];
} Header;

static Header seal(const char *value, size_t nbytes) {
  Header header = {"\x93pjrt-hub program 1\n", nbytes, {1, 2, 3, 4}};
  for (size_t at = 0; at < nbytes; at += 32) {
    uint64_t words[4] = {0};
    memcpy(words, value + at, nbytes - at < 32 ? nbytes - at : 32);
    for (int i = 0; i < 4; i++) {
      header.sums[i] = (header.sums[i] ^ words[i]) * 0x9e3779b97f4a7c15;
      header.sums[i] ^= header.sums[i] >> 32;
    }
  }
  return header;
}

/* Returns the value of an entry, for free(), or NULL. A damaged entry is removed. */
void *entry_read(const char *name, size_t *nbytes) {
  char *value = NULL;
  Header header, written;
  struct stat found;
  int folder = open_folder(name, false), flags = O_RDONLY | O_NOFOLLOW | O_NONBLOCK | O_CLOEXEC;
  int place = folder >= 0 ? openat(folder, name, flags) : -1;
  bool safe = place >= 0 && is_safe(place, &found) && S_ISREG(found.st_mode);
  FILE *file = safe && found.st_size <= most ? fdopen(place, "rb") : NULL;
  if (file != NULL) {
    bool whole = fread(&written, sizeof written, 1, file) == 1;
    *nbytes = whole ? (size_t)found.st_size - sizeof written : 0;
    value = malloc(*nbytes + 1);
    whole = whole && value != NULL && fread(value, 1, *nbytes, file) == *nbytes;
    if (whole) header = seal(value, *nbytes);
    if (value != NULL && (!whole || memcmp(&header, &written, sizeof header) != 0)) {
      fprintf(stderr, "pjrt-hub: removed the damaged compiled program %s from %s\n", name, root);
      unlinkat(folder, name, 0);
      free(value);
      value = NULL;
    }
    futimens(place, NULL); /* Evictions go by this time. */
    fclose(file);
  } else if (place >= 0) {
    close(place);
  }
  if (folder >= 0) close(folder);
  return value;
}

/* Writes an entry, all or nothing, even through a power cut. */
void entry_write(const char *name, const void *value, size_t nbytes) {
  static atomic_bool told;
  char partial[112];
  Header header = seal(value, nbytes);
  struct timespec now;
  struct rlimit bound; /* Writing beyond it would end the process. */
  size_t whole = sizeof header + nbytes;
  if (whole > (size_t)most) return;
  clock_gettime(CLOCK_REALTIME, &now);
  snprintf(partial, sizeof partial, ".%s.%x%lx", name, (unsigned)getpid(), now.tv_nsec);
  int folder = open_folder(name, true), flags = O_WRONLY | O_CREAT | O_EXCL | O_CLOEXEC;
  bool fits = getrlimit(RLIMIT_FSIZE, &bound) != 0 || bound.rlim_cur >= whole;
  int place = folder >= 0 && fits ? openat(folder, partial, flags, 0600) : -1;
  FILE *file = place >= 0 ? fdopen(place, "wb") : NULL;
  bool kept = file != NULL && fwrite(&header, sizeof header, 1, file) == 1 &&
              fwrite(value, 1, nbytes, file) == nbytes && fflush(file) == 0 && fsync(place) == 0;
  if (file != NULL) kept &= fclose(file) == 0;
  kept = kept && renameat(folder, partial, folder, name) == 0;
  if (!kept && place >= 0) unlinkat(folder, partial, 0);
  if (!kept && !atomic_exchange(&told, true))
    fprintf(stderr, "pjrt-hub: compiled programs are not kept: %s has no room, cannot be written, or "
                    "others can write there\n", root);
  if (folder >= 0) close(folder);
}
