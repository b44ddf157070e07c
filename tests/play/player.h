/* The player performs operations on a lake, over the judge. Its program does all that the manual
   allows, as late and as little ordered as that allows: before a free, a discard, a launch or a
   sleep it queues what waits the contract asks for, by events of its own, and no others. What is
   not allowed at that place is passed over; with the option `exact` it is done all the same.
   Include after judge.h. */
#if !defined(PLAY_PLAYER_H)
#define PLAY_PLAYER_H

#include <signal.h>
#include <unistd.h>

#include "judge.h"
#include "expect.h"

#include "../judge_map.h"

#if !defined(SHARED_AS)
#define SHARED_AS GMLAKE_HANDLE_POSIX_FD
#endif
#define LACK (BIT(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) | BIT(GMLAKE_ERROR_LIMIT_REACHED))
#define MAY(condition, result) ((condition) ? BIT(GMLAKE_ERROR_##result) : 0)

static const op *now; /* that is performed */

static gmlake_result result_of(unsigned char letter) {
  static const gmlake_result results[] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY,
                                          GMLAKE_ERROR_LIMIT_REACHED,
                                          GMLAKE_ERROR_INVALID_ARGUMENT,
                                          GMLAKE_ERROR_CAPTURING,
                                          GMLAKE_ERROR_UNKNOWN_POINTER,
                                          GMLAKE_ERROR_DOUBLE_FREE,
                                          GMLAKE_ERROR_DRIVER,
                                          GMLAKE_ERROR_DEVICE_LOST,
                                          GMLAKE_ERROR_ASLEEP,
                                          GMLAKE_ERROR_BUSY,
                                          GMLAKE_ERROR_OUT_OF_HOST_MEMORY,
                                          GMLAKE_ERROR_UNSUPPORTED,
                                          GMLAKE_ERROR_SHUTTING_DOWN};
  return letter ? results[strchr(result_letters, letter) - result_letters] : GMLAKE_OK;
}

static int is_exact(void) { return w.program->options[OPT_EXACT] != 0; }

static void disarm(void) {
  w.fault_count = 0;
  w.host_in = 0;
}

/* Whether the manual refuses the operation here: it is done where that is to be seen. */
static int is_passed_over(int is_allowed) { return !is_allowed && !(is_exact() && now->result); }

static int is_lack(gmlake_result result) { return result && LACK & BIT(result); }

/* Where a fault has cost memory or addresses, later requests may fail for it. */
static int is_crippled(void) { return w.lacks_addresses || stats().quarantined_bytes; }

/* Whether a call that failed in this operation explains the result: one of the driver, or host
   memory. */
static int is_injected(gmlake_result result) {
  return ((w.injected[ON_ANY] | w.injected[ON_HOST]) & BIT(result)) != 0;
}

static int is_strict; /* what stands behind a word is its result, whatever has failed */

/* With the option `exact`. */
static int is_fitting(gmlake_result result, int is_excused, unsigned may, gmlake_result plain) {
  const gmlake_result wanted = w.is_handling ? GMLAKE_OK : result_of(now->result);
  if (w.was_lost) return result == w.was_lost && !w.calls;
  if (result == wanted) return 1;
  if (is_strict) return 0;
  if (is_lack(result) && is_lack(wanted)) return 1;
  if (!w.hits) return 0;
  if (is_lack(result) && may & BIT(result))
    return w.injected[ON_ANY] & LACK || w.is_lasting || is_crippled();
  return is_excused || result == plain || (result && may & BIT(result));
}

/* Whether an error that failing calls explain names one that failed so, and the driver's code. */
static int names_call(const gmlake_error_info *info) {
  const unsigned told = BIT(info->result);
  char number[16];
  size_t kind = 0;
  if (!is_injected(info->result) || w.injected[ON_HOST] & told) return 1; /* any call may lack it */
  if (w.was_lost || w.seems_gone || is_lack(info->result)) return 1;
  while (kind < ON_ANY && (!(w.injected[kind] & told) ||
                           strncmp(info->call, backend_names[kind], strlen(backend_names[kind]))))
    kind++;
  (void)snprintf(number, sizeof(number), "%d", w.hit_code);
  return kind < ON_ANY && (w.hits > w.hits_before + 1 || strstr(info->text, number));
}

/* Whether the call succeeded. Of the other results `may` and the faults explain, else it is a
   finding. Where the manual refuses, `plain` is not OK. */
static int is_done(gmlake_result result, const char *call, unsigned may, gmlake_result plain) {
  const int is_excused = is_injected(result) || (w.fatal && is_fatal(result));
  gmlake_error_info info;
  char rule[200];
  if (!is_exact()) disarm();
  trace("  %s: %s\n", call, gmlake_result_name(result));
  if (!w.is_handling) sums.lacks += (unsigned)(w.handler_calls ? w.handler_calls : is_lack(result));
  if (is_fatal(result)) w.is_lost = 1;
  memset(&info, 0, sizeof(info));
  if (result && lake) {
    (void)gmlake_get_last_error(lake, &info);
    judge((info.result == result || (w.lost && info.result == w.lost)) && info.call && info.text[0],
          "the last error is another one");
    judge(!is_exact() || !is_excused || names_call(&info), "the last error names another call");
  }
  w.has_called = 1;
  counts.faults += result && is_excused;
  if ((asked.was_wrong || asked.may_be_wrong) && result == GMLAKE_ERROR_INVALID_ARGUMENT) {
    counts.refusals++;
    return 0;
  }
  if (is_exact() ? is_fitting(result, is_excused, may, plain)
                 : is_excused || result == plain || (result && (may & BIT(result)))) {
    counts.refusals += result && !is_excused;
    w.is_again = result && is_excused && !w.is_lasting && !w.lost && w.hits > w.hits_before &&
                 result != result_of(now->result);
    return !result;
  }
  (void)snprintf(rule, sizeof(rule), "%s: %s (%s: %.100s)", call, gmlake_result_name(result),
                 info.call ? info.call : "", result ? info.text : "it should not");
  judge(0, rule);
  return 0;
}

/* ---- Streams --------------------------------------------------------------------------------- */

/* The line of a slot, which may be gone; another one may have its value by then. */
static int line_in(unsigned char slot) {
  int on = slot == ON_NONE ? NOBODY : slot == ON_ONE ? 0 : w.slots[slot], i;
  for (i = 0; i < w.line_count && on > 0 && !w.lines[on].is_alive; i++)
    if (w.lines[i].is_alive && w.lines[i].value == w.lines[on].value) on = i;
  return on;
}

/* A slot that names the line, or has its value. */
static unsigned char slot_of(int on) {
  unsigned char i = 0;
  while (i < SLOTS - 1 && w.slots[i] != on && w.lines[w.slots[i]].value != w.lines[on].value) i++;
  return i;
}

/* Whether a call may name it: the program has not told of its end. */
static int may_name(int on) {
  return on == NOBODY || (w.lines[on].is_alive && !w.lines[on].is_told);
}

/* An event behind all work of a line so far, or NULL where a capture forbids it. */
static void *event_behind(int on) {
  if (!w.lines[on].is_alive) return w.lines[on].end;
  if (!is_quiet(on)) return NULL;
  program_record(w.event, on);
  return w.event;
}

/* Work queued on `later` from now on is behind `need`; 0: a capture forbids it. */
static int order(int later, const moment *need) {
  int i, code = 0;
  for (i = 0; i < w.line_count; i++) {
    void *event;
    if (w.lines[later].now.at[i] >= need->at[i] || w.known.at[i] >= need->at[i]) continue;
    event = is_quiet(later) ? event_behind(i) : NULL;
    if (!event) return 0;
    trace("  line %d waits for line %d\n", later, i);
    must(mock->stream_wait(mock->user, w.lines[later].value, event, &code), "the program's wait");
    join(&w.lines[later].now, event_at(event));
  }
  return 1;
}

/* The host waits for `need`. Asking during a capture takes the relaxed mode. */
static int await(const moment *need) {
  int i, code = 0, mode = 2;
  for (i = 0; i < w.line_count; i++) {
    void *event;
    if (w.known.at[i] >= need->at[i]) continue;
    event = event_behind(i);
    if (!event) return 0;
    trace("  the host waits for line %d\n", i);
    must(mock->capture_exchange(mock->user, &mode, &code), "the program's exchange");
    must(mock->event_wait(mock->user, event, &code), "the program's host wait");
    must(mock->capture_exchange(mock->user, &mode, &code), "the program's exchange");
    join(&w.known, event_at(event));
  }
  return 1;
}

static int settle_on(int on, const moment *need) {
  return on == NOBODY ? await(need) : order(on, need);
}

/* A kernel of the line's next work reads and writes the range. */
static void touch(range r, int on) {
  uint32_t work = w.lines[on].now.at[on];
  map *m = NULL;
  grain *g;
  while ((g = next_grain(&r, &m))) {
    g->used.at[on] = work;
    m->used.at[on] = work;
  }
}

static void line_add(unsigned char slot) {
  line *l = &w.lines[w.line_count];
  judge(w.line_count < LINES, "too many streams");
  memset(l, 0, sizeof(*l));
  l->is_alive = 1;
  if (slot) must(gmlake_mock_stream_create(mock, &l->value), "gmlake_mock_stream_create");
  w.slots[slot] = w.line_count++;
}

static void do_forget(int on) {
  if (on <= 0 || !may_name(on) || is_passed_over(is_quiet(on))) return;
  if (is_done(gmlake_forget_stream(lake, w.lines[on].value), "gmlake_forget_stream", 0, GMLAKE_OK))
    w.lines[on].is_told = 1;
}

/* Ends a stream, with work pending on it. */
static void do_kill(int on) {
  line *l = &w.lines[on < 0 ? 0 : on];
  if (on <= 0 || !l->is_alive || l->graph) return;
  if (is_passed_over(l->is_told || (may_end() && l->kind != GMLAKE_STREAM_STAYS))) return;
  l->end = program_event();
  program_record(l->end, on);
  gmlake_mock_stream_destroy(mock, l->value);
  l->is_alive = 0;
}

/* The next stream with its value. */
static void do_replace(int on) {
  const unsigned char slot = now->stream;
  (void)on;
  if (slot && slot < SLOTS && !w.lines[w.slots[slot]].is_alive && w.line_count < LINES)
    line_add(slot);
}

