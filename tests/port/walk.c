/* Walks through every public function of gmlake.h, of the mock and of gmlake_bfc.h, and lets two
   threads share a lake. It needs the C library alone, and no memory behind addresses: for systems
   that the other tests do not run on. Prints a line and exits with 0, or says what does not hold.
   */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#if defined(_WIN32)
#include <windows.h>
#else
#include <pthread.h>
#endif

#define MIB ((size_t)1 << 20)
#define NONE GMLAKE_STREAM_NONE
#define HOLDS(condition)                                           \
  do {                                                             \
    if (!(condition)) {                                            \
      printf("line %d: %s does not hold\n", __LINE__, #condition); \
      exit(1);                                                     \
    }                                                              \
  } while (0)
#define OK(call) HOLDS((call) == GMLAKE_OK)

static gmlake_backend *mock;
static gmlake *lake;
static gmlake_stream first, second;

static void open_lake(void) {
  gmlake_mock_desc device;
  gmlake_desc desc;
  memset(&device, 0, sizeof(device));
  memset(&desc, 0, sizeof(desc));
  device.capacity_bytes = 64 * MIB;
  device.bookkeeping_only = 1;
  OK(gmlake_mock_create(&device, &mock));
  OK(gmlake_mock_stream_create(mock, &first));
  OK(gmlake_mock_stream_create(mock, &second));
  desc.backend = mock;
  desc.chunk_bytes = 2 * MIB;
  OK(gmlake_create(&desc, &lake));
  OK(gmlake_get_desc(lake, &desc));
  HOLDS(desc.chunk_bytes == 2 * MIB && desc.backend == mock);
}

static void close_lake(void) {
  gmlake_mock_census census;
  OK(gmlake_check(lake));
  OK(gmlake_destroy(lake));
  gmlake_mock_get_census(mock, &census);
  HOLDS(census.handle_count == 0 && census.mapping_count == 0 && census.reservation_count == 0);
  HOLDS(census.event_count == 0 && census.call_count > 0);
  gmlake_mock_stream_destroy(mock, second);
  gmlake_mock_stream_destroy(mock, first);
  gmlake_mock_destroy(mock);
}

static void *take(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  OK(gmlake_alloc(lake, bytes, stream, &ptr));
  HOLDS(ptr && (uintptr_t)ptr % 512 == 0);
  return ptr;
}

/* Three chunks; of what the outer two leave a window is stitched. */
static void walk_blocks(void) {
  gmlake_allocation_info info;
  gmlake_piece pieces[4];
  gmlake_chunk_info chunks[4];
  gmlake_query_info forecast;
  gmlake_alloc_desc wanted;
  gmlake_error_info error;
  void *part[3], *window = NULL;
  size_t i, count = 0;
  for (i = 0; i < 3; i++) part[i] = take(2 * MIB, first);
  OK(gmlake_free(lake, part[0], first));
  OK(gmlake_free(lake, part[2], first));
  HOLDS(gmlake_free(lake, part[2], first) == GMLAKE_ERROR_DOUBLE_FREE);
  HOLDS(gmlake_free(lake, &count, first) == GMLAKE_ERROR_UNKNOWN_POINTER);
  OK(gmlake_get_last_error(lake, &error));
  HOLDS(error.result == GMLAKE_ERROR_UNKNOWN_POINTER && error.text[0]);
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = 4 * MIB;
  wanted.flags = GMLAKE_NO_GROW;
  wanted.label = "a window";
  OK(gmlake_query(lake, &wanted, first, &forecast));
  OK(gmlake_alloc_with(lake, &wanted, first, &window));
  OK(gmlake_get_allocation(lake, window, &info));
  HOLDS(info.piece_count == 2 && info.requested_bytes == 4 * MIB &&
        !strcmp(info.label, "a window"));
  OK(gmlake_get_pieces(lake, window, pieces, 4, &count));
  HOLDS(count == 2);
  OK(gmlake_get_chunks(lake, window, chunks, 4, &count));
  HOLDS(count == 2 && chunks[0].handle != chunks[1].handle);
  OK(gmlake_find(lake, (char *)window + MIB, &info));
  HOLDS(info.ptr == window);
  HOLDS(gmlake_mock_has_access(mock, window, 4 * MIB, 0));
  OK(gmlake_record_stream(lake, window, second));
  gmlake_mock_stream_hold(mock, second);
  OK(gmlake_free(lake, window, first));
  gmlake_mock_stream_finish(mock, second);
  OK(gmlake_free(lake, part[1], first));
  OK(gmlake_mark_stream(lake, second, GMLAKE_STREAM_COMMUNICATION));
  OK(gmlake_forget_stream(lake, second));
}

/* A second stream takes what the first one's work has left. */
static void walk_streams(void) {
  void *block;
  gmlake_mock_set_clock(mock, 1000);
  gmlake_mock_stream_set_lag(mock, first, 500);
  block = take(5 * MIB, first);
  OK(gmlake_free(lake, block, first));
  block = take(MIB, second);
  gmlake_mock_set_clock(mock, 2000);
  OK(gmlake_free(lake, block, second));
  gmlake_mock_stream_set_lag(mock, first, 0);
}

static void walk_pools(void) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool = NULL;
  gmlake_stats stats;
  void *block = NULL, *captured;
  size_t released = 0;
  OK(gmlake_pool_create(lake, NULL, &pool));
  memset(&wanted, 0, sizeof(wanted));
  memset(&stats, 0, sizeof(stats));
  wanted.bytes = 3 * MIB;
  wanted.pool = pool;
  OK(gmlake_alloc_with(lake, &wanted, first, &block));
  OK(gmlake_capture_begin(lake, first, pool));
  OK(gmlake_mock_capture_begin(mock, first));
  captured = take(MIB, first);
  OK(gmlake_free(lake, captured, first));
  OK(gmlake_mock_capture_end(mock, first));
  OK(gmlake_capture_end(lake, first));
  OK(gmlake_pool_get_stats(lake, pool, &stats));
  HOLDS(stats.live_count == 1);
  OK(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_KEEP, &released));
  HOLDS(released > 0);
  HOLDS(gmlake_alloc_with(lake, &wanted, first, &captured) == GMLAKE_ERROR_ASLEEP);
  OK(gmlake_pool_wake(lake, pool));
  OK(gmlake_pool_lend(lake, pool, first));
  wanted.bytes = MIB;
  wanted.pool = NULL;
  wanted.flags = GMLAKE_TRANSIENT;
  OK(gmlake_alloc_with(lake, &wanted, second, &captured));
  HOLDS(gmlake_pool_recall(lake, pool, first) == GMLAKE_ERROR_BUSY);
  HOLDS(gmlake_mock_launch(mock, pool, 1, first) == GMLAKE_ERROR_BUSY);
  OK(gmlake_free(lake, captured, second));
  OK(gmlake_pool_recall(lake, pool, first));
  OK(gmlake_mock_launch(mock, pool, 1, first));
  gmlake_mock_stream_finish(mock, first);
  OK(gmlake_free(lake, block, first));
  OK(gmlake_pool_destroy(lake, pool));
}

