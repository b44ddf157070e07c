/* The judge: one backend in front of the mock, which believes no book but its own. It counts the
   calls of the driver and fails the ones it is told to. For each stream it keeps a clock: how much
   work of every stream precedes its next work, by its own order and by waits on the device; for the
   host one of what is seen to be complete. For each 512 bytes of physical memory, and for each
   mapping, it notes how far every stream's use of it goes. Whoever gets memory must be ordered
   behind every earlier use of it; what is unmapped must be known to be complete. It looks at the
   lake's locks, too. Include after locks.h and gmlake.h, the implementation with the mock. */
#if !defined(PLAY_JUDGE_H)
#define PLAY_JUDGE_H

#include <fcntl.h>
#include <setjmp.h>

#include "language.h"

#define LINES 48 /* streams of one lake, those that are gone included */
#define EVENTS 4096
#define MAPS 8192
#define HANDLES 1024
#define RANGES 96 /* of a graph */
#define HELD 8    /* blocks from outside that a graph uses */
#define CELLS 16  /* chunks of a buffer */
#define MEDDLINGS 16
#define NOBODY (-1)
#define BIT(result) (1u << (result))
#define ALL_CALLS 200000 /* of one operation: it does not end */

typedef struct moment { /* how much work of each stream */
  uint32_t at[LINES];
} moment;

typedef struct line { /* a stream from its creation to its end; its value may serve again */
  gmlake_stream value;
  int is_alive, kind;
  int graph;   /* that it is being captured into, 0: none */
  moment now;  /* what its next work is ordered behind; own entry: its work so far */
  int is_told; /* [not alive] of its end the lake was told */
  void *end;   /* [not alive] an event of the program's behind all its work */
} line;

typedef struct grain { /* of physical memory */
  uint32_t owner;      /* id of a block or of a buffer's chunk, 0: free */
  unsigned char graph; /* serial of the last graph that knows it, 0: none */
  unsigned char is_borrowed, is_exported;
  moment used;
} grain;

typedef struct handle {
  uint64_t value; /* 0: free record */
  size_t bytes, map_count;
  int is_released, is_foreign; /* foreign: another process's */
  int is_odd;                  /* of a buffer whose chunks lie apart from its pool's */
  uint32_t pool;               /* that it has served, 0: none yet */
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
  int pool; /* [of a graph] NOBODY: of a block that it only uses */
} range;

typedef struct block {
  uint32_t id; /* 0: none */
  uint64_t at;
  size_t bytes, asked;
  unsigned flags;
  int on;    /* its line, NOBODY: allocated on no stream */
  int graph; /* serial of the one it was allocated in, 0: none */
  int pool, is_exclusive, is_borrowed, is_exported, is_imported;
  int may_be_borrowed; /* [of the lent pool itself] the manual does not say */
  int held;            /* graphs that use it though they have not allocated it */
  uint64_t recorded;   /* lines */
  moment born, used;
  uint32_t seed;          /* of what a kernel wrote last, 0: none has (device_use) */
  gmlake_handle *handles; /* exported */
  size_t handle_count;
  struct buffer *shows; /* whose handles they are; NULL: the block's */
  uint32_t shows_to;    /* the last of its cells that there was */
  void *shown;          /* what an import showed, which nobody changes */
} block;

typedef struct buffer {
  gmlake_buffer *value;
  uint64_t at;
  size_t chunk, max, end;
  int pool;
  block cells[CELLS]; /* id 0: a hole */
} buffer;

typedef struct pool {
  gmlake_pool *value; /* NULL: none, and the default one */
  uint32_t serial;
  size_t chunk, limit;
  int asleep; /* 1: with its contents; 2: dropped */
  int keeps;  /* perhaps: contents on the host, or room for them */
  int is_lent;
  int is_kept; /* something was admitted: no chunk of its blocks is returned */
  moment launched;
  moment recalled; /* graphs are launched behind the recalls */
} pool;

typedef struct graph {
  int serial; /* 0: none */
  int pool, is_active, is_alive;
  moment base; /* its launches are ordered behind what its stream did before the capture */
  range ranges[RANGES];
  size_t range_count;
  uint32_t held[HELD];
  size_t held_count;
} graph;

#define SERIALS 200 /* graphs of a lake */

