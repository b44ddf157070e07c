/* What `build/replay --report` prints: where the lake's memory is when it holds most, and what each
   iteration costs in the driver, by kind of call. */
#if !defined(REPORT_H)
#define REPORT_H

#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "trace.h"

/* ---- Calls of the driver, by kind ------------------------------------------------------------ */

enum {
  REPORT_create,
  REPORT_release,
  REPORT_map,
  REPORT_unmap,
  REPORT_set_access,
  REPORT_event_record,
  REPORT_event_query,
  REPORT_stream_wait,
  REPORT_host_wait,
  REPORT_other,
  REPORT_KIND_COUNT
};

typedef struct report_calls {
  uint64_t count[REPORT_KIND_COUNT], ns[REPORT_KIND_COUNT];
} report_calls;

/* How long streams stand still for the lake's waits on the device: from when the work that was
   queued before is complete, to when the event is. A stream's later work is not moved. */
typedef struct report_device {
  const gmlake_stream *streams; /* the lake's, by their number in the trace */
  const uint64_t *lag_ns;       /* of each: from queueing to completion, now */
  size_t stream_count;
  uint64_t now_ns;                      /* of the trace */
  uint64_t ready_ns[TRACE_STREAMS_MAX]; /* until when the lake's waits hold the stream */
  uint64_t still_ns;                    /* in all */
  struct {
    const void *event;
    uint64_t due_ns;
  } * events; /* event_count of them */
  size_t event_count, event_capacity;
} report_device;

/* A backend that counts the calls of another one. */
typedef struct report_backend {
  gmlake_backend table;
  const gmlake_backend *inner;
  report_calls calls;
  report_device device;
} report_backend;

/* When what is queued on a stream now is complete. */
static uint64_t report_due(const report_device *d, gmlake_stream stream, size_t *out_index) {
  size_t i = 0;
  while (i < d->stream_count && d->streams[i] != stream) i++;
  *out_index = i < d->stream_count ? i : 0;
  if (i == d->stream_count) return d->now_ns;
  return d->lag_ns[i] == UINT64_MAX ? UINT64_MAX : d->now_ns + d->lag_ns[i];
}

static void report_recorded(report_device *d, const void *event, gmlake_stream stream) {
  size_t i = 0, s;
  void *grown;
  while (i < d->event_count && d->events[i].event != event) i++;
  if (i == d->event_capacity) {
    d->event_capacity = i ? 2 * i : 64;
    grown = realloc(d->events, d->event_capacity * sizeof *d->events);
    if (!grown) abort();
    *(void **)&d->events = grown;
  }
  if (i == d->event_count) d->event_count++;
  d->events[i].event = event;
  d->events[i].due_ns = report_due(d, stream, &s);
}

static void report_waited(report_device *d, const void *event, gmlake_stream stream) {
  size_t i = 0, s;
  uint64_t ready = report_due(d, stream, &s);
  while (i < d->event_count && d->events[i].event != event) i++;
  if (i == d->event_count) return;
  if (d->ready_ns[s] > ready) ready = d->ready_ns[s];
  if (d->events[i].due_ns <= ready || d->events[i].due_ns == UINT64_MAX) return;
  d->still_ns += d->events[i].due_ns - ready;
  d->ready_ns[s] = d->events[i].due_ns;
}

static gmlake_result report_count(report_backend *b, int kind, uint64_t begin_ns,
                                  gmlake_result result) {
  b->calls.count[kind]++;
  b->calls.ns[kind] += b->inner->clock_ns(b->inner->user) - begin_ns;
  return result;
}

/* A function of the table: it has the parameters, and calls the inner one with the arguments. */
#define REPORT_CALL(name, kind, parameters, arguments)                   \
  static gmlake_result report_##name parameters {                        \
    report_backend *b = (report_backend *)user;                          \
    const uint64_t ns = b->inner->clock_ns(b->inner->user);              \
    return report_count(b, REPORT_##kind, ns, b->inner->name arguments); \
  }

REPORT_CALL(get_memory_info, other, (void *user, size_t *a, size_t *c, int *code),
            (b->inner->user, a, c, code))
REPORT_CALL(reserve, other, (void *user, size_t a, size_t c, uint64_t *d, int *code),
            (b->inner->user, a, c, d, code))
REPORT_CALL(unreserve, other, (void *user, uint64_t a, size_t c, int *code),
            (b->inner->user, a, c, code))
