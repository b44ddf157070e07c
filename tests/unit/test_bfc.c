/* Tests of gmlake_bfc.h: rules by hand, errors, faults, recorded traces.
   usage: test_bfc [directory of the traces]; link with cmocka, zlib and pthreads.
   The implementation is included with all hooks replaced by ones that count, so that the tests see
   its host memory, its lock and its inside. */

#include <pthread.h>

#include "cases.h"
#include "host.h"
#include "trace.h"

#if !defined(TEST_TRACES)
#define TEST_TRACES "bench/traces"
#endif

static const char *trace_directory = TEST_TRACES;
static int hook_lock_count, hook_depth, hook_mutex_count;
static int hook_mutex_fails;

static int hook_init(pthread_mutex_t *mutex) {
  if (hook_mutex_fails) return 1;
  hook_mutex_count++;
  return pthread_mutex_init(mutex, NULL);
}

static void hook_destroy(pthread_mutex_t *mutex) {
  hook_mutex_count--;
  pthread_mutex_destroy(mutex);
}

static void hook_lock(pthread_mutex_t *mutex) {
  pthread_mutex_lock(mutex);
  hook_lock_count++;
  hook_depth++;
}

static void hook_unlock(pthread_mutex_t *mutex) {
  hook_depth--;
  pthread_mutex_unlock(mutex);
}

#define GMLAKE_BFC_MALLOC(bytes) host_malloc(NULL, bytes)
#define GMLAKE_BFC_FREE(ptr) host_free(NULL, ptr)
#define GMLAKE_BFC_MUTEX_TYPE pthread_mutex_t
#define GMLAKE_BFC_MUTEX_INIT(m) hook_init(m)
#define GMLAKE_BFC_MUTEX_DESTROY(m) hook_destroy(m)
#define GMLAKE_BFC_MUTEX_LOCK(m) hook_lock(m)
#define GMLAKE_BFC_MUTEX_UNLOCK(m) hook_unlock(m)
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"
#include "gmlake_bfc.h" /* a second time: nothing must happen */

#define KIB ((size_t)1024)
#define MIB ((size_t)1024 * 1024)
#define STREAM(number) ((void *)(uintptr_t)(number))
#define assert_ok(call) assert_int_equal(call, GMLAKE_BFC_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_BFC_ERROR_##name)
#define assert_size(a, b) assert_int_equal((uint64_t)(a), (uint64_t)(b))

/* ---- A device that hands out rising addresses and refuses what it should --------------------- */

#define DEVICE_SEGMENTS_MAX 4096

typedef struct device {
  uintptr_t next;
  size_t capacity_bytes, used_bytes; /* capacity 0: no end */
  size_t last_bytes;
  int alloc_count, free_count, refused_count;
  int lock_seen; /* 1: the last call came with the lock held */
  size_t segment_count;
  uintptr_t address[DEVICE_SEGMENTS_MAX];
  size_t bytes[DEVICE_SEGMENTS_MAX];
} device;

static void *device_alloc(void *user, size_t bytes) {
  device *gpu = (device *)user;
  uintptr_t address = gpu->next;
  gpu->lock_seen = hook_depth;
  if (gpu->capacity_bytes != 0 && bytes > gpu->capacity_bytes - gpu->used_bytes) {
    gpu->refused_count++;
    return NULL;
  }
  assert_true(gpu->segment_count < DEVICE_SEGMENTS_MAX);
  gpu->address[gpu->segment_count] = address;
  gpu->bytes[gpu->segment_count++] = bytes;
  gpu->next += bytes;
  gpu->used_bytes += bytes;
  gpu->last_bytes = bytes;
  gpu->alloc_count++;
  return (void *)address;
}

static void device_free(void *user, void *segment, size_t bytes) {
  device *gpu = (device *)user;
  size_t i = 0;
  gpu->lock_seen = hook_depth;
  while (i < gpu->segment_count && gpu->address[i] != (uintptr_t)segment) i++;
  assert_true(i < gpu->segment_count);
  assert_size(gpu->bytes[i], bytes);
  gpu->segment_count--;
  gpu->address[i] = gpu->address[gpu->segment_count];
  gpu->bytes[i] = gpu->bytes[gpu->segment_count];
  gpu->used_bytes -= bytes;
  gpu->free_count++;
}

static device test_device;