static struct world {
  program *program;
  size_t at;                       /* the operation that is under way */
  size_t granule, chunk, capacity; /* capacity: that can be created */
  int is_chosen; /* the operations come by chance: there are many, and not all are checked */
  int is_real, is_lost, is_trusted; /* trusted: no exchange failed, the mode is known */
  int destroying, moving; /* a pool, or the lake: 2; moving: + 1 of the pool that sleeps or wakes */
  const block *leaving;   /* is freed */
  int lacks_addresses;    /* the driver has refused some, once */
  int was_refused;        /* the driver has not taken host memory back, or not been asked to */
  int has_failed;         /* something was made to fail, once */
  int is_unsure;          /* a pool was recalled, or slept: what it keeps for graphs is not known */
  int is_recalled;        /* a pool is: the call asks for waits */
  int named;              /* the line that the call names, NOBODY: none, or all may be touched */
  int mode;               /* the program's capture mode */
  int peers[3];
  uint64_t clock_ns, clock_reads;
  /* The results that calls of a kind were made to have in this operation, as bits, as they may be
     told; of ON_ANY those of all calls of the driver. */
  unsigned injected[ON_HOST + 1];
  gmlake_result fatal;           /* one that was injected, in any operation */
  size_t hits, hits_before;      /* calls made to fail; before this operation */
  int hit_kind, hit_code;        /* of the last one; what the driver answered */
  int is_lasting;                /* a fault that stays has hit */
  gmlake_result lost, was_lost;  /* what the lake has to know of a fatal error; before this one */
  size_t all_calls, all_mallocs; /* that could be made to fail */
  size_t called[ON_KINDS], failed[ON_KINDS]; /* in this operation; since the lake ends */
  int seems_gone; /* the driver has said of a stream that it is: it is forgotten */
  int errors_told, warnings_told, leaks_told;
  size_t warned_kind;       /* of the call that the last warning names */
  int is_relaxed;           /* between the lake's two exchanges of the capture mode */
  int is_copying;           /* the device may still run copies to or from the host */
  int is_untold, is_told;   /* the next begin or end of a capture: the lake, or it alone, hears */
  int has_called, is_again; /* the operation has called the lake; has to be done again */
  struct fault {
    size_t in;
    int kind, stays;
    gmlake_result result;
  } faults[4];
  struct meddling { /* operations in the middle of a call of the driver */
    size_t in, first, count;
    int kind;
  } meddlings[MEDDLINGS];
  int is_inside;
  size_t fault_count, host_in, calls;
  int descriptors;            /* [OPT_SHARE] that are open without the lake */
  size_t reserved_most;       /* at any time */
  size_t reservations, hosts; /* that the lake has */
  size_t foreign_bytes;       /* all that was ever imported */
  uint64_t driver_calls, records, stream_waits, host_waits;
  int host_stays, handler_calls, is_handling;
  int locks_made, locks_before, locks_held; /* before: there was a lake */
  int held_outside;                         /* by the call that this is in the middle of */
  int is_checking;                          /* the judge calls gmlake_check */
  uint64_t turns;                           /* of planners */
  uint64_t state_locks;                     /* times that the state lock was taken */
  moment known;
  line lines[LINES];
  int line_count;
  int slots[SLOTS]; /* the line that has the slot's value now or had it last */
  void *event;      /* the program's */
  size_t event_count;
  handle handles[HANDLES];
  map *maps[MAPS]; /* by address */
  size_t map_count;
  block blocks[NAMES];
  uint64_t starts[NAMES]; /* of each name's block, or of its last one; 0: none yet */
  buffer buffers[BUFFERS];
  const char *wanted;       /* of the next C; NULL: nothing was said */
  uint32_t came[CELLS];     /* with the last one */
  uint64_t numbered[CELLS]; /* handles of chunks that came where some were wanted */
  pool pools[POOLS + 1];    /* [0] is the default pool; pool n of the language is [n + 1] */
  graph graphs[GRAPHS];
  int dead_pool_of[SERIALS]; /* of each graph's serial its pool's serial */
  graph *of_serial[SERIALS];
  int serial;
  uint32_t next_id, next_pool;
  seen_event events[EVENTS]; /* not cleared for the next world */
} w;

static gmlake_backend *mock, judged;
static gmlake *lake;
static gmlake_desc desc;
static int is_traced;
static struct counts {
  uint64_t steps, stitches, waits, evictions, faults, launches, refusals, sleeps, lends, imports;
} counts;

/* ---- A finding ends the program that is played ----------------------------------------------- */

static struct verdict {
  sigjmp_buf end;
  int is_open;
  char rule[200];
  size_t at;
} verdict;

static void judge(int holds, const char *rule) {
  if (holds) return;
  (void)snprintf(verdict.rule, sizeof(verdict.rule), "%s", rule);
  verdict.at = w.at;
  if (!verdict.is_open) abort();
  siglongjmp(verdict.end, 1);
}

static void must(gmlake_result result, const char *what) { judge(!result, what); }

/* A finding of a stream or a block, which the rule then names as the words do. */
static void judge_for_line(int holds, const char *rule, int on) {
  const char *state;
  char text[sizeof(verdict.rule)];
  int i = 0;
  if (holds) return;
  while (i < SLOTS && w.slots[i] != on) i++;
  state = w.lines[on].is_alive ? "" : w.lines[on].is_told ? ", forgotten" : ", ended";
  (void)snprintf(text, sizeof(text), "%s: stream %c%s", rule, i < SLOTS ? slot_letters[i] : '?',
                 state);
  judge(0, text);
}

static void judge_for_block(int holds, const char *rule, const block *b) {
  const int is_named = b >= w.blocks && b < w.blocks + NAMES;
  const unsigned name = is_named ? (unsigned)(b - w.blocks) : 0;
  char text[sizeof(verdict.rule)];
  if (holds) return;
  (void)snprintf(text, sizeof(text),
                 !is_named   ? "%s: a buffer's chunk"
                 : name < 26 ? "%s: block %c"
                             : "%s: block %c.%u",
                 rule, 'a' + name % 26, name / 26);
  judge(0, text);
}

#define trace(...)                            \
  do {                                        \
    if (is_traced) (void)printf(__VA_ARGS__); \
  } while (0)

/* ---- Locks ----------------------------------------------------------------------------------- */

#define LOCK_MADE 0x10CCEDu

static void meddle_in(int kind);
static void (*before_turn)(void); /* NULL: a planner that waits for its turn is told nothing */

/* What comes behind a finding is none. */
static void judge_lock(int holds, const char *rule) { judge(holds || verdict.rule[0], rule); }

static void lock_make(watched_lock *lock) {
  lock->made = LOCK_MADE;
  lock->is_held = 0;
  w.locks_made++;
}

static void lock_end(watched_lock *lock) {
  judge_lock(lock->made == LOCK_MADE, "a lock is destroyed that was not made");
  judge_lock(!lock->is_held, "a lock is destroyed while it is held");
  lock->made = 0;
  w.locks_made--;
}

