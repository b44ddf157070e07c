/* The section `scale` of bench.c. It measures one lake with as many chunks, blocks and windows as a
   large device has, and one with a hundredth of that. The driver's time is not measured: the driver
   calls for chunks do nothing. */
#if !defined(BENCH_SCALE_H)
#define BENCH_SCALE_H

#include "bench_run.h"

#define SCALE_CHUNK_BYTES (2 * MIB)
#define SCALE_BLOCKS_MIN 100000 /* a hundredth of it can still be measured */
#define SCALE_BLOCKS_MAX ((size_t)1 << 22)
#define SCALE_TRIM_STEPS 16
#define SCALE_ADMITTED 64

typedef enum scale_figure {
  SCALE_BLOCKS,
  SCALE_CHUNKS,
  SCALE_WINDOWS,
  SCALE_FILL,
  SCALE_WARM,
  SCALE_PAIR,
  SCALE_STITCH_EARLY,
  SCALE_STITCH_LATE,
  SCALE_STITCH_P99,
  SCALE_REUSE,
  SCALE_WINDOW_FREE,
  SCALE_PAIR_LATE,
  SCALE_BUDGET,
  SCALE_ADMIT,
  SCALE_ADMIT_NOT,
  SCALE_CHECK,
  SCALE_TRIM_STEP,
  SCALE_TRIM_CHUNK,
  SCALE_TRIM_NOTHING,
  SCALE_GAP,
  SCALE_BYTES_BLOCK,
  SCALE_BYTES_ALL,
  SCALE_FIGURES
} scale_figure;

static const struct {
  const char *name, *text; /* in JSON, in the table */
} scale_figures[SCALE_FIGURES] = {
    {"blocks", "live blocks"},
    {"chunks", "chunks of 2 MiB, the most at once"},
    {"windows", "windows, live and idle"},
    {"fill_ns", "ns: an allocation, chunks created for it, while the lake fills"},
    {"small_first_ns", "ns: free or allocation of a small block, directly after filling"},
    {"small_ns", "ns: free or allocation of a small block, later"},
    {"stitch_early_ns", "ns: an allocation that stitches, first tenth, median"},
    {"stitch_late_ns", "ns: last tenth, median"},
    {"stitch_late_p99_ns", "ns: last tenth, 99 %"},
    {"reuse_ns", "ns: an idle window taken again, median"},
    {"window_free_ns", "ns: free of a window, median"},
    {"small_late_ns", "ns: free or allocation of a small block, with windows"},
    {"budget_ns", "ns: gmlake_get_budget"},
    {"admit_request_ns", "ns: gmlake_admit, for each of 64 requests that fit without new chunks"},
    {"admit_not_ns", "ns: gmlake_admit of 64 requests that are more than there is"},
    {"check_ns", "ns: gmlake_check"},
    {"trim_step_ns", "ns: a trim that returns a sixteenth of what is free, median"},
    {"trim_chunk_ns", "ns: of these trims, for each chunk that is returned"},
    {"trim_nothing_ns", "ns: a trim that finds nothing"},
    {"gap_ns", "ns: an allocation, chunks created where others were returned, median"},
    {"metadata_bytes_per_block", "bytes of metadata for each block, when filled"},
    {"metadata_bytes", "bytes of metadata, the most at once"}};

typedef struct scale_result { /* in memory that the processes share */
  size_t count;
  double values[SCALE_FIGURES][REPEAT_MAX];
  char error[96];
} scale_result;

/* ---- A driver whose calls for chunks cost nothing -------------------------------------------- */

static gmlake_result idle_create(void *user, size_t bytes, unsigned handle_types,
                                 uint64_t *out_handle, int *out_code) {
  static uint64_t handle;
  (void)user, (void)bytes, (void)handle_types;
  *out_handle = ++handle;
  *out_code = 0;
  return GMLAKE_OK;
}

static gmlake_result idle_release(void *user, uint64_t handle, int *out_code) {
  (void)user, (void)handle;
  *out_code = 0;
  return GMLAKE_OK;
}

static gmlake_result idle_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                              int *out_code) {
  (void)user, (void)address, (void)bytes, (void)handle;
  *out_code = 0;
  return GMLAKE_OK;
}

static gmlake_result idle_unmap(void *user, uint64_t address, size_t bytes, int *out_code) {
  (void)user, (void)address, (void)bytes;
  *out_code = 0;
  return GMLAKE_OK;
}

static gmlake_result idle_set_access(void *user, uint64_t address, size_t bytes,
                                     const int *peer_devices, size_t peer_count, int *out_code) {
  (void)user, (void)address, (void)bytes, (void)peer_devices, (void)peer_count;
  *out_code = 0;
  return GMLAKE_OK;
}