REPORT_CALL(create, create, (void *user, size_t a, unsigned c, uint64_t *d, int *code),
            (b->inner->user, a, c, d, code))
REPORT_CALL(release, release, (void *user, uint64_t a, int *code), (b->inner->user, a, code))
REPORT_CALL(map, map, (void *user, uint64_t a, size_t c, uint64_t d, int *code),
            (b->inner->user, a, c, d, code))
REPORT_CALL(unmap, unmap, (void *user, uint64_t a, size_t c, int *code),
            (b->inner->user, a, c, code))
REPORT_CALL(set_access, set_access,
            (void *user, uint64_t a, size_t c, const int *d, size_t e, int *code),
            (b->inner->user, a, c, d, e, code))
REPORT_CALL(event_create, other, (void *user, void **a, int *code), (b->inner->user, a, code))
REPORT_CALL(event_destroy, other, (void *user, void *a, int *code), (b->inner->user, a, code))
static gmlake_result report_event_record(void *user, void *event, gmlake_stream stream, int *code) {
  report_backend *b = (report_backend *)user;
  const uint64_t ns = b->inner->clock_ns(b->inner->user);
  report_recorded(&b->device, event, stream);
  return report_count(b, REPORT_event_record, ns,
                      b->inner->event_record(b->inner->user, event, stream, code));
}
REPORT_CALL(event_query, event_query, (void *user, void *a, int *c, int *code),
            (b->inner->user, a, c, code))
REPORT_CALL(event_wait, host_wait, (void *user, void *a, int *code), (b->inner->user, a, code))
static gmlake_result report_stream_wait(void *user, gmlake_stream stream, void *event, int *code) {
  report_backend *b = (report_backend *)user;
  const uint64_t ns = b->inner->clock_ns(b->inner->user);
  report_waited(&b->device, event, stream);
  return report_count(b, REPORT_stream_wait, ns,
                      b->inner->stream_wait(b->inner->user, stream, event, code));
}
REPORT_CALL(device_wait, host_wait, (void *user, int *code), (b->inner->user, code))

/* What the lake does not count either. */
static gmlake_result report_get_properties(void *user, gmlake_device_properties *out, int *code) {
  const gmlake_backend *inner = ((report_backend *)user)->inner;
  return inner->get_properties(inner->user, out, code);
}

static gmlake_result report_capture_exchange(void *user, int *mode, int *code) {
  const gmlake_backend *inner = ((report_backend *)user)->inner;
  return inner->capture_exchange(inner->user, mode, code);
}

static gmlake_result report_stream_id(void *user, gmlake_stream stream, uint64_t *id, int *code) {
  const gmlake_backend *inner = ((report_backend *)user)->inner;
  return inner->stream_id(inner->user, stream, id, code);
}

static uint64_t report_clock_ns(void *user) {
  const gmlake_backend *inner = ((report_backend *)user)->inner;
  return inner->clock_ns(inner->user);
}

/* The table that counts what is called of `inner`, which is a mock's. */
static const gmlake_backend *report_wrap(report_backend *b, const gmlake_backend *inner) {
  memset(&b->table, 0, sizeof b->table);
  b->inner = inner;
  b->table.struct_bytes = sizeof b->table;
  b->table.abi_version = GMLAKE_BACKEND_ABI;
  b->table.user = b;
  b->table.get_properties = report_get_properties;
  b->table.get_memory_info = report_get_memory_info;
  b->table.reserve = report_reserve;
  b->table.unreserve = report_unreserve;
  b->table.create = report_create;
  b->table.release = report_release;
  b->table.map = report_map;
  b->table.unmap = report_unmap;
  b->table.set_access = report_set_access;
  b->table.event_create = report_event_create;
  b->table.event_destroy = report_event_destroy;
  b->table.event_record = report_event_record;
  b->table.event_query = report_event_query;
  b->table.event_wait = report_event_wait;
  b->table.stream_wait = report_stream_wait;
  b->table.capture_exchange = report_capture_exchange;
  b->table.clock_ns = report_clock_ns;
  b->table.stream_id = report_stream_id;
  b->table.device_wait = report_device_wait;
  return &b->table;
}

/* ---- Where the memory is --------------------------------------------------------------------- */

/* Bytes, at the moment when the lake holds most. Free memory is tagged while work on a stream may
   still use it; only that stream may have it without a wait. */
