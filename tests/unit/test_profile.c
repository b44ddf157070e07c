/* The first step: profiles, what they are as text, memory that is created ahead of it, and handles
   of several chunks. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

static gmlake_profile profile_of(size_t resident_chunks, size_t peak_chunks) {
  gmlake_profile profile;
  memset(&profile, 0, sizeof(profile));
  profile.resident_bytes = resident_chunks * C;
  profile.peak_bytes = peak_chunks * C;
  profile.handle_bytes = 4 * C;
  profile.large_percent = 100;
  return profile;
}

static void prewarm(gmlake_profile profile) { step(gmlake_prewarm(lake, &profile, LEGACY)); }

static gmlake_profile taken(void) {
  gmlake_profile profile;
  profile.struct_bytes = 0;
  assert_ok(gmlake_profile_take(lake, &profile));
  return profile;
}

/* ---- What is learnt -------------------------------------------------------------------------- */

static void a_profile_tells_what_stays_and_the_peak(void **state) {
  void *stays, *goes;
  (void)state;
  start(16);
  stays = take(3 * C);
  goes = take(5 * C);
  drop(goes);
  assert_int_equal(taken().resident_bytes, 3 * C);
  assert_int_equal(taken().peak_bytes, 8 * C);
  step(gmlake_trim(lake, 0, NULL));
  assert_int_equal(taken().peak_bytes, 8 * C);
  assert_ok(gmlake_reset_peaks(lake));
  assert_int_equal(taken().peak_bytes, 3 * C);
  drop(stays);
  assert_int_equal(taken().resident_bytes, 0);
  finish();
}

