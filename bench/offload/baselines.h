/* Planners to compare TENSILE with: vDNN and Capuchin, as plans made by hand for one job. Include
   after gmlake_offload.h.

   vDNN (Rhu et al., MICRO 2016) moves feature maps: what a layer of the forward pass reads and the
   backward pass needs again. It goes to the host while the last layer of the forward pass that
   reads it runs; the next layer waits until the copy has ended, and the memory is free. In the
   backward pass it comes back one layer ahead: while the layer runs that is the last to need
   another such feature map; the next layer waits for it. vDNN_conv moves those that a convolution
   reads, vDNN_all all. A layer is an operator here. The names of the operators say what they are:
   the backward pass begins at the first name with "backward" in it, and a convolution has "conv" in
   its name before that. Where there is no such name nothing moves. Waits are operators of their own
   in a copy of the graph: it has the tensors and operators of the given one, by the same ids.

   Capuchin (Peng et al., ASPLOS 2020) measures the accesses of an iteration in which tensors move
   on demand, and chooses among pairs of accesses of a tensor that follow each other with the
   memory's peak in between. The free time of a pair is what is left between the end of the swap out
   behind the first one and the begin of the swap in before the second one. The longest free time
   goes first, as long as it is above 0. Then a step costs time, and the cheaper one is taken: the
   swap that is exposed least, or recomputing the tensor that saves most memory per second (MSPS). A
   swap in begins at the end of an operator, the in-trigger; an access that finds it late moves the
   in-trigger earlier by a twentieth of the swap's time. What is still above the budget moves on
   demand. Here the measured times are the graph's, and tensors do not leave across iterations. */
#if !defined(BASELINES_H_INCLUDED)
#define BASELINES_H_INCLUDED

#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#define BASELINE_BYTES_MIN ((size_t)1 << 20) /* smaller tensors stay */

typedef struct baseline_link {
  double out_bytes_per_s, in_bytes_per_s;
  uint64_t copy_ns; /* of each copy */
} baseline_link;

/* ---- A graph's operators in time, its tensors' accesses in order ----------------------------- */

typedef struct baseline_access {
  size_t position;
  int reads, writes;
} baseline_access;

typedef struct baseline_view {
  const gmlake_offload_graph *graph;
  gmlake_offload_graph_info info;
  baseline_link link;
  gmlake_offload_op_desc *ops; /* by position */
  uint64_t *begin_ns;          /* by position, and the iteration's end */
  size_t *first;               /* accesses of tensor t: accesses[first[t]] .. [first[t + 1]] */
  baseline_access *accesses;
} baseline_view;

static inline void baseline_view_free(baseline_view *v) {
  free(v->ops);
  free(v->begin_ns);
  free(v->first);
  free(v->accesses);
  memset(v, 0, sizeof *v);
}

/* The k-th tensor that an operator names, its reads first. */
static uint32_t baseline_ref(const gmlake_offload_op_desc *op, size_t k) {
  return k < op->read_count ? op->reads[k] : op->writes[k - op->read_count];
}

/* An update is one access. */
static void baseline_note(baseline_view *v, size_t *next, size_t position, size_t k) {
  uint32_t tensor = baseline_ref(&v->ops[position], k);
  baseline_access *access;
  if (next[tensor] == v->first[tensor] || v->accesses[next[tensor] - 1].position != position) {
    v->accesses[next[tensor]++].position = position;
  }
  access = &v->accesses[next[tensor] - 1];
  access->reads |= k < v->ops[position].read_count;
  access->writes |= k >= v->ops[position].read_count;
}

/* Two rounds: the first counts how many accesses a tensor has at most. */
static int baseline_view_accesses(baseline_view *v) {
  size_t i, k, t, *next = (size_t *)calloc(v->info.tensor_count + 1, sizeof *next);
  if (!next) return 0;
  for (i = 0; i < v->info.op_count; i++) {
    for (k = 0; k < v->ops[i].read_count + v->ops[i].write_count; k++) {
      v->first[baseline_ref(&v->ops[i], k) + 1]++;
    }
  }
  for (t = 0; t < v->info.tensor_count; t++) {
    v->first[t + 1] += v->first[t];
    next[t] = v->first[t];
  }
  v->accesses = (baseline_access *)calloc(v->first[v->info.tensor_count] + 1, sizeof *v->accesses);
  for (i = 0; v->accesses && i < v->info.op_count; i++) {
    for (k = 0; k < v->ops[i].read_count + v->ops[i].write_count; k++) baseline_note(v, next, i, k);
  }
  for (t = 0; v->accesses && t < v->info.tensor_count; t++) { /* close up what updates left */
    size_t from = v->first[t], count = next[t] - from;
    v->first[t] = t ? next[t - 1] : 0;
    memmove(v->accesses + v->first[t], v->accesses + from, count * sizeof *v->accesses);
    next[t] = v->first[t] + count;
  }
  v->first[v->info.tensor_count] = next[v->info.tensor_count - 1];
  free(next);
  return v->accesses != NULL;
}

