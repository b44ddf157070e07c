/* desc.policy: plans that are carried out, plans that are refused and change nothing, what a policy
   is shown, when it is asked, and policies that misbehave: that call the lake, race with other
   threads, lose the device. A script answers; its next plan is set by the test.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters. */
#include "waiters.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "patience.h"

#include <unistd.h>

#define PIECES 48
#define CHOOSE 1u
#define EVICT 2u
#define COALESCE 4u
#define ALL 7u

/* ---- The script ------------------------------------------------------------------------------ */

typedef struct answer {
  gmlake_plan plan; /* but for pieces and capacity */
  gmlake_piece pieces[PIECES];
  gmlake_piece *elsewhere; /* where the plan points to instead */
} answer;

static struct script {
  gmlake_policy policy;
  answer answers[3]; /* to the first question, the second, and all behind; none: state 0 */
  size_t answer_count, chosen;
  uint64_t victims[PIECES];
  size_t victim_count, evicted; /* what evict answers, and how often it was asked */
  int victims_are_oldest;       /* the oldest of the view, so many */
  size_t mapped_bytes;          /* as evict was told */
  int joins;
  size_t freed;
  gmlake_piece freed_block;
  void (*hook)(void); /* what else is done in a callback */
  /* What it was shown last: */
  gmlake_view view;
  gmlake_request request;
  gmlake_piece blocks[PIECES];
  gmlake_window_info windows[PIECES];
} p;

static void note_view(const gmlake_view *view) {
  p.view = *view;
  if (view->block_count > PIECES || view->window_count > PIECES) abort();
  memcpy(p.blocks, view->blocks, view->block_count * sizeof(gmlake_piece));
  memcpy(p.windows, view->windows, view->window_count * sizeof(gmlake_window_info));
}

static void on_choose(void *user, const gmlake_view *view, const gmlake_request *request,
                      gmlake_plan *plan) {
  const answer *a = &p.answers[0];
  gmlake_plan empty;
  size_t count;
  if (user != &p) abort();
  memset(&empty, 0, sizeof(empty));
  empty.pieces = plan->pieces;
  empty.piece_capacity = view->block_count + 1;
  if (memcmp(plan, &empty, sizeof(empty)) != 0) abort();
  note_view(view);
  p.request = *request;
  if (p.answer_count) a += p.chosen < p.answer_count ? p.chosen : p.answer_count - 1;
  p.chosen++;
  if (p.hook) p.hook();
  if (!p.answer_count) return;
  count = a->plan.piece_count < PIECES ? a->plan.piece_count : PIECES;
  if (count > plan->piece_capacity) count = plan->piece_capacity;
  memcpy(plan->pieces, a->pieces, count * sizeof(gmlake_piece));
  *plan = a->plan;
  plan->pieces = a->elsewhere ? a->elsewhere : empty.pieces;
  plan->piece_capacity = empty.piece_capacity;
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  size_t i;
  if (user != &p) abort();
  note_view(view);
  p.evicted++;
  p.mapped_bytes = mapped_bytes;
  if (p.hook) p.hook();
  for (i = 0; i < p.victim_count && i < view->window_count; i++)
    out_windows[i] = p.victims_are_oldest ? view->windows[i].number : p.victims[i];
  return p.victims_are_oldest && p.victim_count > view->window_count ? view->window_count
                                                                     : p.victim_count;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  if (user != &p) abort();
  p.freed++;
  p.freed_block = *block;
  if (p.hook) p.hook();
  return p.joins;
}

/* A mock and a description with a policy that has these functions. */
static void prepare_policy(size_t chunks, unsigned functions) {
  (void)alarm(patience()); /* for what should deadlock */
  prepare(chunks);
  memset(&p, 0, sizeof(p));
  p.policy.struct_bytes = sizeof(p.policy);
  p.policy.user = &p;
  if (functions & CHOOSE) p.policy.choose = on_choose;
  if (functions & EVICT) p.policy.evict = on_evict;
  if (functions & COALESCE) p.policy.coalesce = on_coalesce;
  p.joins = 1;
  desc.policy = &p.policy;
}

static void begin(size_t chunks, unsigned functions) {
  prepare_policy(chunks, functions);
  open_lake();
}

/* The policy decides nothing from here on. */
static void built_in(void) { p.answer_count = p.chosen = 0; }

/* One more answer, of that state. */
static answer *then(unsigned state) {
  answer *a = &p.answers[p.answer_count++];
  memset(a, 0, sizeof(*a));
  a->plan.state = state;
  return a;
}

/* The only answer. */
static answer *plan(unsigned state) {
  built_in();
  return then(state);
}

static void add(answer *a, const void *home, size_t bytes) {
  gmlake_piece *last = &a->pieces[a->plan.piece_count++];
  last->home = (void *)(uintptr_t)home;
  last->bytes = bytes;
}

static answer *plan_piece(unsigned state, const void *home, size_t bytes) {
  answer *a = plan(state);
  add(a, home, bytes);
  return a;
}

static answer *plan_two(const void *first, const void *second) {
  answer *a = plan_piece(3, first, C);
  add(a, second, C);
  return a;
}

static answer *plan_growth(size_t bytes) {
  answer *a = plan(4);
  a->plan.grow_bytes = bytes;
  return a;
}

static void plan_reuse(uint64_t number) { plan(1)->plan.window = number; }

static void *at(const void *home, size_t bytes) { return (void *)((uintptr_t)home + bytes); }

/* A window of two free blocks of one chunk, idle. */
static uint64_t make_window(void *first, void *second) {
  (void)plan_two(first, second);
  drop(take(2 * C));
  built_in();
  return lake->home.windows.number;
}

/* A request that is refused, so that nothing changes: for the view that it is shown. */
static void show_on(gmlake_stream stream) {
  (void)plan(3);
  assert_error(try_on(1, stream), INVALID_ARGUMENT);
  built_in();
}

static void show(void) { show_on(LEGACY); }

static void assert_block(size_t number, const void *home, size_t bytes) {
  assert_true(number < p.view.block_count);
  assert_ptr_equal(p.blocks[number].home, home);
  assert_int_equal(p.blocks[number].bytes, bytes);
}

static gmlake_stats mark;

static void assert_state(int number) {
  gmlake_stats now = stats();
  int i;
  for (i = 0; i < 5; i++)
    assert_int_equal(now.state_count[i] - mark.state_count[i], i + 1 == number);
}

/* Served as planned, in this state. */
static void *take_in(int state, size_t bytes) {
  void *ptr;
  mark = stats();
  ptr = take(bytes);
  assert_state(state);
  built_in();
  return ptr;
}

/* What is written through the block lies in its pieces, in order. */
static void assert_aliases(void *ptr) {
  gmlake_piece pieces[PIECES];
  size_t count = 0, offset = 0, i, n;
  unsigned char *bytes = (unsigned char *)ptr;
  gmlake_allocation_info info;
  assert_ok(gmlake_get_allocation(lake, ptr, &info));
  assert_ok(gmlake_get_pieces(lake, ptr, pieces, PIECES, &count));
  assert_int_equal(count, info.piece_count);
  for (n = 0; n < info.bytes; n += 512) memcpy(bytes + n, &n, sizeof(n));
  for (i = 0; i < count; offset += pieces[i++].bytes) {
    for (n = 0; n < pieces[i].bytes; n += 512) {
      size_t want = offset + n;
      assert_memory_equal((char *)pieces[i].home + n, &want, sizeof(want));
    }
  }
  assert_int_equal(offset, info.bytes);
}

/* All of a lake's blocks are freed, and it is closed. */
static void drop_all(void **blocks, size_t count) {
  size_t i;
  for (i = 0; i < count; i++)
    if (blocks[i]) drop(blocks[i]);
}

static void end(void) {
  p.hook = NULL;
  built_in();
  finish();
  (void)alarm(0);
}

/* ---- Legal plans: one piece ------------------------------------------------------------------ */

/* | a   a | B |                                     plan: a
   | A   A | B | */
static void piece_is_a_whole_block(void **state) {
  void *b[3], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 3);
  drop_these(b[0], b[1]);
  (void)plan_piece(1, b[0], 2 * C);
  x = take_in(1, 2 * C);
  assert_ptr_equal(x, b[0]);
  assert_int_equal(stats().split_count - mark.split_count, 0);
  assert_int_equal(stats().driver_call_count, mark.driver_call_count);
  drop_these(x, b[2]);
  end();
}

static void piece_is_cut(size_t offset, size_t bytes, size_t left) {
  void *b[4], *x;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_all(b, 3);
  (void)plan_piece(2, at(b[0], offset), bytes);
  x = take_in(2, bytes);
  assert_ptr_equal(x, at(b[0], offset));
  assert_int_equal(stats().split_count - mark.split_count, 1);
  show();
  assert_int_equal(p.view.block_count, left);
  assert_aliases(x);
  drop(x);
  show();
  assert_int_equal(p.view.block_count, 1);
  assert_block(0, b[0], 3 * C);
  drop(b[3]);
  end();
}

static void piece_is_a_front(void **state) {
  (void)state;
  piece_is_cut(0, C + 512, 1);
}

static void piece_is_a_middle(void **state) {
  (void)state;
  piece_is_cut(1024, 2 * C, 2);
}

static void piece_is_an_end(void **state) {
  (void)state;
  piece_is_cut(3 * C - 512, 512, 1);
}

/* | a | b | C |  a is clean, b the stream's own:    plan: from the middle of a to that of b */
static void piece_of_two_tags(void **state) {
  void *b[3], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 3);
  drop_on(b[0], NONE);
  drop_on(b[1], LEGACY);
  show();
  assert_int_equal(p.view.block_count, 2);
  assert_block(0, b[0], C);
  assert_block(1, b[1], C);
  (void)plan_piece(1, at(b[0], C / 2), C);
  x = take_in(1, C);
  assert_ptr_equal(x, at(b[0], C / 2));
  assert_int_equal(piece_count(x), 1);
  show();
  assert_block(0, b[0], C / 2);
  assert_block(1, at(b[1], C / 2), C / 2);
  drop_these(x, b[2]);
  end();
}

/* Three tags: clean, the stream's, clean; all of it. */
static void piece_of_three_blocks(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_on(b[0], NONE);
  drop_on(b[1], LEGACY);
  drop_on(b[2], NONE);
  (void)plan_piece(2, b[0], 3 * C);
  x = take_in(2, 3 * C - 100);
  assert_ptr_equal(x, b[0]);
  assert_int_equal(stats().split_count - mark.split_count, 0);
  drop_these(x, b[3]);
  end();
}

static void piece_is_larger_than_the_request(void **state) {
  gmlake_allocation_info info;
  void *b[3], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 3);
  drop_these(b[0], b[1]);
  (void)plan_piece(2, b[0], 2 * C);
  x = take_in(2, 100);
  assert_ok(gmlake_get_allocation(lake, x, &info));
  assert_int_equal(info.bytes, 2 * C);
  assert_int_equal(info.requested_bytes, 100);
  assert_int_equal(stats().active_bytes - mark.active_bytes, 2 * C);
  assert_int_equal(stats().requested_bytes - mark.requested_bytes, 100);
  drop(x);
  assert_int_equal(stats().active_bytes, mark.active_bytes);
  assert_int_equal(stats().requested_bytes, mark.requested_bytes);
  drop(b[2]);
  end();
}

/* ---- Legal plans: windows -------------------------------------------------------------------- */

/* | a | B | c | D |                                 plan: c, a */
static void stitch_of_two_in_the_plans_order(void **state) {
  void *b[4], *w;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)plan_two(b[2], b[0]);
  w = take_in(3, 2 * C);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b[2], C);
  assert_piece(w, 1, b[0], C);
  assert_aliases(w);
  assert_int_equal(stats().stitch_count - mark.stitch_count, 1);
  drop(w);
  show();
  assert_int_equal(p.view.window_count, 1);
  drop_these(b[1], b[3]);
  end();
}

/* | A a | B | c | D | e E |                         plan: the end of a, c, the front of e */
static void stitch_of_three_with_partial_ends(void **state) {
  void *b[5], *first, *last, *w;
  answer *a;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 5);
  drop(b[0]);
  first = take(C / 2);
  assert_ptr_equal(first, b[0]);
  drop(b[4]);
  (void)plan_piece(2, at(b[4], C - 1024), 1024);
  last = take(1024);
  drop(b[2]);
  a = plan_piece(3, at(b[0], C - 1536), 1536);
  add(a, b[2], C);
  add(a, b[4], 512);
  w = take_in(3, C + 2000);
  assert_int_equal(piece_count(w), 3);
  assert_int_equal((uintptr_t)w % C, C - 1536);
  assert_aliases(w);
  memset(first, 1, C / 2);
  memset(last, 2, 1024);
  drop_these(w, first, last, b[1], b[3]);
  end();
}

/* | a | b | c | D |  b is clean                      plan: the third, the first, the second */
static void stitch_of_adjacent_pieces(void **state) {
  void *b[4], *w;
  answer *a;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_on(b[1], NONE);
  drop_these(b[0], b[2]);
  a = plan_two(b[2], b[0]);
  add(a, b[1], C);
  w = take_in(3, 3 * C);
  assert_int_equal(piece_count(w), 3);
  assert_aliases(w);
  drop(w);
  show();
  assert_int_equal(p.view.block_count, 1);
  assert_block(0, b[0], 3 * C);
  (void)plan_two(b[0], b[1]); /* in order, and still two */
  w = take_in(3, 2 * C);
  assert_int_equal(piece_count(w), 2);
  assert_aliases(w);
  drop_these(w, b[3]);
  end();
}

static void stitch_of_as_many_as_there_is_room_for(void **state) {
  void *b[17], *w;
  answer *a;
  size_t i;
  (void)state;
  begin(20, CHOOSE);
  lay(b, 17);
  for (i = 0; i < 16; i += 2) drop(b[i]);
  a = plan(3);
  for (i = 16; i; i -= 2) add(a, b[i - 2], C);
  w = take_in(3, 8 * C);
  assert_int_equal(piece_count(w), 8);
  assert_aliases(w);
  drop(w);
  for (i = 1; i < 17; i += 2) drop(b[i]);
  drop(b[16]);
  end();
}

/* A view of the size that there is room for takes no host memory. */
static void views_are_written_over(void **state) {
  void *b[7];
  (void)state;
  begin(8, CHOOSE);
  lay(b, 7);
  drop(b[1]);
  show();
  assert_int_equal(p.view.block_count, 1);
  assert_int_equal(lake->view_bytes, 4 * sizeof(gmlake_piece)); /* that block, and a plan of it */
  host_fail_in = 1;
  show();
  assert_int_equal(host_fail_in, 1);
  host_fail_in = 0;
  built_in();
  drop(b[0]);
  drop_all(b + 2, 5);
  end();
}

