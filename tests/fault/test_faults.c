/* Every call of the backend, and every allocation of host memory, made to fail in turn, once and
   for good, in scenarios that reach every kind of plan. Afterwards the blocks that were live are,
   with their contents; the books balance; the next allocation works; destroy leaves nothing. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define KIB ((size_t)1 << 10)
#define CHUNK (64 * KIB)
#define CAPACITY (64 * CHUNK)
#define BLOCKS 96
#define STREAMS 3

typedef struct block {
  unsigned char *ptr; /* NULL: none */
  size_t bytes;
  unsigned char fill;
} block;

static char where[96]; /* what is being made to fail */

#define CHECK(condition)                                                         \
  do {                                                                           \
    if (!(condition)) fail_msg("%s: %s (line %d)", where, #condition, __LINE__); \
  } while (0)

static struct fixture {
  gmlake_backend *mock, table;
  gmlake *lake;
  gmlake_stream streams[STREAMS];
  gmlake_pool *pool;
  block blocks[BLOCKS];
  gmlake_result result; /* of the last call that failed */
  int stuck;            /* a call that gives something back has failed */
  uint64_t silent;      /* the call that failed restores the capture mode: nobody can tell */
  long host_live, host_fail_in; /* fail_in: 1 fails the next; 0: none fails */
  int host_persistent;
  uint64_t host_count;
} f;

static void *fault_malloc(void *user, size_t bytes) {
  (void)user;
  f.host_count++;
  if (f.host_fail_in == 1) {
    if (!f.host_persistent) f.host_fail_in = 0;
    return NULL;
  }
  if (f.host_fail_in) f.host_fail_in--;
  f.host_live++;
  return malloc(bytes);
}

static void fault_free(void *user, void *ptr) {
  (void)user;
  f.host_live--;
  free(ptr);
}

/* Calls that give something back: what they leave when they fail in destroy is theirs. */

static gmlake_result watch_unreserve(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = f.mock->unreserve(user, address, bytes, code);
  f.stuck |= result != GMLAKE_OK;
  return result;
}

static gmlake_result watch_release(void *user, uint64_t handle, int *code) {
  gmlake_result result = f.mock->release(user, handle, code);
  f.stuck |= result != GMLAKE_OK;
  return result;
}

static gmlake_result watch_unmap(void *user, uint64_t address, size_t bytes, int *code) {
  gmlake_result result = f.mock->unmap(user, address, bytes, code);
  f.stuck |= result != GMLAKE_OK;
  return result;
}

static gmlake_result watch_event_destroy(void *user, void *event, int *code) {
  gmlake_result result = f.mock->event_destroy(user, event, code);
  f.stuck |= result != GMLAKE_OK;
  return result;
}

static gmlake_result watch_capture_exchange(void *user, int *mode, int *code) {
  int restores = *mode != 2;
  gmlake_result result = f.mock->capture_exchange(user, mode, code);
  if (result && restores) f.silent++;
  return result;
}

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(f.mock, &now);
  return now;
}

/* Steps of scenarios. Each notes what failed and goes on. */

static gmlake_result note(gmlake_result result) {
  gmlake_error_info info;
  if (!result) return result;
  f.result = result;
  CHECK(gmlake_get_last_error(f.lake, &info) == GMLAKE_OK);
  CHECK(info.result == result);
  return result;
}

/* A byte in every chunk and the last one: what is mapped wrongly shows there. */
static void fill_block(const block *b) {
  size_t i;
  for (i = 0; i < b->bytes; i += CHUNK) b->ptr[i] = b->fill;
  b->ptr[b->bytes - 1] = b->fill;
}

static void check_block(const block *b) {
  size_t i;
  for (i = 0; i < b->bytes; i += CHUNK)
    if (b->ptr[i] != b->fill) fail_msg("%s: contents changed at byte %zu", where, i);
  if (b->ptr[b->bytes - 1] != b->fill) fail_msg("%s: contents changed at the end", where);
}

