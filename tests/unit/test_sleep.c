/* Sleep and wake: what comes back at which address, what is given up, what calls answer meanwhile,
   and that a failure anywhere leaves a pool awake as it was, or asleep with all that it kept. */
#include "waiters.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#define DROP GMLAKE_SLEEP_DROP
#define KEEP GMLAKE_SLEEP_KEEP

static size_t sleep_now(gmlake_pool *pool, gmlake_sleep_mode mode) {
  size_t released = 77;
  step(gmlake_pool_sleep(lake, pool, mode, &released));
  return released;
}

static void wake_now(gmlake_pool *pool) { step(gmlake_pool_wake(lake, pool)); }

static void fill(void *ptr, size_t bytes, int seed) {
  unsigned char *at = (unsigned char *)ptr;
  size_t i;
  for (i = 0; i < bytes; i += 64) at[i] = (unsigned char)(seed + (int)(i / 64));
}

static void assert_filled(const void *ptr, size_t bytes, int seed) {
  const unsigned char *at = (const unsigned char *)ptr;
  size_t i;
  for (i = 0; i < bytes; i += 64) assert_int_equal(at[i], (unsigned char)(seed + (int)(i / 64)));
}

/* A pool with everything: blocks whole and in part of chunks, a live window, an idle window that no
   capture knows, memory and a window that only a graph knows, and free chunks. */
static struct full_pool {
  gmlake_pool *pool;
  gmlake_stream stream;
  void *blocks[4]; /* of 1.5, 2, .25 chunks; a window of 2 */
  void *known, *known_window;
  gmlake_buffer *buffer; /* of 3 pages, with a hole in the middle */
  char *in_buffer;
} full;

static size_t page = C; /* buffers' chunk */

static const size_t full_bytes[4] = {3 * C / 2, 2 * C, C / 4, 2 * C};

static void fill_pool(int seed) {
  int i;
  for (i = 0; i < 4; i++)
    if (full.blocks[i]) fill(full.blocks[i], full_bytes[i], seed + i);
  fill(full.known, C, seed + 10);
  fill(full.known_window, 2 * C, seed + 11);
  fill(full.in_buffer, page, seed + 20);
  fill(full.in_buffer + 2 * page, page, seed + 21);
}

static void assert_pool(int seed) {
  int i;
  for (i = 0; i < 4; i++)
    if (full.blocks[i]) assert_filled(full.blocks[i], full_bytes[i], seed + i);
  assert_filled(full.known, C, seed + 10);
  assert_filled(full.known_window, 2 * C, seed + 11);
  assert_filled(full.in_buffer, page, seed + 20);
  assert_filled(full.in_buffer + 2 * page, page, seed + 21);
}

static void make_buffer(void) {
  gmlake_buffer_desc wanted = buffer_desc(4 * page);
  gmlake_buffer_info info;
  wanted.pool = full.pool;
  wanted.chunk_bytes = page;
  step(gmlake_buffer_create(lake, &wanted, &full.buffer));
  step(gmlake_buffer_resize(lake, full.buffer, 4 * page, full.stream));
  step(gmlake_buffer_resize(lake, full.buffer, 3 * page, full.stream));
  step(gmlake_buffer_discard(lake, full.buffer, page, page, full.stream));
  assert_ok(gmlake_buffer_get_info(lake, full.buffer, &info));
  full.in_buffer = (char *)info.ptr;
}

static void make_pool(int seed) {
  void *hold[8], *window, *rest;
  int i;
  memset(&full, 0, sizeof(full));
  full.pool = open_pool(0);
  full.stream = open_stream();
  if (page != C) make_buffer();             /* else the blocks would take what it gave up */
  rest = take_from(full.pool, 8 * C, NONE); /* holes of a chunk, between chunks in use */
  drop_on(rest, NONE);
  for (i = 0; i < 8; i++) hold[i] = take_from(full.pool, C, full.stream);
  for (i = 0; i < 8; i += 2) drop_on(hold[i], NONE);
  step(gmlake_capture_begin(lake, full.stream, full.pool));
  assert_ok(gmlake_mock_capture_begin(mock, full.stream));
  full.known = take_on(C, full.stream);
  full.known_window = take_on(2 * C, full.stream);
  assert_true(piece_count(full.known_window) > 1);
  drop_on(full.known, full.stream);
  drop_on(full.known_window, full.stream);
  assert_ok(gmlake_mock_capture_end(mock, full.stream));
  step(gmlake_capture_end(lake, full.stream));
  drop_on(hold[1], NONE);
  drop_on(hold[3], NONE);
  full.blocks[0] = take_from(full.pool, full_bytes[0], full.stream);
  full.blocks[1] = take_from(full.pool, full_bytes[1], full.stream);
  full.blocks[2] = take_from(full.pool, full_bytes[2], full.stream);
  drop_on(hold[7], NONE);
  drop_on(hold[5], NONE);
  for (i = 0; i < 8; i++) hold[i] = take_from(full.pool, C, full.stream);
  for (i = 0; i < 8; i += 2) drop_on(hold[i], NONE);
  full.blocks[3] = take_from(full.pool, full_bytes[3], full.stream);
  window = take_from(full.pool, 2 * C, full.stream);
  assert_true(piece_count(full.blocks[3]) > 1 && piece_count(window) > 1);
  drop_on(window, NONE);
  for (i = 1; i < 8; i += 2) drop_on(hold[i], NONE);
  if (page == C) make_buffer();
  fill_pool(seed);
}

