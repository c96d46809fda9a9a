/* The layer that compiles a program once: the next process of any host loads it from disk. What
   cannot be named, kept or loaded is compiled, as without the layer. */
#include <dlfcn.h>
#include <fcntl.h>
#include <stdio.h>
#include <sys/stat.h>
#include <unistd.h>

#include "layers.h"

/* Programs with these names in them call functions of the process that compiles them, as JAX's do. */
static const char *const bound[] = {"_callback", "CustomSPMDPartitioning", "InspectSharding"};

/* Options are three messages, each in field 3 of the one before. Fields of kind 2 have a length, and
   the entries of maps, whose keys are texts, begin with a KEY. */
enum { MESSAGES = 3, NEXT_MESSAGE = 3, LONG = 2, KEY = 10 };

/* Asks the plugin for `name`, or returns false. */
#define ASK(name, function, ...)                \
  SIZED(PJRT_##function##_Args, name, __VA_ARGS__); \
  if (!plugin_answers(plugin, FN_PJRT_##function, &name)) return false

static void add_part(Sha256 *sha, const void *data, size_t nbytes) {
  uint64_t length = nbytes;
  sha256_add(sha, &length, sizeof length);
  sha256_add(sha, data, nbytes);
}

static void add_text(Sha256 *sha, const char *text) { add_part(sha, text, strlen(text)); }

/* A field of a message; `held` is the content of a long one. */
typedef struct {
  const uint8_t *begin, *held, *next, *end;
  uint64_t number, kind;
} Field;

static uint64_t read_number(Field *field) {
  uint64_t number = 0;
  for (int shift = 0; field->next < field->end && shift < 64; shift += 7) {
    number |= (uint64_t)(*field->next & 127) << shift;
    if (*field->next++ < 128) break;
  }
  return number;
}

/* Goes to the next field. What is none reaches to the end, and is of no kind. */
static bool next_field(Field *field) {
  field->begin = field->next;
  if (field->begin == field->end) return false;
  uint64_t key = read_number(field), nbytes = UINT64_MAX;
  field->number = key >> 3, field->kind = key & 7;
  if (field->kind == 0) read_number(field), nbytes = 0;
  if (field->kind == LONG) nbytes = read_number(field);
  if (field->kind == 1 || field->kind == 5) nbytes = field->kind == 1 ? 8 : 4;
  field->held = field->next;
  if (nbytes > (size_t)(field->end - field->next)) field->kind = UINT64_MAX;
  field->next = field->kind == UINT64_MAX ? field->end : field->next + nbytes;
  return true;
}

/* Adds a message of options. Protobuf writes the entries of a map in another order in each process,
   so that the sum of their hashes is added. */
static void add_options(Sha256 *sha, const uint8_t *message, size_t nbytes, unsigned messages) {
  uint8_t sum[SHA256] = {0}, digest[SHA256];
  for (Field field = {.next = message, .end = message + nbytes}; next_field(&field);) {
    size_t whole = (size_t)(field.next - field.begin), held = (size_t)(field.next - field.held);
    if (field.kind == LONG && field.number == NEXT_MESSAGE && messages > 1) {
      add_text(sha, "3"); /* No field is as short. */
      add_options(sha, field.held, held, messages - 1);
    } else if (field.kind == LONG && held > 0 && *field.held == KEY) {
      Sha256 entry = sha256();
      sha256_add(&entry, field.begin, whole);
      sha256_end(&entry, digest);
      for (int i = 0, carry = 0; i < SHA256; i++, carry >>= 8)
        sum[i] = (uint8_t)(carry += sum[i] + digest[i]);
    } else {
      add_part(sha, field.begin, whole);
    }
  }
  add_part(sha, sum, sizeof sum);
}

static void write_name(Sha256 *sha, char name[ENTRY]) {
  uint8_t digest[SHA256];
  sha256_end(sha, digest);
  for (int i = 0; i < SHA256; i++) snprintf(name + 2 * i, 3, "%02x", digest[i]);
}

/* Adds the hash of a file's content, if it is one. It is an entry, too, by the file's identity. */
static bool add_file(Sha256 *sha, const char *path) {
  char name[ENTRY], part[1 << 14];
  uint8_t digest[SHA256], *known = NULL;
  struct stat is;
  size_t nbytes;
  int file = open(path, O_RDONLY | O_NONBLOCK | O_CLOEXEC);
  bool found = file >= 0 && fstat(file, &is) == 0 && S_ISREG(is.st_mode);
  if (found) {
    const int64_t identity[] = {(int64_t)is.st_dev, (int64_t)is.st_ino, is.st_size,
                                is.st_mtim.tv_sec,  is.st_mtim.tv_nsec, is.st_ctim.tv_sec,
                                is.st_ctim.tv_nsec};
    Sha256 named = sha256(), content = sha256();
    add_text(&named, "a file's sha256");
    add_part(&named, identity, sizeof identity);
    write_name(&named, name);
    known = entry_read(name, &nbytes);
    bool is_known = known != NULL && nbytes == sizeof digest;
    if (!is_known) {
      for (ssize_t n; (n = read(file, part, sizeof part)) != 0 && (found = n > 0);)
        sha256_add(&content, part, (size_t)n);
      sha256_end(&content, digest);
      if (found) entry_write(name, digest, sizeof digest);
    }
    add_part(sha, is_known ? known : digest, sizeof digest);
  }
  free(known);
  if (file >= 0) close(file);
  return found;
}

bool cache_start(Plugin *plugin) {
  Dl_info library;
  Sha256 *sha = &plugin->context;
  *sha = sha256();
  if (plugin->real[FN_PJRT_Executable_Serialize] == NULL ||
      plugin->real[FN_PJRT_Executable_DeserializeAndLoad] == NULL ||
      dladdr((const void *)plugin->real[FN_PJRT_Client_Compile], &library) == 0)
    return false;
  for (const char *const *name = compiler_variables; *name != NULL; name++) {
    const char *value = secure_getenv(*name);
    if (value == NULL || *value == 0) continue;
    add_text(sha, *name);
    add_text(sha, value);
    add_file(sha, value); /* XLA_FLAGS may name a file of flags. */
  }
  add_part(sha, &plugin->minor, sizeof plugin->minor);
  return add_file(sha, library.dli_fname);
}

/* Adds what a client's programs depend on. False if that cannot be told, or if other processes take
   part: compilers of XLA wait for each other there, so that all of them must compile, or none. */
static bool add_client(Sha256 *sha, Plugin *plugin, PJRT_Client *client) {
  ASK(platform, Client_PlatformName, .client = client);
  ASK(version, Client_PlatformVersion, .client = client);
  ASK(all, Client_Devices, .client = client);
  add_part(sha, platform.platform_name, platform.platform_name_size);
  add_part(sha, version.platform_version, version.platform_version_size);
  for (size_t i = 0; i < all.num_devices; i++) {
    ASK(here, Device_IsAddressable, .device = all.devices[i]);
    ASK(of, Device_GetDescription, .device = all.devices[i]);
    ASK(id, DeviceDescription_Id, .device_description = of.device_description);
    ASK(kind, DeviceDescription_Kind, .device_description = of.device_description);
    if (!here.is_addressable) return false;
    add_part(sha, &id.id, sizeof id.id);
    add_part(sha, kind.device_kind, kind.device_kind_size);
  }
  return true;
}

/* Adds the machine, for example the processor's features, if the plugin tells it. */
static bool add_topology(Sha256 *sha, Plugin *plugin, PJRT_Client *client) {
  ASK(lent, Client_TopologyDescription, .client = client);
  ASK(told, TopologyDescription_Serialize, .topology = lent.topology);
  add_part(sha, told.serialized_bytes, told.serialized_bytes_size);
  told.serialized_topology_deleter(told.serialized_topology);
  return true;
}

static bool name_entry(Plugin *plugin, const PJRT_Client_Compile_Args *args, char name[ENTRY]) {
  const PJRT_Program *program = args->program;
  if (program->extension_start != NULL) return false;
  for (const PJRT_Extension_Base *node = args->extension_start; node != NULL; node = node->next)
    if (node->type != PJRT_Extension_Type_Profiler) return false; /* JAX numbers the call there. */
  for (size_t i = 0; i < sizeof bound / sizeof *bound; i++)
    if (memmem(program->code, program->code_size, bound[i], strlen(bound[i])) != NULL) return false;
  Sha256 sha = plugin->context;
  if (!add_client(&sha, plugin, args->client)) return false;
  add_topology(&sha, plugin, args->client);
  add_part(&sha, program->format, program->format_size);
  add_part(&sha, program->code, program->code_size);
  add_options(&sha, (const uint8_t *)args->compile_options, args->compile_options_size, MESSAGES);
  write_name(&sha, name);
  return true;
}

/* Executables that were loaded from an entry, and views of them. When these are serialized again,
   XLA's plugins for CPUs leave out the code, so that the entry is given instead. */
typedef struct Origin Origin;
struct Origin {
  Origin *next;
  const void *handle;
  char name[ENTRY];
};
static Origin *origins;
static pthread_mutex_t locking = PTHREAD_MUTEX_INITIALIZER;

static void note(const void *handle, const char *name) {
  Origin *origin = malloc(sizeof *origin);
  if (origin == NULL) abort();
  memcpy(origin->name, name, ENTRY);
  origin->handle = handle;
  pthread_mutex_lock(&locking);
  origin->next = origins;
  origins = origin;
  pthread_mutex_unlock(&locking);
}

/* Finds the name of a handle's entry. Without a place for the name, it forgets the handle once. */
static bool origin_of(const void *handle, char *name) {
  pthread_mutex_lock(&locking);
  Origin **place = &origins, *found;
  while ((found = *place) != NULL && found->handle != handle) place = &found->next;
  if (found != NULL && name != NULL) memcpy(name, found->name, ENTRY);
  if (found != NULL && name == NULL) *place = found->next;
  pthread_mutex_unlock(&locking);
  if (name == NULL) free(found);
  return found != NULL;
}

void cache_forked(void) { pthread_mutex_init(&locking, NULL); }

static bool load(Plugin *plugin, PJRT_Client_Compile_Args *args, const char *name) {
  size_t nbytes;
  char *code = entry_read(name, &nbytes);
  if (code == NULL) return false;
  SIZED(PJRT_Executable_DeserializeAndLoad_Args, load, .client = args->client,
        .serialized_executable = code, .serialized_executable_size = nbytes);
  bool loaded = plugin_answers(plugin, FN_PJRT_Executable_DeserializeAndLoad, &load);
  free(code);
  if (!loaded) return false;
  args->executable = load.loaded_executable;
  note(args->executable, name);
  return true;
}

static bool keep(Plugin *plugin, PJRT_LoadedExecutable *loaded, const char *name) {
  ASK(get, LoadedExecutable_GetExecutable, .loaded_executable = loaded);
  SIZED(PJRT_Executable_Serialize_Args, told, .executable = get.executable);
  if (plugin_answers(plugin, FN_PJRT_Executable_Serialize, &told)) {
    entry_write(name, told.serialized_bytes, told.serialized_bytes_size);
    told.serialized_executable_deleter(told.serialized_executable);
  }
  ASK(destroyed, Executable_Destroy, .executable = get.executable);
  return true;
}

static PJRT_Error *compile(Plugin *plugin, PJRT_Client_Compile_Args *args) {
  char name[ENTRY];
  bool has_name = name_entry(plugin, args, name);
  if (has_name && load(plugin, args, name)) return NULL;
  PJRT_Error *error = call_plugin(plugin, FN_PJRT_Client_Compile, args);
  if (error != NULL) return error;
  if (has_name) keep(plugin, args->executable, name);
  while (origin_of(args->executable, NULL)) {} /* A host may leave executables to their client. */
  return NULL;
}

static PJRT_Error *view(Plugin *plugin, PJRT_LoadedExecutable_GetExecutable_Args *args) {
  char name[ENTRY];
  PJRT_Error *error = call_plugin(plugin, FN_PJRT_LoadedExecutable_GetExecutable, args);
  if (error != NULL) return error;
  if (origin_of(args->loaded_executable, name)) note(args->executable, name);
  else while (origin_of(args->executable, NULL)) {}
  return NULL;
}

static void drop(PJRT_SerializedExecutable *code) { free(code); }

static PJRT_Error *serialize(Plugin *plugin, PJRT_Executable_Serialize_Args *args) {
  char name[ENTRY];
  if (!origin_of(args->executable, name))
    return call_plugin(plugin, FN_PJRT_Executable_Serialize, args);
  char *code = entry_read(name, &args->serialized_bytes_size);
  if (code == NULL)
    return refuse_text(PJRT_Error_Code_NOT_FOUND,
                       "the program was loaded from pjrt-hub's compile cache, and is gone there");
  args->serialized_bytes = code;
  args->serialized_executable = (PJRT_SerializedExecutable *)code;
  args->serialized_executable_deleter = drop;
  return NULL;
}

PJRT_Error *cache_call(Plugin *plugin, unsigned function, void *args) {
  if (!plugin->caches) return call_plugin(plugin, function, args);
  switch (function) {
    case FN_PJRT_Client_Compile: return compile(plugin, args);
    case FN_PJRT_LoadedExecutable_GetExecutable: return view(plugin, args);
    case FN_PJRT_Executable_Serialize: return serialize(plugin, args);
    case FN_PJRT_Executable_Destroy:
      origin_of(((PJRT_Executable_Destroy_Args *)args)->executable, NULL);
      break;
    case FN_PJRT_LoadedExecutable_Destroy:
      origin_of(((PJRT_LoadedExecutable_Destroy_Args *)args)->executable, NULL);
  }
  return call_plugin(plugin, function, args);
}
