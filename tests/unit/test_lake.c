/* Tests of the lake's contract: descriptions, the logger, every failing call, the handler of the
   out-of-memory ladder, figures, host memory, destroy. What a line of words says, of these too, is
   in tests/play/rows.h. */
#include "fixture.h"
#include "patience.h"

#include "every_call.h"

#include <sys/types.h>
#include <sys/wait.h>
#include <unistd.h>

/* ---- Descriptions ---------------------------------------------------------------------------- */

static gmlake_result try_desc(void) {
  gmlake *made = NULL;
  gmlake_result result = gmlake_create(&desc, &made);
  if (result) assert_null(made);
  if (!result) assert_ok(gmlake_destroy(made));
  return result;
}

#define assert_needed(function)                 \
  do {                                          \
    use_hooks();                                \
    hooked.function = NULL;                     \
    assert_error(try_desc(), INVALID_ARGUMENT); \
  } while (0)

CASE(create_refuses_a_table_with_a_gap) {
  prepare(8);
  assert_needed(get_properties);
  assert_needed(get_memory_info);
  assert_needed(reserve);
  assert_needed(unreserve);
  assert_needed(create);
  assert_needed(release);
  assert_needed(map);
  assert_needed(unmap);
  assert_needed(set_access);
  assert_needed(event_create);
  assert_needed(event_destroy);
  assert_needed(event_record);
  assert_needed(event_query);
  assert_needed(event_wait);
  assert_needed(stream_wait);
  assert_needed(capture_exchange);
  assert_needed(clock_ns);
  assert_int_equal(census().call_count, 0);
  use_hooks();
  assert_ok(try_desc());
  close_mock();
}

static gmlake_result no_driver(void *user, gmlake_device_properties *out, int *out_code) {
  (void)user;
  (void)out;
  *out_code = 100;
  return GMLAKE_ERROR_NO_DRIVER;
}

CASE(create_passes_the_missing_driver_on) {
  prepare(8);
  use_hooks();
  hooked.get_properties = no_driver;
  assert_error(try_desc(), NO_DRIVER);
  close_mock();
}

