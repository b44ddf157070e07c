/* usage: turnip [--json] [--jitter F] [--copy-jitter F] [--seeds N] [--executions N] [--letter]
                [--streams N] [--ahead ALLOC_US RELOAD_US] [--budget F] [--divisor N] [GRAPH...]
   Compiles graphs for less memory than they need, proves the memgraphs right, and runs them on the
   mock's clock with an H200's link, operators and copies jittering: whatever is ready (any), and
   each queue in the order of compilation (fixed). GRAPH is a recorded graph's file, or
     product:DEVICES:BLOCKS:N            a matrix product in BLOCKS by BLOCKS blocks of N by N
     transformer:DEVICES:LAYERS:TOKENS:WIDTH   a transformer cut by heads
     random:DEVICES:OPS:LIVE:SEED        operators of mixed sizes that read what was made before,
                                         up to LIVE operators ago
   Without graphs: those of bench/graphs and some of these. A budget is a part of what the device
   that needs most holds when nothing moves; above 1 it is GiB, and 6 is for large graphs only.
   What does not hold the largest operator is left out. One row for each budget:
     compile   processor time; check that of the proof
     moved     bytes offloaded and reloaded in an iteration
     none      an iteration with room for everything; any, fixed: medians over seeds
     over      what any takes above none
     gain      what fixed takes above any
   --executions: so many iterations in random orders, the digest of each compared with that of a
   run in which nothing moves. --divisor: of the tensors' bytes in the mock; places are multiples
   of 16 times it. */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#include "../graph.h"

#include <time.h>

#define SEEDS_MAX 99
#define GIB ((double)((size_t)1 << 30))

typedef struct options {
  int json;
  unsigned letter;
  double jitter, copy_jitter, budget;
  uint32_t streams;
  size_t seeds, executions, divisor;
  uint64_t alloc_ahead_ns, reload_ahead_ns;
} options;

typedef struct outcome {
  gmlake_offload_result result;
  double time_ms;
  uint64_t digest;
} outcome;

