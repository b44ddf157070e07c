/* Growing buffers: addresses that stay, chunks that come and go at the end, who may take which of
   them and what that costs the driver. */
#include "waiters.h"

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#define MIB ((size_t)1 << 20)

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

static void the_peak_of_buffers_is_reset(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  resize(buffer, 4 * C);
  resize(buffer, C - 1);
  assert_int_equal(stats().buffer_bytes_peak, 4 * C);
  assert_ok(gmlake_reset_peaks(lake));
  assert_int_equal(stats().buffer_bytes_peak, C);
  close_buffer(buffer);
  finish();
}

/* 2 MiB at a time on the modelled H200, with costs alone and as replayed. */
/* 60 where the chunk is mapped for blocks, too. */
static void growing_by_2_mib_takes_less_than_40_us(void **state) {
  gmlake_mock_desc mock_desc;
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  uint64_t ns, most;
  size_t i;
  int costs;
  (void)state;
  for (costs = GMLAKE_MOCK_COSTS_ALONE; costs <= GMLAKE_MOCK_COSTS_REPLAYED; costs++) {
    most = 0;
    prepare(1);
    close_mock();
    memset(&mock_desc, 0, sizeof(mock_desc));
    mock_desc.bookkeeping_only = 1;
    mock_desc.costs = (gmlake_mock_costs)costs;
    assert_ok(gmlake_mock_create(&mock_desc, &mock));
    desc.backend = mock;
    desc.chunk_bytes = is_apart ? 16 * MIB : 2 * MIB;
    open_lake();
    memset(&wanted, 0, sizeof(wanted));
    wanted.max_bytes = 256 * MIB;
    assert_ok(gmlake_buffer_create(lake, &wanted, &buffer));
    assert_int_equal(info_of(buffer).chunk_bytes, 2 * MIB);
    for (i = 1; i <= 128; i++) {
      ns = census().modelled_ns;
      assert_ok(gmlake_buffer_resize(lake, buffer, i * 2 * MIB, LEGACY));
      ns = census().modelled_ns - ns;
      assert_in_range(ns, 1, is_apart ? 39999 : 59999);
      if (ns > most) most = ns;
    }
    print_message("growing by 2 MiB%s: %.1f us at most\n",
                  is_apart ? "" : " of chunks that blocks share", (double)most / 1000);
    assert_ok(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
    ns = census().modelled_ns;
    for (i = 1; i <= 128; i++) assert_ok(gmlake_buffer_resize(lake, buffer, i * 2 * MIB, LEGACY));
    assert_int_equal(census().modelled_ns, ns);
    finish();
  }
}

static void chunks_are_2_mib_or_the_granularity(void **state) {
  gmlake_buffer_desc wanted;
  gmlake_mock_desc mock_desc;
  gmlake_buffer *buffer, *other;
  (void)state;
  start(128);
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = 3 * MIB;
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_int_equal(info_of(buffer).chunk_bytes, 2 * MIB);
  step(gmlake_buffer_resize(lake, buffer, 1, LEGACY));
  assert_int_equal(info_of(buffer).committed_bytes, 2 * MIB);
  step(gmlake_buffer_resize(lake, buffer, 3 * MIB, LEGACY));
  assert_int_equal(info_of(buffer).committed_bytes, 4 * MIB);
  other = open_buffer(2); /* of C: from another arena */
  resize(other, C);
  assert_int_equal(stats().reserved_bytes, 4 * MIB + C);
  assert_int_equal(stats().chunk_count, 3);
  finish();
  memset(&mock_desc, 0, sizeof(mock_desc));
  mock_desc.granularity_bytes = 4 * MIB;
  assert_ok(gmlake_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.chunk_bytes = 0;
  open_lake();
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  assert_int_equal(info_of(buffer).chunk_bytes, 4 * MIB);
  finish();
}

/* ---- Several buffers: whose chunk it is ------------------------------------------------------ */

/* Written through one buffer's kept mapping, read through the owner's: the same memory. */
static void kept_mappings_alias_for_real(void **state) {
  gmlake_buffer *a, *b;
  unsigned char *stale;
  (void)state;
  start(16);
  a = open_buffer(8);
  b = open_buffer(8);
  resize(a, C);
  stale = bytes_of(a);
  stamp(a, 0, 5);
  resize(a, 0);
  resize(b, C);
  assert_stamp(b, 0, 5);
  stamp(b, 0, 6);
  assert_int_equal(stale[0], 6);
  assert_int_equal(stale[C - 1], 6);
  resize(a, C);
  stamp(a, 0, 7);
  assert_stamp(b, 0, 6);
  finish();
}

/* ---- Memory that comes and goes -------------------------------------------------------------- */

static void a_growth_that_fails_leaves_the_buffer_as_it_was(void **state) {
  gmlake_buffer *a, *b;
  gmlake_error_info info;
  (void)state;
  prepare(16);
  desc.limit_bytes = 4 * C;
  open_lake();
  a = open_buffer(16);
  b = open_buffer(16);
  resize(a, C);
  resize(b, C);
  stamp(a, 0, 1);
  stamp(b, 0, 2);
  step_error(gmlake_buffer_resize(lake, a, 6 * C, LEGACY), LIMIT_REACHED);
  info = last_error();
  assert_string_equal(info.call, "gmlake_buffer_resize");
  assert_int_equal(info.result, GMLAKE_ERROR_LIMIT_REACHED);
  assert_int_equal(info.asked_bytes, 5 * C);
  assert_int_equal(info.limit_bytes, 4 * C);
  assert_null(info.pool);
  assert_int_equal(info.live_bytes, 2 * C);
  assert_int_equal(info_of(a).bytes, C);
  assert_int_equal(stats().buffer_bytes, 2 * C);
  assert_int_equal(stats().oom_count, 1);
  resize(b, 3 * C);
  assert_stamp(a, 0, 1);
  assert_stamp(b, 0, 2);
  finish();
}

static gmlake_buffer *victim;
static unsigned handler_calls;

static int give_up_the_victim(void *user, gmlake *l, const gmlake_error_info *info) {
  (void)user;
  handler_calls++;
  assert_string_equal(info->call, "gmlake_buffer_resize");
  assert_error(gmlake_buffer_resize(l, victim, 8 * C, LEGACY), INVALID_ARGUMENT);
  return gmlake_buffer_resize(l, victim, 0, LEGACY) == GMLAKE_OK;
}

static void the_handler_may_shrink_and_not_grow(void **state) {
  gmlake_buffer *a;
  (void)state;
  prepare(16);
  desc.limit_bytes = 4 * C;
  desc.oom.fn = give_up_the_victim;
  open_lake();
  handler_calls = 0;
  a = open_buffer(16);
  victim = open_buffer(16);
  resize(a, C);
  resize(victim, 3 * C);
  resize(a, 4 * C);
  assert_int_equal(handler_calls, 1);
  step_error(gmlake_buffer_resize(lake, a, 5 * C, LEGACY), LIMIT_REACHED);
  assert_int_equal(handler_calls, 1 + 8);
  finish();
}

/* ---- Destroying ------------------------------------------------------------------------------ */

static void addresses_of_destroyed_buffers_are_waited_for(void **state) {
  gmlake_stream stream;
  gmlake_buffer *a, *b;
  gmlake_buffer_desc wanted;
  size_t space;
  (void)state;
  start_with_faults(16);
  stream = open_stream();
  a = open_buffer(1);
  space = 32 * 16; /* chunks of address space, beside those for a */
  close_buffer(a);
  b = open_buffer(space);
  resize_on(b, C, stream);
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  wanted = buffer_desc(space * C);
  step_error(gmlake_buffer_create(lake, &wanted, &a), OUT_OF_DEVICE_MEMORY);
  assert_string_equal(last_error().call, "gmlake_buffer_create");
  gmlake_mock_stream_hold(mock, stream);
  step(gmlake_buffer_destroy(lake, b, stream));
  b = open_buffer(space);
  assert_int_equal(stats().host_wait_count, 1);
  resize_on(b, C, stream);
  step(gmlake_buffer_destroy(lake, b, NONE));
  wanted.max_bytes = (space + 1) * C;
  step_error(gmlake_buffer_create(lake, &wanted, &a), OUT_OF_DEVICE_MEMORY);
  wanted.max_bytes = SIZE_MAX;
  step_error(gmlake_buffer_create(lake, &wanted, &a), OUT_OF_DEVICE_MEMORY);
  finish();
}

static char leak_text[2][160];
static unsigned leak_count;

static void note_leak(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  assert_int_equal(level, GMLAKE_LOG_WARNING);
  if (leak_count < 2) memcpy(leak_text[leak_count], info->text, sizeof(leak_text[0]));
  leak_count++;
}

static void buffers_left_are_told_of_at_destroy(void **state) {
  gmlake_buffer_desc wanted;
  gmlake_buffer *buffer;
  (void)state;
  prepare(16);
  desc.logger.fn = note_leak;
  open_lake();
  leak_count = 0;
  close_buffer(open_buffer(3));
  wanted = buffer_desc(4 * C);
  wanted.label = "keys";
  step(gmlake_buffer_create(lake, &wanted, &buffer));
  resize(buffer, 5);
  finish();
  assert_int_equal(leak_count, 1);
  assert_int_equal(strncmp(leak_text[0], "5 bytes of a buffer at 0x", 25), 0);
  assert_non_null(strstr(leak_text[0], "(keys)"));
}

/* ---- Calls that fail ------------------------------------------------------------------------- */

static gmlake_buffer *one_chunk_of(size_t max_chunks) {
  gmlake_buffer *buffer;
  start_with_faults(16);
  buffer = open_buffer(max_chunks);
  resize(buffer, C);
  stamp(buffer, 0, 1);
  return buffer;
}

/* How many calls of a kind so many new chunks take at home. */
static long home_calls(int kind, long chunks) { return is_apart || kind == ON_CREATE ? 0 : chunks; }

static void growth_is_undone_whatever_call_fails(void **state) {
  static const int kinds[] = {ON_CREATE, ON_MAP, ON_ACCESS};
  gmlake_buffer *buffer;
  size_t i;
  long in;
  (void)state;
  for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    for (in = 1; in <= (kinds[i] == ON_ACCESS ? 1 : 3) + home_calls(kinds[i], 3); in++) {
      buffer = one_chunk_of(8);
      fail_call(kinds[i], in, GMLAKE_ERROR_UNSUPPORTED, 0);
      if (gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY)) {
        assert_ok(gmlake_check(lake));
        assert_int_equal(info_of(buffer).bytes, C);
        assert_int_equal(mapped_count(), 1);
        assert_int_equal(stats().quarantined_bytes, 0);
      } else {
        assert_true(kinds[i] == ON_CREATE || in <= home_calls(kinds[i], 3)); /* it tried again */
      }
      resize(buffer, 4 * C);
      assert_stamp(buffer, 0, 1);
      finish();
    }
  }
}

