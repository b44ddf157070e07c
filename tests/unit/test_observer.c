/* desc.observer, beside the rows of tests/play/observer_rows.h and the judge there: labels of
   buffers and reasons of policies, threads that are told in order, observers and host allocators
   that call the lake. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "patience.h"

#include "every_call.h"
#include "policy_paper.h"

#include <pthread.h>
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

static void buffers_labels_and_pools_are_told(void **state) {
  gmlake_buffer_desc growing = buffer_desc(C);
  gmlake_buffer *buffer;
  (void)state;
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

static void a_policys_reason_is_told(void **state) {
  gmlake_policy policy;
  (void)state;
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

/* ---- Threads --------------------------------------------------------------------------------- */

#define HELD 512
#define REQUESTS 65536

/* What the steps add up to. They come one at a time, whatever threads there are. */
static struct tally {
  uint64_t count[GMLAKE_STEP_END + 1], newest, answered, grown, trimmed;
  unsigned char is_known[REQUESTS]; /* attempts that are over */
  struct {
    uint64_t address;
    size_t bytes;
  } held[HELD];
  size_t held_count, held_bytes;
  const char *broken;
} t;

static void tally_alloc(const gmlake_step *e) {
  size_t i;
  if (!e->request || e->request >= REQUESTS || t.is_known[e->request]++)
    t.broken = "an attempt without a number of its own";
  if (e->request > t.newest) t.newest = e->request;
  t.answered++;
  if (!e->address) return;
  for (i = 0; i < t.held_count; i++)
    if (t.held[i].address == e->address) t.broken = "an address is given away twice";
  if (t.held_count == HELD) abort();
  t.held[t.held_count].address = e->address;
  t.held[t.held_count++].bytes = e->bytes;
  t.held_bytes += e->bytes;
}

static void tally_free(const gmlake_step *e) {
  size_t i = 0;
  while (i < t.held_count && t.held[i].address != e->address) i++;
  if (i == t.held_count || t.held[i].bytes != e->bytes) {
    t.broken = "a free of what is not held";
    return;
  }
  t.held_bytes -= e->bytes;
  t.held[i] = t.held[--t.held_count];
}

static void tally(void *user, const gmlake_step *e) {
  (void)user;
  t.count[e->kind] += e->kind != GMLAKE_STEP_ALLOC || e->address;
  if (e->kind == GMLAKE_STEP_ALLOC) tally_alloc(e);
  if (e->kind == GMLAKE_STEP_FREE) tally_free(e);
  if (e->kind == GMLAKE_STEP_GROW) t.grown += e->bytes;
  if (e->kind == GMLAKE_STEP_TRIM) t.trimmed += e->bytes;
  if (t.grown - t.trimmed != e->reserved_bytes) t.broken = "reserved memory does not add up";
  if (t.held_bytes != e->active_bytes) t.broken = "active memory does not add up";
}

static void assert_adds_up(void) {
  const gmlake_stats now = stats();
  if (t.broken) fail_msg("%s", t.broken);
  assert_int_equal(t.answered, t.newest);
  assert_int_equal(t.count[GMLAKE_STEP_ALLOC], now.allocation_count);
  assert_int_equal(t.count[GMLAKE_STEP_FREE], now.free_count);
  assert_int_equal(t.count[GMLAKE_STEP_SPLIT], now.split_count);
  assert_int_equal(t.count[GMLAKE_STEP_STITCH], now.stitch_count);
  assert_int_equal(t.count[GMLAKE_STEP_REUSE], now.stitch_reuse_count);
  assert_int_equal(t.count[GMLAKE_STEP_EVICT], now.stitch_evict_count);
  assert_int_equal(t.count[GMLAKE_STEP_WAIT], now.stream_wait_count + now.host_wait_count);
  assert_int_equal(t.grown - t.trimmed, now.reserved_bytes);
  assert_int_equal(t.held_count, 0);
}

static gmlake_policy policy;
static gmlake_paper paper;

