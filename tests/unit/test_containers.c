/* The containers inside gmlake.h, each by itself, of what few blocks do not show: the sorted pool,
   the index, and the planner of windows as a function of hand-made arenas. Rows and random
   programs, with gmlake_check, say the rest; tests/proof has all sequences of a few blocks. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "cases.h"
#include "host.h"
#include "splitmix.h"

static uint64_t random_state;

static uint32_t below(uint32_t count) { return (uint32_t)(splitmix64(&random_state) % count); }

static void host_open(gmlk_host *host) {
  memset(host, 0, sizeof(*host));
  host->hooks.malloc_fn = host_malloc;
  host->hooks.free_fn = host_free;
}

static void host_close(const gmlk_host *host) {
  assert_int_equal(host_bytes, 0);
  assert_int_equal(host->bytes, 0);
}

/* ---- sizes ---- */

CASE(test_sizes) {
  const size_t max = SIZE_MAX;
  size_t out = 7;
  assert_true(gmlk_size_round_up(0, 512, &out));
  assert_int_equal(out, 0);
  assert_true(gmlk_size_round_up(513, 512, &out));
  assert_int_equal(out, 1024);
  assert_true(gmlk_size_round_up(1024, 512, &out));
  assert_int_equal(out, 1024);
  assert_true(gmlk_size_round_up(max - 511, 512, &out));
  assert_true(out == max - 511);
  assert_false(gmlk_size_round_up(max - 510, 512, &out));
  assert_false(gmlk_size_round_up(max, 2, &out));
  assert_true(gmlk_size_round_up(max, 1, &out));
  assert_true(out == max);
}

/* ---- the sorted pool ---- */

static gmlk_bins holes;
static gmlk_block hole_blocks[64];

static size_t block_count(gmlk_bins *pool) {
  const gmlk_block *b = gmlk_bins_best(pool, 1);
  size_t count = 0;
  for (; b; b = gmlk_bins_next(pool, b)) count++;
  return count;
}

static void holes_open(void) {
  unsigned bin;
  memset(&holes, 0, sizeof(holes));
  memset(hole_blocks, 0, sizeof(hole_blocks));
  for (bin = 0; bin < GMLK_BINS; bin++) gmlk_ring_init(&holes.rings[bin]);
}

/* What was found to be missing is not looked for, until it comes. */
CASE(test_best_remembers) {
  const uint32_t size = gmlk_bin_grains(gmlk_bin_of(5000));
  uint32_t i;
  holes_open();
  for (i = 0; i < 20; i++) gmlk_bins_insert(&holes, &hole_blocks[i], size + 2);
  assert_null(gmlk_bins_best(&holes, size + 4));
  assert_int_equal(holes.none_from, size + 4);
  assert_int_equal(gmlk_bin_of(size + 4), gmlk_bin_of(holes.none_from + holes.none_count - 1));
  assert_int_not_equal(gmlk_bin_of(size), gmlk_bin_of(holes.none_from + holes.none_count));
  for (i = 20; i < 40; i++) gmlk_bins_insert(&holes, &hole_blocks[i], i == 20 ? size + 7 : size);
  assert_int_equal(holes.none_from, size + 8);
  assert_ptr_equal(gmlk_bins_best(&holes, size + 4), &hole_blocks[20]);
  assert_null(gmlk_bins_best(&holes, size + 8));
  gmlk_bins_remove(&holes, &hole_blocks[20]);
  assert_null(gmlk_bins_best(&holes, size + 3));
  assert_int_equal(holes.none_from, size + 3);
  gmlk_bins_insert(&holes, &hole_blocks[20], gmlk_bin_grains(gmlk_bin_of(size) + 1) - 1);
  assert_int_equal(holes.none_count, 0);
  gmlk_bins_insert(&holes, &hole_blocks[40], 0xFFFFFFFFu); /* the last size of the last bin */
  gmlk_bins_insert(&holes, &hole_blocks[41], 0xFFFFFFF0u);
  assert_ptr_equal(gmlk_bins_best(&holes, 0xFFFFFFFEu), &hole_blocks[40]);
  gmlk_bins_remove(&holes, &hole_blocks[40]);
  assert_null(gmlk_bins_best(&holes, 0xFFFFFFFEu));
  assert_int_equal(holes.none_count, 2);
}

