/* Small worlds, exhaustively: every sequence of calls on an arena of at most five chunks with at
   most three live blocks and two streams, breadth first, each state expanded once. A state is
   reached by playing its shortest line, so a finding is printed as a line as short as it goes. The
   judge and the model look on. Behind every call: gmlake_check; in every new state the questions
   agree; and at the end nothing is left. Each allocation is made twice, once after a forecast.
   With faults: each call of the backend fails in turn, and all of that still holds.

   A state is written down as what decides its future: tiles, tags, the order within bins, windows,
   fences and the work that is pending, all numbers reduced to their order. --depth goes so deep in
   every world, --full until nothing new is found. */
#include "small_lake.h"

#include "cases.h"
#include "options.h"
#include "part.h"

#define CELL (UNIT / 2) /* sizes are multiples: what blocks can share */
#define PHRASES 64
#define DEPTH_MAX 64
#define WHOLE (DEPTH_MAX - 1) /* until nothing new is found */
#define KEY_MAX 4096
#define NUMBERS 32 /* of streams in the lake, forgotten ones too */
#define VALUES 128 /* on a scale */
#define COVERS 31

/* ---- Worlds ---------------------------------------------------------------------------------- */

/* What is done beside that, by its letter: r streams are recorded, f forgotten, s sleep, c a
   buffer, C two, by larger ranges, l loans, x blocks are shared, ! calls fail. */
typedef struct config {
  const char *name, *line; /* the options, and what is done before all else */
  const char *beside;
  int streams, blocks, sizes; /* how many may be in use */
  int depth, brief;           /* brief: where a part is asked for */
} config;

#define GRAPH "P0 BA:0/0 +p=1-100b@A +r=1-100b@A +t=1-100b@A -pt@A EA"

static const config configs[] = {
    {"one stream", "{single books cap:3 arena:4 window:4 streams:1}", "", 1, 2, 2, 22, 12},
    {"two streams", "{single books cap:2 arena:3 window:2 streams:2}", "", 2, 2, 1, WHOLE, 9},
    {"two sizes", "{single books cap:2 arena:3 window:2 streams:2}", "", 2, 2, 2, 7, 7},
    {"grow first", "{single books cap:4 arena:5 streams:2}", "", 2, 3, 4, 5, 5},
    {"wait first", "{single books cap:4 arena:5 streams:2 wait-first}", "", 2, 3, 4, 5, 5},
    {"limit", "{single books cap:4 limit:3 arena:5 streams:2 wait-first}", "", 2, 3, 4, 4, 4},
    {"few windows", "{single books cap:4 arena:5 smax:2 streams:2}", "", 2, 3, 4, 4, 4},
    {"records", "{single books cap:4 arena:5 streams:2}", "r", 2, 3, 4, 4, 4},
    {"forgets", "{single books cap:4 arena:5 streams:2 wait-first}", "rf", 2, 3, 4, 4, 4},
    {"faults", "{single books cap:4 arena:5 streams:2 wait-first}", "r!", 2, 3, 4, 4, 4},
    {"sleep", "{single books cap:3 arena:4 window:4 streams:2}", "rs", 2, 2, 2, 6, 6},
    {"sleep and faults", "{single books cap:3 arena:4 window:4 streams:2 wait-first}", "s!", 2, 2,
     2, 4, 4},
    {"pages", "{single books cap:3 arena:4 window:4 streams:2} N0:2", "c", 2, 2, 2, 5, 5},
    {"contents of pages", "{single cap:8 limit:4 arena:9 streams:2} N0:3 N1:3 c0:0,2@A", "C", 2, 1,
     1, 4, 4},
    {"pages waiting first", "{single books cap:3 arena:4 streams:2 wait-first} N0:2", "rc!", 2, 2,
     2, 4, 4},
    {"lending", "{single books cap:5 arena:6 streams:2} " GRAPH, "l", 2, 2, 2, 5, 5},
    {"lending and faults", "{single books cap:5 arena:6 streams:2 wait-first} " GRAPH, "rl!", 2, 2,
     4, 4, 4},
    {"sharing", "{single share cap:4 arena:5 streams:2}", "x", 2, 3, 2, 5, 5},
    {"sharing and faults", "{single share cap:3 arena:4 streams:2}", "rx!", 2, 2, 2, 4, 4},
};