/* Forgets what earlier tests did and gives a description over a fresh device. */
static gmlake_bfc_desc fresh_desc(void) {
  gmlake_bfc_desc desc;
  memset(&test_device, 0, sizeof test_device);
  test_device.next = (uintptr_t)1 << 30;
  host_bytes = host_calls = 0;
  hook_lock_count = hook_depth = hook_mutex_count = 0;
  hook_mutex_fails = 0;
  memset(&desc, 0, sizeof desc);
  desc.segment_alloc = device_alloc;
  desc.segment_free = device_free;
  desc.user = &test_device;
  return desc;
}

static gmlake_bfc *make(const gmlake_bfc_desc *desc) {
  gmlake_bfc *bfc = NULL;
  assert_ok(gmlake_bfc_create(desc, &bfc));
  assert_non_null(bfc);
  return bfc;
}

static gmlake_bfc *fresh(void) {
  gmlake_bfc_desc desc = fresh_desc();
  return make(&desc);
}

static char *take_on(gmlake_bfc *bfc, size_t bytes, void *stream) {
  void *ptr = NULL;
  assert_ok(gmlake_bfc_alloc(bfc, bytes, stream, &ptr));
  assert_non_null(ptr);
  assert_ok(gmlake_bfc_check(bfc));
  return (char *)ptr;
}

static char *take(gmlake_bfc *bfc, size_t bytes) { return take_on(bfc, bytes, NULL); }

static void give(gmlake_bfc *bfc, void *ptr) {
  assert_ok(gmlake_bfc_free(bfc, ptr));
  assert_ok(gmlake_bfc_check(bfc));
}

static gmlake_bfc_stats stats_of(gmlake_bfc *bfc) {
  gmlake_bfc_stats stats;
  memset(&stats, 0xA5, sizeof stats);
  stats.struct_bytes = 0;
  assert_ok(gmlake_bfc_get_stats(bfc, &stats));
  return stats;
}

/* Destroys, with live blocks or without, and sees that everything came back. */
static void finish(gmlake_bfc *bfc) {
  assert_ok(gmlake_bfc_check(bfc));
  assert_ok(gmlake_bfc_destroy(bfc));
  assert_size(test_device.segment_count, 0);
  assert_int_equal(test_device.alloc_count, test_device.free_count);
  assert_size(host_bytes, 0);
  assert_int_equal(hook_mutex_count, 0);
  assert_int_equal(hook_depth, 0);
}

/* ---- Arguments and errors -------------------------------------------------------------------- */

CASE(test_result_names) {
  static const char *const names[] = {"GMLAKE_BFC_OK",
                                      "GMLAKE_BFC_ERROR_INVALID_ARGUMENT",
                                      "GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY",
                                      "GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY",
                                      "GMLAKE_BFC_ERROR_LIMIT_REACHED",
                                      "GMLAKE_BFC_ERROR_UNKNOWN_POINTER",
                                      "GMLAKE_BFC_ERROR_DOUBLE_FREE",
                                      "GMLAKE_BFC_ERROR_CORRUPT"};
  int i;
  for (i = 0; i < 8; i++)
    assert_string_equal(gmlake_bfc_result_name((gmlake_bfc_result)i), names[i]);
  assert_string_equal(gmlake_bfc_result_name((gmlake_bfc_result)99), "GMLAKE_BFC_ERROR_?");
}

static void refuse_desc(const gmlake_bfc_desc *desc) {
  gmlake_bfc *bfc = (gmlake_bfc *)desc;
  assert_error(gmlake_bfc_create(desc, &bfc), INVALID_ARGUMENT);
  assert_null(bfc);
}

typedef struct failing_host {
  int calls_left; /* the call that finds 0 fails */
  int held_count;
} failing_host;

static void *failing_malloc(void *user, size_t bytes) {
  failing_host *host = (failing_host *)user;
  if (host->calls_left-- == 0) return NULL;
  host->held_count++;
  return malloc(bytes);
}

static void failing_free(void *user, void *ptr) {
  ((failing_host *)user)->held_count--;
  free(ptr);
}

