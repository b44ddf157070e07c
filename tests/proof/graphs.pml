/* Captures and the graphs that come of them, lending, sleep.

   What is checked:
   - gmlake.h, CAPTURES: "the lake does not record, wait or ask on the stream." "what a capture
     used stays with the pool until the pool is destroyed: it is reused inside the capture, and by
     later captures into the pool."
   - SECURITY.md, Lending: "Between lend and recall, memory that a graph knows serves requests
     with GMLAKE_TRANSIENT alone, stays mapped at the graph's addresses and is not returned. Each
     borrower comes behind the launches and behind earlier borrowers, and the stream of recall
     behind all of them."
   - SECURITY.md, Sleep: "A pool that cannot be put to sleep stays awake". "A pool that cannot be
     woken sleeps on and keeps what was kept." gmlake.h, SLEEP: "At waking these get memory again:
     blocks, buffers, live windows, and what graphs know. KEEP keeps their contents."
   - SECURITY.md, Order, of a pool that is destroyed: nothing goes under work.
   - gmlake.h, >>lend: [G1] [G2].

   Bounds: one pool of two chunks, each a block; three streams; five numbers for them, a capture
   and a loan; a graph that was captured and launched before, on stream 0, whose block is still
   live and was used, or has been freed, lent and borrowed since; then every order of OPS calls,
   of which the pool's destruction, a sleep and a recall have a middle in which other threads call;
   four works a stream. The program keeps the manual's rules and no more: launches come behind
   each other, behind what it does with the graphs' results and behind recall.

   Not in it: windows, two captures into one pool at once, the legacy stream, a capture that ends
   untold, streams that end (ends.pml); errors of a copy. */

#ifndef OPS
#define OPS 6
#endif

c_decl {
\#include <string.h>
\#define LINES 3
\#define NUMBERS 6
\#define FENCES 2
\#define WORKS 4
\#define CHUNKS 2
\#define GRAPH 7 /* GMLK_GRAPH_OWNED */
\#define ENDLESS 255
  extern void (*Uerror)(char *);
\#include "clocks.h"

  enum { FREE, LIVE, PENDING, UNBACKED };
  enum { AWAKE, CHANGING, ASLEEP };

  typedef struct {
    unsigned char state, stream, epoch; /* the tag; of a live block its own stream, and its born */
    unsigned char uses[NUMBERS];
    unsigned char in_graph, transient; /* its flags */
    unsigned char is_known, is_asleep, has_copy; /* of its chunk */
    /* What is true, and not known to the lake: */
    unsigned char line, in_a_graph; /* a graph uses its address */
    unsigned char content;          /* what was written is there */
    Clock got, used;
  } Block;

  typedef struct {
    Device d;
    Stream streams[NUMBERS];
    Block blocks[CHUNKS];
    unsigned char used_count, capture_count, is_ending, calls, wait_for, wait_epoch;
    unsigned char answers[NUMBERS];
    /* The pool: */
    unsigned char loan, captures, sleep, is_gone;
    unsigned char users[NUMBERS]; /* of the loan: epochs; 0: not one of them */
    /* True: */
    unsigned char capturing[LINES], kept;
    Clock launched, results; /* the graphs' launches; what uses their results, and recall */
    /* In the middle of a destruction, of a sleep, or of a recall: */
    unsigned char step, for_number, for_line;
    /* In a call: */
    unsigned char line, block, may_work, may_use, may_free, may_launch, may_take;
  } World;
  World w;
}
c_track "&w" "sizeof(World)"

