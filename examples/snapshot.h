/* Writes what lies where in a lake as one JSON document, for bench/viewer.html and for programs of
   your own. It is for copying into your program:

     int error = gmlake_snapshot_save(lake, "now.json");   0, or an errno: see the function

   Then open bench/viewer.html in a browser and drop the file on it: several files are shown in a
   row. examples/memory_viz.py makes of the document what pytorch.org/memory_viz opens.

   It works when memory has run out, in the lake's out-of-memory handler too, and when host memory
   has: give it the memory to work in (gmlake_snapshot_desc), or it answers ENOMEM and has written
   nothing. It may be called from any thread. The lake's locks are held while gmlake_get_map copies
   its records: under 10 ms for 100,000 blocks; the text is made afterwards. It changes no memory;
   for the budget the driver is asked what is free, and streams what has completed.

   THE DOCUMENT, VERSION 1. One object. Bytes, counts and addresses are numbers; addresses are below
   2^53. A stream is the number of its handle, 0 is the legacy stream, null is no stream (or one
   that is forgotten). Lists of rows hold arrays; the object "fields" names what stands where in
   them. New members, and new fields at the end of rows, do not change the version; a reader skips
   what it does not know.
     "format": "gmlake snapshot", "version": 1, "gmlake": version of the lake as a number
     "name": of desc; "unix_s": when it was written
     "device": its number; "chunk_bytes": of the lake's arena
     "limits": {"limit_bytes", "driver_free_bytes_min", "stitched_bytes_max", "stitch_bytes_min"}: 0
       is none, as in gmlake_desc
     "stats": the fields of gmlake_stats by their names; "budget": those of gmlake_budget, or null
     "error": null, or the report of the last error: result (a name), call, text and the sizes of
       gmlake_error_info by their names
     "same_moment": false where other threads changed the lake between map and statistics
     "arenas": one row for each arena that has something on the map: its number, which other rows
       name; the pool's address (0: no pool), label and limit_bytes
     "chunks": physical memory, one row a handle: address (0: only buffers can map it), bytes,
       state, arena, stream, handle. A pool that sleeps has none, but for quarantined ones that the
       driver kept
     "blocks": what is allocated, also what sleeps: address, bytes, requested_bytes, state ("live",
       or "pending": freed and still used), stream, arena, label or null, user_data (a string
       "0x..", or 0), age (how many blocks and pieces of windows became live after it)
     "holes": free ranges: address, bytes, state (who may take it), arena, stream. "free":
       everybody. "tagged": that stream now, others after its work. "graph": captures into the pool
       alone. "quarantined": nobody
     "windows": idle windows: address, bytes, state, arena, stream
     "buffers": address, bytes (up to the end, holes too), requested_bytes, arena, label, user_data
     "pieces": ranges of memory that a live window or a buffer maps: address, bytes, arena, owner
       (address of the block or buffer), handle (of a buffer's; else 0)
     "spans": the same of idle windows; such memory may have another owner meanwhile: address,
       bytes, arena, owner (address of the window) */
#if !defined(GMLAKE_SNAPSHOT_H)
#define GMLAKE_SNAPSHOT_H

#include "gmlake.h"

#include <errno.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define GMLAKE_SNAPSHOT_TEXT 16384 /* bytes of text that are written at once */
#define GMLAKE_SNAPSHOT_LABEL 200  /* a longer label is cut */
#define GMLAKE_SNAPSHOT_ROOM 256   /* bytes that any number or name fits into */

typedef struct gmlake_snapshot_desc { /* all zero: sensible defaults */
  const char *name; /* shown by the viewer; NULL: "snapshot", for which it shows the file's name */
  const gmlake_error_info *error; /* what an out-of-memory handler was told; NULL: the last error of
                                     the lake, if there was one */
  void *memory;                   /* to work in, aligned as malloc's; NULL: malloc and free */
  size_t memory_bytes;            /* of it: see gmlake_snapshot_bytes */
} gmlake_snapshot_desc;

/* Takes the next part of the document. An answer other than 0 ends it. */
typedef int (*gmlake_snapshot_sink)(void *user, const char *text, size_t bytes);

/* ---- Private -------------------------------------------------------------------------------- */

