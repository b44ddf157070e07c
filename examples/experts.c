/* Shows a mixture of experts that is larger than the device's memory, with each expert at an
   address that never changes. A growing buffer has addresses for all experts of all layers: expert
   n lies at base + n * stride. Only those that were used last have memory. When the router chooses
   another one, a miss, the program commits its chunks (gmlake_buffer_commit) and copies it
   there from pinned host memory. Those that were not used for longest leave by
   gmlake_buffer_discard. Nothing moves, so each graph is captured once: two for each layer, one up
   to the router's choice, and one for the experts' work. The kernel finds an expert by its number.

   Who waits for whom:
   - The host waits for a layer's router, since nobody knows the choice earlier, and for nothing
     else. The program measures what this look costs, and prints it.
   - All commits, discards and copies are on the copy stream. So an expert's memory serves the next
     one in the order of that stream. A discard comes behind an event: the copy stream waits for the
     last work of that expert's layer.
   - The experts' work waits for the event behind its layer's copies.
   - While a router works, the copy stream fetches what its layer will likely choose: those that
     followed when the experts of the layer before were last chosen.

   Which chunk an expert gets: to give a place another chunk takes 33 us on an H200 (cuMemUnmap 13,
   cuMemSetAccess 20), for each chunk, whatever its size; for neighbours in one call hardly less.
   The link takes 127 us for 6.75 MiB. So an expert is one chunk, where memory allows, not several.
   More than half of these calls can be saved: an expert that left is still mapped to the chunk that
   it had, and to commit it with that chunk calls no driver. So if that chunk's owner is old enough
   (--reuse: percent of the oldest one's age), this one leaves, and not the oldest.

   Keys and values are another buffer with chunks of the same size, in the same lake. They grow by
   what experts discard, and shrink for experts that come.

   An address takes whole chunks: 8 MiB for 6.75. Views do not. There experts lie side by side in
   another buffer, the store, each in any part of it. An expert has addresses of its own, at which
   the program maps the chunks in which its part lies, by their handles (gmlake_get_chunks). So it
   keeps its address, as long as its parts begin at the same offset to the granularity: each expert
   has a class, its number modulo 8 for 6.75 MiB, and a part of that class. A chunk is mapped at as
   many places as it holds experts, and at those of experts that left.

   Two other methods run over the same tokens in the same memory, to compare. Slots with a table: an
   expert lies anywhere; the kernel finds it by a table that the host uploads; graphs are kept.
   Slots with copies: each chosen expert is copied within the device to where the kernel expects it,
   and kernels are launched one by one. Slots lie side by side, or are as large as an address's
   chunks.

   Routing is a Markov chain of topics: with each token the topic changes with a probability
   (--change), and a topic has a set of experts in each layer, from which some choices stray. The
   defaults of these options are such that, with 10 of 512 experts chosen, 64 experts in memory hit
   about 67 % and 128 about 81 %, as llama.cpp's pull request 27861 reports. --trace FILE reads the
   choices in place of it: for each token and layer the numbers of the chosen experts.

   Each word of an expert is its number plus 1. The kernel compares all of them, so that it notices
   an expert which it uses too early, or whose memory another one got too early. On the mock, copies
   take effect as late as the waits allow. Its time is modelled: calls of the driver by the mock's
   costs, the link and the memory as measured on an H200, launches as experts_device.h assumes. For
   sizes that the host cannot have, the mock keeps the books alone, and no words are compared.

   Compile it in the directory of gmlake.h. On the mock:
     cc -O2 -I. examples/experts.c -o experts -lpthread -ldl && ./experts
     ./experts --large        (256 experts in 40 layers, 67.5 GiB, in 24 GiB)
   On a GPU, where --large wants 70 GiB of host memory:
     cc -O2 -I. -I/usr/local/cuda/include -DEXPERTS_CUDA examples/experts.c -o experts \
       -lcuda -lpthread -ldl */
#define GMLAKE_IMPLEMENTATION
#if !defined(EXPERTS_CUDA)
#define GMLAKE_BACKEND_MOCK
#endif
#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define NOBODY UINT32_MAX
#define EXPERT_SALT 1u        /* each word of an expert is its number and this; */
#define KEYS_SALT 0x40000000u /* of a chunk of keys and values, its number and this */
#define KEYS_ROW (4 * KIB)    /* of each such chunk that is written and compared */
#define CLASSES_MAX 64
#define PART (64 * KIB) /* a view's size is a multiple */
#define NEAR 3          /* layers, this one and the next, whose experts do not leave */

static struct options {
  unsigned layers, experts, chosen, expert_kib, chunk_mib, limit_mib, tokens;
  unsigned change, topics, stray, ahead, reuse, kernels, trade_mib, share_mib, seed;
} o;

static const struct option {
  const char *name, *meaning;
  unsigned *value, small, large, min, max;
} options[] = {
    {"layers", "of the model", &o.layers, 6, 40, 1, 1024},
    {"experts", "of a layer", &o.experts, 32, 256, 2, 4096},
    {"chosen", "experts for a token in a layer", &o.chosen, 4, 8, 1, 64},
    {"expert-kib", "size of an expert", &o.expert_kib, 1792, 6912, 4, 1 << 20},
    {"chunk-mib", "size of a chunk, a power of two", &o.chunk_mib, 2, 8, 2, 1024},
    {"limit-mib", "memory that the lake may hold", &o.limit_mib, 136, 24576, 1, 1 << 30},
    {"tokens", "that are measured, after a third as many", &o.tokens, 45, 300, 3, 1 << 20},
    {"change", "percent of tokens with another topic", &o.change, 44, 44, 0, 100},
    {"topics", "that there are", &o.topics, 24, 24, 1, 4096},
    {"stray", "percent of choices that are not the topic's", &o.stray, 5, 5, 0, 100},
    {"ahead", "experts fetched ahead for a layer, at most", &o.ahead, 2, 2, 0, 64},
    {"reuse", "percent of the oldest's age that is old enough", &o.reuse, 10, 10, 1, 100},
    {"kernels", "small ones in each half of a layer", &o.kernels, 8, 8, 0, 1000},
    {"trade-mib", "that keys and values and experts trade", &o.trade_mib, 16, 1024, 1, 1 << 20},
    {"share-mib", "size of a chunk that experts share", &o.share_mib, 4, 32, 2, 1024},
    {"seed", "of the topics", &o.seed, 1, 1, 1, UINT32_MAX}};
