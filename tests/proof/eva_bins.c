/* >>bins: BLOCKS blocks of SIZES sizes go in and out of one set of bins, in any order, any number
   of times. Two of the sizes share a bin, one is far above. After each
   operation [H1] to [H5] hold, and best fit and the walk over the candidates answer what a look at
   all blocks does. */
#include "eva.h"

#if !defined(BLOCKS)
#define BLOCKS 3u
#endif
#define SIZES 3u

static const uint32_t sizes[SIZES] = {64, 65, 4000};
static gmlk_host host;
static gmlk_bins *bins;
static gmlk_block blocks[BLOCKS];

static uint64_t in_words(void) {
  uint64_t words = 0;
  unsigned word;
  for (word = 0; word < GMLK_BIN_WORDS; word++)
    if (bins->bits[word]) words |= (uint64_t)1 << word;
  return words;
}

/* The bin's ring; returns how many of the blocks are in it. [H1], [H3] */
static unsigned check_ring(unsigned bin) {
  const gmlk_link *ring = &bins->rings[bin], *link = ring->next;
  unsigned count = 0;
  must((bins->bits[bin / 64u] >> (bin % 64u) & 1) == (link != ring)); /* [H2] */
  for (; link != ring; link = link->next, count++) {
    must(link->prev->next == link && link->next->prev == link);
    must(gmlk_bin_of(((const gmlk_block *)link)->its.hole) == bin);
  }
  return count;
}

static void check_best(uint32_t grains) {
  const gmlk_block *best = NULL;
  unsigned i;
  for (i = 0; i < BLOCKS; i++) {
    if (blocks[i].its.hole < grains || !blocks[i].its.hole) continue;
    if (!best || blocks[i].its.hole < best->its.hole) best = &blocks[i];
  }
  const gmlk_block *found = gmlk_bins_best(bins, grains);
  must(found ? best && found->its.hole == best->its.hole : !best);
}

static void check(void) {
  uint32_t grains = 0, count = 0, walked = 0;
  const gmlk_block *b;
  unsigned i, bin = 0;
  for (i = 0; i < BLOCKS; i++) {
    grains += blocks[i].its.hole;
    count += blocks[i].its.hole != 0;
    must(!blocks[i].its.hole || blocks[i].its.hole - bins->none_from >= bins->none_count);
  }
  must(bins->grains == grains && bins->count == count && bins->words == in_words());
  must(check_ring(gmlk_bin_of(64)) + check_ring(gmlk_bin_of(4000)) == count);
  for (b = gmlk_bins_best(bins, 1); b; b = gmlk_bins_next(bins, b)) {
    must(gmlk_bin_of(b->its.hole) >= bin);
    bin = gmlk_bin_of(b->its.hole);
    must(walked++ < count);
  }
  must((walked != 0) == (count != 0));
  for (i = 0; i < SIZES; i++) check_best(sizes[i]);
  i = gmlk_bin_down(bins, GMLK_BINS - 1);
  must(count ? check_ring(i) && gmlk_bin_from(bins, i + 1) == GMLK_BINS : !i);
}

static unsigned choose(void) {
  unsigned i, size;
  for (i = 0; i < BLOCKS; i++) {
    if (blocks[i].its.hole && any) return coded(1, i, 0, 0);
    for (size = 0; size < SIZES && !blocks[i].its.hole; size++)
      if (any) return coded(2, i, size, 0);
  }
  return 0;
}

/* The functions of sizes: a bin begins where the one below ends. */
static void check_sizes(void) {
  unsigned bin;
  for (bin = 1; bin < GMLK_BINS; bin += bin < 130 ? 1 : 37) {
    must(gmlk_bin_of(gmlk_bin_grains(bin)) == bin);
    must(gmlk_bin_of(gmlk_bin_grains(bin) - 1) == bin - 1);
  }
  must(gmlk_bin_of(~0u) == GMLK_BINS - 1 && gmlk_bin_grains(GMLK_BINS) == 0);
}

int main(void) {
  unsigned i;
  check_sizes();
  bins = gmlk_bins_new(&host);
  for (i = 0; i < BLOCKS; i++) blocks[i].at = i;
  for (;;) {
    const unsigned code = choose();
    gmlk_block *b = &blocks[code >> 16 & 255];
    if (!code) return 0;
    if (code >> 24 == 2) {
      gmlk_bins_insert(bins, b, sizes[code >> 8 & 255]);
    } else {
      gmlk_bins_remove(bins, b);
      memset(&b->as, 0, sizeof(b->as)); /* what is left over would be another state */
    }
    check();
  }
}
