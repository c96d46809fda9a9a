/* Runs programs on PJRT plugins: a reader of docs/spec/program.md, and the calls behind it.

   Copy pjrt_program.h and pjrt_program.c into a project. They need C11 and a header that declares
   the PJRT C API; pjrt_program.c says which. What opens a plugin and gives its PJRT_Api does not
   matter: pjrt_loader.h does, and so does dlsym("GetPjrtApi") after PJRT_Plugin_Initialize.

   Errors: as in pjrt_loader.h. A function with an argument `error` says there why it failed, in a
   text that the caller gives back by pjrt_program_free_error(); it sets *error to NULL where it
   succeeds, and `error` may be NULL. Functions that return int return 0, and -1 where they failed.

   Lifetimes: everything may be freed in any order, and NULL may be freed. What is still needed
   stays behind the scenes: a client until its last executable and buffer are gone.

   Threads: any thread may call any function, but a pjrt_program_call is for one at a time. */
#ifndef PJRT_PROGRAM_H
#define PJRT_PROGRAM_H

#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

/* These are the types of pjrt_c_api.h. */
struct PJRT_Api;
struct PJRT_Buffer;
struct PJRT_Client;
struct PJRT_Device;
struct PJRT_LoadedExecutable;

void pjrt_program_free_error(char *error);

/* ---- Files ---- */

typedef struct pjrt_program pjrt_program;

/* A parameter or a result. */
typedef struct {
  const char *name; /* where it is in the exported function, or "" */
  int type;         /* its PJRT_Buffer_Type */
  size_t num_dims;
  const int64_t *dims;
  size_t nbytes; /* of a host array: rows one after the other, whole bytes for each element */
} pjrt_program_value;

/* Reads the file of a program. A wrong file is an error, whatever is in it. This makes reading safe,
   not compiling: see pjrt_program_compile(). */
pjrt_program *pjrt_program_read(const char *path, char **error);

/* Reads the same from memory, which it copies. */
pjrt_program *pjrt_program_parse(const void *data, size_t nbytes, char **error);

void pjrt_program_free(pjrt_program *program);

/* What a program takes and gives; the values belong to the program. */
size_t pjrt_program_num_parameters(const pjrt_program *program);
size_t pjrt_program_num_results(const pjrt_program *program);
const pjrt_program_value *pjrt_program_parameters(const pjrt_program *program);
const pjrt_program_value *pjrt_program_results(const pjrt_program *program);

/* ---- Clients ---- */

typedef struct pjrt_program_client pjrt_program_client;

/* An option of PJRT_Client_Create. Its members are those of pjrt_loader_option. */
typedef struct {
  const char *name;
  int type; /* PJRT_NamedValue_Type: 0 string, 1 int64, 2 list of int64, 3 float, 4 bool */
  union {
    const char *string;
    int64_t int64;
    const int64_t *int64_list;
    float number;
    int truth;
  } value;
  size_t count; /* numbers of a list, or bytes of a string; 0 where a zero byte ends the string */
} pjrt_program_option;

pjrt_program_client *pjrt_program_client_create(const struct PJRT_Api *api,
                                                const pjrt_program_option *options, size_t count,
                                                char **error);
void pjrt_program_client_free(pjrt_program_client *client);

/* The plugin's own objects, which belong to the client. Devices are those of this process. */
struct PJRT_Client *pjrt_program_client_handle(const pjrt_program_client *client);
size_t pjrt_program_client_num_devices(const pjrt_program_client *client);
struct PJRT_Device *pjrt_program_client_device(const pjrt_program_client *client, size_t number);

/* ---- Executables ---- */

typedef struct pjrt_program_executable pjrt_program_executable;

/* Compiles a program, and checks that its results are those that the file names. What is compiled
   is code, and the plugin alone looks into it and its options: plugins of XLA may end the process
   for a file that was damaged, so compile only what you trust. */
pjrt_program_executable *pjrt_program_compile(pjrt_program_client *client,
                                              const pjrt_program *program, char **error);
void pjrt_program_executable_free(pjrt_program_executable *executable);
struct PJRT_LoadedExecutable *pjrt_program_executable_handle(
    const pjrt_program_executable *executable);

/* ---- Calls ---- */

typedef struct pjrt_program_call pjrt_program_call;

/* Makes what calls of one thread reuse. No argument is donated. */
pjrt_program_call *pjrt_program_call_create(pjrt_program_executable *executable, char **error);
void pjrt_program_call_free(pjrt_program_call *call);

/* Runs the program on buffers of its client, as many as it has parameters, and does not wait. Writes
   a buffer for each result, which the caller gives back by pjrt_program_buffer_free(). */
int pjrt_program_call_buffers(pjrt_program_call *call, struct PJRT_Buffer *const *arguments,
                              struct PJRT_Buffer **results, char **error);

/* Runs the program on host arrays, and copies its results into host arrays of their nbytes. */
int pjrt_program_call_arrays(pjrt_program_call *call, const void *const *arguments,
                             void *const *results, char **error);

/* ---- Buffers ---- */

/* Copies a host array to the executable's device: the argument of the parameter `number`. */
struct PJRT_Buffer *pjrt_program_put(pjrt_program_executable *executable, size_t number,
                                     const void *data, char **error);

/* Waits for a buffer, and copies it to a host array, whose nbytes must be those of the buffer. */
int pjrt_program_get(pjrt_program_client *client, struct PJRT_Buffer *buffer, void *data,
                     size_t nbytes, char **error);

/* Waits until a buffer has its value; fails where its computation failed. */
int pjrt_program_await(pjrt_program_client *client, struct PJRT_Buffer *buffer, char **error);

/* Waits, and returns where a buffer is in its device's memory, valid until it is freed; or NULL. */
void *pjrt_program_device_pointer(pjrt_program_client *client, struct PJRT_Buffer *buffer,
                                  char **error);

/* Frees a buffer that these functions gave, also after the client was freed. */
void pjrt_program_buffer_free(pjrt_program_client *client, struct PJRT_Buffer *buffer);

/* ---- Custom calls ---- */

/* Registers an XLA FFI handler, `XLA_FFI_Error *(*)(XLA_FFI_CallFrame *)`, for programs that are
   compiled later. `platform` is "Host" or "CUDA"; `traits` is 0, or 1 for a handler that a command
   buffer may record. A plugin holds it until the process ends. */
int pjrt_program_register_handler(const struct PJRT_Api *api, const char *name,
                                  const char *platform, void *handler, int traits, char **error);

#ifdef __cplusplus
}
#endif
#endif