#define OPTIONS (sizeof(options) / sizeof(options[0]))

typedef enum method { ADDRESSES, VIEWS, SLOTS, COPIES } method;
static const char *const method_names[] = {"addresses", "addresses, views", "slots, a table",
                                           "slots, copies"};

typedef struct fence { /* an event; one stream waits for it */
  void *event;
  int is_new;      /* nobody has waited for it since it was recorded */
  double at_us;    /* [mock] the modelled time of its record */
  unsigned copies; /* [mock] how many had been queued by then */
} fence;

typedef struct work { /* a kernel: compares the words of some experts, or of keys and values */
  /* What has number n lies at base + n * stride + n % classes * pitch; with a table, n is its
     entry there. */
  char *base;
  size_t stride, pitch;
  unsigned classes;
  const unsigned *table, *host_table;     /* or NULL */
  const unsigned *numbers, *host_numbers; /* on the device, and what they are */
  unsigned count, salt;
  size_t bytes; /* of each */
} work;

typedef struct graph {
  work work;
  unsigned *told; /* where the host finds the router's choice; NULL: there is no router in it */
  size_t at;      /* of the choice, in a token's choices */
  void *exec;
} graph;

typedef struct expert {
  uint32_t newer, older; /* by last use */
  uint64_t stamp;        /* of the last use */
  unsigned place;        /* [slots] */
  unsigned char is_here, is_ahead;
} expert;

typedef struct figures {
  unsigned long long hits, in_time, fetched, kept, waits;
  double us, miss_us, miss_bytes, driver_us;
} figures;

static struct server {
  gmlake_backend *backend;
  gmlake *lake;
  gmlake_stream worker, copier;
  gmlake_buffer *buffer, *keys;
  char *base, *keys_base;
  size_t expert_bytes, stride, chunk, capacity; /* capacity: experts and as much for keys */
  unsigned total, stride_chunks, tokens;
  char *host_experts, *host_keys; /* pinned; NULL: there is no memory on the mock */
  unsigned *routing;              /* pinned: the numbers of all chosen experts, token by token */
  unsigned *row;                  /* of this token */
  unsigned *told, *host_indexes, *host_table; /* pinned */
  char *fixed;                                /* weights that all tokens use */
  unsigned *chosen, *indexes, *table, *wrong; /* on the device */
  expert *experts;
  uint32_t *chunks, *keys_chunks; /* that each had last, by the buffer's chunks */
  uint32_t *owners;               /* experts: of a chunk; of the parts of shared chunks */
  size_t owner_count;
  uint32_t *followers; /* who was chosen in the next layer, when this one was */
  unsigned char *votes;
  graph *routers, *mixers; /* for each layer */
  fence *loaded, *used, seen, keys_fence;
  uint32_t newest[CLASSES_MAX], oldest[CLASSES_MAX];
  unsigned classes; /* an expert's is n % classes: those of one class replace each other */
  unsigned layer;   /* that experts come for */
  uint64_t stamp;
  size_t here, keys_count;
  size_t *span_bytes; /* of a layer whose misses nobody has timed yet; 0: none */
  unsigned captures;
  /* a run */
  method how;
  char *slots;
  size_t slot_bytes;
  unsigned *free_places;
  size_t free_count;
  figures f;
  double link;                   /* bytes a microsecond */
  double addresses_us, views_us; /* of a token */
  /* [views] */
  gmlake_buffer *store;
  char *store_base;
  char *region;              /* addresses for all views; base is behind its first chunk */
  size_t share, share_count; /* a chunk's bytes; how many there are, side by side in the store */
  size_t part, part_count;   /* an expert's bytes in the store; how many it has room for */
  size_t room, phase;        /* addresses for one view; how much farther those of a class begin */
  gmlake_chunk_info *handles;
  unsigned taken[CLASSES_MAX]; /* of each class: how many parts have had an owner */
} s;

static int failed(const char *what, gmlake_result result) {
  gmlake_error_info info;
  if (result == GMLAKE_OK) return 0;
  fprintf(stderr, "%s: %s", what, gmlake_result_name(result));
  if (s.lake && !gmlake_get_last_error(s.lake, &info)) fprintf(stderr, ": %s", info.text);
  fprintf(stderr, "\n");
  return 1;
}

static int refused(const char *text, unsigned value) {
  fprintf(stderr, text, value);
  fprintf(stderr, "\n");
  return 1;
}

static int has_memory = 1; /* 0: the mock keeps the books alone */

static char *address_of(uint32_t n);

#include "experts_device.h"

/* ---- Which experts are there: a list by last use ---- */

static void list_take(uint32_t n) {
  const expert *e = &s.experts[n];
  if (e->newer == NOBODY)
    s.newest[n % s.classes] = e->older;
  else
    s.experts[e->newer].older = e->older;
  if (e->older == NOBODY)
    s.oldest[n % s.classes] = e->newer;
  else
    s.experts[e->older].newer = e->newer;
}
static void list_put(uint32_t n) {
  expert *e = &s.experts[n];
  e->newer = NOBODY;
  e->older = s.newest[n % s.classes];
  e->stamp = s.stamp;
  if (e->older == NOBODY)
    s.oldest[n % s.classes] = n;
  else
    s.experts[e->older].newer = n;
  s.newest[n % s.classes] = n;
}

/* Whether the router may choose it soon. If it left now and came back before the copies that are
   under way have ended, the host would have to wait for them: its chunk, which another one has by
   then, cannot be unmapped before. */
static int is_near(uint32_t n) { return (n / o.experts + o.layers - s.layer) % o.layers < NEAR; }

static uint32_t owner_of(size_t chunk) { return chunk < s.capacity ? s.owners[chunk] : NOBODY; }

