/* Tests of the mock backend: misuse against the driver's answers, real aliasing, census, injected
   failures, streams and captures, modelled cost, a naive model under random calls, threads.
   The implementation is included, with host allocations that can be made to fail. */
#include <stddef.h>

static void *hook_malloc(size_t bytes);
static void hook_free(void *ptr);
static int refused; /* calls of the system from now on: the next that many are refused */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>
static int refuses(void) { return refused && refused--; }
static int try_ftruncate(int file, off_t bytes) { return refuses() ? -1 : ftruncate(file, bytes); }
static int try_munmap(void *at, size_t bytes) { return refuses() ? -1 : munmap(at, bytes); }
static int try_mprotect(void *at, size_t bytes, int access) {
  return refuses() ? -1 : mprotect(at, bytes, access);
}
static void *try_mmap(void *at, size_t bytes, int access, int flags, int file, off_t offset) {
  return refuses() ? MAP_FAILED : mmap(at, bytes, access, flags, file, offset);
}
#define ftruncate(file, bytes) try_ftruncate(file, bytes)
#define munmap(at, bytes) try_munmap(at, bytes)
#define mprotect(at, bytes, access) try_mprotect(at, bytes, access)
#define mmap(at, bytes, access, flags, file, offset) \
  try_mmap(at, bytes, access, flags, file, offset)
#define GMLAKE_MALLOC(bytes) hook_malloc(bytes)
#define GMLAKE_FREE(ptr) hook_free(ptr)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <setjmp.h>
#include <signal.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <pthread.h>

#if defined(__cplusplus)
extern "C" { /* cmocka.h does not say so everywhere */
#endif
#include <cmocka.h>
#if defined(__cplusplus)
}
#endif

#define KIB ((size_t)1 << 10)
#define MIB ((size_t)1 << 20)
#define GIB ((size_t)1 << 30)
#define TIB ((size_t)1 << 40)
#define G (2 * MIB) /* the granularity of all mocks here */

#if !defined(__has_feature)
#define __has_feature(name) 0
#endif
#if defined(__SANITIZE_THREAD__) || __has_feature(thread_sanitizer)
#define LARGE (256 * GIB) /* the sanitizer leaves little address space to the program */
#else
#define LARGE (4 * TIB)
#endif

#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_ERROR_##name)

static long hook_live, hook_fail_in; /* fail_in: 1 fails the next allocation; 0: none fails */

static void *hook_malloc(size_t bytes) {
  if (hook_fail_in && !--hook_fail_in) return NULL;
  hook_live++;
  return malloc(bytes);
}

static void hook_free(void *ptr) {
  if (ptr) hook_live--;
  free(ptr);
}

/* One mock at a time and shorthands for its calls; code is the driver number of the last one. */

static gmlake_backend *mock;
static int code;

static void open_mock(size_t capacity_bytes, int bookkeeping_only) {
  gmlake_mock_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.capacity_bytes = capacity_bytes;
  desc.bookkeeping_only = bookkeeping_only;
  hook_live = hook_fail_in = 0;
  assert_ok(gmlake_mock_create(&desc, &mock));
}

static void close_mock(void) {
  gmlake_mock_destroy(mock);
  mock = NULL;
  assert_int_equal(hook_live, 0);
}

static gmlake_mock_census census(void) {
  gmlake_mock_census now;
  gmlake_mock_get_census(mock, &now);
  return now;
}

static void assert_counts(size_t handles, size_t mappings, size_t reservations, size_t physical) {
  gmlake_mock_census now = census();
  assert_int_equal(now.handle_count, handles);
  assert_int_equal(now.mapping_count, mappings);
  assert_int_equal(now.reservation_count, reservations);
  assert_int_equal(now.physical_bytes, physical);
}

/* Nothing but the two counters of calls differs. */
static void assert_unchanged(gmlake_mock_census before, uint64_t calls, uint64_t failures) {
  gmlake_mock_census now = census();
  before.call_count += calls;
  before.failed_count += failures;
  assert_memory_equal(&before, &now, sizeof(now));
}

static gmlake_result reserve_at(size_t bytes, size_t alignment, uint64_t *out) {
  return mock->reserve(mock->user, bytes, alignment, out, &code);
}

static uint64_t reserve(size_t bytes) {
  uint64_t address = 0;
  assert_ok(reserve_at(bytes, G, &address));
  return address;
}

static gmlake_result unreserve(uint64_t address, size_t bytes) {
  return mock->unreserve(mock->user, address, bytes, &code);
}

static gmlake_result create_handle(size_t bytes, uint64_t *out) {
  return mock->create(mock->user, bytes, 0, out, &code);
}

static uint64_t create(size_t bytes) {
  uint64_t handle = 0;
  assert_ok(create_handle(bytes, &handle));
  assert_true(handle != 0);
  return handle;
}

static gmlake_result release(uint64_t handle) { return mock->release(mock->user, handle, &code); }

static gmlake_result map(uint64_t address, size_t bytes, uint64_t handle) {
  return mock->map(mock->user, address, bytes, handle, &code);
}

static gmlake_result unmap(uint64_t address, size_t bytes) {
  return mock->unmap(mock->user, address, bytes, &code);
}

static gmlake_result set_access(uint64_t address, size_t bytes) {
  return mock->set_access(mock->user, address, bytes, NULL, 0, &code);
}

static void *new_event(void) {
  void *event = NULL;
  assert_ok(mock->event_create(mock->user, &event, &code));
  assert_non_null(event);
  return event;
}

static gmlake_result destroy_event(void *event) {
  return mock->event_destroy(mock->user, event, &code);
}

static gmlake_result record(void *event, gmlake_stream stream) {
  return mock->event_record(mock->user, event, stream, &code);
}

static void *recorded(gmlake_stream stream) {
  void *event = new_event();
  assert_ok(record(event, stream));
  return event;
}

static gmlake_result query(void *event, int *out_done) {
  return mock->event_query(mock->user, event, out_done, &code);
}

static int is_done(void *event) {
  int done = -1;
  assert_ok(query(event, &done));
  assert_true(done == 0 || done == 1);
  return done;
}

static gmlake_result host_wait(void *event) { return mock->event_wait(mock->user, event, &code); }

static gmlake_result stream_wait(gmlake_stream stream, void *event) {
  return mock->stream_wait(mock->user, stream, event, &code);
}

static gmlake_stream new_stream(void) {
  gmlake_stream stream = NULL;
  assert_ok(gmlake_mock_stream_create(mock, &stream));
  return stream;
}

static gmlake_result exchange(int *mode) { return mock->capture_exchange(mock->user, mode, &code); }

static int exchanged(int mode) {
  assert_ok(exchange(&mode));
  return mode;
}

static unsigned char *bytes_at(uint64_t address) { return (unsigned char *)(uintptr_t)address; }

/* ---- Creating ------------------------------------------------------------------------------- */

#define HALF ((size_t)1 << 63)

static void test_description(void **state) {
  static const size_t odd[] = {1,        3,       512,      2048,    64 * KIB + 1,
                               96 * KIB, 3 * MIB, SIZE_MAX, HALF + 1};
  gmlake_device_properties properties;
  gmlake_mock_desc desc;
  size_t free_bytes, total_bytes, i;
  (void)state;
  memset(&desc, 0, sizeof(desc));
  mock = NULL;
  hook_live = hook_fail_in = 0;
  assert_error(gmlake_mock_create(NULL, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_mock_create(&desc, NULL), INVALID_ARGUMENT);
  assert_int_equal(gmlake_mock_create(NULL, &mock), GMLAKE_OK); /* as if all zero */
  gmlake_mock_destroy(mock);
  mock = NULL;
  for (i = 0; i < sizeof(odd) / sizeof(odd[0]); i++) {
    desc.granularity_bytes = odd[i];
    assert_error(gmlake_mock_create(&desc, &mock), INVALID_ARGUMENT);
  }
  assert_null(mock);
  desc.granularity_bytes = HALF;
  assert_int_equal(gmlake_mock_create(&desc, &mock), GMLAKE_OK);
  gmlake_mock_destroy(mock);
  desc.granularity_bytes = 64 * KIB;
  for (desc.capacity_bytes = 1;; desc.capacity_bytes = SIZE_MAX) {
    assert_int_equal(gmlake_mock_create(&desc, &mock), GMLAKE_OK);
    gmlake_mock_destroy(mock);
    if (desc.capacity_bytes == SIZE_MAX) break;
  }
  mock = NULL;
  gmlake_mock_destroy(NULL);
  assert_int_equal(hook_live, 0);

  open_mock(0, 0);
  assert_int_equal(mock->struct_bytes, sizeof(gmlake_backend));
  assert_int_equal(mock->abi_version, GMLAKE_BACKEND_ABI);
  assert_ok(mock->get_properties(mock->user, &properties, &code));
  assert_int_equal(properties.device_bytes, 16 * GIB);
  assert_int_equal(properties.granularity_bytes, G);
  assert_int_equal(properties.handle_types, GMLAKE_HANDLE_POSIX_FD);
  assert_true(properties.name[0] != 0);
  create(3 * G);
  assert_ok(mock->get_memory_info(mock->user, &free_bytes, &total_bytes, &code));
  assert_int_equal(total_bytes, 16 * GIB);
  assert_int_equal(free_bytes, 16 * GIB - 3 * G);
  close_mock();
}

/* Every byte of it, whatever was there before. */
static void test_properties_are_complete(void **state) {
  gmlake_device_properties zeros, ones;
  (void)state;
  open_mock(0, 0);
  memset(&zeros, 0, sizeof(zeros));
  memset(&ones, 0xFF, sizeof(ones));
  assert_ok(mock->get_properties(mock->user, &zeros, &code));
  assert_ok(mock->get_properties(mock->user, &ones, &code));
  assert_memory_equal(&zeros, &ones, sizeof(zeros));
  close_mock();
}

/* A program that has closed its standard input: the mock's file has that number. */
static void test_file_zero(void **state) {
  const int input = dup(0);
  unsigned char resident;
  char *left;
  (void)state;
  (void)close(0);
  open_mock(0, 0);
  assert_true(fcntl(0, F_GETFD) >= 0);
  left = (char *)(uintptr_t)reserve(G);
  assert_ok(map((uint64_t)(uintptr_t)left, G, create(G)));
  assert_ok(set_access((uint64_t)(uintptr_t)left, G));
  left[G - 1] = 7;
  close_mock(); /* with all of it */
  assert_int_equal(mincore(left, 1, &resident), -1);
  assert_int_equal(fcntl(0, F_GETFD), -1);
  if (input >= 0) assert_int_equal(dup2(input, 0), 0);
  if (input >= 0) (void)close(input);
}

/* ---- Misuse --------------------------------------------------------------------------------- */

/* Each row prepares, calls `mark`, and ends in the call in question. */

static gmlake_mock_census marked;
static uint64_t base, other, handle; /* base: 32 granules; other: 4; handle: two granules */

static void mark(void) { marked = census(); }

static gmlake_result unmap_never_mapped(void) { return mark(), unmap(base, G); }
static gmlake_result map_part_of_handle(void) { return mark(), map(base, G, handle); }
static gmlake_result map_more_than_handle(void) { return mark(), map(base, 3 * G, handle); }
static gmlake_result map_unaligned(void) { return mark(), map(base + MIB, 2 * G, handle); }
static gmlake_result map_past_end(void) { return mark(), map(other + 3 * G, 2 * G, handle); }
static gmlake_result map_unreserved(void) { return mark(), map(1 << 30, 2 * G, handle); }

static gmlake_result map_twice(void) {
  uint64_t second = create(2 * G);
  assert_ok(map(base, 2 * G, handle));
  return mark(), map(base, 2 * G, second);
}

static gmlake_result map_overlapping(void) {
  uint64_t second = create(2 * G);
  assert_ok(map(base, 2 * G, handle));
  return mark(), map(base + G, 2 * G, second);
}

static gmlake_result map_overlapping_below(void) {
  uint64_t second = create(2 * G);
  assert_ok(map(base + G, 2 * G, handle));
  return mark(), map(base, 2 * G, second);
}

static gmlake_result map_alias_beside(void) {
  assert_ok(map(base, 2 * G, handle));
  return map(base + 2 * G, 2 * G, handle);
}

static gmlake_result access_half(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), set_access(base, G);
}

