/* desc.policy, where it takes C: policies that call the lake, race with other threads or lose the
   device, blocks of GiB, and the table itself. What becomes of plans is rows: tests/play/
   policy_rows.h, and paper_rows.h for the policy of the paper.

   In the drawings a chunk stands between two bars, live blocks are capitals, free ones small
   letters. */
#include "waiters.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "patience.h"
#include "policy_paper.h"

#include <unistd.h>

#define PIECES 8
#define CHOOSE 1u
#define EVICT 2u
#define COALESCE 4u
#define ALL 7u

/* ---- The policy ------------------------------------------------------------------------------ */

static struct script {
  gmlake_policy policy;
  gmlake_plan plan; /* the answer to the next question, but for pieces and capacity */
  gmlake_piece pieces[PIECES];
  size_t chosen, evicted, freed;
  void (*hook)(void); /* what else is done in a callback */
  /* What it was shown last: */
  gmlake_view view;
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
  gmlake_piece *pieces = plan->pieces;
  const size_t capacity = plan->piece_capacity;
  if (user != &p || !request->number || p.plan.piece_count > capacity) abort();
  note_view(view);
  p.chosen++;
  if (p.hook) p.hook();
  *plan = p.plan;
  plan->pieces = pieces;
  plan->piece_capacity = capacity;
  memcpy(pieces, p.pieces, p.plan.piece_count * sizeof(gmlake_piece));
  memset(&p.plan, 0, sizeof(p.plan));
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  if (user != &p || !mapped_bytes || !out_windows) abort();
  note_view(view);
  p.evicted++;
  if (p.hook) p.hook();
  return 0;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  if (user != &p || !block->bytes) abort();
  p.freed++;
  if (p.hook) p.hook();
  return 1;
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
  desc.policy = &p.policy;
}

static void begin(size_t chunks, unsigned functions) {
  prepare_policy(chunks, functions);
  open_lake();
}

/* State 0: the policy decides nothing, as without a plan. */
static void plan(unsigned state) {
  memset(&p.plan, 0, sizeof(p.plan));
  p.plan.state = state;
}

static void add(const void *home, size_t bytes) {
  gmlake_piece *last = &p.pieces[p.plan.piece_count++];
  last->home = (void *)(uintptr_t)home;
  last->bytes = bytes;
}

static void plan_piece(unsigned state, const void *home, size_t bytes) {
  plan(state);
  add(home, bytes);
}

static void plan_two(const void *first, size_t bytes, const void *second) {
  plan_piece(3, first, bytes);
  add(second, C);
}

static void plan_growth(size_t bytes) {
  plan(4);
  p.plan.grow_bytes = bytes;
}

static void plan_reuse(uint64_t number) {
  plan(1);
  p.plan.window = number;
}

static void *at(const void *home, size_t bytes) { return (void *)((uintptr_t)home + bytes); }

/* Served as planned. */
static void *take_planned(size_t bytes) {
  const uint64_t before = stats().state_count[p.plan.state - 1];
  const unsigned state = p.plan.state;
  void *ptr = take(bytes);
  assert_int_equal(stats().state_count[state - 1], before + 1);
  return ptr;
}

/* A request that is refused, so that nothing changes: for the view that it is shown. */
static void show(void) {
  plan(3);
  assert_error(try_on(1, LEGACY), INVALID_ARGUMENT);
}

static void assert_block(size_t number, const void *home, size_t bytes) {
  assert_true(number < p.view.block_count);
  assert_ptr_equal(p.blocks[number].home, home);
  assert_int_equal(p.blocks[number].bytes, bytes);
}

/* What is written through the block lies in its pieces, in order. */
static void assert_aliases(void *ptr) {
  gmlake_allocation_info info;
  size_t offset = 0, i, n;
  assert_ok(gmlake_get_allocation(lake, ptr, &info));
  for (n = 0; n < info.bytes; n += 512) memcpy((char *)ptr + n, &n, sizeof(n));
  for (i = 0; offset < info.bytes; offset += piece(ptr, i++).bytes)
    for (n = offset; n < offset + piece(ptr, i).bytes; n += 512)
      assert_memory_equal((char *)piece(ptr, i).home + n - offset, &n, sizeof(n));
}

static void end(void) {
  p.hook = NULL;
  finish();
  (void)alarm(0);
}

/* ---- Blocks of GiB --------------------------------------------------------------------------- */

/* A device of so many GiB, with no memory behind them, and chunks of one. */
static void begin_large(size_t gib_count) {
  gmlake_mock_desc mock_desc;
  prepare_policy(4, CHOOSE);
  close_mock();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.capacity_bytes = gib_count * K * K * K;
  mock_desc.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = K * K * K;
  open_lake();
}

