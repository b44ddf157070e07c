/* examples/llama.cpp/gmlake_ggml.h and llama-kv-grow.h on the mock, called as the patched llama.cpp
   calls them, and gmlake_bfc_pool.h on memory that is only counted. */
#include <stddef.h>

#include <map>
#include <stdexcept>

static void end_here(const char *text) { throw std::runtime_error(text); }

struct ggml_cuda_pool { /* of ggml's common.cuh */
  virtual ~ggml_cuda_pool() = default;
  virtual void *alloc(size_t size, size_t *actual_size) = 0;
  virtual void free(void *ptr, size_t size) = 0;
};

#define GMLAKE_GGML_ABORT(text) end_here(text)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#define GMLAKE_BFC_IMPLEMENTATION
#include "examples/llama.cpp/gmlake_bfc_pool.h"
#include "examples/llama.cpp/gmlake_ggml.h"
#include "examples/llama.cpp/llama-kv-grow.h"

#include "cases.h"

#define MIB ((size_t)1 << 20)

static gmlake_backend *mock;
static gmlake *lake;
static gmlake_ggml_device device;
static size_t wait_count, zero_count;

/* The text that the call fails with, or "". */
#define failure_of(call, out)                 \
  do {                                        \
    out[0] = '\0';                            \
    try {                                     \
      call;                                   \
    } catch (const std::runtime_error &e) {   \
      strncpy(out, e.what(), sizeof out - 1); \
    }                                         \
  } while (0)

static void wait_for(int number) {
  assert_int_equal(number, 3);
  wait_count++;
}

static void zero(int number, void *base, const gmlake_ggml_range *ranges, size_t count) {
  assert_int_equal(number, 3);
  for (size_t i = 0; i < count; i++) memset((char *)base + ranges[i].offset, 0, ranges[i].bytes);
  zero_count += count;
}

static int setup(void **state) {
  gmlake_mock_desc mock_desc = gmlake_mock_desc();
  gmlake_desc desc = gmlake_desc();
  (void)state;
  mock_desc.capacity_bytes = 64 * MIB;
  if (gmlake_mock_create(&mock_desc, &mock)) return 1;
  desc.backend = mock;
  wait_count = zero_count = 0;
  if (gmlake_create(&desc, &lake)) return 1;
  device.lake = lake;
  device.device = 3;
  device.wait = wait_for;
  device.zero = zero;
  return 0;
}

static int teardown(void **state) {
  gmlake_mock_census census;
  (void)state;
  if (gmlake_check(lake) || gmlake_destroy(lake)) return 1;
  gmlake_mock_get_census(mock, &census);
  gmlake_mock_destroy(mock);
  return census.handle_count || census.mapping_count || census.reservation_count;
}

static gmlake_stats stats(void) {
  gmlake_stats s = gmlake_stats();
  assert_int_equal(gmlake_get_stats(lake, &s), GMLAKE_OK);
  return s;
}

/* ---- The pool -------------------------------------------------------------------------------- */

/* A graph's temporaries: blocks in blocks, the same addresses in every evaluation, the memory of
   the peak. */
CASE_BETWEEN(setup, teardown, test_pool_is_a_stack) {
  void *first[3] = {nullptr, nullptr, nullptr};
  {
    gmlake_ggml_pool pool(&device);
    ggml_cuda_pool *const ggml = &pool;
    assert_int_equal(stats().reserved_bytes, 0);
    for (int round = 0; round < 3; round++) {
      const size_t sizes[] = {3 * MIB + 1, 100, 5 * MIB};
      const size_t rounded[] = {3 * MIB + 128, 128, 5 * MIB};
      void *ptrs[3];
      size_t actual[3];
      for (int i = 0; i < 3; i++) {
        ptrs[i] = ggml->alloc(sizes[i], &actual[i]);
        assert_int_equal(actual[i], rounded[i]);
        assert_int_equal((size_t)ptrs[i] % 128, 0);
        memset(ptrs[i], i + 1, actual[i]);
        if (!round) first[i] = ptrs[i];
        assert_ptr_equal(ptrs[i], first[i]);
      }
      for (int i = 0; i < 3; i++) assert_int_equal(((char *)ptrs[i])[actual[i] - 1], i + 1);
      for (int i = 2; i >= 0; i--) ggml->free(ptrs[i], actual[i]);
      assert_int_equal(stats().reserved_bytes, 10 * MIB);
    }
    assert_int_equal(wait_count, 0);
  }
  assert_int_equal(wait_count, 1); /* only the end of the pool waits */
  assert_int_equal(stats().active_bytes, 0);
}

