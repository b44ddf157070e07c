/* usage: test_stress [--seconds N] [--seed S] [--trace 1]
   A random program that does all that the manual allows, as late and as little ordered as it
   allows, and a judge that believes no book but its own. The judge sees the backend's calls. For
   each stream it keeps a clock: how much work of every stream precedes its next work, by its own
   order and by waits on the device. For the host it keeps one of what is seen to be complete. For
   each 512 bytes of physical memory, and for each mapping, it notes how far every stream's use of
   it goes. Whoever gets memory must be ordered behind every earlier use of it; what is unmapped
   must be known to be complete.

   test_model.c knows what a lake should answer and uses memory when it gets it; this one
   knows little of answers, but its program goes on using what it has: on other streams, through
   graphs that are launched again, up to the free and, on recorded streams, without any order.

   Each seed is a lake of its own. With --seconds lakes follow one another for so long, with seeds
   from S on; --trace prints what the program does. */
#define GMLK_UNIT_CHUNKS 2u /* so that pools and buffers have many extents */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
static void assertion_failed(const char *condition);
#undef GMLAKE_ASSERT
#define GMLAKE_ASSERT(condition) ((condition) ? (void)0 : assertion_failed(#condition))
#include "gmlake.h"

#include <time.h>
#include <unistd.h>

#include "fixture.h"

#define GRAIN ((size_t)512)
#define LINES 40 /* streams of one lake, those that are gone included */
#define EVENTS 2048
#define MAPS 4096
#define HANDLES 256
#define BLOCKS 96
#define BUFFERS 4
#define POOLS 4 /* [0] is the default pool */
#define GRAPHS 64
#define LAKES 400 /* without --seconds */
#define RANGES 96 /* of a graph */
#define USUAL 5
#define DEEDS 15
#define HELD 8 /* blocks from outside that a graph uses */
#define NOBODY (-1)
#define OWNER_BUFFER 0x40000000u

/* ---- The judge's books ----------------------------------------------------------------------- */

typedef struct moment { /* how much work of each stream */
  uint32_t at[LINES];
} moment;

typedef struct line { /* a stream from its creation to its end; its value may serve again */
  gmlake_stream value;
  int is_alive;
  int graph;   /* that it is being captured into, 0: none */
  moment now;  /* what its next work is ordered behind; own entry: its work so far */
  int is_told; /* [not alive] of its end the lake was told */
  void *end;   /* [not alive] an event of the program's behind all its work */
} line;

typedef struct grain { /* of physical memory */
  uint32_t owner;      /* id of a block or a buffer, 0: free */
  int graph;           /* the last one that knows it, 0: none */
  moment used;
} grain;

typedef struct handle {
  uint64_t value; /* 0: free record */
  size_t bytes, map_count;
  int is_released;
  uint32_t pool; /* that it has served, 0: none yet */
  grain *grains;
} handle;

typedef struct map {
  uint64_t at;
  handle *of;
  int is_accessible, is_graphs;
  moment used;
} map;

typedef struct seen_event {
  void *value;
  moment at;
} seen_event;

typedef struct range {
  uint64_t at;
  size_t bytes;
} range;

typedef struct block {
  uint32_t id; /* 0: none */
  uint64_t at;
  size_t bytes;
  int on;            /* its line, NOBODY: allocated on no stream */
  int graph;         /* that it was allocated in, 0: none */
  size_t chunk;      /* of its pool */
  int held;          /* graphs that use it though they have not allocated it */
  uint64_t recorded; /* lines */
  moment born, used;
} block;

typedef struct buffer {
  gmlake_buffer *value;
  block front; /* what is committed */
  size_t chunk_bytes, max_bytes;
} buffer;

typedef struct pool {
  gmlake_pool *value; /* NULL: none, and the default one */
  uint32_t serial;
  size_t chunk;
  moment launched;
} pool;

typedef struct graph {
  int pool, is_active, is_alive;
  moment base; /* its launches are ordered behind what its stream did before the capture */
  range ranges[RANGES];
  size_t range_count;
  uint32_t held[HELD];
  size_t held_count;
} graph;

static struct world {
  uint64_t seed, random;
  size_t steps, step_number, granule, chunk, largest_chunks, usual[USUAL];
  size_t frees; /* to come, since memory ran out */
  size_t weights[DEEDS];
  int never_ends;                   /* the streams' work, unless somebody waits for it */
  int is_over, is_lost, is_trusted; /* trusted: no exchange has failed, the mode can be known */
  int destroying;                   /* a pool, or the lake */
  int mode;                         /* the program's capture mode */
  int peers[3];
  uint64_t clock_ns;
  gmlake_result injected, fatal;         /* of this step; of any */
  int is_armed, fault_stays, fault_kind; /* from ON_KINDS on: by the number of the call */
  uint64_t fault_call;
  int host_fails, fault_percent, host_percent, is_handling;
  moment known;
  line lines[LINES];
  size_t line_count;
  void *event; /* the program's */
  seen_event events[EVENTS];
  size_t event_count;
  handle handles[HANDLES];
  map *maps[MAPS]; /* by address */
  size_t map_count;
  block blocks[BLOCKS];
  size_t block_count;
  buffer buffers[BUFFERS];
  pool pools[POOLS];
  graph graphs[GRAPHS]; /* [0] is none */
  int graph_count;
  uint32_t next_id, next_pool;
} w;

static int is_traced;
static uint64_t steps_done, stitches, waits, evictions, faults_hit, launches, refusals;

static void judge(int holds, const char *rule) {
  if (!holds)
    fail_msg("--seed %llu, step %zu: %s", (unsigned long long)w.seed, w.step_number, rule);
}

static void assertion_failed(const char *condition) { judge(0, condition); }

#define trace(...)                            \
  do {                                        \
    if (is_traced) (void)printf(__VA_ARGS__); \
  } while (0)

static void join(moment *into, const moment *from) {
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (into->at[i] < from->at[i]) into->at[i] = from->at[i];
}

/* Whether `need` is behind neither `a` nor, entry by entry, `b`. */
static int covers(const moment *a, const moment *b, const moment *need) {
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (a->at[i] < need->at[i] && b->at[i] < need->at[i]) return 0;
  return 1;
}

/* Which line's work is the one that a rule is broken for. */
static void tell_lines(const moment *own, const moment *need) {
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (own->at[i] < need->at[i] && w.known.at[i] < need->at[i])
      trace("line %zu, %s: work %u, ordered behind %u, known %u\n", i,
            w.lines[i].is_alive  ? "alive"
            : w.lines[i].is_told ? "forgotten"
                                 : "ended",
            need->at[i], own->at[i], w.known.at[i]);
}

