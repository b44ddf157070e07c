/* Streams that end untold and whose values come back, recorded streams, waits for the whole
   device: GMLAKE_STREAMS_MAY_END.

   What is checked:
   - gmlake.h, STREAMS: "The lake then touches a stream only in calls that name it; by naming it
     the caller says that it exists." "a known value with another id is another stream. A block
     that outlives its stream, or a stream that it is recorded on, may be freed with that stream's
     old value as the stream; its memory serves again after a wait for the whole device. Where a
     free names another stream than a block is recorded on, the next call that names the recorded
     one records the event; before that, only a wait for the whole device gives the memory back".
   - SECURITY.md, Order: "Memory passes from one stream to another only behind an event."
   - SECURITY.md, What is not promised: "The lake cannot know that a stream was destroyed unless
     the program calls gmlake_forget_stream before, or sets GMLAKE_STREAMS_MAY_END".
   - gmlake.h, >>tags: [F1] [F2] [F4] [F7] [F8].

   Bounds: two blocks of a chunk; two values, which three streams have one after the other: each
   may be destroyed at any time, told or untold, and its value come back at once; three numbers;
   two fences a number; two works a stream; every order of OPS calls by two threads, one of which
   holds driver_lock and releases state_lock while the host waits for the whole device.

   Not in it: what a capture uses (graphs.pml), marked streams, the legacy stream; a driver that
   does not answer stream_id. */

#ifndef OPS
#define OPS 7
#endif

c_decl {
\#include <string.h>
\#define LINES 3
\#define NUMBERS 4 /* 0 stands for no stream, and for the CLEAN tag */
\#define FENCES 2
\#define WORKS 2
\#define VALUES 2
\#define GONE 9 /* no stream has the value */
  extern void (*Uerror)(char *);
\#include "clocks.h"

  enum { FREE, LIVE, PENDING };

  typedef struct {
    unsigned char state, stream, epoch; /* the tag; of a live block its own stream, and its born */
    unsigned char uses[NUMBERS]; /* recorded streams: of a live block their born, of a pending one
                                    the epoch that it waits for */
    /* What is true, and not known to the lake: */
    unsigned char line; /* of a live block: that it was allocated on */
    Clock got;          /* where the line got it */
    Clock used;         /* uses of the chunk */
  } Block;

  typedef struct {
    Device d;
    Stream streams[NUMBERS];
    Block blocks[2];
    unsigned char used_count, capture_count, is_ending, calls, wait_for, wait_epoch;
    unsigned char answers[NUMBERS];     /* so many fences are complete when they are asked for */
    unsigned char line_at[VALUES];      /* the stream that has the value; GONE */
    unsigned char value_of[LINES], born_lines; /* so many streams have been created */
    unsigned char waits; /* the host waits for the device; `all` is what that had then */
    unsigned char calls_then;
    Clock all;
    /* In a call, 0 between two: the value that it names, and what applies. */
    unsigned char named, value, block, may_alloc, may_record, may_free, may_create, may_destroy;
  } World;
  World w;
}
c_track "&w" "sizeof(World)"