CASE_BETWEEN(setup, teardown, test_pool_refuses_other_orders) {
  char text[256];
  size_t a_size, b_size;
  gmlake_ggml_pool pool(&device);
  void *const a = pool.alloc(MIB, &a_size);
  void *const b = pool.alloc(MIB, &b_size);
  failure_of(pool.free(a, a_size), text);
  assert_string_equal(text, "blocks are freed in the reverse order of their allocation");
  failure_of(pool.free(b, b_size - 128), text);
  assert_true(text[0]);
  pool.free(b, b_size);
  failure_of(pool.free(b, b_size), text);
  assert_true(text[0]);
  pool.free(a, a_size);
  failure_of(pool.free(a, a_size), text);
  assert_true(text[0]);
}

CASE_BETWEEN(setup, teardown, test_pool_runs_out) {
  char text[256];
  size_t size;
  gmlake_ggml_pool pool(&device, 128 * MIB);
  failure_of(pool.alloc(65 * MIB, &size), text);
  assert_non_null(strstr(text, "gmlake_buffer_resize: GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY"));
  failure_of(pool.alloc(129 * MIB, &size), text);
  assert_non_null(strstr(text, "the pool's addresses are used up"));
  failure_of(pool.alloc(SIZE_MAX, &size), text);
  assert_non_null(strstr(text, "the pool's addresses are used up"));
  pool.free(pool.alloc(MIB, &size), MIB); /* and serves on */
}

/* The mock has 2 GiB of addresses for buffers: the third pool gets what is left. */
CASE_BETWEEN(setup, teardown, test_pools_share_addresses) {
  size_t size;
  gmlake_ggml_pool first(&device, 768 * MIB), second(&device, 768 * MIB), third(&device, 768 * MIB);
  void *const ptr = third.alloc(20 * MIB, &size);
  third.free(ptr, size);
}

/* Captured or not, ggml uses one stack. The lake is not told of the capture: were it to record or
   to wait on the stream, or to ask an event, the capture would be spoilt. */
CASE_BETWEEN(setup, teardown, test_pool_captures) {
  gmlake_stream stream;
  size_t size;
  assert_int_equal(gmlake_mock_stream_create(mock, &stream), GMLAKE_OK);
  gmlake_ggml_pool pool(&device);
  void *const eager = pool.alloc(4 * MIB, &size);
  pool.free(eager, size);
  assert_int_equal(gmlake_mock_capture_begin(mock, stream), GMLAKE_OK);
  void *const captured = pool.alloc(6 * MIB, &size);
  assert_ptr_equal(captured, eager);
  pool.free(captured, size);
  assert_int_equal(gmlake_mock_capture_end(mock, stream), GMLAKE_OK);
  assert_int_equal(stats().reserved_bytes, 6 * MIB); /* not 10 */
  gmlake_mock_stream_destroy(mock, stream);          /* ggml's order: streams before pools */
}

/* ---- Memory that follows use ----------------------------------------------------------------- */

#define CHUNK (2 * MIB)

/* A call of keep, and what comes of it: whether it is served, the memory that there is then, and
   how often the device was waited for so far. */
struct keep_row {
  std::vector<gmlake_ggml_range> ranges;
  bool is_served;
  size_t mib, waits;
};