c_code {
  static void touch(int n) {
    must(!w.capturing[w.streams[n].line], "a call on a captured stream spoils the capture");
  }
\#include "streams.h"

  static void tag(Block *x, int state, int stream, int epoch) {
    x->state = (unsigned char)state;
    x->stream = (unsigned char)stream;
    x->epoch = (unsigned char)(stream ? epoch : 0);
    if (state == FREE && stream == CLEAN) {
      must(is_over(&w.d, &x->used), "clean memory is in use");
      must(!x->in_a_graph || x->is_asleep, "memory that a graph knows is anybody's");
    }
  }

  static void release(Block *x, int stream, int epoch) {
    x->transient = x->in_graph = 0;
    memset(x->uses, 0, NUMBERS);
    tag(x, FREE, stream, epoch);
  }

  static void pending_end(Block *x) {
    release(x, tag_done(x->stream, x->epoch) ? CLEAN : x->stream, x->epoch);
  }

  static int uses_left(const Block *x) {
    int n, left = 0;
    for (n = 1; n < NUMBERS; n++) left += x->uses[n] != 0;
    return left;
  }

  static void take_back(void) {
    int u, n;
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      for (n = 1; n < NUMBERS && x->state == PENDING; n++)
        if (x->uses[n] <= w.streams[n].done) x->uses[n] = 0;
      if (x->state == PENDING && !uses_left(x)) pending_end(x);
      if (x->state == FREE && x->stream < GRAPH && !w.streams[x->stream].is_capture &&
          tag_done(x->stream, x->epoch))
        tag(x, FREE, CLEAN, 0);
    }
  }

  static void refresh(int close) {
    int n;
    for (n = 1; n < NUMBERS; n++) {
      if (!w.streams[n].is_used || w.streams[n].is_capture) continue;
      if (close) (void)stream_close(n);
      stream_poll(n);
    }
    take_back();
  }

  static void retag(int from, int to) { /* gmlk_arena_retag, gmlk_pending_retag */
    int u;
    for (u = 0; u < CHUNKS; u++)
      if ((w.blocks[u].state == FREE || w.blocks[u].state == PENDING) && w.blocks[u].stream == from)
        w.blocks[u].stream = (unsigned char)to;
  }

  static int find_or_add(int line) {
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_capture && w.streams[n].line == line) return n;
    return stream_add(line, line, 0);
  }

  /* ---- the loan's users ---- */

  static void loan_use(int n) {
    w.users[n] = w.streams[n].epoch;
  }

  static int loan_follow(int n) {
    int m;
    for (m = 1; m < NUMBERS; m++)
      if (w.users[m] && !wait_for_work(n, m, w.users[m])) return 0;
    return 1;
  }

  static int loan_follow_pending(int n) {
    int u, m;
    for (u = 0; u < CHUNKS; u++)
      for (m = 1; m < NUMBERS; m++)
        if (w.blocks[u].state == PENDING && w.blocks[u].stream == w.loan && w.blocks[u].uses[m] &&
            !wait_for_work(n, m, w.blocks[u].uses[m]))
          return 0;
    return 1;
  }

  static int is_borrowed(void) {
    return (w.blocks[0].state == LIVE && w.blocks[0].transient) ||
           (w.blocks[1].state == LIVE && w.blocks[1].transient);
  }

  /* ---- blocks ---- */

  static void hand_over(Block *x, int n, int in_capture, int is_transient) {
    const int line = w.streams[n].line;
    must(w.sleep == AWAKE && !x->is_asleep, "memory that sleeps is handed over");
    if (in_capture) {
      x->in_a_graph = 1;
    } else {
      must(is_transient || !x->in_a_graph, "memory that a graph knows serves a plain request");
      must(is_behind(&w.d, &x->used, line), "memory is handed over under other work");
      w.d.queued[line]++;
      use_next(&w.d, &x->used, line);
      x->content = 1;
    }
    x->got = w.d.seen[line];
    x->got.at[line] = (unsigned char)(w.d.queued[line] - !in_capture);
    x->state = LIVE;
    x->stream = (unsigned char)n;
    x->epoch = w.streams[n].born;
    x->line = (unsigned char)line;
    x->in_graph = (unsigned char)in_capture;
    x->transient = (unsigned char)is_transient;
  }

  static void tag_for(const Block *x, int n, int *stream, int *epoch) {
    const Stream *s = &w.streams[n];
    *stream = n;
    *epoch = n ? s->epoch : 0;
    if (!x->transient && !x->in_graph) return;
    *epoch = ENDLESS;
    *stream = x->transient ? w.loan : n && s->capture ? s->capture : GRAPH;
  }

  static void lake_free(Block *x, int n) {
    int stream, epoch, is_lent, m, is_used;
    tag_for(x, n, &stream, &epoch);
    is_lent = stream == GRAPH || (stream != n && x->transient);
    if (is_lent && n) loan_use(n);
    for (m = 1; m < NUMBERS; m++) /* gmlk_uses_end */
      if (m == (n ? n : x->stream)) x->uses[m] = 0;
    is_used = uses_left(x);
    x->line = 0;
    memset(&x->got, 0, sizeof(Clock));
    if (is_used) { /* gmlk_pend */
      x->state = PENDING;
      x->stream = (unsigned char)stream;
      x->epoch = (unsigned char)epoch;
      for (m = 1; m < NUMBERS; m++) {
        if (!x->uses[m]) continue;
        x->uses[m] = w.streams[m].epoch;
        w.streams[m].is_dirty = 1;
        (void)stream_fence(m);
      }
    } else {
      release(x, stream, epoch);
    }
    if (!n || !(stream == n || is_lent)) return;
    w.streams[n].is_dirty = 1;
  }

  /* ---- the program's calls ---- */

  static void call_alloc(int is_transient) {
    Block *x = &w.blocks[w.block];
    const int n = find_or_add(w.line);
    const Stream *s = &w.streams[n];
    const int asks = s->capture ? s->capture : is_transient ? w.loan : n;
    int m;
    if (w.sleep || w.is_gone || (is_transient && (!w.loan || s->capture))) return;
    if (x->state != FREE || (x->stream != CLEAN && x->stream != asks)) return;
    for (m = 1; m < NUMBERS && is_transient; m++) /* what may not be waited for: gmlk_serve_pool */
      if (w.users[m] && m != n && w.streams[m].capture && !tag_done(m, w.users[m]) &&
          covering(&w.streams[m], w.users[m]) == w.streams[m].fence_count)
        return;
    if (is_transient && !loan_follow(n)) return;
    hand_over(x, n, s->capture != 0, is_transient);
  }

  static void call_use(void) { /* gmlake_record_stream, and a use there, or on the own stream */
    Block *x = &w.blocks[w.block];
    const int n = find_or_add(w.line);
    if (w.capturing[w.line] || w.sleep || w.d.queued[w.line] >= WORKS) return;
    if (x->in_graph) join(&w.d.seen[w.line], &w.launched); /* a result: behind the launch */
    join(&w.d.seen[w.line], &x->got);
    if (w.line != x->line) x->uses[n] = w.streams[n].born;
    w.d.queued[w.line]++;
    x->used.at[w.line] = w.d.queued[w.line];
    if (x->in_graph) {
      const Clock now = now_of(&w.d, w.line);
      join(&w.results, &now);
    }
  }

  /* On LINES: on GMLAKE_STREAM_NONE. */
  static void call_free(void) {
    Block *x = &w.blocks[w.block];
    const Clock before = now_of(&w.d, x->line);
    const int n = w.line == LINES ? NO_STREAM : find_or_add(w.line);
    if (w.line != x->line) { /* a stream that is captured has been made to wait before */
      if (w.line < LINES && w.capturing[w.line]) return;
      join(w.line == LINES ? &w.d.host : &w.d.seen[w.line], &before);
      if (w.line == LINES && x->in_graph) join(&w.d.host, &w.launched);
    }
    lake_free(x, n);
  }

  static void call_capture_begin(void) {
    const int n = find_or_add(w.line);
    Stream *s = &w.streams[n];
    int capture;
    if (s->capture || w.sleep || w.loan || w.captures) return;
    if (w.blocks[0].state == LIVE || w.blocks[0].state == PENDING || w.blocks[1].state == LIVE ||
        w.blocks[1].state == PENDING) {
      loan_use(n); /* it may have used blocks that the capture then frees */
      s->is_dirty = 1;
    }
    (void)stream_fence(n);
    capture = stream_add(w.line, w.line, 1);
    if (!capture) return;
    retag(GRAPH, capture);
    w.captures = w.capture_count = 1;
    s->capture = (unsigned char)capture;
    w.capturing[w.line] = 1;
  }

  static void call_capture_end(void) {
    const int n = find_or_add(w.line);
    Stream *s = &w.streams[n];
    int u;
    w.capturing[w.line] = 0;
    retag(s->capture, GRAPH);
    for (u = 0; u < CHUNKS; u++)
      w.blocks[u].is_known = w.blocks[u].state != UNBACKED;
    w.captures = w.capture_count = 0;
    w.streams[s->capture].is_used = 0;
    s->capture = 0;
  }

  static void call_launch(void) {
    Clock now;
    int u;
    join(&w.d.seen[w.line], &w.launched);
    join(&w.d.seen[w.line], &w.results);
    w.d.queued[w.line]++;
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      if (!x->in_a_graph) continue;
      must(x->state != UNBACKED && !x->is_asleep, "a graph's memory is not mapped");
      must(is_behind(&w.d, &x->used, w.line), "a graph runs beside other work on its memory");
      use_next(&w.d, &x->used, w.line);
    }
    now = now_of(&w.d, w.line);
    join(&w.launched, &now);
  }

  static void loan_shift(int from, int to, int epoch) {
    int u;
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      if (x->state != FREE || x->is_known || x->stream != from) continue;
      x->stream = (unsigned char)to;
      x->epoch = (unsigned char)epoch;
    }
  }

  static void call_lend(void) {
    const int n = find_or_add(w.line);
    int number;
    if (w.sleep || w.loan || w.captures || w.streams[n].capture) return;
    join(&w.d.seen[w.line], &w.launched); /* the program has seen to that */
    number = stream_add(w.line, w.line, 1);
    if (!number) return;
    loan_use(n);
    w.streams[n].is_dirty = 1;
    w.loan = (unsigned char)number;
    retag(GRAPH, number);
    loan_shift(n, number, ENDLESS);
  }

  static void recall_end(int n, int line) {
    Stream *s = &w.streams[n];
    const int number = w.loan;
    Clock now;
    int u;
    w.step = w.for_number = w.for_line = 0;
    if (is_borrowed()) return; /* meanwhile */
    for (u = 0; u < CHUNKS; u++)
      if (w.blocks[u].state == FREE && w.blocks[u].stream == number) w.blocks[u].stream = GRAPH;
    loan_shift(GRAPH, n, s->epoch);
    s->is_dirty = 1;
    for (u = 0; u < CHUNKS; u++) /* pending ones, too */
      if (w.blocks[u].state == PENDING && w.blocks[u].stream == number) w.blocks[u].stream = GRAPH;
    w.streams[number].is_used = 0;
    w.loan = 0;
    memset(w.users, 0, NUMBERS);
    loan_use(n); /* it is behind them all */
    now = now_of(&w.d, line);
    join(&w.results, &now); /* launches come behind this stream */
  }

  /* The host has waited for streams that are gone: who borrowed or freed meanwhile is followed. */
  static void recall_again(void) {
    const int n = w.for_number, line = w.for_line;
    if (loan_follow(n) && loan_follow_pending(n)) recall_end(n, line);
    w.step = w.for_number = w.for_line = 0;
  }
  static void call_recall(void) {
    const int n = find_or_add(w.line);
    if (!w.loan || is_borrowed()) return;
    if (!loan_follow(n) || !loan_follow_pending(n)) return;
    recall_end(n, w.line);
  }

  static void unback(Block *x) {
    must(is_over(&w.d, &x->used), "a chunk is returned under work");
    must(!x->in_a_graph || w.is_gone, "a chunk is returned that a graph knows");
    memset(x, 0, sizeof(*x));
    x->state = UNBACKED;
  }

  static void call_trim(void) {
    int u;
    refresh(1);
    for (u = 0; u < CHUNKS && w.sleep < ASLEEP; u++)
      if (w.blocks[u].state == FREE && w.blocks[u].stream == CLEAN) unback(&w.blocks[u]);
  }

  static void call_grow(void) {
    Block *x = &w.blocks[w.block];
    if (x->state != UNBACKED || w.sleep || w.is_gone) return;
    memset(x, 0, sizeof(*x));
  }

  /* ---- waits of the host, and the ends of pools ---- */

  static void wait_for_others(void) {
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_capture) (void)stream_close(n);
    for (n = 1; n < NUMBERS; n++) {
      w.answers[n] = w.streams[n].is_capture ? 0 : FENCES;
      if (w.streams[n].is_used) stream_poll(n);
    }
    take_back();
  }

  static int is_quiet(void) {
    int u;
    for (u = 0; u < CHUNKS; u++)
      if (w.blocks[u].state == PENDING ||
          (w.blocks[u].state == FREE && w.blocks[u].stream && w.blocks[u].stream < GRAPH))
        return 0;
    for (u = 1; u < NUMBERS; u++) /* who used what the pool lends */
      if (w.users[u] && !tag_done(u, w.users[u])) return 0;
    return 1;
  }

  static int is_partial(void) { /* a capture forbids to wait for some stream */
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_capture && w.streams[n].is_dirty) return 1;
    return 0;
  }

  static void destroy_begin(void) { /* pre: its graphs have run, and are destroyed */
    if (w.is_gone || w.loan || w.captures || w.sleep) return;
    join(&w.d.host, &w.launched);
    wait_for_others();
    w.step = 1;
  }
  static void destroy_end(void) { /* others may have freed meanwhile */
    int u, live = 0;
    for (u = 0; u < CHUNKS; u++)
      live += w.blocks[u].state == LIVE || w.blocks[u].state == PENDING;
    w.step = 0;
    if (w.captures || live || !is_quiet()) return;
    w.is_gone = 1;
    for (u = 0; u < CHUNKS; u++)
      if (w.blocks[u].state != UNBACKED) unback(&w.blocks[u]);
  }

  /* A stream that a borrowed block is recorded on is gone: the host waits for all others. */
  static void recall_begin(void) {
    int n;
    if (!w.loan || is_borrowed() || !w.may_work || w.capturing[w.line]) return;
    n = find_or_add(w.line);
    if (!loan_follow(n)) return;
    wait_for_others();
    w.for_number = (unsigned char)n;
    w.for_line = w.line;
    w.step = 3;
  }

  static void sleep_begin(void) { /* pre: the program has waited for all work on the pool */
    int u;
    if (w.sleep || w.loan || w.captures || w.is_gone) return;
    join(&w.d.host, &w.launched);
    for (u = 0; u < CHUNKS; u++) join(&w.d.host, &w.blocks[u].used);
    for (u = 0; u < CHUNKS; u++) { /* gmlk_pool_settle */
      Block *x = &w.blocks[u];
      if (x->state == FREE && x->stream != GRAPH && x->stream) tag(x, FREE, CLEAN, 0);
      if (x->state == FREE && x->stream == CLEAN) unback(x);
    }
    w.sleep = ASLEEP;
    w.step = 2;
  }
  static void sleep_end(int keeps, int is_unmapped) {
    int u;
    w.step = 0;
    if (!is_unmapped) { /* all is mapped again */
      w.sleep = AWAKE;
      return;
    }
    w.kept = (unsigned char)keeps;
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      if (x->state == UNBACKED) continue;
      x->is_asleep = 1;
      x->has_copy = (unsigned char)(keeps && x->content);
    }
  }
  static void sleep_again(int is_taken) { /* DROP of a pool that sleeps */
    int u;
    if (w.sleep != ASLEEP || w.step) return;
    w.kept = (unsigned char)(w.kept && !is_taken); /* after an error contents are as before */
    if (!is_taken) return;
    for (u = 0; u < CHUNKS; u++) w.blocks[u].has_copy = 0;
  }
  static void call_wake(int is_mapped) {
    int u;
    if (w.sleep != ASLEEP || w.step) return;
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      if (x->state == FREE && x->stream != GRAPH && x->stream) tag(x, FREE, CLEAN, 0);
      if (x->state == FREE && x->stream == CLEAN && x->is_asleep) { /* gmlk_slots_forget */
        must(!x->in_a_graph, "what a graph knows gets no memory at waking");
        memset(x, 0, sizeof(*x));
        x->state = UNBACKED;
      }
    }
    if (!is_mapped) return; /* it sleeps on, and keeps what was kept */
    for (u = 0; u < CHUNKS; u++) {
      Block *x = &w.blocks[u];
      if (!x->is_asleep) continue;
      must(!w.kept || !(x->state == LIVE || x->in_a_graph) || !x->content || x->has_copy,
           "contents are lost that were kept");
      x->is_asleep = x->has_copy = 0;
      x->content = (unsigned char)(x->content && w.kept);
    }
    w.sleep = AWAKE;
    w.kept = 0;
  }

  /* ---- what applies in a call, and what holds between two ---- */

  static int is_named(int line) {
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_capture && w.streams[n].line == line) return 1;
    return 0;
  }

  static void look(int line, int block) {
    const Block *x = &w.blocks[block];
    const int works = line < LINES && w.d.queued[line] < WORKS && !w.is_gone &&
                      (!line || is_named(line - 1));
    w.line = (unsigned char)line;
    w.block = (unsigned char)block;
    w.may_work = works;
    w.may_use = works && x->state == LIVE;
    w.may_free = x->state == LIVE && (works || line == LINES);
    w.may_launch = works && !block && !w.sleep && !w.loan && !w.capturing[line] && !w.step;
    w.may_take = works && x->state == FREE;
  }

  static void end_of_call(void) {
    int u;
    memset(w.answers, 0, NUMBERS);
    memset(&w.line, 0, (size_t)(&w.may_take + 1 - &w.line));
    check_streams();
    for (u = 0; u < CHUNKS; u++)
      must(!(w.blocks[u].state == LIVE && w.blocks[u].transient) || w.loan,
           "[G2] borrowed of nobody");
    must(!(w.loan && w.captures), "[G1] a pool is lent while it is captured into");
  }
}

