/* Tags, epochs, fences, waits, unmapping and deferred release.

   What is checked:
   - SECURITY.md, Order: "Memory passes from one stream to another only behind an event. The lake
     unmaps or returns memory only when the events of every stream that used it have completed."
   - SECURITY.md, Several processes: "What was exported never serves another allocation: it is
     released once it is freed and its work is complete, or quarantined."
   - gmlake.h, THE DATA MODEL: "A stream takes clean memory and its own at once; other memory only
     once the epoch is complete, or behind a wait." "It is unmapped only once its tag is complete:
     until then work may still use its addresses."
   - gmlake.h, >>tags: [F1] [F2] [F4] [F5]; that used_count counts what its comment says.

   Bounds: two chunks, each a block or both under one window; three streams of the program, of
   which two may be forgotten, and two numbers for them, so that a number serves a second stream;
   two fences a number, so that a third one makes room; three works a stream; every order of OPS
   calls by two threads, one of which holds driver_lock and releases state_lock while it waits,
   maps and unmaps. Whenever the driver is asked for an event it may say that it is complete, or
   not.

   Not in it: splits inside a chunk; captures (graphs.pml) and streams that end untold (ends.pml);
   the driver's errors, but that of a map. */

#ifndef OPS
#define OPS 7
#endif

c_decl {
\#include <string.h>
\#define LINES 3
\#define NUMBERS 3 /* 0 stands for no stream, and for the CLEAN tag */
\#define FENCES 2
\#define WORKS 3
\#define WINDOW 2
  extern void (*Uerror)(char *);
\#include "clocks.h"

  enum { FREE, LIVE, PENDING, PIECE, RESERVED, UNBACKED, EMPTY, IDLE, DYING };
  
  typedef struct {
    unsigned char state, stream, epoch; /* the tag; of a live block its own stream, and its born */
    unsigned char uses[NUMBERS]; /* recorded streams: of a live block their born, of a pending one
                                    the epoch that it waits for */
    unsigned char is_shared;
    /* What is true, and not known to the lake: */
    unsigned char line;    /* of a live block: that it was allocated on */
    unsigned char foreign; /* another process may use it */
    Clock got;             /* where the line got it */
    Clock used;            /* uses of a chunk, or of the window's addresses */
  } Block;

  typedef struct {
    Device d;
    Stream streams[NUMBERS];
    Block blocks[3]; /* two chunks, and the window */
    unsigned char used_count, capture_count, is_ending, calls;
    unsigned char named[LINES], ended[LINES];
    /* In a call, 0 between two: which it is about, and what applies: */
    unsigned char line, block, may_alloc, may_record, may_free, may_fence, may_forget, may_grow;
    unsigned char may_export, may_trim, may_return, may_go;
    unsigned char answers[NUMBERS]; /* so many fences are complete when they are asked for */
    /* A fence that the host waits for, and what the planner has chosen: */
    unsigned char wait_for, wait_epoch, chosen, for_line, trimmed;
    Clock wait_event;
  } World;
  World w;
}
c_track "&w" "sizeof(World)"

