/* examples/nvtx.h, on the mock and on a header in the place of NVIDIA's: the regions are the live
   blocks and what buffers have committed, byte by byte, whatever windows they lie in; the heaps are
   what is mapped; ranges stand around calls of the driver. What a real sanitizer makes of it,
   tests/gpu/sanitizer.sh tells where there is a GPU. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "cuda_stub/nvtx3/nvToolsExtMem.h"
#include "examples/nvtx.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include <cmocka.h>

#define MIB ((size_t)1 << 20)
#define C (2 * MIB)
#define MOST 4096
#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)

typedef struct range {
  uintptr_t at, heap;
  size_t bytes;
} range;

static struct fixture {
  gmlake_backend *mock;
  gmlake *lake;
  gmlake_nvtx *nvtx;
  range heaps[MOST], regions[MOST];
  size_t heap_count, region_count;
  size_t depth, calls, marks;
  size_t mapped;                  /* bytes in ranges named map, less those in unmap */
  size_t observed;                /* steps that the former observer was told of */
  uint64_t taken[8];              /* memory that is not mapped; 0: none */
  size_t taken_count, taken_most; /* `take` refuses more */
} f;

static void forget(range *list, size_t *count, uintptr_t at) {
  size_t i = 0;
  while (i < *count && list[i].at != at) i++;
  assert_true(i < *count); /* what ends has begun */
  list[i] = list[--*count];
}

static void add(range *list, size_t *count, const nvtx_event *e) {
  size_t i;
  assert_true(*count < MOST && e->bytes);
  for (i = 0; i < *count; i++)
    assert_true(e->at + e->bytes <= list[i].at || list[i].at + list[i].bytes <= e->at);
  list[*count].at = e->at;
  list[*count].heap = e->heap;
  list[(*count)++].bytes = e->bytes;
}

static void told(const nvtx_event *e) {
  size_t i = 0;
  switch (e->call) {
  case NVTX_DOMAIN:
    assert_string_equal(e->text, "memory");
    break;
  case NVTX_PUSH:
    f.depth++;
    f.calls++;
    if (!strcmp(e->text, "map")) f.mapped += e->bytes;
    if (!strcmp(e->text, "unmap")) f.mapped -= e->bytes;
    break;
  case NVTX_POP:
    assert_int_equal(f.depth--, 1);
    break;
  case NVTX_MARK:
    f.marks += e->text && *e->text;
    break;
  case NVTX_HEAP:
    add(f.heaps, &f.heap_count, e);
    break;
  case NVTX_HEAP_END:
    while (i < f.region_count) /* regions go with their heap: of what is live at destroy */
      if (f.regions[i].heap == e->heap)
        f.regions[i] = f.regions[--f.region_count];
      else
        i++;
    forget(f.heaps, &f.heap_count, e->at);
    break;
  case NVTX_REGION:
    while (i < f.heap_count && f.heaps[i].at != e->heap) i++;
    assert_true(i < f.heap_count && e->at >= e->heap &&
                e->at + e->bytes <= f.heaps[i].at + f.heaps[i].bytes);
    add(f.regions, &f.region_count, e);
    break;
  case NVTX_REGION_END:
    forget(f.regions, &f.region_count, e->at);
    break;
  }
}

static void observed(void *user, const gmlake_step *step) {
  (void)step;
  ++*(size_t *)user;
}

/* Addresses alone, aligned no better than cuMemAlloc has to. */
static uint64_t take_plain(void *user, size_t bytes) {
  size_t i = 0;
  assert_ptr_equal(user, &f);
  assert_true(bytes > C);
  if (f.taken_count == f.taken_most) return 0;
  while (f.taken[i]) i++;
  f.taken_count++;
  return f.taken[i] = ((uint64_t)(i + 1) << 40) + 256;
}

