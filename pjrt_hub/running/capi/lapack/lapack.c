/* The linear algebra functions that JAX's programs call on the CPU: lapack_sgetrf_ffi and the like.

   They run routines of a LAPACK library, whose addresses Python provides. The table `KINDS` lists
   the arguments of each routine, and `call` passes them. Matrices are column-major and may be a
   batch of matrices of one size. */
#include <complex.h>
#include <float.h>
#include <limits.h>
#include <math.h>
#include <stdio.h>
#include <string.h>

#include "structs.h"

/* A routine's arguments in their order, with a second list if those for complex elements differ:

     mode, uplo   the value of the call's attribute of this name
     'N           the letter N
     one none     the number 1 of the element type; an argument that the routine ignores
     m n          the sizes of the last operand with the highest rank. k is the smaller one, j is
                  n - 1, t is the length of operand B, s is the size of the side where a matrix is
                  applied, u and v are the numbers of left and right vectors that `mode` asks for
     A:mn 2:kR    operand A and result 2, with their required sizes and element types: no letter for
                  the type of the matrix, R for its real type, Z for its complex type, I for int32
     A:m>0 A:m>   operand A, copied to result 0 unless they share memory; copied to new memory
     A:m>0+       like A:m>0, but passed from the second element on
     A:nn>!       like A:nn>, but if an element is not finite, the last result is set to -4 and the
                  routine is not called, because it might never end
     2:nnZ*       real eigenvectors, from which PAIR makes the complex ones of result 2
     ld           the number of rows of the array before it
     work lwork   work memory and its size, which the routine tells. Only complex types need rwork
     info         a status that the program does not ask for; if it is not 0, the call fails */
#define KINDS(KIND) \
  KIND(gees, "mode 'N none n A:nn>0 ld 4:I 2:n 3:n 1:nn ld work lwork none 5:I", \
       "mode 'N none n A:nn>0 ld 3:I 2:n 1:nn ld work lwork rwork none 4:I") \
  KIND(geev, "compute_left compute_right n A:nn>! ld 0:n 1:n 2:nnZ* ld 3:nnZ* ld work lwork 4:I", \
       "compute_left compute_right n A:nn>! ld 0:n 1:nn ld 2:nn ld work lwork rwork 3:I") \
  KIND(gehrd, "n low high A:nn>0 ld 1:j work lwork 2:I", NULL) \
  KIND(geqp3, "m n A:mn>0 ld B:nI>1 2:k work lwork rwork info", NULL) \
  KIND(geqrf, "m n A:mn>0 ld 1:k work lwork info", NULL) \
  KIND(gesdd, "mode m n A:mn>0 ld 1:kR 2:mu ld 3:vn ld work lwork rwork iwork 4:I", NULL) \
  KIND(gesvd, "mode mode m n A:mn>0 ld 1:kR 2:mu ld 3:vn ld work lwork rwork 4:I", NULL) \
  KIND(getrf, "m n A:mn>0 ld 1:kI 2:I", NULL) \
  KIND(gtsv, "m n A:m>0+ B:m>1 C:m>2 D:mn>3 ld 4:I", NULL) \
  KIND(orgqr, "m n t A:mn>0 ld B:t work lwork info", NULL) \
  KIND(ormqr, "left transpose m n t A:st ld B:t C:mn>0 ld work lwork info", NULL) \
  KIND(potrf, "uplo n A:nn>0 ld 1:I", NULL) \
  KIND(syevd, "mode uplo n A:nn>0 ld 1:nR work lwork rwork lrwork iwork liwork 2:I", NULL) \
  KIND(sytrd, "uplo n A:nn>0 ld 1:nR 2:jR 3:j work lwork 4:I", NULL) \
  KIND(trsm, "side uplo trans_x diag m n one A:ss ld B:mn>0 ld", NULL) \
  KIND(perturbed, "m n A:m> B:m> C:m> D:mn>0", NULL)

enum { FLOAT, DOUBLE, COMPLEX_FLOAT, COMPLEX_DOUBLE, NUM_TYPES };
static const XLA_FFI_DataType types[NUM_TYPES] = {XLA_FFI_DataType_F32, XLA_FFI_DataType_F64,
                                                  XLA_FFI_DataType_C64, XLA_FFI_DataType_C128};
static const size_t type_sizes[NUM_TYPES] = {4, 8, 8, 16};

/* A Fortran routine takes only addresses, followed by the length of each letter, which is 1. A
   routine that has fewer arguments does not see the rest. */
