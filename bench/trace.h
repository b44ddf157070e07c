/* Reader of .gmtrace files, plain or gzipped (link with -lz).

   A trace is text. Its first line is `gmtrace 1`, every other line is one of
     a ID BYTES STREAM DT_US   an allocation, DT_US microseconds after the record before it
     f ID DT_US                the free of a live allocation, on the allocation's stream
     m LABEL                   an iteration begins
     # NAME: VALUE             a remark; peak_active, peak_requested and peak_reserved are read
   An ID may be used again after it was freed. Lines end in LF or CR LF. The reader checks
   everything: a program can replay a trace that it accepts without further checks. It takes time in
   proportion to the file, and no more memory than LINES_MEMORY_MAX. */
#if !defined(TRACE_H_INCLUDED)
#define TRACE_H_INCLUDED

#include "lines.h"

#define TRACE_STREAMS_MAX 1024
#define TRACE_LINE_MAX 4096
#define TRACE_BYTES_MAX (SIZE_MAX / 4)            /* of one block, and of all that live at once */
#define TRACE_TIME_US_MAX (UINT64_MAX / 1000 / 4) /* two passes fit into 64 bits of nanoseconds */

typedef enum trace_type { TRACE_ALLOC = 0, TRACE_FREE } trace_type;

typedef struct trace_op {
  trace_type type;
  uint32_t id;      /* below id_count; after its free a later allocation has it again */
  size_t bytes;     /* as asked for; for a free those of its allocation */
  uint64_t time_us; /* since the trace began */
  size_t stream;    /* index into streams; for a free that of its allocation */
} trace_op;

typedef struct trace {
  trace_op *ops;
  size_t op_count; /* at least one */
  size_t *marks;   /* indices of the operations before which an iteration begins */
  size_t mark_count;
  uint64_t streams[TRACE_STREAMS_MAX]; /* the trace's own stream numbers, by first use */
  size_t stream_count;
  size_t id_count;                    /* also the largest number of blocks that live at once */
  size_t active_bytes_peak;           /* of live blocks, each rounded up to 512 */
  uint64_t torch_active_bytes_peak;   /* from the trace's remarks; 0: it has none */
  uint64_t torch_reserved_bytes_peak; /* likewise */
} trace;

/* Private from here to trace_load. Functions return 1, or 0 after they have written the error
   text. */

/* A node of a tree over the trace's own ids. A search follows the bits of the id, the lowest first.
   So no choice of ids makes the way longer than 64 nodes. */
typedef struct trace_id {
  uint64_t id;
  size_t alloc_op;   /* index of the live allocation; SIZE_MAX: none is */
  uint32_t child[2]; /* by the next bit: index + 1; 0: none */
} trace_id;

typedef struct trace_reader {
  lines in;
  trace *out;
  size_t op_capacity, mark_capacity;
  trace_id *ids;
  size_t ids_count, ids_capacity;
  uint32_t root;      /* of the tree of ids, as a child */
  uint32_t *free_ids; /* room for id_count */
  size_t free_id_count, free_id_capacity;
  size_t active_bytes;
  uint64_t time_us;
} trace_reader;

/* Returns the link to the id's node, or the empty link where the node belongs. Adding an id may
   move all nodes. */
static uint32_t *trace_find_id(trace_reader *r, uint64_t id) {
  uint32_t *link = &r->root;
  uint64_t bits = id;
  for (; *link && r->ids[*link - 1].id != id; bits >>= 1) link = &r->ids[*link - 1].child[bits & 1];
  return link;
}

/* Returns the id's node; adds it if there is none. */
static trace_id *trace_need_id(trace_reader *r, uint64_t id) {
  trace_id *ids =
      (trace_id *)lines_grow(&r->in, r->ids, r->ids_count, &r->ids_capacity, sizeof(trace_id));
  uint32_t *link;
  if (!ids) return NULL;
  r->ids = ids;
  link = trace_find_id(r, id);
  if (!*link) {
    trace_id *made = &ids[r->ids_count++];
    memset(made, 0, sizeof *made);
    made->id = id;
    made->alloc_op = SIZE_MAX;
    *link = (uint32_t)r->ids_count;
  }
  return &ids[*link - 1];
}

static int trace_time(trace_reader *r) {
  uint64_t dt_us;
  if (!lines_number(&r->in, "the time", TRACE_TIME_US_MAX - r->time_us, &dt_us)) return 0;
  r->time_us += dt_us;
  return lines_end_of_record(&r->in);
}

static int trace_stream(trace_reader *r, size_t *out_index) {
  trace *t = r->out;
  uint64_t number;
  size_t i;
  if (!lines_number(&r->in, "the stream", UINT64_MAX, &number)) return 0;
  for (i = 0; i < t->stream_count && t->streams[i] != number; i++) continue;
  if (i == TRACE_STREAMS_MAX) return lines_fail(&r->in, "more than %d streams", TRACE_STREAMS_MAX);
  if (i == t->stream_count) t->streams[t->stream_count++] = number;
  *out_index = i;
  return 1;
}

static int trace_add_op(trace_reader *r, const trace_op *op) {
  trace *t = r->out;
  trace_op *ops =
      (trace_op *)lines_grow(&r->in, t->ops, t->op_count, &r->op_capacity, sizeof(trace_op));
  if (!ops) return 0;
  t->ops = ops;
  t->ops[t->op_count++] = *op;
  return 1;
}

