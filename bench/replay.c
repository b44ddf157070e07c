/* Replays recorded allocations (.gmtrace files) on a modelled H200, and prints the memory and the
   driver time that each allocator needs for them: the lake, gmlake_bfc.h (torch's rules), torch's
   expandable segments, and the driver without an allocator. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <glob.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <dlfcn.h>

#include "../examples/profile.h"
#include "decisions.h"
#include "expandable.h"
#include "held.h"
#include "options.h"
#include "page.h"
#include "policy_builtin.h"
#include "report.h"
#include "trace.h"

#define MIB ((size_t)1 << 20)
#define DEVICE_BYTES (143154 * MIB) /* an H200: 139.8 GiB */
#define LIMIT_MIB_MAX ((size_t)1 << 20)
#define SERIES_BUCKETS 2000 /* each gives two points of the curve */
#define DEFAULT_TRACES "bench/traces/*.gmtrace.gz"
#define DEFAULT_STREAMS "bench/traces/streams/*.gmtrace.gz"

/* ---- Allocators ------------------------------------------------------------------------------ */

typedef struct config {
  uint64_t lag_ns;  /* UINT64_MAX: never */
  int lag_is_named; /* else the trace tells when work is complete, if it does */
  gmlake_cross_stream cross_stream;
  size_t chunk_bytes; /* 0: the lake's choice */
  size_t limit_bytes; /* what the device or the lake has; 0: all of an H200 */
  gmlake_mock_costs costs;
  const char *profile_path;    /* the lake is prewarmed by it; NULL: it is not */
  const char *learnt_path;     /* where its profile is written; NULL: nowhere */
  int once;                    /* one pass only */
  int streams_stay;            /* although the trace says that they may end */
  const policy_plugin *policy; /* of the lake */
  decisions *told;             /* where the lake's decisions are written; NULL: nowhere */
  report *seen;                /* what is reported of the lake; NULL: nothing is */
} config;

typedef struct counters {
  uint64_t used_bytes; /* of the lake: what is live, and what recorded streams still use */
  uint64_t reserved_bytes, reserved_bytes_peak, metadata_bytes_peak, chunk_count;
  uint64_t driver_call_count, driver_ns;
  uint64_t grow_ns, grown_bytes; /* [once] what creating chunks costs, of so many bytes */
  uint64_t stitch_count, stitch_reuse_count, stream_wait_count;
  uint64_t state_count[5];
} counters;

/* Functions that can fail return NULL if they succeed, else the name of the error. */
typedef struct allocator {
  const char *name;
  const char *(*create)(const config *settings, const trace *t, void **out_self);
  const char *(*alloc)(void *self, const trace_op *op, void **out_ptr);
  const char *(*free_block)(void *self, const trace_op *op, void *ptr);
  /* A range of a buffer gets memory or loses it. NULL: a buffer is a block of all its addresses. */
  const char *(*change)(void *self, const trace_op *op, void *buffer);
  /* The block is used on a further stream. NULL: the allocator does not know streams' work. */
  const char *(*use)(void *self, const trace_use *use, void *ptr);
  int holds_uses; /* blocks are given back to it when recorded streams have used them: see held.h */
  /* The time of the trace, and when this pass through it began. */
  void (*set_clock)(void *self, uint64_t start_us, uint64_t time_us);
  void (*get_counters)(void *self, counters *out);
  void (*destroy)(void *self);
} allocator;

/* cuMemAlloc and cuMemFree, with the costs measured on an H200, in allocations of 2 MiB. Each
   address is lower than the one before. With falling addresses the caching allocator chooses
   between blocks of equal size as torch did, and reaches every recorded peak exactly. With rising
   addresses it reaches six of eight. */
typedef struct driver {
  uint64_t last_address, bytes, bytes_peak, device_bytes, call_count, ns;
} driver;

static size_t device_bytes(const config *settings) {
  return settings->limit_bytes ? settings->limit_bytes : DEVICE_BYTES;
}

static size_t driver_rounded(size_t bytes) { return (bytes + 2 * MIB - 1) & ~(2 * MIB - 1); }

static void *driver_alloc(driver *d, size_t asked_bytes) {
  size_t bytes = driver_rounded(asked_bytes);
  d->call_count++;
  d->ns += 28000;
  if (bytes > d->device_bytes - d->bytes) return NULL;
  d->ns += 39 * (bytes / MIB);
  d->last_address -= bytes;
  d->bytes += bytes;
  if (d->bytes > d->bytes_peak) d->bytes_peak = d->bytes;
  return (void *)(uintptr_t)d->last_address;
}

static void driver_free(driver *d, size_t asked_bytes) {
  size_t bytes = driver_rounded(asked_bytes);
  d->call_count++;
  d->ns += 24000 + 226 * (bytes / MIB);
  d->bytes -= bytes;
}

static void driver_get_counters(const driver *d, counters *out) {
  memset(out, 0, sizeof *out);
  out->reserved_bytes = d->bytes;
  out->reserved_bytes_peak = d->bytes_peak;
  out->driver_call_count = d->call_count;
  out->driver_ns = d->ns;
}

static const char *native_create(const config *settings, const trace *t, void **out_self) {
  driver *d = (driver *)calloc(1, sizeof(driver));
  (void)t;
  if (!d) return "out of host memory";
  d->last_address = (uint64_t)1 << 46;
  d->device_bytes = device_bytes(settings);
  *out_self = d;
  return NULL;
}

static const char *native_alloc(void *self, const trace_op *op, void **out_ptr) {
  *out_ptr = NULL;
  if (!op->bytes) return NULL;
  *out_ptr = driver_alloc((driver *)self, op->bytes);
  return *out_ptr ? NULL : "out of device memory";
}

static const char *native_free(void *self, const trace_op *op, void *ptr) {
  if (ptr) driver_free((driver *)self, op->bytes);
  return NULL;
}

static void native_get_counters(void *self, counters *out) {
  driver_get_counters((const driver *)self, out);
}

static void no_clock(void *self, uint64_t start_us, uint64_t time_us) {
  (void)self;
  (void)start_us;
  (void)time_us;
}

typedef struct bfc_run {
  driver device;
  gmlake_bfc *bfc;
} bfc_run;

static void *bfc_segment_alloc(void *user, size_t bytes) {
  return driver_alloc((driver *)user, bytes);
}

static void bfc_segment_free(void *user, void *segment, size_t bytes) {
  (void)segment;
  driver_free((driver *)user, bytes);
}

static const char *bfc_create(const config *settings, const trace *t, void **out_self) {
  bfc_run *run = (bfc_run *)calloc(1, sizeof(bfc_run));
  gmlake_bfc_result result;
  gmlake_bfc_desc desc;
  (void)t;
  if (!run) return "out of host memory";
  run->device.last_address = (uint64_t)1 << 46;
  run->device.device_bytes = device_bytes(settings);
  memset(&desc, 0, sizeof desc);
  desc.segment_alloc = bfc_segment_alloc;
  desc.segment_free = bfc_segment_free;
  desc.user = &run->device;
  result = gmlake_bfc_create(&desc, &run->bfc);
  if (result != GMLAKE_BFC_OK) {
    free(run);
    return gmlake_bfc_result_name(result);
  }
  *out_self = run;
  return NULL;
}

static const char *bfc_alloc(void *self, const trace_op *op, void **out_ptr) {
  gmlake_bfc *bfc = ((bfc_run *)self)->bfc;
  gmlake_bfc_result result =
      gmlake_bfc_alloc(bfc, op->bytes, (void *)(uintptr_t)op->stream, out_ptr);
  return result == GMLAKE_BFC_OK ? NULL : gmlake_bfc_result_name(result);
}

static const char *bfc_free(void *self, const trace_op *op, void *ptr) {
  gmlake_bfc_result result = gmlake_bfc_free(((bfc_run *)self)->bfc, ptr);
  (void)op;
  return result == GMLAKE_BFC_OK ? NULL : gmlake_bfc_result_name(result);
}

static void bfc_get_counters(void *self, counters *out) {
  bfc_run *run = (bfc_run *)self;
  gmlake_bfc_stats stats;
  memset(&stats, 0, sizeof stats);
  gmlake_bfc_get_stats(run->bfc, &stats);
  driver_get_counters(&run->device, out);
  out->chunk_count = stats.segment_count;
  out->metadata_bytes_peak = stats.metadata_bytes_peak;
}