/* ---- the index ---- */

static gmlk_block index_blocks[64];

static size_t home_of(const gmlk_index *index, uint64_t address) {
  return gmlk_hash(address / GMLK_GRAIN, index->shift);
}

static void put(gmlk_index *index, gmlk_host *host, uint64_t address, gmlk_block *b) {
  const size_t buckets = index->bucket_count;
  assert_true(gmlk_index_ensure(index, host));
  assert_true(!buckets || index->bucket_count <= 2 * buckets);
  gmlk_index_put(index, address, b);
}

/* Addresses whose home is one of the last two buckets of a table of 16, so that they pile up and
   pass on to the first buckets. */
static size_t find_colliding(uint64_t *addresses, size_t count) {
  gmlk_index small;
  uint64_t address;
  size_t found = 0;
  memset(&small, 0, sizeof(small));
  small.bucket_count = 16;
  small.shift = 64 - 4;
  for (address = 512; found < count; address += 512)
    if (home_of(&small, address) >= 14) addresses[found++] = address;
  return found;
}

/* Every bucket was passed over more often than it can count: looking for what is not there ends
   after one round, and a full bucket is passed over still. */
CASE(test_index_saturated_everywhere) {
  uint64_t colliding[40], address;
  gmlk_index index;
  gmlk_host host;
  size_t bucket, home, count = find_colliding(colliding, 40), i, used = 0;
  host_open(&host);
  memset(&index, 0, sizeof(index));
  assert_true(gmlk_index_ensure(&index, &host));
  for (bucket = 0; bucket < 16; bucket++) index.buckets[bucket].address[0] = GMLK_PASSED_MAX;
  assert_int_equal(gmlk_index_find(&index, 512), GMLK_NO_ENTRY);
  home = home_of(&index, colliding[0]);
  for (i = 0; i < count && used <= GMLK_BUCKET; i++)
    if (home_of(&index, colliding[i]) == home) colliding[used++] = colliding[i];
  assert_int_equal(used, GMLK_BUCKET + 1);
  for (i = 0; i < used; i++) gmlk_index_put(&index, colliding[i], &index_blocks[i]);
  address = colliding[GMLK_BUCKET];
  assert_int_not_equal(gmlk_index_find(&index, address) / GMLK_BUCKET, home);
  for (i = 0; i < used; i++)
    assert_ptr_equal(gmlk_index_get(&index, colliding[i]), &index_blocks[i]);
  gmlk_index_remove(&index, gmlk_index_find(&index, address));
  assert_null(gmlk_index_get(&index, address));
  assert_int_equal(index.buckets[home].address[0] % GMLK_GRAIN, GMLK_PASSED_MAX);
  gmlk_index_destroy(&index, &host);
  host_close(&host);
}

/* Rows that looking up each of so many blocks, a stride of grains apart, reads beyond the first. */
static size_t rows_passed(gmlk_host *host, uint64_t grains, size_t count) {
  const uint64_t base = (uint64_t)0x7F13 << 32;
  gmlk_index index;
  size_t i, passed = 0;
  memset(&index, 0, sizeof(index));
  for (i = 0; i < count; i++) put(&index, host, base + i * grains * 512, &index_blocks[0]);
  for (i = 0; i < count; i++) {
    uint64_t address = base + i * grains * 512;
    size_t bucket = gmlk_index_find(&index, address) / GMLK_BUCKET;
    passed += (bucket - home_of(&index, address)) & (index.bucket_count - 1);
  }
  gmlk_index_destroy(&index, host);
  return passed;
}