#define CONFIGS (sizeof(configs) / sizeof(configs[0]))

static const config *with;

static int has(char letter) { return strchr(with->beside, letter) != NULL; }

/* ---- What may be done: phrases of the language ----------------------------------------------- */

/* The allocation of these is not foretold, that of the same names doubled is. None has a label. */
static const char block_names[] = "bdf";

static program spoken; /* all phrases, one behind the other */
static struct phrase { size_t from, end; /* its operations */ } phrases[PHRASES];
static size_t phrase_count;

static void add_phrase(const char *form, ...) {
  char text[64];
  va_list list;
  va_start(list, form);
  (void)vsnprintf(text, sizeof(text), form, list);
  va_end(list);
  assert_true(phrase_count < PHRASES);
  phrases[phrase_count].from = spoken.count;
  if (program_read(&spoken, text)) fail_msg("not of the language: %s", text);
  phrases[phrase_count++].end = spoken.count;
}

static void add_for_block(char block, char stream) {
  static const char *const sizes[] = {"1-100b", "2-100b", "2k-100b", "1+2k-100b"};
  int i;
  for (i = 0; i < with->sizes; i++) {
    add_phrase("+%c=%s@%c%s u%c@%c", block, sizes[i], stream, has('x') ? "/x" : "", block, stream);
    if (has('l')) add_phrase("+%c=%s@%c/t u%c@%c", block, sizes[i], stream, block, stream);
  }
  add_phrase("-%c@%c", block, stream);
  if (has('r')) add_phrase("r%c@%c u%c@%c", block, stream, block, stream);
  for (i = 0; i < with->blocks && has('x'); i++)
    if (block_names[i] != block) add_phrase("i%c=%c u%c@%c", block, block_names[i], block, stream);
}

static void add_for_buffer(int buffer, char stream) {
  int i;
  for (i = 0; i < 2; i++) {
    const int more = has('C') && !i ? 3 : 1;
    add_phrase("c%d:%d,%d@%c U%d@%c", buffer, i, more, stream, buffer, stream);
    add_phrase("d%d:%d,%d@%c", buffer, i, more, stream);
  }
}

static void list_phrases(void) {
  int i;
  char s;
  spoken.count = phrase_count = 0;
  for (s = 'A'; s < 'A' + with->streams; s++) {
    for (i = 0; i < with->blocks; i++) add_for_block(block_names[i], s);
    add_phrase("h%c", s);
    add_phrase("e%c", s);
    if (has('f')) add_phrase("f%c k%c v%c", s, s, s);
    if (has('c') || has('C')) add_for_buffer(0, s);
    if (has('C')) add_for_buffer(1, s);
    if (has('l')) add_phrase("l0@%c", s), add_phrase("L0@%c", s), add_phrase("j0@%c", s);
  }
  for (i = 0; i < with->blocks && has('x'); i++) add_phrase("x%c", block_names[i]);
  add_phrase("T:0");
  if (has('s')) add_phrase("Sn:k"), add_phrase("Sn:d"), add_phrase("Wn");
}

static const gmlk_mock *mock_now(void) { return (const gmlk_mock *)mock->user; }

static gmlk_mock_queue *queue_of(int on) {
  return gmlk_mock_find_queue(mock_now(), w.lines[on].value);
}

static int is_first_free(const block *b) {
  int i = 0;
  while (i < with->blocks && w.blocks[block_names[i] - 'a'].id) i++;
  return i < with->blocks && b == &w.blocks[block_names[i] - 'a'];
}

/* How many chunks of the range have memory. */
static size_t committed_in(const op *o) {
  const block *cell = &w.buffers[o->one].cells[o->bytes / UNIT];
  size_t i, count = 0;
  for (i = 0; i < o->more / UNIT; i++) count += cell[i].id != 0;
  return count;
}

