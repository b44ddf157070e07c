/* Writes what `build/replay --html` writes: bench/viewer.html with a replay of the lake inside, as
   gzip in base64. The replay is one JSON object, which the viewer draws:

     "format": "gmlake replay", "version": 1, "name": the trace's, "chunk_bytes", "device_bytes"
     "grain": 512; places and sizes of memory below are counted in it, from the lowest chunk on
     "streams": the trace's numbers of the streams, by index; null is no stream
     "dt": of each operation of the trace, microseconds since the one before
     "marks": the operations before which iterations begin
     "labels": names; "blocks": columns, an item for each allocation, in order: "begin": operations
       since the begin of the block before; "until": operations that it lives, 0: to the end;
       "bytes": as asked for; "stream", "label": an index, -1: none ("label" may be missing);
       "at": its place in the home arena; or, of a window, -1 - an index into windows
     "windows": of each the places and sizes of what it joins, in turn
     "chunks": rows [operation, 1 or -1, place, size]: created, or returned
     "reserved": rows [operation, bytes]; "buffers": the same, of all growing buffers together
     "looks": at some operations, rows [operation, live, pending, tagged, clean, split, holes] in
       bytes, as report_peak has them */
#if !defined(PAGE_H)
#define PAGE_H

#include "gmlake.h"

#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <zlib.h>

#include "report.h"
#include "trace.h"

#define PAGE_TEMPLATE "bench/viewer.html"
#define PAGE_PLACE "id=\"data\">" /* the data stands behind it */
#define PAGE_GRAIN 512u
#define PAGE_LOOKS 400u /* so often it looks where the memory is */
#define PAGE_PIECES 4096u

typedef struct page_text { /* a column, or all */
  char *text;
  size_t used, capacity;
} page_text;

typedef struct page_block {
  size_t begin, until, bytes, stream, label;
  int64_t at;
} page_block;

typedef struct page_chunk {
  uint64_t address;
  size_t bytes;
} page_chunk;

typedef struct page {
  const char *path; /* NULL: no page is written */
  report *seen;     /* looks at the lake for it */
  const trace *t;
  page_block *blocks;
  size_t block_count;
  size_t *of_id;     /* of each id its block: index + 1; 0: none */
  uint64_t *windows; /* checksums of those in `joined` */
  size_t window_count, window_capacity;
  page_chunk *held; /* the chunks at home, by address */
  size_t held_count, held_capacity;
  size_t chunk_bytes;
  uint64_t base;    /* address of place 0 */
  uint64_t handles; /* calls that create and release, when `held` was read */
  uint64_t reserved, buffers;
  page_text joined, chunks, totals, growing, looks;
  gmlake_piece pieces[PAGE_PIECES];
  int has_failed; /* host memory ran out, or a block has too many pieces */
} page;

static void page_put(page *p, page_text *to, const char *format, ...) {
  char line[256];
  va_list arguments;
  size_t bytes;
  char *grown;
  va_start(arguments, format);
  bytes = (size_t)vsnprintf(line, sizeof line, format, arguments);
  va_end(arguments);
  if (to->used + bytes >= to->capacity) {
    grown = (char *)realloc(to->text, 2 * to->capacity + sizeof line);
    if (!grown) {
      p->has_failed = 1;
      return;
    }
    to->text = grown;
    to->capacity = 2 * to->capacity + sizeof line;
  }
  memcpy(to->text + to->used, line, bytes + 1);
  to->used += bytes;
}

/* Replaces what would end a string, or begin a tag. Returns the text. */
static const char *page_plain(char *text) {
  char *at;
  for (at = text; *at; at++)
    if ((unsigned char)*at < ' ' || strchr("\"\\<", *at)) *at = '_';
  return text;
}

/* A comma before all but the first item. */
static const char *page_comma(const page_text *to) { return to->used ? "," : ""; }

/* Returns 0 if host memory ran out. */
static int page_begin(page *p, report *seen, const trace *t) {
  p->seen = seen;
  p->t = t;
  p->blocks = (page_block *)calloc(t->op_count, sizeof *p->blocks);
  p->of_id = (size_t *)calloc(t->id_count + 1, sizeof *p->of_id);
  return p->blocks && p->of_id;
}

static void page_free(page *p) {
  free(p->blocks);
  free(p->of_id);
  free(p->windows);
  free(p->held);
  free(p->joined.text);
  free(p->chunks.text);
  free(p->totals.text);
  free(p->growing.text);
  free(p->looks.text);
}

static int64_t page_place(const page *p, uint64_t address) {
  return ((int64_t)address - (int64_t)p->base) / (int64_t)PAGE_GRAIN;
}

