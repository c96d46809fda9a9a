/* Programs as a compiler sees them: a list of StableHLO operations without control flow. Hosts send text or bytecode
   (text.h and bytecode.h read them); calls of functions are inlined. Values are numbered: parameters come first, then
   each result in the order of computation. */
#ifndef PJRT_PLUGIN_PROGRAM_H
#define PJRT_PLUGIN_PROGRAM_H

#include "arena.h"
#include "array.h"

/* An attribute holds numbers, a text, or the elements of a row-major array. */
typedef struct {
  const char *name; /* The name in StableHLO, such as "broadcast_dimensions". */
  const int64_t *numbers;
  size_t num_numbers;
  const char *text;
  const void *data;
  size_t size;
} PluginAttribute;

typedef struct {
  const char *name; /* The name in StableHLO, such as "add". */
  int *operands;    /* The numbers of the values. */
  size_t num_operands;
  int results; /* The number of the first result; the others follow. */
  size_t num_results;
  PluginAttribute *attributes;
  size_t num_attributes;
} PluginOperation;

typedef struct {
  const char *name;    /* The name of the module. */
  PluginArray *values; /* The type of each value. */
  size_t num_values, num_parameters;
  bool *donated; /* Whether each parameter is donated; NULL if none is. */
  PluginOperation *operations;
  size_t num_operations;
  int *outputs; /* The numbers of the values. */
  size_t num_outputs;
} PluginProgram;

/* Gives an attribute of an operation, or NULL. */
static inline const PluginAttribute *plugin_attribute(const PluginOperation *operation, const char *name) {
  for (size_t i = 0; i < operation->num_attributes; i++)
    if (strcmp(operation->attributes[i].name, name) == 0) return &operation->attributes[i];
  return NULL;
}

/* Gives the numbers of an attribute and their count, which is 0 without such an attribute. */
static inline const int64_t *plugin_numbers(const PluginOperation *operation, const char *name,
                                            size_t *count) {
  const PluginAttribute *found = plugin_attribute(operation, name);
  *count = found != NULL ? found->num_numbers : 0;
  return found != NULL ? found->numbers : NULL;
}

/* These return the type of an operand, and that of the first result. */
static inline const PluginArray *plugin_operand(const PluginProgram *program,
                                                const PluginOperation *operation, size_t number) {
  return &program->values[operation->operands[number]];
}

static inline const PluginArray *plugin_result(const PluginProgram *program,
                                               const PluginOperation *operation) {
  return &program->values[operation->results];
}

/* The functions of a module while it is read. The function `main` is the program. */
typedef struct {
  const char *name;
  PluginProgram body;
} PluginFunction;

typedef struct {
  PluginArena *arena;
  const char *name;
  PluginFunction *functions;
  size_t num_functions;
} PluginModule;

/* Says whether an attribute with this name donates its parameter. */
static inline bool plugin_donates(const char *name, size_t size) {
  static const char *const names[] = {"tf.aliasing_output", "jax.buffer_donor"};
  for (size_t i = 0; i < sizeof names / sizeof *names; i++)
    if (strlen(names[i]) == size && memcmp(names[i], name, size) == 0) return true;
  return false;
}

static inline PluginAttribute *plugin_add_attribute(PluginArena *arena, PluginOperation *operation,
                                                    const char *name) {
  PluginAttribute attribute;
  memset(&attribute, 0, sizeof attribute);
  attribute.name = name;
  PLUGIN_ADD(arena, operation->attributes, operation->num_attributes, attribute);
  return &operation->attributes[operation->num_attributes - 1];
}

/* Appends a function's operations to a program; `places` maps the function's values to the program's. */
static inline PJRT_Error *plugin_inline(const PluginModule *module, const PluginProgram *body, int *places,
                                        PluginProgram *to, int depth) {
  enum { DEEPEST = 64, MOST = 1 << 20 };
  PJRT_Error *error = NULL;
  if (depth > DEEPEST || to->num_operations > MOST)
    return plugin_error(PJRT_Error_Code_UNIMPLEMENTED, "the program calls functions too often");
  for (size_t i = 0; error == NULL && i < body->num_operations; i++) {
    PluginOperation operation = body->operations[i];
    const PluginAttribute *callee = plugin_attribute(&operation, "callee");
    int *operands = (int *)plugin_take(module->arena, (operation.num_operands + 1) * sizeof(int));
    for (size_t k = 0; k < operation.num_operands; k++) operands[k] = places[operation.operands[k]];
    if (callee == NULL || strcmp(operation.name, "call") != 0) {
      int first = (int)to->num_values;
      for (size_t k = 0; k < operation.num_results; k++) {
        places[operation.results + (int)k] = (int)to->num_values;
        PLUGIN_ADD(module->arena, to->values, to->num_values, body->values[operation.results + (int)k]);
      }
      operation.operands = operands;
      operation.results = first;
      PLUGIN_ADD(module->arena, to->operations, to->num_operations, operation);
      continue;
    }
    const PluginProgram *called = NULL;
    for (size_t k = 0; callee->text != NULL && k < module->num_functions; k++)
      if (strcmp(module->functions[k].name, callee->text) == 0) called = &module->functions[k].body;
    if (called == NULL || called->num_parameters != operation.num_operands ||
        called->num_outputs != operation.num_results)
      return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the program calls a function that it has not");
    int *inner = (int *)plugin_take(module->arena, (called->num_values + 1) * sizeof(int));
    memcpy(inner, operands, operation.num_operands * sizeof(int));
    error = plugin_inline(module, called, inner, to, depth + 1);
    for (size_t k = 0; error == NULL && k < operation.num_results; k++)
      places[operation.results + (int)k] = inner[called->outputs[k]];
  }
  return error;
}

/* Makes the program of a module, which is its `main` with all calls inlined. */
static inline PJRT_Error *plugin_program(const PluginModule *module, PluginProgram *program) {
  const PluginProgram *body = NULL;
  for (size_t i = 0; i < module->num_functions; i++)
    if (strcmp(module->functions[i].name, "main") == 0) body = &module->functions[i].body;
  if (body == NULL) return plugin_error(PJRT_Error_Code_INVALID_ARGUMENT, "the program has no function main");
  memset(program, 0, sizeof *program);
  program->name = module->name != NULL ? module->name : "main";
  program->num_parameters = body->num_parameters;
  program->donated = body->donated;
  int *places = (int *)plugin_take(module->arena, (body->num_values + 1) * sizeof(int));
  for (size_t i = 0; i < body->num_parameters; i++) {
    places[i] = (int)i;
    PLUGIN_ADD(module->arena, program->values, program->num_values, body->values[i]);
  }
  PJRT_Error *error = plugin_inline(module, body, places, program, 0);
  for (size_t i = 0; error == NULL && i < body->num_outputs; i++)
    PLUGIN_ADD(module->arena, program->outputs, program->num_outputs, places[body->outputs[i]]);
  return error;
}

#endif
