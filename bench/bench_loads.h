/* What bench.c measures: the operations, which are all prepared in advance, and the allocators that
   serve them. pre: the implementations of gmlake.h, with the mock, and of gmlake_bfc.h come
   first. */
#if !defined(BENCH_LOADS_H)
#define BENCH_LOADS_H

#include <dlfcn.h>
#include <malloc.h>
#include <math.h>
#include <stdlib.h>

#include "hard.h"
#include "peer.h"
#include "splitmix.h"
#include "trace.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define DEVICE_BYTES (143154 * MIB) /* an H200: 139.8 GiB */
#define CHUNK_BYTES (16 * MIB)

/* ---- Operations ------------------------------------------------------------------------------ */

typedef struct op {
  uint32_t slot; /* of the block */
  uint16_t stream, is_free;
  size_t bytes; /* of an allocation; not 0 */
} op;

typedef struct range {
  size_t begin, end, rounds;
} range;

/* Operations that are prepared in advance, in three ranges. After each range the live blocks are
   those before it, or as many. So a range can be repeated; the ranges of a trace are all the
   same. */
typedef struct workload {
  char name[64];
  op *ops;
  size_t op_count, capacity;
  range warm, timed, inspected;
  size_t slot_count; /* also the largest number of live blocks */
  size_t stream_count, device_bytes;
} workload;

static uint64_t random_state;

static size_t random_below(size_t n) { return (size_t)(splitmix64(&random_state) % n); }

/* fixed_bytes, or a random size if that is 0. */
static size_t random_bytes(size_t fixed_bytes) {
  const double unit = (double)(splitmix64(&random_state) >> 11) / 9007199254740992.0; /* 2^53 */
  return fixed_bytes ? fixed_bytes : (size_t)(512 * exp2(13 * unit));
}

static void add_op(workload *w, size_t slot, size_t stream, size_t bytes) {
  op *o;
  if (w->op_count == w->capacity) {
    w->capacity = w->capacity ? w->capacity * 2 : 4096;
    w->ops = (op *)realloc(w->ops, w->capacity * sizeof(op));
    if (!w->ops) abort();
  }
  o = &w->ops[w->op_count++];
  o->slot = (uint32_t)slot;
  o->stream = (uint16_t)stream;
  o->is_free = !bytes;
  o->bytes = bytes;
}

typedef enum order { ORDER_RANDOM, ORDER_FIFO, ORDER_LIFO, ORDER_PHASES, ORDER_COMB } order;

typedef struct load {
  const char *name;
  order by;
  size_t live, fixed_bytes;
} load;

static const load loads[] = {{"random-64", ORDER_RANDOM, 64, 0},
                             {"random-1024", ORDER_RANDOM, 1024, 0},
                             {"random-16384", ORDER_RANDOM, 16384, 0},
                             {"random-131072", ORDER_RANDOM, 131072, 0},
                             {"random-1048576", ORDER_RANDOM, 1048576, 0},
                             {"lifo", ORDER_LIFO, 1024, 0},
                             {"fifo", ORDER_FIFO, 1024, 0},
                             {"one-64k", ORDER_RANDOM, 1024, 64 * KIB},
                             {"one-1m", ORDER_RANDOM, 1024, MIB},
                             {"phases", ORDER_PHASES, 801, CHUNK_BYTES},
                             {"comb", ORDER_COMB, HARD_COMB_SLOTS(1000), CHUNK_BYTES}};

#define LOAD_COUNT (sizeof loads / sizeof loads[0])

/* Adds pairs of operations: each pair frees a block and allocates another one in its place. */
static range add_replacements(workload *w, const load *l, size_t pair_count, size_t *next) {
  range added = {w->op_count, 0, 1};
  size_t i;
  for (i = 0; i < pair_count; i++) {
    const size_t slot = l->by == ORDER_FIFO ? (*next)++ % l->live : random_below(l->live);
    add_op(w, slot, 0, 0);
    add_op(w, slot, 0, random_bytes(l->fixed_bytes));
  }
  added.end = w->op_count;
  return added;
}