static int page_by_address(const void *a, const void *b) {
  const uint64_t x = ((const page_chunk *)a)->address, y = ((const page_chunk *)b)->address;
  return x < y ? -1 : x > y;
}

/* Whether a list, which is sorted, has the chunk. */
static int page_has(const page_chunk *list, size_t count, const page_chunk *c) {
  const page_chunk *found =
      count ? (const page_chunk *)bsearch(c, list, count, sizeof *c, page_by_address) : NULL;
  return found && found->bytes == c->bytes;
}

/* Writes which chunks were created and returned since it was called last. The report has just read
   the map. */
static void page_chunks(page *p, size_t op) {
  const report *r = p->seen;
  page_chunk *now = (page_chunk *)calloc(r->map_count + 1, sizeof *now);
  size_t count = 0, i;
  if (!now) {
    p->has_failed = 1;
    return;
  }
  for (i = 0; i < r->map_count; i++) {
    if (r->map[i].kind != GMLAKE_KIND_CHUNK || !r->map[i].address) continue;
    now[count].address = r->map[i].address;
    now[count++].bytes = r->map[i].bytes;
  }
  qsort(now, count, sizeof *now, page_by_address);
  if (!p->base && count) p->base = now[0].address;
  for (i = 0; i < p->held_count; i++)
    if (!page_has(now, count, &p->held[i]))
      page_put(p, &p->chunks, "%s[%lu,-1,%lld,%lu]", page_comma(&p->chunks), (unsigned long)op,
               (long long)page_place(p, p->held[i].address),
               (unsigned long)(p->held[i].bytes / PAGE_GRAIN));
  for (i = 0; i < count; i++)
    if (!page_has(p->held, p->held_count, &now[i]))
      page_put(p, &p->chunks, "%s[%lu,1,%lld,%lu]", page_comma(&p->chunks), (unsigned long)op,
               (long long)page_place(p, now[i].address),
               (unsigned long)(now[i].bytes / PAGE_GRAIN));
  free(p->held);
  p->held = now;
  p->held_count = count;
}

/* The number of the window with the pieces that were read; a window that comes again is not written
   again. */
static size_t page_window(page *p, size_t count) {
  uint64_t sum = 0;
  size_t i;
  for (i = 0; i < count; i++)
    sum = (sum ^ (uint64_t)(uintptr_t)p->pieces[i].home) * UINT64_C(0xD6E8FEB86659FD93) +
          p->pieces[i].bytes;
  for (i = p->window_count; i-- > 0;)
    if (p->windows[i] == sum) return i;
  if (p->window_count == p->window_capacity) {
    const size_t capacity = 2 * p->window_capacity + 64;
    uint64_t *grown = (uint64_t *)realloc(p->windows, capacity * sizeof *grown);
    if (!grown) {
      p->has_failed = 1;
      return 0;
    }
    p->windows = grown;
    p->window_capacity = capacity;
  }
  p->windows[p->window_count] = sum;
  for (i = 0; i < count; i++)
    page_put(p, &p->joined, "%s%lld,%lu",
             i                ? ","
             : p->joined.used ? ",["
                              : "[",
             (long long)page_place(p, (uint64_t)(uintptr_t)p->pieces[i].home),
             (unsigned long)(p->pieces[i].bytes / PAGE_GRAIN));
  page_put(p, &p->joined, "]");
  return p->window_count++;
}

/* The place of a block, or -1 - the number of its window. */
static int64_t page_at(page *p, const void *ptr) {
  size_t count = 0;
  if (gmlake_get_pieces(p->seen->lake, ptr, p->pieces, PAGE_PIECES, &count) ||
      count > PAGE_PIECES) {
    p->has_failed = 1;
    return 0;
  }
  if (count == 1) return page_place(p, (uint64_t)(uintptr_t)p->pieces[0].home);
  return -1 - (int64_t)page_window(p, count);
}

/* An allocation was served. */
static void page_add(page *p, size_t op, const void *ptr) {
  const trace_op *o = &p->t->ops[op];
  page_block *b = &p->blocks[p->block_count];
  if (!ptr) return; /* of 0 bytes */
  p->of_id[o->id] = ++p->block_count;
  b->begin = op;
  b->bytes = o->bytes;
  b->stream = o->stream;
  b->label = o->label;
  b->at = page_at(p, ptr);
}

