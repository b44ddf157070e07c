/* What happens in the middle of a call: the driver's functions, called with the books unlocked, do
   here what other threads and streams may do then, and fail in orders that no plan foresees. */
#include "waiters.h"

#include <time.h>

static int nap_count;

/* What the waiter for a latch does last. */
static int counted_nap(const struct timespec *nap, struct timespec *left) {
  __atomic_fetch_add(&nap_count, 1, __ATOMIC_RELAXED);
  return nanosleep(nap, left);
}
#define nanosleep(nap, left) counted_nap(nap, left)

static int quicker; /* so many times another thread takes a latch first */

static unsigned char exchange_late(unsigned char *latch, unsigned char value) {
  if (quicker) {
    quicker--;
    return 1;
  }
  return __atomic_exchange_n(latch, value, __ATOMIC_ACQUIRE);
}
#define __atomic_exchange_n(latch, value, order) exchange_late(latch, value)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#undef nanosleep
#undef __atomic_exchange_n

#include "fixture.h"

static gmlake_stream A, B;

static void open_faulty(size_t chunks) {
  start_with_faults(chunks);
  A = open_stream();
  B = open_stream();
}

static void hold(gmlake_stream stream) { gmlake_mock_stream_hold(mock, stream); }
static void complete(gmlake_stream stream) { gmlake_mock_stream_finish(mock, stream); }

static void abandon(void) {
  assert_ok(gmlake_check(lake));
  (void)gmlake_destroy(lake);
  close_mock();
}

/* What the next call of a kind does before it is passed on; each is done once. */
static void (*on_create)(void), (*on_map)(void), (*on_event_wait)(void);
static gmlake_result create_result, wait_result; /* not OK: in the place of the mock's */

static void once(void (**action)(void)) {
  void (*now)(void) = *action;
  *action = NULL;
  if (now) now();
}

static gmlake_result create_then(void *user, size_t bytes, unsigned handle_types,
                                 uint64_t *out_handle, int *out_code) {
  once(&on_create);
  if (create_result) return create_result;
  return mock->create(user, bytes, handle_types, out_handle, out_code);
}

static gmlake_result map_then(void *user, uint64_t address, size_t bytes, uint64_t handle,
                              int *out_code) {
  once(&on_map);
  return mock->map(user, address, bytes, handle, out_code);
}

static gmlake_result event_wait_then(void *user, void *event, int *out_code) {
  gmlake_result result = wait_result;
  once(&on_event_wait);
  wait_result = GMLAKE_OK;
  return result ? result : mock->event_wait(user, event, out_code);
}

static void open_meddled(size_t chunks) {
  open_faulty(chunks);
  faulty.create = create_then;
  faulty.map = map_then;
  faulty.event_wait = event_wait_then;
  faulty.event_wait_any = NULL; /* so the lake calls event_wait for every wait */
  on_create = on_map = on_event_wait = NULL;
  create_result = wait_result = GMLAKE_OK;
}

/* ---- Plans under way ------------------------------------------------------------------------- */

static void *reserved_piece, *split_block;

static void ask_for_what_is_reserved(void) {
  assert_error(gmlake_free(lake, reserved_piece, LEGACY), DOUBLE_FREE);
  assert_ok(gmlake_alloc(lake, 2 * C, LEGACY, &split_block));
}

/* Pieces of a plan that is being driven are free to nobody: an idle window over them is passed
   over, and they cannot be freed once more. */
static void pieces_of_a_plan_are_nobody_elses(void **state) {
  void *b[7], *rest, *window;
  size_t i;
  (void)state;
  open_meddled(16);
  flood(10);
  for (i = 0; i < 7; i++) b[i] = take(C);
  rest = take(5 * C / 2);
  (void)take(C / 2);
  drop(b[1]);
  drop(b[3]);
  window = take(2 * C);
  assert_int_equal(piece_count(window), 2);
  drop(window);
  drop(b[5]);
  drop(rest);
  reserved_piece = b[1];
  on_map = ask_for_what_is_reserved;
  window = take(3 * C);
  assert_int_equal(piece_count(window), 3);
  assert_ptr_equal(split_block, rest);
  assert_int_equal(piece_count(split_block), 1);
  abandon();
}

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

