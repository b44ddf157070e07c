/* One lake serves recorded traces for a long time, as a process that trains and serves day after
   day would: in rounds, each trace once a round, in random order, each up to a random place, with a
   random lag of its streams' work, uses recorded on other streams, trims in between. After each
   trace gmlake_check and the mock's census agree; after each round nothing is left but host memory,
   which has to stay flat, as has the process. Without --seconds two small traces for a few rounds.
   A round that fails says its seed. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <glob.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "options.h"
#include "trace.h"

#define MIB ((size_t)1 << 20)
#define DEVICE_BYTES (143154 * MIB) /* an H200 */
#define TRACES_MAX 64
#define WARM_ROUNDS 10 /* at least, and a quarter of the time, before all has to be flat */

/* What has to stay flat. */
typedef struct level {
  size_t metadata_bytes_max;                  /* the lake's host memory, at a round's end */
  size_t resident_bytes_max;                  /* the process, at a round's end */
  size_t event_count_max;                     /* behind a trace */
  size_t mapping_count_sum, window_count_sum; /* likewise */
  size_t reserved_bytes_sum;                  /* physical memory, at a trace's peak */
  size_t turns;
} level;

static struct soak {
  trace traces[TRACES_MAX];
  size_t trace_count;
  gmlake_backend *mock;
  gmlake *lake;
  gmlake_stream streams[TRACE_STREAMS_MAX]; /* [0] is the legacy stream */
  void **blocks;
  uint64_t seed, random, now_ns;
  uint64_t rounds, operations;
  level warm, later;
  uint64_t seconds;
} soak;

static size_t below(size_t n) {
  soak.random = soak.random * 6364136223846793005u + 1442695040888963407u;
  return (size_t)(soak.random >> 33) % n;
}

static void ok(gmlake_result result, const char *what) {
  gmlake_error_info info;
  if (result == GMLAKE_OK) return;
  memset(&info, 0, sizeof info);
  if (soak.lake) (void)gmlake_get_last_error(soak.lake, &info);
  fail_msg("round with --seed %llu: %s: %s (%s: %s)", (unsigned long long)soak.seed, what,
           gmlake_result_name(result), info.call ? info.call : "", info.text);
}

static size_t larger(size_t a, size_t b) { return a > b ? a : b; }

static gmlake_stats stats(void) {
  gmlake_stats s;
  memset(&s, 0, sizeof s);
  ok(gmlake_get_stats(soak.lake, &s), "get_stats");
  return s;
}

static gmlake_mock_census census(void) {
  gmlake_mock_census c;
  gmlake_mock_get_census(soak.mock, &c);
  return c;
}

static size_t resident_bytes(void) {
  size_t pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%zu %zu", &pages, &resident) != 2) resident = 0;
  (void)fclose(file);
  return resident * (size_t)sysconf(_SC_PAGESIZE);
}

/* ---- A trace --------------------------------------------------------------------------------- */

static void begin_streams(const trace *t, uint64_t lag_ns) {
  size_t i;
  for (i = 0; i < t->stream_count; i++) {
    soak.streams[i] = NULL;
    if (t->streams[i]) ok(gmlake_mock_stream_create(soak.mock, &soak.streams[i]), "stream");
    gmlake_mock_stream_set_lag(soak.mock, soak.streams[i], lag_ns);
  }
}

static void end_streams(const trace *t) {
  size_t i;
  for (i = 0; i < t->stream_count; i++) {
    ok(gmlake_forget_stream(soak.lake, soak.streams[i]), "forget_stream");
    gmlake_mock_stream_finish(soak.mock, soak.streams[i]);
    if (soak.streams[i]) gmlake_mock_stream_destroy(soak.mock, soak.streams[i]);
  }
}

static void release(const trace *t, const trace_op *op) {
  void **block = &soak.blocks[op->id];
  if (t->stream_count > 1 && below(50) == 0) {
    ok(gmlake_record_stream(soak.lake, *block, soak.streams[below(t->stream_count)]), "record");
  }
  ok(gmlake_free(soak.lake, *block, soak.streams[op->stream]), "free");
  *block = NULL;
}