CASE(get_desc_tells_the_defaults) {
  gmlake_desc filled;
  prepare(1024); /* 64 MiB */
  desc.chunk_bytes = 0;
  open_lake();
  assert_ok(gmlake_get_desc(lake, &filled));
  assert_int_equal(filled.chunk_bytes, 2048 * K);
  assert_ptr_equal(filled.backend, mock);
  assert_int_equal(filled.limit_bytes, 0);
  assert_error(gmlake_get_desc(lake, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_get_desc(NULL, &filled), INVALID_ARGUMENT);
  finish();
}

/* Chunks are device memory / 8192, down to a power of two, 2 to 32 MiB, but 2 where it is the
   host's, and a granule at least. The rest is in multiples of the device, as far as a size_t
   goes. */
CASE(defaults_follow_the_device) {
  const size_t mib = K * K, gib = K * mib;
  const struct {
    size_t device_bytes, granule, chunk;
    int is_integrated;
  } rows[] = {{15 * gib, 2 * mib, 2 * mib, 0},    {32 * gib - 2 * mib, 2 * mib, 2 * mib, 0},
              {32 * gib, 2 * mib, 4 * mib, 0},    {140 * gib, 2 * mib, 16 * mib, 0},
              {1000 * gib, 2 * mib, 32 * mib, 0}, {1000 * gib, 64 * mib, 64 * mib, 0},
              {120 * gib, 2 * mib, 2 * mib, 1},   {120 * gib, 4 * mib, 4 * mib, 1},
              {SIZE_MAX / 32, C, 32 * mib, 0},    {SIZE_MAX / 8, C, 32 * mib, 0},
              {SIZE_MAX / 4, C, 32 * mib, 0},     {SIZE_MAX, C, 32 * mib, 0}};
  const size_t multiples[3] = {4, 8, 32};
  size_t i, n;
  for (i = 0; i < sizeof(rows) / sizeof(rows[0]); i++) {
    static gmlake made;
    size_t sizes[3];
    memset(&made, 0, sizeof(made));
    made.device.device_bytes = rows[i].device_bytes;
    made.device.granularity_bytes = rows[i].granule;
    made.device.is_integrated = rows[i].is_integrated;
    assert_ok(gmlk_desc_default(&made));
    assert_int_equal(made.desc.chunk_bytes, rows[i].chunk);
    sizes[0] = made.desc.stitched_bytes_max;
    sizes[1] = made.desc.arena_bytes;
    sizes[2] = made.desc.window_bytes;
    for (n = 0; n < 3; n++) {
      const size_t most = SIZE_MAX / multiples[n], device_bytes = rows[i].device_bytes;
      assert_int_equal(sizes[n], (device_bytes < most ? device_bytes : most) * multiples[n]);
    }
  }
}

/* ---- Logger ---------------------------------------------------------------------------------- */

static struct {
  unsigned count;
  int level;
  gmlake_error_info info;
  char texts[8][160];
  size_t live_bytes[8];
} said;

/* Called with no lock held: what asks the lake from here works. */
static void listen(void *user, int level, const gmlake_error_info *info) {
  gmlake_stats now;
  assert_ptr_equal(user, &said);
  assert_true(said.count < 8);
  said.live_bytes[said.count] = info->live_bytes;
  memcpy(said.texts[said.count++], info->text, sizeof(info->text));
  said.level = level;
  said.info = *info;
  if (lake) assert_ok(gmlake_get_stats(lake, &now));
  if (lake) assert_ok(gmlake_check(lake));
}

static void use_logger(void) {
  memset(&said, 0, sizeof(said));
  desc.logger.fn = listen;
  desc.logger.user = &said;
}

/* Their own, else their pool's. */
CASE(destroy_lists_leaks_with_their_labels) {
  static const char *const wanted_texts[6][2] = {{"65536 bytes", "(weights)"},
                                                 {"1000 bytes", "(no label)"},
                                                 {"2000 bytes", "(of a pool)"},
                                                 {"3000 bytes", "(in a pool)"},
                                                 {"5 bytes of a buffer at 0x", "(keys)"},
                                                 {"131072 bytes of a buffer at 0x", "(of a pool)"}};
  static const size_t wanted_bytes[6] = {65536, 1024, 2048, 3072, 65536, 131072};
  gmlake_buffer_desc growing = buffer_desc(8 * C);
  gmlake_buffer *buffer;
  gmlake_alloc_desc wanted = request(C, 0, NULL);
  gmlake_pool_desc pool_wanted;
  unsigned i, n, found;
  prepare(16);
  use_logger();
  open_lake();
  step(gmlake_buffer_destroy(lake, open_buffer(3), LEGACY)); /* it is none */
  wanted.label = "weights";
  (void)take_with(&wanted, LEGACY);
  (void)take(1000);
  memset(&pool_wanted, 0, sizeof(pool_wanted));
  pool_wanted.label = "of a pool";
  assert_ok(gmlake_pool_create(lake, &pool_wanted, &wanted.pool));
  wanted.label = NULL;
  wanted.bytes = 2000;
  (void)take_with(&wanted, LEGACY);
  wanted.label = "in a pool";
  wanted.bytes = 3000;
  (void)take_with(&wanted, LEGACY);
  growing.label = "keys";
  step(gmlake_buffer_create(lake, &growing, &buffer));
  step(gmlake_buffer_resize(lake, buffer, 5, LEGACY));
  growing.label = NULL;
  growing.pool = wanted.pool;
  step(gmlake_buffer_create(lake, &growing, &buffer));
  step(gmlake_buffer_commit(lake, buffer, 3 * C, 2 * C, NULL, LEGACY));
  assert_ok(gmlake_destroy(lake));
  assert_int_equal(said.count, 6);
  assert_string_equal(said.info.call, "gmlake_destroy");
  assert_int_equal(said.level, GMLAKE_LOG_WARNING);
  for (n = 0; n < 6; n++) {
    for (i = found = 0; i < said.count; i++)
      found += strncmp(said.texts[i], wanted_texts[n][0], strlen(wanted_texts[n][0])) == 0 &&
               strstr(said.texts[i], wanted_texts[n][1]) && said.live_bytes[i] == wanted_bytes[n];
    assert_int_equal(found, 1);
  }
  close_mock();
}

/* ---- Errors of the driver -------------------------------------------------------------------- */

/* 0, or the number of the call that is answered otherwise than documented. */
static int in_child(uint64_t calls) {
  const size_t bytes = host_bytes;
  gmlake_desc known;
  gmlake_error_info info;
  size_t i;
  for (i = 0; i < EVERY_ROWS; i++) {
    const int is_free = !strcmp(every_rows[i].name, "free");
    if (every_rows[i].call() != (is_free ? GMLAKE_OK : GMLAKE_ERROR_FORKED)) return 1 + (int)i;
  }
  if (gmlake_get_last_error(lake, &info) || info.result != GMLAKE_ERROR_FORKED) return 101;
  if (!strstr(info.text, "child of fork")) return 102;
  if (gmlake_get_desc(lake, &known) || known.chunk_bytes != C) return 103;
  if (census().call_count != calls) return 104;
  return host_bytes == bytes ? 0 : 105;
}

/* Both locks are held when the process forks, as another thread might hold them. */
static void run_child(void) {
  const uint64_t calls = census().call_count;
  int status = 0;
  pid_t child;
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  gmlk_lock_driver(lake);
  child = fork();
  if (child == 0) {
    (void)alarm(patience());
    _exit(in_child(calls));
  }
  gmlk_unlock_driver(lake);
  gmlk_spinlock_unlock(&lake->state_lock, lake->has_locks);
  assert_true(child > 0);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status));
  assert_int_equal(WEXITSTATUS(status), 0);
}

