/* examples/metrics.h: every line is one that Prometheus reads, the figures are those of the lake
   and its pools, and what does not fit, or does not answer, is told. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdarg.h>
#include <stddef.h>
#include <stdio.h>
#include <string.h>

/* A locale whose decimal point is another text. The system may have none. */
static const char *decimal_point = ".";

static int local_vsnprintf(char *out, size_t capacity, const char *format, va_list values) {
  const int bytes = vsnprintf(out, capacity, format, values);
  char *point = strstr(format, "%.15g") ? strchr(out, '.') : NULL;
  const size_t more = strlen(decimal_point) - 1;
  if (!point) return bytes;
  memmove(point + 1 + more, point + 1, strlen(point + 1) + 1);
  memcpy(point, decimal_point, more + 1);
  return bytes + (int)more;
}
static int local_snprintf(char *out, size_t capacity, const char *format, ...) {
  va_list values;
  int bytes;
  va_start(values, format);
  bytes = local_vsnprintf(out, capacity, format, values);
  va_end(values);
  return bytes;
}
#define snprintf local_snprintf
#define vsnprintf local_vsnprintf
#include "examples/metrics.h"
#undef snprintf
#undef vsnprintf

#include "fixture.h"

#include <sys/wait.h>
#include <unistd.h>

#define MIB ((size_t)1 << 20)

static gmlake_pool *pool;
static gmlake_metrics_pool pools[1];
static char text[16384];

static int set_up(void **state) {
  (void)state;
  prepare_books(256 * MIB, 0, GMLAKE_MOCK_COSTS_ALONE);
  desc.limit_bytes = 64 * MIB;
  desc.chunk_bytes = 2 * MIB;
  open_lake();
  pools[0].name = "a \"b\"\\\n";
  pools[0].pool = pool = open_pool(0);
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  finish();
  return 0;
}

static void write_all(void) {
  const size_t bytes = gmlake_metrics_write(lake, "gpu0", pools, 1, text, sizeof text);
  assert_true(bytes > 0 && bytes <= sizeof text);
  assert_int_equal(strlen(text) + 1, bytes);
}

/* The value of the line that begins so. */
static double value_of(const char *line) {
  const char *at = strstr(text, line);
  assert_non_null(at);
  assert_true(at == text || at[-1] == '\n');
  return strtod(at + strlen(line), NULL);
}

CASE_BETWEEN(set_up, tear_down, figures_are_by_pool) {
  (void)take(1000);
  (void)take_from(pool, 3 * MIB, LEGACY);
  drop(take(512));
  assert_error(try_on(100 * MIB, LEGACY), LIMIT_REACHED);
  write_all();
  assert_int_equal(value_of("gmlake_live_bytes{lake=\"gpu0\",pool=\"\"} "), 1024);
  assert_int_equal(value_of("gmlake_requested_bytes{lake=\"gpu0\",pool=\"\"} "), 1000);
  assert_int_equal(value_of("gmlake_live_bytes{lake=\"gpu0\",pool=\"a \\\"b\\\"\\\\\\n\"} "),
                   3 * MIB);
  assert_int_equal(value_of("gmlake_reserved_bytes{lake=\"gpu0\",pool=\"\"} "), 2 * MIB);
  assert_int_equal(value_of("gmlake_reserved_bytes{lake=\"gpu0\",pool=\"a \\\"b\\\"\\\\\\n\"} "),
                   4 * MIB);
  assert_int_equal(value_of("gmlake_allocations_total{lake=\"gpu0\"} "), 3);
  assert_int_equal(value_of("gmlake_frees_total{lake=\"gpu0\"} "), 1);
  assert_int_equal(value_of("gmlake_attempts_total{lake=\"gpu0\",end=\"failed\"} "), 1);
  assert_int_equal(value_of("gmlake_out_of_memory_total{lake=\"gpu0\"} "), 1);
  assert_int_equal(value_of("gmlake_limit_bytes{lake=\"gpu0\"} "), 64 * MIB);
  assert_int_equal(value_of("gmlake_device_bytes{lake=\"gpu0\"} "), 256 * MIB);
  assert_true(value_of("gmlake_driver_calls_total{lake=\"gpu0\"} ") > 0);
  assert_true(value_of("gmlake_driver_seconds_total{lake=\"gpu0\"} ") > 0);
  assert_true(value_of("gmlake_driver_seconds_total{lake=\"gpu0\"} ") < 1);
}

