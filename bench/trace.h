/* Reader of .gmtrace files, plain or gzipped (link with -lz).

   A trace is text. Its first line is `gmtrace 2`, every other line is one of
     a ID BYTES STREAM DT_US   an allocation, DT_US microseconds after the record before it
     u ID STREAM DT_US         a live allocation is used on a further stream, until it is freed
     f ID STREAM DT_US         the free of a live allocation, on a stream; on -: its users have
                               finished, as GMLAKE_STREAM_NONE says
     b ID BYTES CHUNK DT_US    a growing buffer takes addresses for BYTES, CHUNK bytes at a time
     c ID OFFSET BYTES STREAM DT_US   a range of it gets memory, where it has none
     x ID OFFSET BYTES STREAM DT_US   a range of it loses its memory; f ends the buffer
     d STREAM AGO_US DT_US     what had been queued on a stream AGO_US before is complete by now
     m LABEL                   an iteration begins
     # NAME: VALUE             a remark
   An ID may be used again after it was freed. STREAM is a number, or - for no stream: then the
   allocation takes what no pending work uses. OFFSET and BYTES of a range are multiples of CHUNK, a
   power of two from 2 MiB to 1 GiB. Of each stream the times of d go forward. Lines end in
   LF or CR LF. These remarks are read:
     label: N WORD                                the N-th label, counted from 1 on
     of: LABEL POOL STACK                         of the allocation before; numbers, 0: none
     peak_active, peak_requested, peak_reserved   bytes, of the allocator that ran while recording
     recorder: gmlake                             that was a lake, else torch
     streams_may_end: 1                           one with GMLAKE_STREAMS_MAY_END
     grow_ns, grown_bytes                         what it took to create chunks, of so many bytes
   A trace that begins with `gmtrace 1` has no u, b, c, x and d, `f ID DT_US` for a free on the
   allocation's stream, and a number for no stream, too. It does not tell when work was complete.

   The reader checks everything: a program can replay a trace that it accepts without further
   checks. It takes time in proportion to the file and to the chunks that ranges have, and no more
   memory than LINES_MEMORY_MAX. */
#if !defined(TRACE_H_INCLUDED)
#define TRACE_H_INCLUDED

#include "lines.h"

#define TRACE_STREAMS_MAX 1024
#define TRACE_LINE_MAX 4096
#define TRACE_LABEL_MAX 64                        /* bytes, with the 0 at the end */
#define TRACE_BYTES_MAX (SIZE_MAX / 4)            /* of one block, and of all that live at once */
#define TRACE_TIME_US_MAX (UINT64_MAX / 1000 / 4) /* two passes fit into 64 bits of nanoseconds */

#define TRACE_PLACES_MAX ((size_t)1 << 17) /* chunks that a buffer has addresses for */

typedef enum trace_type {
  TRACE_ALLOC = 0,
  TRACE_FREE,
  TRACE_BUFFER, /* the other four only if buffer_count is not 0 */
  TRACE_COMMIT,
  TRACE_DISCARD,
  TRACE_END /* of a buffer */
} trace_type;

typedef struct trace_op {
  trace_type type;
  uint32_t id;       /* below id_count; after its free a later allocation has it again */
  size_t bytes;      /* as asked for; for a free those of its allocation; of a buffer's range */
  size_t offset;     /* COMMIT, DISCARD: of the range; BUFFER: its chunk's bytes; else 0 */
  size_t live_bytes; /* after it: of all blocks, each rounded up to 512, and of all ranges */
  uint64_t time_us;  /* since the trace began */
  size_t stream;     /* index into streams; in version 1 a free has that of its allocation */
  size_t label;      /* ALLOC, BUFFER: index into labels + 1; 0: none */
} trace_op;

typedef struct trace_use { /* a live block is used on a further stream */
  size_t op;               /* index of the operation before which that is said */
  uint32_t id;
  size_t stream;
  uint64_t time_us;
} trace_use;

typedef struct trace_done { /* what was queued on a stream by queued_us was complete by done_us */
  size_t stream;
  uint64_t queued_us, done_us; /* since the trace began; both go forward on each stream */
  size_t next;                 /* of the same stream: index + 1; 0: it is the last */
} trace_done;

