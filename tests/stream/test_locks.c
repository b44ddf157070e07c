/* The lake's locks, in the place of which stand ones that know what is done with them: who
   takes them, in which order, that they are given back on every way out, what runs meanwhile. On
   one thread, since a lock that it holds and takes again would be a deadlock. */
#define GMLAKE_MUTEX own_lock
#define GMLAKE_MUTEX_INIT(lock) own_init(lock)
#define GMLAKE_MUTEX_DESTROY(lock) own_destroy(lock)
#define GMLAKE_MUTEX_LOCK(lock) own_take(lock)
#define GMLAKE_MUTEX_UNLOCK(lock) own_give(lock)

typedef struct own_lock {
  int is_made, is_held;
  unsigned taken;
} own_lock;

static void own_init(own_lock *lock);
static void own_destroy(own_lock *lock);
static void own_take(own_lock *lock);
static void own_give(own_lock *lock);

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

/* ---- Locks that are watched ------------------------------------------------------------------ */

static int made, held;    /* locks that there are, and that are held, now */
static const char *wrong; /* what was done to one first that must not be */

static void complain(int is_wrong, const char *what) {
  if (is_wrong && !wrong) wrong = what;
}

static void own_init(own_lock *lock) {
  memset(lock, 0, sizeof(*lock));
  lock->is_made = 1;
  made++;
}

static void own_destroy(own_lock *lock) {
  complain(!lock->is_made, "a lock is destroyed that was not made");
  complain(lock->is_held, "a lock is destroyed while it is held");
  lock->is_made = 0;
  made--;
}

static void (*before_planning)(void); /* what others do while a planner waits for its turn, once */

static void own_take(own_lock *lock) {
  void (*meanwhile)(void) = before_planning;
  if (meanwhile && lake && lock == &lake->turn) {
    before_planning = NULL;
    meanwhile();
  }
  complain(!lock->is_made, "a lock is taken that was not made");
  complain(lock->is_held, "a lock is taken by who holds it");
  complain(lake && lock == &lake->driver_lock && lake->state_lock.is_held,
           "the planner's lock is taken by who holds the state lock");
  lock->is_held = 1;
  lock->taken++;
  held++;
}

static int is_spoilt; /* what the mock has of a call is another's once its lock is given back */

static void own_give(own_lock *lock) {
  if (is_spoilt) ((gmlk_mock *)mock->user)->code = 77;
  complain(!lock->is_held, "a lock is given back by who does not hold it");
  lock->is_held = 0;
  held--;
}

static void assert_well(const char *after) {
  if (wrong) fail_msg("%s: %s", after, wrong);
  if (held) fail_msg("%s: %d locks are held", after, held);
}

/* ---- A lake with something of everything ----------------------------------------------------- */

static gmlake_stream A, B;
static gmlake_pool *pool, *doomed;
static gmlake_buffer *buffer, *other_buffer, *third_buffer;
static void *kept, *labelled, *fresh; /* live blocks */
static size_t told;                   /* callbacks that ran */
static int is_ending;

static int waits_or_maps(int kind) {
  return kind == ON_RESERVE || kind == ON_CREATE || kind == ON_RELEASE || kind == ON_MAP ||
         kind == ON_UNMAP || kind == ON_ACCESS || kind == ON_HOST_WAIT || kind == ON_UNRESERVE ||
         kind == ON_MEMORY_INFO;
}

/* What takes long holds up other planners, and nobody else. */
static void look_at_locks(int kind) {
  if (!lake || is_ending || !waits_or_maps(kind)) return;
  complain(lake->state_lock.is_held, "the state lock is held while the driver is at work");
  complain(lake->has_locks && !lake->driver_lock.is_held, "the driver works for no planner");
}

static gmlake_result create_buffer(gmlake_buffer **out_buffer) {
  gmlake_buffer_desc wanted = buffer_desc(8 * C);
  return gmlake_buffer_create(lake, &wanted, out_buffer);
}

static void prepare_watched(size_t chunks) {
  wrong = NULL;
  made = held = is_ending = 0;
  told = 0;
  lake = NULL;
  prepare(chunks);
  use_faults();
  before_driver_call = look_at_locks;
}

