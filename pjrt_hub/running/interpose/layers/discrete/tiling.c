/* Tilings: where the elements of an array lie in tiles, as with libtpu's compiler for a TPU v5e.

   A tile divides the last dimensions into blocks of its size, which are padded at the edges. The
   blocks follow one another, and so do the elements in each. The next tile divides these blocks. */
#include <stdio.h>

#include "discrete.h"

enum { LANES = 128, SUBLANES = 8, WORD = 32 };

size_t bits_of(PJRT_Buffer_Type type) {
  switch (type) {
    case PJRT_Buffer_Type_S2: case PJRT_Buffer_Type_U2: return 2;
    case PJRT_Buffer_Type_S4: case PJRT_Buffer_Type_U4: case PJRT_Buffer_Type_F4E2M1FN: return 4;
    case PJRT_Buffer_Type_S16: case PJRT_Buffer_Type_U16: case PJRT_Buffer_Type_F16:
    case PJRT_Buffer_Type_BF16: return 16;
    case PJRT_Buffer_Type_S32: case PJRT_Buffer_Type_U32: case PJRT_Buffer_Type_F32: return 32;
    case PJRT_Buffer_Type_S64: case PJRT_Buffer_Type_U64: case PJRT_Buffer_Type_F64:
    case PJRT_Buffer_Type_C64: return 64;
    case PJRT_Buffer_Type_C128: return 128;
    default: return 8;
  }
}

/* Returns the smallest power of two not below `size`, but at least `least` and at most `most`. */
static int64_t power_of_two(int64_t least, int64_t size, int64_t most) {
  int64_t power = least;
  while (power < size && power < most) power *= 2;
  return power;
}

static void add_tile(Tiling *tiling, size_t rank, int64_t first, int64_t second) {
  int64_t *end = tiling->tile_dims;
  for (size_t i = 0; i < tiling->num_tiles; i++) end += tiling->tile_ranks[i];
  end[0] = first;
  if (rank == 2) end[1] = second;
  tiling->tile_ranks[tiling->num_tiles++] = rank;
}

/* Elements that share a 32-bit word are from `packed` rows, which the last tile interleaves. */
static void choose_tiles(Tiling *tiling, size_t rank) {
  int64_t packed = tiling->bits < WORD ? WORD / (int64_t)tiling->bits : 1;
  int64_t vector = packed > SUBLANES ? packed : SUBLANES, row = tiling->sizes[tiling->rank - 1];
  if (rank == 0) {
    add_tile(tiling, 1, LANES * packed, 0);
    return;
  }
  if (rank == 1) {
    add_tile(tiling, 1, power_of_two(LANES * packed, row, LANES * vector), 0);
    if (packed > 1) add_tile(tiling, 1, LANES, 0);
  } else {
    int64_t rows = tiling->sizes[tiling->rank - 2];
    bool whole = tiling->bits < 16 && rows % (SUBLANES * packed) == 0;
    add_tile(tiling, 2, whole ? SUBLANES * packed : power_of_two(packed, rows, vector), LANES);
  }
  if (packed > 1) add_tile(tiling, 2, packed, 1);
}

/* Divides the index of an element by the tiles. Returns how many numbers it has afterwards. */
static size_t divide(const Tiling *tiling, int64_t *at, int64_t *sizes) {
  size_t count = tiling->rank;
  const int64_t *tile = tiling->tile_dims;
  for (size_t i = 0; i < tiling->num_tiles; i++) {
    size_t rank = tiling->tile_ranks[i], first = count - rank;
    for (size_t k = 0; k < rank; k++) {
      at[count + k] = at[first + k] % tile[k];
      sizes[count + k] = tile[k];
      at[first + k] /= tile[k];
      sizes[first + k] = (sizes[first + k] + tile[k] - 1) / tile[k];
    }
    count += rank;
    tile += rank;
  }
  return count;
}

/* Returns the minor_to_major of a layout, or NULL if it has none, which means row-major. */
const int64_t *tiling_order(const PJRT_Buffer_MemoryLayout *layout, size_t num_dims) {
  bool told = layout != NULL && layout->type == PJRT_Buffer_MemoryLayout_Type_Tiled &&
              layout->tiled.minor_to_major_size == num_dims;
  return told ? layout->tiled.minor_to_major : NULL;
}