static void end_pool(void) {
  int i;
  for (i = 0; i < 4; i++)
    if (full.blocks[i]) drop_on(full.blocks[i], NONE);
  step(gmlake_buffer_destroy(lake, full.buffer, NONE));
  step(gmlake_pool_destroy(lake, full.pool));
}

static void a_pool_keeps_its_contents(void **state) {
  size_t held, released, chunks;
  uint64_t windows;
  (void)state;
  start(64);
  make_pool(3);
  held = stats().reserved_bytes;
  windows = stats().window_count;
  released = sleep_now(full.pool, KEEP);
  assert_int_equal(released, held);
  assert_int_equal(stats().reserved_bytes, 0);
  assert_int_equal(stats().chunk_count, 0);
  assert_int_equal(census().handle_count, 0);
  assert_int_equal(census().mapping_count, 0);
  assert_int_equal(census().physical_bytes, 0);
  chunks = stats().sleeping_bytes / C;
  assert_true(chunks && chunks <= held / C);
  assert_int_equal(stats().window_count,
                   windows - 1); /* the idle one that no capture knows is gone */
  wake_now(full.pool);
  assert_int_equal(stats().reserved_bytes, chunks * C);
  assert_int_equal(stats().sleeping_bytes, 0);
  assert_int_equal(census().handle_count, chunks - 2 * (page / C - 1));
  /* A page is mapped at home too where it is a chunk as blocks have them. */
  assert_int_equal(census().mapping_count - stats().stitched_bytes / C,
                   census().handle_count + (page == C ? 2 : 0));
  assert_pool(3);
  fill_pool(50);
  assert_pool(50);
  end_pool();
  finish();
}

/* After sleep and wake a block, its pieces at home and a buffer's places are the same memory. */
static void mappings_alias_as_before(void **state) {
  void *window, *blocks[8];
  int i;
  (void)state;
  start(64);
  lay(blocks, 8);
  for (i = 0; i < 8; i += 2) drop_on(blocks[i], NONE);
  window = take(3 * C);
  assert_int_equal(piece_count(window), 3);
  fill(window, 3 * C, 5);
  (void)sleep_now(NULL, KEEP);
  wake_now(NULL);
  assert_filled(window, 3 * C, 5);
  fill(window, 3 * C, 60);
  for (i = 0; i < 3; i++)
    assert_memory_equal((char *)window + (size_t)i * C, piece(window, (size_t)i).home, C);
  finish();
}

static void what_is_freed_asleep_does_not_come_back(void **state) {
  gmlake_buffer *buffer, *gone;
  gmlake_buffer_info info;
  uint64_t windows;
  size_t sleeping;
  int i;
  (void)state;
  prepare(64);
  desc.flags = GMLAKE_FILL;
  open_lake();
  make_pool(3);
  windows = stats().window_count;
  buffer = open_buffer(8);
  gone = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, 6 * C, full.stream));
  step(gmlake_buffer_resize(lake, gone, 2 * C, full.stream));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  fill(info.ptr, 6 * C, 30);
  (void)sleep_now(full.pool, KEEP);
  (void)sleep_now(NULL, KEEP);
  sleeping = stats().sleeping_bytes;
  step(gmlake_record_stream(lake, full.blocks[1], open_stream()));
  drop_on(full.blocks[1], full.stream); /* of two chunks */
  drop_on(full.blocks[3], full.stream); /* a window */
  full.blocks[1] = full.blocks[3] = NULL;
  step(gmlake_buffer_resize(lake, buffer, 4 * C, full.stream));
  step(gmlake_buffer_discard(lake, buffer, 1 * C, C, full.stream));
  step_error(gmlake_buffer_commit(lake, buffer, 1 * C, C, full.stream), ASLEEP);
  step(gmlake_buffer_destroy(lake, gone, full.stream));
  assert_int_equal(stats().sleeping_bytes, sleeping);
  assert_int_equal(trim_to(0), 0);
  step(gmlake_get_budget(lake, &(gmlake_budget){0}));
  wake_now(full.pool);
  wake_now(NULL);
  assert_true(stats().reserved_bytes <= sleeping - 6 * C);
  assert_int_equal(stats().window_count, windows - 2); /* one was idle before */
  assert_pool(3);
  for (i = 0; i < 2; i++) {
    assert_filled(info.ptr, C, 30);
    assert_filled((char *)info.ptr + 2 * C, 2 * C, 30 + 2 * (int)(C / 64));
    step(gmlake_buffer_resize(lake, buffer, 8 * C, full.stream));
    step(gmlake_buffer_commit(lake, buffer, 0, 8 * C, full.stream));
  }
  end_pool();
  finish();
}