static void window_is_reused_by_its_number(void **state) {
  void *b[6], *w;
  uint64_t first, second;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 6);
  drop_these(b[0], b[2], b[4]);
  first = make_window(b[0], b[2]);
  second = make_window(b[4], b[0]);
  assert_int_equal(first, 1);
  assert_int_equal(second, 2);
  plan_reuse(first);
  w = take_in(1, 2 * C);
  assert_piece(w, 0, b[0], C);
  assert_piece(w, 1, b[2], C);
  assert_aliases(w);
  assert_int_equal(stats().stitch_reuse_count - mark.stitch_reuse_count, 1);
  assert_int_equal(stats().driver_call_count, mark.driver_call_count);
  drop(w);
  plan_reuse(second);
  p.answers[0].plan.state = 2; /* of the two states that take what is there, either */
  w = take_in(2, 2 * C - 1);
  assert_piece(w, 0, b[4], C);
  drop_these(w, b[1], b[3], b[5]);
  end();
}

static void window_is_larger_than_the_request(void **state) {
  gmlake_allocation_info info;
  void *b[4], *w;
  uint64_t number;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  number = make_window(b[0], b[2]);
  plan_reuse(number);
  w = take_in(1, 700);
  assert_ok(gmlake_get_allocation(lake, w, &info));
  assert_int_equal(info.bytes, 2 * C);
  assert_int_equal(info.requested_bytes, 700);
  assert_int_equal(stats().requested_bytes - mark.requested_bytes, 700);
  assert_int_equal(stats().active_bytes - mark.active_bytes, 2 * C);
  drop(w);
  plan_reuse(number); /* it is as large as it was */
  w = take_in(1, 2 * C);
  drop_these(w, b[1], b[3]);
  end();
}

/* A window whose piece is taken is no longer free, and is again. */
static void window_waits_for_its_pieces(void **state) {
  void *b[4], *x;
  uint64_t number;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  number = make_window(b[0], b[2]);
  (void)plan_piece(2, b[2], 512);
  x = take_in(2, 512);
  show();
  assert_int_equal(p.windows[0].is_free, 0);
  plan_reuse(number);
  assert_error(try_on(C, LEGACY), INVALID_ARGUMENT);
  drop(x);
  show();
  assert_int_equal(p.windows[0].is_free, 1);
  drop_these(b[1], b[3]);
  end();
}

/* ---- Legal plans: growth --------------------------------------------------------------------- */

static void growth_alone(void **state) {
  gmlake_allocation_info info;
  void *x;
  (void)state;
  begin(8, CHOOSE);
  (void)plan_growth(2 * C);
  x = take_in(4, C + 1);
  assert_ok(gmlake_get_allocation(lake, x, &info));
  assert_int_equal(info.bytes, 2 * C); /* all of it */
  assert_int_equal(stats().reserved_bytes, 2 * C);
  assert_int_equal(piece_count(x), 1);
  assert_aliases(x);
  drop(x);
  end();
}

/* | A | b | C |                                     plan: b, and two chunks that are created */
static void growth_behind_pieces(void **state) {
  void *b[3], *w;
  answer *a;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 3);
  drop(b[1]);
  a = plan_growth(2 * C);
  add(a, b[1], C);
  w = take_in(4, 3 * C);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, b[1], C);
  assert_piece(w, 1, at(b[2], C), 2 * C);
  assert_aliases(w);
  assert_int_equal(stats().stitch_count - mark.stitch_count, 1);
  drop_these(w, b[0], b[2]);
  end();
}

static void growth_behind_a_partial_piece(void **state) {
  void *b[3], *w;
  answer *a;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 3);
  drop(b[1]);
  a = plan_growth(C);
  add(a, at(b[1], C - 512), 512);
  w = take_in(4, 1000);
  assert_int_equal(piece_count(w), 2);
  assert_piece(w, 0, at(b[1], C - 512), 512);
  assert_piece(w, 1, at(b[2], C), C);
  assert_aliases(w);
  drop_these(w, b[0], b[2]);
  end();
}

/* | A | . | C | .   . | F |                         the lowest gap that holds it */
static void growth_into_gaps(void **state) {
  void *b[6], *one, *two, *three;
  (void)state;
  begin(12, CHOOSE);
  lay(b, 6);
  drop_these(b[1], b[3], b[4]);
  assert_int_equal(trim_to(0), 3 * C);
  (void)plan_growth(2 * C);
  two = take_in(4, 2 * C);
  assert_ptr_equal(two, b[3]);
  (void)plan_growth(C);
  one = take_in(4, C);
  assert_ptr_equal(one, b[1]);
  drop(two);
  assert_int_equal(trim_to(0), 2 * C);
  (void)plan_growth(3 * C);
  three = take_in(4, 3 * C);
  assert_ptr_equal(three, at(b[5], C));
  assert_aliases(three);
  drop_these(one, three, b[0], b[2], b[5]);
  end();
}

/* A quarantined slot is passed over. */
static void growth_around_quarantined_slots(void **state) {
  void *x, *y;
  (void)state;
  prepare_policy(8, CHOOSE);
  use_faults();
  open_lake();
  (void)plan_growth(C);
  x = take_in(4, C);
  (void)plan_growth(2 * C);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 2, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(2 * C, LEGACY), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  (void)plan_growth(2 * C);
  y = take_in(4, 2 * C);
  assert_ptr_equal(y, at(x, 2 * C));
  assert_aliases(y);
  drop_these(x, y);
  end();
}

/* ---- States 0 and 5 -------------------------------------------------------------------------- */

static void state_0_is_the_built_in_policy(void **state) {
  void *b[4], *w;
  answer *a;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  a = plan(0); /* nothing else counts */
  a->plan.window = 77;
  a->plan.piece_count = SIZE_MAX;
  a->plan.grow_bytes = 1;
  a->plan.keeps_former = 1;
  w = take_in(3, 2 * C);
  assert_piece(w, 0, b[0], C);
  assert_piece(w, 1, b[2], C);
  drop_these(w, b[1], b[3]);
  end();
}

static size_t shown_blocks[8], shown_windows[8], shown_reserved[8];
static uint64_t waited[8];

static void note_question(void) {
  size_t i = p.chosen - 1;
  if (i >= 8) abort();
  shown_blocks[i] = p.view.block_count;
  shown_windows[i] = p.view.window_count;
  shown_reserved[i] = p.view.reserved_bytes;
  waited[i] = census().host_wait_count;
}

