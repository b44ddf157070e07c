/* What finds errors of the program's, beside the rows of tests/play: writes to free memory, uses
   that the mock is told of, and leaks. That uses which are right are not refused the judge sees, in
   random programs. */
#include "fixture.h"

#include <unistd.h>

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

/* ---- Writes to free memory ---- */

static unsigned told;
static char told_text[160];

static void log_errors(void *user, int level, const gmlake_error_info *info) {
  (void)user;
  if (level != GMLAKE_LOG_ERROR) return;
  assert_int_equal(info->result, GMLAKE_ERROR_CORRUPT);
  memcpy(told_text, info->text, sizeof(told_text));
  told++;
}

static void open_filled(void) {
  told = 0;
  prepare(16);
  desc.flags = GMLAKE_FILL;
  desc.logger.fn = log_errors;
  open_lake();
}

/* The logger was told once of this byte of a block that begins at `ptr`. */
static void assert_told(const char *ptr, size_t byte, size_t bytes) {
  char text[160];
  (void)snprintf(text, sizeof(text),
                 "0x%llx, byte %zu of a new block of %zu at 0x%llx, is 0x07: it was written to "
                 "while it was free",
                 (unsigned long long)(uintptr_t)(ptr + byte), byte, bytes,
                 (unsigned long long)(uintptr_t)ptr);
  assert_int_equal(told, 1);
  assert_string_equal(told_text, text);
  assert_true(is_filled(ptr, bytes, GMLAKE_FILL_NEW));
  told = 0;
}

/* In its first byte, in its last, in a window. */
CASE(a_write_to_free_memory_is_told) {
  const size_t places[] = {0, 1, 700, 2 * C - 1};
  void *b[5];
  char *block;
  size_t i;
  open_filled();
  for (i = 0; i < sizeof(places) / sizeof(places[0]); i++) {
    block = (char *)take(2 * C);
    memset(block, 1, 2 * C);
    drop(block);
    block[places[i]] = 7;
    assert_ptr_equal(take(2 * C), block);
    assert_told(block, places[i], 2 * C);
    drop(block);
  }
  assert_int_equal(last_error().result, GMLAKE_ERROR_CORRUPT);
  (void)trim_to(0);
  block = (char *)take_window(b);
  drop(block);
  assert_int_equal(told, 0);
  block[C + 9] = 7;
  assert_ptr_equal(take(2 * C), block);
  assert_told(block, C + 9, 2 * C);
  drop_these(block, b[0], b[2], b[4]);
  finish();
}

/* Chunks of buffers that blocks share, others not; what was asleep; what graphs write. */
CASE(what_may_be_written_to_is_not_told) {
  gmlake_stream stream;
  gmlake_buffer *buffer;
  gmlake_pool *pool;
  char *block, *kept, *at;
  gmlake_buffer_info info;
  open_filled();
  buffer = open_buffer(4);
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  at = (char *)info.ptr;
  memset(at, 1, C);
  step(gmlake_buffer_resize(lake, buffer, 0, LEGACY));
  at[3] = 7;
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  assert_told(at, 3, C);
  step(gmlake_buffer_destroy(lake, buffer, LEGACY));

  pool = open_pool(0);
  kept = (char *)take_from(pool, 512, LEGACY);
  block = (char *)take_from(pool, 512, LEGACY);
  memset(block, 1, 512);
  memset(kept, 1, 512);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_KEEP, NULL));
  drop(block);
  step(gmlake_pool_wake(lake, pool));
  assert_true(is_filled(kept, 512, 1));
  drop(take_from(pool, C - 512, LEGACY));
  drop(kept);

  stream = open_stream();
  step(gmlake_capture_begin(lake, stream, pool));
  assert_ok(gmlake_mock_capture_begin(mock, stream));
  block = (char *)take_on(C, stream);
  drop_on(block, stream);
  assert_ok(gmlake_mock_capture_end(mock, stream));
  step(gmlake_capture_end(lake, stream));
  memset(block, 1, C); /* a launch */
  step(gmlake_capture_begin(lake, stream, pool));
  assert_ok(gmlake_mock_capture_begin(mock, stream));
  assert_ptr_equal(take_on(C, stream), block);
  drop_on(block, stream);
  assert_ok(gmlake_mock_capture_end(mock, stream));
  step(gmlake_capture_end(lake, stream));
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(told, 0);
  finish();
}

/* ---- Uses that the mock is told of ---- */

