/* Fuzz target: the input is a trace file for the reader of bench/trace.h, plain; and gzipped, which
   must read the same. What is accepted keeps the reader's promises, so that a lake can replay
   it. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE
#endif
#include "trace.h"

#include "fuzz_file.h"

#define MIB ((size_t)1 << 20)

/* ---- What the reader promises ---------------------------------------------------------------- */

/* The error is text that begins with the path, cut where the caller's room ends. */
static void check_refused(const trace *t, const char *path, const char *error, size_t room) {
  size_t length = strlen(path);
  REQUIRE(memchr(error, 0, room));
  REQUIRE(!strncmp(error, path, length < room - 1 ? length : room - 1));
  REQUIRE(room < 100 || (error[length] == ':' && strstr(error, ": ")));
  REQUIRE(!t->ops && !t->marks && !t->uses && !t->done && !t->op_count);
}

/* Streams differ, and each is named somewhere; in version 1 they have numbers by first use. */
static void check_streams(const trace *t) {
  unsigned char named[TRACE_STREAMS_MAX];
  size_t i, n, seen = 0;
  memset(named, 0, sizeof named);
  REQUIRE(t->stream_count <= TRACE_STREAMS_MAX);
  REQUIRE(t->no_stream == SIZE_MAX || (t->version == 2 && t->no_stream < t->stream_count));
  for (i = 0; i < t->stream_count; i++)
    for (n = 0; n < i; n++)
      REQUIRE(t->streams[i] != t->streams[n] || i == t->no_stream || n == t->no_stream);
  for (i = 0; i < t->op_count; i++) {
    if (t->ops[i].type == TRACE_BUFFER) continue; /* which has none */
    REQUIRE(t->ops[i].stream < t->stream_count);
    REQUIRE(t->version > 1 || t->ops[i].stream <= seen);
    seen += t->ops[i].stream == seen;
    named[t->ops[i].stream] = 1;
  }
  for (i = 0; i < t->use_count; i++) named[t->uses[i].stream] = 1;
  for (i = 0; i < t->done_count; i++) named[t->done[i].stream] = 1;
  REQUIRE(!memchr(named, 0, t->stream_count));
}

/* What completes goes forward on each stream, and the links find all of it. */
static void check_done(const trace *t) {
  size_t i, n, found = 0;
  for (i = 0; i < t->done_count; i++) {
    REQUIRE(t->done[i].stream < t->stream_count && t->done[i].stream != t->no_stream);
    REQUIRE(t->done[i].queued_us <= t->done[i].done_us);
    REQUIRE(t->done[i].done_us <= TRACE_TIME_US_MAX);
  }
  for (i = 0; i < t->stream_count; i++) {
    for (n = t->done_first[i]; n; n = t->done[n - 1].next) {
      const trace_done *d = &t->done[n - 1], *next = d->next ? &t->done[d->next - 1] : NULL;
      found++;
      REQUIRE(n <= t->done_count && d->stream == i);
      REQUIRE(!next || (next > d && next->queued_us >= d->queued_us));
    }
  }
  REQUIRE(found == t->done_count && (t->version > 1 || (!found && !t->use_count)));
}

static void check_marks(const trace *t) {
  size_t i;
  for (i = 0; i < t->mark_count; i++) {
    REQUIRE(t->marks[i] <= t->op_count);
    REQUIRE(i == 0 || t->marks[i - 1] <= t->marks[i]);
  }
}

static void check_alloc(const trace_op *op, const trace_op **live) {
  REQUIRE(!live[op->id] && op->bytes <= TRACE_BYTES_MAX && op->type <= TRACE_END);
  REQUIRE(op->type == TRACE_ALLOC ? !op->offset : op->bytes && op->offset >= 2 * MIB);
  REQUIRE((op->offset & (op->offset - !!op->offset)) == 0 && op->offset <= 1024 * MIB);
  live[op->id] = op;
}

/* Ranges lie in their buffers. *active counts the memory of those that have some: it is recounted
   from the operations since the buffer began. */
static void check_range(const trace *t, const trace_op *op, const trace_op *from, size_t *active) {
  const size_t chunk = from->offset, places = (from->bytes - 1) / chunk + 1;
  unsigned char *has = (unsigned char *)calloc(places, 1);
  size_t i, before = 0, after = 0;
  const trace_op *o;
  REQUIRE(has && places <= TRACE_PLACES_MAX);
  for (o = from + 1; o <= op; o++) {
    if (o->id != op->id) continue;
    if (o == op)
      for (i = 0; i < places; i++) before += has[i] * chunk;
    if (o->type == TRACE_END) break;
    REQUIRE(o->offset % chunk == 0 && o->bytes % chunk == 0 && o->offset <= places * chunk);
    REQUIRE(o->bytes <= places * chunk - o->offset);
    memset(has + o->offset / chunk, o->type == TRACE_COMMIT, o->bytes / chunk);
  }
  for (i = 0; i < places && op->type != TRACE_END; i++) after += has[i] * chunk;
  REQUIRE(op < t->ops + t->op_count && *active >= before);
  *active = *active - before + after;
  free(has);
}