typedef struct trace {
  trace_op *ops;
  size_t op_count, buffer_count; /* op_count: at least one; buffer_count: BUFFERs among them */
  size_t *marks;                 /* indices of the operations before which an iteration begins */
  size_t mark_count;
  trace_use *uses; /* in order */
  size_t use_count;
  trace_done *done; /* in order */
  size_t done_count;
  size_t done_first[TRACE_STREAMS_MAX]; /* of each stream: index + 1; 0: it has none */
  uint64_t streams[TRACE_STREAMS_MAX];  /* the trace's own stream numbers, by first use */
  size_t stream_count;
  char (*labels)[TRACE_LABEL_MAX];
  size_t label_count;
  size_t no_stream;                      /* index of -, whose number counts nothing; or SIZE_MAX */
  unsigned version;                      /* 1 or 2 */
  int is_of_lake, may_streams_end;       /* from remarks */
  size_t id_count;                       /* also the largest number of blocks that live at once */
  size_t active_bytes_peak;              /* the largest live_bytes */
  uint64_t recorded_active_bytes_peak;   /* from the trace's remarks; 0: it has none */
  uint64_t recorded_reserved_bytes_peak; /* likewise */
  uint64_t grow_ns, grown_bytes;         /* likewise */
} trace;

/* In words, for messages. */
static inline const char *trace_op_name(trace_type type) {
  static const char *const names[] = {"allocation", "free",    "buffer",
                                      "commit",     "discard", "end of a buffer"};
  return names[type];
}

/* Private from here to trace_load. Functions return 1, or 0 after they have written the error
   text. */

/* A node of a tree over the trace's own ids. A search follows the bits of the id, the lowest first.
   So no choice of ids makes the way longer than 64 nodes. */
typedef struct trace_id {
  uint64_t id;
  size_t alloc_op;       /* index of the live allocation, or buffer; SIZE_MAX: none is */
  unsigned char *places; /* [buffer] 1 for each chunk that has memory; NULL: it is no buffer */
  size_t place_count;
  uint32_t child[2]; /* by the next bit: index + 1; 0: none */
} trace_id;

typedef struct trace_reader {
  lines in;
  trace *out;
  size_t op_capacity, mark_capacity, use_capacity, done_capacity, label_capacity;
  size_t done_last[TRACE_STREAMS_MAX]; /* of each stream: index + 1; 0: it has none yet */
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
  const char *word = lines_word(&r->in);
  const int is_none = t->version > 1 && word && !strcmp(word, "-");
  uint64_t number = 0;
  size_t i;
  if (!is_none && !lines_parse(&r->in, word, "the stream", UINT64_MAX, &number)) return 0;
  for (i = 0; i < t->stream_count; i++)
    if (is_none ? i == t->no_stream : i != t->no_stream && t->streams[i] == number) break;
  if (i == TRACE_STREAMS_MAX) return lines_fail(&r->in, "more than %d streams", TRACE_STREAMS_MAX);
  if (i == t->stream_count && is_none) t->no_stream = i;
  if (i == t->stream_count) t->streams[t->stream_count++] = number;
  *out_index = i;
  return 1;
}

/* The same, but - is refused. */
static int trace_real_stream(trace_reader *r, size_t *out_index) {
  if (!trace_stream(r, out_index)) return 0;
  return *out_index != r->out->no_stream || lines_fail(&r->in, "- is no stream");
}

