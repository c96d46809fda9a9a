/* Staging: host memory from which uploads are made, and which is kept for later ones. */
#pragma once

#include "process.h"

typedef struct Block Block;
extern PyTypeObject *StagingType;
extern PyType_Spec staging_spec;
Block *staging_take(size_t nbytes);
char *staging_memory(const Block *block);
void staging_give_back(Block *block);
void staging_trim(void);
void staging_before_fork(void);
void staging_after_fork(void);