static size_t trace_rounded(size_t bytes) { return (bytes + 511) & ~(size_t)511; }

/* Takes the id that was freed last, so that the ids stay small numbers. */
static int trace_take_id(trace_reader *r, uint32_t *out_id) {
  trace *t = r->out;
  uint32_t *free_ids;
  if (r->free_id_count) {
    *out_id = r->free_ids[--r->free_id_count];
    return 1;
  }
  free_ids = (uint32_t *)lines_grow(&r->in, r->free_ids, t->id_count, &r->free_id_capacity,
                                    sizeof(uint32_t));
  if (!free_ids) return 0;
  r->free_ids = free_ids;
  *out_id = (uint32_t)t->id_count++;
  return 1;
}

static int trace_read_alloc(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id, bytes;
  op.type = TRACE_ALLOC;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) ||
      !lines_number(&r->in, "the size", TRACE_BYTES_MAX, &bytes) || !trace_stream(r, &op.stream) ||
      !trace_time(r)) {
    return 0;
  }
  entry = trace_need_id(r, id);
  if (!entry) return 0;
  if (entry->alloc_op != SIZE_MAX) {
    return lines_fail(&r->in, "id %llu is already live", (unsigned long long)id);
  }
  op.bytes = (size_t)bytes;
  op.time_us = r->time_us;
  if (trace_rounded(op.bytes) > TRACE_BYTES_MAX - r->active_bytes) {
    return lines_fail(&r->in, "the live bytes overflow");
  }
  if (!trace_take_id(r, &op.id) || !trace_add_op(r, &op)) return 0;
  entry->alloc_op = r->out->op_count - 1;
  r->active_bytes += trace_rounded(op.bytes);
  if (r->active_bytes > r->out->active_bytes_peak) r->out->active_bytes_peak = r->active_bytes;
  return 1;
}

static int trace_read_free(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id;
  uint32_t found;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) || !trace_time(r)) return 0;
  found = *trace_find_id(r, id);
  if (!found) return lines_fail(&r->in, "free of unknown id %llu", (unsigned long long)id);
  entry = &r->ids[found - 1];
  if (entry->alloc_op == SIZE_MAX) {
    return lines_fail(&r->in, "id %llu is already free", (unsigned long long)id);
  }
  op = r->out->ops[entry->alloc_op];
  op.type = TRACE_FREE;
  op.time_us = r->time_us;
  if (!trace_add_op(r, &op)) return 0;
  entry->alloc_op = SIZE_MAX;
  r->free_ids[r->free_id_count++] = op.id;
  r->active_bytes -= trace_rounded(op.bytes);
  return 1;
}

static int trace_read_mark(trace_reader *r) {
  trace *t = r->out;
  size_t *marks =
      (size_t *)lines_grow(&r->in, t->marks, t->mark_count, &r->mark_capacity, sizeof(size_t));
  if (!marks) return 0;
  t->marks = marks;
  t->marks[t->mark_count++] = t->op_count;
  return 1;
}

static int trace_read_remark(trace_reader *r) {
  const char *name = lines_word(&r->in);
  uint64_t *peak = NULL, value = 0;
  if (!name) return 1;
  if (!strcmp(name, "peak_reserved:")) peak = &r->out->torch_reserved_bytes_peak;
  if (!strcmp(name, "peak_active:")) peak = &r->out->torch_active_bytes_peak;
  /* Traces without the rounded peak have the peak of what was asked for. */
  if (!strcmp(name, "peak_requested:") && !r->out->torch_active_bytes_peak) {
    peak = &r->out->torch_active_bytes_peak;
  }
  if (!peak) return 1;
  if (!lines_number(&r->in, "the peak", TRACE_BYTES_MAX, &value)) return 0;
  *peak = value;
  return 1;
}

static int trace_read_record(trace_reader *r) {
  const char *word = lines_word(&r->in);
  if (word && !strcmp(word, "a")) return trace_read_alloc(r);
  if (word && !strcmp(word, "f")) return trace_read_free(r);
  if (word && !strcmp(word, "m")) return trace_read_mark(r);
  if (word && word[0] == '#') return trace_read_remark(r);
  return lines_fail(&r->in, "unknown record '%.40s'", word ? word : "");
}

static int trace_read_all(trace_reader *r) {
  int more;
  if (!lines_read_head(&r->in, "gmtrace 1", "trace")) return 0;
  while ((more = lines_next(&r->in)) > 0) {
    if (!trace_read_record(r)) return 0;
  }
  if (more < 0) return 0;
  return r->out->op_count ? 1 : lines_fail(&r->in, "the trace has no records");
}

/* Frees the memory of a trace that trace_load has read. */
static void trace_free(trace *t) {
  free(t->ops);
  free(t->marks);
  memset(t, 0, sizeof *t);
}

/* Reads a trace. Returns 1, or 0 with `file:line: reason` in error; then there is nothing to
   free. */
static int trace_load(const char *path, trace *out, char *error, size_t error_bytes) {
  trace_reader reader;
  int ok;
  memset(out, 0, sizeof *out);
  memset(&reader, 0, sizeof reader);
  reader.out = out;
  ok = lines_open(&reader.in, path, TRACE_LINE_MAX, error, error_bytes) && trace_read_all(&reader);
  lines_close(&reader.in);
  free(reader.ids);
  free(reader.free_ids);
  if (!ok) trace_free(out);
  return ok;
}

#endif