/* 0 where memory is refused. pre: the graph is sealed and has a tensor. */
static inline int baseline_view_make(baseline_view *v, const gmlake_offload_graph *graph,
                                     const baseline_link *link) {
  size_t i;
  memset(v, 0, sizeof *v);
  v->graph = graph;
  v->link = *link;
  (void)gmlake_offload_graph_get_info(graph, &v->info);
  v->ops = (gmlake_offload_op_desc *)calloc(v->info.op_count, sizeof *v->ops);
  v->begin_ns = (uint64_t *)calloc(v->info.op_count + 1, sizeof *v->begin_ns);
  v->first = (size_t *)calloc(v->info.tensor_count + 1, sizeof *v->first);
  if (!v->ops || !v->begin_ns || !v->first) {
    baseline_view_free(v);
    return 0;
  }
  for (i = 0; i < v->info.op_count; i++) {
    (void)gmlake_offload_get_op(graph, v->info.op_order[i], &v->ops[i]);
    v->begin_ns[i + 1] = v->begin_ns[i] + v->ops[i].time_ns;
  }
  if (baseline_view_accesses(v)) return 1;
  baseline_view_free(v);
  return 0;
}

static gmlake_offload_tensor_desc baseline_tensor(const baseline_view *v, size_t tensor) {
  gmlake_offload_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  (void)gmlake_offload_get_tensor(v->graph, (uint32_t)tensor, &desc);
  return desc;
}

static uint64_t baseline_out_ns(const baseline_view *v, size_t tensor) {
  double bytes = (double)baseline_tensor(v, tensor).bytes;
  return (uint64_t)(bytes * 1e9 / v->link.out_bytes_per_s) + v->link.copy_ns + 1;
}

static uint64_t baseline_in_ns(const baseline_view *v, size_t tensor) {
  double bytes = (double)baseline_tensor(v, tensor).bytes;
  return (uint64_t)(bytes * 1e9 / v->link.in_bytes_per_s) + v->link.copy_ns + 1;
}

/* Trigger: an operator, or NONE for the iteration's begin. `last`: of the access before the gap. */
static gmlake_offload_event baseline_event(gmlake_offload_action action, size_t tensor,
                                           uint32_t trigger, uint32_t last) {
  gmlake_offload_event event;
  memset(&event, 0, sizeof event);
  event.action = action;
  event.tensor = (uint32_t)tensor;
  event.trigger = trigger;
  event.op = last;
  return event;
}

/* ---- vDNN ------------------------------------------------------------------------------------ */

typedef struct vdnn_map {
  size_t tensor;
  const baseline_access *last; /* of the forward pass */
  size_t maker;                /* position of the access before that, or of that */
  size_t back;                 /* of the first access of the backward pass */
  int beside;                  /* copied while the layer runs, not behind it */
} vdnn_map;

typedef struct vdnn {
  const baseline_view *view;
  int all;
  size_t turn; /* position of the first operator of the backward pass */
  vdnn_map *maps;
  size_t map_count;
  uint64_t *wait_ns;  /* behind each position */
  uint32_t *wait_ops; /* which operator that is, or NONE */
} vdnn;

static int vdnn_is_moved(const vdnn *d, const baseline_access *from, const baseline_access *to) {
  for (; from <= to; from++) {
    if (from->reads && (d->all || strstr(d->view->ops[from->position].name, "conv"))) return 1;
  }
  return 0;
}

/* In the order of their return. */
static void vdnn_add_map(vdnn *d, const vdnn_map *map) {
  size_t i = d->map_count++;
  for (; i > 0 && d->maps[i - 1].back > map->back; i--) d->maps[i] = d->maps[i - 1];
  d->maps[i] = *map;
}