c_code {
  static void touch(int n) {
    const Stream *s = &w.streams[n];
    must(w.named == s->value + 1, "[F8] a stream is touched by a call that does not name it");
    must(w.line_at[s->value] == s->line, "the call acts on another stream, or on none");
  }
\#include "streams.h"

  /* ---- memory that becomes free, and clean ---- */

  static void tag(Block *b, int stream, int epoch) {
    b->state = FREE;
    b->stream = (unsigned char)stream;
    b->epoch = (unsigned char)(stream ? epoch : 0);
    if (stream == CLEAN) must(is_over(&w.d, &b->used), "clean memory is in use");
  }

  static void pending_end(Block *x) {
    memset(x->uses, 0, NUMBERS);
    tag(x, tag_done(x->stream, x->epoch) ? CLEAN : x->stream, x->epoch);
  }

  static int uses_left(const Block *x) { return x->uses[1] || x->uses[2] || x->uses[3]; }

  static void take_back(void) {
    int b, n;
    for (b = 0; b < 2; b++) {
      Block *x = &w.blocks[b];
      for (n = 1; n < NUMBERS && x->state == PENDING; n++)
        if (x->uses[n] <= w.streams[n].done) x->uses[n] = 0;
      if (x->state == PENDING && !uses_left(x)) pending_end(x);
      if (x->state == FREE && tag_done(x->stream, x->epoch)) tag(x, CLEAN, 0);
    }
  }

  static void refresh(int close) {
    int n;
    for (n = 1; n < NUMBERS; n++) {
      if (close) (void)stream_close(n);
      stream_poll(n);
    }
    take_back();
  }

  /* ---- which stream a value means ---- */

  static void stream_end(int n, int is_dirty) {
    Stream *s = &w.streams[n];
    if (s->uses || is_dirty) s->is_dirty = 1;
    stream_forget(s);
  }

  static int stream_find(int value) {
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_forgotten && w.streams[n].value == value)
        return n;
    return 0;
  }

  static int stream_enter(int value, int line) {
    int n;
    for (n = 1; n < NUMBERS && !stream_idle(0); n++)
      if (w.streams[n].is_forgotten && !w.streams[n].is_dirty) {
        refresh(0);
        break;
      }
    return stream_add(value, line, 0);
  }

  static int stream_identify(int value, int n, int *line) {
    Stream *s = n ? &w.streams[n] : NULL;
    const int is_there = w.line_at[value] != GONE; /* the driver's answer, */
    *line = w.line_at[value];                      /* and the id */
    if (s && is_there && s->line == *line) {
      if (s->is_dirty) (void)stream_fence(n); /* [F8] */
      return n;
    }
    if (s) stream_end(n, !is_there);
    if (is_there || s) return is_there ? 0 : n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && w.streams[n].value == value && w.streams[n].is_forgotten &&
          w.streams[n].is_dirty)
        return n;
    n = stream_enter(value, GONE);
    if (n && !w.streams[n].is_forgotten) stream_end(n, 1);
    return n;
  }

  static int find_or_add(int value) {
    int line;
    const int n = stream_identify(value, stream_find(value), &line);
    return n ? n : stream_enter(value, line);
  }

  /* ---- blocks ---- */

  static int own_stream(const Block *x) {
    return x->stream && x->epoch == w.streams[x->stream].born ? x->stream : 0;
  }

  static void add_use(Block *x, int n) {
    if (x->uses[n] == w.streams[n].born) return;
    x->uses[n] = w.streams[n].born;
    w.streams[n].uses++; /* [F7] */
  }

  static int uses_end(Block *x, int stream) {
    const int own = own_stream(x);
    int n;
    if (own) w.streams[own].uses--;
    for (n = 1; n < NUMBERS; n++) {
      Stream *s = &w.streams[n];
      if (!x->uses[n]) continue;
      if (x->uses[n] != s->born) {
        x->uses[n] = 0;
        continue;
      }
      s->uses--;
      if ((s->is_forgotten && is_complete(s)) || n == stream) x->uses[n] = 0;
    }
    return uses_left(x);
  }

  static void pend(Block *x, int stream, int epoch) {
    int n;
    x->state = PENDING;
    x->stream = (unsigned char)stream;
    x->epoch = (unsigned char)epoch;
    for (n = 1; n < NUMBERS; n++) {
      Stream *s = &w.streams[n];
      if (!x->uses[n]) continue;
      x->uses[n] = (unsigned char)(s->is_forgotten && !s->is_dirty ? s->epoch - 1 : s->epoch);
      if (!s->is_forgotten) s->is_dirty = 1;
    }
    for (n = 1; n < NUMBERS; n++) /* gmlk_free */
      if (x->uses[n] && (n == stream || !may_end(&w.streams[n]))) (void)stream_fence(n);
  }

  static void lake_free(Block *x, int n) {
    const int epoch = w.streams[n].epoch, own = own_stream(x);
    if (own && own != n && w.streams[own].value == w.streams[n].value) add_use(x, own);
    x->line = 0;
    memset(&x->got, 0, sizeof(x->got));
    if (uses_end(x, n))
      pend(x, n, epoch);
    else
      tag(x, n, epoch);
    w.streams[n].is_dirty = 1;
    (void)stream_fence(n);
  }

  static void hand_over(Block *x, int n) {
    const int line = w.streams[n].line;
    x->got = now_of(&w.d, line);
    w.d.queued[line]++;
    must(is_behind(&w.d, &x->used, line), "memory is handed over under other work");
    use_next(&w.d, &x->used, line);
    x->state = LIVE;
    x->stream = (unsigned char)n;
    x->epoch = w.streams[n].born;
    w.streams[n].uses++;
    x->line = (unsigned char)line;
  }

  static int wait_for_pending(int waiter, Block *x) {
    int n;
    if (x->state != PENDING) return 1;
    if (!wait_for_work(waiter, x->stream, x->epoch)) return 0;
    for (n = 1; n < NUMBERS; n++)
      if (x->uses[n] && !wait_for_work(waiter, n, x->uses[n])) return 0;
    x->stream = (unsigned char)waiter;
    x->epoch = w.streams[waiter].epoch;
    w.streams[waiter].is_dirty = 1;
    pending_end(x);
    return 1;
  }

  /* gmlk_may_await, of a requester that may wait on the device. */
  static int may_await(int n, int epoch) {
    const Stream *s = &w.streams[n];
    return tag_done(n, epoch) || !is_out(s) || covering(s, epoch) < s->fence_count;
  }

  static int may_await_all(const Block *x) {
    int n;
    for (n = 1; n < NUMBERS && x->state == PENDING; n++)
      if (x->uses[n] && !may_await(n, x->uses[n])) return 0;
    return may_await(x->stream, x->epoch);
  }

  /* ---- the program's calls ---- */

  static int line_of_value(void) { return w.line_at[w.value]; }
  static int may_work(void) {
    return line_of_value() != GONE && w.d.queued[line_of_value()] < WORKS;
  }

  static void call_alloc(int may_wait) {
    Block *x = &w.blocks[w.block];
    const int n = find_or_add(w.value);
    if (!n || w.streams[n].is_forgotten) return;
    if (x->state == FREE && (x->stream == CLEAN || x->stream == n)) {
      hand_over(x, n);
    } else if (may_wait && may_await_all(x)) {
      if (!wait_for_pending(n, x)) return;
      if (w.streams[n].is_dirty) (void)stream_fence(n);
      if (wait_for_work(n, x->stream, x->epoch)) hand_over(x, n);
    }
  }

  static void call_record(void) {
    Block *x = &w.blocks[w.block];
    const int n = find_or_add(w.value), line = line_of_value();
    if (!n || x->line == line) return;
    add_use(x, n);
    join(&w.d.seen[line], &x->got); /* behind the point where its own stream got it */
    w.d.queued[line]++;
    x->used.at[line] = w.d.queued[line];
  }

  /* On a stream that is there every use that was not recorded precedes the free, but that of a
     former owner of its value: nobody knew it. */
  static void call_free(void) {
    Block *x = &w.blocks[w.block];
    const Clock before = now_of(&w.d, x->line);
    const int line = line_of_value(), is_former = line != x->line && w.value_of[x->line] == w.value;
    const int n = find_or_add(w.value);
    if (!n) return;
    if (line != GONE && line != x->line && !is_former) join(&w.d.seen[line], &before);
    lake_free(x, n);
  }

  static void call_forget(void) {
    int line, n = stream_find(w.value);
    Stream *s = &w.streams[n];
    if (n) n = stream_identify(w.value, n, &line);
    if (n && !w.streams[n].is_forgotten) {
      s->is_dirty = 1;
      (void)stream_fence(n); /* it covers its uses of live blocks, too */
      stream_forget(s);
    }
    w.line_at[w.value] = GONE;
  }

  static void create(void) { /* the driver hands a value out again at once */
    w.line_at[w.value] = w.born_lines;
    w.value_of[w.born_lines++] = w.value;
  }

  static void device_begin(void) {
    int n, line;
    if (w.capture_count) return; /* CAPTURING */
    w.waits = 1;
    w.calls_then = w.calls;
    for (n = 1; n < NUMBERS; n++)
      if (is_out(&w.streams[n])) w.streams[n].is_dirty = 2; /* AWAITED */
    for (line = 0; line < LINES; line++) w.all.at[line] = w.d.queued[line];
  }
  static void device_end(void) {
    int n;
    if (!w.waits) return;
    must(!w.capture_count, "a wait for the whole device spoils a capture");
    join(&w.d.host, &w.all);
    for (n = 1; n < NUMBERS; n++) {
      Stream *s = &w.streams[n];
      if (s->is_dirty != 2) continue;
      s->is_dirty = 0;
      stream_complete(s, s->epoch++);
    }
    take_back();
    for (n = 1; n < NUMBERS && w.calls == w.calls_then; n++)
      must(!is_out(&w.streams[n]), "a wait for the whole device leaves lost work");
    w.waits = w.calls_then = 0;
    memset(&w.all, 0, sizeof(Clock));
  }

  /* ---- what applies in a call, and what holds between two ---- */

  static void look(int value, int block) {
    const Block *x = &w.blocks[block];
    w.value = (unsigned char)value;
    w.block = (unsigned char)block;
    w.named = (unsigned char)(value + 1);
    w.may_alloc = may_work() && x->state != LIVE;
    w.may_record = may_work() && x->state == LIVE;
    w.may_free = x->state == LIVE && (line_of_value() != GONE || w.value_of[x->line] == value);
    w.may_create = line_of_value() == GONE && w.born_lines < LINES;
    w.may_destroy = line_of_value() != GONE;
  }

  static void end_of_call(void) {
    const int value = w.value, is_named = w.named != 0, line_named = w.line_at[value];
    int b, n, uses;
    memset(w.answers, 0, NUMBERS);
    memset(&w.named, 0, (size_t)(&w.may_destroy + 1 - &w.named));
    check_streams();
    n = is_named && line_named != GONE ? stream_find(value) : 0;
    must(!n || w.streams[n].line != line_named || !w.streams[n].is_dirty,
         "a call names a stream and leaves its epoch open");
    for (b = 0; b < 2; b++) {
      const Block *x = &w.blocks[b];
      must(x->state == LIVE || is_covered(x->stream, x->epoch),
           "[F4] nothing tells when memory is free");
      for (n = 1; n < NUMBERS && x->state == PENDING; n++)
        must(is_covered(n, x->uses[n]), "[F4] nothing tells when a pending block is free");
    }
    for (n = 1; n < NUMBERS; n++) {
      for (uses = b = 0; b < 2; b++) {
        const Block *x = &w.blocks[b];
        if (x->state != LIVE) continue;
        uses += own_stream(x) == n;
        uses += x->uses[n] && x->uses[n] == w.streams[n].born;
      }
      must(!w.streams[n].is_used || w.streams[n].uses == uses,
           "[F7] uses of live blocks are miscounted");
    }
  }
}

