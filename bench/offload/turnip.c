/* build/turnip: compiles graphs for less memory than they need, proves the memgraphs right, and
   runs them on the mock's clock. The text of --help says what it takes and what its columns
   mean. */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_TURNIP_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_turnip.h"

#include "../graph.h"
#include "../options.h"
#include "figures.h"

#define SEEDS_MAX 99
#define GIB ((double)((size_t)1 << 30))

static const char about[] =
    "Compiles graphs to memgraphs for less memory than they need, proves them right, and runs "
    "them\n"
    "on a mock clock with an H200's link, on which operators and copies take their times more or\n"
    "less. GRAPH is a .gmgraph file, or one of\n"
    "  product:DEVICES:BLOCKS:N   a product of matrices, BLOCKS by BLOCKS blocks of N by N "
    "numbers\n"
    "  transformer:DEVICES:LAYERS:TOKENS:WIDTH   a transformer that is cut by heads\n"
    "  random:DEVICES:OPS:LIVE:SEED   operators of mixed sizes; each reads what one of the LIVE\n"
    "                             operators before it has made\n"
    "Without GRAPH: those of bench/graphs, products and transformers.\n";
static const char columns[] =
    "\nOne row for each budget. Without --budget: 1, 1/2, 1/3, 1/4 of the memory that the device\n"
    "that needs most holds when nothing moves, and 6 GiB where that is more than 12 GiB. A budget "
    "in\n"
    "which the largest operator has no room is left out. Columns:\n"
    "  budget     as given\n"
    "  GiB        memory of each device\n"
    "  compile    milliseconds of processor time to compile,\n"
    "  check      and to prove the memgraph right\n"
    "  ops        operators of the graph,\n"
    "  nodes      operators, offloads and reloads of the memgraph,\n"
    "  edges      and its edges\n"
    "  out GiB    offloaded in an iteration,\n"
    "  in GiB     and reloaded\n"
    "  alloc      milliseconds that memory is taken ahead of the operator that needs it,\n"
    "  relod      and that tensors are reloaded ahead\n"
    "  none ms    an iteration in which nothing moves, with room for everything\n"
    "  any ms     an iteration in which whatever is ready runs; median over the seeds\n"
    "  over       part of `none ms` that `any ms` adds\n"
    "  sim        part of `any ms` that an iteration takes longer in which each queue runs in the\n"
    "             order of the compiler's simulation (`simulated` in JSON),\n"
    "  ops        in which operators and transfers run in the order of compilation, copies in any\n"
    "             (`fixed_ops`),\n"
    "  gain       in which each queue runs in the order of compilation (`fixed`)\n"
    "and whether each run's bytes are those of a run in which nothing moves: ok, or what is wrong. "
    "A\n"
    "figure that does not exist, as `over` where nothing takes time, is - in the table and null "
    "in\n"
    "JSON.\n"
    "\nExit status: 0; 1 where there is no such graph or a row is not ok; 2 for wrong options.\n";

typedef struct options {
  int json, paper;
  double jitter, copy_jitter, budget, link_gbs;
  double alloc_ahead_us, reload_ahead_us; /* below 0: several are tried */
  uint64_t streams, seeds, executions, divisor;
} options;

typedef struct outcome {
  gmlake_offload_result result;
  double time_ms;
  uint64_t digest;
} outcome;

/* ---- Runs ------------------------------------------------------------------------------------ */

typedef struct bench {
  gmlake_offload_backend *mock;
  gmlake_offload_run *run;
} bench;

static gmlake_offload_result bench_begin(bench *b, const options *opts,
                                         const gmlake_offload_memgraph *m, unsigned flags,
                                         double jitter, uint64_t seed) {
  gmlake_offload_mock_desc mock;
  gmlake_offload_run_desc desc;
  gmlake_offload_result result;
  uint32_t job;
  memset(b, 0, sizeof *b);
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.divisor = opts->divisor;
  mock.copy_ns = 10000;
  mock.out_bytes_per_s = mock.in_bytes_per_s = opts->link_gbs * 1e9;
  mock.both_bytes_per_s = opts->link_gbs * BOTH_PART * 1e9;
  mock.jitter = jitter;
  mock.copy_jitter = jitter < opts->copy_jitter ? opts->copy_jitter : jitter;
  mock.seed = seed;
  result = gmlake_offload_mock_create(&mock, &b->mock);
  desc.backend = b->mock;
  desc.flags = flags;
  desc.stream_count = (uint32_t)opts->streams;
  if (!result) result = gmlake_offload_run_create(&desc, &b->run);
  return result ? result : gmlake_offload_run_add_memgraph(b->run, m, &job);
}

static void bench_end(bench *b) {
  gmlake_offload_run_destroy(b->run);
  gmlake_offload_mock_destroy(b->mock);
}

static uint64_t bench_digest(const bench *b) {
  gmlake_offload_mock_census census;
  gmlake_offload_mock_get_census(b->mock, &census);
  return census.race_count ? 0 : census.digest;
}