enum { MAX_ARGUMENTS = 20 };
typedef void Routine(void *, void *, void *, void *, void *, void *, void *, void *, void *, void *,
                     void *, void *, void *, void *, void *, void *, void *, void *, void *, void *);

typedef struct {
  const char *name, *arguments, *complex_arguments;
  XLA_FFI_Handler handler;
  void *routines[NUM_TYPES];
} Kind;

typedef struct {
  char *at;      /* The address that the routine gets. */
  size_t stride; /* The bytes from one array of the batch to the next. */
  int number;    /* The value behind `at` if it is not an array. */
} Argument;

enum { WORK, RWORK, IWORK, NUM_WORKS };

typedef struct {
  const XLA_FFI_CallFrame *frame;
  int type;
  size_t batch;
  int64_t m, n;
  Argument arguments[MAX_ARGUMENTS];
  int num_arguments, num_taken, num_pairs;
  int rows;                   /* The number of rows of the previous array. */
  void *taken[MAX_ARGUMENTS]; /* Memory that is freed at the end. */
  Argument *works[NUM_WORKS], *lengths[NUM_WORKS], *info, *finite, *pairs[2];
  const char *problem;
} Call;

static bool is_complex(const Call *call) { return call->type >= COMPLEX_FLOAT; }

static void *take(Call *call, size_t count, size_t size) {
  void *memory = call->taken[call->num_taken++] = calloc(count + 1, size);
  if (memory == NULL) call->problem = "no memory";
  return memory;
}

/* Returns the letter or number of an attribute, or 0 if there is none. */
static int ask(const Call *call, const char *name) {
  const XLA_FFI_Attrs *attrs = &call->frame->attrs;
  for (int64_t i = 0; i < attrs->size; i++) {
    const XLA_FFI_Scalar *scalar = attrs->attrs[i];
    if (attrs->types[i] != XLA_FFI_AttrType_SCALAR || attrs->names[i]->len != strlen(name) ||
        memcmp(attrs->names[i]->ptr, name, strlen(name)) != 0)
      continue;
    bool is_set = *(const uint8_t *)scalar->value != 0;
    if (scalar->dtype == XLA_FFI_DataType_S32) return *(const int32_t *)scalar->value;
    if (scalar->dtype == XLA_FFI_DataType_U8) return *(const uint8_t *)scalar->value;
    if (scalar->dtype != XLA_FFI_DataType_PRED) return 0;
    return strcmp(name, "left") == 0 ? (is_set ? 'L' : 'R') : !is_set ? 'N' : is_complex(call) ? 'C' : 'T';
  }
  return 0;
}

/* Returns an operand ('A', 'B', ...) or a result ('0', '1', ...), or NULL if there is none. */
static const XLA_FFI_Buffer *buffer_of(const Call *call, char name) {
  const XLA_FFI_Args *args = &call->frame->args;
  const XLA_FFI_Rets *rets = &call->frame->rets;
  if (name >= 'A') return name - 'A' < args->size ? args->args[name - 'A'] : NULL;
  return name - '0' < rets->size ? rets->rets[name - '0'] : NULL;
}

static int64_t dimension(const XLA_FFI_Buffer *buffer, int from_end) {
  return buffer != NULL && buffer->rank >= from_end ? buffer->dims[buffer->rank - from_end] : -1;
}

static int64_t size_of(const Call *call, char letter) {
  int64_t smaller = call->m < call->n ? call->m : call->n;
  int mode = ask(call, "mode");
  switch (letter) {
    case 'm': return call->m;
    case 'n': return call->n;
    case 'k': return smaller;
    case 'j': return call->n > 0 ? call->n - 1 : 0;
    case 's': return ask(call, "left") == 'L' || ask(call, "side") == 'L' ? call->m : call->n;
    case 't': return dimension(buffer_of(call, 'B'), 1);
    case 'u': return mode == 'A' ? call->m : mode == 'S' ? smaller : dimension(buffer_of(call, '2'), 1);
    case 'v': return mode == 'A' ? call->n : mode == 'S' ? smaller : dimension(buffer_of(call, '3'), 2);
    default: return -1;
  }
}

/* Checks a buffer against the sizes and the type at `*rest`, and moves `*rest` past them. Returns
   the bytes of one array of the batch. */
