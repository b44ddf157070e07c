/* build/offload: plans and runs recorded graphs on the mock's clock, and compares what that saves
   and costs with the same jobs when nothing moves, and with others' ways (baselines.h). The text
   of --help, below, says what it takes and what its columns mean. */
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#include "gmlake_offload.h"

#include "../graph.h"
#include "../options.h"
#include "baselines.h"
#include "figures.h"

#define JOBS_MAX 16
#define SETTLE 12 /* iterations before measuring */

static const char about[] =
    "Plans recorded graphs, runs them by these plans on a mock clock with an H200's link, and\n"
    "compares with the same jobs when nothing moves. Without GRAPH: those of bench/graphs, each\n"
    "alone, then vgg16-b64 as two and as three jobs at once. GRAPH is a .gmgraph file.\n";
static const char columns[] =
    "\nOne row for each way to run the jobs:\n"
    "  none       nothing moves\n"
    "  paper      TENSILE as its paper says, swaps only\n"
    "  paper+r    the same with recomputation, for three quarters of the memory\n"
    "  tensile    gmlake_offload.h's planner; a plan may add no time\n"
    "  tensile+   the same; waits and recomputation may add --overhead\n"
    "  demand     no plan: where memory is short, the tensor leaves that was not used for "
    "longest.\n"
    "             In the memory that tensile+ was planned for\n"
    "  demand+    the same, but the tensor leaves whose next use is farthest\n"
    "  capuchin   Capuchin's plan for that memory; what the plan does not reach, as in `demand`.\n"
    "             The row then says to which part of the memory of `none` the plan comes: only "
    "what\n"
    "             an iteration makes can leave, no parameter\n"
    "  vdnn-conv  vDNN: the feature maps that convolutions read leave\n"
    "  vdnn-all   vDNN: all feature maps leave\n"
    "The last three are for one job: --jobs 2 leaves them out.\n"
    "\nColumns, measured when the plans have settled:\n"
    "  peak GB    most memory on the device at once\n"
    "  saved      part of the memory of `none` that is not needed (the paper's MSR)\n"
    "  overhead   part of the time of `none` that is added (EOR)\n"
    "  quotient   saved / overhead (CBR); - where next to no time is added\n"
    "  time ms    an iteration\n"
    "  stall ms   time in it without an operator, for each job\n"
    "  out, in    part of the time in which copies to the host, from the host are under way\n"
    "  plan ms    processor time of the last planning, of all jobs\n"
    "and whether each run's bytes are those of `none`: ok, or what is wrong. A figure that does "
    "not\n"
    "exist, as the overhead of an iteration that takes no time, is - in the table and null in "
    "JSON.\n"
    "\nExit status: 0; 1 where a graph cannot be read or a row is not ok; 2 for wrong options.\n";

typedef struct options {
  int json, together;
  uint64_t jobs, iterations;
  double overhead, jitter;
  double link_gbs, ratio;
  gmlake_offload_graph *graphs[JOBS_MAX]; /* --together: of each job */
} options;

typedef enum strategy { ON_DEMAND = 0, TENSILE, CAPUCHIN, VDNN_CONV, VDNN_ALL } strategy;

typedef struct way {
  const char *name;
  unsigned flags; /* the planner's; where there is none, the run's */
  strategy plans;
  double overhead; /* below 0: --overhead */
  double target;   /* of the memory that nothing moved takes */
} way;

static const way ways[] = {
    {"paper", GMLAKE_OFFLOAD_PAPER, TENSILE, 0, 0},
    {"paper+r", GMLAKE_OFFLOAD_PAPER, TENSILE, 0, .75},
    {"tensile", 0, TENSILE, 0, 0},
    {"tensile+", 0, TENSILE, -1, 0},
    {"demand", GMLAKE_OFFLOAD_LRU, ON_DEMAND, 0, 0},
    {"demand+", 0, ON_DEMAND, 0, 0},
    {"capuchin", GMLAKE_OFFLOAD_LRU, CAPUCHIN, 0, 0},
    {"vdnn-conv", 0, VDNN_CONV, 0, 0},
    {"vdnn-all", 0, VDNN_ALL, 0, 0},
};
/* An H200's, or --link in each direction. */
static baseline_link link_of(const options *opts) {
  const baseline_link link = {opts->link_gbs * 1e9, opts->link_gbs * 1e9, 10000};
  return link;
}

#define WAYS (sizeof ways / sizeof *ways)