/* A pool NULL in the list: its name, and no second line, so the sum over pools is the lake's. */
CASE_BETWEEN(set_up, tear_down, what_is_in_no_pool_counts_once) {
  gmlake_metrics_pool both[2];
  const char *at = text;
  unsigned lines = 0;
  both[0] = pools[0];
  memset(&both[1], 0, sizeof both[1]);
  both[1].name = "rest";
  (void)take(1000);
  assert_true(gmlake_metrics_write(lake, "gpu0", both, 2, text, sizeof text) > 0);
  assert_int_equal(value_of("gmlake_live_bytes{lake=\"gpu0\",pool=\"rest\"} "), 1024);
  assert_null(strstr(text, "pool=\"\""));
  while ((at = strstr(at, "\ngmlake_live_bytes{")) != NULL) at++, lines++;
  assert_int_equal(lines, 2);
}

/* A comment with HELP, then one with TYPE, then the lines of that name. */
CASE_BETWEEN(set_up, tear_down, every_line_is_well_formed) {
  char name[64] = "", type[64] = "", line[512];
  const char *at = text;
  write_all();
  while (*at) {
    const size_t length = strcspn(at, "\n");
    const size_t word = strlen(name);
    char *end;
    assert_true(at[length] == '\n' && length < sizeof line);
    memcpy(line, at, length);
    line[length] = '\0';
    at += length + 1;
    if (sscanf(line, "# HELP %63s", name) == 1) continue;
    if (sscanf(line, "# TYPE %*s %63s", type) == 1) {
      const int counts = strlen(name) > 6 && !strcmp(name + strlen(name) - 6, "_total");
      assert_string_equal(type, counts ? "counter" : "gauge");
      continue;
    }
    assert_memory_equal(line, name, word);
    assert_memory_equal(line + word, "{lake=\"gpu0\"", 12);
    (void)strtod(strrchr(line, '}') + 1, &end);
    assert_true(!*end);
  }
}

/* Each call asks the driver, so that one figure grows: it may get a digit more. */
CASE_BETWEEN(set_up, tear_down, a_buffer_that_is_too_small_is_told) {
  char small[100];
  size_t bytes;
  write_all();
  memset(small, 0x5A, sizeof small);
  bytes = gmlake_metrics_write(lake, "gpu0", pools, 1, small, sizeof small - 1);
  assert_in_range(bytes, strlen(text) + 1, strlen(text) + 32);
  assert_memory_equal(small, text, sizeof small - 2);
  assert_int_equal(small[sizeof small - 2], 0);
  assert_int_equal(small[sizeof small - 1], 0x5A);
  assert_in_range(gmlake_metrics_write(lake, "gpu0", pools, 1, NULL, 0), bytes, bytes + 32);
}

CASE_BETWEEN(set_up, tear_down, a_child_of_fork_has_none) {
  pid_t child;
  int status;
  child = fork();
  if (!child) _exit(gmlake_metrics_write(lake, "gpu0", pools, 1, text, sizeof text) ? 0 : 7);
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFEXITED(status) && WEXITSTATUS(status) == 7);
}

/* Also one of two bytes, as some locales have. */
CASE_BETWEEN(set_up, tear_down, a_number_has_a_point_in_every_locale) {
  static const char *const points[] = {",", "\xd9\xab"};
  size_t i;
  for (i = 0; i < 2; i++) {
    decimal_point = points[i];
    write_all();
    decimal_point = ".";
    assert_true(value_of("gmlake_driver_seconds_total{lake=\"gpu0\"} ") > 0);
    assert_true(value_of("gmlake_driver_seconds_total{lake=\"gpu0\"} ") < 1);
  }
}

/* Its label is not that of what is in no pool. */
CASE_BETWEEN(set_up, tear_down, a_pool_without_a_name_has_a_label) {
  const char *at;
  pools[0].name = "";
  write_all();
  at = strstr(text, "gmlake_live_bytes{lake=\"gpu0\",pool=\"\"} ");
  assert_non_null(at);
  assert_null(strstr(at + 1, "gmlake_live_bytes{lake=\"gpu0\",pool=\"\"} "));
  assert_int_equal(value_of("gmlake_live_bytes{lake=\"gpu0\",pool=\"pool 1\"} "), 0);
}

int main(void) { return run_cases("metrics"); }