/* Another thread that shrinks the buffer while it grows, in the middle of a driver call. */
static struct rival {
  gmlake_buffer *buffer;
  pthread_t thread;
  int is_done;
} rival;

static void *shrink_it(void *argument) {
  (void)argument;
  if (gmlake_buffer_resize(lake, rival.buffer, 0, LEGACY)) abort();
  __atomic_store_n(&rival.is_done, 1, __ATOMIC_RELEASE);
  return NULL;
}

static gmlake_result create_and_meet(void *user, size_t bytes, unsigned handle_types,
                                     uint64_t *out_handle, int *out_code) {
  faulty.create = mock->create;
  assert_int_equal(start_waiter(&rival.thread, shrink_it, NULL), 0);
  assert_int_equal(__atomic_load_n(&rival.is_done, __ATOMIC_ACQUIRE), 0);
  return mock->create(user, bytes, handle_types, out_handle, out_code);
}

static void a_growing_buffer_is_not_shrunk_meanwhile(void **state) {
  (void)state;
  start_with_faults(8);
  memset(&rival, 0, sizeof(rival));
  rival.buffer = open_buffer(8);
  resize(rival.buffer, C);
  faulty.create = create_and_meet;
  assert_ok(gmlake_buffer_resize(lake, rival.buffer, 4 * C, LEGACY));
  assert_int_equal(pthread_join(rival.thread, NULL), 0);
  assert_int_equal(rival.is_done, 1);
  assert_ok(gmlake_check(lake));
  assert_int_equal(info_of(rival.buffer).committed_bytes, 0);
  assert_int_equal(census().handle_count, 4);
  finish();
}

