/* Writes the file of `build/replay --decisions`: each event that the lake's observer is told of, as
   one JSON object a line, for example

      {"op": 7, "kind": "alloc", "state": 3, "request": 5, "address": "0x10000000000",
       "bytes": 4194304, "asked": 4194000, "stream": 0,
       "reason": "the lake stitched free pieces", "driver_ns": 31000, "reserved": 8388608,
       "active": 6291456}

   op is the index of the trace's operation, from 0 on. The other fields are those of gmlake_step.
   stream has the number that the stream has in the trace; null means no stream. */
#if !defined(DECISIONS_H)
#define DECISIONS_H

#include "gmlake.h"

#include <stdio.h>

#include "trace.h"

typedef struct decisions {
  FILE *file;
  const trace *t;
  const gmlake_stream *streams; /* the lake's streams, by their number in the trace */
  size_t op;
  int is_over; /* the trace has ended; later frees are not of the trace */
} decisions;

static void json_string(FILE *file, const char *text) {
  putc('"', file);
  for (; *text; text++) {
    unsigned char c = (unsigned char)*text;
    if (c == '"' || c == '\\') putc('\\', file);
    if (c < 0x20)
      fprintf(file, "\\u%04x", (unsigned)c);
    else
      putc(c, file);
  }
  putc('"', file);
}

static void decisions_write_stream(const decisions *d, gmlake_stream stream) {
  size_t i = 0;
  while (i < d->t->stream_count && d->streams[i] != stream) i++;
  if (i < d->t->stream_count)
    fprintf(d->file, "%llu", (unsigned long long)d->t->streams[i]);
  else
    fputs("null", d->file);
}

/* The function for desc.observer. user is a `decisions`. */
static void decisions_write(void *user, const gmlake_step *e) {
  static const char *const kinds[] = {"unknown", "alloc",  "free",   "split",   "stitch",
                                      "reuse",   "evict",  "grow",   "wait",    "trim",
                                      "use",     "buffer", "commit", "discard", "end"};
  const decisions *d = (const decisions *)user;
  if (d->is_over) return;
  fprintf(d->file,
          "{\"op\": %lu, \"kind\": \"%s\", \"state\": %u, \"request\": %llu, "
          "\"address\": \"0x%llx\", \"bytes\": %lu, \"asked\": %lu, \"stream\": ",
          (unsigned long)d->op, kinds[e->kind > GMLAKE_STEP_END ? 0 : e->kind], e->state,
          (unsigned long long)e->request, (unsigned long long)e->address, (unsigned long)e->bytes,
          (unsigned long)e->asked_bytes);
  decisions_write_stream(d, e->stream);
  fputs(", \"reason\": ", d->file);
  json_string(d->file, e->reason);
  fprintf(d->file, ", \"driver_ns\": %llu, \"reserved\": %lu, \"active\": %lu}\n",
          (unsigned long long)e->driver_ns, (unsigned long)e->reserved_bytes,
          (unsigned long)e->active_bytes);
}

#endif