/* Who has to leave: the owner of what is wanted, if that is old enough; else the oldest. */
static uint32_t victim(unsigned class, uint32_t owner) {
  const uint32_t oldest = s.oldest[class];
  const uint64_t oldest_age = s.stamp - s.experts[oldest].stamp;
  const uint64_t age = owner == NOBODY ? 0 : s.stamp - s.experts[owner].stamp;
  uint32_t n = oldest;
  if (age > o.layers && age * 100 >= oldest_age * o.reuse && s.experts[owner].is_here &&
      !is_near(owner))
    return owner;
  while (n != NOBODY && is_near(n)) n = s.experts[n].newer;
  return n == NOBODY || s.experts[n].stamp + o.layers >= s.stamp ? oldest : n;
}

/* The expert's memory may serve others: on the copy stream, behind its last use. */
static int leave(uint32_t n) {
  expert *e = &s.experts[n];
  if (wait_for(s.copier, &s.used[n / o.experts])) return 1;
  list_take(n);
  e->is_here = 0;
  s.here--;
  if (s.how >= SLOTS) s.free_places[s.free_count++] = e->place;
  return s.how == ADDRESSES &&
         failed("discard",
                gmlake_buffer_discard(s.lake, s.buffer, n * s.stride, s.stride, s.copier));
}

static int make_room(size_t chunks, uint32_t wanted) {
  while (s.here * s.stride_chunks + s.keys_count + chunks > s.capacity)
    if (leave(victim(0, owner_of(wanted)))) return 1;
  return 0;
}

static int commit(uint32_t n) {
  uint32_t *chunks = s.chunks + (size_t)n * s.stride_chunks, first = chunks[0];
  unsigned i;
  if (make_room(s.stride_chunks, first)) return 1;
  model_settle(); /* to commit may unmap what copies were to write */
  if (failed("commit",
             gmlake_buffer_commit(s.lake, s.buffer, n * s.stride, s.stride, chunks, s.copier)))
    return 1;
  s.f.kept += first == chunks[0];
  for (i = 0; i < s.stride_chunks; i++)
    if (chunks[i] < s.capacity) s.owners[chunks[i]] = n;
  return 0;
}

static char *address_of(uint32_t n) {
  if (s.how == ADDRESSES) return s.base + n * s.stride;
  if (s.how == VIEWS) return s.base + n * s.room + n % s.classes * s.phase;
  return s.slots + s.experts[n].place * s.slot_bytes;
}

/* The chunks that an expert sees, if a part of the store is its own: those in which it lies. */
typedef struct range {
  uint64_t address; /* where they are mapped for that expert */
  size_t first, bytes;
} range;
static range range_of(uint32_t n, uint32_t part) {
  const size_t from = part * s.part, to = from + s.part - 1;
  range r;
  r.address = (uint64_t)(uintptr_t)address_of(n) - from % s.share;
  r.first = from / s.share;
  r.bytes = (to / s.share - r.first + 1) * s.share;
  return r;
}
static int unmap_view(uint32_t n) {
  const range r = range_of(n, s.chunks[n]);
  int number;
  return failed("unmap", s.backend->unmap(s.backend->user, r.address, r.bytes, &number));
}

/* Maps an expert's addresses to a part of the store, unless they are from before. What used the
   former mapping is complete: an expert comes for its own layer, whose router the host has waited
   for since. */
static int map_view(uint32_t n, uint32_t part) {
  const range r = range_of(n, part);
  const gmlake_backend *b = s.backend;
  const double begin = now_us();
  size_t i;
  int number;
  s.f.kept += s.chunks[n] == part;
  if (s.chunks[n] == part) return 0;
  if (s.chunks[n] != NOBODY && unmap_view(n)) return 1;
  s.chunks[n] = part;
  for (i = 0; i < r.bytes / s.share; i++)
    if (failed("map", b->map(b->user, r.address + i * s.share, s.share,
                             s.handles[r.first + i].handle, &number)))
      return 1;
  if (failed("access", b->set_access(b->user, r.address, r.bytes, NULL, 0, &number))) return 1;
  s.f.driver_us += now_us() - begin;
  return 0;
}

/* Finds a part of the store that is of the expert's class. */
static int view(uint32_t n) {
  const unsigned class = n % s.classes;
  const uint32_t owner = s.chunks[n] == NOBODY ? NOBODY : s.owners[s.chunks[n]];
  uint32_t part = class + s.taken[class] * s.classes, leaver;
  if (part < s.part_count) {
    s.taken[class]++;
  } else {
    leaver = victim(class, owner);
    part = s.chunks[leaver];
    if (leave(leaver)) return 1;
  }
  s.owners[part] = n;
  return map_view(n, part);
}

/* Where contents lie on the host; nowhere if the mock keeps the books alone. */
static const char *content(const char *host, size_t offset) { return host ? host + offset : NULL; }

/* Gives an expert memory, and copies it there. */
static int arrive(uint32_t n) {
  expert *e = &s.experts[n];
  if (s.how < SLOTS) {
    if (s.how == ADDRESSES ? commit(n) : view(n)) return 1;
  } else {
    if (!s.free_count && leave(victim(0, NOBODY))) return 1;
    e->place = s.free_places[--s.free_count];
    s.host_table[n] = e->place;
  }
  list_put(n);
  e->is_here = 1;
  s.here++;
  s.f.fetched++;
  return copy_in(address_of(n), content(s.host_experts, n * s.expert_bytes), s.expert_bytes,
                 s.copier);
}

/* ---- A token ---- */

/* Fetches what at least half of the former layer's experts were followed by, the last time. */
static int fetch_ahead(unsigned l) {
  const unsigned *former = s.told + (size_t)(l - 1) * o.chosen;
  unsigned i, fetched = 0;
  for (i = 0; i < o.chosen * o.chosen; i++) {
    const uint32_t n = s.followers[(size_t)former[i / o.chosen] * o.chosen + i % o.chosen];
    if (n == NOBODY || ++s.votes[n % o.experts] != (o.chosen + 1) / 2) continue;
    if (s.experts[n].is_here || fetched == o.ahead) continue;
    if (arrive(n)) return 1;
    s.experts[n].is_ahead = 1;
    fetched++;
  }
  memset(s.votes, 0, o.experts);
  return fetched ? record(&s.loaded[l], s.copier) : 0;
}