static void host_memory_may_lack_anywhere(void **state) {
  gmlake_buffer *buffer;
  gmlake_buffer_desc wanted;
  gmlake_result result;
  long in;
  int failed = 0;
  (void)state;
  for (in = 1; in < 12; in++) {
    start(16);
    wanted = buffer_desc(300 * C);
    host_fail_in = in;
    result = gmlake_buffer_create(lake, &wanted, &buffer);
    host_fail_in = 0;
    failed += result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    assert_true(!result || result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY);
    assert_ok(gmlake_check(lake));
    if (result) buffer = open_buffer(300);
    host_fail_in = in;
    result = gmlake_buffer_resize(lake, buffer, 4 * C, LEGACY);
    host_fail_in = 0;
    failed += result == GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    assert_ok(gmlake_check(lake));
    assert_int_equal(info_of(buffer).bytes, result ? 0 : 4 * C);
    resize(buffer, 4 * C);
    finish();
  }
  assert_true(failed >= 8);
}

/* A change makes the records that it needs, however many are unused. */
static void records_are_made_before_they_are_taken(void **state) {
  gmlk_records held;
  gmlake_buffer *buffer, *other = NULL;
  gmlake_buffer_desc wanted = buffer_desc(2 * C);
  (void)state;
  start(16);
  buffer = open_buffer(3);
  resize(buffer, 3 * C);
  resize(buffer, 0);
  gmlk_records_hold(&lake->records, &held, lake->records.unused_count);
  assert_ok(gmlake_buffer_commit(lake, buffer, C, C, LEGACY)); /* amidst a hole */
  gmlk_records_return(&lake->records, &held);
  assert_ok(gmlake_check(lake));
  gmlk_records_hold(&lake->records, &held, lake->records.unused_count);
  assert_ok(gmlake_buffer_create(lake, &wanted, &other));
  gmlk_records_return(&lake->records, &held);
  resize(other, 2 * C);
  finish();
}