static gmlake_result use(const void *ptr, size_t bytes, gmlake_stream stream) {
  const gmlake_result result = gmlake_mock_use(mock, lake, ptr, bytes, stream);
  assert_ok(gmlake_check(lake));
  return result;
}

/* What the last error says: `format` with these addresses and streams. */
#define assert_says(...)                               \
  do {                                                 \
    char text_[160];                                   \
    (void)snprintf(text_, sizeof(text_), __VA_ARGS__); \
    assert_string_equal(last_error().text, text_);     \
  } while (0)
#define NUMBER(x) (unsigned long long)(uintptr_t)(x)

/* The work of `waiting` from now on is behind that of `of` so far. */
static void order(gmlake_stream waiting, gmlake_stream of) {
  void *event = NULL;
  int code = 0;
  assert_ok(mock->event_create(mock->user, &event, &code));
  assert_ok(mock->event_record(mock->user, event, of, &code));
  assert_ok(mock->stream_wait(mock->user, waiting, event, &code));
  assert_ok(mock->event_destroy(mock->user, event, &code));
}

static void wait_for_device(void) {
  int code = 0;
  assert_ok(mock->device_wait(mock->user, &code));
}

static gmlake_stream first, second;

static void open_uses(void) {
  prepare(16);
  open_lake();
  first = open_stream();
  second = open_stream();
}

/* Each of the ways in which it may be ordered, and none. */
CASE(a_stream_has_to_be_recorded_or_waited_for) {
  enum { NOT, RECORDED, WAITED, BY_THE_HOST, BY_ANOTHER, FINISHED, WAYS };
  int way;
  open_uses();
  for (way = 0; way < WAYS; way++) {
    char *block = (char *)take_on(C, first);
    assert_ok(use(block, C, first));
    order(second, first);
    assert_ok(use(block + 512, 100, second));
    if (way == RECORDED) step(gmlake_record_stream(lake, block, second));
    if (way == WAITED) order(first, second);
    if (way == BY_THE_HOST) wait_for_device();
    if (way == FINISHED) gmlake_mock_stream_finish(mock, first);
    if (way == FINISHED) gmlake_mock_stream_finish(mock, second);
    if (way == BY_ANOTHER) { /* a third one is recorded, and waits for the second */
      order(LEGACY, second);
      step(gmlake_record_stream(lake, block, LEGACY));
    }
    if (way == NOT) {
      assert_int_equal(gmlake_free(lake, block, first), GMLAKE_ERROR_INVALID_ARGUMENT);
      assert_says(
          "stream 0x%llx may still use 0x%llx, byte 512: call gmlake_record_stream for it "
          "before, or let this stream wait for it",
          NUMBER(second), NUMBER(block + 512));
      assert_string_equal(last_error().call, "gmlake_free");
      assert_int_equal(gmlake_free(lake, block, NONE), GMLAKE_ERROR_INVALID_ARGUMENT);
      assert_says(
          "stream 0x%llx may still use 0x%llx, byte 0: call gmlake_record_stream for it "
          "before, or let the host wait for it",
          NUMBER(first), NUMBER(block));
      assert_int_equal(stats().live_count, 1);
      wait_for_device();
    }
    drop_on(block, way == BY_THE_HOST ? NONE : first);
    wait_for_device();
  }
  finish();
}

/* Freed; behind the end; a piece's home under a window; a stream that is not behind the block's;
   none; a pool that sleeps. Nothing is queued. */
