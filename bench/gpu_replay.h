/* Passes over a trace, and the sections that consist of them: traces, operation and limit. No
   kernel runs, so the work before each free is complete at once. */
#if !defined(GPU_REPLAY_H)
#define GPU_REPLAY_H

#include "gpu_peers.h"
#include "probe.h"

#define WARM_PASSES 4

/* ---- Passes ---------------------------------------------------------------------------------- */

typedef struct replay {
  const trace *t;
  const allocator *with;
  void *self;
  void **blocks;   /* of each id; NULL: not live, or of 0 bytes */
  size_t op_count; /* the first operations of the trace, or all */
} replay;

typedef struct outcome {             /* times in ns per operation */
  const char *error;                 /* NULL: every pass succeeded */
  size_t pass_count;                 /* passes that succeeded */
  size_t failed_op;                  /* the operation at which the next pass failed */
  double cold_ns, cold_processor_ns; /* first pass */
  double warm_ns;                    /* the best of the later ones */
  double warm_driver_calls;          /* in the last one */
  counters first;                    /* after the first pass */
} outcome;

static const char *replay_ops(replay *r, size_t *out_failed_op) {
  const trace_op *ops = r->t->ops, *op = ops, *end = ops + r->op_count;
  const char *error = NULL;
  for (; op < end; op++) {
    if (op->type == TRACE_ALLOC) {
      error = r->with->alloc(r->self, op, &r->blocks[op->id]);
    } else {
      error = r->with->free_block(r->self, op, r->blocks[op->id]);
      r->blocks[op->id] = NULL;
    }
    if (error) break;
  }
  *out_failed_op = (size_t)(op - ops);
  return error;
}

static const char *replay_free_live(replay *r) {
  size_t i;
  for (i = r->op_count; i-- > 0;) {
    const trace_op *op = &r->t->ops[i];
    const char *error;
    if (op->type != TRACE_ALLOC || !r->blocks[op->id]) continue;
    error = r->with->free_block(r->self, op, r->blocks[op->id]);
    r->blocks[op->id] = NULL;
    if (error) return error;
  }
  return NULL;
}

/* Runs one pass. Then it frees what is still live; that is not timed. */
static const char *replay_pass(replay *r, bench *b, outcome *out) {
  const gpu_driver *gpu = &b->gpu;
  const double ops = (double)r->op_count;
  const double processor = measure_ns(CLOCK_PROCESS_CPUTIME_ID), start = now_ns();
  const char *error = replay_ops(r, &out->failed_op), *later;
  const double ns = (now_ns() - start) / ops;
  const double processor_ns = (measure_ns(CLOCK_PROCESS_CPUTIME_ID) - processor) / ops;
  if (!out->pass_count) r->with->get_counters(r->self, &out->first);
  later = replay_free_live(r);
  GPU(cuCtxSynchronize());
  if (error || later) return error ? error : later;
  if (!out->pass_count++) {
    out->cold_ns = ns;
    out->cold_processor_ns = processor_ns;
  } else if (!(out->warm_ns <= ns)) {
    out->warm_ns = ns;
  }
  return NULL;
}

static void outcome_clear(outcome *out) {
  memset(out, 0, sizeof *out);
  out->cold_ns = out->cold_processor_ns = out->warm_ns = out->warm_driver_calls = NAN;
  counters_clear(&out->first);
}

static void replay_once(const allocator *with, setting *s, size_t op_count, size_t passes,
                        outcome *out) {
  counters before, after;
  replay r;
  r.t = s->t;
  r.with = with;
  r.op_count = op_count;
  r.blocks = (void **)calloc(s->t->id_count, sizeof(void *));
  if (!r.blocks) abort();
  outcome_clear(out);
  counters_clear(&before);
  counters_clear(&after);
  out->error = with->open(s, &r.self);
  if (!out->error) {
    while (out->pass_count < passes && !out->error) {
      with->get_counters(r.self, &before);
      out->error = replay_pass(&r, s->b, out);
    }
    with->get_counters(r.self, &after);
    if (out->pass_count > 1) out->warm_driver_calls = after.driver_calls - before.driver_calls;
    with->close(r.self);
  }
  free(r.blocks);
}