static int is_prime(uint64_t n) {
  uint64_t d;
  for (d = 2; d * d <= n; d++)
    if (n % d == 0) return 0;
  return n > 1;
}

/* Blocks of one size lie a stride apart. Whatever it is, looking up reads two buckets at most on
   the average; chance makes it 1.05. */
CASE(test_index_strides) {
  static const size_t counts[] = {100, 1000, 8000};
  gmlk_host host;
  size_t n;
  host_open(&host);
  for (n = 0; n < sizeof(counts) / sizeof(counts[0]); n++) {
    uint64_t a = 1, b = 2, next;
    for (; b < (1u << 24); next = a + b, a = b, b = next) {
      assert_true(rows_passed(&host, b, counts[n]) < counts[n]);
      assert_true(rows_passed(&host, b * 64, counts[n]) < counts[n]);
    }
    for (b = 1; b <= (1u << 24); b *= 2) {
      assert_true(rows_passed(&host, b, counts[n]) < counts[n]);
      assert_true(rows_passed(&host, b + 1, counts[n]) < counts[n]);
      assert_true(rows_passed(&host, 3 * b, counts[n]) < counts[n]);
    }
    for (b = 3; b < (1u << 24); b += b / 2) {
      while (!is_prime(b)) b++;
      assert_true(rows_passed(&host, b, counts[n]) < counts[n]);
    }
  }
  host_close(&host);
}

/* ---- cache lines ---- */

CASE(test_line_from) {
  uintptr_t ptr;
  for (ptr = 640; ptr <= 704; ptr++)
    assert_int_equal((uintptr_t)gmlk_line_from((void *)ptr), ptr == 640 ? 640 : 704);
}

/* ---- the planner ---- */

#define CHUNK 8u /* grains */
#define SLOTS 24u

static gmlk_arena arena;
static gmlk_records arena_records;
static gmlk_streams no_streams;
static char drawing[SLOTS * CHUNK + 1];

static void arena_open(gmlk_host *host, uint32_t slot_limit) {
  memset(&arena, 0, sizeof(arena));
  memset(&arena_records, 0, sizeof(arena_records));
  memset(&no_streams, 0, sizeof(no_streams));
  arena.chunk_log = 3;
  arena.chunk_grains = CHUNK;
  arena.chunk_bytes = CHUNK * GMLK_GRAIN;
  arena.area.limit = arena.area.most = slot_limit;
  assert_true(gmlk_arena_init(&arena, host, &arena_records));
  assert_true(gmlk_arena_reserve_slots(&arena, slot_limit));
  assert_true(gmlk_scratch_ensure(&arena, slot_limit));
  assert_true(gmlk_records_ensure(&arena_records, host, SLOTS * CHUNK + 8));
}

static void arena_close(gmlk_host *host) {
  gmlk_arena_destroy(&arena);
  gmlk_records_destroy(&arena_records, host);
  host_close(host);
}

static void own(uint32_t at, uint32_t grains) {
  gmlk_block *b = gmlk_reserve_range(&arena, gmlk_locate(&arena, at), at, grains);
  (void)gmlk_join_as(&arena, b, grains, GMLK_LIVE);
}

/* An arena from a picture: a character a grain, '.' is free, another one live. */
static void draw(const char *picture) {
  uint32_t length = (uint32_t)strlen(picture), at = 0;
  (void)snprintf(drawing, sizeof(drawing), "%s", picture);
  assert_int_equal(length % CHUNK, 0);
  gmlk_arena_extend(&arena, length / CHUNK);
  gmlk_arena_back(&arena, 0, length / CHUNK);
  while (at < length) {
    uint32_t grains = 1;
    while (picture[at + grains] == picture[at]) grains++;
    if (picture[at] != '.') own(at, grains);
    at += grains;
  }
}