static size_t evict_all(void *user, const gmlake_view *view, size_t mapped_bytes, uint64_t *out) {
  size_t i;
  (void)user;
  (void)mapped_bytes;
  for (i = 0; i < view->window_count; i++) out[i] = view->windows[i].number;
  return view->window_count;
}

static int toss(void *user, const gmlake_piece *block) {
  (void)user;
  return (((uintptr_t)block->home >> 9) & 1) == 0;
}

static void choose_policy(unsigned number) {
  if (number == 1) {
    gmlake_paper_init(&paper);
    paper.chunk_bytes = C;
    paper.limit_bytes = 0;
    policy = gmlake_policy_paper(&paper);
  } else {
    memset(&policy, 0, sizeof(policy));
    policy.struct_bytes = sizeof(policy);
    policy.user = &policy;
    policy.evict = evict_all;
    policy.coalesce = toss;
  }
  desc.policy = number ? &policy : NULL;
}

#define THREADS 4

static struct thread {
  pthread_t id;
  uint64_t random;
  gmlake_stream stream;
  int failed;
} threads[THREADS];

static void *trade_on_a_thread(void *argument) {
  struct thread *self = (struct thread *)argument;
  void *blocks[16];
  size_t i;
  memset(blocks, 0, sizeof(blocks));
  for (i = 0; i < 4000; i++) {
    void **block = &blocks[(self->random = self->random * 6364136223846793005u + 1) >> 60];
    size_t bytes = 1 + (size_t)((self->random >> 20) % (3 * C));
    gmlake_result result = GMLAKE_OK;
    if (*block) {
      result = gmlake_free(lake, *block, self->stream);
      *block = NULL;
    } else {
      result = gmlake_alloc(lake, bytes, self->stream, block);
      if (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) result = GMLAKE_OK;
    }
    if (!result && i % 500 == 0) result = gmlake_trim(lake, 8 * C, NULL);
    if (result) self->failed = 1;
  }
  for (i = 0; i < 16; i++)
    if (blocks[i] && gmlake_free(lake, blocks[i], self->stream)) self->failed = 1;
  return NULL;
}

static void threads_are_told_in_order(unsigned number) {
  size_t i;
  (void)alarm(patience());
  memset(&t, 0, sizeof(t));
  prepare(64);
  memset(&desc.host, 0, sizeof(desc.host)); /* the fixture's own counts on one thread */
  desc.observer.fn = tally;
  choose_policy(number);
  open_lake();
  for (i = 0; i < THREADS; i++) {
    threads[i].random = i + 1;
    threads[i].stream = i ? open_stream() : LEGACY;
    threads[i].failed = 0;
    assert_int_equal(pthread_create(&threads[i].id, NULL, trade_on_a_thread, &threads[i]), 0);
  }
  for (i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    assert_false(threads[i].failed);
  }
  assert_adds_up();
  finish();
  (void)alarm(0);
}

static void threads_without_a_policy(void **state) {
  (void)state;
  threads_are_told_in_order(0);
}

static void threads_with_the_papers_policy(void **state) {
  (void)state;
  threads_are_told_in_order(1);
}

static void threads_with_another_policy(void **state) {
  (void)state;
  threads_are_told_in_order(2);
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

static void observers_that_call_get_an_answer(void **state) {
  (void)state;
  prepare_told(8);
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  prepare_told(8);
  desc.flags = GMLAKE_SINGLE_THREADED;
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  (void)alarm(0);
}

static void host_allocators_that_call_get_an_answer(void **state) {
  (void)state;
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

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(buffers_labels_and_pools_are_told),
      cmocka_unit_test(a_policys_reason_is_told),
      cmocka_unit_test(observers_that_call_get_an_answer),
      cmocka_unit_test(host_allocators_that_call_get_an_answer),
      cmocka_unit_test(threads_without_a_policy),
      cmocka_unit_test(threads_with_the_papers_policy),
      cmocka_unit_test(threads_with_another_policy),
  };
  return cmocka_run_group_tests_name("observer", tests, NULL, NULL);
}
