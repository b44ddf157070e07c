/* Host memory lacks in the middle of a call: a lake is left so many spare records of blocks and
   nothing else, for each number in turn. A call then succeeds or answers OUT_OF_HOST_MEMORY, and
   nothing is lost: the same call succeeds when there is memory again. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#define MOST 24 /* spare records; more are enough for every call here */

static gmlake_stream A, B;
static gmlake_buffer *buffer, *other_buffer;
static void *kept[64];
static gmlk_records aside;

/* Leaves the lake so many spare records, and no host memory from then on. */
static void make_scarce(size_t left) {
  assert_true(gmlk_records_reserve(&lake->records, &lake->host, MOST));
  gmlk_records_hold(&lake->records, &aside, lake->records.unused_count - left);
  host_fail_in = host_fails_on = 1;
}

static void make_plenty(void) {
  host_fail_in = host_fails_on = 0;
  gmlk_records_return(&lake->records, &aside);
  memset(&aside, 0, sizeof(aside));
  assert_ok(gmlake_check(lake));
}

typedef struct scene {
  void (*build)(void);
  gmlake_result (*call)(void);
  void (*undo)(void); /* what a call that succeeded did */
} scene;

static void play(const scene *s) {
  size_t left, failed = 0;
  for (left = 0; left < MOST; left++) {
    gmlake_result result;
    s->build();
    make_scarce(left);
    result = s->call();
    make_plenty();
    if (result) {
      assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      failed++;
      assert_ok(s->call());
      assert_ok(gmlake_check(lake));
    }
    s->undo();
    assert_ok(gmlake_check(lake));
    (void)gmlake_destroy(lake);
    close_mock();
  }
  assert_true(failed > 0);
  assert_true(failed < MOST);
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

static void *block;

static gmlake_result take_block(size_t bytes, unsigned flags, gmlake_stream stream) {
  gmlake_alloc_desc wanted = request(bytes, flags, NULL);
  return gmlake_alloc_with(lake, &wanted, stream, &block);
}

static void drop_block(void) { drop_on(block, A); }

static void open_scene(size_t chunks) {
  start_with_faults(chunks);
  A = open_stream();
  B = open_stream();
  drop_on(take_on(512, A), A);
  drop_on(take_on(512, B), B);
}

/* New chunks behind a slot that is given up: the first call has made all tables long enough. */
static void build_growth(void) {
  open_scene(64);
  drop_on(take_on(20 * C, A), A);
  (void)trim_to(0);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  drop_on(take_on(2 * C, A), A); /* by a later rung of the ladder */
  (void)trim_to(0);
  assert_int_equal(stats().quarantined_bytes, C);
}

static gmlake_result grow_block(void) { return take_block(4 * C, GMLAKE_NO_STITCH, A); }

static void growth(void **state) {
  static const scene s = {build_growth, grow_block, drop_block};
  (void)state;
  play(&s);
}

/* While the planner asks for memory in vain, another thread takes a record. */
static gmlake_result create_nothing(void *user, size_t bytes, unsigned handle_types,
                                    uint64_t *out_handle, int *out_code) {
  void *small = NULL;
  (void)user, (void)bytes, (void)handle_types, (void)out_handle;
  faulty.create = mock->create;
  (void)gmlake_alloc(lake, 512, A, &small);
  *out_code = 2;
  return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
}

static void build_borrow(void) {
  void *hole;
  open_scene(8);
  hole = take_on(2 * C, A);
  block = take_on(3 * C, B);
  (void)take_on(2 * C, A);
  drop_on(hole, A);
  gmlake_mock_stream_hold(mock, B);
  drop_on(block, B);
  faulty.create = create_nothing;
}

static gmlake_result borrow_block(void) { return take_block(3 * C, GMLAKE_NO_STITCH, A); }

static void borrowing(void **state) {
  static const scene s = {build_borrow, borrow_block, drop_block};
  (void)state;
  play(&s);
}

/* ---- Policies -------------------------------------------------------------------------------- */

static gmlake_plan planned;
static gmlake_piece planned_pieces[32];

static void choose_planned(void *user, const gmlake_view *view, const gmlake_request *asked,
                           gmlake_plan *plan) {
  gmlake_piece *pieces = plan->pieces;
  size_t capacity = plan->piece_capacity;
  (void)user, (void)view, (void)asked;
  *plan = planned;
  plan->pieces = pieces;
  plan->piece_capacity = capacity;
  memcpy(pieces, planned_pieces, planned.piece_count * sizeof(gmlake_piece));
}

static gmlake_policy policy = {sizeof(gmlake_policy), NULL, choose_planned, NULL, NULL};

static void open_asked(size_t chunks) {
  memset(&planned, 0, sizeof(planned));
  prepare(chunks);
  desc.policy = &policy;
  use_faults();
  open_lake();
  A = open_stream();
  drop_on(take_on(512, A), A);
}

static void build_planned_growth(void) {
  open_asked(64);
  drop_on(take_on(20 * C, A), A);
  (void)trim_to(0);
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 0);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  assert_error(try_on(2 * C, A), DRIVER);
  planned.state = 4;
  planned.grow_bytes = 4 * C;
}