static void pools_and_buffers_do_not_count(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  void *block;
  (void)state;
  is_apart = 1;
  start(16);
  is_apart = 0;
  pool = open_pool(0);
  buffer = open_buffer(2);
  step(gmlake_buffer_resize(lake, buffer, 2 * C, LEGACY));
  wanted = request(3 * C, 0, pool);
  block = take_with(&wanted, LEGACY);
  assert_int_equal(taken().peak_bytes, 0);
  assert_int_equal(taken().resident_bytes, 0);
  drop(block);
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static void an_older_callers_struct_is_not_overrun(void **state) {
  gmlake_profile old, untouched;
  (void)state;
  start(16);
  memset(&old, 0x5A, sizeof(old));
  untouched = old;
  old.struct_bytes = offsetof(gmlake_profile, peak_bytes);
  assert_ok(gmlake_profile_take(lake, &old));
  assert_int_equal(old.resident_bytes, 0);
  assert_int_equal(old.peak_bytes, untouched.peak_bytes);
  assert_int_equal(old.large_percent, untouched.large_percent);
  finish();
}

/* ---- Text ------------------------------------------------------------------------------------ */

static const char whole[] =
    "gmlake profile 1\nresident_bytes 262144\npeak_bytes 524288\nhandle_bytes 262144\n"
    "large_percent 100\nsum 4907185250115803911\n";

static gmlake_result load(const char *text, size_t bytes, gmlake_profile *out) {
  memset(out, 0, sizeof(*out));
  return gmlake_profile_load(text, bytes, out);
}

static void a_text_reads_as_it_was_written(void **state) {
  const gmlake_profile profile = profile_of(4, 8);
  char text[GMLAKE_PROFILE_TEXT_BYTES];
  gmlake_profile again;
  (void)state;
  assert_ok(gmlake_profile_save(&profile, text, sizeof(text)));
  assert_string_equal(text, whole);
  assert_ok(load(text, strlen(text), &again));
  assert_int_equal(again.resident_bytes, profile.resident_bytes);
  assert_int_equal(again.peak_bytes, profile.peak_bytes);
  assert_int_equal(again.handle_bytes, profile.handle_bytes);
  assert_int_equal(again.large_percent, profile.large_percent);
  assert_ok(load(text, strlen(text) + 1, &again)); /* with its end */
}

static void the_largest_numbers_fit_the_text(void **state) {
  gmlake_profile profile = profile_of(0, 0), again;
  char text[GMLAKE_PROFILE_TEXT_BYTES];
  (void)state;
  profile.resident_bytes = profile.peak_bytes = profile.handle_bytes = SIZE_MAX;
  assert_ok(gmlake_profile_save(&profile, text, sizeof(text)));
  assert_true(strlen(text) < sizeof(text) - 1);
  assert_ok(load(text, strlen(text), &again));
  assert_true(again.peak_bytes == SIZE_MAX);
}

/* Each byte that is another one or missing, and each end that is missing or one too many. */
static void a_damaged_text_is_refused(void **state) {
  char text[sizeof(whole) + 1];
  gmlake_profile profile;
  size_t i;
  int c;
  (void)state;
  for (i = 0; i + 1 < sizeof(whole); i++) {
    for (c = 1; c < 256; c++) {
      memcpy(text, whole, sizeof(whole));
      text[i] = (char)(text[i] ^ c);
      assert_int_not_equal(load(text, sizeof(whole) - 1, &profile), GMLAKE_OK);
    }
    memcpy(text, whole, i);
    memcpy(text + i, whole + i + 1, sizeof(whole) - i - 1);
    assert_int_not_equal(load(text, sizeof(whole) - 2, &profile), GMLAKE_OK);
    assert_int_not_equal(load(whole, i, &profile), GMLAKE_OK);
  }
  memcpy(text, whole, sizeof(whole));
  memcpy(text + sizeof(whole) - 1, "\n", 2);
  assert_int_not_equal(load(text, sizeof(whole), &profile), GMLAKE_OK);
  assert_int_equal(profile.peak_bytes, 0);
}

static void other_texts_are_refused(void **state) {
  static const char newer[] = "gmlake profile 2\nresident_bytes 1\n", other[] = "{\"peak\": 1}";
  gmlake_profile profile;
  (void)state;
  assert_error(load(newer, sizeof(newer) - 1, &profile), UNSUPPORTED);
  assert_error(load(other, sizeof(other) - 1, &profile), INVALID_ARGUMENT);
  assert_error(load("", 0, &profile), INVALID_ARGUMENT);
  assert_error(load("\0", 1, &profile), INVALID_ARGUMENT);
}

/* ---- Memory ahead ---------------------------------------------------------------------------- */

static void what_stays_has_large_handles_and_comes_first(void **state) {
  uint64_t calls;
  void *block;
  (void)state;
  start(16);
  prewarm(profile_of(8, 11));
  assert_int_equal(stats().reserved_bytes, 11 * C);
  assert_int_equal(stats().chunk_count, 5); /* two of four chunks, three of one */
  assert_int_equal(census().handle_count, 5);
  calls = stats().driver_call_count;
  block = take(11 * C);
  assert_true((uint64_t)(uintptr_t)block == gmlk_home(&lake->home, 0));
  assert_int_equal(stats().driver_call_count, calls);
  drop(block);
  finish();
}

static void what_is_there_is_not_created_again(void **state) {
  void *block;
  (void)state;
  start(16);
  block = take(3 * C);
  prewarm(profile_of(5, 8));
  assert_int_equal(stats().reserved_bytes, 8 * C);
  assert_int_equal(stats().chunk_count, 3 + 1 + 3); /* of the two that stay one handle */
  prewarm(profile_of(5, 8));
  prewarm(profile_of(1, 2));
  prewarm(profile_of(0, 0));
  assert_int_equal(stats().reserved_bytes, 8 * C);
  drop(block);
  finish();
}

static void the_share_bounds_what_large_handles_hold(void **state) {
  gmlake_profile wrong = profile_of(1000, 12); /* more stays than there ever was */
  (void)state;
  start(16);
  wrong.large_percent = 50;
  prewarm(wrong);
  assert_int_equal(stats().reserved_bytes, 12 * C);
  assert_int_equal(stats().chunk_count, 1 + 1 + 6); /* four, two; one each */
  finish();
}

static void without_a_share_every_chunk_has_a_handle(void **state) {
  gmlake_profile profile = profile_of(8, 8);
  (void)state;
  start(16);
  profile.large_percent = 0;
  prewarm(profile);
  assert_int_equal(stats().chunk_count, 8);
  finish();
}

/* Of a wrong profile nothing but large handles stays, each as long as one block lives in it. */
static void trim_returns_what_was_foretold_in_vain(void **state) {
  size_t released = 0;
  void *block;
  (void)state;
  start(32);
  prewarm(profile_of(12, 24));
  block = take(512);
  step(gmlake_trim(lake, 0, &released));
  assert_int_equal(released, 20 * C);
  assert_int_equal(stats().chunk_count, 1);
  drop(block);
  step(gmlake_trim(lake, 0, NULL));
  assert_int_equal(stats().reserved_bytes, 0);
  finish();
}

static void a_foreign_profile_takes_what_the_device_has(void **state) {
  gmlake_profile foreign = profile_of(0, 0);
  (void)state;
  start(16);
  foreign.resident_bytes = SIZE_MAX / 2;
  foreign.peak_bytes = SIZE_MAX;
  prewarm(foreign);
  assert_int_equal(stats().reserved_bytes, 16 * C);
  prewarm(foreign);
  finish();
}

static void limits_hold(void **state) {
  (void)state;
  prepare(16);
  desc.limit_bytes = 6 * C + 1;
  open_lake();
  prewarm(profile_of(8, 16));
  assert_int_equal(stats().reserved_bytes, 6 * C);
  assert_int_equal(stats().oom_count, 0);
  finish();
}

static void memory_for_others_is_left(void **state) {
  (void)state;
  prepare(16);
  desc.driver_free_bytes_min = 6 * C;
  open_lake();
  prewarm(profile_of(8, 16));
  assert_int_equal(stats().reserved_bytes, 10 * C);
  finish();
}

/* An exported handle shows all of it. */
static void exported_handles_are_of_one_chunk(void **state) {
  (void)state;
  prepare(16);
  desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
  desc.handle_bytes = 4 * C;
  open_lake();
  prewarm(profile_of(8, 8));
  assert_int_equal(stats().chunk_count, 8);
  drop(take(12 * C));
  assert_int_equal(stats().chunk_count, 12);
  finish();
}

static void a_failure_leaves_nothing(void **state) {
  static const int kinds[] = {ON_CREATE, ON_MAP, ON_ACCESS, ON_MEMORY_INFO};
  const gmlake_profile profile = profile_of(8, 11);
  size_t kind, at, failed;
  (void)state;
  for (kind = 0; kind < sizeof(kinds) / sizeof(kinds[0]); kind++) {
    for (at = 1, failed = 1; failed; at++) {
      start_with_faults(16);
      fail_call(kinds[kind], (long)at, GMLAKE_ERROR_DRIVER, 0);
      failed = gmlake_prewarm(lake, &profile, LEGACY) != GMLAKE_OK;
      faults[kinds[kind]].in = 0;
      assert_ok(gmlake_check(lake));
      assert_int_equal(stats().reserved_bytes, failed ? 0 : 11 * C);
      assert_int_equal(census().handle_count, failed ? 0 : 5);
      finish();
    }
    assert_true(at > 2);
  }
}

/* ---- Handles of several chunks --------------------------------------------------------------- */

/* What a pool held once counted as the default pool's. */
static void the_past_of_a_pool_does_not_count(void **state) {
  gmlake_profile profile;
  gmlake_pool *pool;
  (void)state;
  start(16);
  (void)take(2 * C);
  pool = open_pool(0);
  drop(take_from(pool, 10 * C, LEGACY));
  step(gmlake_pool_destroy(lake, pool));
  memset(&profile, 0, sizeof(profile));
  step(gmlake_profile_take(lake, &profile));
  assert_int_equal(profile.peak_bytes, 2 * C);
  drop(take(3 * C));
  assert_true(trim_to(0) > 0);
  step(gmlake_profile_take(lake, &profile));
  assert_int_equal(profile.peak_bytes, 5 * C);
  step(gmlake_reset_peaks(lake));
  step(gmlake_profile_take(lake, &profile));
  assert_int_equal(profile.peak_bytes, 2 * C);
  finish();
}

static void chunks_of_a_block_are_listed_by_handle(void **state) {
  gmlake_chunk_info list[4];
  gmlake_map_entry map[16];
  char *front, *block;
  size_t count, i, handles = 0;
  (void)state;
  prepare(16);
  desc.handle_bytes = 4 * C;
  open_lake();
  front = (char *)take(C / 2);
  block = (char *)take(6 * C);
  assert_ok(gmlake_get_chunks(lake, block, list, 4, &count));
  assert_int_equal(count, 4);
  assert_int_equal(list[0].bytes, C / 2); /* the rest of front's */
  assert_int_equal(list[1].bytes, 4 * C);
  assert_int_equal(list[1].offset_bytes, 0);
  assert_int_equal(list[3].bytes, C / 2);
  assert_ok(gmlake_get_map(lake, map, 16, &count));
  for (i = 0; i < count; i++)
    if (map[i].kind == GMLAKE_KIND_CHUNK) handles++;
  assert_int_equal(handles, stats().chunk_count);
  drop(block);
  drop(front);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(a_profile_tells_what_stays_and_the_peak),
      cmocka_unit_test(pools_and_buffers_do_not_count),
      cmocka_unit_test(an_older_callers_struct_is_not_overrun),
      cmocka_unit_test(a_text_reads_as_it_was_written),
      cmocka_unit_test(the_largest_numbers_fit_the_text),
      cmocka_unit_test(a_damaged_text_is_refused),
      cmocka_unit_test(other_texts_are_refused),
      cmocka_unit_test(what_stays_has_large_handles_and_comes_first),
      cmocka_unit_test(what_is_there_is_not_created_again),
      cmocka_unit_test(the_share_bounds_what_large_handles_hold),
      cmocka_unit_test(without_a_share_every_chunk_has_a_handle),
      cmocka_unit_test(trim_returns_what_was_foretold_in_vain),
      cmocka_unit_test(a_foreign_profile_takes_what_the_device_has),
      cmocka_unit_test(limits_hold),
      cmocka_unit_test(memory_for_others_is_left),
      cmocka_unit_test(exported_handles_are_of_one_chunk),
      cmocka_unit_test(a_failure_leaves_nothing),
      cmocka_unit_test(the_past_of_a_pool_does_not_count),
      cmocka_unit_test(chunks_of_a_block_are_listed_by_handle),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