/* The only addresses are those of a destroyed buffer, and they cannot be had. */
static void what_keeps_addresses_is_told(void **state) {
  gmlake_buffer *buffer;
  gmlake_buffer_desc wanted = buffer_desc(2 * C);
  (void)state;
  buffer = one_chunk_of(32 * 16);
  fail_call(ON_RESERVE, 1, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 1);
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_UNSUPPORTED, 1);
  step_error(gmlake_buffer_create(lake, &wanted, &buffer), UNSUPPORTED);
  fail_call(ON_UNMAP, 0, GMLAKE_OK, 0);
  buffer = open_buffer(2);
  resize(buffer, 2 * C);
  finish();
}

/* ---- What finds errors ----------------------------------------------------------------------- */

static void addresses_of_buffers_are_no_blocks(void **state) {
  gmlake_allocation_info info;
  gmlake_buffer *buffer;
  size_t count;
  unsigned char *at;
  (void)state;
  start(16);
  buffer = open_buffer(8);
  resize(buffer, 4 * C);
  resize(buffer, 2 * C);
  at = bytes_of(buffer);
  step_error(gmlake_free(lake, at, LEGACY), UNKNOWN_POINTER);
  step_error(gmlake_free(lake, at + 3 * C, LEGACY), UNKNOWN_POINTER);
  step_error(gmlake_free(lake, (void *)(uintptr_t)(3 * C), LEGACY), UNKNOWN_POINTER);
  step_error(gmlake_get_allocation(lake, at, &info), UNKNOWN_POINTER);
  step_error(gmlake_get_pieces(lake, at, NULL, 0, &count), UNKNOWN_POINTER);
  step_error(gmlake_record_stream(lake, at, LEGACY), UNKNOWN_POINTER);
  finish();
}

static void memory_is_filled_and_guarded(void **state) {
  gmlake_buffer *a, *b;
  unsigned char *at;
  (void)state;
  prepare(16);
  desc.flags = GMLAKE_FILL | GMLAKE_GUARD;
  open_lake();
  a = open_buffer(3);
  b = open_buffer(3);
  resize(a, 2 * C);
  assert_stamp(a, 0, GMLAKE_FILL_NEW);
  assert_stamp(a, 1, GMLAKE_FILL_NEW);
  stamp(a, 0, 1);
  stamp(a, 1, 2);
  resize(a, C);
  assert_stamp(a, 0, 1);
  assert_stamp(a, 1, GMLAKE_FILL_FREE); /* still mapped */
  resize(a, 2 * C);
  assert_stamp(a, 0, 1);
  assert_stamp(a, 1, GMLAKE_FILL_NEW);
  at = bytes_of(b);
  assert_true(at >= bytes_of(a) + 4 * C || at + 4 * C <= bytes_of(a));
  finish();
}

/* ---- Random buffers and blocks against their contents ---------------------------------------- */