static int is_known(const moment *need) { return covers(&w.known, &w.known, need); }

static int is_fatal(gmlake_result result) {
  return result == GMLAKE_ERROR_DEVICE_LOST || result == GMLAKE_ERROR_SHUTTING_DOWN;
}

/* ---- What the backend's calls tell ----------------------------------------------------------- */

static size_t map_above(uint64_t at) {
  size_t low = 0, high = w.map_count;
  while (low < high) {
    size_t middle = (low + high) / 2;
    if (w.maps[middle]->at <= at)
      low = middle + 1;
    else
      high = middle;
  }
  return low;
}

static map *map_at(uint64_t at) {
  size_t above = map_above(at);
  map *m = above ? w.maps[above - 1] : NULL;
  return m && at - m->at < m->of->bytes ? m : NULL;
}

static handle *handle_of(uint64_t value) {
  size_t i;
  for (i = 0; i < HANDLES; i++)
    if (w.handles[i].value == value) return &w.handles[i];
  judge(0, "a handle that does not exist, or too many");
  return NULL;
}

static void handle_reap(handle *h) {
  if (!h->is_released || h->map_count) return;
  free(h->grains);
  memset(h, 0, sizeof(*h));
}

static gmlake_result see_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                int *code) {
  gmlake_result result = faulty_create(user, bytes, types, out, code);
  handle *h;
  if (result) return result;
  h = handle_of(0);
  h->value = *out;
  h->bytes = bytes;
  h->grains = (grain *)calloc(bytes / GRAIN, sizeof(grain));
  assert_non_null(h->grains);
  return result;
}

static gmlake_result see_release(void *user, uint64_t value, int *code) {
  gmlake_result result = faulty_release(user, value, code);
  if (result) return result;
  handle_of(value)->is_released = 1;
  handle_reap(handle_of(value));
  return result;
}

static gmlake_result see_map(void *user, uint64_t at, size_t bytes, uint64_t value, int *code) {
  gmlake_result result = faulty_map(user, at, bytes, value, code);
  size_t place = map_above(at);
  map *m;
  if (result) return result;
  m = (map *)calloc(1, sizeof(*m));
  assert_non_null(m);
  assert_true(w.map_count < MAPS);
  m->at = at;
  m->of = handle_of(value);
  m->of->map_count++;
  memmove(&w.maps[place + 1], &w.maps[place], (w.map_count++ - place) * sizeof(m));
  w.maps[place] = m;
  return result;
}

static gmlake_result see_access(void *user, uint64_t at, size_t bytes, const int *peers,
                                size_t peer_count, int *code) {
  gmlake_result result = faulty_access(user, at, bytes, peers, peer_count, code);
  uint64_t end = at + bytes;
  judge(peer_count == desc.peer_count &&
            (!peer_count || !memcmp(peers, w.peers, peer_count * sizeof(int))),
        "access for other devices than the description names");
  while (!result && at < end) {
    map *m = map_at(at);
    m->is_accessible = 1;
    at += m->of->bytes;
  }
  return result;
}

static int is_live(uint64_t at, size_t bytes) {
  size_t i;
  for (i = 0; i < w.block_count; i++)
    if (w.blocks[i].at < at + bytes && at < w.blocks[i].at + w.blocks[i].bytes) return 1;
  for (i = 0; i < BUFFERS; i++) {
    const block *front = &w.buffers[i].front;
    if (w.buffers[i].value && front->at < at + bytes && at < front->at + front->bytes) return 1;
  }
  return 0;
}

static gmlake_result see_unmap(void *user, uint64_t at, size_t bytes, int *code) {
  gmlake_result result = faulty_unmap(user, at, bytes, code);
  uint64_t end = at + bytes;
  if (result) return result;
  judge(!is_live(at, bytes) || w.destroying == 2, "a live block was unmapped");
  while (at < end) {
    size_t place = map_above(at) - 1;
    map *m = w.maps[place];
    if (!is_known(&m->used)) tell_lines(&w.known, &m->used);
    judge(is_known(&m->used) || w.is_lost || w.fatal || is_fatal(w.injected),
          "unmapped while work may still use it");
    judge(!m->is_graphs || w.destroying, "unmapped under a graph");
    at += m->of->bytes;
    memmove(&w.maps[place], &w.maps[place + 1], (--w.map_count - place) * sizeof(m));
    m->of->map_count--;
    handle_reap(m->of);
    free(m);
  }
  return result;
}

static line *line_of(gmlake_stream value) {
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].is_alive && w.lines[i].value == value) return &w.lines[i];
  judge(0, "a call for a stream that is gone");
  return NULL;
}

static int captures(void) {
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].graph) return 1;
  return 0;
}

/* Whether work may be queued on the line outside of graphs: not on the legacy stream while others
   are captured. */
static int is_quiet(int on) {
  return on >= 0 && w.lines[on].is_alive && !w.lines[on].graph && (on || !captures());
}

static moment *event_at(const void *value) {
  size_t i;
  for (i = 0; i < w.event_count; i++)
    if (w.events[i].value == value) return &w.events[i].at;
  judge(0, "an event that does not exist");
  return NULL;
}

static gmlake_result see_event_create(void *user, void **out, int *code) {
  gmlake_result result = mock->event_create(user, out, code);
  if (result) return result;
  assert_true(w.event_count < EVENTS);
  memset(&w.events[w.event_count], 0, sizeof(seen_event));
  w.events[w.event_count++].value = *out;
  return result;
}

static gmlake_result see_event_destroy(void *user, void *value, int *code) {
  gmlake_result result = faulty_event_destroy(user, value, code);
  size_t i = 0;
  if (result) return result;
  while (i < w.event_count && w.events[i].value != value) i++;
  judge(i < w.event_count, "an event was destroyed that does not exist");
  w.events[i] = w.events[--w.event_count];
  return result;
}

static void arm_call(void) {
  gmlake_mock_fail_at(mock, w.is_armed && w.fault_kind >= ON_KINDS ? w.fault_call : 0, w.injected,
                      w.fault_stays);
}