typedef struct bench {
  const options *opts;
  const gmlake_offload_graph *graph; /* of all jobs, but with --together */
  gmlake_offload_planner *planner;
  gmlake_offload_backend *mock;
  gmlake_offload_run *run;
  gmlake_offload_plan *plans[JOBS_MAX], *former[JOBS_MAX];
  baseline_view view;
  capuchin capuchin;
  int settling;
  double plan_ms;
  size_t planned_bytes, short_bytes; /* short: the memory that Capuchin's plan takes, if too much */
  gmlake_offload_result result;
} bench;

typedef struct outcome {
  gmlake_offload_result result;
  double time_ms, stall_ms, out_busy, in_busy, plan_ms; /* time and stall of an iteration */
  size_t peak_bytes, planned_bytes, short_bytes;
  uint64_t digest, on_demand_count, recompute_count;
} outcome;

/* ---- Plans that follow the times measured ---------------------------------------------------- */

static void observe(void *user, uint32_t job, uint32_t op, uint64_t time_ns) {
  bench *b = (bench *)user;
  if (b->capuchin.view) capuchin_observe(&b->capuchin, b->run, job, op);
  if (b->planner) (void)gmlake_offload_observe(b->planner, job, op, time_ns);
}

static const gmlake_offload_graph *graph_of(const bench *b, uint32_t job) {
  return b->opts->together ? b->opts->graphs[job] : b->graph;
}

/* What the jobs take together when nothing moves, if each is at its peak. */
static double all_bytes(const bench *b) {
  gmlake_offload_graph_info info;
  double bytes = 0;
  uint32_t j;
  for (j = 0; j < b->opts->jobs; j++) {
    memset(&info, 0, sizeof info);
    if (!gmlake_offload_graph_get_info(graph_of(b, j), &info)) bytes += (double)info.peak_bytes;
  }
  return bytes;
}

static void keep_first(gmlake_offload_result *result, gmlake_offload_result next) {
  if (!*result) *result = next;
}

/* The planner's present plans, for the jobs' next iterations. */
static void hand_over(bench *b, const way *w) {
  size_t limit = 0;
  uint32_t j;
  for (j = 0; j < b->opts->jobs; j++) {
    gmlake_offload_plan_info info;
    memset(&info, 0, sizeof info);
    gmlake_offload_plan_destroy(b->former[j]);
    b->former[j] = b->plans[j];
    b->plans[j] = NULL;
    keep_first(&b->result, gmlake_offload_take_plan(b->planner, j, &b->plans[j]));
    if (b->result) return;
    keep_first(&b->result, gmlake_offload_plan_get_info(b->plans[j], &info));
    keep_first(&b->result, gmlake_offload_run_set_plan(b->run, j, b->plans[j]));
    limit = w->flags & GMLAKE_OFFLOAD_PAPER ? info.peak_bytes : limit + info.peak_bytes;
  }
  b->planned_bytes = limit;
  if (!(w->flags & GMLAKE_OFFLOAD_PAPER)) {
    keep_first(&b->result, gmlake_offload_run_set_limit(b->run, limit));
  }
}

/* Capuchin's in-triggers move with every iteration. */
static void replan_capuchin(bench *b, size_t budget_bytes) {
  double began = processor_ms();
  const baseline_link link = link_of(b->opts);
  int chosen = b->capuchin.view != NULL;
  if (!chosen && (!baseline_view_make(&b->view, b->graph, &link) ||
                  !capuchin_choose(&b->capuchin, &b->view, budget_bytes))) {
    b->result = GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
    return;
  }
  gmlake_offload_plan_destroy(b->former[0]);
  b->former[0] = b->plans[0];
  b->plans[0] = capuchin_plan(&b->capuchin);
  if (!chosen) b->plan_ms = processor_ms() - began;
  if (b->capuchin.reached_bytes > budget_bytes) b->short_bytes = b->capuchin.reached_bytes;
  b->result = b->plans[0] ? gmlake_offload_run_set_plan(b->run, 0, b->plans[0])
                          : GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
}

static void replan(bench *b, const way *w) {
  double began = processor_ms();
  int replanned = 0;
  keep_first(&b->result, gmlake_offload_update(b->planner, &replanned));
  if (!replanned || b->result) return;
  b->plan_ms = processor_ms() - began;
  hand_over(b, w);
}

/* ---- One way --------------------------------------------------------------------------------- */

