/* >>block, >>base: records of blocks are reserved, taken, given back, held and returned,
   STEPS operations in any order, while host memory runs out at any of the first; and sums of sizes.
   [R1] and [Z1] hold after each step: no record and no byte of host memory is lost or given out
   twice. */
#include "eva.h"

#if !defined(STEPS)
#define STEPS 4
#endif
#define TAKEN 3u

static gmlk_host host;
static gmlk_records records;
static gmlk_block *taken[TAKEN];
static unsigned taken_count, mallocs_left;
static size_t bytes_given;

static void *host_malloc(void *user, size_t bytes) {
  (void)user;
  must(host.in_callback == 1);
  if (mallocs_left == 0) return NULL;
  mallocs_left--;
  bytes_given += bytes;
  return malloc(bytes);
}

static void host_free(void *user, void *ptr) {
  (void)user;
  bytes_given -= GMLK_SLAB_BYTES;
  free(ptr);
}

static size_t listed(const gmlk_records *list) {
  const gmlk_block *b = list->unused;
  size_t count = 0;
  for (; b; b = b->next, count++) must(b->state == GMLK_UNUSED);
  must(count == list->unused_count);
  return count;
}

static void check(void) {
  unsigned i, k;
  must(listed(&records) + taken_count == records.slab_count * GMLK_SLAB_BLOCKS);
  must(records.set_aside <= records.unused_count);
  must(host.bytes == bytes_given && host.bytes <= host.bytes_peak && host.in_callback == 0);
  for (i = 0; i < taken_count; i++)
    for (k = 0; k < i; k++) must(taken[i] != taken[k]);
}

static unsigned choose(void) {
  if (any) return 1;
  if (records.unused_count > records.set_aside && taken_count < TAKEN && any) return 2;
  if (taken_count && any) return 3;
  if (!records.set_aside && records.unused_count > 2 && any) return 4;
  return records.set_aside && any ? 5 : 1;
}

static void perform(unsigned operation) {
  const size_t before = records.unused_count, wanted = before + 1;
  if (operation == 1) {
    const int served = gmlk_records_ensure(&records, &host, wanted);
    must(served ? records.unused_count >= wanted + records.set_aside
                : records.unused_count >= before);
  }
  if (operation == 2) {
    taken[taken_count] = gmlk_records_take(&records);
    taken[taken_count++]->state = GMLK_LIVE;
  }
  if (operation == 3) gmlk_records_give(&records, taken[--taken_count]);
  if (operation == 4) records.set_aside = 2;
  if (operation == 5) records.set_aside = 0;
  check();
}

static unsigned choose_mallocs(void) {
  unsigned count;
  for (count = 0; count < 2; count++)
    if (any) return count;
  return 8;
}

/* Sizes: all sums at both ends of the range. */
static void check_sizes(void) {
  size_t out = 7, unit;
  unsigned i;
  for (unit = 1; unit; unit <<= 1) {
    for (i = 0; i < 3; i++) {
      must(gmlk_size_round_up(unit + i - 1, unit, &out) == (unit < (size_t)1 << 63 || i < 2));
      must(out % unit == 0);
      must(!gmlk_size_round_up(SIZE_MAX - i, unit, &out) || out >= SIZE_MAX - i);
    }
    must(gmlk_is_pow2(unit) && gmlk_is_pow2(unit + 1) == (unit == 1));
  }
}

int main(void) {
  int step;
  check_sizes();
  host.hooks.malloc_fn = host_malloc;
  host.hooks.free_fn = host_free;
  mallocs_left = choose_mallocs();
  for (step = 0; step < STEPS; step++) perform(choose());
  while (taken_count) gmlk_records_give(&records, taken[--taken_count]);
  records.set_aside = 0;
  check();
  gmlk_records_destroy(&records, &host);
  must(host.bytes == 0 && bytes_given == 0);
  return 0;
}