static void check_free(const trace_op *op, const trace_op **live) {
  const trace_op *from = live[op->id];
  REQUIRE(from && from->bytes == op->bytes);
  REQUIRE(from->type == (op->type == TRACE_FREE ? TRACE_ALLOC : TRACE_BUFFER));
  live[op->id] = NULL;
}

static void check_accepted(const trace *t) {
  const trace_op **live = (const trace_op **)calloc(t->id_count + 1, sizeof *live);
  size_t i, buffers = 0, used = 0, active = 0, peak = 0, count = 0, count_peak = 0;
  uint64_t time_us = 0;
  REQUIRE(live && t->ops && t->op_count);
  for (i = 0; i < t->op_count; i++) {
    const trace_op *op = &t->ops[i];
    size_t rounded = (op->bytes + 511) / 512 * 512;
    for (; used < t->use_count && t->uses[used].op == i; used++) {
      REQUIRE(t->uses[used].id < t->id_count && live[t->uses[used].id]);
      REQUIRE(live[t->uses[used].id]->type == TRACE_ALLOC);
      REQUIRE(t->uses[used].time_us >= time_us && t->uses[used].time_us <= op->time_us);
    }
    REQUIRE(op->id < t->id_count && op->time_us >= time_us && op->time_us <= TRACE_TIME_US_MAX);
    time_us = op->time_us;
    if (op->type == TRACE_ALLOC || op->type == TRACE_BUFFER) {
      check_alloc(op, live);
      buffers += op->type == TRACE_BUFFER;
      REQUIRE(active <= TRACE_BYTES_MAX - rounded);
      active += op->type == TRACE_ALLOC ? rounded : 0;
      count++;
    } else if (op->type == TRACE_FREE) {
      check_free(op, live);
      active -= rounded;
      count--;
    } else {
      REQUIRE(live[op->id] && live[op->id]->type == TRACE_BUFFER);
      check_range(t, op, live[op->id], &active);
      if (op->type == TRACE_END) check_free(op, live);
      count -= op->type == TRACE_END;
    }
    REQUIRE(op->live_bytes == active);
    if (active > peak) peak = active;
    if (count > count_peak) count_peak = count;
  }
  while (used < t->use_count && t->uses[used].op == t->op_count) used++;
  REQUIRE(used == t->use_count && buffers == t->buffer_count);
  REQUIRE(peak == t->active_bytes_peak && count_peak == t->id_count);
  REQUIRE(t->recorded_active_bytes_peak <= TRACE_BYTES_MAX);
  REQUIRE(t->recorded_reserved_bytes_peak <= TRACE_BYTES_MAX);
  free(live);
  check_streams(t);
  check_marks(t);
  check_done(t);
}

static void check_same(const trace *a, const trace *b) {
  size_t i;
  REQUIRE(a->op_count == b->op_count && a->mark_count == b->mark_count);
  REQUIRE(a->id_count == b->id_count && a->stream_count == b->stream_count);
  REQUIRE(a->use_count == b->use_count && a->done_count == b->done_count);
  for (i = 0; i < a->op_count; i++)
    REQUIRE(a->ops[i].id == b->ops[i].id && a->ops[i].bytes == b->ops[i].bytes);
  for (i = 0; i < a->mark_count; i++) REQUIRE(a->marks[i] == b->marks[i]);
}

/* ---- The target ------------------------------------------------------------------------------ */

/* Whether the bytes are accepted; *out then is to be freed. */
static int load(const uint8_t *data, size_t size, trace *out, size_t room) {
  char path[32], error[200];
  int file = open_memory(data, size, path, sizeof path), accepted;
  memset(error, 'x', sizeof error);
  accepted = trace_load(path, out, error, room);
  (void)close(file);
  if (accepted)
    check_accepted(out);
  else
    check_refused(out, path, error, room);
  return accepted;
}

int LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) {
  uint8_t *zipped;
  trace plain, unzipped;
  int accepted = load(data, size, &plain, size % 3 ? 200 : 1 + size % 60);
  if (size && data[0] != 0x1F) { /* else the reader takes the plain one for gzipped */
    zipped = (uint8_t *)malloc(size + size / 64 + 100);
    REQUIRE(zipped);
    REQUIRE(load(zipped, gzip(data, size, zipped, size + size / 64 + 100), &unzipped, 200) ==
            accepted);
    free(zipped);
    if (accepted) check_same(&plain, &unzipped);
    if (accepted) trace_free(&unzipped);
  }
  if (!accepted) return 0;
  trace_free(&plain);
  return 0;
}