CASE(test_create_refuses) {
  gmlake_bfc_desc good = fresh_desc(), desc = good;
  assert_error(gmlake_bfc_create(&good, NULL), INVALID_ARGUMENT);
  refuse_desc(NULL);
  desc.segment_alloc = NULL, refuse_desc(&desc), desc = good;
  desc.segment_free = NULL, refuse_desc(&desc), desc = good;
  desc.malloc_fn = failing_malloc, refuse_desc(&desc), desc = good;
  desc.free_fn = failing_free, refuse_desc(&desc), desc = good;
  desc.flags = 2, refuse_desc(&desc), desc = good;
  desc.flags = ~0u, refuse_desc(&desc), desc = good;
  desc.round_bytes = 513, refuse_desc(&desc), desc = good;
  desc.round_bytes = 4 * MIB, refuse_desc(&desc), desc = good;
  desc.round_bytes = SIZE_MAX, refuse_desc(&desc), desc = good;
  desc.large_round_bytes = 3 * MIB, refuse_desc(&desc), desc = good;
  desc.large_round_bytes = 256, refuse_desc(&desc), desc = good;
  desc.large_round_bytes = SIZE_MAX, refuse_desc(&desc), desc = good;
  desc.small_bytes_max = 2 * MIB + 1, refuse_desc(&desc), desc = good;
  desc.small_bytes_max = SIZE_MAX, refuse_desc(&desc), desc = good;
  desc.small_segment_bytes = 2 * MIB + 1, refuse_desc(&desc), desc = good;
  desc.small_segment_bytes = MIB - 512, refuse_desc(&desc), desc = good;
  desc.large_segment_bytes = 20 * MIB + 1, refuse_desc(&desc), desc = good;
  desc.large_segment_bytes = 10 * MIB - 512, refuse_desc(&desc), desc = good;
  desc.large_request_min = 20 * MIB + 1, refuse_desc(&desc), desc = good;
  desc.large_request_min = SIZE_MAX, refuse_desc(&desc), desc = good;
  assert_size(host_calls, 0);
  hook_mutex_fails = 1;
  {
    gmlake_bfc *bfc = (gmlake_bfc *)&good;
    assert_error(gmlake_bfc_create(&good, &bfc), OUT_OF_HOST_MEMORY);
    assert_null(bfc);
  }
  assert_size(host_bytes, 0);
}

#define AT(field) offsetof(gmlake_bfc_desc, field)

/* The last values that are taken, one at a time; test_create_refuses has those beside them. A byte
   and a byte more than small_bytes_max are then served, from so many segments. */
CASE(test_create_takes_the_bounds) {
  static const struct {
    size_t field, value;
    int segment_count; /* 1: rounded, the byte is no longer small */
  } rows[] = {
      {AT(round_bytes), 1, 2},
      {AT(round_bytes), MIB, 2},
      {AT(round_bytes), 2 * MIB, 1},
      {AT(large_round_bytes), 512, 2},
      {AT(large_round_bytes), (size_t)1 << 63, 2},
      {AT(small_bytes_max), 1, 1},
      {AT(small_bytes_max), 511, 1},
      {AT(small_bytes_max), 512, 2},
      {AT(small_bytes_max), 2 * MIB, 2},
      {AT(small_segment_bytes), MIB, 2},
      {AT(small_segment_bytes), MIB + 512, 2},
      {AT(large_segment_bytes), 10 * MIB, 2},
      {AT(large_segment_bytes), 10 * MIB + 512, 2},
      {AT(large_request_min), 1, 2},
      {AT(large_request_min), 20 * MIB, 2},
      {AT(small_remainder_min), 1, 2},
      {AT(small_remainder_min), SIZE_MAX, 2},
      {AT(large_remainder_min), 1, 2},
      {AT(large_remainder_min), SIZE_MAX, 2},
      {AT(limit_bytes), 22 * MIB, 2},
      {AT(limit_bytes), SIZE_MAX, 2},
  };
  size_t i;
  for (i = 0; i < sizeof rows / sizeof rows[0]; i++) {
    gmlake_bfc_desc desc = fresh_desc();
    gmlake_bfc *bfc;
    char *small_block, *large_block;
    memcpy((char *)&desc + rows[i].field, &rows[i].value, sizeof rows[i].value);
    bfc = make(&desc);
    small_block = take(bfc, 1);
    large_block = take(bfc, bfc->desc.small_bytes_max + 1);
    assert_int_equal(test_device.alloc_count, rows[i].segment_count);
    give(bfc, small_block);
    give(bfc, large_block);
    assert_size(stats_of(bfc).active_bytes, 0);
    finish(bfc);
  }
}