static void vdnn_find_maps(vdnn *d) {
  const baseline_view *v = d->view;
  size_t t;
  for (t = 0; t < v->info.tensor_count; t++) {
    const baseline_access *a = v->accesses + v->first[t], *end = v->accesses + v->first[t + 1];
    const baseline_access *back = a;
    gmlake_offload_tensor_desc desc = baseline_tensor(v, t);
    vdnn_map map;
    while (back < end && back->position < d->turn) back++;
    if (desc.kind != GMLAKE_OFFLOAD_INTERMEDIATE || desc.bytes < BASELINE_BYTES_MIN) continue;
    if (back == a || back == end || !vdnn_is_moved(d, a, back - 1)) continue;
    map.tensor = t;
    map.last = back - 1;
    map.maker = back - 1 > a ? back[-2].position : back[-1].position;
    map.back = back->position;
    map.beside = 0;
    vdnn_add_map(d, &map);
  }
}

/* Where the swap in of map i begins: with the layer that takes the one before. */
static size_t vdnn_ahead(const vdnn *d, size_t i) {
  size_t back = d->maps[i].back;
  while (i > 0 && d->maps[i].back == back) i--;
  return d->maps[i].back == back ? d->turn : d->maps[i].back;
}

/* One copy out goes beside the layer, of what the layer does not write; others follow it. What
   copies take longer than the layer, the next one waits. 0 where memory is refused. */
static int vdnn_find_waits(vdnn *d) {
  const baseline_view *v = d->view;
  uint64_t *out_ns = (uint64_t *)calloc(v->info.op_count, sizeof *out_ns);
  uint64_t *in_ns = (uint64_t *)calloc(v->info.op_count, sizeof *in_ns);
  size_t i;
  for (i = 0; out_ns && in_ns && i < d->map_count; i++) {
    vdnn_map *map = &d->maps[i];
    size_t last = map->last->position;
    map->beside = !map->last->writes && !out_ns[last];
    *(map->beside ? &out_ns[last] : &d->wait_ns[last]) += baseline_out_ns(v, map->tensor);
    in_ns[vdnn_ahead(d, i)] += baseline_in_ns(v, map->tensor);
  }
  for (i = 0; out_ns && in_ns && i < v->info.op_count; i++) {
    uint64_t busy = out_ns[i] > in_ns[i] ? out_ns[i] : in_ns[i];
    if (busy > v->ops[i].time_ns) d->wait_ns[i] += busy - v->ops[i].time_ns;
  }
  free(out_ns);
  free(in_ns);
  return out_ns && in_ns;
}

/* Adds the operator, or the wait behind it, between its neighbours in the order: it reads the link
   `from` and makes the link `to`, which are tensors of 0 bytes. */
static int vdnn_add_op(gmlake_offload_graph *graph, gmlake_offload_op_desc desc, uint32_t from,
                       uint32_t to, uint32_t *out_op) {
  uint32_t *refs = (uint32_t *)malloc((desc.read_count + desc.write_count + 2) * sizeof *refs);
  uint32_t *writes = refs + desc.read_count + 1;
  int ok = refs != NULL;
  if (ok && desc.read_count) memcpy(refs, desc.reads, desc.read_count * sizeof *refs);
  if (ok && desc.write_count) memcpy(writes, desc.writes, desc.write_count * sizeof *refs);
  if (ok) writes[desc.write_count++] = to;
  if (ok && from != GMLAKE_OFFLOAD_NONE) refs[desc.read_count++] = from;
  desc.reads = refs;
  desc.writes = writes;
  desc.flags &= ~GMLAKE_OFFLOAD_TRANSFER;
  ok = ok && !gmlake_offload_add_op(graph, &desc, out_op);
  free(refs);
  return ok;
}

/* The graph with waits, in the same order; NULL where memory is refused. Behind the graph's tensors
   there is a link behind each position, then one before each wait. */