/* Whether it is a call that a program may make, and that can change anything. */
static int is_possible(const op *o) {
  const block *b = &w.blocks[o->one];
  const int on = line_in(o->stream), is_asleep = w.pools[0].asleep;
  switch (o->verb) {
  case 'i':
    if (!w.blocks[o->two].handle_count || census().handle_count > w.capacity / UNIT + 2) return 0;
    return is_first_free(b);
  case '+':
    return !is_asleep && is_first_free(b) && (!(o->flags & FLAG_T) || w.pools[1].is_lent);
  case '-':
    return b->id != 0;
  case 'r':
    return b->id && b->on != on && !(b->recorded >> on & 1) && !is_asleep;
  case 'x':
    return b->id && !b->is_imported && !b->handle_count;
  case 'h':
    return !queue_of(on)->held;
  case 'e':
    return queue_of(on)->held || queue_of(on)->done != queue_of(on)->last;
  case 'W':
    return is_asleep;
  case 'c':
    return committed_in(o) < o->more / UNIT;
  case 'd':
    return committed_in(o) != 0;
  case 'l':
  case 'j':
    return !w.pools[1].is_lent;
  case 'L':
    return w.pools[1].is_lent;
  default:
    return 1;
  }
}

/* A bit for each phrase. */
static uint64_t possible_now(void) {
  uint64_t bits = 0;
  size_t i;
  for (i = 0; i < phrase_count; i++)
    bits |= (uint64_t)is_possible(&spoken.ops[phrases[i].from]) << i;
  return bits;
}

/* ---- A state, written down ------------------------------------------------------------------- */

typedef struct scale { /* numbers of which the order alone matters */
  uint64_t at[VALUES];
  size_t count;
} scale;

/* It is written twice: the first time the scales, and the list, are made. */
static struct key {
  int is_second;
  size_t count;
  uint32_t text[KEY_MAX];
  const moment *covers[COVERS]; /* of streams' next work, and of fences that some tag needs */
  size_t cover_count;
  scale pending[LINES];  /* of a queue of the mock: work that has to be finished for something */
  scale fences[NUMBERS]; /* of a stream of the lake: epochs of fences that some tag needs */
} key;

static void put(uint64_t value) {
  if (!key.is_second) return;
  if (key.count == KEY_MAX) fail_msg("a state is too long");
  key.text[key.count++] = (uint32_t)value;
}

/* The number's place on the scale; 0 has none. */
static void put_rank(scale *s, uint64_t value) {
  size_t i = 0;
  while (i < s->count && s->at[i] < value) i++;
  put(value ? i + 1 : 0);
  if (key.is_second || !value || (i < s->count && s->at[i] == value)) return;
  if (s->count == VALUES) fail_msg("too many numbers");
  memmove(&s->at[i + 1], &s->at[i], (s->count++ - i) * sizeof(*s->at));
  s->at[i] = value;
}

/* Work that may still use some memory: what is behind it. */
static void put_used(const moment *used) {
  size_t n;
  int i;
  for (i = 0; i < w.line_count; i++) {
    unsigned bits = used->at[i] > w.known.at[i];
    for (n = 0; n < key.cover_count && bits; n++)
      bits |= (unsigned)(key.covers[n]->at[i] >= used->at[i]) << (n + 1);
    put(bits);
  }
}

static void put_cover(const moment *cover) {
  if (key.is_second) return;
  if (key.cover_count == COVERS) fail_msg("too many fences");
  key.covers[key.cover_count++] = cover;
}

/* Clean, complete but not yet clean, behind a fence, or in the open epoch; and who has been made to
   wait for it. */
static void put_tag(unsigned stream, uint64_t ticket) {
  const gmlk_stream *s;
  unsigned i = 0, waiter, waited = 0;
  put(stream);
  if (stream < GMLK_FIRST_STREAM) return;
  s = lake->streams.items[stream];
  put(s->done >= ticket);
  if (s->done >= ticket) return;
  while (i < s->fence_count && s->fences[i].epoch < ticket) i++;
  put_rank(&key.fences[stream], i < s->fence_count ? s->fences[i].epoch : 0);
  for (waiter = GMLK_FIRST_STREAM; waiter < lake->streams.count; waiter++)
    waited |= (unsigned)(lake->streams.items[waiter]->waited == stream &&
                         lake->streams.items[waiter]->waited_epoch >= ticket)
              << waiter;
  put(waited);
}

