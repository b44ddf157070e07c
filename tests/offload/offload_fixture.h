/* What the tests of gmlake_offload.h share: counted host memory that can be made to fail,
   shorthands for graphs, and random graphs. It includes the implementation, with the mock. */
#if !defined(OFFLOAD_FIXTURE_H)
#define OFFLOAD_FIXTURE_H

#include "cases.h"

#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#define MIB ((size_t)1 << 20)
#define US ((uint64_t)1000)
#define MS ((uint64_t)1000000)
#define NONE GMLAKE_OFFLOAD_NONE
#define assert_ok(call) assert_int_equal(call, GMLAKE_OFFLOAD_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_OFFLOAD_ERROR_##name)

#include "host.h"

/* ---- Graphs ---------------------------------------------------------------------------------- */

static inline gmlake_offload_graph *new_graph(unsigned flags) {
  gmlake_offload_graph_desc desc;
  gmlake_offload_graph *graph;
  memset(&desc, 0, sizeof desc);
  desc.flags = flags;
  desc.host = counted;
  assert_ok(gmlake_offload_graph_create(&desc, &graph));
  return graph;
}

static inline gmlake_offload_result try_tensor(gmlake_offload_graph *graph, size_t bytes,
                                               gmlake_offload_kind kind, uint32_t device,
                                               uint32_t *out_id) {
  gmlake_offload_tensor_desc desc;
  desc.bytes = bytes;
  desc.kind = kind;
  desc.device = device;
  return gmlake_offload_add_tensor(graph, &desc, out_id);
}

static inline uint32_t tensor(gmlake_offload_graph *graph, size_t bytes, gmlake_offload_kind kind) {
  uint32_t id;
  assert_ok(try_tensor(graph, bytes, kind, 0, &id));
  return id;
}

static inline uint32_t made(gmlake_offload_graph *graph, size_t bytes) {
  return tensor(graph, bytes, GMLAKE_OFFLOAD_INTERMEDIATE);
}

/* Reads a and b, writes c and d; each may be NONE. */
static inline gmlake_offload_result try_op(gmlake_offload_graph *graph, uint64_t time_ns,
                                           uint32_t a, uint32_t b, uint32_t c, uint32_t d,
                                           uint32_t *out_id) {
  gmlake_offload_op_desc desc;
  uint32_t reads[2], writes[2];
  memset(&desc, 0, sizeof desc);
  desc.name = "operator";
  desc.time_ns = time_ns;
  desc.reads = reads;
  desc.writes = writes;
  if (a != NONE) reads[desc.read_count++] = a;
  if (b != NONE) reads[desc.read_count++] = b;
  if (c != NONE) writes[desc.write_count++] = c;
  if (d != NONE) writes[desc.write_count++] = d;
  return gmlake_offload_add_op(graph, &desc, out_id);
}

static inline uint32_t op(gmlake_offload_graph *graph, uint64_t time_ns, uint32_t a, uint32_t b,
                          uint32_t c) {
  uint32_t id;
  assert_ok(try_op(graph, time_ns, a, b, c, NONE, &id));
  return id;
}

static inline gmlake_offload_graph_info info_of(const gmlake_offload_graph *graph) {
  gmlake_offload_graph_info info;
  assert_ok(gmlake_offload_graph_get_info(graph, &info));
  return info;
}

static inline gmlake_offload_plan_info plan_info(const gmlake_offload_plan *plan) {
  gmlake_offload_plan_info info;
  assert_ok(gmlake_offload_plan_get_info(plan, &info));
  return info;
}

/* ---- Random graphs --------------------------------------------------------------------------- */

static uint64_t random_state;

static inline uint32_t random_below(uint32_t bound) {
  random_state = random_state * 6364136223846793005u + 1442695040888963407u;
  return (uint32_t)((random_state >> 33) % bound);
}

#define RANDOM_TENSORS 400 /* of a device */
#define RANDOM_DEVICES 3

typedef struct random_world {
  gmlake_offload_graph *graph;
  uint32_t live[RANDOM_DEVICES][RANDOM_TENSORS]; /* tensors that may be read */
  size_t count[RANDOM_DEVICES];
  uint32_t devices;
  int is_small; /* tensors of some bytes, not of MiB */
} random_world;

