/* Measures how much processor time allocators take on the host: gmlake.h with its lock and without,
   gmlake_bfc.h, allocators from shared libraries, and malloc and mimalloc, which show how fast an
   allocator can be. It needs no GPU, and there is no memory behind the addresses. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <errno.h>
#include <glob.h>
#include <sys/mman.h>
#include <sys/prctl.h>
#include <unistd.h>

#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-function" /* its samples are for the GPU's benchmark */
#include "measure.h"
#pragma GCC diagnostic pop
#include "bench_run.h"
#include "bench_scale.h"
#include "options.h"
#include "progress.h"

#if !defined(BUILD)
#define BUILD "build" /* the folder that the Makefile builds into */
#endif
#define YARDSTICK BUILD "/peer_bfc_set.so"
#define TRACE_FORMAT "bench/traces/%s.gmtrace.gz"
#define HEADS_MAX 512
#define OPS_MAX 100000000
#define DIVISOR_MAX 4096

static const char about[] =
    "       bench --once ALLOCATOR [OPTION]... LOAD | TRACE\n"
    "Measures how much processor time allocators take on the host. Without a name it measures\n"
    "everything. TRACE is a file, or the name of a trace in bench/traces.\n"
    "\n"
    "sections:\n"
    "  traces     recorded programs, from the fourth pass on\n"
    "  loads      made-up programs:\n"
    "    random-N   N blocks are live; again and again a random one is freed, and one of random\n"
    "               size allocated (N: 64, 1024, 16384, 131072, 1048576). Sizes: 512 B to 4 MiB,\n"
    "               their logarithm is uniform\n"
    "    lifo       1024 allocations, then frees in reverse order\n"
    "    fifo       1024 blocks are live; the oldest is freed, one of random size allocated\n"
    "    one-64k, one-1m   as random-1024, with all blocks of one size\n"
    "    phases     200 phases take turns, each of which needs a stitched block of its own\n"
    "    comb       1000 pairs of a small block and a large one; large blocks are freed, then\n"
    "               larger ones allocated, before the small ones are freed\n"
    "  threads    up to 8 threads, with a lake each, and with one allocator for all\n"
    "  scale      the lake alone, on a device of 192 GiB: full, chunks of 2 MiB, a million\n"
    "             blocks, 20,000 windows; and a hundredth of that. Driver calls for chunks cost\n"
    "             nothing\n"
    "\n"
    "options:";

static const char more[] =
    "\n"
    "Each measurement runs in a process of its own. Times are medians, without the time of the\n"
    "measuring loop. Ratios compare the shortest times, because other programs disturb those\n"
    "least. Exit status: 0, 1 if the lake or bfc failed or the document cannot be written, 2 if\n"
    "the arguments or a trace are bad.\n";

typedef struct options {
  uint64_t repeat, op_count, scale_blocks;
  int is_markdown;
  const char *json_path, *once; /* the one allocator's name */
  option_list peers;            /* paths of libraries */
  char **words;                 /* what is to be measured; none: everything */
  size_t word_count;
} options;

/* ---- Figures --------------------------------------------------------------------------------- */

/* One for each allocator, or for each number of threads. The measuring processes write them. */
#define RESULTS_BYTES (32 * sizeof(result))
static result *results;
static double tick_ns;

/* Returns zeroed memory that this process shares with children of fork. */
static void *share(size_t bytes) {
  void *memory = mmap(NULL, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) abort();
  return memory;
}

static double median_of(const double *values, size_t count) {
  double sorted[REPEAT_MAX];
  memcpy(sorted, values, count * sizeof(double));
  return median(sorted, count);
}

static double extreme_ns(size_t a, int is_max) {
  const result *r = &results[a];
  double extreme = r->count ? r->ns[0] : NAN;
  size_t i;
  for (i = 1; i < r->count; i++)
    extreme = is_max ? fmax(extreme, r->ns[i]) : fmin(extreme, r->ns[i]);
  return extreme;
}