CASE(test_null_arguments) {
  gmlake_bfc *bfc = fresh();
  gmlake_bfc_stats stats;
  void *ptr = bfc;
  size_t bytes = 7;
  memset(&stats, 0, sizeof stats);
  assert_ok(gmlake_bfc_destroy(NULL));
  assert_error(gmlake_bfc_alloc(bfc, 1, NULL, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_alloc(NULL, 1, NULL, &ptr), INVALID_ARGUMENT);
  assert_null(ptr);
  assert_error(gmlake_bfc_alloc(NULL, 0, NULL, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_free(NULL, bfc), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_free(NULL, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_trim(NULL, &bytes), INVALID_ARGUMENT);
  assert_size(bytes, 0);
  assert_error(gmlake_bfc_get_stats(NULL, &stats), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_get_stats(bfc, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_bfc_check(NULL), INVALID_ARGUMENT);
  assert_ok(gmlake_bfc_free(bfc, NULL));
  ptr = bfc;
  assert_ok(gmlake_bfc_alloc(bfc, 0, NULL, &ptr));
  assert_null(ptr);
  assert_size(stats_of(bfc).allocation_count, 0);
  assert_size(stats_of(bfc).free_count, 0);
  assert_int_equal(test_device.alloc_count, 0);
  finish(bfc);
}

CASE(test_wrong_pointers) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc = make(&desc), *another = make(&desc);
  char *a = take(bfc, 1000), *b = take(bfc, 1000), *foreign = take(another, 1000);
  gmlake_bfc_stats before, after;
  give(bfc, b);
  before = stats_of(bfc);
  assert_error(gmlake_bfc_free(bfc, b), DOUBLE_FREE);
  assert_error(gmlake_bfc_free(bfc, b + 1), DOUBLE_FREE);
  assert_error(gmlake_bfc_free(bfc, a + 2 * MIB - 1), DOUBLE_FREE);
  assert_error(gmlake_bfc_free(bfc, a + 1), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, a + 512), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, a + 1023), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, a - 1), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, a + 2 * MIB), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, bfc), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, foreign), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, (char *)(uintptr_t)1), UNKNOWN_POINTER);
  assert_error(gmlake_bfc_free(bfc, (char *)UINTPTR_MAX), UNKNOWN_POINTER);
  give(another, foreign);
  assert_ok(gmlake_bfc_destroy(another));
  after = stats_of(bfc);
  assert_memory_equal(&before, &after, sizeof before);
  give(bfc, a);
  assert_error(gmlake_bfc_free(bfc, a), DOUBLE_FREE);
  assert_ok(gmlake_bfc_trim(bfc, NULL));
  assert_error(gmlake_bfc_free(bfc, a), UNKNOWN_POINTER);
  finish(bfc);
}

CASE(test_sizes_that_overflow) {
  static const size_t sizes[] = {SIZE_MAX, SIZE_MAX - 510, SIZE_MAX - 511, SIZE_MAX - MIB};
  gmlake_bfc *bfc = fresh();
  char *a = take(bfc, 1);
  size_t i;
  for (i = 0; i < 4; i++) {
    void *ptr = a;
    assert_error(gmlake_bfc_alloc(bfc, sizes[i], NULL, &ptr), OUT_OF_DEVICE_MEMORY);
    assert_null(ptr);
    assert_size(stats_of(bfc).oom_count, i + 1);
    assert_ok(gmlake_bfc_check(bfc));
  }
  /* Rounded, this is a size; together with the 2 MiB held it no longer is. */
  {
    void *ptr = a;
    assert_error(gmlake_bfc_alloc(bfc, SIZE_MAX - 3 * MIB, NULL, &ptr), OUT_OF_DEVICE_MEMORY);
    assert_null(ptr);
  }
  assert_int_equal(test_device.alloc_count + test_device.refused_count, 1);
  give(bfc, a);
  finish(bfc);
}

/* The last size that can be rounded is the device's to refuse, once more after the cached segments
   are gone. */
CASE(test_the_largest_size) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc;
  void *ptr = &ptr;
  desc.large_round_bytes = 512;
  bfc = make(&desc);
  test_device.capacity_bytes = MIB;
  assert_error(gmlake_bfc_alloc(bfc, SIZE_MAX - 510, NULL, &ptr), OUT_OF_DEVICE_MEMORY);
  assert_null(ptr);
  assert_int_equal(test_device.refused_count, 0);
  assert_size(stats_of(bfc).retry_count, 0);
  ptr = &ptr;
  assert_error(gmlake_bfc_alloc(bfc, SIZE_MAX - 511, NULL, &ptr), OUT_OF_DEVICE_MEMORY);
  assert_null(ptr);
  assert_int_equal(test_device.refused_count, 2);
  assert_size(stats_of(bfc).retry_count, 1);
  assert_size(stats_of(bfc).oom_count, 2);
  finish(bfc);
}