/* Whatever is called: what has memory keeps its contents, what gets some is zero, and what never
   had any has none. */
static void play_rows(size_t bytes, const std::vector<keep_row> &rows) {
  gmlake_ggml_growing *const g = gmlake_ggml_growing::create(&device, bytes);
  char *const base = (char *)g->base();
  std::vector<char> had((bytes + CHUNK - 1) / CHUNK), has;
  char row_number = 0;
  bool is_first = true;
  for (const keep_row &row : rows) {
    size_t total = 0;
    row_number++;
    has.assign(had.size(), 0);
    assert_int_equal(g->keep(row.ranges.data(), row.ranges.size()), row.is_served);
    for (const gmlake_ggml_range &r : g->committed()) {
      total += r.bytes;
      for (size_t at = r.offset; at < r.offset + r.bytes; at += CHUNK) {
        assert_int_equal(base[at], had[at / CHUNK]);
        base[at] = has[at / CHUNK] = row_number;
      }
    }
    is_first &= row.is_served && !row.waits; /* what was given back may stay mapped */
    for (size_t i = 0; i < has.size() && is_first; i++)
      assert_int_equal(gmlake_mock_has_access(mock, base + i * CHUNK, 1, 0), has[i] != 0);
    assert_int_equal(total, row.mib * MIB);
    assert_int_equal(stats().buffer_bytes, (total + CHUNK - 1) / CHUNK * CHUNK);
    assert_int_equal(wait_count, row.waits);
    had = has;
  }
  delete g;
  assert_int_equal(stats().active_bytes, 0);
}

CASE_BETWEEN(setup, teardown, test_growing_follows_the_ranges) {
  const gmlake_ggml_range begin = {0, 100}, far = {100 * MIB, 3 * MIB};
  play_rows(200 * MIB, {{{}, true, 0, 0},
                        {{begin, far}, true, 6, 0},
                        {{{0, 2 * MIB + 1}, far}, true, 8, 0},
                        {{{100 * MIB, 1}}, true, 2, 1}, /* to take memory away waits, once */
                        {{begin, far}, true, 6, 1},
                        {{}, true, 0, 2}});
}

/* The buffer's last chunk is cut off where the tensors end. */
CASE_BETWEEN(setup, teardown, test_growing_ends_inside_a_chunk) {
  char text[256];
  play_rows(5 * MIB, {{{{0, 5 * MIB}, {5 * MIB, 0}}, true, 5, 0}});
  assert_int_equal(zero_count, 1);
  failure_of(play_rows(5 * MIB, {{{{5 * MIB, 1}}, true, 0, 0}}), text);
  assert_string_equal(text, "a range lies outside of the buffer");
  assert_null(gmlake_ggml_growing::create(&device, SIZE_MAX));
}

/* What had memory has it when there is no more, and the object serves on. */
CASE_BETWEEN(setup, teardown, test_growing_runs_out) {
  const gmlake_ggml_range some = {0, 10 * MIB}, more = {20 * MIB, 30 * MIB};
  play_rows(200 * MIB, {{{some}, true, 10, 0},
                        {{some, more, {100 * MIB, 40 * MIB}}, false, 10, 0}, /* 80 MiB of 64 */
                        {{some, more}, true, 40, 0}});
}

/* ---- The KV cache ---------------------------------------------------------------------------- */

/* Buffers of two devices; the second has no memory if it says so. */
struct ggml_backend_buffer {
  gmlake_ggml_growing *growing;
  size_t bytes;
  bool refuses;
  size_t keep_count;
};
struct ggml_context { /* of one buffer type */
  std::vector<ggml_tensor *> tensors;
};

static bool growing_is_offered;

static ggml_backend_buffer_t growing_alloc(ggml_backend_buffer_type_t, size_t size) {
  return new ggml_backend_buffer{gmlake_ggml_growing::create(&device, size), size, false, 0};
}