static void to_sleep_and_to_wake_may_be_repeated(void **state) {
  size_t released = 1;
  (void)state;
  start(64);
  make_pool(3);
  wake_now(full.pool); /* it is awake */
  (void)sleep_now(full.pool, KEEP);
  assert_int_equal(sleep_now(full.pool, KEEP), 0);
  assert_int_equal(census().host_count, page == C ? 1 : 2);
  wake_now(full.pool);
  wake_now(full.pool);
  assert_pool(3);
  (void)sleep_now(full.pool, KEEP);
  assert_int_equal(census().host_count, page == C ? 1 : 2); /* the same */
  assert_int_equal(sleep_now(full.pool, DROP), 0);
  assert_int_equal(census().host_count, 0);
  assert_int_equal(sleep_now(full.pool, KEEP), 0); /* nothing is left to keep */
  assert_int_equal(census().host_count, 0);
  wake_now(full.pool);
  fill_pool(4);
  assert_ok(gmlake_pool_sleep(lake, full.pool, KEEP, NULL));
  wake_now(full.pool);
  assert_pool(4);
  assert_int_equal(census().host_count, page == C ? 1 : 2);
  assert_int_equal(trim_to(SIZE_MAX), 0); /* returns what was kept for the next time */
  assert_int_equal(census().host_count, 0);
  step_error(gmlake_pool_sleep(lake, full.pool, (gmlake_sleep_mode)2, &released), INVALID_ARGUMENT);
  assert_int_equal(released, 0);
  end_pool();
  finish();
}

