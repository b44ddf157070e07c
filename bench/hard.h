/* Programs that are hard for an allocator that stitches, as lists of operations: bench.c measures
   their time, tests/policy/test_hard.c the memory and the driver calls that they need. */
#if !defined(HARD_H)
#define HARD_H

#include <math.h>
#include <stddef.h>
#include <stdint.h>

#include "splitmix.h"

/* Takes one operation: a block of so many bytes is allocated as number `slot`; 0: it is freed. */
typedef void hard_emit(void *user, size_t slot, size_t bytes);

/* ---- Phases ----------------------------------------------------------------------------------
   `count` phases take turns. In each of them two blocks of a chunk are freed that are no
   neighbours, a block of two chunks is allocated and freed, and the two are allocated again. So
   each phase needs a window of its own, and all these windows have one size. */

#define HARD_PHASE_SLOTS 4 /* a phase; one more slot is for the large block */

static inline void hard_phases_begin(size_t count, size_t chunk_bytes, hard_emit *emit,
                                     void *user) {
  size_t slot;
  for (slot = 0; slot < count * HARD_PHASE_SLOTS; slot++) emit(user, slot, chunk_bytes);
}

static inline void hard_phases(size_t count, size_t chunk_bytes, hard_emit *emit, void *user) {
  const size_t large = count * HARD_PHASE_SLOTS;
  size_t slot;
  for (slot = 0; slot < large; slot += HARD_PHASE_SLOTS) {
    emit(user, slot, 0);
    emit(user, slot + 2, 0);
    emit(user, large, 2 * chunk_bytes);
    emit(user, large, 0);
    emit(user, slot, chunk_bytes);
    emit(user, slot + 2, chunk_bytes);
  }
}

/* ---- Comb --------------------------------------------------------------------------------------
   Pairs of a small block that stays and a large one that goes; a pair fills a chunk. Then blocks of
   two chunks, less a small block, take the place of the large ones. Where the blocks lie as they
   came, each small one pins a chunk, and twice as much memory is needed as is live. */

#define HARD_COMB_SLOTS(pairs) (2 * (pairs) + (pairs) / 2)

/* is_first: the small blocks are allocated, too. is_last: they are freed at the end. */
static inline void hard_comb(size_t pairs, size_t chunk_bytes, size_t small_bytes, int is_first,
                             int is_last, hard_emit *emit, void *user) {
  size_t i;
  for (i = 0; i < pairs; i++) {
    if (is_first) emit(user, i, small_bytes);
    emit(user, pairs + i, chunk_bytes - small_bytes);
  }
  for (i = 0; i < pairs; i++) emit(user, pairs + i, 0);
  for (i = 0; i < pairs / 2; i++) emit(user, 2 * pairs + i, 2 * chunk_bytes - small_bytes);
  for (i = 0; i < pairs / 2; i++) emit(user, 2 * pairs + i, 0);
  for (i = 0; i < pairs && is_last; i++) emit(user, i, 0);
}

/* ---- Random programs of fixed shapes -----------------------------------------------------------
   A program has up to 20 sizes from 1 KiB to 64 MiB, and up to 120 blocks of them. Some are freed
   in the order in which they came, some in reverse order, some at random; at the end none is live.
   One number makes one program: to repeat itself it is emitted again. */

#define HARD_RANDOM_SLOTS 128

static uint64_t hard_state;

static inline size_t hard_below(size_t count) {
  return (size_t)(splitmix64(&hard_state) >> 11) % count;
}

static inline void hard_random(uint64_t number, hard_emit *emit, void *user) {
  size_t sizes[20], live[HARD_RANDOM_SLOTS], size_count, count, most, made = 0, n = 0, i;
  hard_state = number;
  size_count = 2 + hard_below(19);
  count = 8 + hard_below(HARD_RANDOM_SLOTS - 8);
  most = 4 + hard_below(60);
  for (i = 0; i < size_count; i++) {
    sizes[i] = (size_t)(1024 * exp2((double)hard_below(16001) / 1000));
    if (hard_below(2)) sizes[i] &= ~(size_t)(sizes[i] >> 20 ? 0xFFFFF : 0);
  }
  while (made < count || n) {
    if (made < count && (!n || (n < most && hard_below(100) < 60))) {
      live[n++] = made;
      emit(user, made++, sizes[hard_below(size_count)]);
    } else {
      const size_t kind = hard_below(6);
      i = kind < 2 ? n - 1 : kind < 3 ? 0 : hard_below(n);
      emit(user, live[i], 0);
      for (n--; i < n; i++) live[i] = live[i + 1];
    }
  }
}

#endif