static void lock_take(watched_lock *lock) {
  const int is_planners = lake && (lock == &lake->turn || lock == &lake->driver_lock);
  if (is_planners && lock == &lake->turn && !w.is_checking) {
    w.turns++;
    if (before_turn) before_turn();
    meddle_in(ON_TURN);
  }
  judge_lock(lock->made == LOCK_MADE, "a lock is taken that was not made");
  judge_lock(!lock->is_held, "a lock is taken by who holds it");
  judge_lock(!is_planners || !lake->state_lock.is_held,
             "the planner's lock is taken by who holds the state lock");
  lock->is_held = 1;
  w.locks_held++;
  w.state_locks += lake && lock == &lake->state_lock;
}

/* What the mock has of a call is another's as soon as its lock is given back. */
static void lock_give(watched_lock *lock) {
  judge_lock(lock->is_held, "a lock is given back by who does not hold it");
  lock->is_held = 0;
  w.locks_held--;
#if !defined(PLAY_DEVICE)
  if (mock && lock == &((gmlk_mock *)mock->user)->mutex) ((gmlk_mock *)mock->user)->code = 77;
#endif
}

/* Whoever is called now finds the lake's two locks so. */
static void judge_locks(int is_state_held, int is_driver_held, const char *rule) {
  judge(!lake || !lake->has_locks ||
            (lake->state_lock.is_held == is_state_held &&
             lake->driver_lock.is_held == is_driver_held),
        rule);
}

/* ---- Clocks ---------------------------------------------------------------------------------- */

static void join(moment *into, const moment *from) {
  int i;
  for (i = 0; i < w.line_count; i++)
    if (into->at[i] < from->at[i]) into->at[i] = from->at[i];
}

/* Whether `need` is, entry by entry, behind `a` or `b`. */
static int covers(const moment *a, const moment *b, const moment *need) {
  int i;
  for (i = 0; i < w.line_count; i++)
    if (a->at[i] < need->at[i] && b->at[i] < need->at[i]) return 0;
  return 1;
}

/* `own` is behind `need`, or that is known to be complete; else whose work is not: */
static void judge_behind(const moment *own, const moment *need, const char *rule) {
  int i;
  if (covers(own, &w.known, need)) return;
  for (i = 0; i < w.line_count; i++)
    judge_for_line(own->at[i] >= need->at[i] || w.known.at[i] >= need->at[i], rule, i);
}

static int is_known(const moment *need) { return covers(&w.known, &w.known, need); }

static int is_fatal(gmlake_result result) {
  return result == GMLAKE_ERROR_DEVICE_LOST || result == GMLAKE_ERROR_SHUTTING_DOWN;
}

/* Whether streams may end untold. */
static int may_end(void) { return (desc.flags & GMLAKE_STREAMS_MAY_END) != 0; }

static int captures(void) {
  int i;
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].graph) return 1;
  return 0;
}

/* Whether work may be queued on the line outside of graphs: not on the legacy stream while others
   are captured. */
static int is_quiet(int on) {
  return on >= 0 && w.lines[on].is_alive && !w.lines[on].graph && (on || !captures());
}

/* ---- Handles and mappings -------------------------------------------------------------------- */

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
  r.pool = b->pool;
  return r;
}

/* The value of a slot's stream. */
static gmlake_stream value_in(unsigned char slot) {
  if (slot == ON_NONE) return GMLAKE_STREAM_NONE;
  return slot == ON_ONE ? (gmlake_stream)(uintptr_t)1 : w.lines[w.slots[slot]].value;
}

/* Every block and every committed chunk of a buffer: NULL behind the last. */
static block *live_next(block *last) {
  size_t i = 0;
  if (last && last >= w.blocks && last < w.blocks + NAMES) i = (size_t)(last - w.blocks) + 1;
  if (!last || (last >= w.blocks && last < w.blocks + NAMES)) {
    for (; i < NAMES; i++)
      if (w.blocks[i].id) return &w.blocks[i];
    last = NULL;
    i = 0;
  } else {
    size_t b;
    for (b = 0; b < BUFFERS; b++)
      if (last >= w.buffers[b].cells && last < w.buffers[b].cells + CELLS) break;
    i = b * CELLS + (size_t)(last - w.buffers[b].cells) + 1;
  }
  for (; i < BUFFERS * CELLS; i++)
    if (w.buffers[i / CELLS].value && w.buffers[i / CELLS].cells[i % CELLS].id)
      return &w.buffers[i / CELLS].cells[i % CELLS];
  return NULL;
}

/* NULL: none has the number. */
static block *block_with_id(uint32_t id) {
  block *b = NULL;
  while ((b = live_next(b)) && b->id != id) continue;
  return b;
}

/* ---- Calls of the driver --------------------------------------------------------------------- */

static const char *const backend_names[] = {
    "get_properties", "get_memory_info", "reserve",       "unreserve",
    "create",         "release",         "map",           "unmap",
    "set_access",     "event_create",    "event_destroy", "event_record",
    "event_query",    "event_wait",      "stream_wait",   "capture_exchange",
    "stream_id",      "device_wait",     "copy",          "host_alloc",
    "host_free",      "export_handle",   "import_handle"};

/* ON_ANY: the name is of no call of the driver. */
static size_t kind_of(const char *name) {
  size_t i = 0;
  while (i < ON_ANY && strcmp(backend_names[i], name ? name : "")) i++;
  return i;
}