static range add_stacks(workload *w, const load *l, size_t round_count) {
  range added = {w->op_count, 0, 1};
  size_t i, slot;
  for (i = 0; i < round_count; i++) {
    for (slot = 0; slot < l->live; slot++) add_op(w, slot, 0, random_bytes(l->fixed_bytes));
    while (slot--) add_op(w, slot, 0, 0);
  }
  added.end = w->op_count;
  return added;
}

static void add_emitted(void *user, size_t slot, size_t bytes) {
  add_op((workload *)user, slot, 0, bytes);
}

/* A hard program, with the load's number of slots, until about so many operations are added. */
static range add_hard(workload *w, const load *l, size_t op_count) {
  range added = {w->op_count, 0, 1};
  do {
    if (l->by == ORDER_PHASES)
      hard_phases(l->live / HARD_PHASE_SLOTS, l->fixed_bytes, add_emitted, w);
    else
      hard_comb(l->live / 5 * 2, l->fixed_bytes, 64 * KIB, 1, 1, add_emitted, w);
  } while (w->op_count - added.begin < op_count);
  added.end = w->op_count;
  return added;
}

/* Before time is measured, all blocks are allocated and many of them replaced. */
static void make_load(workload *w, const load *l, size_t op_count) {
  const size_t pairs = op_count / 2 ? op_count / 2 : 1;
  size_t slot, next = 0;
  memset(w, 0, sizeof *w);
  snprintf(w->name, sizeof w->name, "%s", l->name);
  random_state = l->live;
  w->slot_count = l->live;
  w->stream_count = 1;
  w->device_bytes = l->live > 131072 ? 1024 * 1024 * MIB : DEVICE_BYTES;
  if (l->by == ORDER_LIFO) {
    const size_t rounds = pairs / l->live ? pairs / l->live : 1;
    w->warm = add_stacks(w, l, rounds);
    w->timed = add_stacks(w, l, rounds);
    w->inspected = add_stacks(w, l, rounds);
    return;
  }
  if (l->by == ORDER_PHASES || l->by == ORDER_COMB) {
    if (l->by == ORDER_PHASES)
      hard_phases_begin(l->live / HARD_PHASE_SLOTS, l->fixed_bytes, add_emitted, w);
    w->warm = add_hard(w, l, op_count);
    w->warm.begin = 0;
    w->timed = add_hard(w, l, op_count);
    w->inspected = add_hard(w, l, op_count);
    return;
  }
  for (slot = 0; slot < l->live; slot++) add_op(w, slot, 0, random_bytes(l->fixed_bytes));
  w->warm = add_replacements(w, l, pairs > l->live / 4 ? pairs : l->live / 4, &next);
  w->warm.begin = 0;
  w->timed = add_replacements(w, l, pairs, &next);
  w->inspected = add_replacements(w, l, pairs, &next);
}

/* At the end of a pass, blocks that are still live are freed, the last allocation first. */
static void make_trace(workload *w, const char *name, const trace *t, size_t op_count) {
  size_t *live = (size_t *)calloc(t->id_count, sizeof(size_t)); /* for each id: op index + 1 */
  size_t i;
  if (!live) abort();
  memset(w, 0, sizeof *w);
  snprintf(w->name, sizeof w->name, "%s", name);
  for (i = 0; i < t->op_count; i++) {
    const trace_op *o = &t->ops[i];
    if (!o->bytes) continue;
    live[o->id] = o->type == TRACE_ALLOC ? i + 1 : 0;
    add_op(w, o->id, o->stream, o->type == TRACE_ALLOC ? o->bytes : 0);
  }
  for (i = t->op_count; i--;) {
    const trace_op *o = &t->ops[i];
    if (live[o->id] == i + 1) add_op(w, o->id, o->stream, 0);
  }
  free(live);
  w->warm.end = w->timed.end = w->inspected.end = w->op_count;
  w->warm.rounds = 3;
  w->timed.rounds = op_count / (w->op_count + 1) + 1;
  w->inspected.rounds = 1;
  w->slot_count = t->id_count;
  w->stream_count = t->stream_count;
  w->device_bytes = DEVICE_BYTES;
}

