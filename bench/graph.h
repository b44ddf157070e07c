/* Two sources of graphs for gmlake_offload.h, which is to be included before: .gmgraph files, plain
   or gzipped (link with -lz), and made-up graphs for several devices.

   A graph file is text. Its first line is `gmgraph 1`, every other line is one of
     t ID BYTES KIND [DEVICE]          a tensor: p persistent, i input, a intermediate; IDs count up
     o NAME TIME_NS r ID... w ID...    an operator that reads and writes tensors of lines above; one
                                       that reads one on one device and writes one on another is a
                                       transfer
     m LABEL                           an iteration begins, or the last one ends
     # NAME: VALUE                     a remark
   Lines end in LF or CR LF. The reader checks everything, but an operator may name a tensor twice.
   It takes time in proportion to the file, and no more memory than LINES_MEMORY_MAX. */
#if !defined(GRAPH_H_INCLUDED)
#define GRAPH_H_INCLUDED

#include "lines.h"

#define GRAPH_LINE_MAX (1 << 16)
#define GRAPH_BYTES_MAX ((uint64_t)1 << 50)   /* of one tensor */
#define GRAPH_TIME_NS_MAX ((uint64_t)1 << 50) /* of one operator */
#define GRAPH_NAME_BYTES 32
#define GRAPH_DEVICES_MAX 8

typedef struct graph_tensor {
  size_t bytes;
  char kind;       /* p, i, a */
  unsigned device; /* below GRAPH_DEVICES_MAX */
} graph_tensor;

typedef struct graph_op {
  char name[GRAPH_NAME_BYTES];
  uint64_t time_ns;
  size_t first_ref, read_count, write_count; /* refs: reads, then writes */
} graph_op;

typedef struct graph {
  graph_tensor *tensors;
  graph_op *ops;
  uint32_t *refs;
  size_t *marks; /* operators before which an iteration begins, or the last one ends */
  size_t tensor_count, op_count, ref_count, mark_count; /* at least one operator */
} graph;

/* Private from here to graph_load. Functions return 1, or 0 after they have written the error
   text. */

typedef struct graph_reader {
  lines in;
  graph *out;
  size_t tensor_capacity, op_capacity, ref_capacity, mark_capacity, named_capacity;
  size_t *named; /* for each tensor the number of the list that named it last, from 1 on */
  size_t list;   /* the number of the current list */
} graph_reader;

static int graph_read_tensor(graph_reader *r) {
  graph *g = r->out;
  graph_tensor *tensors;
  size_t *named;
  const char *kind, *word;
  uint64_t id, bytes, device = 0;
  if (!lines_number(&r->in, "the id", UINT32_MAX - 2, &id) ||
      !lines_number(&r->in, "the size", GRAPH_BYTES_MAX, &bytes)) {
    return 0;
  }
  if (id != g->tensor_count) {
    return lines_fail(&r->in, "id %lu expected", (unsigned long)g->tensor_count);
  }
  kind = lines_word(&r->in);
  if (!kind || kind[1] || !strchr("pia", kind[0])) {
    return lines_fail(&r->in, "the kind is none of p, i, a: '%.40s'", kind ? kind : "");
  }
  word = lines_word(&r->in);
  if (word && (!lines_parse(&r->in, word, "the device", GRAPH_DEVICES_MAX - 1, &device) ||
               !lines_end_of_record(&r->in))) {
    return 0;
  }
  tensors = (graph_tensor *)lines_grow(&r->in, g->tensors, g->tensor_count, &r->tensor_capacity,
                                       sizeof(graph_tensor));
  if (!tensors) return 0;
  g->tensors = tensors;
  named =
      (size_t *)lines_grow(&r->in, r->named, g->tensor_count, &r->named_capacity, sizeof(size_t));
  if (!named) return 0;
  r->named = named;
  r->named[g->tensor_count] = 0;
  g->tensors[g->tensor_count].bytes = (size_t)bytes;
  g->tensors[g->tensor_count].device = (unsigned)device;
  g->tensors[g->tensor_count++].kind = kind[0];
  return 1;
}

/* Reads a list of ids up to the word `end`, or to the end of the line if it is NULL. An id that the
   list names twice is kept once. */