static gmlake_offload_graph *vdnn_make_graph(vdnn *d) {
  const gmlake_offload_graph_info *info = &d->view->info;
  gmlake_offload_graph_desc unordered = {GMLAKE_OFFLOAD_UNORDERED, {NULL, NULL, NULL}};
  uint32_t id, links = (uint32_t)info->tensor_count, waits = links + (uint32_t)info->op_count;
  uint32_t *position = (uint32_t *)malloc(info->op_count * sizeof *position);
  gmlake_offload_graph *graph = NULL;
  size_t i;
  int ok = position && !gmlake_offload_graph_create(&unordered, &graph);
  for (i = 0; ok && i < info->op_count; i++) position[info->op_order[i]] = (uint32_t)i;
  for (i = 0; ok && i < waits + info->op_count; i++) {
    gmlake_offload_tensor_desc link = {0, GMLAKE_OFFLOAD_INTERMEDIATE, d->view->ops[0].device};
    gmlake_offload_tensor_desc desc = i < links ? baseline_tensor(d->view, i) : link;
    ok = !gmlake_offload_add_tensor(graph, &desc, &id);
  }
  for (i = 0; ok && i < info->op_count; i++) {
    gmlake_offload_op_desc desc;
    uint32_t at = position[i];
    (void)gmlake_offload_get_op(d->view->graph, (uint32_t)i, &desc);
    ok = vdnn_add_op(graph, desc, at ? links + at - 1 : GMLAKE_OFFLOAD_NONE,
                     (d->wait_ns[at] ? waits : links) + at, &id);
  }
  for (i = 0; ok && i < info->op_count; i++) {
    gmlake_offload_op_desc desc;
    d->wait_ops[i] = GMLAKE_OFFLOAD_NONE;
    if (!d->wait_ns[i]) continue;
    memset(&desc, 0, sizeof desc);
    desc.name = "wait";
    desc.device = d->view->ops[i].device;
    desc.time_ns = d->wait_ns[i];
    ok = vdnn_add_op(graph, desc, waits + (uint32_t)i, links + (uint32_t)i, &d->wait_ops[i]);
  }
  free(position);
  if (ok && !gmlake_offload_graph_seal(graph)) return graph;
  gmlake_offload_graph_destroy(graph);
  return NULL;
}

/* What ends when the operator at the position can begin. */
static uint32_t vdnn_before(const vdnn *d, size_t position) {
  if (!position) return GMLAKE_OFFLOAD_NONE;
  if (d->wait_ops[position - 1] != GMLAKE_OFFLOAD_NONE) return d->wait_ops[position - 1];
  return d->view->info.op_order[position - 1];
}

static int vdnn_make_plan(const vdnn *d, const gmlake_offload_graph *graph,
                          gmlake_offload_plan **out_plan) {
  const uint32_t *order = d->view->info.op_order;
  gmlake_offload_event *events =
      (gmlake_offload_event *)calloc(3 * d->map_count + 1, sizeof *events);
  size_t i, count = 0;
  int ok;
  for (i = 0; events && i < d->map_count; i++) {
    const vdnn_map *map = &d->maps[i];
    size_t last = map->last->position;
    uint32_t last_op = order[last];
    if (!map->beside) {
      events[count++] = baseline_event(GMLAKE_OFFLOAD_SWAP_OUT, map->tensor, last_op, last_op);
    } else {
      events[count++] = baseline_event(GMLAKE_OFFLOAD_SWAP_OUT, map->tensor, vdnn_before(d, last),
                                       order[map->maker]);
      events[count++] =
          baseline_event(GMLAKE_OFFLOAD_DROP, map->tensor, vdnn_before(d, last + 1), last_op);
    }
    events[count++] = baseline_event(GMLAKE_OFFLOAD_SWAP_IN, map->tensor,
                                     vdnn_before(d, vdnn_ahead(d, i)), last_op);
  }
  ok = events && !gmlake_offload_plan_create(graph, events, count, NULL, out_plan);
  free(events);
  return ok;
}

/* vDNN's plan, and the graph with waits that it is for; the caller destroys both. 0 where memory is
   refused. */
static inline int vdnn_plan(const baseline_view *v, int all, gmlake_offload_graph **out_graph,
                            gmlake_offload_plan **out_plan) {
  vdnn d;
  int ok = 0;
  *out_graph = NULL;
  *out_plan = NULL;
  memset(&d, 0, sizeof d);
  d.view = v;
  d.all = all;
  while (d.turn < v->info.op_count && !strstr(v->ops[d.turn].name, "backward")) d.turn++;
  d.maps = (vdnn_map *)calloc(v->info.tensor_count + 1, sizeof *d.maps);
  d.wait_ns = (uint64_t *)calloc(v->info.op_count, sizeof *d.wait_ns);
  d.wait_ops = (uint32_t *)calloc(v->info.op_count, sizeof *d.wait_ops);
  if (d.maps && d.wait_ns && d.wait_ops) {
    vdnn_find_maps(&d);
    *out_graph = vdnn_find_waits(&d) ? vdnn_make_graph(&d) : NULL;
    ok = *out_graph && vdnn_make_plan(&d, *out_graph, out_plan);
  }
  free(d.maps);
  free(d.wait_ns);
  free(d.wait_ops);
  return ok;
}