static void give_plain(void *user, uint64_t address) {
  size_t i = 0;
  assert_ptr_equal(user, &f);
  while (f.taken[i] != address) i++;
  f.taken[i] = 0;
  f.taken_count--;
}

static gmlake_nvtx *attach(gmlake_desc *desc, int is_plain) {
  gmlake_nvtx_memory memory;
  memory.take = take_plain;
  memory.give = give_plain;
  memory.user = &f;
  memory.bytes = 48 * C + 5;
  return is_plain ? gmlake_nvtx_attach_plain("memory", desc, &memory)
                  : gmlake_nvtx_attach("memory", desc);
}

static int set_up_as(int is_plain) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  memset(&f, 0, sizeof f);
  f.taken_most = 3;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  nvtx_told = told;
  mock.capacity_bytes = 128 * MIB;
  mock.bookkeeping_only = 1;
  if (gmlake_mock_create(&mock, &f.mock)) return -1;
  desc.backend = f.mock;
  desc.chunk_bytes = C;
  desc.observer.fn = observed;
  desc.observer.user = &f.observed;
  f.nvtx = attach(&desc, is_plain);
  return !f.nvtx || gmlake_create(&desc, &f.lake);
}

static int set_up(void **state) {
  (void)state;
  return set_up_as(0);
}

static int set_up_plain(void **state) {
  (void)state;
  return set_up_as(1);
}

static int tear_down(void **state) {
  int wrong;
  (void)state;
  wrong = gmlake_destroy(f.lake) != GMLAKE_OK;
  gmlake_nvtx_detach(f.nvtx);
  wrong |= f.heap_count || f.depth || f.mapped || f.taken_count;
  gmlake_mock_destroy(f.mock);
  return wrong ? -1 : 0;
}

/* The regions that lie in [at, at + bytes) cover it, and no other byte of the 512 behind. */
static void assert_live(const void *ptr, size_t bytes) {
  const uintptr_t at = (uintptr_t)ptr;
  size_t covered = 0, i;
  for (i = 0; i < f.region_count; i++) {
    const range *r = &f.regions[i];
    if (r->at + r->bytes <= at || at + (bytes + 511) / 512 * 512 <= r->at) continue;
    assert_true(at <= r->at && r->at + r->bytes <= at + bytes);
    covered += r->bytes;
  }
  assert_int_equal(covered, bytes);
}

static size_t live_bytes(void) {
  size_t sum = 0, i;
  for (i = 0; i < f.region_count; i++) sum += f.regions[i].bytes;
  return sum;
}

static void *take(size_t bytes) {
  void *ptr;
  assert_ok(gmlake_alloc(f.lake, bytes, NULL, &ptr));
  assert_live(ptr, bytes);
  return ptr;
}

static void blocks_are_regions(void **state) {
  void *p, *q;
  (void)state;
  p = take(1000);
  q = take(5 * MIB + 1);
  assert_int_equal(live_bytes(), 1000 + 5 * MIB + 1);
  assert_int_equal(f.heap_count, 3);
  assert_ok(gmlake_free(f.lake, p, NULL));
  assert_int_equal(live_bytes(), 5 * MIB + 1);
  assert_live(q, 5 * MIB + 1);
  assert_ok(gmlake_free(f.lake, q, NULL));
  assert_int_equal(f.region_count, 0);
  assert_ok(gmlake_trim(f.lake, 0, NULL));
  assert_int_equal(f.heap_count, 0);
  assert_true(f.calls > 8 && f.marks > 2 && f.observed > 5);
}

static void windows_are_regions_where_they_are_mapped(void **state) {
  void *b[6], *w, *again;
  size_t i;
  (void)state;
  for (i = 0; i < 6; i++) b[i] = take(C);
  for (i = 1; i < 6; i += 2) assert_ok(gmlake_free(f.lake, b[i], NULL));
  w = take(2 * C + 700);
  assert_int_equal(f.heap_count, 6 + 3);
  assert_ok(gmlake_free(f.lake, w, NULL));
  assert_int_equal(live_bytes(), 3 * C);
  again = take(2 * C + 700);
  assert_ptr_equal(again, w); /* idle windows stay mapped, and heaps */
  assert_int_equal(f.heap_count, 6 + 3);
}