static inline size_t random_size(const random_world *w) {
  if (!w->is_small) return (size_t)random_below(40) * MIB / 2;
  return random_below(12) ? (1 + random_below(12)) * 8 * (1 + random_below(6)) : random_below(9);
}

static inline uint32_t random_tensor(random_world *w, gmlake_offload_kind kind, uint32_t device) {
  uint32_t id;
  assert_ok(try_tensor(w->graph, random_size(w), kind, device, &id));
  w->live[device][w->count[device]++] = id;
  return id;
}

/* Often one of the last. */
static inline uint32_t random_pick(const random_world *w, uint32_t device) {
  const uint32_t count = (uint32_t)w->count[device];
  return w->live[device][random_below(2) ? count - 1 - random_below(count < 5 ? count : 5)
                                         : random_below(count)];
}

static inline void random_transfer(random_world *w, uint32_t from) {
  const uint32_t to = (from + 1 + random_below(w->devices - 1)) % w->devices;
  const uint32_t source = random_pick(w, from);
  gmlake_offload_tensor_desc desc;
  uint32_t id, copy;
  assert_ok(gmlake_offload_get_tensor(w->graph, source, &desc));
  assert_ok(try_tensor(w->graph, desc.bytes, GMLAKE_OFFLOAD_INTERMEDIATE, to, &copy));
  assert_ok(gmlake_offload_add_transfer(w->graph, source, copy, 500, &id));
  w->live[to][w->count[to]++] = copy;
}

/* Reads some, updates or overwrites one in place now and then, makes one or two. */
static inline void random_op(random_world *w, uint32_t device) {
  gmlake_offload_op_desc desc;
  gmlake_offload_tensor_desc t;
  uint32_t reads[4], writes[3], id, pick;
  size_t i, n, wanted = random_below(4), more = random_below(4) ? 1 : random_below(3);
  memset(&desc, 0, sizeof desc);
  desc.device = device;
  desc.reads = reads;
  desc.writes = writes;
  desc.time_ns = random_below(4000);
  if (!w->is_small)
    desc.time_ns = random_below(3) ? 20 * US + random_below(400) * US : random_below(3);
  if (random_below(8) == 0) desc.flags = GMLAKE_OFFLOAD_IMPURE;
  for (i = 0; i < wanted; i++) {
    pick = random_pick(w, device);
    for (n = 0; n < desc.read_count && reads[n] != pick; n++) continue;
    if (n == desc.read_count) reads[desc.read_count++] = pick;
  }
  if (random_below(3) == 0) {
    pick = desc.read_count && random_below(3) ? reads[0] : random_pick(w, device);
    assert_ok(gmlake_offload_get_tensor(w->graph, pick, &t));
    if (t.kind != GMLAKE_OFFLOAD_INPUT) writes[desc.write_count++] = pick;
  }
  for (i = 0; i < more && w->count[device] < RANDOM_TENSORS; i++)
    writes[desc.write_count++] = random_tensor(
        w, random_below(8) ? GMLAKE_OFFLOAD_INTERMEDIATE : GMLAKE_OFFLOAD_OUTPUT, device);
  assert_ok(gmlake_offload_add_op(w->graph, &desc, &id));
}

/* Sealed. Of so many devices at most, ordered or not, with tensors of some bytes; or, with 0, of
   one device, in order, with tensors of MiB. */
static inline gmlake_offload_graph *random_graph(uint64_t seed, size_t op_count, uint32_t devices) {
  random_world w;
  size_t i;
  uint32_t d;
  memset(&w, 0, sizeof w);
  random_state = seed * 2654435761u + 7;
  w.is_small = devices != 0;
  w.devices = devices ? 1 + random_below(devices) : 1;
  w.graph = new_graph(w.is_small && random_below(2) ? GMLAKE_OFFLOAD_UNORDERED : 0);
  for (d = 0; d < w.devices; d++)
    for (i = 0; i < 5; i++)
      (void)random_tensor(&w, i < 3 ? GMLAKE_OFFLOAD_PERSISTENT : GMLAKE_OFFLOAD_INPUT, d);
  for (i = 0; i < op_count; i++) {
    d = random_below(w.devices);
    if (w.devices > 1 && random_below(5) == 0)
      random_transfer(&w, d);
    else
      random_op(&w, d);
  }
  assert_ok(gmlake_offload_graph_seal(w.graph));
  return w.graph;
}

#endif