static int plan(uint32_t grains, uint32_t align, int whole_only, gmlk_plan *out) {
  gmlk_requester requester;
  gmlk_plan scanned;
  int is_planned, is_found;
  memset(&requester, 0, sizeof(requester));
  requester.may_wait = 1; /* reads the arena, not the pools, and finds the same if runs are few */
  gmlk_plan_window(&arena, &no_streams, requester, 0, grains, align, whole_only, &scanned);
  is_found = !scanned.shortfall;
  requester.may_wait = 0;
  gmlk_plan_window(&arena, &no_streams, requester, 0, grains, align, whole_only, out);
  is_planned = !out->shortfall;
  if (block_count(arena.bins[GMLK_CLEAN]) > GMLK_END_TRIES) return is_planned;
  if (is_planned != is_found || out->shortfall != scanned.shortfall) {
    uint32_t less = out->shortfall < scanned.shortfall ? out->shortfall : scanned.shortfall;
    assert_true(out->shortfall + scanned.shortfall - 2 * less < CHUNK); /* equal tails: another one
                                                                           has the longest head */
  }
  return is_planned;
}

/* Two records for each range of slots that grow, and one for the arena's end. */
CASE(test_growth_records) {
  static const uint32_t counts[][2] = {{1, 3}, {3, 3}, {5, 5}, {6, 7}, {7, 9}};
  uint32_t numbers[7] = {3, 4, 5, 9, 10, 12, 0};
  gmlk_slots slots;
  size_t i;
  slots.items = numbers;
  for (i = 0; i < sizeof(counts) / sizeof(counts[0]); i++) {
    slots.count = counts[i][0];
    assert_int_equal(gmlk_growth_records(&slots), counts[i][1]);
  }
}

/* By length, and of the same length by address. */
CASE(test_whole_chunks_are_sorted) {
  enum { COUNT = 200, GUARD = 200 };
  gmlk_whole_chunks whole[COUNT + GUARD];
  uint32_t count, i;
  for (count = 0; count <= COUNT; count++) {
    for (i = 0; i < COUNT + GUARD; i++) {
      whole[i].grains = i < count ? 1 + below(20) : 0;
      whole[i].slot = below(1000);
      whole[i].count = whole[i].grains * 1000 + whole[i].slot;
    }
    gmlk_whole_sort(whole, count);
    for (i = 0; i < COUNT + GUARD; i++) {
      assert_int_equal(whole[i].count, whole[i].grains * 1000 + whole[i].slot);
      assert_true(i == 0 || i >= count || whole[i - 1].count <= whole[i].count);
      assert_int_equal(whole[i].grains > 0, i < count);
    }
  }
}

/* A sixteenth of the runs is looked at for ends, but at least 16 and at most 128. */
CASE(test_plan_end_tries) {
  assert_int_equal(gmlk_end_tries(0), 16);
  assert_int_equal(gmlk_end_tries(16 * 17 - 1), 16);
  assert_int_equal(gmlk_end_tries(16 * 17), 17);
  assert_int_equal(gmlk_end_tries(16 * 128), 128);
  assert_int_equal(gmlk_end_tries(~(uint32_t)0), 128);
}

/* Runs are looked at in proportion to what is missing: 64, and four for each chunk. */
CASE(test_plan_tries) {
  gmlk_supply supply;
  gmlk_host host;
  host_open(&host);
  arena_open(&host, SLOTS);
  memset(&supply, 0, sizeof(supply));
  assert_int_equal(gmlk_supply_tries(&arena, &supply, CHUNK - 1), 64);
  assert_int_equal(gmlk_supply_tries(&arena, &supply, 10 * CHUNK), 64 + 4 * 10);
  supply.chunk_count = 4;
  assert_int_equal(gmlk_supply_tries(&arena, &supply, 10 * CHUNK), 64 + 4 * 6);
  supply.chunk_count = 10;
  assert_int_equal(gmlk_supply_tries(&arena, &supply, 10 * CHUNK), 0);
  arena_close(&host);
}