/* ---- Capuchin -------------------------------------------------------------------------------- */

/* A pair of accesses between which the tensor is not on the device. */
typedef struct capuchin_pair {
  size_t tensor, evicted, back; /* positions of the accesses */
  int recompute;
  uint64_t cost_ns;  /* of recomputing, or that the swap is exposed */
  uint64_t early_ns; /* what the in-trigger was moved by */
} capuchin_pair;

typedef struct capuchin {
  const baseline_view *view;
  double *bytes; /* in use at each position */
  capuchin_pair *pairs;
  size_t pair_count, pair_capacity;
  size_t reached_bytes; /* the lowest peak that the plan has, by its own count */
} capuchin;

static inline void capuchin_free(capuchin *c) {
  free(c->bytes);
  free(c->pairs);
  memset(c, 0, sizeof *c);
}

static void capuchin_add_bytes(capuchin *c, size_t from, size_t to, double bytes) {
  for (; from < to; from++) c->bytes[from] += bytes;
}

/* Nothing moved. */
static void capuchin_count_bytes(capuchin *c) {
  const baseline_view *v = c->view;
  size_t t;
  for (t = 0; t < v->info.tensor_count; t++) {
    gmlake_offload_tensor_desc desc = baseline_tensor(v, t);
    size_t from = 0, to = v->info.op_count;
    if (desc.kind == GMLAKE_OFFLOAD_INTERMEDIATE || desc.kind == GMLAKE_OFFLOAD_OUTPUT) {
      if (v->first[t] == v->first[t + 1]) continue;
      from = v->accesses[v->first[t]].position;
      if (desc.kind == GMLAKE_OFFLOAD_INTERMEDIATE) {
        to = v->accesses[v->first[t + 1] - 1].position + 1;
      }
    }
    capuchin_add_bytes(c, from, to, (double)desc.bytes);
  }
}

/* Nanoseconds; below 0: so much of the swap is exposed. */
static double capuchin_free_time(const baseline_view *v, const capuchin_pair *pair) {
  double out_end = (double)(v->begin_ns[pair->evicted + 1] + baseline_out_ns(v, pair->tensor));
  double in_begin = (double)v->begin_ns[pair->back] - (double)baseline_in_ns(v, pair->tensor);
  return in_begin - out_end;
}

/* The makers of the pair's tensor again, behind the operator before it comes back: events, at most
   `room`; their number. */
static size_t capuchin_remakes(const baseline_view *v, const capuchin_pair *pair,
                               gmlake_offload_event *events, size_t room) {
  const baseline_access *a = v->accesses + v->first[pair->tensor];
  size_t count = 0;
  for (; a->position <= pair->evicted && count < room; a++) {
    if (!a->writes) continue;
    events[count++] =
        baseline_event(GMLAKE_OFFLOAD_RECOMPUTE, pair->tensor, v->info.op_order[pair->back - 1],
                       v->info.op_order[a->position]);
    if (a->position == pair->evicted) break;
  }
  return count;
}

#define CAPUCHIN_MAKERS_MAX 8

/* Whether one of the pairs takes away what recomputing reads, or has that recomputed. */
static int capuchin_conflicts(const capuchin *c, const capuchin_pair *remade,
                              const capuchin_pair *moved) {
  gmlake_offload_event events[CAPUCHIN_MAKERS_MAX];
  size_t i, k, count = capuchin_remakes(c->view, remade, events, CAPUCHIN_MAKERS_MAX);
  if (moved->evicted >= remade->back || moved->back < remade->back) return 0;
  for (i = 0; i < count; i++) {
    gmlake_offload_op_desc op;
    (void)gmlake_offload_get_op(c->view->graph, events[i].op, &op);
    for (k = 0; k < op.read_count; k++) {
      if (op.reads[k] == moved->tensor && op.reads[k] != remade->tensor) return 1;
    }
  }
  return 0;
}