static void perform(const trace *t, const trace_op *op) {
  gmlake_mock_set_clock(soak.mock, soak.now_ns + op->time_us * 1000);
  if (op->type == TRACE_FREE) {
    release(t, op);
  } else {
    ok(gmlake_alloc(soak.lake, op->bytes, soak.streams[op->stream], &soak.blocks[op->id]), "alloc");
  }
  if (below(20000) == 0) ok(gmlake_trim(soak.lake, below(DEVICE_BYTES), NULL), "trim");
}

/* What lives goes in another order than it came. */
static void release_live(const trace *t, size_t end) {
  const size_t first = below(end);
  size_t i;
  for (i = 0; i < end; i++) {
    const trace_op *op = &t->ops[(first + i) % end];
    if (op->type == TRACE_ALLOC && soak.blocks[op->id]) release(t, op);
  }
}

static void agree(level *now) {
  const gmlake_mock_census c = census();
  const gmlake_stats s = stats();
  ok(gmlake_check(soak.lake), "check");
  assert_int_equal(s.live_count, 0);
  assert_int_equal(c.handle_count, s.chunk_count);
  assert_int_equal(c.physical_bytes, s.reserved_bytes);
  assert_int_equal(s.quarantined_bytes, 0);
  now->mapping_count_sum += c.mapping_count;
  now->reserved_bytes_sum += s.reserved_bytes_peak;
  now->window_count_sum += (size_t)s.window_count;
  now->event_count_max = larger(now->event_count_max, c.event_count);
  now->turns++;
}

static void take_turn(const trace *t, level *now) {
  static const uint64_t lags_ns[] = {0, 10000, 1000000, 10000000, UINT64_MAX};
  const size_t end = t->op_count - below(t->op_count / 2);
  size_t i;
  ok(gmlake_reset_peaks(soak.lake), "reset_peaks");
  begin_streams(t, lags_ns[below(5)]);
  for (i = 0; i < end; i++) perform(t, &t->ops[i]);
  release_live(t, end);
  soak.now_ns += t->ops[t->op_count - 1].time_us * 1000;
  soak.operations += end;
  end_streams(t);
  agree(now);
}

/* ---- Rounds ---------------------------------------------------------------------------------- */

/* No memory, no mapping, no window; addresses are one hole again. */
static void require_empty(void) {
  const gmlk_arena *a = soak.lake->arenas[0];
  const gmlk_block *va;
  ok(gmlake_trim(soak.lake, 0, NULL), "trim");
  assert_int_equal(census().handle_count, 0);
  assert_int_equal(census().mapping_count, 0);
  assert_int_equal(census().physical_bytes, 0);
  assert_int_equal(census().reservation_count, a->area.count + a->window_space.area.count);
  assert_int_equal(stats().window_count, 0);
  assert_int_equal(a->slot_count, 0);
  for (va = a->window_space.begin.next; va != &a->window_space.end; va = va->next)
    assert_true(va->state == GMLK_FREE || va->state == GMLK_EDGE);
}

static double mean(size_t sum, const level *of) { return (double)sum / (double)of->turns; }

static void require_flat(const char *what, double later, double warm, double slack) {
  if (later > warm * 1.25 + slack) fail_msg("%s: %.0f after %.0f", what, later, warm);
}

static void require_all_flat(const level *later, const level *warm) {
  require_flat("metadata", (double)later->metadata_bytes_max, (double)warm->metadata_bytes_max,
               MIB / 8);
  require_flat("memory", mean(later->reserved_bytes_sum, later),
               mean(warm->reserved_bytes_sum, warm), 0);
  require_flat("events", (double)later->event_count_max, (double)warm->event_count_max, 64);
  require_flat("process", (double)later->resident_bytes_max, (double)warm->resident_bytes_max,
               4 * MIB);
  require_flat("mappings", mean(later->mapping_count_sum, later),
               mean(warm->mapping_count_sum, warm), 64);
  require_flat("windows", mean(later->window_count_sum, later), mean(warm->window_count_sum, warm),
               16);
}

static void take_round(level *now) {
  size_t order[TRACES_MAX], i;
  soak.random = soak.seed;
  for (i = 0; i < soak.trace_count; i++) {
    const size_t at = below(i + 1);
    order[i] = order[at];
    order[at] = i;
  }
  for (i = 0; i < soak.trace_count; i++) take_turn(&soak.traces[order[i]], now);
  require_empty();
  now->metadata_bytes_max = larger(now->metadata_bytes_max, stats().metadata_bytes);
  now->resident_bytes_max = larger(now->resident_bytes_max, resident_bytes());
  soak.rounds++;
  soak.seed++;
}