typedef struct gmlake_snapshot {
  gmlake_snapshot_sink sink;
  void *user;
  int error;
  char *text; /* GMLAKE_SNAPSHOT_TEXT bytes, `used` of them filled */
  size_t used;
  char last; /* the last character before the text */
  gmlake_map_entry *entries;
  size_t count, capacity;
  gmlake_stats stats;
  int is_same; /* the statistics did not change while the map was taken */
} gmlake_snapshot;

static inline void gmlake_snapshot_flush(gmlake_snapshot *s) {
  if (!s->used) return;
  if (!s->error && s->sink(s->user, s->text, s->used)) s->error = EIO;
  s->last = s->text[s->used - 1];
  s->used = 0;
}

/* Makes room for so much text at least. */
static inline void gmlake_snapshot_room(gmlake_snapshot *s) {
  if (GMLAKE_SNAPSHOT_TEXT - s->used < GMLAKE_SNAPSHOT_ROOM) gmlake_snapshot_flush(s);
}

static inline void gmlake_snapshot_put(gmlake_snapshot *s, const char *text) {
  for (; *text; text++) {
    gmlake_snapshot_room(s);
    s->text[s->used++] = *text;
  }
}

static inline void gmlake_snapshot_number(gmlake_snapshot *s, uint64_t value) {
  char digits[20];
  size_t count = 0;
  gmlake_snapshot_room(s);
  do digits[count++] = (char)('0' + value % 10);
  while (value /= 10);
  while (count) s->text[s->used++] = digits[--count];
}

/* How many bytes the UTF-8 character has that begins here; 0: it is none. */
static inline size_t gmlake_snapshot_utf8(const unsigned char *at) {
  const size_t bytes = at[0] < 0x80   ? 1
                       : at[0] < 0xC2 ? 0
                       : at[0] < 0xE0 ? 2
                       : at[0] < 0xF0 ? 3
                                      : 4;
  size_t i;
  if (at[0] > 0xF4) return 0;
  for (i = 1; i < bytes; i++)
    if ((at[i] & 0xC0) != 0x80) return 0;
  if ((at[0] == 0xE0 && at[1] < 0xA0) || (at[0] == 0xED && at[1] > 0x9F)) return 0;
  if ((at[0] == 0xF0 && at[1] < 0x90) || (at[0] == 0xF4 && at[1] > 0x8F)) return 0;
  return bytes;
}

/* A string of JSON that may also stand in a script of HTML; null for NULL. */
static inline void gmlake_snapshot_string(gmlake_snapshot *s, const char *text) {
  const unsigned char *at = (const unsigned char *)text;
  size_t left = GMLAKE_SNAPSHOT_LABEL;
  if (!text) {
    gmlake_snapshot_put(s, "null");
    return;
  }
  gmlake_snapshot_put(s, "\"");
  while (*at && left) {
    size_t bytes = gmlake_snapshot_utf8(at);
    gmlake_snapshot_room(s);
    if (bytes > left) break;
    left -= bytes ? bytes : 1;
    if (!bytes || *at < ' ' || *at == '"' || *at == '\\' || *at == '<' || *at == 0x7F) {
      s->used += (size_t)sprintf(s->text + s->used, "\\u%04x", bytes ? *at : 0xFFFDu);
      at++;
      continue;
    }
    while (bytes--) s->text[s->used++] = (char)*at++;
  }
  gmlake_snapshot_put(s, "\"");
}

/* A member of an object: `"name": number`; after `{` without a comma. */
static inline void gmlake_snapshot_member(gmlake_snapshot *s, const char *name, uint64_t value) {
  if ((s->used ? s->text[s->used - 1] : s->last) != '{') gmlake_snapshot_put(s, ", ");
  gmlake_snapshot_put(s, "\"");
  gmlake_snapshot_put(s, name);
  gmlake_snapshot_put(s, "\": ");
  gmlake_snapshot_number(s, value);
}

static inline void gmlake_snapshot_field(gmlake_snapshot *s, uint64_t value) {
  gmlake_snapshot_room(s);
  s->text[s->used++] = ',';
  gmlake_snapshot_number(s, value);
}

static inline void gmlake_snapshot_stream(gmlake_snapshot *s, gmlake_stream stream) {
  if (stream == GMLAKE_STREAM_NONE)
    gmlake_snapshot_put(s, ",null");
  else
    gmlake_snapshot_field(s, stream == (gmlake_stream)(uintptr_t)1 ? 0 : (uintptr_t)stream);
}

