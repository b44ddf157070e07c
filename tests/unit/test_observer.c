/* desc.observer, beside the rows of tests/play/observer_rows.h and the judge there: labels of
   buffers and reasons of policies, observers and host allocators that call the lake. */
#include "fixture.h"
#include "patience.h"

#include "every_call.h"

#include <unistd.h>

static gmlake_step last; /* that was told */

static void note(void *user, const gmlake_step *event) {
  (void)user;
  last = *event;
}

static void prepare_told(size_t chunks) {
  (void)alarm(patience());
  prepare(chunks);
  desc.observer.fn = note;
}

CASE(buffers_labels_and_pools_are_told) {
  gmlake_buffer_desc growing = buffer_desc(C);
  gmlake_buffer *buffer;
  prepare_told(8);
  open_lake();
  growing.pool = open_pool(0);
  growing.label = "cache";
  step(gmlake_buffer_create(lake, &growing, &buffer));
  assert_int_equal(last.kind, GMLAKE_STEP_BUFFER);
  assert_string_equal(last.label, "cache");
  assert_ptr_equal(last.pool, growing.pool);
  assert_int_equal(last.asked_bytes, C);
  finish();
}

static void choose_to_grow(void *user, const gmlake_view *view, const gmlake_request *wanted,
                           gmlake_plan *plan) {
  (void)user, (void)view, (void)wanted;
  plan->state = 4;
  plan->grow_bytes = C;
  plan->reason = "because";
}

CASE(a_policys_reason_is_told) {
  gmlake_policy policy;
  memset(&policy, 0, sizeof(policy));
  policy.struct_bytes = sizeof(policy);
  policy.choose = choose_to_grow;
  prepare_told(8);
  desc.policy = &policy;
  open_lake();
  (void)take(C);
  assert_int_equal(last.kind, GMLAKE_STEP_ALLOC);
  assert_string_equal(last.reason, "because");
  finish();
}

/* ---- Observers and host allocators that call the lake ---------------------------------------- */

static size_t next_row, refused;

/* One more call of the table at a time, in the middle of a call of the lake's. */
static void call_the_lake(void) {
  gmlake_error_info info;
  assert_error(every_rows[next_row].call(), INVALID_ARGUMENT);
  assert_ok(gmlake_get_last_error(lake, &info));
  assert_error(info.result, INVALID_ARGUMENT);
  assert_string_equal(info.text,
                      "called from the observer or the host allocator: return from it first");
  next_row = (next_row + 1) % EVERY_ROWS;
  refused++;
}

static int is_calling;

static void call_from_observer(void *user, const gmlake_step *event) {
  (void)user, (void)event;
  if (is_calling) call_the_lake();
}

static void *call_from_malloc(void *user, size_t bytes) {
  if (is_calling) call_the_lake();
  return host_malloc(user, bytes);
}

static void call_from_free(void *user, void *ptr) {
  if (is_calling) call_the_lake();
  host_free(user, ptr);
}

static void trade_until_all_were_refused(void) {
  void *small;
  refused = 0;
  open_lake();
  every_open();
  is_calling = 1;
  while (refused < EVERY_ROWS) {
    gmlake_alloc_desc wanted = request(C, 0, NULL);
    wanted.user_data = 1; /* so that a note is allocated, and freed */
    assert_ok(gmlake_alloc_with(lake, &wanted, LEGACY, &small));
    assert_ok(gmlake_free(lake, small, LEGACY));
  }
  is_calling = 0;
  every_close();
  finish();
}

CASE(observers_that_call_get_an_answer) {
  prepare_told(8);
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  prepare_told(8);
  desc.flags = GMLAKE_SINGLE_THREADED;
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  (void)alarm(0);
}

CASE(host_allocators_that_call_get_an_answer) {
  prepare_told(8);
  memset(&desc.observer, 0, sizeof(desc.observer));
  desc.host.malloc_fn = call_from_malloc;
  trade_until_all_were_refused();
  prepare_told(8);
  memset(&desc.observer, 0, sizeof(desc.observer));
  desc.host.free_fn = call_from_free;
  trade_until_all_were_refused();
  (void)alarm(0);
}

int main(void) { return run_cases("observer"); }