static void buffers_are_regions_where_they_have_memory(void **state) {
  gmlake_buffer_info info;
  gmlake_buffer_desc desc;
  gmlake_buffer *buffer;
  (void)state;
  memset(&desc, 0, sizeof desc);
  desc.max_bytes = 8 * C;
  assert_ok(gmlake_buffer_create(f.lake, &desc, &buffer));
  assert_ok(gmlake_buffer_get_info(f.lake, buffer, &info));
  assert_ok(gmlake_buffer_resize(f.lake, buffer, 5 * C, NULL));
  assert_live(info.ptr, 5 * C);
  assert_ok(gmlake_buffer_discard(f.lake, buffer, C, C, NULL));
  assert_int_equal(live_bytes(), 4 * C);
  assert_live((char *)info.ptr + 2 * C, 3 * C);
  assert_ok(gmlake_buffer_commit(f.lake, buffer, 0, 3 * C, NULL));
  assert_live(info.ptr, 5 * C);
  assert_ok(gmlake_buffer_resize(f.lake, buffer, C, NULL));
  assert_int_equal(live_bytes(), C);
  assert_ok(gmlake_buffer_destroy(f.lake, buffer, NULL));
  assert_int_equal(f.region_count, 0);
}

/* Random blocks, with a limit, so that windows are made, dropped and chunks returned. */
static void every_live_byte_is_in_a_region(void **state) {
  void *live[40];
  size_t bytes[40], sum = 0, i, n;
  uint32_t random = 7;
  (void)state;
  memset(live, 0, sizeof live);
  for (n = 0; n < 4000; n++) {
    random = random * 1664525 + 1013904223;
    i = (random >> 8) % 40;
    if (live[i]) {
      assert_ok(gmlake_free(f.lake, live[i], NULL));
      sum -= bytes[i];
      live[i] = NULL;
    } else {
      bytes[i] = 1 + (random >> 13) % (1u << (8 + (random >> 28)));
      if (gmlake_alloc(f.lake, bytes[i], NULL, &live[i])) continue;
      assert_live(live[i], bytes[i]);
      sum += bytes[i];
    }
    assert_int_equal(live_bytes(), sum);
    if (n % 500 == 499) assert_ok(gmlake_trim(f.lake, 0, NULL));
  }
  for (i = 0; i < 40; i++)
    if (live[i]) assert_ok(gmlake_free(f.lake, live[i], NULL));
}

static gmlake_stats stats_now(void) {
  gmlake_stats stats;
  memset(&stats, 0, sizeof stats);
  assert_ok(gmlake_get_stats(f.lake, &stats));
  return stats;
}

static gmlake_mock_census census_now(void) {
  gmlake_mock_census census;
  gmlake_mock_get_census(f.mock, &census);
  return census;
}

/* Blocks that would be stitched are not: the memory is one heap, and nothing of it is mapped. */
static void plain_memory_is_one_heap(void **state) {
  void *b[8], *p;
  size_t i;
  (void)state;
  assert_int_equal(f.heap_count, 1);
  assert_true(f.heaps[0].at == f.taken[0] && f.heaps[0].bytes >= 48 * C);
  for (i = 0; i < 8; i++) b[i] = take(C);
  for (i = 1; i < 8; i += 2) assert_ok(gmlake_free(f.lake, b[i], NULL));
  p = take(3 * C + 1000);
  assert_int_equal(live_bytes(), 7 * C + 1000);
  assert_int_equal(stats_now().stitch_count, 0);
  assert_int_equal(stats_now().reserved_bytes, 11 * C);
  assert_int_equal(census_now().handle_count + census_now().reservation_count, 0);
  assert_ok(gmlake_free(f.lake, p, NULL));
  assert_ok(gmlake_trim(f.lake, 0, NULL));
  assert_int_equal(stats_now().reserved_bytes, 4 * C);
  assert_int_equal(f.heap_count, 1);
  assert_ok(gmlake_check(f.lake));
}