static void bfc_destroy(void *self) {
  gmlake_bfc_destroy(((bfc_run *)self)->bfc);
  free(self);
}

static const char *segments_create(const config *settings, const trace *t, void **out_self) {
  (void)t;
  *out_self = expandable_create(device_bytes(settings));
  return *out_self ? NULL : "out of host memory";
}

static const char *segments_alloc(void *self, const trace_op *op, void **out_ptr) {
  expandable_block *block = NULL;
  *out_ptr = NULL;
  if (!op->bytes) return NULL;
  if (!expandable_alloc((expandable *)self, op->bytes, op->stream, &block))
    return "out of host memory";
  *out_ptr = block;
  return block ? NULL : "out of device memory";
}

static const char *segments_free(void *self, const trace_op *op, void *ptr) {
  (void)op;
  if (ptr) expandable_free((expandable *)self, (expandable_block *)ptr);
  return NULL;
}

static void segments_get_counters(void *self, counters *out) {
  const expandable *e = (const expandable *)self;
  memset(out, 0, sizeof *out);
  out->reserved_bytes = e->reserved_bytes;
  out->reserved_bytes_peak = e->reserved_bytes_peak;
  out->driver_call_count = e->call_count;
  out->driver_ns = e->ns;
}

static void segments_destroy(void *self) { expandable_destroy((expandable *)self); }

typedef struct lake_run {
  gmlake_backend *backend;
  gmlake_backend timed; /* the same with lake_clock_ns, which the lake calls */
  decisions *told;
  report *seen;
  uint64_t grow_ns, grown_bytes; /* as in counters */
  gmlake *lake;
  gmlake_stream streams[TRACE_STREAMS_MAX];
  lag work;                           /* only if the trace tells when work is complete */
  uint64_t lag_ns[TRACE_STREAMS_MAX]; /* of each stream now; UINT64_MAX: never */
} lake_run;

/* Stream 0 of a trace is the legacy stream. */
static gmlake_result lake_create_streams(lake_run *run, const config *settings, const trace *t) {
  gmlake_result result = GMLAKE_OK;
  size_t i;
  for (i = 0; i < t->stream_count && result == GMLAKE_OK; i++) {
    run->streams[i] = i == t->no_stream ? GMLAKE_STREAM_NONE : NULL;
    if (i == t->no_stream) continue;
    if (t->streams[i]) result = gmlake_mock_stream_create(run->backend, &run->streams[i]);
    if (result != GMLAKE_OK) break;
    run->lag_ns[i] = settings->lag_ns;
    gmlake_mock_stream_set_lag(run->backend, run->streams[i], settings->lag_ns);
  }
  return result;
}

static void lake_destroy(void *self) {
  lake_run *run = (lake_run *)self;
  if (run->lake) gmlake_destroy(run->lake);
  if (run->backend) gmlake_mock_destroy(run->backend);
  free(run);
}

static void lake_observe(void *user, const gmlake_step *step) {
  lake_run *run = (lake_run *)user;
  run->grow_ns += step->kind == GMLAKE_STEP_GROW ? step->driver_ns : 0;
  run->grown_bytes += step->kind == GMLAKE_STEP_GROW ? step->bytes : 0;
  if (run->told) decisions_write(run->told, step);
  if (run->seen) report_note(run->seen, step);
}

static struct {
  gmlake_backend *backend; /* of the lake that replays */
  uint64_t now_ns;         /* of the trace */
} replayed;

/* The trace's time, and that of the modelled calls. */
static uint64_t lake_clock_ns(void *user) {
  (void)user;
  return replayed.now_ns + replayed.backend->clock_ns(replayed.backend->user);
}

/* Creates the memory that a profile tells of. */
static gmlake_result lake_prewarm(gmlake *lake, const char *path) {
  size_t bytes;
  if (profile_read(path, &bytes)) return gmlake_reserve(lake, NULL, bytes, NULL);
  fprintf(stderr, "%s: not a profile\n", path);
  return GMLAKE_ERROR_INVALID_ARGUMENT;
}

/* An H200, or a larger device, where the lake may hold more. */
static size_t lake_device_bytes(const config *settings) {
  return settings->limit_bytes > DEVICE_BYTES ? settings->limit_bytes : DEVICE_BYTES;
}

static const char *lake_create(const config *settings, const trace *t, void **out_self) {
  lake_run *run = (lake_run *)calloc(1, sizeof(lake_run));
  gmlake_result result;
  gmlake_mock_desc mock;
  gmlake_desc desc;
  if (!run) return "out of host memory";
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.capacity_bytes = lake_device_bytes(settings);
  mock.costs = settings->costs;
  mock.bookkeeping_only = 1;
  if (t->done_count && !settings->lag_is_named) run->work.t = t;
  result = gmlake_mock_create(&mock, &run->backend);
  if (result == GMLAKE_OK) result = lake_create_streams(run, settings, t);
  if (result == GMLAKE_OK) {
    settings->policy->describe(&desc);
    replayed.backend = run->backend;
    run->timed = *run->backend;
    run->timed.clock_ns = lake_clock_ns;
    desc.backend = &run->timed;
    desc.cross_stream = settings->cross_stream;
    if (t->may_streams_end && !settings->streams_stay) desc.flags |= GMLAKE_STREAMS_MAY_END;
    if (settings->chunk_bytes) desc.chunk_bytes = settings->chunk_bytes;
    desc.limit_bytes = settings->limit_bytes;
    run->told = settings->told;
    run->seen = settings->seen;
    if (run->told) run->told->streams = run->streams;
    if (run->seen) run->seen->streams = run->streams;
    if (run->seen) run->seen->backend.device.streams = run->streams;
    if (run->seen) run->seen->backend.device.stream_count = t->stream_count;
    if (run->seen) run->seen->backend.device.lag_ns = run->lag_ns;
    if (run->seen) desc.backend = report_wrap(&run->seen->backend, &run->timed);
    if (run->told || run->seen || settings->once) desc.observer.fn = lake_observe;
    desc.observer.user = run;
    result = gmlake_create(&desc, &run->lake);
    if (run->seen) run->seen->lake = run->lake;
  }
  if (result == GMLAKE_OK && settings->profile_path)
    result = lake_prewarm(run->lake, settings->profile_path);
  if (result != GMLAKE_OK) {
    lake_destroy(run);
    return gmlake_result_name(result);
  }
  *out_self = run;
  return NULL;
}

/* The name of the error, with the lake's own text if there is one. NULL: no error. */
static const char *lake_error(gmlake *lake, gmlake_result result) {
  static char text[256];
  gmlake_error_info info;
  if (result == GMLAKE_OK) return NULL;
  if (gmlake_get_last_error(lake, &info) || info.result != result)
    return gmlake_result_name(result);
  snprintf(text, sizeof text, "%s: %s: %s", gmlake_result_name(result), info.call, info.text);
  return text;
}

static const char *lake_open_buffer(lake_run *run, const trace_op *op, void **out_buffer) {
  gmlake_buffer *buffer = NULL;
  gmlake_buffer_desc desc;
  gmlake_result result;
  memset(&desc, 0, sizeof desc);
  desc.max_bytes = op->bytes;
  desc.chunk_bytes = op->offset;
  result = gmlake_buffer_create(run->lake, &desc, &buffer);
  *out_buffer = buffer;
  return lake_error(run->lake, result);
}

static const char *lake_change(void *self, const trace_op *op, void *buffer) {
  lake_run *run = (lake_run *)self;
  gmlake_buffer *b = (gmlake_buffer *)buffer;
  const gmlake_stream stream = run->streams[op->stream];
  gmlake_buffer_info info;
  size_t bytes;
  if (gmlake_buffer_get_info(run->lake, b, &info)) return "a buffer is lost";
  if (op->offset >= info.max_bytes) return NULL; /* an empty range */
  bytes = op->offset + op->bytes > info.max_bytes ? info.max_bytes - op->offset : op->bytes;
  return lake_error(run->lake,
                    op->type == TRACE_COMMIT
                        ? gmlake_buffer_commit(run->lake, b, op->offset, bytes, NULL, stream)
                        : gmlake_buffer_discard(run->lake, b, op->offset, bytes, stream));
}