static bool growing_keep(ggml_backend_buffer_t buffer, const gmlake_ggml_range *ranges, size_t n) {
  buffer->keep_count++;
  return !buffer->refuses && buffer->growing->keep(ranges, n);
}

ggml_backend_dev_t ggml_backend_buft_get_device(ggml_backend_buffer_type_t buft) {
  return (ggml_backend_dev_t)buft;
}
ggml_backend_reg_t ggml_backend_dev_backend_reg(ggml_backend_dev_t dev) {
  return (ggml_backend_reg_t)dev;
}
void *ggml_backend_reg_get_proc_address(ggml_backend_reg_t, const char *name) {
  if (!growing_is_offered) return nullptr;
  if (!strcmp(name, "ggml_backend_cuda_growing_alloc")) return (void *)growing_alloc;
  return strcmp(name, "ggml_backend_cuda_growing_keep") ? nullptr : (void *)growing_keep;
}
void *ggml_backend_buffer_get_base(ggml_backend_buffer_t buffer) { return buffer->growing->base(); }
size_t ggml_backend_buffer_get_size(ggml_backend_buffer_t buffer) { return buffer->bytes; }
enum ggml_status ggml_backend_view_init(ggml_tensor *tensor) {
  tensor->data = tensor->view_src->data;
  tensor->buffer = tensor->view_src->buffer;
  return GGML_STATUS_SUCCESS;
}
ggml_tallocr ggml_tallocr_new(ggml_backend_buffer_t buffer) { return ggml_tallocr{buffer, 0}; }
enum ggml_status ggml_tallocr_alloc(ggml_tallocr *talloc, ggml_tensor *tensor) {
  tensor->buffer = talloc->buffer;
  tensor->data = (char *)talloc->buffer->growing->base() + talloc->offset;
  talloc->offset += tensor->nb[3];
  return GGML_STATUS_SUCCESS;
}
size_t ggml_backend_alloc_ctx_tensors_from_buft_size(ggml_context *ctx,
                                                     ggml_backend_buffer_type_t) {
  size_t bytes = 0;
  for (const ggml_tensor *t : ctx->tensors) bytes += t->view_src ? 0 : t->nb[3];
  return bytes;
}
size_t ggml_row_size(enum ggml_type, int64_t ne) { return (size_t)ne * 2; }
ggml_tensor *ggml_get_first_tensor(const ggml_context *ctx) { return ctx->tensors[0]; }
ggml_tensor *ggml_get_next_tensor(const ggml_context *ctx, ggml_tensor *t) {
  for (size_t i = 0; i + 1 < ctx->tensors.size(); i++)
    if (ctx->tensors[i] == t) return ctx->tensors[i + 1];
  return nullptr;
}

/* Keys of 8,192 cells of 1 KiB in two streams of 8 MiB, and a view of them. */
static ggml_tensor of_cells(void) {
  return ggml_tensor{GGML_TYPE_F16, nullptr, {2, 1024, 8 * MIB, 16 * MIB}, nullptr, nullptr};
}

static size_t held(ggml_backend_buffer_t buffer) {
  size_t bytes = 0;
  for (const gmlake_ggml_range &r : buffer->growing->committed()) bytes += r.bytes;
  return bytes / MIB;
}

static void end(ggml_backend_buffer_t buffer) {
  delete buffer->growing;
  delete buffer;
}

/* grow(first, last, cells) or, if that is 0, shrink({first, last}); what comes of it: the cells of
   both streams, and the memory of both buffers in MiB. */
struct cache_row {
  uint32_t first, last, cells;
  bool is_served;
  uint32_t get[2];
  size_t held[2];
};

static void play_cache(llama_kv_grow *grow, const std::vector<ggml_backend_buffer_t> &buffers,
                       const std::vector<cache_row> &rows) {
  for (const cache_row &row : rows) {
    if (row.cells)
      assert_int_equal(grow->grow(row.first, row.last, row.cells), row.is_served);
    else
      grow->shrink({row.first, row.last});
    for (size_t i = 0; i < 2; i++) assert_int_equal(grow->get((uint32_t)i), row.get[i]);
    for (size_t i = 0; i < buffers.size(); i++) assert_int_equal(held(buffers[i]), row.held[i]);
  }
}