static void print_level(const char *name, const level *l) {
  printf(
      "%s: %.2f MiB of metadata, the process %.1f MiB, %zu events at most; %.2f GiB, %.0f "
      "mappings and %.1f windows in the mean\n",
      name, (double)l->metadata_bytes_max / (double)MIB,
      (double)l->resident_bytes_max / (double)MIB, l->event_count_max,
      mean(l->reserved_bytes_sum, l) / 1024 / (double)MIB, mean(l->mapping_count_sum, l),
      mean(l->window_count_sum, l));
}

static void open_lake(void) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  size_t i, ids = 0;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.capacity_bytes = DEVICE_BYTES;
  mock.bookkeeping_only = 1;
  ok(gmlake_mock_create(&mock, &soak.mock), "mock_create");
  desc.backend = soak.mock;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  ok(gmlake_create(&desc, &soak.lake), "create");
  for (i = 0; i < soak.trace_count; i++) ids = larger(ids, soak.traces[i].id_count);
  soak.blocks = (void **)calloc(ids, sizeof *soak.blocks);
  assert_non_null(soak.blocks);
}

CASE(rounds_leave_nothing_behind) {
  const time_t begin = time(NULL);
  open_lake();
  while (soak.rounds < WARM_ROUNDS || time(NULL) < begin + (time_t)soak.seconds / 4)
    take_round(&soak.warm);
  while (soak.rounds < 2 * WARM_ROUNDS || time(NULL) < begin + (time_t)soak.seconds)
    take_round(&soak.later);
  require_all_flat(&soak.later, &soak.warm);
  print_level("first", &soak.warm);
  print_level("later", &soak.later);
  printf("%zu traces in %llu rounds, %llu operations, %ld s\n", soak.warm.turns + soak.later.turns,
         (unsigned long long)soak.rounds, (unsigned long long)soak.operations,
         (long)(time(NULL) - begin));
  ok(gmlake_destroy(soak.lake), "destroy");
  soak.lake = NULL;
  assert_int_equal(census().handle_count, 0);
  assert_int_equal(census().reservation_count, 0);
  assert_int_equal(census().event_count, 0);
  gmlake_mock_destroy(soak.mock);
  free(soak.blocks);
}

/* ---- Arguments ------------------------------------------------------------------------------- */

static int load(const char *path) {
  char error[256];
  if (soak.trace_count == TRACES_MAX) return 0;
  if (trace_load_blocks(path, &soak.traces[soak.trace_count], error, sizeof error)) {
    soak.trace_count++;
    return 1;
  }
  fprintf(stderr, "%s\n", error);
  return 0;
}

static int load_all(const char *pattern) {
  glob_t found;
  size_t i;
  int is_loaded = glob(pattern, 0, NULL, &found) == 0;
  for (i = 0; is_loaded && i < found.gl_pathc; i++) is_loaded = load(found.gl_pathv[i]);
  globfree(&found);
  return is_loaded;
}

int main(int argc, char **argv) {
  const option_row rows[] = {
      {"seconds", OPTION_COUNT, &soak.seconds, 0, 1e9, "N",
       "go on for so long, instead of a few rounds"},
      {"seed", OPTION_COUNT, &soak.seed, 0, 1e18, "S",
       "of what is random: a round that fails tells its own; default 1"},
  };
  const option_reader reader = {"test_soak", "[OPTION]... [TRACE]...",      "", "",
                                rows,        sizeof(rows) / sizeof(rows[0])};
  int i, failed;
  soak.seed = 1;
  i = options_read(&reader, argc, argv);
  soak.random = soak.seed;
  for (; i < argc; i++)
    if (!load(argv[i])) return 1;
  if (!soak.trace_count &&
      !load_all(soak.seconds ? "bench/traces/*.gmtrace.gz" : "bench/traces/[fo]*-R.gmtrace.gz")) {
    return 1;
  }
  failed = run_cases("soak");
  while (soak.trace_count) trace_free(&soak.traces[--soak.trace_count]);
  return failed;
}