static inline void gmlake_snapshot_state(gmlake_snapshot *s, gmlake_state state) {
  static const char *const names[] = {",null",     ",\"live\"",  ",\"pending\"",    ",\"tagged\"",
                                      ",\"free\"", ",\"graph\"", ",\"quarantined\""};
  const size_t at = (size_t)state;
  gmlake_snapshot_put(s, names[at < sizeof names / sizeof names[0] ? at : 0]);
}

static inline void gmlake_snapshot_label(gmlake_snapshot *s, const char *label) {
  gmlake_snapshot_put(s, ",");
  gmlake_snapshot_string(s, label);
}

static inline void gmlake_snapshot_user(gmlake_snapshot *s, uint64_t value) {
  if (!value) {
    gmlake_snapshot_put(s, ",0");
    return;
  }
  gmlake_snapshot_room(s);
  s->used += (size_t)sprintf(s->text + s->used, ",\"0x%llx\"", (unsigned long long)value);
}

/* ---- Rows ---- */

/* One entry of the map, by its kind: behind its address and bytes. */
static inline void gmlake_snapshot_row(gmlake_snapshot *s, const gmlake_map_entry *e) {
  const int is_block = e->kind == GMLAKE_KIND_BLOCK, is_buffer = e->kind == GMLAKE_KIND_BUFFER;
  const int is_part = e->kind == GMLAKE_KIND_PIECE || e->kind == GMLAKE_KIND_IDLE_PIECE;
  gmlake_snapshot_room(s);
  s->text[s->used++] = '[';
  gmlake_snapshot_number(s, e->address);
  gmlake_snapshot_field(s, e->bytes);
  if (is_block || is_buffer) gmlake_snapshot_field(s, e->requested_bytes);
  if (!is_buffer && !is_part) gmlake_snapshot_state(s, e->state);
  if (is_block) gmlake_snapshot_stream(s, e->stream);
  gmlake_snapshot_field(s, e->arena);
  if (is_block || is_buffer) {
    gmlake_snapshot_label(s, e->label);
    gmlake_snapshot_user(s, e->user_data);
  } else if (is_part) {
    gmlake_snapshot_field(s, e->owner);
  } else {
    gmlake_snapshot_stream(s, e->stream);
  }
  if (is_block) gmlake_snapshot_field(s, e->age);
  if (e->kind == GMLAKE_KIND_CHUNK || e->kind == GMLAKE_KIND_PIECE)
    gmlake_snapshot_field(s, e->handle);
  gmlake_snapshot_put(s, "]");
}

static inline void gmlake_snapshot_rows(gmlake_snapshot *s, const char *name, gmlake_kind kind) {
  const char *between = "\n";
  size_t i;
  gmlake_snapshot_put(s, ",\n\"");
  gmlake_snapshot_put(s, name);
  gmlake_snapshot_put(s, "\": [");
  for (i = 0; i < s->count; i++) {
    if (s->entries[i].kind != kind) continue;
    gmlake_snapshot_put(s, between);
    gmlake_snapshot_row(s, &s->entries[i]);
    between = ",\n";
  }
  gmlake_snapshot_put(s, "]");
}

/* The map lists one arena after the other. */
static inline void gmlake_snapshot_arenas(gmlake_snapshot *s) {
  const char *between = "\n[";
  size_t i;
  gmlake_snapshot_put(s, ",\n\"arenas\": [");
  for (i = 0; i < s->count; i++) {
    const gmlake_map_entry *e = &s->entries[i];
    if (i && e[-1].arena == e->arena) continue;
    gmlake_snapshot_put(s, between);
    gmlake_snapshot_number(s, e->arena);
    gmlake_snapshot_field(s, (uintptr_t)e->pool);
    gmlake_snapshot_label(s, e->pool_label);
    gmlake_snapshot_field(s, e->pool_limit_bytes);
    gmlake_snapshot_put(s, "]");
    between = ",\n[";
  }
  gmlake_snapshot_put(s, "]");
}

/* ---- Figures ---- */

#define GMLAKE_SNAPSHOT_OF(object, name) gmlake_snapshot_member(s, #name, (object)->name)