CASE_BETWEEN(setup, teardown, test_cache_follows_the_cells) {
  ggml_tensor k = of_cells(), v = of_cells(), view = of_cells();
  ggml_context ctx;
  llama_kv_grow grow;
  view.view_src = &k;
  ctx.tensors = {&k, &view, &v};
  growing_is_offered = true;
  ggml_backend_buffer_t buffer = grow.alloc(&ctx, (ggml_backend_buffer_type_t)&ctx);
  assert_int_equal(buffer->bytes, 32 * MIB);
  assert_ptr_equal(view.data, k.data);
  grow.add(&k, false);
  grow.add(&v, true); /* without flash attention */
  grow.add(nullptr, false);
  assert_false(grow.empty());
  play_cache(&grow, {buffer},
             {{1, 1, 1000, true, {0, 1000}, {2 + 8}},  /* one chunk of keys, the stream's values */
              {1, 1, 500, true, {0, 1000}, {2 + 8}}}); /* has that already */
  assert_int_equal(buffer->keep_count, 1);
  assert_false(gmlake_mock_has_access(mock, k.data, 1, 0));
  assert_int_equal(((char *)k.data)[8 * MIB + 1000 * 1024 + 1023], 0);
  play_cache(&grow, {buffer},
             {{0, 1, 2048, true, {2048, 2048}, {4 + 8 + 4 + 8}}, /* and a little more for kernels */
              {1900, 1024, 0, true, {2048, 1024}, {4 + 8 + 2 + 8}}, /* < 256 cells fewer: stays */
              {0, 1024, 0, true, {0, 1024}, {2 + 8}},
              {0, 0, 0, true, {0, 0}, {0}}});
  end(buffer);
}

/* One device refuses: the other one is as it was. */
CASE_BETWEEN(setup, teardown, test_cache_runs_out) {
  ggml_tensor k = of_cells(), v = of_cells();
  ggml_context first, second;
  llama_kv_grow grow;
  first.tensors = {&k};
  second.tensors = {&v};
  growing_is_offered = true;
  ggml_backend_buffer_t a = grow.alloc(&first, (ggml_backend_buffer_type_t)&first);
  ggml_backend_buffer_t b = grow.alloc(&second, (ggml_backend_buffer_type_t)&second);
  grow.add(&k, false);
  grow.add(&v, false);
  play_cache(&grow, {a, b}, {{0, 0, 512, true, {512, 0}, {2, 2}}});
  b->refuses = true;
  play_cache(&grow, {a, b}, {{0, 1, 8192, false, {512, 0}, {2, 2}}});
  b->refuses = false;
  play_cache(&grow, {a, b}, {{0, 1, 8192, true, {8192, 8192}, {16, 16}}});
  end(a);
  end(b);
}

CASE_BETWEEN(setup, teardown, test_cache_without_such_buffers) {
  ggml_tensor k = of_cells();
  ggml_context ctx;
  llama_kv_grow grow;
  ctx.tensors = {&k};
  growing_is_offered = false;
  assert_null(grow.alloc(&ctx, (ggml_backend_buffer_type_t)&ctx));
  assert_null(grow.alloc(&ctx, nullptr)); /* of no device */
  assert_true(grow.empty());
  assert_true(grow.grow(0, 3, 100));
  assert_int_equal(grow.get(3), 0);
}

/* ---- The pool without virtual memory --------------------------------------------------------- */

static struct {
  size_t held, peak, left, takes, gives;
  std::map<void *, size_t> sizes;
} counted;