static size_t require(Call *call, const XLA_FFI_Buffer *buffer, const char **rest) {
  size_t count = 1, found = 1, size = type_sizes[call->type];
  XLA_FFI_DataType type = types[call->type];
  int real = call->type % COMPLEX_FLOAT;
  call->rows = size_of(call, **rest) > 1 ? (int)size_of(call, **rest) : 1;
  for (; size_of(call, **rest) >= 0; ++*rest) count *= (size_t)size_of(call, **rest);
  if (**rest == 'I') type = XLA_FFI_DataType_S32, size = sizeof(int32_t);
  if (**rest == 'R') type = types[real], size = type_sizes[real];
  if (**rest == 'Z') type = types[real + COMPLEX_FLOAT], size = type_sizes[real + COMPLEX_FLOAT];
  if (**rest >= 'A' && **rest <= 'Z') ++*rest;
  for (int64_t i = 0; buffer != NULL && i < buffer->rank; i++) found *= (size_t)buffer->dims[i];
  if (buffer == NULL || buffer->dtype != type || found != count * call->batch)
    call->problem = "an operand or a result has another type or shape than JAX's";
  return count * size;
}

static void give_array(Call *call, Argument *argument, const char *word) {
  const XLA_FFI_Buffer *buffer = buffer_of(call, word[0]), *to = NULL;
  const char *rest = word + 2, *again = rest;
  argument->stride = require(call, buffer, &rest);
  if (call->problem != NULL) return;
  size_t nbytes = argument->stride * call->batch;
  argument->at = buffer->data;
  if (*rest == '*') {
    argument->stride /= 2;
    argument->at = take(call, nbytes / 2, 1);
    call->pairs[call->num_pairs++] = argument;
  } else if (*rest == '>') {
    if (*++rest >= '0') require(call, to = buffer_of(call, *rest++), &again);
    if (call->problem != NULL) return;
    argument->at = to != NULL ? to->data : take(call, nbytes, 1);
    if (argument->at != NULL && argument->at != buffer->data && nbytes != 0)
      memcpy(argument->at, buffer->data, nbytes);
    if (*rest == '+') argument->at += type_sizes[call->type];
    if (*rest == '!') call->finite = argument;
  }
}

/* Adds the routine's next argument, which `word` describes. */
static void give(Call *call, const char *word) {
  static const float one_float[2] = {1};
  static const double one_double[2] = {1};
  static const char *const names[NUM_WORKS] = {"work", "rwork", "iwork"};
  Argument *argument = &call->arguments[call->num_arguments];
  argument->at = (char *)&argument->number;
  for (int i = 0; i < NUM_WORKS; i++) {
    bool is_length = word[0] == 'l' && strcmp(word + 1, names[i]) == 0;
    if (!is_length && strcmp(word, names[i]) != 0) continue;
    if (i == RWORK && !is_complex(call)) return;
    if (is_length) argument->number = -1;
    (is_length ? call->lengths : call->works)[i] = argument;
    call->num_arguments++;
    return;
  }
  call->num_arguments++;
  if (word[1] == ':') {
    give_array(call, argument, word);
  } else if (word[0] == '\'') {
    argument->number = word[1];
  } else if (word[1] == '\0') {
    argument->number = (int)size_of(call, word[0]);
  } else if (strcmp(word, "ld") == 0) {
    argument->number = call->rows;
  } else if (strcmp(word, "one") == 0) {
    argument->at = call->type % COMPLEX_FLOAT == FLOAT ? (char *)one_float : (char *)one_double;
  } else if (strcmp(word, "info") == 0) {
    call->info = argument;
  } else if (strcmp(word, "none") != 0) {
    argument->number = ask(call, word);
    if (argument->number == 0) call->problem = "it lacks an attribute";
  }
}

static void run(const Call *call, Routine *routine, size_t index) {
  void *a[MAX_ARGUMENTS];
  for (int i = 0; i < MAX_ARGUMENTS; i++) {
    const Argument *argument = &call->arguments[i];
    a[i] = i < call->num_arguments ? argument->at : (void *)1;
    if (argument->stride != 0) a[i] = argument->at + index * argument->stride;
  }
  routine(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7], a[8], a[9], a[10], a[11], a[12], a[13], a[14],
          a[15], a[16], a[17], a[18], a[19]);
}

/* Asks the routine how much work memory it needs. Where it does not tell a size, the bound that
   LAPACK's manual gives for gesdd is used, because it exceeds those for all other routines. */
