/* desc.policy, where it takes C: blocks of GiB, another lake in a callback, and the table itself.
   What becomes of plans is rows: tests/play/policy_rows.h, and paper_rows.h for the policy of the
   paper; what others do while a policy thinks is in meanwhile_rows.h. */
#include "fixture.h"
#include "policy_paper.h"

/* ---- The policy ------------------------------------------------------------------------------ */

static struct script {
  gmlake_policy policy;
  gmlake_plan plan; /* the answer to the next question, but for pieces and capacity */
  gmlake_piece pieces[2];
  size_t chosen;
  gmlake *other; /* is used meanwhile */
} p;

static void on_choose(void *user, const gmlake_view *view, const gmlake_request *request,
                      gmlake_plan *plan) {
  gmlake_piece *pieces = plan->pieces;
  const size_t capacity = plan->piece_capacity;
  void *ptr = NULL;
  (void)view;
  if (user != &p || !request->number || p.plan.piece_count > capacity) abort();
  p.chosen++;
  if (p.other && (gmlake_alloc(p.other, C, LEGACY, &ptr) || gmlake_free(p.other, ptr, LEGACY)))
    abort();
  *plan = p.plan;
  plan->pieces = pieces;
  plan->piece_capacity = capacity;
  memcpy(pieces, p.pieces, p.plan.piece_count * sizeof(gmlake_piece));
  memset(&p.plan, 0, sizeof(p.plan));
}

static void use_policy(void) {
  memset(&p, 0, sizeof(p));
  p.policy.struct_bytes = sizeof(p.policy);
  p.policy.user = &p;
  p.policy.choose = on_choose;
  desc.policy = &p.policy;
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

static void plan_growth(size_t bytes) {
  plan(4);
  p.plan.grow_bytes = bytes;
}

static void plan_reuse(uint64_t number) {
  plan(1);
  p.plan.window = number;
}

/* Served as planned. */
static void *take_planned(size_t bytes) {
  const uint64_t before = stats().state_count[p.plan.state - 1];
  const unsigned state = p.plan.state;
  void *ptr = take(bytes);
  assert_int_equal(stats().state_count[state - 1], before + 1);
  return ptr;
}

/* ---- Blocks of GiB --------------------------------------------------------------------------- */

/* A device of so many GiB, with no memory behind them, and chunks of one. */
static void begin_large(size_t gib_count) {
  prepare_books(gib_count * K * K * K, 0, GMLAKE_MOCK_COSTS_ALONE);
  use_policy();
  desc.chunk_bytes = K * K * K;
  open_lake();
}

/* Blocks with too much to spare. */
CASE(wrong_pieces_that_are_too_large) {
  const size_t gib = K * K * K;
  void *x, *y;
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
  finish();
}

/* A plan of more than half of what an arena can number, which is not much too large for the
   request. About what is asked for then no policy is asked. */
CASE(pieces_of_a_terabyte_are_too_large) {
  const size_t gib = K * K * K;
  begin_large(1500);
  plan_growth(1025 * gib);
  assert_error(try_on(1023 * gib, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text, "the pieces are too large");
  assert_int_equal(stats().reserved_bytes, 0);
  drop(take(1025 * gib));
  assert_int_equal(p.chosen, 1);
  assert_int_equal(stats().reserved_bytes, 1025 * gib);
  finish();
}

/* ---- Another lake is another matter ---------------------------------------------------------- */

CASE(choose_uses_another_lake) {
  gmlake_desc plain;
  prepare(8);
  use_policy();
  open_lake();
  memset(&plain, 0, sizeof(plain));
  plain.backend = mock;
  plain.chunk_bytes = C;
  assert_ok(gmlake_create(&plain, &p.other));
  plan_growth(C);
  drop(take_planned(C));
  assert_ok(gmlake_destroy(p.other));
  finish();
}

/* ---- The table itself ------------------------------------------------------------------------ */

CASE(struct_bytes_that_are_wrong) {
  static const size_t sizes[] = {0, sizeof(gmlake_policy) - 1, sizeof(gmlake_policy) + 1, SIZE_MAX};
  gmlake_desc answer_desc;
  size_t i;
  for (i = 0; i < 4; i++) {
    prepare(4);
    use_policy();
    p.policy.struct_bytes = sizes[i];
    lake = NULL;
    assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
    assert_null(lake);
    close_mock();
  }
  prepare(4);
  use_policy();
  open_lake();
  assert_ok(gmlake_get_desc(lake, &answer_desc));
  assert_ptr_equal(answer_desc.policy, &p.policy);
  finish();
}

CASE(the_papers_settings_and_its_authors) {
  gmlake_paper paper;
  gmlake_paper_init(&paper);
  assert_int_equal(paper.chunk_bytes, 2048 * K);
  assert_int_equal(paper.limit_bytes, 128 * 1024 * K);
  assert_true(paper.keeps_former && !paper.coalesces && !paper.allocates_whole);
  gmlake_paper_init_official(&paper);
  assert_int_equal(paper.limit_bytes, 512 * 1024 * K);
  assert_int_equal(paper.limit_reading, GMLAKE_PAPER_LIMIT_REQUEST);
  assert_true(!paper.keeps_former && paper.coalesces && paper.allocates_whole);
}

int main(void) { return run_cases("policy"); }