/* A segment past the limit is not asked for. What is cached goes first, and may be enough. */
CASE(test_limit) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc;
  char *block;
  void *ptr = &ptr;
  desc.limit_bytes = 40 * MIB;
  bfc = make(&desc);
  block = take(bfc, 20 * MIB);
  take(bfc, 20 * MIB);
  assert_error(gmlake_bfc_alloc(bfc, 1, NULL, &ptr), LIMIT_REACHED);
  assert_null(ptr);
  assert_int_equal(test_device.alloc_count, 2);
  give(bfc, block);
  take(bfc, 1);
  assert_int_equal(test_device.free_count, 1);
  assert_size(stats_of(bfc).retry_count, 2);
  assert_size(stats_of(bfc).oom_count, 1);
  assert_error(gmlake_bfc_alloc(bfc, 20 * MIB, NULL, &ptr), LIMIT_REACHED);
  finish(bfc);
}

/* ---- Description ----------------------------------------------------------------------------- */

CASE(test_defaults_are_what_zero_means) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc = make(&desc);
  gmlake_bfc_desc filled = bfc->desc;
  assert_size(filled.round_bytes, 512);
  assert_size(filled.small_bytes_max, 1048576);
  assert_size(filled.small_segment_bytes, 2097152);
  assert_size(filled.large_segment_bytes, 20971520);
  assert_size(filled.large_request_min, 10485760);
  assert_size(filled.large_round_bytes, 2097152);
  assert_size(filled.small_remainder_min, 512);
  assert_size(filled.large_remainder_min, 1048576);
  assert_size(filled.limit_bytes, 0);
  finish(bfc);
}

CASE(test_lock_and_single_threaded) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc = make(&desc);
  void *ptr = NULL;
  assert_int_equal(hook_mutex_count, 1);
  assert_ok(gmlake_bfc_alloc(bfc, 1, NULL, &ptr));
  assert_int_equal(hook_lock_count, 1);
  assert_int_equal(test_device.lock_seen, 1);
  assert_ok(gmlake_bfc_free(bfc, ptr));
  assert_int_equal(hook_lock_count, 2);
  assert_ok(gmlake_bfc_trim(bfc, NULL));
  assert_int_equal(hook_lock_count, 3);
  stats_of(bfc);
  assert_int_equal(hook_lock_count, 4);
  finish(bfc);

  desc = fresh_desc();
  desc.flags = GMLAKE_BFC_SINGLE_THREADED;
  bfc = make(&desc);
  assert_int_equal(hook_mutex_count, 0);
  give(bfc, take(bfc, 1));
  assert_ok(gmlake_bfc_trim(bfc, NULL));
  stats_of(bfc);
  assert_int_equal(hook_lock_count, 0);
  finish(bfc);
}

CASE(test_stats_struct_bytes) {
  gmlake_bfc *bfc = fresh();
  gmlake_bfc_stats stats;
  take(bfc, 1000);
  memset(&stats, 0x5A, sizeof stats);
  stats.struct_bytes = offsetof(gmlake_bfc_stats, active_bytes);
  assert_ok(gmlake_bfc_get_stats(bfc, &stats));
  assert_size(stats.struct_bytes, offsetof(gmlake_bfc_stats, active_bytes));
  assert_size(stats.requested_bytes, 1000);
  assert_size(stats.requested_bytes_peak, 1000);
  assert_size(stats.active_bytes, (size_t)-1 / 255 * 0x5A); /* not written */
  stats.struct_bytes = sizeof stats + 64;
  assert_ok(gmlake_bfc_get_stats(bfc, &stats));
  assert_size(stats.struct_bytes, sizeof stats);
  assert_size(stats.active_bytes, 1024);
  stats.struct_bytes = 1;
  assert_error(gmlake_bfc_get_stats(bfc, &stats), INVALID_ARGUMENT);
  stats.struct_bytes = sizeof(size_t) - 1;
  assert_error(gmlake_bfc_get_stats(bfc, &stats), INVALID_ARGUMENT);
  finish(bfc);
}

/* ---- Faults and corruption ------------------------------------------------------------------- */

/* An allocation that fails for want of host memory leaves everything as it was, and succeeds when
   it is tried again. Returns 1 where the fault was met. */
static int take_despite_fault(gmlake_bfc *bfc, size_t bytes) {
  gmlake_bfc_stats before = stats_of(bfc), after;
  void *ptr = bfc;
  gmlake_bfc_result result = gmlake_bfc_alloc(bfc, bytes, NULL, &ptr);
  assert_ok(gmlake_bfc_check(bfc));
  if (result == GMLAKE_BFC_OK) return 0;
  assert_int_equal(result, GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY);
  assert_null(ptr);
  after = stats_of(bfc);
  after.metadata_bytes = before.metadata_bytes; /* what was reserved is kept for the next time */
  after.metadata_bytes_peak = before.metadata_bytes_peak;
  assert_memory_equal(&before, &after, sizeof before);
  take(bfc, bytes);
  return 1;
}