static void planned_growth(void **state) {
  static const scene s = {build_planned_growth, grow_block, drop_block};
  (void)state;
  play(&s);
}

/* So much that the tables of slots have to grow. */
static void build_large_growth(void) {
  open_asked(256);
  planned.state = 4;
  planned.grow_bytes = 200 * C;
}

static gmlake_result grow_much(void) { return take_block(200 * C, GMLAKE_NO_STITCH, A); }

static void planned_large_growth(void **state) {
  gmlake_result result;
  long n;
  (void)state;
  for (n = 1;; n++) { /* each allocation in turn */
    build_large_growth();
    host_fail_in = n;
    result = grow_much();
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (!result) drop_block();
    finish();
    if (!result) break;
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  }
  assert_true(n > 3); /* of the view, the slots, what lists them */
}

/* A window that is used again. */
static void build_reuse(void) {
  size_t i;
  open_asked(16);
  drop_on(take_on(10 * C, NONE), NONE);
  for (i = 0; i < 5; i++) kept[i] = take_on(C, A);
  drop_on(kept[1], A);
  drop_on(kept[3], A);
  planned.state = 3;
  planned.piece_count = 2;
  for (i = 0; i < 2; i++) {
    planned_pieces[i].home = kept[1 + 2 * i];
    planned_pieces[i].bytes = C;
  }
  drop_on(take_on(2 * C, A), A);
  memset(&planned, 0, sizeof(planned));
  planned.state = 1;
  planned.window = lake->home.windows.number;
}

static gmlake_result reuse_window(void) { return take_block(2 * C, 0, A); }

static void planned_reuse(void **state) {
  static const scene s = {build_reuse, reuse_window, drop_block};
  (void)state;
  play(&s);
}