static inline void gmlake_snapshot_stats(gmlake_snapshot *s) {
  const gmlake_stats *const t = &s->stats;
  unsigned i;
  gmlake_snapshot_put(s, ",\n\"stats\": {");
  GMLAKE_SNAPSHOT_OF(t, requested_bytes);
  GMLAKE_SNAPSHOT_OF(t, requested_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, active_bytes);
  GMLAKE_SNAPSHOT_OF(t, active_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, reserved_bytes);
  GMLAKE_SNAPSHOT_OF(t, reserved_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, stitched_bytes);
  GMLAKE_SNAPSHOT_OF(t, stitched_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, pending_bytes);
  GMLAKE_SNAPSHOT_OF(t, pending_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, allocation_count);
  GMLAKE_SNAPSHOT_OF(t, free_count);
  gmlake_snapshot_put(s, ", \"state_count\": [");
  for (i = 0; i < 5; i++) {
    if (i) gmlake_snapshot_put(s, ", ");
    gmlake_snapshot_number(s, t->state_count[i]);
  }
  gmlake_snapshot_put(s, "]");
  GMLAKE_SNAPSHOT_OF(t, split_count);
  GMLAKE_SNAPSHOT_OF(t, stitch_count);
  GMLAKE_SNAPSHOT_OF(t, stitch_reuse_count);
  GMLAKE_SNAPSHOT_OF(t, stitch_evict_count);
  GMLAKE_SNAPSHOT_OF(t, chunk_count);
  GMLAKE_SNAPSHOT_OF(t, driver_call_count);
  GMLAKE_SNAPSHOT_OF(t, driver_ns);
  GMLAKE_SNAPSHOT_OF(t, stream_wait_count);
  GMLAKE_SNAPSHOT_OF(t, host_wait_count);
  GMLAKE_SNAPSHOT_OF(t, oom_count);
  GMLAKE_SNAPSHOT_OF(t, quarantined_bytes);
  GMLAKE_SNAPSHOT_OF(t, live_count);
  GMLAKE_SNAPSHOT_OF(t, window_count);
  GMLAKE_SNAPSHOT_OF(t, event_count);
  GMLAKE_SNAPSHOT_OF(t, metadata_bytes);
  GMLAKE_SNAPSHOT_OF(t, metadata_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, buffer_count);
  GMLAKE_SNAPSHOT_OF(t, buffer_bytes);
  GMLAKE_SNAPSHOT_OF(t, buffer_bytes_peak);
  GMLAKE_SNAPSHOT_OF(t, sleeping_bytes);
  GMLAKE_SNAPSHOT_OF(t, exported_bytes);
  GMLAKE_SNAPSHOT_OF(t, imported_bytes);
  gmlake_snapshot_put(s, "}");
}

static inline void gmlake_snapshot_budget(gmlake_snapshot *s, gmlake *lake) {
  gmlake_budget b;
  memset(&b, 0, sizeof b);
  gmlake_snapshot_put(s, ",\n\"budget\": ");
  if (gmlake_get_budget(lake, &b)) {
    gmlake_snapshot_put(s, "null");
    return;
  }
  gmlake_snapshot_put(s, "{");
  GMLAKE_SNAPSHOT_OF(&b, total_bytes);
  GMLAKE_SNAPSHOT_OF(&b, driver_free_bytes);
  GMLAKE_SNAPSHOT_OF(&b, reserved_bytes);
  GMLAKE_SNAPSHOT_OF(&b, idle_bytes);
  GMLAKE_SNAPSHOT_OF(&b, pending_bytes);
  GMLAKE_SNAPSHOT_OF(&b, allocatable_bytes);
  gmlake_snapshot_put(s, "}");
}

static inline void gmlake_snapshot_report(gmlake_snapshot *s, const gmlake_error_info *e) {
  gmlake_snapshot_put(s, ",\n\"error\": ");
  if (!e || e->result == GMLAKE_OK) {
    gmlake_snapshot_put(s, "null");
    return;
  }
  gmlake_snapshot_put(s, "{\"result\": ");
  gmlake_snapshot_string(s, gmlake_result_name(e->result));
  gmlake_snapshot_put(s, ", \"call\": ");
  gmlake_snapshot_string(s, e->call);
  gmlake_snapshot_put(s, ", \"text\": ");
  gmlake_snapshot_string(s, e->text);
  GMLAKE_SNAPSHOT_OF(e, asked_bytes);
  GMLAKE_SNAPSHOT_OF(e, live_bytes);
  GMLAKE_SNAPSHOT_OF(e, free_bytes);
  GMLAKE_SNAPSHOT_OF(e, stitchable_bytes);
  GMLAKE_SNAPSHOT_OF(e, pending_bytes);
  GMLAKE_SNAPSHOT_OF(e, reserved_bytes);
  GMLAKE_SNAPSHOT_OF(e, limit_bytes);
  GMLAKE_SNAPSHOT_OF(e, driver_free_bytes);
  GMLAKE_SNAPSHOT_OF(e, live_here_bytes);
  GMLAKE_SNAPSHOT_OF(e, elsewhere_bytes);
  GMLAKE_SNAPSHOT_OF(e, hole_bytes);
  GMLAKE_SNAPSHOT_OF(e, largest_bytes);
  GMLAKE_SNAPSHOT_OF(e, sleeping_bytes);
  gmlake_snapshot_put(s, "}");
}