static void put_list(const gmlk_bins *bins) {
  const gmlk_link *link;
  unsigned bin;
  for (bin = 0; bins && bin < GMLK_BINS_EXACT; bin++) {
    link = bins->rings[bin].next;
    if (link->next == &bins->rings[bin]) continue; /* it has one, or none */
    for (put(bin); link != &bins->rings[bin]; link = link->next)
      put(((const gmlk_block *)(const void *)link)->at);
  }
  put(GMLK_BINS_EXACT);
}

static void put_tiles(const gmlk_block *b, const gmlk_block *tail, int are_blocks) {
  for (; b != tail; b = b->next) {
    const gmlk_extra *note = are_blocks && b->state == GMLK_LIVE ? b->as.extra : NULL;
    size_t i;
    put(b->at);
    put(b->state);
    if (b->state == GMLK_LIVE) put(b->stream);
    if (b->state == GMLK_PIECE) put(b->as.window->va->at);
    if (are_blocks && b->state == GMLK_FREE) put_tag(b->stream, b->u.epoch);
    for (i = 0; note && i < note->used_count; i++) put(note->used[i].stream);
  }
  put(b->at);
}

static void put_windows(const gmlk_arena *a) {
  const gmlk_window *window, *other;
  uint32_t i;
  for (window = a->windows.idle_first; window; window = window->idle_next) {
    unsigned age = 0;
    for (other = a->windows.idle_first; other; other = other->idle_next)
      age += other->number < window->number;
    put(age);
    put(window->key < GMLK_BLOCKED);
    put(window->va->at);
    put_tag(window->alias.stream, window->alias.epoch);
    for (i = 0; i < window->piece_count; i++)
      put(window->pieces[i].at), put(window->pieces[i].grains);
  }
  put_tiles(a->window_space.begin.next, &a->window_space.end, 0);
  put_list(a->window_space.holes);
}

static void put_pending(const gmlk_arena *a) {
  const gmlk_extra *note = NULL;
  size_t i;
  while ((note = gmlk_pending_next(a, note)) != NULL) {
    put(note->block->at);
    put_tag(note->stream, note->epoch);
    for (i = 0; i < note->used_count; i++) put_tag(note->used[i].stream, note->used[i].epoch);
  }
}

/* Who may still use the memory of addresses, through them, and at all. */
static void put_memory(const gmlk_area *area) {
  size_t i, n;
  for (i = 0; i < w.map_count; i++) {
    const map *m = w.maps[i];
    const uint64_t offset = gmlk_area_offset(area, m->at);
    if (offset == UINT64_MAX) continue;
    put(offset / UNIT);
    put_used(&m->used);
    for (n = 0; n < UNIT; n += CELL) put_used(&m->of->grains[n / GRAIN].used);
  }
}

static void put_arena(const gmlk_arena *a) {
  size_t i;
  put(a->sleep | (unsigned)(a->copies.count != 0) << 2 | (unsigned)a->is_kept << 3);
  for (i = 0; i < a->slot_count; i++) {
    const gmlk_chunk *chunk = &a->chunks.items[i];
    put(chunk->is_asleep | (unsigned)(chunk->is_shared != 0) << 1 | (unsigned)chunk->is_known << 2);
  }
  put_tiles(a->begin.next, &a->end, 1);
  for (i = 0; i < a->bins_capacity; i++) put_list(a->bins[i]);
  put_windows(a);
  put_pending(a);
  put_memory(&a->area);
  put_memory(&a->window_space.area);
  put_memory(&a->buffer_space.area);
}

static void put_buffer(const buffer *b) {
  const gmlk_alias *place;
  size_t i;
  for (i = 0; b->value && i < b->value->page_count; i++) {
    place = &b->value->pages[i];
    put(place->state);
    if (place->state == GMLK_ALIAS_IDLE) put_tag(place->stream, place->epoch);
    if (place->state) put(place->slot);
    put_used(&b->cells[i].used);
  }
}

