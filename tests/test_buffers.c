/* Growing buffers: addresses that stay, chunks that come and go at the end, who may take which of
   them and what that costs the driver. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#define MIB ((size_t)1 << 20)

static gmlake_buffer_desc buffer_desc(size_t max_bytes) {
  gmlake_buffer_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = max_bytes;
  wanted.chunk_bytes = C;
  return wanted;
}

static gmlake_buffer *open_buffer(size_t max_chunks) {
  gmlake_buffer_desc wanted = buffer_desc(max_chunks * C);
  gmlake_buffer *buffer = NULL;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_non_null(buffer);
  return buffer;
}

static gmlake_buffer_info info_of(gmlake_buffer *buffer) {
  gmlake_buffer_info info;
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  return info;
}

static unsigned char *bytes_of(gmlake_buffer *buffer) {
  return (unsigned char *)info_of(buffer).ptr;
}

static void resize_on(gmlake_buffer *buffer, size_t bytes, gmlake_stream stream) {
  step(gmlake_buffer_resize(lake, buffer, bytes, stream));
  assert_int_equal(info_of(buffer).bytes, bytes);
  assert_int_equal(info_of(buffer).committed_bytes, (bytes + C - 1) / C * C);
}

static void resize(gmlake_buffer *buffer, size_t bytes) { resize_on(buffer, bytes, LEGACY); }

static void close_buffer(gmlake_buffer *buffer) {
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
}

/* Chunk i of the buffer holds this byte throughout. */
static void stamp(gmlake_buffer *buffer, size_t i, int byte) {
  memset(bytes_of(buffer) + i * C, byte, C);
}

static void assert_stamp(gmlake_buffer *buffer, size_t i, int byte) {
  const unsigned char *at = bytes_of(buffer) + i * C;
  size_t n;
  for (n = 0; n < C; n++) assert_int_equal(at[n], byte);
}

/* Calls of the backend, events and capture modes excluded, since the last time. */
typedef struct calls {
  size_t handles, mappings;
  uint64_t count, ns;
} calls;

static calls calls_now(void) {
  calls now;
  now.handles = census().handle_count;
  now.mappings = census().mapping_count;
  now.count = stats().driver_call_count;
  now.ns = census().modelled_ns;
  return now;
}

static void assert_calls(const calls *since, uint64_t count) {
  assert_int_equal(stats().driver_call_count, since->count + count);
}

/* ---- One buffer ------------------------------------------------------------------------------ */

static void a_buffer_has_addresses_and_no_memory(void **state) {
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  gmlake_buffer_info info;
  (void)state;
  start(16);
  wanted = buffer_desc(5 * C + 1);
  wanted.user_data = 7;
  wanted.label = "kv";
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  info = info_of(buffer);
  assert_non_null(info.ptr);
  assert_int_equal((uintptr_t)info.ptr % C, 0);
  assert_int_equal(info.bytes, 0);
  assert_int_equal(info.committed_bytes, 0);
  assert_int_equal(info.max_bytes, 5 * C + 1);
  assert_int_equal(info.chunk_bytes, C);
  assert_int_equal(info.user_data, 7);
  assert_string_equal(info.label, "kv");
  assert_int_equal(stats().buffer_count, 1);
  assert_int_equal(stats().reserved_bytes, 0);
  assert_int_equal(census().handle_count, 0);
  close_buffer(buffer);
  assert_int_equal(stats().buffer_count, 0);
  finish();
}

static void it_grows_in_place_and_keeps_its_bytes(void **state) {
  gmlake_buffer *buffer;
  unsigned char *at;
  size_t i;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  at = bytes_of(buffer);
  for (i = 0; i < 8; i++) {
    resize(buffer, (i + 1) * C);
    stamp(buffer, i, (int)i + 1);
    assert_ptr_equal(bytes_of(buffer), at);
  }
  for (i = 0; i < 8; i++) assert_stamp(buffer, i, (int)i + 1);
  resize(buffer, 3 * C);
  for (i = 0; i < 3; i++) assert_stamp(buffer, i, (int)i + 1);
  close_buffer(buffer);
  finish();
}

static void the_first_growth_makes_one_chunk_and_one_mapping(void **state) {
  gmlake_buffer *buffer;
  calls before;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  before = calls_now();
  resize(buffer, 1);
  assert_calls(&before, 3); /* create, map, set_access */
  assert_int_equal(census().handle_count, before.handles + 1);
  assert_int_equal(census().mapping_count, before.mappings + 1);
  resize(buffer, C);
  assert_calls(&before, 3);
  resize(buffer, C + 1);
  assert_calls(&before, 6);
  close_buffer(buffer);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_buffer_has_addresses_and_no_memory),
      cmocka_unit_test(it_grows_in_place_and_keeps_its_bytes),
      cmocka_unit_test(the_first_growth_makes_one_chunk_and_one_mapping),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