CASE(test_every_host_fault) {
  int call, met = 1, met_count = 0;
  for (call = 0; met; call++) {
    gmlake_bfc_desc desc = fresh_desc();
    failing_host host = {0, 0};
    gmlake_bfc *bfc = (gmlake_bfc *)&desc;
    int i;
    host.calls_left = call;
    desc.malloc_fn = failing_malloc;
    desc.free_fn = failing_free;
    desc.malloc_user = &host;
    met = gmlake_bfc_create(&desc, &bfc) != GMLAKE_BFC_OK;
    if (met) assert_null(bfc);
    for (i = 0; bfc != NULL && i < 200; i++)
      met += take_despite_fault(bfc, i % 40 == 0 ? 10 * MIB : 512);
    assert_true(met <= 1);
    met_count += met;
    if (bfc != NULL) finish(bfc);
    assert_int_equal(host.held_count, 0);
  }
  assert_int_equal(met_count, 2 + 4 + 6 + 2); /* create; slabs; segments; index at 64 and 128 */
}

/* The check sees that value there, and nothing once the former one is back. */
#define assert_seen(bfc, type, place, value)      \
  do {                                            \
    type kept_ = (place);                         \
    (place) = (value);                            \
    assert_error(gmlake_bfc_check(bfc), CORRUPT); \
    (place) = kept_;                              \
    assert_ok(gmlake_bfc_check(bfc));             \
  } while (0)
#define assert_seen_size(bfc, place, value) assert_seen(bfc, size_t, place, value)
#define assert_seen_block(bfc, place, value) assert_seen(bfc, gmlkb_block *, place, value)

/* Free and live blocks in turn: three free ones of 512, 1024 and 1536 bytes, then the rest. */
static gmlake_bfc *striped(gmlkb_block *block[7]) {
  gmlake_bfc *bfc = fresh();
  gmlkb_block *walk;
  char *part[6];
  size_t i;
  for (i = 0; i < 6; i++) part[i] = take(bfc, i % 2 == 0 ? 512 * (i / 2 + 1) : 512);
  for (i = 0; i < 6; i += 2) give(bfc, part[i]);
  for (i = 0, walk = bfc->segments->first; i < 7; i++, walk = walk->next) block[i] = walk;
  assert_null(walk);
  return bfc;
}

CASE(test_check_sees_broken_blocks) {
  gmlkb_block *block[7];
  gmlake_bfc *bfc = striped(block);
  size_t i;
  for (i = 0; i < 7; i++) {
    assert_seen(bfc, uintptr_t, block[i]->address, block[i]->address + 512);
    assert_seen_size(bfc, block[i]->bytes, block[i]->bytes + 512);
    assert_seen_size(bfc, block[i]->bytes, block[i]->bytes - 1);
    assert_seen_size(bfc, block[i]->bytes, 0);
    assert_seen_size(bfc, block[i]->stream, 1);
    assert_seen_size(bfc, block[i]->requested_bytes, block[i]->requested_bytes == 0 ? 1 : 0);
    assert_seen_block(bfc, block[i]->next, i == 6 ? block[0] : NULL);
    assert_seen_block(bfc, block[i]->previous, block[i]);
  }
  assert_seen_size(bfc, block[1]->requested_bytes, 513);
  finish(bfc);
}

CASE(test_check_sees_broken_structures) {
  gmlkb_block *block[7], *root, **bucket;
  gmlake_bfc *bfc = striped(block);
  uint32_t priority;
  size_t i;
  root = bfc->free_root[1];
  assert_seen_block(bfc, bfc->free_root[1], NULL);
  assert_seen_block(bfc, bfc->free_root[0], root);
  assert_seen_block(bfc, bfc->free_root[1], root->left != NULL ? root->left : root->right);
  assert_seen_block(bfc, root->left, root);
  assert_seen_block(bfc, root->right, root);
  for (i = 0; i < 7; i += 2) { /* the free blocks; all but the root are below some other */
    priority = block[i]->priority;
    block[i]->priority = UINT32_MAX;
    assert_int_equal(gmlake_bfc_check(bfc) == GMLAKE_BFC_OK, block[i] == root);
    block[i]->priority = priority;
  }
  bucket = gmlkb_index_bucket(bfc, block[1]->address);
  assert_seen_block(bfc, *bucket, NULL);
  assert_seen_block(bfc, (*bucket)->chain, *bucket);
  assert_seen_block(bfc, *bucket, block[0]);
  assert_seen_block(bfc, bfc->spare, NULL);
  assert_seen_block(bfc, bfc->spare->chain, NULL);
  assert_seen_size(bfc, bfc->spare_count, bfc->spare_count - 1);
  finish(bfc);
}