typedef struct report_peak {
  size_t op; /* after it */
  uint64_t reserved, live;
  uint64_t pending[TRACE_STREAMS_MAX + 1]; /* freed, and recorded streams still use it, by the
                                              stream of the allocation; last: of no stream */
  uint64_t tagged[TRACE_STREAMS_MAX];      /* free in whole chunks, by stream */
  uint64_t clean;                          /* the same, free for every stream */
  uint64_t split; /* free whole chunks of which no stream may have all, without a wait */
  uint64_t holes; /* free, in holes that have no whole chunk, or beside those of a larger one */
  uint64_t idle_windows, idle_window_bytes; /* mapped and not in use */
} report_peak;

/* What happened in an iteration. Operations before the first mark are iteration 0. */
typedef struct report_row {
  report_calls calls;                              /* up to its end */
  unsigned long stitched, rebuilt, evicted, waits; /* rebuilt: windows of a size that there was */
  uint64_t grown_bytes;
  uint64_t still_ns; /* up to its end */
} report_row;

typedef struct report {
  const trace *t;
  gmlake *lake;
  const gmlake_stream *streams; /* the lake's, by their number in the trace */
  report_backend backend;
  report_peak peak;
  uint64_t used_peak; /* most bytes live, or freed and still used on recorded streams: torch calls
                         these active */
  report_row *rows;
  size_t row_count, row_capacity;
  size_t *sizes; /* of windows that were stitched */
  size_t size_count, size_capacity;
  gmlake_map_entry *map; /* as it was looked at last: map_count entries */
  size_t map_count, map_capacity;
  int is_over, has_failed; /* the trace has ended; host memory ran out */
} report;

/* Makes room for one more item. Returns 0 if host memory ran out. */
static int report_room(report *r, void **items, size_t count, size_t *capacity, size_t bytes) {
  const size_t wanted = *capacity ? 2 * *capacity : 64;
  void *grown;
  if (count < *capacity) return 1;
  grown = realloc(*items, wanted * bytes);
  if (!grown) {
    r->has_failed = 1;
    return 0;
  }
  *items = grown;
  *capacity = wanted;
  return 1;
}

static void report_free(report *r) {
  free(r->rows);
  free(r->sizes);
  free(r->map);
  free(r->backend.device.events);
}

/* The stream's number in the order of the trace; stream_count: it is none of them. */
static size_t report_stream(const report *r, gmlake_stream stream) {
  size_t i = 0;
  while (i < r->t->stream_count && r->streams[i] != stream) i++;
  return i;
}

/* How many bytes of [begin, end) are whole chunks. */
static uint64_t report_whole(uint64_t begin, uint64_t end, uint64_t chunk) {
  const uint64_t first = (begin + chunk - 1) / chunk * chunk, last = end / chunk * chunk;
  return last > first ? last - first : 0;
}

/* Adds free ranges that lie together, entries [begin, end) of the map. A part is what one stream
   may have without a wait: in the order of addresses, ranges of one tag. */
static void report_add_run(report *r, size_t begin, size_t end, uint64_t chunk) {
  const gmlake_map_entry *map = r->map;
  const uint64_t from = map[begin].address, to = map[end - 1].address + map[end - 1].bytes;
  const uint64_t whole = report_whole(from, to, chunk);
  uint64_t in_parts = 0, bytes;
  size_t i, n, stream;
  for (i = begin; i < end; i = n) {
    for (n = i + 1; n < end && map[n].state == map[i].state && map[n].stream == map[i].stream; n++)
      continue;
    bytes = report_whole(map[i].address, map[n - 1].address + map[n - 1].bytes, chunk);
    stream = report_stream(r, map[i].stream);
    in_parts += bytes;
    if (map[i].state == GMLAKE_STATE_TAGGED && stream < r->t->stream_count)
      r->peak.tagged[stream] += bytes;
    else
      r->peak.clean += bytes;
  }
  r->peak.split += whole - in_parts;
  r->peak.holes += to - from - whole;
}

/* Adds a chunk of buffers. */
static void report_add_bare(report *r, const gmlake_map_entry *e) {
  const size_t stream = report_stream(r, e->stream);
  if (e->state == GMLAKE_STATE_LIVE)
    r->peak.live += e->bytes;
  else if (e->state == GMLAKE_STATE_TAGGED && stream < r->t->stream_count)
    r->peak.tagged[stream] += e->bytes;
  else
    r->peak.clean += e->bytes;
}