/* Other programs on the machine only make a time longer. So the shortest is the most accurate. */
static double loop_ns(void) { return extreme_ns(LOOP, 0); }

/* A time without that of the measuring loop, unless a is the loop. NAN if the measurement
   failed. */
static double net_ns(size_t a, double ns) {
  return results[a].error[0] ? NAN : a == LOOP ? ns : ns - loop_ns();
}

static double median_ns(size_t a) { return net_ns(a, median_of(results[a].ns, results[a].count)); }

/* The lake's time divided by that of allocator a. Both were measured in turns. */
static double ratio_to(size_t lake, size_t a) {
  const double lake_ns = net_ns(lake, extreme_ns(lake, 0)), ns = net_ns(a, extreme_ns(a, 0));
  return ns > 0 ? lake_ns / ns : NAN; /* a time of 0 was too short to be measured */
}

/* The time that this share of the calls did not exceed. It includes the timer's own time. Calls
   that needed the driver are not counted. */
static double percentile_ns(size_t a, int is_free, double share) {
  const uint64_t *ticks = results[a].ticks[is_free];
  uint64_t all = 0, seen = 0;
  size_t i;
  for (i = 0; i < TICK_BUCKETS; i++) all += ticks[i];
  if (!all || results[a].error[0]) return NAN;
  for (i = 0; i + 1 < TICK_BUCKETS; i++) {
    seen += ticks[i];
    if ((double)seen >= share * (double)all) break;
  }
  return bucket_ticks(i) * tick_ns;
}

/* ---- Sections -------------------------------------------------------------------------------- */

typedef struct bench {
  options o;
  json document;
  table times, ratios, latencies, others;
  double log_ratios[2][ALLOCATORS_MAX]; /* sums; [0] of the lake, [1] of that without locks */
  size_t ratio_count;
  int status; /* the exit status */
  progress shown;
} bench;

/* Only a failure of the lake or of bfc is an error of the run. If another allocator fails, for
   example because the host has too little memory, its figures are missing. */
static void report_error(bench *b, const char *name, const allocator *with, const result *r) {
  if (!r->error[0]) return;
  progress_clear();
  fprintf(stderr, "%s: %s: %s\n", name, with->name, r->error);
  if (with < &allocators[MALLOC]) b->status = 1;
}

static void append_head(char *heads, const char *before, const char *name) {
  snprintf(heads + strlen(heads), HEADS_MAX - strlen(heads), "|%s%s", before, name);
}

static void open_table(table *t, const bench *b, const char *section, const char *what,
                       const char *heads) {
  char title[200];
  snprintf(title, sizeof title, "%s: %s", section, what);
  table_open(t, b->o.is_markdown, title, heads);
}

static void open_tables(bench *b, const char *section) {
  char times[HEADS_MAX] = "<name|blocks", ratios[HEADS_MAX] = "<name";
  char latencies[HEADS_MAX] = "<name|<call",
       others[HEADS_MAX] = "<name|driver calls|lake bytes|bfc bytes";
  size_t a;
  for (a = 0; a < allocator_count; a++) {
    append_head(times, "", allocators[a].head);
    if (a == LAKE) append_head(times, "", "range");
    append_head(latencies, "", a == LOOP ? "timer" : allocators[a].head);
    append_head(others, "", allocators[a].head);
  }
  for (a = BFC; a < allocator_count; a++) {
    append_head(ratios, "lake / ", allocators[a].head);
    append_head(ratios, "unlocked / ", allocators[a].head);
  }
  open_table(&b->times, b, section, "processor ns an operation, without the loop's", times);
  open_table(&b->ratios, b, section, "the lake's time, with its lock and without, in the others'",
             ratios);
  open_table(
      &b->latencies, b, section,
      "ns a call takes at 50, 99 and 99.9 %, with the timer's own; those that need the driver "
      "left out",
      latencies);
  open_table(&b->others, b, section,
             "the lake's driver calls in 1000 operations; metadata of a block; instructions an "
             "operation, the loop's included",
             others);
  memset(b->log_ratios, 0, sizeof b->log_ratios);
  b->ratio_count = 0;
}

