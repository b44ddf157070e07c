/* examples/ggml_pool.h on the mock, called as ggml's CUDA backend calls its own. */
#include <stdexcept>

static void end_here(const char *text);
#define GMLAKE_GGML_ABORT(text) end_here(text)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "examples/ggml_pool.h"

#include <stdarg.h>
#include <string.h>

extern "C" {
#include <setjmp.h>
#include <cmocka.h>
}

#define MIB ((size_t)1 << 20)

static void end_here(const char *text) { throw std::runtime_error(text); }

static gmlake_backend *mock;
static gmlake *lake;
static gmlake_stream stream;
static int synchronized;

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

static int setup(void **state) {
  gmlake_mock_desc mock_desc = gmlake_mock_desc();
  gmlake_desc desc = gmlake_desc();
  (void)state;
  mock_desc.capacity_bytes = 64 * MIB;
  if (gmlake_mock_create(&mock_desc, &mock)) return 1;
  desc.backend = mock;
  desc.flags = GMLAKE_STREAMS_MAY_END;
  synchronized = 0;
  return gmlake_mock_stream_create(mock, &stream) || gmlake_create(&desc, &lake);
}

static int teardown(void **state) {
  gmlake_mock_census census;
  (void)state;
  if (gmlake_check(lake) || gmlake_destroy(lake)) return 1;
  gmlake_mock_get_census(mock, &census);
  gmlake_mock_destroy(mock);
  return census.handle_count || census.mapping_count || census.reservation_count;
}

static size_t reserved(void) {
  gmlake_stats stats = gmlake_stats();
  assert_int_equal(gmlake_get_stats(lake, &stats), GMLAKE_OK);
  return stats.reserved_bytes;
}

/* A graph's temporaries: blocks in blocks, the same addresses in every evaluation. */
static void test_pool_serves_in_reverse_order(void **state) {
  void *first[3] = {nullptr, nullptr, nullptr};
  (void)state;
  {
    gmlake_ggml_pool pool(lake, stream);
    ggml_cuda_pool *const ggml = &pool;
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
    }
  }
  assert_int_equal(reserved(), 0); /* the pool's memory went with it */
}