static void put_pools(void) {
  const gmlk_loan *loan = w.pools[1].value ? &w.pools[1].value->loan : NULL;
  size_t i;
  for (i = 0; i < lake->arena_count; i++) {
    put(i);
    if (lake->arenas[i] && !lake->arenas[i]->is_bare) put_arena(lake->arenas[i]);
  }
  for (i = 0; w.pools[1].is_lent && i < loan->count; i++)
    put_tag(loan->users[i].stream, loan->users[i].epoch);
  put((unsigned)w.pools[1].is_lent);
  put_used(&w.pools[1].launched);
  put_used(&w.pools[1].recalled);
  put_buffer(&w.buffers[0]);
  put_buffer(&w.buffers[1]);
}

/* What the program has to wait for before a free, by address. A phrase that makes a block, or a
   cell, uses it: behind its use is behind its birth. */
static void put_blocks(void) {
  uint64_t above = 0;
  const block *b, *next;
  for (;; above = next->at) {
    for (next = b = NULL; (b = live_next((block *)(uintptr_t)b));)
      if (b->at > above && (!next || b->at < next->at)) next = b;
    if (!next) return;
    put((unsigned)(next->on + 1) | (unsigned)next->is_imported << 6 | next->recorded << 7);
    put(next->handle_count);
    put_used(&next->used);
  }
}

/* What has to be finished before a queue's work up to a sequence is complete, waits followed; of
   `own` nothing is said. */
static void put_needs(size_t queue, uint64_t sequence, size_t own) {
  const gmlk_mock *m = mock_now();
  uint64_t wanted[LINES] = {0}, looked[LINES], need[LINES] = {0};
  size_t i;
  int has_moved;
  if (m->queue_count > LINES) fail_msg("too many queues");
  for (i = 0; i < m->queue_count; i++) looked[i] = m->queues[i].done;
  wanted[queue] = sequence;
  do {
    for (has_moved = 0, i = 0; i < m->queue_count; i++) {
      const gmlk_mock_queue *q = &m->queues[i];
      for (; looked[i] < wanted[i] && looked[i] < q->last; has_moved = 1) {
        const uint64_t at = ++looked[i];
        const gmlk_mock_work *work = gmlk_mock_work_at(q, at);
        if (work->awaited_sequence > wanted[work->awaited_queue])
          wanted[work->awaited_queue] = work->awaited_sequence;
        if (!work->awaited_sequence && work->held && at > q->forced) need[i] = at;
      }
    }
  } while (has_moved);
  for (i = 0; i < m->queue_count; i++) put_rank(&key.pending[i], i == own ? 0 : need[i]);
}

static void put_event(const void *event) {
  const size_t slot = (size_t)((uintptr_t)event & GMLK_MOCK_SLOT_MASK) - 1;
  const gmlk_mock_event *e = (const gmlk_mock_event *)gmlk_mock_at(&mock_now()->events, slot);
  put_cover(event_at(event));
  put_needs(e->queue, e->sequence, LINES);
}

/* Behind all tags: those say which fences matter. */
static void put_streams(void) {
  size_t i;
  unsigned n;
  int on;
  for (i = GMLK_FIRST_STREAM; i < lake->streams.count; i++) {
    const gmlk_stream *s = lake->streams.items[i];
    const scale *needed = &key.fences[i];
    for (on = w.line_count - 1; on && w.lines[on].value != s->value;) on--;
    put((unsigned)on << 8 | s->is_used | (unsigned)s->is_forgotten << 1 |
        (unsigned)s->is_dirty << 2 | (unsigned)s->is_news << 4);
    put(s->freed_bytes > UNIT ? UNIT : s->freed_bytes);
    for (n = 0; n < s->fence_count; n++) {
      size_t at = 0;
      while (at < needed->count && needed->at[at] != s->fences[n].epoch) at++;
      if (at < needed->count) put_event(s->fences[n].event);
    }
  }
  for (on = 1; on < w.line_count; on++) {
    const line *l = &w.lines[on];
    if (l->end) put_event(l->end);
    if (!l->is_alive) continue;
    put((unsigned)queue_of(on)->held);
    put_cover(&l->now);
    put_needs((size_t)(queue_of(on) - mock_now()->queues), queue_of(on)->last,
              (size_t)(queue_of(on) - mock_now()->queues));
  }
}