static void learn(unsigned l) {
  const unsigned *now = s.told + (size_t)l * o.chosen;
  unsigned i;
  for (i = 0; l && i < o.chosen; i++)
    memcpy(s.followers + (size_t)(now - o.chosen)[i] * o.chosen, now, o.chosen * sizeof(*now));
}

/* The time that a layer's misses took, when they are complete. */
static int note_span(unsigned l) {
  double us;
  if (!s.span_bytes[l]) return 0;
  if (span_read(l, &us)) return 1;
  s.f.miss_us += us;
  s.f.miss_bytes += (double)s.span_bytes[l];
  s.span_bytes[l] = 0;
  return 0;
}

/* Brings the chosen experts that are missing. */
static int serve(unsigned l) {
  const unsigned *told = s.told + (size_t)l * o.chosen;
  unsigned i;
  s.stamp++;
  if (note_span(l)) return 1;
  for (i = 0; i < o.chosen; i++) {
    expert *e = &s.experts[told[i]];
    if (!e->is_here) continue;
    s.f.hits += !e->is_ahead;
    s.f.in_time += e->is_ahead;
    e->is_ahead = 0;
    list_take(told[i]);
    list_put(told[i]);
  }
  for (i = 0; i < o.chosen; i++) {
    if (s.experts[told[i]].is_here) continue;
    if (!s.span_bytes[l] && span_mark(l, 0)) return 1;
    if (arrive(told[i])) return 1;
    s.span_bytes[l] += s.expert_bytes;
  }
  return s.span_bytes[l] ? span_mark(l, 1) || record(&s.loaded[l], s.copier) : 0;
}

/* The experts' work, by the method. */
static int mix(unsigned l) {
  const unsigned *told = s.told + (size_t)l * o.chosen;
  const size_t first = (size_t)l * o.experts;
  const int is_changed = s.how == COPIES || (s.how == SLOTS && s.loaded[l].is_new);
  unsigned i;
  if (wait_for(s.worker, &s.loaded[l])) return 1;
  for (i = 0; s.how == COPIES && i < o.chosen; i++) {
    if (copy_within(s.slots + i * s.slot_bytes, address_of(told[i]), s.expert_bytes)) return 1;
    s.host_table[told[i]] = i;
  }
  if (is_changed &&
      copy_in(s.table + first, s.host_table + first, o.experts * sizeof(unsigned), s.worker))
    return 1;
  return s.how == COPIES ? queue(&s.mixers[l]) : launch(&s.mixers[l]);
}

static int step(unsigned token) {
  unsigned l;
  s.row = s.routing + (size_t)token * o.layers * o.chosen;
  if (copy_in(s.chosen, s.row, (size_t)o.layers * o.chosen * sizeof(unsigned), s.worker)) return 1;
  for (l = 0; l < o.layers; l++) {
    s.layer = l;
    if (s.how == COPIES ? queue(&s.routers[l]) : launch(&s.routers[l])) return 1;
    if (record(&s.seen, s.worker)) return 1;
    if (l && fetch_ahead(l)) return 1; /* while the router works */
    if (look(&s.seen) || serve(l) || mix(l) || record(&s.used[l], s.worker)) return 1;
    learn(l);
  }
  return 0;
}

/* What it costs that the host looks at a router's choice before it launches what comes behind: the
   routers' graphs, two for each layer, with and without a look between them. */
static int measure_look(double *out_us) {
  double times[2];
  unsigned i, l;
  int looks;
  for (looks = 0; looks < 2; looks++) {
    if (finish()) return 1;
    times[looks] = now_us();
    for (i = 0; i < 4; i++)
      for (l = 0; l < o.layers; l++) {
        if (launch(&s.routers[l])) return 1;
        if (looks && (record(&s.seen, s.worker) || look(&s.seen))) return 1;
        if (launch(&s.routers[l])) return 1;
      }
    if (finish()) return 1;
    times[looks] = now_us() - times[looks];
  }
  *out_us = (times[1] - times[0]) / (4.0 * o.layers);
  return 0;
}

/* ---- Keys and values ---- */

/* Takes memory from the experts: those whose chunks were keys and values before, if they are old
   enough. Each chunk of keys then gets contents. */
static int keys_grow(size_t count, double *out_us) {
  const size_t from = s.keys_count;
  const double begin = now_us();
  size_t i;
  for (i = 0; i < count; i++, s.keys_count++)
    if (make_room(1, s.keys_chunks[from + i])) return 1;
  model_settle();
  if (failed("commit", gmlake_buffer_commit(s.lake, s.keys, from * s.chunk, count * s.chunk,
                                            s.keys_chunks + from, s.copier)))
    return 1;
  *out_us = now_us() - begin;
  for (i = from; i < s.keys_count; i++) {
    if (s.keys_chunks[i] < s.capacity) s.owners[s.keys_chunks[i]] = NOBODY;
    if (copy_in(s.keys_base + i * s.chunk, content(s.host_keys, i * KEYS_ROW), KEYS_ROW, s.copier))
      return 1;
  }
  return record(&s.keys_fence, s.copier) || wait_for(s.worker, &s.keys_fence);
}

/* Compares what they have. */
static int keys_check(void) {
  graph check = {{0}, NULL, 0, NULL};
  check.work.base = s.keys_base;
  check.work.stride = s.chunk;
  check.work.classes = 1;
  check.work.numbers = s.indexes;
  check.work.host_numbers = s.host_indexes;
  check.work.count = (unsigned)s.keys_count;
  check.work.salt = KEYS_SALT;
  check.work.bytes = KEYS_ROW;
  return queue(&check) || record(&s.keys_fence, s.worker);
}

/* Gives all back, behind the last work with them. */
static int keys_drop(double *out_us) {
  const double begin = now_us();
  const size_t bytes = s.keys_count * s.chunk;
  if (wait_for(s.copier, &s.keys_fence)) return 1;
  s.keys_count = 0;
  if (failed("discard", gmlake_buffer_discard(s.lake, s.keys, 0, bytes, s.copier))) return 1;
  *out_us = now_us() - begin;
  return 0;
}