static void answer_children(void) {
  open_lake();
  every_open();
  run_child();
  gmlk_process_destroy(&lake->process); /* as on a system that clears no page */
  lake->fork_guard = NULL;
  run_child();
  every_close(); /* the parent's lake lives on */
  drop(take(2 * C));
  finish();
}

CASE(a_forked_child_touches_nothing) {
  prepare(8);
  answer_children();
  prepare(8);
  memset(&desc.host, 0, sizeof(desc.host));
  answer_children();
  prepare(8);
  desc.flags = GMLAKE_SINGLE_THREADED;
  answer_children();
}

/* ---- Out-of-memory handler ------------------------------------------------------------------- */

static struct {
  unsigned calls;
  const char *call; /* that it runs in */
  void *to_free;
  gmlake_buffer *buffer; /* of four chunks, where it may have eight */
} oom;

/* On this lake to allocate, to grow and to commit is refused, and so is nothing else. */
static int use_lake(void *user, gmlake *from, const gmlake_error_info *info) {
  gmlake_map_entry known;
  gmlake_budget budget;
  gmlake_pool *pool;
  size_t count;
  void *ptr = &ptr;
  assert_ptr_equal(user, &oom);
  assert_string_equal(info->call, oom.call);
  if (oom.calls++) return 1; /* it has made all the room it can */
  assert_error(gmlake_alloc(from, 512, LEGACY, &ptr), INVALID_ARGUMENT);
  assert_null(ptr);
  assert_error(gmlake_alloc(from, SIZE_MAX, LEGACY, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_buffer_resize(from, oom.buffer, 8 * C, LEGACY), INVALID_ARGUMENT);
  assert_error(gmlake_buffer_commit(from, oom.buffer, 5 * C, C, NULL, LEGACY), INVALID_ARGUMENT);
  assert_ok(gmlake_buffer_discard(from, oom.buffer, C, C, LEGACY));
  assert_ok(gmlake_buffer_resize(from, oom.buffer, C, LEGACY));
  assert_ok(gmlake_find(from, oom.to_free, &known));
  assert_ok(gmlake_get_pieces(from, oom.to_free, NULL, 0, &count));
  assert_ok(gmlake_get_budget(from, &budget));
  assert_ok(gmlake_check(from));
  assert_ok(gmlake_pool_create(from, NULL, &pool));
  assert_ok(gmlake_pool_destroy(from, pool));
  assert_ok(gmlake_reset_peaks(from));
  assert_ok(gmlake_free(from, oom.to_free, NONE));
  assert_ok(gmlake_trim(from, 0, &count));
  assert_int_equal(count, 7 * C);
  return 1;
}

CASE(the_handler_may_do_all_but_allocate) {
  gmlake_buffer *other;
  int grows;
  for (grows = 0; grows < 2; grows++) {
    prepare(8);
    memset(&oom, 0, sizeof(oom));
    desc.oom.fn = use_lake;
    desc.oom.user = &oom;
    open_lake();
    other = open_buffer(8);
    oom.buffer = open_buffer(8);
    step(gmlake_buffer_resize(lake, oom.buffer, 4 * C, LEGACY));
    oom.to_free = take(4 * C);
    oom.call = grows ? "gmlake_buffer_resize" : "gmlake_alloc";
    if (grows)
      step(gmlake_buffer_resize(lake, other, 6 * C, LEGACY));
    else
      drop(take(6 * C));
    assert_int_equal(oom.calls, 1);
    drop(take(512)); /* and outside it allocation works again */
    assert_error(grows ? gmlake_buffer_resize(lake, other, 8 * C, LEGACY) : try_on(8 * C, LEGACY),
                 OUT_OF_DEVICE_MEMORY);
    assert_int_equal(oom.calls, 1 + 8); /* whatever it answers */
    if (!grows) assert_error(try_on(SIZE_MAX, LEGACY), OUT_OF_DEVICE_MEMORY);
    assert_int_equal(oom.calls, grows ? 1 + 8 : 1 + 16);
    finish();
  }
}

/* A model's weights and its graph's memory, of two pools: both or none. */
CASE(an_admission_may_span_pools) {
  gmlake_alloc_desc wanted[3];
  size_t lacking = 0, released;
  prepare(16);
  open_lake();
  wanted[0] = request(8 * C, 0, open_pool(0));
  wanted[1] = wanted[2] = request(2 * C, GMLAKE_TRANSIENT, open_pool(4 * C));
  wanted[2].bytes = 3 * C; /* the pool's limit forbids it */
  step_error(gmlake_admit(lake, wanted, 3, LEGACY, &lacking), LIMIT_REACHED);
  assert_int_equal(lacking, 3 * C);
  step(gmlake_trim(lake, 0, &released));
  assert_int_equal(released, 10 * C); /* what the others had got */
  wanted[2].bytes = 2 * C;
  step(gmlake_admit(lake, wanted, 3, LEGACY, NULL));
  assert_int_equal(stats().reserved_bytes, 12 * C);
  step(gmlake_trim(lake, 0, &released));
  assert_int_equal(released, 0);
  wanted[1].bytes = 0;
  step(gmlake_admit(lake, &wanted[1], 1, LEGACY, NULL)); /* of one of them it ends */
  step(gmlake_trim(lake, 0, &released));
  assert_int_equal(released, 4 * C);
  finish();
}

/* ---- Figures --------------------------------------------------------------------------------- */

CASE(driver_calls_are_counted_and_timed) {
  gmlake_stats before;
  uint64_t calls, charged;
  void *p;
  start(8);
  calls = census().call_count;
  charged = census().modelled_ns;
  before = stats();
  p = take(3 * C); /* create and map each, one set_access, and the exchange twice */
  assert_int_equal(stats().driver_call_count - before.driver_call_count, 7);
  assert_int_equal(census().call_count - calls, 9);
  assert_true(stats().driver_ns - before.driver_ns <= census().modelled_ns - charged);
  assert_true(stats().driver_ns - before.driver_ns >= (census().modelled_ns - charged) * 9 / 10);
  drop(p);
  finish();
}

/* What no size explains are the numbers of streams: they end. */
CASE(numbers_of_streams_lack_like_memory) {
  void *p = NULL;
  start(4);
  assert_error(gmlake_free(lake, &p, LEGACY), UNKNOWN_POINTER);
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  assert_error(gmlk_leave(lake, GMLAKE_ERROR_OUT_OF_HOST_MEMORY), OUT_OF_HOST_MEMORY);
  assert_error(last_error().result, OUT_OF_HOST_MEMORY);
  assert_non_null(strstr(last_error().text, "gmlake_forget_stream"));
  finish();
}

/* ---- Lakes ----------------------------------------------------------------------------------- */

/* What rounding adds to an exclusive block stands in 32 bits, so chunks end at 1 GiB. */
CASE(chunks_are_at_most_a_gibibyte) {
  gmlake_map_entry info;
  void *p;
  prepare_books(0, 0, GMLAKE_MOCK_COSTS_ALONE);
  desc.chunk_bytes = (size_t)2 << 30;
  assert_error(gmlake_create(&desc, &lake), INVALID_ARGUMENT);
  desc.chunk_bytes = (size_t)1 << 30;
  open_lake();
  p = take_flags(1, GMLAKE_EXCLUSIVE);
  step(gmlake_find(lake, p, &info));
  assert_int_equal(info.requested_bytes, 1);
  drop(p);
  assert_int_equal(stats().requested_bytes, 0);
  finish();
}

/* Every one of a window's 40 pieces is cut out of a larger block, twice. */
CASE(a_window_of_many_pieces_has_records_for_all) {
  void *b[81], *window, *again;
  size_t i;
  start(82);
  lay(b, 81);
  for (i = 1; i < 80; i += 2) drop(b[i]);
  window = take(40 * C);
  assert_int_equal(piece_count(window), 40);
  drop(window);
  for (i = 0; i < 81; i += 2) drop(b[i]);
  lake->records.set_aside = lake->records.unused_count - 45;
  host_fail_in = 1;
  assert_ok(gmlake_alloc(lake, 40 * C, LEGACY, &again)); /* what needs no records */
  assert_int_equal(host_fail_in, 0);
  assert_ptr_not_equal(again, window);
  assert_ok(gmlake_free(lake, again, LEGACY));
  assert_ok(gmlake_alloc(lake, 40 * C, LEGACY, &again));
  assert_ptr_equal(again, window);
  lake->records.set_aside = 0;
  drop(again);
  finish();
}

int main(void) { return run_cases("lake"); }