static int set_up(bench *b, const way *w) {
  gmlake_offload_planner_desc planner;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_mock_desc mock;
  gmlake_offload_run_desc run;
  uint32_t j, id;
  memset(&planner, 0, sizeof planner);
  memset(&job_desc, 0, sizeof job_desc);
  memset(&mock, 0, sizeof mock);
  memset(&run, 0, sizeof run);
  if (w && w->plans == TENSILE) {
    planner.flags = w->flags;
    planner.overhead_max = w->overhead < 0 ? b->opts->overhead : w->overhead;
    planner.target_bytes = (size_t)(w->target * all_bytes(b));
    planner.smoothing = .5;
    planner.out_bytes_per_s = planner.in_bytes_per_s = b->opts->link_gbs * 1e9;
    planner.both_bytes_per_s = b->opts->link_gbs * BOTH_PART * 1e9;
    job_desc.swap_ratio_max = b->opts->ratio;
    keep_first(&b->result, gmlake_offload_planner_create(&planner, &b->planner));
    for (j = 0; j < b->opts->jobs && !b->result; j++) {
      job_desc.graph = graph_of(b, j);
      keep_first(&b->result, gmlake_offload_add_job(b->planner, &job_desc, &id));
    }
  }
  mock.divisor = (size_t)1 << 20;
  mock.jitter = b->opts->jitter;
  mock.out_bytes_per_s = mock.in_bytes_per_s = b->opts->link_gbs * 1e9;
  mock.both_bytes_per_s = b->opts->link_gbs * BOTH_PART * 1e9;
  mock.copy_ns = 10000;
  mock.seed = 1;
  keep_first(&b->result, gmlake_offload_mock_create(&mock, &b->mock));
  if (w && w->plans != TENSILE) run.flags = w->flags;
  run.backend = b->mock;
  run.observe_fn = observe;
  run.user = b;
  if (!b->result) b->result = gmlake_offload_run_create(&run, &b->run);
  for (j = 0; j < b->opts->jobs && !b->result; j++) {
    b->result = gmlake_offload_run_add_job(b->run, graph_of(b, j), NULL, &id);
  }
  return !b->result;
}

static void tear_down(bench *b) {
  uint32_t j;
  gmlake_offload_run_destroy(b->run);
  gmlake_offload_planner_destroy(b->planner);
  for (j = 0; j < JOBS_MAX; j++) {
    gmlake_offload_plan_destroy(b->plans[j]);
    gmlake_offload_plan_destroy(b->former[j]);
  }
  gmlake_offload_mock_destroy(b->mock);
  capuchin_free(&b->capuchin);
  baseline_view_free(&b->view);
}

static void measure(bench *b, outcome *o) {
  gmlake_offload_run_stats before, after;
  gmlake_offload_mock_census first, last;
  double iterations = (double)b->opts->iterations, ns;
  before.struct_bytes = after.struct_bytes = 0;
  (void)gmlake_offload_run_reset_peaks(b->run);
  (void)gmlake_offload_run_get_stats(b->run, &before);
  gmlake_offload_mock_get_census(b->mock, &first);
  b->result = gmlake_offload_run_iterations(b->run, b->opts->iterations);
  (void)gmlake_offload_run_get_stats(b->run, &after);
  gmlake_offload_mock_get_census(b->mock, &last);
  ns = (double)(after.time_ns - before.time_ns);
  o->time_ms = ns / 1e6 / iterations;
  o->stall_ms = (double)(after.stall_ns - before.stall_ns) / 1e6 / iterations;
  o->stall_ms /= (double)b->opts->jobs;
  o->out_busy = part((double)(last.out_busy_ns - first.out_busy_ns), ns);
  o->in_busy = part((double)(last.in_busy_ns - first.in_busy_ns), ns);
  o->peak_bytes = after.device_bytes_peak;
  o->on_demand_count = after.on_demand_out_count - before.on_demand_out_count;
  o->recompute_count = after.recompute_count - before.recompute_count;
  o->digest = last.race_count ? 0 : last.digest;
}

/* w NULL: nothing moves, or as `plan` says. limit_bytes: of those on demand and Capuchin. */
static outcome run_way(const options *opts, const gmlake_offload_graph *graph, const way *w,
                       const gmlake_offload_plan *plan, size_t limit_bytes) {
  outcome o;
  bench b;
  int i;
  memset(&b, 0, sizeof b);
  memset(&o, 0, sizeof o);
  b.opts = opts;
  b.graph = graph;
  if (set_up(&b, w)) {
    (void)gmlake_offload_run_set_limit(b.run, limit_bytes);
    if (plan) b.result = gmlake_offload_run_set_plan(b.run, 0, plan);
    for (i = 0; i < SETTLE && !b.result; i++) {
      if (b.planner) replan(&b, w);
      if (w && w->plans == CAPUCHIN) replan_capuchin(&b, limit_bytes);
      if (!b.result) b.result = gmlake_offload_run_iterations(b.run, 1);
    }
    if (!b.result) measure(&b, &o);
  }
  o.result = b.result;
  o.plan_ms = b.plan_ms;
  o.planned_bytes = b.planned_bytes;
  o.short_bytes = b.short_bytes;
  tear_down(&b);
  return o;
}