/* Some tokens, and until the experts have all memory that keys and values left. */
static int refill(unsigned *token) {
  unsigned i;
  for (i = 0; i < s.tokens; i++) {
    const size_t wanted = (s.here + 1) * s.stride_chunks + s.keys_count;
    if (i >= o.tokens / 6 && wanted > s.capacity) break;
    if (step((*token)++ % s.tokens)) return 1;
  }
  return 0;
}

static int trade(void) {
  const size_t count = o.trade_mib * MIB / s.chunk;
  double grow_us, drop_us;
  unsigned token = 0, round;
  for (round = 0; round < 3; round++) {
    if (keys_grow(count, &grow_us) || keys_check() || refill(&token) || keys_check() ||
        keys_drop(&drop_us) || refill(&token))
      return 1;
    printf("  %zu MiB go from experts to keys and values in %.0f us of the host, back in %.0f\n",
           count * s.chunk / MIB, grow_us, drop_us);
  }
  return 0;
}

/* ---- A run with one method ---- */

static int capture_once(graph *g) {
  s.captures++;
  return capture(g);
}

static work work_of(char *base, size_t stride, unsigned count) {
  work w = {0};
  w.base = base;
  w.stride = stride;
  w.classes = s.how == VIEWS ? s.classes : 1;
  w.pitch = s.phase;
  w.numbers = s.indexes;
  w.host_numbers = s.host_indexes;
  w.count = count;
  w.salt = EXPERT_SALT;
  w.bytes = s.expert_bytes;
  return w;
}

/* The experts' work of each layer; with COPIES it is no graph. */
static int make_mixers(void) {
  unsigned l;
  for (l = 0; l < o.layers; l++) {
    graph *g = &s.mixers[l];
    g->at = (size_t)l * o.chosen;
    g->work = work_of(s.how < SLOTS ? s.base : s.slots,
                      s.how == ADDRESSES ? s.stride
                      : s.how == VIEWS   ? s.room
                                         : s.slot_bytes,
                      o.chosen);
    g->work.numbers = s.chosen + g->at;
    g->work.host_numbers = s.told + g->at;
    if (s.how >= SLOTS) {
      g->work.table = s.table;
      g->work.host_table = s.host_table;
    }
    if (s.how != COPIES && capture_once(g)) return 1;
  }
  return 0;
}
static int drop_graphs(const graph *graphs) {
  unsigned l;
  int status = 0;
  for (l = 0; l < o.layers; l++) status |= drop(&graphs[l]);
  return status;
}

/* The first tokens fill the memory; the others are measured. */
static int decode(void) {
  gmlake_stats before = {0}, after = {0};
  double begin = 0;
  unsigned token, l;
  for (token = 0; token < s.tokens; token++) {
    if (token == s.tokens - o.tokens) {
      if (finish()) return 1;
      for (l = 0; l < o.layers; l++)
        if (note_span(l)) return 1;
      memset(&s.f, 0, sizeof(s.f));
      begin = now_us();
      if (failed("get_stats", gmlake_get_stats(s.lake, &before))) return 1;
    }
    if (step(token)) return 1;
  }
  if (finish()) return 1;
  s.f.us = (now_us() - begin) / o.tokens;
  for (l = 0; l < o.layers; l++)
    if (note_span(l)) return 1;
  if (failed("get_stats", gmlake_get_stats(s.lake, &after))) return 1;
  s.f.driver_us += (double)(after.driver_ns - before.driver_ns) * 1e-3;
  s.f.waits = after.host_wait_count - before.host_wait_count;
  return 0;
}

static void start_over(method how, unsigned classes) {
  size_t i;
  s.how = how;
  s.classes = classes;
  for (i = 0; i < classes; i++) s.newest[i] = s.oldest[i] = NOBODY;
  s.here = s.free_count = 0;
  for (i = 0; i < s.total; i++) s.experts[i].is_here = s.experts[i].is_ahead = 0;
  for (i = 0; i < (size_t)s.total * o.chosen; i++) s.followers[i] = NOBODY;
  for (i = 0; i < (size_t)s.total * s.stride_chunks; i++) s.chunks[i] = GMLAKE_ANY_CHUNK;
  for (i = 0; i < s.owner_count; i++) s.owners[i] = NOBODY;
}

static void report(void) {
  const double lookups = (double)o.tokens * o.layers * o.chosen;
  printf(
      "%-16s%5.1f experts a layer: %4.1f %% hits, and %4.1f %% came ahead; misses at %2.0f %% of "
      "the "
      "link;\n  %.2f ms a token",
      method_names[s.how], (double)s.here / o.layers, 100 * (double)s.f.hits / lookups,
      100 * (double)s.f.in_time / lookups,
      s.f.miss_us > 0 ? 100 * s.f.miss_bytes / s.f.miss_us / s.link : 0, s.f.us * 1e-3);
  if (s.how == ADDRESSES) s.addresses_us = s.f.us;
  if (s.how == VIEWS) s.views_us = s.f.us;
  if (s.how != ADDRESSES) printf(", %.2f times that of addresses", s.f.us / s.addresses_us);
  if (s.how >= SLOTS) printf(", %.2f times that of views", s.f.us / s.views_us);
  printf("\n");
  if (s.how < SLOTS)
    printf("  an expert that comes takes %.1f us in the driver; %.0f %% got the chunk they had\n",
           s.f.fetched ? s.f.driver_us / (double)s.f.fetched : 0,
           s.f.fetched ? 100 * (double)s.f.kept / (double)s.f.fetched : 0);
}

/* All experts in a buffer, each at its address. */
static int run_addresses(void) {
  double look_us;
  uint32_t n;
  start_over(ADDRESSES, 1);
  if (make_mixers() || decode()) return 1;
  report();
  printf("  the lake made the host wait %llu times\n", s.f.waits);
  if (measure_look(&look_us)) return 1;
  printf("  the host's look at the router's choice: %.1f us a layer\n", look_us);
  if (trade()) return 1;
  printf("  %u graphs were captured, for %u layers\n", s.captures, o.layers);
  for (n = 0; n < s.total; n++)
    if (s.experts[n].is_here && leave(n)) return 1;
  model_settle();
  return finish() || drop_graphs(s.mixers) || s.captures != 2 * o.layers;
}