/* ---- Allocators ------------------------------------------------------------------------------ */

typedef struct counts {                                /* NAN: not known */
  double driver_calls, metadata_bytes, reserved_bytes; /* the last two are peaks */
} counts;

/* Nothing is closed, because the process ends. open returns NULL if it succeeds, else what went
   wrong. alloc returns NULL on failure, free_block a number that is not 0. */
typedef struct allocator {
  const char *name, *head; /* its name in JSON, and in tables */
  unsigned flags;          /* of the lake */
  const struct peer *peer; /* NULL: no peer */
  const char *(*open)(const struct allocator *with, const workload *w, void **out_self);
  void *(*alloc)(void *self, const op *o);
  int (*free_block)(void *self, const op *o, void *ptr);
  void (*count)(void *self, counts *out); /* NULL: nothing is known */
  uint64_t (*driver_calls)(void *self);   /* until now; NULL: it calls no driver */
} allocator;

typedef struct lake_run {
  gmlake *lake;
  gmlake_stream streams[TRACE_STREAMS_MAX]; /* the first is the legacy stream */
  uint64_t events[GMLAKE_STEP_END + 1];     /* by kind */
} lake_run;

static int is_observed; /* lakes have an observer, which counts */

static void lake_note(void *user, const gmlake_step *event) {
  ((lake_run *)user)->events[event->kind]++;
}

static const char *lake_open(const allocator *with, const workload *w, void **out_self) {
  lake_run *run = (lake_run *)calloc(1, sizeof(lake_run));
  gmlake_result result;
  gmlake_backend *backend;
  gmlake_mock_desc mock;
  gmlake_desc desc;
  size_t i;
  if (!run) return "out of memory";
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.capacity_bytes = w->device_bytes;
  mock.bookkeeping_only = 1;
  result = gmlake_mock_create(&mock, &backend);
  for (i = 1; i < w->stream_count && !result; i++)
    result = gmlake_mock_stream_create(backend, &run->streams[i]);
  if (result) return gmlake_result_name(result);
  desc.backend = backend;
  desc.flags = with->flags;
  desc.chunk_bytes = CHUNK_BYTES;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  desc.observer.fn = is_observed ? lake_note : NULL;
  desc.observer.user = run;
  result = gmlake_create(&desc, &run->lake);
  *out_self = run;
  return result ? gmlake_result_name(result) : NULL;
}

static void *lake_alloc(void *self, const op *o) {
  lake_run *run = (lake_run *)self;
  void *ptr;
  gmlake_alloc(run->lake, o->bytes, run->streams[o->stream], &ptr);
  return ptr;
}

static int lake_free(void *self, const op *o, void *ptr) {
  lake_run *run = (lake_run *)self;
  return gmlake_free(run->lake, ptr, run->streams[o->stream]) != GMLAKE_OK;
}

static void lake_count(void *self, counts *out) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  gmlake_get_stats(((lake_run *)self)->lake, &stats);
  out->driver_calls = (double)stats.driver_call_count;
  out->metadata_bytes = (double)stats.metadata_bytes_peak;
  out->reserved_bytes = (double)stats.reserved_bytes_peak;
}

/* Does not call gmlake_get_stats, which would disturb the next measurement. */
static uint64_t lake_driver_calls(void *self) {
  return ((lake_run *)self)->lake->stats.driver_call_count;
}

static void *bfc_segment_alloc(void *user, size_t bytes) {
  uintptr_t *next_address = (uintptr_t *)user;
  const uintptr_t address = *next_address;
  *next_address += (bytes + 2 * MIB - 1) & ~(2 * MIB - 1);
  return (void *)address;
}

static void bfc_segment_free(void *user, void *segment, size_t bytes) {
  (void)user;
  (void)segment;
  (void)bytes;
}

