/* What gmlake_check has to find: a row builds a lake in the words of tests/play/language.h, and
   breaks there one condition after the other, leaving all those that are asked before. Each says
   what is broken, how, and what is told. The last case looks whether every text of gmlake_check is
   told here. */
#include "play/lake.h"

#include "cases.h"

#define C (16 * UNIT) /* a chunk, in rows 1 */

static int stage; /* of a row: how often it has broken something, and played on */

/* Words that are played then; behind them the row goes on, with the next stage. */
static void then(const char *words) {
  if (program_read(w.program, words)) judge(0, "not of the language");
}

static void is(int holds) { judge(holds, "the world is another"); }

static gmlk_block *block_of(char name) {
  return gmlk_index_get(&lake->index, w.blocks[name - 'a'].at);
}

/* What lies where the block was, which is free or pending. */
static gmlk_block *tile_of(char name) {
  const uint64_t offset = w.starts[name - 'a'] - gmlk_home(&lake->home, 0);
  return gmlk_locate(&lake->home, (uint32_t)(offset / GMLK_GRAIN));
}

static gmlk_stream *number_of(char stream) {
  const gmlake_stream value = value_in((unsigned char)(stream - 'A' + 1));
  return lake->streams.items[gmlk_stream_find(&lake->streams, value)];
}

static gmlk_arena *pool_0(void) { return &w.pools[1].value->arena; }

#define TEXTS_MAX 512
static char texts[TEXTS_MAX][sizeof(((gmlake_error_info *)0)->text)];
static size_t text_count;

/* The check tells this, or what begins so. */
static void tells(const char *text, int line) {
  char rule[240];
  gmlake_error_info error;
  judge(gmlake_check(lake) == GMLAKE_ERROR_CORRUPT, text);
  must(gmlake_get_last_error(lake, &error), "gmlake_get_last_error");
  (void)snprintf(rule, sizeof(rule), "line %d: \"%s\", not \"%s\"", line, error.text, text);
  judge(strncmp(error.text, text, strlen(text)) == 0, rule);
  judge(text_count < TEXTS_MAX, "too many rows");
  (void)snprintf(texts[text_count++], sizeof(texts[0]), "%s", error.text);
}

static void holds(void) { must(gmlake_check(lake), "gmlake_check"); }

/* The value in that place breaks what is told; the one before does not. */
static void breaks_at(void *place, size_t bytes, uint64_t value, const char *text, int line) {
  uint64_t kept = 0;
  memcpy(&kept, place, bytes);
  memcpy(place, &value, bytes); /* of a machine whose lowest byte comes first */
  tells(text, line);
  memcpy(place, &kept, bytes);
  holds();
}

#define breaks(place, value, text) \
  breaks_at(&(place), sizeof(place), (uint64_t)(uintptr_t)(value), text, __LINE__)

static gmlk_block fake; /* of no tiling */

/* ---- What a row is --------------------------------------------------------------------------- */

typedef struct relation {
  void (*act)(void);
  const char *line;
} relation;

static const relation *played;

static int acts(program *p, size_t at) {
  (void)at;
  played->act();
  stage++;
  return at < p->count;
}

static void a_relation(void **state) {
  static program p;
  const char *wrong, *rule;
  played = (const relation *)*state;
  stage = 0;
  wrong = program_of(&p, played->line);
  if (wrong) fail_msg("not of the language: %s", wrong);
  p.options[OPT_EXACT] = 1;
  rule = play(&p, acts);
  if (rule) fail_msg("word %zu: %s", verdict.at + 1, rule);
}

/* RELATION(name, line) { what is broken behind the line }. */
#define RELATION(name, line) CASE_OF(relation, a_relation, (void), name, line)

#define LAID "{granule:16 cap:16} +z.3=8@n -z.3@n +a-h=1"

/* ---- The lake, streams ----------------------------------------------------------------------- */

