/* Threads on one lake: random calls from many, blocks freed by others than those who asked for
   them, contents verified, driver faults in one variant, captures and pools in another. Who waits
   for whom, one after the other, is in tests/play/meanwhile_rows.h. A deadlock ends in the alarm.
   With --seconds all of it over and over, with other seeds. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <pthread.h>
#include <signal.h>
#include <time.h>
#include <unistd.h>

#include "cases.h"
#include "options.h"
#include "patience.h"
#include "policy_paper.h"
#include "splitmix.h"

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define CHUNK (64 * KIB)
#define STREAMS 4
#define SHELF 96
#define BUFFERS 4
#define BUFFER_CHUNKS 8
#define POOLS 2

typedef struct block {
  unsigned char *ptr;
  size_t bytes;
  int stream;
} block;

typedef struct buffer { /* its chunks begin with their numbers, shifted by what it is */
  gmlake_buffer *handle;
  size_t chunks;
  int is_taken;
} buffer;

static struct fixture {
  gmlake_backend *mock;
  gmlake *lake;
  gmlake_stream streams[STREAMS];
  pthread_mutex_t mutex; /* guards what follows */
  const char *broken;    /* the first expectation that failed, on any thread */
  block shelf[SHELF];    /* blocks on their way from one thread to another */
  size_t shelf_count;
  buffer buffers[BUFFERS]; /* each resized by one thread at a time, but for the last */
  int faults;
  gmlake_pool *pools[POOLS];          /* NULL: without captures */
  pthread_mutex_t capturing[STREAMS]; /* each guards what its stream's capture is */
  int is_captured[STREAMS];
} f;

static uint64_t seed; /* of the workers */

static void lock(void) { (void)pthread_mutex_lock(&f.mutex); }
static void unlock(void) { (void)pthread_mutex_unlock(&f.mutex); }

/* May be called on any thread; the main one reports it. */
static void expect(int holds, const char *what) {
  if (holds) return;
  lock();
  if (!f.broken) f.broken = what;
  unlock();
}

static void settle(void) {
  if (f.broken) fail_msg("%s", f.broken);
}

static size_t below(uint64_t *state, size_t count) { return (size_t)(splitmix64(state) % count); }

static gmlake_buffer *open_buffer(void) {
  gmlake_buffer *handle = NULL;
  gmlake_buffer_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.max_bytes = BUFFER_CHUNKS * CHUNK;
  desc.chunk_bytes = CHUNK;
  expect(gmlake_buffer_create(f.lake, &desc, &handle) == GMLAKE_OK, "gmlake_buffer_create failed");
  return handle;
}

static void tell_of_hang(int number) {
  static const char text[] = "a test hangs; " PATIENCE_TEXT "\n";
  (void)number;
  if (write(STDERR_FILENO, text, sizeof(text) - 1) < 0) _exit(2);
  _exit(1);
}

static void open_lake(const gmlake_desc *with) {
  gmlake_mock_desc mock_desc;
  gmlake_desc desc = *with;
  int i;
  (void)signal(SIGALRM, tell_of_hang);
  (void)alarm(patience());
  memset(&f, 0, sizeof(f));
  assert_int_equal(pthread_mutex_init(&f.mutex, NULL), 0);
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.capacity_bytes = 16 * MIB;
  mock_desc.granularity_bytes = CHUNK;
  assert_int_equal(gmlake_mock_create(&mock_desc, &f.mock), GMLAKE_OK);
  for (i = 1; i < STREAMS; i++)
    assert_int_equal(gmlake_mock_stream_create(f.mock, &f.streams[i]), GMLAKE_OK);
  desc.backend = f.mock;
  desc.chunk_bytes = CHUNK;
  assert_int_equal(gmlake_create(&desc, &f.lake), GMLAKE_OK);
}

