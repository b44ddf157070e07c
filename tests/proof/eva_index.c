/* >>index: six addresses go in and out of a table of BUCKETS buckets, in any order, any number of
   times, at most as many at once as the table holds before it grows. One is at home in the first
   bucket, the others in the last, so buckets are full, counted and passed, and searches go round
   the end. After each operation [I1] holds, each address that is in is found, with its block, and
   no other is. Then the table grows, and the same is found. FULL 1: the buckets lost count, so
   searches end later. */
#include "eva.h"

#if !defined(BUCKETS)
#define BUCKETS 2u
#define FULL 0u
#endif
#define LAST_BUCKET 1u /* so many addresses are at home in the first bucket, the others last */
#define ADDRESSES 6u   /* one more than there is room for */

static gmlk_host host;
static gmlk_index table;
static gmlk_block blocks[ADDRESSES];
static uint64_t addresses[ADDRESSES];
static int is_in[ADDRESSES];
static unsigned begun; /* what the buckets counted at first */

static size_t home_of(const gmlk_index *index, uint64_t address) {
  return gmlk_hash(address / GMLK_GRAIN, index->shift);
}

/* [I1] */
static void check(void) {
  size_t passed[2 * BUCKETS] = {0}, i, bucket, count = 0;
  for (i = 0; i < table.bucket_count * GMLK_BUCKET; i++) {
    const gmlk_block *b = table.buckets[i / GMLK_BUCKET].block[i % GMLK_BUCKET];
    uint64_t address = table.buckets[i / GMLK_BUCKET].address[i % GMLK_BUCKET];
    const uint64_t low = address % GMLK_GRAIN;
    address -= low;
    must((b != NULL) == (address != 0) && (i % GMLK_BUCKET == 0 || low == 0));
    if (!b) continue;
    must(is_in[b - blocks] && addresses[b - blocks] == address);
    must(gmlk_index_find(&table, address) == i);
    bucket = home_of(&table, address);
    for (; bucket != i / GMLK_BUCKET; bucket = (bucket + 1) & (table.bucket_count - 1))
      passed[bucket]++;
    count++;
  }
  for (i = 0; i < ADDRESSES; i++) {
    count -= (size_t)is_in[i];
    if (i == 0 || i == ADDRESSES - 1)
      must(gmlk_index_get(&table, addresses[i]) == (is_in[i] ? &blocks[i] : NULL));
  }
  must(count == 0);
  for (bucket = 0; bucket < table.bucket_count; bucket++) {
    const size_t counted = table.buckets[bucket].address[0] % GMLK_GRAIN;
    must(counted == (begun ? GMLK_PASSED_MAX : passed[bucket]));
  }
}

/* Addresses of one home differ in nothing that the table sees. So they are renamed: those that are
   in are the first of their home, in the order in which they stand. */
static void rename_addresses(void) {
  unsigned next[2] = {0, LAST_BUCKET}, i; /* of the first bucket, of the last */
  memset(is_in, 0, sizeof(is_in));
  for (i = 0; i < BUCKETS * GMLK_BUCKET; i++) {
    gmlk_bucket *bucket = &table.buckets[i / GMLK_BUCKET];
    uint64_t *address = &bucket->address[i % GMLK_BUCKET];
    unsigned name;
    if (!bucket->block[i % GMLK_BUCKET]) continue;
    name = next[home_of(&table, *address) != 0]++;
    *address = *address % GMLK_GRAIN + addresses[name];
    bucket->block[i % GMLK_BUCKET] = &blocks[name];
    is_in[name] = 1;
  }
}

/* The operations are: an address goes in or out; the table grows. */
static unsigned choose(void) {
  unsigned i;
  for (i = 0; i < ADDRESSES; i++)
    if ((is_in[i] ||
         (table.count < table.count_max && (i == 0 || i == LAST_BUCKET || is_in[i - 1]))) &&
        any)
      return i + 1;
  return any ? ADDRESSES + 1 : 0;
}

static void begin(unsigned is_full) {
  uint64_t address = GMLK_GRAIN;
  unsigned i, bucket;
  must(gmlk_index_resize(&table, &host, BUCKETS));
  for (i = 0; i < ADDRESSES; address += GMLK_GRAIN)
    if (home_of(&table, address) == (i < LAST_BUCKET ? 0 : BUCKETS - 1)) addresses[i++] = address;
  begun = is_full ? GMLK_PASSED_MAX : 0;
  for (bucket = 0; bucket < BUCKETS; bucket++) table.buckets[bucket].address[0] += begun;
}

int main(void) {
  begin(FULL);
  check();
  for (;;) {
    const unsigned chosen = choose(), i = chosen - 1;
    if (!chosen) return 0;
    if (i == ADDRESSES) break;
    if (is_in[i])
      gmlk_index_remove(&table, gmlk_index_find(&table, addresses[i]));
    else
      gmlk_index_put(&table, addresses[i], &blocks[i]);
    is_in[i] = !is_in[i];
    check();
    rename_addresses();
  }
  must(gmlk_index_resize(&table, &host, 2 * BUCKETS));
  begun = 0;
  check();
  return 0;
}
