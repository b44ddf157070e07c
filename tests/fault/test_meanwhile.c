/* What happens in the middle of a call and is no row of tests/play/meanwhile_rows.h: other threads,
   and what touches the lake's own records. The driver's functions, called with the state lock
   released, do here what may happen then. */
#include "waiters.h"

#include <time.h>

static int nap_count;

/* What the waiter for a spinlock does last. */
static int counted_nap(const struct timespec *nap, struct timespec *left) {
  __atomic_fetch_add(&nap_count, 1, __ATOMIC_RELAXED);
  return nanosleep(nap, left);
}
#define nanosleep(nap, left) counted_nap(nap, left)

static int quicker; /* so many times another thread takes a spinlock first */

static unsigned char exchange_late(unsigned char *spinlock, unsigned char value) {
  if (quicker) {
    quicker--;
    return 1;
  }
  return __atomic_exchange_n(spinlock, value, __ATOMIC_ACQUIRE);
}
#define __atomic_exchange_n(spinlock, value, order) exchange_late(spinlock, value)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#undef nanosleep
#undef __atomic_exchange_n

#include "fixture.h"

static gmlake_stream A, B;

static void open_hooked(size_t chunks) {
  start_hooked(chunks);
  A = open_stream();
  B = open_stream();
}

static void abandon(void) {
  assert_ok(gmlake_check(lake));
  (void)gmlake_destroy(lake);
  close_mock();
}

/* ---- Plans under way ------------------------------------------------------------------------- */

/* Each chunk that is created is gone before it can serve. */
static gmlk_block *stolen[16];
static size_t stolen_count;

static void steal(void *user, const gmlake_step *event) {
  gmlk_arena *a = &lake->home;
  gmlk_block *b;
  (void)user;
  if (event->kind != GMLAKE_STEP_GROW) return;
  b = gmlk_locate(a, (uint32_t)((event->address - gmlk_home(a, 0)) / GMLK_GRAIN));
  assert_true(stolen_count < 16);
  stolen[stolen_count++] = gmlk_reserve_range(a, b, b->at, b->grains);
}

CASE(growth_that_serves_nothing_ends) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_NO_STITCH, NULL);
  void *ptr;
  prepare(16);
  desc.observer.fn = steal;
  open_lake();
  stolen_count = 0;
  ptr = &ptr;
  assert_error(gmlake_alloc_with(lake, &wanted, LEGACY, &ptr), OUT_OF_DEVICE_MEMORY);
  assert_null(ptr);
  assert_in_range(stolen_count, 8, 16);
  assert_int_equal(stats().reserved_bytes, stolen_count * C);
  while (stolen_count--)
    gmlk_unreserve_range(&lake->home, stolen[stolen_count], stolen[stolen_count]->grains);
  finish();
}