static void rounds_leave_nothing_behind(void **state) {
  gmlake_mock_census first, now;
  gmlake_stats was, is;
  gmlake_buffer *buffer;
  gmlake_buffer_info info;
  int round;
  (void)state;
  start(64);
  make_pool(0);
  buffer = open_buffer(8);
  step(gmlake_buffer_resize(lake, buffer, 5 * C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  fill(info.ptr, 5 * C, 40);
  for (round = 0; round < 200; round++) {
    gmlake_sleep_mode mode = round % 5 == 4 ? DROP : KEEP;
    assert_ok(gmlake_pool_sleep(lake, full.pool, mode, NULL));
    assert_ok(gmlake_pool_sleep(lake, NULL, KEEP, NULL));
    assert_int_equal(census().physical_bytes, 0);
    assert_ok(gmlake_pool_wake(lake, round % 2 ? NULL : full.pool));
    assert_ok(gmlake_pool_wake(lake, round % 2 ? full.pool : NULL));
    if (mode == KEEP) assert_pool(round);
    assert_filled(info.ptr, 5 * C, 40);
    fill_pool(round + 1);
    now = census();
    is = stats();
    if (!round) {
      first = now;
      was = is;
      continue;
    }
    assert_int_equal(now.handle_count, first.handle_count);
    assert_int_equal(now.mapping_count, first.mapping_count);
    assert_int_equal(now.physical_bytes, first.physical_bytes);
    assert_int_equal(now.event_count, first.event_count);
    assert_int_equal(now.host_count, first.host_count);
    assert_int_equal(is.metadata_bytes, was.metadata_bytes);
    assert_int_equal(is.reserved_bytes, was.reserved_bytes);
  }
  end_pool();
  finish();
}

/* ---- failures -------------------------------------------------------------------------------- */

/* Fails the n-th call from here on, or all from there on. */
static void fail_from(uint64_t n, int stays) {
  gmlake_mock_fail_at(mock, census().call_count + n, GMLAKE_ERROR_DRIVER, stays);
}

static void fail_none(void) { gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0); }

static int is_asleep(gmlake_pool *pool) {
  gmlake_alloc_desc wanted = request(C, 0, pool);
  void *ptr;
  gmlake_result result = gmlake_alloc_with(lake, &wanted, NONE, &ptr);
  if (!result) drop_on(ptr, NONE);
  assert_true(!result || result == GMLAKE_ERROR_ASLEEP);
  return result != GMLAKE_OK;
}

/* Whatever fails while a pool falls asleep: it is awake with its contents, or it sleeps, and wakes
   with them. */
static void sleep_is_undone_whatever_fails(void **state) {
  int stays, ended, failures, undone;
  uint64_t n;
  (void)state;
  for (stays = 0; stays < 2; stays++) {
    failures = undone = 0;
    for (n = 1, ended = 0; !ended; n++) {
      gmlake_result result;
      uint64_t calls;
      start(64);
      make_pool(3);
      step(gmlake_buffer_resize(lake, open_buffer(4), 3 * C, LEGACY));
      fail_from(n, stays);
      calls = census().call_count + n;
      result = gmlake_pool_sleep(lake, full.pool, KEEP, NULL);
      ended = census().call_count < calls;
      fail_none();
      assert_ok(gmlake_check(lake));
      if (result) {
        failures++;
        if (!stays) assert_false(is_asleep(full.pool)); /* one call fails, those that undo do not */
        if (is_asleep(full.pool))
          wake_now(full.pool);
        else
          undone++;
      } else {
        assert_true(is_asleep(full.pool));
        wake_now(full.pool);
      }
      assert_pool(3);
      assert_int_equal(stats().sleeping_bytes, 0);
      (void)sleep_now(full.pool, KEEP);
      wake_now(full.pool);
      assert_pool(3);
      end_pool();
      finish();
    }
    assert_true(failures > 10 && undone > 10);
  }
}

static void waking_is_undone_whatever_fails(void **state) {
  int stays, ended, failures, twice;
  uint64_t n;
  (void)state;
  for (stays = 0; stays < 2; stays++) {
    failures = 0;
    for (n = 1, ended = 0; !ended; n++) {
      start(64);
      make_pool(3);
      (void)sleep_now(full.pool, KEEP);
      for (twice = 0; twice < 2; twice++) {
        uint64_t calls = census().call_count + n;
        gmlake_result result;
        fail_from(n, stays);
        result = gmlake_pool_wake(lake, full.pool);
        ended = census().call_count < calls;
        fail_none();
        assert_ok(gmlake_check(lake));
        assert_int_equal(is_asleep(full.pool), result != GMLAKE_OK);
        if (!result) break;
        failures++;
      }
      wake_now(full.pool);
      assert_pool(3);
      end_pool();
      finish();
    }
    assert_true(failures > 20);
  }
}

/* Without a fault in the calls, host memory may lack. */
static void host_memory_may_lack(void **state) {
  long n;
  int ended = 0;
  (void)state;
  for (n = 1; !ended; n++) {
    gmlake_result result;
    start(64);
    make_pool(3);
    host_fail_in = n;
    result = gmlake_pool_sleep(lake, full.pool, KEEP, NULL);
    ended = host_fail_in != 0;
    host_fail_in = 0;
    assert_ok(gmlake_check(lake));
    if (result) assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(is_asleep(full.pool), result == GMLAKE_OK);
    wake_now(full.pool);
    assert_pool(3);
    end_pool();
    finish();
  }
}

static int warnings;
static void on_log(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  (void)info;
  warnings += level == GMLAKE_LOG_WARNING;
}

static void a_handle_that_stays_is_kept_and_told(void **state) {
  gmlake_pool *pool;
  void *block;
  (void)state;
  prepare(64);
  use_faults();
  desc.logger.fn = on_log;
  warnings = 0;
  open_lake();
  pool = open_pool(0);
  block = take_from(pool, 4 * C, LEGACY);
  (void)sleep_now(pool, DROP);
  wake_now(pool);
  assert_int_equal(warnings, 0);
  fail_call(ON_RELEASE, 2, GMLAKE_ERROR_DRIVER, 0);
  assert_int_equal(sleep_now(pool, DROP), 3 * C);
  assert_int_equal(stats().reserved_bytes, C);
  assert_int_equal(stats().quarantined_bytes, C);
  assert_int_equal(warnings, 1);
  wake_now(pool);
  assert_int_equal(stats().quarantined_bytes, 0);
  assert_int_equal(stats().reserved_bytes, 4 * C);
  fill(block, 4 * C, 1);
  fail_call(ON_RELEASE, 2, GMLAKE_ERROR_DRIVER, 0);
  (void)sleep_now(pool, KEEP);
  drop(block);
  step(gmlake_pool_destroy(lake, pool)); /* it is offered again */
  assert_int_equal(stats().quarantined_bytes, 0);
  assert_int_equal(stats().reserved_bytes, 0);
  finish();
}

/* ---- memory that is short -------------------------------------------------------------------- */

static gmlake_pool *to_sleep;
static int put_to_sleep(void *user, gmlake *l, const gmlake_error_info *info) {
  gmlake_pool *pool = to_sleep;
  (void)user;
  assert_true(info->asked_bytes > 0);
  assert_error(gmlake_pool_wake(l, pool), INVALID_ARGUMENT);
  to_sleep = NULL;
  return pool && !gmlake_pool_sleep(l, pool, KEEP, NULL);
}

/* A shortage of the calls that make room is a shortage as any other: it is told, and counted. */
static void a_shortage_while_making_room_is_told(void **state) {
  gmlake_pool *pool;
  (void)state;
  start_with_faults(4);
  pool = open_pool(0);
  (void)take_from(pool, C, LEGACY);
  drop(take(C));
  (void)sleep_now(pool, DROP);
  fail_call(ON_CREATE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  step_error(gmlake_pool_wake(lake, pool), OUT_OF_DEVICE_MEMORY);
  fail_call(ON_CREATE, 0, GMLAKE_OK, 0);
  fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
  assert_int_equal(stats().oom_count, 1);
  assert_int_equal(last_error().asked_bytes, C);
  assert_string_equal(last_error().call, "gmlake_pool_wake");
  finish();
}

/* One model gives way to another. */
static void the_handler_may_put_a_pool_to_sleep(void **state) {
  gmlake_pool *first, *second;
  void *a, *b;
  (void)state;
  prepare(8);
  desc.oom.fn = put_to_sleep;
  open_lake();
  first = open_pool(0);
  second = open_pool(0);
  a = take_from(first, 6 * C, LEGACY);
  fill(a, 6 * C, 1);
  to_sleep = first;
  b = take_from(second, 6 * C, LEGACY);
  fill(b, 6 * C, 2);
  to_sleep = second;
  wake_now(first);
  assert_filled(a, 6 * C, 1);
  to_sleep = first;
  wake_now(second);
  assert_filled(b, 6 * C, 2);
  step_error(gmlake_pool_wake(lake, first), OUT_OF_DEVICE_MEMORY);
  finish();
}

/* ---- the backend and the host's memory ------------------------------------------------------ */

static void tables_of_version_1_drop_and_do_not_keep(void **state) {
  gmlake_backend old;
  size_t ends[3], i;
  (void)state;
  ends[0] = offsetof(gmlake_backend, stream_id);
  ends[1] = offsetof(gmlake_backend, copy);
  ends[2] = offsetof(gmlake_backend, host_free);
  for (i = 0; i < 3; i++) {
    prepare(64);
    old = *mock;
    old.abi_version = i < 2 ? 1 : 2;
    old.struct_bytes = ends[i];
    desc.backend = &old;
    open_lake();
    make_pool(3);
    step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), UNSUPPORTED);
    assert_false(is_asleep(full.pool));
    assert_pool(3);
    (void)sleep_now(full.pool, DROP);
    wake_now(full.pool);
    fill_pool(4);
    end_pool();
    finish();
  }
}