static const char *lake_alloc(void *self, const trace_op *op, void **out_ptr) {
  lake_run *run = (lake_run *)self;
  if (op->type == TRACE_BUFFER) return lake_open_buffer(run, op, out_ptr);
  return lake_error(run->lake,
                    gmlake_alloc(run->lake, op->bytes, run->streams[op->stream], out_ptr));
}

static const char *lake_free(void *self, const trace_op *op, void *ptr) {
  lake_run *run = (lake_run *)self;
  const gmlake_stream stream = run->streams[op->stream];
  gmlake_result result;
  if (op->type == TRACE_BUFFER || op->type == TRACE_END)
    result = gmlake_buffer_destroy(run->lake, (gmlake_buffer *)ptr, stream);
  else
    result = gmlake_free(run->lake, ptr, stream);
  return result == GMLAKE_OK ? NULL : gmlake_result_name(result);
}

static const char *lake_use(void *self, const trace_use *use, void *ptr) {
  lake_run *run = (lake_run *)self;
  gmlake_result result;
  if (!ptr) return NULL;
  result = gmlake_record_stream(run->lake, ptr, run->streams[use->stream]);
  return result == GMLAKE_OK ? NULL : gmlake_result_name(result);
}

static void lake_set_clock(void *self, uint64_t start_us, uint64_t time_us) {
  lake_run *run = (lake_run *)self;
  const trace *t = run->work.t;
  size_t i;
  replayed.now_ns = (start_us + time_us) * 1000;
  gmlake_mock_set_clock(run->backend, replayed.now_ns);
  if (run->seen) run->seen->backend.device.now_ns = replayed.now_ns;
  for (i = 0; t && i < t->stream_count; i++) {
    if (!t->done_first[i]) continue;
    run->lag_ns[i] = lag_us(&run->work, i, time_us) * 1000;
    gmlake_mock_stream_set_lag(run->backend, run->streams[i], run->lag_ns[i]);
  }
}

static void lake_get_counters(void *self, counters *out) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  gmlake_get_stats(((lake_run *)self)->lake, &stats);
  out->used_bytes = stats.active_bytes + stats.pending_bytes;
  out->reserved_bytes = stats.reserved_bytes;
  out->reserved_bytes_peak = stats.reserved_bytes_peak;
  out->metadata_bytes_peak = stats.metadata_bytes_peak;
  out->chunk_count = stats.chunk_count;
  out->driver_call_count = stats.driver_call_count;
  out->driver_ns = stats.driver_ns;
  out->grow_ns = ((const lake_run *)self)->grow_ns;
  out->grown_bytes = ((const lake_run *)self)->grown_bytes;
  out->stitch_count = stats.stitch_count;
  out->stitch_reuse_count = stats.stitch_reuse_count;
  out->stream_wait_count = stats.stream_wait_count;
  memcpy(out->state_count, stats.state_count, sizeof out->state_count);
}

static const allocator allocators[] = {
    {"lake", lake_create, lake_alloc, lake_free, lake_change, lake_use, 0, lake_set_clock,
     lake_get_counters, lake_destroy},
    {"bfc", bfc_create, bfc_alloc, bfc_free, NULL, NULL, 1, no_clock, bfc_get_counters,
     bfc_destroy},
    {"native", native_create, native_alloc, native_free, NULL, NULL, 0, no_clock,
     native_get_counters, free},
    {"expandable", segments_create, segments_alloc, segments_free, NULL, NULL, 1, no_clock,
     segments_get_counters, segments_destroy}};

/* An allocator that does nothing: it measures what the replaying loop itself costs. */
static const char *empty_alloc(void *self, const trace_op *op, void **out_ptr) {
  (void)op;
  *out_ptr = self;
  return NULL;
}

static const char *empty_free(void *self, const trace_op *op, void *ptr) {
  (void)self;
  (void)op;
  (void)ptr;
  return NULL;
}

static const allocator empty_allocator = {"empty", NULL, empty_alloc, empty_free, NULL,
                                          NULL,    0,    no_clock,    NULL,       NULL};

/* ---- Replaying ------------------------------------------------------------------------------- */

typedef struct replay {
  const trace *t;
  const allocator *with;
  void *self;
  void **blocks;     /* of each id; NULL: not live, or of 0 bytes */
  uint64_t start_us; /* of this pass, on the streams' clock */
  size_t next_use;   /* of the trace's uses */
  held *kept;        /* NULL: the allocator holds no uses, or there are none */
  size_t failed_op;
  const char *learnt_path; /* where the lake's profile is written; NULL: nowhere */
} replay;

typedef struct outcome {
  const char *allocator_name;
  config settings;
  counters first; /* after the first pass */
  int has_second_half;
  uint64_t second_half_calls;
  double ns_per_op;
} outcome;

/* Replays the uses that stand before an operation. */
static const char *replay_uses(replay *r, size_t op) {
  const trace *t = r->t;
  const char *error = NULL;
  for (; r->next_use < t->use_count && t->uses[r->next_use].op <= op && !error; r->next_use++) {
    const trace_use *use = &t->uses[r->next_use];
    if (r->with->use) error = r->with->use(r->self, use, r->blocks[use->id]);
    if (r->with->holds_uses) held_note(r->kept, r->next_use);
  }
  return error;
}

/* Gives back what was kept and whose users have completed by then. */
static const char *replay_kept(replay *r, uint64_t time_us) {
  const char *error = NULL;
  const held_block *block;
  while (r->kept && !error && (block = held_next(r->kept, time_us)) != NULL)
    error = r->with->free_block(r->self, block->op, block->ptr);
  return error;
}

static const char *replay_alloc(replay *r, const trace_op *op) {
  const char *error = r->kept ? replay_kept(r, op->time_us) : NULL;
  if (!error) error = r->with->alloc(r->self, op, &r->blocks[op->id]);
  if (!error || !r->kept || !r->kept->count) return error;
  error = replay_kept(r, UINT64_MAX);
  return error ? error : r->with->alloc(r->self, op, &r->blocks[op->id]);
}

static const char *replay_op(replay *r, const trace_op *op) {
  const char *error;
  if (op->type == TRACE_ALLOC || op->type == TRACE_BUFFER) return replay_alloc(r, op);
  if (op->type == TRACE_COMMIT || op->type == TRACE_DISCARD)
    return r->with->change ? r->with->change(r->self, op, r->blocks[op->id]) : NULL;
  if (r->kept && r->with->holds_uses && held_keep(r->kept, op, r->blocks[op->id]))
    error = NULL;
  else
    error = r->with->free_block(r->self, op, r->blocks[op->id]);
  r->blocks[op->id] = NULL;
  return error;
}

/* Replays the operations [begin, end). Only traces with several streams need the streams' clock. */
static const char *replay_ops(replay *r, size_t begin, size_t end) {
  const trace_op *ops = r->t->ops;
  int clocked = r->t->stream_count > 1 || r->t->buffer_count;
  size_t i;
  for (i = begin; i < end; i++) {
    const trace_op *op = &ops[i];
    const char *error;
    if (clocked && (!i || op->time_us != ops[i - 1].time_us)) {
      r->with->set_clock(r->self, r->start_us, op->time_us);
    }
    error = r->next_use < r->t->use_count ? replay_uses(r, i) : NULL;
    if (!error) error = replay_op(r, op);
    if (error) {
      r->failed_op = i;
      return error;
    }
  }
  return NULL;
}

/* Frees what the pass has left; the next one begins at the start. */
static const char *replay_free_live(replay *r) {
  const char *failed = replay_kept(r, UINT64_MAX);
  size_t i;
  r->next_use = 0;
  if (failed) return failed;
  if (r->kept) memset(r->kept->newest, 0, r->t->id_count * sizeof *r->kept->newest);
  for (i = r->t->op_count; i-- > 0;) {
    const trace_op *op = &r->t->ops[i];
    const char *error;
    if ((op->type != TRACE_ALLOC && op->type != TRACE_BUFFER) || !r->blocks[op->id]) continue;
    error = r->with->free_block(r->self, op, r->blocks[op->id]);
    r->blocks[op->id] = NULL;
    if (error) {
      r->failed_op = i;
      return error;
    }
  }
  return NULL;
}