static void test_pool_refuses_other_orders(void **state) {
  char text[256];
  size_t a_size, b_size;
  (void)state;
  gmlake_ggml_pool pool(lake, stream);
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

static void test_pool_runs_out(void **state) {
  char text[256];
  size_t size;
  (void)state;
  gmlake_ggml_pool pool(lake, stream);
  failure_of(pool.alloc(65 * MIB, &size), text);
  assert_non_null(strstr(text, "gmlake_alloc_with: GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY"));
  failure_of(pool.alloc(SIZE_MAX, &size), text);
  assert_string_equal(text, "alloc: the size is too large to be rounded up to 128 bytes");
}

/* ggml destroys the stream, with work still to do, before the pool: no call names it then. */
static void test_pool_outlives_its_stream(void **state) {
  gmlake_mock_census census;
  size_t size;
  (void)state;
  {
    gmlake_ggml_pool pool(lake, stream);
    void *const a = pool.alloc(4 * MIB, &size);
    gmlake_mock_stream_set_lag(mock, stream, 1000);
    pool.free(a, size);
    gmlake_mock_stream_destroy(mock, stream);
  }
  gmlake_mock_get_census(mock, &census);
  assert_int_equal(census.failed_count, 0);
  assert_int_equal(reserved(), 0);
}

static void test_pool_wants_the_flag(void **state) {
  char text[256];
  gmlake_backend *other_mock;
  gmlake *other;
  (void)state;
  assert_int_equal(gmlake_mock_create(nullptr, &other_mock), GMLAKE_OK);
  gmlake_desc desc = gmlake_desc();
  desc.backend = other_mock;
  assert_int_equal(gmlake_create(&desc, &other), GMLAKE_OK);
  failure_of(gmlake_ggml_pool(other, nullptr), text);
  assert_non_null(strstr(text, "the lake needs GMLAKE_STREAMS_MAY_END"));
  assert_int_equal(gmlake_destroy(other), GMLAKE_OK);
  gmlake_mock_destroy(other_mock);
}

/* What a graph was captured with serves nobody else, and the next capture again. */
static void test_pool_keeps_what_a_graph_knows(void **state) {
  size_t size, other_size;
  void *other;
  (void)state;
  gmlake_ggml_pool pool(lake, stream);
  pool.capture_begin();
  assert_int_equal(gmlake_mock_capture_begin(mock, stream), GMLAKE_OK);
  void *const a = pool.alloc(4 * MIB, &size);
  pool.free(a, size);
  assert_int_equal(gmlake_mock_capture_end(mock, stream), GMLAKE_OK);
  pool.capture_end();
  assert_int_equal(gmlake_trim(lake, 0, nullptr), GMLAKE_OK);
  assert_int_equal(reserved(), 4 * MIB);
  assert_int_equal(gmlake_alloc(lake, 4 * MIB, stream, &other), GMLAKE_OK);
  assert_ptr_not_equal(other, a);
  assert_int_equal(gmlake_free(lake, other, stream), GMLAKE_OK);
  void *const outside = pool.alloc(4 * MIB, &other_size);
  assert_ptr_not_equal(outside, a);
  pool.free(outside, other_size);
  pool.capture_begin();
  assert_ptr_equal(pool.alloc(4 * MIB, &size), a);
  pool.free(a, size);
  pool.capture_end();
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void synchronize(int device) {
  assert_int_equal(device, 0);
  synchronized++;
}

ggml_backend_buffer_t ggml_backend_buffer_init(ggml_backend_buffer_type_t buft,
                                               struct ggml_backend_buffer_i iface, void *context,
                                               size_t size) {
  ggml_backend_buffer_t buffer = new ggml_backend_buffer;
  buffer->iface = iface;
  buffer->buft = buft;
  buffer->context = context;
  buffer->size = size;
  return buffer;
}

static void buffer_free(ggml_backend_buffer_t buffer) { /* as ggml_backend_buffer_free */
  buffer->iface.free_buffer(buffer);
  delete buffer;
}

static void test_buffers(void **state) {
  const gmlake_ggml_memory memory = {lake, 0, synchronize};
  ggml_backend_buffer_i cuda = ggml_backend_buffer_i();
  ggml_backend_buffer_t a, b, empty;
  (void)state;
  a = gmlake_ggml_alloc_buffer(&memory, nullptr, 20 * MIB, cuda);
  b = gmlake_ggml_alloc_buffer(&memory, nullptr, 30 * MIB, cuda);
  empty = gmlake_ggml_alloc_buffer(&memory, nullptr, 0, cuda);
  assert_true(a && b && empty);
  assert_int_equal(a->size, 20 * MIB);
  assert_non_null(empty->iface.get_base(empty));
  memset(a->iface.get_base(a), 1, a->size);
  memset(b->iface.get_base(b), 2, b->size);
  assert_int_equal(*((char *)a->iface.get_base(a) + a->size - 1), 1);
  assert_int_equal(*(int *)a->context, 0); /* the device, where ggml's functions look for it */
  assert_null(gmlake_ggml_alloc_buffer(&memory, nullptr, 20 * MIB, cuda)); /* 64 MiB in all */
  buffer_free(a);
  assert_int_equal(synchronized, 1);
  a = gmlake_ggml_alloc_buffer(&memory, nullptr, 14 * MIB, cuda);
  assert_non_null(a);
  buffer_free(a);
  buffer_free(b);
  buffer_free(empty);
  assert_int_equal(synchronized, 4);
  assert_int_equal(gmlake_trim(lake, 0, nullptr), GMLAKE_OK);
  assert_int_equal(reserved(), 0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test_setup_teardown(test_pool_serves_in_reverse_order, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pool_refuses_other_orders, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pool_runs_out, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pool_outlives_its_stream, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pool_wants_the_flag, setup, teardown),
      cmocka_unit_test_setup_teardown(test_pool_keeps_what_a_graph_knows, setup, teardown),
      cmocka_unit_test_setup_teardown(test_buffers, setup, teardown),
  };
  return cmocka_run_group_tests(tests, nullptr, nullptr);
}