/* Thrice: the host waits before the second time, windows and chunks go before the third. */
static void state_5_is_asked_about_thrice(void **state) {
  gmlake_stream held;
  gmlake_error_info info;
  void *b[6];
  (void)state;
  begin(8, CHOOSE);
  held = open_stream();
  lay(b, 6);
  drop_these(b[0], b[2]);
  (void)make_window(b[0], b[2]);
  gmlake_mock_stream_hold(mock, held);
  drop_on(b[4], held);
  (void)plan(5);
  p.hook = note_question;
  mark = stats();
  assert_error(try_on(C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(shown_blocks[0], 2);
  assert_int_equal(shown_windows[0], 1);
  assert_int_equal(shown_blocks[1], 3); /* what the other stream held back */
  assert_int_equal(shown_windows[1], 1);
  assert_int_equal(shown_reserved[1], 6 * C);
  assert_true(waited[1] > waited[0]);
  assert_int_equal(shown_blocks[2], 0);
  assert_int_equal(shown_windows[2], 0);
  assert_int_equal(shown_reserved[2], 3 * C);
  assert_state(5);
  assert_int_equal(stats().oom_count - mark.oom_count, 1);
  info = last_error();
  assert_int_equal(info.result, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  assert_string_equal(info.call, "gmlake_alloc");
  assert_int_equal(info.asked_bytes, C);
  assert_int_equal(info.live_bytes, 3 * C);
  assert_int_equal(info.reserved_bytes, 3 * C);
  assert_int_equal(info.driver_free_bytes, 5 * C);
  drop_these(b[1], b[3], b[5]);
  end();
}

static void state_5_then_a_plan(unsigned fives) {
  void *x;
  begin(4, CHOOSE);
  while (fives--) (void)then(5);
  then(4)->plan.grow_bytes = C;
  x = take_in(4, C);
  assert_int_equal(stats().oom_count, 0);
  drop(x);
  end();
}

static void state_5_then_served_after_waiting(void **state) {
  (void)state;
  state_5_then_a_plan(1);
}

static void state_5_then_served_after_returning_memory(void **state) {
  (void)state;
  state_5_then_a_plan(2);
}

static void state_5_then_the_built_in_policy(void **state) {
  void *x;
  (void)state;
  begin(4, CHOOSE);
  (void)then(5);
  (void)then(0);
  x = take_in(4, C);
  assert_int_equal(p.chosen, 0); /* since built_in */
  drop(x);
  end();
}

/* A limit is the answer where it stopped the last growth. */
static void growth_beyond_a_limit(void **state) {
  void *x;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.limit_bytes = 3 * C;
  open_lake();
  (void)plan_growth(2 * C);
  x = take_in(4, 2 * C);
  (void)plan_growth(2 * C);
  assert_error(try_on(C, LEGACY), LIMIT_REACHED);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(last_error().limit_bytes, 3 * C);
  assert_int_equal(stats().reserved_bytes, 2 * C);
  (void)plan_growth(C);
  drop(take_in(4, C));
  drop(x);
  end();
}

static void growth_beyond_the_device(void **state) {
  void *x;
  (void)state;
  begin(4, CHOOSE);
  (void)plan_growth(3 * C);
  x = take_in(4, 3 * C);
  (void)plan_growth(2 * C);
  assert_error(try_on(C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(stats().reserved_bytes, 3 * C);
  assert_int_equal(census().handle_count, 3);
  drop(x);
  end();
}

static void growth_beyond_the_addresses(void **state) {
  void *x;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.arena_bytes = 8 * C;
  open_lake();
  (void)plan_growth(5 * C);
  x = take_in(4, 5 * C);
  (void)plan_growth(4 * C);
  assert_error(try_on(C, LEGACY), OUT_OF_DEVICE_MEMORY);
  drop(x);
  end();
}

/* A driver's error is no want of memory: asked once. */
static void growth_that_the_driver_refuses(void **state) {
  (void)state;
  prepare_policy(8, CHOOSE);
  use_faults();
  open_lake();
  (void)plan_growth(2 * C);
  fail_call(ON_MAP, 2, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(C, LEGACY), DRIVER);
  assert_int_equal(p.chosen, 1);
  assert_int_equal(stats().reserved_bytes, 0);
  end();
}

/* A wait that fails is told where no plan serves: the policy is asked all the same. */
static void state_5_and_a_wait_that_fails(void **state) {
  static const gmlake_result failures[] = {GMLAKE_ERROR_DRIVER, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY};
  size_t i;
  (void)state;
  for (i = 0; i < 2; i++) {
    gmlake_stream held;
    gmlake_error_info info;
    void *x;
    prepare_policy(8, CHOOSE);
    use_faults();
    open_lake();
    held = open_stream();
    x = take_on(C, held);
    drop(take(C));
    gmlake_mock_stream_hold(mock, held);
    drop_on(x, held);
    (void)plan(5);
    fail_call(ON_HOST_WAIT, 1, failures[i], 1);
    assert_int_equal(try_on(C, LEGACY), failures[i]);
    assert_int_equal(p.chosen, 3);
    info = last_error();
    assert_int_equal(info.result, failures[i]);
    assert_int_equal(info.asked_bytes, i ? C : 0); /* a report, or the driver's error */
    assert_int_equal(info.driver_code, i ? 0 : 1234);
    fail_call(ON_HOST_WAIT, 0, GMLAKE_OK, 0);
    end();
  }
}

/* Memory of a stream that works on, and of the default one: the host waits for the former before
   the second question, and both go back before the third. */
static void open_two_failures(void) {
  gmlake_stream held;
  void *x, *y;
  prepare_policy(8, CHOOSE);
  use_faults();
  open_lake();
  held = open_stream();
  x = take_on(C, held);
  y = take(C);
  gmlake_mock_stream_hold(mock, held);
  drop_on(x, held);
  drop(y);
  (void)plan(5);
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DRIVER, 0);
}

static void state_5_and_the_first_of_two_failures(void **state) {
  gmlake_error_info info;
  (void)state;
  open_two_failures();
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(C, LEGACY), DRIVER);
  assert_int_equal(p.chosen, 3);
  assert_true(!faults[ON_HOST_WAIT].in && !faults[ON_RELEASE].in);
  info = last_error();
  assert_int_equal(info.result, GMLAKE_ERROR_DRIVER);
  assert_string_equal(info.call, "event_wait");
  assert_int_equal(info.driver_code, 1234);
  end();
}

/* A device that is lost is told, whatever failed before. */
static void state_5_and_a_failure_before_the_device_is_lost(void **state) {
  void *ptr = &ptr;
  gmlake_error_info info;
  (void)state;
  open_two_failures();
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(gmlake_alloc(lake, C, LEGACY, &ptr), DEVICE_LOST);
  assert_null(ptr);
  assert_int_equal(p.chosen, 2);
  info = last_error();
  assert_int_equal(info.result, GMLAKE_ERROR_DEVICE_LOST);
  assert_string_equal(info.call, "release");
  built_in();
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
  (void)alarm(0);
}

/* | a | B | c | D | e | F |  addresses for one window of two chunks */
static void lay_for_one_window(void **b) {
  prepare_policy(8, CHOOSE);
  desc.window_bytes = 2 * C;
  open_lake();
  lay(b, 6);
  drop_these(b[0], b[2], b[4]);
}

/* Idle windows have all addresses: the plan's window cannot be made twice, then they are dropped,
   and the built-in policy makes it. */
static void state_0_where_addresses_lacked(void **state) {
  gmlake_alloc_desc wanted = request(2 * C, GMLAKE_NO_GROW, NULL);
  gmlake_stats before;
  void *b[6], *w;
  size_t i;
  (void)state;
  lay_for_one_window(b);
  (void)make_window(b[0], b[2]);
  p.chosen = 0;
  for (i = 0; i < 2; i++) {
    answer *a = then(3);
    add(a, b[2], C);
    add(a, b[4], C);
  }
  (void)then(0);
  before = stats();
  w = take_with(&wanted, LEGACY);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(piece_count(w), 2);
  assert_int_equal(stats().state_count[2] - before.state_count[2], 1);
  assert_int_equal(stats().stitch_evict_count - before.stitch_evict_count, 1);
  assert_int_equal(stats().reserved_bytes, before.reserved_bytes);
  built_in();
  drop(w);
  for (i = 1; i < 6; i += 2) drop(b[i]);
  end();
}

/* No addresses are left for the window: asked again, behind growth that stays. */
static void stitch_beyond_the_addresses(void **state) {
  void *b[6], *w;
  answer *a;
  (void)state;
  lay_for_one_window(b);
  (void)plan_two(b[0], b[2]);
  w = take_in(3, 2 * C);
  a = plan_growth(C);
  add(a, b[4], C);
  (void)then(0);
  p.hook = note_question;
  b[0] = take(512);
  assert_int_equal(p.chosen, 2);
  assert_int_equal(shown_blocks[1], 2);
  p.hook = NULL;
  built_in();
  drop_these(b[0], w, b[1], b[3], b[5]);
  end();
}

/* ---- keeps_former ---------------------------------------------------------------------------- */

/* | a   a | B |                    plan: the front of a; w = front and rest, idle
   | A | a | B | */
static void *take_and_keep(void **b, size_t bytes) {
  plan_piece(2, b[0], bytes)->plan.keeps_former = 1;
  return take_in(2, bytes);
}

static void former_is_kept_and_reused(void **state) {
  void *b[4], *x, *w;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_all(b, 3);
  x = take_and_keep(b, C);
  assert_ptr_equal(x, b[0]);
  assert_int_equal(stats().stitch_count - mark.stitch_count, 1);
  assert_int_equal(stats().stitched_bytes, 3 * C);
  show();
  assert_int_equal(p.view.window_count, 1);
  assert_int_equal(p.windows[0].bytes, 3 * C);
  assert_int_equal(p.windows[0].mapped_bytes, 3 * C);
  assert_int_equal(p.windows[0].piece_count, 2);
  assert_int_equal(p.windows[0].is_free, 0);
  assert_int_equal(p.windows[0].is_complete, 1);
  memset(x, 5, C);
  drop(x);
  show();
  assert_int_equal(p.windows[0].is_free, 1);
  plan_reuse(p.windows[0].number);
  w = take_in(1, 3 * C);
  assert_ptr_not_equal(w, b[0]);
  assert_int_equal(*(unsigned char *)w, 5);
  assert_piece(w, 0, b[0], C);
  assert_piece(w, 1, b[1], 2 * C);
  assert_aliases(w);
  drop_these(w, b[3]);
  end();
}

/* Also where the block begins and ends inside chunks. */
static void former_of_a_block_with_partial_ends(void **state) {
  void *b[4], *small, *x, *w;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_all(b, 4);
  (void)plan_piece(2, b[0], 1024);
  small = take_in(2, 1024);
  (void)plan_piece(2, at(b[3], 512), C - 512);
  b[3] = take_in(2, C - 512);
  plan_piece(2, at(b[0], 1024), 2 * C - 1024)->plan.keeps_former = 1;
  x = take_in(2, C);
  assert_int_equal(stats().stitched_bytes, 4 * C);
  drop(x);
  show();
  assert_int_equal(p.windows[0].bytes, 3 * C - 1024 + 512);
  plan_reuse(p.windows[0].number);
  w = take_in(1, C);
  assert_int_equal((uintptr_t)w % C, 1024);
  assert_aliases(w);
  drop_these(w, small, b[3]);
  end();
}

static void former_is_a_mere_cache(int kind, long in) {
  void *b[4], *x;
  prepare_policy(4, CHOOSE);
  use_faults();
  open_lake();
  lay(b, 4);
  drop_all(b, 3);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  fail_call(kind, in, GMLAKE_ERROR_DRIVER, 0);
  x = take_in(2, C);
  assert_int_equal(stats().window_count, 0);
  assert_int_equal(stats().stitch_count, 0);
  assert_int_equal(stats().quarantined_bytes, 0);
  assert_int_equal(census().mapping_count, 4);
  drop_these(x, b[3]);
  end();
}

static void former_that_cannot_be_mapped(void **state) {
  (void)state;
  former_is_a_mere_cache(ON_MAP, 2);
}

static void former_without_access(void **state) {
  (void)state;
  former_is_a_mere_cache(ON_ACCESS, 1);
}

static void former_without_host_memory(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop_all(b, 3);
  show();
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  host_fail_in = host_fails_on = 1;
  x = take_in(2, C);
  host_fail_in = 0;
  assert_int_equal(stats().window_count, 0);
  drop_these(x, b[3]);
  end();
}

static void former_that_cannot_be_undone(void **state) {
  void *b[4], *x;
  (void)state;
  prepare_policy(4, CHOOSE);
  use_faults();
  open_lake();
  lay(b, 4);
  drop_all(b, 3);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  x = take_in(2, C);
  assert_int_equal(stats().window_count, 0);
  assert_int_equal(stats().quarantined_bytes, 3 * C);
  memset(x, 1, C);
  drop(x);
  assert_int_equal(trim_to(0), 0); /* their memory would live on under the window */
  drop(b[3]);
  assert_int_equal(trim_to(0), C);
  end();
}

/* The device is lost after the block was taken: it is the caller's, and the next call says it. */
static void former_that_loses_the_device(void **state) {
  void *b[4], *x = NULL;
  (void)state;
  prepare_policy(4, CHOOSE);
  use_faults();
  open_lake();
  lay(b, 4);
  drop_all(b, 3);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  fail_call(ON_MAP, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_ok(gmlake_alloc(lake, C, LEGACY, &x));
  assert_ptr_equal(x, b[0]);
  assert_ok(gmlake_check(lake));
  assert_error(gmlake_free(lake, x, LEGACY), DEVICE_LOST);
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
}

/* Trim takes the rest while the front is live, and the window with it. */
static void former_is_trimmed_while_the_front_is_live(void **state) {
  void *b[4], *x;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 4);
  drop_all(b, 3);
  x = take_and_keep(b, C);
  memset(x, 9, C);
  assert_int_equal(trim_to(0), 2 * C);
  assert_int_equal(stats().window_count, 0);
  assert_int_equal(*(unsigned char *)x, 9);
  drop_these(x, b[3]);
  end();
}

/* So is it dropped, for another former. */
static void former_is_evicted_while_the_front_is_live(void **state) {
  void *b[6], *x, *y;
  (void)state;
  begin(8, CHOOSE | EVICT);
  lay(b, 6);
  drop_all(b, 5);
  x = take_and_keep(b, C);
  assert_int_equal(p.evicted, 1);
  assert_int_equal(p.mapped_bytes, 5 * C);
  p.victim_count = p.victims_are_oldest = 1;
  y = take_and_keep(b + 1, 2 * C);
  assert_int_equal(p.mapped_bytes, 4 * C);
  assert_int_equal(stats().stitch_evict_count - mark.stitch_evict_count, 1);
  assert_int_equal(stats().window_count, 1);
  assert_aliases(x);
  drop_these(x, y, b[5]);
  end();
}

/* The built-in StitchFree stands where the policy has none: formers count, too. */
static void former_is_counted_by_stitch_free(void **state) {
  void *b[8], *x[3];
  size_t i;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.stitched_bytes_max = 8 * C;
  open_lake();
  lay(b, 8);
  drop_all(b, 7);
  for (i = 0; i < 3; i++) {
    plan_piece(2, b[i], C)->plan.keeps_former = 1;
    x[i] = take_in(2, C);
    assert_true(stats().stitched_bytes <= 8 * C);
  }
  assert_int_equal(stats().stitch_count, 3);
  drop_all(x, 3);
  drop(b[7]);
  end();
}

static void former_without_addresses(void **state) {
  void *b[4], *x;
  (void)state;
  prepare_policy(4, CHOOSE);
  desc.window_bytes = 2 * C;
  open_lake();
  lay(b, 4);
  drop_all(b, 3);
  x = take_and_keep(b, C);
  assert_int_equal(stats().window_count, 0);
  drop_these(x, b[3]);
  end();
}

/* ---- Options of requests and lakes ----------------------------------------------------------- */

static void request_is_shown(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_stream s;
  uint64_t number;
  void *ptr;
  (void)state;
  begin(4, CHOOSE);
  s = open_stream();
  wanted = request(C + 1, GMLAKE_NO_STITCH | GMLAKE_NO_GROW, NULL);
  assert_error(try_with(&wanted, s), OUT_OF_DEVICE_MEMORY);
  number = p.request.number;
  assert_int_equal(number, 1);
  assert_int_equal(p.request.bytes, C + 1);
  assert_int_equal(p.request.alignment, 512);
  assert_int_equal(p.request.flags, wanted.flags);
  assert_ptr_equal(p.request.stream, s);
  assert_null(p.request.pool);
  wanted = request(1, GMLAKE_EXCLUSIVE, open_pool(0));
  ptr = take_with(&wanted, NONE);
  assert_int_equal(p.request.number, number + 1);
  assert_int_equal(p.request.alignment, C);
  assert_ptr_equal(p.request.stream, NONE);
  assert_ptr_equal(p.request.pool, wanted.pool);
  drop(ptr);
  wanted = request(100, 0, NULL);
  wanted.alignment = 4096;
  ptr = take_with(&wanted, LEGACY);
  assert_int_equal(p.request.alignment, 4096);
  drop(ptr);
  end();
}

/* What no policy could serve, and what needs no memory. */
static void requests_that_are_not_shown(void **state) {
  void *ptr = &ptr;
  gmlake_alloc_desc wanted;
  (void)state;
  begin(4, CHOOSE);
  step(gmlake_alloc(lake, 0, LEGACY, &ptr));
  assert_null(ptr);
  assert_error(try_on(SIZE_MAX, LEGACY), OUT_OF_DEVICE_MEMORY);
  wanted = request(C, 0x40, NULL);
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  assert_int_equal(p.chosen, 0);
  end();
}

static void buffers_are_not_asked_about(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  begin(4, ALL);
  buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 3 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  step_error(gmlake_buffer_resize(lake, buffer, 5 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  assert_int_equal(p.chosen + p.evicted + p.freed, 0);
  end();
}

static void alignment_is_kept(void **state) {
  gmlake_alloc_desc wanted;
  void *b[3], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 3);
  drop_these(b[0], b[1]);
  wanted = request(512, 0, NULL);
  wanted.alignment = 8192;
  (void)plan_piece(2, at(b[0], 8192), 512);
  x = take_with(&wanted, LEGACY);
  assert_ptr_equal(x, at(b[0], 8192));
  drop(x);
  (void)plan_two(b[1], b[0]);
  wanted.bytes = 2 * C;
  wanted.alignment = C;
  x = take_with(&wanted, LEGACY);
  assert_int_equal((uintptr_t)x % C, 0);
  assert_aliases(x);
  drop_these(x, b[2]);
  end();
}

static void exclusive_gets_whole_chunks(void **state) {
  gmlake_alloc_desc wanted = request(100, GMLAKE_EXCLUSIVE, NULL);
  gmlake_allocation_info info;
  void *b[3], *x, *y;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 3);
  drop_these(b[0], b[1]);
  (void)plan_piece(2, b[1], C);
  x = take_with(&wanted, LEGACY);
  assert_ok(gmlake_get_allocation(lake, x, &info));
  assert_int_equal(info.bytes, C);
  assert_int_equal(info.flags, GMLAKE_EXCLUSIVE);
  (void)plan_growth(C);
  add(&p.answers[0], b[0], C);
  y = take_with(&wanted, LEGACY);
  assert_aliases(y);
  drop_these(x, y, b[2]);
  end();
}

static void no_stitch_gets_one_piece(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_NO_STITCH, NULL);
  void *b[4], *x;
  (void)state;
  begin(5, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)make_window(b[0], b[2]);
  (void)show();
  assert_int_equal(p.windows[0].is_free, 1);
  (void)plan(3);
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  assert_int_equal(p.windows[0].is_free, 0); /* not for this one */
  (void)plan_piece(1, b[2], C);
  x = take_with(&wanted, LEGACY);
  assert_ptr_equal(x, b[2]);
  drop(x);
  (void)plan_growth(C);
  drop(take_with(&wanted, LEGACY));
  drop_these(b[1], b[3]);
  end();
}

static void no_grow_gets_what_is_there(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_NO_GROW, NULL);
  void *b[4], *x;
  (void)state;
  begin(5, CHOOSE);
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)plan_two(b[0], b[2]);
  x = take_with(&wanted, LEGACY);
  assert_int_equal(piece_count(x), 2);
  drop_these(x, b[1], b[3]);
  end();
}