#undef GMLAKE_SNAPSHOT_OF

static inline void gmlake_snapshot_head(gmlake_snapshot *s, gmlake *lake, const char *name) {
  const time_t now = time(NULL);
  gmlake_desc d;
  memset(&d, 0, sizeof d);
  (void)gmlake_get_desc(lake, &d);
  gmlake_snapshot_put(s, "{\"format\": \"gmlake snapshot\", \"version\": 1, \"gmlake\": ");
  gmlake_snapshot_number(s, (uint64_t)gmlake_version());
  gmlake_snapshot_put(s, ", \"name\": ");
  gmlake_snapshot_string(s, name ? name : "snapshot");
  gmlake_snapshot_member(s, "unix_s", now > 0 ? (uint64_t)now : 0);
  gmlake_snapshot_member(s, "device", d.device > 0 ? (uint64_t)d.device : 0);
  gmlake_snapshot_member(s, "chunk_bytes", d.chunk_bytes);
  gmlake_snapshot_put(s, ",\n\"same_moment\": ");
  gmlake_snapshot_put(s, s->is_same ? "true" : "false");
  gmlake_snapshot_put(s, ",\n\"limits\": {");
  gmlake_snapshot_member(s, "limit_bytes", d.limit_bytes);
  gmlake_snapshot_member(s, "driver_free_bytes_min", d.driver_free_bytes_min);
  gmlake_snapshot_member(s, "stitched_bytes_max", d.stitched_bytes_max);
  gmlake_snapshot_member(s, "stitch_bytes_min", d.stitch_bytes_min);
  gmlake_snapshot_put(s, "}");
}

static inline void gmlake_snapshot_lists(gmlake_snapshot *s) {
  gmlake_snapshot_put(
      s,
      ",\n\"fields\": {\"arenas\": [\"arena\", \"pool\", \"label\", \"limit_bytes\"],\n"
      "\"chunks\": [\"address\", \"bytes\", \"state\", \"arena\", \"stream\", \"handle\"],\n"
      "\"blocks\": [\"address\", \"bytes\", \"requested_bytes\", \"state\", \"stream\", \"arena\", "
      "\"label\", \"user_data\", \"age\"],\n"
      "\"holes\": [\"address\", \"bytes\", \"state\", \"arena\", \"stream\"],\n"
      "\"windows\": [\"address\", \"bytes\", \"state\", \"arena\", \"stream\"],\n"
      "\"buffers\": [\"address\", \"bytes\", \"requested_bytes\", \"arena\", \"label\", "
      "\"user_data\"],\n"
      "\"pieces\": [\"address\", \"bytes\", \"arena\", \"owner\", \"handle\"],\n"
      "\"spans\": [\"address\", \"bytes\", \"arena\", \"owner\"]}");
  gmlake_snapshot_arenas(s);
  gmlake_snapshot_rows(s, "chunks", GMLAKE_KIND_CHUNK);
  gmlake_snapshot_rows(s, "blocks", GMLAKE_KIND_BLOCK);
  gmlake_snapshot_rows(s, "holes", GMLAKE_KIND_HOLE);
  gmlake_snapshot_rows(s, "windows", GMLAKE_KIND_WINDOW);
  gmlake_snapshot_rows(s, "buffers", GMLAKE_KIND_BUFFER);
  gmlake_snapshot_rows(s, "pieces", GMLAKE_KIND_PIECE);
  gmlake_snapshot_rows(s, "spans", GMLAKE_KIND_IDLE_PIECE);
  gmlake_snapshot_put(s, "}\n");
}