static void do_mark(int on) {
  if (on < 0 || !may_name(on) || w.lines[on].graph || now->bytes > 3) return;
  if (is_done(gmlake_mark_stream(lake, value_in(now->stream), (gmlake_stream_kind)now->bytes),
              "gmlake_mark_stream", 0, GMLAKE_OK) &&
      w.lines[on].kind != GMLAKE_STREAM_STAYS)
    w.lines[on].kind = (int)now->bytes;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static graph *graph_of(int serial) {
  graph *g = serial ? w.of_serial[serial] : NULL;
  return g && g->serial == serial ? g : NULL;
}

static void end_graph(graph *g) {
  block *b = NULL;
  size_t i;
  while ((b = live_next(b)))
    for (i = 0; i < g->held_count; i++) b->held -= b->id == g->held[i];
  g->is_alive = 0;
}

static void do_graph_end(int on) {
  graph *g = &w.graphs[now->one % GRAPHS];
  (void)on;
  if (!g->is_active && g->is_alive) end_graph(g);
}

static void do_capture_begin(int on) {
  graph *g = &w.graphs[now->two ? now->two - 1 : 0];
  pool *from = &w.pools[1 + now->one % POOLS];
  if (on <= 0 || !from->value || g->is_alive || w.serial + 1 == SERIALS) return;
  if (is_passed_over(may_name(on) && is_quiet(on) && !from->asleep && !from->is_lent)) return;
  if (!w.is_untold && !is_done(gmlake_capture_begin(lake, w.lines[on].value, from->value),
                               "gmlake_capture_begin", 0, GMLAKE_OK))
    return;
  w.has_called = 1;
  if (w.is_told) return;
  must(gmlake_mock_capture_begin(mock, w.lines[on].value), "gmlake_mock_capture_begin");
  memset(g, 0, sizeof(*g));
  g->serial = ++w.serial;
  w.of_serial[g->serial] = g;
  w.dead_pool_of[g->serial] = (int)from->serial;
  g->pool = (int)(from - w.pools);
  g->is_active = g->is_alive = 1;
  g->base = w.lines[on].now;
  w.lines[on].graph = g->serial;
}

static void do_capture_end(int on) {
  graph *g = on > 0 && w.lines[on].is_alive ? graph_of(w.lines[on].graph) : NULL;
  if (!g && (on < 0 || is_passed_over(w.is_told))) return;
  if (!g) {
    (void)is_done(gmlake_capture_end(lake, w.lines[on].value), "gmlake_capture_end", 0,
                  GMLAKE_ERROR_INVALID_ARGUMENT);
    return;
  }
  judge(!gmlake_mock_capture_end(mock, w.lines[on].value), "a capture was spoilt");
  g->is_active = 0;
  w.lines[on].graph = 0;
  w.has_called = 1;
  if (w.is_untold) return;
  if (is_exact() || (!w.is_lost && !w.fatal))
    (void)is_done(gmlake_capture_end(lake, w.lines[on].value), "gmlake_capture_end", 0, GMLAKE_OK);
}

static block *held_block(uint32_t id) {
  block *b = block_with_id(id);
  judge(b != NULL, "the program has lost a block");
  return b;
}

/* A graph runs, behind all that used its memory before and behind the pool's other graphs: the
   program sees to that, unless the word says that it is refused. It runs after what the stream of
   its capture did before it. */
static void do_launch(int on) {
  graph *g = &w.graphs[now->one % GRAPHS];
  pool *from = &w.pools[g->pool];
  const gmlake_result wanted = from->is_lent        ? GMLAKE_ERROR_BUSY
                               : from->asleep       ? GMLAKE_ERROR_ASLEEP
                               : now->result == 'I' ? GMLAKE_ERROR_INVALID_ARGUMENT
                                                    : GMLAKE_OK;
  moment need;
  size_t i;
  if (!g->is_alive || g->is_active || !is_quiet(on) || w.lines[on].is_told) return;
  for (i = 0; i < g->held_count; i++)
    if (w.pools[held_block(g->held[i])->pool].asleep) return;
  need = g->base;
  join(&need, &from->recalled);
  join(&need, &from->launched);
  for (i = 0; !wanted && i < g->range_count; i++) {
    range r = g->ranges[i];
    map *m = NULL;
    const grain *at;
    while ((at = next_grain(&r, &m))) join(&need, &at->used);
  }
  if ((!wanted && !order(on, &need)) || !device_launch(g, on, wanted)) return;
  counts.launches++;
  w.lines[on].now.at[on]++;
  for (i = 0; i < g->range_count; i++) touch(g->ranges[i], on);
  for (i = 0; i < g->held_count; i++) held_block(g->held[i])->used.at[on] = w.lines[on].now.at[on];
  from->launched.at[on] = w.lines[on].now.at[on];
}

/* A kernel that is captured uses the block, which has to live as long as the graph may run. */
static void capture_use(block *b, graph *g) {
  size_t i;
  if (b->graph == g->serial || b->is_borrowed) return;
  for (i = 0; i < g->held_count; i++)
    if (g->held[i] == b->id) return;
  if (g->held_count == HELD || g->range_count == RANGES) return;
  g->held[g->held_count++] = b->id;
  g->ranges[g->range_count] = range_of(b);
  g->ranges[g->range_count++].pool = NOBODY;
  b->held++;
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* Uses a block on a line that is ordered behind its allocation, which a kernel of the program's
   may be by events of its own. */
static void use(block *b, int on) {
  line *l = &w.lines[on < 0 ? 0 : on];
  const graph *g = graph_of(b->graph);
  if (!b->id || on < 0 || !may_name(on) || w.pools[b->pool].asleep) return;
  if (l->graph) {
    capture_use(b, graph_of(l->graph));
    device_use(b, on);
    return;
  }
  if (g && g->is_active) return;
  if (!is_quiet(on) || (on != b->on && !order(on, &b->born))) return;
  b->used.at[on] = ++l->now.at[on];
  trace("  line %d uses %u, work %u\n", on, b->id, b->used.at[on]);
  touch(range_of(b), on);
  device_use(b, on);
}

static void do_use(int on) { use(&w.blocks[now->one % NAMES], on); }

/* What free does not hear of by gmlake_record_stream has to be ordered before the call. */
static moment need_of(const block *b) {
  moment need = b->used;
  int i;
  for (i = 0; i < w.line_count; i++)
    if (b->recorded >> i & 1) need.at[i] = 0;
  return need;
}

/* Whether the line has the value of the block's, which is gone untold: a free there is one on the
   line that is gone, GMLAKE_STREAMS_MAY_END sees to that. */
static int is_heir(const block *b, int on) {
  return on > 0 && b->on > 0 && on != b->on && !w.lines[b->on].is_alive &&
         !w.lines[b->on].is_told && w.lines[on].value == w.lines[b->on].value && may_end();
}

/* Makes it true that all uses precede a free on the line, as the contract says; 0: it cannot. The
   value of a stream that is gone untold may be named for what was allocated or recorded there. */
static int settle(const block *b, int on) {
  moment need = need_of(b);
  const graph *g = graph_of(b->graph);
  if (b->held) return 0;
  if (on >= 0 && !w.lines[on].is_alive) {
    if (w.lines[on].is_told || !may_end() || (on != b->on && !(b->recorded >> on & 1))) return 0;
    if (on != b->on) join(&need, &b->born);
    return !g && covers(&w.lines[on].now, &w.known, &need);
  }
  if (!may_name(on)) return 0;
  if (on == NOBODY && b->on >= 0) need.at[b->on] = b->used.at[b->on]; /* NONE speaks for it */
  if (g && g->is_active) return on == b->on && covers(&w.known, &w.known, &need);
  if (is_heir(b, on)) need.at[b->on] = 0;
  if (on == NOBODY || (on != b->on && !is_heir(b, on))) join(&need, &b->born);
  return settle_on(on, &need);
}

static void forget_block(block *b) {
  while (b->handle_count) (void)close(b->handles[--b->handle_count].fd);
  free(b->handles);
  free(b->shown);
  memset(b, 0, sizeof(*b));
}

/* Whether its memory may wait for recorded streams, or for one that is gone. */
static int may_be_pending(const block *b) {
  return b->recorded || b->is_exported || b->is_imported || (b->on > 0 && !w.lines[b->on].is_alive);
}

/* The address of a block that is gone is refused, as the line says. */
static void judge_gone(gmlake_result result, const char *call) {
  (void)is_done(result, call, BIT(GMLAKE_ERROR_DOUBLE_FREE), GMLAKE_ERROR_UNKNOWN_POINTER);
}

static int is_gone(const block *b) { return !b->id && is_exact() && now->result; }

/* Whether memory that was freed waits. */
static int is_pending_at(uint64_t at) {
  gmlake_map_entry info;
  return stats().pending_bytes && !gmlake_find(lake, (void *)(uintptr_t)at, &info) &&
         info.state == GMLAKE_STATE_PENDING;
}

static int do_free(block *b, int on, gmlake_stream value) {
  gmlake_result result;
  if (is_gone(b))
    judge_gone(gmlake_free(lake, (void *)(uintptr_t)w.starts[b - w.blocks], value), "gmlake_free");
  if (!b->id || !settle(b, on)) return 0;
  judge_stamps(b);
  w.named = on;
  w.leaving = b;
  result = gmlake_free(lake, (void *)(uintptr_t)b->at, value);
  w.leaving = NULL;
  if (!is_done(result, "gmlake_free", 0, GMLAKE_OK)) return 0;
  if (!w.is_inside) judge_freed(b, is_pending_at(b->at));
  if (!b->is_exported && !b->is_imported) give_back(b);
  sums.frees++;
  if (may_be_pending(b)) sums.pending_most += b->bytes;
  forget_block(b);
  return 1;
}

/* Who frees a block where memory has run out, by chance: its own stream, another, or none. */
static unsigned char freed_on(const block *b, unsigned turn) {
  if (turn % 8 == 0) return ON_NONE;
  return turn % 4 && b->on >= 0 ? slot_of(b->on) : (unsigned char)(turn % SLOTS);
}

/* Trims, frees a block that may be freed, does both or neither, and may give up: by the number of
   the block that is asked for, which a shrunk program keeps. */
static int on_oom(void *user, gmlake *l, const gmlake_error_info *info) {
  const int named = w.named;
  const gmlake_stats all = stats();
  gmlake_alloc_desc one;
  unsigned turn;
  size_t i;
  int is_freed;
  void *ptr = &ptr;
  (void)user;
  memset(&one, 0, sizeof(one));
  one.bytes = 1;
  judge(BIT(info->result) & LACK, "the handler is called for another error");
  judge(now->verb != 'Y', "the handler is asked for an admission");
  judge(w.locks_held == w.held_outside, "the handler runs with a lock held");
  judge(
      info->result != GMLAKE_ERROR_LIMIT_REACHED || info->limit_bytes || desc.driver_free_bytes_min,
      "the handler is told of no limit");
  judge(info->live_bytes == all.active_bytes && info->reserved_bytes == all.reserved_bytes &&
            (!strchr("+", now->verb) || info->asked_bytes == now->bytes),
        "the handler is told other figures");
  judge(gmlake_alloc(l, 1, NULL, &ptr) == GMLAKE_ERROR_INVALID_ARGUMENT && !ptr,
        "gmlake_alloc in the handler");
  judge(gmlake_pool_wake(l, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT,
        "gmlake_pool_wake in the handler");
  judge(gmlake_admit(l, &one, 1, NULL, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT,
        "gmlake_admit in the handler");
  if (!is_exact()) disarm();
  if (w.is_handling || ++w.handler_calls > 3) return 0;
  meddle_in(ON_HANDLER);
  w.is_handling = 1;
  turn = now->one + 7u * (unsigned)w.handler_calls;
  if (turn % 3 == 0) (void)gmlake_trim(l, 0, NULL);
  is_freed = turn % 5 == 0;
  for (i = 0; i < NAMES && !is_freed && !w.is_lost; i++) {
    block *b = &w.blocks[(turn + i) % NAMES];
    const unsigned char slot = freed_on(b, turn);
    is_freed = b->id && do_free(b, line_in(slot), value_in(slot));
  }
  w.is_handling = 0;
  judge(gmlake_alloc(l, 1, NULL, &ptr) && !ptr, "gmlake_alloc in the handler, behind a free");
  w.named = named;
  return turn % 5 != 4;
}

static void do_free_named(int on) {
  (void)do_free(&w.blocks[now->one % NAMES], on, value_in(now->stream));
}

static gmlake_alloc_desc wanted_of(const pool *from) {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = now->bytes;
  wanted.alignment = now->align;
  wanted.pool = from->value;
  if (now->one % 4 == 0) {
    wanted.user_data = w.next_id + 1;
    wanted.label = "labelled";
  }
  if (now->flags & FLAG_X) wanted.flags |= GMLAKE_EXCLUSIVE;
  if (now->flags & FLAG_S) wanted.flags |= GMLAKE_NO_STITCH;
  if (now->flags & FLAG_G) wanted.flags |= GMLAKE_NO_GROW;
  if (now->flags & FLAG_T) wanted.flags |= GMLAKE_TRANSIENT;
  return wanted;
}

/* The stream that is ordered behind nothing asks for what nobody uses. */
static void enter_block(block *b, void *ptr, size_t before, unsigned flags, size_t align) {
  static const moment nothing;
  const moment *own = b->graph     ? &w.pools[b->pool].recalled
                      : b->on >= 0 ? &w.lines[b->on].now
                                   : &nothing;
  const int number = b->graph;
  int fresh;
  gmlake_map_entry info;
  must(gmlake_find(lake, ptr, &info), "gmlake_find");
  judge(info.requested_bytes == now->bytes || b->is_imported, "a block of another size");
  judge(info.user_data == (b->is_imported || now->one % 4 ? 0 : w.next_id + 1),
        "a block of another user's");
  judge(!info.label == !info.user_data && (!info.label || !strcmp(info.label, "labelled")),
        "a block with another label");
  fresh = pool_of_value(info.pool);
  judge(!info.pool == !fresh && (fresh == b->pool || flags & GMLAKE_TRANSIENT),
        "a block of another pool");
  b->id = ++w.next_id;
  b->at = (uint64_t)(uintptr_t)ptr;
  b->bytes = info.bytes;
  b->asked = info.requested_bytes;
  b->flags = info.flags;
  b->is_exclusive = (flags & GMLAKE_EXCLUSIVE) != 0;
  trace("  %u at %llx, %zu bytes\n", b->id, (unsigned long long)b->at, b->bytes);
  judge(!align || b->at % align == 0, "a block is not aligned");
  hand_over(b, own, number, (flags & GMLAKE_TRANSIENT) != 0, fresh);
  if (b->is_exclusive) judge_exclusive(b, w.pools[b->pool].chunk);
  if (!b->is_imported) judge_block(b, &info, flags);
  judge(!(flags & GMLAKE_NO_GROW) || census().physical_bytes <= before, "NO_GROW has grown");
  if (b->on >= 0 && !number) b->born = w.lines[b->on].now;
  w.starts[b - w.blocks] = b->at;
  if (number) w.of_serial[number]->ranges[w.of_serial[number]->range_count++] = range_of(b);
  write_stamps(b);
}

/* A power of two, and at most the chunk. */
static int is_alignment(size_t alignment, const pool *from) {
  return (alignment & (alignment - 1)) == 0 && alignment <= from->chunk;
}

/* Where a block on the line comes from: a capture's pool, else the one that was asked for. */
static pool *pool_asked(int on, int *out_graph) {
  const graph *g = on >= 0 ? graph_of(w.lines[on].graph) : NULL;
  pool *from = &w.pools[now->two % (POOLS + 1)];
  *out_graph = g ? g->serial : 0;
  if (g && (!now->two || is_passed_over(0))) from = &w.pools[g->pool];
  return from->value ? from : w.pools;
}

static void do_alloc(int on) {
  block *b = &w.blocks[now->one % NAMES];
  pool *from;
  gmlake_alloc_desc wanted;
  const size_t before = census().physical_bytes;
  uint64_t driver_ns;
  void *ptr = &ptr;
  forecast said;
  gmlake_result result;
  int graph_number, is_aligned;
  if (b->id || is_passed_over(may_name(on))) return;
  from = pool_asked(on, &graph_number);
  if (graph_number && w.of_serial[graph_number]->range_count == RANGES) return;
  wanted = wanted_of(from);
  if (graph_number && !is_exact()) wanted.flags &= ~GMLAKE_TRANSIENT;
  if (graph_number && !now->two) wanted.pool = NULL; /* the capture's, all the same */
  is_aligned = is_alignment(wanted.alignment, from);
  if (wanted.flags & GMLAKE_TRANSIENT && !is_aligned) { /* the lender's chunks may be larger */
    wanted.alignment = 0;
    is_aligned = 1;
  }
  if (!now->bytes) { /* nothing is asked for */
    result = gmlake_alloc_with(lake, &wanted, value_in(now->stream), &ptr);
    judge(!ptr, "a pointer to 0 bytes");
    (void)is_done(result, "gmlake_alloc", 0, GMLAKE_OK);
    return;
  }
  foretell(&said, now, &wanted, value_in(now->stream));
  driver_ns = stats().driver_ns;
  result = gmlake_alloc_with(lake, &wanted, value_in(now->stream), &ptr);
  judge_forecast(&said, result);
  judge(!result || !ptr, "a pointer though the allocation failed");
  judge((result != GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY && result != GMLAKE_ERROR_LIMIT_REACHED) ||
            !is_servable(wanted.bytes, wanted.flags, from),
        "refused though whole free chunks would do");
  judge(result || !asked.was_wrong || wanted.flags & GMLAKE_TRANSIENT,
        "an illegal plan was carried out");
  if (!is_done(result, "gmlake_alloc",
               is_aligned && (!from->asleep || now->flags & FLAG_T)
                   ? LACK | MAY(from->asleep, ASLEEP)
                   : MAY(from->asleep, INVALID_ARGUMENT) | MAY(from->asleep, ASLEEP),
               from->asleep && !(now->flags & FLAG_T) ? GMLAKE_ERROR_ASLEEP
               : is_aligned                           ? GMLAKE_OK
                                                      : GMLAKE_ERROR_INVALID_ARGUMENT))
    return;
  judge_attempt(&wanted, on < 0 ? GMLAKE_STREAM_NONE : w.lines[on].value, from->value,
                (uint64_t)(uintptr_t)ptr, stats().driver_ns - driver_ns);
  sums.allocations++;
  from = pool_asked(on, &graph_number); /* a capture may have begun or ended meanwhile */
  b->on = on;
  b->graph = graph_number;
  b->pool = (int)(from - w.pools);
  enter_block(b, ptr, before, wanted.flags, wanted.alignment);
}

static void do_query(int on) {
  pool *from = &w.pools[now->two % (POOLS + 1)];
  gmlake_alloc_desc wanted;
  const gmlake_mock_census before = census();
  if (!may_name(on)) return;
  if (!from->value) from = w.pools;
  if (on >= 0 && w.lines[on].graph) from = &w.pools[graph_of(w.lines[on].graph)->pool];
  wanted = wanted_of(from);
  if (!is_alignment(wanted.alignment, from)) return;
  (void)is_done(gmlake_query(lake, &wanted, value_in(now->stream), &compared.foretold),
                "gmlake_query", MAY(from->asleep, ASLEEP),
                from->asleep && !(now->flags & FLAG_T) ? GMLAKE_ERROR_ASLEEP : GMLAKE_OK);
  judge(before.handle_count == census().handle_count &&
            before.mapping_count == census().mapping_count,
        "a question has changed memory");
}

static void do_record(int on) {
  block *b = &w.blocks[now->one % NAMES];
  void *gone = (void *)(uintptr_t)w.starts[now->one % NAMES];
  if (on < 0 || !may_name(on)) return;
  if (is_gone(b))
    judge_gone(gmlake_record_stream(lake, gone, value_in(now->stream)), "gmlake_record_stream");
  if (!b->id) return;
  if (is_done(gmlake_record_stream(lake, (void *)(uintptr_t)b->at, value_in(now->stream)),
              "gmlake_record_stream", 0, GMLAKE_OK))
    b->recorded |= (uint64_t)1 << on;
}

/* Only the start of a live block is taken for one. Nothing has changed: the step is judged. */
static void do_wrong(int on) {
  const uint64_t at = w.starts[now->one % NAMES] + now->bytes;
  void *ptr = (void *)(uintptr_t)at;
  gmlake_map_entry info;
  gmlake_result result;
  size_t i, count;
  int is_live;
  (void)on;
  for (i = 0; i < NAMES; i++)
    if (w.blocks[i].id && w.blocks[i].at == at) return;
  if (!w.starts[now->one % NAMES]) return;
  result = gmlake_free(lake, ptr, NULL);
  judge(result == GMLAKE_ERROR_UNKNOWN_POINTER || result == GMLAKE_ERROR_DOUBLE_FREE,
        "what is no block was freed");
  judge(gmlake_record_stream(lake, ptr, NULL) == GMLAKE_ERROR_UNKNOWN_POINTER,
        "a stream was recorded on what is no block");
  judge(gmlake_get_pieces(lake, ptr, NULL, 0, &count) == GMLAKE_ERROR_UNKNOWN_POINTER,
        "what is no block has pieces");
  is_live = !gmlake_find(lake, ptr, &info) && info.state == GMLAKE_STATE_LIVE;
  judge(!is_live || info.address != at || info.kind == GMLAKE_KIND_BUFFER,
        "what is no block was found as one");
  judge(is_live || gmlake_get_chunks(lake, ptr, NULL, 0, &count) == GMLAKE_ERROR_UNKNOWN_POINTER,
        "what is not live has chunks");
}

/* Cells before so many bytes. */
static size_t cells_for(const buffer *b, size_t bytes) { return (bytes + b->chunk - 1) / b->chunk; }

/* ---- Other processes: the lake has a block of its own twice ---------------------------------- */

/* Its memory is another process's, too: it may not be handed over again. */
static void note_export(block *b) {
  range r = range_of(b);
  map *m = NULL;
  size_t i;
  b->is_exported = 1;
  while (next_grain(&r, &m))
    for (i = 0; i < m->of->bytes / GRAIN; i++) m->of->grains[i].is_exported = 1;
}

/* Of the buffer, or of the block, where `of` is NULL. */
static int may_export(const block *b, const buffer *of) {
  size_t i, end = of ? cells_for(of, of->end) : 0;
  for (i = 0; i < end; i++)
    if (!of->cells[i].id) return 0;
  return w.program->options[OPT_SHARE] && !w.pools[of ? of->pool : b->pool].asleep &&
         (of ? end != 0 : b->is_exclusive && !b->is_imported && !b->is_borrowed && !b->graph);
}

/* Of a block; or of a buffer, whose handles are kept as those of a name without a block. */
static void do_export(int on) {
  block *b = &w.blocks[now->one % NAMES];
  buffer *of = now->two ? &w.buffers[(now->two - 1) % BUFFERS] : NULL;
  size_t count = 0, i;
  gmlake_result result;
  (void)on;
  if (b->handle_count || (of ? b->id || !of->value : !b->id)) return;
  if (is_passed_over(may_export(b, of))) return;
  b->handles = (gmlake_handle *)calloc(CELLS * 8, sizeof(gmlake_handle));
  if (!b->handles) abort();
  result = gmlake_export(lake, (void *)(uintptr_t)(of ? of->at : b->at), SHARED_AS, b->handles,
                         CELLS * 8, &count);
  if (is_done(result, "gmlake_export", MAY(b->may_be_borrowed, INVALID_ARGUMENT), GMLAKE_OK))
    b->handle_count = count;
  if (result || count > CELLS * 8) {
    free(b->handles);
    b->handles = NULL;
    b->handle_count = 0;
    return;
  }
  b->shows = of;
  b->shows_to = w.next_id;
  for (i = 0; i < count; i++)
    judge(b->handles[i].type == SHARED_AS && (b->handles[i].fd < 0 || !b->handles[i].fabric[0]) &&
              b->handles[i].bytes == (of ? of->chunk : w.pools[b->pool].chunk),
          "a handle of another kind or size");
  if (!of) note_export(b);
  for (i = 0; of && i < cells_for(of, of->end); i++) note_export(&of->cells[i]);
}

/* What a name's handles are of; NULL: it is there no more. */
static const void *original_of(const block *of) {
  size_t i;
  for (i = 0; of->shows && i < of->handle_count; i++)
    if (!of->shows->cells[i].id || of->shows->cells[i].id > of->shows_to) return NULL;
  return (void *)(uintptr_t)(of->shows ? of->shows->at : of->at);
}

static void do_import(int on) {
  block *b = &w.blocks[now->one % NAMES];
  const block *of = &w.blocks[now->two % NAMES];
  const size_t times = now->bytes ? now->bytes % 8 : 1, count = times * of->handle_count;
  gmlake_handle *handles;
  gmlake_result result;
  void *ptr = NULL;
  size_t i, bytes;
  (void)on;
  if (b->id || !count || census().handle_count + count > HANDLES / 2) return;
  handles = (gmlake_handle *)malloc(count * sizeof(*handles));
  if (!handles) abort();
  for (i = 0; i < count; i++) handles[i] = of->handles[i % of->handle_count];
  result = gmlake_import(lake, handles, count, &ptr);
  free(handles);
  judge(!result == (ptr != NULL), "a pointer though the import failed, or none");
  sums.lacks -= (unsigned)is_lack(result); /* it is no attempt to allocate */
  if (!is_done(result, "gmlake_import", LACK, GMLAKE_OK)) return;
  counts.imports++;
  sums.allocations++;
  b->on = NOBODY;
  b->is_imported = 1;
  enter_block(b, ptr, 0, 0, 0);
  bytes = b->bytes / times;
  judge(b->flags == GMLAKE_EXCLUSIVE && bytes == of->handle_count * of->handles[0].bytes,
        "an import of another size");
  if (!w.is_real || !original_of(of)) return;
  b->shown = malloc(b->bytes);
  if (!b->shown) abort();
  for (i = 0; i < times; i++) memcpy((char *)b->shown + i * bytes, original_of(of), bytes);
  judge_stamps(b);
}

/* ---- Buffers --------------------------------------------------------------------------------- */

/* A power of two, a granule at least, and no more than the device has. */
static int is_chunk(size_t bytes) {
  return (bytes & (bytes - 1)) == 0 && bytes >= w.granule && bytes <= w.capacity;
}

static void do_buffer_open(int on) {
  buffer *b = &w.buffers[now->one % BUFFERS];
  const int from = now->two % (POOLS + 1);
  gmlake_buffer_desc wanted;
  gmlake_buffer_info info;
  (void)on;
  if (b->value || (from && !w.pools[from].value)) return;
  memset(&wanted, 0, sizeof(wanted));
  memset(b, 0, sizeof(*b));
  b->chunk = wanted.chunk_bytes = now->more ? now->more : w.chunk;
  b->max = wanted.max_bytes = now->bytes >= b->chunk * CELLS ? b->chunk * CELLS
                              : is_exact()                   ? now->bytes
                                                             : now->bytes / b->chunk * b->chunk;
  b->pool = from;
  wanted.pool = w.pools[from].value;
  if (!b->max) return;
  if (!is_done(gmlake_buffer_create(lake, &wanted, &b->value), "gmlake_buffer_create", 0,
               is_chunk(b->chunk) ? GMLAKE_OK : GMLAKE_ERROR_INVALID_ARGUMENT)) {
    b->value = NULL;
    return;
  }
  must(gmlake_buffer_get_info(lake, b->value, &info), "gmlake_buffer_get_info");
  b->at = (uint64_t)(uintptr_t)info.ptr;
}

/* Cells `first` to before `end` have memory now. In a capture, what is committed is behind what
   the stream did before it: so is the graph's launch. */
static void cells_enter(buffer *b, size_t first, size_t end, int on) {
  static const moment nothing;
  const moment *own = on >= 0 ? &w.lines[on].now : &nothing;
  for (; first < end; first++) {
    block *cell = &b->cells[first];
    if (cell->id) continue;
    cell->id = ++w.next_id;
    cell->at = b->at + first * b->chunk;
    cell->bytes = cell->asked = b->chunk;
    cell->on = NOBODY;
    cell->pool = b->pool;
    hand_over(cell, own, 0, 0, b->pool);
    cell->born = *own;
    judge_filled(cell);
    write_stamps(cell);
  }
}

/* Makes all uses of the cells precede a discard; 0: it cannot, or a graph needs them. */
static int cells_settle(buffer *b, size_t first, size_t end, int on) {
  moment need;
  memset(&need, 0, sizeof(need));
  if (!may_name(on)) return 0;
  for (; first < end; first++) {
    const block *cell = &b->cells[first];
    if (!cell->id) continue;
    if (cell->held) return 0;
    judge_stamps(cell);
    join(&need, &cell->used);
    join(&need, &cell->born);
  }
  return settle_on(on, &need);
}

static void cells_leave(buffer *b, size_t first, size_t end) {
  for (; first < end; first++) {
    if (!b->cells[first].id) continue;
    if (desc.flags & GMLAKE_FILL && map_at(b->cells[first].at)) judge_freed(&b->cells[first], 0);
    if (b->cells[first].is_exported) sums.pending_most += b->chunk;
    if (!b->cells[first].is_exported) give_back(&b->cells[first]);
    memset(&b->cells[first], 0, sizeof(block));
  }
}

/* Whether the call has committed: a lack of memory that is there, or can be had, is a finding. */
static int is_grown(const buffer *b, gmlake_result result, const char *call, size_t first,
                    size_t end) {
  const pool *from = &w.pools[b->pool];
  size_t missing = 0;
  for (; first < end; first++) missing += b->cells[first].id ? 0 : b->chunk;
  judge(!(BIT(result) & LACK) || b->chunk != from->chunk || w.injected[ON_ANY] ||
            w.injected[ON_HOST] || !is_servable(missing, 0, from),
        "a buffer was refused though free chunks would do");
  return is_done(result, call,
                 (missing ? LACK : 0) | MAY(captures(), CAPTURING) | MAY(from->asleep, ASLEEP),
                 missing && from->asleep ? GMLAKE_ERROR_ASLEEP : GMLAKE_OK);
}

static void do_resize(buffer *b, int on) {
  const size_t bytes = now->bytes, first = cells_for(b, b->end), end = cells_for(b, bytes);
  const int is_captured = on >= 0 && w.lines[on].graph;
  gmlake_result result;
  if (is_passed_over(may_name(on))) return;
  if (bytes > b->max) {
    result = gmlake_buffer_resize(lake, b->value, bytes, value_in(now->stream));
    (void)is_done(result, "gmlake_buffer_resize", 0, GMLAKE_ERROR_INVALID_ARGUMENT);
    return;
  }
  if (is_passed_over(end >= first || !is_captured)) return;
  if (end < first && !is_captured && !cells_settle(b, end, CELLS, on)) return;
  result = gmlake_buffer_resize(lake, b->value, bytes, value_in(now->stream));
  if (bytes > b->end ? !is_grown(b, result, "gmlake_buffer_resize", b->end / b->chunk, end)
                     : !is_done(result, "gmlake_buffer_resize", 0, GMLAKE_OK))
    return;
  if (bytes > b->end)
    cells_enter(b, b->end / b->chunk, end, on);
  else
    cells_leave(b, end, first);
  b->end = bytes;
}

/* Whether the word names whole chunks of the buffer's addresses, the last one as far as it goes. */
static int is_range(const buffer *b) {
  return now->bytes % b->chunk == 0 && now->bytes <= b->max && now->more <= b->max - now->bytes &&
         (now->more % b->chunk == 0 || now->more == b->max - now->bytes);
}

static uint32_t wanted_chunk(size_t i) {
  if (!w.wanted) return i == 2 ? GMLAKE_ANY_CHUNK : (uint32_t)(i + 7) % 8;
  if (w.wanted[i] == '*') return GMLAKE_ANY_CHUNK;
  return w.wanted[i] == 'x' ? 1000 : (uint32_t)(w.wanted[i] - '0');
}

/* Each number stands for the same memory, as long as that is there. */
static void judge_came(const buffer *b, size_t first, size_t count, const uint32_t *chunks) {
  size_t i;
  for (i = 0; i < count; i++) {
    judge(chunks[i] == b->value->pages[first + i].slot, "another chunk is told than is there");
    w.came[i] = chunks[i];
    if (!w.wanted || chunks[i] >= CELLS) continue;
    if (!w.numbered[chunks[i]])
      w.numbered[chunks[i]] = map_at(b->at + (first + i) * b->chunk)->of->value;
    judge(w.numbered[chunks[i]] == map_at(b->at + (first + i) * b->chunk)->of->value,
          "a chunk's number is another's");
  }
  w.wanted = NULL;
}

static void do_commit(buffer *b, int on) {
  const size_t first = now->bytes / b->chunk, end = cells_for(b, now->bytes + now->more);
  uint32_t chunks[CELLS];
  gmlake_result result;
  size_t i;
  if (!may_name(on)) return;
  if (!is_range(b)) {
    result =
        gmlake_buffer_commit(lake, b->value, now->bytes, now->more, NULL, value_in(now->stream));
    (void)is_done(result, "gmlake_buffer_commit", 0, GMLAKE_ERROR_INVALID_ARGUMENT);
    return;
  }
  for (i = 0; i < CELLS && first + i < end; i++) chunks[i] = wanted_chunk(i);
  result = gmlake_buffer_commit(lake, b->value, now->bytes, now->more,
                                now->verb == 'C' ? chunks : NULL, value_in(now->stream));
  if (!is_grown(b, result, "gmlake_buffer_commit", first, end)) return;
  if (now->verb == 'C') judge_came(b, first, end - first, chunks);
  cells_enter(b, first, end, on);
  if (end > first && b->end < now->bytes + now->more) b->end = now->bytes + now->more;
}

static void do_discard(buffer *b, int on) {
  const size_t first = now->bytes / b->chunk, end = cells_for(b, now->bytes + now->more);
  const int is_captured = on >= 0 && w.lines[on].graph;
  size_t i = first;
  if (!may_name(on)) return;
  if (!is_range(b)) {
    if (is_captured) return;
    (void)is_done(
        gmlake_buffer_discard(lake, b->value, now->bytes, now->more, value_in(now->stream)),
        "gmlake_buffer_discard", 0, GMLAKE_ERROR_INVALID_ARGUMENT);
    return;
  }
  while (i < end && !b->cells[i].id) i++;
  if (is_passed_over(i == end || !is_captured)) return; /* holes go in captures, too */
  if (!is_captured && !cells_settle(b, first, end, on)) return;
  if (!is_done(gmlake_buffer_discard(lake, b->value, now->bytes, now->more, value_in(now->stream)),
               "gmlake_buffer_discard", 0, GMLAKE_OK))
    return;
  cells_leave(b, first, end);
}

static void do_buffer_end(buffer *b, int on) {
  const int is_captured = on >= 0 && w.lines[on].graph;
  if (!may_name(on) || is_passed_over(!is_captured)) return;
  if (!is_captured && !cells_settle(b, 0, CELLS, on)) return;
  if (!is_done(gmlake_buffer_destroy(lake, b->value, value_in(now->stream)),
               "gmlake_buffer_destroy", 0, GMLAKE_OK))
    return;
  cells_leave(b, 0, CELLS);
  memset(b, 0, sizeof(*b));
}

static void do_buffer_use(buffer *b, int on) {
  size_t i;
  for (i = 0; i < CELLS; i++) use(&b->cells[i], on);
}

static void do_buffer(int on) {
  buffer *b = &w.buffers[now->one % BUFFERS];
  if (!b->value) return;
  if (now->verb == 'z') do_resize(b, on);
  if (now->verb == 'c' || now->verb == 'C') do_commit(b, on);
  if (now->verb == 'd') do_discard(b, on);
  if (now->verb == 'K') do_buffer_end(b, on);
  if (now->verb == 'U') do_buffer_use(b, on);
}

/* ---- Pools ----------------------------------------------------------------------------------- */

static void do_pool_open(int on) {
  pool *p = &w.pools[1 + now->one % POOLS];
  gmlake_pool_desc wanted;
  (void)on;
  if (p->value) return;
  memset(p, 0, sizeof(*p));
  memset(&wanted, 0, sizeof(wanted));
  wanted.chunk_bytes = now->more;
  wanted.limit_bytes = now->bytes;
  if (!is_done(
          gmlake_pool_create(lake, &wanted, &p->value), "gmlake_pool_create", 0,
          is_chunk(now->more ? now->more : w.chunk) ? GMLAKE_OK : GMLAKE_ERROR_INVALID_ARGUMENT)) {
    p->value = NULL;
    return;
  }
  p->chunk = wanted.chunk_bytes ? wanted.chunk_bytes : w.chunk;
  p->limit = wanted.limit_bytes;
  p->serial = ++w.next_pool;
}

typedef struct tenants { /* of a pool */
  int live, borrowed, may_be_borrowed, exported, imported, captured;
} tenants;

static tenants tenants_of(int number) {
  tenants all;
  block *b = NULL;
  size_t i;
  memset(&all, 0, sizeof(all));
  while ((b = live_next(b))) {
    if (b->pool == number && !b->is_borrowed) {
      all.live = 1;
      all.exported |= b->is_exported;
      all.imported |= b->is_imported;
    }
    all.borrowed |= b->is_borrowed && b->pool == number;
    all.may_be_borrowed |= b->may_be_borrowed && b->pool == number;
  }
  for (i = 0; i < BUFFERS; i++) all.live |= w.buffers[i].value && w.buffers[i].pool == number;
  for (i = 0; i < GRAPHS; i++)
    all.captured |= w.graphs[i].serial && w.graphs[i].is_active && w.graphs[i].pool == number;
  return all;
}

/* Its graphs have run and are gone; what else used its memory the lake knows of. */
static void do_pool_close(int on) {
  const int number = 1 + now->one % POOLS;
  pool *p = &w.pools[number];
  const tenants all = tenants_of(number);
  gmlake_result result;
  size_t n;
  int i;
  (void)on;
  if (!p->value || is_passed_over(!all.captured) || !await(&p->launched)) return;
  w.destroying = 1;
  result = gmlake_pool_destroy(lake, p->value);
  w.destroying = 0;
  if (!is_done(result, "gmlake_pool_destroy",
               MAY(captures(), CAPTURING) | MAY(captures(), OUT_OF_DEVICE_MEMORY) |
                   MAY(p->is_lent, BUSY) | MAY(all.live, INVALID_ARGUMENT),
               all.live && !p->is_lent ? GMLAKE_ERROR_INVALID_ARGUMENT : GMLAKE_OK)) {
    if (is_fatal(result) && !all.live && !all.borrowed) p->value = NULL; /* it may be gone */
    return;
  }
  for (i = 0; i < GRAPHS; i++)
    if (w.graphs[i].serial && w.graphs[i].pool == number && w.graphs[i].is_alive)
      end_graph(&w.graphs[i]);
  for (i = 0; i < GRAPHS; i++)
    if (w.graphs[i].pool == number) w.graphs[i].range_count = 0;
  for (n = 0; n < w.map_count; n++) /* the driver may refuse to unmap some of it, until later */
    if (w.maps[n]->of->pool == p->serial) w.maps[n]->is_graphs = 0;
  memset(p, 0, sizeof(*p));
}

static void do_lend(int on) {
  const int number = 1 + now->one % POOLS;
  pool *p = &w.pools[number];
  const tenants all = tenants_of(number);
  if (!p->value || on < 0 || is_passed_over(may_name(on))) return;
  if (!is_exact() && !is_quiet(on)) return;
  if (!order(on, &p->launched)) return;
  if (!is_done(gmlake_pool_lend(lake, p->value, value_in(now->stream)), "gmlake_pool_lend", 0,
               p->is_lent     ? GMLAKE_ERROR_BUSY
               : p->asleep    ? GMLAKE_ERROR_ASLEEP
               : all.captured ? GMLAKE_ERROR_CAPTURING
                              : GMLAKE_OK))
    return;
  p->is_lent = 1;
  counts.lends++;
}

static void do_recall(int on) {
  const int number = 1 + now->one % POOLS;
  pool *p = &w.pools[number];
  const tenants all = tenants_of(number);
  if (!p->value || on < 0 || is_passed_over(may_name(on))) return;
  if (!is_exact() && !is_quiet(on)) return;
  if (!is_done(gmlake_pool_recall(lake, p->value, value_in(now->stream)), "gmlake_pool_recall",
               MAY(captures(), CAPTURING) | MAY(all.may_be_borrowed, BUSY),
               !p->is_lent    ? GMLAKE_ERROR_INVALID_ARGUMENT
               : all.borrowed ? GMLAKE_ERROR_BUSY
                              : GMLAKE_OK))
    return;
  judge_recall(number, on);
  w.is_unsure = 1;
  join(&p->recalled, &w.lines[on].now);
  p->is_lent = 0;
}

/* Whether the pool is awake: where the lake could not undo a sleep, it is not. */
static int is_awake(int number) {
  gmlake_alloc_desc wanted;
  gmlake_query_info info;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = 1;
  wanted.pool = w.pools[number].value;
  return gmlake_query(lake, &wanted, GMLAKE_STREAM_NONE, &info) != GMLAKE_ERROR_ASLEEP;
}

static void do_sleep(int on) {
  const int number = now->one % (POOLS + 1), keeps = now->flags & FLAG_KEEP;
  pool *p = &w.pools[number];
  const tenants all = tenants_of(number);
  const moment need = uses_of_pool(number);
  const size_t held = stats().reserved_bytes;
  gmlake_result result;
  block *b = NULL;
  (void)on;
  if ((number && !p->value) || !await(&need)) return;
  while ((b = live_next(b)))
    if (b->pool == number && (!await(&b->used) || !await(&b->born))) return;
  b = NULL;
  while ((b = live_next(b)))
    if (b->pool == number) judge_stamps(b);
  w.moving = number + 1;
  result = gmlake_pool_sleep(lake, p->value, keeps ? GMLAKE_SLEEP_KEEP : GMLAKE_SLEEP_DROP,
                             &compared.released);
  w.moving = 0;
  judge(result || held - compared.released == stats().reserved_bytes,
        "a sleep has released something else");
  if (is_done(result, "gmlake_pool_sleep",
              MAY(all.may_be_borrowed || all.exported || all.imported || p->is_lent ||
                      (w.program->options[OPT_SHARE]),
                  BUSY) |
                  MAY(all.captured, CAPTURING),
              GMLAKE_OK)) {
    counts.sleeps++;
    w.is_unsure = 1;
    if (keeps)
      p->keeps = 1;
    else if (p->asleep)
      p->keeps = w.injected[ON_ANY] != 0; /* the driver may have taken back a part */
    if (!p->asleep)
      p->asleep = keeps ? 1 : 2;
    else if (!keeps)
      p->asleep = 2;
    return;
  }
  p->keeps |= keeps; /* the driver may not have taken it back */
  p->is_kept = 0;
  if (w.is_lost || p->asleep) return;
  if (!is_awake(number))
    p->asleep = 1;
  else
    own_again(number);
}

static void do_wake(int on) {
  const int number = now->one % (POOLS + 1);
  pool *p = &w.pools[number];
  const int was = p->asleep;
  gmlake_result result;
  block *b = NULL;
  (void)on;
  if (number && !p->value) return;
  w.moving = number + 1;
  result = gmlake_pool_wake(lake, p->value);
  w.moving = 0;
  if (!is_done(result, "gmlake_pool_wake", was ? LACK : 0, GMLAKE_OK)) return;
  p->asleep = 0;
  own_again(number);
  while ((b = live_next(b))) {
    if (b->pool != number) continue;
    if (was == 2) write_stamps(b);
    judge_stamps(b);
  }
}

/* What was admitted is served now without a new chunk, one behind the other, and all at once. */
static void judge_admitted(const gmlake_alloc_desc *list, size_t count) {
  void *ptrs[10] = {NULL};
  const uint64_t created = w.called[ON_CREATE];
  size_t i;
  for (i = 0; i < count; i++)
    judge(!gmlake_alloc_with(lake, &list[i], value_in(now->stream), &ptrs[i]),
          "a request that was admitted has failed");
  judge(created == w.called[ON_CREATE], "a chunk was created for what was admitted");
  for (i = 0; i < count; i++) {
    judge(!gmlake_free(lake, ptrs[i], value_in(now->stream)), "gmlake_free");
    sums.allocations += ptrs[i] != NULL;
    sums.frees += ptrs[i] != NULL;
  }
  sums.active_peak = stats().active_bytes_peak;
  sums.requested_peak = stats().requested_bytes_peak;
}

static void do_admit(int on) {
  gmlake_alloc_desc list[10];
  pool *from = &w.pools[now->two % (POOLS + 1)];
  const gmlake_stats before = stats();
  const size_t count = now->one % 10 + (now->more != 0);
  gmlake_result result;
  size_t i, sum = 0, whole = 0;
  if (!may_name(on)) return;
  if (!from->value) from = w.pools;
  if (on >= 0 && w.lines[on].graph) from = &w.pools[graph_of(w.lines[on].graph)->pool];
  for (i = 0; i < count; i++) {
    list[i] = wanted_of(from);
    if (i == now->one % 10) list[i].bytes = now->more;
    sum += list[i].bytes;
    whole += (size_t)up(list[i].bytes, from->chunk);
  }
  if (!is_alignment(now->align, from)) return;
  told.has_admitted = 1;
  compared.lacking = 1;
  result = gmlake_admit(lake, list, count, value_in(now->stream), &compared.lacking);
  judge(stats().active_bytes == before.active_bytes &&
            stats().allocation_count == before.allocation_count &&
            stats().free_count == before.free_count &&
            stats().active_bytes_peak == before.active_bytes_peak,
        "an admission has changed what is live");
  judge(
      !(BIT(result) & LACK) || desc.stitch_bytes_min ||
          !is_servable(whole, now->flags & FLAG_S ? GMLAKE_NO_STITCH : list[0].flags & ~16u, from),
      "not admitted though whole free chunks would do");
  judge(w.has_failed || w.injected[ON_ANY] || !result == !compared.lacking ||
            !(BIT(result) & (LACK | BIT(GMLAKE_OK))),
        "what lacks does not agree with the answer");
  sums.lacks -= (unsigned)(is_lack(result) && !w.is_handling); /* it is no request */
  if (!is_done(result, "gmlake_admit",
               LACK | MAY(from->asleep, ASLEEP) | MAY(captures(), CAPTURING),
               from->asleep ? GMLAKE_ERROR_ASLEEP : GMLAKE_OK))
    return;
  from->is_kept = sum != 0;
  if (!is_exact() && !has_own_time() && !desc.policy && !desc.observer.fn && !w.has_failed &&
      !w.host_in && !captures() && !(now->flags & FLAG_T) && !w.program->options[OPT_SHARE])
    judge_admitted(list, count);
}

static void do_reserve(int on) {
  const size_t before = census().physical_bytes;
  if (now->one) {
    do_admit(on);
    return;
  }
  if (!may_name(on)) return;
  if (is_done(gmlake_reserve(lake, NULL, now->bytes, value_in(now->stream)), "gmlake_reserve", LACK,
              w.pools[0].asleep ? GMLAKE_ERROR_ASLEEP : GMLAKE_OK))
    judge((census().physical_bytes - before) / w.chunk <=
              now->bytes / w.chunk + (now->bytes % w.chunk != 0),
          "more was created than is to be reserved");
  else
    judge(census().physical_bytes == before || w.has_failed,
          "to reserve has failed, and created memory");
}

/* ---- Questions ------------------------------------------------------------------------------- */

static void do_trim(int on) {
  const uint64_t waits = census().host_wait_count;
  const size_t before = stats().reserved_bytes;
  (void)on;
  compared.released = 1;
  (void)is_done(gmlake_trim(lake, now->bytes, &compared.released), "gmlake_trim", 0, GMLAKE_OK);
  judge(waits == census().host_wait_count, "gmlake_trim waits");
  judge(before - compared.released == stats().reserved_bytes,
        "gmlake_trim has released something else");
}

static void do_budget(int on) {
  gmlake_budget *budget = &compared.budget;
  const uint64_t waits = census().host_wait_count;
  (void)on;
  if (is_done(gmlake_get_budget(lake, budget), "gmlake_get_budget", 0, GMLAKE_OK)) {
    judge(budget->reserved_bytes == stats().reserved_bytes && budget->total_bytes >= w.capacity &&
              budget->driver_free_bytes + census().physical_bytes == w.capacity &&
              budget->idle_bytes + budget->pending_bytes <= budget->reserved_bytes,
          "a budget does not add up");
    judge_promise(budget);
  }
  judge(waits == census().host_wait_count, "gmlake_get_budget waits");
}

/* What gmlake_get_chunks tells of a buffer is its memory, without the holes, wherever it is asked;
   there, too, gmlake_find finds the buffer. */
static void judge_memory(const buffer *b) {
  gmlake_chunk_info chunks[CELLS];
  gmlake_map_entry info;
  size_t count = 0, at, told_count = 0;
  for (at = 0; at < b->max; at += b->chunk) {
    const block *cell = &b->cells[at / b->chunk];
    const gmlake_chunk_info *chunk = &chunks[told_count];
    void *ptr = (void *)(uintptr_t)(b->at + at);
    const map *m = map_at(b->at + at);
    must(gmlake_find(lake, ptr, &info), "gmlake_find");
    must(gmlake_get_chunks(lake, ptr, chunks, CELLS, &count), "gmlake_get_chunks");
    judge(info.kind == GMLAKE_KIND_BUFFER && info.address == b->at,
          "something else than a buffer is found");
    if (!cell->id) continue;
    judge(told_count++ < count && m && chunk->address == cell->at &&
              chunk->handle == m->of->value && chunk->bytes == b->chunk,
          "a buffer has other chunks than are told");
  }
  judge(told_count == count, "a hole of a buffer is told as a chunk");
}

static void do_questions(int on) {
  gmlake_pool *pools[POOLS];
  const char *wrong;
  block *b = NULL;
  int i, is_plain = 1;
  (void)on;
  for (i = 0; i < POOLS; i++) pools[i] = w.pools[i + 1].value;
  for (i = 0; i <= POOLS; i++) is_plain &= !w.pools[i].asleep;
  if (!is_plain || w.program->options[OPT_SHARE] || w.is_lost) return;
  wrong = map_wrong(lake, pools, POOLS);
  if (wrong) judge(0, wrong);
  for (i = 0; i <= POOLS; i++)
    if (!i || w.pools[i].value) judge_pool_figures(i);
  while ((b = live_next(b)) && b < w.blocks + NAMES && b >= w.blocks) {
    judge_chunks(b);
    if (!b->is_imported) judge_pieces(b, b->flags, &w.pools[b->pool]);
  }
  for (i = 0; i < BUFFERS; i++)
    if (w.buffers[i].value) judge_memory(&w.buffers[i]);
}

static void judge_buffer(const buffer *b) {
  gmlake_buffer_info info;
  size_t i, committed = 0;
  must(gmlake_buffer_get_info(lake, b->value, &info), "gmlake_buffer_get_info");
  for (i = 0; i < CELLS; i++) committed += b->cells[i].bytes;
  judge(info.ptr == (void *)(uintptr_t)b->at && info.max_bytes == b->max && info.bytes == b->end &&
            info.committed_bytes == committed && info.pool == w.pools[b->pool].value,
        "a buffer has changed");
}

static void judge_all(void) {
  block *b = NULL;
  size_t i;
  while ((b = live_next(b))) {
    if (b >= w.blocks && b < w.blocks + NAMES) judge_kept(b);
    if (!w.pools[b->pool].asleep) judge_stamps(b);
  }
  for (i = 0; i < BUFFERS; i++)
    if (w.buffers[i].value) judge_buffer(&w.buffers[i]);
}

/* The program's capture mode is what it was, and the figures are those of the device. */
static void judge_step(void) {
  int mode = w.mode, code = 0, i, keeps = 0;
  size_t live = 0;
  gmlake_stats all;
  must(mock->capture_exchange(mock->user, &mode, &code), "the program's exchange");
  judge(!w.is_trusted || mode == w.mode, "the thread's capture mode has changed");
  w.is_trusted = 1;
  judge(!w.is_copying || w.is_lost, "a copy still runs when its call has ended");
  if ((w.is_lost && !is_exact()) || !lake) return;
  all = stats();
  for (i = 0; i < NAMES; i++) live += w.blocks[i].id != 0;
  judge(all.live_count == live, "live_count");
  judge_told(&all);
  judge_figures(&all);
  judge(!desc.limit_bytes || all.quarantined_bytes || all.reserved_bytes <= desc.limit_bytes,
        "more memory than the limit");
  for (i = 0; i <= POOLS; i++) keeps |= w.pools[i].keeps;
  judge(keeps || w.injected[ON_ANY] || w.was_refused || !census().host_count,
        "contents are kept on the host for a pool that is gone");
  if (is_exact() && w.hits && w.has_called) judge_all();
  if (is_strict    ? !w.is_lost
      : is_exact() ? w.hits > w.hits_before || (w.hits && w.at + 1 == w.program->count)
                   : !w.is_chosen || w.at % 16 == 0) {
    gmlake_error_info info;
    gmlake_result result;
    w.is_checking = 1;
    result = gmlake_check(lake);
    w.is_checking = 0;
    if (!result) return;
    (void)gmlake_get_last_error(lake, &info);
    judge(0, info.text);
  }
}

/* ---- One operation --------------------------------------------------------------------------- */

static void do_fault(void) {
  struct fault *f;
  if (!now->bytes) w.fault_count = 0;
  if (now->two == ON_HOST) {
    w.host_in = now->bytes;
    w.host_stays = now->flags & FLAG_STAYS;
    return;
  }
  if (w.fault_count == sizeof(w.faults) / sizeof(w.faults[0])) {
    judge(!is_exact(), "too many faults: fail:any=0R forgets those before it");
    return;
  }
  f = &w.faults[w.fault_count++];
  f->kind = now->two;
  f->in = now->bytes;
  f->result = result_of(now->result);
  f->stays = now->flags & FLAG_STAYS;
  if (!is_exact() && is_fatal(f->result)) f->stays = 0; /* nothing is asked behind it */
}

/* The operations behind it wait until then. */
static void do_inside(void) {
  struct meddling *m = w.meddlings;
  while (m < w.meddlings + MEDDLINGS && m->in) m++;
  judge(m < w.meddlings + MEDDLINGS && !w.is_inside,
        "too much is to happen in the middle of calls");
  m->in = now->bytes;
  m->kind = now->two;
  m->first = w.at + 1;
  m->count = now->more;
  w.at += now->more;
}

static void do_progress(int on) {
  const gmlake_stream value = on < 0 ? NULL : w.lines[on].value;
  if (now->verb == 't') {
    if (w.clock_ns < now->bytes) w.clock_ns = now->bytes;
    gmlake_mock_set_clock(mock, w.clock_ns);
    return;
  }
  if (on < 0 || !w.lines[on].is_alive) return;
  if (now->verb == 'h') gmlake_mock_stream_hold(mock, value);
  if (now->verb == 'e') gmlake_mock_stream_finish(mock, value);
  if (now->verb == 'g') gmlake_mock_stream_set_lag(mock, value, now->bytes);
}

/* With live blocks and pending work. What was allocated on no stream, or given to streams that the
   lake has not heard of, is waited for first. */
static gmlake_result end_lake(void) {
  const gmlake_stats final = stats();
  moment all;
  size_t i;
  int n;
  block *b = NULL;
  gmlake_result result;
  memset(w.injected, 0, sizeof(w.injected));
  w.calls = 0;
  w.hits_before = w.hits;
  w.was_lost = w.lost;
  if (!is_exact()) disarm();
  for (n = 0; n < w.line_count; n++)
    if (w.lines[n].graph) w.named = n, do_capture_end(n);
  memset(&all, 0, sizeof(all));
  while ((b = live_next(b))) {
    moment need = need_of(b);
    judge_stamps(b);
    if (b->on >= 0) need.at[b->on] = 0;
    join(&all, &need);
  }
  for (i = 0; i <= POOLS; i++) join(&all, &w.pools[i].launched);
  judge(await(&all), "the program cannot wait");
  counts.stitches += final.stitch_count;
  counts.waits += final.stream_wait_count;
  counts.evictions += final.stitch_evict_count;
  w.leaks_told = 0;
  w.destroying = 2;
  w.named = NOBODY;
  memset(w.failed, 0, sizeof(w.failed));
  result = gmlake_destroy(lake);
  judge((size_t)w.leaks_told == final.live_count + final.buffer_count, "what is left is not told");
  judge(w.was_lost ? result == w.was_lost
        : result   ? w.injected[ON_ANY] & BIT(result)
                   : !w.injected[ON_ANY] || w.failed[ON_EXCHANGE] || w.seems_gone,
        "gmlake_destroy");
  lake = NULL;
  judge(w.locks_made == w.locks_before && !w.locks_held, "a lock is left when the lake is gone");
  return result;
}

static void reset_peaks(void) {
  must(gmlake_reset_peaks(lake), "gmlake_reset_peaks");
  sums.requested_peak = sums.active_peak = 0;
  w.reserved_most = stats().reserved_bytes;
  judge(stats().metadata_bytes_peak == stats().metadata_bytes, "metadata_bytes_peak");
}

static void set_mark(void) {
  compared.mark = stats();
  compared.all_calls = w.all_calls;
  compared.turns = w.turns;
  compared.clock_reads = w.clock_reads;
  told.count_queued = told.count_heard = 0;
  asked.choose_count = asked.evict_count = asked.coalesce_count = 0;
}

static void judge_result(gmlake_result result, const char *what) {
  char rule[80];
  (void)snprintf(rule, sizeof(rule), "%s is %s", what, gmlake_result_name(result));
  judge(result == result_of(now->result), rule);
}

static void do_compare(int on) {
  char rule[120];
  const char *name = comparisons[now->align - 1].name;
  if (!strcmp(name, "mark"))
    set_mark();
  else if (!strcmp(name, "reset-peaks"))
    reset_peaks();
  else if (!strcmp(name, "lake-alone"))
    w.is_told = 1;
  else if (!strcmp(name, "want"))
    w.wanted = (const char *)now->bytes;
  else if (!strcmp(name, "driver-alone"))
    w.is_untold = 1;
  else if (!strcmp(name, "destroy"))
    judge(end_lake() == result_of(now->result), "gmlake_destroy");
  else if (!strcmp(name, "error"))
    judge_result(last_result(), "the last error");
  else if (!strcmp(name, "foretold"))
    judge_result(compared.foretold.result, "foretold");
  else if (!do_say(now, name, value_in(now->stream)) &&
           !is_as_said(now, name, on, rule, sizeof(rule)))
    judge(0, rule);
}

static const struct performer { /* of the words that are performed */
  char verb;
  void (*run)(int on);
} performers[] = {
    {'+', do_alloc},       {'-', do_free_named}, {'q', do_query},      {'u', do_use},
    {'U', do_buffer},      {'r', do_record},     {'w', do_wrong},      {'x', do_export},
    {'i', do_import},      {'f', do_forget},     {'k', do_kill},       {'v', do_replace},
    {'m', do_mark},        {'h', do_progress},   {'e', do_progress},   {'g', do_progress},
    {'t', do_progress},    {'P', do_pool_open},  {'D', do_pool_close}, {'B', do_capture_begin},
    {'E', do_capture_end}, {'j', do_launch},     {'J', do_graph_end},  {'N', do_buffer_open},
    {'z', do_buffer},      {'K', do_buffer},     {'c', do_buffer},     {'d', do_buffer},
    {'C', do_buffer},      {'S', do_sleep},      {'W', do_wake},       {'l', do_lend},
    {'L', do_recall},      {'Y', do_reserve},    {'T', do_trim},       {'Q', do_budget},
    {'I', do_questions},   {'a', do_answer},     {'=', do_compare},
};

static void perform(const op *o) {
  const int on = line_in(o->stream);
  size_t i = 0;
  now = o;
  if (o->verb == 'F' || o->verb == 'M') {
    if (o->verb == 'F')
      do_fault();
    else
      do_inside();
    return;
  }
  memset(w.injected, 0, sizeof(w.injected));
  w.handler_calls = 0;
  w.calls = 0;
  w.hits_before = w.hits;
  w.was_lost = w.lost;
  w.has_called = w.is_again = 0;
  memset(w.called, 0, sizeof(w.called));
  w.named = on;
  w.is_recalled = o->verb == 'L';
  asked.was_wrong = asked.may_be_wrong = 0;
  counts.steps++;
  if (w.was_lost && strchr("wIuU", o->verb)) return;
  while (performers[i].verb != o->verb) i++;
  performers[i].run(on);
  if (!is_exact()) disarm();
  if (o->verb != '=' && !w.is_again) asked.plans = asked.drops = NULL;
  if (o->verb != '=') w.is_told = w.is_untold = 0;
  judge(w.locks_held == w.held_outside, "a lock is held behind a call");
  judge(!is_exact() || (w.hits && !is_strict) || w.has_called || strchr("uUkvhegtjJIwa=", o->verb),
        "a word is passed over");
  if (!w.is_inside) judge_step();
}

/* The call that it is in the middle of goes on as if nothing had happened to the program. */
static void meddle(const struct meddling *m) {
  const op *outer = now;
  unsigned injected[ON_HOST + 1];
  const size_t at = w.at, calls = w.calls, hits_before = w.hits_before;
  const int named = w.named, has_called = w.has_called, is_recalled = w.is_recalled;
  const int was_inside = w.is_inside, held_outside = w.held_outside;
  const int handler_calls = w.handler_calls, is_handling = w.is_handling;
  const gmlake_result was_lost = w.was_lost;
  const char *plans = asked.plans, *drops = asked.drops;
  const block *leaving = w.leaving;
  const uint64_t faults = counts.faults;
  memcpy(injected, w.injected, sizeof(injected));
  w.is_inside = 1;
  w.is_handling = 0;
  w.held_outside = w.locks_held;
  thread_number++;
  for (w.at = m->first; w.at < m->first + m->count; w.at++) perform(&w.program->ops[w.at]);
  thread_number--;
  w.handler_calls = handler_calls;
  w.is_handling = is_handling;
  w.was_lost = was_lost;
  asked.plans = plans;
  asked.drops = drops;
  w.leaving = leaving;
  w.is_inside = was_inside;
  w.held_outside = held_outside;
  counts.faults = faults;
  now = outer;
  memcpy(w.injected, injected, sizeof(injected));
  w.at = at;
  w.calls = calls;
  w.hits_before = hits_before;
  w.named = named;
  w.has_called = has_called;
  w.is_recalled = is_recalled;
}

static void on_log(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  judge(info->call && info->text[0], "a message without a call or a text");
  judge(w.locks_held == w.held_outside, "the logger runs with a lock held");
  w.errors_told += level == GMLAKE_LOG_ERROR;
  w.warnings_told += level == GMLAKE_LOG_WARNING;
  if (level == GMLAKE_LOG_WARNING) w.warned_kind = kind_of(info->call);
  w.leaks_told += level == GMLAKE_LOG_WARNING && !strcmp(info->call, "gmlake_destroy");
}

/* ---- A lake ---------------------------------------------------------------------------------- */

static void describe(const size_t *options) {
  static int peers[3]; /* which the lake copies: w.peers are what it has to know */
  int i;
  memset(&desc, 0, sizeof(desc));
  watch();
  desc.backend = &judged;
  desc.chunk_bytes = w.chunk;
  desc.logger.fn = on_log;
  desc.host.malloc_fn = host_malloc;
  desc.host.free_fn = host_free;
  if (options[OPT_WAIT_FIRST]) desc.cross_stream = GMLAKE_WAIT_FIRST;
  if (options[OPT_SINGLE]) desc.flags |= GMLAKE_SINGLE_THREADED;
  if (options[OPT_FILL] && w.is_real) desc.flags |= GMLAKE_FILL;
  if (options[OPT_MAY_END]) desc.flags |= GMLAKE_STREAMS_MAY_END;
  if (options[OPT_NO_IDS] && !may_end()) judged.stream_id = NULL;
  if (options[OPT_SHARE]) desc.handle_types = SHARED_AS;
  desc.limit_bytes = options[OPT_LIMIT];
  desc.driver_free_bytes_min = options[OPT_KEEP];
  desc.arena_bytes = options[OPT_ARENA];
  desc.window_bytes = options[OPT_WINDOW];
  desc.stitched_bytes_max = options[OPT_SMAX];
  desc.stitch_bytes_min = options[OPT_SMIN];
  if (options[OPT_OOM]) desc.oom.fn = on_oom;
  if (options[OPT_OBSERVED]) desc.observer.fn = observe;
  desc.policy = policy_of(options[OPT_POLICY]);
  for (i = 0; i < 3; i++) w.peers[i] = i + 1;
  desc.peer_count = options[OPT_PEERS] % 4;
  memcpy(peers, w.peers, sizeof(peers));
  desc.peer_devices = desc.peer_count ? peers : NULL;
}

/* Nothing is left of the lake but what calls that failed meanwhile explain. */
static void judge_left(void) {
  const gmlake_mock_census left = census();
  const size_t *failed = w.failed;
  judge(left.handle_count == failed[ON_RELEASE] && left.event_count == failed[ON_EVENT_DESTROY] &&
            left.host_count <= failed[ON_HOST_FREE] + failed[ON_EXCHANGE] && !host_bytes,
        "something is left when the lake is gone");
  judge((!left.mapping_count && !w.map_count) || failed[ON_UNMAP], "something is still mapped");
  judge(left.reservation_count >= failed[ON_UNRESERVE] &&
            (left.reservation_count == failed[ON_UNRESERVE] || failed[ON_UNMAP]),
        "addresses are left when the lake is gone");
  judge(left.handle_count || left.mapping_count || open_descriptors() == w.descriptors,
        "a descriptor is left when the lake is gone");
  judge(!left.physical_bytes || left.handle_count || left.mapping_count, "memory is left");
}

/* With the option `exact` the faults in front of the line count from here on. What failed once
   works the next time, but where something is left of it. */
static void create_lake(void) {
  static gmlake_error_info why;
  gmlake_result result;
  w.locks_before = w.locks_made;
  for (; is_exact() && w.at < w.program->count && w.program->ops[w.at].verb == 'F'; w.at++) {
    now = &w.program->ops[w.at];
    do_fault();
  }
  for (;;) {
    const size_t hits = w.hits;
    w.driver_calls = 0;
    w.lost = GMLAKE_OK;
    memset(w.injected, 0, sizeof(w.injected));
    memset(w.failed, 0, sizeof(w.failed));
    lake = NULL;
    memset(&why, 0, sizeof(why));
    desc.out_error = &why;
    w.hits_before = hits;
    result = gmlake_create(&desc, &lake);
    judge(!lake == (result != GMLAKE_OK), "gmlake_create");
    judge(w.locks_made == w.locks_before + (lake && lake->has_locks ? 3 : 0) && !w.locks_held,
          "gmlake_create makes other locks, or holds one");
    if (!result && desc.peer_count)
      memset((int *)(uintptr_t)desc.peer_devices, 0, desc.peer_count * sizeof(int));
    if (!result) return;
    judge(w.hits > hits && is_injected(result), "gmlake_create fails");
    judge(why.result == result && why.text[0] && names_call(&why), "gmlake_create says otherwise");
    judge_left();
    if (w.failed[ON_RELEASE] || w.failed[ON_UNMAP] || w.failed[ON_UNRESERVE])
      siglongjmp(verdict.end, 1);
    if (w.is_lasting) disarm();
  }
}

static void open_world(program *p) {
  gmlake_mock_desc device;
  size_t i;
  int code = 0, mode;
  memset(&w, 0, offsetof(struct world, events));
  memset(&told, 0, sizeof(told));
  memset(&sums, 0, sizeof(sums));
  memset(&compared, 0, sizeof(compared));
  memset(&device, 0, sizeof(device));
  w.program = p;
  writing_unit = unit_of(p);
  w.is_trusted = 1;
  thread_number = 1;
  w.named = NOBODY;
  w.granule = p->options[OPT_GRANULE] ? p->options[OPT_GRANULE] : (size_t)sysconf(_SC_PAGESIZE);
  device.granularity_bytes = w.granule;
  w.chunk = p->options[OPT_CHUNK] ? p->options[OPT_CHUNK] : w.granule;
  w.capacity = p->options[OPT_CAP] ? p->options[OPT_CAP] : 64 * w.chunk;
  device.capacity_bytes = w.capacity;
  if (p->options[OPT_INTEGRATED]) device.available_bytes = w.capacity -= w.capacity / 4;
  device.bookkeeping_only = p->options[OPT_BOOKS] != 0;
  w.is_real = !device.bookkeeping_only;
  host_bytes = 0;
  unit_chunks = p->options[OPT_EXTENT] ? (unsigned)p->options[OPT_EXTENT] : 64;
  must(gmlake_mock_create(&device, &mock), "gmlake_mock_create");
  w.descriptors = open_descriptors();
  describe(p->options);
  create_lake();
  w.pools[0].serial = ++w.next_pool;
  w.pools[0].chunk = w.chunk;
  for (i = 0; i <= (p->options[OPT_STREAMS] ? p->options[OPT_STREAMS] : SLOTS - 1) && i < SLOTS;
       i++)
    line_add((unsigned char)i);
  w.event = program_event();
  mode = w.mode = (int)(p->options[OPT_MODE] % 3);
  must(mock->capture_exchange(mock->user, &mode, &code), "the program's exchange");
}

/* After a fatal error every call that changes memory answers it, and changes nothing. Questions
   are answered, and what they refuse is not the last error. */
static void judge_lost(void) {
  const block *b = w.blocks;
  void *ptr = &ptr, *live;
  gmlake_map_entry info;
  size_t count;
  const gmlake_result result = gmlake_alloc(lake, 1, NULL, &ptr);
  judge(is_fatal(result) && !ptr, "the device is lost, and an allocation does not say so");
  judge(gmlake_free(lake, &ptr, NULL) == result && gmlake_trim(lake, 0, NULL) == result,
        "the device is lost, and a call says something else");
  while (b < w.blocks + NAMES - 1 && !b->id) b++;
  live = (void *)(uintptr_t)b->at;
  judge(!gmlake_get_map(lake, NULL, 0, &count) &&
            (!b->id || (!gmlake_find(lake, live, &info) &&
                        gmlake_get_chunks(lake, live, NULL, 0, &count) != result)),
        "the device is lost, and a question is not answered");
  judge(gmlake_find(lake, &info, &info) == GMLAKE_ERROR_UNKNOWN_POINTER && last_result() == result,
        "the device is lost, and a refusal is the last error");
}

/* What is left of a world, which a finding may have ended. */
static void leave_world(void) {
  size_t i;
  for (i = 0; i < NAMES; i++) forget_block(&w.blocks[i]);
  for (i = 0; i < w.map_count; i++) free(w.maps[i]);
  for (i = 0; i < HANDLES; i++) free(w.handles[i].grains);
  while (host_blocks) host_leave(host_blocks);
  if (mock) gmlake_mock_destroy(mock);
  mock = NULL;
  lake = NULL;
}

/* Nothing may be left. */
static void close_world(void) {
  static const op last = {'=', 0, 0, 0, 0, 0, 0, 0, 0};
  size_t i;
  int n, code = 0;
  now = &last;
  if (lake) (void)end_lake();
  for (i = 0; i < MEDDLINGS; i++)
    judge(!w.meddlings[i].in, "a call that was to be meddled with was not made");
  for (n = 0; n < w.line_count; n++)
    if (w.lines[n].end) (void)mock->event_destroy(mock->user, w.lines[n].end, &code);
  (void)mock->event_destroy(mock->user, w.event, &code);
  for (i = 0; i < NAMES; i++) forget_block(&w.blocks[i]);
  judge_left();
  leave_world();
}

static void on_signal(int number) {
  (void)snprintf(verdict.rule, sizeof(verdict.rule), "signal %d", number);
  verdict.at = w.at;
  siglongjmp(verdict.end, 1);
}

/* From now on, or as it was before. */
static void catch_signals(int is_on) {
  static const int numbers[] = {SIGSEGV, SIGBUS, SIGFPE, SIGABRT};
  static void (*before[sizeof(numbers) / sizeof(numbers[0])])(int);
  size_t i;
  for (i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++)
    if (is_on)
      before[i] = signal(numbers[i], on_signal);
    else
      (void)signal(numbers[i], before[i]);
}

static void (*beside)(void); /* looks on before the first operation and behind each */

/* NULL, or the rule that was broken. `choose` gives the next operation, NULL: the line's. */
static const char *play(program *p, int (*choose)(program *, size_t)) {
  verdict.is_open = 1;
  verdict.rule[0] = 0;
  catch_signals(1);
  if (!sigsetjmp(verdict.end, 1)) {
    open_world(p);
    w.is_chosen = choose != NULL;
    if (beside) beside();
    while ((is_exact() || (!w.is_lost && !w.fatal)) &&
           (w.at < p->count || (choose && choose(p, w.at)))) {
      if (is_traced)
        op_write(stdout, &p->ops[w.at]), (void)fputc('\n', stdout), (void)fflush(stdout);
      do perform(&p->ops[w.at]);
      while (w.is_again);
      w.at++;
      if (beside) beside();
    }
    if (w.is_lost && lake) judge_lost();
    close_world();
  } else
    leave_world();
  catch_signals(0);
  verdict.is_open = 0;
  return verdict.rule[0] ? verdict.rule : NULL;
}

/* Plays a line and says what is found; 2: it is none of the language, 1: something is. */
static inline int play_line(const char *line) {
  static program p;
  const char *wrong = program_of(&p, line), *rule;
  if (wrong) {
    (void)fprintf(stderr, "not of the language: %s\n", wrong);
    return 2;
  }
  rule = play(&p, NULL);
  (void)printf("%s\n", rule ? rule : "nothing is found");
  return rule != NULL;
}

#endif /* PLAY_PLAYER_H */