static int may_lack_host(void) {
  w.all_mallocs++;
  if (!w.host_in || --w.host_in) return 0;
  w.host_in = w.host_stays ? 1 : 0;
  w.injected[ON_HOST] = BIT(GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  w.has_failed = 1;
  w.hits++;
  w.hit_kind = ON_HOST;
  w.is_lasting |= w.host_stays;
  return 1;
}

/* What is called to give something back, of a device that is lost too. */
static int gives_back(int kind) {
  return kind == ON_UNMAP || kind == ON_RELEASE || kind == ON_UNRESERVE ||
         kind == ON_EVENT_DESTROY || kind == ON_EXCHANGE || kind == ON_HOST_FREE;
}

static void meddle(const struct meddling *m); /* of player.h */

/* What is to happen in the middle of this call does. */
static void meddle_in(int kind) {
  size_t i;
  for (i = 0; i < MEDDLINGS; i++) {
    struct meddling *m = &w.meddlings[i];
    if (m->in && m->kind == kind && !--m->in) meddle(m);
  }
}

#if !defined(PLAY_DEVICE)
/* Whether the device itself fails its next call, and with which number. The mock does not: what is
   to fail does not reach it. */
static int device_fails(int kind, gmlake_result *result, int *code) {
  (void)kind;
  (void)result;
  *code = 1234;
  return 0;
}

/* How many are open, where memory is shared. A driver opens some of its own when it likes. */
static int open_descriptors(void) {
  int count = 0, fd;
  for (fd = 0; fd < 1024 && w.program->options[OPT_SHARE]; fd++) count += fcntl(fd, F_GETFD) >= 0;
  return count;
}

/* Whether work completes by itself, whatever the line says. */
static int has_own_time(void) { return 0; }

/* The line's work that uses a block is done, and a graph is. The mock's work is only believed; with
   GMLAKE_FILL it is told of uses, and has to find them right. */
static void device_use(block *b, int on) {
  gmlake_result result;
  if (!(desc.flags & GMLAKE_FILL) || lake->lost || w.program->options[OPT_EXACT]) return;
  result = gmlake_mock_use(mock, lake, (void *)(uintptr_t)b->at, b->bytes, w.lines[on].value);
  if (b->graph && result == GMLAKE_ERROR_INVALID_ARGUMENT) return; /* the program has to order it */
  must(result, "the mock refuses a use");
}
/* What is launched on a line without work that is held is complete at once. */
static int device_launch(const graph *g, int on, gmlake_result wanted) {
  const gmlake_stream stream = w.lines[on].value;
  const gmlk_mock_queue *queue = gmlk_mock_find_queue((gmlk_mock *)mock->user, stream);
  judge(gmlake_mock_launch(mock, w.pools[g->pool].value, (uint64_t)g->serial, stream) == wanted,
        "the mock launches what may not run, or refuses what may");
  if (!queue->held && !queue->lag_ns) gmlake_mock_stream_finish(mock, stream);
  return !wanted;
}

/* Whether the device has all that the words ask for. The mock has. */
static inline int is_playable(const char *words) { return words != NULL; }
#else
static int open_descriptors(void) { return 0; }
static int device_fails(int kind, gmlake_result *result, int *code);
static void device_use(block *b, int on);
static int device_launch(const graph *g, int on, gmlake_result wanted);
static inline int is_playable(const char *words);
#endif

/* Calls that a capture in the global mode forbids to the thread; only the end of a lake makes them
   though the exchange has failed. */
static int needs_relaxed(int kind) {
  return kind == ON_CREATE || kind == ON_RELEASE || kind == ON_MAP || kind == ON_UNMAP ||
         kind == ON_ACCESS || kind == ON_HOST_ALLOC || kind == ON_HOST_FREE;
}

/* What takes long holds up other planners, and nobody else. */
static int takes_long(int kind) {
  return kind == ON_INFO || kind == ON_RESERVE || kind == ON_UNRESERVE || kind == ON_HOST_WAIT ||
         kind == ON_DEVICE_WAIT || kind == ON_COPY || kind == ON_EXPORT || kind == ON_IMPORT ||
         needs_relaxed(kind);
}

/* Whether this call fails, and how. */
static gmlake_result gate(int kind, int *code) {
  gmlake_result result = GMLAKE_OK;
  int is_below;
  size_t i;
  judge(++w.calls < ALL_CALLS, "the operation does not end");
  judge(!lake || !lake->lost || gives_back(kind), "a device that is lost is asked for something");
  judge(!needs_relaxed(kind) || w.is_relaxed || w.lost || w.destroying,
        "a call that needs the relaxed capture mode");
  if (takes_long(kind) && w.destroying != 2)
    judge_locks(0, 1, "the driver is at work with other locks than a planner's");
  meddle_in(kind);
  w.called[kind]++;
  w.all_calls++;
  w.driver_calls += kind != ON_PROPERTIES && kind != ON_ID && kind != ON_EXCHANGE;
  for (i = 0; i < w.fault_count; i++) {
    struct fault *f = &w.faults[i];
    if ((f->kind != kind && f->kind != ON_ANY) || !f->in || --f->in) continue;
    if (f->stays) f->in = 1;
    /* An id that is refused is taken to say that the stream is the same. */
    if (kind == ON_ID) continue;
    if (kind == ON_RECORD && f->result == GMLAKE_ERROR_INVALID_ARGUMENT) {
      if (!w.program->options[OPT_EXACT]) continue;
      w.seems_gone = 1;
    }
    result = f->result;
    w.is_lasting |= f->stays;
  }
  if (!result) return result;
  is_below = device_fails(kind, &result, &w.hit_code);
  trace("  %s fails\n", kinds[kind]);
  w.hits++;
  w.hit_kind = kind;
  w.failed[kind]++;
  w.injected[kind] |= BIT(result == GMLAKE_ERROR_INVALID_ARGUMENT ? GMLAKE_ERROR_DRIVER : result);
  w.injected[ON_ANY] |= w.injected[kind];
  w.has_failed = 1;
  if (is_fatal(result)) w.fatal = result;
  if (is_fatal(result) && !w.lost && !(kind == ON_EXCHANGE && w.is_relaxed)) w.lost = result;
  *code = w.hit_code;
  return is_below ? GMLAKE_OK : result;
}

#define GATE(kind)                         \
  gmlake_result result = gate(kind, code); \
  if (result) return result

static gmlake_result see_properties(void *user, gmlake_device_properties *out, int *code) {
  GATE(ON_PROPERTIES);
  return mock->get_properties(user, out, code);
}
static gmlake_result see_info(void *user, size_t *free_bytes, size_t *total_bytes, int *code) {
  GATE(ON_INFO);
  return mock->get_memory_info(user, free_bytes, total_bytes, code);
}
static gmlake_result see_reserve(void *user, size_t bytes, size_t alignment, uint64_t *out,
                                 int *code) {
  gmlake_result result = gate(ON_RESERVE, code);
  if (!result) result = mock->reserve(user, bytes, alignment, out, code);
  w.reservations += !result;
  w.lacks_addresses |= result != GMLAKE_OK;
  return result;
}
static gmlake_result see_unreserve(void *user, uint64_t at, size_t bytes, int *code) {
  GATE(ON_UNRESERVE);
  result = mock->unreserve(user, at, bytes, code);
  w.reservations -= !result;
  return result;
}

static void handle_enter(uint64_t value, size_t bytes, int is_foreign) {
  handle *h = handle_of(0);
  gmlake_mock_census now_there;
  h->value = value;
  h->bytes = bytes;
  h->is_foreign = is_foreign;
  h->grains = (grain *)calloc(bytes / GRAIN, sizeof(grain));
  if (!h->grains) abort();
  gmlake_mock_get_census(mock, &now_there);
  w.foreign_bytes += is_foreign ? bytes : 0;
  if (w.reserved_most < now_there.physical_bytes + w.foreign_bytes)
    w.reserved_most = now_there.physical_bytes + w.foreign_bytes;
}

static gmlake_result see_create(void *user, size_t bytes, unsigned types, uint64_t *out,
                                int *code) {
  GATE(ON_CREATE);
  result = mock->create(user, bytes, types, out, code);
  if (!result) handle_enter(*out, bytes, 0);
  return result;
}

static gmlake_result see_import(void *user, const gmlake_handle *in, uint64_t *out, int *code) {
  GATE(ON_IMPORT);
  result = mock->import_handle(user, in, out, code);
  if (!result) handle_enter(*out, in->bytes, 1);
  return result;
}

static gmlake_result see_export(void *user, uint64_t value, gmlake_handle *out, int *code) {
  GATE(ON_EXPORT);
  return mock->export_handle(user, value, out, code);
}

static gmlake_result see_release(void *user, uint64_t value, int *code) {
  GATE(ON_RELEASE);
  result = mock->release(user, value, code);
  if (result) return result;
  handle_of(value)->is_released = 1;
  handle_reap(handle_of(value));
  return result;
}

static gmlake_result see_map(void *user, uint64_t at, size_t bytes, uint64_t value, int *code) {
  size_t place = map_above(at);
  map *m;
  GATE(ON_MAP);
  result = mock->map(user, at, bytes, value, code);
  if (result) return result;
  m = (map *)calloc(1, sizeof(*m));
  if (!m || w.map_count == MAPS) abort();
  m->at = at;
  m->of = handle_of(value);
  m->of->map_count++;
  memmove(&w.maps[place + 1], &w.maps[place], (w.map_count++ - place) * sizeof(m));
  w.maps[place] = m;
  return result;
}

static gmlake_result see_access(void *user, uint64_t at, size_t bytes, const int *peers,
                                size_t peer_count, int *code) {
  const uint64_t end = at + bytes;
  judge(peer_count == desc.peer_count &&
            (!peer_count || !memcmp(peers, w.peers, peer_count * sizeof(int))),
        "access for other devices than the description names");
  {
    GATE(ON_ACCESS);
    result = mock->set_access(user, at, bytes, peers, peer_count, code);
    while (!result && at < end) {
      map *m = map_at(at);
      m->is_accessible = 1;
      at += m->of->bytes;
    }
    return result;
  }
}

/* A block that lies there and that its pool does not move, or NULL. */
static const block *live_in(uint64_t at, size_t bytes) {
  const block *b = NULL;
  while ((b = live_next((block *)(uintptr_t)b)))
    if (b->at < at + bytes && at < b->at + b->bytes && w.moving != b->pool + 1 && b != w.leaving)
      break;
  return b;
}

static gmlake_result see_unmap(void *user, uint64_t at, size_t bytes, int *code) {
  const uint64_t end = at + bytes;
  const block *live;
  GATE(ON_UNMAP);
  result = mock->unmap(user, at, bytes, code);
  if (result) return result;
  live = live_in(at, bytes);
  judge_for_block(w.destroying == 2 || !live, "a live block was unmapped", live);
  while (at < end) {
    size_t place = map_above(at) - 1;
    map *m = w.maps[place];
    if (!w.is_lost && !w.fatal && !(w.destroying == 2 && w.injected[ON_ANY]))
      judge_behind(&w.known, &m->used, "unmapped while work may still use it");
    judge(!m->is_graphs || w.destroying || w.moving, "unmapped under a graph");
    at += m->of->bytes;
    memmove(&w.maps[place], &w.maps[place + 1], (--w.map_count - place) * sizeof(m));
    m->of->map_count--;
    handle_reap(m->of);
    free(m);
  }
  return result;
}

/* NULL: it is gone, which the line wants though streams may not end untold. */
static line *line_of(gmlake_stream value) {
  int i;
  if (value == (gmlake_stream)(uintptr_t)1) value = NULL;
  for (i = 0; i < w.line_count; i++)
    if (w.lines[i].is_alive && w.lines[i].value == value) return &w.lines[i];
  judge(w.program->options[OPT_EXACT] && !may_end(), "a call for a stream that is gone");
  return NULL;
}

/* Under GMLAKE_STREAMS_MAY_END only a call that names a stream says that it exists. */
static void judge_touched(const line *l) {
  const int on = (int)(l - w.lines);
  judge_for_line(!may_end() || !on || l->kind == GMLAKE_STREAM_STAYS || on == w.named,
                 "a stream is touched that the call does not name", on);
}

static moment *event_at(const void *value) {
  size_t i;
  for (i = w.event_count; i--;)
    if (w.events[i].value == value) return &w.events[i].at;
  judge(0, "an event that does not exist");
  return NULL;
}

static void event_enter(void *value) {
  judge(w.event_count < EVENTS, "too many events");
  memset(&w.events[w.event_count], 0, sizeof(seen_event));
  w.events[w.event_count++].value = value;
}

static gmlake_result see_event_create(void *user, void **out, int *code) {
  GATE(ON_EVENT_CREATE);
  result = mock->event_create(user, out, code);
  if (!result) event_enter(*out);
  return result;
}

static void event_leave(const void *value) {
  size_t i = 0;
  while (i < w.event_count && w.events[i].value != value) i++;
  judge(i < w.event_count, "an event was destroyed that does not exist");
  w.events[i] = w.events[--w.event_count];
}

static gmlake_result see_event_destroy(void *user, void *value, int *code) {
  GATE(ON_EVENT_DESTROY);
  result = mock->event_destroy(user, value, code);
  if (result) return result;
  event_leave(value);
  return result;
}

static gmlake_result see_record(void *user, void *value, gmlake_stream on, int *code) {
  line *l = line_of(on);
  w.driver_calls += !l;
  if (!l) return mock->event_record(user, value, on, code);
  judge_touched(l);
  judge_for_line(is_quiet((int)(l - w.lines)), "an event is recorded where a capture forbids it",
                 (int)(l - w.lines));
  {
    GATE(ON_RECORD);
    result = mock->event_record(user, value, on, code);
    if (!result) *event_at(value) = l->now;
    w.records += !result;
    return result;
  }
}

static gmlake_result see_query(void *user, void *value, int *done, int *code) {
  GATE(ON_QUERY);
  result = mock->event_query(user, value, done, code);
  if (!result && *done) join(&w.known, event_at(value));
  return result;
}

static gmlake_result see_host_wait(void *user, void *value, int *code) {
  GATE(ON_HOST_WAIT);
  result = mock->event_wait(user, value, code);
  w.host_waits++;
  if (!result) join(&w.known, event_at(value));
  return result;
}

static gmlake_result see_host_wait_any(void *user, void *const *values, unsigned count,
                                       unsigned *place, int *code) {
  GATE(ON_HOST_WAIT);
  result = mock->event_wait_any(user, values, count, place, code);
  w.host_waits++;
  if (!result) join(&w.known, event_at(values[*place]));
  return result;
}

static gmlake_result see_id(void *user, gmlake_stream stream, uint64_t *out, int *code) {
  GATE(ON_ID);
  return mock->stream_id(user, stream, out, code);
}

/* Never fails: no answer would be taken for yes. */
static gmlake_result see_is_capturing(void *user, gmlake_stream stream, int *out, int *code) {
  const gmlake_result result = mock->is_capturing(user, stream, out, code);
  judge(!result, "a stream that is gone is asked whether it is captured");
  judge(!lake || !lake->lost, "a device that is lost is asked whether a stream is captured");
  return result;
}

static gmlake_result see_device_wait(void *user, int *code) {
  int i;
  judge(!captures(), "the whole device is waited for though a capture forbids it");
  {
    GATE(ON_DEVICE_WAIT);
    result = mock->device_wait(user, code);
    w.host_waits++;
    for (i = 0; i < w.line_count && !result; i++)
      if (w.known.at[i] < w.lines[i].now.at[i]) w.known.at[i] = w.lines[i].now.at[i];
    return result;
  }
}

static gmlake_result see_stream_wait(void *user, gmlake_stream on, void *value, int *code) {
  line *l = line_of(on);
  w.driver_calls += !l;
  if (!l) return mock->stream_wait(user, on, value, code);
  judge_touched(l);
  judge_for_line(l->kind != GMLAKE_STREAM_COMMUNICATION || w.is_recalled,
                 "a stream that communicates was made to wait", (int)(l - w.lines));
  judge_for_line(is_quiet((int)(l - w.lines)),
                 "a stream was made to wait where a capture forbids it", (int)(l - w.lines));
  {
    GATE(ON_STREAM_WAIT);
    result = mock->stream_wait(user, on, value, code);
    w.stream_waits += !result;
    if (!result) join(&l->now, event_at(value));
    return result;
  }
}

static gmlake_result see_exchange(void *user, int *mode, int *code) {
  gmlake_result result = gate(ON_EXCHANGE, code);
  if (!result) result = mock->capture_exchange(user, mode, code);
  w.is_relaxed = !w.is_relaxed && !result;
  if (result) w.is_trusted = 0;
  if (result) w.was_refused = 1;
  return result;
}

/* What is copied is in use meanwhile: it is mapped, and no work is pending on it. */
static gmlake_result see_copy(void *user, uint64_t at, void *host, size_t bytes, int to_host,
                              int *code) {
  uint64_t end = at + bytes;
  gmlake_result result;
  int ignored = 0;
  judge(bytes || w.is_copying, "a wait for copies where none runs");
  result = gate(ON_COPY, code);
  w.is_copying = !result && bytes;
  if (result) (void)mock->copy(user, 0, NULL, 0, 0, &ignored); /* after an error no copy runs */
  if (result) return result;
  for (; at < end;) {
    const map *m = map_at(at);
    judge(m && m->is_accessible, "what is copied is not mapped");
    judge(is_known(&m->used) || w.is_lost, "copied while work may still use it");
    at = m->at + m->of->bytes;
  }
  result = mock->copy(user, end - bytes, host, bytes, to_host, code);
  w.is_copying = !result && bytes;
  return result;
}
static gmlake_result see_host_alloc(void *user, size_t bytes, void **out, int *code) {
  GATE(ON_HOST_ALLOC);
  result = mock->host_alloc(user, bytes, out, code);
  w.hosts += !result;
  return result;
}
static gmlake_result see_host_free(void *user, void *host, int *code) {
  gmlake_result result = gate(ON_HOST_FREE, code);
  if (!result) result = mock->host_free(user, host, code);
  w.hosts -= !result;
  if (result) w.was_refused = 1;
  return result;
}

/* What the words say has passed passes for the lake, too. */
static uint64_t see_clock(void *user) {
  w.clock_reads++;
  return mock->clock_ns(user) + w.clock_ns;
}

static void watch(void) {
  judged = *mock;
  judged.clock_ns = see_clock;
  judged.get_properties = see_properties;
  judged.get_memory_info = see_info;
  judged.reserve = see_reserve;
  judged.unreserve = see_unreserve;
  judged.create = see_create;
  judged.release = see_release;
  judged.map = see_map;
  judged.unmap = see_unmap;
  judged.set_access = see_access;
  judged.event_create = see_event_create;
  judged.event_destroy = see_event_destroy;
  judged.event_record = see_record;
  judged.event_query = see_query;
  judged.event_wait = see_host_wait;
  judged.event_wait_any = see_host_wait_any;
  judged.stream_wait = see_stream_wait;
  judged.capture_exchange = see_exchange;
  judged.stream_id = see_id;
  judged.is_capturing = see_is_capturing;
  judged.device_wait = see_device_wait;
  judged.copy = see_copy;
  judged.host_alloc = see_host_alloc;
  judged.host_free = see_host_free;
  judged.export_handle = see_export;
  judged.import_handle = see_import;
}

/* ---- The program's own events --------------------------------------------------------------- */

static void *program_event(void) {
  void *event;
  int code = 0;
  must(mock->event_create(mock->user, &event, &code), "the program's event");
  event_enter(event);
  return event;
}

static void program_record(void *event, int on) {
  int code = 0;
  must(mock->event_record(mock->user, event, w.lines[on].value, &code), "the program's record");
  *event_at(event) = w.lines[on].now;
}

/* How many it has. */
static size_t own_events(void) {
  size_t count = w.event != NULL;
  int i;
  for (i = 0; i < w.line_count; i++) count += w.lines[i].end != NULL;
  return count;
}

/* ---- Host memory ----------------------------------------------------------------------------- */

#define HOST_REFUSES() may_lack_host()
#define HOST_BROKEN(text) judge(0, "the lake: " text)
#include "host.h"

/* ---- Contents -------------------------------------------------------------------------------- */

/* Every 512 bytes of a live block hold its number and their place in it. */
static uint64_t stamp_of(const block *b, size_t at) { return (uint64_t)b->id << 32 | at / GRAIN; }

static void write_stamps(block *b) {
  size_t at;
  b->seed = 0;
  for (at = 0; w.is_real && !b->is_imported && at < b->bytes; at += GRAIN) {
    const uint64_t stamp = stamp_of(b, at);
    memcpy((char *)(uintptr_t)b->at + at, &stamp, sizeof(stamp));
  }
}

static void judge_stamps(const block *b) {
  size_t at;
  uint64_t stamp;
  if (!w.is_real || w.pools[b->pool].asleep || w.is_lost || w.fatal) return;
  if (b->shown)
    judge(!memcmp((void *)(uintptr_t)b->at, b->shown, b->bytes), "an import has changed");
  for (at = 0; at < b->bytes && !b->is_imported; at += GRAIN) {
    memcpy(&stamp, (const char *)(uintptr_t)b->at + at, sizeof(stamp));
    judge_for_block(stamp == stamp_of(b, at), "a live block does not hold what was written to it",
                    b);
  }
}

/* ---- Handing over ---------------------------------------------------------------------------- */

static void judge_grain(const grain *g, const moment *own, int number, int from, int is_transient) {
  const graph *former = g->graph ? w.of_serial[g->graph] : NULL;
  if (former && former->serial != g->graph) former = NULL;
  judge_for_block(!g->owner, "two live blocks share memory", block_with_id(g->owner));
  judge(!g->is_exported, "exported memory was handed over");
  if (!g->graph || is_transient) {
    judge_behind(own, &g->used, "handed over while work may still use it");
    if (!g->graph) return;
  }
  judge(!is_transient || !former || !former->is_active, "a capture's memory was borrowed");
  if (is_transient) return;
  judge(number != 0, "memory of a graph was handed over outside captures");
  judge(w.dead_pool_of[g->graph] == (int)w.pools[from].serial,
        "memory of a graph went to another pool");
  judge(!former || !former->is_active || g->graph == number, "two captures share memory");
}

/* The pool's place in w.pools; 0: it is none of the program's, or the default one. */
static int pool_of_value(const gmlake_pool *value) {
  int i = value ? POOLS : 0;
  while (i && w.pools[i].value != value) i--;
  return i;
}

static int pool_of_serial(uint32_t serial) {
  int i;
  for (i = 0; i <= POOLS; i++)
    if (w.pools[i].serial == serial) return i;
  return NOBODY;
}

/* Whether a buffer's chunk lies apart from its pool's blocks. */
static int lies_apart(const block *b) {
  size_t i;
  for (i = 0; i < BUFFERS; i++)
    if (b >= w.buffers[i].cells && b < w.buffers[i].cells + CELLS)
      return w.buffers[i].chunk != w.pools[w.buffers[i].pool].chunk || desc.policy;
  return 0;
}

/* The block's range is its own; its stream is ordered behind `own`. New chunks are of pool `fresh`.
 */
static void hand_over(block *b, const moment *own, int number, int is_transient, int fresh) {
  range r = range_of(b);
  map *m = NULL;
  grain *g;
  const int from = b->pool;
  while ((g = next_grain(&r, &m))) {
    const int other = m->of->pool ? pool_of_serial(m->of->pool) : fresh;
    const int borrows =
        is_transient && other >= 0 && w.pools[other].is_lent && (other != from || g->graph);
    judge(m->is_accessible, "a block lies in memory without access");
    judge_grain(g, own, number, from, borrows);
    judge(other == from || borrows, "a pool's memory serves another");
    m->of->pool = w.pools[other < 0 ? from : other].serial;
    m->of->is_odd |= lies_apart(b);
    g->owner = b->id;
    g->is_borrowed = (unsigned char)borrows;
    b->is_borrowed |= borrows;
    b->may_be_borrowed |= is_transient && other >= 0 && w.pools[other].is_lent;
    if (borrows) b->pool = other; /* whose memory it is */
    if (!number) continue;
    g->graph = (unsigned char)number;
    m->is_graphs = 1;
  }
}

static void give_back(const block *b) {
  range r = range_of(b);
  map *m = NULL;
  grain *g;
  if (!w.pools[b->pool].asleep)
    while ((g = next_grain(&r, &m))) g->owner = 0;
}

/* Its chunks are nobody else's. A handle may be of several. */
static void judge_exclusive(const block *b, size_t chunk_bytes) {
  const size_t chunk = chunk_bytes / GRAIN;
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

/* A pool's memory is new: whose it is, and what graphs know of it. */
static void own_again(int number) {
  block *b = NULL;
  size_t i, n;
  for (i = 0; i < HANDLES; i++) { /* that the driver did not take back */
    handle *h = &w.handles[i];
    if (!h->value || h->is_foreign || h->pool != w.pools[number].serial) continue;
    for (n = 0; n < h->bytes / GRAIN; n++) h->grains[n].owner = 0;
  }
  while ((b = live_next(b))) {
    range r = range_of(b);
    map *m = NULL;
    grain *g;
    if (b->pool != number || b->is_imported) continue;
    while ((g = next_grain(&r, &m))) {
      judge(m->is_accessible, "a block lies in memory without access");
      judge_for_block(!g->owner || g->owner == b->id, "two live blocks share memory", b);
      g->owner = b->id;
      m->of->pool = w.pools[number].serial;
      m->of->is_odd |= lies_apart(b);
      if (b->graph) g->graph = (unsigned char)b->graph, m->is_graphs = 1;
    }
  }
  for (i = 0; i < GRAPHS; i++) {
    graph *of = &w.graphs[i];
    for (n = 0; of->serial && n < of->range_count; n++) {
      range r = of->ranges[n];
      map *m = NULL;
      grain *g;
      if (r.pool != number) continue; /* of a block that it uses */
      while ((g = next_grain(&r, &m))) {
        if (g->graph < of->serial) g->graph = (unsigned char)of->serial;
        m->is_graphs = 1;
        m->of->pool = w.pools[number].serial;
      }
    }
  }
}

/* How far all use of a pool's memory goes. */
static moment uses_of_pool(int number) {
  moment need = w.pools[number].launched;
  size_t i, n;
  for (i = 0; i < HANDLES; i++) {
    const handle *h = &w.handles[i];
    if (!h->value || h->pool != w.pools[number].serial) continue;
    for (n = 0; n < h->bytes / GRAIN; n++) join(&need, &h->grains[n].used);
  }
  return need;
}

/* Whoever is behind the recall is behind all who borrowed. */
static void judge_recall(int number, int on) {
  size_t i, n;
  for (i = 0; i < HANDLES; i++) {
    const handle *h = &w.handles[i];
    if (!h->value || h->pool != w.pools[number].serial) continue;
    for (n = 0; n < h->bytes / GRAIN; n++) {
      grain *g = &h->grains[n];
      if (!g->is_borrowed) continue;
      judge(!g->owner, "a pool was recalled from under a borrowed block");
      judge_behind(&w.lines[on].now, &g->used,
                   "a pool is recalled while a borrower may still use it");
      g->is_borrowed = 0;
    }
  }
}

#endif /* PLAY_JUDGE_H */