static void print_latencies(table *t, const char *name, int is_free) {
  size_t a;
  table_cell(t, "%s", name);
  table_cell(t, is_free ? "free" : "alloc");
  for (a = 0; a < allocator_count; a++) {
    if (results[a].error[0])
      table_cell(t, "-");
    else
      table_cell(t, "%.0f / %.0f / %.0f", percentile_ns(a, is_free, 0.5),
                 percentile_ns(a, is_free, 0.99), percentile_ns(a, is_free, 0.999));
  }
}

static void print_ratios(bench *b, const char *name) {
  size_t a, unlocked;
  table_cell(&b->ratios, "%s", name);
  for (a = BFC; a < allocator_count; a++) {
    for (unlocked = 0; unlocked < 2; unlocked++) {
      const double ratio = ratio_to(unlocked ? UNLOCKED : LAKE, a);
      table_real(&b->ratios, 2, ratio);
      b->log_ratios[unlocked][a] += log(ratio);
    }
  }
  b->ratio_count++;
}

static void print_mean_ratios(bench *b) {
  size_t a, unlocked;
  if (b->ratio_count < 2) return;
  table_cell(&b->ratios, "geometric mean");
  for (a = BFC; a < allocator_count; a++)
    for (unlocked = 0; unlocked < 2; unlocked++)
      table_real(&b->ratios, 2, exp(b->log_ratios[unlocked][a] / (double)b->ratio_count));
}

static void print_rows(bench *b, const workload *w) {
  table *t = &b->times;
  size_t a;
  table_cell(t, "%s", w->name);
  table_cell(t, "%lu", (unsigned long)w->slot_count);
  for (a = 0; a < allocator_count; a++) {
    table_real(t, 1, median_ns(a));
    if (a == LAKE)
      table_cell(t, "%.1f-%.1f", net_ns(a, extreme_ns(a, 0)), net_ns(a, extreme_ns(a, 1)));
  }
  print_ratios(b, w->name);
  print_latencies(&b->latencies, w->name, 0);
  print_latencies(&b->latencies, w->name, 1);
  t = &b->others;
  table_cell(t, "%s", w->name);
  table_real(t, 2, results[LAKE].counted.driver_calls * 1000);
  table_real(t, 0, results[LAKE].counted.metadata_bytes);
  table_real(t, 0, results[BFC].counted.metadata_bytes);
  for (a = 0; a < allocator_count; a++)
    table_real(t, 0, median_of(results[a].instructions, results[a].count));
}

static void write_latencies(json *j, const char *name, size_t a, int is_free) {
  json_begin(j, name, '{');
  json_real(j, "p50", percentile_ns(a, is_free, 0.5));
  json_real(j, "p99", percentile_ns(a, is_free, 0.99));
  json_real(j, "p99_9", percentile_ns(a, is_free, 0.999));
  json_end(j, '}');
}

static void write_values(json *j, const char *name, const double *values, size_t count) {
  size_t i;
  json_begin(j, name, '[');
  for (i = 0; i < count; i++) json_real(j, NULL, values[i]);
  json_end(j, ']');
}

static void write_allocator(json *j, size_t a) {
  const result *r = &results[a];
  json_begin(j, NULL, '{');
  json_text(j, "allocator", allocators[a].name);
  json_text(j, "error", r->error);
  json_real(j, "ns_per_op", median_ns(a));
  json_real(j, "ns_per_op_min", net_ns(a, extreme_ns(a, 0)));
  json_real(j, "ns_per_op_max", net_ns(a, extreme_ns(a, 1)));
  json_real(j, "lake_ratio", ratio_to(LAKE, a));
  json_real(j, "lake_single_threaded_ratio", ratio_to(UNLOCKED, a));
  json_real(j, "instructions_per_op", median_of(r->instructions, r->count));
  json_real(j, "driver_calls_per_op", r->counted.driver_calls);
  json_real(j, "metadata_bytes_per_block", r->counted.metadata_bytes);
  json_whole(j, "reserved_bytes_peak", r->counted.reserved_bytes);
  write_latencies(j, "alloc_ns", a, 0);
  write_latencies(j, "free_ns", a, 1);
  write_values(j, "ns_per_op_with_loop", r->ns, r->count);
  json_end(j, '}');
}

