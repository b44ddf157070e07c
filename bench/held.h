/* When work was complete, by a trace; and what torch does with that: a block that is freed while
   recorded streams still use it is kept, and is free at the first request after their work has
   completed, or where memory runs out. */
#if !defined(HELD_H)
#define HELD_H

#include <stdlib.h>
#include <string.h>

#include "trace.h"

typedef struct lag {
  const trace *t;                 /* that tells when work is complete; NULL: it does not */
  uint64_t fixed_us;              /* then all work takes so long; UINT64_MAX: it never ends */
  uint64_t time_us;               /* of the trace, when last asked */
  size_t done[TRACE_STREAMS_MAX]; /* of each stream, what the trace tells of then: index + 1; 0 */
} lag;

/* How long after time_us the work that is queued on the stream at that time is complete. What was
   queued between two moments that the trace tells of takes a time between theirs. */
static uint64_t lag_us(lag *l, size_t stream, uint64_t time_us) {
  const trace_done *all = l->t ? l->t->done : NULL, *last, *next;
  size_t after;
  uint64_t done_us;
  double part;
  if (!l->t) return l->fixed_us;
  if (time_us < l->time_us) memset(l->done, 0, sizeof l->done); /* another pass begins */
  l->time_us = time_us;
  for (;;) {
    const size_t at = l->done[stream];
    after = at ? all[at - 1].next : l->t->done_first[stream];
    if (!after || all[after - 1].queued_us > time_us) break;
    l->done[stream] = after;
  }
  last = l->done[stream] ? &all[l->done[stream] - 1] : NULL;
  next = after ? &all[after - 1] : NULL;
  if (last && last->queued_us == time_us) return last->done_us - last->queued_us;
  if (!last) return next ? next->done_us - next->queued_us : 0;
  if (!next) return last->done_us - last->queued_us;
  part = (double)(time_us - last->queued_us) / (double)(next->queued_us - last->queued_us);
  done_us = last->done_us + (uint64_t)((double)(next->done_us - last->done_us) * part);
  return done_us > time_us ? done_us - time_us : 0;
}

typedef struct held_block {
  void *ptr;
  const trace_op *op; /* that freed it */
  uint64_t due_us;    /* by the trace; UINT64_MAX: never */
} held_block;

typedef struct held {
  const trace *t;
  lag work;
  size_t *newest; /* of each id, its newest use: index + 1; 0: none */
  size_t *before; /* of each use, the one before of the same block, likewise */
  held_block *blocks;
  size_t count;
} held;

/* Returns 0 if host memory ran out. */
static int held_begin(held *h, const trace *t) {
  h->t = t;
  h->newest = (size_t *)calloc(t->id_count, sizeof *h->newest);
  h->before = (size_t *)calloc(t->use_count, sizeof *h->before);
  h->blocks = (held_block *)calloc(t->op_count, sizeof *h->blocks);
  return h->newest && h->before && h->blocks;
}

static void held_end(held *h) {
  free(h->newest);
  free(h->before);
  free(h->blocks);
}

/* The use of a live block is noted. */
static void held_note(held *h, size_t use) {
  size_t *newest = &h->newest[h->t->uses[use].id];
  h->before[use] = *newest;
  *newest = use + 1;
}

/* Keeps a block that an operation frees, if other streams still use it. Returns whether it does. */
static int held_keep(held *h, const trace_op *op, void *ptr) {
  held_block block;
  size_t use = h->newest[op->id];
  block.ptr = ptr;
  block.op = op;
  block.due_us = 0;
  for (h->newest[op->id] = 0; use; use = h->before[use - 1]) {
    const size_t stream = h->t->uses[use - 1].stream;
    uint64_t due_us;
    if (op->stream == h->t->no_stream || stream == op->stream) continue;
    due_us = lag_us(&h->work, stream, op->time_us);
    if (due_us != UINT64_MAX) due_us += op->time_us;
    if (due_us > block.due_us) block.due_us = due_us;
  }
  if (!ptr || block.due_us <= op->time_us) return 0;
  h->blocks[h->count++] = block;
  return 1;
}

/* The next block whose users have completed by then, whatever else is kept; NULL: none. */
static const held_block *held_next(held *h, uint64_t time_us) {
  size_t i;
  for (i = 0; i < h->count; i++) {
    held_block found;
    if (h->blocks[i].due_us > time_us) continue;
    found = h->blocks[i];
    memmove(&h->blocks[i], &h->blocks[i + 1], (--h->count - i) * sizeof *h->blocks);
    h->blocks[h->count] = found; /* there until the next one is kept */
    return &h->blocks[h->count];
  }
  return NULL;
}

#endif