/* Takes the map, and the statistics before and after it. Returns 0, or an errno. */
static inline int gmlake_snapshot_take(gmlake_snapshot *s, gmlake *lake) {
  gmlake_stats after;
  memset(&s->stats, 0, sizeof s->stats);
  memset(&after, 0, sizeof after);
  if (gmlake_get_stats(lake, &s->stats) ||
      gmlake_get_map(lake, s->entries, s->capacity, &s->count) || gmlake_get_stats(lake, &after))
    return EINVAL;
  s->is_same = s->stats.allocation_count == after.allocation_count &&
               s->stats.free_count == after.free_count &&
               s->stats.driver_call_count == after.driver_call_count;
  s->stats = after;
  return s->count > s->capacity ? ENOMEM : 0;
}

/* How many bytes desc.memory needs for the lake as it is now, with some to spare; 0: the lake does
   not answer. Cost: that of gmlake_get_map. */
static inline size_t gmlake_snapshot_bytes(gmlake *lake) {
  size_t count = 0;
  if (gmlake_get_map(lake, NULL, 0, &count)) return 0;
  return GMLAKE_SNAPSHOT_TEXT + (count + count / 8 + 64) * sizeof(gmlake_map_entry);
}

/* Takes them into memory of malloc. Returns 0, or an errno. */
static inline int gmlake_snapshot_need(gmlake_snapshot *s, gmlake *lake, void **out_memory) {
  int error = ENOMEM, tries = 0;
  while (error == ENOMEM && tries++ < 4) { /* other threads may allocate meanwhile */
    const size_t bytes = gmlake_snapshot_bytes(lake);
    free(*out_memory);
    *out_memory = bytes ? malloc(bytes) : NULL;
    if (!*out_memory) return bytes ? ENOMEM : EINVAL;
    s->entries = (gmlake_map_entry *)*out_memory;
    s->capacity = (bytes - GMLAKE_SNAPSHOT_TEXT) / sizeof(gmlake_map_entry);
    error = gmlake_snapshot_take(s, lake);
  }
  return error;
}

/* ---- The snapshot --------------------------------------------------------------------------- */

/* Writes the document to the sink. desc may be NULL. Returns 0; ENOMEM: desc.memory is too small,
   or host memory has run out, and nothing was written; EINVAL: the lake does not answer
   (gmlake_get_last_error says why), and nothing was written; EIO: the sink has ended it. */
static inline int gmlake_snapshot_write(gmlake *lake, const gmlake_snapshot_desc *desc,
                                        gmlake_snapshot_sink sink, void *user) {
  const gmlake_snapshot_desc none = {NULL, NULL, NULL, 0};
  const size_t text = GMLAKE_SNAPSHOT_TEXT;
  gmlake_error_info last;
  gmlake_snapshot s;
  void *memory = NULL;
  memset(&s, 0, sizeof s);
  memset(&last, 0, sizeof last);
  if (!desc) desc = &none;
  s.sink = sink;
  s.user = user;
  if (desc->memory) {
    if (desc->memory_bytes < text) return ENOMEM;
    s.entries = (gmlake_map_entry *)desc->memory;
    s.capacity = (desc->memory_bytes - text) / sizeof(gmlake_map_entry);
    s.error = gmlake_snapshot_take(&s, lake);
  } else {
    s.error = gmlake_snapshot_need(&s, lake, &memory);
  }
  if (!s.error) {
    s.text = (char *)(s.entries + s.capacity);
    if (!desc->error) (void)gmlake_get_last_error(lake, &last);
    gmlake_snapshot_head(&s, lake, desc->name);
    gmlake_snapshot_stats(&s);
    gmlake_snapshot_report(&s, desc->error ? desc->error : &last);
    gmlake_snapshot_budget(&s, lake);
    gmlake_snapshot_lists(&s);
    gmlake_snapshot_flush(&s);
  }
  free(memory);
  return s.error;
}

/* A sink: user is a FILE. */
static inline int gmlake_snapshot_to_file(void *user, const char *text, size_t bytes) {
  return fwrite(text, 1, bytes, (FILE *)user) != bytes;
}

/* Writes the document into a file, which is replaced. Returns 0, or what gmlake_snapshot_write
   answers, or the errno of the file: then what the file has is not the whole document. */
static inline int gmlake_snapshot_save(gmlake *lake, const char *path) {
  FILE *const file = fopen(path, "wb");
  int error;
  if (!file) return errno ? errno : EIO;
  errno = 0;
  error = gmlake_snapshot_write(lake, NULL, gmlake_snapshot_to_file, file);
  if (error == EIO && errno) error = errno;
  if (fclose(file) && !error) error = errno ? errno : EIO;
  return error;
}

#endif