/* What may not be created anew is not returned for it, either. */
static void no_grow_returns_nothing(void **state) {
  gmlake_alloc_desc wanted = request(4 * C, GMLAKE_NO_GROW, NULL);
  (void)state;
  begin(5, CHOOSE);
  drop(take(3 * C));
  (void)plan(5);
  assert_error(try_with(&wanted, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(stats().reserved_bytes, 3 * C);
  end();
}

static void small_requests_are_not_stitched(void **state) {
  void *b[4], *w;
  (void)state;
  prepare_policy(5, CHOOSE);
  desc.stitch_bytes_min = 2 * C;
  open_lake();
  lay(b, 4);
  drop_these(b[0], b[2]);
  show();
  assert_int_equal(p.view.stitch_bytes_min, 2 * C);
  (void)plan_two(b[0], b[2]);
  assert_error(try_on(2 * C - 1, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the request may not be stitched");
  (void)plan_two(b[0], b[2]);
  w = take_in(3, 2 * C);
  drop_these(w, b[1], b[3]);
  end();
}

/* A pool is its own arena: blocks, windows and their numbers. */
static void pools_are_shown_apart(void **state) {
  gmlake_pool *pool;
  gmlake_alloc_desc wanted;
  void *x, *y;
  (void)state;
  begin(12, CHOOSE);
  pool = open_pool(4 * C);
  x = take(3 * C);
  drop(x);
  wanted = request(C, 0, pool);
  (void)plan_growth(3 * C);
  y = take_with(&wanted, LEGACY);
  assert_int_equal(p.view.block_count, 0);
  drop(y);
  (void)plan_two(at(y, 2 * C), y);
  wanted.bytes = 2 * C;
  y = take_with(&wanted, LEGACY);
  assert_int_equal(p.view.block_count, 1);
  assert_aliases(y);
  drop(y);
  assert_int_equal(p.view.window_count, 0);
  plan_reuse(1);
  drop(take_with(&wanted, LEGACY));
  assert_int_equal(p.view.window_count, 1);
  show();
  assert_int_equal(p.view.window_count, 0);
  assert_block(0, x, 3 * C);
  (void)plan_growth(5 * C);
  wanted.bytes = 1;
  assert_error(try_with(&wanted, LEGACY), LIMIT_REACHED);
  assert_int_equal(last_error().limit_bytes, 4 * C);
  built_in();
  step(gmlake_pool_destroy(lake, pool));
  end();
}

/* In a capture: from its pool, what the capture has freed. */
static void captures_are_served(void **state) {
  gmlake_pool *pool;
  gmlake_stream s;
  void *x, *w;
  (void)state;
  begin(12, CHOOSE);
  s = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, s, pool));
  assert_ok(gmlake_mock_capture_begin(mock, s));
  (void)plan_growth(3 * C);
  x = take_on(3 * C, s);
  assert_ptr_equal(p.request.pool, pool);
  assert_ptr_equal(p.request.stream, s);
  drop_on(x, s);
  (void)plan_two(at(x, 2 * C), x);
  w = take_on(2 * C, s);
  assert_int_equal(p.view.block_count, 1);
  assert_aliases(w);
  drop_on(w, s);
  plan(5);
  assert_error(try_on(C, s), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(p.chosen, 3);
  assert_int_equal(p.view.block_count, 1); /* a graph knows it */
  assert_int_equal(p.view.window_count, 1);
  assert_int_equal(p.windows[0].is_complete, 0);
  assert_ok(gmlake_mock_capture_end(mock, s));
  step(gmlake_capture_end(lake, s));
  (void)plan(3);
  {
    gmlake_alloc_desc wanted = request(C, 0, pool);
    assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  }
  assert_int_equal(p.view.block_count, 0); /* pinned */
  built_in();
  step(gmlake_pool_destroy(lake, pool));
  end();
}

static void other_streams_memory_is_not_shown(void **state) {
  gmlake_stream s;
  void *b[3];
  (void)state;
  begin(4, CHOOSE);
  s = open_stream();
  lay(b, 3);
  gmlake_mock_stream_hold(mock, s);
  drop_on(b[0], s);
  drop(b[1]);
  show();
  assert_int_equal(p.view.block_count, 1);
  assert_block(0, b[1], C);
  show_on(s);
  assert_block(0, b[0], C);
  show_on(NONE); /* the other one's event has been seen complete since */
  assert_int_equal(p.view.block_count, 1);
  assert_block(0, b[1], C);
  (void)plan_piece(1, b[0], C);
  assert_error(try_on(C, LEGACY), INVALID_ARGUMENT);
  gmlake_mock_stream_finish(mock, s);
  (void)plan_piece(1, b[0], C); /* seen complete before it is asked */
  drop(take_in(1, C));
  drop(b[2]);
  end();
}

static void pending_frees_are_not_shown(void **state) {
  gmlake_stream s;
  void *b[2];
  (void)state;
  begin(4, CHOOSE);
  s = open_stream();
  lay(b, 2);
  gmlake_mock_stream_hold(mock, s);
  step(gmlake_record_stream(lake, b[0], s));
  drop(b[0]);
  show();
  assert_int_equal(p.view.block_count, 0);
  (void)plan_piece(1, b[0], C);
  assert_error(try_on(C, LEGACY), INVALID_ARGUMENT);
  gmlake_mock_stream_finish(mock, s);
  show();
  assert_block(0, b[0], C);
  drop(b[1]);
  end();
}

static void guards_lie_behind_windows(void **state) {
  void *b[4], *w, *x;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.flags = GMLAKE_GUARD;
  open_lake();
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)plan_two(b[0], b[2]);
  w = take_in(3, 2 * C);
  assert_aliases(w);
  assert_int_equal(lake->home.window_space.head.next->grains, 3);
  drop_these(w, b[1]);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  x = take_in(2, C);
  drop_these(x, b[3]);
  end();
}

static void fills_reach_all_of_a_block(void **state) {
  void *b[4], *x;
  unsigned char *bytes;
  size_t i;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.flags = GMLAKE_FILL;
  open_lake();
  lay(b, 4);
  memset(b[1], 1, C);
  drop_all(b, 3);
  (void)plan_two(b[2], b[0]);
  bytes = (unsigned char *)(x = take_in(3, 100));
  for (i = 0; i < 2 * C; i += 100) assert_int_equal(bytes[i], GMLAKE_FILL_NEW);
  memset(x, 7, 2 * C);
  drop(x);
  for (i = 0; i < 3 * C; i += 100) assert_int_equal(((unsigned char *)b[0])[i], GMLAKE_FILL_FREE);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  x = take_in(2, C);
  assert_int_equal(((unsigned char *)b[1])[0], GMLAKE_FILL_FREE);
  drop_these(x, b[3]);
  end();
}

static int tell_handler(void *user, gmlake *l, const gmlake_error_info *info) {
  (void)user;
  assert_ptr_equal(l, lake);
  assert_int_equal(info->asked_bytes, C);
  p.hook = NULL;
  (void)plan_growth(C); /* from here on */
  return 1;
}

/* Each attempt behind the handler is one of its own. */
static void handler_is_asked_behind_the_policy(void **state) {
  void *x;
  (void)state;
  prepare_policy(4, CHOOSE);
  desc.oom.fn = tell_handler;
  open_lake();
  (void)plan(5);
  x = take_on(C, LEGACY);
  assert_int_equal(p.request.number, 2);
  assert_int_equal(p.chosen, 1);
  drop(x);
  end();
}

/* ---- The view -------------------------------------------------------------------------------- */

/* | A a | B | c   d | E | f F |  c is clean and d the stream's */
static void view_has_the_blocks_by_address(void **state) {
  void *b[6], *x, *y;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 6);
  drop_on(b[5], NONE);
  (void)plan_piece(2, at(b[5], 1024), C - 1024);
  y = take_in(2, C - 1024);
  gmlake_mock_stream_hold(mock, LEGACY);
  drop_on(b[3], LEGACY);
  drop_on(b[2], NONE);
  drop_on(b[0], NONE);
  (void)plan_piece(2, b[0], 512);
  x = take_in(2, 512);
  show();
  assert_int_equal(p.view.block_count, 4);
  assert_block(0, at(b[0], 512), C - 512);
  assert_block(1, b[2], C);
  assert_block(2, b[3], C);
  assert_block(3, b[5], 1024);
  assert_int_equal(p.view.chunk_bytes, C);
  assert_int_equal(p.view.stitch_bytes_min, 0);
  assert_int_equal(p.view.stitched_bytes_max, 32 * C);
  assert_int_equal(p.view.reserved_bytes, 6 * C);
  assert_int_equal(p.view.stitched_bytes, 0);
  show_on(NONE);
  assert_int_equal(p.view.block_count, 3);
  assert_block(1, b[2], C);
  gmlake_mock_stream_finish(mock, LEGACY);
  drop_these(x, y, b[1], b[4]);
  end();
}

static void assert_window(size_t number, uint64_t named, int is_free, int is_complete) {
  assert_true(number < p.view.window_count);
  assert_int_equal(p.windows[number].number, named);
  assert_int_equal(p.windows[number].is_free, is_free);
  assert_int_equal(p.windows[number].is_complete, is_complete);
}

/* The window that was used longest ago comes first; live ones are not shown. */
static void view_has_the_windows_by_last_use(void **state) {
  gmlake_stream s;
  void *b[8], *w, *x;
  (void)state;
  begin(12, CHOOSE);
  s = open_stream();
  drop_on(take_on(512, s), s);
  lay(b, 8);
  drop_these(b[0], b[2], b[4]);
  (void)make_window(b[0], b[2]);
  (void)make_window(b[2], b[4]);
  (void)make_window(b[4], b[0]);
  show();
  assert_int_equal(p.view.window_count, 3);
  assert_window(0, 1, 1, 1);
  assert_window(1, 2, 1, 1);
  assert_window(2, 3, 1, 1);
  assert_int_equal(p.windows[0].bytes, 2 * C);
  assert_int_equal(p.windows[0].mapped_bytes, 2 * C);
  assert_int_equal(p.windows[0].piece_count, 2);
  plan_reuse(1);
  w = take_in(1, 2 * C);
  show();
  assert_int_equal(p.view.window_count, 2);
  assert_window(0, 2, 0, 1);
  assert_window(1, 3, 0, 1);
  gmlake_mock_stream_hold(mock, s);
  drop_on(w, s);
  show();
  assert_window(0, 2, 0, 1);
  assert_window(1, 3, 0, 1);
  assert_window(2, 1, 0, 0); /* its last use is under way */
  show_on(s);
  assert_window(2, 1, 1, 0);
  gmlake_mock_stream_finish(mock, s);
  (void)plan_piece(2, b[2], 512);
  x = take_in(2, 512);
  show();
  assert_window(0, 2, 0, 1);
  assert_window(1, 3, 1, 1);
  assert_window(2, 1, 0, 1);
  assert_int_equal(p.view.stitched_bytes, 6 * C);
  drop_these(x, b[1], b[3], b[5], b[6], b[7]);
  end();
}

/* | a:b | C | d |  a window of b and d, which begins inside a chunk: not for EXCLUSIVE */
static void windows_that_do_not_suit_are_refused(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_EXCLUSIVE, NULL);
  void *b[3], *half;
  answer *a;
  (void)state;
  begin(8, CHOOSE);
  lay(b, 3);
  drop_these(b[0], b[2]);
  (void)plan_piece(2, b[0], C / 2);
  half = take_in(2, C / 2);
  a = plan_piece(3, at(b[0], C / 2), C / 2);
  add(a, b[2], C);
  drop(take_in(3, C + C / 2));
  plan_reuse(lake->home.windows.number);
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the window is not free for the request");
  built_in();
  drop_these(half, b[1]);
  end();
}

/* Devices of terabytes, with no memory behind them: a plan of more than half of what an arena can
   number, which is not much too large for the request. */
static void pieces_of_a_terabyte_are_too_large(void **state) {
  const size_t gib = (size_t)1 << 30;
  gmlake_mock_desc mock_desc;
  void *ptr;
  (void)state;
  prepare_policy(4, CHOOSE);
  close_mock();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.capacity_bytes = 1500 * gib;
  mock_desc.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = gib;
  open_lake();
  (void)plan_growth(1025 * gib);
  ptr = &ptr;
  assert_error(gmlake_alloc(lake, 1023 * gib, LEGACY, &ptr), INVALID_ARGUMENT);
  assert_null(ptr);
  assert_string_equal(last_error().text, "the pieces are too large");
  assert_int_equal(stats().reserved_bytes, 0);
  step(gmlake_alloc(lake, 1025 * gib, LEGACY, &ptr)); /* about which no policy is asked */
  assert_int_equal(stats().reserved_bytes, 1025 * gib);
  drop(ptr);
  end();
}

/* A lake that cannot stitch keeps no former: it has no addresses for it. */
static void formers_need_addresses(void **state) {
  void *b[2], *x;
  (void)state;
  prepare_policy(4, CHOOSE);
  use_faults();
  assert_ok(gmlake_create(&desc, &lake));
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  lay(b, 2);
  drop_these(b[0], b[1]);
  plan_piece(2, b[0], C)->plan.keeps_former = 1;
  x = take_in(2, C);
  assert_ptr_equal(x, b[0]);
  assert_int_equal(stats().window_count, 0);
  drop(x);
  end();
}

/* Before evict is asked the lake learns what is complete; that may be that the device is lost. */
static void a_device_lost_before_evict_is_asked(void **state) {
  void *b[3], *small, *ptr;
  (void)state;
  prepare_policy(8, CHOOSE | EVICT);
  use_faults();
  open_lake();
  lay(b, 3);
  small = take(512);
  drop_these(b[0], b[2]);
  (void)make_window(b[0], b[2]);
  drop(small);
  p.evicted = 0;
  (void)plan_two(b[2], b[0]);
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  ptr = &ptr;
  assert_error(gmlake_alloc(lake, 2 * C, LEGACY, &ptr), DEVICE_LOST);
  assert_null(ptr);
  assert_int_equal(p.evicted, 0);
  built_in();
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
  (void)alarm(0);
}

/* ---- Wrong plans ----------------------------------------------------------------------------- */

static struct world {
  void *b[15], *half, *window, *foreign;
  gmlake_stream held;
  gmlake_pool *pool;
  char on_stack;
} w;

enum { REUSABLE = 1, BLOCKED, IN_USE, PENDING, FOREIGN_WINDOW }; /* the windows by number */

static void open_foreign(void) {
  gmlake_alloc_desc wanted = request(5 * C, 0, w.pool);
  size_t i;
  (void)plan_growth(5 * C);
  w.foreign = take_with(&wanted, NONE);
  drop_on(w.foreign, NONE);
  wanted.bytes = 2 * C;
  for (i = 1; i <= FOREIGN_WINDOW; i++) {
    (void)plan_two(w.foreign, at(w.foreign, (1 + i % 4) * C));
    drop_on(take_with(&wanted, NONE), NONE);
  }
}

/*     0    1   2   3   4   5   6   7   8   9  10  11  12  13  14
     | a:H | B | c   c   c | P | d | E | d | . | F | G | I | P | J |
   d is another stream's, whose work is pending, and so is the window of both. Window 1 is of 2 and
   4, 2 of 11 and 13, which are taken, 3 of 13 and 5, live. Slot 9 has no memory. */
static void open_world(void) {
  void *ptr;
  memset(&w, 0, sizeof(w));
  begin(40, CHOOSE | EVICT);
  w.held = open_stream();
  w.pool = open_pool(0);
  lay(w.b, 15);
  drop(w.b[9]);
  assert_int_equal(trim_to(0), C);
  drop(w.b[2]);
  drop(w.b[3]);
  drop(w.b[4]);
  assert_int_equal(make_window(w.b[2], w.b[4]), REUSABLE);
  drop(w.b[11]);
  drop(w.b[13]);
  assert_int_equal(make_window(w.b[11], w.b[13]), BLOCKED);
  drop(w.b[5]);
  (void)plan_two(w.b[13], w.b[5]);
  w.window = take_in(3, 2 * C);
  (void)plan_piece(1, w.b[11], C);
  w.b[11] = take_in(1, C);
  drop(w.b[6]);
  drop(w.b[8]);
  (void)plan_two(w.b[6], w.b[8]);
  ptr = take_in(3, 2 * C);
  gmlake_mock_stream_hold(mock, w.held);
  drop_on(ptr, w.held);
  drop(w.b[0]);
  (void)plan_piece(2, at(w.b[0], C / 2), C / 2);
  w.half = take_in(2, C / 2);
  open_foreign();
  built_in();
}