static gmlake_result access_other_half(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), set_access(base + G, G);
}

static gmlake_result access_hole(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), set_access(base, 3 * G);
}

static gmlake_result access_unmapped(void) { return mark(), set_access(base, G); }

static gmlake_result access_twice(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(set_access(base, 2 * G));
  return set_access(base, 2 * G);
}

static gmlake_result access_bad_peer(void) {
  int peer = -1;
  assert_ok(map(base, 2 * G, handle));
  mark();
  return mock->set_access(mock->user, base, 2 * G, &peer, 1, &code);
}

static gmlake_result unmap_half(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), unmap(base, G);
}

static gmlake_result unmap_hole(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), unmap(base, 4 * G);
}

static gmlake_result unmap_hole_between(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(map(base + 3 * G, 2 * G, handle));
  return mark(), unmap(base, 5 * G);
}

static gmlake_result unmap_adjacent(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(map(base + 2 * G, 2 * G, handle));
  return unmap(base, 4 * G);
}

static gmlake_result unmap_straddling(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(map(base + 2 * G, 2 * G, handle));
  return mark(), unmap(base + G, 2 * G);
}

static gmlake_result unmap_twice(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(unmap(base, 2 * G));
  return mark(), unmap(base, 2 * G);
}

static gmlake_result unmap_nothing(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), unmap(base, 0);
}

static gmlake_result unmap_past_end(void) {
  assert_ok(map(other + 2 * G, 2 * G, handle));
  return mark(), unmap(other + 2 * G, 4 * G);
}

static gmlake_result free_while_mapped(void) {
  assert_ok(map(base, 2 * G, handle));
  return mark(), unreserve(base, 32 * G);
}

static gmlake_result release_while_mapped(void) {
  assert_ok(map(base, 2 * G, handle));
  return release(handle);
}

static gmlake_result map_released(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(release(handle));
  return mark(), map(base + 2 * G, 2 * G, handle);
}

static gmlake_result release_twice(void) {
  assert_ok(release(handle));
  return mark(), release(handle);
}

static gmlake_result release_twice_mapped(void) {
  assert_ok(map(base, 2 * G, handle));
  assert_ok(release(handle));
  return mark(), release(handle);
}

static gmlake_result release_stale(void) { /* its slot has a new owner */
  assert_ok(release(handle));
  create(2 * G);
  return mark(), release(handle);
}

static gmlake_result free_wrong_size(void) { return mark(), unreserve(base, 16 * G); }
static gmlake_result free_interior(void) { return mark(), unreserve(base + G, 31 * G); }

static gmlake_result free_twice(void) {
  assert_ok(unreserve(base, 32 * G));
  return mark(), unreserve(base, 32 * G);
}

static gmlake_result reserve_odd(void) { return mark(), reserve_at(G + 1, G, &other); }
static gmlake_result reserve_small(void) { return mark(), reserve_at(MIB, G, &other); }
static gmlake_result reserve_nothing(void) { return mark(), reserve_at(0, G, &other); }
static gmlake_result reserve_align_3(void) { return mark(), reserve_at(G, 3, &other); }
static gmlake_result reserve_align_0(void) { return mark(), reserve_at(G, 0, &other); }

static gmlake_result reserve_align_tib(void) {
  gmlake_result result = reserve_at(G, LARGE / 4, &other);
  assert_int_equal(other % (LARGE / 4), 0);
  return result;
}

static gmlake_result map_handle_0(void) { return mark(), map(base, 2 * G, 0); }
static gmlake_result map_bad_handle(void) { return mark(), map(base, 2 * G, handle + 77); }
static gmlake_result release_handle_0(void) { return mark(), release(0); }
static gmlake_result create_odd(void) { return mark(), create_handle(3 * MIB, &handle); }
static gmlake_result create_nothing(void) { return mark(), create_handle(0, &handle); }
static gmlake_result create_too_much(void) { return mark(), create_handle(64 * GIB, &handle); }

static gmlake_result create_type(void) {
  mark();
  return mock->create(mock->user, G, GMLAKE_HANDLE_WIN32, &handle, &code);
}

typedef struct misuse_row {
  const char *what;
  int driver; /* what an H200 with driver 580 answers; -1: not tried there */
  gmlake_result result;
  int code;
  gmlake_result (*run)(void);
} misuse_row;

#define REFUSED GMLAKE_ERROR_INVALID_ARGUMENT, 1

/* What the driver was asked about copies, contexts, forks and offsets has no call in the table. */
static const misuse_row misuse_rows[] = {
    {"unmap reserved, never mapped", 0, REFUSED, unmap_never_mapped},
    {"map with size < handle", 801, GMLAKE_ERROR_UNSUPPORTED, 801, map_part_of_handle},
    {"map with size > handle", -1, GMLAKE_ERROR_UNSUPPORTED, 801, map_more_than_handle},
    {"map at an odd address", 1, REFUSED, map_unaligned},
    {"map past the reservation's end", 0, REFUSED, map_past_end},
    {"map outside any reservation", 1, REFUSED, map_unreserved},
    {"double map of an address", 1, REFUSED, map_twice},
    {"overlapping map", 1, REFUSED, map_overlapping},
    {"overlapping map from below", 1, REFUSED, map_overlapping_below},
    {"one handle twice in a reservation", 0, GMLAKE_OK, 0, map_alias_beside},
    {"set_access on half a mapping", 1, REFUSED, access_half},
    {"set_access on the second half", 1, REFUSED, access_other_half},
    {"set_access on mapping and hole", 1, REFUSED, access_hole},
    {"set_access on unmapped", 1, REFUSED, access_unmapped},
    {"set_access twice", 0, GMLAKE_OK, 0, access_twice},
    {"set_access for peer -1", -1, REFUSED, access_bad_peer},
    {"unmap the first half", 1, REFUSED, unmap_half},
    {"unmap mapping and hole", 0, REFUSED, unmap_hole},
    {"unmap a hole between mappings", 0, REFUSED, unmap_hole_between},
    {"unmap two adjacent mappings at once", 0, GMLAKE_OK, 0, unmap_adjacent},
    {"unmap halves of two mappings", 1, REFUSED, unmap_straddling},
    {"unmap twice", 0, REFUSED, unmap_twice},
    {"unmap nothing", -1, REFUSED, unmap_nothing},
    {"unmap past the reservation's end", -1, REFUSED, unmap_past_end},
    {"free an address while mapped", 1, REFUSED, free_while_mapped},
    {"release while mapped", 0, GMLAKE_OK, 0, release_while_mapped},
    {"map a released handle", 0, REFUSED, map_released},
    {"release twice", 1, REFUSED, release_twice},
    {"release twice while mapped", -1, REFUSED, release_twice_mapped},
    {"release a value of the past", -1, REFUSED, release_stale},
    {"free an address with another size", 1, REFUSED, free_wrong_size},
    {"free an interior address", 1, REFUSED, free_interior},
    {"free an address twice", 1, REFUSED, free_twice},
    {"reserve 2 MiB + 1", 1, REFUSED, reserve_odd},
    {"reserve 1 MiB", 1, REFUSED, reserve_small},
    {"reserve 0", 1, REFUSED, reserve_nothing},
    {"reserve with alignment 3", 1, REFUSED, reserve_align_3},
    {"reserve with alignment 0", -1, REFUSED, reserve_align_0},
    {"reserve with alignment 1 TiB", 0, GMLAKE_OK, 0, reserve_align_tib},
    {"map handle 0", 1, REFUSED, map_handle_0},
    {"map an unknown handle", -1, REFUSED, map_bad_handle},
    {"release handle 0", -1, REFUSED, release_handle_0},
    {"create 3 MiB", 1, REFUSED, create_odd},
    {"create 0", 1, REFUSED, create_nothing},
    {"create beyond capacity", 2, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 2, create_too_much},
    {"create exportable as Win32 handle", -1, GMLAKE_ERROR_UNSUPPORTED, 801, create_type},
};

/* What the driver refuses the mock refuses, with the same number; and more. */
static void run_misuse(int bookkeeping_only) {
  size_t i;
  for (i = 0; i < sizeof(misuse_rows) / sizeof(misuse_rows[0]); i++) {
    const misuse_row *row = &misuse_rows[i];
    gmlake_result result;
    open_mock(0, bookkeeping_only);
    base = reserve(32 * G);
    other = reserve(4 * G);
    handle = create(2 * G);
    result = row->run();
    if (result != row->result || code != row->code || (row->driver > 0 && row->driver != code))
      fail_msg("%s: driver %d, mock %d with %d", row->what, row->driver, (int)result, code);
    if (result) assert_unchanged(marked, 1, 1);
    close_mock();
  }
}

static void test_misuse(void **state) {
  (void)state;
  run_misuse(0);
  run_misuse(1);
}

/* `call` is refused so, and changes nothing. */
#define refused(call, name)         \
  do {                              \
    mark();                         \
    assert_error(call, name);       \
    assert_true(code != 0);         \
    assert_unchanged(marked, 1, 1); \
  } while (0)

