/* Memory that is created ahead of the first step, the most that a pool held, and
   examples/profile.h, which keeps that from one run to the next. */
#include "fixture.h"

#include "../../examples/profile.h"

#include <unistd.h>

static void reserve(gmlake_pool *pool, size_t bytes) {
  step(gmlake_reserve(lake, pool, bytes, LEGACY));
}

static size_t peak_of(gmlake_pool *pool) {
  gmlake_stats now;
  memset(&now, 0, sizeof(now));
  assert_ok(gmlake_pool_get_stats(lake, pool, &now));
  return now.reserved_bytes_peak;
}

/* ---- Memory ahead ---------------------------------------------------------------------------- */

CASE(a_pool_has_its_own) {
  gmlake_pool *pool;
  start(16);
  pool = open_pool(6 * C);
  reserve(pool, 4 * C);
  assert_int_equal(lake->home.chunks.backed_count, 0);
  assert_int_equal(stats().reserved_bytes, 4 * C);
  reserve(pool, 9 * C); /* as far as its limit goes */
  assert_int_equal(stats().reserved_bytes, 6 * C);
  drop(take_from(pool, 6 * C, LEGACY));
  assert_int_equal(stats().reserved_bytes, 6 * C);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

static int reserve_in_handler(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)user, (void)info;
  assert_error(gmlake_reserve(from, NULL, C, LEGACY), INVALID_ARGUMENT);
  return 0;
}

CASE(a_handler_reserves_nothing) {
  prepare(4);
  desc.oom.fn = reserve_in_handler;
  open_lake();
  step_error(try_on(5 * C, LEGACY), OUT_OF_DEVICE_MEMORY);
  assert_int_equal(stats().reserved_bytes, 0);
  finish();
}

/* ---- The most that a pool held --------------------------------------------------------------- */

CASE(each_pool_has_a_peak) {
  gmlake_pool *pool;
  void *p;
  start(16);
  (void)take(2 * C);
  pool = open_pool(0);
  drop(take_from(pool, 10 * C, LEGACY));
  assert_int_equal(peak_of(pool), 10 * C);
  assert_int_equal(peak_of(NULL), 2 * C);
  p = take_from(pool, 4 * C, LEGACY);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL));
  step(gmlake_reset_peaks(lake));
  assert_int_equal(peak_of(pool), 0);
  step(gmlake_pool_wake(lake, pool));
  assert_int_equal(peak_of(pool), 4 * C);
  drop(p);
  step(gmlake_pool_destroy(lake, pool));
  drop(take(3 * C));
  assert_true(trim_to(0) > 0);
  assert_int_equal(peak_of(NULL), 5 * C);
  step(gmlake_reset_peaks(lake));
  assert_int_equal(peak_of(NULL), 2 * C);
  finish();
}

/* ---- Profiles -------------------------------------------------------------------------------- */

static char path[256];

static void write_text(const char *text, size_t bytes) {
  FILE *file = fopen(path, "w");
  assert_non_null(file);
  assert_int_equal(fwrite(text, 1, bytes, file), bytes);
  assert_int_equal(fclose(file), 0);
}

static int is_profile(const char *text, size_t bytes) {
  size_t peak;
  write_text(text, bytes);
  return profile_read(path, &peak);
}

static int end_path(void **state) {
  (void)state;
  (void)remove(path);
  return 0;
}

CASE_BETWEEN(NULL, end_path, a_profile_tells_what_was_held) {
  size_t bytes = 0;
  start(16);
  assert_int_equal(profile_read(path, &bytes), 0); /* there is none yet */
  drop(take(5 * C));
  assert_int_equal(trim_to(0), 5 * C);
  assert_int_equal(profile_write(path, lake), 1);
  assert_int_equal(profile_read(path, &bytes), 1);
  assert_int_equal(bytes, 5 * C);
  assert_int_equal(profile_write("/nowhere/at/all", lake), 0);
  finish();
}

/* Each end that is missing or one too many, and each byte that is no digit's. */
CASE_BETWEEN(NULL, end_path, other_files_are_no_profiles) {
  static const char whole[] = "gmlake profile 2 peak 327680\n";
  char text[sizeof(whole) + 1];
  size_t i;
  assert_int_equal(is_profile(whole, sizeof(whole) - 1), 1);
  for (i = 0; i + 1 < sizeof(whole); i++) {
    assert_int_equal(is_profile(whole, i), 0);
    memcpy(text, whole, sizeof(whole));
    text[i] = '#';
    assert_int_equal(is_profile(text, sizeof(whole) - 1), 0);
  }
  memcpy(text, whole, sizeof(whole));
  text[sizeof(whole) - 1] = '\n';
  assert_int_equal(is_profile(text, sizeof(whole)), 0);
}

int main(void) {
  (void)snprintf(path, sizeof(path), "%s/test_profile.%d", BUILD, (int)getpid());
  return run_cases("profile");
}