static void alloc_with(int at, size_t bytes, int stream, unsigned flags, gmlake_pool *pool) {
  block *b = &f.blocks[at];
  gmlake_alloc_desc desc;
  void *ptr = &desc;
  gmlake_result result;
  CHECK(!b->ptr);
  memset(&desc, 0, sizeof(desc));
  desc.bytes = bytes;
  desc.flags = flags;
  desc.pool = pool;
  desc.label = at % 3 ? NULL : "labelled";
  result = note(gmlake_alloc_with(f.lake, &desc, f.streams[stream], &ptr));
  CHECK((result == GMLAKE_OK) == (ptr != NULL));
  if (result) return;
  b->ptr = (unsigned char *)ptr;
  b->bytes = bytes;
  b->fill = (unsigned char)(at + 1);
  fill_block(b);
}

static void take(int at, size_t bytes, int stream) { alloc_with(at, bytes, stream, 0, NULL); }

static void give(int at, int stream) {
  block *b = &f.blocks[at];
  if (!b->ptr) return;
  check_block(b);
  if (!note(gmlake_free(f.lake, b->ptr, f.streams[stream]))) b->ptr = NULL;
}

static void trim(size_t keep_bytes) {
  size_t released, before = census().physical_bytes;
  (void)note(gmlake_trim(f.lake, keep_bytes, &released));
  CHECK(released <= before);
}

/* Chunks 0 to 15 live, then every other one free. */
static void checker(void) {
  int i;
  for (i = 0; i < 16; i++) take(i, CHUNK, 0);
  for (i = 0; i < 16; i += 2) give(i, 0);
}

/* Scenarios: what goes before, and the part in which calls fail. */

static void none(void) {}

static void do_growth(void) {
  take(20, 100, 0);
  take(21, 5 * CHUNK + 300, 0);
  alloc_with(22, 2 * CHUNK, 0, GMLAKE_EXCLUSIVE, NULL);
  take(23, CHUNK, 1);
  give(21, 0);
}

static void do_stitch(void) {
  take(20, 3 * CHUNK, 0);
  take(21, 3 * CHUNK + 512, 0);
  give(20, 0);
  give(21, 0);
}

static void set_reuse(void) {
  checker();
  take(20, 4 * CHUNK, 0);
  give(20, 0);
}

static void do_reuse(void) {
  take(20, 4 * CHUNK, 0);
  give(20, 0);
  take(21, 4 * CHUNK, 0);
}

/* All memory is stream 1's, in pieces, with work pending. */
static void set_borrow(void) {
  int i;
  for (i = 0; i < 64; i++) take(i, CHUNK, 1);
  gmlake_mock_stream_hold(f.mock, f.streams[1]);
  for (i = 0; i < 64; i += 2) give(i, 1);
  for (i = 33; i < 37; i += 2) give(i, 1);
}

static void do_borrow(void) {
  take(70, 3 * CHUNK, 2);
  take(71, 9 * CHUNK, 2);
  take(72, 512, 2);
  give(71, 2);
  take(73, 9 * CHUNK, 0);
}

static void set_trim(void) {
  set_reuse();
  take(30, 6 * CHUNK, 1);
  gmlake_mock_stream_hold(f.mock, f.streams[1]);
  give(30, 1);
}

static void do_trim(void) {
  trim(20 * CHUNK);
  gmlake_mock_stream_finish(f.mock, f.streams[1]);
  trim(0);
}

/* Many windows past the threshold, so that stitching evicts. */
static void do_evict(void) {
  int i;
  for (i = 0; i < 6; i++) {
    take(20 + i, (size_t)(i + 2) * CHUNK, 0);
    give(20 + i, 0);
  }
}

static void do_pool(void) {
  gmlake_pool_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = 2 * CHUNK;
  if (note(gmlake_pool_create(f.lake, &desc, &f.pool))) return;
  alloc_with(20, 3 * CHUNK, 0, 0, f.pool);
  alloc_with(21, CHUNK, 1, 0, f.pool);
  give(20, 0);
  give(21, 1);
  if (f.blocks[20].ptr || f.blocks[21].ptr) return;
  if (!note(gmlake_pool_destroy(f.lake, f.pool))) f.pool = NULL;
}

static void set_capture(void) {
  checker();
  take(16, CHUNK, 1);
  (void)note(gmlake_pool_create(f.lake, NULL, &f.pool));
}