/* vDNN's graph has waits, and so a digest of its own. */
static outcome run_vdnn(const options *opts, const gmlake_offload_graph *graph, int all,
                        const outcome *none) {
  gmlake_offload_graph *waits = NULL;
  gmlake_offload_plan *plan = NULL;
  gmlake_offload_graph_info info;
  baseline_view view;
  double began = processor_ms(), plan_ms;
  const baseline_link link = link_of(opts);
  outcome o;
  memset(&o, 0, sizeof o);
  o.result = GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY;
  if (baseline_view_make(&view, graph, &link) && vdnn_plan(&view, all, &waits, &plan)) {
    plan_ms = processor_ms() - began;
    o = run_way(opts, waits, NULL, plan, 0);
    if (o.digest == run_way(opts, waits, NULL, NULL, 0).digest) o.digest = none->digest;
    o.plan_ms = plan_ms;
    if (!gmlake_offload_graph_get_info(waits, &info)) {
      o.stall_ms += (double)(info.time_ns - view.info.time_ns) / 1e6;
    }
  }
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(waits);
  baseline_view_free(&view);
  return o;
}

/* ---- Rows ------------------------------------------------------------------------------------ */

static void print_row(const options *opts, const char *graph, const char *name, const outcome *none,
                      const outcome *o) {
  double saved = 1 - ratio((double)o->peak_bytes, (double)none->peak_bytes);
  double overhead = ratio(o->time_ms, none->time_ms) - 1;
  const char *state = o->result                   ? gmlake_offload_result_name(o->result)
                      : o->digest == none->digest ? "ok"
                                                  : "WRONG BYTES";
  const char *missing = opts->json ? "null" : "-";
  figure saved_text = figure_of(saved, "%.4f", missing);
  figure overhead_text = figure_of(overhead, "%.4f", missing);
  figure quotient = figure_of(overhead > .0005 ? saved / overhead : INFINITY, "%.2f", missing);
  if (opts->json) {
    printf(
        "{\"graph\":\"%s\",\"jobs\":%u,\"way\":\"%s\",\"state\":\"%s\",\"peak_bytes\":%zu,"
        "\"saved\":%s,\"overhead\":%s,\"time_ms\":%.3f,\"stall_ms\":%.3f,\"out_busy\":%.3f,"
        "\"in_busy\":%.3f,\"on_demand\":%llu,\"recomputed\":%llu,\"plan_ms\":%.2f,"
        "\"short_bytes\":%zu}\n",
        graph, (unsigned)opts->jobs, name, state, o->peak_bytes, saved_text.text,
        overhead_text.text, o->time_ms, o->stall_ms, o->out_busy, o->in_busy,
        (unsigned long long)o->on_demand_count, (unsigned long long)o->recompute_count, o->plan_ms,
        o->short_bytes);
    return;
  }
  printf("%-20s %4u %-9s %8.3f %7s %8s %8s %9.3f %8.3f %4.0f%% %4.0f%% %8.1f  %s", graph,
         (unsigned)opts->jobs, name, (double)o->peak_bytes / 1e9, saved_text.text,
         overhead_text.text, quotient.text, o->time_ms, o->stall_ms, 100 * o->out_busy,
         100 * o->in_busy, o->plan_ms, state);
  if (o->short_bytes) {
    printf("; the plan comes to %.2f", ratio((double)o->short_bytes, (double)none->peak_bytes));
  }
  printf("\n");
}