static void walk_buffers(void) {
  gmlake_buffer *buffer = NULL;
  gmlake_buffer_desc wanted;
  gmlake_buffer_info info;
  uint32_t chunk = GMLAKE_ANY_CHUNK;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = 16 * MIB;
  OK(gmlake_buffer_create(lake, &wanted, &buffer));
  OK(gmlake_buffer_resize(lake, buffer, 4 * MIB, first));
  OK(gmlake_buffer_get_info(lake, buffer, &info));
  OK(gmlake_buffer_commit(lake, buffer, 4 * MIB, info.chunk_bytes, first));
  OK(gmlake_buffer_discard(lake, buffer, 0, info.chunk_bytes, first));
  OK(gmlake_buffer_commit_chunks(lake, buffer, 0, info.chunk_bytes, &chunk, first));
  OK(gmlake_buffer_destroy(lake, buffer, first));
}

/* Without memory behind addresses there is nothing to share. */
static void walk_sharing(void) {
  gmlake_handle handle;
  size_t count = 0;
  void *block = take(2 * MIB, first), *other = NULL;
  HOLDS(gmlake_export(lake, block, GMLAKE_HANDLE_POSIX_FD, &handle, 1, &count) ==
        GMLAKE_ERROR_INVALID_ARGUMENT);
  memset(&handle, 0, sizeof(handle));
  handle.type = GMLAKE_HANDLE_POSIX_FD;
  handle.bytes = 2 * MIB;
  HOLDS(gmlake_import(lake, &handle, 1, &other) == GMLAKE_ERROR_UNSUPPORTED && !other);
  OK(gmlake_free(lake, block, first));
}