static void run_workload(bench *b, const workload *w) {
  json *j = &b->document;
  size_t i, k, a;
  memset(results, 0, RESULTS_BYTES);
  for (i = 0; i < b->o.repeat; i++) {
    for (k = 0; k < allocator_count; k++) {
      a = (i + k) % allocator_count;
      measure_apart(measure_one, w, &allocators[a], NULL, &results[a]);
    }
    progress_step(&b->shown, w->name);
  }
  for (a = 0; a < allocator_count; a++) report_error(b, w->name, &allocators[a], &results[a]);
  progress_clear();
  print_rows(b, w);
  json_begin(j, NULL, '{');
  json_text(j, "name", w->name);
  json_count(j, "operations", (w->timed.end - w->timed.begin) * w->timed.rounds);
  json_count(j, "blocks", w->slot_count);
  json_count(j, "streams", w->stream_count);
  json_begin(j, "allocators", '[');
  for (a = 0; a < allocator_count; a++) write_allocator(j, a);
  json_end(j, ']');
  json_end(j, '}');
}

static void close_tables(bench *b) {
  print_mean_ratios(b);
  table_close(&b->times);
  table_close(&b->ratios);
  table_close(&b->latencies);
  table_close(&b->others);
}

static int is_named(const options *o, const char *name) {
  size_t i;
  for (i = 0; i < o->word_count; i++)
    if (!strcmp(o->words[i], name)) return 1;
  return !o->word_count;
}

static int is_section(const char *word) {
  return !strcmp(word, "traces") || !strcmp(word, "loads") || !strcmp(word, "threads") ||
         !strcmp(word, "scale");
}

static const load *find_load(const char *word) {
  size_t i;
  for (i = 0; i < LOAD_COUNT; i++)
    if (!strcmp(word, loads[i].name)) return &loads[i];
  return NULL;
}

static int is_section_or_load(const char *word) { return is_section(word) || find_load(word); }

static void trace_path(const char *word, char *out, size_t out_bytes) {
  snprintf(out, out_bytes, strpbrk(word, "/") || !access(word, R_OK) ? "%s" : TRACE_FORMAT, word);
}

/* Returns 1 if the trace can be run; else prints why not. */
static int read_trace(const bench *b, const char *path, workload *out) {
  const char *slash = strrchr(path, '/');
  char error[512], *suffix;
  trace t;
  if (!trace_load_blocks(path, &t, error, sizeof error)) {
    fprintf(stderr, "%s\n", error);
    return 0;
  }
  make_trace(out, slash ? slash + 1 : path, &t, b->o.op_count);
  trace_free(&t);
  suffix = strstr(out->name, ".gmtrace");
  if (suffix) *suffix = '\0';
  if (!out->op_count) fprintf(stderr, "%s: the trace allocates nothing\n", path);
  return out->op_count != 0;
}

static void run_trace(bench *b, const char *path) {
  workload w;
  if (!read_trace(b, path, &w)) {
    b->status = 2;
    return;
  }
  run_workload(b, &w);
  free(w.ops);
}

/* Runs the traces that are named, or all. */
static void run_traces(bench *b) {
  const int all = is_named(&b->o, "traces");
  char path[512];
  glob_t found;
  size_t i;
  open_tables(b, "Traces");
  json_begin(&b->document, "traces", '[');
  snprintf(path, sizeof path, TRACE_FORMAT, "*");
  if (all && !glob(path, 0, NULL, &found)) {
    for (i = 0; i < found.gl_pathc; i++) run_trace(b, found.gl_pathv[i]);
    globfree(&found);
  }
  for (i = 0; i < b->o.word_count; i++) {
    if (is_section_or_load(b->o.words[i])) continue;
    trace_path(b->o.words[i], path, sizeof path);
    run_trace(b, path);
  }
  json_end(&b->document, ']');
  close_tables(b);
}