static void close_lake(void) {
  gmlake_mock_census census;
  assert_int_equal(gmlake_destroy(f.lake), GMLAKE_OK);
  gmlake_mock_get_census(f.mock, &census);
  assert_int_equal(census.handle_count, 0);
  assert_int_equal(census.mapping_count, 0);
  assert_int_equal(census.reservation_count, 0);
  assert_int_equal(census.event_count, 0);
  gmlake_mock_destroy(f.mock);
  (void)pthread_mutex_destroy(&f.mutex);
  (void)alarm(0);
}

/* ---- random calls ---- */

static void fill(const block *b) {
  size_t i;
  for (i = 0; i < b->bytes; i += 512) memcpy(b->ptr + i, &b->ptr, sizeof(b->ptr));
}

static void verify(const block *b) {
  size_t i;
  for (i = 0; i < b->bytes; i += 512)
    if (memcmp(b->ptr + i, &b->ptr, sizeof(b->ptr)) != 0) {
      expect(0, "contents changed");
      return;
    }
}

static void let_go(const block *b, int on) {
  verify(b);
  memset(b->ptr, 0, 8);
  expect(gmlake_free(f.lake, b->ptr, f.streams[on]) == GMLAKE_OK, "gmlake_free failed");
}

static int is_expected(gmlake_result result) {
  return result == GMLAKE_OK || result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY ||
         result == GMLAKE_ERROR_LIMIT_REACHED || (f.faults && result == GMLAKE_ERROR_DRIVER);
}

/* A capture of the stream under way, too, may be the answer. */
static int is_expected_then(gmlake_result result) {
  return is_expected(result) || (f.pools[0] && result == GMLAKE_ERROR_CAPTURING);
}

static gmlake_result alloc_from(gmlake_pool *pool, size_t bytes, gmlake_stream s, void **out_ptr) {
  gmlake_alloc_desc wanted;
  gmlake_result result;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = bytes;
  wanted.pool = pool;
  result = gmlake_alloc_with(f.lake, &wanted, s, out_ptr);
  expect(is_expected_then(result), "gmlake_alloc_with failed");
  return result;
}

static void random_alloc(uint64_t *random) {
  gmlake_result result;
  int kept = 0;
  block b;
  void *ptr;
  b.bytes = (size_t)16 << below(random, 15);
  b.bytes += below(random, b.bytes);
  b.stream = (int)below(random, STREAMS);
  if (f.pools[0] && below(random, 8) == 0) {
    result = alloc_from(f.pools[below(random, POOLS)], b.bytes, f.streams[b.stream], &ptr);
  } else {
    result = gmlake_alloc(f.lake, b.bytes, f.streams[b.stream], &ptr);
    expect(is_expected(result), "gmlake_alloc failed");
  }
  if (result) return;
  b.ptr = (unsigned char *)ptr;
  fill(&b);
  if (below(random, 8) == 0)
    expect(!gmlake_record_stream(f.lake, ptr, f.streams[below(random, STREAMS)]),
           "gmlake_record_stream failed");
  lock();
  if (f.shelf_count < SHELF) {
    f.shelf[f.shelf_count++] = b;
    kept = 1;
  }
  unlock();
  if (!kept) let_go(&b, b.stream);
}

static void random_free(uint64_t *random) {
  block b;
  size_t i;
  b.ptr = NULL;
  lock();
  if (f.shelf_count) {
    i = below(random, f.shelf_count);
    b = f.shelf[i];
    f.shelf[i] = f.shelf[--f.shelf_count];
  }
  unlock();
  if (b.ptr) let_go(&b, below(random, 4) ? b.stream : (int)below(random, STREAMS));
}

/* A stream of the thread's own comes and goes. */
static void random_stream(uint64_t *random) {
  gmlake_stream own;
  gmlake_result result;
  void *ptr;
  expect(gmlake_mock_stream_create(f.mock, &own) == GMLAKE_OK, "gmlake_mock_stream_create failed");
  result = gmlake_alloc(f.lake, 1 + below(random, 100 * KIB), own, &ptr);
  expect(is_expected(result), "gmlake_alloc failed");
  if (!result) expect(!gmlake_free(f.lake, ptr, own), "gmlake_free failed");
  do result = gmlake_forget_stream(f.lake, own);
  while (f.faults &&
         (result == GMLAKE_ERROR_DRIVER || result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY));
  expect(result == GMLAKE_OK, "gmlake_forget_stream failed");
  gmlake_mock_stream_destroy(f.mock, own);
}