static void furnish(void) {
  gmlake_alloc_desc wanted = request(3000, 0, NULL);
  void *b[6];
  size_t i;
  A = open_stream();
  B = open_stream();
  pool = open_pool(0);
  doomed = open_pool(0);
  lay(b, 6);
  kept = b[5];
  wanted.label = "labelled";
  labelled = take_with(&wanted, A);
  fresh = take_on(512, B);
  for (i = 0; i < 5; i += 2) drop(b[i]);
  drop(take(2 * C));
  drop_on(take_from(doomed, C, A), A);
  buffer = open_buffer(8);
  other_buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  step(gmlake_record_stream(lake, labelled, B));
}

/* Whatever is live: the lake takes it along. */
static void end(void) {
  memset(faults, 0, sizeof(faults));
  is_ending = 1;
  (void)gmlake_destroy(lake);
  lake = NULL;
  close_mock();
  before_driver_call = NULL;
  assert_well("gmlake_destroy");
  assert_int_equal(made, 0);
}

/* ---- Every function -------------------------------------------------------------------------- */

static gmlake_result alloc(size_t bytes, gmlake_stream stream) {
  void *ptr;
  return gmlake_alloc(lake, bytes, stream, &ptr);
}

static gmlake_result alloc_with(size_t bytes, unsigned flags) {
  gmlake_alloc_desc wanted = request(bytes, flags, NULL);
  void *ptr;
  return gmlake_alloc_with(lake, &wanted, LEGACY, &ptr);
}

static gmlake_result commit_any(size_t offset) {
  uint32_t chunk = GMLAKE_ANY_CHUNK;
  return gmlake_buffer_commit_chunks(lake, buffer, offset, C, &chunk, LEGACY);
}
static gmlake_result resize(size_t bytes) {
  return gmlake_buffer_resize(lake, buffer, bytes, LEGACY);
}

static gmlake_result ask(int which) {
  gmlake_allocation_info allocation;
  gmlake_buffer_info of_buffer;
  gmlake_error_info error;
  gmlake_budget budget;
  gmlake_piece pieces[4];
  gmlake_stats figures;
  size_t count;
  figures.struct_bytes = 0;
  if (which == 0) return gmlake_get_allocation(lake, kept, &allocation);
  if (which == 1) return gmlake_get_pieces(lake, kept, pieces, 4, &count);
  if (which == 2) return gmlake_get_stats(lake, &figures);
  if (which == 3) return gmlake_get_last_error(lake, &error);
  if (which == 4) return gmlake_buffer_get_info(lake, buffer, &of_buffer);
  if (which == 5) return gmlake_get_allocation(lake, (char *)kept + 1, &allocation);
  return gmlake_get_budget(lake, &budget);
}