static void growth_that_serves_nothing_ends(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_NO_STITCH, NULL);
  void *ptr;
  (void)state;
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

/* ---- Other streams --------------------------------------------------------------------------- */

static void *last_block;

static void complete_and_learn(void) {
  complete(A);
  assert_ok(gmlake_free(lake, last_block, A));
}

/* A's memory is borrowed although the wait for it has become needless. */
static void what_completes_meanwhile_is_not_waited_for(void **state) {
  void *x[66], *p;
  size_t i;
  (void)state;
  open_meddled(67);
  for (i = 0; i < 66; i++) x[i] = take_on(C, A);
  (void)take_on(C, B);
  hold(A);
  for (i = 0; i < 64; i++) drop_on(x[i], A); /* an event each: there is room for no more */
  last_block = x[65];
  on_create = complete_and_learn;
  p = take_on(32 * C, B);
  assert_ptr_equal(p, x[0]);
  assert_int_equal(stats().stream_wait_count, 0);
  abandon();
}

static unsigned creates_left;
static gmlake_pool *captured_pool;
static void *taken_away;

static void begin_a_capture_later(void) {
  if (--creates_left)
    on_create = begin_a_capture_later;
  else
    assert_ok(gmlake_capture_begin(lake, B, captured_pool));
}

static void take_what_completes(void) { assert_ok(gmlake_alloc(lake, 5 * C, A, &taken_away)); }

/* A window of the legacy stream's is planned over A's memory; then a capture begins, in which that
   stream can wait for none. That is want of memory like any other. */