/* Finds the tiles of an array. Returns false if it has none, because it has no elements or too many
   dimensions. `order` is its minor_to_major, or NULL for row-major. */
bool tiling_find(Tiling *tiling, PJRT_Buffer_Type type, const int64_t *dims, size_t rank,
                 const int64_t *order) {
  int64_t at[MOST_SIZES] = {0}, sizes[MOST_SIZES];
  memset(tiling, 0, sizeof *tiling);
  if (rank > MOST_RANK) return false;
  tiling->bits = bits_of(type);
  tiling->rank = rank > 0 ? rank : 1;
  tiling->sizes[0] = 1;
  tiling->count = 1;
  for (size_t i = 0; i < rank; i++) {
    size_t d = order != NULL ? (size_t)order[rank - 1 - i] : i;
    if (d >= rank || dims[d] <= 0) return false;
    tiling->sizes[i] = dims[d];
    tiling->count *= (size_t)tiling->sizes[i];
  }
  choose_tiles(tiling, rank);
  memcpy(sizes, tiling->sizes, sizeof tiling->sizes);
  size_t places = 1, count = divide(tiling, at, sizes);
  for (size_t i = 0; i < count; i++) places *= (size_t)sizes[i];
  tiling->nbytes = places * tiling->bits / 8;
  tiling->dense_nbytes = (tiling->count * tiling->bits + 7) / 8;
  return true;
}

static size_t place_of(const Tiling *tiling, const int64_t *index) {
  int64_t at[MOST_SIZES], sizes[MOST_SIZES];
  memcpy(at, index, sizeof tiling->sizes);
  memcpy(sizes, tiling->sizes, sizeof tiling->sizes);
  size_t place = 0, count = divide(tiling, at, sizes);
  for (size_t i = 0; i < count; i++) place = place * (size_t)sizes[i] + (size_t)at[i];
  return place;
}

/* Copies an element. Several short ones share a byte, and the first has the lowest bits. */
static void copy_element(char *to, size_t to_place, const char *from, size_t from_place, size_t bits) {
  if (bits >= 8) {
    memcpy(to + to_place * bits / 8, from + from_place * bits / 8, bits / 8);
    return;
  }
  size_t to_bit = to_place * bits, from_bit = from_place * bits;
  unsigned mask = (1u << bits) - 1, value = (unsigned char)from[from_bit / 8] >> from_bit % 8 & mask;
  unsigned kept = (unsigned char)to[to_bit / 8] & ~(mask << to_bit % 8);
  to[to_bit / 8] = (char)(kept | value << to_bit % 8);
}

/* Copies the elements of an array into its tiles, or out of them. The padding of the tiles is all
   ones, which is a NaN if somebody takes it for an element. */
void tiling_copy(const Tiling *tiling, char *tiles, char *dense, bool into_tiles) {
  int64_t index[MOST_RANK] = {0};
  if (into_tiles) memset(tiles, 0xff, tiling->nbytes);
  for (size_t i = 0; i < tiling->count; i++) {
    size_t place = place_of(tiling, index);
    if (into_tiles) copy_element(tiles, place, dense, i, tiling->bits);
    else copy_element(dense, i, tiles, place, tiling->bits);
    for (size_t d = tiling->rank; d-- > 0 && ++index[d] == tiling->sizes[d];) index[d] = 0;
  }
}

/* Writes tiles as XLA does, "T(8,128)(4,1)", followed by the bits of short elements, "E(4)". */
void tiling_write(const Tiling *tiling, char *text, size_t nbytes) {
  const int64_t *tile = tiling->tile_dims;
  int length = snprintf(text, nbytes, "T");
  for (size_t i = 0; i < tiling->num_tiles; tile += tiling->tile_ranks[i++]) {
    size_t left = nbytes - (size_t)length;
    long long first = tile[0], second = tile[tiling->tile_ranks[i] - 1];
    length += tiling->tile_ranks[i] == 1 ? snprintf(text + length, left, "(%lld)", first)
                                         : snprintf(text + length, left, "(%lld,%lld)", first, second);
  }
  if (tiling->bits < 8) snprintf(text + length, nbytes - (size_t)length, "E(%zu)", tiling->bits);
}
