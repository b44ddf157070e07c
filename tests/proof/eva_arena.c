/* >>arena, and what >>capacity and >>small change of its tiling: SLOTS chunks of CHUNK grains,
   allocated, freed, reserved, backed and unbacked for STREAMS streams, in any order, any number of
   times; with GRAPHS, some of it by graphs. `map` says for each grain what it has to be. After each
   operation [A1] to [A4], [A6], [A7], [H1] to [H4] and [U1] hold, and the arena says of each grain
   what the map says. So no grain is in two live blocks, and none is lost or gets another tag than
   it was freed with. Best fit finds the smallest hole, or nothing where nothing fits.

   Blocks are renamed after each operation: block i is the one that begins at grain i. Epochs are 1,
   since only the order of equal tags could tell them apart. */
#include "eva.h"

#if !defined(SLOTS)
#define SLOTS 2u
#define CHUNK_LOG 1u
#define STREAMS 1u
#define ALIGN 1u
#define GRAPHS 0
#endif
#define CHUNK (1u << CHUNK_LOG)
#define GRAINS (SLOTS * CHUNK)
#define BLOCKS (GRAINS + 2u)
#define TAGS (GMLK_FIRST_STREAM + STREAMS)

enum { LIVE = 100, FIRST = 101, UNBACKED, SET_ASIDE, EDGE }; /* in map, beside tags */

static gmlk_host host;
static gmlk_records records;
static gmlk_arena arena;
static gmlk_block pool[BLOCKS], named[BLOCKS];
static unsigned map[GRAINS]; /* FIRST: a live block's first grain, LIVE: the others */

static int is_open(uint32_t at, unsigned stream) {
  return map[at] == GMLK_CLEAN || map[at] == stream;
}

static int are_open(uint32_t at, uint32_t grains, unsigned stream) {
  for (; grains; at++, grains--)
    if (!is_open(at, stream)) return 0;
  return 1;
}

static void fill(uint32_t at, uint32_t grains, unsigned tag) {
  for (; grains; grains--) map[at++] = tag;
}

/* ---- What has to hold ---- */

static uint32_t count_in_bins(const gmlk_bins *bins, unsigned tag) {
  uint32_t count = 0, grains = 0;
  unsigned bin;
  for (bin = 1; bin <= GRAINS; bin++) { /* of exactly one size each */
    const gmlk_link *ring = &bins->rings[bin], *link = ring->next;
    must((bins->bits[0] >> bin & 1) == (link != ring)); /* [H2] */
    for (; link != ring; link = link->next) {
      const gmlk_block *b = (const gmlk_block *)link;
      must(link->next->prev == link && link->prev->next == link);            /* [H3] */
      must(b->state == GMLK_FREE && b->stream == tag && b->its.hole == bin); /* [H1] */
      count++;
      grains += bin;
    }
  }
  must(count == bins->count && grains == bins->grains); /* [H4] */
  must(bins->words == (bins->bits[0] != 0));
  return count;
}

static unsigned tag_of(const gmlk_block *b, uint32_t at) {
  if (b->state == GMLK_LIVE) return at == b->at ? FIRST : LIVE;
  if (b->state == GMLK_UNBACKED) return UNBACKED;
  if (b->state == GMLK_RESERVED) return SET_ASIDE;
  if (b->state == GMLK_EDGE) return EDGE;
  must(b->state == GMLK_FREE);
  return b->stream;
}

/* [A3]: the size of the hole that the block has to stand under. */
static uint32_t hole_of(const gmlk_block *b, unsigned tag) {
  uint32_t from = b->at, end = b->at + b->grains;
  if (tag == GMLK_CLEAN) return b->grains;
  if (tag < GMLK_FIRST_STREAM || tag >= TAGS) return 0;
  while (from && is_open(from - 1, tag)) {
    if (map[--from] == tag) return 0; /* another block heads the run */
  }
  while (end < GRAINS && is_open(end, tag)) end++;
  return end - from;
}