#define BUFFERS 6
#define BLOCKS 8
#define MOST 12 /* chunks of a buffer */

static uint64_t random_state;

static size_t random_below(size_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (size_t)(random_state % bound);
}

static struct zoo {
  gmlake_stream streams[3];
  gmlake_buffer *buffers[BUFFERS];
  size_t chunks[BUFFERS];
  unsigned char *blocks[BLOCKS];
  unsigned serial, buffer_stamps[BUFFERS][MOST], block_stamps[BLOCKS];
} zoo;

static void write_stamp(unsigned char *at, unsigned stamp) { memcpy(at, &stamp, sizeof(stamp)); }

static void assert_zoo(void) {
  size_t i, n;
  for (i = 0; i < BUFFERS; i++)
    for (n = 0; n < zoo.chunks[i]; n++)
      assert_memory_equal(bytes_of(zoo.buffers[i]) + n * C, &zoo.buffer_stamps[i][n],
                          sizeof(unsigned));
  for (i = 0; i < BLOCKS; i++)
    if (zoo.blocks[i]) assert_memory_equal(zoo.blocks[i], &zoo.block_stamps[i], sizeof(unsigned));
}

static void resize_at_random(size_t i, gmlake_stream stream) {
  size_t chunks = random_below(MOST + 1);
  gmlake_result result;
  if (random_below(16) == 0) {
    step(gmlake_buffer_destroy(lake, zoo.buffers[i], stream));
    zoo.buffers[i] = open_buffer(MOST);
    zoo.chunks[i] = 0;
  }
  result = gmlake_buffer_resize(lake, zoo.buffers[i], chunks * C, stream);
  assert_ok(gmlake_check(lake));
  if (result) {
    assert_true(chunks > zoo.chunks[i]);
    assert_int_equal(result, GMLAKE_ERROR_LIMIT_REACHED);
    return;
  }
  for (; zoo.chunks[i] < chunks; zoo.chunks[i]++) {
    zoo.buffer_stamps[i][zoo.chunks[i]] = ++zoo.serial;
    write_stamp(bytes_of(zoo.buffers[i]) + zoo.chunks[i] * C, zoo.serial);
  }
  zoo.chunks[i] = chunks;
}

static void trade_block_at_random(size_t i, gmlake_stream stream) {
  void *ptr;
  if (zoo.blocks[i]) {
    drop_on(zoo.blocks[i], stream);
    zoo.blocks[i] = NULL;
  } else if (!gmlake_alloc(lake, (1 + random_below(3)) * C, stream, &ptr)) {
    zoo.blocks[i] = (unsigned char *)ptr;
    zoo.block_stamps[i] = ++zoo.serial;
    write_stamp(zoo.blocks[i], zoo.serial);
  }
}

static void act_at_random(void) {
  gmlake_stream stream = zoo.streams[random_below(3)];
  switch (random_below(12)) {
  case 0:
    gmlake_mock_stream_hold(mock, stream);
    break;
  case 1:
  case 2:
    gmlake_mock_stream_finish(mock, stream);
    break;
  case 3:
    (void)trim_to(random_below(20) * C);
    break;
  case 4:
  case 5:
    trade_block_at_random(random_below(BLOCKS), stream);
    break;
  default:
    resize_at_random(random_below(BUFFERS), stream);
  }
}

static void random_buffers_keep_their_contents(void **state) {
  uint64_t seed;
  size_t i;
  (void)state;
  for (seed = 1; seed <= 24; seed++) {
    memset(&zoo, 0, sizeof(zoo));
    random_state = seed * 0x9E3779B97F4A7C15u;
    prepare(64);
    desc.limit_bytes = (16 + random_below(32)) * C;
    desc.cross_stream = seed % 3 ? GMLAKE_GROW_FIRST : GMLAKE_WAIT_FIRST;
    open_lake();
    for (i = 0; i < 3; i++) zoo.streams[i] = i ? open_stream() : LEGACY;
    for (i = 0; i < BUFFERS; i++) zoo.buffers[i] = open_buffer(MOST);
    for (i = 0; i < 400; i++) {
      act_at_random();
      assert_zoo();
    }
    for (i = 0; i < 3; i++) gmlake_mock_stream_finish(mock, zoo.streams[i]);
    finish();
  }
}

/* ---- Peers ----------------------------------------------------------------------------------- */