static int reserve(void *out_array, size_t count, size_t bytes) {
  void *const array = calloc(count, bytes);
  if (!array) return refused("no host memory for %u layers", o.layers);
  memcpy(out_array, &array, sizeof(array));
  return 0;
}

static int make_buffer(size_t bytes, size_t chunk, const char *label, gmlake_buffer **out,
                       char **out_base) {
  gmlake_buffer_desc desc = {0};
  gmlake_buffer_info info;
  desc.max_bytes = bytes;
  desc.chunk_bytes = chunk;
  desc.label = label;
  if (failed("buffer_create", gmlake_buffer_create(s.lake, &desc, out)) ||
      failed("get_info", gmlake_buffer_get_info(s.lake, *out, &info)))
    return 1;
  *out_base = (char *)info.ptr;
  return 0;
}

/* The store is a row of parts; a part may lie across chunks. These are mapped at multiples of the
   granularity. So an expert's parts have to begin at one offset to it: they are those of its class.
   Answers how many classes there are. */
static unsigned measure_store(void) {
  gmlake_device_properties properties;
  size_t granularity, a, b, rest;
  int number;
  if (failed("properties", s.backend->get_properties(s.backend->user, &properties, &number)))
    return 0;
  granularity = properties.granularity_bytes;
  s.share = o.share_mib * MIB;
  s.share_count = s.capacity * s.chunk / s.share;
  s.part = (s.expert_bytes + PART - 1) / PART * PART;
  s.part_count = s.share_count * s.share / s.part;
  s.phase = s.part % granularity;
  for (a = granularity, b = s.phase; b; a = b, b = rest) rest = a % b;
  s.room = 2 * s.share + s.part + granularity / a * s.phase;
  s.room += granularity - s.room % granularity;
  return (unsigned)(granularity / a); /* 64 at most, while the granularity is 4 MiB or less */
}

/* Addresses for all views, and memory for the store. */
static int make_views(void) {
  const gmlake_backend *b = s.backend;
  uint64_t address;
  size_t count;
  int number;
  if (reserve(&s.handles, s.share_count, sizeof(*s.handles)) ||
      make_buffer(s.share_count * s.share, s.share, "the experts' store", &s.store,
                  &s.store_base) ||
      failed("resize", gmlake_buffer_resize(s.lake, s.store, s.share_count * s.share, s.copier)) ||
      failed("get_chunks",
             gmlake_get_chunks(s.lake, s.store_base, s.handles, s.share_count, &count)) ||
      failed("reserve", b->reserve(b->user, s.total * s.room, s.share, &address, &number)))
    return 1;
  s.region = (char *)(uintptr_t)address;
  s.base = s.region + s.share;
  return 0;
}
/* pre: nothing uses them any more. */
static int drop_views(void) {
  const gmlake_backend *b = s.backend;
  uint32_t n;
  int number, status = 0;
  for (n = 0; n < s.total; n++)
    if (s.chunks[n] != NOBODY) status |= unmap_view(n);
  free(s.handles);
  return status |
         failed("unreserve",
                b->unreserve(b->user, (uint64_t)(uintptr_t)s.region, s.total * s.room, &number)) |
         failed("buffer_destroy", gmlake_buffer_destroy(s.lake, s.store, s.copier));
}

/* Experts that lie side by side in a store, in any order; each sees its part at its own address. */
static int run_views(void) {
  const unsigned captures = s.captures, classes = measure_store();
  if (!classes || classes > CLASSES_MAX) return refused("%u classes of views", classes);
  start_over(VIEWS, classes);
  if (make_views() || make_mixers() || decode()) return 1;
  report();
  model_settle();
  return drop_graphs(s.mixers) | drop_views() | (s.captures != captures + o.layers);
}

/* All experts in slots of one block, which is as large as the buffer's memory was. */
static int run_slots(method how, size_t slot_bytes) {
  size_t count = s.capacity * s.chunk / slot_bytes, place;
  start_over(how, 1);
  s.slot_bytes = slot_bytes;
  for (place = count; place-- > (how == COPIES ? o.chosen : 0);)
    s.free_places[s.free_count++] = (unsigned)place;
  if (make_mixers() || decode()) return 1;
  report();
  return how == COPIES ? 0 : drop_graphs(s.mixers);
}

/* ---- Routing ---- */

static uint64_t next_random(uint64_t *state) {
  uint64_t x = *state += 0x9E3779B97F4A7C15u;
  x = (x ^ (x >> 30)) * 0xBF58476D1CE4E5B9u;
  x = (x ^ (x >> 27)) * 0x94D049BB133111EBu;
  return x ^ (x >> 31);
}

/* Different experts of a layer. */
static void draw(uint64_t *state, unsigned layer, unsigned *out) {
  unsigned i, j;
  for (i = 0; i < o.chosen; i++) {
    out[i] = layer * o.experts + (unsigned)(next_random(state) % o.experts);
    for (j = 0; j < i && out[j] != out[i];) j++;
    i -= j < i; /* again: chosen is at most half of the experts */
  }
}

static void make_routing(void) {
  uint64_t state = o.seed;
  uint64_t topic = 0, of_topic;
  unsigned token, l, i;
  unsigned *out = s.routing;
  for (token = 0; token < s.tokens; token++) {
    if (next_random(&state) % 100 < o.change) topic = next_random(&state) % o.topics;
    for (l = 0; l < o.layers; l++, out += o.chosen) {
      unsigned others[64];
      of_topic = ((uint64_t)o.seed << 40) + (topic << 20) + l;
      draw(&of_topic, l, out);
      draw(&state, l, others);
      for (i = 0; i < o.chosen; i++)
        if (next_random(&state) % 100 < o.stray) out[i] = others[i];
    }
  }
}

/* The numbers of a trace's experts in their layer become those in the model. */
static int read_routing(const char *path) {
  const size_t most = (size_t)s.tokens * o.layers * o.chosen;
  FILE *file = fopen(path, "r");
  unsigned n = 0;
  size_t i;
  for (i = 0; file && i < most && fscanf(file, "%u", &n) == 1 && n < o.experts; i++)
    s.routing[i] = (unsigned)(i / o.chosen % o.layers) * o.experts + n;
  if (file) (void)fclose(file);
  if (i == most) return 0;
  fprintf(stderr, "%s: ", path);
  if (!file) return refused("cannot be read", 0);
  if (n >= o.experts) return refused("names expert %u: --experts is not that large", n);
  return refused("ends too early: %u tokens are wanted, see --tokens", s.tokens);
}