typedef struct series_point {
  size_t index;
  uint64_t live_bytes, reserved_bytes;
} series_point;

/* The curves of memory over time. The events are divided into buckets; of each bucket the highest
   points of both curves are written. */
typedef struct series {
  FILE *file;
  const trace *t;
  size_t bucket_size, bucket_count;
  series_point most_live, most_reserved;
} series;

static void series_write(const series *s, const series_point *p) {
  fprintf(s->file, "%lu,%llu,%llu,%llu\n", (unsigned long)p->index,
          (unsigned long long)s->t->ops[p->index].time_us, (unsigned long long)p->live_bytes,
          (unsigned long long)p->reserved_bytes);
}

static void series_add(series *s, size_t index, uint64_t reserved_bytes) {
  const trace_op *op = &s->t->ops[index];
  series_point p;
  p.index = index;
  p.live_bytes = op->live_bytes;
  p.reserved_bytes = reserved_bytes;
  if (!s->bucket_count || p.live_bytes > s->most_live.live_bytes) s->most_live = p;
  if (!s->bucket_count || p.reserved_bytes > s->most_reserved.reserved_bytes) s->most_reserved = p;
  if (++s->bucket_count < s->bucket_size && index + 1 < s->t->op_count) return;
  s->bucket_count = 0;
  if (s->most_live.index < s->most_reserved.index) series_write(s, &s->most_live);
  series_write(s, &s->most_reserved);
  if (s->most_live.index > s->most_reserved.index) series_write(s, &s->most_live);
}

/* What is counted in each iteration. Operations before the first mark are iteration 0. */
typedef struct iterations {
  FILE *file;
  const trace *t;
  size_t mark;                           /* marks passed */
  counters before, last;                 /* before the iteration, before the next operation */
  uint64_t requests, large, by_state[5]; /* by_state counts the large ones */
  uint64_t reserved_bytes_peak;
} iterations;

static void iterations_write(iterations *it) {
  const counters *a = &it->before, *b = &it->last;
  unsigned i;
  fprintf(it->file, "%lu\t%llu\t%llu", (unsigned long)it->mark, (unsigned long long)it->requests,
          (unsigned long long)it->large);
  for (i = 0; i < 5; i++) fprintf(it->file, "\t%llu", (unsigned long long)it->by_state[i]);
  fprintf(it->file, "\t%llu\t%llu\t%.3f\t%llu\n",
          (unsigned long long)(b->stitch_count - a->stitch_count),
          (unsigned long long)(b->driver_call_count - a->driver_call_count),
          (double)(b->driver_ns - a->driver_ns) / 1e6, (unsigned long long)it->reserved_bytes_peak);
  it->before = it->last;
  it->requests = it->large = it->reserved_bytes_peak = 0;
  memset(it->by_state, 0, sizeof it->by_state);
}

/* Counts an operation that was replayed. */
static void iterations_add(iterations *it, size_t index, const counters *now) {
  const trace_op *op = &it->t->ops[index];
  int is_large = op->type == TRACE_ALLOC && op->bytes >= 2 * MIB;
  unsigned i;
  while (it->mark < it->t->mark_count && it->t->marks[it->mark] == index) {
    if (index) iterations_write(it);
    it->mark++;
  }
  it->requests += op->type == TRACE_ALLOC;
  it->large += (uint64_t)is_large;
  for (i = 0; i < 5 && is_large; i++)
    it->by_state[i] += now->state_count[i] - it->last.state_count[i];
  if (now->reserved_bytes > it->reserved_bytes_peak) it->reserved_bytes_peak = now->reserved_bytes;
  it->last = *now;
  if (index + 1 == it->t->op_count) iterations_write(it);
}

static const char series_head[] = "event,time_us,live_bytes,reserved_bytes\n";
static const char iterations_head[] =
    "iteration\trequests\tfrom_2mib\ts1\ts2\ts3\ts4\ts5\tstitches\tdriver_calls\tdriver_ms\t"
    "reserved_bytes\n";

/* What is written while a trace is replayed. NULL: that is not written. */
typedef struct records {
  series *points;
  iterations *rows;
  decisions *told;
  report *seen; /* what is printed at the end */
  page *drawn;
  uint64_t *used_peak;
} records;

static const records nothing = {NULL, NULL, NULL, NULL, NULL, NULL};

static const char *replay_range(replay *r, size_t begin, size_t end, const records *to) {
  size_t i;
  if (!to->points && !to->rows && !to->told && !to->seen && !to->drawn && !to->used_peak)
    return replay_ops(r, begin, end);
  for (i = begin; i < end; i++) {
    const char *error;
    counters now;
    if (to->told) to->told->op = i;
    if (to->seen) report_before(to->seen, i);
    error = replay_ops(r, i, i + 1);
    if (error) return error;
    if (to->seen) report_after(to->seen, i);
    if (to->drawn) page_after(to->drawn, i, r->blocks[r->t->ops[i].id]);
    if (!to->points && !to->rows && !to->used_peak) continue;
    r->with->get_counters(r->self, &now);
    if (to->used_peak && now.used_bytes > *to->used_peak) *to->used_peak = now.used_bytes;
    if (to->points) series_add(to->points, i, now.reserved_bytes);
    if (to->rows) iterations_add(to->rows, i, &now);
  }
  return NULL;
}

static const char *replay_first_pass(replay *r, const records *to, outcome *out) {
  const trace *t = r->t;
  size_t half = t->mark_count > 1 ? t->marks[t->mark_count / 2] : 0;
  const char *error = replay_range(r, 0, half, to);
  counters at_half;
  if (error) return error;
  r->with->get_counters(r->self, &at_half);
  error = replay_range(r, half, t->op_count, to);
  if (!error && r->learnt_path && !profile_write(r->learnt_path, ((lake_run *)r->self)->lake))
    error = "the profile cannot be written";
  if (error) return error;
  r->with->get_counters(r->self, &out->first);
  out->has_second_half = t->mark_count > 1;
  out->second_half_calls = out->first.driver_call_count - at_half.driver_call_count;
  return NULL;
}

static double processor_ns(void) {
  struct timespec now;
  clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &now);
  return (double)now.tv_sec * 1e9 + (double)now.tv_nsec;
}

/* What the replaying loop costs without an allocator, with the calls that move the streams'
   clock. */
static double loop_ns(replay *r) {
  const allocator *with = r->with;
  allocator idle = empty_allocator;
  double best = 0, start, ns;
  int i;
  idle.set_clock = with->set_clock;
  r->with = &idle;
  for (i = 0; i < 3; i++) {
    r->start_us += r->t->ops[r->t->op_count - 1].time_us;
    r->next_use = 0;
    start = processor_ns();
    replay_ops(r, 0, r->t->op_count);
    ns = processor_ns() - start;
    if (!i || ns < best) best = ns;
  }
  r->with = with;
  r->next_use = 0;
  memset(r->blocks, 0, r->t->id_count * sizeof(void *));
  return best;
}

static const char *replay_second_pass(replay *r, outcome *out) {
  const trace *t = r->t;
  const char *error = replay_free_live(r);
  double overhead, start, ns;
  if (error) return error;
  overhead = loop_ns(r);
  r->start_us += t->ops[t->op_count - 1].time_us;
  start = processor_ns();
  error = replay_ops(r, 0, t->op_count);
  ns = processor_ns() - start - overhead;
  out->ns_per_op = ns > 0 ? ns / (double)t->op_count : 0;
  return error ? error : replay_free_live(r);
}