static int stays; /* the driver does not take pinned memory back */
static gmlake_result staying_host_free(void *user, void *ptr, int *code) {
  return stays ? GMLAKE_ERROR_DRIVER : mock->host_free(user, ptr, code);
}

/* Pinned memory that the driver does not take back is told of and offered to it again: by the next
   call that gives it up, and at the end, that of a pool that is gone too. */
static void pinned_memory_that_stays_is_offered_again(void **state) {
  int is_gone;
  (void)state;
  for (is_gone = 0; is_gone < 2; is_gone++) {
    prepare(64);
    use_faults();
    faulty.host_free = staying_host_free;
    open_lake();
    make_pool(3);
    (void)sleep_now(full.pool, KEEP);
    wake_now(full.pool);
    stays = 1;
    assert_error(gmlake_trim(lake, 0, NULL), DRIVER);
    assert_true(census().host_count > 0);
    (void)sleep_now(full.pool, KEEP); /* there is room in it still */
    wake_now(full.pool);
    assert_pool(3);
    stays = is_gone;
    assert_int_equal(gmlake_trim(lake, 0, NULL) != GMLAKE_OK, is_gone);
    end_pool();
    assert_int_equal(census().host_count > 0, is_gone);
    stays = 0;
    finish();
  }
}

static int is_strict, free_count; /* no call may be made without the relaxed capture mode */
static gmlake_result strict_exchange(void *user, int *mode, int *code) {
  gmlake_result result = faulty_exchange(user, mode, code);
  is_strict = result != GMLAKE_OK;
  return result;
}
static gmlake_result strict_host_alloc(void *user, size_t bytes, void **out, int *code) {
  assert_false(is_strict);
  return mock->host_alloc(user, bytes, out, code);
}
static gmlake_result strict_host_free(void *user, void *ptr, int *code) {
  assert_false(is_strict);
  if (++free_count == 2 && stays) return GMLAKE_ERROR_DRIVER;
  return mock->host_free(user, ptr, code);
}
static gmlake_result strict_release(void *user, uint64_t handle, int *code) {
  assert_false(is_strict);
  return mock->release(user, handle, code);
}

static void no_call_follows_an_exchange_that_failed(void **state) {
  int k, is_done = 0;
  (void)state;
  for (k = 1; !is_done; k++) {
    prepare(64);
    use_faults();
    faulty.capture_exchange = strict_exchange;
    faulty.host_alloc = strict_host_alloc;
    faulty.host_free = strict_host_free;
    faulty.release = strict_release;
    open_lake();
    make_pool(3);
    fail_call(ON_EXCHANGE, k, GMLAKE_ERROR_DRIVER, 0);
    if (!gmlake_pool_sleep(lake, full.pool, KEEP, NULL)) {
      if (!is_asleep(full.pool)) (void)sleep_now(full.pool, KEEP);
      if (gmlake_pool_wake(lake, full.pool)) wake_now(full.pool);
    }
    assert_pool(3);
    (void)gmlake_trim(lake, 0, NULL);
    is_done = faults[ON_EXCHANGE].in > 0;
    fail_call(ON_EXCHANGE, 0, GMLAKE_OK, 0);
    is_strict = 0;
    step(gmlake_trim(lake, 0, NULL));
    assert_pool(3);
    end_pool();
    finish();
  }
  assert_true(k > 10);
}

static size_t host_most; /* the backend gives no larger piece */
static gmlake_result scant_host_alloc(void *user, size_t bytes, void **out, int *code) {
  if (bytes > host_most) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  return strict_host_alloc(user, bytes, out, code);
}

/* A piece that is refused is halved, down to a chunk; each serves the next time, too. What the
   driver does not take back of several is offered to it again. */
static void contents_are_kept_in_pieces(void **state) {
  const size_t most[] = {9 * C, 4 * C, 5 * C / 2, C, 512};
  size_t i, pieces;
  (void)state;
  is_strict = 0;
  for (i = 0; i < 5; i++) {
    prepare(64);
    use_faults();
    faulty.host_alloc = scant_host_alloc;
    faulty.host_free = strict_host_free;
    host_most = most[i];
    open_lake();
    make_pool(3);
    if (most[i] < page) {
      step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), OUT_OF_HOST_MEMORY);
      assert_non_null(strstr(last_error().text, "the backend has no "));
      (void)trim_to(SIZE_MAX); /* what another chunk size got */
      assert_int_equal(census().host_count, 0);
      assert_pool(3);
      end_pool();
      finish();
      continue;
    }
    (void)sleep_now(full.pool, KEEP);
    pieces = census().host_count;
    assert_true(pieces >= (page == C ? 10 * C / most[i] : 1));
    wake_now(full.pool);
    assert_pool(3);
    fill_pool(5);
    (void)sleep_now(full.pool, KEEP);
    assert_int_equal(census().host_count, pieces);
    wake_now(full.pool);
    assert_pool(5);
    (void)sleep_now(full.pool, KEEP);
    stays = pieces > 1;
    free_count = 0;
    (void)sleep_now(full.pool, DROP); /* a part is gone: so are the contents */
    assert_int_equal(census().host_count == 0, !stays);
    stays = 0;
    (void)trim_to(SIZE_MAX);
    assert_int_equal(census().host_count, 0);
    wake_now(full.pool);
    fill_pool(6);
    end_pool();
    finish();
  }
}