c_code {
  static void touch(int n) {
    must(!w.ended[w.streams[n].line], "a stream is used that is gone");
  }
\#include "streams.h"

  /* ---- memory that becomes free, and clean ---- */

  static void tag(Block *b, int state, int stream, int epoch) {
    b->state = (unsigned char)state;
    b->stream = (unsigned char)stream;
    b->epoch = (unsigned char)(stream ? epoch : 0);
    if (state == FREE && stream == CLEAN)
      must(is_over(&w.d, &b->used), "clean memory is in use");
  }

  static void release(int b, int stream, int epoch) {
    memset(w.blocks[b].uses, 0, NUMBERS);
    tag(&w.blocks[b], b == WINDOW ? IDLE : FREE, stream, epoch);
    if (b < WINDOW) return;
    tag(&w.blocks[0], FREE, stream, epoch);
    tag(&w.blocks[1], FREE, stream, epoch);
  }

  static void pending_end(int b) {
    const Block *x = &w.blocks[b];
    release(b, tag_done(x->stream, x->epoch) ? CLEAN : x->stream, x->epoch);
  }

  static int uses_left(const Block *x) { return x->uses[1] || x->uses[2]; }

  static void take_back(void) {
    int b, n;
    for (b = 0; b <= WINDOW; b++) {
      Block *x = &w.blocks[b];
      if (x->state != PENDING) continue;
      for (n = 1; n < NUMBERS; n++)
        if (x->uses[n] <= w.streams[n].done) x->uses[n] = 0;
      if (!uses_left(x) && !x->is_shared) pending_end(b);
    }
    for (b = 0; b <= WINDOW; b++) {
      Block *x = &w.blocks[b];
      if (x->state == (b == WINDOW ? IDLE : FREE) && tag_done(x->stream, x->epoch))
        tag(x, x->state, CLEAN, 0);
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

  /* ---- numbers, and waits on the device ---- */

  static int find_or_add(int line) {
    int n;
    for (n = 1; n < NUMBERS; n++)
      if (w.streams[n].is_used && !w.streams[n].is_forgotten && w.streams[n].line == line) return n;
    for (n = 1; n < NUMBERS && !stream_idle(0); n++)
      if (w.streams[n].is_forgotten && !w.streams[n].is_dirty) {
        refresh(0);
        break;
      }
    n = stream_add(line, line, 0);
    if (!n) return 0;
    w.named[line] = 1;
    if (!w.streams[1].is_forgotten && !w.streams[2].is_forgotten) /* the second stream that lives */
      (void)(stream_fence(1), stream_fence(2));
    return n;
  }

  static int wait_for_pending(int waiter, int b) {
    Block *x = &w.blocks[b];
    int n;
    if (x->state != PENDING) return 1;
    if (!wait_for_work(waiter, x->stream, x->epoch)) return 0;
    for (n = 1; n < NUMBERS; n++)
      if (x->uses[n] && !wait_for_work(waiter, n, x->uses[n])) return 0;
    x->stream = (unsigned char)waiter;
    x->epoch = w.streams[waiter].epoch;
    w.streams[waiter].is_dirty = 1;
    pending_end(b);
    return 1;
  }

  /* Takes a chunk from FREE, or PENDING, to RESERVED; the stream waits for what uses it. */
  static int borrow(int n, int u) {
    Block *x = &w.blocks[u];
    if (x->state == PIECE && !wait_for_pending(n, WINDOW)) return 0;
    if (x->state == PENDING && !wait_for_pending(n, u)) return 0;
    if (!wait_for_work(n, x->stream, x->epoch)) return 0;
    x->state = RESERVED;
    return 1;
  }

  static void unreserve(int u) {
    if (w.blocks[u].state == RESERVED) w.blocks[u].state = FREE;
  }

  static int is_open(int u, int n) {
    const Block *x = &w.blocks[u];
    return x->state == FREE && (x->stream == CLEAN || x->stream == n);
  }

  static int may_take(int u, int n, int may_wait) {
    const Block *x = &w.blocks[u], *b = x->state == PIECE ? &w.blocks[WINDOW] : x;
    if (is_open(u, n)) return 1;
    return may_wait && (x->state == FREE || (b->state == PENDING && !b->is_shared));
  }

  /* ---- a block is handed over, used, and freed ---- */

  static void hand_over(int b, int n) {
    Block *x = &w.blocks[b];
    const int line = w.streams[n].line, u = b == WINDOW ? 0 : b, end = b == WINDOW ? 2 : b + 1;
    int i;
    x->got = now_of(&w.d, line);
    w.d.queued[line]++;
    for (i = u; i < end; i++) {
      must(!w.blocks[i].foreign, "what was exported serves again");
      must(is_behind(&w.d, &w.blocks[i].used, line), "memory is handed over under other work");
      use_next(&w.d, &w.blocks[i].used, line);
      w.blocks[i].state = PIECE;
      w.blocks[i].stream = w.blocks[i].epoch = 0;
    }
    if (b == WINDOW) use_next(&w.d, &x->used, line);
    x->state = LIVE;
    x->stream = (unsigned char)n;
    x->epoch = w.streams[n].born;
    x->line = (unsigned char)line;
  }

  static void use(int b, int line) {
    int i;
    join(&w.d.seen[line], &w.blocks[b].got); /* behind the point where its own stream got it */
    w.d.queued[line]++;
    for (i = 0; i <= WINDOW; i++)
      if (i == b || b == WINDOW) w.blocks[i].used.at[line] = w.d.queued[line];
  }

  static int own_stream(const Block *x) {
    return x->stream && x->epoch == w.streams[x->stream].born ? x->stream : 0;
  }

  static int uses_end(Block *x, int stream) {
    int n;
    if (!stream) stream = own_stream(x);
    for (n = 1; n < NUMBERS; n++) {
      const Stream *s = &w.streams[n];
      if (!x->uses[n]) continue;
      if (x->uses[n] != s->born || (s->is_forgotten && is_complete(s)) ||
          (n == stream && !x->is_shared))
        x->uses[n] = 0;
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
    for (n = 1; n < NUMBERS; n++)
      if (x->uses[n]) (void)stream_fence(n);
  }

  /* On number n, 0: on GMLAKE_STREAM_NONE. fences: what it frees is enough for an event. */
  static void lake_free(int b, int n, int fences) {
    Block *x = &w.blocks[b];
    const int epoch = w.streams[n].epoch;
    int is_used;
    if (x->is_shared && n) x->uses[n] = w.streams[n].born;
    is_used = uses_end(x, n);
    x->line = 0;
    memset(&x->got, 0, sizeof(x->got));
    if (is_used || x->is_shared)
      pend(x, n, epoch);
    else
      release(b, n, epoch);
    if (!n) return;
    w.streams[n].is_dirty = 1;
    if (fences) (void)stream_fence(n);
  }

  /* ---- the program's calls: `a` and `b` choose; what does not apply does nothing ---- */

  static int may_work(int line) {
    return !w.ended[line] && w.d.queued[line] < WORKS && (!line || w.named[line - 1]);
  }
  static int is_live(void) { return w.blocks[w.block].state == LIVE; }
  static int may_alloc(void) { return w.line < LINES && may_work(w.line) && !is_live(); }
  static int may_record(void) {
    return w.line < LINES && may_work(w.line) && is_live() && w.blocks[w.block].line != w.line;
  }
  static int may_free(void) { return is_live() && (w.line == LINES || may_work(w.line)); }
  static int may_fence(void) { return w.line < LINES && may_free(); }
  static int may_forget(void) { return w.named[w.line] && !w.ended[w.line]; }
  static int may_grow(void) { return w.blocks[w.block].state == UNBACKED; }

  static void call_alloc(int line, int b) {
    const int n = find_or_add(line);
    if (!n) return;
    if (b < WINDOW ? is_open(b, n)
                   : w.blocks[WINDOW].state == IDLE && is_open(0, n) && is_open(1, n))
      hand_over(b, n);
  }

  static void call_record(int line, int b) {
    const int n = find_or_add(line);
    if (!n) return;
    w.blocks[b].uses[n] = w.streams[n].born;
    use(b, line);
  }

  /* Every use that was not recorded precedes the free: the program has seen to that. */
  static void call_free(int line, int b, int fences) {
    const Clock before = now_of(&w.d, w.blocks[b].line);
    const int n = line == LINES ? NO_STREAM : find_or_add(line);
    if (line < LINES && !n) return;
    if (line != w.blocks[b].line) join(line == LINES ? &w.d.host : &w.d.seen[line], &before);
    lake_free(b, n, fences);
  }

  static void call_forget(int line) {
    const int n = find_or_add(line);
    Stream *s = &w.streams[n];
    if (!n) return;
    s->is_dirty = 1;
    (void)stream_fence(n); /* it covers its uses of live blocks, too */
    stream_forget(s);
    w.ended[line] = 1;
  }

  static void call_borrow(int line, int b) {
    const int n = find_or_add(line);
    const int first = b == WINDOW ? 0 : b, last = b == WINDOW ? 1 : b;
    int ok = n && (b < WINDOW || w.blocks[WINDOW].state != LIVE), u;
    for (u = first; u <= last; u++) ok = ok && may_take(u, n, 1);
    for (u = first; u <= last; u++) ok = ok && borrow(n, u);
    if (ok && b == WINDOW && w.blocks[WINDOW].state == EMPTY) { /* it is stitched first */
      w.chosen = WINDOW;
      w.for_line = (unsigned char)n;
      return;
    }
    if (ok) hand_over(b, n);
    for (u = first; u <= last; u++) unreserve(u);
  }

  static void stitched(int is_mapped) {
    if (is_mapped) hand_over(WINDOW, w.for_line);
    unreserve(0);
    unreserve(1);
    w.chosen = w.for_line = 0;
  }

  static void wait_begin(int n) { /* the fence is taken off */
    Stream *s = &w.streams[n];
    w.wait_for = (unsigned char)n;
    w.wait_epoch = s->fence[0];
    w.wait_event = s->event[0];
    fences_move(s, 1, 0);
  }
  static void wait_end(int is_done) {
    if (is_done) join(&w.d.host, &w.wait_event);
    stream_return_fence(&w.streams[w.wait_for], w.wait_epoch, &w.wait_event, is_done);
    w.wait_for = w.wait_epoch = 0;
    memset(&w.wait_event, 0, sizeof(Clock));
    take_back();
  }

  /* ---- unmapping and releasing ---- */

  static int window_may_go(void) {
    const Block *x = &w.blocks[WINDOW];
    return x->state == IDLE && tag_done(x->stream, x->epoch);
  }

  static int may_trim(void) {
    const Block *x = &w.blocks[w.block];
    return x->state == FREE && x->stream == CLEAN &&
           (w.blocks[WINDOW].state == EMPTY || window_may_go());
  }

  static void trim_begin(int u) { /* gmlk_trim_choose, gmlk_aliases_idle, gmlk_trim_reserve */
    w.trimmed = (unsigned char)(u + 1);
    w.blocks[u].state = RESERVED;
    if (w.blocks[WINDOW].state == IDLE) w.blocks[WINDOW].state = DYING;
  }

  static int may_return(void) {
    const Block *x = &w.blocks[w.block];
    return x->state == PENDING && x->is_shared && !uses_left(x) &&
           (w.blocks[WINDOW].state == EMPTY || window_may_go());
  }

  static void unmap_window(void) {
    Block *x = &w.blocks[WINDOW];
    if (x->state != DYING) return;
    must(is_over(&w.d, &x->used), "a window is unmapped under work");
    memset(x, 0, sizeof(*x));
    x->state = EMPTY;
  }

  static void unmap_chunk(int u) {
    must(is_over(&w.d, &w.blocks[u].used), "a chunk is unmapped under work");
    must(w.blocks[WINDOW].state == EMPTY, "a chunk is released that a window maps");
    memset(&w.blocks[u], 0, sizeof(Block));
    w.blocks[u].state = UNBACKED;
    w.trimmed = 0;
  }

  /* ---- what holds between two calls, and what applies in one ---- */

  static void look(int line, int block) {
    w.line = (unsigned char)line;
    w.block = (unsigned char)block;
    w.may_export = is_live() && block < WINDOW;
    w.may_alloc = may_alloc();
    w.may_record = may_record();
    w.may_free = may_free();
    w.may_fence = may_fence();
    w.may_forget = may_forget();
    w.may_grow = may_grow();
    w.may_trim = may_trim();
    w.may_return = may_return();
    w.may_go = window_may_go();
  }


  static void end_of_call(void) {
    int b, n;
    memset(w.answers, 0, NUMBERS);
    memset(&w.line, 0, (size_t)(&w.may_go + 1 - &w.line));
    check_streams();
    for (n = 1; n < NUMBERS; n++)
      must(!is_out(&w.streams[n]), "a stream is lost that was forgotten in time");
    for (b = 0; b <= WINDOW; b++) {
      const Block *x = &w.blocks[b];
      if (x->state == FREE || x->state == IDLE || x->state == PENDING)
        must(is_covered(x->stream, x->epoch), "[F4] nothing tells when memory is free");
      for (n = 1; n < NUMBERS && x->state == PENDING; n++)
        must(is_covered(n, x->uses[n]), "[F4] nothing tells when a pending block is free");
    }
  }
}

/* The driver's answers, should it be asked in this call. */
byte line, block;

inline chosen() {
  c_code { look(now.line, now.block); };
  line = 0;
  block = 0
}
inline begin() {
  c_expr { w.calls < OPS };
  if
  :: true
  :: c_expr { w.streams[1].fence_count > 0 } -> c_code { w.answers[1] = 1; }
  :: c_expr { w.streams[1].fence_count > 1 } -> c_code { w.answers[1] = 2; }
  fi;
  if
  :: true
  :: c_expr { w.streams[2].fence_count > 0 } -> c_code { w.answers[2] = 1; }
  :: c_expr { w.streams[2].fence_count > 1 } -> c_code { w.answers[2] = 2; }
  fi;
  c_code { w.calls++; }
}
/* Calls that take state_lock alone. */
proctype program() {
end:
  do
  :: atomic {
      begin();
      select(line : 0 .. 3);
      select(block : 0 .. 2);
      chosen();
      if
      :: c_expr { w.may_alloc } ->
        c_code { call_alloc(w.line, w.block); }
      :: c_expr { w.may_record } ->
        c_code { call_record(w.line, w.block); }
      :: c_expr { w.may_free } ->
        c_code { call_free(w.line, w.block, 0); }
      :: c_expr { w.may_fence } ->
        c_code { call_free(w.line, w.block, 1); }
      :: c_expr { w.line == LINES && w.block == 0 } -> c_code { refresh(0); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  od
}

/* Calls that take driver_lock: between its steps here state_lock is free, and `program` goes on. */
proctype planner() {
end:
  do
  :: atomic { begin(); c_code { refresh(1); end_of_call(); } }
  :: atomic {
      begin();
      select(line : 0 .. 2);
      select(block : 0 .. 2);
      chosen();
      if
      :: c_expr { w.may_alloc } ->
        c_code { call_borrow(w.line, w.block); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
    if
    :: c_expr { w.chosen } -> /* it maps the window */
      if
      :: atomic { c_code { stitched(1); end_of_call(); } }
      :: atomic { c_code { stitched(0); end_of_call(); } }
      fi
    :: else
    fi
  :: atomic {
      begin();
      select(line : 0 .. 1);
      chosen();
      if
      :: c_expr { w.may_forget } -> c_code { call_forget(w.line); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  :: atomic { /* gmlake_export */
      begin();
      select(block : 0 .. 1);
      chosen();
      if
      :: c_expr { w.may_export } ->
        c_code { w.blocks[w.block].is_shared = w.blocks[w.block].foreign = 1; }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  :: atomic { /* growth */
      begin();
      select(block : 0 .. 1);
      chosen();
      if
      :: c_expr { w.may_grow } -> c_code { release(w.block, CLEAN, 0); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
  :: atomic {
      begin();
      if
      :: c_expr { w.streams[1].fence_count } -> c_code { wait_begin(1); }
      :: c_expr { w.streams[2].fence_count } -> c_code { wait_begin(2); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
    if
    :: c_expr { w.wait_for } -> /* the host waits */
      if
      :: atomic { c_code { wait_end(1); end_of_call(); } }
      :: atomic { c_code { wait_end(0); end_of_call(); } } /* another stream's was first */
      fi
    :: else
    fi
  :: atomic { /* gmlk_evict */
      begin();
      chosen();
      if
      :: c_expr { w.may_go } -> c_code { w.blocks[WINDOW].state = DYING; }
      :: else
      fi;
      c_code { end_of_call(); }
    }
    c_code { unmap_window(); }
  :: atomic {
      begin();
      select(block : 0 .. 1);
      chosen();
      if
      :: c_expr { w.may_trim } -> c_code { trim_begin(w.block); }
      :: c_expr { w.may_return } -> c_code { trim_begin(w.block); }
      :: else
      fi;
      c_code { end_of_call(); }
    }
    if
    :: c_expr { w.trimmed } ->
      c_code { unmap_window(); }
      c_code { unmap_chunk(w.trimmed - 1); }
    :: else
    fi
  od
}

init {
  atomic {
  c_code { w.blocks[WINDOW].state = EMPTY; };
    run program();
    run planner()
  }
}