/* The last iteration of a recorded graph; NULL where it cannot be read. */
static gmlake_offload_graph *load(const char *path) {
  char error[400];
  graph g;
  gmlake_offload_graph *made;
  if (!graph_load(path, &g, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return NULL;
  }
  made = graph_make(&g, graph_iteration_count(&g) - 1, error, sizeof error);
  graph_free(&g);
  if (!made) fprintf(stderr, "%s: %s\n", path, error);
  return made;
}

static int bench_ways(const options *opts, const char *name, const gmlake_offload_graph *graph) {
  outcome none = run_way(opts, graph, NULL, NULL, 0);
  size_t i, limit = 0;
  int failed = none.result != GMLAKE_OFFLOAD_OK;
  print_row(opts, name, "none", &none, &none);
  for (i = 0; i < WAYS && (opts->jobs == 1 || ways[i].plans < CAPUCHIN); i++) {
    outcome o = ways[i].plans < VDNN_CONV
                    ? run_way(opts, graph, &ways[i], NULL, ways[i].plans == TENSILE ? 0 : limit)
                    : run_vdnn(opts, graph, ways[i].plans == VDNN_ALL, &none);
    if (ways[i].plans == TENSILE) limit = o.planned_bytes;
    print_row(opts, name, ways[i].name, &none, &o);
    (void)fflush(stdout);
    failed |= o.result || o.digest != none.digest;
  }
  return !failed;
}

static int bench_graph(const options *opts, const char *path) {
  char name[64];
  gmlake_offload_graph *made = load(path);
  int ok;
  if (!made) return 0;
  graph_name(path, name, sizeof name);
  ok = bench_ways(opts, name, made);
  gmlake_offload_graph_destroy(made);
  return ok;
}

/* --together: one job of each graph, all at once. */
static int bench_together(options *opts, char **paths, int count) {
  int i, ok = count > 0 && count <= JOBS_MAX;
  if (!ok) fprintf(stderr, "--together takes 1 to %d graphs, not %d\n", JOBS_MAX, count);
  for (i = 0; ok && i < count; i++) ok = (opts->graphs[i] = load(paths[i])) != NULL;
  opts->jobs = (uint64_t)count;
  ok = ok && bench_ways(opts, "together", opts->graphs[0]);
  for (i = 0; i < count && i < JOBS_MAX; i++) gmlake_offload_graph_destroy(opts->graphs[i]);
  return ok;
}

static int bench_all(options *opts) {
  static const char *const names[] = {"vgg16-b64",           "vgg16-b2",
                                      "resnet50-b64",        "densenet121-b64",
                                      "llama-7b-prefill-4k", "llama-7b-lora-b8-1k"};
  char path[200];
  size_t i;
  int ok = 1;
  for (i = 0; i < sizeof names / sizeof *names; i++) {
    (void)snprintf(path, sizeof path, "bench/graphs/%s.gmgraph.gz", names[i]);
    ok &= bench_graph(opts, path);
  }
  for (opts->jobs = 2; opts->jobs <= 3; opts->jobs++) {
    ok &= bench_graph(opts, "bench/graphs/vgg16-b64.gmgraph.gz");
  }
  return ok;
}

int main(int argc, char **argv) {
  options opts = {0, 0, 1, 6, .05, 0, 55, 0, {NULL}};
  const option_row rows[] = {
      {"json", OPTION_FLAG, &opts.json, 0, 0, NULL, "print one JSON object a row"},
      {"jobs", OPTION_COUNT, &opts.jobs, 1, JOBS_MAX, "N",
       "run N jobs of each graph at once, which share the device; default 1"},
      {"together", OPTION_FLAG, &opts.together, 0, 0, NULL,
       "run one job of each GRAPH, all at once on one device"},
      {"overhead", OPTION_NUMBER, &opts.overhead, 0, 100, "PART",
       "part of its time that tensile+ may add to an iteration; default .05"},
      {"jitter", OPTION_NUMBER, &opts.jitter, 0, .99, "PART",
       "each operator takes its time, more or less by up to PART of it; default 0"},
      {"link", OPTION_NUMBER, &opts.link_gbs, .001, 1e6, "GB",
       "the link carries GB gigabytes a second in each direction; default 55"},
      {"ratio", OPTION_NUMBER, &opts.ratio, .0001, 1, "PART",
       "a job swaps at most PART of its tensors: of their bytes, in paper mode of their number"},
      {"iterations", OPTION_COUNT, &opts.iterations, 1, 1e6, "N",
       "measure N iterations; default 6"},
  };
  const option_reader reader = {"offload", "[OPTION]... [GRAPH]...",  about, columns,
                                rows,      sizeof rows / sizeof *rows};
  int i = options_read(&reader, argc, argv), first = i, ok = 1;
  if (!opts.json) {
    printf(
        "graph                jobs way        peak GB   saved overhead quotient   time ms stall ms "
        " out   in  plan ms\n");
  }
  if (opts.together) return bench_together(&opts, argv + i, argc - i) ? 0 : 1;
  for (; i < argc; i++) ok &= bench_graph(&opts, argv[i]);
  if (first == argc) ok = bench_all(&opts);
  return ok ? 0 : 1;
}