static int pieces_left, copies_run;
static gmlake_result few_host_alloc(void *user, size_t bytes, void **out, int *code) {
  if (bytes > C || !pieces_left) return GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
  pieces_left--;
  return mock->host_alloc(user, bytes, out, code);
}
static gmlake_result note_copy(void *user, uint64_t address, void *host, size_t bytes, int to_host,
                               int *code) {
  copies_run = bytes != 0;
  return mock->copy(user, address, host, bytes, to_host, code);
}

/* Of a vault that the host has not all of nothing stays, and no copy runs when a call has ended. */
static void a_sleep_that_fails_leaves_nothing(void **state) {
  int k, is_done = 0;
  (void)state;
  prepare(64);
  use_faults();
  faulty.host_alloc = few_host_alloc;
  faulty.copy = note_copy;
  open_lake();
  make_pool(3);
  pieces_left = 3; /* too few for one chunk size, or for the first */
  step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), OUT_OF_HOST_MEMORY);
  assert_int_equal(census().host_count, 0);
  pieces_left = 1000;
  for (k = 1; !is_done && page == C; k++) {
    fail_call(ON_UNMAP, k, GMLAKE_ERROR_DRIVER, 0);
    is_done = !gmlake_pool_sleep(lake, full.pool, KEEP, NULL) && faults[ON_UNMAP].in > 0;
    fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
    assert_false(copies_run);
    if (is_asleep(full.pool)) wake_now(full.pool);
    assert_false(copies_run);
    assert_pool(3);
  }
  end_pool();
  finish();
}

static long vaults;
static size_t vault_most; /* larger pieces are refused */
static void *vault_malloc(void *user, size_t bytes) {
  assert_ptr_equal(user, &vaults);
  assert_true(bytes > 0 && bytes % 512 == 0); /* whole blocks */
  if (bytes > vault_most) return NULL;
  vaults++;
  return malloc(bytes);
}
static void vault_free(void *user, void *ptr) {
  assert_ptr_equal(user, &vaults);
  vaults--;
  free(ptr);
}

static void host_memory_comes_from_the_hook(void **state) {
  (void)state;
  prepare(64);
  desc.sleep_host.malloc_fn = vault_malloc;
  assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
  desc.sleep_host.free_fn = vault_free;
  desc.sleep_host.user = &vaults;
  open_lake();
  make_pool(3);
  vault_most = 256;
  step_error(gmlake_pool_sleep(lake, full.pool, KEEP, NULL), OUT_OF_HOST_MEMORY);
  assert_string_equal(last_error().call, "gmlake_pool_sleep");
  assert_non_null(strstr(last_error().text, "desc.sleep_host has no "));
  assert_int_equal(vaults, 0);
  assert_pool(3);
  vault_most = SIZE_MAX;
  (void)sleep_now(full.pool, KEEP);
  assert_int_equal(vaults, page == C ? 1 : 2);
  assert_int_equal(census().host_count, 0);
  wake_now(full.pool);
  assert_pool(3);
  assert_int_equal(vaults, page == C ? 1 : 2);
  (void)trim_to(SIZE_MAX);
  assert_int_equal(vaults, 0);
  (void)sleep_now(full.pool, KEEP);
  finish();
  assert_int_equal(vaults, 0);
}

/* Also more than was kept the time before. */
static void large_contents_are_kept(void **state) {
  const size_t bytes = ((size_t)150 << 20) + 5 * C / 2;
  gmlake_pool *pool;
  void *head, *block, *more;
  (void)state;
  start(4096);
  pool = open_pool(0);
  head = take_from(pool, C / 2, LEGACY);
  block = take_from(pool, bytes, LEGACY);
  drop(take_from(pool, C, LEGACY));
  fill(block, bytes, 7);
  fill(head, C / 2, 8);
  (void)sleep_now(pool, KEEP);
  wake_now(pool);
  more = take_from(pool, 3 * C, LEGACY);
  fill(more, 3 * C, 9);
  (void)sleep_now(pool, KEEP);
  assert_int_equal(census().host_count, 1);
  wake_now(pool);
  assert_filled(more, 3 * C, 9);
  assert_filled(block, bytes, 7);
  assert_filled(head, C / 2, 8);
  finish();
}

/* By what the calls cost on an H200: 100 GiB in blocks, and in a buffer. */
static void a_hundred_gib_sleep_and_wake_in_time(void **state) {
  gmlake_mock_desc mock_desc;
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  uint64_t before;
  int i;
  (void)state;
  for (i = 0; i < 2; i++) {
    memset(&mock_desc, 0, sizeof(mock_desc));
    memset(&desc, 0, sizeof(desc));
    memset(&wanted, 0, sizeof(wanted));
    mock_desc.capacity_bytes = (size_t)140 << 30;
    mock_desc.bookkeeping_only = 1;
    mock_desc.costs = GMLAKE_MOCK_COSTS_REPLAYED;
    assert_ok(gmlake_mock_create(&mock_desc, &mock));
    desc.backend = mock;
    host_bytes = 0;
    open_lake();
    wanted.max_bytes = (size_t)100 << 30;
    if (i) {
      assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
      assert_ok(gmlake_buffer_resize(lake, buffer, wanted.max_bytes, LEGACY));
    } else {
      (void)take(wanted.max_bytes);
    }
    before = census().modelled_ns;
    assert_int_equal(sleep_now(NULL, DROP), wanted.max_bytes);
    wake_now(NULL);
    assert_in_range(census().modelled_ns - before, 0, i ? 5000000000u : 600000000u);
    finish();
  }
}