/* INVALID_ARGUMENT would say that the stream is gone, which is not so. */
static gmlake_result record_truly(void *user, void *value, gmlake_stream on, int *code) {
  gmlake_result result;
  if (w.injected != GMLAKE_ERROR_INVALID_ARGUMENT) return faulty_record(user, value, on, code);
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  result = mock->event_record(user, value, on, code);
  arm_call();
  return result;
}

static gmlake_result see_record(void *user, void *value, gmlake_stream on, int *code) {
  gmlake_result result = record_truly(user, value, on, code);
  line *l = line_of(on);
  judge(is_quiet((int)(l - w.lines)), "an event is recorded where a capture forbids it");
  if (!result) *event_at(value) = l->now;
  return result;
}

static gmlake_result see_query(void *user, void *value, int *done, int *code) {
  gmlake_result result = faulty_query(user, value, done, code);
  if (!result && *done) join(&w.known, event_at(value));
  return result;
}

static gmlake_result see_host_wait(void *user, void *value, int *code) {
  gmlake_result result = faulty_host_wait(user, value, code);
  if (!result) join(&w.known, event_at(value));
  return result;
}

/* Never fails: an answer that tells nothing is taken to say that the stream is the same. */
static gmlake_result see_stream_id(void *user, gmlake_stream stream, uint64_t *out, int *code) {
  gmlake_result result;
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  result = mock->stream_id(user, stream, out, code);
  arm_call();
  return result;
}

static gmlake_result see_is_capturing(void *user, gmlake_stream stream, int *out, int *code) {
  gmlake_result result;
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  result = mock->is_capturing(user, stream, out, code);
  judge(!result, "a stream that is gone is asked whether it is captured");
  arm_call();
  return result;
}

static gmlake_result see_device_wait(void *user, int *code) {
  gmlake_result result = mock->device_wait(user, code);
  size_t i;
  judge(!captures(), "the whole device is waited for though a capture forbids it");
  for (i = 0; i < w.line_count && !result; i++)
    if (w.known.at[i] < w.lines[i].now.at[i]) w.known.at[i] = w.lines[i].now.at[i];
  return result;
}

static gmlake_result see_stream_wait(void *user, gmlake_stream on, void *value, int *code) {
  gmlake_result result = faulty_stream_wait(user, on, value, code);
  line *l = line_of(on);
  judge(is_quiet((int)(l - w.lines)), "a stream was made to wait where a capture forbids it");
  if (!result) join(&l->now, event_at(value));
  return result;
}

static gmlake_result see_exchange(void *user, int *mode, int *code) {
  gmlake_result result = faulty_exchange(user, mode, code);
  if (result) w.is_trusted = 0;
  return result;
}

static void watch(void) {
  use_faults();
  faulty.create = see_create;
  faulty.release = see_release;
  faulty.map = see_map;
  faulty.unmap = see_unmap;
  faulty.set_access = see_access;
  faulty.event_create = see_event_create;
  faulty.event_destroy = see_event_destroy;
  faulty.event_record = see_record;
  faulty.event_query = see_query;
  faulty.event_wait = see_host_wait;
  faulty.event_wait_any = NULL; /* each of its waits is one of event_wait */
  faulty.stream_id = see_stream_id;
  faulty.is_capturing = see_is_capturing;
  faulty.device_wait = see_device_wait;
  faulty.stream_wait = see_stream_wait;
  faulty.capture_exchange = see_exchange;
}

/* Whether streams may end untold, and whether the lake can see by their ids that they have. */
static int may_end(void) { return (desc.flags & GMLAKE_STREAMS_MAY_END) != 0; }

/* ---- Chance ---------------------------------------------------------------------------------- */

static uint64_t random64(void) {
  uint64_t x = w.random += 0x9E3779B97F4A7C15u;
  x = (x ^ x >> 30) * 0xBF58476D1CE4E5B9u;
  x = (x ^ x >> 27) * 0x94D049BB133111EBu;
  return x ^ x >> 31;
}

static size_t below(size_t count) { return (size_t)(random64() % count); }
static int chance(size_t percent) { return below(100) < percent; }

static int any_line(void) {
  int on;
  do on = (int)below(w.line_count);
  while (!w.lines[on].is_alive);
  return on;
}

static block *any_block(void) { return w.block_count ? &w.blocks[below(w.block_count)] : NULL; }

/* NULL and 1 are the same stream. */
static gmlake_stream value_of(int on) {
  if (on == NOBODY) return NONE;
  if (on == 0 && chance(20)) return (gmlake_stream)(uintptr_t)1;
  return w.lines[on].value;
}

/* ---- Faults ---------------------------------------------------------------------------------- */

/* The next call of the lake may fail in the driver, at its nth call or the nth of a kind, or for
   want of host memory. */
static void arm(void) {
  static const gmlake_result results[] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_DRIVER,
                                          GMLAKE_ERROR_DRIVER,
                                          GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
                                          GMLAKE_ERROR_UNSUPPORTED,
                                          GMLAKE_ERROR_CAPTURING,
                                          GMLAKE_ERROR_INVALID_ARGUMENT,
                                          GMLAKE_ERROR_DEVICE_LOST,
                                          GMLAKE_ERROR_SHUTTING_DOWN};
  if (w.is_handling) return;
  if (chance((size_t)w.fault_percent)) {
    int is_last = chance(4);
    w.fault_stays = !is_last && chance(20); /* nothing is asked behind the last */
    w.is_armed = 1;
    w.injected = results[is_last ? 8 + below(2) : below(8)];
    w.fault_kind = (int)below(2 * ON_KINDS);
    w.fault_call = census().call_count + 1 + below(chance(70) ? 5 : 40);
    if (w.fault_kind < ON_KINDS)
      fail_call(w.fault_kind, 1 + (long)below(4), w.injected, w.fault_stays);
    else
      arm_call();
  }
  if (chance((size_t)w.host_percent)) {
    w.host_fails = 1;
    host_fail_in = 1 + (long)below(6);
    host_fails_on = chance(30);
  }
}

static void disarm(void) {
  if (w.is_armed && is_fatal(w.injected) &&
      (w.fault_kind < ON_KINDS ? !faults[w.fault_kind].in : census().call_count >= w.fault_call))
    w.fatal = w.injected;
  w.is_armed = 0;
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  memset(faults, 0, sizeof(faults));
  host_fail_in = host_fails_on = 0;
}