/* Looks where the memory is, and leaves the report's peak as it was. */
static void page_look(page *p, size_t op, const gmlake_stats *stats) {
  report *r = p->seen;
  const report_peak peak = r->peak;
  uint64_t pending = 0, tagged = 0;
  size_t i;
  report_look(r, op, stats);
  for (i = 0; i <= p->t->stream_count; i++) pending += r->peak.pending[i];
  for (i = 0; i < p->t->stream_count; i++) tagged += r->peak.tagged[i];
  page_put(p, &p->looks, "%s[%lu,%llu,%llu,%llu,%llu,%llu,%llu]", page_comma(&p->looks),
           (unsigned long)op, (unsigned long long)r->peak.live, (unsigned long long)pending,
           (unsigned long long)tagged, (unsigned long long)r->peak.clean,
           (unsigned long long)r->peak.split, (unsigned long long)r->peak.holes);
  r->peak = peak;
}

/* After an operation; ptr: the block that it allocated. */
static void page_after(page *p, size_t op, const void *ptr) {
  const trace_op *o = &p->t->ops[op];
  const uint64_t *count = p->seen->backend.calls.count;
  const uint64_t handles = count[REPORT_create] + count[REPORT_release];
  const size_t every = p->t->op_count / PAGE_LOOKS + 1;
  gmlake_stats stats;
  gmlake_desc desc;
  memset(&stats, 0, sizeof stats);
  memset(&desc, 0, sizeof desc);
  if (gmlake_get_stats(p->seen->lake, &stats) || gmlake_get_desc(p->seen->lake, &desc)) return;
  p->chunk_bytes = desc.chunk_bytes;
  if (handles != p->handles || op % every == 0 || op + 1 == p->t->op_count)
    page_look(p, op, &stats);
  if (handles != p->handles) page_chunks(p, op);
  p->handles = handles;
  if (o->type == TRACE_ALLOC) page_add(p, op, ptr);
  if (o->type == TRACE_FREE && p->of_id[o->id]) {
    p->blocks[p->of_id[o->id] - 1].until = op - p->blocks[p->of_id[o->id] - 1].begin;
    p->of_id[o->id] = 0;
  }
  if (stats.reserved_bytes != p->reserved)
    page_put(p, &p->totals, "%s[%lu,%llu]", page_comma(&p->totals), (unsigned long)op,
             (unsigned long long)stats.reserved_bytes);
  if (stats.buffer_bytes != p->buffers)
    page_put(p, &p->growing, "%s[%lu,%llu]", page_comma(&p->growing), (unsigned long)op,
             (unsigned long long)stats.buffer_bytes);
  p->reserved = stats.reserved_bytes;
  p->buffers = stats.buffer_bytes;
}

/* ---- Writing --------------------------------------------------------------------------------- */

#define PAGE_COLUMN(p, out, name, format, type, value)                                    \
  do {                                                                                    \
    page_put(p, out, "%s\"" name "\":[", (out)->text[(out)->used - 1] == '{' ? "" : ","); \
    for (i = 0; i < (p)->block_count; i++)                                                \
      page_put(p, out, "%s" format, i ? "," : "", (type)(value));                         \
    page_put(p, out, "]");                                                                \
  } while (0)

static void page_put_blocks(page *p, page_text *out) {
  const page_block *b = p->blocks;
  size_t i;
  page_put(p, out, ",\n\"blocks\":{");
  PAGE_COLUMN(p, out, "begin", "%lu", unsigned long, b[i].begin - (i ? b[i - 1].begin : 0));
  PAGE_COLUMN(p, out, "until", "%lu", unsigned long, b[i].until);
  PAGE_COLUMN(p, out, "bytes", "%llu", unsigned long long, b[i].bytes);
  PAGE_COLUMN(p, out, "stream", "%lu", unsigned long, b[i].stream);
  PAGE_COLUMN(p, out, "at", "%lld", long long, b[i].at);
  if (p->t->label_count) PAGE_COLUMN(p, out, "label", "%ld", long, (long)b[i].label - 1);
  page_put(p, out, "}");
}

/* One of the lists that were written on the way. */
static void page_put_list(page *p, page_text *out, const char *name, const page_text *list) {
  size_t at;
  page_put(p, out, ",\n\"%s\":[", name);
  for (at = 0; at < list->used; at += 200) page_put(p, out, "%.200s", list->text + at);
  page_put(p, out, "]");
}