/* Whether the pair, swapped or recomputed, can stand beside those chosen. */
static int capuchin_fits(const capuchin *c, const capuchin_pair *pair, int recompute) {
  size_t i;
  for (i = 0; i < c->pair_count; i++) {
    const capuchin_pair *other = &c->pairs[i];
    if (other->tensor == pair->tensor && other->evicted == pair->evicted) return 0;
    if (other->recompute && capuchin_conflicts(c, other, pair)) return 0;
    if (recompute && capuchin_conflicts(c, pair, other)) return 0;
  }
  return 1;
}

/* Time of recomputing, 0 where a plan would be refused. */
static uint64_t capuchin_remake_ns(const capuchin *c, const capuchin_pair *pair) {
  gmlake_offload_event events[CAPUCHIN_MAKERS_MAX + 1];
  gmlake_offload_plan *plan = NULL;
  size_t i, count = capuchin_remakes(c->view, pair, events, CAPUCHIN_MAKERS_MAX + 1);
  uint64_t ns = 0;
  if (count > CAPUCHIN_MAKERS_MAX) return 0;
  if (gmlake_offload_plan_create(c->view->graph, events, count, NULL, &plan)) return 0;
  gmlake_offload_plan_destroy(plan);
  for (i = 0; i < count; i++) {
    gmlake_offload_op_desc op;
    (void)gmlake_offload_get_op(c->view->graph, events[i].op, &op);
    ns += op.time_ns;
  }
  return ns;
}

/* The tensor's accesses around a position; 0 where it is in use there, or not alive. */
static int capuchin_pair_at(const baseline_view *v, size_t tensor, size_t position,
                            capuchin_pair *out) {
  size_t i;
  memset(out, 0, sizeof *out);
  out->tensor = tensor;
  for (i = v->first[tensor]; i + 1 < v->first[tensor + 1]; i++) {
    out->evicted = v->accesses[i].position;
    out->back = v->accesses[i + 1].position;
    if (out->evicted < position && position < out->back) return 1;
  }
  return 0;
}

/* Of the pairs around a position the swap with the longest free time; 0: there is none. */
static int capuchin_best_swap(const capuchin *c, size_t position, capuchin_pair *out) {
  double longest = 0;
  int found = 0;
  size_t t;
  for (t = 0; t < c->view->info.tensor_count; t++) {
    capuchin_pair pair;
    double free_ns;
    if (baseline_tensor(c->view, t).bytes < BASELINE_BYTES_MIN) continue;
    if (!capuchin_pair_at(c->view, t, position, &pair)) continue;
    free_ns = capuchin_free_time(c->view, &pair);
    if ((found && free_ns <= longest) || !capuchin_fits(c, &pair, 0)) continue;
    found = 1;
    *out = pair;
    out->cost_ns = free_ns < 0 ? (uint64_t)-free_ns : 0;
    longest = free_ns;
  }
  return found;
}

/* The recomputation with the largest MSPS. */
static int capuchin_best_remake(const capuchin *c, size_t position, capuchin_pair *out) {
  double most = 0;
  size_t t;
  for (t = 0; t < c->view->info.tensor_count; t++) {
    gmlake_offload_tensor_desc desc = baseline_tensor(c->view, t);
    capuchin_pair pair;
    double msps;
    if (desc.bytes < BASELINE_BYTES_MIN || desc.kind != GMLAKE_OFFLOAD_INTERMEDIATE) continue;
    if (!capuchin_pair_at(c->view, t, position, &pair) || !capuchin_fits(c, &pair, 1)) continue;
    pair.cost_ns = capuchin_remake_ns(c, &pair);
    msps = pair.cost_ns ? (double)desc.bytes / (double)pair.cost_ns : 0;
    if (msps <= most) continue;
    most = msps;
    *out = pair;
    out->recompute = 1;
  }
  return most > 0;
}

static int capuchin_take(capuchin *c, const capuchin_pair *pair) {
  if (c->pair_count == c->pair_capacity) {
    size_t capacity = c->pair_capacity ? 2 * c->pair_capacity : 64;
    capuchin_pair *pairs = (capuchin_pair *)realloc(c->pairs, capacity * sizeof *pairs);
    if (!pairs) return 0;
    c->pairs = pairs;
    c->pair_capacity = capacity;
  }
  c->pairs[c->pair_count++] = *pair;
  capuchin_add_bytes(c, pair->evicted + 1, pair->back,
                     -(double)baseline_tensor(c->view, pair->tensor).bytes);
  return 1;
}