static int graph_read_ids(graph_reader *r, const char *end, size_t *out_count) {
  graph *g = r->out;
  size_t first = g->ref_count;
  const char *word;
  r->list++;
  while ((word = lines_word(&r->in)) != NULL && (!end || strcmp(word, end))) {
    uint32_t *refs;
    uint64_t id;
    if (!lines_parse(&r->in, word, "an id", UINT32_MAX, &id)) return 0;
    if (id >= g->tensor_count) {
      return lines_fail(&r->in, "unknown tensor %lu", (unsigned long)id);
    }
    if (r->named[id] == r->list) continue;
    r->named[id] = r->list;
    refs =
        (uint32_t *)lines_grow(&r->in, g->refs, g->ref_count, &r->ref_capacity, sizeof(uint32_t));
    if (!refs) return 0;
    g->refs = refs;
    g->refs[g->ref_count++] = (uint32_t)id;
  }
  if (end && !word) return lines_fail(&r->in, "'%s' is missing", end);
  *out_count = g->ref_count - first;
  return 1;
}

static int graph_read_op(graph_reader *r) {
  graph *g = r->out;
  graph_op op, *ops;
  const char *name = lines_word(&r->in), *word;
  memset(&op, 0, sizeof op);
  if (!name) return lines_fail(&r->in, "the name is missing");
  (void)snprintf(op.name, sizeof op.name, "%.31s", name);
  if (!lines_number(&r->in, "the time", GRAPH_TIME_NS_MAX, &op.time_ns)) return 0;
  word = lines_word(&r->in);
  if (!word || strcmp(word, "r")) return lines_fail(&r->in, "'r' is missing");
  op.first_ref = g->ref_count;
  if (!graph_read_ids(r, "w", &op.read_count) || !graph_read_ids(r, NULL, &op.write_count)) {
    return 0;
  }
  ops = (graph_op *)lines_grow(&r->in, g->ops, g->op_count, &r->op_capacity, sizeof(graph_op));
  if (!ops) return 0;
  g->ops = ops;
  g->ops[g->op_count++] = op;
  return 1;
}

static int graph_read_mark(graph_reader *r) {
  graph *g = r->out;
  size_t *marks =
      (size_t *)lines_grow(&r->in, g->marks, g->mark_count, &r->mark_capacity, sizeof(size_t));
  if (!marks) return 0;
  g->marks = marks;
  g->marks[g->mark_count++] = g->op_count;
  return 1;
}

static int graph_read_record(graph_reader *r) {
  const char *word = lines_word(&r->in);
  if (word && !strcmp(word, "t")) return graph_read_tensor(r);
  if (word && !strcmp(word, "o")) return graph_read_op(r);
  if (word && !strcmp(word, "m")) return graph_read_mark(r);
  if (word && word[0] == '#') return 1;
  return lines_fail(&r->in, "unknown record '%.40s'", word ? word : "");
}

static int graph_read_all(graph_reader *r) {
  unsigned version;
  int more;
  if (!lines_read_head(&r->in, "gmgraph", 1, "graph", &version)) return 0;
  while ((more = lines_next(&r->in)) > 0) {
    if (!graph_read_record(r)) return 0;
  }
  if (more < 0) return 0;
  return r->out->op_count ? 1 : lines_fail(&r->in, "the graph has no operators");
}

/* Frees the memory of a graph that graph_load has read. */
static inline void graph_free(graph *g) {
  free(g->tensors);
  free(g->ops);
  free(g->refs);
  free(g->marks);
  memset(g, 0, sizeof *g);
}

/* Reads a graph. Returns 1, or 0 with `file:line: reason` in error; then there is nothing to
   free. */
static inline int graph_load(const char *path, graph *out, char *error, size_t error_bytes) {
  graph_reader reader;
  int ok;
  memset(out, 0, sizeof *out);
  memset(&reader, 0, sizeof reader);
  reader.out = out;
  ok = lines_open(&reader.in, path, GRAPH_LINE_MAX, error, error_bytes) && graph_read_all(&reader);
  lines_close(&reader.in);
  free(reader.named);
  if (!ok) graph_free(out);
  return ok;
}

/* ---- One iteration of a file as a graph to plan ---------------------------------------------- */

static inline size_t graph_iteration_count(const graph *g) {
  return g->mark_count > 1 ? g->mark_count - 1 : 1;
}

/* The range of operators of an iteration; all of them if the file has fewer than two marks. */
static void graph_iteration_range(const graph *g, size_t iteration, size_t *first, size_t *end) {
  *first = g->mark_count > 1 ? g->marks[iteration] : 0;
  *end = g->mark_count > 1 ? g->marks[iteration + 1] : g->op_count;
}