static void do_capture(void) {
  gmlake_stream s = f.streams[1];
  gmlake_result end;
  if (note(gmlake_capture_begin(f.lake, s, f.pool))) return;
  CHECK(gmlake_mock_capture_begin(f.mock, s) == GMLAKE_OK);
  take(20, 2 * CHUNK, 1);
  take(21, CHUNK, 1);
  give(20, 1);
  take(22, 2 * CHUNK, 1);
  give(16, 1);
  take(23, CHUNK, 2);
  give(23, 2);
  end = gmlake_mock_capture_end(f.mock, s);
  /* without the relaxed exchange, which may have been made to fail, the driver itself objects */
  if (!f.result) CHECK(end == GMLAKE_OK);
  (void)note(gmlake_capture_end(f.lake, s));
}

/* The whole ladder: other streams' work, pending frees, idle windows, another arena's chunks. */
static void set_ladder(void) {
  int i;
  (void)note(gmlake_pool_create(f.lake, NULL, &f.pool));
  alloc_with(0, 8 * CHUNK, 0, 0, f.pool);
  for (i = 1; i < 49; i++) take(i, CHUNK, i % 3);
  give(0, 0);
  gmlake_mock_stream_hold(f.mock, f.streams[1]);
  gmlake_mock_stream_hold(f.mock, f.streams[2]);
  (void)note(gmlake_record_stream(f.lake, f.blocks[3].ptr, f.streams[2]));
  for (i = 1; i < 40; i += 2) give(i, i % 3);
}

static void do_ladder(void) {
  take(70, 20 * CHUNK, 0);
  alloc_with(71, 6 * CHUNK, 2, GMLAKE_NO_STITCH, NULL);
  take(72, 60 * CHUNK, 0);
}

static void set_forget(void) {
  checker();
  take(20, 2 * CHUNK, 1);
  take(21, 2 * CHUNK, 2);
  gmlake_mock_stream_hold(f.mock, f.streams[1]);
}

static void do_forget(void) {
  if (f.blocks[1].ptr) (void)note(gmlake_record_stream(f.lake, f.blocks[1].ptr, f.streams[1]));
  give(20, 1);
  (void)note(gmlake_forget_stream(f.lake, f.streams[1]));
  give(1, 0);
  take(22, 2 * CHUNK, 2);
}

static void do_budget(void) {
  gmlake_budget budget;
  give(1, 0);
  give(30, 1);
  (void)note(gmlake_get_budget(f.lake, &budget));
}

static void do_records(void) {
  int i;
  for (i = 1; i < 16; i += 2) {
    (void)note(gmlake_record_stream(f.lake, f.blocks[i].ptr, f.streams[1]));
    (void)note(gmlake_record_stream(f.lake, f.blocks[i].ptr, f.streams[2]));
    give(i, 0);
  }
  for (i = 20; i < 80; i++) take(i, 512 + (size_t)i, i % 3);
}

typedef struct scenario {
  const char *name;
  void (*set)(void);
  void (*act)(void);
  gmlake_cross_stream cross_stream;
  size_t stitched_bytes_max, limit_bytes, driver_free_bytes_min;
} scenario;

static const scenario scenarios[] = {
    {"growth", none, do_growth, GMLAKE_GROW_FIRST, 0, 0, 4096},
    {"stitch", checker, do_stitch, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"reuse", set_reuse, do_reuse, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"borrow", set_borrow, do_borrow, GMLAKE_WAIT_FIRST, 0, 0, 0},
    {"borrow late", set_borrow, do_borrow, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"trim", set_trim, do_trim, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"evict", checker, do_evict, GMLAKE_GROW_FIRST, 8 * CHUNK, 0, 0},
    {"pool", checker, do_pool, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"capture", set_capture, do_capture, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"ladder", set_ladder, do_ladder, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"ladder, limited", set_ladder, do_ladder, GMLAKE_WAIT_FIRST, 0, 60 * CHUNK, 0},
    {"forget", set_forget, do_forget, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"budget", set_trim, do_budget, GMLAKE_GROW_FIRST, 0, 0, 0},
    {"records", checker, do_records, GMLAKE_GROW_FIRST, 0, 0, 0},
};
#define SCENARIOS (sizeof(scenarios) / sizeof(scenarios[0]))