/* The first of sixteen holes that begins where it should, else one that holds any beginning. */
CASE(test_aligned_best_fit) {
  uint32_t misplaced, at = 0;
  for (misplaced = 15; misplaced <= 16; misplaced++) {
    char picture[SLOTS * CHUNK + 1];
    const gmlk_block *b;
    gmlk_host host;
    uint32_t slot;
    host_open(&host);
    arena_open(&host, SLOTS);
    memset(picture, '#', sizeof(picture));
    for (slot = 0; slot <= misplaced; slot++) {
      memset(picture + slot * CHUNK + (slot > 0), '.', CHUNK / 2); /* the first comes last */
    }
    memset(picture + 20 * CHUNK + 1, '.', 2 * CHUNK);
    picture[SLOTS * CHUNK] = 0;
    draw(picture);
    b = gmlk_best_in(&arena, GMLK_CLEAN, GMLK_CLEAN, CHUNK / 2, CHUNK, &at);
    assert_non_null(b);
    assert_int_equal(at, misplaced == 15 ? 0 : 21 * CHUNK);
    arena_close(&host);
  }
}

static void check_plan(const gmlk_plan *p, uint32_t grains, uint32_t align, int whole_only) {
  uint32_t i, at, sum = 0, chunks = 0;
  unsigned char used[SLOTS];
  memset(used, 0, sizeof(used));
  assert_int_equal(arena.pieces[0].at % align, 0);
  for (i = 0; i < p->piece_count; i++) {
    const gmlk_piece *s = &arena.pieces[i];
    assert_true(s->grains > 0);
    assert_true(i == 0 || s->at % CHUNK == 0);
    assert_true(i + 1 == p->piece_count || (s->at + s->grains) % CHUNK == 0);
    if (whole_only) assert_true(s->at % CHUNK == 0 && s->grains % CHUNK == 0);
    for (at = s->at; at < s->at + s->grains; at++) assert_int_equal(drawing[at], '.');
    for (at = s->at / CHUNK; at <= (s->at + s->grains - 1) / CHUNK; at++) {
      assert_false(used[at]);
      used[at] = 1;
      chunks++;
    }
    sum += s->grains;
  }
  assert_int_equal(sum, grains);
  assert_int_equal(chunks, p->chunk_count);
}

/* What a window is made of, or what lacks for it. */
static const struct plan_row {
  const char *picture;
  uint32_t grains, align;
  int whole_only;
  uint32_t shortfall, pieces[6]; /* 0: it is made of these: where, how many grains */
} plan_rows[] = {
    /* A tail, a whole chunk, a head. */
    {"#####...########........########..######", 13, 1, 0, 0, {5, 3, 16, 8, 32, 2}},
    {"#####...########........########..######", 14, 1, 0, 1, {0}},
    {"#####...########........########..######", 40, 1, 0, 40 - 13, {0}},
    {"#####...########........########..######........", 16, CHUNK, 1, 0, {16, 8, 40, 8}},
    {"#####...########........########..######........", 24, CHUNK, 1, 8, {0}},
    /* One chunk is free at both ends: a window takes one of them. */
    {"########...##...########", 6, 1, 0, 3, {0}},
    {"#.......########........", 15, 1, 0, 0, {1, 7, 16, 8}},
    /* The tail is cut to begin on a multiple of 4. */
    {"#.......########........", 12, 4, 0, 0, {4, 4, 16, 8}},
    {"#.......########........", 13, 4, 0, 1, {0}},
    /* Small holes first, so that large ones stay whole; neighbours become one piece. */
    {"########........................########........########", 24, 1, 0, 0, {40, 8, 8, 16}},
    {"", 5, 1, 0, 5, {0}},
    {"################", 5, 1, 0, 5, {0}},
};