static void test_numbers_that_wrap(void **state) {
  (void)state;
  open_mock(0, 0);
  base = reserve(8 * G);
  handle = create(G);
  other = 77;
  refused(reserve_at(SIZE_MAX - G + 2, G, &other), INVALID_ARGUMENT);
  refused(reserve_at(SIZE_MAX - G + 1, G, &other), OUT_OF_DEVICE_MEMORY);
  refused(reserve_at(SIZE_MAX, G, &other), INVALID_ARGUMENT);
  refused(reserve_at(G, HALF, &other), OUT_OF_DEVICE_MEMORY);
  refused(reserve_at(G, SIZE_MAX, &other), INVALID_ARGUMENT);
  refused(create_handle(SIZE_MAX, &other), INVALID_ARGUMENT);
  refused(create_handle(HALF, &other), OUT_OF_DEVICE_MEMORY);
  refused(create_handle(16 * GIB, &other), OUT_OF_DEVICE_MEMORY);
  refused(mock->create(mock->user, G, ~0u, &other, &code), UNSUPPORTED);
  assert_int_equal(other, 77);
  refused(release(UINT64_MAX), INVALID_ARGUMENT);
  refused(release(handle + 1), INVALID_ARGUMENT);
  refused(unreserve(base, 9 * G), INVALID_ARGUMENT);
  refused(unreserve(base, 0), INVALID_ARGUMENT);
  refused(unreserve(base, SIZE_MAX), INVALID_ARGUMENT);
  refused(unreserve(UINT64_MAX, G), INVALID_ARGUMENT);
  refused(map(base, SIZE_MAX - G + 1, handle), INVALID_ARGUMENT);
  refused(map(UINT64_MAX - G + 1, G, handle), INVALID_ARGUMENT);
  refused(map(0, G, handle), INVALID_ARGUMENT);
  refused(unmap(base + G, SIZE_MAX - G + 1), INVALID_ARGUMENT);
  refused(set_access(base, 0), INVALID_ARGUMENT);
  assert_ok(map(base, G, handle)); /* what was there is there */
  assert_ok(set_access(base, G));
  assert_ok(unmap(base, G));
  close_mock();
}

/* Values of another kind, of the past, of nothing; codes as the driver's for bad handles. */
static void test_misuse_of_events(void **state) {
  gmlake_mock_census before;
  gmlake_stream stream, bad_streams[4];
  void *event, *gone, *fresh;
  int done = 5;
  size_t i;
  (void)state;
  open_mock(0, 1);
  event = recorded(NULL);
  gone = recorded(NULL);
  assert_ok(destroy_event(gone));
  stream = new_stream();
  gmlake_mock_stream_destroy(mock, stream);
  fresh = new_event();
  assert_ptr_not_equal(fresh, gone);
  before = census();
  assert_error(destroy_event(gone), INVALID_ARGUMENT);
  assert_int_equal(code, 400);
  assert_error(destroy_event(NULL), INVALID_ARGUMENT);
  assert_error(record(gone, NULL), INVALID_ARGUMENT);
  assert_int_equal(code, 400);
  assert_error(query(gone, &done), INVALID_ARGUMENT);
  assert_error(host_wait(gone), INVALID_ARGUMENT);
  assert_error(stream_wait(NULL, gone), INVALID_ARGUMENT);
  assert_int_equal(code, 400);
  assert_error(query(fresh, &done), INVALID_ARGUMENT);
  assert_int_equal(code, 1);
  assert_error(host_wait(fresh), INVALID_ARGUMENT);
  assert_error(stream_wait(NULL, fresh), INVALID_ARGUMENT);
  assert_int_equal(code, 1);
  bad_streams[0] = stream;
  bad_streams[1] = (gmlake_stream)(uintptr_t)2;
  bad_streams[2] = GMLAKE_STREAM_NONE;
  bad_streams[3] = (gmlake_stream)((uintptr_t)stream * 1000);
  for (i = 0; i < 4; i++) {
    assert_error(record(event, bad_streams[i]), INVALID_ARGUMENT);
    assert_int_equal(code, 400);
    assert_error(stream_wait(bad_streams[i], event), INVALID_ARGUMENT);
    assert_int_equal(code, 400);
    assert_error(gmlake_mock_capture_begin(mock, bad_streams[i]), INVALID_ARGUMENT);
    gmlake_mock_stream_destroy(mock, bad_streams[i]); /* ignored, like the next three */
    gmlake_mock_stream_hold(mock, bad_streams[i]);
    gmlake_mock_stream_finish(mock, bad_streams[i]);
    gmlake_mock_stream_set_lag(mock, bad_streams[i], 1);
  }
  assert_int_equal(done, 5);
  assert_unchanged(before, 17, 17);
  assert_true(is_done(event));
  close_mock();
}

/* ---- Real memory ---------------------------------------------------------------------------- */

static void test_aliases(void **state) {
  uint64_t home, window, a, b;
  (void)state;
  open_mock(0, 0);
  home = reserve(8 * G);
  window = reserve(8 * G);
  a = create(G);
  b = create(2 * G);
  assert_ok(map(home, G, a));
  assert_ok(map(home + G, 2 * G, b));
  assert_ok(map(window, 2 * G, b)); /* the other way round, and a twice in one reservation */
  assert_ok(map(window + 2 * G, G, a));
  assert_ok(map(window + 4 * G, G, a));
  assert_ok(set_access(home, 3 * G));
  assert_ok(set_access(window, 3 * G));
  assert_ok(set_access(window + 4 * G, G));
  memset(bytes_at(home), 0x11, G);
  memset(bytes_at(window), 0x22, 2 * G);
  assert_int_equal(bytes_at(window + 2 * G)[0], 0x11);
  assert_int_equal(bytes_at(window + 4 * G)[G - 1], 0x11);
  assert_int_equal(bytes_at(home)[G - 1], 0x11);
  assert_int_equal(bytes_at(home + G)[0], 0x22);
  assert_int_equal(bytes_at(home + 3 * G)[-1], 0x22);
  bytes_at(window + 4 * G)[5] = 0x33;
  assert_int_equal(bytes_at(home)[5], 0x33);
  assert_int_equal(bytes_at(window + 2 * G)[5], 0x33);

  assert_ok(unmap(home, 3 * G)); /* the bytes live on in the window */
  assert_ok(release(a));
  assert_int_equal(bytes_at(window + 2 * G)[5], 0x33);
  assert_int_equal(bytes_at(window + 2 * G)[6], 0x11);
  assert_ok(map(home + 4 * G, 2 * G, b));
  assert_ok(set_access(home + 4 * G, 2 * G));
  assert_int_equal(bytes_at(home + 4 * G)[G], 0x22);
  close_mock();
}

/* Pages of dead memory go back to the host; the capacity is not fragmented by what came before. */
static void test_host_memory_given_back(void **state) {
  uint64_t at, handles[4];
  struct stat file;
  size_t i;
  (void)state;
  open_mock(8 * G, 0);
  at = reserve(8 * G);
  for (i = 0; i < 4; i++) {
    handles[i] = create(2 * G);
    assert_ok(map(at + i * 2 * G, 2 * G, handles[i]));
  }
  assert_ok(set_access(at, 8 * G));
  memset(bytes_at(at), 1, 8 * G);
  assert_int_equal(fstat(((gmlk_mock *)mock->user)->file, &file), 0);
  assert_int_equal((size_t)file.st_blocks * 512, 8 * G);
  for (i = 0; i < 4; i += 2) {
    assert_ok(release(handles[i]));
    assert_int_equal(fstat(((gmlk_mock *)mock->user)->file, &file), 0);
    assert_int_equal((size_t)file.st_blocks * 512, 8 * G - i * G);
    assert_ok(unmap(at + i * 2 * G, 2 * G));
  }
  assert_int_equal(fstat(((gmlk_mock *)mock->user)->file, &file), 0);
  assert_int_equal((size_t)file.st_blocks * 512, 4 * G);
  assert_int_equal(bytes_at(at + 2 * G)[0], 1);
  handles[0] = create(4 * G);
  assert_ok(unmap(at + 2 * G, 2 * G));
  assert_ok(map(at, 4 * G, handles[0]));
  close_mock();
}

/* 0: the byte can be written; else the signal that the writer died of. */
static int signal_of_write(uint64_t address) {
  int status = 0;
  pid_t child = fork();
  assert_true(child >= 0);
  if (child == 0) {
    (void)signal(SIGSEGV, SIG_DFL); /* sanitizers have handlers of their own */
    *(volatile unsigned char *)bytes_at(address) = 1;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) ? WTERMSIG(status) : WEXITSTATUS(status);
}

static void test_no_access(void **state) {
  uint64_t at, first;
  (void)state;
  open_mock(0, 0);
  at = reserve(4 * G);
  first = create(G);
  assert_int_equal(signal_of_write(at), SIGSEGV);
  assert_ok(map(at, G, first));
  assert_ok(map(at + G, G, first));
  assert_int_equal(signal_of_write(at), SIGSEGV);
  assert_ok(set_access(at, G));
  assert_int_equal(signal_of_write(at), 0);
  assert_int_equal(signal_of_write(at + G - 1), 0);
  assert_int_equal(signal_of_write(at + G), SIGSEGV);
  assert_ok(unmap(at, G));
  assert_int_equal(signal_of_write(at), SIGSEGV);
  assert_ok(map(at, G, first)); /* access does not outlive the mapping */
  assert_int_equal(signal_of_write(at), SIGSEGV);
  assert_ok(unmap(at, 2 * G));
  assert_ok(unreserve(at, 4 * G));
  assert_int_equal(signal_of_write(at), SIGSEGV);
  close_mock();
}

/* Address space of this process. */
static size_t process_bytes(void) {
  unsigned long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  assert_non_null(file);
  assert_int_equal(fscanf(file, "%lu", &pages), 1);
  assert_int_equal(fclose(file), 0);
  return (size_t)pages * (size_t)sysconf(_SC_PAGESIZE);
}