/* ---- residency ------------------------------------------------------------------------------- */

static struct told {
  int leaves, back, refuses_at;
  uint64_t generation[2]; /* of the last that left, and that was back */
  void *ptrs[8];
} told;

static int on_residency(void *user, gmlake *l, const gmlake_residency_info *info) {
  gmlake_allocation_info block;
  assert_ptr_equal(user, &told);
  assert_ok(gmlake_get_allocation(l, info->ptr, &block));
  assert_int_equal(block.requested_bytes, info->bytes);
  assert_int_equal(block.user_data, info->user_data);
  assert_ptr_equal(block.pool, info->pool);
  assert_ok(gmlake_check(l));
  assert_true(gmlake_mock_has_access(mock, info->ptr, info->bytes, 0)); /* it is still, or again */
  assert_error(gmlake_pool_sleep(l, info->pool, DROP, NULL), BUSY);
  assert_error(gmlake_pool_wake(l, info->pool), BUSY);
  if (info->pool) assert_error(gmlake_pool_destroy(l, info->pool), BUSY);
  told.generation[info->event == GMLAKE_RESIDENCY_BACK] = info->generation;
  if (info->event == GMLAKE_RESIDENCY_BACK) {
    told.back++;
    return 1; /* means nothing here */
  }
  told.ptrs[told.leaves++ % 8] = info->ptr;
  return told.leaves == told.refuses_at;
}