/* Each of a batch of chunks lies in the midst of a free range, and leaves two pieces of it. */
CASE(a_trim_has_its_records) {
  void *odd[65];
  size_t i;
  open_hooked(3 * 65);
  drop(take(3 * 65 * C));
  for (i = 0; i < 65; i++) {
    (void)take(C / 2);
    odd[i] = take(2 * C);
    (void)take(C / 2);
  }
  for (i = 0; i < 65; i++) drop(odd[i]);
  assert_true(gmlk_records_ensure(&lake->records, &lake->host, 64));
  assert_in_range(lake->records.unused_count, 64, 127);
  assert_int_equal(trim_to(0), 65 * C);
  abandon();
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* A second thread, which waits for the planner's lock. */
static struct rival {
  gmlake_buffer *buffer;
  pthread_t thread;
  gmlake_result result;
} rival;

static void join_rival(void) {
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  assert_ok(rival.result);
  assert_ok(gmlake_check(lake));
}

/* What another thread gives up while it is being exported goes behind the export, as shared memory
   does: nobody gets it. */
static int rival_is_done;
static void *discard_it(void *argument) {
  (void)argument;
  rival.result = gmlake_buffer_discard(lake, rival.buffer, C, C, LEGACY);
  __atomic_store_n(&rival_is_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

/* Starts the rival, and returns when it waits for the driver lock, or has not needed to. */
static void rival_meets(void *(*call)(void *)) {
  const int before = __atomic_load_n(&waiter_count, __ATOMIC_ACQUIRE);
  rival_is_done = 0;
  assert_int_equal(pthread_create(&rival.thread, NULL, call, NULL), 0);
  while (__atomic_load_n(&waiter_count, __ATOMIC_ACQUIRE) == before &&
         !__atomic_load_n(&rival_is_done, __ATOMIC_ACQUIRE))
    (void)sched_yield();
}

static gmlake_result export_then(void *user, uint64_t handle, gmlake_handle *out, int *code) {
  if (!rival.thread) rival_meets(discard_it);
  return mock->export_handle(user, handle, out, code);
}

CASE(a_discard_waits_for_an_export) {
  gmlake_handle handles[2];
  gmlake_buffer_info info;
  size_t count = 0;
  prepare(8);
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  use_hooks();
  hooked.export_handle = export_then;
  open_lake();
  memset(&rival, 0, sizeof(rival));
  rival.buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, rival.buffer, 2 * C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, rival.buffer, &info));
  assert_ok(gmlake_export(lake, info.ptr, GMLAKE_HANDLE_POSIX_FD, handles, 2, &count));
  join_rival();
  assert_int_equal(count, 2);
  while (count) (void)close(handles[--count].fd);
  step(gmlake_trim(lake, 0, NULL));
  assert_int_equal(stats().exported_bytes, C);
  assert_int_equal(census().handle_count, 1); /* the discarded chunk never serves again */
  finish();
}

#define COUNTERS 4
#define COUNTS 50000

static gmlk_spinlock spinlock;
static unsigned counted;

static void *count_up(void *argument) {
  unsigned i;
  (void)argument;
  for (i = 0; i < COUNTS; i++) {
    gmlk_spinlock_lock(&spinlock, 1);
    counted++;
    gmlk_spinlock_unlock(&spinlock, 1);
  }
  return NULL;
}

/* Whether it is held for a moment or for long: who waits comes in alone. */
CASE(a_spinlock_lets_one_in) {
  const struct timespec a_while = {0, 1000000};
  pthread_t threads[COUNTERS];
  size_t i;
  gmlk_spinlock_init(&spinlock);
  counted = 0;
  nap_count = 0;
  gmlk_spinlock_lock(&spinlock, 1);
  for (i = 0; i < COUNTERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
  while (!__atomic_load_n(&nap_count, __ATOMIC_RELAXED)) (void)nanosleep(&a_while, NULL);
  assert_int_equal(counted, 0);
  gmlk_spinlock_unlock(&spinlock, 1);
  for (i = 0; i < COUNTERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(counted, COUNTERS * COUNTS);
  gmlk_spinlock_destroy(&spinlock);
}

CASE(a_spinlock_that_was_free_is_asked_for_again) {
  gmlk_spinlock_init(&spinlock);
  quicker = 3;
  gmlk_spinlock_lock(&spinlock, 1);
  assert_int_equal(quicker, 0);
  assert_int_equal(spinlock.taken, 1);
  gmlk_spinlock_unlock(&spinlock, 1);
  gmlk_spinlock_destroy(&spinlock);
}

/* Callbacks on several threads end in any order. */
CASE(callbacks_end_in_any_order) {
  gmlk_callback first, second;
  start(4);
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  gmlk_callback_begin(lake, &first, 0, NULL);
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  gmlk_callback_begin(lake, &second, 0, NULL);
  gmlk_callback_end(lake, &first);
  assert_true(lake->is_restricted);
  assert_ptr_equal(lake->callbacks, &second);
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  gmlk_callback_end(lake, &second);
  assert_false(lake->is_restricted);
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  finish();
}

/* ---- While the host waits for the whole device ----------------------------------------------- */

static gmlake_pool *graphs;
static int device_is_awaited, began_inside;

/* B is captured from now on, and the driver's own capture would begin. */
static void *begin_capture(void *argument) {
  (void)argument;
  rival.result = gmlake_capture_begin(lake, B, graphs);
  began_inside = __atomic_load_n(&device_is_awaited, __ATOMIC_ACQUIRE);
  __atomic_store_n(&rival_is_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static gmlake_result device_wait_meets(void *user, int *out_code) {
  gmlake_result result;
  if (rival.thread) return mock->device_wait(user, out_code); /* once */
  __atomic_store_n(&device_is_awaited, 1, __ATOMIC_RELEASE);
  rival_meets(begin_capture);
  result = mock->device_wait(user, out_code);
  __atomic_store_n(&device_is_awaited, 0, __ATOMIC_RELEASE);
  return result;
}

/* Opens a lake with streams A and B, which may end, and a pool. */
static void open_untold(gmlake_result (*device_wait)(void *, int *)) {
  prepare(8);
  desc.flags = GMLAKE_STREAMS_MAY_END;
  desc.limit_bytes = 4 * C;
  use_hooks();
  hooked.device_wait = device_wait;
  open_lake();
  memset(&rival, 0, sizeof(rival));
  A = open_stream();
  B = open_stream();
  graphs = open_pool(0);
}

/* The block is recorded on a stream that is destroyed without a word; then A frees it. */
static void lose(void *ptr) {
  gmlake_stream gone = open_stream();
  assert_ok(gmlake_record_stream(lake, ptr, gone));
  gmlake_mock_stream_hold(mock, gone);
  gmlake_mock_stream_destroy(mock, gone);
  drop_on(ptr, A);
}

/* A capture that began then would be spoilt by that wait: its begin waits, too. */
CASE(a_capture_begins_behind_a_wait_for_the_device) {
  void *ptr;
  open_untold(device_wait_meets);
  lose(take_on(4 * C, A));
  ptr = take_on(4 * C, A);
  join_rival();
  assert_false(began_inside);
  drop_on(ptr, A);
  assert_ok(gmlake_capture_end(lake, B));
  assert_ok(gmlake_pool_destroy(lake, graphs));
  finish();
}

/* ---- Ends of loops --------------------------------------------------------------------------- */

static unsigned told;

static void count_messages(void *user, int level, const gmlake_error_info *info) {
  (void)user, (void)info;
  assert_int_equal(level, GMLAKE_LOG_WARNING);
  told++;
}

CASE(the_queue_of_messages_ends) {
  gmlake_error_info info;
  unsigned i;
  prepare(4);
  desc.logger.fn = count_messages;
  open_lake();
  memset(&info, 0, sizeof(info));
  told = 0;
  for (i = 0; i < GMLK_LOG_QUEUE + 2; i++) gmlk_log(lake, GMLAKE_LOG_WARNING, &info);
  assert_ok(gmlake_check(lake));
  (void)trim_to(0);
  assert_int_equal(told, GMLK_LOG_QUEUE);
  finish();
}

/* Windows of 70 sizes over two chunks; a call that drops them does so 64 at a time. */
CASE(more_windows_are_dropped_than_one_call_does) {
  void *b[5];
  size_t i;
  prepare(5);
  desc.stitched_bytes_max = 1000 * C;
  desc.window_bytes = 1000 * C;
  open_lake();
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  for (i = 0; i < 70; i++) drop(take(C + (i + 1) * 512));
  assert_int_equal(stats().window_count, 70);
  assert_error(try_on(3 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(stats().window_count, 70);
  drop(take_flags(C, GMLAKE_NO_STITCH));
  {
    gmlake_alloc_desc wanted = request(2 * C, GMLAKE_NO_STITCH, NULL);
    void *two = take_with(&wanted, LEGACY);
    assert_int_equal(piece_count(two), 1);
    drop(two);
  }
  assert_int_equal(stats().window_count, 0);
  assert_int_equal(stats().stitch_evict_count, 70);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  finish();
}

int main(void) { return run_cases("meanwhile"); }