static void test_large_reservations(void **state) {
  uint64_t at, large;
  size_t before;
  (void)state;
  open_mock(0, 0);
  before = process_bytes();
  assert_ok(reserve_at(GIB, 16 * GIB, &at)); /* what alignment passes over is given back */
  assert_true(process_bytes() < before + GIB + 64 * MIB);
  assert_ok(unreserve(at, GIB));
  assert_true(process_bytes() < before + 64 * MIB);
  large = reserve(LARGE);
  assert_ok(reserve_at(3 * G, 64 * G, &at));
  assert_int_equal(at % (64 * G), 0);
  handle = create(G);
  assert_ok(map(large + LARGE - G, G, handle));
  assert_ok(set_access(large + LARGE - G, G));
  bytes_at(large + LARGE)[-1] = 9;
  assert_ok(unmap(large + LARGE - G, G));
  assert_ok(unreserve(large, LARGE));
  assert_error(reserve_at((size_t)-1 - G + 1, G, &at), OUT_OF_DEVICE_MEMORY);
  assert_error(reserve_at(G, (size_t)1 << 63, &at), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(code, 2);
  close_mock();
}

/* ---- Counting ------------------------------------------------------------------------------- */

static void test_census(void **state) {
  uint64_t at, a, b;
  void *event;
  int mode = 2;
  (void)state;
  open_mock(0, 0);
  assert_counts(0, 0, 0, 0);
  at = reserve(8 * G);
  assert_counts(0, 0, 1, 0);
  assert_int_equal(census().reserved_address_bytes, 8 * G);
  a = create(G);
  b = create(3 * G);
  assert_counts(2, 0, 1, 4 * G);
  assert_ok(map(at, G, a));
  assert_ok(map(at + G, 3 * G, b));
  assert_ok(map(at + 4 * G, 3 * G, b));
  assert_counts(2, 3, 1, 4 * G);
  assert_ok(release(b)); /* counts as physical until its last unmap */
  assert_counts(1, 3, 1, 4 * G);
  assert_ok(unmap(at + G, 3 * G));
  assert_counts(1, 2, 1, 4 * G);
  assert_ok(unmap(at + 4 * G, 3 * G));
  assert_counts(1, 1, 1, G);
  assert_ok(unmap(at, G));
  assert_counts(1, 0, 1, G);
  assert_ok(release(a));
  assert_ok(unreserve(at, 8 * G));
  assert_counts(0, 0, 0, 0);
  assert_int_equal(census().reserved_address_bytes, 0);
  event = recorded(NULL);
  assert_int_equal(census().event_count, 1);
  assert_true(is_done(event));
  assert_ok(host_wait(event));
  assert_ok(stream_wait(NULL, event));
  assert_ok(destroy_event(event));
  assert_ok(exchange(&mode));
  (void)mock->clock_ns(mock->user);
  assert_int_equal(census().event_count, 0);
  assert_int_equal(census().call_count, 19);
  assert_int_equal(census().failed_count, 0);
  assert_int_equal(census().host_wait_count, 0);
  close_mock();
}

static void test_capacity(void **state) {
  uint64_t a, b, at;
  (void)state;
  open_mock(4 * G, 0);
  a = create(G);
  b = create(3 * G);
  assert_error(create_handle(G, &at), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(code, 2);
  at = reserve(4 * G);
  assert_ok(map(at, 3 * G, b));
  assert_ok(release(b));
  assert_error(create_handle(G, &b), OUT_OF_DEVICE_MEMORY); /* it still is mapped */
  assert_ok(unmap(at, 3 * G));
  assert_ok(create_handle(2 * G, &b));
  assert_ok(release(a));
  assert_ok(create_handle(2 * G, &a)); /* the free granules need not be neighbours */
  close_mock();
}

static void test_modelled_cost(void **state) {
  uint64_t at, a, b, expected = 0;
  size_t free_bytes, total_bytes;
  gmlake_device_properties properties;
  int peer = 3, mode = 0;
  void *event;
  (void)state;
  open_mock(0, 1);
#define EXPECT(ns) assert_int_equal(mock->clock_ns(mock->user), expected += (ns))
  at = reserve(4 * GIB), EXPECT(2000);
  a = create(G), EXPECT(7500);
  b = create(2 * GIB), EXPECT(7500 + 1536 * 7);
  assert_ok(map(at, G, a)), EXPECT(500);
  assert_ok(map(at + G, G, a)), EXPECT(500);
  assert_ok(map(at + 2 * G, 2 * GIB, b)), EXPECT(500);
  assert_ok(mock->set_access(mock->user, at, 2 * G, &peer, 1, &code)), EXPECT(2 * 20000);
  assert_ok(set_access(at, 2 * G + 2 * GIB)), EXPECT(3 * 20000);
  assert_ok(unmap(at + G, G + 2 * GIB)), EXPECT(2 * 13000);
  assert_ok(release(b)), EXPECT(8000 + 2 * 220000);
  assert_ok(release(a)), EXPECT(8000 + 220000 / 512);
  assert_ok(unmap(at, G)), EXPECT(13000);
  assert_error(unmap(at, G), INVALID_ARGUMENT), EXPECT(0);
  assert_ok(unreserve(at, 4 * GIB)), EXPECT(5000);
  event = new_event(), EXPECT(150);
  assert_ok(record(event, NULL)), EXPECT(150);
  (void)is_done(event), EXPECT(100);
  assert_ok(stream_wait(NULL, event)), EXPECT(100);
  assert_ok(host_wait(event)), EXPECT(1000);
  assert_ok(destroy_event(event)), EXPECT(100);
  assert_ok(mock->get_memory_info(mock->user, &free_bytes, &total_bytes, &code)), EXPECT(4000);
  assert_ok(mock->get_properties(mock->user, &properties, &code)), EXPECT(0);
  assert_ok(exchange(&mode)), EXPECT(50);
  gmlake_mock_set_clock(mock, 1000000), EXPECT(0); /* the stream clock is another */
#undef EXPECT
  assert_int_equal(census().modelled_ns, expected);
  close_mock();
}

/* The same calls, as they cost among others. */
static void test_modelled_cost_among_others(void **state) {
  gmlake_mock_desc desc;
  uint64_t at, a, former;
  size_t free_bytes, total_bytes;
  int mode = 0;
  void *event;
  (void)state;
  memset(&desc, 0, sizeof(desc));
  desc.bookkeeping_only = 1;
  desc.costs = GMLAKE_MOCK_COSTS_REPLAYED;
  assert_ok(gmlake_mock_create(&desc, &mock));
  at = reserve(4 * GIB);
  a = create(G);
  assert_ok(map(at, G, a));
  assert_ok(set_access(at, G));
  assert_int_equal(census().modelled_ns, 11000 + 9500 + 2600 + 21600);
  assert_ok(unmap(at, G));
  assert_ok(release(a));
  assert_ok(unreserve(at, 4 * GIB));
  assert_int_equal(census().modelled_ns, 44700 + 17200 + 10800 + 220000 / 512 + 73600);
  former = census().modelled_ns;
#define EXPECT(ns) assert_int_equal(census().modelled_ns, former += (ns))
  a = create(2 * GIB), EXPECT(9500 + 1536 * 7);
  assert_ok(release(a)), EXPECT(10800 + 2 * 220000);
  event = new_event(), EXPECT(580);
  assert_ok(record(event, NULL)), EXPECT(350);
  (void)is_done(event), EXPECT(325);
  assert_ok(stream_wait(NULL, event)), EXPECT(100);
  assert_ok(host_wait(event)), EXPECT(1600);
  assert_ok(destroy_event(event)), EXPECT(570);
  assert_ok(mock->get_memory_info(mock->user, &free_bytes, &total_bytes, &code)), EXPECT(4000);
  assert_ok(exchange(&mode)), EXPECT(200);
#undef EXPECT
  close_mock();
}

/* What eight programs paid for a chunk that is created and mapped, for a mapping, for a query. */
static void test_modelled_cost_in_programs(void **state) {
  gmlake_mock_desc desc;
  uint64_t at, a, former;
  void *event;
  (void)state;
  memset(&desc, 0, sizeof(desc));
  desc.bookkeeping_only = 1;
  desc.costs = GMLAKE_MOCK_COSTS_BUSY;
  assert_ok(gmlake_mock_create(&desc, &mock));
  at = reserve(4 * GIB);
  event = new_event();
  assert_ok(record(event, NULL));
#define EXPECT(ns) assert_int_equal(census().modelled_ns - former, ns)
  former = census().modelled_ns;
  a = create(G);
  assert_ok(map(at, G, a));
  assert_ok(set_access(at, G));
  EXPECT(58600);
  former = census().modelled_ns;
  assert_ok(map(at + G, G, a));
  assert_ok(set_access(at + G, G));
  EXPECT(48500);
  former = census().modelled_ns;
  (void)is_done(event);
  EXPECT(1500);
#undef EXPECT
  close_mock();
}

/* What was a stream's serves the next one. */
static void test_streams_leave_nothing(void **state) {
  size_t count;
  int i;
  (void)state;
  open_mock(0, 1);
  gmlake_mock_stream_destroy(mock, new_stream());
  count = ((gmlk_mock *)mock->user)->queue_count;
  for (i = 0; i < 1000; i++) gmlake_mock_stream_destroy(mock, new_stream());
  assert_int_equal(((gmlk_mock *)mock->user)->queue_count, count);
  close_mock();
}

static void test_costs_are_of_three_kinds(void **state) {
  gmlake_mock_desc desc;
  gmlake_backend *none = NULL;
  (void)state;
  memset(&desc, 0, sizeof(desc));
  desc.costs = (gmlake_mock_costs)3;
  assert_error(gmlake_mock_create(&desc, &none), INVALID_ARGUMENT);
  assert_null(none);
}

/* ---- Injected failures ---------------------------------------------------------------------- */

typedef struct target { /* what the entries of the table are called with */
  uint64_t at, handle, doomed;
  void *event, *doomed_event;
} target;

#define ENTRY_COUNT 16

/* Calls one entry of the table so that it succeeds if nothing is injected. */
static gmlake_result call_entry(target *t, int entry) {
  gmlake_device_properties properties;
  size_t free_bytes, total_bytes;
  uint64_t out;
  void *event;
  int done, mode = 0;
  switch (entry) {
  case 0:
    return mock->get_properties(mock->user, &properties, &code);
  case 1:
    return mock->get_memory_info(mock->user, &free_bytes, &total_bytes, &code);
  case 2:
    return reserve_at(G, G, &out);
  case 3:
    return create_handle(G, &out);
  case 4:
    return map(t->at, G, t->handle);
  case 5:
    return set_access(t->at, G);
  case 6:
    return unmap(t->at, G);
  case 7:
    return unreserve(t->at, 2 * G);
  case 8:
    return release(t->doomed);
  case 9:
    return mock->event_create(mock->user, &event, &code);
  case 10:
    return record(t->event, NULL);
  case 11:
    return query(t->event, &done);
  case 12:
    return host_wait(t->event);
  case 13:
    return stream_wait(NULL, t->event);
  case 14:
    return destroy_event(t->doomed_event);
  default:
    return exchange(&mode);
  }
}

static void open_target(target *t) {
  open_mock(0, 1);
  t->at = reserve(2 * G);
  t->handle = create(G);
  t->doomed = create(G);
  t->event = recorded(NULL);
  t->doomed_event = new_event();
}

/* In the order of the entries each finds what it needs. */
static void test_fail_once(void **state) {
  gmlake_mock_census before;
  target t;
  int entry;
  (void)state;
  open_target(&t);
  for (entry = 0; entry < ENTRY_COUNT; entry++) {
    before = census();
    gmlake_mock_fail_at(mock, before.call_count + 2, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 0);
    (void)is_done(t.event); /* the call before the chosen one passes */
    before = census();
    assert_error(call_entry(&t, entry), OUT_OF_DEVICE_MEMORY);
    assert_int_equal(code, 2);
    assert_unchanged(before, 1, 1);
    assert_ok(call_entry(&t, entry));
    assert_int_equal(code, 0);
  }
  close_mock();
}

static void test_fail_persistently(void **state) {
  gmlake_mock_census before;
  target t;
  int entry, i;
  (void)state;
  open_target(&t);
  for (entry = 0; entry < ENTRY_COUNT; entry++) {
    before = census();
    gmlake_mock_fail_at(mock, before.call_count + 2, GMLAKE_ERROR_DEVICE_LOST, 1);
    (void)is_done(t.event);
    before = census();
    for (i = 0; i < ENTRY_COUNT; i++) assert_error(call_entry(&t, i), DEVICE_LOST);
    assert_int_equal(code, 719);
    assert_unchanged(before, ENTRY_COUNT, ENTRY_COUNT);
    gmlake_mock_fail_at(mock, 0, GMLAKE_ERROR_DEVICE_LOST, 1);
    assert_ok(call_entry(&t, entry));
  }
  close_mock();
}

static void test_injected_codes(void **state) {
  static const int pairs[][2] = {{GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 2},
                                 {GMLAKE_ERROR_INVALID_ARGUMENT, 1},
                                 {GMLAKE_ERROR_UNSUPPORTED, 801},
                                 {GMLAKE_ERROR_DEVICE_LOST, 719},
                                 {GMLAKE_ERROR_SHUTTING_DOWN, 4},
                                 {GMLAKE_ERROR_CAPTURING, 900},
                                 {GMLAKE_ERROR_DRIVER, 999}};
  size_t i;
  (void)state;
  open_mock(0, 1);
  for (i = 0; i < sizeof(pairs) / sizeof(pairs[0]); i++) {
    gmlake_mock_fail_at(mock, census().call_count + 1, (gmlake_result)pairs[i][0], 0);
    assert_int_equal(release(0), pairs[i][0]);
    assert_int_equal(code, pairs[i][1]);
  }
  gmlake_mock_fail_at(mock, 1, GMLAKE_ERROR_DRIVER, 0); /* that call is long past */
  create(G);
  close_mock();
}

/* Every allocation of host memory fails once: nothing changes, and the same call then succeeds. */
static void test_no_host_memory(void **state) {
  gmlake_mock_desc desc;
  gmlake_stream stream;
  target t;
  long nth;
  int entry, failures = 0;
  (void)state;
  memset(&desc, 0, sizeof(desc));
  hook_live = 0;
  for (nth = 1, mock = NULL; !mock; nth++) {
    hook_fail_in = nth;
    if (gmlake_mock_create(&desc, &mock)) assert_int_equal(hook_live, 0);
  }
  assert_true(nth > 3);
  close_mock();
  open_target(&t);
  gmlake_mock_stream_hold(mock, NULL);
  for (entry = 0; entry < 200; entry++) { /* past the first size of every array */
    static const int calls[] = {2, 3, 9, 10, 13};
    int call = calls[entry % 5];
    gmlake_mock_census before = census();
    for (nth = 1;; nth++) {
      gmlake_result result;
      hook_fail_in = nth;
      result = call_entry(&t, call);
      hook_fail_in = 0;
      if (!result) break;
      assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      assert_unchanged(before, (uint64_t)nth, (uint64_t)nth);
      failures++;
    }
    hook_fail_in = 1;
    if (gmlake_mock_stream_create(mock, &stream)) failures++;
    hook_fail_in = 0;
  }
  hook_fail_in = 1;
  assert_error(call_entry(&t, 4), OUT_OF_HOST_MEMORY); /* the list of mappings */
  hook_fail_in = 1;
  assert_ok(call_entry(&t, 0)); /* needs none */
  hook_fail_in = 0;
  assert_ok(call_entry(&t, 4));
  assert_true(failures > 20);
  close_mock();
}

static void test_odd_ranges(void **state) {
  uint64_t at, handle;
  (void)state;
  open_mock(8 * G, 1);
  at = reserve(4 * G);
  handle = create(G);
  assert_ok(map(at, G, handle));
  assert_error(mock->set_access(mock->user, at, G + G / 2, NULL, 0, &code), INVALID_ARGUMENT);
  assert_error(mock->set_access(mock->user, at, G, NULL, 1, &code), INVALID_ARGUMENT);
  assert_error(mock->unmap(mock->user, at, G + G / 2, &code), INVALID_ARGUMENT);
  assert_error(mock->unmap(mock->user, at + G / 2, G / 2, &code), INVALID_ARGUMENT);
  assert_counts(1, 1, 1, G);
  assert_ok(mock->unmap(mock->user, at, G, &code));
  close_mock();
}

/* The host has no file for the memory: the process may open no more, or none of that size. */
static void test_no_file(void **state) {
  static const int limits[] = {RLIMIT_NOFILE, RLIMIT_FSIZE};
  size_t i;
  (void)state;
  for (i = 0; i < 2; i++) {
    struct rlimit limit, none;
    gmlake_mock_desc desc;
    gmlake_result result;
    memset(&desc, 0, sizeof(desc));
    hook_live = hook_fail_in = 0;
    assert_int_equal(getrlimit(limits[i], &limit), 0);
    none = limit;
    none.rlim_cur = 0;
    assert_int_equal(setrlimit(limits[i], &none), 0);
    result = gmlake_mock_create(&desc, &mock);
    assert_int_equal(setrlimit(limits[i], &limit), 0);
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    assert_int_equal(hook_live, 0);
    assert_ok(gmlake_mock_create(&desc, &mock));
    close_mock();
  }
}

/* ---- Streams -------------------------------------------------------------------------------- */

/* The system refuses what the mock asks of it: an error, and nothing has changed. */
static void test_system_that_refuses(void **state) {
  gmlake_mock_desc small;
  gmlake_mock_census before;
  gmlake_backend *none = NULL;
  uint64_t address = 0, handle = 0;
  int code = 0;
  (void)state;
  memset(&small, 0, sizeof(small));
  refused = 1; /* the file's size */
  assert_error(gmlake_mock_create(&small, &none), OUT_OF_HOST_MEMORY);
  open_mock(8 * G, 0);
  refused = 1;
  assert_error(mock->reserve(mock->user, G, G, &address, &code), OUT_OF_DEVICE_MEMORY);
  assert_error(mock->reserve(mock->user, G, (size_t)1 << 63, &address, &code),
               OUT_OF_DEVICE_MEMORY);
  assert_ok(mock->reserve(mock->user, G, G, &address, &code));
  assert_ok(mock->create(mock->user, G, 0, &handle, &code));
  before = census();
  refused = 1;
  assert_error(mock->map(mock->user, address, G, handle, &code), OUT_OF_HOST_MEMORY);
  assert_unchanged(before, 1, 1);
  assert_ok(mock->map(mock->user, address, G, handle, &code));
  before = census();
  refused = 1;
  assert_error(mock->set_access(mock->user, address, G, NULL, 0, &code), OUT_OF_HOST_MEMORY);
  assert_unchanged(before, 1, 1);
  refused = 1;
  assert_error(mock->unmap(mock->user, address, G, &code), OUT_OF_HOST_MEMORY);
  assert_unchanged(before, 2, 2);
  assert_ok(mock->unmap(mock->user, address, G, &code));
  before = census();
  refused = 1;
  assert_error(mock->unreserve(mock->user, address, G, &code), OUT_OF_HOST_MEMORY);
  assert_unchanged(before, 1, 1);
  assert_ok(mock->unreserve(mock->user, address, G, &code));
  assert_ok(mock->release(mock->user, handle, &code));
  assert_int_equal(refused, 0);
  close_mock();
}

/* Tables end before their sizes overflow, before their numbers do, and before the file does. */
static void test_tables_end(void **state) {
  size_t capacity = SIZE_MAX / 4;
  gmlk_mock_queue queue;
  gmlk_mock_table table;
  gmlk_mock_work work;
  uint64_t handle = 0;
  char item = 0;
  int code = 0;
  (void)state;
  assert_false(gmlk_mock_grow(&item, capacity, &capacity, 16));
  assert_int_equal(capacity, SIZE_MAX / 4);
  memset(&table, 0, sizeof(table));
  table.items = &item;
  table.item_bytes = sizeof(gmlk_mock_slot);
  table.count = GMLK_MOCK_SLOT_MASK;
  table.capacity = table.count + 1;
  assert_null(gmlk_mock_take(&table));
  assert_int_equal(table.count, GMLK_MOCK_SLOT_MASK);
  memset(&queue, 0, sizeof(queue));
  memset(&work, 0, sizeof(work));
  queue.capacity = queue.last = (size_t)1 << (sizeof(size_t) * 8 - 2);
  assert_false(gmlk_mock_push(&queue, &work));
  assert_int_equal(queue.last, queue.capacity);
  open_mock(8 * G, 1);
  ((gmlk_mock *)mock->user)->file_end = GMLK_MOCK_FILE_MAX;
  assert_error(mock->create(mock->user, G, 0, &handle, &code), OUT_OF_DEVICE_MEMORY);
  close_mock();
}

static void test_no_host_memory_for_a_mode(void **state) {
  int mode = 2, code = 0;
  (void)state;
  open_mock(0, 1);
  hook_fail_in = 1;
  assert_error(mock->capture_exchange(mock->user, &mode, &code), OUT_OF_HOST_MEMORY);
  assert_int_equal(mode, 2);
  assert_ok(mock->capture_exchange(mock->user, &mode, &code));
  assert_int_equal(mode, 0);
  close_mock();
}

static void test_no_host_memory_for_a_stream(void **state) {
  gmlake_stream stream;
  unsigned failed = 0;
  int i;
  (void)state;
  open_mock(0, 1);
  for (i = 0; i < 100; i++) {
    gmlake_result result;
    hook_fail_in = 1;
    stream = (gmlake_stream)&stream;
    result = gmlake_mock_stream_create(mock, &stream);
    hook_fail_in = 0;
    if (!result) continue; /* nothing had to grow */
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    failed++;
    assert_ok(gmlake_mock_stream_create(mock, &stream));
  }
  assert_true(failed > 0);
  close_mock();
}

static void test_no_host_memory_for_a_wait(void **state) {
  void *event;
  gmlake_stream held, waiter;
  int i, failures = 0;
  (void)state;
  open_mock(0, 1);
  held = new_stream();
  waiter = new_stream();
  gmlake_mock_stream_hold(mock, held);
  event = recorded(held);
  for (i = 0; i < 20; i++) { /* past the first size of the queue, and the second */
    gmlake_mock_census before = census();
    gmlake_result result;
    hook_fail_in = 1;
    result = mock->stream_wait(mock->user, waiter, event, &code);
    hook_fail_in = 0;
    if (!result) continue;
    assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    assert_unchanged(before, 1, 1);
    failures++;
    assert_ok(mock->stream_wait(mock->user, waiter, event, &code));
  }
  assert_int_equal(failures, 3);
  event = recorded(waiter);
  assert_false(is_done(event));
  gmlake_mock_stream_finish(mock, held);
  assert_true(is_done(event));
  close_mock();
}

static void test_no_host_memory_for_a_launch(void **state) {
  gmlake_desc desc;
  gmlake *lake;
  gmlake_pool *pool;
  gmlake_stream s[2];
  uint64_t graph;
  unsigned failures = 0;
  (void)state;
  open_mock(0, 1);
  memset(&desc, 0, sizeof(desc));
  desc.backend = mock;
  assert_ok(gmlake_create(&desc, &lake));
  assert_ok(gmlake_pool_create(lake, NULL, &pool));
  s[0] = new_stream();
  s[1] = new_stream();
  for (graph = 0; graph < 40; graph++) { /* each is behind the former one, and the first itself */
    const gmlake_stream on = s[graph == 39];
    gmlake_result result;
    long fail;
    if (graph == 39) gmlake_mock_stream_finish(mock, s[0]);
    for (fail = 1; fail <= 3; fail++) {
      hook_fail_in = fail;
      result = gmlake_mock_launch(mock, pool, graph, on);
      if (!result) break;
      hook_fail_in = 0;
      assert_int_equal(result, GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
      failures++;
    }
    hook_fail_in = 0;
    assert_ok(result);
  }
  assert_ok(gmlake_mock_launch(mock, pool, 39, s[0]));
  assert_int_equal(failures, 5); /* queues of 8, 16, 32 and 64, and of 8 */
  gmlake_mock_stream_finish(mock, s[0]);
  gmlake_mock_stream_finish(mock, s[1]);
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

static void test_wait_for_what_the_legacy_stream_waits_for(void **state) {
  gmlake_stream held;
  void *first, *second;
  (void)state;
  open_mock(0, 1);
  held = new_stream();
  gmlake_mock_stream_hold(mock, held);
  gmlake_mock_stream_hold(mock, NULL);
  first = recorded(held);
  assert_ok(stream_wait(NULL, first));
  second = recorded(NULL);
  assert_ok(mock->event_wait(mock->user, second, &code));
  assert_true(is_done(second));
  assert_true(is_done(first));
  close_mock();
}

static void test_wait_for_any(void **state) {
  void *events[3];
  gmlake_stream s[3];
  unsigned place = 9, i;
  (void)state;
  open_mock(0, 1);
  for (i = 0; i < 3; i++) s[i] = new_stream();
  gmlake_mock_stream_hold(mock, s[0]);
  gmlake_mock_stream_set_lag(mock, s[1], 2000000000);
  gmlake_mock_stream_set_lag(mock, s[2], 1000000000);
  for (i = 0; i < 3; i++) events[i] = recorded(s[i]);
  assert_ok(mock->event_wait_any(mock->user, events, 3, &place, &code));
  assert_int_equal(place, 2); /* the soonest */
  assert_true(is_done(events[2]) && !is_done(events[1]) && !is_done(events[0]));
  assert_ok(mock->event_wait_any(mock->user, events, 3, &place, &code));
  assert_int_equal(place, 2); /* it is complete */
  assert_false(is_done(events[1]));
  assert_ok(mock->event_wait_any(mock->user, events, 2, &place, &code));
  assert_int_equal(place, 1);
  assert_ok(mock->event_wait_any(mock->user, events, 1, &place, &code));
  assert_int_equal(place, 0);
  assert_true(is_done(events[0]));
  events[1] = new_event();
  assert_error(mock->event_wait_any(mock->user, events, 2, &place, &code), INVALID_ARGUMENT);
  assert_error(mock->event_wait_any(mock->user, events, 0, &place, &code), INVALID_ARGUMENT);
  close_mock();
}

static void test_capture_of_no_stream(void **state) {
  gmlake_stream gone;
  (void)state;
  open_mock(0, 1);
  gone = new_stream();
  assert_error(gmlake_mock_capture_end(mock, gone), INVALID_ARGUMENT); /* none is under way */
  gmlake_mock_stream_destroy(mock, gone);
  assert_error(gmlake_mock_capture_end(mock, gone), INVALID_ARGUMENT);
  assert_error(gmlake_mock_capture_end(mock, &gone), INVALID_ARGUMENT);
  close_mock();
}

static void test_hold_and_finish(void **state) {
  void *early, *held, *later, *mixed;
  gmlake_stream s;
  (void)state;
  open_mock(0, 1);
  s = new_stream();
  early = recorded(s);
  assert_true(is_done(early));
  gmlake_mock_stream_hold(mock, s);
  assert_true(is_done(early));
  held = recorded(s);
  assert_false(is_done(held));
  gmlake_mock_set_clock(mock, UINT64_MAX); /* time alone does not finish held work */
  assert_false(is_done(held));
  assert_true(is_done(recorded(NULL))); /* other streams are their own */
  gmlake_mock_stream_finish(mock, s);
  assert_true(is_done(held));
  later = recorded(s);
  assert_true(is_done(later));
  gmlake_mock_stream_hold(mock, NULL);
  mixed = recorded((gmlake_stream)(uintptr_t)1); /* 1 is the legacy stream too */
  assert_false(is_done(mixed));
  assert_ok(record(mixed, s)); /* the new record is forgotten by the old stream */
  assert_true(is_done(mixed));
  close_mock();
}

static void test_lag_and_clock(void **state) {
  void *a, *b, *c, *never;
  gmlake_stream s;
  (void)state;
  open_mock(0, 1);
  s = new_stream();
  gmlake_mock_set_clock(mock, 1000);
  gmlake_mock_stream_set_lag(mock, s, 100);
  a = recorded(s);
  gmlake_mock_set_clock(mock, 1099);
  assert_false(is_done(a));
  gmlake_mock_stream_set_lag(mock, s, 0);
  b = recorded(s); /* behind a, though due at once */
  assert_false(is_done(b));
  gmlake_mock_set_clock(mock, 5); /* the clock never goes back */
  gmlake_mock_stream_set_lag(mock, NULL, 1);
  c = recorded(NULL);
  gmlake_mock_set_clock(mock, 1099);
  assert_false(is_done(c));
  gmlake_mock_set_clock(mock, 1100);
  assert_true(is_done(c));
  gmlake_mock_stream_set_lag(mock, NULL, UINT64_MAX - 5); /* the sum does not overflow */
  c = recorded(NULL);
  assert_false(is_done(c));
  assert_true(is_done(a));
  assert_true(is_done(b));
  gmlake_mock_stream_set_lag(mock, s, UINT64_MAX);
  never = recorded(s);
  gmlake_mock_set_clock(mock, UINT64_MAX);
  assert_true(is_done(c));
  assert_false(is_done(never));
  gmlake_mock_stream_finish(mock, s);
  assert_true(is_done(never));
  close_mock();
}

static void test_waits_between_streams(void **state) {
  gmlake_stream s[3];
  void *first, *second, *third, *before;
  size_t i;
  (void)state;
  open_mock(0, 1);
  for (i = 0; i < 3; i++) s[i] = new_stream();
  gmlake_mock_stream_hold(mock, s[0]);
  first = recorded(s[0]);
  before = recorded(s[1]);
  assert_ok(stream_wait(s[1], first));
  second = recorded(s[1]);
  assert_ok(stream_wait(s[2], second));
  third = recorded(s[2]);
  assert_true(is_done(before));
  assert_false(is_done(second));
  assert_false(is_done(third));
  gmlake_mock_stream_finish(mock, s[2]); /* its own work is done, not what it waits for */
  assert_false(is_done(third));
  assert_ok(record(first, s[2])); /* the wait meant the former record */
  gmlake_mock_stream_finish(mock, s[0]);
  assert_true(is_done(second));
  assert_true(is_done(third));
  assert_true(is_done(first));
  close_mock();
}

static void test_host_wait(void **state) {
  gmlake_stream s[3];
  void *first, *later, *lagged, *second, *third, *behind;
  size_t i;
  (void)state;
  open_mock(0, 1);
  for (i = 0; i < 3; i++) s[i] = new_stream();
  gmlake_mock_stream_hold(mock, s[0]);
  gmlake_mock_stream_set_lag(mock, s[1], UINT64_MAX);
  first = recorded(s[0]);
  later = recorded(s[0]);
  lagged = recorded(s[1]);
  assert_ok(stream_wait(s[1], first));
  second = recorded(s[1]);
  assert_ok(stream_wait(s[2], second));
  third = recorded(s[2]);
  assert_ok(stream_wait(s[2], later));
  behind = recorded(s[2]);
  assert_ok(host_wait(third)); /* all that it waits for, and no more */
  assert_int_equal(census().host_wait_count, 1);
  assert_true(is_done(third));
  assert_true(is_done(second));
  assert_true(is_done(lagged));
  assert_true(is_done(first));
  assert_false(is_done(later));
  assert_false(is_done(behind));
  assert_false(is_done(recorded(s[0]))); /* s[0] is held still */
  assert_false(is_done(recorded(s[1])));
  assert_ok(host_wait(third)); /* complete: not counted */
  assert_int_equal(census().host_wait_count, 1);
  gmlake_mock_stream_finish(mock, s[0]);
  assert_true(is_done(behind));
  close_mock();
}

/* Two streams that wait for each other's last event thousands of times, from a held beginning. */
static void test_long_chain(void **state) {
  gmlake_stream s[2];
  void *events[2], *first;
  size_t i;
  int round;
  (void)state;
  open_mock(0, 1);
  for (round = 0; round < 2; round++) {
    s[0] = new_stream();
    s[1] = new_stream();
    gmlake_mock_stream_hold(mock, s[0]);
    first = recorded(s[0]);
    events[0] = recorded(s[0]);
    events[1] = new_event();
    gmlake_mock_stream_hold(mock, s[1]);
    for (i = 1; i < 5000; i++) {
      assert_ok(stream_wait(s[i % 2], events[(i - 1) % 2]));
      assert_ok(record(events[i % 2], s[i % 2]));
    }
    assert_false(is_done(events[1]));
    if (round == 0) {
      assert_ok(host_wait(events[1]));
    } else {
      gmlake_mock_stream_finish(mock, s[1]);
      assert_false(is_done(events[0]));
      gmlake_mock_stream_finish(mock, s[0]);
    }
    assert_true(is_done(first));
    assert_true(is_done(events[0]));
    assert_true(is_done(events[1]));
  }
  close_mock();
}

static void test_stream_values(void **state) {
  gmlake_stream a, b, c;
  void *pending, *lagged, *waiting;
  int round;
  (void)state;
  open_mock(0, 1);
  a = new_stream();
  b = new_stream();
  assert_ptr_not_equal(a, b);
  gmlake_mock_stream_hold(mock, a);
  pending = recorded(a);
  gmlake_mock_stream_set_lag(mock, b, 50);
  lagged = recorded(b);
  gmlake_mock_stream_destroy(mock, b);
  gmlake_mock_stream_destroy(mock, a);
  gmlake_mock_stream_destroy(mock, NULL); /* the legacy stream stays */
  c = new_stream(); /* last in, first out; and idle, whatever the former one had pending */
  assert_ptr_equal(c, a);
  assert_ptr_equal(new_stream(), b);
  assert_true(is_done(recorded(c)));
  assert_false(is_done(pending));
  assert_false(is_done(lagged));
  gmlake_mock_stream_finish(mock, c); /* does not reach the former owner's work */
  assert_false(is_done(pending));
  gmlake_mock_set_clock(mock, 50);
  assert_true(is_done(lagged));
  assert_ok(stream_wait(c, pending));
  waiting = recorded(c);
  assert_false(is_done(waiting));
  assert_ok(host_wait(waiting));
  assert_true(is_done(pending));
  assert_true(is_done(recorded(NULL)));
  gmlake_mock_stream_hold(mock, c); /* with nothing pending: later ones do not inherit it */
  gmlake_mock_stream_set_lag(mock, c, 50);
  gmlake_mock_stream_destroy(mock, c);
  for (round = 0; round < 4; round++) assert_true(is_done(recorded(new_stream())));
  close_mock();
}

/* ---- Captures ------------------------------------------------------------------------------- */

/* VMM calls, memory info and new events are legal in every mode. */
static void call_all_legal(void) {
  size_t free_bytes, total_bytes;
  uint64_t at = reserve(G), mapped = create(G);
  void *event = new_event();
  assert_ok(map(at, G, mapped));
  assert_ok(set_access(at, G));
  assert_ok(unmap(at, G));
  assert_ok(release(mapped));
  assert_ok(unreserve(at, G));
  assert_ok(destroy_event(event));
  assert_ok(mock->get_memory_info(mock->user, &free_bytes, &total_bytes, &code));
}

typedef struct visitor { /* a thread that queries in a mode of its own */
  void *event;
  int mode;
  gmlake_result result;
} visitor;

static void *visit(void *user) {
  visitor *v = (visitor *)user;
  int mode = v->mode, done, unused;
  (void)mock->capture_exchange(mock->user, &mode, &unused);
  v->result = mock->event_query(mock->user, v->event, &done, &unused);
  (void)mock->capture_exchange(mock->user, &mode, &unused);
  return NULL;
}

static gmlake_result query_from_thread(void *event, int mode) {
  visitor v;
  pthread_t thread;
  v.event = event;
  v.mode = mode;
  assert_int_equal(pthread_create(&thread, NULL, visit, &v), 0);
  assert_int_equal(pthread_join(thread, NULL), 0);
  return v.result;
}

static int is_capturing(gmlake_stream stream) {
  int is = 7;
  assert_ok(mock->is_capturing(mock->user, stream, &is, &code));
  return is;
}

/* Questions that the driver answers, or the CUDA backend refuses, without spoiling a capture. */
static void test_questions_about_captures(void **state) {
  gmlake_stream s, t, gone;
  uint64_t id = 7;
  int is = 7;
  (void)state;
  open_mock(0, 0);
  s = new_stream();
  t = new_stream();
  gone = new_stream();
  gmlake_mock_stream_destroy(mock, gone);
  assert_int_equal(is_capturing(s) + is_capturing(NULL), 0);
  assert_ok(gmlake_mock_capture_begin(mock, s));
  assert_int_equal(is_capturing(s), 1);
  assert_int_equal(is_capturing(NULL), 1); /* it may not be used */
  assert_int_equal(is_capturing(t), 0);
  assert_error(mock->is_capturing(mock->user, gone, &is, &code), INVALID_ARGUMENT);
  assert_int_equal(is, 7);
  assert_error(mock->stream_id(mock->user, s, &id, &code), CAPTURING);
  assert_int_equal(id, 7);
  assert_ok(mock->stream_id(mock->user, t, &id, &code));
  assert_ok(gmlake_mock_capture_end(mock, s));
  assert_int_equal(is_capturing(s) + is_capturing(NULL), 0);
  assert_ok(gmlake_mock_capture_begin(mock, s));
  assert_error(mock->device_wait(mock->user, &code), CAPTURING); /* which does spoil it */
  assert_int_equal(is_capturing(s), 1);                          /* until it is ended */
  assert_error(gmlake_mock_capture_end(mock, s), CAPTURING);
  assert_int_equal(is_capturing(s), 0);
  close_mock();
}

static void test_capture_legal(void **state) {
  gmlake_stream s, free_stream;
  void *event;
  int done;
  (void)state;
  open_mock(0, 0);
  s = new_stream();
  free_stream = new_stream();
  event = recorded(free_stream);
  assert_error(gmlake_mock_capture_end(mock, s), INVALID_ARGUMENT);
  assert_error(gmlake_mock_capture_begin(mock, NULL), INVALID_ARGUMENT);
  assert_ok(gmlake_mock_capture_begin(mock, s));
  assert_error(gmlake_mock_capture_begin(mock, s), INVALID_ARGUMENT);
  call_all_legal();
  assert_ok(record(event, free_stream));
  assert_ok(stream_wait(free_stream, event));
  assert_int_equal(exchanged(2), 0);
  assert_ok(query(event, &done));
  assert_ok(host_wait(event));
  call_all_legal();
  assert_int_equal(exchanged(0), 2);
  assert_ok(query_from_thread(event, 1));
  assert_ok(query_from_thread(event, 2));
  assert_ok(gmlake_mock_capture_end(mock, s));
  assert_true(is_done(event));
  assert_error(gmlake_mock_capture_end(mock, s), INVALID_ARGUMENT);
  close_mock();
}

/* Calls that fail during a capture of s and spoil it, with the numbers an H200 gave. */
static gmlake_result call_spoiling(int which, gmlake_stream s, void *event) {
  int done;
  switch (which) {
  case 0:
    return query(event, &done);
  case 1:
    return host_wait(event);
  case 2:
    return query_from_thread(event, 0);
  case 3:
    (void)exchanged(1);
    return query(event, &done);
  case 4:
    return record(event, s);
  case 5:
    return stream_wait(s, event);
  case 6:
    return record(event, NULL);
  default:
    return stream_wait(NULL, event);
  }
}

static void test_capture_spoilt(void **state) {
  static const int codes[] = {900, 900, 0, 900, 900, 905, 906, 906};
  gmlake_mock_census before;
  gmlake_stream s, t;
  void *event;
  int which, relaxed;
  (void)state;
  open_mock(0, 1);
  s = new_stream();
  t = new_stream();
  event = recorded(t);
  for (which = 0; which < 8; which++) {
    for (relaxed = 0; relaxed <= (which > 3); relaxed++) { /* queueing fails in every mode */
      (void)exchanged(relaxed * 2);
      assert_ok(gmlake_mock_capture_begin(mock, s));
      before = census();
      code = 0;
      assert_error(call_spoiling(which, s, event), CAPTURING);
      assert_int_equal(code, codes[which]);
      if (which != 2 && which != 3) assert_unchanged(before, 1, 1);
      if (which > 3) {
        assert_error(record(event, s), CAPTURING);
        assert_int_equal(code, 901);
      }
      assert_error(gmlake_mock_capture_end(mock, s), CAPTURING);
      (void)exchanged(0);
      assert_true(is_done(event));
      assert_ok(record(event, s));
      assert_ok(gmlake_mock_capture_begin(mock, s)); /* the next one begins clean */
      assert_ok(gmlake_mock_capture_end(mock, s));
    }
  }
  assert_ok(gmlake_mock_capture_begin(mock, s)); /* a destroyed stream takes its capture along */
  gmlake_mock_stream_destroy(mock, s);
  assert_true(is_done(event));
  close_mock();
}

/* Two captures at once: queueing on one spoils that one alone, on the legacy stream both. */
static void test_two_captures(void **state) {
  gmlake_stream s, t;
  void *event;
  (void)state;
  open_mock(0, 1);
  s = new_stream();
  t = new_stream();
  event = recorded(NULL);
  assert_ok(gmlake_mock_capture_begin(mock, s));
  assert_ok(gmlake_mock_capture_begin(mock, t));
  assert_error(record(event, s), CAPTURING);
  assert_error(gmlake_mock_capture_end(mock, s), CAPTURING);
  assert_ok(gmlake_mock_capture_begin(mock, s));
  assert_ok(gmlake_mock_capture_end(mock, t));
  assert_ok(gmlake_mock_capture_begin(mock, t));
  assert_error(record(event, NULL), CAPTURING);
  assert_error(gmlake_mock_capture_end(mock, s), CAPTURING);
  assert_error(gmlake_mock_capture_end(mock, t), CAPTURING);
  assert_ok(record(event, NULL));
  close_mock();
}

static void test_capture_exchange(void **state) {
  gmlake_mock_census before;
  int bad;
  (void)state;
  open_mock(0, 1);
  assert_int_equal(exchanged(1), 0);
  assert_int_equal(exchanged(2), 1);
  assert_int_equal(exchanged(2), 2);
  for (bad = -1; bad <= 3; bad += 4) {
    int mode = bad;
    before = census();
    assert_error(exchange(&mode), INVALID_ARGUMENT);
    assert_int_equal(mode, bad);
    assert_unchanged(before, 1, 1);
  }
  assert_int_equal(exchanged(0), 2);
  assert_int_equal(exchanged(0), 0);
  close_mock();
}

/* ---- Bookkeeping only ----------------------------------------------------------------------- */

static void test_made_up_addresses(void **state) {
  uint64_t large, rest, small, out;
  (void)state;
  open_mock(140 * GIB, 1);
  large = reserve(64 * TIB);
  rest = reserve(36 * TIB - G);
  small = reserve(G);
  assert_error(reserve_at(G, G, &out), OUT_OF_DEVICE_MEMORY); /* 100 TiB in all */
  assert_int_equal(code, 2);
  assert_true(rest + 36 * TIB - G <= large || rest >= large + 64 * TIB);
  assert_true(small < large || small >= large + 64 * TIB);
  assert_ok(unreserve(large, 64 * TIB));
  assert_error(reserve_at(120 * TIB, G, &out), OUT_OF_DEVICE_MEMORY);
  assert_ok(reserve_at(64 * TIB, G, &out)); /* addresses serve again */
  assert_int_equal(out, large);
  assert_ok(unreserve(small, G));
  assert_ok(reserve_at(G, TIB, &out));
  assert_int_equal(out % TIB, 0);
  assert_ok(unreserve(out, G));
  assert_error(reserve_at(G, (size_t)1 << 62, &out), OUT_OF_DEVICE_MEMORY);
  handle = create(128 * GIB);
  assert_ok(map(large + 60 * TIB, 128 * GIB, handle));
  assert_ok(set_access(large + 60 * TIB, 128 * GIB));
  assert_ok(unmap(large + 60 * TIB, 128 * GIB));
  close_mock();
}

/* ---- A naive model -------------------------------------------------------------------------- */

#define MODEL_RESERVATIONS 6
#define MODEL_GRANULES 24
#define MODEL_HANDLES 24

typedef struct model_handle {
  uint64_t value;
  size_t granules, mappings;
  unsigned char word; /* what its first byte was set to */
  int alive, released;
} model_handle;

typedef struct model_reservation {
  uint64_t address; /* 0: none */
  size_t granules;
  int cells[MODEL_GRANULES]; /* 1 + handle, -1 - handle for what follows the first; 0: nothing */
  int accessible[MODEL_GRANULES];
} model_reservation;

typedef struct model {
  model_reservation reservations[MODEL_RESERVATIONS];
  model_handle handles[MODEL_HANDLES];
  size_t capacity; /* in granules */
  uint32_t seed;
  int real;
} model;

static size_t draw(model *m, size_t below) {
  m->seed = m->seed * 1664525u + 1013904223u;
  return (m->seed >> 8) % below;
}

static size_t model_physical(const model *m) {
  size_t i, sum = 0;
  for (i = 0; i < MODEL_HANDLES; i++) sum += m->handles[i].alive ? m->handles[i].granules : 0;
  return sum;
}

static void model_reap(model_handle *h) {
  if (h->released && !h->mappings) h->alive = 0;
}

/* Mappings that fill the granules exactly, 0: not whole ones. */
static size_t model_whole(const model *m, const model_reservation *r, size_t first, size_t count) {
  size_t at = first, mappings = 0;
  while (at < first + count) {
    if (at >= r->granules || r->cells[at] <= 0) return 0;
    at += m->handles[r->cells[at] - 1].granules;
    mappings++;
  }
  return at == first + count ? mappings : 0;
}

static void model_reserve(model *m, model_reservation *r) {
  size_t i;
  if (!r->address) {
    r->granules = 1 + draw(m, MODEL_GRANULES);
    assert_ok(reserve_at(r->granules * G, G << draw(m, 4), &r->address));
    return;
  }
  for (i = 0; i < r->granules && !r->cells[i]; i++) continue;
  if (i < r->granules) {
    assert_error(unreserve(r->address, r->granules * G), INVALID_ARGUMENT);
    return;
  }
  assert_ok(unreserve(r->address, r->granules * G));
  r->address = 0;
}

static void model_create(model *m, model_handle *h) {
  size_t granules = 1 + draw(m, 5), free_granules = m->capacity - model_physical(m);
  if (h->alive && h->released) {
    assert_error(release(h->value), INVALID_ARGUMENT);
  } else if (h->alive) {
    assert_ok(release(h->value));
    h->released = 1;
    model_reap(h);
  } else if (granules > free_granules) {
    assert_error(create_handle(granules * G, &h->value), OUT_OF_DEVICE_MEMORY);
  } else {
    h->value = create(granules * G);
    h->granules = granules;
    h->alive = 1;
    h->released = 0;
    h->word = 0;
  }
}

static void model_map(model *m, model_reservation *r, size_t index) {
  model_handle *h = &m->handles[index];
  size_t first = draw(m, r->address ? r->granules : 1), i; /* beyond may be another one */
  gmlake_result wanted = GMLAKE_OK;
  if (!h->alive || h->released || !r->address || first + h->granules > r->granules)
    wanted = GMLAKE_ERROR_INVALID_ARGUMENT;
  for (i = first; !wanted && i < first + h->granules; i++)
    if (r->cells[i]) wanted = GMLAKE_ERROR_INVALID_ARGUMENT;
  assert_int_equal(map(r->address + first * G, (h->granules ? h->granules : 1) * G, h->value),
                   wanted);
  if (wanted) return;
  h->mappings++;
  for (i = 0; i < h->granules; i++) {
    r->cells[first + i] = i ? -1 - (int)index : 1 + (int)index;
    r->accessible[first + i] = 0;
  }
}

static void model_change(model *m, model_reservation *r, int unmaps) {
  size_t first, count = 1 + draw(m, 8), mappings, i;
  if (!r->address) return;
  first = draw(m, r->granules);
  mappings = model_whole(m, r, first, count);
  assert_int_equal(unmaps ? unmap(r->address + first * G, count * G)
                          : set_access(r->address + first * G, count * G),
                   mappings ? GMLAKE_OK : GMLAKE_ERROR_INVALID_ARGUMENT);
  if (!mappings) return;
  for (i = first; i < first + count; i++) {
    if (!unmaps) {
      r->accessible[i] = 1;
      continue;
    }
    if (r->cells[i] > 0) {
      m->handles[r->cells[i] - 1].mappings--;
      model_reap(&m->handles[r->cells[i] - 1]);
    }
    r->cells[i] = 0;
  }
}

/* Every accessible mapping shows its handle's word; a random one writes a new word. */
static void model_check_bytes(model *m, model_reservation *r) {
  size_t i;
  for (i = 0; m->real && r->address && i < r->granules; i++) {
    if (r->cells[i] <= 0 || !r->accessible[i]) continue;
    assert_int_equal(*bytes_at(r->address + i * G), m->handles[r->cells[i] - 1].word);
    if (draw(m, 4) == 0)
      m->handles[r->cells[i] - 1].word = *bytes_at(r->address + i * G) =
          (unsigned char)draw(m, 256);
  }
}

static void model_check_counts(const model *m) {
  size_t i, handles = 0, mappings = 0, reservations = 0;
  for (i = 0; i < MODEL_HANDLES; i++) {
    handles += m->handles[i].alive && !m->handles[i].released;
    mappings += m->handles[i].mappings;
  }
  for (i = 0; i < MODEL_RESERVATIONS; i++) reservations += m->reservations[i].address != 0;
  assert_counts(handles, mappings, reservations, model_physical(m) * G);
}

static void run_model(uint32_t seed, int bookkeeping_only) {
  model m;
  int step;
  memset(&m, 0, sizeof(m));
  m.capacity = 40;
  m.seed = seed;
  m.real = !bookkeeping_only;
  open_mock(m.capacity * G, bookkeeping_only);
  for (step = 0; step < 20000; step++) {
    model_reservation *r = &m.reservations[draw(&m, MODEL_RESERVATIONS)];
    switch (draw(&m, 12)) {
    case 0:
      model_reserve(&m, r);
      break;
    case 1:
    case 2:
      model_create(&m, &m.handles[draw(&m, MODEL_HANDLES)]);
      break;
    case 3:
    case 4:
    case 5:
    case 6:
      model_map(&m, r, draw(&m, MODEL_HANDLES));
      break;
    case 7:
    case 8:
      model_change(&m, r, 1);
      break;
    default:
      model_change(&m, r, 0);
    }
    model_check_bytes(&m, r);
    model_check_counts(&m);
  }
  close_mock();
}

static void test_model(void **state) {
  uint32_t seed;
  (void)state;
  for (seed = 1; seed <= 3; seed++) {
    run_model(seed, 0);
    run_model(seed, 1);
  }
}

/* ---- Threads -------------------------------------------------------------------------------- */

typedef struct hammer {
  gmlake_stream mine, shared;
  int failures;
} hammer;

#define HAMMER_STEPS 3000

/* Counts failures instead of asserting: cmocka's assertions belong to the main thread. */
static void *swing(void *user) {
  hammer *h = (hammer *)user;
  int unused, i;
  for (i = 0; i < HAMMER_STEPS; i++) {
    uint64_t at = 0, mapped = 0;
    void *event = NULL;
    int done = 0, mode = 2;
    h->failures += mock->reserve(mock->user, 4 * G, G, &at, &unused) != GMLAKE_OK;
    h->failures += mock->create(mock->user, G, 0, &mapped, &unused) != GMLAKE_OK;
    h->failures += mock->map(mock->user, at + G, G, mapped, &unused) != GMLAKE_OK;
    h->failures += mock->set_access(mock->user, at + G, G, NULL, 0, &unused) != GMLAKE_OK;
    h->failures += mock->release(mock->user, mapped, &unused) != GMLAKE_OK;
    *bytes_at(at + G) = (unsigned char)i;
    h->failures += mock->capture_exchange(mock->user, &mode, &unused) != GMLAKE_OK || mode != 0;
    h->failures += mock->event_create(mock->user, &event, &unused) != GMLAKE_OK;
    gmlake_mock_stream_hold(mock, h->mine);
    h->failures += mock->event_record(mock->user, event, h->mine, &unused) != GMLAKE_OK;
    h->failures += mock->stream_wait(mock->user, h->shared, event, &unused) != GMLAKE_OK;
    h->failures += mock->event_record(mock->user, event, h->shared, &unused) != GMLAKE_OK;
    if (i % 2) gmlake_mock_stream_finish(mock, h->mine);
    h->failures += mock->event_wait(mock->user, event, &unused) != GMLAKE_OK;
    h->failures += mock->event_query(mock->user, event, &done, &unused) != GMLAKE_OK || !done;
    h->failures += mock->event_destroy(mock->user, event, &unused) != GMLAKE_OK;
    h->failures += mock->capture_exchange(mock->user, &mode, &unused) != GMLAKE_OK || mode != 2;
    h->failures += *bytes_at(at + G) != (unsigned char)i;
    h->failures += mock->unmap(mock->user, at + G, G, &unused) != GMLAKE_OK;
    h->failures += mock->unreserve(mock->user, at, 4 * G, &unused) != GMLAKE_OK;
  }
  return NULL;
}

static void test_threads(void **state) {
  pthread_t threads[2];
  hammer hammers[2];
  gmlake_stream shared;
  size_t i;
  (void)state;
  open_mock(0, 0);
  shared = new_stream();
  for (i = 0; i < 2; i++) {
    hammers[i].mine = new_stream();
    hammers[i].shared = shared;
    hammers[i].failures = 0;
    assert_int_equal(pthread_create(&threads[i], NULL, swing, &hammers[i]), 0);
  }
  for (i = 0; i < 2; i++) assert_int_equal(pthread_join(threads[i], NULL), 0);
  for (i = 0; i < 2; i++) assert_int_equal(hammers[i].failures, 0);
  assert_counts(0, 0, 0, 0);
  assert_int_equal(census().event_count, 0);
  assert_int_equal(census().call_count, 2 * HAMMER_STEPS * 16);
  close_mock();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(test_description),
      cmocka_unit_test(test_properties_are_complete),
      cmocka_unit_test(test_file_zero),
      cmocka_unit_test(test_misuse),
      cmocka_unit_test(test_numbers_that_wrap),
      cmocka_unit_test(test_misuse_of_events),
      cmocka_unit_test(test_aliases),
      cmocka_unit_test(test_host_memory_given_back),
      cmocka_unit_test(test_no_access),
      cmocka_unit_test(test_large_reservations),
      cmocka_unit_test(test_census),
      cmocka_unit_test(test_capacity),
      cmocka_unit_test(test_modelled_cost),
      cmocka_unit_test(test_modelled_cost_among_others),
      cmocka_unit_test(test_modelled_cost_in_programs),
      cmocka_unit_test(test_costs_are_of_three_kinds),
      cmocka_unit_test(test_streams_leave_nothing),
      cmocka_unit_test(test_fail_once),
      cmocka_unit_test(test_fail_persistently),
      cmocka_unit_test(test_injected_codes),
      cmocka_unit_test(test_no_host_memory),
      cmocka_unit_test(test_odd_ranges),
      cmocka_unit_test(test_no_file),
      cmocka_unit_test(test_system_that_refuses),
      cmocka_unit_test(test_tables_end),
      cmocka_unit_test(test_no_host_memory_for_a_mode),
      cmocka_unit_test(test_no_host_memory_for_a_stream),
      cmocka_unit_test(test_no_host_memory_for_a_wait),
      cmocka_unit_test(test_no_host_memory_for_a_launch),
      cmocka_unit_test(test_wait_for_what_the_legacy_stream_waits_for),
      cmocka_unit_test(test_wait_for_any),
      cmocka_unit_test(test_capture_of_no_stream),
      cmocka_unit_test(test_hold_and_finish),
      cmocka_unit_test(test_lag_and_clock),
      cmocka_unit_test(test_waits_between_streams),
      cmocka_unit_test(test_host_wait),
      cmocka_unit_test(test_long_chain),
      cmocka_unit_test(test_stream_values),
      cmocka_unit_test(test_questions_about_captures),
      cmocka_unit_test(test_capture_legal),
      cmocka_unit_test(test_capture_spoilt),
      cmocka_unit_test(test_two_captures),
      cmocka_unit_test(test_capture_exchange),
      cmocka_unit_test(test_made_up_addresses),
      cmocka_unit_test(test_model),
      cmocka_unit_test(test_threads),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