/* Makes a lake on the mock, in which the functions above replace the mock's. */
static gmlake_result scale_create(size_t device_bytes, gmlake **out_lake) {
  static gmlake_backend backend;
  gmlake_backend *mock;
  gmlake_mock_desc what;
  gmlake_desc desc;
  gmlake_result result;
  memset(&what, 0, sizeof what);
  memset(&desc, 0, sizeof desc);
  what.capacity_bytes = device_bytes;
  what.bookkeeping_only = 1;
  result = gmlake_mock_create(&what, &mock);
  if (result) return result;
  backend = *mock;
  backend.create = idle_create;
  backend.release = idle_release;
  backend.map = idle_map;
  backend.unmap = idle_unmap;
  backend.set_access = idle_set_access;
  desc.backend = &backend;
  desc.chunk_bytes = SCALE_CHUNK_BYTES;
  return gmlake_create(&desc, out_lake);
}

/* ---- Phases ---------------------------------------------------------------------------------- */

/* With block_count 1048576 the device has 192 GiB. It is filled with small blocks (512 B to 1 MiB,
   their logarithm is uniform) and with pairs of neighbours of 1 MiB and 3 MiB. Then the blocks of 3
   MiB are freed, so a request that is larger than 3 MiB must be stitched from these holes. */
typedef struct scale {
  size_t block_count, device_bytes, pair_count, window_target;
  workload w; /* the small blocks: fill, then replacements */
  range fill, warm, early, late;
  lake_run run;
  runner r;
  void **keepers, **holes; /* pair_count each */
  void **windows;          /* live ones, in a ring */
  size_t *window_bytes;
  size_t ring_size, ring_count, ring_next;
  double *stitch_ns, *free_ns;
  size_t stitch_count, free_count;
  double value[SCALE_FIGURES], clock_ns;
  gmlake_result result; /* the first error */
} scale;

static void *scale_array(size_t count, size_t item_bytes) {
  void *items = calloc(count ? count : 1, item_bytes);
  if (!items) abort();
  return items;
}

/* A random size from 512 B to 1 MiB. */
static size_t scale_small_bytes(void) {
  return (size_t)(512 * exp2(11 * (double)(splitmix64(&random_state) >> 11) / 9007199254740992.0));
}

static range scale_replacements(scale *s, size_t count) {
  range added = {s->w.op_count, 0, 1};
  size_t i;
  for (i = 0; i < count; i++) {
    const size_t slot = random_below(s->block_count);
    add_op(&s->w, slot, 0, 0);
    add_op(&s->w, slot, 0, scale_small_bytes());
  }
  added.end = s->w.op_count;
  return added;
}

static void scale_prepare(scale *s, size_t block_count, size_t op_count) {
  size_t slot;
  memset(s, 0, sizeof *s);
  s->block_count = block_count;
  s->device_bytes = block_count * 3 / 32 * SCALE_CHUNK_BYTES;
  s->pair_count = block_count * 7 / 512;
  s->window_target = block_count / 52;
  s->ring_size = s->window_target / 20 + 1;
  random_state = 7;
  for (slot = 0; slot < block_count; slot++) add_op(&s->w, slot, 0, scale_small_bytes());
  s->fill.end = s->w.op_count;
  s->fill.rounds = 1;
  s->warm = scale_replacements(s, block_count / 4);
  s->early = scale_replacements(s, op_count / 2 + 1);
  s->late = scale_replacements(s, op_count / 2 + 1);
  s->keepers = (void **)scale_array(s->pair_count, sizeof(void *));
  s->holes = (void **)scale_array(s->pair_count, sizeof(void *));
  s->windows = (void **)scale_array(s->ring_size, sizeof(void *));
  s->window_bytes = (size_t *)scale_array(s->ring_size, sizeof(size_t));
  s->stitch_ns = (double *)scale_array(s->window_target * 4, sizeof(double));
  s->free_ns = (double *)scale_array(s->window_target * 4, sizeof(double));
  s->r.w = &s->w;
  s->r.with = &allocators[LAKE];
  s->r.self = &s->run;
  s->r.blocks = (void **)scale_array(block_count, sizeof(void *));
}

static gmlake_stats scale_stats(const scale *s) {
  gmlake_stats stats;
  gmlake_get_stats(s->run.lake, &stats);
  return stats;
}

/* Runs operations on the small blocks, and measures processor ns an operation. */
static int scale_run(scale *s, range span, scale_figure figure) {
  const double start_ns = processor_ns();
  if (!run_range(&s->r, span)) {
    s->result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
    return 0;
  }
  s->value[figure] = (processor_ns() - start_ns) / (double)(span.end - span.begin);
  return 1;
}