byte line, block;

inline begin() {
  c_expr { w.calls < OPS };
  select(line : 0 .. 3);
  select(block : 0 .. 1);
  c_code { w.calls++; look(now.line, now.block); };
  line = 0;
  block = 0
}

proctype program() {
end:
  do
  :: atomic {
      begin();
      if
      :: c_expr { w.may_take } -> c_code { call_alloc(0); }
      :: c_expr { w.may_take && w.loan } -> c_code { call_alloc(1); }
      :: c_expr { w.may_use } -> c_code { call_use(); }
      :: c_expr { w.may_free } -> c_code { call_free(); }
      :: c_expr { w.may_work && w.block == 0 } -> c_code { call_capture_begin(); }
      :: c_expr { w.line < LINES && w.block == 0 && w.capturing[w.line] } ->
        c_code { call_capture_end(); }
      :: c_expr { w.may_launch } -> c_code { call_launch(); }
      :: c_expr { w.may_work && w.block == 0 } -> c_code { call_lend(); }
      :: c_expr { w.may_work && w.block == 0 && w.loan && !w.step } -> c_code { call_recall(); }
      :: c_expr { w.line == LINES && w.block == 0 } -> c_code { call_trim(); }
      :: c_expr { w.line == LINES } -> c_code { call_grow(); }
      :: c_expr { w.line == LINES && w.block == 1 } ->
        c_code { w.answers[1] = w.answers[3] = FENCES; refresh(1); }
      :: c_expr { w.line == LINES && w.block == 1 && w.sleep } -> c_code { sleep_again(0); }
      :: c_expr { w.line == LINES && w.block == 1 && w.sleep } -> c_code { sleep_again(1); }
      :: c_expr { w.line == LINES && w.block == 1 && w.sleep } -> c_code { call_wake(0); }
      :: c_expr { w.line == LINES && w.block == 1 && w.sleep } -> c_code { call_wake(1); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  od
}

/* Calls that release state_lock in the middle. */
proctype planner() {
end:
  do
  :: atomic { begin(); c_code { destroy_begin(); end_of_call(); } }
    if
    :: atomic { c_expr { w.step == 1 } -> c_code { destroy_end(); end_of_call(); } }
    :: else
    fi
  :: atomic { begin(); c_code { recall_begin(); end_of_call(); } }
    if
    :: atomic {
        c_expr { w.step == 3 } ->
        c_code { recall_again(); end_of_call(); }
      }
    :: else
    fi
  :: atomic { begin(); c_code { sleep_begin(); end_of_call(); } }
    if
    :: atomic { c_expr { w.step == 2 } -> c_code { sleep_end(1, 1); end_of_call(); } }
    :: atomic { c_expr { w.step == 2 } -> c_code { sleep_end(0, 1); end_of_call(); } }
    :: atomic { c_expr { w.step == 2 } -> c_code { sleep_end(1, 0); end_of_call(); } }
    :: else
    fi
  od
}

init {
  atomic {
    c_code { /* a graph that has run once, and what used its result */
      call_capture_begin();
      call_alloc(0);
      call_capture_end();
      call_launch();
      call_use();
      end_of_call();
    };
    if
    :: true
    :: c_code { /* what it used was lent since, to another stream, that has given it back */
        call_free();
        w.line = 1;
        call_lend();
        call_alloc(1);
        call_free();
        end_of_call();
      }
    fi;
    run program();
    run planner()
  }
}
