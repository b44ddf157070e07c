/* With the option `observed` the lake tells of its steps: what they add up to has to be what its
   statistics say. Include after model.h. */
#if !defined(PLAY_OBSERVE_H)
#define PLAY_OBSERVE_H

#include "model.h"

static struct told {
  uint64_t count[GMLAKE_STEP_END + 1]; /* of ALLOC those that were served */
  uint64_t newest;                     /* attempt that is over */
  uint64_t driver_ns;
  size_t reserved_bytes, active_bytes; /* the latter without buffers */
  int has_lent;                        /* a pool has been lent */
  int has_admitted;                    /* what an admission takes is taken back */
  const char *reason;                  /* of the last attempt */
  gmlake_step attempt;                 /* the last one */
  gmlake_step done_for;                /* the last step for one; request 0: there was none */
  uint64_t steps_of, steps_ns;         /* the newest that made a step, and its steps' time */
  uint64_t states[6];
  gmlake_step queue[64]; /* since the mark, as far as there is room */
  size_t count_queued, count_heard;
} told;

static size_t committed_bytes(void) {
  size_t i, bytes = 0;
  for (i = 0; i < BUFFERS * CELLS; i++)
    if (w.buffers[i / CELLS].value) bytes += w.buffers[i / CELLS].cells[i % CELLS].bytes;
  return bytes;
}

/* Attempts are counted. One that another pool then served, to a borrower, is not told. */
static int is_next(uint64_t request) {
  return request == told.newest + 1 || (told.has_lent && request > told.newest);
}

static void hear_of_attempt(const gmlake_step *e) {
  judge(e->state >= 1 && e->state <= 5 && (e->state == 5) == !e->address,
        "an attempt in a state that there is not");
  judge(is_next(e->request) && e->asked_bytes, "an attempt that nobody made");
  told.newest = e->request;
  told.reason = e->reason;
  told.attempt = *e;
  told.states[e->state]++;
  judge(told.steps_of != e->request || told.steps_ns <= e->driver_ns,
        "an attempt that takes less time than its steps");
  judge(told.done_for.request != e->request ||
            (told.done_for.label == e->label && told.done_for.pool == e->pool),
        "a step is told with another label than its attempt");
  if (!e->address) return;
  judge(e->asked_bytes <= e->bytes, "a block is told smaller than it was asked for");
  told.active_bytes += e->bytes;
}

static void hear_of_free(const gmlake_step *e) {
  const block *b = w.leaving;
  judge(
      b && b->at == e->address && b->bytes == e->bytes && b->asked == e->asked_bytes && !e->request,
      "a free is told that is not made");
  told.active_bytes -= e->bytes;
}

static void observe(void *user, const gmlake_step *e) {
  (void)user;
  judge(!lake || !lake->has_locks || lake->state_lock.is_held,
        "the observer is told without the state lock");
  judge(e->kind >= GMLAKE_STEP_ALLOC && e->kind <= GMLAKE_STEP_END, "an unknown step");
  judge(w.destroying != 2 || e->kind == GMLAKE_STEP_WAIT, "steps of a lake that ends");
  judge(e->reason && *e->reason && e->bytes % GRAIN == 0, "a step without a reason");
  told.count[e->kind] += e->kind != GMLAKE_STEP_ALLOC || e->address;
  if (e->kind == GMLAKE_STEP_ALLOC) {
    hear_of_attempt(e);
  } else {
    judge(!e->state && (!e->request || is_next(e->request)), "a step of no attempt");
    told.driver_ns += e->driver_ns;
    if (e->request) {
      told.steps_ns = (told.steps_of == e->request ? told.steps_ns : 0) + e->driver_ns;
      told.steps_of = e->request;
    }
    if (e->request) told.done_for = *e;
  }
  if (told.count_queued < 64) told.queue[told.count_queued++] = *e;
  if (e->kind == GMLAKE_STEP_FREE) hear_of_free(e);
  if (e->kind == GMLAKE_STEP_GROW) told.reserved_bytes += e->bytes;
  if (e->kind == GMLAKE_STEP_TRIM) told.reserved_bytes -= e->bytes;
  judge(e->reserved_bytes == told.reserved_bytes, "a step's reserved_bytes");
  /* Of a buffer it is told before the call returns, and before its own size is known here. */
  judge(e->kind >= GMLAKE_STEP_BUFFER || e->active_bytes == told.active_bytes + committed_bytes(),
        "a step's active_bytes");
}

/* A borrower's attempt that fails in the end, and an admission, may be told to split or reuse: the
   statistics take that back. */
static int is_told(gmlake_step_kind kind, uint64_t count) {
  return told.count[kind] == count ||
         ((told.has_lent || told.has_admitted) && told.count[kind] > count);
}

/* An attempt is told as it was made, and with no more time than its call took. The driver may have
   said meanwhile that its stream is gone. */
static void judge_attempt(const gmlake_alloc_desc *wanted, gmlake_stream stream, gmlake_pool *from,
                          uint64_t address, uint64_t driver_ns) {
  const gmlake_step *e = &told.attempt;
  if (!desc.observer.fn || told.has_lent || w.handler_calls || w.is_inside) return;
  judge(e->asked_bytes == wanted->bytes && e->address == address && e->label == wanted->label &&
            e->pool == from &&
            (e->stream == stream || (w.seems_gone && e->stream == GMLAKE_STREAM_NONE)),
        "an attempt is told as another one");
  judge(e->driver_ns <= driver_ns, "an attempt is told to take more time");
}

static void judge_told(const gmlake_stats *s) {
  int i;
  if (!desc.observer.fn) return;
  for (i = 0; i <= POOLS; i++) told.has_lent |= w.pools[i].is_lent;
  judge(told.count[GMLAKE_STEP_ALLOC] == s->allocation_count, "told of other allocations");
  judge(told.count[GMLAKE_STEP_FREE] == s->free_count, "told of other frees");
  for (i = 1; i < 6 && !told.has_lent && !w.has_failed && !told.count[GMLAKE_STEP_BUFFER]; i++)
    judge(told.states[i] == s->state_count[i - 1], "told of other states");
  judge(is_told(GMLAKE_STEP_SPLIT, s->split_count), "told of other splits");
  judge(told.count[GMLAKE_STEP_STITCH] == s->stitch_count, "told of other stitches");
  judge(is_told(GMLAKE_STEP_REUSE, s->stitch_reuse_count), "told of other reuses");
  judge(told.count[GMLAKE_STEP_EVICT] == s->stitch_evict_count, "told of other evictions");
  judge(told.count[GMLAKE_STEP_WAIT] == s->stream_wait_count + s->host_wait_count,
        "told of other waits");
  judge(told.reserved_bytes == s->reserved_bytes, "told of other memory");
  judge(told.active_bytes == s->active_bytes - s->buffer_bytes, "told of other blocks");
  judge(told.driver_ns <= s->driver_ns, "told of more time than there was");
}

#endif /* PLAY_OBSERVE_H */