RELATION(the_lake, "{granule:16 cap:8} P0 +a=512b@A -a@A +b=3000b") {
  gmlk_arena *a = &lake->home;
  gmlk_block *b = block_of('b');
  const size_t entry = gmlk_index_find(&lake->index, w.blocks[1].at);
  gmlk_block **index = &lake->index.buckets[entry / GMLK_BUCKET].block[entry % GMLK_BUCKET];
  breaks(a->end.at, 1, "A1: blocks do not tile the arena");
  breaks(b->grains, b->grains + 1, "A1: blocks do not tile the arena");
  breaks(b->prev, b, "A1: blocks do not tile the arena");
  breaks(b->state, GMLK_IDLE, "A1: a block is in a state that does not last");
  breaks(*index, a->begin.next, "I1: the index is not of the live blocks");
  breaks(a->firsts[0], a->begin.next->next, "A4: a slot's first block is wrong");
  breaks(a->firsts[a->slot_count], b, "A4: the end is wrong");
  breaks(a->free_grains, a->free_grains + 1, "A6: a count of free");
  breaks(a->small.reserve, a->end.prev, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(a->destroyed_count, 1, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  fake.at = 1;
  fake.next = &fake;
  breaks(a->gap_count, 1, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(a->bins[GMLK_CLEAN]->second_blocks, &fake,
         "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(a->window_space.used, &fake, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(a->window_space.end.at, 1, "V1: blocks do not tile the space");
  breaks(a->mapped.window_count, 1, "L1: a count of windows, or of what is");
  breaks(lake->records.unused_count, 1, "R1: a record is lost");
}

RELATION(chunks, "{granule:16 cap:8} P0:4 +z=2/0 +a=1") {
  gmlk_chunks *all = &lake->home.chunks;
  gmlk_chunk *chunk = all->items;
  breaks(chunk->handle, 0, "A5: a handle and a state differ");
  breaks(chunk->is_asleep, 1, "E2: a chunk of an awake arena is asleep");
  breaks(chunk->is_home, 0, "P3: a chunk is not mapped as it is said to be");
  breaks(chunk->is_marked, 1, "P2: a chunk is marked");
  breaks(chunk->map_count, 1, "W6: a chunk's mappings do not add up");
  breaks(all->backed_count, 0, "P1, P5: a count of chunks is wrong");
  breaks(all->quarantined_count, 1, "P1, P5: a count of chunks is wrong");
  breaks(all->asleep_count, 1, "P1, P5: a count of chunks is wrong");
  breaks(all->shared_count, 1, "P1, P5: a count of chunks is wrong");
  breaks(pool_0()->limit_bytes, C - 1, "L1: a pool's limit is exceeded");
}

#define FIGURE(name) breaks(lake->stats.name, lake->stats.name + 1, "L1: " #name " is not what")

/* Of everything that has a peak there is some. */
RELATION(figures,
         "{granule:16 cap:16} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 N0:2^1 z0:1 +p=1@A rp@B hB -p@A") {
  gmlake_stats *s = &lake->stats;
  (void)GMLK_CHECK_FIGURES(FIGURE);
  breaks(lake->index.count, lake->index.count + 1, "I1: the index has more than live blocks");
  breaks(lake->index.count_max, lake->index.count - 1, "I3: the index is too full");
  breaks(lake->desc.limit_bytes, s->reserved_bytes - 1, "L1: the limit is exceeded");
}

/* A and B have worked, C is forgotten, D is captured. */
RELATION(numbers, "{granule:16 cap:16} P0 P1 +a=1@A -a@A +b=1@B -b@B +c=512b@C -c@C fC BD:0/0") {
  gmlk_streams *all = &lake->streams;
  gmlk_stream *b = number_of('B'), *captured = number_of('D');
  breaks(b->capture, captured->capture, "F5: a capture is another stream's");
  breaks(captured->capture, 0, "F5: a count of streams or captures is wrong");
  breaks(captured->capture, 1, "F5: a capture is another stream's");
  breaks(captured->is_forgotten, 1, "F5: a capture is another stream's");
  breaks(captured->arena, 2, "F5, F7: uses or captures do not add up");
  breaks(pool_0()->owner->capture_count, 0, "F5, F7: uses or captures do not add up");
  breaks(b->is_used, 0, "F5: a count of streams or captures is wrong");
  breaks(all->live_count, 0, "F5: a count of streams or captures is wrong");
  breaks(all->used_count, 0, "F5: a count of streams or captures is wrong");
  breaks(all->capture_count, 0, "F5: a count of streams or captures is wrong");
  breaks(lake->loan_count, 1, "F5: a count of streams or captures is wrong");
  breaks(b->uses, 1, "F5, F7: uses or captures do not add up");
}

/* Of three epochs with an event each, and one that is open. */
RELATION(fences, "{granule:16 cap:8} +z=512b@B -z@B +a-d=1@A hA -a-c@A") {
  gmlk_stream *s = number_of('A');
  gmlk_fence *fence = s->fences;
  gmlk_block *b = tile_of('a');
  is(s->fence_count == 3 && !s->is_dirty);
  breaks(fence[0].epoch, 0, "F2: fences are out of order");
  breaks(fence[1].epoch, fence[0].epoch, "F2: fences are out of order");
  breaks(fence[1].epoch, fence[2].epoch, "F2: fences are out of order");
  breaks(fence[2].epoch, s->epoch, "F2: fences are out of order");
  breaks(fence[1].event, NULL, "F2: fences are out of order");
  breaks(s->epoch, s->done, "F1: epochs are out of order");
  breaks(s->epoch, s->epoch + 1, "F4: an epoch has no fence");
  breaks(s->is_forgotten, 1, "F5: a count of streams or captures is wrong");
  breaks(b->u.epoch, 0, "F1: a tag is of an epoch to come");
  breaks(b->u.epoch, s->epoch + 1, "F1: a tag is of an epoch to come");
  breaks(b->u.epoch, s->epoch, "F4: no fence is to cover a tag");
  breaks(b->stream, lake->streams.count, "F1: a tag names no stream");
  breaks(b->its.hole, b->its.hole + 1, "A3: a hole's size is wrong");
}

/* B waits on the device for what A freed. */
RELATION(waits_on_the_device, "{granule:16 cap:2} +a=2@A hA -a@A +b=2@B at:b=a") {
  gmlk_stream *s = number_of('B');
  is(lake->streams.items[s->waited] == number_of('A'));
  breaks(s->waited_epoch, number_of('A')->epoch, "F6: a wait is for an epoch to come");
}

/* a is live and recorded on B; c and d wait for B, and were freed in this order. */
RELATION(recorded_streams, "{granule:16 cap:16} +a=1@A ra@B +c=1@A rc@B +d=1@A rd@B hB -cd@A") {
  gmlk_block *b = block_of('a'), *c = tile_of('c');
  gmlk_extra *note = b->as.extra, *first = c->as.extra;
  gmlk_stream *s = number_of('B');
  is(c->state == GMLK_PENDING && s->pending_uses.next == &first->used->link);
  breaks(note->block, b, "N1: a pending block and its extra record");
  breaks(note->used_count, 0, "F5, F7: uses or captures do not add up");
  breaks(first->block, NULL, "N1: a pending block and its extra record");
  breaks(first->used[0].epoch, s->epoch + 1, "N4: a queue is out of order");
  breaks(tile_of('d')->as.extra->used->epoch, s->epoch + 1,
         "F1: a pending use is of an epoch to come");
  breaks(first->epoch, GMLK_ENDLESS, "F1: a pending block is of an epoch to come");
  breaks(first->uses_left, 2, "N4: a count of uses in queues is wrong");
  breaks(first->used[0].extra, NULL, "N4: a pending use is in no queue");
  breaks(s->pending_uses.next, s->pending_uses.prev, "N1, N4, N5: lists or queues");
  breaks(number_of('A')->pending_uses.next, &first->used->link, "N4: a queue is out of order");
  breaks(c->as.extra, NULL, "N1: a pending block and its extra record");
  breaks(lake->home.pending.next, &lake->home.pending, "N1, N4, N5: lists or queues");
  breaks(lake->return_count, 1, "N1, N4, N5: lists or queues");
  first->used_count = first->uses_left = 0;
  tells("N4: a count of uses in queues is wrong", __LINE__);
  first->used_count = first->uses_left = 1;
}

/* ---- Free memory ----------------------------------------------------------------------------- */

RELATION(bins, "{granule:16 cap:8} +a=1@n +b=512b@n -a@n") {
  gmlk_block *b = lake->home.begin.next;
  gmlk_bins *clean = lake->home.bins[GMLK_CLEAN];
  const unsigned bin = gmlk_bin_of(b->its.hole);
  is(b->state == GMLK_FREE);
  breaks(clean->count, 7, "H2, H4: a total of bins is wrong");
  breaks(clean->grains, 0, "H2, H4: a total of bins is wrong");
  breaks(clean->bits[bin / 64], (uint64_t)1 << (bin + 1) % 64, "H2: a bin's bit is wrong");
  breaks(clean->words, clean->words ^ 8, "H2, H4: a total of bins is wrong");
  breaks(clean->none_count, UINT32_MAX, "H5: a hole is said to be absent");
  fake = *b;
  gmlk_link_insert(&clean->rings[bin], &fake.as.link);
  tells("H2, H4: a total of bins is wrong", __LINE__);
  fake.its.hole = b->its.hole * 2;
  tells("H1: a block is in a wrong bin", __LINE__);
  fake.arena = 7;
  tells("A3: bins have another's block", __LINE__);
  fake.arena = b->arena;
  fake.stream = GMLK_GRAPH_OWNED;
  tells("A3: bins have another's block", __LINE__);
  gmlk_link_remove(&fake.as.link);
  gmlk_bins_remove(clean, b);
  b->its.hole = b->grains;
  tells("A3, A7, U1, V1, V3, W5, B4: bins, trees or lists", __LINE__);
  gmlk_bins_insert(clean, b, b->grains);
}

/* A gap of one chunk between two blocks, and what is set aside for small ones behind. */
RELATION(gaps, LAID " -b@n T:0 released=1") {
  is(lake->home.gap_count == 1);
  breaks(lake->home.gap_count, 0, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
}

/* A run of a stream's and clean memory, its second block, and one more. */
RELATION(runs, "{granule:16 cap:8} +z.3=8@n -z.3@n +a-h=1@C -bdf@n -ace@C") {
  gmlk_block *lead = lake->home.begin.next, **root = &lake->home.bins[lead->stream]->second_blocks;
  is(lead->its.hole == 6 * C / 512 && *root == lead->next->next);
  breaks(lead->its.hole, lead->grains, "A3: a hole's size is wrong");
  breaks(*root, NULL, "A3: a run's second block is not in the tree");
  is(!lead->prev->as.children.less && !lead->prev->as.children.more);
  breaks(*root, lead->prev, "A3: a run's second block is not in the tree");
}

RELATION(neighbours, "{granule:16 cap:8 policy:4} a:/c +z.3=3@n -z.3@n +a-c=1 -ab") {
  gmlk_block *first = lake->home.begin.next;
  is(first->flags == GMLK_APART && first->next->flags == GMLK_APART);
  first->flags = 0;
  breaks(first->next->flags, 0, "A2: neighbours of one tag are apart");
}

/* What is set aside for small blocks. */
RELATION(small_reserve, "{granule:16 cap:72} +x=31@A +a=512b@A") {
  gmlk_arena *a = &lake->home;
  gmlk_block *c = a->small.reserve;
  if (!stage) {
    is(c != NULL);
    breaks(a->small.reserve, NULL, "U1: the small-block reserve is out of place");
    then("-a@A +a=512b@A +b=512b@A at:b=a+512b");
    return;
  }
  is(c->stream == gmlk_stream_find(&lake->streams, value_in(1)) && c->prev->state == GMLK_LIVE);
  breaks(c->u.epoch, GMLK_ENDLESS, "U1: the small-block reserve is of an epoch to come");
  a->small.reserve = NULL;
  must(gmlake_free(lake, (void *)(uintptr_t)w.blocks[1].at, value_in(1)), "gmlake_free");
  w.blocks[1].id = 0;
  a->small.reserve = c;
  tells("U1: the small-block reserve is out of place", __LINE__);
  gmlk_small_reserve_end(a);
}

/* ---- Windows --------------------------------------------------------------------------------- */

/* Two windows of two chunks, w that is live and one that is idle. */
RELATION(addresses, LAID " -aceg +v=2 +w=2 -v") {
  gmlk_space *space = &lake->home.window_space;
  gmlk_window *live = gmlk_window_from_block(block_of('w')), *idle = lake->home.windows.idle_first;
  gmlk_block *va = space->end.prev;
  is(va->state == GMLK_FREE && live && idle);
  breaks(space->used, NULL, "V3: no tree has a range");
  breaks(va->its.hole, va->its.hole + 1, "V1: free address space is apart");
  breaks(live->va, idle->va, "V2: addresses are another window's");
  breaks(live->va->u.epoch, idle, "V2: addresses are another window's");
  breaks(live->alias.mapped, 1, "V2: more or less is mapped");
  breaks(live->alias.mapped, 3, "V2: more or less is mapped");
  gmlk_bins_remove(space->holes, va);
  va->its.hole = va->grains;
  tells("A3, A7, U1, V1, V3, W5, B4: bins, trees or lists", __LINE__);
  gmlk_bins_insert(space->holes, va, va->grains);
}

/* w is live. */
RELATION(live_windows, LAID " -ac +w=2") {
  gmlk_block *self = block_of('w');
  gmlk_window *live = gmlk_window_from_block(self);
  gmlk_block *tile = live->pieces[1].block, *block = block_of('b');
  gmlk_chunk *chunks = lake->home.chunks.items;
  breaks(live->pieces[1].block, live->pieces[0].block, "W4: a live window's piece is not its own");
  breaks(tile->as.window, NULL, "W4: a live window's piece is not its own");
  breaks(self->grains, self->grains + 1, "W3, W8: a window's size is wrong");
  breaks(block->state, GMLK_PIECE, "W4, B1: what windows or buffers own");
  breaks(live->alias.address, live->alias.address + C, "W2: a window is elsewhere");
  breaks(live->self.state, GMLK_IDLE, "W7: nothing is in a window's way");
  chunks[0].map_count--; /* the number of mappings stays what it was */
  chunks[1].map_count++;
  tells("W6: a chunk's mappings do not add up", __LINE__);
  chunks[0].map_count++;
  chunks[1].map_count--;
}

/* Of two spans, each a chunk. */
RELATION(idle_windows, "{granule:16 cap:8} +z.3=3@n -z.3@n +a-c=1 -ac +w=2 -w") {
  const uint32_t half = C / 512 / 2;
  gmlk_windows *all = &lake->home.windows;
  gmlk_window *window = all->idle_first;
  gmlk_piece *spans = window->pieces;
  is(window->piece_count == 2);
  breaks(spans[0].at, half, "W1: pieces meet in a chunk");
  breaks(spans[1].at, spans[1].at - half, "W1: pieces meet in a chunk");
  breaks(spans[1].at, lake->home.end.at, "W2: a piece is not in the arena");
  breaks(spans[1].grains, 0, "W2: a piece is not in the arena");
  breaks(spans[1].at, spans[0].at, "W2: ends share a chunk");
  breaks(spans[1].grains, half, "W3, W8: a window's size is wrong");
  breaks(window->alias.chunk_count, 3, "W2: a window maps more or fewer chunks");
  breaks(all->grains_min, 4 * half + 1, "W3, W8: a window's size is wrong");
  breaks(window->key, window->key + 1, "W7: nothing is in a window's way");
  breaks(window->key, GMLK_BLOCKED, "W7: nothing is in a window's way");
  breaks(window->alias.stream, 99, "F1: a tag names no stream");
  breaks(all->ready, NULL, "W5: a window is not in its tree");
  breaks(all->idle_first, NULL, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(lake->home.mapped.window_bytes, 3 * C, "L1: a count of windows, or of what is");
}

/* One waits until what was put in its way is freed; another carries the tag of work under way. */
RELATION(blocked_windows, LAID " -ac +w=2 -w +a=1 hA -eg@A +v=2@A -v@A") {
  gmlk_window *window = (gmlk_window *)(void *)lake->home.windows.blocked;
  gmlk_block *b = block_of('a');
  is(window && window->key == GMLK_BLOCKED + b->u.serial);
  breaks(b->flags, 0, "W7: nothing is in a window's way");
  breaks(b->u.epoch, b->u.epoch - 1, "W7: nothing is in a window's way");
  window = (gmlk_window *)(void *)lake->home.windows.ready;
  is(window->alias.stream >= GMLK_FIRST_STREAM);
  breaks(window->alias.epoch, GMLK_ENDLESS, "F1, B2: an alias's tag");
}

/* A window of the arena that is quarantined, or NULL. */
static gmlk_alias *window_that_stays(const gmlk_arena *a) {
  gmlk_walk walk = gmlk_walk_of(a);
  gmlk_alias *x;
  while ((x = gmlk_walk_next(&walk)) != NULL)
    if (x->is_window && x->state == GMLK_ALIAS_QUARANTINED) break;
  return x;
}

/* Quarantined: perhaps mapped in part. */
RELATION(windows_that_stay,
         "{granule:16 cap:4} +z.3=3@n -z.3@n +a-c=1 -ac fail:access=1R* fail:unmap=1R* +w=2!R "
         "fail:any=0R") {
  gmlk_alias *window = window_that_stays(&lake->home);
  is(window != NULL);
  breaks(window->mapped, window->chunk_count + 1, "V2: more or less is mapped");
  window->mapped = window->chunk_count - 1;
  holds();
  window->mapped = window->chunk_count;
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* One has a hole and memory behind it, the other two chunks, and one more that is still mapped. */
RELATION(buffers, "{granule:16 chunk:2 cap:16} N0:2^1 z0:2 d0:0,1 N1:4^1 z1:3 z1:2") {
  gmlake_buffer *holed = w.buffers[0].value, *b = w.buffers[1].value;
  gmlk_arena *a = b->arena;
  breaks(b->count, 3, "B1: a buffer's committed pages are wrong");
  breaks(b->bytes, 8 * C, "B1: pages are missing");
  breaks(b->bytes, C, "B1: memory lies behind a buffer's end");
  breaks(holed->bytes, C, "B1: memory lies behind a buffer's end");
  breaks(holed->pages[0].state, GMLK_ALIAS_LIVE, "B1: a buffer's committed pages are wrong");
  breaks(b->pages[0].state, GMLK_ALIAS_EMPTY, "B1: a buffer's committed pages are wrong");
  breaks(b->pages[0].slot, holed->pages[1].slot, "W4, B1: what windows or buffers own");
  breaks(b->pages[2].slot, holed->pages[1].slot, "W6: a chunk's mappings do not add up");
  breaks(b->pages[2].state, GMLK_ALIAS_EMPTY, "W6: a chunk's mappings do not add up");
  breaks(b->pages[2].epoch, GMLK_ENDLESS, "F1, B2: an alias's tag");
  breaks(b->pages[2].stream, GMLK_GRAPH_OWNED, "F1, B2: an alias's tag");
  breaks(b->lake, NULL, "B4: a destroyed buffer has memory");
  breaks(b->va, holed->va, "V2: addresses are another buffer's");
  breaks(a->buffer_space.used, NULL, "V3: no tree has a range");
  breaks(a->buffers, a->buffers->next, "A3, A7, U1, V1, V3, W5, B4: bins, trees or lists");
  breaks(a->begin.next->state, GMLK_PIECE, "W4, B1: what windows or buffers own");
}

/* ---- Pools ----------------------------------------------------------------------------------- */

/* One that sleeps with a block, a window and a buffer; a chunk could not be released. */
RELATION(sleepers, "{granule:16 cap:16} P0 N0:4/0^2 z0:1 +z.3=4@n/0 -z.3@n +a-d=1/0 -ac +w=2/0") {
  gmlk_arena *a = pool_0();
  gmlk_chunk *first = a->chunks.items;
  if (!stage) {
    then("fail:release=2R S0:k");
    return;
  }
  is(a->chunks.backed_count + w.buffers[0].value->arena->chunks.backed_count == 1);
  breaks(first->handle, 77, "P1, P5: a count of chunks is wrong");
  breaks(first->is_asleep, 0, "A5: a handle and a state differ");
  breaks(lake->stats.sleeping_bytes, 0, "L1: sleeping_bytes is not what a walk counts");
}

/* What other processes know: a block, live and freed; then none. */
RELATION(shared_memory, "{granule:16 cap:8 share} +a=1/x +b=1 xa") {
  gmlk_arena *a = &lake->home;
  gmlk_block *b = stage ? tile_of('a') : block_of('a');
  gmlk_chunk *chunk = &a->chunks.items[b->at >> a->chunk_log];
  if (stage == 0) {
    breaks(chunk->is_shared, 0, "P1, P5: a count of chunks is wrong");
    then("hA -a@A");
  } else if (stage == 1) {
    breaks(lake->return_count, 0, "N1, N4, N5: lists or queues");
    breaks(b->as.extra->is_shared, 0, "N1, N4, N5: lists or queues");
    then("eA T:99 -b@A T:99");
  } else {
    b = tile_of('b');
    is(b->state == GMLK_FREE);
    breaks(a->chunks.items[b->at >> a->chunk_log].is_shared, 1, "P5: what others know is free");
  }
}

/* A pool that is lent, with a borrower. */
RELATION(loans, "{granule:16 cap:8} P0 BA:0/0 +a=2@A -a@A EA l0@A +b=1@A/t") {
  if (stage) return;
  breaks(lake->loan_count, 0, "F5: a count of streams or captures is wrong");
  then("-b@A L0@A");
}

RELATION(what_stays_with_the_driver_may_exceed_a_limit,
         "{granule:16 cap:8} P0:4 +a=1/0 -a fail:release=1R T:0!R quarantined=1") {
  is(lake->stats.quarantined_bytes != 0 && pool_0()->chunks.quarantined_count);
  pool_0()->limit_bytes = lake->desc.limit_bytes = C / 2;
  holds();
}

static void fail_next(unsigned char kind, size_t in, unsigned char result, int stays) {
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = 'F';
  o.two = kind;
  o.bytes = in;
  o.result = result;
  o.flags = (unsigned char)stays;
  now = &o;
  do_fault();
}

/* One that has no table of windows, and one that was never given addresses. */
RELATION(dead_pools_that_never_lived, "{granule:16 cap:8}") {
  gmlake_pool *pool = NULL;
  size_t n;
  for (n = 1; n < 20 && !lake->released_pools; n++) {
    gmlake_result result;
    fail_next(ON_HOST, n, 0, 0);
    fail_next(ON_UNRESERVE, 1, 'R', 1);
    result = gmlake_pool_create(lake, NULL, &pool);
    disarm();
    holds();
    if (!result) break;
  }
  is(lake->released_pools != NULL);
  fail_next(ON_RESERVE, 1, 'R', 0);
  fail_next(ON_EXCHANGE, 3, 'G', 0);
  is(gmlake_pool_create(lake, NULL, &pool) == GMLAKE_ERROR_DEVICE_LOST);
  is(lake->released_pools->arena.area.count == 0);
  w.lost = GMLAKE_ERROR_DEVICE_LOST;
}

/* With windows that were idle, */
RELATION(dead_pools,
         "{granule:16 cap:8} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 -wb fail:unreserve=1R* D0 "
         "fail:any=0R") {
  is(lake->released_pools && !window_that_stays(&lake->released_pools->arena));
  breaks(lake->stats.quarantined_bytes, 1, "L1: quarantined_bytes is not what a walk counts");
}

/* or that could not be unmapped. */
RELATION(dead_pools_with_quarantined_windows,
         "{granule:16 cap:8} P0 +z.3=3@n/0 -z.3@n +a-c=1/0 -ac +w=2/0 -wb fail:unmap=1R* T:0!R "
         "fail:unreserve=1R* D0 fail:any=0R") {
  is(lake->released_pools && window_that_stays(&lake->released_pools->arena));
}

static int was_told(const char *text, size_t length) {
  size_t i;
  for (i = 0; i < text_count; i++)
    if (strncmp(texts[i], text, length) == 0) return 1;
  return 0;
}

static void each_text_is_told(void **state) {
  FILE *header = fopen("gmlake.h", "r");
  char line[256];
  int is_there = 0, count = 0;
  (void)state;
  assert_non_null(header); /* the tests run in the repository's root */
  while (fgets(line, sizeof(line), header)) {
    const char *at = line;
    if (strncmp(line, "/* ---- >>", 10) == 0) is_there = strncmp(line + 10, "check ", 6) == 0;
    while (is_there && (at = strchr(at, '"')) != NULL) {
      const size_t length = strcspn(++at, "\"\n");
      if (length > 3 && strchr(":,", at[2]) && !was_told(at, length))
        fail_msg("told nowhere: %.*s", (int)length, at);
      count += length > 3;
      at += length + 1;
    }
  }
  (void)fclose(header);
  assert_true(count > 50);
}

int main(void) {
  is_strict = 1;
  add_case("each_text_is_told", each_text_is_told, NULL);
  return run_cases("invariants");
}