CASE(what_a_kernel_may_not_touch_is_refused) {
  gmlake_pool *pool;
  void *b[5];
  char *block, *home;
  open_uses();
  block = (char *)take_on(C, first);
  assert_ok(use(block, C, first));
  assert_int_equal(use(block + 512, C, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_says(
      "stream 0x%llx uses %zu bytes from 0x%llx on: of these the live block or buffer there, "
      "if there is one, has %zu",
      NUMBER(first), C, NUMBER(block + 512), C - 512);
  drop_on(block, first);
  assert_int_equal(use(block, 8, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_says(
      "stream 0x%llx uses 8 bytes from 0x%llx on: of these the live block or buffer there, if "
      "there is one, has 0",
      NUMBER(first), NUMBER(block));
  assert_ptr_equal(take_on(C, first), block);
  assert_int_equal(use(block, 8, second), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_says(
      "stream 0x%llx has to wait for stream 0x%llx, which used 0x%llx before: let it wait "
      "for the stream that the block was allocated on",
      NUMBER(second), NUMBER(first), NUMBER(block));
  order(second, first);
  assert_ok(use(block, 8, second));
  assert_int_equal(use(block, 8, (gmlake_stream)(uintptr_t)6400), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_says("the mock has no stream 0x1900");
  assert_int_equal(gmlake_mock_use(mock, NULL, block, 8, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  wait_for_device();
  drop_on(block, NONE);
  (void)trim_to(0);

  block = (char *)take_window(b);
  home = (char *)piece(block, 0).home;
  assert_ok(use(block, 2 * C, LEGACY));
  assert_int_equal(use(home, 8, LEGACY), GMLAKE_ERROR_INVALID_ARGUMENT);
  drop_these(block, b[0], b[2], b[4]);

  pool = open_pool(0);
  block = (char *)take_from(pool, C, LEGACY);
  step(gmlake_pool_sleep(lake, pool, GMLAKE_SLEEP_DROP, NULL));
  assert_int_equal(use(block, 8, LEGACY), GMLAKE_ERROR_ASLEEP);
  assert_int_equal(use(block, 8, (gmlake_stream)(uintptr_t)6400), GMLAKE_ERROR_ASLEEP);
  assert_non_null(strstr(last_error().text, "sleep"));
  step(gmlake_pool_wake(lake, pool));
  step(gmlake_capture_begin(lake, first, pool));
  assert_ok(gmlake_mock_capture_begin(mock, first));
  assert_ok(use(block, 8, first)); /* a launch's, not now */
  assert_int_equal(use(block, 8, LEGACY), GMLAKE_ERROR_CAPTURING);
  assert_says("a capture forbids work on the legacy stream: end that capture first");
  assert_int_equal(gmlake_mock_capture_end(mock, first), GMLAKE_ERROR_CAPTURING);
  step(gmlake_capture_end(lake, first));
  drop_on(block, LEGACY);
  step(gmlake_pool_destroy(lake, pool));
  finish();
}

CASE(a_buffer_shrinks_behind_its_uses) {
  gmlake_buffer *buffer;
  gmlake_buffer_info info;
  gmlake_pool *pool;
  char *at;
  open_uses();
  buffer = open_buffer(4);
  step(gmlake_buffer_commit(lake, buffer, C, 2 * C, NULL, first));
  assert_ok(gmlake_buffer_get_info(lake, buffer, &info));
  at = (char *)info.ptr;
  assert_int_equal(use(at, 8, first), GMLAKE_ERROR_INVALID_ARGUMENT); /* a hole */
  assert_int_equal(use(at + 3 * C - 8, 16, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_ok(use(at + C, 2 * C, first));
  order(second, first);
  assert_ok(use(at + 2 * C, 8, second));
  step(gmlake_buffer_discard(lake, buffer, C, C, first)); /* the other chunk */
  assert_int_equal(gmlake_buffer_resize(lake, buffer, 0, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  assert_string_equal(last_error().call, "gmlake_buffer_resize");
  assert_int_equal(gmlake_buffer_destroy(lake, buffer, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  pool = open_pool(0); /* what is refused for another reason ends nothing */
  step(gmlake_capture_begin(lake, second, pool));
  assert_int_equal(gmlake_buffer_resize(lake, buffer, 0, second), GMLAKE_ERROR_CAPTURING);
  step(gmlake_capture_end(lake, second));
  step(gmlake_pool_destroy(lake, pool));
  assert_int_equal(gmlake_buffer_destroy(lake, buffer, first), GMLAKE_ERROR_INVALID_ARGUMENT);
  step(gmlake_buffer_destroy(lake, buffer, second));
  finish();
}

/* ---- Leaks ---- */

#if !defined(NDEBUG)
/* Without a logger: how many, in one line. */
CASE(leaks_are_told_without_a_logger) {
  char text[256] = "";
  int ends[2], former;
  prepare(16);
  open_lake();
  (void)take(C);
  (void)take(100);
  (void)open_buffer(1);
  assert_int_equal(pipe(ends), 0);
  former = dup(2);
  assert_int_equal(dup2(ends[1], 2), 2);
  assert_ok(gmlake_destroy(lake));
  assert_int_equal(dup2(former, 2), 2);
  (void)close(former);
  (void)close(ends[1]);
  assert_true(read(ends[0], text, sizeof(text) - 1) > 0);
  (void)close(ends[0]);
  assert_string_equal(text,
                      "gmlake_destroy: 2 blocks and 1 buffers, 66048 bytes, were never freed: "
                      "desc.logger is told which\n");
  close_mock();
}
#endif

int main(void) { return run_cases("debug"); }