#define BOOKS 0   /* never waits for a planner */
#define PLANNER 1 /* is one */
/* In this order, on one lake. */
#define CALLS(X)                                                                          \
  X(BOOKS, alloc_of_free_memory, OK, alloc(C, LEGACY))                                    \
  X(BOOKS, alloc_of_nothing, OK, alloc(0, LEGACY))                                        \
  X(BOOKS, alloc_with_unknown_flags, ERROR_INVALID_ARGUMENT, alloc_with(C, 64))           \
  X(PLANNER, alloc_that_stitches, OK, alloc(2 * C, LEGACY))                               \
  X(PLANNER, alloc_that_grows, OK, alloc(3 * C, LEGACY))                                  \
  X(PLANNER, alloc_of_too_much, ERROR_OUT_OF_DEVICE_MEMORY, alloc(64 * C, LEGACY))        \
  X(PLANNER, alloc_that_may_not_grow, ERROR_OUT_OF_DEVICE_MEMORY,                         \
    alloc_with(20 * C, GMLAKE_NO_GROW))                                                   \
  X(BOOKS, free, OK, gmlake_free(lake, fresh, B))                                         \
  X(BOOKS, free_twice, ERROR_DOUBLE_FREE, gmlake_free(lake, fresh, B))                    \
  X(BOOKS, free_of_a_recorded_block, OK, gmlake_free(lake, labelled, A))                  \
  X(BOOKS, record_stream, OK, gmlake_record_stream(lake, kept, A))                        \
  X(PLANNER, forget_stream, OK, gmlake_forget_stream(lake, B))                            \
  X(BOOKS, get_allocation, OK, ask(0))                                                    \
  X(BOOKS, get_allocation_of_none, ERROR_UNKNOWN_POINTER, ask(5))                         \
  X(BOOKS, get_pieces, OK, ask(1))                                                        \
  X(BOOKS, get_stats, OK, ask(2))                                                         \
  X(BOOKS, reset_peaks, OK, gmlake_reset_peaks(lake))                                     \
  X(BOOKS, get_last_error, OK, ask(3))                                                    \
  X(BOOKS, buffer_get_info, OK, ask(4))                                                   \
  X(PLANNER, get_budget, OK, ask(6))                                                      \
  X(BOOKS, buffer_shrinks, OK, resize(C))                                                 \
  X(BOOKS, buffer_grows_over_what_is_mapped, OK, resize(2 * C))                           \
  X(PLANNER, buffer_grows, OK, resize(3 * C))                                             \
  X(BOOKS, buffer_grows_too_far, ERROR_INVALID_ARGUMENT, resize(8 * C + 1))               \
  X(BOOKS, buffer_discard, OK, gmlake_buffer_discard(lake, buffer, C, C, LEGACY))         \
  X(BOOKS, buffer_discard_of_no_chunk, ERROR_INVALID_ARGUMENT,                            \
    gmlake_buffer_discard(lake, buffer, 1, C, LEGACY))                                    \
  X(BOOKS, buffer_commit_of_what_is_mapped, OK,                                           \
    gmlake_buffer_commit(lake, buffer, 0, 2 * C, LEGACY))                                 \
  X(PLANNER, buffer_commit, OK, gmlake_buffer_commit(lake, buffer, 4 * C, C, LEGACY))     \
  X(PLANNER, buffer_commit_chunks, OK, commit_any(5 * C))                                 \
  X(PLANNER, buffer_create, OK, create_buffer(&third_buffer))                             \
  X(BOOKS, buffer_destroy, OK, gmlake_buffer_destroy(lake, other_buffer, LEGACY))         \
  X(BOOKS, capture_begin, OK, gmlake_capture_begin(lake, A, pool))                        \
  X(PLANNER, capture_begin_twice, ERROR_CAPTURING,                                        \
    ((void)gmlake_mock_capture_begin(mock, A), gmlake_capture_begin(lake, A, pool)))      \
  X(PLANNER, pool_destroy_in_a_capture, ERROR_CAPTURING, gmlake_pool_destroy(lake, pool)) \
  X(PLANNER, capture_end, OK,                                                             \
    ((void)gmlake_mock_capture_end(mock, A), gmlake_capture_end(lake, A)))                \
  X(PLANNER, capture_end_twice, ERROR_INVALID_ARGUMENT, gmlake_capture_end(lake, A))      \
  X(PLANNER, pool_create, OK, gmlake_pool_create(lake, NULL, &pool))                      \
  X(PLANNER, pool_destroy, OK, gmlake_pool_destroy(lake, doomed))                         \
  X(PLANNER, trim, OK, gmlake_trim(lake, 0, NULL))                                        \
  X(PLANNER, check, OK, gmlake_check(lake))

#define AS_FUNCTION(which, name, result, call) \
  static gmlake_result do_##name(void) { return call; }
#define AS_ROW(which, name, result, call) {#name, which, GMLAKE_##result, do_##name},
CALLS(AS_FUNCTION)
static const struct {
  const char *name;
  int is_planner;
  gmlake_result result;
  gmlake_result (*call)(void);
} calls[] = {CALLS(AS_ROW)};
#define CALL_COUNT (sizeof(calls) / sizeof(calls[0]))

static void every_call_gives_back_what_it_takes(void **state) {
  size_t i;
  (void)state;
  prepare_watched(16);
  open_lake();
  furnish();
  for (i = 0; i < CALL_COUNT; i++) {
    unsigned driving = lake->driver_lock.taken, books = lake->state_lock.taken;
    gmlake_result result = calls[i].call();
    if (result != calls[i].result) fail_msg("%s: %s", calls[i].name, gmlake_result_name(result));
    assert_well(calls[i].name);
    if (lake->state_lock.taken == books) fail_msg("%s: without the state lock", calls[i].name);
    if ((lake->driver_lock.taken != driving) != calls[i].is_planner)
      fail_msg("%s: plans %s", calls[i].name, calls[i].is_planner ? "unlocked" : "for nothing");
  }
  end();
}