/* ---- The program ---- */

static int make_fences(fence *fences, size_t count) {
  int number;
  while (count--)
    if (failed("event", s.backend->event_create(s.backend->user, &fences[count].event, &number)))
      return 1;
  return 0;
}
static int drop_fences(fence *fences, size_t count) {
  int number, status = 0;
  while (count--)
    status |=
        failed("event", s.backend->event_destroy(s.backend->user, fences[count].event, &number));
  return status;
}

/* Pinned host memory; NULL on the mock where large contents would have no place. */
static int pin(size_t bytes, int is_content, void *out_host) {
  void *host = NULL;
  int number;
  if ((has_memory || !is_content) &&
      failed("host_alloc", s.backend->host_alloc(s.backend->user, bytes, &host, &number)))
    return 1;
  memcpy(out_host, &host, sizeof(host));
  return 0;
}
static int unpin(void *host) {
  int number;
  return host && failed("host_free", s.backend->host_free(s.backend->user, host, &number));
}

static void fill(char *at, size_t bytes, unsigned word) {
  size_t done = sizeof(word);
  memcpy(at, &word, sizeof(word));
  for (; done < bytes; done += done < bytes - done ? done : bytes - done)
    memcpy(at + done, at, done < bytes - done ? done : bytes - done);
}

static int make_host(void) {
  const size_t choices = (size_t)o.layers * o.chosen;
  size_t i;
  s.owner_count = s.capacity + s.capacity * s.chunk / s.expert_bytes;
  if (pin(s.total * s.expert_bytes, 1, &s.host_experts) ||
      pin(s.capacity * KEYS_ROW, 1, &s.host_keys) ||
      pin(s.tokens * choices * sizeof(unsigned), 0, &s.routing) ||
      pin(choices * sizeof(unsigned), 0, &s.told) ||
      pin(s.capacity * sizeof(unsigned), 0, &s.host_indexes) ||
      pin(s.total * sizeof(unsigned), 0, &s.host_table) ||
      reserve(&s.experts, s.total, sizeof(expert)) ||
      reserve(&s.chunks, (size_t)s.total * s.stride_chunks, sizeof(uint32_t)) ||
      reserve(&s.keys_chunks, s.capacity, sizeof(uint32_t)) ||
      reserve(&s.owners, s.owner_count, sizeof(uint32_t)) ||
      reserve(&s.followers, (size_t)s.total * o.chosen, sizeof(uint32_t)) ||
      reserve(&s.votes, o.experts, 1) || reserve(&s.routers, o.layers, sizeof(graph)) ||
      reserve(&s.mixers, o.layers, sizeof(graph)) || reserve(&s.loaded, o.layers, sizeof(fence)) ||
      reserve(&s.used, o.layers, sizeof(fence)) ||
      reserve(&s.span_bytes, o.layers, sizeof(size_t)) ||
      reserve(&s.free_places, s.capacity * s.chunk / s.expert_bytes, sizeof(unsigned)))
    return 1;
  for (i = 0; i < s.total; i++) s.host_table[i] = 0;
  for (i = 0; i < s.capacity; i++) {
    s.host_indexes[i] = (unsigned)i;
    s.keys_chunks[i] = GMLAKE_ANY_CHUNK;
    if (has_memory) fill(s.host_keys + i * KEYS_ROW, KEYS_ROW, (unsigned)i + KEYS_SALT);
  }
  for (i = 0; has_memory && i < s.total; i++)
    fill(s.host_experts + i * s.expert_bytes, s.expert_bytes, (unsigned)i + EXPERT_SALT);
  return make_fences(s.loaded, o.layers) || make_fences(s.used, o.layers) ||
         make_fences(&s.seen, 1) || make_fences(&s.keys_fence, 1);
}
static int drop_host(void) {
  const int status = drop_fences(s.loaded, o.layers) | drop_fences(s.used, o.layers) |
                     drop_fences(&s.seen, 1) | drop_fences(&s.keys_fence, 1) |
                     unpin(s.host_experts) | unpin(s.host_keys) | unpin(s.routing) | unpin(s.told) |
                     unpin(s.host_indexes) | unpin(s.host_table);
  free(s.experts), free(s.chunks), free(s.keys_chunks), free(s.owners), free(s.followers);
  free(s.votes), free(s.routers), free(s.mixers), free(s.loaded), free(s.used);
  free(s.span_bytes), free(s.free_places);
  return status;
}

/* What all tokens use; the rest of the memory is for experts, keys and values. */
static int make_device(void) {
  const size_t limit = o.limit_mib * MIB;
  gmlake_stats stats = {0};
  if (failed("fixed", gmlake_alloc(s.lake, s.expert_bytes, s.worker, (void **)&s.fixed)) ||
      failed("chosen", gmlake_alloc(s.lake, (size_t)o.layers * o.chosen * sizeof(unsigned),
                                    s.worker, (void **)&s.chosen)) ||
      failed("indexes", gmlake_alloc(s.lake, limit / s.chunk * sizeof(unsigned), s.worker,
                                     (void **)&s.indexes)) ||
      failed("table",
             gmlake_alloc(s.lake, s.total * sizeof(unsigned), s.worker, (void **)&s.table)) ||
      failed("wrong", gmlake_alloc(s.lake, sizeof(unsigned), s.worker, (void **)&s.wrong)) ||
      failed("get_stats", gmlake_get_stats(s.lake, &stats)))
    return 1;
  s.capacity = (limit - stats.reserved_bytes) / s.chunk;
  s.capacity -= s.capacity % (2 * s.stride_chunks); /* the lake's chunks are twice as large */
  if (s.capacity < o.trade_mib * MIB / s.chunk + 4 * (size_t)o.chosen * s.stride_chunks)
    return refused("limit-mib is %u: too little for that many experts", o.limit_mib);
  return make_buffer(s.total * s.stride, s.chunk, "experts", &s.buffer, &s.base) ||
         make_buffer(s.capacity * s.chunk, s.chunk, "keys and values", &s.keys, &s.keys_base);
}
static int drop_device(void) {
  return failed("free", gmlake_free(s.lake, s.slots, s.worker)) |
         failed("free", gmlake_free(s.lake, s.fixed, s.worker)) |
         failed("free", gmlake_free(s.lake, s.chosen, s.worker)) |
         failed("free", gmlake_free(s.lake, s.indexes, s.worker)) |
         failed("free", gmlake_free(s.lake, s.table, s.worker)) |
         failed("free", gmlake_free(s.lake, s.wrong, s.worker));
}