static void assert_reached(const void *ptr, size_t bytes) {
  int device;
  for (device = 0; device < 8; device++)
    assert_int_equal(gmlake_mock_has_access(mock, ptr, bytes, device), device < 3);
}

static void *front_of(gmlake_buffer *of) {
  gmlake_buffer_info info;
  assert_ok(gmlake_buffer_get_info(lake, of, &info));
  return info.ptr;
}

/* Devices 1 and 2 may use every mapping, at home, in a window and in a buffer; others none. */
static void peers_reach_every_mapping(void **state) {
  static const int two[] = {2, 1};
  gmlake_buffer *first, *second;
  gmlake_pool *pool;
  void *b[4], *window;
  (void)state;
  prepare(16);
  desc.peer_devices = two;
  desc.peer_count = 2;
  open_lake();
  lay(b, 4);
  drop(b[0]);
  drop(b[2]);
  window = take(2 * C);
  assert_int_equal(piece_count(window), 2);
  assert_reached(b[1], C);
  assert_reached(window, 2 * C);
  pool = open_pool(0);
  b[0] = take_from(pool, 3 * C, LEGACY);
  assert_reached(b[0], 3 * C);
  first = open_buffer(4);
  second = open_buffer(4);
  assert_false(gmlake_mock_has_access(mock, front_of(first), C, 0)); /* nothing is mapped yet */
  step(gmlake_buffer_resize(lake, first, 2 * C, LEGACY));
  assert_reached(front_of(first), 2 * C);
  assert_false(gmlake_mock_has_access(mock, front_of(first), 3 * C, 0));
  step(gmlake_buffer_resize(lake, first, 0, LEGACY));
  step(gmlake_buffer_resize(lake, second, 3 * C, LEGACY)); /* chunks of the first, and a new one */
  assert_reached(front_of(second), 3 * C);
  step(gmlake_buffer_destroy(lake, first, LEGACY));
  step(gmlake_buffer_destroy(lake, second, LEGACY));
  drop(b[0]);
  step(gmlake_pool_destroy(lake, pool));
  drop(window);
  drop(b[1]);
  drop(b[3]);
  finish();
}

#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))

/* One free range is cut into chunks again, for which there are records, whoever took those that
   were left over when the chunks became one. */
static void growing_again_has_its_records(void **state) {
  gmlake_buffer *buffer;
  int i;
  (void)state;
  start(128);
  buffer = open_buffer(100);
  step(gmlake_buffer_resize(lake, buffer, 100 * C, LEGACY));
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  for (i = 0; i < 140; i++) (void)take(512);
  step(gmlake_buffer_resize(lake, buffer, 100 * C, LEGACY));
  assert_ok(gmlake_destroy(lake));
  close_mock();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(growing_again_has_its_records),
      cmocka_unit_test(a_buffer_has_addresses_and_no_memory),
      cmocka_unit_test(the_peak_of_buffers_is_reset),
      cmocka_unit_test(growing_by_2_mib_takes_less_than_40_us),
      cmocka_unit_test(chunks_are_2_mib_or_the_granularity),
      cmocka_unit_test(kept_mappings_alias_for_real),
      cmocka_unit_test(a_growth_that_fails_leaves_the_buffer_as_it_was),
      cmocka_unit_test(the_handler_may_shrink_and_not_grow),
      cmocka_unit_test(addresses_of_destroyed_buffers_are_waited_for),
      cmocka_unit_test(buffers_left_are_told_of_at_destroy),
      cmocka_unit_test(growth_is_undone_whatever_call_fails),
      cmocka_unit_test(a_growing_buffer_is_not_shrunk_meanwhile),
      cmocka_unit_test(host_memory_may_lack_anywhere),
      cmocka_unit_test(records_are_made_before_they_are_taken),
      cmocka_unit_test(what_keeps_addresses_is_told),
      cmocka_unit_test(memory_is_filled_and_guarded),
      cmocka_unit_test(random_buffers_keep_their_contents),
  };
  const struct CMUnitTest with_blocks[] = {
      /* of a chunk */
      cmocka_unit_test(addresses_of_buffers_are_no_blocks),
      cmocka_unit_test(peers_reach_every_mapping),
  };
  int failed;
  is_apart = 1;
  failed = cmocka_run_group_tests(tests, NULL, NULL);
  is_apart = 0;
  failed += cmocka_run_group_tests(with_blocks, NULL, NULL);
  return failed + cmocka_run_group_tests(tests, NULL, NULL);
}
