/* Reader of .gmtrace files, plain or gzipped (link with -lz).

   A trace is text. Its first line is `gmtrace 1`, every other line is one of
     a ID BYTES STREAM DT_US   an allocation, DT_US microseconds after the record before it
     f ID DT_US                the free of a live allocation, on the allocation's stream
     m LABEL                   an iteration begins
     # NAME: VALUE             a remark; peak_active, peak_requested and peak_reserved are read
   An ID may come again once it has been freed. The reader is strict: what it accepts, an allocator
   can be driven with unchecked. */
#if !defined(TRACE_H_INCLUDED)
#define TRACE_H_INCLUDED

#include <errno.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#define TRACE_STREAMS_MAX 1024
#define TRACE_LINE_MAX 4096
#define TRACE_BYTES_MAX (SIZE_MAX / 4)            /* of one block, and of all that live at once */
#define TRACE_TIME_US_MAX (UINT64_MAX / 1000 / 4) /* two passes still fit into nanoseconds */

typedef enum trace_type { TRACE_ALLOC = 0, TRACE_FREE } trace_type;

typedef struct trace_op {
  trace_type type;
  uint32_t id;      /* below id_count; taken again by a later allocation once it is free */
  size_t bytes;     /* as asked for; a free has its allocation's */
  uint64_t time_us; /* since the trace began */
  size_t stream;    /* index into streams; a free has its allocation's */
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
  uint64_t torch_active_bytes_peak;   /* as the trace's remarks say; 0: they do not */
  uint64_t torch_reserved_bytes_peak; /* likewise */
} trace;

/* Private from here to trace_load. Functions return 1, or 0 once the error text is written. */

typedef struct trace_id {
  uint64_t id;
  size_t alloc_op; /* index of the live allocation + 1; 0: the slot is empty, SIZE_MAX: freed */
} trace_id;

typedef struct trace_reader {
  trace *out;
  const char *path;
  char *error;
  size_t error_bytes;
  gzFile file;
  size_t line_number;
  char line[TRACE_LINE_MAX];
  char *cursor; /* what of the line is still to read */
  size_t op_capacity, mark_capacity;
  trace_id *ids; /* open addressing over the trace's own ids; never more than half full */
  size_t ids_count, ids_capacity;
  uint32_t *free_ids; /* room for id_count */
  size_t free_id_count, free_id_capacity;
  size_t active_bytes;
  uint64_t time_us;
} trace_reader;

static int trace_fail(trace_reader *r, const char *format, ...) {
  int written =
      snprintf(r->error, r->error_bytes, "%s:%lu: ", r->path, (unsigned long)r->line_number);
  if (written > 0 && (size_t)written < r->error_bytes) {
    va_list arguments;
    va_start(arguments, format);
    vsnprintf(r->error + written, r->error_bytes - (size_t)written, format, arguments);
    va_end(arguments);
  }
  return 0;
}

/* Makes room for one item more: returns the items, or NULL with the old ones untouched. */
static void *trace_grow(void *items, size_t count, size_t *capacity, size_t item_bytes) {
  if (count < *capacity) return items;
  size_t wanted = *capacity ? *capacity * 2 : 1024;
  void *grown = wanted <= SIZE_MAX / item_bytes ? realloc(items, wanted * item_bytes) : NULL;
  if (grown) *capacity = wanted;
  return grown;
}

static trace_id *trace_find_id(const trace_reader *r, uint64_t id) {
  size_t mask = r->ids_capacity - 1;
  size_t i = (size_t)((id * UINT64_C(0x9E3779B97F4A7C15)) >> 20) & mask;
  while (r->ids[i].alloc_op && r->ids[i].id != id) i = (i + 1) & mask;
  return &r->ids[i];
}

static int trace_grow_ids(trace_reader *r) {
  trace_id *old = r->ids;
  size_t old_capacity = r->ids_capacity, i;
  if (r->ids_count * 2 < old_capacity) return 1;
  r->ids_capacity = old_capacity ? old_capacity * 2 : 4096;
  r->ids = (trace_id *)calloc(r->ids_capacity, sizeof(trace_id));
  if (!r->ids) {
    r->ids = old;
    r->ids_capacity = old_capacity;
    return trace_fail(r, "out of memory");
  }
  for (i = 0; i < old_capacity; i++) {
    if (old[i].alloc_op) *trace_find_id(r, old[i].id) = old[i];
  }
  free(old);
  return 1;
}