static void make_desc(const scenario *s, gmlake_desc *desc) {
  memset(desc, 0, sizeof(*desc));
  desc->backend = &f.table;
  desc->chunk_bytes = CHUNK;
  desc->cross_stream = s->cross_stream;
  desc->stitched_bytes_max = s->stitched_bytes_max;
  desc->limit_bytes = s->limit_bytes;
  desc->driver_free_bytes_min = s->driver_free_bytes_min;
  desc->host.malloc_fn = fault_malloc;
  desc->host.free_fn = fault_free;
}

static void open_mock(void) {
  gmlake_mock_desc desc;
  int i;
  memset(&f, 0, sizeof(f));
  memset(&desc, 0, sizeof(desc));
  desc.capacity_bytes = CAPACITY;
  desc.granularity_bytes = CHUNK;
  CHECK(gmlake_mock_create(&desc, &f.mock) == GMLAKE_OK);
  f.table = *f.mock;
  f.table.unreserve = watch_unreserve;
  f.table.release = watch_release;
  f.table.unmap = watch_unmap;
  f.table.event_destroy = watch_event_destroy;
  f.table.capture_exchange = watch_capture_exchange;
  for (i = 1; i < STREAMS; i++)
    CHECK(gmlake_mock_stream_create(f.mock, &f.streams[i]) == GMLAKE_OK);
}

static void open_lake(const scenario *s) {
  gmlake_desc desc;
  open_mock();
  make_desc(s, &desc);
  CHECK(gmlake_create(&desc, &f.lake) == GMLAKE_OK);
  s->set();
  CHECK(f.result == GMLAKE_OK);
}

static void expect_nothing_left(void) {
  gmlake_mock_census left = census();
  CHECK(left.mapping_count == 0);
  CHECK(left.handle_count == 0);
  CHECK(left.physical_bytes == 0);
  CHECK(left.event_count == 0);
  CHECK(left.reservation_count == 0);
}

static void expect_books_balance(void) {
  gmlake_error_info info;
  gmlake_stats stats;
  size_t i, count = 0, requested = 0, active = 0;
  for (i = 0; i < BLOCKS; i++) {
    if (!f.blocks[i].ptr) continue;
    check_block(&f.blocks[i]);
    count++;
    requested += f.blocks[i].bytes;
    active += (f.blocks[i].bytes + 511) & ~(size_t)511;
  }
  memset(&stats, 0, sizeof(stats));
  CHECK(gmlake_get_stats(f.lake, &stats) == GMLAKE_OK);
  CHECK(stats.live_count == count);
  CHECK(stats.requested_bytes == requested);
  CHECK(stats.active_bytes == active);
  CHECK(stats.reserved_bytes == census().physical_bytes);
  if (gmlake_check(f.lake)) {
    (void)gmlake_get_last_error(f.lake, &info);
    if (info.result == GMLAKE_ERROR_CORRUPT) fail_msg("gmlake_check: %s", info.text);
  }
}

static int is_lost(void) {
  void *ptr;
  gmlake_result result = gmlake_alloc(f.lake, 512, f.streams[0], &ptr);
  if (!result) CHECK(gmlake_free(f.lake, ptr, f.streams[0]) == GMLAKE_OK);
  return result == GMLAKE_ERROR_DEVICE_LOST;
}

/* After the fault: the lake serves again, unless its device is lost. */
static void expect_recovered(const scenario *s, gmlake_result injected, int hit) {
  expect_books_balance();
  if (hit && injected == GMLAKE_ERROR_DEVICE_LOST) {
    CHECK(is_lost());
    CHECK(gmlake_trim(f.lake, 0, NULL) == GMLAKE_ERROR_DEVICE_LOST);
    return;
  }
  CHECK(!is_lost());
  if (s->act != do_ladder && s->set != set_borrow) {
    f.result = GMLAKE_OK;
    take(BLOCKS - 1, 4 * CHUNK + 100, 0);
    CHECK(f.result == GMLAKE_OK);
  }
  expect_books_balance();
  CHECK(gmlake_check(f.lake) == GMLAKE_OK);
}