static int trace_add_op(trace_reader *r, const trace_op *op) {
  trace *t = r->out;
  trace_op *ops =
      (trace_op *)lines_grow(&r->in, t->ops, t->op_count, &r->op_capacity, sizeof(trace_op));
  if (!ops) return 0;
  t->ops = ops;
  t->ops[t->op_count] = *op;
  t->ops[t->op_count++].live_bytes = r->active_bytes;
  if (r->active_bytes > t->active_bytes_peak) t->active_bytes_peak = r->active_bytes;
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

/* Returns the node for an id that is not live; NULL after it has written the error text. */
static trace_id *trace_new_id(trace_reader *r, uint64_t id) {
  trace_id *entry = trace_need_id(r, id);
  if (!entry || entry->alloc_op == SIZE_MAX) return entry;
  lines_fail(&r->in, "id %llu is already live", (unsigned long long)id);
  return NULL;
}

/* Counts bytes that become live. */
static int trace_add_active(trace_reader *r, size_t bytes) {
  if (bytes > TRACE_BYTES_MAX - r->active_bytes)
    return lines_fail(&r->in, "the live bytes overflow");
  r->active_bytes += bytes;
  return 1;
}

static int trace_read_alloc(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id, bytes;
  memset(&op, 0, sizeof op);
  op.type = TRACE_ALLOC;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) ||
      !lines_number(&r->in, "the size", TRACE_BYTES_MAX, &bytes) || !trace_stream(r, &op.stream) ||
      !trace_time(r)) {
    return 0;
  }
  entry = trace_new_id(r, id);
  op.bytes = (size_t)bytes;
  op.time_us = r->time_us;
  if (!entry || !trace_add_active(r, trace_rounded(op.bytes)) || !trace_take_id(r, &op.id) ||
      !trace_add_op(r, &op)) {
    return 0;
  }
  entry->alloc_op = r->out->op_count - 1;
  return 1;
}

/* Makes room for a buffer's places, which counts as memory of the reader. */
static int trace_add_places(trace_reader *r, trace_id *entry, size_t count) {
  if (count > LINES_MEMORY_MAX - r->in.memory)
    return lines_fail(&r->in, "more than %lu MiB would be held",
                      (unsigned long)(LINES_MEMORY_MAX >> 20));
  entry->places = (unsigned char *)calloc(count, 1);
  if (!entry->places) return lines_fail(&r->in, "out of memory");
  entry->place_count = count;
  r->in.memory += count;
  return 1;
}

static void trace_drop_places(trace_reader *r, trace_id *entry) {
  r->in.memory -= entry->place_count;
  entry->place_count = 0;
  free(entry->places);
  entry->places = NULL;
}

static int trace_read_buffer(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id, bytes, chunk;
  memset(&op, 0, sizeof op);
  op.type = TRACE_BUFFER;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) ||
      !lines_number(&r->in, "the size", TRACE_BYTES_MAX, &bytes) ||
      !lines_number(&r->in, "the chunk", (uint64_t)1 << 30, &chunk) || !trace_time(r)) {
    return 0;
  }
  if (chunk < (uint64_t)1 << 21 || (chunk & (chunk - 1)))
    return lines_fail(&r->in, "the chunk is %llu: it is a power of two, from 2 MiB to 1 GiB",
                      (unsigned long long)chunk);
  if (!bytes || (bytes - 1) / chunk >= TRACE_PLACES_MAX)
    return lines_fail(&r->in, "the buffer has 0 or more than %lu chunks",
                      (unsigned long)TRACE_PLACES_MAX);
  entry = trace_new_id(r, id);
  op.bytes = (size_t)bytes;
  op.offset = (size_t)chunk;
  op.time_us = r->time_us;
  if (!entry || !trace_add_places(r, entry, (op.bytes - 1) / op.offset + 1)) return 0;
  if (!trace_take_id(r, &op.id) || !trace_add_op(r, &op)) return 0;
  entry->alloc_op = r->out->op_count - 1;
  r->out->buffer_count++;
  return 1;
}

/* Returns the node of an id that is live; NULL after it has written the error text. */
static trace_id *trace_live_id(trace_reader *r, uint64_t id, const char *what) {
  const uint32_t found = *trace_find_id(r, id);
  if (!found)
    lines_fail(&r->in, "%s of unknown id %llu", what, (unsigned long long)id);
  else if (r->ids[found - 1].alloc_op == SIZE_MAX)
    lines_fail(&r->in, "id %llu is already free", (unsigned long long)id);
  else
    return &r->ids[found - 1];
  return NULL;
}

/* Gives places memory, or takes it away, and counts it. */
static int trace_set_places(trace_reader *r, trace_id *entry, size_t from, size_t to, int value) {
  const size_t chunk = r->out->ops[entry->alloc_op].offset;
  size_t i;
  for (i = from; i < to; i++) {
    if (entry->places[i] == value) continue;
    entry->places[i] = (unsigned char)value;
    if (!value)
      r->active_bytes -= chunk;
    else if (!trace_add_active(r, chunk))
      return 0;
  }
  return 1;
}