/* The plan is not given up for another way when host memory was short for a moment. */
static void planned_reuse_fails_as_a_whole(void **state) {
  (void)state;
  build_reuse();
  make_scarce(2);
  host_fails_on = 0;
  assert_int_equal(reuse_window(), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  assert_int_equal(host_fail_in, 0);
  make_plenty();
  assert_ok(reuse_window());
  drop_block();
  (void)gmlake_destroy(lake);
  close_mock();
}

/* A window of so many pieces that the tables of spans have to grow. */
static void build_stitch(void) {
  size_t i;
  open_asked(64);
  drop_on(take_on(48 * C, NONE), NONE);
  for (i = 0; i < 48; i++) kept[i] = take_on(C, A);
  for (i = 0; i < 48; i += 2) drop_on(kept[i], A);
  planned.state = 3;
  planned.piece_count = 24;
  for (i = 0; i < 24; i++) {
    planned_pieces[i].home = kept[2 * i];
    planned_pieces[i].bytes = C;
  }
  gmlk_host_free(&lake->host, lake->home.scratch, gmlk_scratch_bytes(lake->home.scratch_slots));
  lake->home.scratch = NULL; /* as a lack of host memory leaves it */
}

static gmlake_result stitch_many(void) { return take_block(24 * C, 0, A); }

static void planned_stitch(void **state) {
  (void)state;
  build_stitch();
  host_fail_in = 2;
  assert_int_equal(stitch_many(), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  assert_int_equal(host_fail_in, 0);
  assert_ok(gmlake_check(lake));
  assert_ok(stitch_many());
  assert_int_equal(piece_count(block), 24);
  (void)gmlake_destroy(lake);
  close_mock();
}

/* A former cannot even be planned: there is none, and the block is served. */
static void build_former(void) {
  open_asked(16);
  kept[0] = take_on(4 * C, A);
  (void)take_on(512, A);
  drop_on(kept[0], A);
  planned.state = 2;
  planned.piece_count = 1;
  planned.keeps_former = 1;
  planned_pieces[0].home = kept[0];
  planned_pieces[0].bytes = C;
}

static void planned_former(void **state) {
  gmlake_result result;
  unsigned unplanned = 0;
  long n;
  (void)state;
  build_former();
  assert_ok(take_block(C, 0, A));
  assert_int_equal(stats().window_count, 1);
  planned.state = 0;
  drop_block();
  (void)gmlake_destroy(lake);
  close_mock();
  for (n = 1; n < 6; n++) { /* what is made for it may all lack */
    build_former();
    gmlk_host_free(&lake->host, lake->home.scratch, gmlk_scratch_bytes(lake->home.scratch_slots));
    lake->home.scratch = NULL;
    host_fail_in = n;
    result = take_block(C, 0, A);
    unplanned += !result && !lake->home.scratch;
    assert_int_equal(stats().window_count, !result && !!host_fail_in);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    (void)gmlake_destroy(lake);
    close_mock();
  }
  assert_int_equal(unplanned, 1);
}

/* A policy that serves nothing: what is returned for it needs records, too. */
static void build_nothing(void) {
  open_asked(8);
  drop_on(take_on(2 * C, A), A);
  planned.state = 5;
}

static void planned_nothing(void **state) {
  (void)state;
  build_nothing();
  make_scarce(4);
  assert_int_equal(take_block(C, 0, A), GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  make_plenty();
  assert_int_equal(take_block(C, 0, A), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  finish();
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void build_regrowth(void) {
  open_scene(16);
  buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 4 * C, A));
  other_buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 0, A));
}

static gmlake_result regrow(void) { return gmlake_buffer_resize(lake, buffer, 4 * C, A); }

static void shrink(void) { step(gmlake_buffer_resize(lake, buffer, 0, A)); }

static void growing_again(void **state) {
  static const scene s = {build_regrowth, regrow, shrink};
  (void)state;
  play(&s);
}

static void build_buffer(void) {
  open_scene(16);
  buffer = open_buffer(8);
}

static gmlake_result create_another(void) {
  gmlake_buffer_desc wanted = buffer_desc(8 * C);
  return gmlake_buffer_create(lake, &wanted, &other_buffer);
}

static void addresses(void **state) {
  size_t left;
  (void)state;
  for (left = 0; left < 2; left++) {
    build_buffer();
    make_scarce(left);
    assert_int_equal(create_another(), GMLAKE_ERROR_OUT_OF_HOST_MEMORY); /* the last for itself */
    make_plenty();
    assert_ok(create_another());
    finish();
  }
}

/* ---- Records of lakes, pools and blocks ------------------------------------------------------ */

static void a_fifth_pool(void **state) {
  gmlake_pool *pool;
  gmlake_result result;
  long n;
  (void)state;
  start(8);
  for (n = 1; n < 4; n++) (void)open_pool(0);
  for (n = 1;; n++) {
    host_fail_in = n;
    result = gmlake_pool_create(lake, NULL, &pool);
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (!result) break;
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  }
  assert_true(n > 4);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(growth),
      cmocka_unit_test(borrowing),
      cmocka_unit_test(planned_growth),
      cmocka_unit_test(planned_large_growth),
      cmocka_unit_test(planned_reuse),
      cmocka_unit_test(planned_stitch),
      cmocka_unit_test(planned_reuse_fails_as_a_whole),
      cmocka_unit_test(planned_former),
      cmocka_unit_test(planned_nothing),
      cmocka_unit_test(growing_again),
      cmocka_unit_test(addresses),
      cmocka_unit_test(a_fifth_pool),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