/* The mock says whether anything spoilt it. pre: the caller has the stream's mutex. */
static void end_capture(int on) {
  if (!f.is_captured[on]) return;
  expect(!gmlake_mock_capture_end(f.mock, f.streams[on]), "a capture was spoilt");
  expect(!gmlake_capture_end(f.lake, f.streams[on]), "gmlake_capture_end failed");
  f.is_captured[on] = 0;
}

static void end_captures(void) {
  int i;
  for (i = 1; i < STREAMS; i++) {
    (void)pthread_mutex_lock(&f.capturing[i]);
    end_capture(i);
    (void)pthread_mutex_unlock(&f.capturing[i]);
  }
}

/* One begins where none is under way, else that one ends. */
static void random_capture(uint64_t *random) {
  int on = 1 + (int)below(random, STREAMS - 1);
  (void)pthread_mutex_lock(&f.capturing[on]);
  if (f.is_captured[on]) {
    end_capture(on);
  } else {
    expect(!gmlake_capture_begin(f.lake, f.streams[on], f.pools[below(random, POOLS)]),
           "gmlake_capture_begin failed");
    expect(!gmlake_mock_capture_begin(f.mock, f.streams[on]), "gmlake_mock_capture_begin failed");
    f.is_captured[on] = 1;
  }
  (void)pthread_mutex_unlock(&f.capturing[on]);
}

/* The pool sleeps and wakes. While it sleeps others may take its memory: then it stays asleep. */
static int sleeps_and_wakes(gmlake_pool *pool) {
  gmlake_result result = gmlake_pool_sleep(f.lake, pool, GMLAKE_SLEEP_KEEP, NULL);
  expect(is_expected_then(result), "gmlake_pool_sleep failed");
  if (result) return 1;
  result = gmlake_pool_wake(f.lake, pool);
  expect(is_expected_then(result), "gmlake_pool_wake failed");
  return !result;
}

/* A pool of the thread's own comes and goes, when no capture forbids to wait for its memory. */
static void random_pool(uint64_t *random) {
  int on = (int)below(random, STREAMS);
  gmlake_pool *own;
  gmlake_result result;
  block b;
  void *ptr;
  expect(!gmlake_pool_create(f.lake, NULL, &own), "gmlake_pool_create failed");
  b.bytes = 16 + below(random, 100 * KIB);
  if (!alloc_from(own, b.bytes, f.streams[on], &ptr)) {
    b.ptr = (unsigned char *)ptr;
    fill(&b);
    if (sleeps_and_wakes(own))
      let_go(&b, on);
    else
      expect(!gmlake_free(f.lake, ptr, f.streams[on]), "gmlake_free of what sleeps failed");
  }
  while ((result = gmlake_pool_destroy(f.lake, own)) == GMLAKE_ERROR_CAPTURING) end_captures();
  expect(!result, "gmlake_pool_destroy failed");
}

static void inject(uint64_t *random) {
  static const gmlake_result results[2] = {GMLAKE_ERROR_DRIVER, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY};
  gmlake_mock_census census;
  gmlake_mock_get_census(f.mock, &census);
  gmlake_mock_fail_at(f.mock, census.call_count + 1 + below(random, 30), results[below(random, 2)],
                      0);
}

static int is_stamp(const buffer *b, size_t i, int sets) {
  uint64_t stamp = i << 8 | (uint64_t)(b - f.buffers);
  gmlake_buffer_info info;
  expect(!gmlake_buffer_get_info(f.lake, b->handle, &info), "gmlake_buffer_get_info failed");
  if (sets) memcpy((char *)info.ptr + i * CHUNK, &stamp, sizeof(stamp));
  return !memcmp((char *)info.ptr + i * CHUNK, &stamp, sizeof(stamp));
}