static int trace_read_range(trace_reader *r, trace_type type) {
  trace_op op;
  trace_id *entry;
  uint64_t id, offset, bytes;
  size_t chunk;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) ||
      !lines_number(&r->in, "the offset", TRACE_BYTES_MAX, &offset) ||
      !lines_number(&r->in, "the size", TRACE_BYTES_MAX, &bytes) || !trace_stream(r, &op.stream) ||
      !trace_time(r)) {
    return 0;
  }
  entry = trace_live_id(r, id, "range");
  if (!entry) return 0;
  if (!entry->places) return lines_fail(&r->in, "id %llu is no buffer", (unsigned long long)id);
  op.id = r->out->ops[entry->alloc_op].id;
  chunk = r->out->ops[entry->alloc_op].offset;
  if (offset % chunk || bytes % chunk || offset / chunk > entry->place_count ||
      bytes / chunk > entry->place_count - offset / chunk)
    return lines_fail(&r->in, "the buffer has no range of %llu bytes at %llu",
                      (unsigned long long)bytes, (unsigned long long)offset);
  op.type = type;
  op.offset = (size_t)offset;
  op.bytes = (size_t)bytes;
  op.time_us = r->time_us;
  return trace_set_places(r, entry, op.offset / chunk, (op.offset + op.bytes) / chunk,
                          type == TRACE_COMMIT) &&
         trace_add_op(r, &op);
}

static int trace_read_free(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id;
  size_t stream = SIZE_MAX;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id)) return 0;
  if (r->out->version > 1 && !trace_stream(r, &stream)) return 0;
  if (!trace_time(r)) return 0;
  entry = trace_live_id(r, id, "free");
  if (!entry) return 0;
  op = r->out->ops[entry->alloc_op];
  op.type = entry->places ? TRACE_END : TRACE_FREE;
  op.offset = 0;
  op.time_us = r->time_us;
  if (stream != SIZE_MAX) op.stream = stream;
  if (entry->places)
    (void)trace_set_places(r, entry, 0, entry->place_count, 0);
  else
    r->active_bytes -= trace_rounded(op.bytes);
  trace_drop_places(r, entry);
  if (!trace_add_op(r, &op)) return 0;
  entry->alloc_op = SIZE_MAX;
  r->free_ids[r->free_id_count++] = op.id;
  return 1;
}

static int trace_read_use(trace_reader *r) {
  trace *t = r->out;
  trace_use use;
  trace_id *entry;
  trace_use *uses;
  uint64_t id;
  if (!lines_number(&r->in, "the id", UINT64_MAX, &id) || !trace_real_stream(r, &use.stream) ||
      !trace_time(r)) {
    return 0;
  }
  entry = trace_live_id(r, id, "use");
  if (!entry) return 0;
  if (entry->places) return lines_fail(&r->in, "id %llu is a buffer", (unsigned long long)id);
  uses = (trace_use *)lines_grow(&r->in, t->uses, t->use_count, &r->use_capacity, sizeof *uses);
  if (!uses) return 0;
  use.op = t->op_count;
  use.id = t->ops[entry->alloc_op].id;
  use.time_us = r->time_us;
  t->uses = uses;
  t->uses[t->use_count++] = use;
  return 1;
}