/* [A3]: whether the block is the second tagged one of its run. */
static int is_second(const gmlk_block *b, unsigned tag) {
  uint32_t at = b->at;
  unsigned blocks = 0;
  if (tag < GMLK_FIRST_STREAM || tag >= TAGS) return 0;
  while (at && is_open(at - 1, tag)) {
    at--;
    if (map[at] == tag && (at == 0 || map[at - 1] != tag)) blocks++;
  }
  return blocks == 1;
}

static unsigned count_in_tree(const gmlk_block *b) {
  return b ? 1 + count_in_tree(b->as.children.less) + count_in_tree(b->as.children.more) : 0;
}

static void check(void) {
  unsigned holes[TAGS] = {0}, seconds[TAGS] = {0}, gaps = 0, tag;
  uint32_t at = 0, end = arena.slot_count << CHUNK_LOG, free_grains = 0, i;
  const gmlk_block *b = arena.begin.next;
  for (; b != &arena.end; b = b->next) {
    must(b->at == at && b->grains && b->prev->next == b); /* [A1] */
    tag = tag_of(b, at);
    must(tag == SET_ASIDE ? b == arena.small.reserve && b->prev->state != GMLK_FREE : 1); /* [U1] */
    must(b->state == GMLK_LIVE || tag_of(b->next, b->next->at) != tag);                   /* [A2] */
    for (i = 0; i < b->grains; i++) {
      must(at + i < GRAINS && map[at + i] == tag_of(b, at + i));
      if (((at + i) & (CHUNK - 1)) == 0) must(arena.firsts[(at + i) >> CHUNK_LOG] == b); /* [A4] */
      must(gmlk_locate(&arena, at + i) == b);
    }
    must(b->state == GMLK_LIVE || b->its.hole == hole_of(b, tag)); /* [A3] */
    if (b->state == GMLK_FREE) {
      holes[tag] += b->its.hole != 0;
      free_grains += b->grains;
      must(b->u.epoch == (tag != GMLK_CLEAN));
    }
    if (is_second(b, tag)) {
      seconds[tag]++;
      must(gmlk_tree_upto(arena.bins[tag]->second_blocks, at) == b);
    }
    gaps += tag == UNBACKED;
    at += b->grains;
  }
  must(at == end && b->at == end && b->prev->next == b);
  must(arena.firsts[arena.slot_count] == &arena.end);
  must(free_grains == arena.free_grains); /* [A6] */
  must(arena.gap_count == gaps);          /* [A7] */
  for (tag = 0; tag < TAGS; tag++) {
    if (tag == GMLK_GRAPH_OWNED) continue;
    must(count_in_bins(arena.bins[tag], tag) == holes[tag]);
    must(count_in_tree(arena.bins[tag]->second_blocks) == seconds[tag]);
  }
}

/* ---- Renaming ---- */

static gmlk_block *renamed(gmlk_block *b) {
  return !b || b == &arena.begin || b == &arena.end ? b : &pool[b->at];
}

static gmlk_link *renamed_link(gmlk_link *link, gmlk_link *ring) {
  return link == ring ? ring : &renamed((gmlk_block *)link)->as.link;
}

static void rename_block(gmlk_block *copy, gmlk_block *b) {
  const unsigned tag = tag_of(b, b->at);
  *copy = *b;
  copy->prev = renamed(b->prev);
  copy->next = renamed(b->next);
  if (tag == FIRST) copy->u.serial = 0;
  if (is_second(b, tag)) {
    copy->as.children.less = renamed(b->as.children.less);
    copy->as.children.more = renamed(b->as.children.more);
  } else if (b->state == GMLK_FREE && b->its.hole) {
    gmlk_link *ring = &arena.bins[tag]->rings[b->its.hole];
    copy->as.link.prev = renamed_link(b->as.link.prev, ring);
    copy->as.link.next = renamed_link(b->as.link.next, ring);
  } else {
    memset(&copy->as, 0, sizeof(copy->as));
  }
}