/* Whether the call succeeded; an answer that nothing explains is a finding. */
static int is_done(gmlake_result result, int may_lack, const char *call) {
  gmlake_result excuse =
      w.injected == GMLAKE_ERROR_INVALID_ARGUMENT ? GMLAKE_ERROR_DRIVER : w.injected;
  int is_excused = (excuse && result == excuse) || (w.fatal && is_fatal(result)) ||
                   (w.host_fails && result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  disarm();
  faults_hit += result && is_excused;
  trace("  %s: %s\n", call, gmlake_result_name(result));
  if (is_fatal(result)) w.is_lost = 1;
  if (!result) return 1;
  if (may_lack &&
      (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_ERROR_LIMIT_REACHED)) {
    refusals++;
    w.frees = below(6);
    return 0;
  }
  if (!is_excused)
    fail_msg("--seed %llu, step %zu: %s: %s (%s: %s)", (unsigned long long)w.seed, w.step_number,
             call, gmlake_result_name(result), last_error().call, last_error().text);
  return 0;
}

/* ---- What the program does beside calling the lake ------------------------------------------- */

static void program_record(void *event, int on) {
  int code = 0;
  assert_ok(mock->event_record(mock->user, event, w.lines[on].value, &code));
  *event_at(event) = w.lines[on].now;
}

/* An event behind all work of a line so far, or NULL where a capture forbids it. */
static void *event_behind(int on) {
  if (!w.lines[on].is_alive) return w.lines[on].end;
  if (!is_quiet(on)) return NULL;
  program_record(w.event, on);
  return w.event;
}

/* Work queued on `later` from now on is behind `need`; 0: a capture forbids it. */
static int order(int later, const moment *need) {
  size_t i;
  int code = 0;
  for (i = 0; i < w.line_count; i++) {
    void *event;
    if (w.lines[later].now.at[i] >= need->at[i] || w.known.at[i] >= need->at[i]) continue;
    event = is_quiet(later) ? event_behind((int)i) : NULL;
    if (!event) return 0;
    trace("  line %d waits for line %zu\n", later, i);
    assert_ok(mock->stream_wait(mock->user, w.lines[later].value, event, &code));
    join(&w.lines[later].now, event_at(event));
  }
  return 1;
}

/* The host waits for `need`. Asking during a capture takes the relaxed mode. */
static int await(const moment *need) {
  size_t i;
  int code = 0, mode = 2;
  for (i = 0; i < w.line_count; i++) {
    void *event;
    if (w.known.at[i] >= need->at[i]) continue;
    event = event_behind((int)i);
    if (!event) return 0;
    trace("  the host waits for line %zu\n", i);
    assert_ok(mock->capture_exchange(mock->user, &mode, &code));
    assert_ok(mock->event_wait(mock->user, event, &code));
    assert_ok(mock->capture_exchange(mock->user, &mode, &code));
    join(&w.known, event_at(event));
  }
  return 1;
}

/* The next 512 bytes of a range, NULL: none. */
static grain *next_grain(range *r, map **out_map) {
  map *m;
  grain *g;
  if (!r->bytes) return NULL;
  m = *out_map;
  if (!m || r->at - m->at >= m->of->bytes) m = map_at(r->at);
  judge(m != NULL, "a block lies where nothing is mapped");
  g = &m->of->grains[(r->at - m->at) / GRAIN];
  r->at += GRAIN;
  r->bytes -= GRAIN;
  *out_map = m;
  return g;
}

static range range_of(const block *b) {
  range r;
  r.at = b->at;
  r.bytes = b->bytes;
  return r;
}

/* A kernel of the line's next work reads and writes the range. */
static void touch(range r, int on) {
  uint32_t work = w.lines[on].now.at[on];
  map *m = NULL;
  grain *g;
  while ((g = next_grain(&r, &m))) {
    g->used.at[on] = work;
    m->used.at[on] = work;
  }
}

static int graph_holds(const graph *g, uint32_t id) {
  size_t i;
  for (i = 0; i < g->held_count; i++)
    if (g->held[i] == id) return 1;
  return 0;
}

/* A kernel that is captured uses the block, which has to live as long as the graph may run. */
static void capture_use(block *b, int number) {
  graph *g = &w.graphs[number];
  if (b->graph == number || graph_holds(g, b->id)) return;
  if (g->held_count == HELD || g->range_count == RANGES) return;
  g->held[g->held_count++] = b->id;
  g->ranges[g->range_count++] = range_of(b);
  b->held++;
}

/* Uses a block on a line that is ordered behind its allocation, which a kernel of the program's
   may be by events of its own. */
static int use(block *b, int on) {
  line *l = &w.lines[on];
  if (l->graph) {
    capture_use(b, l->graph);
    return 1;
  }
  if (b->graph && w.graphs[b->graph].is_active) return 0;
  if (!is_quiet(on) || (on != b->on && !order(on, &b->born))) return 0;
  b->used.at[on] = ++l->now.at[on];
  trace("  line %d uses %u, work %u\n", on, b->id, b->used.at[on]);
  touch(range_of(b), on);
  return 1;
}

/* What free does not hear of by gmlake_record_stream has to be ordered before the call. */
static moment need_of(const block *b) {
  moment need = b->used;
  size_t i;
  for (i = 0; i < w.line_count; i++)
    if (b->recorded >> i & 1) need.at[i] = 0;
  return need;
}

/* Whether the line has the value of the block's, which is gone untold: a free there is one on the
   line that is gone, GMLAKE_STREAMS_MAY_END sees to that. */
static int is_heir(const block *b, int on) {
  return on > 0 && b->on > 0 && on != b->on && !w.lines[b->on].is_alive &&
         !w.lines[b->on].is_told && w.lines[on].value == w.lines[b->on].value && may_end();
}

/* Makes it true that all uses precede a free on the line, as the contract says; 0: it cannot. */
static int settle(const block *b, int on) {
  moment need = need_of(b);
  if (on == NOBODY && b->on >= 0) need.at[b->on] = b->used.at[b->on]; /* NONE speaks for it */
  if (b->held) return 0;
  if (b->graph && w.graphs[b->graph].is_active)
    return on == b->on && covers(&w.known, &w.known, &need);
  if (is_heir(b, on)) need.at[b->on] = 0;
  if (on == NOBODY || (on != b->on && !is_heir(b, on))) join(&need, &b->born);
  return on == NOBODY ? await(&need) : order(on, &need);
}

/* ---- Handing over ---------------------------------------------------------------------------- */

static void judge_grain(const grain *g, const moment *own, int number, int from) {
  const graph *former = &w.graphs[g->graph];
  judge(!g->owner, "two live blocks share memory");
  if (!g->graph) {
    if (!covers(own, &w.known, &g->used)) tell_lines(own, &g->used);
    judge(covers(own, &w.known, &g->used), "handed over while work may still use it");
    return;
  }
  judge(number != 0, "memory of a graph was handed over outside captures");
  judge(former->pool == from, "memory of a graph went to another pool");
  judge(!former->is_active || g->graph == number, "two captures share memory");
}

/* The range is the block's; its stream is ordered behind `own`. */
static void hand_over(range r, uint32_t id, const moment *own, int number, int from) {
  map *m = NULL;
  grain *g;
  while ((g = next_grain(&r, &m))) {
    judge(m->is_accessible, "a block lies in memory without access");
    judge_grain(g, own, number, from);
    judge(!m->of->pool || m->of->pool == w.pools[from].serial, "a pool's memory serves another");
    m->of->pool = w.pools[from].serial;
    g->owner = id;
    if (!number) continue;
    g->graph = number;
    m->is_graphs = 1;
  }
}

static void give_back(range r) {
  map *m = NULL;
  grain *g;
  while ((g = next_grain(&r, &m))) g->owner = 0;
}

/* Its chunks are nobody else's. A handle may be of several. */
static void judge_exclusive(const block *b) {
  const size_t chunk = b->chunk / GRAIN;
  range r = range_of(b);
  map *m = NULL;
  const grain *g;
  size_t i, first;
  while ((g = next_grain(&r, &m))) {
    first = (size_t)(g - m->of->grains) / chunk * chunk;
    for (i = first; i < first + chunk; i++)
      judge(m->of->grains[i].owner == b->id, "EXCLUSIVE shares a chunk");
  }
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static int do_free(block *b, int on) {
  range r = range_of(b);
  trace("free %u on %d\n", b->id, on);
  if (!settle(b, on)) return 0;
  arm();
  if (!is_done(gmlake_free(lake, (void *)(uintptr_t)b->at, value_of(on)), 0, "gmlake_free"))
    return 0;
  *b = w.blocks[--w.block_count];
  give_back(r);
  return 1;
}

/* Frees a block that may be freed, or trims. */
static int on_oom(void *user, gmlake *l, const gmlake_error_info *info) {
  block *b = any_block();
  (void)user;
  (void)info;
  disarm();
  trace("  handler\n");
  w.is_handling = 1;
  if (chance(30)) (void)gmlake_trim(l, 0, NULL);
  if (b && chance(80)) (void)do_free(b, chance(10) ? NOBODY : any_line());
  w.is_handling = 0;
  return chance(80);
}

static size_t any_size(void) {
  size_t largest = w.chunk * (1 + below(chance(20) ? w.largest_chunks : 6));
  if (chance(25)) return 1 + below(8 * GRAIN);
  if (chance(40)) return w.usual[below(USUAL)];
  return chance(50) ? largest : 1 + below(largest);
}

/* The stream that is ordered behind nothing asks for what nobody uses. */
static void enter_block(block *b, void *ptr, int from, size_t before) {
  static const moment nothing;
  gmlake_allocation_info info;
  int number = b->graph;
  assert_ok(gmlake_get_allocation(lake, ptr, &info));
  b->id = ++w.next_id;
  b->at = (uint64_t)(uintptr_t)ptr;
  b->bytes = info.bytes;
  trace("  %u at %llx, %zu bytes\n", b->id, (unsigned long long)b->at, b->bytes);
  hand_over(range_of(b), b->id, b->on >= 0 && !number ? &w.lines[b->on].now : &nothing, number,
            from);
  if (info.flags & GMLAKE_EXCLUSIVE) judge_exclusive(b);
  judge(!(info.flags & GMLAKE_NO_GROW) || census().physical_bytes <= before, "NO_GROW has grown");
  if (b->on >= 0 && !number) b->born = w.lines[b->on].now;
  w.blocks[w.block_count++] = *b;
  if (number) w.graphs[number].ranges[w.graphs[number].range_count++] = range_of(b);
}

static void do_alloc(void) {
  gmlake_alloc_desc wanted = request(any_size(), 0, NULL);
  size_t before = census().physical_bytes;
  void *ptr = NULL;
  block b;
  int from = chance(75) ? 0 : (int)below(POOLS);
  memset(&b, 0, sizeof(b));
  if (w.block_count == BLOCKS) return;
  b.on = chance(8) ? NOBODY : any_line();
  if (b.on >= 0) b.graph = w.lines[b.on].graph;
  if (b.graph) from = w.graphs[b.graph].pool;
  if (b.graph && w.graphs[b.graph].range_count == RANGES) return;
  if (chance(6)) wanted.flags |= GMLAKE_EXCLUSIVE;
  if (chance(6)) wanted.flags |= GMLAKE_NO_STITCH;
  if (chance(10)) wanted.flags |= GMLAKE_NO_GROW;
  if (chance(10)) wanted.alignment = GRAIN << below(3);
  if (chance(20)) wanted.user_data = 1;
  if (!w.pools[from].value) from = 0;
  wanted.pool = w.pools[from].value;
  b.chunk = from ? w.pools[from].chunk : w.chunk;
  trace("alloc %zu on %d, pool %d, flags %u\n", wanted.bytes, b.on, from, wanted.flags);
  arm();
  if (is_done(gmlake_alloc_with(lake, &wanted, value_of(b.on), &ptr), 1, "gmlake_alloc"))
    enter_block(&b, ptr, from, before);
}

static void do_use(void) {
  block *b = any_block();
  if (b) (void)use(b, b->on >= 0 && chance(70) ? b->on : any_line());
}

/* Used there before the call, behind it, or both; up to the free nothing orders that. */
static void do_record(void) {
  block *b = any_block();
  int on = any_line();
  if (!b) return;
  trace("record %d on %u\n", on, b->id);
  if (chance(50) && !w.lines[on].graph) (void)use(b, on);
  arm();
  if (!is_done(gmlake_record_stream(lake, (void *)(uintptr_t)b->at, value_of(on)), 0,
               "gmlake_record_stream"))
    return;
  b->recorded |= (uint64_t)1 << on;
  if (chance(70) && !w.lines[on].graph) (void)use(b, on);
}

static void do_any_free(void) {
  block *b = any_block();
  int on;
  if (!b) return;
  on = chance(12) || b->on < 0 || !w.lines[b->on].is_alive ? any_line() : b->on;
  if (chance(w.never_ends ? 1 : 10)) on = NOBODY;
  (void)do_free(b, on);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void buffer_open(buffer *b) {
  gmlake_buffer_desc wanted;
  gmlake_buffer_info info;
  memset(&wanted, 0, sizeof(wanted));
  memset(&b->front, 0, sizeof(b->front));
  b->chunk_bytes = wanted.chunk_bytes = w.chunk << (chance(20) ? 1 : 0);
  b->max_bytes = wanted.max_bytes = b->chunk_bytes * (1 + below(12));
  arm();
  if (!is_done(gmlake_buffer_create(lake, &wanted, &b->value), 0, "gmlake_buffer_create")) return;
  assert_ok(gmlake_buffer_get_info(lake, b->value, &info));
  b->front.at = (uint64_t)(uintptr_t)info.ptr;
  b->front.id = OWNER_BUFFER + ++w.next_id;
  b->front.on = NOBODY;
}

/* The front ends elsewhere now. In a capture, what is committed is behind what the stream did
   before it: so is the graph's launch. */
static void buffer_enter(buffer *b, size_t bytes, int on) {
  static const moment nothing;
  const moment *own = on >= 0 ? &w.lines[on].now : &nothing;
  size_t old = b->front.bytes;
  range r;
  bytes = (bytes + b->chunk_bytes - 1) / b->chunk_bytes * b->chunk_bytes;
  r.at = b->front.at + (bytes < old ? bytes : old);
  r.bytes = bytes < old ? old - bytes : bytes - old;
  b->front.bytes = bytes;
  if (bytes < old) give_back(r);
  if (bytes > old) hand_over(r, b->front.id, own, 0, 0);
  if (bytes > old) join(&b->front.born, own);
  if (!bytes) memset(&b->front.used, 0, sizeof(moment));
}

static void do_buffer(void) {
  buffer *b = &w.buffers[below(BUFFERS)];
  int on = chance(10) ? NOBODY : any_line(), ends;
  size_t bytes;
  gmlake_result result;
  if (!b->value) buffer_open(b);
  if (!b->value) return;
  if (b->front.bytes && chance(50)) {
    (void)use(&b->front, any_line());
    return;
  }
  ends = !b->front.held && chance(8);
  bytes = ends ? 0 : below(b->max_bytes + 1);
  if (chance(40)) bytes = b->max_bytes;
  trace("resize buffer %u to %zu on %d\n", b->front.id, bytes, on);
  if (b->front.bytes && bytes < b->front.bytes && !settle(&b->front, on)) return;
  arm();
  result = ends && !bytes ? gmlake_buffer_destroy(lake, b->value, value_of(on))
                          : gmlake_buffer_resize(lake, b->value, bytes, value_of(on));
  if (result == GMLAKE_ERROR_CAPTURING && captures()) result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (!is_done(result, 1, "gmlake_buffer_resize")) return;
  buffer_enter(b, bytes, on);
  if (ends && !bytes) b->value = NULL;
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void add_line(void) {
  line *l = &w.lines[w.line_count];
  l->is_alive = 1;
  if (w.line_count++) assert_ok(gmlake_mock_stream_create(mock, &l->value));
}

/* Ends a stream, with work pending on it; its value serves again at once, for another one. */
static void do_forget(void) {
  int on = any_line(), code = 0, is_told;
  line *l = &w.lines[on];
  if (!on || w.line_count == LINES || !is_quiet(on)) return;
  is_told = !may_end() || chance(30);
  trace("%s %d\n", is_told ? "forget" : "end", on);
  arm();
  if (is_told && !is_done(gmlake_forget_stream(lake, l->value), 0, "gmlake_forget_stream")) return;
  disarm();
  l->is_told = is_told;
  assert_ok(see_event_create(mock->user, &l->end, &code));
  program_record(l->end, on);
  gmlake_mock_stream_destroy(mock, l->value);
  l->is_alive = 0;
  add_line();
}

static void do_progress(void) {
  int on = any_line();
  switch (w.never_ends ? 0 : below(4)) {
  case 0:
    gmlake_mock_stream_hold(mock, w.lines[on].value);
    break;
  case 1:
    gmlake_mock_stream_finish(mock, w.lines[on].value);
    break;
  case 2:
    gmlake_mock_stream_set_lag(mock, w.lines[on].value, below(1000) * below(2));
    break;
  default:
    gmlake_mock_set_clock(mock, w.clock_ns += below(600));
  }
}

/* ---- Pools, captures, graphs ----------------------------------------------------------------- */

static void do_pool_open(void) {
  pool *p = &w.pools[1 + below(POOLS - 1)];
  gmlake_pool_desc wanted;
  if (p->value) return;
  memset(&wanted, 0, sizeof(wanted));
  if (chance(50)) wanted.chunk_bytes = w.chunk << below(2);
  if (chance(30)) wanted.limit_bytes = w.chunk * (2 + below(16));
  arm();
  if (!is_done(gmlake_pool_create(lake, &wanted, &p->value), 0, "gmlake_pool_create")) return;
  p->chunk = wanted.chunk_bytes ? wanted.chunk_bytes : w.chunk;
  p->serial = ++w.next_pool;
  memset(&p->launched, 0, sizeof(p->launched));
}

static void end_graph(int number) {
  graph *g = &w.graphs[number];
  size_t i, n;
  for (i = 0; i < g->held_count; i++) {
    for (n = 0; n < w.block_count; n++) w.blocks[n].held -= w.blocks[n].id == g->held[i];
    for (n = 0; n < BUFFERS; n++)
      w.buffers[n].front.held -= w.buffers[n].value && w.buffers[n].front.id == g->held[i];
  }
  g->is_alive = 0;
}

/* Its graphs have run and are gone; what else used its memory the lake knows of. */
static void do_pool_close(void) {
  int number = 1 + (int)below(POOLS - 1), i;
  pool *p = &w.pools[number];
  gmlake_result result;
  size_t n, live = 0;
  for (i = 1; i <= w.graph_count; i++)
    if (w.graphs[i].pool == number && w.graphs[i].is_active) return;
  for (n = w.block_count; n-- && p->value;) {
    block *b = &w.blocks[n];
    map *m = map_at(b->at);
    if (m->of->pool != p->serial) continue;
    live += !do_free(b, any_line());
  }
  if (!p->value || live || !await(&p->launched)) return;
  for (i = 1; i <= w.graph_count; i++)
    if (w.graphs[i].pool == number && w.graphs[i].is_alive) end_graph(i);
  trace("destroy pool %d\n", number);
  arm();
  w.destroying = 1;
  result = gmlake_pool_destroy(lake, p->value);
  w.destroying = 0;
  if (result == GMLAKE_ERROR_CAPTURING && captures()) result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (is_done(result, 1, "gmlake_pool_destroy")) memset(p, 0, sizeof(*p));
}

static void do_capture_begin(void) {
  int on = any_line(), from = 1 + (int)below(POOLS - 1);
  graph *g = &w.graphs[w.graph_count + 1];
  if (!on || w.lines[on].graph || !w.pools[from].value || w.graph_count + 1 == GRAPHS) return;
  trace("capture on %d into pool %d: graph %d\n", on, from, w.graph_count + 1);
  arm();
  if (!is_done(gmlake_capture_begin(lake, w.lines[on].value, w.pools[from].value), 0,
               "gmlake_capture_begin"))
    return;
  assert_ok(gmlake_mock_capture_begin(mock, w.lines[on].value));
  g->pool = from;
  g->is_active = g->is_alive = 1;
  g->base = w.lines[on].now;
  w.lines[on].graph = ++w.graph_count;
}

static void end_capture(int on) {
  graph *g = &w.graphs[w.lines[on].graph];
  trace("capture on %d ends\n", on);
  judge(!gmlake_mock_capture_end(mock, w.lines[on].value), "a capture was spoilt");
  g->is_active = 0;
  w.lines[on].graph = 0;
  if (!w.is_lost && !w.fatal) assert_ok(gmlake_capture_end(lake, w.lines[on].value));
}

static void do_capture_end(void) {
  int on = any_line();
  if (w.lines[on].graph) end_capture(on);
}

static block *held_block(uint32_t id) {
  size_t i;
  for (i = 0; i < w.block_count; i++)
    if (w.blocks[i].id == id) return &w.blocks[i];
  for (i = 0; i < BUFFERS; i++)
    if (w.buffers[i].value && w.buffers[i].front.id == id) return &w.buffers[i].front;
  judge(0, "the program has lost a block");
  return NULL;
}

/* A graph runs, behind all that used its memory before: the program sees to that. It runs after
   what the stream of its capture did before it. */
static void do_launch(void) {
  int on = any_line();
  graph *g = &w.graphs[1 + below((size_t)w.graph_count + 1)];
  moment need;
  size_t i;
  if (!g->is_alive || g->is_active || !is_quiet(on)) return;
  need = g->base;
  for (i = 0; i < g->range_count; i++) {
    range r = g->ranges[i];
    map *m = NULL;
    const grain *at;
    while ((at = next_grain(&r, &m))) join(&need, &at->used);
  }
  if (!order(on, &need)) return;
  launches++;
  w.lines[on].now.at[on]++;
  trace("launch graph %d on %d, work %u\n", (int)(g - w.graphs), on, w.lines[on].now.at[on]);
  for (i = 0; i < g->range_count; i++) touch(g->ranges[i], on);
  for (i = 0; i < g->held_count; i++) held_block(g->held[i])->used.at[on] = w.lines[on].now.at[on];
  w.pools[g->pool].launched.at[on] = w.lines[on].now.at[on];
}

static void do_graph_end(void) {
  int number = 1 + (int)below((size_t)w.graph_count + 1);
  graph *g = &w.graphs[number];
  if (g->is_alive && !g->is_active) end_graph(number);
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void do_trim(void) {
  trace("trim\n");
  arm();
  (void)is_done(gmlake_trim(lake, chance(10) ? 0 : below(census().physical_bytes + 1), NULL), 0,
                "gmlake_trim");
}

static void do_budget(void) {
  gmlake_budget budget;
  trace("budget\n");
  arm();
  (void)is_done(gmlake_get_budget(lake, &budget), 0, "gmlake_get_budget");
}

/* The program's capture mode is what it was, and the figures are those of the device. */
static void judge_step(void) {
  int mode = w.mode, code = 0;
  gmlake_stats now = stats();
  assert_ok(mock->capture_exchange(mock->user, &mode, &code));
  judge(!w.is_trusted || mode == w.mode, "the thread's capture mode has changed");
  w.is_trusted = 1;
  if (w.is_lost) return;
  judge(now.live_count == w.block_count, "live_count");
  judge(now.reserved_bytes == census().physical_bytes, "reserved_bytes");
  judge(!desc.limit_bytes || now.quarantined_bytes || now.reserved_bytes <= desc.limit_bytes,
        "more memory than the limit");
  if (w.step_number % 16 == 0 && gmlake_check(lake)) judge(0, last_error().text);
}

/* ---- A lake ---------------------------------------------------------------------------------- */

static void draw_desc(size_t capacity) {
  memset(&desc, 0, sizeof(desc));
  watch();
  desc.chunk_bytes = w.chunk;
  desc.host.malloc_fn = host_malloc;
  desc.host.free_fn = host_free;
  desc.cross_stream = (gmlake_cross_stream)below(3);
  if (chance(40)) desc.flags |= GMLAKE_SINGLE_THREADED;
  if (chance(20)) desc.flags |= GMLAKE_GUARD;
  if (chance(25)) desc.flags |= GMLAKE_STREAMS_MAY_END;
  if (chance(30)) desc.limit_bytes = capacity / 2 + below(capacity / 2);
  if (chance(15)) desc.driver_free_bytes_min = below(capacity / 4);
  if (chance(40)) desc.arena_bytes = capacity + w.chunk;
  if (chance(30)) desc.window_bytes = capacity + below(capacity);
  if (chance(40)) desc.stitched_bytes_max = w.chunk * (1 + below(24));
  if (chance(20)) desc.stitch_bytes_min = below(4 * w.chunk);
  if (chance(40)) desc.handle_bytes = w.chunk * (1 + below(8));
  if (chance(30)) desc.oom.fn = on_oom;
  desc.peer_count = below(4);
  desc.peer_devices = desc.peer_count ? w.peers : NULL;
}

static const struct deed {
  void (*run)(void);
  size_t weight;
} deeds[] = {{do_alloc, 75},       {do_any_free, 60}, {do_use, 40},       {do_record, 25},
             {do_progress, 30},    {do_buffer, 30},   {do_trim, 8},       {do_budget, 8},
             {do_forget, 8},       {do_pool_open, 8}, {do_pool_close, 8}, {do_capture_begin, 10},
             {do_capture_end, 20}, {do_launch, 30},   {do_graph_end, 8}};

/* Each lake does some things often and some never: rare meetings need that. */
static void draw_weights(void) {
  static const size_t times[] = {0, 1, 1, 1, 3};
  size_t i;
  assert_true(DEEDS == sizeof(deeds) / sizeof(deeds[0]));
  for (i = 0; i < DEEDS; i++) w.weights[i] = deeds[i].weight * (i < 3 ? 1 : times[below(5)]);
  w.never_ends = chance(20);
}

static void open_world(uint64_t seed) {
  gmlake_mock_desc device;
  size_t i, lines;
  int code = 0, mode;
  memset(&w, 0, sizeof(w));
  memset(faults, 0, sizeof(faults));
  memset(&device, 0, sizeof(device));
  w.seed = w.random = seed;
  w.is_trusted = 1;
  w.granule = device.granularity_bytes = (size_t)sysconf(_SC_PAGESIZE);
  w.chunk = w.granule << below(4);
  device.capacity_bytes = w.chunk * (8 + below(100));
  w.largest_chunks = 2 + device.capacity_bytes / w.chunk / (2 + below(4));
  device.bookkeeping_only = 1;
  host_bytes = 0;
  host_fail_in = host_fails_on = 0;
  assert_ok(gmlake_mock_create(&device, &mock));
  for (i = 0; i < USUAL; i++) w.usual[i] = w.chunk / 2 * (1 + below(12));
  for (i = 0; i < 3; i++) w.peers[i] = (int)i + 1;
  draw_desc(device.capacity_bytes);
  lake = NULL;
  assert_ok(gmlake_create(&desc, &lake));
  w.pools[0].serial = ++w.next_pool;
  trace("seed %llu: flags %u, %s first, chunks of %zu, %zu on the device\n",
        (unsigned long long)seed, desc.flags, desc.cross_stream ? "wait" : "grow", w.chunk,
        device.capacity_bytes / w.chunk);
  lines = 1 + below(6);
  for (i = 0; i < lines; i++) add_line();
  assert_ok(see_event_create(mock->user, &w.event, &code));
  mode = w.mode = (int)below(3);
  assert_ok(mock->capture_exchange(mock->user, &mode, &code));
  w.steps = 100 + below(1400);
  draw_weights();
  if (chance(50)) w.fault_percent = 1 + (int)below(40);
  if (chance(30)) w.host_percent = 1 + (int)below(20);
}

static void step_once(void) {
  size_t i, sum = 0, at;
  for (i = 0; i < DEEDS; i++) sum += w.weights[i];
  at = below(sum);
  for (i = 0; at >= w.weights[i]; i++) at -= w.weights[i];
  if (w.frees && w.frees--) i = 1;
  w.injected = GMLAKE_OK;
  w.host_fails = 0;
  deeds[i].run();
  disarm();
  judge_step();
}

/* With live blocks and pending work; nothing may be left. What was allocated on no stream, or
   given to streams that the lake has not heard of, is waited for first. */
static void close_world(void) {
  moment all;
  size_t i;
  int code = 0;
  gmlake_stats now = stats();
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].graph) end_capture((int)i);
  memset(&all, 0, sizeof(all));
  for (i = 0; i < w.block_count; i++) {
    moment need = need_of(&w.blocks[i]);
    if (w.blocks[i].on >= 0) need.at[w.blocks[i].on] = 0;
    join(&all, &need);
  }
  for (i = 0; i < BUFFERS; i++) join(&all, &w.buffers[i].front.used);
  for (i = 1; i < POOLS; i++) join(&all, &w.pools[i].launched);
  judge(await(&all), "the program cannot wait");
  stitches += now.stitch_count;
  waits += now.stream_wait_count;
  evictions += now.stitch_evict_count;
  w.destroying = 2;
  if (gmlake_destroy(lake)) judge(w.is_lost || w.fatal, "gmlake_destroy");
  lake = NULL;
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].end) assert_ok(mock->event_destroy(mock->user, w.lines[i].end, &code));
  assert_ok(mock->event_destroy(mock->user, w.event, &code));
  close_mock();
  judge(!w.map_count, "something is still mapped");
  w.is_over = 1;
  steps_done += w.step_number;
}

static void run_lake(uint64_t seed) {
  open_world(seed);
  while (w.step_number < w.steps && !w.is_lost && !w.fatal) {
    w.step_number++;
    step_once();
  }
  close_world();
}

/* ---- Tests ----------------------------------------------------------------------------------- */

static long seconds; /* 0: a few lakes */
static uint64_t first_seed = 1;

static int tell_seed(void **state) {
  (void)state;
  if (!w.is_over)
    print_error("seed %llu stopped at step %zu\n", (unsigned long long)w.seed, w.step_number);
  return 0;
}

static void memory_is_handed_over_in_order(void **state) {
  const time_t begin = time(NULL);
  uint64_t seed = first_seed;
  (void)state;
  do run_lake(seed++);
  while (seconds ? time(NULL) < begin + seconds : seed < first_seed + LAKES);
  printf(
      "seeds %llu to %llu: %llu steps, %llu stitches, %llu evictions, %llu waits, %llu launches, "
      "%llu faults, %llu refusals, %ld s\n",
      (unsigned long long)first_seed, (unsigned long long)seed - 1, (unsigned long long)steps_done,
      (unsigned long long)stitches, (unsigned long long)evictions, (unsigned long long)waits,
      (unsigned long long)launches, (unsigned long long)faults_hit, (unsigned long long)refusals,
      (long)(time(NULL) - begin));
  assert_true(stitches && evictions && waits && launches && refusals);
}

int main(int argc, char **argv) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_teardown(memory_is_handed_over_in_order, tell_seed)};
  int i;
  for (i = 1; i + 1 < argc; i += 2) {
    if (strcmp(argv[i], "--seconds") == 0)
      seconds = strtol(argv[i + 1], NULL, 10);
    else if (strcmp(argv[i], "--seed") == 0)
      first_seed = strtoull(argv[i + 1], NULL, 10);
    else if (strcmp(argv[i], "--trace") == 0)
      is_traced = strtol(argv[i + 1], NULL, 10) != 0;
    else
      break;
  }
  if (i < argc) {
    fprintf(stderr, "usage: %s [--seconds N] [--seed S] [--trace 1]\n", argv[0]);
    return 2;
  }
  return cmocka_run_group_tests(tests, NULL, NULL);
}