/* The processor time since start_ns, without the time to read the clock. */
static double scale_since(const scale *s, double start_ns) {
  return processor_ns() - start_ns - s->clock_ns;
}

static void scale_time_clock(scale *s) {
  double ns[REPEAT_MAX];
  size_t i;
  for (i = 0; i < REPEAT_MAX; i++) {
    const double start_ns = processor_ns();
    ns[i] = scale_since(s, start_ns);
  }
  s->clock_ns = median(ns, REPEAT_MAX);
}

static void scale_note(scale *s, gmlake_result result) {
  if (!s->result) s->result = result;
}

/* These functions return how long the call took. */
static double scale_alloc(scale *s, size_t bytes, void **out_ptr) {
  const double start_ns = processor_ns();
  scale_note(s, gmlake_alloc(s->run.lake, bytes, NULL, out_ptr));
  return scale_since(s, start_ns);
}

static double scale_free(scale *s, void *ptr) {
  const double start_ns = processor_ns();
  scale_note(s, gmlake_free(s->run.lake, ptr, NULL));
  return scale_since(s, start_ns);
}

static double scale_trim(scale *s, size_t keep_bytes) {
  const double start_ns = processor_ns();
  scale_note(s, gmlake_trim(s->run.lake, keep_bytes, NULL));
  return scale_since(s, start_ns);
}

static void scale_fill(scale *s) {
  gmlake_stats stats;
  size_t i;
  for (i = 0; i < s->pair_count && !s->result; i++) {
    scale_alloc(s, MIB, &s->keepers[i]);
    scale_alloc(s, 3 * MIB, &s->holes[i]);
  }
  if (s->result || !scale_run(s, s->fill, SCALE_FILL)) return;
  stats = scale_stats(s);
  s->value[SCALE_BLOCKS] = (double)stats.live_count;
  s->value[SCALE_BYTES_BLOCK] = (double)stats.metadata_bytes / (double)stats.live_count;
  if (!scale_run(s, s->warm, SCALE_WARM) || !scale_run(s, s->early, SCALE_PAIR)) return;
  for (i = 0; i < s->pair_count; i++) scale_free(s, s->holes[i]);
}

/* Frees the oldest window, and allocates one of a random size that is larger than any hole. */
static void scale_stitch_once(scale *s) {
  const uint64_t stitches = scale_stats(s).stitch_count;
  const size_t i = s->ring_next++ % s->ring_size;
  double ns;
  if (s->windows[i]) s->free_ns[s->free_count++] = scale_free(s, s->windows[i]);
  s->window_bytes[i] = (7168 + random_below(17408)) * 512; /* 3.5 to 12 MiB */
  ns = scale_alloc(s, s->window_bytes[i], &s->windows[i]);
  if (scale_stats(s).stitch_count > stitches) s->stitch_ns[s->stitch_count++] = ns;
}

static void scale_stitch(scale *s) {
  const uint64_t target = scale_stats(s).window_count + s->window_target;
  size_t i, tenth;
  for (i = 0; i < s->window_target * 4 && !s->result; i++) {
    if (scale_stats(s).window_count >= target) break;
    scale_stitch_once(s);
  }
  tenth = s->stitch_count / 10;
  if (!tenth) return;
  s->value[SCALE_WINDOWS] = (double)scale_stats(s).window_count;
  s->value[SCALE_WINDOW_FREE] = median(s->free_ns, s->free_count);
  s->value[SCALE_STITCH_EARLY] = median(s->stitch_ns, tenth);
  s->value[SCALE_STITCH_LATE] = median(s->stitch_ns + s->stitch_count - tenth, tenth);
  s->value[SCALE_STITCH_P99] = s->stitch_ns[s->stitch_count - 1 - tenth / 100];
}

static void scale_reuse(scale *s) {
  double *ns = s->stitch_ns;
  size_t i, count = 0;
  for (i = 0; i < s->ring_size && !s->result; i++) {
    const uint64_t reuses = scale_stats(s).stitch_reuse_count;
    scale_free(s, s->windows[i]);
    ns[count] = scale_alloc(s, s->window_bytes[i], &s->windows[i]);
    count += scale_stats(s).stitch_reuse_count > reuses;
  }
  s->value[SCALE_REUSE] = median(ns, count);
}