/* Cuts the next word off the line; NULL at its end. */
static char *trace_word(trace_reader *r) {
  char *word = r->cursor + strspn(r->cursor, " \t");
  if (!*word) return NULL;
  r->cursor = word + strcspn(word, " \t");
  if (*r->cursor) *r->cursor++ = '\0';
  return word;
}

static int trace_number(trace_reader *r, const char *what, uint64_t max, uint64_t *out) {
  const char *word = trace_word(r), *digit;
  uint64_t value = 0;
  if (!word) return trace_fail(r, "%s is missing", what);
  for (digit = word; *digit; digit++) {
    unsigned d = (unsigned)(*digit - '0');
    if (*digit < '0' || *digit > '9') {
      return trace_fail(r, "%s is not a number: '%.40s'", what, word);
    }
    if (d > max || value > (max - d) / 10) {
      return trace_fail(r, "%s is too large: %.40s", what, word);
    }
    value = value * 10 + d;
  }
  *out = value;
  return 1;
}

static int trace_end_of_record(trace_reader *r) {
  const char *word = trace_word(r);
  return word ? trace_fail(r, "text after the record: '%.40s'", word) : 1;
}

static int trace_time(trace_reader *r) {
  uint64_t dt_us;
  if (!trace_number(r, "the time", TRACE_TIME_US_MAX - r->time_us, &dt_us)) return 0;
  r->time_us += dt_us;
  return trace_end_of_record(r);
}

static int trace_stream(trace_reader *r, size_t *out_index) {
  trace *t = r->out;
  uint64_t number;
  size_t i;
  if (!trace_number(r, "the stream", UINT64_MAX, &number)) return 0;
  for (i = 0; i < t->stream_count && t->streams[i] != number; i++) continue;
  if (i == TRACE_STREAMS_MAX) return trace_fail(r, "more than %d streams", TRACE_STREAMS_MAX);
  if (i == t->stream_count) t->streams[t->stream_count++] = number;
  *out_index = i;
  return 1;
}

static int trace_add_op(trace_reader *r, const trace_op *op) {
  trace *t = r->out;
  trace_op *ops = (trace_op *)trace_grow(t->ops, t->op_count, &r->op_capacity, sizeof(trace_op));
  if (!ops) return trace_fail(r, "out of memory");
  t->ops = ops;
  t->ops[t->op_count++] = *op;
  return 1;
}

static size_t trace_rounded(size_t bytes) { return (bytes + 511) & ~(size_t)511; }

/* Reuses the id freed last, as a program reuses its own storage: the ids stay dense. */
static int trace_take_id(trace_reader *r, uint32_t *out_id) {
  trace *t = r->out;
  uint32_t *free_ids;
  if (r->free_id_count) {
    *out_id = r->free_ids[--r->free_id_count];
    return 1;
  }
  free_ids =
      (uint32_t *)trace_grow(r->free_ids, t->id_count, &r->free_id_capacity, sizeof(uint32_t));
  if (!free_ids || t->id_count == UINT32_MAX) return trace_fail(r, "out of memory");
  r->free_ids = free_ids;
  *out_id = (uint32_t)t->id_count++;
  return 1;
}

static int trace_read_alloc(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id, bytes;
  op.type = TRACE_ALLOC;
  if (!trace_grow_ids(r) || !trace_number(r, "the id", UINT64_MAX, &id) ||
      !trace_number(r, "the size", TRACE_BYTES_MAX, &bytes) || !trace_stream(r, &op.stream) ||
      !trace_time(r)) {
    return 0;
  }
  entry = trace_find_id(r, id);
  if (entry->alloc_op && entry->alloc_op != SIZE_MAX) {
    return trace_fail(r, "id %llu is already live", (unsigned long long)id);
  }
  op.bytes = (size_t)bytes;
  op.time_us = r->time_us;
  if (trace_rounded(op.bytes) > TRACE_BYTES_MAX - r->active_bytes) {
    return trace_fail(r, "the live bytes overflow");
  }
  if (!trace_take_id(r, &op.id) || !trace_add_op(r, &op)) return 0;
  if (!entry->alloc_op) r->ids_count++;
  entry->id = id;
  entry->alloc_op = r->out->op_count;
  r->active_bytes += trace_rounded(op.bytes);
  if (r->active_bytes > r->out->active_bytes_peak) r->out->active_bytes_peak = r->active_bytes;
  return 1;
}