/* Gives the fixed memory its contents, those of expert 0, and measures the link with that. */
static int load(void) {
  double begin;
  unsigned i, l;
  if (copy_in(s.indexes, s.host_indexes, s.capacity * sizeof(unsigned), s.worker) ||
      copy_in(s.wrong, s.host_indexes, sizeof(unsigned), s.worker) || finish())
    return 1;
  begin = now_us();
  for (i = 0; i < 16; i++)
    if (copy_in(s.fixed, s.host_experts, s.expert_bytes, s.copier)) return 1;
  if (record(&s.seen, s.copier) || wait_for(s.worker, &s.seen) || finish()) return 1;
  s.link = 16 * (double)s.expert_bytes / (now_us() - begin);
  printf("the link moves %.1f GB/s\n", s.link * 1e-3);
  for (l = 0; l < o.layers; l++) {
    s.routers[l].work = work_of(s.fixed, 0, 1);
    s.routers[l].at = (size_t)l * o.chosen;
    s.routers[l].told = s.told + s.routers[l].at;
    if (capture_once(&s.routers[l])) return 1;
  }
  return 0;
}

static int compare(void) {
  if (run_addresses()) return 1;
  /* The experts' memory goes to the others. */
  if (failed("buffer_destroy", gmlake_buffer_destroy(s.lake, s.buffer, s.copier)) ||
      failed("buffer_destroy", gmlake_buffer_destroy(s.lake, s.keys, s.copier)) || run_views() ||
      failed("slots", gmlake_alloc(s.lake, s.capacity * s.chunk, s.worker, (void **)&s.slots)))
    return 1;
  printf("slots as large as an address's memory:\n");
  if (run_slots(SLOTS, s.stride) || run_slots(COPIES, s.stride)) return 1;
  printf("slots side by side, so more of them:\n");
  return run_slots(SLOTS, s.expert_bytes) || run_slots(COPIES, s.expert_bytes) ||
         drop_graphs(s.routers);
}

static int run(const char *trace) {
  gmlake_stats stats = {0};
  unsigned wrong;
  if (make_device() || make_host()) return 1;
  if (trace ? read_routing(trace) : (make_routing(), 0)) return 1;
  printf("%u layers of %u experts of %.2f MiB: %.1f GiB, in %.1f GiB\n", o.layers, o.experts,
         (double)s.expert_bytes / (double)MIB, (double)(s.total * s.expert_bytes) / 0x1p30,
         (double)(s.capacity * s.chunk) / 0x1p30);
  if (load() || compare() || read_word(s.wrong, &wrong)) return 1;
  if (failed("get_stats", gmlake_get_stats(s.lake, &stats))) return 1;
  printf("the lake held %zu MiB at most, of %u\n", stats.reserved_bytes_peak / MIB, o.limit_mib);
  printf(has_memory ? "wrong words: %u\n" : "no words were compared\n", wrong);
  return drop_device() | drop_host() | (wrong != 0) |
         (stats.reserved_bytes_peak > o.limit_mib * MIB);
}

static int usage(void) {
  size_t i;
  fprintf(stderr, "usage: experts [--large] [--trace FILE] [--OPTION NUMBER]...\n");
  for (i = 0; i < OPTIONS; i++)
    fprintf(stderr, "  --%-10s %s (%u; large: %u)\n", options[i].name, options[i].meaning,
            options[i].small, options[i].large);
  return 2;
}

static int read_options(int count, char **words, const char **out_trace) {
  const int is_large = count > 1 && !strcmp(words[1], "--large");
  size_t i;
  int at;
  for (i = 0; i < OPTIONS; i++) *options[i].value = is_large ? options[i].large : options[i].small;
  for (at = 1 + is_large; at < count; at += 2) {
    char *end = words[at];
    unsigned long value = at + 1 < count ? strtoul(words[at + 1], &end, 10) : 0;
    for (i = 0;
         i < OPTIONS && (strncmp(words[at], "--", 2) || strcmp(words[at] + 2, options[i].name));)
      i++;
    if (!strcmp(words[at], "--trace") && at + 1 < count)
      *out_trace = words[at + 1];
    else if (i < OPTIONS && *end == 0 && value >= options[i].min && value <= options[i].max)
      *options[i].value = (unsigned)value;
    else
      return usage();
  }
  if (2 * o.chosen > o.experts) return refused("chosen is %u: more than half", o.chosen);
  return 0;
}

int main(int count, char **words) {
  const char *trace = NULL;
  gmlake_desc desc = {0};
  int status = read_options(count, words, &trace);
  if (status) return status;
  s.total = o.layers * o.experts;
  s.tokens = o.tokens + o.tokens / 3;
  s.expert_bytes = o.expert_kib * KIB;
  s.chunk = o.chunk_mib * MIB;
  s.stride_chunks = (unsigned)((s.expert_bytes + s.chunk - 1) / s.chunk);
  s.stride = s.stride_chunks * s.chunk;
  if (device_open()) return 1;
  desc.backend = s.backend;
  /* Of another size than the buffers' chunks: then these are mapped in buffers alone. */
  desc.chunk_bytes = 2 * s.chunk;
  desc.limit_bytes = o.limit_mib * MIB;
  if (failed("create", gmlake_create(&desc, &s.lake))) return 1;
  if (run(trace)) return 1; /* the system takes back what it has */
  status = failed("forget", gmlake_forget_stream(s.lake, s.worker));
  status |= failed("forget", gmlake_forget_stream(s.lake, s.copier));
  status |= failed("destroy", gmlake_destroy(s.lake));
  return device_close() | status;
}