/* On the buffer's own stream, or by nobody that has a stream. */
static void resize_taken(buffer *b, uint64_t *random) {
  gmlake_stream s = below(random, 8) ? f.streams[b - f.buffers] : GMLAKE_STREAM_NONE;
  size_t chunks = below(random, BUFFER_CHUNKS + 1), i;
  gmlake_result result;
  for (i = 0; i < b->chunks; i++) expect(is_stamp(b, i, 0), "a buffer's contents changed");
  if (below(random, 16) == 0 && !gmlake_buffer_destroy(f.lake, b->handle, s)) {
    while (!(b->handle = open_buffer()) && f.faults) continue;
    b->chunks = 0;
  }
  result = gmlake_buffer_resize(f.lake, b->handle, chunks * CHUNK, s);
  expect(is_expected_then(result), "gmlake_buffer_resize failed");
  if (result) return;
  for (i = b->chunks; i < chunks; i++) (void)is_stamp(b, i, 1);
  b->chunks = chunks;
}

static void random_resize(uint64_t *random) {
  buffer *b = &f.buffers[below(random, BUFFERS)];
  int is_mine;
  if (b == &f.buffers[BUFFERS - 1]) { /* by all at once, who may not use what they get */
    expect(is_expected_then(gmlake_buffer_resize(f.lake, b->handle,
                                                 below(random, BUFFER_CHUNKS + 1) * CHUNK,
                                                 f.streams[below(random, STREAMS)])),
           "gmlake_buffer_resize failed");
    return;
  }
  lock();
  is_mine = !b->is_taken;
  b->is_taken = 1;
  unlock();
  if (!is_mine) return;
  resize_taken(b, random);
  lock();
  b->is_taken = 0;
  unlock();
}

/* Beside threads that grow, map and unmap. */
static void ask_questions(uint64_t *random) {
  const buffer *b = &f.buffers[below(random, BUFFERS - 1)];
  gmlake_stats stats;
  gmlake_buffer_info info;
  size_t count = 0;
  memset(&stats, 0, sizeof(stats));
  expect(gmlake_get_stats(f.lake, &stats) == GMLAKE_OK, "gmlake_get_stats failed");
  expect(gmlake_pool_get_stats(f.lake, NULL, &stats) == GMLAKE_OK, "gmlake_pool_get_stats failed");
  expect(gmlake_get_map(f.lake, NULL, 0, &count) == GMLAKE_OK, "gmlake_get_map failed");
  lock();
  if (!b->is_taken && b->handle && b->chunks) {
    expect(!gmlake_buffer_get_info(f.lake, b->handle, &info), "gmlake_buffer_get_info failed");
    expect(!gmlake_get_chunks(f.lake, info.ptr, NULL, 0, &count) && count == b->chunks,
           "gmlake_get_chunks failed");
  }
  unlock();
}

static void random_step(uint64_t *random) {
  size_t dice = below(random, 200);
  gmlake_stream s = f.streams[below(random, STREAMS)];
  if (dice < 80)
    random_alloc(random);
  else if (dice < 160)
    random_free(random);
  else if (dice < 180)
    random_resize(random);
  else if (dice < 184)
    gmlake_mock_stream_hold(f.mock, s);
  else if (dice < 188)
    gmlake_mock_stream_finish(f.mock, s);
  else if (dice < 190)
    expect(is_expected(gmlake_trim(f.lake, below(random, 8 * MIB), NULL)), "gmlake_trim failed");
  else if (dice < 192)
    random_stream(random);
  else if (dice < 193)
    expect(gmlake_check(f.lake) == GMLAKE_OK, "gmlake_check failed");
  else if (dice < 195)
    ask_questions(random);
  else if (f.faults)
    inject(random);
  else if (f.pools[0] && dice < 199)
    random_capture(random);
  else if (f.pools[0])
    random_pool(random);
}

typedef struct worker {
  pthread_t thread;
  uint64_t random;
  int steps;
} worker;

static void *work(void *argument) {
  worker *w = (worker *)argument;
  while (w->steps--) random_step(&w->random);
  return NULL;
}