static void close_lake(int is_lost_now) {
  gmlake_result result = gmlake_destroy(f.lake);
  CHECK(result == (is_lost_now ? GMLAKE_ERROR_DEVICE_LOST : GMLAKE_OK));
  CHECK(f.host_live == 0);
  expect_nothing_left();
  gmlake_mock_destroy(f.mock);
}

/* Whether a call that fails so may be answered so. */
static void expect_plausible(gmlake_result injected) {
  gmlake_result r = f.result;
  if (r == GMLAKE_OK || r == injected || r == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
      r == GMLAKE_ERROR_LIMIT_REACHED)
    return;
  fail_msg("%s for an injected %s", gmlake_result_name(r), gmlake_result_name(injected));
}

/* How many calls were made to fail, of those from the n-th behind `before` on. */
static uint64_t failed_since(uint64_t before, uint64_t n, int persistent) {
  uint64_t now = census().call_count;
  if (now < before + n) return 0;
  return persistent ? now - before - n + 1 : 1;
}

/* One run of a scenario with the n-th call failing; returns whether there was such a call. */
static int run_driver_fault(const scenario *s, uint64_t n, gmlake_result injected, int persistent) {
  uint64_t before, failed;
  int is_known;
  (void)snprintf(where, sizeof(where), "%s, %s at call %llu%s", s->name,
                 gmlake_result_name(injected), (unsigned long long)n,
                 persistent ? " and all later" : "");
  open_lake(s);
  before = census().call_count;
  gmlake_mock_fail_at(f.mock, before + n, injected, persistent);
  s->act();
  gmlake_mock_fail_at(f.mock, 0, GMLAKE_OK, 0);
  failed = failed_since(before, n, persistent);
  is_known = failed > f.silent;
  expect_plausible(injected);
  expect_recovered(s, injected, is_known);
  close_lake(is_known && injected == GMLAKE_ERROR_DEVICE_LOST);
  return failed > 0;
}

static uint64_t count_calls(const scenario *s) {
  uint64_t before, count;
  open_lake(s);
  before = census().call_count;
  s->act();
  count = census().call_count - before;
  close_lake(0);
  return count;
}

static void run_driver_faults(gmlake_result injected) {
  size_t i;
  for (i = 0; i < SCENARIOS; i++) {
    uint64_t n, count = count_calls(&scenarios[i]);
    CHECK(count > 0 || scenarios[i].act == do_reuse);
    for (n = 1; n <= count; n++) {
      int persistent;
      for (persistent = 0; persistent < 2; persistent++)
        if (!run_driver_fault(&scenarios[i], n, injected, persistent))
          fail_msg("%s: call %llu did not fail", scenarios[i].name, (unsigned long long)n);
    }
  }
}