static void walk_figures(void) {
  gmlake_map_entry entries[16];
  gmlake_budget budget;
  gmlake_stats stats;
  size_t count = 0;
  memset(&stats, 0, sizeof(stats));
  memset(&budget, 0, sizeof(budget));
  OK(gmlake_get_map(lake, entries, 16, &count));
  HOLDS(count > 0);
  OK(gmlake_get_budget(lake, &budget));
  OK(gmlake_get_stats(lake, &stats));
  HOLDS(stats.stitch_count > 0 && stats.allocation_count == stats.free_count);
  OK(gmlake_reset_peaks(lake));
  OK(gmlake_trim(lake, 0, &count));
  HOLDS(gmlake_version() == GMLAKE_VERSION);
  HOLDS(!strcmp(gmlake_result_name(GMLAKE_ERROR_BUSY), "GMLAKE_ERROR_BUSY"));
}

/* Every call of an allocation fails once; it is refused or served, and the lake is whole. */
static void walk_faults(void) {
  gmlake_mock_census census;
  uint64_t calls = 0, before;
  void *block;
  unsigned round = 1;
  do {
    OK(gmlake_trim(lake, 0, NULL));
    gmlake_mock_get_census(mock, &census);
    before = census.call_count;
    gmlake_mock_fail_at(mock, before + round, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 0);
    block = NULL;
    (void)gmlake_alloc(lake, 5 * MIB, first, &block);
    gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
    gmlake_mock_get_census(mock, &census);
    calls = census.call_count - before;
    OK(gmlake_check(lake));
    OK(gmlake_free(lake, block, first));
  } while (round++ < calls);
  HOLDS(calls > 3);
}

/* ---- Two threads ---- */

static void work(size_t seed, gmlake_stream stream) {
  void *blocks[16] = {NULL};
  size_t i;
  for (i = 0; i < 4000; i++) {
    seed = seed * 1103515245u + 12345u;
    OK(gmlake_free(lake, blocks[i % 16], stream));
    blocks[i % 16] = take(512 + seed % (MIB / 2), stream);
  }
  for (i = 0; i < 16; i++) OK(gmlake_free(lake, blocks[i], stream));
}

#if defined(_WIN32)
static DWORD WINAPI other_thread(void *unused) {
  (void)unused;
  work(2, second);
  return 0;
}
static void walk_threads(void) {
  HANDLE thread = CreateThread(NULL, 0, other_thread, NULL, 0, NULL);
  HOLDS(thread != NULL);
  work(1, first);
  HOLDS(WaitForSingleObject(thread, INFINITE) == WAIT_OBJECT_0);
  CloseHandle(thread);
}
#else
static void *other_thread(void *unused) {
  work(2, second);
  return unused;
}
static void walk_threads(void) {
  pthread_t thread;
  HOLDS(pthread_create(&thread, NULL, other_thread, NULL) == 0);
  work(1, first);
  HOLDS(pthread_join(thread, NULL) == 0);
}
#endif

/* ---- gmlake_bfc.h ---- */

static void *segment_alloc(void *user, size_t bytes) {
  (void)user;
  return malloc(bytes);
}
static void segment_free(void *user, void *segment, size_t bytes) {
  (void)user;
  (void)bytes;
  free(segment);
}

static void walk_bfc(void) {
  gmlake_bfc_desc desc;
  gmlake_bfc *bfc = NULL;
  void *block = NULL;
  memset(&desc, 0, sizeof(desc));
  desc.segment_alloc = segment_alloc;
  desc.segment_free = segment_free;
  HOLDS(gmlake_bfc_create(&desc, &bfc) == GMLAKE_BFC_OK);
  HOLDS(gmlake_bfc_alloc(bfc, 3 * MIB, NULL, &block) == GMLAKE_BFC_OK);
  HOLDS(gmlake_bfc_free(bfc, block) == GMLAKE_BFC_OK);
  HOLDS(gmlake_bfc_check(bfc) == GMLAKE_BFC_OK);
  gmlake_bfc_destroy(bfc);
}

int main(void) {
  open_lake();
  walk_blocks();
  walk_streams();
  walk_pools();
  walk_buffers();
  walk_sharing();
  OK(gmlake_reserve(lake, NULL, (size_t)8 << 20, first));
  walk_figures();
  walk_faults();
  walk_threads();
  close_lake();
  walk_bfc();
  puts("every function works");
  return 0;
}