/* Order is by stream, size and address alone: with priorities that are all the same, or the other
   way round, every fit is the one that it was. */
CASE(test_priorities_choose_nothing) {
  uintptr_t served[3][16];
  int how;
  for (how = 0; how < 3; how++) {
    gmlake_bfc *bfc = fresh();
    char *part[32];
    size_t i;
    take(bfc, 512);
    for (i = 0; i < GMLKB_SLAB_BLOCKS; i++) {
      gmlkb_block *block = &bfc->slabs->blocks[i];
      if (how > 0) block->priority = how == 1 ? 7 : UINT32_MAX - block->priority;
    }
    for (i = 0; i < 32; i++) part[i] = take(bfc, 512 * (1 + i * 7 % 5));
    for (i = 0; i < 32; i += 2) give(bfc, part[i]);
    for (i = 0; i < 16; i++) served[how][i] = (uintptr_t)take(bfc, 512 * (1 + i * 3 % 5));
    assert_null(bfc->slabs->next);
    assert_memory_equal(served[how], served[0], sizeof served[0]);
    finish(bfc);
  }
}

/* A device that hands out the same memory twice: the new segment begins in the old one, or ends. */
CASE(test_check_sees_overlapping_segments) {
  int i;
  for (i = 0; i < 2; i++) {
    gmlake_bfc *bfc = fresh();
    void *ptr = NULL;
    take(bfc, 20 * MIB);
    test_device.next -= i == 0 ? MIB : 39 * MIB;
    assert_ok(gmlake_bfc_alloc(bfc, 20 * MIB, NULL, &ptr));
    assert_error(gmlake_bfc_check(bfc), CORRUPT);
    assert_ok(gmlake_bfc_destroy(bfc));
  }
}

/* All other invariants are kept, statistics too. */
CASE(test_check_sees_free_neighbours) {
  gmlake_bfc *bfc = fresh();
  gmlkb_block *block;
  give(bfc, take(bfc, 1));
  block = bfc->segments->first;
  gmlkb_tree_remove(&bfc->free_root[1], block);
  gmlkb_split(bfc, block, 512);
  gmlkb_tree_insert(&bfc->free_root[1], block);
  assert_error(gmlake_bfc_check(bfc), CORRUPT);
  gmlkb_tree_remove(&bfc->free_root[1], block->next);
  gmlkb_tree_remove(&bfc->free_root[1], block);
  gmlkb_merge(bfc, block);
  gmlkb_tree_insert(&bfc->free_root[1], block);
  finish(bfc);
}

CASE(test_check_recounts_statistics) {
  gmlake_bfc *bfc = fresh();
  gmlake_bfc_stats *stats = &bfc->stats;
  size_t *const bytes[] = {&stats->requested_bytes, &stats->active_bytes, &stats->reserved_bytes,
                           &stats->metadata_bytes};
  size_t *const peaks[] = {&stats->requested_bytes_peak, &stats->active_bytes_peak,
                           &stats->reserved_bytes_peak, &stats->metadata_bytes_peak};
  uint64_t *const counts[] = {&stats->allocation_count,    &stats->free_count,
                              &stats->split_count,         &stats->coalesce_count,
                              &stats->segment_alloc_count, &stats->segment_free_count,
                              &stats->segment_count,       &stats->live_count};
  size_t i;
  take(bfc, 1000);
  for (i = 0; i < 4; i++) {
    assert_seen_size(bfc, *bytes[i], *bytes[i] - 1);
    assert_seen_size(bfc, *peaks[i], *bytes[i] - 1);
  }
  for (i = 0; i < 8; i++) assert_seen(bfc, uint64_t, *counts[i], *counts[i] + 1);
  finish(bfc);
}

/* ---- Threads --------------------------------------------------------------------------------- */

typedef struct worker {
  gmlake_bfc *bfc;
  uint32_t number;
  int failed;
} worker;

static uint32_t next_random(uint32_t *seed) {
  *seed = *seed * 1664525u + 1013904223u;
  return *seed >> 8;
}