byte value, block;

inline begin() {
  c_expr { w.calls < OPS };
  if
  :: true
  :: c_expr { w.streams[1].fence_count > 0 } -> c_code { w.answers[1] = 2; }
  fi;
  if
  :: true
  :: c_expr { w.streams[2].fence_count > 0 } -> c_code { w.answers[2] = 2; }
  fi;
  if
  :: true
  :: c_expr { w.streams[3].fence_count > 0 } -> c_code { w.answers[3] = 2; }
  fi;
  c_code { w.calls++; }
}
inline choose() {
  select(value : 0 .. 1);
  select(block : 0 .. 1);
  c_code { look(now.value, now.block); };
  value = 0;
  block = 0
}

/* The program: its calls that take state_lock alone, and what it does with streams. */
proctype program() {
end:
  do
  :: atomic {
      begin();
      choose();
      if
      :: c_expr { w.may_alloc } -> c_code { call_alloc(0); }
      :: c_expr { w.may_record } -> c_code { call_record(); }
      :: c_expr { w.may_free } -> c_code { call_free(); }
      :: c_expr { w.may_create } -> c_code { create(); }
      :: c_expr { w.may_destroy } -> c_code { w.line_at[w.value] = GONE; } /* untold */
      :: c_expr { w.value == 0 && w.block == 0 && !w.waits } -> /* a capture begins, behind a wait
                                                                 for the device; or ends */
        c_code { w.named = 0; w.capture_count = !w.capture_count; }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  od
}

/* Calls that take driver_lock: while the host waits, `program` goes on. */
proctype planner() {
end:
  do
  :: atomic {
      begin();
      choose();
      if
      :: c_expr { w.may_alloc } -> c_code { call_alloc(1); }
      :: c_expr { w.may_destroy } -> c_code { call_forget(); }
      :: c_expr { w.value == 0 && w.block == 0 } -> c_code { w.named = 0; refresh(1); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  :: atomic { begin(); c_code { device_begin(); end_of_call(); } }
    atomic { c_code { device_end(); end_of_call(); } }
  od
}

init {
  atomic {
  c_code {
    w.is_ending = 1;
    w.line_at[0] = 0;
    w.line_at[1] = 1;
    w.value_of[1] = 1;
    w.born_lines = 2;
  };
    run program();
    run planner()
  }
}