static void run_loads(bench *b) {
  workload w;
  size_t i;
  open_tables(b, "Loads");
  json_begin(&b->document, "loads", '[');
  for (i = 0; i < LOAD_COUNT; i++) {
    if (!is_named(&b->o, "loads") && !is_named(&b->o, loads[i].name)) continue;
    make_load(&w, &loads[i], b->o.op_count);
    run_workload(b, &w);
    free(w.ops);
  }
  json_end(&b->document, ']');
  close_tables(b);
}

static const size_t thread_counts[] = {1, 2, 4, THREADS_MAX};

#define THREAD_COUNTS (sizeof thread_counts / sizeof thread_counts[0])

static const struct {
  const char *name;
  size_t allocator;
  int is_shared;
} crowds[] = {{"a lake each", LAKE, 0}, {"an unlocked lake each", UNLOCKED, 0},
              {"one lake", LAKE, 1},    {"one bfc", BFC, 1},
              {"malloc", MALLOC, 1},    {"mimalloc", MIMALLOC, 1}};

#define CROWD_COUNT (sizeof crowds / sizeof crowds[0])

static void measure_crowds(bench *b, const workload *w, size_t crowd_count,
                           result (*shared)[THREAD_COUNTS]) {
  size_t i, k, n;
  for (i = 0; i < b->o.repeat; i++) {
    for (k = 0; k < crowd_count; k++) {
      for (n = 0; n < THREAD_COUNTS; n++) {
        const size_t row = (i + k) % crowd_count;
        const crowd c = {thread_counts[n], crowds[row].is_shared};
        measure_apart(measure_crowd, w, &allocators[crowds[row].allocator], &c, &shared[row][n]);
      }
    }
    progress_step(&b->shown, "threads");
  }
  progress_clear();
}

/* How many times as much the largest number of threads does in the same time as one thread. */
static double crowd_speedup(const result *of) {
  const result *most = &of[THREAD_COUNTS - 1];
  double ratios[REPEAT_MAX];
  size_t i;
  if (of->count != most->count) return NAN;
  for (i = 0; i < most->count; i++) ratios[i] = of->wall_ns[i] / most->wall_ns[i];
  return median(ratios, most->count);
}

static void print_crowds(const bench *b, size_t crowd_count, result (*shared)[THREAD_COUNTS]) {
  table t;
  size_t k, n;
  table_open(&t, b->o.is_markdown,
             "Threads: 1024 blocks live in each; millions of operations a second by the wall's "
             "clock, processor ns an operation (the loop's included)",
             "<allocator|1 thread|2|4|8|8 to 1|ns: 1 thread|2|4|8");
  for (k = 0; k < crowd_count; k++) {
    const result *r = shared[k];
    table_cell(&t, "%s", crowds[k].name);
    for (n = 0; n < THREAD_COUNTS; n++)
      table_real(&t, 2, 1000 / median_of(r[n].wall_ns, r[n].count));
    table_real(&t, 2, crowd_speedup(r));
    for (n = 0; n < THREAD_COUNTS; n++) table_real(&t, 1, median_of(r[n].ns, r[n].count));
  }
  table_close(&t);
}

static void write_crowds(json *j, size_t crowd_count, result (*shared)[THREAD_COUNTS]) {
  size_t k, n;
  json_begin(j, "threads", '[');
  for (k = 0; k < crowd_count; k++) {
    for (n = 0; n < THREAD_COUNTS; n++) {
      const result *r = &shared[k][n];
      json_begin(j, NULL, '{');
      json_text(j, "allocator", crowds[k].name);
      json_count(j, "threads", thread_counts[n]);
      json_text(j, "error", r->error);
      json_real(j, "million_ops_per_second", 1000 / median_of(r->wall_ns, r->count));
      json_real(j, "ns_per_op_with_loop", median_of(r->ns, r->count));
      json_real(j, "speedup_of_8", crowd_speedup(shared[k]));
      write_values(j, "wall_ns_per_op", r->wall_ns, r->count);
      write_values(j, "ns_per_op_with_loops", r->ns, r->count);
      json_end(j, '}');
    }
  }
  json_end(j, ']');
}