static const char *bfc_open(const allocator *with, const workload *w, void **out_self) {
  static uintptr_t next_address = (uintptr_t)1 << 40;
  gmlake_bfc_result result;
  gmlake_bfc *bfc;
  gmlake_bfc_desc desc;
  (void)with;
  (void)w;
  memset(&desc, 0, sizeof desc);
  desc.segment_alloc = bfc_segment_alloc;
  desc.segment_free = bfc_segment_free;
  desc.user = &next_address;
  result = gmlake_bfc_create(&desc, &bfc);
  *out_self = bfc;
  return result ? gmlake_bfc_result_name(result) : NULL;
}

static void *bfc_alloc(void *self, const op *o) {
  void *ptr;
  gmlake_bfc_alloc((gmlake_bfc *)self, o->bytes, (void *)(uintptr_t)o->stream, &ptr);
  return ptr;
}

static int bfc_free(void *self, const op *o, void *ptr) {
  (void)o;
  return gmlake_bfc_free((gmlake_bfc *)self, ptr) != GMLAKE_BFC_OK;
}

static void bfc_count(void *self, counts *out) {
  gmlake_bfc_stats stats;
  memset(&stats, 0, sizeof stats);
  gmlake_bfc_get_stats((gmlake_bfc *)self, &stats);
  out->driver_calls = (double)(stats.segment_alloc_count + stats.segment_free_count);
  out->metadata_bytes = (double)stats.metadata_bytes_peak;
  out->reserved_bytes = (double)stats.reserved_bytes_peak;
}

/* malloc and mimalloc are to show how fast an allocator can be. So they must not call the system
   while time is measured. */
typedef struct heap {
  void *(*alloc)(size_t bytes);
  void (*free_block)(void *ptr);
} heap;

static heap mimalloc;
static uint64_t floor_divisor = 32;

static const char *malloc_open(const allocator *with, const workload *w, void **out_self) {
  static heap libc = {malloc, free};
  (void)with;
  (void)w;
  mallopt(M_MMAP_MAX, 0);
  mallopt(M_TRIM_THRESHOLD, -1);
  mallopt(M_TOP_PAD, (int)(64 * MIB));
  *out_self = &libc;
  return NULL;
}

static const char *mimalloc_open(const allocator *with, const workload *w, void **out_self) {
  (void)with;
  (void)w;
  *out_self = &mimalloc;
  return NULL;
}

static int mimalloc_load(void) {
  static const char *const names[] = {"libmimalloc.so.2", "libmimalloc.so.3", "libmimalloc.so"};
  void *library = NULL;
  size_t i;
  setenv("MIMALLOC_ALLOW_DECOMMIT", "0", 1); /* before 2.1 */
  setenv("MIMALLOC_PAGE_RESET", "0", 1);
  setenv("MIMALLOC_PURGE_DELAY", "-1", 1);
  for (i = 0; i < 3 && !library; i++) library = dlopen(names[i], RTLD_NOW | RTLD_LOCAL);
  if (!library) return 0;
  *(void **)&mimalloc.alloc = dlsym(library, "mi_malloc");
  *(void **)&mimalloc.free_block = dlsym(library, "mi_free");
  return mimalloc.alloc && mimalloc.free_block;
}

static void *heap_alloc(void *self, const op *o) {
  return ((heap *)self)->alloc(o->bytes < floor_divisor ? 1 : o->bytes / floor_divisor);
}

static int heap_free(void *self, const op *o, void *ptr) {
  (void)o;
  ((heap *)self)->free_block(ptr);
  return 0;
}

/* An allocator that does nothing: it measures the measuring loop. */
static void *loop_alloc(void *self, const op *o) { return o ? self : NULL; }
static int loop_free(void *self, const op *o, void *ptr) { return !self || !o || !ptr; }

/* The functions of a peer, and the allocator that it has opened. */
typedef struct peer {
  char name[24];
  __typeof__(peer_open) *open;
  __typeof__(peer_alloc) *alloc;
  __typeof__(peer_free) *free_block;
  __typeof__(peer_reserved_peak) *reserved_peak; /* NULL: not known */
  void *self;
} peer;