static void take_works(Call *call, Routine *routine) {
  union {
    float single;
    double real;
    int count;
  } told[NUM_WORKS][2] = {0};
  size_t k = (size_t)size_of(call, 'k'), sum = (size_t)(call->m + call->n);
  size_t bounds[NUM_WORKS] = {1, k * (3 * sum + 7) + 2 * sum, 8 * k};
  bool single = call->type % COMPLEX_FLOAT == FLOAT;
  size_t sizes[NUM_WORKS] = {type_sizes[call->type], type_sizes[call->type % COMPLEX_FLOAT], sizeof(int)};
  for (int i = 0; i < NUM_WORKS; i++)
    if (call->works[i] != NULL) call->works[i]->at = (char *)told[i];
  if (call->lengths[WORK] != NULL) run(call, routine, 0);
  for (int i = 0; i < NUM_WORKS && call->problem == NULL; i++) {
    if (call->works[i] == NULL) continue;
    double count = (double)bounds[i];
    if (call->lengths[i] != NULL) { /* A float above 2^24 may have been rounded down. */
      double real = single ? nextafterf(told[i]->single, INFINITY) : told[i]->real;
      count = fmax(1, ceil(i == IWORK ? told[i]->count : real));
      if (count > INT_MAX) call->problem = "the matrix is too large for LAPACK";
      call->lengths[i]->number = (int)fmin(count, INT_MAX);
    }
    call->works[i]->at = take(call, (size_t)count, sizes[i]);
  }
}

/* Makes complex eigenvectors. For a real matrix, LAPACK returns the real and the imaginary part of
   each conjugate pair as two columns. */
#define PAIR(name, T) \
  static void name(const Call *call, int which) { \
    const T *parts = (T *)call->pairs[which]->at, *imaginary = buffer_of(call, '1')->data; \
    T *whole = buffer_of(call, (char)('2' + which))->data; \
    size_t n = (size_t)call->n; \
    for (size_t j = 0; j < n * call->batch; j++) { \
      bool paired = imaginary[j] != 0 && j % n + 1 < n; \
      for (size_t i = 0; i < n; i++) { \
        T *at = whole + 2 * (j * n + i), second = paired ? parts[(j + 1) * n + i] : 0; \
        at[0] = parts[j * n + i], at[1] = second; \
        if (paired) at[2 * n] = at[0], at[2 * n + 1] = -second; \
      } \
      j += paired; \
    } \
  }
PAIR(pair_floats, float)
PAIR(pair_doubles, double)

/* Reads the type and the sizes from the last operand that has the highest rank. */
static void measure(Call *call) {
  const XLA_FFI_Buffer *main = NULL;
  for (char name = 'A'; name <= 'D' && buffer_of(call, name) != NULL; name++)
    if (main == NULL || buffer_of(call, name)->rank >= main->rank) main = buffer_of(call, name);
  call->problem = "its operands are no matrices of floating-point or complex numbers";
  if (main == NULL || main->rank < 2) return;
  for (call->type = 0; types[call->type] != main->dtype;)
    if (++call->type == NUM_TYPES) return;
  call->batch = 1;
  for (int64_t i = 0; i < main->rank - 2; i++) call->batch *= (size_t)main->dims[i];
  call->m = main->dims[main->rank - 2], call->n = main->dims[main->rank - 1];
  call->problem = call->m < INT_MAX && call->n < INT_MAX ? NULL : "the matrix is too large for LAPACK";
}

/* Solves a tridiagonal system by Gaussian elimination with partial pivoting. Pivots below the
   rounding error are raised to it, as inverse iteration for eigenvectors needs; LAPACK has no such
   routine. `below` becomes the second diagonal above the main one. */
#define PERTURBED(name, T, ABS, EPSILON, TINY) \
  static void name(const int *m, const int *n, T *below, T *d, T *above, T *b) { \
    int last = *m - 1; \
    double largest = 0; \
    for (int i = 0; i < last; i++) { \
      T next = below[i + 1], old = d[i + 1]; \
      bool swaps = ABS(next) > ABS(d[i]); \
      T factor = swaps ? d[i] / next : d[i] != 0 ? next / d[i] : 0; \
      below[i + 1] = swaps && i + 1 < last ? above[i + 1] : 0; \
      d[i + 1] = swaps ? above[i] - factor * old : old - factor * above[i]; \
      if (swaps) d[i] = next, above[i] = old, above[i + 1] *= -factor; \
      for (T *at = b + i, *end = at + (size_t)*m * (size_t)*n; at < end; at += *m) { \
        T upper = at[swaps], lower = at[!swaps]; \
        at[0] = upper, at[1] = lower - factor * upper; \
      } \
    } \
    for (int i = 0; i <= last; i++) \
      largest = fmax(largest, fmax(ABS(d[i]), i < last ? fmax(ABS(above[i]), ABS(below[i + 1])) : 0)); \
    double least = fmax(largest * EPSILON, TINY); \
    for (int i = last; i >= 0; i--) { \
      if (ABS(d[i]) < least) d[i] = d[i] != 0 ? d[i] / ABS(d[i]) * (T)least : (T)least; \
      for (T *at = b + i, *end = at + (size_t)*m * (size_t)*n; at < end; at += *m) { \
        if (i < last) at[0] -= above[i] * at[1]; \
        if (i + 1 < last) at[0] -= below[i + 1] * at[2]; \
        at[0] /= d[i]; \
      } \
    } \
  }