/* Whether the operator makes random numbers, so that running it twice gives different bytes. */
static int graph_is_impure(const char *name) {
  static const char *const words[] = {"rand",    "dropout",  "bernoulli",   "uniform",
                                      "normal.", "normal_.", "exponential", "multinomial"};
  size_t i;
  for (i = 0; i < sizeof words / sizeof *words; i++) {
    if (strstr(name, words[i])) return 1;
  }
  return 0;
}

/* The kind of a tensor in the iteration. One that the file calls persistent stays so. One that the
   iteration writes before it reads it is an intermediate. One that it only reads is an input. */
static gmlake_offload_kind graph_kind(const graph_tensor *tensor, int made, int written) {
  if (tensor->kind == 'p') return GMLAKE_OFFLOAD_PERSISTENT;
  if (made) return GMLAKE_OFFLOAD_INTERMEDIATE;
  return written ? GMLAKE_OFFLOAD_PERSISTENT : GMLAKE_OFFLOAD_INPUT;
}

/* Adds the tensors that the iteration uses, and all persistent ones. ids[t] becomes the id of t. */
static int graph_add_tensors(const graph *g, size_t first, size_t end,
                             gmlake_offload_graph *planned, uint32_t *ids) {
  unsigned char *how = (unsigned char *)calloc(g->tensor_count + 1, 1);
  gmlake_offload_tensor_desc desc;
  size_t i, n, t;
  int ok = how != NULL;
  memset(&desc, 0, sizeof desc);
  for (i = first; ok && i < end; i++) {
    const graph_op *op = &g->ops[i];
    for (n = 0; n < op->read_count + op->write_count; n++) {
      unsigned char *use = &how[g->refs[op->first_ref + n]];
      if (n >= op->read_count) *use |= *use ? 2 : 3; /* 1: used, 2: written, 4: read first */
      if (n < op->read_count) *use |= *use ? 1 : 5;
    }
  }
  for (t = 0; ok && t < g->tensor_count; t++) {
    ids[t] = GMLAKE_OFFLOAD_NONE;
    if (!how[t] && g->tensors[t].kind != 'p') continue;
    desc.bytes = g->tensors[t].bytes;
    desc.device = g->tensors[t].device;
    desc.kind = graph_kind(&g->tensors[t], how[t] && !(how[t] & 4), (how[t] & 2) != 0);
    ok = gmlake_offload_add_tensor(planned, &desc, &ids[t]) == GMLAKE_OFFLOAD_OK;
  }
  free(how);
  return ok;
}

/* Of the operator's n-th tensor. */
static unsigned graph_device(const graph *g, const graph_op *op, size_t n) {
  return g->tensors[g->refs[op->first_ref + n]].device;
}

static int graph_add_ops(const graph *g, size_t first, size_t end, gmlake_offload_graph *planned,
                         const uint32_t *ids) {
  uint32_t *refs = (uint32_t *)malloc((g->ref_count + 1) * sizeof *refs), id;
  gmlake_offload_op_desc desc;
  size_t i, n;
  int ok = refs != NULL;
  for (i = first; ok && i < end; i++) {
    const graph_op *op = &g->ops[i];
    memset(&desc, 0, sizeof desc);
    for (n = 0; n < op->read_count + op->write_count; n++) {
      refs[n] = ids[g->refs[op->first_ref + n]];
    }
    desc.name = op->name;
    desc.flags = graph_is_impure(op->name) ? GMLAKE_OFFLOAD_IMPURE : 0;
    desc.time_ns = op->time_ns;
    desc.reads = refs;
    desc.writes = refs + op->read_count;
    desc.read_count = op->read_count;
    desc.write_count = op->write_count;
    if (op->read_count + op->write_count) desc.device = graph_device(g, op, 0);
    if (op->read_count == 1 && op->write_count == 1 && graph_device(g, op, 1) != desc.device) {
      ok = !gmlake_offload_add_transfer(planned, refs[0], refs[1], op->time_ns, &id);
      continue;
    }
    ok = gmlake_offload_add_op(planned, &desc, &id) == GMLAKE_OFFLOAD_OK;
  }
  free(refs);
  return ok;
}