static void *take_counted(int number, size_t bytes) {
  static uintptr_t next = (uintptr_t)1 << 40;
  assert_int_equal(number, 5);
  if (bytes > counted.left) return nullptr;
  void *const ptr = (void *)next;
  next += bytes + MIB;
  counted.sizes[ptr] = bytes;
  counted.left -= bytes;
  counted.held += bytes;
  counted.peak = counted.held > counted.peak ? counted.held : counted.peak;
  counted.takes++;
  return ptr;
}

static void give_counted(int number, void *ptr) {
  assert_int_equal(number, 5);
  assert_int_equal(counted.sizes.count(ptr), 1);
  counted.held -= counted.sizes[ptr];
  counted.left += counted.sizes[ptr];
  counted.sizes.erase(ptr);
  counted.gives++;
}

static const gmlake_bfc_source counted_source = {5, take_counted, give_counted};

static int setup_counted(void **state) {
  (void)state;
  counted = {};
  counted.left = (size_t)1 << 50;
  return 0;
}

/* What a flash attention asks for while a sequence grows: its keys and values as floats, and
   something of one size. */
static size_t grow_temporaries(ggml_cuda_pool *pool, size_t tokens) {
  size_t live = 0, n;
  for (n = 256; n <= tokens; n += 256) {
    size_t sizes[3] = {4096 * n, 4096 * n, 300000}, actual[3], sum = 0;
    void *ptrs[3];
    for (int i = 0; i < 3; i++) {
      ptrs[i] = pool->alloc(sizes[i], &actual[i]);
      assert_true(actual[i] >= sizes[i]);
      for (int k = 0; k < i; k++)
        assert_true((char *)ptrs[k] + actual[k] <= (char *)ptrs[i] ||
                    (char *)ptrs[i] + actual[i] <= (char *)ptrs[k]);
      sum += sizes[i];
    }
    for (int i = 2; i >= 0; i--) pool->free(ptrs[i], actual[i]);
    live = sum > live ? sum : live;
  }
  return live;
}

CASE_BETWEEN(setup_counted, NULL, test_bfc_pool_leaves_no_trail) {
  {
    gmlake_bfc_pool pool(counted_source, false);
    const size_t live = grow_temporaries(&pool, 131072);
    print_message(
        "temporaries that grow: %.1f MiB live, %.1f held (%.2f), %zu takes, %zu given "
        "back\n",
        (double)live / (double)MIB, (double)counted.peak / (double)MIB,
        (double)counted.peak / (double)live, counted.takes, counted.gives);
    assert_true(counted.peak <= live + live / 8 && counted.takes < 150);
  }
  assert_int_equal(counted.held, 0);
}

/* Where graphs may have the addresses nothing goes back before the pool does. */
CASE_BETWEEN(setup_counted, NULL, test_bfc_pool_keeps_for_graphs) {
  {
    gmlake_bfc_pool pool(counted_source, true);
    const size_t live = grow_temporaries(&pool, 131072);
    print_message("the same, kept: %.1f MiB held (%.2f), %zu takes\n",
                  (double)counted.peak / (double)MIB, (double)counted.peak / (double)live,
                  counted.takes);
    assert_int_equal(counted.gives, 0);
    assert_true(counted.peak <= 3 * live && counted.takes < 30);
  }
  assert_int_equal(counted.held, 0);
}

CASE_BETWEEN(setup_counted, NULL, test_bfc_pool_refuses) {
  char text[256];
  size_t actual;
  gmlake_bfc_pool pool(counted_source, false);
  void *const ptr = pool.alloc(0, &actual);
  assert_non_null(ptr);
  pool.free(ptr, actual);
  failure_of(pool.free(ptr, actual), text);
  assert_string_equal(text, "a pool: what is freed is no block of it");
  counted.left = MIB;
  failure_of((void)pool.alloc(300 * MIB, &actual), text);
  assert_non_null(strstr(text, "has no memory left"));
  failure_of((void)pool.alloc(SIZE_MAX / 2, &actual), text);
  assert_non_null(strstr(text, "more bytes than there are"));
}

int main(void) { return run_cases("ggml"); }