static void rename_blocks(void) {
  unsigned i, bin, count = records.unused_count;
  gmlk_block *b;
  for (b = arena.begin.next; b != &arena.end; b = b->next, count++) rename_block(&named[b->at], b);
  must(count == BLOCKS); /* [R1] */
  arena.begin.next = renamed(arena.begin.next);
  arena.end.prev = renamed(arena.end.prev);
  arena.small.reserve = renamed(arena.small.reserve);
  for (i = 0; i < SLOTS; i++) arena.firsts[i] = i < arena.slot_count ? renamed(arena.firsts[i]) : 0;
  arena.firsts[arena.slot_count] = &arena.end;
  for (i = 0; i < TAGS; i++) {
    gmlk_bins *bins = arena.bins[i];
    if (i == GMLK_GRAPH_OWNED) continue;
    bins->second_blocks = renamed(bins->second_blocks);
    for (bin = gmlk_bin_from(bins, 1); bin < GMLK_BINS; bin = gmlk_bin_from(bins, bin + 1)) {
      gmlk_link *ring = &bins->rings[bin];
      ring->prev = renamed_link(ring->prev, ring);
      ring->next = renamed_link(ring->next, ring);
    }
  }
  memcpy(pool, named, sizeof(pool));
  memset(named, 0, sizeof(named)); /* what is left over would be another state */
  records.serial = 0;
  records.unused = NULL;
  for (i = BLOCKS; i--;) {
    if (pool[i].state != GMLK_UNUSED) continue;
    pool[i].next = records.unused;
    records.unused = &pool[i];
  }
}

/* ---- Operations ---- */

/* gmlk_fast without windows. */
static void allocate(unsigned stream, uint32_t grains, uint32_t align) {
  uint32_t at = 0, hole = 0, i, size, least = 0;
  gmlk_block *b = gmlk_best_fit(&arena, stream, grains, align, &at, &hole);
  for (i = 0; i < GRAINS; i += size ? size : 1) { /* the holes: runs, and what is clean */
    uint32_t skip = (0 - i) & (align - 1);
    for (size = 0; i + size < GRAINS && is_open(i + size, stream); size++) continue;
    if (size >= skip + grains && (!least || size < least)) least = size;
  }
  must(hole == (b ? least : 0) && (b != NULL) == (least != 0));
  if (!b) return;
  must(at % align == 0 && are_open(at, grains, stream));
  b = gmlk_take(&arena, b, at, grains);
  must(b->at == at && b->grains == grains);
  (void)gmlk_join_as(&arena, b, grains, GMLK_LIVE);
  fill(at, grains, LIVE);
  map[at] = FIRST;
}

static void release(uint32_t at, unsigned tag) {
  gmlk_block *b = gmlk_locate(&arena, at);
  if (b->next == arena.small.reserve) fill(b->next->at, b->next->grains, b->next->stream);
  fill(at, b->grains, tag);
  gmlk_put(&arena, b, tag, tag != GMLK_CLEAN);
}

/* What a plan does with a range: gives it up again, or takes it for a window. */
static void reserve(uint32_t at, uint32_t grains, unsigned stream) {
  gmlk_block *first = gmlk_reserve_range(&arena, gmlk_locate(&arena, at), at, grains);
  gmlk_unreserve_range(&arena, first, grains);
  check();
  first = gmlk_reserve_range(&arena, gmlk_locate(&arena, at), at, grains);
  first = gmlk_join_as(&arena, first, grains, GMLK_LIVE);
  must(are_open(at, grains, stream) && first->at == at && first->grains == grains);
  fill(at, grains, LIVE);
  map[at] = FIRST;
}

/* Growth, and what trim does. */
static void change_backing(uint32_t slot) {
  const uint32_t at = slot << CHUNK_LOG;
  gmlk_block *first;
  if (slot >= arena.slot_count) gmlk_arena_extend(&arena, slot + 1);
  if (map[at] == UNBACKED) {
    gmlk_arena_back(&arena, slot, 1);
    fill(at, CHUNK, GMLK_CLEAN);
  } else if (are_open(at, CHUNK, GMLK_CLEAN)) {
    first = gmlk_reserve_range(&arena, gmlk_locate(&arena, at), at, CHUNK);
    gmlk_arena_unback(&arena, gmlk_join_as(&arena, first, CHUNK, GMLK_RESERVED));
    fill(at, CHUNK, UNBACKED);
  }
}