/* Returns a sealed graph of one iteration, or NULL with the reason in error. */
static inline gmlake_offload_graph *graph_make(const graph *g, size_t iteration, char *error,
                                               size_t error_bytes) {
  gmlake_offload_graph *planned = NULL;
  gmlake_offload_error_info info;
  uint32_t *ids = (uint32_t *)malloc((g->tensor_count + 1) * sizeof *ids);
  size_t first, end;
  memset(&info, 0, sizeof info);
  graph_iteration_range(g, iteration, &first, &end);
  if (ids && gmlake_offload_graph_create(NULL, &planned) == GMLAKE_OFFLOAD_OK &&
      graph_add_tensors(g, first, end, planned, ids) &&
      graph_add_ops(g, first, end, planned, ids) &&
      gmlake_offload_graph_seal(planned) == GMLAKE_OFFLOAD_OK) {
    free(ids);
    return planned;
  }
  (void)gmlake_offload_graph_get_error(planned, &info);
  (void)snprintf(error, error_bytes, "operator %lu, tensor %lu: %s", (unsigned long)info.op,
                 (unsigned long)info.tensor, info.text[0] ? info.text : "out of memory");
  gmlake_offload_graph_destroy(planned);
  free(ids);
  return NULL;
}

/* ---- Made-up graphs -------------------------------------------------------------------------- */

#define GRAPH_FLOPS 400e12      /* operations that a device computes in a second */
#define GRAPH_PEER_BYTES 200e9  /* bytes copied between two devices in a second */
#define GRAPH_MEMORY_BYTES 3e12 /* bytes that a device reads or writes in a second */

typedef struct graph_maker {
  gmlake_offload_graph *graph;
  int ok;
} graph_maker;

/* The number as a whole one; one that no graph can have ends the making. */
static uint64_t graph_whole(graph_maker *m, double number) {
  if (number >= 0 && number < (double)((uint64_t)1 << 58)) return (uint64_t)number;
  m->ok = 0;
  return 1;
}

static uint32_t graph_new(graph_maker *m, double bytes, gmlake_offload_kind kind, unsigned device) {
  gmlake_offload_tensor_desc desc;
  uint32_t id = GMLAKE_OFFLOAD_NONE;
  desc.bytes = (size_t)graph_whole(m, bytes);
  desc.kind = kind;
  desc.device = device;
  m->ok &= gmlake_offload_add_tensor(m->graph, &desc, &id) == GMLAKE_OFFLOAD_OK;
  return id;
}

/* Adds an operator that reads two tensors (the second may be NONE) and makes one. */
static uint32_t graph_apply(graph_maker *m, const char *name, double seconds, uint32_t a,
                            uint32_t b, double bytes, unsigned device) {
  uint32_t reads[2], made = graph_new(m, bytes, GMLAKE_OFFLOAD_INTERMEDIATE, device), id;
  gmlake_offload_op_desc desc;
  memset(&desc, 0, sizeof desc);
  reads[0] = a;
  reads[1] = b;
  desc.name = name;
  desc.device = device;
  desc.time_ns = graph_whole(m, seconds * 1e9) + 1000;
  desc.reads = reads;
  desc.read_count = b == GMLAKE_OFFLOAD_NONE ? 1 : 2;
  desc.writes = &made;
  desc.write_count = 1;
  m->ok &= gmlake_offload_add_op(m->graph, &desc, &id) == GMLAKE_OFFLOAD_OK;
  return made;
}

/* Returns the tensor if it is on that device, else a copy of it there, which it adds. */
static uint32_t graph_bring(graph_maker *m, uint32_t tensor, unsigned device) {
  gmlake_offload_tensor_desc desc;
  uint32_t copy, id;
  if (gmlake_offload_get_tensor(m->graph, tensor, &desc) != GMLAKE_OFFLOAD_OK) {
    m->ok = 0;
    return tensor;
  }
  if (desc.device == device) return tensor;
  copy = graph_new(m, (double)desc.bytes, GMLAKE_OFFLOAD_INTERMEDIATE, device);
  m->ok &=
      gmlake_offload_add_transfer(m->graph, tensor, copy,
                                  graph_whole(m, (double)desc.bytes / GRAPH_PEER_BYTES * 1e9) + 1,
                                  &id) == GMLAKE_OFFLOAD_OK;
  return copy;
}

static gmlake_offload_graph *graph_finish(graph_maker *m) {
  if (m->graph && m->ok && gmlake_offload_graph_seal(m->graph) == GMLAKE_OFFLOAD_OK) {
    return m->graph;
  }
  gmlake_offload_graph_destroy(m->graph);
  return NULL;
}