/* Returns 1, or 0 after the failure has been printed. */
static int replay_trace(const char *name, const trace *t, const allocator *with,
                        const config *settings, const records *to, outcome *out) {
  const char *error;
  held kept;
  replay r;
  memset(out, 0, sizeof *out);
  memset(&r, 0, sizeof r);
  out->allocator_name = with->name;
  out->settings = *settings;
  if (with != &allocators[0]) out->settings.policy = NULL;
  r.t = t;
  r.with = with;
  r.learnt_path = with == &allocators[0] ? settings->learnt_path : NULL;
  memset(&kept, 0, sizeof kept);
  kept.work.t = t->done_count && !settings->lag_is_named ? t : NULL;
  kept.work.fixed_us = settings->lag_ns == UINT64_MAX ? UINT64_MAX : settings->lag_ns / 1000;
  if (with->holds_uses && t->use_count) r.kept = &kept;
  r.blocks = (void **)calloc(t->id_count, sizeof(void *));
  error = r.blocks && (!r.kept || held_begin(&kept, t)) ? with->create(settings, t, &r.self)
                                                        : "out of host memory";
  if (error) {
    fprintf(stderr, "%s: %s cannot be created: %s\n", name, with->name, error);
  } else {
    error = replay_first_pass(&r, to, out);
    if (to->told) to->told->is_over = 1;
    if (to->seen) to->seen->is_over = 1;
    if (!error) error = settings->once ? replay_free_live(&r) : replay_second_pass(&r, out);
    if (error) {
      const trace_op *op = &t->ops[r.failed_op];
      fprintf(stderr, "%s: %s failed at event %lu (%s of %lu bytes): %s\n", name, with->name,
              (unsigned long)r.failed_op, trace_op_name(op->type), (unsigned long)op->bytes, error);
      replay_free_live(&r);
    }
    with->destroy(r.self);
  }
  held_end(&kept);
  free(r.blocks);
  return !error;
}

/* ---- Printing -------------------------------------------------------------------------------- */

/* As --cross-stream calls it. */
static const char *order_name(gmlake_cross_stream order) {
  return order == GMLAKE_WAIT_FIRST ? "wait" : "grow";
}

static double gib(uint64_t bytes) { return (double)bytes / (1024.0 * 1024.0 * 1024.0); }

static double ratio(uint64_t part, uint64_t whole) {
  return whole ? (double)part / (double)whole : 0;
}

static void print_json_field(const char *name, uint64_t value) {
  printf(", \"%s\": %llu", name, (unsigned long long)value);
}

static void print_json_field_or_null(const char *name, int known, uint64_t value) {
  if (known) {
    print_json_field(name, value);
  } else {
    printf(", \"%s\": null", name);
  }
}

/* How many times what is modelled the creation of a byte of chunks took, while the trace was
   recorded. 0: that is not known. */
static double machine_factor(const trace *t, const counters *c) {
  if (!t->grow_ns || !t->grown_bytes || !c->grow_ns || !c->grown_bytes) return 0;
  return (double)t->grow_ns / (double)t->grown_bytes * (double)c->grown_bytes / (double)c->grow_ns;
}

static void print_json(const char *name, const trace *t, const outcome *o) {
  const counters *c = &o->first;
  unsigned i;
  printf("{\"trace\": ");
  json_string(stdout, name);
  printf(", \"allocator\": \"%s\"", o->allocator_name);
  print_json_field("events", t->op_count);
  print_json_field("peak_active_bytes", t->active_bytes_peak);
  print_json_field("peak_reserved_bytes", c->reserved_bytes_peak);
  printf(", \"utilization\": %.6f", ratio(t->active_bytes_peak, c->reserved_bytes_peak));
  print_json_field("driver_calls", c->driver_call_count);
  printf(", \"driver_ms\": %.3f", (double)c->driver_ns / 1e6);
  print_json_field_or_null("driver_calls_second_half", o->has_second_half, o->second_half_calls);
  print_json_field("stitches", c->stitch_count);
  print_json_field("stitch_reuses", c->stitch_reuse_count);
  print_json_field("stream_waits", c->stream_wait_count);
  if (o->settings.once)
    printf(", \"ns_per_op\": null");
  else
    printf(", \"ns_per_op\": %.1f", o->ns_per_op);
  print_json_field("peak_metadata_bytes", c->metadata_bytes_peak);
  print_json_field("peak_live_count", t->id_count);
  print_json_field("chunk_count", c->chunk_count);
  print_json_field("streams", t->stream_count);
  if (t->done_count && !o->settings.lag_is_named)
    printf(", \"stream_lag_us\": \"recorded\"");
  else
    print_json_field_or_null("stream_lag_us", o->settings.lag_ns != UINT64_MAX,
                             o->settings.lag_ns / 1000);
  printf(", \"cross_stream\": \"%s\"", order_name(o->settings.cross_stream));
  if (machine_factor(t, c) > 0) printf(", \"machine_factor\": %.3f", machine_factor(t, c));
  print_json_field_or_null(t->is_of_lake ? "lake_reserved_bytes" : "torch_reserved_bytes",
                           t->recorded_reserved_bytes_peak != 0, t->recorded_reserved_bytes_peak);
  if (o->settings.policy) {
    printf(", \"policy\": ");
    json_string(stdout, o->settings.policy->name);
    for (i = 0; i < 5; i++)
      printf("%s%llu", i ? ", " : ", \"state_count\": [", (unsigned long long)c->state_count[i]);
    printf("]");
  }
  printf("}\n");
}

static void print_table_head(void) {
  printf("%-22s %-18s %7s %7s %8s %6s %9s %9s %9s %6s\n", "trace", "allocator", "live", "used",
         "reserved", "util", "driver", "driver", "calls of", "ns per");
  printf("%-22s %-18s %7s %7s %8s %6s %9s %9s %9s %6s\n", "", "", "GiB", "GiB", "GiB", "", "calls",
         "ms", "2nd half", "op");
}

/* What torch recorded is what is used, what a lake did is what is live. */
static void print_recorded_row(const char *name, const trace *t, uint64_t used) {
  const uint64_t live = t->is_of_lake ? t->recorded_active_bytes_peak : 0;
  const uint64_t reserved = t->recorded_reserved_bytes_peak;
  char text[4][32] = {"-", "-", "-", "-"};
  if (!live) used = t->recorded_active_bytes_peak;
  if (live) snprintf(text[0], sizeof text[0], "%.2f", gib(live));
  if (used) snprintf(text[1], sizeof text[1], "%.2f", gib(used));
  if (reserved) snprintf(text[2], sizeof text[2], "%.2f", gib(reserved));
  if (used && reserved) snprintf(text[3], sizeof text[3], "%.4f", ratio(used, reserved));
  printf("%-22s %-18s %7s %7s %8s %6s %9s %9s %9s %6s\n", name,
         t->is_of_lake ? "lake (recorded)" : "torch (recorded)", text[0], text[1], text[2], text[3],
         "-", "-", "-", "-");
}

static void print_row(const char *name, const char *label, const trace *t, uint64_t used,
                      const outcome *o) {
  const counters *c = &o->first;
  char second_half[32] = "-", ns_per_op[32] = "-";
  if (o->has_second_half) {
    snprintf(second_half, sizeof second_half, "%llu", (unsigned long long)o->second_half_calls);
  }
  if (!o->settings.once) snprintf(ns_per_op, sizeof ns_per_op, "%.0f", o->ns_per_op);
  printf("%-22s %-18s %7.2f %7.2f %8.2f %6.4f %9llu %9.1f %9s %6s\n", name, label,
         gib(t->active_bytes_peak), gib(used), gib(c->reserved_bytes_peak),
         ratio(used, c->reserved_bytes_peak), (unsigned long long)c->driver_call_count,
         (double)c->driver_ns / 1e6, second_half, ns_per_op);
}

/* ---- The program ----------------------------------------------------------------------------- */

typedef struct options {
  const allocator *only; /* NULL: torch, bfc and lake side by side */
  int json, help, report, allocator, cross_stream,
      costs;       /* the last three: -1 where none was named */
  config settings; /* policy NULL: none was asked for */
  const char *lag, *series_path, *iterations_path, *decisions_path, *html_path, *policy_name;
  uint64_t chunk_mib, limit_mib;
  option_list knobs; /* KEY=VALUE */
  char **paths;
  size_t path_count;
} options;

typedef struct mean {
  double utilization_sum, utilization_min, ns_per_op_sum, driver_ms;
  unsigned count;
} mean;

/* The means and sums at the end, over the traces with one stream. */
typedef struct summary {
  mean torch, bfc, expandable, other, lake;
  const char *other_name; /* of a policy that is not the lake's own */
  double segments_ms;     /* what segments for the lake's memory would cost */
} summary;