/* The mock has one of its own. */
static void all_locks_are_made_or_none(void **state) {
  size_t i;
  (void)state;
  prepare_watched(16);
  assert_int_equal(made, 1);
  open_lake();
  assert_int_equal(made, 4);
  end();
  prepare_watched(16);
  desc.flags = GMLAKE_SINGLE_THREADED;
  open_lake();
  assert_int_equal(made, 1);
  furnish();
  for (i = 0; i < CALL_COUNT; i++) assert_int_equal(calls[i].call(), calls[i].result);
  assert_int_equal(lake->turn.taken + lake->driver_lock.taken + lake->state_lock.taken, 0);
  end();
}

static void a_create_that_fails_leaves_no_lock(void **state) {
  gmlake_result result = GMLAKE_ERROR_DRIVER;
  long n;
  (void)state;
  for (n = 1; result; n++) {
    prepare_watched(16);
    host_fail_in = n;
    result = gmlake_create(&desc, &lake);
    host_fail_in = 0;
    assert_well("gmlake_create");
    assert_int_equal(made, result ? 1 : 4);
    if (result) close_mock();
  }
  assert_true(n > 5);
  end();
}

/* ---- Ways out -------------------------------------------------------------------------------- */

/* All of them once more, whatever they answer. */
static void call_all(const char *with) {
  size_t i;
  for (i = 0; i < CALL_COUNT; i++) {
    char what[96];
    (void)calls[i].call();
    (void)snprintf(what, sizeof(what), "%s with %s", calls[i].name, with);
    assert_well(what);
  }
}

/* Each kind of call of the driver fails, the first time or some time later, or from then on. */
static void fail_all(gmlake_result result, int stays) {
  char what[96];
  long in;
  int kind;
  for (kind = 0; kind < ON_KINDS; kind++)
    for (in = 1; in < 8; in += 2) {
      prepare_watched(16);
      open_lake();
      furnish();
      gmlake_mock_stream_hold(mock, A);
      fail_call(kind, in, result, stays);
      (void)snprintf(what, sizeof(what), "call %ld of kind %d failing", in, kind);
      call_all(what);
      end();
    }
}

