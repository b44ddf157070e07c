/* examples/nvtx.h, on the mock and on a header in the place of NVIDIA's: the regions are the live
   blocks and what buffers have committed, byte by byte, whatever windows they lie in; the heaps are
   what is mapped; ranges stand around calls of the driver. What a real sanitizer makes of it,
   tests/gpu/sanitizer.sh tells where there is a GPU. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "cuda_stub/nvtx3/nvToolsExtMem.h"
#include "examples/nvtx.h"

#include "fixture.h"

#define CHUNK (32 * C) /* which plain memory needs */
#define MOST 4096

typedef struct range {
  uintptr_t at, heap;
  size_t bytes;
} range;

static struct told {
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
  assert_true(bytes > CHUNK);
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

static void attach(int is_plain) {
  gmlake_nvtx_memory memory = {take_plain, give_plain, &f, 48 * CHUNK + 5};
  nvtx_told = told;
  f.nvtx = is_plain ? gmlake_nvtx_attach_plain("memory", &desc, &memory)
                    : gmlake_nvtx_attach("memory", &desc);
  assert_non_null(f.nvtx);
}

static int set_up(void **state) {
  memset(&f, 0, sizeof f);
  f.taken_most = 3;
  prepare(64 * CHUNK / C);
  desc.chunk_bytes = CHUNK;
  desc.observer.fn = observed;
  desc.observer.user = &f.observed;
  attach(*state != NULL);
  open_lake();
  return 0;
}

static int set_up_plain(void **state) {
  *state = &f;
  return set_up(state);
}

static int tear_down(void **state) {
  (void)state;
  assert_ok(gmlake_destroy(lake));
  gmlake_nvtx_detach(f.nvtx);
  assert_false(f.heap_count || f.depth || f.mapped || f.taken_count);
  close_mock();
  return 0;
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

static void *take_live(size_t bytes) {
  void *ptr = take(bytes);
  assert_live(ptr, bytes);
  return ptr;
}

CASE_BETWEEN(set_up, tear_down, blocks_are_regions) {
  void *p, *q;
  p = take_live(1000);
  q = take_live(CHUNK * 5 / 2 + 1);
  assert_int_equal(live_bytes(), 1000 + CHUNK * 5 / 2 + 1);
  assert_int_equal(f.heap_count, 3);
  drop(p);
  assert_int_equal(live_bytes(), CHUNK * 5 / 2 + 1);
  assert_live(q, CHUNK * 5 / 2 + 1);
  drop(q);
  assert_int_equal(f.region_count, 0);
  (void)trim_to(0);
  assert_int_equal(f.heap_count, 0);
  assert_true(f.calls > 8 && f.marks > 2 && f.observed > 5);
}

CASE_BETWEEN(set_up, tear_down, windows_are_regions_where_they_are_mapped) {
  void *b[6], *w, *again;
  size_t i;
  for (i = 0; i < 6; i++) b[i] = take_live(CHUNK);
  for (i = 1; i < 6; i += 2) drop(b[i]);
  w = take_live(2 * CHUNK + 700);
  assert_int_equal(f.heap_count, 6 + 3);
  drop(w);
  assert_int_equal(live_bytes(), 3 * CHUNK);
  again = take_live(2 * CHUNK + 700);
  assert_ptr_equal(again, w); /* idle windows stay mapped, and heaps */
  assert_int_equal(f.heap_count, 6 + 3);
}

CASE_BETWEEN(set_up, tear_down, buffers_are_regions_where_they_have_memory) {
  gmlake_buffer_info info;
  gmlake_buffer_desc wanted = buffer_desc(8 * CHUNK);
  gmlake_buffer *buffer;
  wanted.chunk_bytes = CHUNK;
  assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  assert_ok(gmlake_buffer_resize(lake, buffer, 5 * CHUNK, NULL));
  assert_live(info.ptr, 5 * CHUNK);
  assert_ok(gmlake_buffer_discard(lake, buffer, CHUNK, CHUNK, NULL));
  assert_int_equal(live_bytes(), 4 * CHUNK);
  assert_live((char *)info.ptr + 2 * CHUNK, 3 * CHUNK);
  assert_ok(gmlake_buffer_commit(lake, buffer, 0, 3 * CHUNK, NULL, NULL));
  assert_live(info.ptr, 5 * CHUNK);
  assert_ok(gmlake_buffer_resize(lake, buffer, CHUNK, NULL));
  assert_int_equal(live_bytes(), CHUNK);
  assert_ok(gmlake_buffer_destroy(lake, buffer, NULL));
  assert_int_equal(f.region_count, 0);
}

/* Random blocks, with a limit, so that windows are made, dropped and chunks returned. */
static void play_at_random(void) {
  void *live[40];
  size_t bytes[40], sum = 0, i, n;
  uint32_t random = 7;
  memset(live, 0, sizeof live);
  for (n = 0; n < 4000; n++) {
    random = random * 1664525 + 1013904223;
    i = (random >> 8) % 40;
    if (live[i]) {
      drop(live[i]);
      sum -= bytes[i];
      live[i] = NULL;
    } else {
      bytes[i] = 1 + (random >> 13) % (1u << (8 + (random >> 28)));
      if (gmlake_alloc(lake, bytes[i], NULL, &live[i])) continue;
      assert_live(live[i], bytes[i]);
      sum += bytes[i];
    }
    assert_int_equal(live_bytes(), sum);
    if (n % 500 == 499) (void)trim_to(0);
  }
  for (i = 0; i < 40; i++)
    if (live[i]) drop(live[i]);
}

CASE_BETWEEN(set_up, tear_down, every_live_byte_is_in_a_region) { play_at_random(); }
CASE_BETWEEN(set_up_plain, tear_down, every_live_byte_of_plain_memory_is_in_a_region) {
  play_at_random();
}

CASE_BETWEEN(set_up_plain, tear_down, plain_memory_ends) {
  gmlake_budget budget;
  void *p;
  assert_int_equal(gmlake_alloc(lake, 49 * CHUNK, NULL, &p), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  p = take_live(40 * CHUNK);
  memset(&budget, 0, sizeof budget);
  assert_ok(gmlake_get_budget(lake, &budget));
  assert_int_equal(budget.total_bytes, 48 * CHUNK);
  assert_int_equal(budget.driver_free_bytes, 8 * CHUNK);
  (void)take_live(8 * CHUNK);
  assert_int_equal(gmlake_alloc(lake, 1, NULL, &p), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
}

/* Buffers have memory of their own, and so has each pool, until `take` refuses. */
CASE_BETWEEN(set_up_plain, tear_down, plain_pools_have_heaps_of_their_own) {
  gmlake_pool *pool, *more;
  void *p;
  buffers_are_regions_where_they_have_memory(state);
  assert_int_equal(f.heap_count, 2);
  pool = open_pool(0);
  assert_int_equal(f.heap_count, 3);
  assert_int_equal(gmlake_pool_create(lake, NULL, &more), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  p = take_from(pool, CHUNK + 5, LEGACY);
  assert_live(p, CHUNK + 5);
  drop(p);
  assert_ok(gmlake_pool_destroy(lake, pool));
  assert_int_equal(f.heap_count, 2);
  assert_int_equal(f.taken_count, 2);
}

CASE(no_plain_memory) {
  memset(&f, 0, sizeof f);
  prepare(1);
  attach(1);
  assert_int_equal(gmlake_create(&desc, &lake), GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  assert_int_equal(f.heap_count, 0);
  gmlake_nvtx_detach(f.nvtx);
  close_mock();
}

CASE(nothing_is_attached_to_no_backend) {
  memset(&desc, 0, sizeof desc);
  assert_null(gmlake_nvtx_attach("memory", &desc));
  assert_null(desc.observer.fn);
  gmlake_nvtx_detach(NULL);
}

int main(void) { return run_cases("nvtx"); }
