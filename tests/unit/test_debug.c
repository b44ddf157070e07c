/* What finds errors of the program's, beside the rows of tests/play/misuse_rows.h: memory that
   waits is filled later, and guards lie behind windows. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"

#include <signal.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

static void open_with(unsigned flags) {
  prepare(16);
  desc.flags = flags;
  open_lake();
}

static int is_filled(const void *ptr, size_t bytes, unsigned byte) {
  const unsigned char *at = (const unsigned char *)ptr;
  while (bytes && *at == byte) at++, bytes--;
  return bytes == 0;
}

/* A window of a tail and a head, with a block between them. */
static void *take_window(void **b) {
  lay(b, 5);
  drop(b[1]);
  drop(b[3]);
  return take(2 * C);
}

static void what_streams_still_use_is_not_filled(void **state) {
  gmlake_stream other;
  char *block;
  (void)state;
  open_with(GMLAKE_FILL);
  other = open_stream();
  block = (char *)take(C);
  memset(block, 1, C);
  step(gmlake_record_stream(lake, block, other));
  gmlake_mock_stream_hold(mock, other);
  drop(block);
  assert_true(is_filled(block, C, 1));
  gmlake_mock_stream_finish(mock, other);
  (void)trim_to(C);
  assert_true(is_filled(block, C, GMLAKE_FILL_FREE));
  finish();
}

/* Non-zero: a child that writes there dies of it. */
static int writing_kills(char *at) {
  const struct rlimit none = {0, 0};
  int status = 0;
  const pid_t child = fork();
  assert_true(child >= 0);
  if (!child) {
    (void)setrlimit(RLIMIT_CORE, &none);
    (void)signal(SIGSEGV, SIG_DFL);
    *(volatile char *)at = 1;
    _exit(0);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  return WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV;
}

static void a_guard_lies_behind_each_window(void **state) {
  void *b[5];
  char *first, *second;
  (void)state;
  open_with(GMLAKE_GUARD);
  first = (char *)take_window(b);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  second = (char *)take_flags(2 * C, GMLAKE_NO_STITCH);
  drop(second);
  assert_false(writing_kills(first + 2 * C - 1));
  assert_true(writing_kills(first + 2 * C));
  second = (char *)take(3 * C);
  assert_int_equal(stats().window_count, 2);
  assert_true(second - first >= (ptrdiff_t)(3 * C) || first - second >= (ptrdiff_t)(4 * C));
  assert_true(writing_kills(second + 3 * C));
  drop(first);
  drop(second);
  (void)trim_to(0);
  assert_int_equal(stats().window_count, 0);
  finish();
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(what_streams_still_use_is_not_filled),
      cmocka_unit_test(a_guard_lies_behind_each_window),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