static outcome run_once(const options *opts, const gmlake_offload_memgraph *m, unsigned flags,
                        uint64_t seed) {
  gmlake_offload_run_stats stats;
  outcome o;
  bench b;
  memset(&o, 0, sizeof o);
  memset(&stats, 0, sizeof stats);
  o.result = bench_begin(&b, opts, m, flags, opts->jitter, seed);
  if (!o.result) o.result = gmlake_offload_run_iterations(b.run, 2);
  if (!o.result) {
    (void)gmlake_offload_run_get_stats(b.run, &stats);
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
    result = gmlake_offload_run_iterations(b.run, 1);
    digests[i] = bench_digest(&b);
  }
  bench_end(&b);
  if (!result) return digests;
  free(digests);
  return NULL;
}

/* Iterations in the orders that random times lead to: how many differ from those. */
static size_t run_executions(const options *opts, const gmlake_offload_memgraph *m,
                             const uint64_t *digests) {
  bench b;
  size_t i, wrong = 0;
  gmlake_offload_result result = bench_begin(&b, opts, m, 0, .9, 12345);
  for (i = 0; i < opts->executions && !result; i++) {
    result = gmlake_offload_run_iterations(b.run, 1);
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
  outcome none, any, fixed, ops, simulated;
  const char *state;
} row;

static void print_row(const options *opts, const row *r) {
  const char *missing = opts->json ? "null" : "-";
  figure over = figure_of(ratio(r->any.time_ms, r->none.time_ms) - 1, "%.4f", missing);
  figure gain = figure_of(ratio(r->fixed.time_ms, r->any.time_ms) - 1, "%.4f", missing);
  figure ops = figure_of(ratio(r->ops.time_ms, r->any.time_ms) - 1, "%.4f", missing);
  figure simulated = figure_of(ratio(r->simulated.time_ms, r->any.time_ms) - 1, "%.4f", missing);
  const gmlake_offload_memgraph_info *i = &r->info;
  char alloc[16] = "all"; /* in paper mode, as far as there is free memory */
  if (i->alloc_ahead_ns != UINT64_MAX)
    (void)snprintf(alloc, sizeof alloc, "%.1f", (double)i->alloc_ahead_ns / 1e6);
  if (opts->json) {
    printf(
        "{\"graph\":\"%s\",\"budget\":%.3f,\"device_bytes\":%zu,\"host_bytes\":%zu,\"state\":"
        "\"%s\",\"compile_ms\":%.1f,\"check_ms\":%.1f,\"ops\":%zu,\"nodes\":%zu,\"edges\":%zu,"
        "\"memory_edges\":%zu,\"offload_bytes\":%zu,\"reload_bytes\":%zu,"
        "\"alloc_us\":%llu,\"reload_us\":%llu,\"none_ms\":%.3f,\"any_ms\":%.3f,\"fixed_ms\":%.3f,"
        "\"over\":%s,\"simulated\":%s,\"fixed_ops\":%s,\"gain\":%s,\"executions\":%zu,"
        "\"wrong\":%zu}\n",
        r->graph, r->budget, r->bytes, i->host_bytes, r->state, r->compile_ms, r->check_ms,
        i->op_count, i->node_count, i->edge_count, i->memory_edge_count, i->offload_bytes,
        i->reload_bytes, (unsigned long long)i->alloc_ahead_ns / 1000,
        (unsigned long long)i->reload_ahead_ns / 1000, r->none.time_ms, r->any.time_ms,
        r->fixed.time_ms, over.text, simulated.text, ops.text, gain.text, (size_t)opts->executions,
        r->wrong);
    return;
  }
  printf(
      "%-26s %6.3f %7.3f %7.1f %7.1f %6zu %6zu %6zu %7.3f %7.3f %5s %5.1f %9.3f %9.3f %7s "
      "%7s %7s %7s  %s\n",
      r->graph, r->budget, (double)r->bytes / GIB, r->compile_ms, r->check_ms, i->op_count,
      i->node_count, i->edge_count, (double)i->offload_bytes / GIB, (double)i->reload_bytes / GIB,
      alloc, (double)i->reload_ahead_ns / 1e6, r->none.time_ms, r->any.time_ms, over.text,
      simulated.text, ops.text, gain.text, r->state);
}

static gmlake_offload_result compile(const options *opts, const gmlake_offload_graph *graph,
                                     size_t bytes, gmlake_offload_memgraph **out) {
  gmlake_offload_memgraph_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  desc.flags = opts->paper ? GMLAKE_OFFLOAD_PAPER : 0;
  desc.device_bytes = bytes;
  desc.out_bytes_per_s = desc.in_bytes_per_s = opts->link_gbs * 1e9;
  desc.align_bytes = 16; /* a power of two, and 16 times the divisor at least */
  while (desc.align_bytes < 16 * opts->divisor) desc.align_bytes *= 2;
  if (opts->alloc_ahead_us >= 0) desc.alloc_ahead_ns = (uint64_t)(opts->alloc_ahead_us * 1e3) + 1;
  if (opts->reload_ahead_us >= 0)
    desc.reload_ahead_ns = (uint64_t)(opts->reload_ahead_us * 1e3) + 1;
  return gmlake_offload_memgraph_create(&desc, out);
}

static int bench_budget(const options *opts, const gmlake_offload_graph *graph, row *r,
                        const uint64_t *digests) {
  gmlake_offload_memgraph *m = NULL;
  gmlake_offload_memgraph_fault fault;
  double began = processor_ms();
  gmlake_offload_result result = compile(opts, graph, r->bytes, &m);
  memset(&r->info, 0, sizeof r->info);
  r->compile_ms = processor_ms() - began;
  r->wrong = 0;
  r->state = "ok";
  if (result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY) return 1; /* less than an operator */
  if (!result) {
    (void)gmlake_offload_memgraph_get_info(m, &r->info);
    began = processor_ms();
    result = gmlake_offload_memgraph_check(m, &fault);
    r->check_ms = processor_ms() - began;
    if (result) fprintf(stderr, "node %u, %u: %s\n", fault.node, fault.other, fault.text);
  }
  if (!result) {
    r->any = run_seeds(opts, m, 0);
    r->fixed = run_seeds(opts, m, GMLAKE_OFFLOAD_FIXED_ORDER);
    r->ops = run_seeds(opts, m, GMLAKE_OFFLOAD_FIXED_OPS);
    r->simulated = run_seeds(opts, m, GMLAKE_OFFLOAD_SIMULATED_ORDER);
    result = r->any.result ? r->any.result : r->fixed.result;
    if (!result) result = r->ops.result ? r->ops.result : r->simulated.result;
    r->wrong = run_executions(opts, m, digests);
  }
  gmlake_offload_memgraph_destroy(m);
  if (result) {
    r->state = gmlake_offload_result_name(result);
  } else if (r->any.digest != r->none.digest || r->fixed.digest != r->none.digest ||
             r->ops.digest != r->none.digest || r->simulated.digest != r->none.digest || r->wrong) {
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

static int bench_path(const options *opts, const char *path) {
  char name[64], error[400];
  gmlake_offload_graph *graph = graph_open(path, 1, error, sizeof error);
  int ok = graph != NULL;
  if (!ok) fprintf(stderr, "%s\n", error);
  graph_name(path, name, sizeof name);
  ok = ok && bench_graph(opts, name, graph);
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

int main(int argc, char **argv) {
  options opts = {0, 0, .2, .2, 0, 55, -1, -1, 1, 5, 0, 4096};
  const option_row rows[] = {
      {"json", OPTION_FLAG, &opts.json, 0, 0, NULL, "print one JSON object a row"},
      {"paper", OPTION_FLAG, &opts.paper, 0, 0, NULL, "compile as TURNIP's paper says"},
      {"budget", OPTION_NUMBER, &opts.budget, .01, 1000, "F",
       "memory of each device: up to 1 a part of what the device that needs\n"
       "most holds when nothing moves, above 1 GiB"},
      {"jitter", OPTION_NUMBER, &opts.jitter, 0, .99, "PART",
       "each operator takes its time, more or less by up to PART of it;\ndefault .2"},
      {"copy-jitter", OPTION_NUMBER, &opts.copy_jitter, 0, .99, "PART",
       "each copy likewise; default .2"},
      {"link", OPTION_NUMBER, &opts.link_gbs, .001, 1e6, "GB",
       "each device's link carries GB gigabytes a second in each direction;\ndefault 55"},
      {"seeds", OPTION_COUNT, &opts.seeds, 1, SEEDS_MAX, "N",
       "take medians of N runs with different jitter; default 5"},
      {"streams", OPTION_COUNT, &opts.streams, 1, 64, "N",
       "run up to N operators at once on a device; default 1"},
      {"executions", OPTION_COUNT, &opts.executions, 0, 1e6, "N",
       "run N iterations more, whose random times lead to other orders, and\ncompare the bytes of "
       "each; default 0"},
      {"alloc-ahead", OPTION_NUMBER, &opts.alloc_ahead_us, 0, 1e9, "US",
       "take memory US microseconds ahead; default: what is best of several"},
      {"reload-ahead", OPTION_NUMBER, &opts.reload_ahead_us, 0, 1e9, "US",
       "reload tensors US microseconds ahead; default: what is best of several"},
      {"divisor", OPTION_COUNT, &opts.divisor, 1, 1 << 20, "N",
       "the mock keeps one byte of N; places are multiples of 16 N, or of the\n"
       "next power of two; default 4096"},
  };
  const option_reader reader = {"turnip", "[OPTION]... [GRAPH]...",  about, columns,
                                rows,     sizeof rows / sizeof *rows};
  int i = options_read(&reader, argc, argv), first = i, ok = 1;
  if (!opts.json) {
    printf(
        "graph                      budget     GiB compile   check    ops  nodes  edges out GiB"
        "  in GiB alloc relod   none ms    any ms    over     sim     ops    gain\n");
  }
  for (; i < argc; i++) ok &= bench_path(&opts, argv[i]);
  for (i = 0; first == argc && i < (int)(sizeof all / sizeof *all); i++) {
    ok &= bench_path(&opts, all[i]);
  }
  return ok ? 0 : 1;
}