static int graph_begin(graph_maker *m) {
  gmlake_offload_graph_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.flags = GMLAKE_OFFLOAD_UNORDERED;
  m->ok = 1;
  return gmlake_offload_graph_create(&desc, &m->graph) == GMLAKE_OFFLOAD_OK;
}

/* The product C = A B of matrices of `blocks` by `blocks` blocks, each of n by n half-precision
   numbers. The blocks of A and B are on the devices in turn. The product of two blocks is computed
   on the device of A's block, and added on the device of C's block. NULL: it cannot be made. */
static inline gmlake_offload_graph *graph_make_product(unsigned devices, unsigned blocks,
                                                       double n) {
  uint32_t a[64], b[64];
  graph_maker m;
  unsigned i, j, k;
  double bytes = 2 * n * n;
  if (!devices || devices > GRAPH_DEVICES_MAX || !blocks || blocks > 8 || !graph_begin(&m)) {
    return NULL;
  }
  for (i = 0; i < blocks * blocks; i++)
    a[i] = graph_new(&m, bytes, GMLAKE_OFFLOAD_INPUT, i % devices);
  for (i = 0; i < blocks * blocks; i++)
    b[i] = graph_new(&m, bytes, GMLAKE_OFFLOAD_INPUT, i % devices);
  for (i = 0; i < blocks; i++) {
    for (j = 0; j < blocks; j++) {
      unsigned home = (i * blocks + j) % devices;
      uint32_t sum = GMLAKE_OFFLOAD_NONE;
      for (k = 0; k < blocks; k++) {
        unsigned at = (i * blocks + k) % devices;
        uint32_t right = graph_bring(&m, b[k * blocks + j], at);
        uint32_t part = graph_apply(&m, "product", 2 * n * n * n / GRAPH_FLOPS, a[i * blocks + k],
                                    right, bytes, at);
        part = graph_bring(&m, part, home);
        sum = sum == GMLAKE_OFFLOAD_NONE
                  ? part
                  : graph_apply(&m, "sum", 3 * bytes / GRAPH_MEMORY_BYTES, sum, part, bytes, home);
      }
    }
  }
  return graph_finish(&m);
}

/* One device's part of a transformer layer: its heads, then its columns of the two matrices after
   the heads. The input is `tokens` by `width` half-precision numbers. The output is one summand of
   the layer's output. */
static uint32_t graph_layer_part(graph_maker *m, uint32_t x, double tokens, double width,
                                 unsigned devices, unsigned device, int attention) {
  double inner = (attention ? width : 4 * width) / devices, wide = attention ? 3 * inner : inner;
  uint32_t up = graph_new(m, 2 * width * wide, GMLAKE_OFFLOAD_PERSISTENT, device);
  uint32_t down = graph_new(m, 2 * inner * width, GMLAKE_OFFLOAD_PERSISTENT, device);
  double flops = 2 * tokens * width * wide;
  uint32_t h = graph_apply(m, attention ? "qkv" : "up", flops / GRAPH_FLOPS,
                           graph_bring(m, x, device), up, 2 * tokens * wide, device);
  h = graph_apply(m, attention ? "heads" : "gelu",
                  attention ? 4 * tokens * tokens * inner / GRAPH_FLOPS
                            : 4 * tokens * inner / GRAPH_MEMORY_BYTES,
                  h, GMLAKE_OFFLOAD_NONE, 2 * tokens * inner, device);
  return graph_apply(m, "down", 2 * tokens * inner * width / GRAPH_FLOPS, h, down,
                     2 * tokens * width, device);
}

/* `layers` transformer layers, divided by heads over the devices. The devices make the sums in
   turn. NULL: it cannot be made. */
static inline gmlake_offload_graph *graph_make_transformer(unsigned devices, unsigned layers,
                                                           double tokens, double width) {
  double bytes = 2 * tokens * width;
  graph_maker m;
  uint32_t x;
  unsigned layer, d;
  if (!devices || devices > GRAPH_DEVICES_MAX || !graph_begin(&m)) return NULL;
  x = graph_new(&m, bytes, GMLAKE_OFFLOAD_INPUT, 0);
  for (layer = 0; layer < 2 * layers; layer++) {
    unsigned home = layer % devices;
    uint32_t sum = graph_bring(&m, x, home);
    for (d = 0; d < devices; d++) {
      uint32_t part = graph_layer_part(&m, x, tokens, width, devices, d, layer % 2 == 0);
      part = graph_bring(&m, part, home);
      sum = graph_apply(&m, "add", 3 * bytes / GRAPH_MEMORY_BYTES, sum, part, bytes, home);
    }
    x = sum;
  }
  return graph_finish(&m);
}