/* Chooses pairs until the budget is kept or there are none. 0 where memory is refused. */
static inline int capuchin_choose(capuchin *c, const baseline_view *v, size_t budget_bytes) {
  memset(c, 0, sizeof *c);
  c->view = v;
  c->bytes = (double *)calloc(v->info.op_count, sizeof *c->bytes);
  if (!c->bytes) return 0;
  capuchin_count_bytes(c);
  for (;;) {
    capuchin_pair best, remake;
    size_t i, peak = 0;
    int swaps;
    memset(&best, 0, sizeof best);
    for (i = 1; i < v->info.op_count; i++) {
      if (c->bytes[i] > c->bytes[peak]) peak = i;
    }
    c->reached_bytes = (size_t)c->bytes[peak];
    if (c->bytes[peak] <= (double)budget_bytes) return 1;
    swaps = capuchin_best_swap(c, peak, &best);
    if ((!swaps || best.cost_ns) && capuchin_best_remake(c, peak, &remake) &&
        (!swaps || remake.cost_ns < best.cost_ns)) {
      best = remake;
    } else if (!swaps) {
      return 1;
    }
    if (!capuchin_take(c, &best)) return 0;
  }
}

/* The last operator that ends before the swap in has to begin, but for one during which the swap
   out ends. `back` where that is too late: the access fetches the tensor itself. */
static size_t capuchin_in_trigger(const baseline_view *v, const capuchin_pair *pair) {
  uint64_t ahead = baseline_in_ns(v, pair->tensor) + pair->early_ns;
  uint64_t out_end = v->begin_ns[pair->evicted + 1] + baseline_out_ns(v, pair->tensor);
  size_t at = pair->back - 1;
  while (at > pair->evicted && v->begin_ns[at + 1] + ahead > v->begin_ns[pair->back]) at--;
  while (at < pair->back && (at == pair->evicted || v->begin_ns[at + 1] < out_end)) at++;
  return at;
}

/* The plan of the pairs; NULL where memory is refused. */
static inline gmlake_offload_plan *capuchin_plan(const capuchin *c) {
  const baseline_view *v = c->view;
  const uint32_t *order = v->info.op_order;
  size_t i, count = 0, each = CAPUCHIN_MAKERS_MAX + 1;
  gmlake_offload_event *events =
      (gmlake_offload_event *)calloc(each * c->pair_count + 1, sizeof *events);
  gmlake_offload_plan *plan = NULL;
  for (i = 0; events && i < c->pair_count; i++) {
    const capuchin_pair *pair = &c->pairs[i];
    uint32_t evicted = order[pair->evicted];
    size_t at = capuchin_in_trigger(v, pair);
    gmlake_offload_action action = pair->recompute ? GMLAKE_OFFLOAD_DROP : GMLAKE_OFFLOAD_SWAP_OUT;
    events[count++] = baseline_event(action, pair->tensor, evicted, evicted);
    if (pair->recompute) {
      count += capuchin_remakes(v, pair, events + count, CAPUCHIN_MAKERS_MAX);
    } else if (at < pair->back) {
      events[count++] = baseline_event(GMLAKE_OFFLOAD_SWAP_IN, pair->tensor, order[at], evicted);
    }
  }
  if (events) (void)gmlake_offload_plan_create(v->graph, events, count, NULL, &plan);
  free(events);
  return plan;
}

/* The feedback: to be called when an operator of the run has ended. What the next one needs and is
   not there comes earlier in the next plan. */
static inline void capuchin_observe(capuchin *c, gmlake_offload_run *run, uint32_t job,
                                    uint32_t op) {
  size_t i;
  for (i = 0; i < c->pair_count; i++) {
    capuchin_pair *pair = &c->pairs[i];
    void *device, *host;
    if (pair->recompute || c->view->info.op_order[pair->back - 1] != op) continue;
    if (gmlake_offload_run_locate(run, job, (uint32_t)pair->tensor, &device, &host)) continue;
    if (!device) pair->early_ns += baseline_in_ns(c->view, pair->tensor) / 20;
  }
}

#endif