static void test_out_of_device_memory(void **state) {
  (void)state;
  run_driver_faults(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
}

static void test_driver_error(void **state) {
  (void)state;
  run_driver_faults(GMLAKE_ERROR_DRIVER);
}

static void test_device_lost(void **state) {
  (void)state;
  run_driver_faults(GMLAKE_ERROR_DEVICE_LOST);
}

static void run_host_fault(const scenario *s, long n, int persistent) {
  (void)snprintf(where, sizeof(where), "%s, host allocation %ld%s", s->name, n,
                 persistent ? " and all later" : "");
  open_lake(s);
  f.host_fail_in = n;
  f.host_persistent = persistent;
  s->act();
  f.host_fail_in = 0;
  expect_plausible(GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
  expect_recovered(s, GMLAKE_ERROR_OUT_OF_HOST_MEMORY, 1);
  close_lake(0);
}

static void test_host_memory(void **state) {
  size_t i;
  uint64_t allocations = 0;
  (void)state;
  for (i = 0; i < SCENARIOS; i++) {
    uint64_t n, count;
    open_lake(&scenarios[i]);
    count = f.host_count;
    scenarios[i].act();
    count = f.host_count - count;
    close_lake(0);
    for (n = 1; n <= count; n++) {
      run_host_fault(&scenarios[i], (long)n, 0);
      run_host_fault(&scenarios[i], (long)n, 1);
    }
    allocations += count;
  }
  CHECK(allocations > 20);
}

/* gmlake_create: all or nothing. */

static int run_create(uint64_t n, gmlake_result injected, int persistent, int in_driver) {
  gmlake_desc desc;
  gmlake_result result;
  int hit;
  (void)snprintf(where, sizeof(where), "create, %s at call %llu%s", gmlake_result_name(injected),
                 (unsigned long long)n, persistent ? " and all later" : "");
  open_mock();
  make_desc(&scenarios[0], &desc);
  if (in_driver)
    gmlake_mock_fail_at(f.mock, census().call_count + n, injected, persistent);
  else
    f.host_fail_in = (long)n;
  f.host_persistent = persistent;
  f.lake = NULL;
  result = gmlake_create(&desc, &f.lake);
  gmlake_mock_fail_at(f.mock, 0, GMLAKE_OK, 0);
  hit = in_driver ? census().failed_count > 0 : result != GMLAKE_OK;
  f.host_fail_in = 0;
  if (result) {
    CHECK(!f.lake);
    CHECK(result == injected);
    CHECK(f.host_live == 0);
    if (!f.stuck) expect_nothing_left();
    gmlake_mock_destroy(f.mock);
    return hit;
  }
  take(0, 3 * CHUNK, 0); /* some faults only cost the windows */
  CHECK(f.result == GMLAKE_OK);
  expect_books_balance();
  close_lake(0);
  return hit;
}

static void test_create(void **state) {
  const gmlake_result injected[3] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_ERROR_DRIVER,
                                     GMLAKE_ERROR_DEVICE_LOST};
  size_t i;
  uint64_t n;
  int persistent;
  (void)state;
  for (persistent = 0; persistent < 2; persistent++) {
    for (i = 0; i < 3; i++) {
      for (n = 1; run_create(n, injected[i], persistent, 1); n++) continue;
      CHECK(n > 3);
    }
    for (n = 1; run_create(n, GMLAKE_ERROR_OUT_OF_HOST_MEMORY, persistent, 0); n++) continue;
    CHECK(n > 3);
  }
}

/* gmlake_destroy with live blocks, pending work, windows and a pool: whatever fails, all the rest
   goes back, all host memory too, and the result says it. */
static int run_destroy(uint64_t n, gmlake_result injected, int persistent) {
  gmlake_result result;
  uint64_t before, failed;
  (void)snprintf(where, sizeof(where), "destroy, %s at call %llu%s", gmlake_result_name(injected),
                 (unsigned long long)n, persistent ? " and all later" : "");
  open_lake(&scenarios[9]);
  do_ladder();
  before = census().call_count;
  f.stuck = 0;
  f.silent = 0;
  gmlake_mock_fail_at(f.mock, before + n, injected, persistent);
  result = gmlake_destroy(f.lake);
  gmlake_mock_fail_at(f.mock, 0, GMLAKE_OK, 0);
  failed = failed_since(before, n, persistent);
  CHECK(f.host_live == 0);
  if (failed > f.silent) CHECK(result == injected);
  if (!f.stuck) expect_nothing_left();
  if (f.stuck && !persistent) { /* only the one thing, and what holds it in place */
    gmlake_mock_census left = census();
    CHECK(left.mapping_count <= 60 && left.handle_count + left.event_count <= 1);
    CHECK(left.reservation_count <= 1);
  }
  gmlake_mock_destroy(f.mock);
  return failed > 0;
}

static void test_destroy(void **state) {
  const gmlake_result injected[3] = {GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_ERROR_DRIVER,
                                     GMLAKE_ERROR_DEVICE_LOST};
  size_t i;
  uint64_t n;
  (void)state;
  for (i = 0; i < 3; i++) {
    for (n = 1; run_destroy(n, injected[i], 0); n++) (void)run_destroy(n, injected[i], 1);
    CHECK(n > 100);
  }
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_create),       cmocka_unit_test(test_out_of_device_memory),
      cmocka_unit_test(test_driver_error), cmocka_unit_test(test_device_lost),
      cmocka_unit_test(test_host_memory),  cmocka_unit_test(test_destroy),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