static void close_world(void) {
  static const int live[] = {1, 7, 10, 11, 12, 14};
  size_t i;
  built_in();
  drop(w.window);
  drop(w.half);
  for (i = 0; i < sizeof(live) / sizeof(live[0]); i++) drop(w.b[live[i]]);
  end();
}

enum { POOLS_OWN = 15, MAPPED, ON_STACK, BEHIND, NOWHERE }; /* beside the chunks */

typedef struct wrong {
  const char *what, *text;
  unsigned state;
  struct {
    size_t bytes; /* 0: no such piece */
    int where;
    size_t offset;
  } pieces[3];
  uint64_t window;
  size_t grow_bytes, count; /* count: instead of that of the pieces */
  int keeps_former, is_elsewhere;
  unsigned flags;
  size_t bytes, alignment; /* 0: a chunk */
} wrong;

#define ROOM "piece_count is more than piece_capacity, or pieces points elsewhere"
#define STATE "state is not the one of what the plan does"
#define GRAINS "a piece's home or bytes is no multiple of 512, or bytes is 0"
#define OUTSIDE "a piece lies outside the arena"
#define NOT_FREE "a piece is not free for the request"
#define BEGINS "a piece begins inside a chunk"
#define ENDS "a piece ends inside a chunk"
#define SHARED "two pieces of a window share a chunk"
#define UNSTITCHED "the request may not be stitched"
#define CHUNKS "grow_bytes is no multiple of chunk_bytes, or more than the arena's address space"
#define SMALL "the pieces are too small"
#define FORMER "keeps_former is set, but the plan is not a part of one block"
#define NO_WINDOW "no idle window has this number"
#define BOTH "the plan reuses a window, and has pieces, grow_bytes or keeps_former too"
#define TAKEN "the window is not free for the request"
#define G 512