CASE(test_plans) {
  size_t row, i;
  for (row = 0; row < sizeof(plan_rows) / sizeof(plan_rows[0]); row++) {
    const struct plan_row *r = &plan_rows[row];
    gmlk_plan p;
    gmlk_host host;
    host_open(&host);
    arena_open(&host, SLOTS);
    if (*r->picture) draw(r->picture);
    assert_int_equal(plan(r->grains, r->align, r->whole_only, &p), !r->shortfall);
    if (r->shortfall)
      assert_int_equal(p.shortfall, r->shortfall);
    else
      check_plan(&p, r->grains, r->align, r->whole_only);
    for (i = 0; i < 3 && r->pieces[2 * i + 1]; i++) {
      assert_int_equal(arena.pieces[i].at, r->pieces[2 * i]);
      assert_int_equal(arena.pieces[i].grains, r->pieces[2 * i + 1]);
    }
    if (!r->shortfall) assert_int_equal(p.piece_count, i);
    arena_close(&host);
  }
}

/* How many windows stand in a tree; each above those of lower rank, and in order behind *before. */
static size_t check_windows(const gmlk_block *b, const gmlk_block **before) {
  const gmlk_window *w = (const gmlk_window *)b;
  size_t count;
  if (!b) return 0;
  if (b->as.children.less) assert_true(gmlk_tree_rank(b) > gmlk_tree_rank(b->as.children.less));
  if (b->as.children.more) assert_true(gmlk_tree_rank(b) > gmlk_tree_rank(b->as.children.more));
  count = check_windows(b->as.children.less, before) + 1;
  if (*before) assert_true(gmlk_tree_precedes(*before, w->key, w->number));
  *before = b;
  return count + check_windows(b->as.children.more, before);
}

static size_t check_tree(const gmlk_block *root) {
  const gmlk_block *before = NULL;
  return check_windows(root, &before);
}

static void check_trees(size_t open, size_t blocked) {
  assert_int_equal(check_tree(arena.windows.ready), open);
  assert_int_equal(check_tree(arena.windows.blocked), blocked);
}

/* A search blocks so many windows that a block is in the way of, and no more; the next one goes on
   behind them. Of two windows that are free, the older one is found. */
CASE(test_window_behind_many_others) {
  static gmlk_window windows[200];
  gmlk_piece span[2];
  gmlk_requester requester = gmlk_requester_of(GMLK_FIRST_STREAM, GMLAKE_NO_WAIT);
  gmlk_request r;
  gmlk_block *b;
  gmlk_host host;
  size_t i;
  memset(&r, 0, sizeof(r));
  r.arena = &arena;
  r.grains = 8;
  r.align = 1;
  host_open(&host);
  arena_open(&host, SLOTS);
  draw("LLLLLLLL........");
  span[0] = gmlk_piece_with(0, 8);
  span[1] = gmlk_piece_with(8, 8);
  memset(windows, 0, sizeof(windows));
  for (i = 0; i < 200; i++) {
    windows[i].pieces = &span[i >= 198];
    windows[i].piece_count = 1;
    windows[i].self.grains = 8;
    windows[i].number = i + 1;
    gmlk_window_set_idle(&arena.windows, &windows[i], GMLK_CLEAN, 0);
  }
  check_trees(200, 0);
  for (i = 0; i < 198 / GMLK_WINDOW_TRIES; i++) {
    assert_null(gmlk_window_idle_for(&no_streams, &r, requester));
    check_trees(200 - (i + 1) * GMLK_WINDOW_TRIES, (i + 1) * GMLK_WINDOW_TRIES);
  }
  assert_ptr_equal(gmlk_window_idle_for(&no_streams, &r, requester), &windows[198]);
  b = gmlk_locate(&arena, 0);
  assert_true(b->flags & GMLK_IN_THE_WAY);
  assert_int_equal(windows[0].key, GMLK_BLOCKED + b->u.serial);
  assert_int_equal(windows[197].key, GMLK_BLOCKED + b->u.serial);
  gmlk_windows_unblock(&arena.windows, b);
  check_trees(200, 0);
  arena_close(&host);
}

int main(void) { return run_cases("containers"); }