/* Blocks with too much to spare. */
static void wrong_pieces_that_are_too_large(void **state) {
  const size_t gib = K * K * K;
  void *x, *y;
  (void)state;
  begin_large(512);
  plan_growth(5 * gib);
  assert_error(try_on(1, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the pieces are too large");
  plan_growth(5 * gib);
  x = take_planned(5 * gib);
  plan_growth(4 * gib);
  y = take_planned(1); /* a byte less would be one too many */
  assert_int_equal(stats().active_bytes, 9 * gib);
  assert_int_equal(stats().requested_bytes, 5 * gib + 1);
  drop_these(x, y);
  plan_piece(3, x, 5 * gib);
  add(y, gib);
  drop(take_planned(6 * gib));
  plan_reuse(1);
  assert_error(try_on(1, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the window is too large");
  plan_reuse(1);
  drop(take_planned(3 * gib));
  end();
}

/* A plan of more than half of what an arena can number, which is not much too large for the
   request. About what is asked for then no policy is asked. */
static void pieces_of_a_terabyte_are_too_large(void **state) {
  const size_t gib = K * K * K;
  (void)state;
  begin_large(1500);
  plan_growth(1025 * gib);
  assert_error(try_on(1023 * gib, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the pieces are too large");
  assert_int_equal(stats().reserved_bytes, 0);
  drop(take(1025 * gib));
  assert_int_equal(p.chosen, 1);
  assert_int_equal(stats().reserved_bytes, 1025 * gib);
  end();
}

/* ---- What is freed is filled ----------------------------------------------------------------- */

static void fills_reach_all_of_a_block(void **state) {
  void *b[4], *x;
  size_t i;
  (void)state;
  prepare_policy(8, CHOOSE);
  desc.flags = GMLAKE_FILL;
  open_lake();
  lay(b, 4);
  drop_these(b[0], b[2]);
  memset(b[1], 1, C);
  plan_two(b[2], C, b[0]);
  x = take_planned(100);
  memset(x, 7, 2 * C);
  drop_these(x, b[1]);
  for (i = 0; i < 3 * C; i += 100) assert_int_equal(((unsigned char *)b[0])[i], GMLAKE_FILL_FREE);
  plan_piece(2, b[0], C);
  p.plan.keeps_former = 1;
  x = take_planned(C);
  assert_int_equal(((unsigned char *)b[1])[0], GMLAKE_FILL_FREE);
  drop_these(x, b[3]);
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

/* | A | B | C |, then a and c are freed and a window is made of both: all functions are asked. */
static void *meet_all(void **b, void (*hook)(void)) {
  lay(b, 3);
  live_block = b[1];
  p.hook = hook;
  drop_these(b[0], b[2]);
  if (p.policy.choose) plan_two(b[0], C, b[2]);
  return take(2 * C);
}

static void call_the_lake(unsigned functions, unsigned flags) {
  void *b[3], *ptr;
  prepare_policy(12, functions);
  desc.flags = flags;
  open_lake();
  live_pool = open_pool(0);
  live_buffer = open_buffer(2);
  refusals = 0;
  ptr = meet_all(b, call_everything);
  assert_true(refusals >= 17 && p.chosen + p.evicted + p.freed);
  p.hook = NULL;
  drop_these(ptr, b[1]);
  step(gmlake_buffer_destroy(lake, live_buffer, LEGACY));
  step(gmlake_pool_destroy(lake, live_pool));
  end();
}

static void policies_call_the_lake(void **state) {
  (void)state;
  call_the_lake(CHOOSE, 0);
  call_the_lake(CHOOSE, GMLAKE_SINGLE_THREADED);
  call_the_lake(EVICT, 0);
  call_the_lake(COALESCE, 0);
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
  plan_growth(C);
  drop(take_planned(C));
  assert_ok(gmlake_destroy(second_lake));
  end();
}

/* ---- Other threads while a policy thinks ----------------------------------------------------- */

static void *others[2]; /* blocks that they may free */

static void free_meanwhile(void *one, void *two) {
  memset(others, 0, sizeof(others));
  others[0] = one;
  others[1] = two;
}

static void *free_others(void *argument) {
  gmlake_stats now;
  size_t i;
  (void)argument;
  now.struct_bytes = 0;
  ANSWERED(gmlake_get_stats(lake, &now));
  for (i = 0; i < 2; i++) {
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
  free_meanwhile(b[1], b[2]);
  p.hook = wait_for_frees;
  plan_piece(2, at(b[0], C / 2), 2 * C);
  x = take_planned(2 * C);
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
  free_meanwhile(b[0], b[3]);
  p.hook = wait_for_frees;
  plan_piece(2, b[1], C);
  p.plan.keeps_former = 1;
  x = take_planned(C);
  assert_ptr_equal(x, b[1]);
  show();
  assert_int_equal(p.windows[0].bytes, 2 * C);
  assert_block(0, b[0], C);
  assert_block(1, b[2], 2 * C);
  drop_these(x, b[4]);
  end();
}

static void free_in_evict(void) {
  if (p.evicted) wait_for_frees();
}

static void another_thread_frees_beside_a_former(void **state) {
  void *b[6], *x;
  (void)state;
  begin(6, CHOOSE | EVICT);
  lay(b, 6);
  drop_these(b[1], b[2]);
  free_meanwhile(b[0], b[3]);
  p.evicted = 0;
  p.hook = free_in_evict;
  plan_piece(2, b[1], C);
  p.plan.keeps_former = 1;
  x = take_planned(C);
  assert_ptr_equal(x, b[1]);
  show();
  assert_int_equal(p.view.window_count, 1);
  assert_int_equal(p.windows[0].piece_count, 2);
  drop(x);
  plan_reuse(1);
  x = take_planned(512);
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

static void another_thread_allocates_meanwhile(void **state) {
  unsigned functions;
  (void)state;
  for (functions = CHOOSE; functions <= EVICT; functions++) {
    void *b[3], *x;
    begin(8, functions);
    x = meet_all(b, start_allocating);
    assert_int_equal(pthread_join(allocating, NULL), 0);
    drop_these(x, b[1]);
    end();
  }
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
  free_meanwhile(x, NULL);
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

static void device_is_lost_meanwhile(void **state) {
  unsigned functions;
  (void)state;
  for (functions = CHOOSE; functions <= COALESCE; functions *= 2) {
    void *b[6], *ptr = &ptr;
    gmlake_stream s;
    uint64_t calls;
    prepare_policy(8, functions);
    use_faults();
    open_lake();
    s = open_stream();
    lay(b, 6);
    drop_these(b[0], b[2]);
    drop_on(take_on(C, s), s); /* two streams: frees record events */
    drop_on(take_on(C, NONE), NONE);
    free_meanwhile(b[4], NULL);
    p.hook = lose_device;
    if (functions == CHOOSE) plan_two(b[0], C, b[2]);
    if (functions == COALESCE)
      assert_error(gmlake_free(lake, b[1], LEGACY), DEVICE_LOST);
    else
      assert_error(gmlake_alloc(lake, 2 * C, LEGACY, &ptr), DEVICE_LOST);
    assert_true(!p.hook && (functions == COALESCE || !ptr));
    assert_ok(gmlake_check(lake));
    assert_int_equal(stats().live_count, 3);
    calls = census().call_count;
    assert_error(gmlake_alloc(lake, 1, LEGACY, &ptr), DEVICE_LOST);
    assert_null(ptr);
    assert_int_equal(census().call_count, calls);
    assert_error(gmlake_destroy(lake), DEVICE_LOST);
    close_mock();
    (void)alarm(0);
  }
}

/* ---- The table itself ------------------------------------------------------------------------ */

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

static void the_papers_settings_and_its_authors(void **state) {
  gmlake_paper paper;
  (void)state;
  gmlake_paper_init(&paper);
  assert_int_equal(paper.chunk_bytes, 2048 * K);
  assert_int_equal(paper.limit_bytes, 128 * 1024 * K);
  assert_true(paper.keeps_former && !paper.coalesces && !paper.allocates_whole);
  gmlake_paper_init_official(&paper);
  assert_int_equal(paper.limit_bytes, 512 * 1024 * K);
  assert_int_equal(paper.limit_reading, GMLAKE_PAPER_LIMIT_REQUEST);
  assert_true(!paper.keeps_former && paper.coalesces && paper.allocates_whole);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(wrong_pieces_that_are_too_large),
      cmocka_unit_test(pieces_of_a_terabyte_are_too_large),
      cmocka_unit_test(fills_reach_all_of_a_block),
      cmocka_unit_test(policies_call_the_lake),
      cmocka_unit_test(coalesce_in_the_handler),
      cmocka_unit_test(choose_uses_another_lake),
      cmocka_unit_test(another_thread_frees_during_choose),
      cmocka_unit_test(another_thread_frees_around_a_former),
      cmocka_unit_test(another_thread_frees_beside_a_former),
      cmocka_unit_test(another_thread_allocates_meanwhile),
      cmocka_unit_test(another_thread_allocates_during_coalesce),
      cmocka_unit_test(another_thread_frees_the_block_during_coalesce),
      cmocka_unit_test(device_is_lost_meanwhile),
      cmocka_unit_test(struct_bytes_that_are_wrong),
      cmocka_unit_test(the_papers_settings_and_its_authors),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