static double now_ms(void) {
  struct timespec t;
  (void)clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct bench {
  gmlake_offload_backend *mock;
  gmlake_offload_engine *engine;
} bench;

static gmlake_offload_result bench_begin(bench *b, const options *opts,
                                         const gmlake_offload_memgraph *m, unsigned flags,
                                         double jitter, uint64_t seed) {
  gmlake_offload_mock_desc mock;
  gmlake_offload_engine_desc desc;
  gmlake_offload_result result;
  memset(b, 0, sizeof *b);
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.divisor = opts->divisor;
  mock.copy_ns = 10000;
  mock.jitter = jitter;
  mock.copy_jitter = jitter < opts->copy_jitter ? opts->copy_jitter : jitter;
  mock.seed = seed;
  result = gmlake_offload_mock_create(&mock, &b->mock);
  desc.backend = b->mock;
  desc.memgraph = m;
  desc.flags = flags;
  desc.seed = seed;
  desc.stream_count = opts->streams;
  return result ? result : gmlake_offload_engine_create(&desc, &b->engine);
}

static void bench_end(bench *b) {
  gmlake_offload_engine_destroy(b->engine);
  gmlake_offload_mock_destroy(b->mock);
}

static uint64_t bench_digest(const bench *b) {
  gmlake_offload_mock_census census;
  gmlake_offload_mock_get_census(b->mock, &census);
  return census.race_count ? 0 : census.digest;
}

static outcome run_once(const options *opts, const gmlake_offload_memgraph *m, unsigned flags,
                        uint64_t seed) {
  gmlake_offload_engine_stats stats;
  outcome o;
  bench b;
  memset(&o, 0, sizeof o);
  memset(&stats, 0, sizeof stats);
  o.result = bench_begin(&b, opts, m, flags, opts->jitter, seed);
  if (!o.result) o.result = gmlake_offload_engine_run(b.engine, 2);
  if (!o.result) {
    (void)gmlake_offload_engine_get_stats(b.engine, &stats);
    o.time_ms = (double)stats.time_ns / 2e6;
    o.digest = bench_digest(&b);
  }
  bench_end(&b);
  return o;
}

static int compare_times(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* The median's time; the digest is 0 where seeds differ. */
static outcome run_seeds(const options *opts, const gmlake_offload_memgraph *m, unsigned flags) {
  double times[SEEDS_MAX];
  outcome first, o;
  size_t i;
  first = run_once(opts, m, flags, 1);
  times[0] = first.time_ms;
  for (i = 1; i < opts->seeds && !first.result; i++) {
    o = run_once(opts, m, flags, i + 1);
    times[i] = o.time_ms;
    if (o.result) first.result = o.result;
    if (o.digest != first.digest) first.digest = 0;
  }
  qsort(times, i, sizeof *times, compare_times);
  first.time_ms = times[i / 2];
  return first;
}

/* Digests of iterations in which nothing moves, one after another; NULL where there are none. */
static uint64_t *still_digests(const options *opts, const gmlake_offload_memgraph *none) {
  uint64_t *digests = (uint64_t *)calloc(opts->executions + 1, sizeof *digests);
  bench b;
  size_t i;
  gmlake_offload_result result = bench_begin(&b, opts, none, 0, 0, 1);
  for (i = 0; digests && i < opts->executions && !result; i++) {
    result = gmlake_offload_engine_run(b.engine, 1);
    digests[i] = bench_digest(&b);
  }
  bench_end(&b);
  if (!result) return digests;
  free(digests);
  return NULL;
}

/* Iterations in random orders: how many differ from those. */
static size_t run_executions(const options *opts, const gmlake_offload_memgraph *m,
                             const uint64_t *digests) {
  bench b;
  size_t i, wrong = 0;
  gmlake_offload_result result = bench_begin(&b, opts, m, GMLAKE_OFFLOAD_RANDOM_ORDER, .9, 12345);
  for (i = 0; i < opts->executions && !result; i++) {
    result = gmlake_offload_engine_run(b.engine, 1);
    wrong += bench_digest(&b) != digests[i];
  }
  bench_end(&b);
  return result ? opts->executions : wrong;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

typedef struct row {
  const char *graph;
  double budget;
  size_t bytes, wrong;
  double compile_ms, check_ms;
  gmlake_offload_memgraph_info info;
  outcome none, any, fixed;
  const char *state;
} row;

static void print_row(const options *opts, const row *r) {
  double over = r->any.time_ms / r->none.time_ms - 1, gain = r->fixed.time_ms / r->any.time_ms - 1;
  const gmlake_offload_memgraph_info *i = &r->info;
  if (opts->json) {
    printf(
        "{\"graph\":\"%s\",\"budget\":%.3f,\"device_bytes\":%zu,\"host_bytes\":%zu,\"state\":"
        "\"%s\",\"compile_ms\":%.1f,\"check_ms\":%.1f,\"ops\":%zu,\"nodes\":%zu,\"edges\":%zu,"
        "\"memory_edges\":%zu,\"superfluous\":%zu,\"offload_bytes\":%zu,\"reload_bytes\":%zu,"
        "\"alloc_us\":%llu,\"reload_us\":%llu,\"none_ms\":%.3f,\"any_ms\":%.3f,\"fixed_ms\":%.3f,"
        "\"over\":%.4f,\"gain\":%.4f,\"executions\":%zu,\"wrong\":%zu}\n",
        r->graph, r->budget, r->bytes, i->host_bytes, r->state, r->compile_ms, r->check_ms,
        i->op_count, i->node_count, i->edge_count, i->memory_edge_count, i->superfluous_count,
        i->offload_bytes, i->reload_bytes, (unsigned long long)i->alloc_ahead_ns / 1000,
        (unsigned long long)i->reload_ahead_ns / 1000, r->none.time_ms, r->any.time_ms,
        r->fixed.time_ms, over, gain, opts->executions, r->wrong);
    return;
  }
  printf(
      "%-26s %6.3f %7.3f %7.1f %7.1f %6zu %6zu %6zu %7.3f %7.3f %5.1f %5.1f %9.3f %9.3f %7.4f "
      "%7.4f  %s\n",
      r->graph, r->budget, (double)r->bytes / GIB, r->compile_ms, r->check_ms, i->op_count,
      i->node_count, i->edge_count, (double)i->offload_bytes / GIB, (double)i->reload_bytes / GIB,
      (double)i->alloc_ahead_ns / 1e6, (double)i->reload_ahead_ns / 1e6, r->none.time_ms,
      r->any.time_ms, over, gain, r->state);
}

static gmlake_offload_result compile(const options *opts, const gmlake_offload_graph *graph,
                                     size_t bytes, gmlake_offload_memgraph **out) {
  gmlake_offload_memgraph_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  desc.flags = opts->letter;
  desc.device_bytes = bytes;
  desc.align_bytes = 16 * opts->divisor;
  desc.alloc_ahead_ns = opts->alloc_ahead_ns;
  desc.reload_ahead_ns = opts->reload_ahead_ns;
  return gmlake_offload_memgraph_create(&desc, out);
}

static int bench_budget(const options *opts, const gmlake_offload_graph *graph, row *r,
                        const uint64_t *digests) {
  gmlake_offload_memgraph *m = NULL;
  gmlake_offload_memgraph_fault fault;
  double began = now_ms();
  gmlake_offload_result result = compile(opts, graph, r->bytes, &m);
  memset(&r->info, 0, sizeof r->info);
  r->compile_ms = now_ms() - began;
  r->wrong = 0;
  r->state = "ok";
  if (result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY) return 1; /* less than an operator */
  if (!result) {
    (void)gmlake_offload_memgraph_get_info(m, &r->info);
    began = now_ms();
    result = gmlake_offload_memgraph_check(m, &fault);
    r->check_ms = now_ms() - began;
    if (result) fprintf(stderr, "node %u, %u: %s\n", fault.node, fault.other, fault.text);
  }
  if (!result) {
    r->any = run_seeds(opts, m, 0);
    r->fixed = run_seeds(opts, m, GMLAKE_OFFLOAD_FIXED_ORDER);
    result = r->any.result ? r->any.result : r->fixed.result;
    r->wrong = run_executions(opts, m, digests);
  }
  gmlake_offload_memgraph_destroy(m);
  if (result) {
    r->state = gmlake_offload_result_name(result);
  } else if (r->any.digest != r->none.digest || r->fixed.digest != r->none.digest || r->wrong) {
    r->state = "WRONG BYTES";
  }
  print_row(opts, r);
  (void)fflush(stdout);
  return !strcmp(r->state, "ok");
}

/* The most that one device needs when nothing moves, in the graph's order. */
static size_t device_peak(const gmlake_offload_graph *graph) {
  gmlake_offload_device_info info;
  uint32_t device;
  size_t peak = 0;
  info.struct_bytes = 0;
  for (device = 0; !gmlake_offload_graph_get_device_info(graph, device, &info); device++) {
    if (info.peak_bytes > peak) peak = info.peak_bytes;
  }
  return peak;
}

static int bench_graph(const options *opts, const char *name, const gmlake_offload_graph *graph) {
  static const double budgets[] = {1, .5, 1. / 3, .25, 6};
  gmlake_offload_memgraph *none = NULL;
  uint64_t *digests;
  size_t i, peak = device_peak(graph);
  int ok = 1;
  row r;
  memset(&r, 0, sizeof r);
  r.graph = name;
  if (compile(opts, graph, 0, &none) != GMLAKE_OFFLOAD_OK) return 0;
  r.none = run_seeds(opts, none, 0);
  digests = still_digests(opts, none);
  ok = digests != NULL;
  for (i = 0; ok && i < sizeof budgets / sizeof *budgets; i++) {
    r.budget = opts->budget > 0 ? opts->budget : budgets[i];
    r.bytes = (size_t)(r.budget > 1 ? r.budget * GIB : r.budget * (double)peak);
    if (opts->budget > 0 || r.budget <= 1 || (double)peak > 12 * GIB) {
      ok &= bench_budget(opts, graph, &r, digests);
    }
    if (opts->budget > 0) break;
  }
  free(digests);
  gmlake_offload_memgraph_destroy(none);
  return ok;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static gmlake_offload_graph *load(const char *path, char *name, size_t room) {
  char error[400];
  const char *slash = strrchr(path, '/');
  gmlake_offload_graph *made;
  unsigned devices, a, tokens, width;
  char *dot;
  graph g;
  (void)snprintf(name, room, "%s", slash ? slash + 1 : path);
  if (sscanf(path, "product:%u:%u:%u", &devices, &a, &width) == 3) {
    made = graph_make_product(devices, a, width);
    if (!made) fprintf(stderr, "%s: no such product\n", path);
    return made;
  }
  if (sscanf(path, "transformer:%u:%u:%u:%u", &devices, &a, &tokens, &width) == 4) {
    made = graph_make_transformer(devices, a, tokens, width);
    if (!made) fprintf(stderr, "%s: no such transformer\n", path);
    return made;
  }
  if (sscanf(path, "random:%u:%u:%u:%u", &devices, &a, &tokens, &width) == 4) {
    made = graph_make_random(devices, a, tokens, width);
    if (!made) fprintf(stderr, "%s: no such random graph\n", path);
    return made;
  }
  dot = strchr(name, '.');
  if (dot) *dot = '\0';
  if (!graph_load(path, &g, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return NULL;
  }
  made = graph_make(&g, graph_iteration_count(&g) - 1, error, sizeof error);
  graph_free(&g);
  if (!made) fprintf(stderr, "%s: %s\n", path, error);
  return made;
}

static int bench_path(const options *opts, const char *path) {
  char name[64];
  gmlake_offload_graph *graph = load(path, name, sizeof name);
  int ok = graph != NULL && bench_graph(opts, name, graph);
  gmlake_offload_graph_destroy(graph);
  return ok;
}

static const char *const all[] = {"bench/graphs/vgg16-b64.gmgraph.gz",
                                  "bench/graphs/resnet50-b64.gmgraph.gz",
                                  "bench/graphs/densenet121-b64.gmgraph.gz",
                                  "bench/graphs/llama-7b-prefill-4k.gmgraph.gz",
                                  "bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz",
                                  "product:2:8:4096",
                                  "product:4:8:4096",
                                  "product:8:8:4096",
                                  "transformer:2:32:4096:4096",
                                  "transformer:4:32:4096:4096",
                                  "transformer:8:32:4096:4096"};

/* A number after an option; exits where there is none. */
static double option_value(int argc, char **argv, int *at, double min, double max) {
  char *end = NULL;
  double value = *at + 1 < argc ? strtod(argv[*at + 1], &end) : 0;
  if (!end || end == argv[*at + 1] || *end || !(value >= min && value <= max)) {
    fprintf(stderr, "%s wants a number from %g to %g\n", argv[*at], min, max);
    exit(2);
  }
  ++*at;
  return value;
}

static int parse_option(options *opts, int argc, char **argv, int *i) {
  if (!strcmp(argv[*i], "--json")) {
    opts->json = 1;
  } else if (!strcmp(argv[*i], "--letter")) {
    opts->letter = GMLAKE_OFFLOAD_LETTER;
  } else if (!strcmp(argv[*i], "--jitter")) {
    opts->jitter = option_value(argc, argv, i, 0, .99);
  } else if (!strcmp(argv[*i], "--copy-jitter")) {
    opts->copy_jitter = option_value(argc, argv, i, 0, .99);
  } else if (!strcmp(argv[*i], "--budget")) {
    opts->budget = option_value(argc, argv, i, .01, 1000);
  } else if (!strcmp(argv[*i], "--seeds")) {
    opts->seeds = (size_t)option_value(argc, argv, i, 1, SEEDS_MAX);
  } else if (!strcmp(argv[*i], "--streams")) {
    opts->streams = (uint32_t)option_value(argc, argv, i, 1, 64);
  } else if (!strcmp(argv[*i], "--executions")) {
    opts->executions = (size_t)option_value(argc, argv, i, 1, 1e6);
  } else if (!strcmp(argv[*i], "--divisor")) {
    opts->divisor = (size_t)option_value(argc, argv, i, 1, 1 << 20);
  } else if (!strcmp(argv[*i], "--ahead")) {
    opts->alloc_ahead_ns = (uint64_t)(option_value(argc, argv, i, 0, 1e9) * 1e3) + 1;
    opts->reload_ahead_ns = (uint64_t)(option_value(argc, argv, i, 0, 1e9) * 1e3) + 1;
  } else {
    return 0;
  }
  return 1;
}

int main(int argc, char **argv) {
  options opts;
  int i, ok = 1, graphs = 0;
  memset(&opts, 0, sizeof opts);
  opts.jitter = .2;
  opts.copy_jitter = .2;
  opts.seeds = 5;
  opts.divisor = 4096;
  for (i = 1; i < argc && argv[i][0] == '-'; i++) {
    if (parse_option(&opts, argc, argv, &i)) continue;
    fprintf(stderr,
            "usage: turnip [--json] [--jitter F] [--copy-jitter F] [--seeds N] [--executions N] "
            "[--letter] [--streams N] [--ahead ALLOC_US RELOAD_US] [--budget F] [--divisor N] "
            "[GRAPH...]\n");
    return 2;
  }
  if (!opts.json) {
    printf(
        "graph                      budget     GiB compile   check    ops  nodes  edges out GiB"
        "  in GiB alloc relod   none ms    any ms    over    gain\n");
  }
  for (; i < argc; i++, graphs++) ok &= bench_path(&opts, argv[i]);
  for (i = 0; !graphs && i < (int)(sizeof all / sizeof *all); i++) ok &= bench_path(&opts, all[i]);
  return ok ? 0 : 1;
}