static void show_progress(const char *name, const char *what) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K%s: %s ...", name, what);
}

static void clear_progress(void) {
  if (isatty(STDERR_FILENO)) fprintf(stderr, "\r\033[K");
}

/* The most memory that is live, or freed and still used by recorded streams. How long these use it
   the lake tells, in a run of its own that waits for memory first. */
static uint64_t used_peak(const char *name, const trace *t, const options *o) {
  config settings = o->settings;
  records to = nothing;
  outcome ignored;
  uint64_t peak = t->active_bytes_peak;
  if (!t->use_count) return peak;
  settings.policy = &policy_builtins[0];
  settings.once = 1;
  settings.learnt_path = NULL; /* what the asked run learns is written */
  if (settings.limit_bytes < DEVICE_BYTES) settings.limit_bytes = 0;
  settings.cross_stream = GMLAKE_WAIT_FIRST;
  to.used_peak = &peak;
  return replay_trace(name, t, &allocators[0], &settings, &to, &ignored) ? peak : 0;
}

static void mean_add(mean *m, double utilization, double ns_per_op, uint64_t driver_ns) {
  if (!m->count || utilization < m->utilization_min) m->utilization_min = utilization;
  m->utilization_sum += utilization;
  m->ns_per_op_sum += ns_per_op;
  m->driver_ms += (double)driver_ns / 1e6;
  m->count++;
}

static void mean_add_outcome(mean *m, const trace *t, const outcome *o) {
  mean_add(m, ratio(t->active_bytes_peak, o->first.reserved_bytes_peak), o->ns_per_op,
           o->first.driver_ns);
}

static void mean_print(const mean *m, const char *name) {
  if (!m->count) return;
  printf("%-5s %2u traces of one stream: utilization mean %.4f, worst %.4f", name, m->count,
         m->utilization_sum / m->count, m->utilization_min);
  if (m->driver_ms > 0) printf("; driver %.1f ms in all", m->driver_ms);
  if (m->ns_per_op_sum > 0) printf("; %.0f ns per op", m->ns_per_op_sum / m->count);
  printf("\n");
}

static void summary_print(const summary *s) {
  printf(
      "\nused: live, or freed and still used by recorded streams, as torch counts, where the lake "
      "waits first; util: used by reserved\n");
  mean_print(&s->torch, "torch");
  mean_print(&s->bfc, "bfc");
  mean_print(&s->expandable, "expandable");
  mean_print(&s->other, s->other_name);
  mean_print(&s->lake, "lake");
  if (s->segments_ms > 0) {
    printf("lake's driver time: %.2f times the %.1f ms that 20 MiB segments take for its memory\n",
           s->lake.driver_ms / s->segments_ms, s->segments_ms);
  }
}

static const char *policy_label(const policy_plugin *policy) {
  return policy == &policy_builtins[0] ? "lake" : policy->name;
}

/* Prints the table's rows of the lake with a policy. A trace with several streams gets a row for
   each lag and each --cross-stream, unless one was asked for; if it tells itself when work was
   complete, it gets no other lag; any other trace gets one row. --cross-stream matters only for the
   lake's own policy. */
static int compare_lake(const char *name, const trace *t, const options *o,
                        const policy_plugin *policy, uint64_t used, summary *sum) {
  static const uint64_t lags_us[] = {0, 1000, 10000, UINT64_MAX};
  int all = t->stream_count > 1 && !o->lag && o->cross_stream < 0;
  int own = policy == &policy_builtins[0], ok = 1, told = t->done_count != 0;
  uint64_t pages;
  size_t i;
  for (i = 0; i < (!all ? 1u : told ? 2u : 8u); i += own ? 1 : 2) {
    config settings = o->settings;
    outcome result;
    char label[40];
    snprintf(label, sizeof label, "%.19s", policy_label(policy));
    settings.policy = policy;
    if (!own && !o->settings.policy) settings.once = 1; /* only its memory is shown */
    if (all) {
      uint64_t lag_us = lags_us[i / 2];
      int wait = i % 2 == 0;
      settings.lag_ns = lag_us == UINT64_MAX ? UINT64_MAX : lag_us * 1000;
      settings.lag_is_named = !told;
      settings.cross_stream = wait ? GMLAKE_WAIT_FIRST : GMLAKE_GROW_FIRST;
      snprintf(label, sizeof label, "%.19s%s lag %ld", policy_label(policy),
               !own   ? ""
               : wait ? " wait"
                      : " grow",
               (long)lag_us);
      if (lag_us == UINT64_MAX) strcpy(strrchr(label, ' '), " never");
      if (told) strcpy(strstr(label, " lag"), " told");
    }
    show_progress(name, label);
    if (!replay_trace(name, t, &allocators[0], &settings, &nothing, &result)) {
      ok = 0;
      continue;
    }
    clear_progress();
    print_row(name, label, t, used, &result);
    if (t->stream_count > 1) continue;
    mean_add_outcome(own ? &sum->lake : &sum->other, t, &result);
    if (!own) sum->other_name = policy->name;
    if (!own) continue;
    pages = (result.first.reserved_bytes_peak + EXPANDABLE_LARGE_PAGE - 1) / EXPANDABLE_LARGE_PAGE;
    sum->segments_ms += (double)(pages * EXPANDABLE_PAGE_NS) / 1e6;
  }
  return ok;
}

/* Prints the table's row of an allocator that knows no streams and no policy. */
static int compare_one(const char *name, const trace *t, const options *o, uint64_t used,
                       const allocator *with, mean *m) {
  outcome result;
  show_progress(name, with->name);
  if (!replay_trace(name, t, with, &o->settings, &nothing, &result)) return 0;
  clear_progress();
  print_row(name, with->name, t, used, &result);
  if (t->stream_count == 1) mean_add_outcome(m, t, &result);
  return 1;
}

static int compare_all(const char *name, const trace *t, const options *o, summary *sum) {
  const uint64_t used = used_peak(name, t, o);
  int single = t->stream_count == 1, ok;
  clear_progress();
  print_recorded_row(name, t, used);
  if (single && !t->is_of_lake && t->recorded_active_bytes_peak &&
      t->recorded_reserved_bytes_peak) {
    mean_add(&sum->torch, ratio(t->recorded_active_bytes_peak, t->recorded_reserved_bytes_peak), 0,
             0);
  }
  ok = compare_one(name, t, o, used, &allocators[1], &sum->bfc);
  ok &= compare_one(name, t, o, used, &allocators[3], &sum->expandable);
  if (o->settings.policy) return compare_lake(name, t, o, o->settings.policy, used, sum) && ok;
  ok &= compare_lake(name, t, o, &policy_builtins[1], used, sum);
  return compare_lake(name, t, o, &policy_builtins[0], used, sum) && ok;
}

/* Opens a file for rows or curves. Returns NULL after it has printed the failure. */
static FILE *open_record(const char *path, const char *head) {
  FILE *file = fopen(path, "w");
  if (file)
    fputs(head, file);
  else
    fprintf(stderr, "%s: %s\n", path, strerror(errno));
  return file;
}

/* Returns 0 after it has printed the failure. */
static int close_record(const char *path, FILE *file) {
  int unwritten = !file || ferror(file);
  if (!file) return 1;
  if (!fclose(file) && !unwritten) return 1;
  fprintf(stderr, "%s: cannot be written\n", path);
  return 0;
}

/* The page is called by the trace, and by the policy, if that is not the lake's own. */
static int write_page(page *drawn, const char *name, const config *settings) {
  const policy_plugin *policy = settings->policy;
  char title[100];
  if (policy == &policy_builtins[0])
    snprintf(title, sizeof title, "%s", name);
  else
    snprintf(title, sizeof title, "%.60s, policy %.29s", name, policy->name);
  return page_write(drawn, title, lake_device_bytes(settings));
}