static void run_threads(bench *b) {
  const size_t crowd_count = CROWD_COUNT - !has_mimalloc;
  result(*shared)[THREAD_COUNTS] = (result(*)[THREAD_COUNTS])results;
  workload w;
  size_t k, n;
  make_load(&w, &loads[1], b->o.op_count / 4);
  memset(results, 0, RESULTS_BYTES);
  measure_crowds(b, &w, crowd_count, shared);
  for (k = 0; k < crowd_count; k++)
    for (n = 0; n < THREAD_COUNTS; n++)
      report_error(b, crowds[k].name, &allocators[crowds[k].allocator], &shared[k][n]);
  print_crowds(b, crowd_count, shared);
  write_crowds(&b->document, crowd_count, shared);
  free(w.ops);
}

static double scale_median(const scale_result *of, size_t figure) {
  return of->error[0] ? NAN : median_of(of->values[figure], of->count);
}

static void print_scale(const bench *b, const scale_result *of) {
  table t;
  size_t i;
  table_open(&t, b->o.is_markdown, "Scale: processor time of the lake by itself",
             "<figure|a hundredth|full|ratio");
  for (i = 0; i < SCALE_FIGURES; i++) {
    const double small = scale_median(&of[0], i), full = scale_median(&of[1], i);
    table_cell(&t, "%s", scale_figures[i].text);
    table_real(&t, 0, small);
    table_real(&t, 0, full);
    table_real(&t, 2, full / small);
  }
  table_close(&t);
}

static void write_scale(json *j, const scale_result *of) {
  size_t size, i;
  json_begin(j, "scale", '[');
  for (size = 0; size < 2; size++) {
    json_begin(j, NULL, '{');
    json_text(j, "size", size ? "full" : "a hundredth");
    json_text(j, "error", of[size].error);
    for (i = 0; i < SCALE_FIGURES; i++)
      write_values(j, scale_figures[i].name, of[size].values[i], of[size].count);
    json_end(j, '}');
  }
  json_end(j, ']');
}

static void run_scale(bench *b) {
  scale_result *of = (scale_result *)share(2 * sizeof(scale_result));
  size_t i, size;
  for (i = 0; i < b->o.repeat; i++) {
    for (size = 0; size < 2; size++)
      scale_measure_apart(b->o.scale_blocks / (size ? 1 : 100), b->o.op_count, &of[size]);
    progress_step(&b->shown, "scale");
  }
  for (size = 0; size < 2; size++) {
    if (!of[size].error[0]) continue;
    progress_clear();
    fprintf(stderr, "scale: %s\n", of[size].error);
    b->status = 1;
  }
  progress_clear();
  print_scale(b, of);
  write_scale(&b->document, of);
}

/* ---- The program ----------------------------------------------------------------------------- */

static int usage_error(const char *reason, const char *value) {
  fprintf(stderr, "bench: %s: %s (--help lists the options)\n", reason, value);
  return 2;
}

static int add_peer(const char *path) {
  const char *error = load_peer(path);
  if (error) fprintf(stderr, "%s: %s\n", path, error);
  return !error;
}

/* Opens the peers, and checks that everything that the words name exists. Returns -1 if the program
   goes on, else the exit status. */
static int find_named(const options *o) {
  char path[512];
  size_t i;
  for (i = 0; i < o->peers.count; i++)
    if (!add_peer(o->peers.values[i])) return 2;
  for (i = 0; i < o->word_count; i++) {
    trace_path(o->words[i], path, sizeof path);
    if (!is_section_or_load(o->words[i]) && access(path, R_OK))
      return usage_error("no section, load or trace", o->words[i]);
  }
  if (o->once && find_allocator(o->once) == allocator_count)
    return usage_error("no such allocator", o->once);
  if (o->once && (o->word_count != 1 || is_section(o->words[0])))
    return usage_error("--once takes one load or trace, not", o->word_count ? o->words[0] : "none");
  return -1;
}