/* what, text, state, pieces, window, grow, count, keeps, elsewhere, flags, bytes, alignment */
static const wrong wrongs[] = {
    {"pieces elsewhere", ROOM, 1, {{C, 2, 0}}, 0, 0, 0, 0, 1, 0, 0, 0},
    {"a piece more than fits", ROOM, 3, {{C, 2, 0}}, 0, 0, 4, 0, 0, 0, 0, 0},
    {"as many pieces as can be said", ROOM, 3, {{C, 2, 0}}, 0, 0, SIZE_MAX, 0, 0, 0, 0, 0},
    {"so many and growth", ROOM, 4, {{C, 2, 0}}, 0, C, SIZE_MAX, 0, 0, 0, 0, 0},
    {"nothing",
     "the plan has no window, no piece and no grow_bytes",
     1,
     {{0, 0, 0}},
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0},
    {"nothing to keep",
     "the plan has no window, no piece and no grow_bytes",
     2,
     {{0, 0, 0}},
     0,
     0,
     0,
     1,
     0,
     0,
     0,
     0},
    {"one piece in state 3", STATE, 3, {{C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"one piece in state 4", STATE, 4, {{C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"one piece in state 6", STATE, 6, {{C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"one piece in the last state", STATE, ~0u, {{C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"two pieces in state 1", STATE, 1, {{C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"two pieces in state 2", STATE, 2, {{C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"growth in state 1", STATE, 1, {{0, 0, 0}}, 0, C, 0, 0, 0, 0, 0, 0},
    {"growth and a piece in state 3", STATE, 3, {{C, 2, 0}}, 0, C, 0, 0, 0, 0, 0, 0},
    {"two of NO_STITCH", UNSTITCHED, 3, {{C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 2, 0, 0},
    {"growth behind one of NO_STITCH", UNSTITCHED, 4, {{C, 2, 0}}, 0, C, 0, 0, 0, 2, 0, 0},
    {"growth of NO_GROW",
     "grow_bytes is not 0, but the request has GMLAKE_NO_GROW",
     4,
     {{0, 0, 0}},
     0,
     C,
     0,
     0,
     0,
     4,
     0,
     0},
    {"growth by half a chunk", CHUNKS, 4, {{0, 0, 0}}, 0, C / 2, 0, 0, 0, 0, 0, 0},
    {"growth by a grain more", CHUNKS, 4, {{0, 0, 0}}, 0, C + G, 0, 0, 0, 0, 0, 0},
    {"growth by too much", CHUNKS, 4, {{0, 0, 0}}, 0, 321 * C, 0, 0, 0, 0, 0, 0},
    {"growth by far too much", CHUNKS, 4, {{0, 0, 0}}, 0, ~(C - 1), 0, 0, 0, 0, 0, 0},
    {"no bytes", GRAINS, 1, {{0, 2, 0}}, 0, 0, 1, 0, 0, 0, 0, 0},
    {"part of a grain", GRAINS, 2, {{C + 1, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"from within a grain", GRAINS, 2, {{C, 2, 1}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"NULL", OUTSIDE, 1, {{C, NOWHERE, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"the host's memory", OUTSIDE, 1, {{C, ON_STACK, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"a window's address", OUTSIDE, 1, {{C, MAPPED, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"another pool's memory", OUTSIDE, 1, {{C, POOLS_OWN, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"behind the arena", OUTSIDE, 1, {{C, BEHIND, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"past the end", OUTSIDE, 1, {{2 * C, 14, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"before the arena", OUTSIDE, 1, {{C, 0, ~(size_t)0 - G + 1}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"once around", OUTSIDE, 1, {{~(size_t)0 - G + 1, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"a live block", NOT_FREE, 1, {{C, 1, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"half a live block", NOT_FREE, 1, {{C, 0, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"into a live block", NOT_FREE, 1, {{4 * C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"out of a live block", NOT_FREE, 1, {{2 * C, 1, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"a live window's piece", NOT_FREE, 1, {{C, 5, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"another stream's", NOT_FREE, 1, {{C, 6, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"a gap", NOT_FREE, 1, {{C, 9, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"all of the arena", NOT_FREE, 1, {{15 * C, 0, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"the second one's beginning", BEGINS, 3, {{C, 2, 0}, {C, 3, G}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"the last one's beginning",
     BEGINS,
     3,
     {{C, 2, 0}, {C, 3, 0}, {G, 4, G}},
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0},
    {"EXCLUSIVE's beginning",
     "a piece begins inside a chunk",
     2,
     {{2 * C, 2, G}},
     0,
     0,
     0,
     0,
     0,
     1,
     0,
     0},
    {"the first one's end", ENDS, 3, {{G, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"the end before growth", ENDS, 4, {{G, 2, 0}}, 0, C, 0, 0, 0, 0, 0, 0},
    {"EXCLUSIVE's end", ENDS, 2, {{C + G, 2, 0}}, 0, 0, 0, 0, 0, 1, 0, 0},
    {"EXCLUSIVE's last end", ENDS, 3, {{C, 2, 0}, {G, 3, 0}}, 0, 0, 0, 0, 0, 1, 0, 0},
    {"alignment", "the first piece is not aligned", 2, {{C, 2, G}}, 0, 0, 0, 0, 0, 0, 0, 1024},
    {"alignment of a window",
     "the first piece is not aligned",
     3,
     {{C - G, 2, G}, {C, 3, 0}},
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     1024},
    {"one piece twice", SHARED, 3, {{C, 2, 0}, {C, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"one in another", SHARED, 3, {{2 * C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"both halves of a chunk",
     SHARED,
     3,
     {{C / 2, 2, C / 2}, {C / 2, 2, 0}},
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0},
    {"the ends in one chunk",
     SHARED,
     3,
     {{C / 2, 2, C / 2}, {C, 3, 0}, {G, 2, 0}},
     0,
     0,
     0,
     0,
     0,
     0,
     0,
     0},
    {"a grain too little", SMALL, 2, {{C - G, 2, 0}}, 0, 0, 0, 0, 0, 0, 0, 0},
    {"two that are too little", SMALL, 3, {{C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 0, 0, 0, 2 * C + 1, 0},
    {"growth that is too little", SMALL, 4, {{0, 0, 0}}, 0, C, 0, 0, 0, 0, C + 1, 0},
    {"a former of two", FORMER, 3, {{C, 2, 0}, {C, 3, 0}}, 0, 0, 0, 1, 0, 0, 0, 0},
    {"a former of growth", FORMER, 4, {{0, 0, 0}}, 0, C, 0, 1, 0, 0, 0, 0},
    {"a former that is no larger", FORMER, 1, {{3 * C, 2, 0}}, 0, 0, 0, 1, 0, 0, 0, 0},
    {"a former's middle", FORMER, 2, {{C, 3, 0}}, 0, 0, 0, 1, 0, 0, 0, 0},
    {"a former's end", FORMER, 2, {{C, 4, 0}}, 0, 0, 0, 1, 0, 0, 0, 0},
    {"a former cut inside a chunk",
     "keeps_former is set, but the piece ends inside a chunk",
     2,
     {{C + G, 2, 0}},
     0,
     0,
     0,
     1,
     0,
     0,
     0,
     0},
    {"no window's number", NO_WINDOW, 1, {{0, 0, 0}}, 99, 0, 0, 0, 0, 0, 0, 0},
    {"the last number", NO_WINDOW, 1, {{0, 0, 0}}, UINT64_MAX, 0, 0, 0, 0, 0, 0, 0},
    {"a live window", NO_WINDOW, 1, {{0, 0, 0}}, IN_USE, 0, 0, 0, 0, 0, 0, 0},
    {"another pool's window", NO_WINDOW, 1, {{0, 0, 0}}, FOREIGN_WINDOW, 0, 0, 0, 0, 0, 0, 0},
    {"a window and a piece", BOTH, 1, {{C, 2, 0}}, REUSABLE, 0, 0, 0, 0, 0, 0, 0},
    {"a window and growth", BOTH, 1, {{0, 0, 0}}, REUSABLE, C, 0, 0, 0, 0, 0, 0},
    {"a window and a former", BOTH, 1, {{0, 0, 0}}, REUSABLE, 0, 0, 1, 0, 0, 0, 0},
    {"a window in state 3", STATE, 3, {{0, 0, 0}}, REUSABLE, 0, 0, 0, 0, 0, 0, 0},
    {"a window in state 6", STATE, 6, {{0, 0, 0}}, REUSABLE, 0, 0, 0, 0, 0, 0, 0},
    {"a window that is blocked", TAKEN, 1, {{0, 0, 0}}, BLOCKED, 0, 0, 0, 0, 0, 0, 0},
    {"a window in flight", TAKEN, 1, {{0, 0, 0}}, PENDING, 0, 0, 0, 0, 0, 0, 0},
    {"a window for NO_STITCH", TAKEN, 1, {{0, 0, 0}}, REUSABLE, 0, 0, 0, 0, 2, 0, 0},
    {"a small window",
     "the window is too small",
     1,
     {{0, 0, 0}},
     REUSABLE,
     0,
     0,
     0,
     0,
     0,
     2 * C + 1,
     0},
};

static void *where(int place) {
  switch (place) {
  case POOLS_OWN:
    return w.foreign;
  case MAPPED:
    return w.window;
  case ON_STACK:
    return (void *)((uintptr_t)&w.on_stack & ~(uintptr_t)511);
  case BEHIND:
    return at(w.b[14], C);
  case NOWHERE:
    return NULL;
  default:
    return at(w.b[1], (size_t)place * C - C);
  }
}

/* What a refusal may not change. */
typedef struct picture {
  gmlake_stats stats;
  gmlake_mock_census census;
  gmlake_view view;
  gmlake_piece blocks[PIECES];
  gmlake_window_info windows[PIECES];
} picture;

static void look(picture *now) {
  memset(now, 0, sizeof(*now));
  show();
  now->stats = stats();
  now->census = census();
  now->stats.state_count[4] = now->stats.driver_call_count = now->stats.driver_ns = 0;
  now->stats.metadata_bytes_peak = now->census.call_count = now->census.modelled_ns = 0;
  now->view = p.view;
  now->view.blocks = NULL;
  now->view.windows = NULL;
  memcpy(now->blocks, p.blocks, p.view.block_count * sizeof(gmlake_piece));
  memcpy(now->windows, p.windows, p.view.window_count * sizeof(gmlake_window_info));
}

static void assert_same(const picture *before) {
  static picture now;
  look(&now);
  assert_memory_equal(&now.stats, &before->stats, sizeof(now.stats));
  assert_memory_equal(&now.census, &before->census, sizeof(now.census));
  assert_memory_equal(&now, before, sizeof(now));
}

static void plan_wrong(const wrong *row) {
  static gmlake_piece elsewhere[3];
  answer *a = plan(row->state);
  size_t i;
  for (i = 0; i < 3; i++)
    if (row->pieces[i].bytes || (i == 0 && row->count == 1))
      add(a, at(where(row->pieces[i].where), row->pieces[i].offset), row->pieces[i].bytes);
  if (row->count) a->plan.piece_count = row->count;
  memcpy(elsewhere, a->pieces, sizeof(elsewhere));
  if (row->is_elsewhere) a->elsewhere = elsewhere;
  a->plan.window = row->window;
  a->plan.grow_bytes = row->grow_bytes;
  a->plan.keeps_former = row->keeps_former;
}

/* Refused with its reason, before anything has changed and anybody else is asked. */
static void wrong_plan(void **state) {
  static picture before;
  const wrong *row = (const wrong *)*state;
  gmlake_alloc_desc wanted;
  open_world();
  look(&before);
  p.evicted = 0;
  plan_wrong(row);
  wanted = request(row->bytes ? row->bytes : C, row->flags, NULL);
  wanted.alignment = row->alignment;
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, row->text);
  assert_string_equal(last_error().call, "policy.choose");
  assert_int_equal(p.chosen, 1);
  assert_int_equal(p.evicted, 0);
  assert_same(&before);
  close_world();
}

/* Windows to be dropped that may not be: behind a plan that could be carried out. */
typedef struct wrong_drop {
  const char *what;
  uint64_t numbers[5];
  size_t count, wrong_at; /* the index that the error names */
} wrong_drop;

static const wrong_drop wrong_drops[] = {
    {"no number", {0}, 1, 0},
    {"no window's number", {99}, 1, 0},
    {"a live window", {IN_USE}, 1, 0},
    {"a window in flight", {PENDING}, 1, 0},
    {"another pool's window", {FOREIGN_WINDOW}, 1, 0},
    {"one window twice", {REUSABLE, REUSABLE}, 2, 1},
    {"a wrong one behind a right one", {REUSABLE, BLOCKED, 99}, 3, 2},
    {"more windows than there are", {REUSABLE, BLOCKED, PENDING, 5}, 4, 2},
    {"as many windows as can be said", {REUSABLE, BLOCKED}, SIZE_MAX, 2},
};

static void wrong_drop_answer(void **state) {
  static picture before;
  const wrong_drop *row = (const wrong_drop *)*state;
  answer *a;
  char text[160];
  open_world();
  look(&before);
  p.evicted = 0;
  memcpy(p.victims, row->numbers, sizeof(row->numbers));
  p.victim_count = row->count;
  a = plan_growth(C);
  add(a, w.b[2], C);
  assert_error(try_on(C, LEGACY), INVALID_ARGUMENT);
  assert_int_equal(p.evicted, 1);
  assert_string_equal(last_error().call, "policy.evict");
  (void)snprintf(
      text, sizeof(text),
      "out_windows[%u]: name idle windows whose work is complete, each once, and not more "
      "than window_count",
      (unsigned)row->wrong_at);
  assert_string_equal(last_error().text, text);
  p.victim_count = 0;
  assert_same(&before);
  close_world();
}

/* So it is where the built-in policy stitches: the answer is the answer, and no growth instead. */
static void wrong_drop_answer_to_the_built_in_policy(void **state) {
  static picture before;
  (void)state;
  open_world();
  look(&before);
  p.evicted = 0;
  p.victims[0] = 99;
  p.victim_count = 1;
  assert_error(try_on(3 * C + 512, LEGACY), INVALID_ARGUMENT);
  assert_int_equal(p.evicted, 1);
  assert_string_equal(last_error().call, "policy.evict");
  p.victim_count = 0;
  assert_same(&before);
  close_world();
}

/* Chunks of a GiB, without memory behind them, for blocks with too much to spare. */
static void begin_large(void) {
  gmlake_mock_desc mock_desc;
  begin(4, CHOOSE);
  end();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.bookkeeping_only = 1;
  mock_desc.capacity_bytes = 512 * (K * K * K);
  mock_desc.granularity_bytes = K * K * K;
  prepare_policy(4, CHOOSE);
  close_mock();
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = K * K * K;
  open_lake();
}

static void wrong_pieces_that_are_too_large(void **state) {
  const size_t gib = K * K * K;
  void *x, *y;
  (void)state;
  begin_large();
  (void)plan_growth(5 * gib);
  assert_error(try_on(1, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the pieces are too large");
  x = take_on(5 * gib, LEGACY);
  (void)plan_growth(4 * gib);
  y = take_on(1, LEGACY); /* a byte less would be one too many */
  assert_int_equal(stats().active_bytes, 9 * gib);
  assert_int_equal(stats().requested_bytes, 5 * gib + 1);
  drop_these(x, y);
  (void)plan_two(x, y);
  p.answers[0].pieces[0].bytes = 5 * gib;
  p.answers[0].pieces[1].bytes = gib;
  drop(take_on(6 * gib, LEGACY));
  plan_reuse(1);
  assert_error(try_on(1, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the window is too large");
  drop(take_on(3 * gib, LEGACY));
  end();
}

/* ---- evict ----------------------------------------------------------------------------------- */

/* Before the built-in policy stitches, and before a plan does; not where nothing is mapped. */
static void evict_is_asked_before_windows_are_mapped(void **state) {
  void *b[6], *x;
  (void)state;
  begin(8, CHOOSE | EVICT);
  lay(b, 6);
  drop_these(b[0], b[2], b[4]);
  x = take(2 * C); /* built in */
  assert_int_equal(p.evicted, 1);
  assert_int_equal(p.mapped_bytes, 2 * C);
  drop(x);
  plan_reuse(1);
  drop(take_in(1, 2 * C));
  (void)plan_piece(1, b[0], C);
  drop(take_in(1, C));
  (void)plan_growth(C);
  x = take_in(4, C);
  assert_int_equal(p.evicted, 1);
  (void)plan_growth(C);
  add(&p.answers[0], at(b[2], C - 512), 512);
  drop(take_in(4, C));
  assert_int_equal(p.evicted, 2);
  assert_int_equal(p.mapped_bytes, 2 * C);
  drop_these(x, b[1], b[3], b[5]);
  end();
}

/* Whatever of a stitch finds no host memory, the view for this question among it: nothing is
   mapped, and another time it is. */
static void evict_is_not_asked_without_host_memory(void **state) {
  size_t unasked = 0;
  long n;
  int failed;
  (void)state;
  for (n = 1; n < 8; n++) {
    void *b[6];
    begin(6, EVICT);
    lay(b, 6);
    drop(b[0]);
    drop(b[2]);
    host_fail_in = n; /* and from then on: else a later rung tries again */
    host_fails_on = 1;
    failed = try_on(2 * C, LEGACY) == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    host_fail_in = host_fails_on = 0;
    unasked += failed && !p.evicted;
    if (failed) assert_int_equal(stats().stitch_count, 0);
    if (failed) (void)take(2 * C);
    assert_int_equal(stats().stitch_count, 1);
    end();
  }
  assert_true(unasked > 0);
}

/* With one stream, which needs no events for anything else. */
static void evict_drops_windows_of_a_single_stream(void **state) {
  void *b[6], *x;
  (void)state;
  begin(8, EVICT);
  lay(b, 6);
  drop_these(b[0], b[2]);
  drop(take(2 * C));
  drop(b[4]);
  p.victim_count = p.victims_are_oldest = 1;
  x = take(3 * C);
  assert_int_equal(p.view.window_count, 1);
  assert_int_equal(p.windows[0].is_complete, 1);
  assert_int_equal(stats().stitch_evict_count, 1);
  assert_int_equal(stats().window_count, 1);
  drop_these(x, b[1], b[3], b[5]);
  end();
}

/* A policy that evicts nothing: the built-in threshold is not applied in its place. */
static void evict_has_the_only_say(void **state) {
  void *b[8], *x;
  size_t i;
  (void)state;
  prepare_policy(8, CHOOSE | EVICT);
  desc.stitched_bytes_max = 2 * C;
  open_lake();
  lay(b, 8);
  for (i = 0; i < 8; i += 2) drop(b[i]);
  for (i = 2; i < 8; i += 2) (void)make_window(b[0], b[i]);
  assert_int_equal(stats().stitched_bytes, 6 * C);
  assert_int_equal(p.view.stitched_bytes_max, 2 * C);
  p.victim_count = 8;
  p.victims_are_oldest = 1;
  (void)plan_two(b[2], b[4]);
  x = take_in(3, 2 * C);
  assert_int_equal(stats().stitched_bytes, 2 * C);
  assert_int_equal(stats().stitch_evict_count, 3);
  drop(x);
  for (i = 1; i < 8; i += 2) drop(b[i]);
  end();
}

/* Its pieces may be those of the plan. */
static void evict_drops_a_window_of_the_plans_pieces(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE | EVICT);
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)make_window(b[0], b[2]);
  p.victim_count = p.victims_are_oldest = 1;
  (void)plan_two(b[2], b[0]);
  x = take_in(3, 2 * C);
  assert_aliases(x);
  assert_int_equal(stats().window_count, 1);
  drop_these(x, b[1], b[3]);
  end();
}

static void evict_that_the_driver_refuses(void **state) {
  void *b[6];
  (void)state;
  prepare_policy(8, CHOOSE | EVICT);
  use_faults();
  open_lake();
  lay(b, 6);
  drop_these(b[0], b[2], b[4]);
  (void)make_window(b[0], b[2]);
  p.victim_count = p.victims_are_oldest = 1;
  (void)plan_two(b[2], b[4]);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(2 * C, LEGACY), DRIVER);
  assert_int_equal(stats().quarantined_bytes, 2 * C);
  assert_int_equal(stats().window_count, 0);
  p.victim_count = 0;
  (void)plan_two(b[2], b[4]);
  drop(take_in(3, 2 * C));
  drop_these(b[1], b[3], b[5]);
  end();
}

/* ---- coalesce -------------------------------------------------------------------------------- */

static void assert_blocks(size_t count) {
  show();
  assert_int_equal(p.view.block_count, count);
}

/* | a | b | c | D |  */
static void no_keeps_blocks_apart(void **state) {
  void *b[4];
  (void)state;
  begin(4, CHOOSE | COALESCE);
  lay(b, 4);
  p.joins = 0;
  p.freed = 0;
  drop(b[0]);
  assert_ptr_equal(p.freed_block.home, b[0]);
  assert_int_equal(p.freed_block.bytes, C);
  drop_these(b[2], b[1]);
  assert_int_equal(p.freed, 3);
  assert_blocks(3);
  assert_block(0, b[0], C);
  assert_block(1, b[1], C);
  assert_block(2, b[2], C);
  drop(b[3]);
  end();
}

static void yes_joins_blocks(void **state) {
  void *b[4];
  (void)state;
  begin(4, CHOOSE | COALESCE);
  lay(b, 4);
  drop_these(b[0], b[2], b[1]);
  assert_blocks(1);
  assert_block(0, b[0], 3 * C);
  drop(b[3]);
  end();
}

/* Whoever is kept apart is joined by nobody, until it is taken and freed again. */
static void yes_beside_no(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE | COALESCE);
  lay(b, 4);
  drop(b[0]);
  p.joins = 0;
  drop(b[1]);
  p.joins = 1;
  drop(b[2]);
  assert_blocks(3);
  (void)plan_piece(1, b[1], C);
  x = take_in(1, C);
  drop(x);
  assert_blocks(1);
  drop(b[3]);
  end();
}

/* A piece across blocks that are apart is one block, and freed as one. */
static void apart_blocks_are_taken_together(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE | COALESCE);
  lay(b, 4);
  p.joins = 0;
  drop_all(b, 3);
  (void)plan_piece(2, at(b[0], 512), 3 * C - 1024);
  x = take_in(2, 2 * C + 512);
  assert_int_equal(piece_count(x), 1);
  assert_aliases(x);
  assert_blocks(2);
  drop(x);
  assert_blocks(3);
  assert_block(1, at(b[0], 512), 3 * C - 1024);
  drop(b[3]);
  end();
}

static void new_memory_stays_apart(void **state) {
  void *x, *y;
  (void)state;
  begin(8, CHOOSE | COALESCE);
  (void)plan_growth(2 * C);
  x = take_in(4, C);
  (void)plan_growth(C);
  y = take_in(4, C);
  assert_ptr_equal(y, at(x, 2 * C));
  drop_these(x, y);
  assert_blocks(1); /* they have been a user's since */
  assert_int_equal(trim_to(0), 3 * C);
  drop(take(2 * C + 512)); /* three chunks at once, a part taken */
  assert_blocks(2);
  assert_block(0, x, 2 * C + 512);
  assert_block(1, at(x, 2 * C + 512), C - 512);
  end();
}

/* Completed work makes them clean, not one. */
static void apart_blocks_outlive_sweeps(void **state) {
  gmlake_stream s;
  gmlake_budget budget;
  void *b[6];
  (void)state;
  begin(8, CHOOSE | COALESCE);
  s = open_stream();
  lay(b, 6);
  drop_on(b[4], s);
  p.joins = 0;
  gmlake_mock_stream_hold(mock, s);
  drop_on(b[0], s);
  drop_on(b[1], s);
  drop_on(b[2], s);
  p.joins = 1;
  drop_on(b[3], s);
  gmlake_mock_stream_finish(mock, s);
  step(gmlake_get_budget(lake, &budget));
  show_on(NONE);
  assert_block(0, b[0], C);
  assert_block(1, b[1], C);
  assert_block(2, b[2], C);
  assert_block(3, b[3], 2 * C);
  drop(b[5]);
  end();
}

static void apart_windows(void **state) {
  void *b[4], *x;
  answer *a;
  (void)state;
  begin(4, CHOOSE | COALESCE);
  lay(b, 4);
  drop_on(b[1], NONE);
  drop_these(b[0], b[2]);
  a = plan_two(b[0], b[2]);
  add(a, b[1], C);
  x = take_in(3, 3 * C);
  p.joins = 0;
  drop(x);
  assert_int_equal(p.freed_block.bytes, 3 * C);
  assert_ptr_equal(p.freed_block.home, x);
  assert_blocks(3);
  plan_reuse(1);
  x = take_in(1, 3 * C);
  p.joins = 1;
  drop(x);
  assert_blocks(1);
  drop(b[3]);
  end();
}

static void apart_pending_blocks(void **state) {
  gmlake_stream s;
  void *b[4];
  (void)state;
  begin(4, CHOOSE | COALESCE);
  s = open_stream();
  lay(b, 4);
  drop(b[1]);
  gmlake_mock_stream_hold(mock, s);
  step(gmlake_record_stream(lake, b[0], s));
  step(gmlake_record_stream(lake, b[2], s));
  p.joins = 0;
  drop(b[0]);
  p.joins = 1;
  drop(b[2]);
  gmlake_mock_stream_finish(mock, s);
  show(); /* those that waited are free, of the streams they were freed on */
  assert_int_equal(p.view.block_count, 2);
  assert_block(0, b[0], C);
  assert_block(1, b[1], 2 * C);
  drop(b[3]);
  end();
}

static void apart_pools(void **state) {
  gmlake_pool *pool;
  gmlake_alloc_desc wanted;
  void *x, *y;
  (void)state;
  begin(8, CHOOSE | COALESCE);
  pool = open_pool(0);
  wanted = request(2 * C, 0, pool);
  p.joins = 0;
  drop(take_with(&wanted, LEGACY));
  wanted.bytes = C;
  x = take_with(&wanted, LEGACY);
  y = take_with(&wanted, LEGACY);
  drop_these(x, y);
  (void)plan(3);
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT);
  assert_int_equal(p.view.block_count, 2);
  built_in();
  step(gmlake_pool_destroy(lake, pool));
  end();
}

/* A capture's memory that is kept apart is apart for the next one, too. */
static void apart_in_captures(void **state) {
  gmlake_pool *pool;
  gmlake_stream s;
  void *x, *y;
  (void)state;
  begin(8, CHOOSE | COALESCE);
  s = open_stream();
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, s, pool));
  x = take_on(C, s);
  y = take_on(C, s);
  p.joins = 0;
  drop_on(x, s);
  drop_on(y, s);
  step(gmlake_capture_end(lake, s));
  step(gmlake_capture_begin(lake, s, pool));
  show_on(s);
  assert_int_equal(p.view.block_count, 2);
  step(gmlake_capture_end(lake, s));
  step(gmlake_pool_destroy(lake, pool));
  end();
}

/* | T | c | d | E |  t is stream 1's, c and d are clean and apart: they are a run of stream 1 */
static void apart_blocks_in_a_streams_run(void **state) {
  gmlake_stream s;
  void *b[5], *x, *y;
  (void)state;
  begin(8, COALESCE);
  s = open_stream();
  lay(b, 5);
  drop_on(take_on(512, s), s);
  p.joins = 0;
  gmlake_mock_stream_hold(mock, s);
  drop_on(b[0], s);
  drop_on(b[1], NONE);
  drop_on(b[2], NONE);
  drop_on(b[3], NONE);
  x = take_on(C, NONE); /* out of the run */
  y = take_on(3 * C, s);
  memset(x, 1, C);
  memset(y, 2, 3 * C);
  assert_int_equal(*(unsigned char *)x, 1);
  drop_on(x, NONE);
  drop_on(y, s);
  drop(b[4]);
  end();
}

/* Each of many chunks that are apart is a run of its own to the planner; | a B | is one's head. */
static void apart_chunks_are_stitched(void **state) {
  void *b[41], *head, *rest, *x;
  size_t i;
  (void)state;
  begin(64, COALESCE);
  lay(b, 41);
  drop(b[40]);
  head = take(C / 2);
  rest = take(C / 2);
  assert_ptr_equal(head, b[40]);
  p.joins = 0;
  drop_on(head, NONE);
  for (i = 0; i < 40; i++) drop_on(b[i], NONE); /* clean: else they are one run of the stream's */
  memset(rest, 1, C / 2);
  x = take(40 * C + C / 2);
  assert_aliases(x);
  assert_int_equal(stats().reserved_bytes, 41 * C);
  memset(x, 2, 40 * C + C / 2);
  for (i = 0; i < C / 2; i += 512) assert_int_equal(((unsigned char *)rest)[i], 1);
  drop_these(rest, x);
  end();
}

/* A chunk of which all parts are free goes back, though they are apart. */
static void apart_parts_of_a_chunk_are_trimmed(void **state) {
  void *b[4];
  size_t i;
  (void)state;
  begin(4, COALESCE);
  flood(2);
  for (i = 0; i < 4; i++) b[i] = take(C / 2);
  p.joins = 0;
  for (i = 0; i < 4; i++) drop(b[i]);
  assert_int_equal(trim_to(0), 2 * C);
  b[0] = take(C / 2);
  b[1] = take(C / 2);
  drop(b[0]);
  assert_int_equal(trim_to(0), 0);
  drop(b[1]);
  assert_int_equal(trim_to(0), C);
  end();
}

/* And serves elsewhere where memory is short. */
static void apart_parts_of_a_chunk_serve_another_pool(void **state) {
  gmlake_pool *pool;
  void *b[4];
  size_t i;
  (void)state;
  begin(2, COALESCE);
  pool = open_pool(0);
  flood(2);
  for (i = 0; i < 4; i++) b[i] = take(C / 2);
  p.joins = 0;
  for (i = 0; i < 4; i++) drop(b[i]);
  drop(take_from(pool, 2 * C, LEGACY));
  step(gmlake_pool_destroy(lake, pool));
  end();
}

/* And here, though there is no other pool: returned and created anew, in one piece. */
static void apart_parts_of_a_chunk_are_made_whole(void **state) {
  void *b[4];
  size_t i;
  (void)state;
  begin(2, COALESCE);
  flood(2);
  for (i = 0; i < 4; i++) b[i] = take(C / 2);
  p.joins = 0;
  for (i = 0; i < 4; i++) drop_on(b[i], NONE);
  drop(take(C + C / 2));
  end();
}

/* What trim cannot unmap stays as it is. */
static void apart_parts_of_a_chunk_that_stay(void **state) {
  void *b[2];
  (void)state;
  prepare_policy(4, CHOOSE | COALESCE);
  use_faults();
  open_lake();
  flood(1);
  b[0] = take(C / 2);
  b[1] = take(C / 2);
  p.joins = 0;
  drop_on(b[0], NONE);
  drop_on(b[1], NONE);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_trim(lake, 0, NULL), DRIVER);
  assert_blocks(2);
  fail_call(ON_RELEASE, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_trim(lake, 0, NULL), DRIVER);
  assert_int_equal(stats().quarantined_bytes, C);
  (void)gmlake_destroy(lake);
  close_mock();
  (void)alarm(0);
}

/* Growth that counts on joining what is free before it would be in vain for ever. */
static void growth_beside_apart_memory(void **state) {
  void *x, *y;
  (void)state;
  begin(16, COALESCE);
  x = take(C / 2);
  y = take_flags(C + C / 4, GMLAKE_NO_STITCH);
  assert_true(stats().reserved_bytes <= 3 * C);
  drop_these(x, y);
  end();
}

/* A failed stitch gives its pieces back as they were, cut where the plan cut them. */
static void apart_pieces_of_a_failed_stitch(void **state) {
  void *b[4];
  answer *a;
  (void)state;
  prepare_policy(4, CHOOSE | COALESCE);
  use_faults();
  open_lake();
  lay(b, 4);
  drop(b[2]);
  p.joins = 0;
  drop(b[0]);
  a = plan_piece(3, at(b[0], C / 2), C / 2);
  add(a, b[2], C / 2);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(C, LEGACY), DRIVER);
  show();
  assert_block(p.view.block_count - 1, b[2], C);
  p.joins = 1;
  drop_these(b[1], b[3]);
  end();
}

/* ---- Policies that call the lake ------------------------------------------------------------- */

static void *live_block;
static gmlake_pool *live_pool;
static gmlake_buffer *live_buffer;
static size_t refusals;

#define REFUSED(call)                                     \
  do {                                                    \
    if ((call) != GMLAKE_ERROR_INVALID_ARGUMENT) abort(); \
    refusals++;                                           \
  } while (0)
#define ANSWERED(call)                \
  do {                                \
    if ((call) != GMLAKE_OK) abort(); \
  } while (0)

/* Whatever serves or changes memory is refused, questions are answered. */
static void call_everything(void) {
  gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_buffer_desc buffer_desc;
  gmlake_buffer_info buffer_info;
  gmlake_allocation_info info;
  gmlake_error_info error;
  gmlake_buffer *buffer = NULL;
  gmlake_pool *pool = NULL;
  gmlake_budget budget;
  gmlake_stats now;
  gmlake_desc with;
  gmlake_piece one;
  size_t count;
  void *ptr = &ptr;
  memset(&buffer_desc, 0, sizeof(buffer_desc));
  buffer_desc.max_bytes = C;
  now.struct_bytes = 0;
  REFUSED(gmlake_alloc(lake, C, LEGACY, &ptr));
  if (ptr) abort();
  REFUSED(gmlake_alloc_with(lake, &wanted, NONE, &ptr));
  REFUSED(gmlake_alloc(lake, 0, LEGACY, &ptr));
  REFUSED(gmlake_free(lake, live_block, LEGACY));
  REFUSED(gmlake_record_stream(lake, live_block, LEGACY));
  REFUSED(gmlake_forget_stream(lake, LEGACY));
  REFUSED(gmlake_pool_create(lake, NULL, &pool));
  REFUSED(gmlake_pool_destroy(lake, live_pool));
  REFUSED(gmlake_capture_begin(lake, (gmlake_stream)(uintptr_t)8, live_pool));
  REFUSED(gmlake_capture_end(lake, (gmlake_stream)(uintptr_t)8));
  REFUSED(gmlake_buffer_create(lake, &buffer_desc, &buffer));
  REFUSED(gmlake_buffer_resize(lake, live_buffer, C, LEGACY));
  REFUSED(gmlake_buffer_resize(lake, live_buffer, 0, LEGACY));
  REFUSED(gmlake_buffer_destroy(lake, live_buffer, LEGACY));
  REFUSED(gmlake_trim(lake, 0, &count));
  if (count) abort();
  REFUSED(gmlake_get_budget(lake, &budget));
  REFUSED(gmlake_check(lake));
  ANSWERED(gmlake_free(lake, NULL, LEGACY));
  ANSWERED(gmlake_get_stats(lake, &now));
  ANSWERED(gmlake_get_last_error(lake, &error));
  if (strcmp(error.text, GMLK_POLICY_CALLS) != 0) abort();
  ANSWERED(gmlake_get_desc(lake, &with));
  ANSWERED(gmlake_reset_peaks(lake));
  ANSWERED(gmlake_get_allocation(lake, live_block, &info));
  ANSWERED(gmlake_get_pieces(lake, live_block, &one, 1, &count));
  ANSWERED(gmlake_buffer_get_info(lake, live_buffer, &buffer_info));
}

static void open_callees(unsigned functions, unsigned flags) {
  prepare_policy(12, functions);
  desc.flags = flags;
  open_lake();
  live_pool = open_pool(0);
  live_buffer = open_buffer(2);
  live_block = take(512);
  refusals = 0;
}

static void close_callees(void) {
  assert_true(refusals >= 17);
  p.hook = NULL;
  drop(live_block);
  step(gmlake_buffer_destroy(lake, live_buffer, LEGACY));
  step(gmlake_pool_destroy(lake, live_pool));
  end();
}

static void choose_calls_the_lake(void **state) {
  (void)state;
  open_callees(CHOOSE, 0);
  p.hook = call_everything;
  (void)plan_growth(C);
  drop(take_in(4, C));
  close_callees();
}

static void choose_calls_a_lake_without_locks(void **state) {
  (void)state;
  open_callees(CHOOSE, GMLAKE_SINGLE_THREADED);
  p.hook = call_everything;
  (void)plan_growth(C);
  drop(take_in(4, C));
  close_callees();
}

static void evict_calls_the_lake(void **state) {
  void *b[4], *x;
  (void)state;
  open_callees(EVICT, 0);
  flood(4);
  b[0] = take(C);
  b[1] = take(C);
  b[2] = take(C);
  drop_these(b[0], b[2]);
  p.hook = call_everything;
  x = take(3 * C);
  assert_int_equal(p.evicted, 1);
  drop_these(x, b[1]);
  close_callees();
}

static void coalesce_calls_the_lake(void **state) {
  void *x;
  (void)state;
  open_callees(COALESCE, 0);
  x = take(C);
  p.hook = call_everything;
  drop(x);
  close_callees();
}

/* Also in a free of the handler's. */
static int free_in_handler(void *user, gmlake *l, const gmlake_error_info *info) {
  void *ptr = live_block;
  (void)user;
  (void)info;
  if (!ptr) return 0;
  live_block = NULL;
  ANSWERED(gmlake_free(l, ptr, LEGACY));
  ANSWERED(gmlake_check(l)); /* the policy's callback is over, the handler's not */
  return 1;
}

static void refuse_in_handler(void) {
  void *ptr = &ptr;
  REFUSED(gmlake_trim(lake, 0, NULL));
  REFUSED(gmlake_alloc(lake, 1, LEGACY, &ptr));
}

static void coalesce_in_the_handler(void **state) {
  (void)state;
  prepare_policy(4, COALESCE);
  desc.oom.fn = free_in_handler;
  open_lake();
  live_block = take(3 * C);
  refusals = 0;
  p.hook = refuse_in_handler;
  drop(take(2 * C));
  assert_true(refusals >= 2);
  end();
}

/* Another lake is another matter. */
static gmlake *second_lake;

static void use_second_lake(void) {
  void *ptr = NULL;
  ANSWERED(gmlake_alloc(second_lake, C, LEGACY, &ptr));
  ANSWERED(gmlake_free(second_lake, ptr, LEGACY));
}

static void choose_uses_another_lake(void **state) {
  gmlake_desc plain;
  (void)state;
  begin(8, CHOOSE);
  memset(&plain, 0, sizeof(plain));
  plain.backend = mock;
  plain.chunk_bytes = C;
  assert_ok(gmlake_create(&plain, &second_lake));
  p.hook = use_second_lake;
  (void)plan_growth(C);
  drop(take_in(4, C));
  assert_ok(gmlake_destroy(second_lake));
  end();
}

/* ---- Other threads while a policy thinks ----------------------------------------------------- */

static void *others[4]; /* blocks that they may free */

static void *free_others(void *argument) {
  gmlake_stats now;
  size_t i;
  (void)argument;
  now.struct_bytes = 0;
  ANSWERED(gmlake_get_stats(lake, &now));
  for (i = 0; i < 4; i++) {
    if (others[i]) ANSWERED(gmlake_free(lake, others[i], LEGACY));
    others[i] = NULL;
  }
  return NULL;
}

/* A policy may wait for a thread that frees. */
static void wait_for_frees(void) {
  pthread_t other;
  p.hook = NULL;
  if (pthread_create(&other, NULL, free_others, NULL)) abort();
  if (pthread_join(other, NULL)) abort();
}

/* What is free by the time of the answer may be taken, though it was not shown. */
static void another_thread_frees_during_choose(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4, CHOOSE);
  lay(b, 4);
  drop(b[0]);
  memset(others, 0, sizeof(others));
  others[0] = b[1];
  others[1] = b[2];
  p.hook = wait_for_frees;
  (void)plan_piece(2, at(b[0], C / 2), 2 * C);
  x = take_in(2, 2 * C);
  assert_int_equal(p.view.block_count, 1);
  assert_aliases(x);
  drop_these(x, b[3]);
  end();
}

/* The block whose former is to be kept is larger by then: kept is what was shown. */
static void another_thread_frees_around_a_former(void **state) {
  void *b[5], *x;
  (void)state;
  begin(5, CHOOSE);
  lay(b, 5);
  drop_these(b[1], b[2]);
  memset(others, 0, sizeof(others));
  others[0] = b[0];
  others[1] = b[3];
  p.hook = wait_for_frees;
  plan_piece(2, b[1], C)->plan.keeps_former = 1;
  x = take_in(2, C);
  assert_ptr_equal(x, b[1]);
  show();
  assert_int_equal(p.windows[0].bytes, 2 * C);
  assert_block(0, b[0], C);
  assert_block(1, b[2], 2 * C);
  drop_these(x, b[4]);
  end();
}

static int evict_frees;

static void free_in_evict(void) {
  if (!p.evicted || !evict_frees) return;
  evict_frees = 0;
  wait_for_frees();
}

static void another_thread_frees_beside_a_former(void **state) {
  void *b[6], *x;
  (void)state;
  begin(6, CHOOSE | EVICT);
  lay(b, 6);
  drop_these(b[1], b[2]);
  memset(others, 0, sizeof(others));
  others[0] = b[0];
  others[1] = b[3];
  evict_frees = 1;
  p.hook = free_in_evict;
  plan_piece(2, b[1], C)->plan.keeps_former = 1;
  x = take_in(2, C);
  assert_ptr_equal(x, b[1]);
  assert_ok(gmlake_check(lake));
  show();
  assert_int_equal(p.view.window_count, 1);
  assert_int_equal(p.windows[0].piece_count, 2);
  drop(x);
  plan_reuse(1);
  x = take_in(1, 512);
  assert_aliases(x);
  drop_these(x, b[4], b[5]);
  end();
}

/* A thread that asks for memory meanwhile waits for its turn. */
static void *alloc_and_free(void *argument) {
  void *ptr = NULL;
  (void)argument;
  ANSWERED(gmlake_alloc(lake, C, LEGACY, &ptr));
  ANSWERED(gmlake_free(lake, ptr, LEGACY));
  ANSWERED(gmlake_check(lake));
  ANSWERED(gmlake_trim(lake, SIZE_MAX, NULL));
  return NULL;
}

static pthread_t allocating;

static void start_allocating(void) {
  gmlake_stats now;
  uint64_t count;
  p.hook = NULL;
  now.struct_bytes = 0;
  ANSWERED(gmlake_get_stats(lake, &now));
  count = now.allocation_count;
  if (start_waiter(&allocating, alloc_and_free, NULL)) abort();
  ANSWERED(gmlake_get_stats(lake, &now));
  if (now.allocation_count != count) abort();
}

static void another_thread_allocates_during(unsigned functions, size_t bytes) {
  void *b[4], *x;
  begin(8, functions);
  lay(b, 4);
  drop_these(b[0], b[2]);
  p.hook = start_allocating;
  if (functions & CHOOSE) (void)plan_two(b[0], b[2]);
  if (functions & CHOOSE) (void)then(0); /* for the other thread */
  x = take(bytes);
  assert_int_equal(pthread_join(allocating, NULL), 0);
  drop_these(x, b[1], b[3]);
  end();
}

static void another_thread_allocates_during_choose(void **state) {
  (void)state;
  another_thread_allocates_during(CHOOSE, 2 * C);
}

static void another_thread_allocates_during_evict(void **state) {
  (void)state;
  another_thread_allocates_during(EVICT, 2 * C);
}

/* Coalesce is asked while no lock is held at all: everybody may call. */
static void use_lake_meanwhile(void) {
  pthread_t other;
  p.hook = NULL;
  if (pthread_create(&other, NULL, alloc_and_free, NULL)) abort();
  if (pthread_join(other, NULL)) abort();
}

static void another_thread_allocates_during_coalesce(void **state) {
  void *x;
  (void)state;
  begin(8, COALESCE);
  x = take(C);
  p.hook = use_lake_meanwhile;
  drop(x);
  assert_int_equal(stats().free_count, 2);
  end();
}

/* The block that is asked about is freed by somebody else: it is free already. */
static void another_thread_frees_the_block_during_coalesce(void **state) {
  void *x;
  (void)state;
  begin(8, COALESCE);
  x = take(C);
  memset(others, 0, sizeof(others));
  others[0] = x;
  p.hook = wait_for_frees;
  assert_error(gmlake_free(lake, x, LEGACY), DOUBLE_FREE);
  assert_ok(gmlake_check(lake));
  assert_int_equal(stats().free_count, 1);
  assert_int_equal(p.freed, 2);
  end();
}

/* ---- The device is lost while a policy thinks ------------------------------------------------ */

/* Another thread's free records an event, in vain. */
static void lose_device(void) {
  fail_call(ON_RECORD, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  wait_for_frees();
}

static void open_lossy(unsigned functions, void **b) {
  gmlake_stream s;
  prepare_policy(8, functions);
  use_faults();
  open_lake();
  s = open_stream();
  lay(b, 6);
  drop_these(b[0], b[2]);
  drop_on(take_on(C, s), s); /* two streams: frees record events */
  drop_on(take_on(C, NONE), NONE);
  memset(others, 0, sizeof(others));
  others[0] = b[4];
  p.evicted = p.chosen = p.freed = 0;
}

static void close_lossy(void) {
  uint64_t calls = census().call_count;
  void *ptr = &ptr;
  assert_error(gmlake_alloc(lake, 1, LEGACY, &ptr), DEVICE_LOST);
  assert_null(ptr);
  assert_int_equal(census().call_count, calls);
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  close_mock();
  (void)alarm(0);
}

static void lost_during(unsigned functions, size_t bytes) {
  void *b[6], *ptr = &ptr;
  open_lossy(functions, b);
  p.hook = lose_device;
  if (functions & CHOOSE) (void)plan_two(b[0], b[2]);
  assert_error(gmlake_alloc(lake, bytes, LEGACY, &ptr), DEVICE_LOST);
  assert_null(ptr);
  assert_ok(gmlake_check(lake));
  close_lossy();
}

static void device_is_lost_during_choose(void **state) {
  (void)state;
  lost_during(CHOOSE, 2 * C);
}

static void device_is_lost_during_evict(void **state) {
  (void)state;
  lost_during(EVICT, 2 * C);
}

static void device_is_lost_during_coalesce(void **state) {
  void *b[6];
  (void)state;
  open_lossy(COALESCE, b);
  p.hook = lose_device;
  assert_error(gmlake_free(lake, b[1], LEGACY), DEVICE_LOST);
  assert_ok(gmlake_check(lake));
  assert_int_equal(stats().live_count, 3);
  close_lossy();
}

/* ---- The table itself ------------------------------------------------------------------------ */

/* Every combination of functions, in a program that meets all of them. */
static void any_functions_may_be_missing(void **state) {
  unsigned functions;
  (void)state;
  for (functions = 0; functions <= ALL; functions++) {
    void *b[6], *x, *y;
    begin(8, functions);
    lay(b, 6);
    drop(b[0]);
    drop(b[2]);
    drop(b[4]);
    x = take(2 * C);
    y = take(512);
    drop(x);
    drop(y);
    assert_int_equal(p.chosen > 0, (functions & CHOOSE) != 0);
    assert_int_equal(p.evicted > 0, (functions & EVICT) != 0);
    assert_int_equal(p.freed > 0, (functions & COALESCE) != 0);
    drop(b[1]);
    drop(b[3]);
    drop(b[5]);
    end();
  }
}

static void single_threaded_lakes_ask_too(void **state) {
  void *b[4], *x;
  (void)state;
  prepare_policy(4, ALL);
  desc.flags = GMLAKE_SINGLE_THREADED;
  open_lake();
  lay(b, 4);
  drop_these(b[0], b[2]);
  (void)plan_two(b[0], b[2]);
  x = take_in(3, 2 * C);
  assert_true(p.chosen == 0 && p.evicted == 1 && p.freed >= 3);
  drop_these(x, b[1], b[3]);
  end();
}

static void struct_bytes_that_are_wrong(void **state) {
  static const size_t sizes[] = {0, sizeof(gmlake_policy) - 1, sizeof(gmlake_policy) + 1, SIZE_MAX};
  gmlake_desc answer_desc;
  size_t i;
  (void)state;
  for (i = 0; i < 4; i++) {
    prepare_policy(4, ALL);
    p.policy.struct_bytes = sizes[i];
    lake = NULL;
    assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
    assert_null(lake);
    close_mock();
  }
  begin(4, ALL);
  assert_ok(gmlake_get_desc(lake, &answer_desc));
  assert_ptr_equal(answer_desc.policy, &p.policy);
  end();
}

/* ---- Cases and rows as tests ----------------------------------------------------------------- */

#define TESTS_MAX 256
static struct CMUnitTest tests[TESTS_MAX];
static size_t test_count;
static char names[TESTS_MAX][96];

static void add_test(const char *group, const char *what, CMUnitTestFunction function,
                     const void *row) {
  struct CMUnitTest *test = &tests[test_count];
  if (test_count == TESTS_MAX) abort();
  (void)snprintf(names[test_count], sizeof(names[0]), "%s%s%s", group, *what ? ": " : "", what);
  test->name = names[test_count++];
  test->test_func = function;
  test->initial_state = (void *)(uintptr_t)row;
}

static const struct {
  const char *name;
  CMUnitTestFunction function;
} cases[] = {
#define CASE(name) \
  { #name, name }
    CASE(piece_is_a_whole_block),
    CASE(piece_is_a_front),
    CASE(piece_is_a_middle),
    CASE(piece_is_an_end),
    CASE(piece_of_two_tags),
    CASE(piece_of_three_blocks),
    CASE(piece_is_larger_than_the_request),
    CASE(stitch_of_two_in_the_plans_order),
    CASE(stitch_of_three_with_partial_ends),
    CASE(stitch_of_adjacent_pieces),
    CASE(stitch_of_as_many_as_there_is_room_for),
    CASE(views_are_written_over),
    CASE(window_is_reused_by_its_number),
    CASE(window_is_larger_than_the_request),
    CASE(window_waits_for_its_pieces),
    CASE(growth_alone),
    CASE(growth_behind_pieces),
    CASE(growth_behind_a_partial_piece),
    CASE(growth_into_gaps),
    CASE(growth_around_quarantined_slots),
    CASE(state_0_is_the_built_in_policy),
    CASE(state_5_is_asked_about_thrice),
    CASE(state_5_then_served_after_waiting),
    CASE(state_5_then_served_after_returning_memory),
    CASE(state_5_then_the_built_in_policy),
    CASE(state_5_and_a_wait_that_fails),
    CASE(state_0_where_addresses_lacked),
    CASE(state_5_and_the_first_of_two_failures),
    CASE(state_5_and_a_failure_before_the_device_is_lost),
    CASE(growth_beyond_a_limit),
    CASE(growth_beyond_the_device),
    CASE(growth_beyond_the_addresses),
    CASE(growth_that_the_driver_refuses),
    CASE(stitch_beyond_the_addresses),
    CASE(former_is_kept_and_reused),
    CASE(former_of_a_block_with_partial_ends),
    CASE(former_that_cannot_be_mapped),
    CASE(former_without_access),
    CASE(former_without_host_memory),
    CASE(former_that_cannot_be_undone),
    CASE(former_that_loses_the_device),
    CASE(former_is_trimmed_while_the_front_is_live),
    CASE(former_is_evicted_while_the_front_is_live),
    CASE(former_is_counted_by_stitch_free),
    CASE(former_without_addresses),
    CASE(request_is_shown),
    CASE(requests_that_are_not_shown),
    CASE(buffers_are_not_asked_about),
    CASE(alignment_is_kept),
    CASE(exclusive_gets_whole_chunks),
    CASE(no_stitch_gets_one_piece),
    CASE(no_grow_gets_what_is_there),
    CASE(no_grow_returns_nothing),
    CASE(small_requests_are_not_stitched),
    CASE(pools_are_shown_apart),
    CASE(captures_are_served),
    CASE(other_streams_memory_is_not_shown),
    CASE(pending_frees_are_not_shown),
    CASE(guards_lie_behind_windows),
    CASE(fills_reach_all_of_a_block),
    CASE(handler_is_asked_behind_the_policy),
    CASE(view_has_the_blocks_by_address),
    CASE(view_has_the_windows_by_last_use),
    CASE(wrong_drop_answer_to_the_built_in_policy),
    CASE(wrong_pieces_that_are_too_large),
    CASE(evict_is_asked_before_windows_are_mapped),
    CASE(evict_is_not_asked_without_host_memory),
    CASE(evict_drops_windows_of_a_single_stream),
    CASE(evict_has_the_only_say),
    CASE(evict_drops_a_window_of_the_plans_pieces),
    CASE(evict_that_the_driver_refuses),
    CASE(no_keeps_blocks_apart),
    CASE(yes_joins_blocks),
    CASE(yes_beside_no),
    CASE(apart_blocks_are_taken_together),
    CASE(new_memory_stays_apart),
    CASE(apart_blocks_outlive_sweeps),
    CASE(apart_windows),
    CASE(apart_pending_blocks),
    CASE(apart_pools),
    CASE(apart_in_captures),
    CASE(apart_blocks_in_a_streams_run),
    CASE(apart_chunks_are_stitched),
    CASE(apart_parts_of_a_chunk_are_trimmed),
    CASE(apart_parts_of_a_chunk_serve_another_pool),
    CASE(apart_parts_of_a_chunk_are_made_whole),
    CASE(apart_parts_of_a_chunk_that_stay),
    CASE(growth_beside_apart_memory),
    CASE(apart_pieces_of_a_failed_stitch),
    CASE(choose_calls_the_lake),
    CASE(choose_calls_a_lake_without_locks),
    CASE(evict_calls_the_lake),
    CASE(coalesce_calls_the_lake),
    CASE(coalesce_in_the_handler),
    CASE(choose_uses_another_lake),
    CASE(another_thread_frees_during_choose),
    CASE(another_thread_frees_around_a_former),
    CASE(another_thread_frees_beside_a_former),
    CASE(another_thread_allocates_during_evict),
    CASE(another_thread_allocates_during_choose),
    CASE(another_thread_allocates_during_coalesce),
    CASE(another_thread_frees_the_block_during_coalesce),
    CASE(device_is_lost_during_choose),
    CASE(device_is_lost_during_evict),
    CASE(device_is_lost_during_coalesce),
    CASE(any_functions_may_be_missing),
    CASE(single_threaded_lakes_ask_too),
    CASE(struct_bytes_that_are_wrong),
    CASE(windows_that_do_not_suit_are_refused),
    CASE(pieces_of_a_terabyte_are_too_large),
    CASE(formers_need_addresses),
    CASE(a_device_lost_before_evict_is_asked),
};

int main(void) {
  size_t i;
  for (i = 0; i < sizeof(cases) / sizeof(cases[0]); i++)
    add_test(cases[i].name, "", cases[i].function, NULL);
  for (i = 0; i < sizeof(wrongs) / sizeof(wrongs[0]); i++)
    add_test("wrong plan", wrongs[i].what, wrong_plan, &wrongs[i]);
  for (i = 0; i < sizeof(wrong_drops) / sizeof(wrong_drops[0]); i++)
    add_test("wrong drop", wrong_drops[i].what, wrong_drop_answer, &wrong_drops[i]);
  return _cmocka_run_group_tests("policy", tests, test_count, NULL, NULL);
}