/* Whether an entry lies behind the one before it, and both are free. */
static int report_goes_on(const gmlake_map_entry *e) {
  return e->kind == GMLAKE_KIND_HOLE && e[-1].kind == GMLAKE_KIND_HOLE &&
         e[-1].address + e[-1].bytes == e->address;
}

/* Counts where the memory is now. */
static void report_look(report *r, size_t op, const gmlake_stats *stats) {
  gmlake_desc desc;
  size_t count = 0, i, n;
  memset(&desc, 0, sizeof desc);
  memset(&r->peak, 0, sizeof r->peak);
  r->peak.op = op;
  r->peak.reserved = stats->reserved_bytes;
  if (gmlake_get_desc(r->lake, &desc)) return;
  r->map_count = 0;
  while (!gmlake_get_map(r->lake, r->map, r->map_capacity, &count) && count > r->map_capacity)
    if (!report_room(r, (void **)&r->map, r->map_capacity, &r->map_capacity, sizeof *r->map))
      return;
  r->map_count = count;
  for (i = 0; i < count; i = n) {
    const gmlake_map_entry *e = &r->map[i];
    for (n = i + 1; n < count && report_goes_on(&r->map[n]); n++) continue;
    if (e->kind == GMLAKE_KIND_CHUNK && !e->address) report_add_bare(r, e);
    if (e->kind == GMLAKE_KIND_HOLE) report_add_run(r, i, n, desc.chunk_bytes);
    if (e->kind == GMLAKE_KIND_BLOCK && e->state == GMLAKE_STATE_PENDING)
      r->peak.pending[report_stream(r, e->stream)] += e->bytes;
    else if (e->kind == GMLAKE_KIND_BLOCK)
      r->peak.live += e->bytes;
    if (e->kind != GMLAKE_KIND_WINDOW) continue;
    r->peak.idle_windows++;
    r->peak.idle_window_bytes += e->bytes;
  }
}

/* ---- What happens ---------------------------------------------------------------------------- */

/* Counts a window that is made. */
static void report_stitch(report *r, report_row *row, size_t bytes) {
  size_t i = 0;
  row->stitched++;
  while (i < r->size_count && r->sizes[i] != bytes) i++;
  row->rebuilt += i < r->size_count;
  if (i < r->size_count) return;
  if (report_room(r, (void **)&r->sizes, r->size_count, &r->size_capacity, sizeof *r->sizes))
    r->sizes[r->size_count++] = bytes;
}

/* Is told of what desc.observer is told of. */
static void report_note(report *r, const gmlake_step *step) {
  report_row *row;
  if (r->is_over || !r->row_count) return;
  row = &r->rows[r->row_count - 1];
  if (step->kind == GMLAKE_STEP_STITCH) report_stitch(r, row, step->bytes);
  if (step->kind == GMLAKE_STEP_GROW) row->grown_bytes += step->bytes;
  row->evicted += step->kind == GMLAKE_STEP_EVICT;
  row->waits += step->kind == GMLAKE_STEP_WAIT;
}

/* Before an operation: begins the iterations that it begins. */
static void report_before(report *r, size_t op) {
  const trace *t = r->t;
  size_t passed = r->row_count ? r->row_count - 1 : 0;
  while (!r->row_count || (passed < t->mark_count && t->marks[passed] <= op)) {
    if (r->row_count) {
      r->rows[r->row_count - 1].calls = r->backend.calls;
      r->rows[r->row_count - 1].still_ns = r->backend.device.still_ns;
      passed++;
    }
    if (!report_room(r, (void **)&r->rows, r->row_count, &r->row_capacity, sizeof *r->rows)) return;
    memset(&r->rows[r->row_count++], 0, sizeof *r->rows);
  }
}

/* After it. */
static void report_after(report *r, size_t op) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  if (gmlake_get_stats(r->lake, &stats)) return;
  if (stats.active_bytes + stats.pending_bytes > r->used_peak)
    r->used_peak = stats.active_bytes + stats.pending_bytes;
  if (stats.reserved_bytes > r->peak.reserved) report_look(r, op, &stats);
  if (r->row_count) r->rows[r->row_count - 1].calls = r->backend.calls;
  if (r->row_count) r->rows[r->row_count - 1].still_ns = r->backend.device.still_ns;
}

/* ---- Printing -------------------------------------------------------------------------------- */

static double report_gib(uint64_t bytes) { return (double)bytes / (1024.0 * 1024.0 * 1024.0); }