static void a_capture_begins_before_memory_is_borrowed(void **state) {
  unsigned creates;
  char text[160];
  void *x;
  (void)state;
  for (creates = 1; creates < 6; creates++) {
    open_meddled(8);
    captured_pool = open_pool(0);
    (void)take_on(512, B);
    x = take_on(5 * C, A);
    hold(A);
    drop_on(x, A);
    creates_left = creates;
    on_create = begin_a_capture_later;
    on_event_wait = take_what_completes;
    step_error(try_on(7 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
    assert_int_equal(creates_left, 0);
    (void)snprintf(
        text, sizeof(text),
        "no free memory fits %u bytes, and the device has no room for more: free blocks, "
        "or ask for less",
        (unsigned)(7 * C));
    assert_string_equal(last_error().text, text);
    assert_int_equal(stats().oom_count, 1);
    assert_int_equal(stats().stream_wait_count, 0);
    abandon();
  }
}

static void free_one_more(void) { assert_ok(gmlake_free(lake, last_block, A)); }

/* The event that was waited for in vain stands in its place, before a later one. */
static void a_fence_that_failed_is_put_back(void **state) {
  gmlake_pool *pool;
  (void)state;
  open_meddled(8);
  pool = open_pool(0);
  (void)take_on(512, B);
  last_block = take_from(pool, C, A);
  (void)take_from(pool, 512, NONE);
  hold(A);
  drop_on(take_from(pool, C, A), A);
  on_event_wait = free_one_more;
  wait_result = GMLAKE_ERROR_DRIVER;
  step_error(gmlake_pool_destroy(lake, pool), DRIVER);
  assert_int_equal(lake->streams.items[gmlk_stream_find(&lake->streams, A)]->fence_count, 2);
  complete(A);
  abandon();
}

static void *many_of_b[2 * GMLK_FENCES];

static void free_many(void) {
  size_t i;
  for (i = 0; i < 2 * GMLK_FENCES; i++) assert_ok(gmlake_free(lake, many_of_b[i], B));
}

/* While the host waits for A, B's ring runs over: the event that the request needs is given up, and
   a later one stands for it. */
static void what_was_given_up_is_waited_for(void **state) {
  void *p, *q, *first;
  size_t i;
  (void)state;
  open_meddled(2 * GMLK_FENCES + 10);
  p = take_on(4 * C, A);
  q = take_on(4 * C, B);
  (void)take_on(C, B); /* between them, or they were one */
  first = take_on(C, B);
  for (i = 0; i < 2 * GMLK_FENCES; i++) many_of_b[i] = take_on(C, B);
  hold(A);
  hold(B);
  drop_on(p, A);
  drop_on(first, B);
  assert_int_equal(trim_to(0), 0); /* gives it an event of its own */
  drop_on(q, B);
  on_event_wait = free_many;
  (void)take_on(8 * C, NONE);
  assert_null(on_event_wait);
  abandon();
}

static void free_on_b(void) { assert_ok(gmlake_free(lake, last_block, B)); }

/* A request that is refused waits for nothing that was freed once it had begun to wait. */
static void what_comes_later_is_not_waited_for(void **state) {
  (void)state;
  open_meddled(4);
  hold(A);
  hold(B);
  drop_on(take_on(C, A), A);
  last_block = take_on(2 * C, B);
  on_event_wait = free_on_b;
  step_error(try_on(5 * C, NONE), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(gmlk_mock_find_queue((const gmlk_mock *)mock->user, B)->wanted, 0);
  abandon();
}

static unsigned failed_waits;

static gmlake_result wait_ever_worse(void *user, void *event, int *out_code) {
  (void)user, (void)event;
  *out_code = 1234;
  return failed_waits++ ? GMLAKE_ERROR_DEVICE_LOST : GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
}

static void of_failed_waits_a_fatal_one_is_told(void **state) {
  (void)state;
  open_faulty(8);
  hold(A);
  hold(B);
  drop_on(take_on(C, A), A);
  drop_on(take_on(C, B), B);
  faulty.event_wait = wait_ever_worse;
  failed_waits = 0;
  assert_error(gmlake_destroy(lake), DEVICE_LOST);
  assert_int_equal(failed_waits, 2);
  gmlake_mock_destroy(mock);
}

static gmlake_pool *waited_pool;
static void *waited_window;

static void leave_the_window_alone_pending(void) {
  gmlake_alloc_desc wanted = request(4 * C, GMLAKE_NO_STITCH, waited_pool);
  void *all;
  assert_ok(gmlake_free(lake, waited_window, A));
  assert_ok(gmlake_alloc_with(lake, &wanted, A, &all));
  assert_ok(gmlake_free(lake, all, NONE));
}

/* Its pieces are clean again, but work still uses the window. */
static void a_pool_stays_while_a_window_alone_is_in_use(void **state) {
  void *b[4];
  size_t i;
  (void)state;
  open_meddled(8);
  waited_pool = open_pool(0);
  (void)take_on(512, B);
  drop_on(take_from(waited_pool, 4 * C, NONE), NONE);
  for (i = 0; i < 4; i++) b[i] = take_from(waited_pool, C, A);
  drop_on(b[0], A);
  drop_on(b[2], A);
  waited_window = take_from(waited_pool, 2 * C, A);
  assert_int_equal(piece_count(waited_window), 2);
  hold(A);
  drop_on(b[1], A);
  drop_on(b[3], A);
  on_event_wait = leave_the_window_alone_pending;
  step(gmlake_pool_destroy(lake, waited_pool));
  assert_int_equal(stats().host_wait_count, 3);
  abandon();
}

/* A's ring of 64 fences is full, their work pending; one more block of A's is live. */
static void *fill_ring(void) {
  void *x[65];
  size_t i;
  open_faulty(80);
  for (i = 0; i < 65; i++) x[i] = take_on(C, A);
  (void)take_on(512, B);
  hold(A);
  for (i = 0; i < 64; i++) drop_on(x[i], A);
  assert_int_equal(stats().event_count, 64);
  return x[64];
}

/* A free whose event cannot even be tried is a free all the same. */
static void a_free_survives_a_full_ring_and_a_failed_question(void **state) {
  void *last;
  (void)state;
  last = fill_ring();
  fail_call(ON_EXCHANGE, 1, GMLAKE_ERROR_DRIVER, 0);
  drop_on(last, A);
  assert_int_equal(faults[ON_EXCHANGE].in, 0);
  assert_int_equal(stats().event_count, 64);
  complete(A);
  assert_int_equal(trim_to(C), 65 * C);
  abandon();
}

/* The fence that finds a full ring asks which are complete; the next one has its place. */
static void a_stream_is_not_forgotten_behind_a_failed_question(void **state) {
  void *last;
  (void)state;
  last = fill_ring();
  fail_call(ON_QUERY, 1, GMLAKE_ERROR_DRIVER, 0);
  step_error(gmlake_forget_stream(lake, A), DRIVER);
  assert_string_equal(last_error().call, "event_query");
  drop_on(last, A); /* it is known still */
  step(gmlake_forget_stream(lake, A));
  complete(A);
  assert_int_equal(trim_to(C), 65 * C);
  abandon();
}

/* The only number in use is that of the stream that a graph's block was taken and recorded on. The
   block is pending; the stream that freed it is gone, and its number with it. */
static void a_pending_block_of_one_stream_is_settled(void **state) {
  gmlake_pool *pool;
  gmlake_stream gone;
  void *captured;
  size_t i;
  (void)state;
  prepare(4);
  open_lake();
  B = open_stream();
  pool = open_pool(0);
  gone = open_stream();
  step(gmlake_capture_begin(lake, B, pool));
  captured = take_on(C, B);
  step(gmlake_capture_end(lake, B));
  hold(B);
  step(gmlake_record_stream(lake, captured, B));
  drop_on(captured, gone);
  step(gmlake_forget_stream(lake, gone));
  for (i = 1; i < 16; i++) {
    gmlake_stream other = open_stream();
    drop_on(take_on(512, other), other);
    step(gmlake_forget_stream(lake, other));
    gmlake_mock_stream_destroy(mock, other);
  }
  assert_int_equal(stats().pending_bytes, C);
  (void)trim_to(0);
  assert_int_equal(lake->streams.used_count, 1);
  assert_error(try_on(4 * C, B), OUT_OF_DEVICE_MEMORY); /* the pool's, which is the graph's now */
  assert_int_equal(stats().pending_bytes, 0);
  assert_int_equal(stats().host_wait_count, 1);
  finish();
}

/* Each of a batch of chunks lies in the midst of a free range, and leaves two pieces of it. */
static void a_trim_has_its_records(void **state) {
  void *odd[65];
  size_t i;
  (void)state;
  open_faulty(3 * 65);
  drop(take(3 * 65 * C));
  for (i = 0; i < 65; i++) {
    (void)take(C / 2);
    odd[i] = take(2 * C);
    (void)take(C / 2);
  }
  for (i = 0; i < 65; i++) drop(odd[i]);
  assert_true(gmlk_records_reserve(&lake->records, &lake->host, GMLK_BATCH_MIN));
  assert_in_range(lake->records.unused_count, GMLK_BATCH_MIN, 2 * GMLK_BATCH_MIN - 1);
  assert_int_equal(trim_to(0), 65 * C);
  abandon();
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void resize_on(gmlake_buffer *buffer, size_t bytes, gmlake_stream stream) {
  step(gmlake_buffer_resize(lake, buffer, bytes, stream));
}

static gmlake_result create_buffer(size_t max_chunks) {
  gmlake_buffer_desc wanted = buffer_desc(max_chunks * C);
  gmlake_buffer *buffer = NULL;
  gmlake_result result = gmlake_buffer_create(lake, &wanted, &buffer);
  assert_true(result || buffer);
  assert_ok(gmlake_check(lake));
  return result;
}

static void a_device_lost_in_a_borrowed_chunk_ends_the_growth(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  open_faulty(8);
  buffer = open_buffer(4);
  resize_on(buffer, 2 * C, A);
  hold(A);
  resize_on(buffer, 0, A);
  fail_call(ON_STREAM_WAIT, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  step_error(gmlake_buffer_resize(lake, buffer, C, B), DEVICE_LOST);
  assert_int_equal(stats().host_wait_count, 0);
  abandon();
}

/* The ladder reports the chunk that lacks, and the growth then all that it lacks. */
static void a_device_lost_in_the_report_of_a_growth_is_told(void **state) {
  gmlake_buffer *buffer;
  long n;
  (void)state;
  for (n = 1; n <= 2; n++) {
    open_faulty(2);
    buffer = open_buffer(4);
    fail_call(ON_MEMORY_INFO, n, GMLAKE_ERROR_DEVICE_LOST, 0);
    step_error(gmlake_buffer_resize(lake, buffer, 4 * C, A), DEVICE_LOST);
    assert_string_equal(last_error().call, "get_memory_info");
    assert_int_equal(stats().requested_bytes, 0);
    abandon();
  }
}

/* A destroyed buffer holds all the address space for buffers, and the driver has no more. */
static void fill_addresses(void) {
  gmlake_buffer *buffer;
  open_faulty(2);
  buffer = open_buffer(64);
  resize_on(buffer, C, A);
  drop_on(take_on(512, B), B);
  hold(A);
  step(gmlake_buffer_destroy(lake, buffer, A));
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
}

static void addresses_that_cannot_be_unmapped_are_not_had(void **state) {
  (void)state;
  fill_addresses();
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_int_equal(create_buffer(2), GMLAKE_ERROR_DRIVER);
  fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
  assert_int_equal(create_buffer(2), GMLAKE_OK);
  abandon();
}

static void addresses_that_cannot_be_waited_for_are_not_had(void **state) {
  (void)state;
  fill_addresses();
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_int_equal(create_buffer(2), GMLAKE_ERROR_DRIVER);
  fail_call(ON_HOST_WAIT, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_int_equal(create_buffer(2), GMLAKE_ERROR_DEVICE_LOST);
  abandon();
}

static void addresses_are_had_although_a_capture_forbids_a_wait(void **state) {
  gmlake_pool *pool;
  void *p;
  (void)state;
  open_faulty(4);
  pool = open_pool(0);
  resize_on(open_buffer(127), C, A); /* all of them */
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  hold(A);
  step(gmlake_buffer_destroy(lake, lake->home.buffers, A));
  p = take_on(512, B);
  step(gmlake_capture_begin(lake, B, pool));
  drop_on(p, B);
  assert_int_equal(create_buffer(2), GMLAKE_OK);
  assert_int_equal(stats().host_wait_count, 1);
  step(gmlake_capture_end(lake, B));
  abandon();
}

/* All addresses for windows are an idle window's; what cannot be unmapped is why none are had. */
static void no_grow_is_told_why_no_addresses_are_had(void **state) {
  gmlake_alloc_desc wanted = request(2 * C, GMLAKE_NO_GROW, NULL);
  void *b[6];
  (void)state;
  prepare(6);
  desc.window_bytes = 3 * C;
  use_faults();
  open_lake();
  lay(b, 6);
  drop(b[1]);
  drop(b[3]);
  drop(b[5]);
  drop(take(3 * C));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(try_with(&wanted, LEGACY), DRIVER);
  fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
  abandon();
}

static void a_device_lost_while_tidying_ends_the_create(void **state) {
  (void)state;
  fill_addresses();
  fail_call(ON_QUERY, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_int_equal(create_buffer(2), GMLAKE_ERROR_DEVICE_LOST);
  abandon();
  fill_addresses();
  complete(A);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_int_equal(create_buffer(2), GMLAKE_ERROR_DEVICE_LOST);
  abandon();
}

static size_t unreserve_count;

static void count_unreserves(int kind) { unreserve_count += kind == ON_UNRESERVE; }

/* Addresses where something is still mapped the driver would not take back: it is not asked to. */
static void addresses_that_are_mapped_are_not_given_back(void **state) {
  size_t all;
  (void)state;
  open_faulty(4);
  resize_on(open_buffer(4), 2 * C, A);
  unreserve_count = 0;
  before_driver_call = count_unreserves;
  assert_ok(gmlake_destroy(lake));
  close_mock();
  all = unreserve_count;
  open_faulty(4);
  resize_on(open_buffer(4), 2 * C, A);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 0);
  unreserve_count = 0;
  assert_error(gmlake_destroy(lake), DRIVER);
  before_driver_call = NULL;
  assert_int_equal(unreserve_count, all - 1);
  assert_int_equal(census().mapping_count, 1);
  assert_int_equal(census().reservation_count, 1);
  gmlake_mock_destroy(mock);
}

/* ---- Threads --------------------------------------------------------------------------------- */

/* A second thread that grows a buffer, and waits for the planner's lock. */
static struct rival {
  gmlake_buffer *buffer;
  pthread_t thread;
  gmlake_result result;
} rival;

static void *grow_it(void *argument) {
  (void)argument;
  rival.result = gmlake_buffer_resize(lake, rival.buffer, 2 * C, LEGACY);
  return NULL;
}

static void let_wait(void *(*call)(void *)) {
  assert_int_equal(start_waiter(&rival.thread, call, NULL), 0);
}

static void let_it_wait(void) { let_wait(grow_it); }

static void a_device_is_lost_while_a_growth_waits(void **state) {
  gmlake_buffer *mine;
  (void)state;
  open_meddled(8);
  mine = open_buffer(4);
  rival.buffer = open_buffer(4);
  on_create = let_it_wait;
  create_result = GMLAKE_ERROR_DEVICE_LOST;
  assert_error(gmlake_buffer_resize(lake, mine, C, A), DEVICE_LOST);
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  assert_int_equal(rival.result, GMLAKE_ERROR_DEVICE_LOST);
  abandon();
}

/* Another thread gives up the number that a call under way stands for: it waits for the call. */

static gmlake_result (*number_goes)(gmlake *, gmlake_stream);

static void *give_up_number(void *argument) {
  (void)argument;
  rival.result = number_goes(lake, A);
  return NULL;
}

static void let_its_number_go(void) { let_wait(give_up_number); }

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

/* Starts the rival, and returns when it waits for the driving lock, or has not needed to. */
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

static void a_discard_waits_for_an_export(void **state) {
  gmlake_handle handles[2];
  gmlake_buffer_info info;
  size_t count = 0;
  (void)state;
  prepare(8);
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  use_faults();
  faulty.export_handle = export_then;
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

/* The number is given back with pieces that are tagged with it. */
static void a_capture_ends_behind_a_stitch_that_fails(void **state) {
  gmlake_pool *pool;
  void *b[4], *p;
  size_t i;
  (void)state;
  open_meddled(16);
  pool = open_pool(0);
  step(gmlake_capture_begin(lake, A, pool));
  drop_on(take_on(4 * C, A), A);
  for (i = 0; i < 4; i++) b[i] = take_on(C, A);
  drop_on(b[0], A);
  drop_on(b[2], A);
  number_goes = gmlake_capture_end;
  on_map = let_its_number_go;
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 1);
  create_result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  assert_error(gmlake_alloc(lake, 2 * C, A, &p), DRIVER);
  memset(faults, 0, sizeof(faults));
  create_result = GMLAKE_OK;
  join_rival();
  p = take_from(pool, C, B); /* new: the graph knows the two */
  assert_ptr_not_equal(p, b[0]);
  assert_ptr_not_equal(p, b[2]);
  abandon();
}

/* What the growth gives back is the stream's; then it is forgotten, with an event behind that. */
static void a_stream_is_forgotten_behind_a_growth_that_fails(void **state) {
  gmlake_buffer *mine;
  (void)state;
  open_meddled(4);
  (void)take_on(2 * C, B);
  mine = open_buffer(4);
  step(gmlake_buffer_resize(lake, mine, C, A));
  number_goes = gmlake_forget_stream;
  on_create = let_its_number_go;
  assert_error(gmlake_buffer_resize(lake, mine, 4 * C, A), OUT_OF_DEVICE_MEMORY);
  join_rival();
  gmlake_mock_stream_destroy(mock, A);
  step(gmlake_trim(lake, 0, NULL));
  abandon();
}

/* More blocks than the index has room for come while a call is at the driver; no host memory is
   left then. */
static void fill_the_index(void) {
  void *p;
  while (lake->index.count < lake->index.row_count / 2 * 5)
    assert_ok(gmlake_alloc(lake, 512, LEGACY, &p));
  host_fail_in = host_fails_on = 1;
}

static void an_attempt_that_ends_without_host_memory_is_counted_once(void **state) {
  gmlake_stats was, now;
  size_t i;
  (void)state;
  open_meddled(32);
  (void)take_on(512, LEGACY);
  was = stats();
  on_create = fill_the_index;
  step_error(try_on(4 * C, A), OUT_OF_HOST_MEMORY);
  host_fail_in = host_fails_on = 0;
  now = stats();
  for (i = 2; i < 5; i++) assert_int_equal(now.state_count[i], was.state_count[i] + (i == 4));
  abandon();
}

static int make_way(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)user, (void)from, (void)info;
  assert_int_equal(pthread_create(&rival.thread, NULL, grow_it, NULL), 0);
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  return 0;
}

/* Only the thread that the handler runs on may not grow. */
static void another_thread_grows_during_the_handler(void **state) {
  void *ptr;
  (void)state;
  prepare(4);
  desc.oom.fn = make_way;
  open_lake();
  rival.buffer = open_buffer(4);
  assert_error(gmlake_alloc(lake, 8 * C, LEGACY, &ptr), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(rival.result, GMLAKE_OK);
  finish();
}

#define COUNTERS 4
#define COUNTS 50000

static gmlk_latch latch;
static unsigned counted;

static void *count_up(void *argument) {
  unsigned i;
  (void)argument;
  for (i = 0; i < COUNTS; i++) {
    gmlk_latch_lock(&latch);
    counted++;
    gmlk_latch_unlock(&latch);
  }
  return NULL;
}

/* Whether it is held for a moment or for long: who waits comes in alone. */
static void a_latch_lets_one_in(void **state) {
  const struct timespec a_while = {0, 1000000};
  pthread_t threads[COUNTERS];
  size_t i;
  (void)state;
  gmlk_latch_init(&latch);
  counted = 0;
  nap_count = 0;
  gmlk_latch_lock(&latch);
  for (i = 0; i < COUNTERS; i++)
    assert_int_equal(pthread_create(&threads[i], NULL, count_up, NULL), 0);
  while (!__atomic_load_n(&nap_count, __ATOMIC_RELAXED)) (void)nanosleep(&a_while, NULL);
  assert_int_equal(counted, 0);
  gmlk_latch_unlock(&latch);
  for (i = 0; i < COUNTERS; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  assert_int_equal(counted, COUNTERS * COUNTS);
  gmlk_latch_destroy(&latch);
}

static void a_latch_that_was_free_is_asked_for_again(void **state) {
  (void)state;
  gmlk_latch_init(&latch);
  quicker = 3;
  gmlk_latch_lock(&latch);
  assert_int_equal(quicker, 0);
  assert_int_equal(latch.taken, 1);
  gmlk_latch_unlock(&latch);
  gmlk_latch_destroy(&latch);
}

/* Callbacks on several threads end in any order. */
static void callbacks_end_in_any_order(void **state) {
  gmlk_callback first, second;
  (void)state;
  start(4);
  gmlk_books_lock(lake);
  gmlk_callback_begin(lake, &first, 0, NULL);
  gmlk_books_lock(lake);
  gmlk_callback_begin(lake, &second, 0, NULL);
  gmlk_callback_end(lake, &first);
  assert_true(lake->is_barred);
  assert_ptr_equal(lake->callbacks, &second);
  gmlk_books_unlock(lake);
  gmlk_callback_end(lake, &second);
  assert_false(lake->is_barred);
  gmlk_books_unlock(lake);
  finish();
}

/* ---- Ends of loops --------------------------------------------------------------------------- */

static unsigned told;

static void count_messages(void *user, int level, const gmlake_error_info *info) {
  (void)user, (void)info;
  assert_int_equal(level, GMLAKE_LOG_WARNING);
  told++;
}

static void the_queue_of_messages_ends(void **state) {
  gmlake_error_info info;
  unsigned i;
  (void)state;
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
static void more_windows_are_dropped_than_one_call_does(void **state) {
  void *b[5];
  size_t i;
  (void)state;
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

/* | s a ... | t b ... |: a begins misaligned; b, next in the same list, is shorter than what is
   asked for. */
static void a_hole_that_is_too_short_is_passed_over(void **state) {
  gmlake_alloc_desc wanted = request(123 * 512, GMLAKE_NO_STITCH, NULL);
  void *s, *a, *b, *aligned, *gap[3];
  (void)state;
  start(8);
  flood(2);
  s = take_on(512, NONE);
  a = take_on(123 * 512, NONE);
  gap[0] = take_on(4 * 512, NONE);
  gap[1] = take_on(512, NONE);
  b = take_on(122 * 512, NONE);
  gap[2] = take_on(5 * 512, NONE);
  drop_on(b, NONE);
  drop_on(a, NONE);
  wanted.alignment = 4 * K;
  aligned = take_with(&wanted, NONE);
  assert_int_equal((uintptr_t)aligned % (4 * K), 0);
  assert_int_equal(stats().reserved_bytes, 3 * C);
  drop_on(aligned, NONE);
  drop_on(s, NONE);
  drop_on(gap[0], NONE);
  drop_on(gap[1], NONE);
  drop_on(gap[2], NONE);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(pieces_of_a_plan_are_nobody_elses),
      cmocka_unit_test(growth_that_serves_nothing_ends),
      cmocka_unit_test(what_completes_meanwhile_is_not_waited_for),
      cmocka_unit_test(a_capture_begins_before_memory_is_borrowed),
      cmocka_unit_test(a_fence_that_failed_is_put_back),
      cmocka_unit_test(what_was_given_up_is_waited_for),
      cmocka_unit_test(what_comes_later_is_not_waited_for),
      cmocka_unit_test(of_failed_waits_a_fatal_one_is_told),
      cmocka_unit_test(a_pool_stays_while_a_window_alone_is_in_use),
      cmocka_unit_test(a_free_survives_a_full_ring_and_a_failed_question),
      cmocka_unit_test(a_stream_is_not_forgotten_behind_a_failed_question),
      cmocka_unit_test(a_pending_block_of_one_stream_is_settled),
      cmocka_unit_test(a_trim_has_its_records),
      cmocka_unit_test(a_device_lost_in_a_borrowed_chunk_ends_the_growth),
      cmocka_unit_test(a_device_lost_in_the_report_of_a_growth_is_told),
      cmocka_unit_test(addresses_that_cannot_be_unmapped_are_not_had),
      cmocka_unit_test(addresses_that_cannot_be_waited_for_are_not_had),
      cmocka_unit_test(addresses_are_had_although_a_capture_forbids_a_wait),
      cmocka_unit_test(no_grow_is_told_why_no_addresses_are_had),
      cmocka_unit_test(addresses_that_are_mapped_are_not_given_back),
      cmocka_unit_test(a_device_lost_while_tidying_ends_the_create),
      cmocka_unit_test(a_device_is_lost_while_a_growth_waits),
      cmocka_unit_test(a_discard_waits_for_an_export),
      cmocka_unit_test(a_capture_ends_behind_a_stitch_that_fails),
      cmocka_unit_test(a_stream_is_forgotten_behind_a_growth_that_fails),
      cmocka_unit_test(an_attempt_that_ends_without_host_memory_is_counted_once),
      cmocka_unit_test(another_thread_grows_during_the_handler),
      cmocka_unit_test(a_latch_lets_one_in),
      cmocka_unit_test(a_latch_that_was_free_is_asked_for_again),
      cmocka_unit_test(callbacks_end_in_any_order),
      cmocka_unit_test(the_queue_of_messages_ends),
      cmocka_unit_test(more_windows_are_dropped_than_one_call_does),
      cmocka_unit_test(a_hole_that_is_too_short_is_passed_over),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