/* A random number below n: the high bits of Knuth's MMIX generator. */
static unsigned graph_draw(uint64_t *state, unsigned n) {
  *state = *state * 6364136223846793005u + 1442695040888963407u;
  return (unsigned)((*state >> 33) % n);
}

/* A random size from 64 KiB to 64 MiB; its logarithm is uniform. */
static double graph_draw_bytes(uint64_t *state) {
  return 512.0 * (128 + graph_draw(state, 128)) * (1u << graph_draw(state, 10));
}

/* `count` operators without a pattern. Each reads one of the last 8 tensors that were made, or of
   the last `live` ones, and perhaps a second one or a parameter. Nine times of ten it runs on the
   device of the first tensor. Sizes are mixed. NULL: it cannot be made. */
static inline gmlake_offload_graph *graph_make_random(unsigned devices, unsigned count,
                                                      unsigned live, unsigned seed) {
  uint32_t made[4096], parameters[64];
  uint64_t state = seed;
  graph_maker m;
  unsigned i;
  if (!devices || devices > GRAPH_DEVICES_MAX || !count || live < 8 || live > 4096 ||
      !graph_begin(&m)) {
    return NULL;
  }
  for (i = 0; i < 64; i++) {
    parameters[i] = graph_new(&m, graph_draw_bytes(&state), GMLAKE_OFFLOAD_PERSISTENT, i % devices);
  }
  for (i = 0; i < live; i++) made[i] = parameters[i % 64];
  for (i = 0; i < count; i++) {
    unsigned back = graph_draw(&state, graph_draw(&state, 4) ? 8 : live);
    unsigned other = graph_draw(&state, 3), at = graph_draw(&state, 10 * devices);
    uint32_t a = made[(i + live - 1 - back) % live], b = GMLAKE_OFFLOAD_NONE;
    double bytes = graph_draw_bytes(&state);
    gmlake_offload_tensor_desc desc;
    if (other == 0) b = parameters[graph_draw(&state, 64)];
    if (other == 1) b = made[graph_draw(&state, live)];
    desc.device = 0;
    m.ok &= gmlake_offload_get_tensor(m.graph, a, &desc) == GMLAKE_OFFLOAD_OK;
    at = at < devices ? at : desc.device;
    a = graph_bring(&m, a, at);
    if (b != GMLAKE_OFFLOAD_NONE) b = graph_bring(&m, b, at);
    if (b == a) b = GMLAKE_OFFLOAD_NONE;
    made[i % live] = graph_apply(
        &m, "any", (1 + graph_draw(&state, 8)) * bytes / GRAPH_MEMORY_BYTES, a, b, bytes, at);
  }
  return graph_finish(&m);
}

/* The graph that a word names, sealed: product:DEVICES:BLOCKS:N, random:DEVICES:OPS:LIVE:SEED,
   transformer:DEVICES:LAYERS:TOKENS:WIDTH, or the last iteration of a file, whose sizes and times
   are divided. NULL, with the reason in error. */
static inline gmlake_offload_graph *graph_open(const char *word, size_t divide, char *error,
                                               size_t error_bytes) {
  gmlake_offload_graph *made;
  char reason[200];
  unsigned a, b, c, d;
  graph g;
  size_t i;
  (void)snprintf(error, error_bytes, "%s: no such graph", word);
  if (sscanf(word, "product:%u:%u:%u", &a, &b, &c) == 3) return graph_make_product(a, b, c);
  if (sscanf(word, "transformer:%u:%u:%u:%u", &a, &b, &c, &d) == 4) {
    return graph_make_transformer(a, b, c, d);
  }
  if (sscanf(word, "random:%u:%u:%u:%u", &a, &b, &c, &d) == 4) {
    return graph_make_random(a, b, c, d);
  }
  if (!graph_load(word, &g, error, error_bytes)) return NULL;
  for (i = 0; i < g.tensor_count; i++) g.tensors[i].bytes /= divide;
  for (i = 0; i < g.op_count; i++) g.ops[i].time_ns /= divide;
  made = graph_make(&g, graph_iteration_count(&g) - 1, reason, sizeof reason);
  if (!made) (void)snprintf(error, error_bytes, "%s: %s", word, reason);
  graph_free(&g);
  return made;
}

#endif