/* Returns -1 if the program goes on, else the exit status. */
static int parse_arguments(int argc, char **argv, options *o) {
  const option_row rows[] = {
      {"json", OPTION_TEXT, &o->json_path, 0, 0, "FILE",
       "writes every figure as one JSON document"},
      {"markdown", OPTION_FLAG, &o->is_markdown, 0, 0, NULL, "prints the tables in Markdown"},
      {"observe", OPTION_FLAG, &is_observed, 0, 0, NULL,
       "gives lakes an observer that counts; not in the section scale"},
      {"repeat", OPTION_COUNT, &o->repeat, 1, REPEAT_MAX, "N",
       "measures everything N times; allocators take turns (default 5)"},
      {"ops", OPTION_COUNT, &o->op_count, 1, OPS_MAX, "N",
       "about how many operations a measurement has (default 300000)"},
      {"scale-blocks", OPTION_COUNT, &o->scale_blocks, SCALE_BLOCKS_MIN, SCALE_BLOCKS_MAX, "N",
       "blocks of the section scale; the rest in proportion (default 1048576)"},
      {"floor-divisor", OPTION_COUNT, &floor_divisor, 1, DIVISOR_MAX, "N",
       "asks malloc and mimalloc for 1/N of each size. The default is 32,\n"
       "because their smallest step is 16 bytes, and gmlake's is 512; 1 is the\n"
       "whole size"},
      {"peer", OPTION_LIST, &o->peers, 0, PEERS_MAX - 1, "FILE",
       "measures one more allocator, from a shared library that exports the\n"
       "functions of bench/peer.h; up to 3 times. " YARDSTICK ",\n"
       "if it is built, is always measured: the rules of bfc with the structures\n"
       "that torch uses"},
      {"once", OPTION_TEXT, &o->once, 0, 0, "ALLOCATOR",
       "for profilers: runs one load or trace with one allocator in this\n"
       "process, and nothing else. ALLOCATOR is loop, lake,\n"
       "lake_single_threaded, bfc, malloc, mimalloc or a peer. The function\n"
       "run_timed contains what is measured"},
  };
  const option_reader reader = {"bench", "[OPTION]... [SECTION | LOAD | TRACE]...",
                                about,   more,
                                rows,    sizeof rows / sizeof rows[0]};
  int first;
  memset(o, 0, sizeof *o);
  o->repeat = 5;
  o->op_count = 300000;
  o->scale_blocks = 1048576;
  first = options_read(&reader, argc, argv);
  o->words = argv + first;
  o->word_count = (size_t)(argc - first);
  return find_named(o);
}

static void read_processor(char *out, size_t out_bytes) {
  char line[256];
  FILE *file = fopen("/proc/cpuinfo", "r");
  snprintf(out, out_bytes, "unknown processor");
  while (file && fgets(line, sizeof line, file)) {
    if (strncmp(line, "model name", 10)) continue;
    snprintf(out, out_bytes, "%.*s", (int)strcspn(strchr(line, ':') + 2, "\n"),
             strchr(line, ':') + 2);
    break;
  }
  if (file) fclose(file);
}

static void print_head(bench *b) {
  json *j = &b->document;
  const time_t now = time(NULL);
  const int counter = open_instruction_counter();
  char processor[128], date[32];
  read_processor(processor, sizeof processor);
  strftime(date, sizeof date, "%Y-%m-%d", gmtime(&now));
  printf(
      "%s, %ld processors, compiler %s, %s; one tick of the timer: %.3f ns\n"
      "malloc and mimalloc are asked for 1/%lu of each size\n",
      processor, sysconf(_SC_NPROCESSORS_ONLN), __VERSION__, date, tick_ns,
      (unsigned long)floor_divisor);
  if (!has_mimalloc) puts("no libmimalloc.so.2 here: left out");
  if (access(YARDSTICK, R_OK)) puts("no " YARDSTICK " here: left out (make bench builds it)");
  if (counter < 0) puts("the system counts no instructions here: left out");
  if (counter >= 0) close(counter);
  json_text(j, "processor", processor);
  json_count(j, "processors", (uint64_t)sysconf(_SC_NPROCESSORS_ONLN));
  json_text(j, "compiler", __VERSION__);
  json_text(j, "date", date);
  json_count(j, "repeat", b->o.repeat);
  json_count(j, "floor_divisor", floor_divisor);
  json_real(j, "tick_ns", tick_ns);
  json_real(j, "clock_ns", clock_cost_ns());
}