static int trace_read_done(trace_reader *r) {
  trace *t = r->out;
  trace_done *done;
  size_t stream, last;
  uint64_t ago_us;
  if (!trace_real_stream(r, &stream) ||
      !lines_number(&r->in, "how long ago", TRACE_TIME_US_MAX, &ago_us) || !trace_time(r)) {
    return 0;
  }
  last = r->done_last[stream];
  if (ago_us > r->time_us || (last && t->done[last - 1].queued_us > r->time_us - ago_us))
    return lines_fail(&r->in, "%llu us ago is before %s", (unsigned long long)ago_us,
                      ago_us > r->time_us ? "the trace began" : "what was complete already");
  done = (trace_done *)lines_grow(&r->in, t->done, t->done_count, &r->done_capacity, sizeof *done);
  if (!done) return 0;
  t->done = done;
  done[t->done_count].stream = stream;
  done[t->done_count].queued_us = r->time_us - ago_us;
  done[t->done_count].done_us = r->time_us;
  done[t->done_count].next = 0;
  *(last ? &done[last - 1].next : &t->done_first[stream]) = ++t->done_count;
  r->done_last[stream] = t->done_count;
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

static int trace_read_label(trace_reader *r) {
  trace *t = r->out;
  uint64_t number;
  const char *word;
  void *labels =
      lines_grow(&r->in, t->labels, t->label_count, &r->label_capacity, sizeof *t->labels);
  if (!labels) return 0;
  t->labels = (char(*)[TRACE_LABEL_MAX])labels;
  if (!lines_number(&r->in, "the label's number", SIZE_MAX, &number)) return 0;
  if (number != t->label_count + 1) return lines_fail(&r->in, "labels count from 1 on");
  word = lines_word(&r->in);
  snprintf(t->labels[t->label_count++], TRACE_LABEL_MAX, "%s", word ? word : "");
  return 1;
}

/* Where the operation before comes from. */
static int trace_read_origin(trace_reader *r) {
  trace *t = r->out;
  trace_op *op = t->op_count ? &t->ops[t->op_count - 1] : NULL;
  uint64_t label;
  if (!lines_number(&r->in, "the label's number", t->label_count, &label)) return 0;
  if (op && (op->type == TRACE_ALLOC || op->type == TRACE_BUFFER)) op->label = (size_t)label;
  return 1;
}

static int trace_read_remark(trace_reader *r) {
  const char *name = lines_word(&r->in), *word;
  uint64_t *peak = NULL, value = 0;
  if (!name) return 1;
  if (!strcmp(name, "label:")) return trace_read_label(r);
  if (!strcmp(name, "of:")) return trace_read_origin(r);
  if (!strcmp(name, "recorder:")) {
    word = lines_word(&r->in);
    r->out->is_of_lake = word && !strcmp(word, "gmlake");
  }
  if (!strcmp(name, "streams_may_end:")) {
    word = lines_word(&r->in);
    r->out->may_streams_end = word && !strcmp(word, "1");
  }
  if (!strcmp(name, "peak_reserved:")) peak = &r->out->recorded_reserved_bytes_peak;
  if (!strcmp(name, "peak_active:")) peak = &r->out->recorded_active_bytes_peak;
  /* Traces without the rounded peak have the peak of what was asked for. */
  if (!strcmp(name, "peak_requested:") && !r->out->recorded_active_bytes_peak) {
    peak = &r->out->recorded_active_bytes_peak;
  }
  if (!strcmp(name, "grow_ns:")) peak = &r->out->grow_ns;
  if (!strcmp(name, "grown_bytes:")) peak = &r->out->grown_bytes;
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
  if (word && r->out->version > 1 && word[0] && !word[1]) {
    if (*word == 'u') return trace_read_use(r);
    if (*word == 'd') return trace_read_done(r);
    if (*word == 'b') return trace_read_buffer(r);
    if (*word == 'c') return trace_read_range(r, TRACE_COMMIT);
    if (*word == 'x') return trace_read_range(r, TRACE_DISCARD);
  }
  if (word && word[0] == '#') return trace_read_remark(r);
  return lines_fail(&r->in, "unknown record '%.40s'", word ? word : "");
}

static int trace_read_all(trace_reader *r) {
  int more;
  if (!lines_read_head(&r->in, "gmtrace", 2, "trace", &r->out->version)) return 0;
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
  free(t->uses);
  free(t->done);
  free(t->labels);
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
  out->no_stream = SIZE_MAX;
  ok = lines_open(&reader.in, path, TRACE_LINE_MAX, error, error_bytes) && trace_read_all(&reader);
  lines_close(&reader.in);
  while (reader.ids_count) free(reader.ids[--reader.ids_count].places);
  free(reader.ids);
  free(reader.free_ids);
  if (!ok) trace_free(out);
  return ok;
}

/* The same, but a trace with growing buffers is refused: all operations are ALLOC or FREE. */
static inline int trace_load_blocks(const char *path, trace *out, char *error, size_t error_bytes) {
  if (!trace_load(path, out, error, error_bytes)) return 0;
  if (!out->buffer_count) return 1;
  snprintf(error, error_bytes, "%s: it has growing buffers, which only build/replay replays", path);
  trace_free(out);
  return 0;
}

#endif