static void residency_is_told(void **state) {
  gmlake_alloc_desc wanted = request(C, GMLAKE_TELL_RESIDENCY, NULL);
  gmlake_pool *pool;
  void *blocks[3], *plain;
  int i;
  (void)state;
  start(64);
  assert_error(try_with(&wanted, LEGACY), INVALID_ARGUMENT); /* nobody is to be told */
  finish();
  memset(&told, 0, sizeof(told));
  prepare(64);
  desc.residency.fn = on_residency;
  desc.residency.user = &told;
  open_lake();
  pool = open_pool(0);
  plain = take_from(pool, 2 * C, LEGACY);
  wanted.pool = pool;
  for (i = 0; i < 3; i++) {
    wanted.user_data = (uint64_t)i;
    wanted.bytes = C + (size_t)i;
    blocks[i] = take_with(&wanted, LEGACY);
    fill(blocks[i], C, i);
  }
  (void)sleep_now(pool, KEEP);
  assert_int_equal(told.leaves, 3);
  assert_int_equal(told.back, 0);
  assert_int_equal(sleep_now(pool, KEEP), 0); /* nobody is told: it sleeps already */
  assert_int_equal(told.leaves, 3);
  drop(blocks[0]); /* it is not told of again */
  wake_now(pool);
  assert_int_equal(told.back, 2);
  assert_int_equal(told.generation[1], told.generation[0] + 1);
  (void)sleep_now(pool, KEEP);
  assert_int_equal(told.leaves, 5);
  assert_int_equal(told.generation[0], told.generation[1]);
  wake_now(pool);
  assert_int_equal(told.back, 4);
  told.refuses_at = 7; /* the second of two */
  step_error(gmlake_pool_sleep(lake, pool, KEEP, NULL), BUSY);
  assert_int_equal(told.leaves, 7);
  assert_int_equal(told.back, 5); /* the one that had not refused */
  assert_int_equal(told.generation[1], told.generation[0]);
  assert_false(is_asleep(pool));
  gmlake_mock_fail_at(mock, census().call_count + 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(gmlake_pool_sleep(lake, pool, KEEP, NULL), DRIVER);
  assert_int_equal(last_error().result,
                   GMLAKE_ERROR_DRIVER); /* not what the callback's calls left */
  fail_none();
  assert_int_equal(told.back, 7); /* both: it stays awake */
  assert_int_equal(told.generation[1], told.generation[0]);
  for (i = 1; i < 3; i++) assert_filled(blocks[i], C, i);
  drop(plain);
  finish();
}

/* A window is told of once, where its first piece lies. */
static void windows_are_told_of_where_they_begin(void **state) {
  gmlake_alloc_desc wanted = request(2 * C, GMLAKE_TELL_RESIDENCY, NULL);
  void *window, *between, *hold[3];
  (void)state;
  memset(&told, 0, sizeof(told));
  prepare(64);
  desc.residency.fn = on_residency;
  desc.residency.user = &told;
  open_lake();
  hold[0] = take(C);
  wanted.bytes = C;
  between = take_with(&wanted, LEGACY);
  hold[1] = take(C);
  hold[2] = take(C);
  drop(hold[0]);
  drop(hold[1]);
  wanted.bytes = 2 * C;
  window = take_with(&wanted, LEGACY);
  assert_int_equal(piece_count(window), 2);
  (void)sleep_now(NULL, DROP);
  assert_int_equal(told.leaves, 2);
  assert_ptr_equal(told.ptrs[0], window);
  assert_ptr_equal(told.ptrs[1], between);
  wake_now(NULL);
  assert_int_equal(told.back, 2);
  finish();
}

static int evictions;
static void on_step(void *user, const gmlake_step *s) {
  (void)user;
  if (s->kind != GMLAKE_STEP_EVICT) return;
  assert_true(*s->reason != 0);
  assert_int_equal(s->bytes, 2 * C);
  evictions++;
}

static void an_observer_is_told_of_windows_that_do_not_come_back(void **state) {
  void *blocks[4], *window;
  (void)state;
  evictions = 0;
  prepare(64);
  desc.observer.fn = on_step;
  open_lake();
  lay(blocks, 4);
  drop(blocks[0]);
  drop(blocks[2]);
  window = take(2 * C);
  assert_int_equal(piece_count(window), 2);
  (void)sleep_now(NULL, DROP);
  drop(window);
  assert_int_equal(evictions, 0);
  wake_now(NULL);
  assert_int_equal(evictions, 1);
  assert_int_equal(stats().stitch_evict_count, 1);
  finish();
}

/* ---- other threads --------------------------------------------------------------------------- */

static gmlake_pool *busy_pool;
static int stops;

static void *work_elsewhere(void *argument) {
  gmlake_stream stream = (gmlake_stream)argument;
  gmlake_alloc_desc wanted;
  void *held[4] = {NULL, NULL, NULL, NULL};
  unsigned n = 0;
  memset(&wanted, 0, sizeof(wanted));
  while (!__atomic_load_n(&stops, __ATOMIC_RELAXED)) {
    void **slot = &held[n++ % 4];
    if (*slot) {
      assert_filled(*slot, C / 2, (int)(n % 4));
      assert_ok(gmlake_free(lake, *slot, stream));
      *slot = NULL;
    }
    wanted.bytes = C / 2 + n % 7 * C;
    wanted.pool = busy_pool;
    assert_ok(gmlake_alloc_with(lake, &wanted, stream, slot));
    fill(*slot, C / 2, (int)(n % 4));
  }
  for (n = 0; n < 4; n++)
    if (held[n]) assert_ok(gmlake_free(lake, held[n], stream));
  return NULL;
}

/* Frees blocks of the sleeping pool one by one. */
static void *free_them(void *argument) {
  void **blocks = (void **)argument;
  int i;
  for (i = 0; i < 40; i++) assert_ok(gmlake_free(lake, blocks[i], NONE));
  return NULL;
}

static void other_threads_work_on(void **state) {
  pthread_t other, freer;
  void *blocks[80];
  int i, round;
  (void)state;
  start(1024);
  make_pool(3);
  busy_pool = open_pool(0);
  stops = 0;
  assert_int_equal(pthread_create(&other, NULL, work_elsewhere, open_stream()), 0);
  for (round = 0; round < 10; round++) {
    for (i = 0; i < 80; i++) {
      gmlake_alloc_desc wanted = request(C / 3 + 1, 0, full.pool);
      assert_ok(gmlake_alloc_with(lake, &wanted, LEGACY, &blocks[i]));
      fill(blocks[i], C / 3, i);
    }
    assert_int_equal(pthread_create(&freer, NULL, free_them, blocks), 0);
    assert_ok(gmlake_pool_sleep(lake, full.pool, KEEP, NULL));
    assert_ok(gmlake_pool_wake(lake, full.pool));
    assert_int_equal(pthread_join(freer, NULL), 0);
    assert_pool(3);
    for (i = 40; i < 80; i++) {
      assert_filled(blocks[i], C / 3, i);
      assert_ok(gmlake_free(lake, blocks[i], LEGACY));
    }
  }
  __atomic_store_n(&stops, 1, __ATOMIC_RELAXED);
  assert_int_equal(pthread_join(other, NULL), 0);
  assert_ok(gmlake_check(lake));
  end_pool();
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_pool_keeps_its_contents),
      cmocka_unit_test(mappings_alias_as_before),
      cmocka_unit_test(what_is_freed_asleep_does_not_come_back),
      cmocka_unit_test(to_sleep_and_to_wake_may_be_repeated),
      cmocka_unit_test(rounds_leave_nothing_behind),
      cmocka_unit_test(sleep_is_undone_whatever_fails),
      cmocka_unit_test(waking_is_undone_whatever_fails),
      cmocka_unit_test(host_memory_may_lack),
      cmocka_unit_test(a_handle_that_stays_is_kept_and_told),
      cmocka_unit_test(a_shortage_while_making_room_is_told),
      cmocka_unit_test(the_handler_may_put_a_pool_to_sleep),
      cmocka_unit_test(tables_of_version_1_drop_and_do_not_keep),
      cmocka_unit_test(pinned_memory_that_stays_is_offered_again),
      cmocka_unit_test(no_call_follows_an_exchange_that_failed),
      cmocka_unit_test(contents_are_kept_in_pieces),
      cmocka_unit_test(a_sleep_that_fails_leaves_nothing),
      cmocka_unit_test(host_memory_comes_from_the_hook),
      cmocka_unit_test(large_contents_are_kept),
      cmocka_unit_test(a_hundred_gib_sleep_and_wake_in_time),
      cmocka_unit_test(residency_is_told),
      cmocka_unit_test(windows_are_told_of_where_they_begin),
      cmocka_unit_test(an_observer_is_told_of_windows_that_do_not_come_back),
      cmocka_unit_test(other_threads_work_on),
  };
  int failed;
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  page = 2 * C; /* an arena of their own */
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