/* Runs --once in this process. Returns the exit status. */
static int run_once(bench *b) {
  const allocator *with = &allocators[find_allocator(b->o.once)];
  const load *l = find_load(b->o.words[0]);
  char path[512];
  result *r = &results[0];
  runner run;
  workload w;
  trace_path(b->o.words[0], path, sizeof path);
  if (l)
    make_load(&w, l, b->o.op_count);
  else if (!read_trace(b, path, &w))
    return 2;
  measure_time(&run, &w, with, r);
  report_error(b, w.name, with, r);
  if (r->error[0]) return 1;
  printf("%s, %s: %.1f ns", w.name, with->name, r->ns[0]);
  if (!isnan(r->instructions[0])) printf(", %.0f instructions", r->instructions[0]);
  puts(" an operation, the loop's included");
  return 0;
}

/* Rounds of all that is to be measured. */
static size_t count_rounds(const bench *b) {
  const options *o = &b->o;
  size_t i, count = (size_t)(is_named(o, "threads") + is_named(o, "scale"));
  char path[512];
  glob_t found;
  snprintf(path, sizeof path, TRACE_FORMAT, "*");
  if (is_named(o, "traces") && !glob(path, 0, NULL, &found)) {
    count += found.gl_pathc;
    globfree(&found);
  }
  for (i = 0; i < LOAD_COUNT; i++) count += is_named(o, "loads") || is_named(o, loads[i].name);
  for (i = 0; i < o->word_count; i++) count += !is_section_or_load(o->words[i]);
  return count * o->repeat;
}

static void run_sections(bench *b) {
  const options *o = &b->o;
  int has_traces = is_named(o, "traces"), has_loads = is_named(o, "loads");
  size_t i;
  for (i = 0; i < o->word_count; i++) has_traces |= !is_section_or_load(o->words[i]);
  for (i = 0; i < LOAD_COUNT; i++) has_loads |= is_named(o, loads[i].name);
  progress_open(&b->shown, count_rounds(b));
  json_begin(&b->document, NULL, '{');
  print_head(b);
  if (has_traces) run_traces(b);
  if (has_loads) run_loads(b);
  if (is_named(o, "threads")) run_threads(b);
  if (is_named(o, "scale")) run_scale(b);
  json_end(&b->document, '}');
}

int main(int argc, char **argv) {
  static bench b;
  FILE **file = &b.document.file;
  int is_unwritten;
  int status;
  find_allocators();
  if (!access(YARDSTICK, R_OK) && !add_peer(YARDSTICK)) return 1;
  status = parse_arguments(argc, argv, &b.o);
  if (status >= 0) return status;
  tick_ns = measure_tick_ns();
  prctl(PR_SET_THP_DISABLE, 1, 0, 0,
        0); /* else writing the first byte of a block could take 2 MiB */
  results = (result *)share(RESULTS_BYTES);
  if (b.o.once) return run_once(&b);
  if (b.o.json_path && !(*file = fopen(b.o.json_path, "w"))) {
    fprintf(stderr, "%s: %s\n", b.o.json_path, strerror(errno));
    return 1;
  }
  run_sections(&b);
  if (!*file) return b.status;
  is_unwritten = ferror(*file);
  if (!fclose(*file) && !is_unwritten) return b.status;
  fprintf(stderr, "%s: cannot be written\n", b.o.json_path);
  return 1;
}