static int trace_read_free(trace_reader *r) {
  trace_op op;
  trace_id *entry;
  uint64_t id;
  if (!trace_grow_ids(r) || !trace_number(r, "the id", UINT64_MAX, &id) || !trace_time(r)) return 0;
  entry = trace_find_id(r, id);
  if (!entry->alloc_op) return trace_fail(r, "free of unknown id %llu", (unsigned long long)id);
  if (entry->alloc_op == SIZE_MAX) {
    return trace_fail(r, "id %llu is already free", (unsigned long long)id);
  }
  op = r->out->ops[entry->alloc_op - 1];
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
  size_t *marks = (size_t *)trace_grow(t->marks, t->mark_count, &r->mark_capacity, sizeof(size_t));
  if (!marks) return trace_fail(r, "out of memory");
  t->marks = marks;
  t->marks[t->mark_count++] = t->op_count;
  return 1;
}

static int trace_read_remark(trace_reader *r) {
  const char *name = trace_word(r);
  uint64_t *peak = NULL, value = 0;
  if (!name) return 1;
  if (!strcmp(name, "peak_reserved:")) peak = &r->out->torch_reserved_bytes_peak;
  if (!strcmp(name, "peak_active:")) peak = &r->out->torch_active_bytes_peak;
  /* What was asked for stands in where the rounded peak was not recorded. */
  if (!strcmp(name, "peak_requested:") && !r->out->torch_active_bytes_peak) {
    peak = &r->out->torch_active_bytes_peak;
  }
  if (!peak) return 1;
  if (!trace_number(r, "the peak", TRACE_BYTES_MAX, &value)) return 0;
  *peak = value;
  return 1;
}

static int trace_read_record(trace_reader *r) {
  const char *word = trace_word(r);
  if (word && !strcmp(word, "a")) return trace_read_alloc(r);
  if (word && !strcmp(word, "f")) return trace_read_free(r);
  if (word && !strcmp(word, "m")) return trace_read_mark(r);
  if (word && word[0] == '#') return trace_read_remark(r);
  return trace_fail(r, "unknown record '%.40s'", word ? word : "");
}

/* Returns 1 with a line, 0 at the end, -1 once the error text is written. */
static int trace_next_line(trace_reader *r) {
  const char *got = gzgets(r->file, r->line, (int)sizeof r->line);
  size_t length = got ? strlen(r->line) : 0;
  int code = Z_OK;
  const char *text;
  if (length && r->line[length - 1] == '\n') {
    r->line[length - 1] = '\0';
    r->cursor = r->line;
    r->line_number++;
    return 1;
  }
  text = gzerror(r->file, &code);
  if (!got && (code == Z_OK || code == Z_STREAM_END)) return 0;
  r->line_number++;
  if (code == Z_BUF_ERROR) {
    trace_fail(r, "the compressed data is truncated");
  } else if (code != Z_OK && code != Z_STREAM_END) {
    trace_fail(r, "%s", code == Z_ERRNO ? strerror(errno) : text);
  } else if (length == sizeof r->line - 1) {
    trace_fail(r, "the line is too long");
  } else {
    trace_fail(r, gzeof(r->file) ? "the last line is truncated" : "not a line of text");
  }
  return -1;
}

static int trace_read_all(trace_reader *r) {
  int more = trace_next_line(r);
  if (more < 0) return 0;
  r->line_number = 1;
  if (!more) return trace_fail(r, "the file is empty");
  if (strcmp(r->line, "gmtrace 1")) return trace_fail(r, "not a trace: 'gmtrace 1' expected");
  while ((more = trace_next_line(r)) > 0) {
    if (!trace_read_record(r)) return 0;
  }
  if (more < 0) return 0;
  return r->out->op_count ? 1 : trace_fail(r, "the trace has no records");
}

/* Frees what trace_load has filled in. */
static void trace_free(trace *t) {
  free(t->ops);
  free(t->marks);
  memset(t, 0, sizeof *t);
}

/* Returns 1; or 0 with `file:line: reason` in error, and nothing to free. */
static int trace_load(const char *path, trace *out, char *error, size_t error_bytes) {
  trace_reader reader;
  int ok;
  memset(out, 0, sizeof *out);
  memset(&reader, 0, sizeof reader);
  reader.out = out;
  reader.path = path;
  reader.error = error;
  reader.error_bytes = error_bytes;
  errno = 0;
  reader.file = gzopen(path, "rb");
  if (!reader.file) return trace_fail(&reader, "%s", strerror(errno ? errno : ENOMEM));
  gzbuffer(reader.file, 1u << 17);
  ok = trace_read_all(&reader);
  gzclose_r(reader.file);
  free(reader.ids);
  free(reader.free_ids);
  if (!ok) trace_free(out);
  return ok;
}

#endif