static int replay_one(const char *name, const trace *t, const options *o) {
  const allocator *with = o->only ? o->only : &allocators[0];
  config settings = o->settings;
  outcome result;
  iterations rows;
  decisions told;
  series s;
  report seen;
  page drawn;
  records to = nothing;
  int ok = 1;
  memset(&s, 0, sizeof s);
  memset(&seen, 0, sizeof seen);
  memset(&rows, 0, sizeof rows);
  memset(&told, 0, sizeof told);
  memset(&drawn, 0, sizeof drawn);
  drawn.path = o->html_path;
  s.t = rows.t = told.t = seen.t = t;
  s.bucket_size = (t->op_count + SERIES_BUCKETS - 1) / SERIES_BUCKETS;
  if (!settings.policy) settings.policy = &policy_builtins[0];
  if (o->series_path) s.file = open_record(o->series_path, series_head);
  if (o->iterations_path) rows.file = open_record(o->iterations_path, iterations_head);
  if (o->decisions_path) told.file = open_record(o->decisions_path, "");
  if (s.file) to.points = &s;
  if (rows.file) to.rows = &rows;
  if (told.file) to.told = settings.told = &told;
  if (o->report) to.seen = &seen;
  if (o->report || o->html_path) settings.seen = &seen;
  if (o->html_path) to.drawn = &drawn;
  if (o->html_path && !page_begin(&drawn, &seen, t)) ok = 0;
  if ((o->series_path && !s.file) || (o->iterations_path && !rows.file) ||
      (o->decisions_path && !told.file))
    ok = 0;
  show_progress(name, with->name);
  ok = ok && replay_trace(name, t, with, &settings, &to, &result);
  clear_progress();
  if (ok && o->json) print_json(name, t, &result);
  if (ok && !o->json)
    print_row(name, with == &allocators[0] ? policy_label(settings.policy) : with->name, t,
              used_peak(name, t, o), &result);
  if (ok && o->report) report_print(&seen);
  if (ok && o->html_path) ok = write_page(&drawn, name, &settings);
  page_free(&drawn);
  report_free(&seen);
  ok = close_record(o->series_path, s.file) && ok;
  ok = close_record(o->decisions_path, told.file) && ok;
  return close_record(o->iterations_path, rows.file) && ok;
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

/* Returns the exit status. */
static int replay_path(const char *path, const options *o, summary *sum) {
  char name[256], error[512];
  trace t;
  int ok;
  trace_name(path, name, sizeof name);
  show_progress(name, "reading");
  if (!trace_load(path, &t, error, sizeof error)) {
    clear_progress();
    fprintf(stderr, "%s\n", error);
    return 2;
  }
  ok = o->only || o->json ? replay_one(name, &t, o) : compare_all(name, &t, o, sum);
  fflush(stdout);
  trace_free(&t);
  return ok ? 0 : 1;
}

static int usage_error(const char *reason, const char *value) {
  fprintf(stderr, "replay: %s%s%s (--help lists the options)\n", reason, value ? ": " : "",
          value ? value : "");
  return 2;
}

/* Prints that the policy has no such setting. Returns the exit status. */
static int key_error(const policy_plugin *policy, const char *knob) {
  char reason[1024];
  size_t i, used;
  used = (size_t)snprintf(reason, sizeof reason, "the policy %.60s has the settings", policy->name);
  for (i = 0; i < policy->key_count && used < sizeof reason; i++)
    used += (size_t)snprintf(reason + used, sizeof reason - used, "%s %.60s", i ? "," : "",
                             policy->keys[i].name);
  if (used < sizeof reason) snprintf(reason + used, sizeof reason - used, ", not");
  return usage_error(reason, knob);
}

static int knob_error(const policy_key *key, const char *knob) {
  char reason[512];
  snprintf(reason, sizeof reason, "the value does not fit (%.60s is %.300s)", key->name, key->help);
  return usage_error(reason, knob);
}

/* Finds one of our own policies, or loads that of a shared library, which stays loaded. Returns
   NULL after it has printed the failure. */
static const policy_plugin *find_policy(const char *name) {
  const policy_plugin *found = NULL;
  char path[4096];
  void *library;
  size_t i, length = strlen(name);
  for (i = 0; i < POLICY_BUILTIN_COUNT; i++)
    if (!strcmp(name, policy_builtins[i].name)) return &policy_builtins[i];
  if (!strchr(name, '/') && (length < 3 || strcmp(name + length - 3, ".so") != 0)) {
    usage_error("--policy takes default, paper or the path of a file.so, not", name);
    return NULL;
  }
  snprintf(path, sizeof path, "%s%s", strchr(name, '/') ? "" : "./", name);
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (library) found = (const policy_plugin *)dlsym(library, POLICY_SYMBOL);
  if (!found) {
    usage_error(
        library ? "the library does not define " POLICY_SYMBOL ", see bench/policy.h" : dlerror(),
        library ? name : NULL);
  } else if (found->struct_bytes != sizeof(policy_plugin) ||
             found->policy_bytes != sizeof(gmlake_policy)) {
    usage_error("the library was built for another version of gmlake.h: build it again", name);
    found = NULL;
  }
  return found;
}

/* Returns -1 if all settings fit, else the exit status. */
static int set_knobs(const options *o, const policy_plugin *policy) {
  size_t i;
  for (i = 0; i < o->knobs.count; i++) {
    const char *knob = o->knobs.values[i], *equals = strchr(knob, '=');
    const policy_key *key;
    if (!equals) return usage_error("--set takes KEY=VALUE, not", knob);
    key = policy_find_key(policy, knob, (size_t)(equals - knob));
    if (!key) return key_error(policy, knob);
    if (!policy->set(key->name, equals + 1)) return knob_error(key, knob);
  }
  return -1;
}

static void print_knobs(const policy_plugin *policy) {
  size_t i;
  printf("\n--policy %s: %s\n", policy->name, policy->help);
  for (i = 0; i < policy->key_count; i++) {
    const policy_key *key = &policy->keys[i];
    printf("  --set %-20s %s (%s)\n", key->name, key->help, key->value);
  }
}

/* Finds the policy that the options name, and changes its settings. Returns -1 if the program goes
   on, else the exit status. */
static int choose_policy(options *o) {
  const int is_named = o->policy_name || o->knobs.count;
  if (!is_named) return -1;
  if (o->only && o->only != &allocators[0])
    return usage_error("--policy and --set work only with --allocator lake, not with",
                       o->only->name);
  o->settings.policy = o->policy_name ? find_policy(o->policy_name) : &policy_builtins[0];
  return o->settings.policy ? set_knobs(o, o->settings.policy) : 2;
}

static void print_help(const option_reader *reader, const policy_plugin *policy) {
  options_help(reader);
  print_knobs(&policy_builtins[0]);
  print_knobs(&policy_builtins[1]);
  if (policy && policy != &policy_builtins[0] && policy != &policy_builtins[1]) print_knobs(policy);
}

/* Computes the settings from the options. */
static void settle(const option_reader *reader, options *o) {
  static const gmlake_cross_stream orders[] = {GMLAKE_WAIT_FIRST, GMLAKE_GROW_FIRST};
  static const char *const lag_takes = "a whole number of microseconds, or never";
  uint64_t us = 0;
  int never = o->lag && !strcmp(o->lag, "never");
  if (o->lag && !never && !policy_number(o->lag, TRACE_TIME_US_MAX, &us))
    options_wrong(reader, "stream-lag-us", lag_takes, o->lag);
  o->settings.lag_ns = never ? UINT64_MAX : us * 1000;
  o->settings.lag_is_named = o->lag != NULL;
  o->settings.cross_stream = orders[o->cross_stream < 0 ? 0 : o->cross_stream];
  if (o->costs > 0) o->settings.costs = (gmlake_mock_costs)o->costs;
  o->settings.chunk_bytes = (size_t)o->chunk_mib * MIB;
  o->settings.limit_bytes = (size_t)o->limit_mib * MIB;
  if (o->allocator >= 0) o->only = &allocators[o->allocator];
}

/* Checks that the options fit each other. Returns -1 if the program goes on, else the exit
   status. */
static int check_together(options *o) {
  if ((o->iterations_path || o->decisions_path || o->report || o->html_path) && !o->only &&
      !o->json)
    o->only = &allocators[0];
  if (o->report && (o->json || o->only != &allocators[0]))
    return usage_error(o->json ? "--report works only without --json"
                               : "--report works only with --allocator lake, not with",
                       o->json ? NULL : o->only->name);
  if (o->series_path && (!o->only || o->path_count != 1))
    return usage_error("--series needs --allocator and one trace", NULL);
  if (o->iterations_path && o->path_count != 1)
    return usage_error("--iterations needs one trace", NULL);
  if ((o->settings.profile_path || o->settings.learnt_path) &&
      (o->path_count != 1 || (o->only && o->only != &allocators[0])))
    return usage_error("--profile and --save-profile need one trace, and the lake alone", NULL);
  if ((o->settings.profile_path || o->settings.learnt_path) && !o->json) o->only = &allocators[0];
  if (o->html_path && o->path_count != 1) return usage_error("--html needs one trace", NULL);
  if (o->html_path && o->only && o->only != &allocators[0])
    return usage_error("--html works only with --allocator lake, not with", o->only->name);
  if (o->html_path) o->settings.once = 1;
  if (!o->decisions_path) return -1;
  if (o->path_count != 1) return usage_error("--decisions needs one trace", NULL);
  if (!o->only) o->only = &allocators[0];
  if (o->only != &allocators[0])
    return usage_error("--decisions works only with --allocator lake, not with", o->only->name);
  o->settings.once = 1;
  return -1;
}

static const char about[] =
    "Replays recorded allocations on a modelled H200 (139.8 GiB), and prints the memory and the\n"
    "driver time that each allocator needs for them. Without TRACE it replays all traces that\n"
    "match bench/traces/*.gmtrace.gz, and those of bench/traces/streams, which tell when work was\n"
    "complete.\n";

static const char more[] =
    "\nColumns:\n"
    "  live GiB           most memory that the live blocks needed at once\n"
    "  used GiB           the same with what recorded streams still use of freed blocks, as torch\n"
    "                     counts, where the lake waits first\n"
    "  reserved GiB       most memory that the allocator held at once\n"
    "  util               used / reserved\n"
    "  driver calls, ms   in the first pass; what they cost is modelled\n"
    "  calls of 2nd half  driver calls in the second half of the iterations\n"
    "  ns per op          processor time of an allocation or a free, in the second pass\n"
    "A figure that is not known is -.\n"
    "\nExit status: 0, 1 if an allocator failed, 2 if the arguments or a trace are bad.\n";

/* Reads what the rows describe. Returns -1 if the program goes on, else the exit status. */
static int read_arguments(const option_row *rows, size_t row_count, int argc, char **argv,
                          options *o) {
  const option_reader reader = {"replay", "[OPTION]... [TRACE]...", about, more, rows, row_count};
  int first, status;
  memset(o, 0, sizeof *o);
  o->allocator = o->cross_stream = o->costs = -1;
  first = options_parse(&reader, argc, argv, &o->help);
  o->paths = argv + first;
  o->path_count = (size_t)(argc - first);
  settle(&reader, o);
  status = choose_policy(o);
  if (status >= 0) return status;
  if (!o->help) return check_together(o);
  print_help(&reader, o->settings.policy);
  return 0;
}

/* Returns -1 if the program goes on, else the exit status. */
static int parse_arguments(int argc, char **argv, options *o) {
  const option_row rows[] = {
      {"allocator", OPTION_WORD, &o->allocator, 0, 0, "lake|bfc|native|expandable",
       "replays with one allocator only, and prints one row for each trace:\n"
       "lake is gmlake.h, bfc is gmlake_bfc.h (torch's native rules), with\n"
       "native each allocation calls the driver, expandable is a model of\n"
       "torch's expandable segments. Without it, the rows are torch's own\n"
       "recorded peak, bfc, expandable, the lake with the paper's policy, and\n"
       "the lake with its own policy"},
      {"once", OPTION_FLAG, &o->settings.once, 0, 0, NULL,
       "replays each trace once. The time of an operation, which needs a\n"
       "second pass, is not measured"},
      {"json", OPTION_FLAG, &o->json, 0, 0, NULL,
       "prints a JSON object a line (of the lake, if no allocator is named)"},
      {"stream-lag-us", OPTION_TEXT, &o->lag, 0, 0, "N|never",
       "work that uses a block completes N microseconds after its free, by\n"
       "the trace's clock, or never (default: as the trace tells, else 0). It\n"
       "matters only for traces with several streams"},
      {"cross-stream", OPTION_WORD, &o->cross_stream, 0, 0, "wait|grow",
       "when the lake takes memory that another stream may still use: before\n"
       "it grows (wait, the default here), or after growth has failed (grow)"},
      {"streams-stay", OPTION_FLAG, &o->settings.streams_stay, 0, 0, NULL,
       "no stream ends, although a recording says that they may: as if each\n"
       "were marked GMLAKE_STREAM_STAYS, as those of gmlake_torch are"},
      {"chunk-mib", OPTION_POWER, &o->chunk_mib, 2, 1024, "N",
       "size of the lake's chunks in MiB, a power of two; default: its choice"},
      {"profile", OPTION_TEXT, &o->settings.profile_path, 0, 0, "FILE",
       "creates first what this profile tells of; for the lake, one TRACE"},
      {"save-profile", OPTION_TEXT, &o->settings.learnt_path, 0, 0, "FILE",
       "writes the first pass's"},
      {"costs", OPTION_WORD, &o->costs, 0, 0, "alone|replayed|busy",
       "what a driver call costs: as when nothing else runs (alone, the\n"
       "default), as measured among the calls of these traces (replayed), or\n"
       "as torch's programs pay for it while they use the GPU (busy)"},
      {"limit-mib", OPTION_COUNT, &o->limit_mib, 1, LIMIT_MIB_MAX, "N",
       "the most physical memory that an allocator may hold, in MiB"},
      {"policy", OPTION_TEXT, &o->policy_name, 0, 0, "NAME",
       "the policy by which the lake serves requests: `default` or `paper`,\n"
       "see below, or the path of a shared library, see bench/policy.h"},
      {"set", OPTION_LIST, &o->knobs, 0, OPTION_LIST_MAX, "KEY=VALUE",
       "changes a setting of that policy; may be repeated"},
      {"series", OPTION_TEXT, &o->series_path, 0, 0, "FILE",
       "writes live and reserved bytes over time as CSV; needs --allocator and\n"
       "one TRACE"},
      {"iterations", OPTION_TEXT, &o->iterations_path, 0, 0, "FILE",
       "writes a row of TSV for each iteration: requests by the paper's state,\n"
       "how many were of 2 MiB and more, peaks, driver time; needs one TRACE"},
      {"report", OPTION_FLAG, &o->report, 0, 0, NULL,
       "prints where the lake's memory is when it holds most, and what each\n"
       "iteration costs in the driver; only for the lake, without --json"},
      {"html", OPTION_TEXT, &o->html_path, 0, 0, "FILE",
       "draws the lake's memory over time: a page for any browser; one TRACE"},
      {"decisions", OPTION_TEXT, &o->decisions_path, 0, 0, "FILE",
       "writes each step of the lake and its reason, a JSON object a line, see\n"
       "bench/decisions.h; only for the lake, one pass, one TRACE"},
  };
  return read_arguments(rows, sizeof rows / sizeof rows[0], argc, argv, o);
}

static int replay_all(const options *o) {
  int status = 0, table = !o->json && !o->only;
  summary sum;
  size_t i;
  memset(&sum, 0, sizeof sum);
  if (!o->json) print_table_head();
  for (i = 0; i < o->path_count; i++) {
    int one = replay_path(o->paths[i], o, &sum);
    if (one > status) status = one;
  }
  if (table) summary_print(&sum);
  if (fflush(stdout) || ferror(stdout)) {
    fprintf(stderr, "replay: the output cannot be written\n");
    if (!status) status = 1;
  }
  return status;
}

int main(int argc, char **argv) {
  options o;
  glob_t found;
  int status = parse_arguments(argc, argv, &o);
  if (status >= 0) return status;
  if (o.path_count) return replay_all(&o);
  if (glob(DEFAULT_TRACES, 0, NULL, &found) || glob(DEFAULT_STREAMS, GLOB_APPEND, NULL, &found))
    return usage_error("no trace is named, and no file matches",
                       DEFAULT_TRACES " and " DEFAULT_STREAMS);
  o.paths = found.gl_pathv;
  o.path_count = found.gl_pathc;
  status = replay_all(&o);
  globfree(&found);
  return status;
}