static void whatever_the_driver_refuses(void **state) {
  (void)state;
  fail_all(GMLAKE_ERROR_DRIVER, 0);
  fail_all(GMLAKE_ERROR_DRIVER, 1);
  fail_all(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
}

static void whenever_the_device_is_lost(void **state) {
  (void)state;
  fail_all(GMLAKE_ERROR_DEVICE_LOST, 0);
}

/* One allocation, or all from it on; then the host waits with an event of its own. */
static void wherever_host_memory_lacks(void **state) {
  char what[96];
  long in;
  int stays;
  (void)state;
  for (stays = 0; stays < 2; stays++)
    for (in = 1; in < 40; in++) {
      prepare_watched(16);
      open_lake();
      furnish();
      gmlake_mock_stream_hold(mock, A);
      host_fail_in = in;
      host_fails_on = stays;
      (void)snprintf(what, sizeof(what), "allocation %ld of host memory failing", in);
      call_all(what);
      host_fail_in = host_fails_on = 0;
      end();
    }
}

static void a_wait_without_host_memory(void **state) {
  (void)state;
  prepare_watched(16);
  open_lake();
  A = open_stream();
  doomed = open_pool(0);
  gmlake_mock_stream_hold(mock, A);
  drop_on(take_from(doomed, 2 * C, A), A);
  host_fail_in = host_fails_on = 1;
  assert_ok(gmlake_pool_destroy(lake, doomed));
  host_fail_in = host_fails_on = 0;
  assert_int_equal(census().host_wait_count, 1);
  assert_well("gmlake_pool_destroy");
  assert_ok(gmlake_check(lake));
  end();
}

static void a_check_that_finds_damage(void **state) {
  (void)state;
  prepare_watched(16);
  open_lake();
  furnish();
  lake->stats.live_count++;
  assert_error(gmlake_check(lake), CORRUPT);
  assert_well("gmlake_check");
  lake->stats.live_count--;
  assert_ok(gmlake_check(lake));
  end();
}

/* ---- While a planner waits for its turn ------------------------------------------------------ */

static void *pending;
static gmlake_pool *asked_pool;

/* The sixteenth stream is forgotten: its number serves another one, which frees memory at once. */
static void forget_and_reuse(void) {
  step(gmlake_forget_stream(lake, A));
  B = open_stream();
  gmlake_mock_stream_hold(mock, B);
  pending = take_from(pool, C, B);
  drop_on(pending, B);
}

static void a_stream_is_forgotten_while_its_call_waits(void **state) {
  gmlake_allocation_info info;
  void *p;
  size_t i;
  (void)state;
  prepare_watched(16);
  open_lake();
  A = open_stream();
  drop_on(take_on(512, A), NONE);
  for (i = 0; i < 15; i++) {
    gmlake_stream other = open_stream();
    drop_on(take_on(512, other), other);
    step(gmlake_forget_stream(lake, other));
  }
  trim_to(0);
  pool = open_pool(0); /* it knows one number, and A gets another */
  drop_on(take_from(pool, 2 * C, NONE), NONE);
  (void)take_from(pool, C, NONE);
  before_planning = forget_and_reuse;
  p = take_from(pool, 2 * C, A);
  assert_int_equal(stats().stream_wait_count, 0);
  for (i = 0; i < piece_count(p); i++) assert_ptr_not_equal(piece(p, i).home, pending);
  step(gmlake_get_allocation(lake, p, &info));
  assert_ptr_equal(info.stream, A);
  end();
}

static void end_its_capture(void) { step(gmlake_capture_end(lake, A)); }
static void begin_a_capture(void) { step(gmlake_capture_begin(lake, A, pool)); }

static gmlake_pool *pool_of(const void *ptr) {
  gmlake_allocation_info info;
  step(gmlake_get_allocation(lake, ptr, &info));
  assert_ptr_equal(info.stream, A);
  return info.pool;
}

static void captures_end_and_begin_while_a_call_waits(void **state) {
  gmlake_alloc_desc wanted;
  uint64_t refused;
  (void)state;
  prepare_watched(16);
  open_lake();
  A = open_stream();
  pool = open_pool(0);
  asked_pool = open_pool(0);
  begin_a_capture();
  before_planning = end_its_capture;
  assert_null(pool_of(take_on(2 * C, A)));
  before_planning = begin_a_capture;
  assert_ptr_equal(pool_of(take_on(2 * C, A)), pool);
  end_its_capture();
  before_planning = begin_a_capture;
  wanted = request(2 * C, 0, asked_pool);
  refused = stats().state_count[4];
  step_error(try_with(&wanted, A), CAPTURING);
  assert_string_equal(
      last_error().text,
      "pool is not the one that the stream is captured into: set it to that one or to NULL");
  assert_int_equal(stats().state_count[4], refused + 1);
  end();
}

static void use_records_up(void) {
  while (lake->records.unused_count >= 2) (void)take_on(512, NONE);
}

static void use_host_memory_up(void) {
  use_records_up();
  host_fail_in = host_fails_on = 1;
}

static void host_memory_runs_out_while_a_call_waits(void **state) {
  (void)state;
  prepare_watched(16);
  open_lake();
  A = open_stream();
  (void)take_on(512, A);
  before_planning = use_records_up; /* there is more */
  (void)take_on(4 * C, A);
  before_planning = use_host_memory_up;
  step_error(try_on(4 * C, A), OUT_OF_HOST_MEMORY);
  host_fail_in = host_fails_on = 0;
  assert_ok(gmlake_check(lake));
  end();
}

static void grow_it_too(void) { step(gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY)); }

static uint64_t calls_until_lost;