static void *work(void *argument) {
  worker *self = (worker *)argument;
  void *held[32];
  uint32_t seed = self->number;
  int i;
  memset(held, 0, sizeof held);
  for (i = 0; i < 5000 && !self->failed; i++) {
    void **place = &held[next_random(&seed) % 32];
    if (*place != NULL) {
      self->failed |= gmlake_bfc_free(self->bfc, *place) != GMLAKE_BFC_OK;
      *place = NULL;
    } else {
      size_t bytes = (size_t)next_random(&seed) % (3 * MIB) + 1;
      void *stream = STREAM(next_random(&seed) % 2);
      self->failed |= gmlake_bfc_alloc(self->bfc, bytes, stream, place) != GMLAKE_BFC_OK;
    }
    if (i % 500 == 0) self->failed |= gmlake_bfc_check(self->bfc) != GMLAKE_BFC_OK;
    if (i % 700 == 0) self->failed |= gmlake_bfc_trim(self->bfc, NULL) != GMLAKE_BFC_OK;
  }
  for (i = 0; i < 32; i++) self->failed |= gmlake_bfc_free(self->bfc, held[i]) != GMLAKE_BFC_OK;
  return NULL;
}

CASE(test_threads) {
  gmlake_bfc *bfc = fresh();
  pthread_t thread[4];
  worker workers[4];
  uint32_t i;
  for (i = 0; i < 4; i++) {
    workers[i].bfc = bfc;
    workers[i].number = i + 1;
    workers[i].failed = 0;
    assert_int_equal(pthread_create(&thread[i], NULL, work, &workers[i]), 0);
  }
  for (i = 0; i < 4; i++) {
    assert_int_equal(pthread_join(thread[i], NULL), 0);
    assert_int_equal(workers[i].failed, 0);
  }
  assert_size(stats_of(bfc).live_count, 0);
  finish(bfc);
}

/* ---- Recorded traces: torch's own peak ------------------------------------------------------- */

/* Among equal blocks the lowest address wins, and torch's addresses are not in the traces: with
   falling ones every peak is torch's, with rising ones two differ a little. */
static void *replay_segment_alloc(void *user, size_t bytes) {
  return (void *)(*(uintptr_t *)user -= bytes);
}

static void replay_segment_free(void *user, void *segment, size_t bytes) {
  assert_true((uintptr_t)segment >= *(const uintptr_t *)user && bytes);
}

/* The statistics at the trace's end. */
static gmlake_bfc_stats replay_trace(const trace *t) {
  gmlake_bfc_desc desc = fresh_desc();
  gmlake_bfc *bfc;
  gmlake_bfc_stats stats;
  uintptr_t lowest = (uintptr_t)1 << 45;
  void **blocks = (void **)calloc(t->id_count, sizeof *blocks);
  size_t i;
  assert_non_null(blocks);
  desc.segment_alloc = replay_segment_alloc;
  desc.segment_free = replay_segment_free;
  desc.user = &lowest;
  bfc = make(&desc);
  for (i = 0; i < t->op_count; i++) {
    const trace_op *op = &t->ops[i];
    if (op->type == TRACE_ALLOC)
      assert_ok(gmlake_bfc_alloc(bfc, op->bytes, STREAM(op->stream), &blocks[op->id]));
    else
      assert_ok(gmlake_bfc_free(bfc, blocks[op->id]));
  }
  assert_ok(gmlake_bfc_check(bfc));
  stats = stats_of(bfc);
  assert_ok(gmlake_bfc_destroy(bfc));
  free(blocks);
  return stats;
}

static const char *const traces[] = {"fsdp2-opt-1.3b-R", "gpt2-xl-R-dyn", "llama-7b-LR-dyn",
                                     "neox-20b-LR",      "opt-1.3b-LR",   "opt-1.3b-LRO",
                                     "opt-1.3b-N",       "opt-1.3b-R"};

CASE(test_traces_have_torchs_peaks) {
  char path[1024], error[512];
  size_t i;
  for (i = 0; i < sizeof traces / sizeof traces[0]; i++) {
    gmlake_bfc_stats stats;
    trace t;
    snprintf(path, sizeof path, "%s/%s.gmtrace.gz", trace_directory, traces[i]);
    if (!trace_load(path, &t, error, sizeof error)) fail_msg("%s", error);
    stats = replay_trace(&t);
    assert_true(t.op_count > 30000);
    assert_size(stats.reserved_bytes_peak, t.recorded_reserved_bytes_peak);
    assert_size(stats.active_bytes_peak, t.recorded_active_bytes_peak);
    trace_free(&t);
  }
}

int main(int argc, char **argv) {
  if (argc > 1) trace_directory = argv[1];
  return run_cases("bfc");
}