static void plain_memory_ends(void **state) {
  gmlake_budget budget;
  void *p;
  (void)state;
  assert_int_equal(gmlake_alloc(f.lake, 49 * C, NULL, &p), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  p = take(40 * C);
  memset(&budget, 0, sizeof budget);
  assert_ok(gmlake_get_budget(f.lake, &budget));
  assert_int_equal(budget.total_bytes, 48 * C);
  assert_int_equal(budget.driver_free_bytes, 8 * C);
  (void)take(8 * C);
  assert_int_equal(gmlake_alloc(f.lake, 1, NULL, &p), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
}

/* Buffers have memory of their own, and so has each pool, until `take` refuses. */
static void plain_pools_have_heaps_of_their_own(void **state) {
  gmlake_pool_desc desc;
  gmlake_pool *pool, *more;
  gmlake_alloc_desc in;
  void *p;
  (void)state;
  buffers_are_regions_where_they_have_memory(state);
  assert_int_equal(f.heap_count, 2);
  memset(&desc, 0, sizeof desc);
  memset(&in, 0, sizeof in);
  assert_ok(gmlake_pool_create(f.lake, &desc, &pool));
  assert_int_equal(f.heap_count, 3);
  assert_int_equal(gmlake_pool_create(f.lake, &desc, &more), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  in.pool = pool;
  in.bytes = 3 * MIB;
  assert_ok(gmlake_alloc_with(f.lake, &in, NULL, &p));
  assert_live(p, 3 * MIB);
  assert_ok(gmlake_free(f.lake, p, NULL));
  assert_ok(gmlake_pool_destroy(f.lake, pool));
  assert_int_equal(f.heap_count, 2);
  assert_int_equal(f.taken_count, 2);
}

static void no_plain_memory(void **state) {
  gmlake_mock_desc mock;
  gmlake_desc desc;
  (void)state;
  memset(&f, 0, sizeof f);
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.bookkeeping_only = 1;
  assert_ok(gmlake_mock_create(&mock, &f.mock));
  desc.backend = f.mock;
  nvtx_told = told;
  f.nvtx = attach(&desc, 1);
  assert_int_equal(gmlake_create(&desc, &f.lake), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  assert_int_equal(f.heap_count, 0);
  gmlake_nvtx_detach(f.nvtx);
  gmlake_mock_destroy(f.mock);
}

static void nothing_is_attached_to_no_backend(void **state) {
  gmlake_desc desc;
  (void)state;
  memset(&desc, 0, sizeof desc);
  assert_null(gmlake_nvtx_attach("memory", &desc));
  assert_null(desc.observer.fn);
  gmlake_nvtx_detach(NULL);
}

int main(void) {
#define CASE(name) cmocka_unit_test_setup_teardown(name, set_up, tear_down)
#define PLAIN(name) cmocka_unit_test_setup_teardown(name, set_up_plain, tear_down)
  const struct CMUnitTest tests[] = {CASE(blocks_are_regions),
                                     CASE(windows_are_regions_where_they_are_mapped),
                                     CASE(buffers_are_regions_where_they_have_memory),
                                     CASE(every_live_byte_is_in_a_region),
                                     PLAIN(plain_memory_is_one_heap),
                                     PLAIN(plain_memory_ends),
                                     PLAIN(plain_pools_have_heaps_of_their_own),
                                     PLAIN(every_live_byte_is_in_a_region),
                                     cmocka_unit_test(no_plain_memory),
                                     cmocka_unit_test(nothing_is_attached_to_no_backend)};
  return cmocka_run_group_tests(tests, NULL, NULL);
}