/* ---- what the observer is told, one step at a time, whatever threads there are ---- */

static struct told {
  uint64_t count[GMLAKE_STEP_END + 1], newest, answered;
  size_t reserved_bytes;
} told;

static void observe(void *user, const gmlake_step *e) {
  (void)user;
  told.count[e->kind] += e->kind != GMLAKE_STEP_ALLOC || e->address;
  if (e->kind == GMLAKE_STEP_ALLOC) {
    told.answered++;
    if (told.newest < e->request) told.newest = e->request;
  }
  if (e->kind == GMLAKE_STEP_GROW) told.reserved_bytes += e->bytes;
  if (e->kind == GMLAKE_STEP_TRIM) told.reserved_bytes -= e->bytes;
  expect(e->reserved_bytes == told.reserved_bytes, "steps tell of other memory");
}

static void assert_told(const gmlake_stats *now) {
  assert_int_equal(told.answered, told.newest); /* each attempt has a number of its own */
  assert_int_equal(told.count[GMLAKE_STEP_ALLOC], now->allocation_count);
  assert_int_equal(told.count[GMLAKE_STEP_FREE], now->free_count);
  assert_int_equal(told.count[GMLAKE_STEP_SPLIT], now->split_count);
  assert_int_equal(told.count[GMLAKE_STEP_STITCH], now->stitch_count);
  assert_int_equal(told.count[GMLAKE_STEP_REUSE], now->stitch_reuse_count);
  assert_int_equal(told.count[GMLAKE_STEP_EVICT], now->stitch_evict_count);
  assert_int_equal(told.count[GMLAKE_STEP_WAIT], now->stream_wait_count + now->host_wait_count);
  assert_int_equal(told.reserved_bytes, now->reserved_bytes);
}

/* ---- runs ---- */

#define FAULTS 1   /* the driver fails at times */
#define CAPTURES 2 /* streams are captured into pools */

static void open_pools(void) {
  int i;
  for (i = 0; i < POOLS; i++)
    assert_int_equal(gmlake_pool_create(f.lake, NULL, &f.pools[i]), GMLAKE_OK);
  for (i = 0; i < STREAMS; i++) assert_int_equal(pthread_mutex_init(&f.capturing[i], NULL), 0);
}

static void close_pools(void) {
  int i;
  for (i = 0; i < POOLS; i++) assert_int_equal(gmlake_pool_destroy(f.lake, f.pools[i]), GMLAKE_OK);
  for (i = 0; i < STREAMS; i++) (void)pthread_mutex_destroy(&f.capturing[i]);
}

static void run_threads(int threads, int steps) {
  worker workers[32];
  int i;
  for (i = 0; i < threads; i++) {
    workers[i].random = (seed * 32 + (uint64_t)i + 1) * 1000003u;
    workers[i].steps = steps;
    assert_int_equal(pthread_create(&workers[i].thread, NULL, work, &workers[i]), 0);
  }
  for (i = 0; i < threads; i++) assert_int_equal(pthread_join(workers[i].thread, NULL), 0);
}

static void run_random_with(int threads, int steps, int kinds, gmlake_cross_stream cross_stream,
                            const gmlake_policy *policy) {
  gmlake_desc desc;
  gmlake_stats stats;
  int i;
  memset(&desc, 0, sizeof(desc));
  desc.cross_stream = cross_stream;
  desc.limit_bytes = 10 * MIB;
  desc.stitched_bytes_max = 32 * MIB;
  desc.policy = policy;
  desc.observer.fn = observe;
  memset(&told, 0, sizeof(told));
  open_lake(&desc);
  f.faults = (kinds & FAULTS) != 0;
  if (kinds & CAPTURES) open_pools();
  for (i = 0; i < BUFFERS; i++) f.buffers[i].handle = open_buffer();
  run_threads(threads, steps);
  gmlake_mock_fail_at(f.mock, 0, GMLAKE_OK, 0);
  if (kinds & CAPTURES) end_captures();
  settle();
  assert_int_equal(gmlake_check(f.lake), GMLAKE_OK);
  while (f.shelf_count) let_go(&f.shelf[--f.shelf_count], 0);
  for (i = 0; i < BUFFERS; i++)
    assert_int_equal(gmlake_buffer_destroy(f.lake, f.buffers[i].handle, f.streams[i]), GMLAKE_OK);
  settle();
  if (kinds & CAPTURES) close_pools();
  memset(&stats, 0, sizeof(stats));
  assert_int_equal(gmlake_get_stats(f.lake, &stats), GMLAKE_OK);
  assert_int_equal(stats.live_count, 0);
  assert_int_equal(stats.active_bytes, 0);
  assert_true(stats.stitch_count > 0 && stats.free_count == stats.allocation_count);
  assert_told(&stats);
  for (i = 0; i < STREAMS; i++) gmlake_mock_stream_finish(f.mock, f.streams[i]);
  assert_int_equal(gmlake_check(f.lake), GMLAKE_OK);
  close_lake();
}