static void page_put_all(page *p, page_text *out, const char *name, size_t device_bytes) {
  const trace *t = p->t;
  size_t i;
  page_put(p, out,
           "{\"format\":\"gmlake replay\",\"version\":1,\"name\":\"%.100s\",\"grain\":%u,"
           "\"chunk_bytes\":%llu,\"device_bytes\":%llu,\n\"streams\":[",
           name, PAGE_GRAIN, (unsigned long long)p->chunk_bytes, (unsigned long long)device_bytes);
  for (i = 0; i < t->stream_count; i++)
    page_put(p, out, i == t->no_stream ? "%snull" : "%s%llu", i ? "," : "",
             (unsigned long long)t->streams[i]);
  page_put(p, out, "],\n\"dt\":[");
  for (i = 0; i < t->op_count; i++)
    page_put(p, out, "%s%llu", i ? "," : "",
             (unsigned long long)(t->ops[i].time_us - (i ? t->ops[i - 1].time_us : 0)));
  page_put(p, out, "],\n\"marks\":[");
  for (i = 0; i < t->mark_count; i++)
    page_put(p, out, "%s%lu", i ? "," : "", (unsigned long)t->marks[i]);
  page_put(p, out, "],\n\"labels\":[");
  for (i = 0; i < t->label_count; i++)
    page_put(p, out, "%s\"%s\"", i ? "," : "", page_plain(t->labels[i]));
  page_put(p, out, "]");
  page_put_blocks(p, out);
  page_put_list(p, out, "windows", &p->joined);
  page_put_list(p, out, "chunks", &p->chunks);
  page_put_list(p, out, "reserved", &p->totals);
  page_put_list(p, out, "buffers", &p->growing);
  page_put_list(p, out, "looks", &p->looks);
  page_put(p, out, "}\n");
}

/* The same, as gzip. Returns NULL if host memory ran out. */
static unsigned char *page_compress(const page_text *in, size_t *out_bytes) {
  z_stream z;
  unsigned char *out;
  size_t bytes;
  memset(&z, 0, sizeof z);
  if (deflateInit2(&z, 9, Z_DEFLATED, 15 + 16, 9, Z_DEFAULT_STRATEGY) != Z_OK) return NULL;
  bytes = deflateBound(&z, (uLong)in->used) + 32;
  out = (unsigned char *)malloc(bytes);
  z.next_in = (unsigned char *)in->text;
  z.avail_in = (uInt)in->used;
  z.next_out = out;
  z.avail_out = (uInt)bytes;
  if (!out || deflate(&z, Z_FINISH) != Z_STREAM_END) {
    free(out);
    out = NULL;
  }
  *out_bytes = z.total_out;
  deflateEnd(&z);
  return out;
}

static void page_write_base64(FILE *file, const unsigned char *at, size_t bytes) {
  static const char digits[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  size_t i;
  for (i = 0; i < bytes; i += 3) {
    const unsigned last = bytes - i < 3 ? (unsigned)(bytes - i) : 3;
    const unsigned word = (unsigned)at[i] << 16 | (last > 1 ? (unsigned)at[i + 1] << 8 : 0) |
                          (last > 2 ? at[i + 2] : 0);
    putc(digits[word >> 18], file);
    putc(digits[word >> 12 & 63], file);
    putc(last > 1 ? digits[word >> 6 & 63] : '=', file);
    putc(last > 2 ? digits[word & 63] : '=', file);
  }
}

/* Reads the viewer. Returns NULL after it has printed the failure. */
static char *page_template(void) {
  FILE *file = fopen(PAGE_TEMPLATE, "rb");
  size_t bytes = 0, capacity = (size_t)1 << 20;
  char *text = file ? (char *)malloc(capacity) : NULL;
  if (text) bytes = fread(text, 1, capacity - 1, file);
  if (file) fclose(file);
  if (text) text[bytes] = '\0';
  if (text && strstr(text, PAGE_PLACE)) return text;
  free(text);
  fprintf(stderr, "%s cannot be read: run replay in the directory of gmlake.h\n", PAGE_TEMPLATE);
  return NULL;
}

/* Writes the page. Returns 0 after it has printed the failure. */
static int page_write(page *p, const char *trace_name, size_t device_bytes) {
  page_text all = {NULL, 0, 0};
  char name[100];
  unsigned char *packed = NULL;
  char *viewer = page_template(), *at;
  size_t bytes = 0;
  FILE *file;
  int ok = 0;
  if (!viewer) return 0;
  snprintf(name, sizeof name, "%s", trace_name);
  page_put_all(p, &all, page_plain(name), device_bytes);
  if (!p->has_failed) packed = page_compress(&all, &bytes);
  free(all.text);
  file = packed ? fopen(p->path, "wb") : NULL;
  if (file) {
    at = strstr(viewer, PAGE_PLACE) + strlen(PAGE_PLACE);
    ok = fwrite(viewer, 1, (size_t)(at - viewer), file) == (size_t)(at - viewer);
    page_write_base64(file, packed, bytes);
    ok = fputs(at, file) >= 0 && ok;
    ok = fclose(file) == 0 && ok;
  }
  if (!ok) fprintf(stderr, "%s: %s\n", p->path, packed ? "cannot be written" : "out of memory");
  free(packed);
  free(viewer);
  return ok;
}

#endif