/* The first list creates what the second finds. */
static void scale_admit(scale *s) {
  gmlake_alloc_desc list[SCALE_ADMITTED];
  gmlake_result result = GMLAKE_OK;
  double start_ns;
  size_t i;
  memset(list, 0, sizeof list);
  for (i = 0; i < SCALE_ADMITTED; i++) list[i].bytes = (1 + random_below(2048)) * 512;
  scale_note(s, gmlake_admit(s->run.lake, list, SCALE_ADMITTED, NULL, NULL));
  start_ns = processor_ns();
  scale_note(s, gmlake_admit(s->run.lake, list, SCALE_ADMITTED, NULL, NULL));
  s->value[SCALE_ADMIT] = scale_since(s, start_ns) / SCALE_ADMITTED;
  list[0].bytes = 3 * s->device_bytes; /* this driver never lacks any */
  start_ns = processor_ns();
  for (i = 0; i < SCALE_ADMITTED; i++)
    result = gmlake_admit(s->run.lake, list, SCALE_ADMITTED, NULL, NULL);
  s->value[SCALE_ADMIT_NOT] = scale_since(s, start_ns) / SCALE_ADMITTED;
  if (result != GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) scale_note(s, GMLAKE_ERROR_CORRUPT);
  memset(list, 0, sizeof list);
  scale_note(s, gmlake_admit(s->run.lake, list, 1, NULL, NULL)); /* it ends */
}

static void scale_ask(scale *s) {
  gmlake_budget budget;
  double start_ns = processor_ns();
  scale_note(s, gmlake_get_budget(s->run.lake, &budget));
  s->value[SCALE_BUDGET] = scale_since(s, start_ns);
  start_ns = processor_ns();
  scale_note(s, gmlake_check(s->run.lake));
  s->value[SCALE_CHECK] = scale_since(s, start_ns);
}

/* Frees all but the small blocks, and returns the memory to the driver in steps. */
static void scale_shrink(scale *s) {
  double ns[SCALE_TRIM_STEPS], sum_ns = 0;
  size_t i, reserved_bytes, step_bytes;
  for (i = 0; i < s->ring_size; i++) scale_free(s, s->windows[i]);
  for (i = 0; i < s->pair_count; i++) scale_free(s, s->keepers[i]);
  reserved_bytes = scale_stats(s).reserved_bytes;
  s->value[SCALE_CHUNKS] = (double)(scale_stats(s).reserved_bytes_peak / SCALE_CHUNK_BYTES);
  step_bytes = s->pair_count * 2 / SCALE_TRIM_STEPS * SCALE_CHUNK_BYTES;
  for (i = 0; i < SCALE_TRIM_STEPS; i++) {
    ns[i] = scale_trim(s, reserved_bytes - (i + 1) * step_bytes);
    sum_ns += ns[i];
  }
  s->value[SCALE_TRIM_STEP] = median(ns, SCALE_TRIM_STEPS);
  s->value[SCALE_TRIM_CHUNK] =
      sum_ns / (double)((reserved_bytes - scale_stats(s).reserved_bytes) / SCALE_CHUNK_BYTES);
  scale_trim(s, 0);
  s->value[SCALE_TRIM_NOTHING] = scale_trim(s, 0);
}

static void scale_regrow(scale *s) {
  const size_t count = s->pair_count / 16 + 1;
  size_t i;
  for (i = 0; i < count && !s->result; i++) s->stitch_ns[i] = scale_alloc(s, 3 * MIB, &s->holes[i]);
  s->value[SCALE_GAP] = median(s->stitch_ns, count);
}

/* ---- One measurement, in a process of its own ------------------------------------------------ */

static void scale_run_all(scale *s) {
  scale_time_clock(s);
  s->result = scale_create(s->device_bytes, &s->run.lake);
  if (!s->result) scale_fill(s);
  if (!s->result) scale_stitch(s);
  if (!s->result) scale_reuse(s);
  if (!s->result && scale_run(s, s->late, SCALE_PAIR_LATE)) scale_ask(s);
  if (!s->result) scale_admit(s);
  if (!s->result) scale_shrink(s);
  if (!s->result) scale_regrow(s);
  if (!s->result) s->value[SCALE_BYTES_ALL] = (double)scale_stats(s).metadata_bytes_peak;
}

static void scale_measure(size_t block_count, size_t op_count, scale_result *out) {
  static scale s;
  size_t i;
  scale_prepare(&s, block_count, op_count);
  start_idle_thread();
  scale_run_all(&s);
  if (s.result)
    snprintf(out->error, sizeof out->error, "%s", gmlake_result_name(s.result));
  else
    for (i = 0; i < SCALE_FIGURES; i++) out->values[i][out->count] = s.value[i];
  out->count += !s.result;
}

static void scale_measure_apart(size_t block_count, size_t op_count, scale_result *out) {
  pid_t child;
  if (out->error[0]) return;
  child = fork();
  if (!child) {
    scale_measure(block_count, op_count, out);
    _exit(0);
  }
  await_child(child, out->error, sizeof out->error);
}

#endif
