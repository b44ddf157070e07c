/* What the tests of gmlake_offload.h share: counted host memory that can be made to fail,
   shorthands for graphs, and random graphs. It includes the implementation, with the mock. */
#if !defined(OFFLOAD_FIXTURE_H)
#define OFFLOAD_FIXTURE_H

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#if defined(__cplusplus)
extern "C" { /* cmocka.h does not say so everywhere */
#endif
#include <cmocka.h>
#if defined(__cplusplus)
}
#endif

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

#define RANDOM_TENSORS 400

typedef struct random_world {
  gmlake_offload_graph *graph;
  uint32_t live[RANDOM_TENSORS]; /* tensors that may be read */
  size_t count;
} random_world;

static inline void random_op(random_world *w) {
  gmlake_offload_op_desc desc;
  uint32_t reads[4], writes[3], id;
  size_t i, n, wanted = random_below(4);
  memset(&desc, 0, sizeof desc);
  desc.reads = reads;
  desc.writes = writes;
  desc.time_ns = random_below(3) ? 20 * US + random_below(400) * US : random_below(3);
  if (random_below(8) == 0) desc.flags = GMLAKE_OFFLOAD_IMPURE;
  for (i = 0; i < wanted && w->count; i++) {
    uint32_t pick = random_below(2) ? (uint32_t)w->count - 1 - random_below((uint32_t)w->count)
                                    : (uint32_t)w->count - 1;
    for (n = 0; n < desc.read_count && reads[n] != w->live[pick]; n++) continue;
    if (n == desc.read_count) reads[desc.read_count++] = w->live[pick];
  }
  if (desc.read_count && random_below(4) == 0) {
    gmlake_offload_tensor_desc t;
    assert_ok(gmlake_offload_get_tensor(w->graph, reads[0], &t));
    if (t.kind != GMLAKE_OFFLOAD_INPUT) writes[desc.write_count++] = reads[0]; /* in place */
  }
  for (n = random_below(8) ? 1 : 2; n > 0 && desc.write_count < 3 && w->count < RANDOM_TENSORS;
       n--) {
    gmlake_offload_kind kind =
        random_below(9) ? GMLAKE_OFFLOAD_INTERMEDIATE : GMLAKE_OFFLOAD_OUTPUT;
    uint32_t made_id = tensor(w->graph, (size_t)random_below(40) * MIB / 2, kind);
    writes[desc.write_count++] = made_id;
  }
  assert_ok(gmlake_offload_add_op(w->graph, &desc, &id));
  for (i = 0; i < desc.write_count; i++) {
    for (n = 0; n < w->count && w->live[n] != writes[i]; n++) continue;
    if (n == w->count) w->live[w->count++] = writes[i];
  }
}

/* A forward sweep with later looks back, as training has them. Sealed. */
static inline gmlake_offload_graph *random_graph(uint64_t seed, size_t op_count) {
  random_world w;
  size_t i;
  random_state = seed * 2654435761u + 1;
  memset(&w, 0, sizeof w);
  w.graph = new_graph(0);
  for (i = 0; i < 6; i++) {
    gmlake_offload_kind kind = i < 4 ? GMLAKE_OFFLOAD_PERSISTENT : GMLAKE_OFFLOAD_INPUT;
    w.live[w.count++] = tensor(w.graph, (size_t)random_below(30) * MIB, kind);
  }
  for (i = 0; i < op_count; i++) random_op(&w);
  assert_ok(gmlake_offload_graph_seal(w.graph));
  return w.graph;
}

#endif