static void report_line(const report *r, const char *what, uint64_t bytes) {
  printf("  %-50s %8.3f GiB %6.2f %%\n", what, report_gib(bytes),
         100 * (double)bytes / (double)(r->peak.reserved ? r->peak.reserved : 1));
}

/* The same of a stream, if it has any. */
static void report_stream_line(const report *r, const char *what, size_t stream, uint64_t bytes) {
  char text[64];
  if (!bytes) return;
  if (stream == r->t->stream_count || stream == r->t->no_stream)
    snprintf(text, sizeof text, "%s no stream", what);
  else
    snprintf(text, sizeof text, "%s stream %llu", what, (unsigned long long)r->t->streams[stream]);
  report_line(r, text, bytes);
}

static void report_print_peak(const report *r) {
  const trace_op *op = &r->t->ops[r->peak.op];
  const uint64_t live_peak = r->t->active_bytes_peak;
  size_t i;
  printf("\nThe lake holds most after event %lu, at %.3f s: %.3f GiB, for the %s of %lu bytes on ",
         (unsigned long)r->peak.op, (double)op->time_us / 1e6, report_gib(r->peak.reserved),
         trace_op_name(op->type), (unsigned long)op->bytes);
  if (op->stream == r->t->no_stream)
    printf("no stream.\n");
  else
    printf("stream %llu.\n", (unsigned long long)r->t->streams[op->stream]);
  printf(
      "In the whole trace %.3f GiB are live at most (%.4f of that), with what recorded streams\n"
      "still use, which torch counts too, %.3f GiB (%.4f).\n",
      report_gib(live_peak), (double)live_peak / (double)r->peak.reserved, report_gib(r->used_peak),
      (double)r->used_peak / (double)r->peak.reserved);
  report_line(r, "live", r->peak.live);
  for (i = 0; i <= r->t->stream_count; i++)
    report_stream_line(r, "freed, recorded streams still use it:", i, r->peak.pending[i]);
  for (i = 0; i < r->t->stream_count; i++)
    report_stream_line(r, "free, whole chunks, still used by", i, r->peak.tagged[i]);
  report_line(r, "free, whole chunks, for every stream", r->peak.clean);
  report_line(r, "free, whole chunks that several streams share", r->peak.split);
  report_line(r, "free, in holes below a chunk", r->peak.holes);
  printf("  %lu idle windows map %.3f GiB of it.\n", (unsigned long)r->peak.idle_windows,
         report_gib(r->peak.idle_window_bytes));
}

static const char *const report_kind_names[] = {"create", "release", "map",   "unmap", "access",
                                                "record", "query",   "swait", "hwait", "other"};

static void report_print_rows(const report *r) {
  report_calls before;
  uint64_t still_ns = 0;
  size_t i;
  int k;
  memset(&before, 0, sizeof before);
  printf(
      "\nIn each iteration: GiB created; windows stitched, of these of a size that there had been\n"
      "one of (again), dropped; waits; ms that streams stand still for them; ms in the driver, "
      "and\n"
      "its calls by kind.\n%9s %7s %6s %6s "
      "%6s %6s %6s %8s",
      "iteration", "created", "stitch", "again", "drop", "waits", "still", "ms");
  for (k = 0; k < REPORT_KIND_COUNT; k++) printf(" %7s", report_kind_names[k]);
  printf("\n");
  for (i = 0; i < r->row_count; i++) {
    const report_row *row = &r->rows[i];
    uint64_t ns = 0;
    for (k = 0; k < REPORT_KIND_COUNT; k++) ns += row->calls.ns[k] - before.ns[k];
    printf("%9lu %7.3f %6lu %6lu %6lu %6lu %6.2f %8.3f", (unsigned long)i,
           report_gib(row->grown_bytes), row->stitched, row->rebuilt, row->evicted, row->waits,
           (double)(row->still_ns - still_ns) / 1e6, (double)ns / 1e6);
    for (k = 0; k < REPORT_KIND_COUNT; k++)
      printf(" %7llu", (unsigned long long)(row->calls.count[k] - before.count[k]));
    printf("\n");
    before = row->calls;
    still_ns = row->still_ns;
  }
}

static void report_print(const report *r) {
  if (r->has_failed || !r->peak.reserved) {
    printf("\n%s\n", r->has_failed ? "No report: out of host memory." : "The lake held nothing.");
    return;
  }
  report_print_peak(r);
  report_print_rows(r);
}

#endif
