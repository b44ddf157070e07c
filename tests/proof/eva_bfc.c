/* gmlake_bfc.h, all of it: STEPS allocations, frees and trims by two streams, in any order, of
   small, middling and large sizes. The device may begin and cease to refuse, host memory may run
   out at any allocation. After each call gmlake_bfc_check is content, live blocks lie apart and
   are where they were, and the mutex is free. In the end all that was taken of the device and of
   the host is given back. */
#include <stddef.h>

#include "choose.h"

static int locks(int *mutex, int was) {
  must(*mutex == was);
  *mutex = !was;
  return 0;
}

#define GMLAKE_BFC_MUTEX_TYPE int
#define GMLAKE_BFC_MUTEX_INIT(m) (*(m) = 0)
#define GMLAKE_BFC_MUTEX_DESTROY(m) must(*(m) == 0)
#define GMLAKE_BFC_MUTEX_LOCK(m) (void)locks(m, 0)
#define GMLAKE_BFC_MUTEX_UNLOCK(m) (void)locks(m, 1)
#define GMLAKE_BFC_IMPLEMENTATION
#include "gmlake_bfc.h"

#if !defined(STEPS)
#define STEPS 3
#endif
#define SIZES 4u
#define LIVE 4u

static const size_t sizes[SIZES] = {1, 2, 5, 7};
static gmlake_bfc *bfc;
static void *live[LIVE];
static size_t live_bytes[LIVE];
static int device_refuses, host_left = -1, taken, host_taken;
static uintptr_t device_next = 4096;

static void *segment_alloc(void *user, size_t bytes) {
  must(user == &taken && bfc->mutex == 1);
  if (device_refuses) return NULL;
  taken++;
  device_next += 64;
  must(bytes <= 64);
  return (void *)device_next;
}

static void segment_free(void *user, void *segment, size_t bytes) {
  must(user == &taken && bytes && (uintptr_t)segment % 64 == 0);
  taken--;
}

static void *host_alloc(void *user, size_t bytes) {
  (void)user;
  if (host_left == 0) return NULL;
  host_left -= host_left > 0;
  host_taken++;
  return malloc(bytes);
}

static void host_free(void *user, void *ptr) {
  (void)user;
  host_taken -= ptr != NULL;
  free(ptr);
}

static gmlake_bfc_result create(void) {
  gmlake_bfc_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.segment_alloc = segment_alloc;
  desc.segment_free = segment_free;
  desc.user = &taken;
  desc.round_bytes = 1;
  desc.small_bytes_max = 2;
  desc.small_segment_bytes = 4;
  desc.large_segment_bytes = 8;
  desc.large_request_min = 6;
  desc.large_round_bytes = 2;
  desc.small_remainder_min = 1;
  desc.large_remainder_min = 1;
  desc.limit_bytes = 24;
  desc.malloc_fn = host_alloc;
  desc.free_fn = host_free;
  return gmlake_bfc_create(&desc, &bfc);
}

static void allocate(size_t bytes, void *stream) {
  unsigned i, at = 0;
  void *ptr;
  const gmlake_bfc_result result = gmlake_bfc_alloc(bfc, bytes, stream, &ptr);
  must((result == GMLAKE_BFC_OK) == (ptr != NULL));
  must(ptr || result == GMLAKE_BFC_ERROR_OUT_OF_HOST_MEMORY ||
       result == GMLAKE_BFC_ERROR_OUT_OF_DEVICE_MEMORY || result == GMLAKE_BFC_ERROR_LIMIT_REACHED);
  if (!ptr) return;
  for (i = 0; i < LIVE; i++) {
    if (!live[i]) at = i;
    must(!live[i] || (uintptr_t)ptr + bytes <= (uintptr_t)live[i] ||
         (uintptr_t)live[i] + live_bytes[i] <= (uintptr_t)ptr);
  }
  live[at] = ptr;
  live_bytes[at] = bytes;
}

static void release(unsigned i) {
  must(gmlake_bfc_free(bfc, live[i]) == GMLAKE_BFC_OK);
  must(gmlake_bfc_free(bfc, live[i]) != GMLAKE_BFC_OK);
  live[i] = NULL;
}

/* An allocation, a free, a trim; or the device changes its mind. */
static unsigned choose(void) {
  unsigned i, stream;
  for (stream = 1; stream <= 2; stream++)
    for (i = 0; i < SIZES; i++)
      if (any) return coded(1, i, stream, 0);
  for (i = 0; i < LIVE; i++)
    if (live[i] && any) return coded(2, i, 0, 0);
  return any ? coded(3, 0, 0, 0) : coded(4, 0, 0, 0);
}

static void perform(unsigned code) {
  const unsigned a = code >> 16 & 255;
  size_t released;
  if (code >> 24 == 1) allocate(sizes[a], (void *)(uintptr_t)(code >> 8 & 255));
  if (code >> 24 == 2) release(a);
  if (code >> 24 == 3) must(gmlake_bfc_trim(bfc, &released) == GMLAKE_BFC_OK);
  if (code >> 24 == 4) device_refuses = !device_refuses;
  must(gmlake_bfc_check(bfc) == GMLAKE_BFC_OK && bfc->mutex == 0);
}

/* Mistakes of the program, and questions. */
static void finish(void) {
  gmlake_bfc_stats stats;
  void *ptr;
  stats.struct_bytes = 0;
  must(gmlake_bfc_get_stats(bfc, &stats) == GMLAKE_BFC_OK);
  must(stats.reserved_bytes <= 24 && stats.segment_count == (uint64_t)taken);
  must(gmlake_bfc_free(bfc, (void *)64) == GMLAKE_BFC_ERROR_UNKNOWN_POINTER);
  must(gmlake_bfc_free(bfc, NULL) == GMLAKE_BFC_OK);
  must(gmlake_bfc_alloc(bfc, SIZE_MAX, NULL, &ptr) != GMLAKE_BFC_OK && !ptr);
  must(gmlake_bfc_check(bfc) == GMLAKE_BFC_OK);
  must(gmlake_bfc_result_name(GMLAKE_BFC_OK)[0] == 'G');
  must(gmlake_bfc_destroy(bfc) == GMLAKE_BFC_OK && taken == 0 && host_taken == 0);
}

/* How many calls of malloc succeed; -1: all. */
static int choose_host(void) {
  int left;
  for (left = -1; left < 4; left++)
    if (any) return left;
  return 4;
}

int main(void) {
  int step;
  host_left = choose_host();
  if (create() != GMLAKE_BFC_OK) {
    must(bfc == NULL && host_left == 0 && host_taken == 0);
    return 0;
  }
  for (step = 0; step < STEPS; step++) perform(choose());
  finish();
  return 0;
}