PERTURBED(perturbed_floats, float, fabsf, FLT_EPSILON, FLT_MIN)
PERTURBED(perturbed_doubles, double, fabs, DBL_EPSILON, DBL_MIN)
PERTURBED(perturbed_complex_floats, float complex, cabsf, FLT_EPSILON, FLT_MIN)
PERTURBED(perturbed_complex_doubles, double complex, cabs, DBL_EPSILON, DBL_MIN)

static bool is_finite(const Call *call, size_t index) {
  const char *at = call->finite->at + index * call->finite->stride, *end = at + call->finite->stride;
  bool single = call->type % COMPLEX_FLOAT == FLOAT;
  for (; at < end; at += single ? sizeof(float) : sizeof(double))
    if (!isfinite(single ? *(const float *)at : *(const double *)at)) return false;
  return true;
}

static XLA_FFI_Error *call(XLA_FFI_CallFrame *frame, const Kind *kind) {
  Call call = {.frame = frame};
  measure(&call);
  bool differs = kind->complex_arguments != NULL && is_complex(&call);
  const char *words = differs ? kind->complex_arguments : kind->arguments;
  Routine *routine = call.problem == NULL ? (Routine *)kind->routines[call.type] : NULL;
  if (call.problem == NULL && routine == NULL) call.problem = "its name is for other types of elements";
  char word[16];
  for (int at = 0; call.problem == NULL && sscanf(words, "%15s%n", word, &at) == 1; words += at)
    give(&call, word);
  if (call.problem == NULL && call.batch > 0) take_works(&call, routine);
  for (size_t i = 0; call.problem == NULL && i < call.batch; i++) {
    const Argument *last = &call.arguments[call.num_arguments - 1];
    if (call.finite == NULL || is_finite(&call, i))
      run(&call, routine, i);
    else
      *(int *)(last->at + i * last->stride) = -4;
    if (call.info != NULL && call.info->number != 0) call.problem = "LAPACK refused its arguments";
  }
  for (int i = 0; call.problem == NULL && i < call.num_pairs; i++)
    (call.type == FLOAT ? pair_floats : pair_doubles)(&call, i);
  for (int i = 0; i < call.num_taken; i++) free(call.taken[i]);
  if (call.problem == NULL) return NULL;
  char text[160];
  snprintf(text, sizeof text, "LAPACK's %s: %s", kind->name, call.problem);
  SIZED(XLA_FFI_Error_Create_Args, args, .message = text, .errc = XLA_FFI_Error_Code_INVALID_ARGUMENT);
  return frame->api->XLA_FFI_Error_Create(&args);
}

#define NUMBER(name, arguments, complex_arguments) name,
enum { KINDS(NUMBER) NUM_KINDS };
static Kind kinds[NUM_KINDS];

/* A handler gets nothing but a frame, so each kind needs a separate one. */
#define HANDLER(name, arguments, complex_arguments) \
  static XLA_FFI_Error *handle_##name(XLA_FFI_CallFrame *frame) { return call(frame, &kinds[name]); }
KINDS(HANDLER)

#define ROW(name, arguments, complex_arguments) {#name, arguments, complex_arguments, handle_##name, {NULL}},
static Kind kinds[NUM_KINDS] = {KINDS(ROW)};

/* Sets the routine of a kind for one element type: 0 to 3 stand for s, d, c and z. Returns the
   kind's handler, or NULL if there is no such kind. */
__attribute__((visibility("default"))) void *pjrt_hub_lapack(const char *name, int type, void *routine) {
  void *own[NUM_TYPES] = {perturbed_floats, perturbed_doubles, perturbed_complex_floats,
                          perturbed_complex_doubles};
  memcpy(kinds[perturbed].routines, own, sizeof own);
  for (int i = 0; i < NUM_KINDS; i++) {
    if (strcmp(kinds[i].name, name) != 0) continue;
    if (routine != NULL) kinds[i].routines[type] = routine;
    return (void *)kinds[i].handler;
  }
  return NULL;
}