/* Work is complete. */
static void make_clean(uint32_t at) {
  gmlk_block *b = gmlk_locate(&arena, at);
  fill(at, b->grains, GMLK_CLEAN);
  (void)gmlk_retag(&arena, b, GMLK_CLEAN);
}

/* gmlk_fast_small: a small block of one grain is cut from what is set aside for it. */
static void set_aside(uint32_t at, uint32_t grains, unsigned stream) {
  gmlk_block *b;
  gmlk_small_reserve_begin(&arena, stream, gmlk_locate(&arena, at), at, grains);
  b = gmlk_split(&arena, arena.small.reserve, 1);
  arena.small.reserve = b->next;
  (void)gmlk_join_as(&arena, b, 1, GMLK_LIVE);
  fill(at, grains, SET_ASIDE);
  map[at] = FIRST;
}

static void end_set_aside(void) {
  const gmlk_block *b = arena.small.reserve;
  fill(b->at, b->grains, b->stream);
  gmlk_small_reserve_end(&arena);
}

static void begin(void) {
  unsigned tag;
  uint32_t slot;
  for (tag = 0; tag < BLOCKS; tag++) gmlk_records_give(&records, &pool[tag]);
  arena.chunk_bytes = CHUNK * GMLK_GRAIN;
  arena.chunk_log = CHUNK_LOG;
  arena.chunk_grains = CHUNK;
  arena.area.most = SLOTS;
  must(gmlk_arena_init(&arena, &host, &records) && gmlk_arena_reserve_slots(&arena, SLOTS));
  for (tag = GMLK_FIRST_STREAM; tag < TAGS; tag++) must(gmlk_arena_admit(&arena, tag));
  fill(0, GRAINS, UNBACKED);
  for (slot = 0; slot < SLOTS; slot++) change_backing(slot);
}

enum { ALLOCATE = 1, RESERVE, SET, RELEASE, RETAG, BACK, END_SET };

/* Any operation that is allowed, or 0. */
static unsigned choose(void) {
  unsigned stream, tag;
  uint32_t at, grains;
  for (stream = 0; stream < TAGS; stream += stream ? 1 : 2) {
    for (grains = 1; grains <= GRAINS; grains++) {
      for (tag = 1; tag <= ALIGN; tag <<= 1)
        if (any) return coded(ALLOCATE, stream, grains, tag);
      for (at = 0; at + grains <= GRAINS; at++) {
        if (!are_open(at, grains, stream)) continue;
        if (any) return coded(RESERVE, at, grains, stream);
        if (arena.small.reserve || grains < 2 || (at && is_open(at - 1, stream))) continue;
        if (any) return coded(SET, at, grains, stream);
      }
    }
  }
  for (at = 0; at < GRAINS; at++) {
    for (tag = 0; tag < TAGS; tag++) {
      if (tag == GMLK_GRAPH_OWNED && !GRAPHS) continue;
      if (map[at] == FIRST && any) return coded(RELEASE, at, tag, 0);
    }
    if (map[at] < LIVE && map[at] != GMLK_CLEAN && !(at && map[at - 1] == map[at]) && any)
      return coded(RETAG, at, 0, 0);
    if (at < SLOTS && any) return coded(BACK, at, 0, 0);
  }
  return arena.small.reserve && any ? coded(END_SET, 0, 0, 0) : 0;
}

static void perform(unsigned code) {
  const unsigned a = code >> 16 & 255, b = code >> 8 & 255, c = code & 255;
  if (code >> 24 == ALLOCATE) allocate(a, b, c);
  if (code >> 24 == RESERVE) reserve(a, b, c);
  if (code >> 24 == SET) set_aside(a, b, c);
  if (code >> 24 == RELEASE) release(a, b);
  if (code >> 24 == RETAG) make_clean(a);
  if (code >> 24 == BACK) change_backing(a);
  if (code >> 24 == END_SET) end_set_aside();
}

int main(void) {
  begin();
  for (;;) {
    unsigned code;
    rename_blocks();
    check();
    code = choose();
    if (!code) return 0;
    perform(code);
  }
}