/* Replays as often as --repeat says, so that times can be medians. */
static void replay_often(const allocator *with, setting *s, size_t op_count, size_t passes,
                         outcome *out) {
  double figures[4][REPEAT_MAX];
  size_t i;
  show_progress(with->name, "replaying");
  for (i = 0; i < s->b->repeat; i++) {
    replay_once(with, s, op_count, passes, out);
    if (out->error) return;
    figures[0][i] = out->cold_ns;
    figures[1][i] = out->cold_processor_ns;
    figures[2][i] = out->warm_ns;
    figures[3][i] = out->first.driver_ns;
  }
  out->cold_ns = median(figures[0], i);
  out->cold_processor_ns = median(figures[1], i);
  out->warm_ns = median(figures[2], i);
  out->first.driver_ns = median(figures[3], i);
}

/* A file's base name without .gmtrace and .gz. */
static void trace_name(const char *path, char *out, size_t out_bytes) {
  static const char *const suffixes[] = {".gz", ".gmtrace"};
  const char *slash = strrchr(path, '/');
  size_t i;
  snprintf(out, out_bytes, "%s", slash ? slash + 1 : path);
  for (i = 0; i < 2; i++) {
    size_t length = strlen(out), cut = strlen(suffixes[i]);
    if (length > cut && !strcmp(out + length - cut, suffixes[i])) out[length - cut] = '\0';
  }
}

/* Loads a trace and makes a real stream for each of its streams. Returns 0 after it has printed the
   error. */