static const char *peer_start(const allocator *with, const workload *w, void **out_self) {
  peer *run = (peer *)malloc(sizeof(peer));
  if (!run) return "out of memory";
  *run = *with->peer;
  run->self = run->open(w->device_bytes, w->slot_count, w->stream_count);
  *out_self = run;
  return run->self ? NULL : "peer_open answers NULL";
}

static void *peer_take(void *self, const op *o) {
  const peer *run = (const peer *)self;
  return run->alloc(run->self, o->bytes, o->stream);
}

static int peer_give(void *self, const op *o, void *ptr) {
  const peer *run = (const peer *)self;
  (void)o;
  return run->free_block(run->self, ptr);
}

static void peer_count_bytes(void *self, counts *out) {
  const peer *run = (const peer *)self;
  if (run->reserved_peak) out->reserved_bytes = (double)run->reserved_peak(run->self);
}

enum { LOOP, LAKE, UNLOCKED, BFC, MALLOC, MIMALLOC };

#define PEERS_MAX 4 /* the one that make bench builds, and 3 that the user names */
#define ALLOCATORS_MAX (MIMALLOC + 1 + PEERS_MAX)

static allocator allocators[ALLOCATORS_MAX] = {
    {"loop", "loop", 0, NULL, malloc_open, loop_alloc, loop_free, NULL, NULL},
    {"lake", "lake", 0, NULL, lake_open, lake_alloc, lake_free, lake_count, lake_driver_calls},
    {"lake_single_threaded", "unlocked", GMLAKE_SINGLE_THREADED, NULL, lake_open, lake_alloc,
     lake_free, lake_count, lake_driver_calls},
    {"bfc", "bfc", 0, NULL, bfc_open, bfc_alloc, bfc_free, bfc_count, NULL},
    {"malloc", "malloc", 0, NULL, malloc_open, heap_alloc, heap_free, NULL, NULL},
    {"mimalloc", "mimalloc", 0, NULL, mimalloc_open, heap_alloc, heap_free, NULL, NULL}};

static size_t allocator_count;
static int has_mimalloc; /* if not, the first peer has its place */

static void find_allocators(void) {
  has_mimalloc = mimalloc_load();
  allocator_count = has_mimalloc ? MIMALLOC + 1 : MIMALLOC;
}

static void name_peer(peer *p, const char *path) {
  const char *slash = strrchr(path, '/'), *name = slash ? slash + 1 : path;
  if (!strncmp(name, "peer_", 5)) name += 5;
  snprintf(p->name, sizeof p->name, "%.*s", (int)strcspn(name, "."), name);
}

/* Adds the allocator of a library. Returns NULL, or what is wrong with the library. */
static const char *load_peer(const char *path) {
  static peer peers[PEERS_MAX];
  static size_t peer_count;
  allocator added = {NULL, NULL, 0, NULL, peer_start, peer_take, peer_give, peer_count_bytes, NULL};
  peer *p = &peers[peer_count];
  char with_slash[512];
  void *library;
  snprintf(with_slash, sizeof with_slash, "%s%s", strchr(path, '/') ? "" : "./", path);
  library = dlopen(with_slash, RTLD_NOW | RTLD_LOCAL);
  if (!library) return dlerror();
  *(void **)&p->open = dlsym(library, "peer_open");
  *(void **)&p->alloc = dlsym(library, "peer_alloc");
  *(void **)&p->free_block = dlsym(library, "peer_free");
  *(void **)&p->reserved_peak = dlsym(library, "peer_reserved_peak");
  if (!p->open || !p->alloc || !p->free_block) return "it lacks a function of bench/peer.h";
  name_peer(p, path);
  added.name = added.head = p->name;
  added.peer = p;
  peer_count++;
  allocators[allocator_count++] = added;
  return NULL;
}

/* The index of the allocator with that name; allocator_count if there is none. */
static size_t find_allocator(const char *name) {
  size_t a = 0;
  while (a < allocator_count && strcmp(name, allocators[a].name)) a++;
  return a;
}

#endif