static void run_random(int threads, int steps, int kinds, gmlake_cross_stream cross_stream) {
  run_random_with(threads, steps, kinds, cross_stream, NULL);
}

CASE(test_one_thread) { run_random(1, 12000, 0, GMLAKE_GROW_FIRST); }

CASE(test_two_threads) { run_random(2, 6000, 0, GMLAKE_WAIT_FIRST); }

CASE(test_eight_threads) {
  run_random(8, 2000, 0, GMLAKE_GROW_FIRST);
  run_random(8, 2000, 0, GMLAKE_WAIT_FIRST);
}

CASE(test_thirty_two_threads) {
  run_random(32, 500, 0, GMLAKE_GROW_FIRST);
  run_random(32, 500, 0, GMLAKE_WAIT_FIRST);
}

/* Of which one planner at a time asks, but for coalesce. */
static gmlake_policy the_papers(void) {
  static gmlake_paper paper;
  gmlake_paper_init(&paper);
  paper.chunk_bytes = CHUNK;
  paper.limit_bytes = 0;
  paper.stitched_bytes_max = 2 * MIB; /* so that windows are dropped */
  return gmlake_policy_paper(&paper);
}

CASE(test_threads_and_a_policy) {
  gmlake_policy policy = the_papers();
  run_random_with(4, 4000, 0, GMLAKE_GROW_FIRST, &policy);
  run_random_with(4, 2000, FAULTS, GMLAKE_WAIT_FIRST, &policy);
  policy.choose = NULL;
  run_random_with(4, 2000, 0, GMLAKE_WAIT_FIRST, &policy);
  policy.evict = NULL; /* frees alone are asked about, while others allocate */
  run_random_with(4, 4000, 0, GMLAKE_GROW_FIRST, &policy);
}

CASE(test_threads_and_faults) {
  run_random(8, 2000, FAULTS, GMLAKE_WAIT_FIRST);
  run_random(32, 500, FAULTS, GMLAKE_GROW_FIRST);
}

CASE(test_threads_and_captures) {
  const gmlake_policy policy = the_papers();
  run_random(2, 6000, CAPTURES, GMLAKE_GROW_FIRST);
  run_random(8, 2000, CAPTURES, GMLAKE_WAIT_FIRST);
  run_random_with(4, 2000, CAPTURES, GMLAKE_GROW_FIRST, &policy);
}

int main(int argc, char **argv) {
  uint64_t seconds = 0;
  const option_row rows[] = {{"seconds", OPTION_COUNT, &seconds, 0, 1e9, "N",
                              "all tests over and over for so long, with other seeds"}};
  const option_reader reader = {"test_threads", "[OPTION]...", "", "", rows, 1};
  time_t end;
  int failed;
  options_alone(&reader, argc, argv);
  end = time(NULL) + (time_t)seconds;
  do {
    failed = run_cases("threads");
    seed++;
  } while (!failed && time(NULL) < end);
  if (seconds)
    printf("%llu times in %llu s\n", (unsigned long long)seed, (unsigned long long)seconds);
  return failed;
}