static int setting_open(setting *s, bench *b, trace *t, const char *path) {
  const gpu_driver *gpu = &b->gpu;
  char error[512];
  size_t i;
  if (!trace_load_blocks(path, t, error, sizeof error)) {
    clear_progress();
    fprintf(stderr, "%s\n", error);
    b->failed = 1;
    return 0;
  }
  memset(s, 0, sizeof *s);
  s->b = b;
  s->t = t;
  s->backend = b->backend;
  s->chunk_bytes = b->chunk_bytes;
  for (i = 0; i < t->stream_count; i++) {
    CUstream stream;
    GPU(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    s->streams[i] = stream;
  }
  return 1;
}

static void setting_close(setting *s, trace *t) {
  const gpu_driver *gpu = &s->b->gpu;
  size_t i;
  for (i = 0; i < t->stream_count; i++) GPU(cuStreamDestroy((CUstream)s->streams[i]));
  trace_free(t);
}

/* ---- Section traces -------------------------------------------------------------------------- */

typedef struct trace_report {
  const char *name;
  const trace *t;
  double memory_info_bytes;       /* how much less memory was free at the lake's peak */
  outcome lake, mock, mock_alone; /* mock: costs of calls among others; mock_alone: alone */
  probe_entry real[PROBE_COUNT];  /* from create to destroy, with one pass */
  probe_entry model[PROBE_COUNT];
  outcome native, bfc, async_default, async_kept;
  size_t native_op_count;
} trace_report;

typedef struct trace_tables {
  table main, detail, peers;
  probe_entry real[PROBE_COUNT], model[PROBE_COUNT];
} trace_tables;

/* Runs the same operations on the mock, for the memory that it needs and the driver time that it
   models. */
static void replay_mock(const setting *real, gmlake_mock_costs costs, outcome *out,
                        probe_entry *entries) {
  const gmlake_device_properties *device = &real->b->properties;
  gmlake_mock_desc desc;
  gmlake_backend *mock;
  setting s = *real;
  probe p;
  size_t i;
  memset(&desc, 0, sizeof desc);
  desc.capacity_bytes = device->device_bytes;
  desc.granularity_bytes = device->granularity_bytes;
  desc.bookkeeping_only = 1;
  desc.costs = costs;
  LAKE(gmlake_mock_create(&desc, &mock));
  for (i = 0; i < s.t->stream_count; i++) LAKE(gmlake_mock_stream_create(mock, &s.streams[i]));
  probe_init(&p, mock);
  s.backend = &p.table;
  replay_once(&lake_allocator, &s, s.t->op_count, 1, out);
  memcpy(entries, p.entries, sizeof p.entries);
  gmlake_mock_destroy(mock);
}

/* Runs the lake with a probe. This is a separate run, so that the other figures do not include the
   cost of the probe. */
static void replay_probed(const setting *real, trace_report *out) {
  const size_t free_bytes = gpu_free_bytes(&real->b->gpu);
  setting s = *real;
  outcome ignored;
  probe p;
  probe_init(&p, s.b->backend);
  p.watches_memory = 1;
  s.backend = &p.table;
  replay_once(&lake_allocator, &s, s.t->op_count, 1, &ignored);
  memcpy(out->real, p.entries, sizeof p.entries);
  out->memory_info_bytes =
      p.free_bytes_min <= free_bytes ? (double)(free_bytes - p.free_bytes_min) : NAN;
}

static void replay_peers(setting *s, trace_report *out) {
  const size_t all = s->t->op_count, most = s->b->peer_op_count;
  out->native_op_count = all < most ? all : most;
  replay_often(&bfc_allocator, s, all, 1 + WARM_PASSES, &out->bfc);
  s->release_threshold = 0;
  replay_often(&async_allocator, s, all, 1 + WARM_PASSES, &out->async_default);
  s->release_threshold = UINT64_MAX;
  replay_often(&async_allocator, s, all, 1 + WARM_PASSES, &out->async_kept);
  replay_often(&native_allocator, s, out->native_op_count, 1, &out->native);
}

static void outcome_json(json *j, const char *allocator_name, size_t op_count, const outcome *o) {
  json_begin(j, NULL, '{');
  json_text(j, "allocator", allocator_name);
  json_count(j, "operations", op_count);
  json_count(j, "passes", o->pass_count);
  json_text(j, "error", o->error ? o->error : "");
  json_whole(j, "failed_operation", o->error ? (double)o->failed_op : NAN);
  json_real(j, "cold_ns_per_op", o->cold_ns);
  json_real(j, "cold_processor_ns_per_op", o->cold_processor_ns);
  json_real(j, "warm_ns_per_op", o->warm_ns);
  json_whole(j, "reserved_bytes_peak", o->first.reserved_bytes_peak);
  json_whole(j, "driver_calls", o->first.driver_calls);
  json_real(j, "driver_ms", o->first.driver_ns / 1e6);
  json_whole(j, "driver_calls_warm", o->warm_driver_calls);
  json_whole(j, "stitches", o->first.stitches);
  json_whole(j, "stream_waits", o->first.stream_waits);
  json_end(j, '}');
}

static double per(double sum, uint64_t count) { return count ? sum / (double)count : NAN; }

static void entries_json(json *j, const probe_entry *real, const probe_entry *model) {
  size_t i;
  json_begin(j, "backend_calls", '[');
  for (i = 0; i < PROBE_COUNT; i++) {
    if (!real[i].calls && !model[i].calls) continue;
    json_begin(j, NULL, '{');
    json_text(j, "entry", probe_names[i]);
    json_count(j, "calls", real[i].calls);
    json_count(j, "mappings", real[i].mappings);
    json_real(j, "us_per_call", per((double)real[i].ns / 1e3, real[i].calls));
    json_real(j, "us_per_mapping", per((double)real[i].ns / 1e3, real[i].mappings));
    json_count(j, "model_calls", model[i].calls);
    json_count(j, "model_mappings", model[i].mappings);
    json_real(j, "model_us_per_call", per((double)model[i].ns / 1e3, model[i].calls));
    json_real(j, "model_us_per_mapping", per((double)model[i].ns / 1e3, model[i].mappings));
    json_end(j, '}');
  }
  json_end(j, ']');
}

/* How many more chunks the lake needed here than on the mock. */
static double chunks_apart(const trace_report *r) {
  return (r->lake.first.reserved_bytes_peak - r->mock.first.reserved_bytes_peak) /
         r->lake.first.chunk_bytes;
}

static void trace_json(json *j, const trace_report *r) {
  json_begin(j, NULL, '{');
  json_text(j, "trace", r->name);
  json_count(j, "operations", r->t->op_count);
  json_count(j, "streams", r->t->stream_count);
  json_count(j, "live_bytes_peak", r->t->active_bytes_peak);
  json_whole(j, "chunk_bytes", r->lake.first.chunk_bytes);
  json_whole(j, "chunks_more_than_mock", chunks_apart(r));
  json_whole(j, "memory_info_bytes_peak", r->memory_info_bytes);
  json_begin(j, "allocators", '[');
  outcome_json(j, "lake", r->t->op_count, &r->lake);
  outcome_json(j, "lake on the mock", r->t->op_count, &r->mock);
  outcome_json(j, "lake on the mock, calls alone", r->t->op_count, &r->mock_alone);
  outcome_json(j, "bfc over cuMemAlloc", r->t->op_count, &r->bfc);
  outcome_json(j, "cuMemAllocAsync", r->t->op_count, &r->async_default);
  outcome_json(j, "cuMemAllocAsync, keeping", r->t->op_count, &r->async_kept);
  outcome_json(j, "cuMemAlloc", r->native_op_count, &r->native);
  json_end(j, ']');
  entries_json(j, r->real, r->model);
  json_end(j, '}');
}

static void trace_main_row(table *t, const trace_report *r) {
  table_cell(t, "%s", r->name);
  table_real(t, 2, gib((double)r->t->active_bytes_peak));
  table_real(t, 2, gib(r->lake.first.reserved_bytes_peak));
  table_real(t, 2, gib(r->mock.first.reserved_bytes_peak));
  table_real(t, 0, chunks_apart(r));
  table_real(t, 1, r->lake.first.driver_ns / 1e6);
  table_real(t, 1, r->mock.first.driver_ns / 1e6);
  table_real(t, 1, r->mock_alone.first.driver_ns / 1e6);
  table_real(t, 0, r->lake.cold_ns);
  table_real(t, 0, r->lake.warm_ns);
  table_real(t, 0, r->native.cold_ns);
  table_real(t, 0, r->async_kept.cold_ns);
  table_real(t, 0, r->async_kept.warm_ns);
}

static void trace_detail_row(table *t, const trace_report *r) {
  table_cell(t, "%s", r->name);
  table_cell(t, "%lu", (unsigned long)r->t->op_count);
  table_cell(t, "%lu", (unsigned long)r->t->stream_count);
  table_real(t, 0, r->lake.first.chunk_bytes / (double)MIB);
  table_real(t, 2, gib(r->memory_info_bytes));
  table_real(t, 0, r->lake.first.driver_calls);
  table_real(t, 0, r->mock.first.driver_calls);
  table_real(t, 0, r->lake.warm_driver_calls);
  table_real(t, 0, r->lake.first.stitches);
  table_real(t, 0, r->lake.first.stream_waits);
  table_real(t, 0, r->lake.cold_processor_ns);
}

static void peer_row(table *t, const trace_report *r, const char *name, size_t op_count,
                     const outcome *o) {
  table_cell(t, "%s", r->name);
  table_cell(t, "%s", name);
  table_cell(t, "%lu", (unsigned long)op_count);
  table_real(t, 2, gib(o->first.reserved_bytes_peak));
  table_real(t, 0, o->cold_ns);
  table_real(t, 0, o->warm_ns);
  table_cell(t, "%s", o->error ? o->error : "");
}

static void peer_rows(table *t, const trace_report *r) {
  const size_t ops = r->t->op_count;
  peer_row(t, r, "lake", ops, &r->lake);
  peer_row(t, r, "bfc over cuMemAlloc", ops, &r->bfc);
  peer_row(t, r, "cuMemAllocAsync", ops, &r->async_default);
  peer_row(t, r, "cuMemAllocAsync, keeping", ops, &r->async_kept);
  peer_row(t, r, "cuMemAlloc", r->native_op_count, &r->native);
}

/* If the device has no room for the trace's blocks, nothing is measured. */
static int trace_fits(const bench *b, const trace *t) {
  return t->active_bytes_peak < gpu_free_bytes(&b->gpu);
}

static void measure_trace(bench *b, const char *path, trace_tables *tables) {
  static trace_report r;
  static setting s;
  char name[256];
  trace t;
  trace_name(path, name, sizeof name);
  show_progress(name, "reading");
  if (!setting_open(&s, b, &t, path)) return;
  r.name = name;
  r.t = &t;
  if (trace_fits(b, &t)) {
    replay_often(&lake_allocator, &s, t.op_count, 1 + WARM_PASSES, &r.lake);
    replay_probed(&s, &r);
    replay_mock(&s, GMLAKE_MOCK_COSTS_ALONE, &r.mock_alone, r.model);
    replay_mock(&s, GMLAKE_MOCK_COSTS_REPLAYED, &r.mock, r.model);
    replay_peers(&s, &r);
    if (r.lake.error || r.mock.error) b->failed = 1;
    trace_main_row(&tables->main, &r);
    trace_detail_row(&tables->detail, &r);
    peer_rows(&tables->peers, &r);
    probe_sum(tables->real, r.real);
    probe_sum(tables->model, r.model);
    trace_json(b->json, &r);
  } else {
    clear_progress();
    printf("\n%s does not fit: %.2f GiB live\n", name, gib((double)t.active_bytes_peak));
  }
  setting_close(&s, &t);
}

static void print_entries(const bench *b, const trace_tables *tables) {
  char title[256];
  table t;
  size_t i;
  snprintf(title, sizeof title,
           "Calls of the lake for all traces, from create to destroy with one pass between; of "
           "each, %.0f ns are the clock's",
           clock_cost_ns());
  table_open(&t, b->is_markdown, title,
             "<call|calls|mappings|us a call|us a mapping|model's|ms|model's ms");
  for (i = 0; i < PROBE_COUNT; i++) {
    const probe_entry *real = &tables->real[i], *model = &tables->model[i];
    if (!real->calls) continue;
    table_cell(&t, "%s", probe_names[i]);
    table_cell(&t, "%llu", (unsigned long long)real->calls);
    table_cell(&t, "%llu", (unsigned long long)real->mappings);
    table_real(&t, 2, per((double)real->ns / 1e3, real->calls));
    table_real(&t, 2, per((double)real->ns / 1e3, real->mappings));
    table_real(&t, 2, per((double)model->ns / 1e3, model->mappings));
    table_real(&t, 1, (double)real->ns / 1e6);
    table_real(&t, 1, (double)model->ns / 1e6);
  }
  table_close(&t);
}

static void run_traces(bench *b) {
  static trace_tables tables;
  char title[256];
  size_t i;
  memset(&tables, 0, sizeof tables);
  snprintf(title, sizeof title,
           "Traces: memory, driver time of the first pass, ns per operation (cuMemAlloc: of the "
           "first %lu operations; cuMemAllocAsync: keeping its memory)",
           (unsigned long)b->peer_op_count);
  table_open(&tables.main, b->is_markdown, title,
             "<trace|live GiB|lake GiB|mock GiB|chunks more|driver ms|model ms|model alone|lake "
             "cold|lake warm|"
             "cuMemAlloc|Async cold|Async warm");
  table_open(&tables.detail, b->is_markdown,
             "The lake on each trace (a stream waits for another's memory before the lake grows)",
             "<trace|operations|streams|chunk MiB|GiB by cuMemGetInfo|driver calls|mock's|"
             "calls warm|stitches|stream waits|cold processor ns");
  table_open(&tables.peers, b->is_markdown, "Allocators, ns per operation",
             "<trace|<allocator|operations|reserved GiB|cold|warm|<error");
  json_begin(b->json, "traces", '[');
  for (i = 0; i < b->path_count; i++) measure_trace(b, b->paths[i], &tables);
  json_end(b->json, ']');
  clear_progress();
  table_close(&tables.main);
  table_close(&tables.detail);
  table_close(&tables.peers);
  print_entries(b, &tables);
}

/* ---- Section operation ----------------------------------------------------------------------- */

/* Section operation: what an allocation or a free costs when the lake already has the memory that
   the trace needs. */
static void measure_operation(bench *b, const char *path, table *rows) {
  static setting s;
  double locked[REPEAT_MAX], unlocked[REPEAT_MAX];
  outcome result;
  char name[256];
  double loop_ns;
  trace t;
  size_t i;
  trace_name(path, name, sizeof name);
  show_progress("operation", name);
  if (!setting_open(&s, b, &t, path)) return;
  for (i = 0; trace_fits(b, &t) && i < 2 * b->repeat; i++) {
    s.flags = i % 2 ? GMLAKE_SINGLE_THREADED : 0;
    replay_once(&lake_allocator, &s, t.op_count, 1 + WARM_PASSES, &result);
    if (result.error) b->failed = 1;
    (i % 2 ? unlocked : locked)[i / 2] = result.warm_ns;
  }
  replay_once(&empty_allocator, &s, t.op_count, 1 + WARM_PASSES, &result);
  loop_ns = result.warm_ns;
  setting_close(&s, &t);
  if (!i) return;
  table_cell(rows, "%s", name);
  table_real(rows, 1, median(locked, b->repeat));
  table_real(rows, 1, median(unlocked, b->repeat));
  table_real(rows, 1, loop_ns);
  json_begin(b->json, NULL, '{');
  json_text(b->json, "trace", name);
  json_real(b->json, "warm_ns_per_op", median(locked, b->repeat));
  json_real(b->json, "warm_ns_per_op_single_threaded", median(unlocked, b->repeat));
  json_real(b->json, "loop_ns_per_op", loop_ns);
  json_end(b->json, '}');
}

static void run_operation(bench *b) {
  table t;
  size_t i;
  table_open(&t, b->is_markdown,
             "An operation of the lake, warm: ns, with the replaying loop's own in it",
             "<trace|with locks|single-threaded|the loop alone");
  json_begin(b->json, "operation", '[');
  for (i = 0; i < b->path_count; i++) measure_operation(b, b->paths[i], &t);
  json_end(b->json, ']');
  clear_progress();
  table_close(&t);
}

/* ---- Section limit --------------------------------------------------------------------------- */

/* The size of chunk that the lake would choose on a card with that much memory. */
static size_t limit_chunk_bytes(const bench *b, size_t limit_bytes) {
  size_t chunk = 2 * MIB;
  while (chunk * 2 <= limit_bytes / 8192 && chunk < 32 * MIB) chunk *= 2;
  return b->chunk_bytes ? b->chunk_bytes : chunk;
}

static void measure_limit(bench *b, const char *path, size_t limit_bytes, table *rows) {
  static setting s;
  outcome o;
  char name[256];
  trace t;
  trace_name(path, name, sizeof name);
  show_progress("limit", name);
  if (!setting_open(&s, b, &t, path)) return;
  s.limit_bytes = limit_bytes;
  s.chunk_bytes = limit_chunk_bytes(b, limit_bytes);
  outcome_clear(&o);
  if (t.active_bytes_peak > limit_bytes || !trace_fits(b, &t))
    o.error = "does not fit";
  else
    replay_once(&lake_allocator, &s, t.op_count, 2, &o);
  table_real(rows, 2, gib((double)limit_bytes));
  table_real(rows, 0, mib(s.chunk_bytes));
  table_cell(rows, "%s", name);
  table_real(rows, 2, gib((double)t.active_bytes_peak));
  table_real(rows, 2, gib(o.first.reserved_bytes_peak));
  table_real(rows, 0, o.first.driver_calls);
  table_real(rows, 1, o.first.driver_ns / 1e6);
  table_real(rows, 0, o.warm_driver_calls);
  table_cell(rows, "%s", o.error ? o.error : "both passes ran");
  json_begin(b->json, NULL, '{');
  json_text(b->json, "trace", name);
  json_count(b->json, "limit_bytes", limit_bytes);
  json_count(b->json, "chunk_bytes", s.chunk_bytes);
  json_count(b->json, "live_bytes_peak", t.active_bytes_peak);
  json_begin(b->json, "runs", '[');
  outcome_json(b->json, "lake, limited", t.op_count, &o);
  json_end(b->json, ']');
  json_end(b->json, '}');
  setting_close(&s, &t);
}

static void run_limit(bench *b) {
  const size_t usual[] = {8192 * MIB, 24576 * MIB};
  table t;
  size_t i, k;
  table_open(&t, b->is_markdown, "The lake under a limit, as on a smaller card: two passes",
             "limit GiB|chunk MiB|<trace|live GiB|reserved GiB|driver calls|driver ms|calls warm|"
             "<outcome");
  json_begin(b->json, "limit", '[');
  for (k = 0; k < (b->limit_bytes ? 1u : 2u); k++)
    for (i = 0; i < b->path_count; i++)
      measure_limit(b, b->paths[i], b->limit_bytes ? b->limit_bytes : usual[k], &t);
  json_end(b->json, ']');
  clear_progress();
  table_close(&t);
}

#endif