static void lose_the_device(void) {
  fail_call(ON_CREATE, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(try_on(4 * C, LEGACY), DEVICE_LOST);
  calls_until_lost = census().call_count;
}

static void a_device_is_lost_while_a_planner_waits(void **state) {
  gmlake_pool *pool;
  int allocates;
  (void)state;
  for (allocates = 0; allocates < 2; allocates++) {
    prepare_watched(16);
    open_lake();
    A = open_stream();
    B = open_stream();
    flood(2);
    drop_on(take_on(C, A), A);
    drop_on(take_on(C, B), B);
    before_planning = lose_the_device;
    if (allocates)
      assert_error(try_on(8 * C, LEGACY), DEVICE_LOST);
    else
      assert_error(gmlake_pool_create(lake, NULL, &pool), DEVICE_LOST); /* asks no stream */
    assert_well("the loss");
    assert_int_equal(census().call_count, calls_until_lost);
    assert_int_equal(census().handle_count, 2);
    end();
  }
}

/* What was a growth when it was asked for takes chunks away by now. */
static void a_captured_growth_becomes_a_shrink_while_it_waits(void **state) {
  gmlake_buffer_info info;
  (void)state;
  prepare_watched(16);
  open_lake();
  A = open_stream();
  pool = open_pool(0);
  buffer = open_buffer(8);
  begin_a_capture();
  before_planning = grow_it_too;
  step_error(gmlake_buffer_resize(lake, buffer, 2 * C, A), CAPTURING);
  step(gmlake_buffer_get_info(lake, buffer, &info));
  assert_int_equal(info.committed_bytes, 4 * C);
  end();
}

/* ---- The mock -------------------------------------------------------------------------------- */

static unsigned handler_calls;

static void empty_it(void) {
  buffer->is_busy = 0; /* another thread's growth is over */
  assert_ok(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
}

static int shrink_while_it_is_busy(void *user, gmlake *of, const gmlake_error_info *info) {
  (void)user, (void)info;
  handler_calls++;
  buffer->is_busy = 1;
  before_planning = empty_it;
  assert_error(gmlake_buffer_resize(of, buffer, C, LEGACY), INVALID_ARGUMENT);
  assert_string_equal(last_error().text,
                      "called from the out-of-memory handler, which may free and trim only");
  return 0;
}

/* A shrink in the out-of-memory handler is refused where it is a growth when its turn comes. */
static void a_handlers_shrink_becomes_a_growth_while_it_waits(void **state) {
  (void)state;
  prepare_watched(4);
  desc.oom.fn = shrink_while_it_is_busy;
  open_lake();
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  handler_calls = 0;
  step_error(try_on(8 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(handler_calls, 1);
  assert_int_equal(stats().buffer_bytes, 0);
  end();
}

static void the_mocks_calls_give_back_its_own(void **state) {
  gmlake_stream stream = NULL;
  gmlake_mock_census now;
  (void)state;
  prepare_watched(16);
#define MOCK_CALL(call) \
  do {                  \
    (void)(call);       \
    assert_well(#call); \
  } while (0)
  MOCK_CALL(gmlake_mock_stream_create(mock, &stream));
  MOCK_CALL((gmlake_mock_get_census(mock, &now), 0));
  MOCK_CALL((gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0), 0));
  MOCK_CALL((gmlake_mock_stream_hold(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_finish(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_set_lag(mock, stream, 9), 0));
  MOCK_CALL((gmlake_mock_set_clock(mock, 9), 0));
  MOCK_CALL(gmlake_mock_capture_begin(mock, NULL)); /* refused */
  MOCK_CALL(gmlake_mock_capture_begin(mock, stream));
  MOCK_CALL(gmlake_mock_capture_end(mock, stream));
  MOCK_CALL(gmlake_mock_capture_end(mock, stream)); /* refused */
  MOCK_CALL((gmlake_mock_stream_destroy(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_destroy(mock, stream), 0)); /* there is none */
  MOCK_CALL(mock->clock_ns(mock->user));
#undef MOCK_CALL
  close_mock();
  before_driver_call = NULL;
  assert_int_equal(made, 0);
}

/* What a call answers is known before the next one may begin. */
static void the_mocks_answers_are_read_under_its_lock(void **state) {
  uint64_t handle = 0;
  int code = 0;
  (void)state;
  prepare_watched(16);
  gmlake_mock_fail_at(mock, 1, GMLAKE_ERROR_DRIVER, 0);
  is_spoilt = 1;
  assert_error(mock->create(mock->user, C, 0, &handle, &code), DRIVER);
  is_spoilt = 0;
  assert_int_equal(code, 999); /* CUDA_ERROR_UNKNOWN */
  assert_well("create");
  close_mock();
  before_driver_call = NULL;
}

/* ---- Callbacks ------------------------------------------------------------------------------- */

static void expect_locks(int books, int driving, const char *what) {
  complain(lake->state_lock.is_held != books || lake->driver_lock.is_held != driving, what);
  told++;
}

static void on_log(void *user, int level, const gmlake_error_info *info) {
  (void)user, (void)level, (void)info;
  if (lake) expect_locks(0, 0, "the logger runs with a lock held");
}

static int on_oom(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)user, (void)from, (void)info;
  expect_locks(0, 0, "the handler runs with a lock held");
  (void)gmlake_trim(lake, 0, NULL);
  (void)alloc(512, LEGACY);
  return told < 3;
}

static void on_event(void *user, const gmlake_step *event) {
  (void)user, (void)event;
  if (!lake) return;
  complain(!lake->state_lock.is_held, "the observer is told without the state lock");
  told++;
}

/* What it calls is refused, with the locks as they were. */
static void on_choose(void *user, const gmlake_view *view, const gmlake_request *asked,
                      gmlake_plan *plan) {
  (void)user, (void)view, (void)asked, (void)plan;
  expect_locks(0, 1, "choose is not asked as a planner");
  complain(gmlake_check(lake) != GMLAKE_ERROR_INVALID_ARGUMENT, "a policy may check the lake");
  complain(gmlake_trim(lake, 0, NULL) != GMLAKE_ERROR_INVALID_ARGUMENT, "a policy may trim");
  expect_locks(0, 1, "a policy's call leaves other locks");
}

static size_t on_evict(void *user, const gmlake_view *view, size_t mapped_bytes,
                       uint64_t *out_windows) {
  (void)user, (void)view, (void)mapped_bytes, (void)out_windows;
  expect_locks(0, 1, "evict is not asked as a planner");
  return 0;
}

static int on_coalesce(void *user, const gmlake_piece *block) {
  (void)user, (void)block;
  complain(lake->state_lock.is_held, "coalesce is asked with the state lock held");
  told++;
  return 1;
}

static gmlake_policy policy = {sizeof(gmlake_policy), NULL, on_choose, on_evict, on_coalesce};

static void the_handler_holds_no_lock(void **state) {
  (void)state;
  prepare_watched(16);
  desc.oom.fn = on_oom;
  open_lake();
  furnish();
  assert_error(alloc(64 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(told, 3);
  assert_well("an allocation");
  told = 0;
  assert_ok(resize(8 * C));
  assert_ok(alloc(C, LEGACY));
  call_all("a handler");
  end();
}

/* Of a device that is lost, and of blocks that were never freed. */
static void the_logger_holds_no_lock(void **state) {
  gmlake *ending;
  (void)state;
  prepare_watched(16);
  desc.logger.fn = on_log;
  open_lake();
  furnish();
  fail_call(ON_CREATE, 1, GMLAKE_ERROR_DEVICE_LOST, 0);
  assert_error(alloc(5 * C, LEGACY), DEVICE_LOST);
  assert_int_equal(told, 1);
  assert_well("an allocation");
  memset(faults, 0, sizeof(faults));
  is_ending = 1;
  ending = lake;
  assert_error(gmlake_destroy(ending), DEVICE_LOST);
  assert_true(told > 3);
  lake = NULL;
  close_mock();
  assert_well("gmlake_destroy");
}

static void the_observer_has_the_books(void **state) {
  (void)state;
  prepare_watched(16);
  desc.observer.fn = on_event;
  open_lake();
  furnish();
  call_all("an observer");
  assert_true(told > 20);
  end();
}

static void policies_do_not_have_the_books(void **state) {
  (void)state;
  prepare_watched(16);
  desc.policy = &policy;
  desc.observer.fn = on_event;
  open_lake();
  furnish();
  call_all("a policy");
  assert_true(told > 20);
  end();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(every_call_gives_back_what_it_takes),
      cmocka_unit_test(all_locks_are_made_or_none),
      cmocka_unit_test(a_create_that_fails_leaves_no_lock),
      cmocka_unit_test(whatever_the_driver_refuses),
      cmocka_unit_test(whenever_the_device_is_lost),
      cmocka_unit_test(wherever_host_memory_lacks),
      cmocka_unit_test(a_wait_without_host_memory),
      cmocka_unit_test(a_check_that_finds_damage),
      cmocka_unit_test(a_stream_is_forgotten_while_its_call_waits),
      cmocka_unit_test(captures_end_and_begin_while_a_call_waits),
      cmocka_unit_test(host_memory_runs_out_while_a_call_waits),
      cmocka_unit_test(a_device_is_lost_while_a_planner_waits),
      cmocka_unit_test(a_captured_growth_becomes_a_shrink_while_it_waits),
      cmocka_unit_test(a_handlers_shrink_becomes_a_growth_while_it_waits),
      cmocka_unit_test(the_mocks_calls_give_back_its_own),
      cmocka_unit_test(the_mocks_answers_are_read_under_its_lock),
      cmocka_unit_test(the_handler_holds_no_lock),
      cmocka_unit_test(the_logger_holds_no_lock),
      cmocka_unit_test(the_observer_has_the_books),
      cmocka_unit_test(policies_do_not_have_the_books),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