static void write_key(void) {
  memset(key.pending, 0, sizeof(key.pending));
  memset(key.fences, 0, sizeof(key.fences));
  key.count = key.cover_count = 0;
  if (lake->streams.count > NUMBERS) fail_msg("too many streams");
  for (key.is_second = 0; key.is_second < 2; key.is_second++) {
    put_pools();
    put_blocks();
    put_streams();
  }
}

/* ---- The search ------------------------------------------------------------------------------ */

typedef struct digest {
  uint64_t a, b; /* 0, 0: an empty place */
} digest;

typedef struct node {
  uint64_t possible;
  uint32_t parent;
  unsigned char phrase, depth;
} node;

static struct search {
  digest *seen;
  node *nodes;
  size_t capacity, count; /* of seen; of nodes, which has room for half as many */
  uint64_t calls, faults;
} search;

static struct trial { /* what is played */
  int enters, is_new, has_looked;
  node state;
} trial;

static uint64_t mix(uint64_t x) {
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static digest digest_of_key(void) {
  digest d = {1, 2};
  size_t i;
  for (i = 0; i < key.count; i++) {
    d.a = mix(d.a + key.text[i] + 0x9E3779B97F4A7C15u);
    d.b = mix(d.b * 31 + key.text[i] + i);
  }
  if (!d.a) d.a = 1;
  return d;
}

static digest *place_of(digest d) {
  size_t at = (size_t)d.b;
  for (;; at++) {
    digest *place = &search.seen[at & (search.capacity - 1)];
    if (!place->a || (place->a == d.a && place->b == d.b)) return place;
  }
}

static void grow_search(void) {
  digest *old = search.seen;
  const size_t old_capacity = search.capacity;
  size_t i;
  search.capacity = old_capacity ? old_capacity * 2 : (size_t)1 << 16;
  search.seen = (digest *)calloc(search.capacity, sizeof(digest));
  search.nodes = (node *)realloc(search.nodes, search.capacity / 2 * sizeof(node));
  assert_true(search.seen && search.nodes);
  for (i = 0; i < old_capacity; i++)
    if (old[i].a) *place_of(old[i]) = old[i];
  free(old);
}

/* Whether the state is new; it then has a node. */
static int enter_state(void) {
  digest d, *place;
  write_key();
  d = digest_of_key();
  if (search.count == search.capacity / 2) grow_search();
  place = place_of(d);
  if (place->a) return 0;
  *place = d;
  trial.state.possible = possible_now();
  search.nodes[search.count++] = trial.state;
  return 1;
}

/* Behind the line: a check, and in a new state all questions. */
static int look(program *p, size_t at) {
  const op questions = {'I', 0, 0, 0, 0, 0, 0, 0, 0};
  (void)at;
  if (trial.has_looked) return 0;
  trial.has_looked = 1;
  if (gmlake_check(lake)) judge(0, lake->error.text);
  judge_all();
  trial.is_new = trial.enters && enter_state();
  if (trial.is_new) program_add(p, &questions);
  return trial.is_new;
}

static void try_line(program *p, int enters) {
  const char *rule;
  memset(&trial, 0, offsetof(struct trial, state));
  trial.enters = enters;
  rule = play(p, look);
  if (!rule) return;
  program_write(stderr, p);
  fail_msg("\n%s: %s", with->name, rule);
}

static void say(program *p, size_t phrase) {
  size_t i;
  for (i = phrases[phrase].from; i < phrases[phrase].end; i++) program_add(p, &spoken.ops[i]);
}

/* The phrases that lead to a node. */
static void say_way_to(program *p, uint32_t at) {
  unsigned char way[DEPTH_MAX];
  size_t depth = search.nodes[at].depth, i = depth;
  for (; i; at = search.nodes[at].parent) way[--i] = search.nodes[at].phrase;
  for (; i < depth; i++) say(p, way[i]);
}

/* Each call of its first operation fails once. */
static void try_faults(program *p, size_t before, size_t phrase) {
  op o;
  memset(&o, 0, sizeof(o));
  o.verb = 'F';
  o.two = ON_ANY;
  o.result = 'O';
  do {
    p->count = before;
    o.bytes++;
    program_add(p, &o);
    say(p, phrase);
    try_line(p, 0);
    search.faults += w.hits != 0;
  } while (w.hits);
}

static void try_phrase(program *p, uint32_t at, size_t phrase) {
  const size_t before = p->count;
  const unsigned char verb = spoken.ops[phrases[phrase].from].verb;
  size_t i;
  int is_new;
  trial.state.parent = at;
  trial.state.phrase = (unsigned char)phrase;
  trial.state.depth = (unsigned char)(search.nodes[at].depth + 1);
  say(p, phrase);
  try_line(p, 1);
  is_new = trial.is_new;
  search.calls++;
  p->count = before;
  if (verb == '+') {
    say(p, phrase);
    for (i = before; i < p->count; i++) p->ops[i].one *= 2;
    try_line(p, 0);
    p->count = before;
  }
  if (has('!') && is_new && !strchr("hej", verb)) try_faults(p, before, phrase);
  p->count = before;
}

static int asked_depth;

/* Of the last states, which are most, two thirds of the part that is asked for are expanded. */
static int is_left_out(uint32_t at, int depth, unsigned part) {
  return search.nodes[at].depth + 1 == depth && at % (part > 1 ? part + part / 2 : 1);
}

static void explore(void **state) {
  const config *c = (const config *)*state;
  const unsigned part = asked_depth ? 1 : test_part();
  /* one call less under a sanitizer, which takes ten times as long */
  const int depth = asked_depth ? asked_depth : part > 1 ? c->brief - (part >= 8) : c->depth;
  static program p;
  uint64_t refusals = counts.refusals;
  size_t first, i;
  uint32_t at;
  with = c;
  memset(&search, 0, sizeof(search));
  memset(&trial, 0, sizeof(trial));
  grow_search();
  list_phrases();
  if (program_of(&p, c->line)) fail_msg("not of the language: %s", c->line);
  first = p.count;
  try_line(&p, 1);
  for (at = 0; at < search.count && search.nodes[at].depth < depth; at++) {
    if (is_left_out(at, depth, part)) continue;
    p.count = first;
    say_way_to(&p, at);
    for (i = 0; i < phrase_count; i++)
      if (search.nodes[at].possible >> i & 1) try_phrase(&p, at, i);
  }
  print_message("%s: %lu states, %llu calls (%llu refused), %llu faults, depth %d%s\n", c->name,
                (unsigned long)search.count, (unsigned long long)search.calls,
                (unsigned long long)(counts.refusals - refusals), (unsigned long long)search.faults,
                search.nodes[at - 1].depth + 1, at == search.count ? ", nothing new beyond" : "");
  free(search.seen);
  free(search.nodes);
}

int main(int argc, char **argv) {
  uint64_t depth = 0;
  const char *line = NULL;
  int is_full = 0;
  size_t i;
  const option_row rows[] = {
      {"depth", OPTION_COUNT, &depth, 1, DEPTH_MAX - 1, "N", "so many calls deep in every world"},
      {"full", OPTION_FLAG, &is_full, 0, 0, NULL, "until nothing new is found"},
      {"play", OPTION_TEXT, &line, 0, 0, "LINE", "plays a line of language.h"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"},
  };
  const option_reader reader = {"test_worlds", "[OPTION]...", "", "", rows, 4};
  options_alone(&reader, argc, argv);
  asked_depth = is_full ? WHOLE : (int)depth;
  if (line) return play_line(line);
  for (i = 0; i < CONFIGS; i++) add_case(configs[i].name, explore, &configs[i]);
  return run_cases("worlds");
}
