/* What the programs of play.c leave out on systems that the other tests do not run on: two threads
   that share a lake by the system's locks, gmlake_bfc.h, what is refused without memory behind
   addresses. It needs the C library alone. Prints a line and exits with 0, or says what does not
   hold. */
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

/* What programs do not ask of the mock. */
static void walk_mock(void) {
  gmlake_mock_census census;
  gmlake_pool *pool = NULL;
  void *block = take(5 * MIB, first);
  HOLDS(gmlake_mock_has_access(mock, block, 5 * MIB, 0));
  OK(gmlake_free(lake, block, first));
  gmlake_mock_get_census(mock, &census);
  gmlake_mock_fail_at(mock, census.call_count + 1, GMLAKE_ERROR_DRIVER, 1);
  HOLDS(gmlake_alloc(lake, 40 * MIB, first, &block) == GMLAKE_ERROR_DRIVER && !block);
  gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0);
  OK(gmlake_pool_create(lake, NULL, &pool));
  OK(gmlake_mock_launch(mock, pool, 1, first));
  gmlake_mock_stream_finish(mock, first);
  OK(gmlake_pool_destroy(lake, pool));
  HOLDS(gmlake_version() == GMLAKE_VERSION);
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
  walk_sharing();
  walk_mock();
  walk_threads();
  close_lake();
  walk_bfc();
  puts("every function works");
  return 0;
}
