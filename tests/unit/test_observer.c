/* desc.observer: every kind of event, in scenarios whose events are compared one by one, and long
   random programs whose events have to add up to the lake's own figures.

   An event is written as a line: kind, state, request, address, bytes, bytes asked for, stream,
   reason, and what is reserved and active after it. Bytes are those of grains (512
   bytes, 128 a chunk), reserved ones of chunks; an address is an offset in the home arena (h), the
   windows' (w) or a pool's (p), 0 being none. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include "fixture.h"
#include "patience.h"

#include "every_call.h"
#include "policy_paper.h"

#include <pthread.h>
#include <unistd.h>

#define LINE 256
#define LINES 64

static gmlake_stream A, B;
static gmlake_pool *pool;

/* ---- Events as text -------------------------------------------------------------------------- */

static gmlake_step events[LINES];
static size_t event_count;

static void note(void *user, const gmlake_step *event) {
  if (user != &events) abort();
  if (event_count < LINES) events[event_count] = *event;
  event_count++;
}

static const char *kind_name(gmlake_step_kind kind) {
  static const char *const names[] = {"?",     "ALLOC",  "FREE",   "SPLIT",   "STITCH",
                                      "REUSE", "EVICT",  "GROW",   "WAIT",    "TRIM",
                                      "USE",   "BUFFER", "COMMIT", "DISCARD", "END"};
  return names[kind > GMLAKE_STEP_END ? 0 : kind];
}

static void address_text(char *out, size_t bytes, uint64_t address) {
  const gmlk_arena *arenas[2];
  size_t i;
  arenas[0] = &lake->home;
  arenas[1] = pool ? &pool->arena : NULL;
  (void)snprintf(out, bytes, "%s", address ? "elsewhere" : "0");
  for (i = 0; i < 2 && arenas[i]; i++) {
    const gmlk_arena *a = arenas[i];
    const gmlk_extent *home = gmlk_area_find(&a->area, a->chunk_bytes, address);
    const gmlk_extent *windows = gmlk_area_find(&a->window_space.area, a->chunk_bytes, address);
    if (home)
      (void)snprintf(out, bytes, "%c%u", i ? 'p' : 'h', (unsigned)((address - home->base) / 512));
    else if (windows)
      (void)snprintf(out, bytes, "%s%u", i ? "pw" : "w",
                     (unsigned)((address - windows->base) / 512));
  }
}

static void event_text(char *out, const gmlake_step *e) {
  const char *stream = e->stream == NONE     ? "NONE"
                       : e->stream == LEGACY ? "LEGACY"
                       : e->stream == A      ? "A"
                       : e->stream == B      ? "B"
                                             : "?";
  char address[32];
  assert_non_null(e->reason);
  assert_int_equal(e->bytes % 512, 0);
  assert_int_equal(e->reserved_bytes % C, 0);
  address_text(address, sizeof(address), e->address);
  (void)snprintf(out, LINE, "%s %u #%u %s %u/%lu %s: %s; %u %u", kind_name(e->kind), e->state,
                 (unsigned)e->request, address, (unsigned)(e->bytes / 512),
                 (unsigned long)e->asked_bytes, stream, e->reason,
                 (unsigned)(e->reserved_bytes / C), (unsigned)(e->active_bytes / 512));
}

/* The events since the last call. */
#define expect(...)                                                              \
  do {                                                                           \
    static const char *const wanted_lines[] = {__VA_ARGS__};                     \
    expect_lines(wanted_lines, sizeof(wanted_lines) / sizeof(char *), __LINE__); \
  } while (0)

static void expect_lines(const char *const *wanted, size_t count, int line) {
  size_t i;
  int differs = event_count != count;
  assert_true(event_count <= LINES);
  for (i = 0; i < event_count; i++) {
    char text[LINE];
    event_text(text, &events[i]);
    differs = differs || strcmp(text, wanted[i]) != 0;
    if (differs) print_message("line %d: event %u is \"%s\"\n", line, (unsigned)i, text);
  }
  if (differs) fail_msg("line %d: %u events, not as expected", line, (unsigned)event_count);
  event_count = 0;
}

static void nothing_told(void) {
  if (event_count) expect_lines(NULL, 0, 0);
}

static void forget(void) { event_count = 0; }

static void prepare_told(size_t chunks) {
  (void)alarm(patience());
  prepare(chunks);
  pool = NULL;
  A = B = NULL;
  event_count = 0;
  desc.observer.fn = note;
  desc.observer.user = &events;
}

static void begin(size_t chunks) {
  prepare_told(chunks);
  open_lake();
  nothing_told();
}

static void end(void) {
  finish();
  (void)alarm(0);
}

/* `lay` without its events; requests up to count + 1 are made. */
static void lay_quietly(void **blocks, size_t count) {
  lay(blocks, count);
  forget();
}

/* ---- From what is held ----------------------------------------------------------------------- */

static void growth_then_exact_range(void **state) {
  void *x;
  (void)state;
  begin(8);
  x = take(2 * C - 100);
  expect("GROW 0 #1 h0 256/0 LEGACY: the lake created chunks; 2 0",
         "ALLOC 4 #1 h0 256/130972 LEGACY: the lake created chunks; 2 256");
  drop(x);
  expect("FREE 0 #0 h0 256/130972 LEGACY: free for the stream that it was freed on; 2 0");
  drop(take(2 * C));
  expect("ALLOC 1 #2 h0 256/131072 LEGACY: a free range has exactly the size; 2 256",
         "FREE 0 #0 h0 256/131072 LEGACY: free for the stream that it was freed on; 2 0");
  end();
}

static void none_stream(void **state) {
  void *x;
  (void)state;
  begin(8);
  x = take_on(C, NONE);
  drop_on(x, NONE);
  expect("GROW 0 #1 h0 128/0 NONE: the lake created chunks; 1 0",
         "ALLOC 4 #1 h0 128/65536 NONE: the lake created chunks; 1 128",
         "FREE 0 #0 h0 128/65536 NONE: free for every stream; 1 0");
  end();
}

static void split(void **state) {
  void *b[3], *x;
  (void)state;
  begin(8);
  lay_quietly(b, 3);
  drop(b[1]);
  forget();
  x = take(1000);
  expect("SPLIT 0 #5 h128 128/0 LEGACY: the request takes a part of this free range; 3 256",
         "ALLOC 2 #5 h128 2/1000 LEGACY: the smallest free range that is larger; 3 258");
  drop(x);
  drop(b[0]);
  drop(b[2]);
  end();
}

static void stitch_then_reuse(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4);
  lay_quietly(b, 4);
  drop(b[0]);
  drop(b[2]);
  forget();
  x = take(2 * C);
  drop(x);
  x = take(2 * C);
  expect("STITCH 0 #6 w0 256/0 LEGACY: the lake mapped free pieces side by side; 4 256",
         "ALLOC 3 #6 w0 256/131072 LEGACY: the lake stitched free pieces; 4 512",
         "FREE 0 #0 w0 256/131072 LEGACY: free for the stream that it was freed on; 4 256",
         "REUSE 0 #7 w0 256/0 LEGACY: an idle window has exactly the size; 4 256",
         "ALLOC 1 #7 w0 256/131072 LEGACY: an idle window has exactly the size; 4 512");
  drop(x);
  drop(b[1]);
  drop(b[3]);
  end();
}

static void shortfall_is_created_and_stitched(void **state) {
  void *b[4], *x;
  (void)state;
  begin(8);
  lay_quietly(b, 4);
  drop(b[0]);
  drop(b[2]);
  forget();
  x = take(3 * C);
  expect("GROW 0 #6 h512 128/0 LEGACY: the lake created chunks; 5 256",
         "STITCH 0 #6 w0 384/0 LEGACY: the lake mapped free pieces side by side; 5 256",
         "ALLOC 4 #6 w0 384/196608 LEGACY: the lake created chunks; 5 640");
  drop(x);
  drop(b[1]);
  drop(b[3]);
  end();
}

/* ---- Memory that goes back ------------------------------------------------------------------- */

static void windows_above_the_threshold_are_evicted(void **state) {
  void *b[6], *x, *y;
  (void)state;
  prepare_told(6);
  desc.stitched_bytes_max = 2 * C;
  open_lake();
  lay_quietly(b, 6);
  drop(b[0]);
  drop(b[2]);
  drop(b[4]);
  x = take(2 * C);
  drop(x);
  forget();
  y = take(3 * C);
  expect("STITCH 0 #9 w256 384/0 LEGACY: the lake mapped free pieces side by side; 6 384",
         "EVICT 0 #9 w0 256/0 LEGACY: the lake dropped an idle window; 6 384",
         "ALLOC 3 #9 w256 384/196608 LEGACY: the lake stitched free pieces; 6 768");
  drop(y);
  drop(b[1]);
  drop(b[3]);
  drop(b[5]);
  end();
}

static void trim(void **state) {
  void *b[4], *x;
  (void)state;
  begin(4);
  lay_quietly(b, 4);
  drop(b[0]);
  drop(b[2]);
  drop(take(2 * C));
  drop(b[3]);
  forget();
  assert_int_equal(trim_to(2 * C), 2 * C);
  expect("EVICT 0 #0 w0 256/0 NONE: the lake dropped an idle window; 4 128",
         "TRIM 0 #0 0 256/0 NONE: the lake returned free chunks to the driver; 2 128");
  assert_int_equal(trim_to(0), C);
  expect("TRIM 0 #0 0 128/0 NONE: the lake returned free chunks to the driver; 1 128");
  x = take(C);
  drop(x);
  drop(b[1]);
  end();
}

static void pool_goes(void **state) {
  void *x;
  (void)state;
  begin(8);
  pool = open_pool(0);
  nothing_told();
  x = take_from(pool, 2 * C, LEGACY);
  gmlake_mock_stream_hold(mock, LEGACY);
  drop(x);
  expect("GROW 0 #1 p0 256/0 LEGACY: the lake created chunks; 2 0",
         "ALLOC 4 #1 p0 256/131072 LEGACY: the lake created chunks; 2 256",
         "FREE 0 #0 p0 256/131072 LEGACY: free for the stream that it was freed on; 2 0");
  step(gmlake_pool_destroy(lake, pool));
  pool = NULL;
  expect("WAIT 0 #0 0 0/0 LEGACY: the host waits for this stream's work; 2 0",
         "TRIM 0 #0 0 256/0 NONE: the chunks' pool was destroyed; 0 0");
  end();
}

/* The time of the events of a kind. */
static uint64_t time_of(gmlake_step_kind kind) {
  uint64_t ns = 0;
  size_t i;
  assert_true(event_count <= LINES);
  for (i = 0; i < event_count; i++)
    if (events[i].kind == kind) ns += events[i].driver_ns;
  return ns;
}

/* An attempt takes the time by which the lake's figure grows, and its steps no more: it may ask the
   driver, too. */
static void steps_have_the_time_of_their_calls(void **state) {
  void *b[4], *x;
  uint64_t before;
  (void)state;
  begin(8);
  before = stats().driver_ns;
  x = take(2 * C);
  assert_true(time_of(GMLAKE_STEP_GROW) > 0);
  assert_true(time_of(GMLAKE_STEP_GROW) <= time_of(GMLAKE_STEP_ALLOC));
  assert_int_equal(time_of(GMLAKE_STEP_ALLOC), stats().driver_ns - before);
  drop_on(x, NONE);
  lay_quietly(b, 4);
  drop(b[0]);
  drop(b[2]);
  forget();
  before = stats().driver_ns;
  x = take(2 * C);
  assert_true(time_of(GMLAKE_STEP_STITCH) > 0);
  assert_true(time_of(GMLAKE_STEP_STITCH) <= time_of(GMLAKE_STEP_ALLOC));
  assert_int_equal(time_of(GMLAKE_STEP_ALLOC), stats().driver_ns - before);
  drop(x);
  forget();
  x = take(2 * C);
  assert_int_equal(events[0].kind, GMLAKE_STEP_REUSE);
  assert_int_equal(time_of(GMLAKE_STEP_REUSE) + time_of(GMLAKE_STEP_ALLOC), 0);
  drop_on(x, NONE);
  forget();
  before = stats().driver_ns;
  assert_int_equal(trim_to(0), 2 * C);
  assert_true(time_of(GMLAKE_STEP_EVICT) > 0 && time_of(GMLAKE_STEP_TRIM) > 0);
  assert_in_range(time_of(GMLAKE_STEP_EVICT) + time_of(GMLAKE_STEP_TRIM), 2,
                  stats().driver_ns - before);
  drop(b[1]);
  drop(b[3]);
  end();
}

/* Windows that are unmapped together share the time. */
static void evictions_share_their_time(void **state) {
  void *b[8], *x, *y;
  uint64_t before;
  (void)state;
  begin(8);
  lay_quietly(b, 8);
  drop(b[0]);
  drop(b[2]);
  x = take(2 * C);
  drop(b[4]);
  drop(b[6]);
  y = take(2 * C);
  drop_on(x, NONE);
  drop_on(y, NONE);
  forget();
  before = stats().driver_ns;
  assert_int_equal(trim_to(4 * C), 4 * C);
  assert_int_equal(events[0].kind, GMLAKE_STEP_EVICT);
  assert_int_equal(events[1].kind, GMLAKE_STEP_EVICT);
  assert_true(events[0].driver_ns > 0);
  assert_int_equal(events[0].driver_ns, events[1].driver_ns);
  assert_true(time_of(GMLAKE_STEP_EVICT) + time_of(GMLAKE_STEP_TRIM) <= stats().driver_ns - before);
  drop(b[1]);
  drop(b[3]);
  drop(b[5]);
  drop(b[7]);
  end();
}

/* ---- Streams --------------------------------------------------------------------------------- */

static void begin_streams(size_t chunks, gmlake_cross_stream order) {
  prepare_told(chunks);
  desc.cross_stream = order;
  open_lake();
  A = open_stream();
  B = open_stream();
}

static void stream_waits_for_another(void **state) {
  void *x;
  (void)state;
  begin_streams(4, GMLAKE_WAIT_FIRST);
  x = take_on(2 * C, A);
  gmlake_mock_stream_hold(mock, A);
  drop_on(x, A);
  forget();
  x = take_on(C, B);
  expect("WAIT 0 #2 0 0/0 B: this stream waits on the device for another one's work; 2 0",
         "SPLIT 0 #2 h0 256/0 B: the request takes a part of this free range; 2 0",
         "ALLOC 2 #2 h0 128/65536 B: the stream waits for another one and takes its memory; 2 128");
  gmlake_mock_stream_finish(mock, A);
  drop_on(x, B);
  end();
}

/* Freed on two streams by turns and wanted on a third: a wait for each, of the same time, and none
   twice for what lies in two places. */
static void a_stream_waits_for_two(void **state) {
  gmlake_stream third;
  uint64_t spent = 0;
  void *b[4], *x;
  size_t i;
  (void)state;
  begin_streams(4, GMLAKE_WAIT_FIRST);
  third = open_stream();
  lay(b, 4);
  gmlake_mock_stream_hold(mock, A);
  gmlake_mock_stream_hold(mock, B);
  drop_on(b[0], A);
  drop_on(b[1], B);
  drop_on(b[2], A);
  forget();
  x = take_on(3 * C, third);
  assert_int_equal(event_count, 4);
  for (i = 0; i < 3; i++) spent += events[i].driver_ns;
  assert_int_equal(events[0].kind, GMLAKE_STEP_WAIT);
  assert_int_equal(events[1].kind, GMLAKE_STEP_WAIT);
  assert_ptr_equal(events[0].stream, third);
  assert_ptr_equal(events[1].stream, third);
  assert_true(events[0].driver_ns > 0);
  assert_int_equal(events[1].driver_ns, events[0].driver_ns);
  assert_int_equal(events[2].kind, GMLAKE_STEP_STITCH);
  assert_int_equal(events[3].kind, GMLAKE_STEP_ALLOC);
  assert_true(events[3].driver_ns >= spent);
  gmlake_mock_stream_finish(mock, A);
  gmlake_mock_stream_finish(mock, B);
  drop_on(x, third);
  drop(b[3]);
  end();
}

static void host_waits(void **state) {
  void *x;
  (void)state;
  begin_streams(2, GMLAKE_GROW_FIRST);
  x = take_on(2 * C, A);
  gmlake_mock_stream_hold(mock, A);
  drop_on(x, A);
  forget();
  x = take_on(C, NONE); /* waits for nobody on the device */
  expect("WAIT 0 #2 0 0/0 A: the host waits for this stream's work; 2 0",
         "SPLIT 0 #2 h0 256/0 NONE: the request takes a part of this free range; 2 0",
         "ALLOC 2 #2 h0 128/65536 NONE: the host waited for streams first; 2 128");
  assert_true(events[0].driver_ns > 0 && events[0].driver_ns <= events[2].driver_ns);
  drop_on(x, NONE);
  end();
}

static void pending_free(void **state) {
  void *x;
  (void)state;
  begin_streams(4, GMLAKE_GROW_FIRST);
  x = take_on(C, A);
  forget();
  gmlake_mock_stream_hold(mock, B);
  assert_error(gmlake_record_stream(lake, &x, B), UNKNOWN_POINTER);
  nothing_told();
  step(gmlake_record_stream(lake, x, B));
  drop_on(x, A);
  expect("USE 0 #0 h0 128/65536 B: the block is used on this stream, too; 1 128",
         "FREE 0 #0 h0 128/65536 A: pending: other streams may still use it; 1 0");
  gmlake_mock_stream_finish(mock, B);
  end();
}

/* ---- Attempts that fail ---------------------------------------------------------------------- */

static void failed_attempt(void **state) {
  void *x;
  (void)state;
  begin(2);
  x = take(C);
  forget();
  assert_error(try_on(2 * C + 1, LEGACY), OUT_OF_DEVICE_MEMORY);
  expect("ALLOC 5 #2 0 257/131073 LEGACY: the lake could not serve the request; 1 128");
  assert_error(try_on(SIZE_MAX / 2, LEGACY), OUT_OF_DEVICE_MEMORY);
  expect("ALLOC 5 #3 0 0/9223372036854775807 LEGACY: the lake could not serve the request; 1 128");
  drop(x);
  forget();
  assert_error(gmlake_free(lake, x, LEGACY), DOUBLE_FREE);
  assert_ok(gmlake_free(lake, NULL, LEGACY));
  assert_error(gmlake_alloc(lake, C, LEGACY, NULL), INVALID_ARGUMENT);
  assert_ok(gmlake_alloc(lake, 0, LEGACY, &x));
  nothing_told();
  end();
}

static void *to_free;

static int free_one(void *user, gmlake *from, const gmlake_error_info *info) {
  (void)info;
  assert_ptr_equal(user, &to_free);
  if (!to_free) return 0;
  assert_ok(gmlake_free(from, to_free, LEGACY));
  to_free = NULL;
  return 1;
}

static void retries_have_numbers_of_their_own(void **state) {
  void *x;
  (void)state;
  prepare_told(2);
  desc.oom.fn = free_one;
  desc.oom.user = &to_free;
  open_lake();
  to_free = take(2 * C);
  forget();
  x = take(C);
  expect("ALLOC 5 #2 0 128/65536 LEGACY: the lake could not serve the request; 2 256",
         "FREE 0 #0 h0 256/131072 LEGACY: free for the stream that it was freed on; 2 0",
         "SPLIT 0 #3 h0 256/0 LEGACY: the request takes a part of this free range; 2 0",
         "ALLOC 2 #3 h0 128/65536 LEGACY: the smallest free range that is larger; 2 128");
  drop(x);
  end();
}

static void growth_that_cannot_be_undone(void **state) {
  (void)state;
  prepare_told(4);
  use_faults();
  open_lake();
  fail_call(ON_ACCESS, 1, GMLAKE_ERROR_DRIVER, 1);
  fail_call(ON_UNMAP, 1, GMLAKE_ERROR_DRIVER, 1);
  assert_error(try_on(C, LEGACY), DRIVER);
  expect(
      "GROW 0 #1 0 128/0 LEGACY: growth failed, and the driver refused to take the chunk back; 1 0",
      "ALLOC 5 #1 0 128/65536 LEGACY: the lake could not serve the request; 1 0");
  memset(faults, 0, sizeof(faults));
  end();
}

/* ---- Policies -------------------------------------------------------------------------------- */

static gmlake_plan planned;
static gmlake_piece planned_pieces[2];

static void choose(void *user, const gmlake_view *view, const gmlake_request *wanted,
                   gmlake_plan *plan) {
  gmlake_piece *pieces = plan->pieces;
  size_t capacity = plan->piece_capacity, i;
  (void)user;
  (void)view;
  (void)wanted;
  *plan = planned;
  plan->pieces = pieces;
  plan->piece_capacity = capacity;
  for (i = 0; i < planned.piece_count; i++) pieces[i] = planned_pieces[i];
}

static size_t evict_all(void *user, const gmlake_view *view, size_t mapped_bytes, uint64_t *out) {
  size_t i;
  (void)user;
  (void)mapped_bytes;
  for (i = 0; i < view->window_count; i++) out[i] = view->windows[i].number;
  return view->window_count;
}

static int toss(void *user, const gmlake_piece *block) {
  (void)user;
  return (((uintptr_t)block->home >> 9) & 1) == 0;
}

static gmlake_policy policy;

static void begin_policy(size_t chunks) {
  prepare_told(chunks);
  memset(&policy, 0, sizeof(policy));
  memset(&planned, 0, sizeof(planned));
  policy.struct_bytes = sizeof(policy);
  policy.choose = choose;
  desc.policy = &policy;
  open_lake();
}

static void plan_of(unsigned number, void *first, void *second) {
  memset(&planned, 0, sizeof(planned));
  planned.state = number;
  planned.piece_count = second ? 2 : 1;
  planned_pieces[0].home = first;
  planned_pieces[1].home = second;
  planned_pieces[0].bytes = planned_pieces[1].bytes = C;
}

static void plans_have_reasons(void **state) {
  void *b[4], *x;
  (void)state;
  begin_policy(8);
  lay_quietly(b, 4);
  drop(b[0]);
  drop(b[2]);
  forget();
  plan_of(3, b[2], b[0]);
  planned.reason = "because";
  x = take(2 * C);
  expect("STITCH 0 #6 w0 256/0 LEGACY: the lake mapped free pieces side by side; 4 256",
         "ALLOC 3 #6 w0 256/131072 LEGACY: because; 4 512");
  drop(x);
  forget();
  plan_of(2, b[0], NULL);
  planned_pieces[0].bytes = 512;
  x = take(512);
  expect("SPLIT 0 #7 h0 128/0 LEGACY: the request takes a part of this free range; 4 256",
         "ALLOC 2 #7 h0 1/512 LEGACY: the policy chose this; 4 257");
  plan_of(5, b[0], NULL);
  planned.reason = "no";
  assert_error(try_on(C, LEGACY), OUT_OF_DEVICE_MEMORY);
  expect("EVICT 0 #8 w0 256/0 LEGACY: the lake dropped an idle window; 4 257",
         "TRIM 0 #8 0 128/0 LEGACY: the lake returned free chunks to the driver; 3 257",
         "ALLOC 5 #8 0 128/65536 LEGACY: the lake could not serve the request; 3 257");
  planned.state = 0; /* nothing else counts */
  drop(take(C));
  expect("GROW 0 #9 h256 128/0 LEGACY: the lake created chunks; 4 257",
         "ALLOC 4 #9 h256 128/65536 LEGACY: the lake created chunks; 4 385",
         "FREE 0 #0 h256 128/65536 LEGACY: free for the stream that it was freed on; 4 257");
  planned.state = 9;
  assert_error(try_on(C, LEGACY), INVALID_ARGUMENT);
  expect("ALLOC 5 #10 0 128/65536 LEGACY: the lake could not serve the request; 4 257");
  planned.state = 0;
  drop(x);
  drop(b[1]);
  drop(b[3]);
  end();
}

static void labels_and_pools_are_told(void **state) {
  gmlake_alloc_desc wanted;
  gmlake_buffer_desc growing;
  gmlake_buffer *buffer;
  void *p, *q;
  size_t i;
  (void)state;
  begin(8);
  memset(&wanted, 0, sizeof(wanted));
  memset(&growing, 0, sizeof(growing));
  pool = open_pool(0);
  wanted.bytes = growing.max_bytes = C;
  wanted.label = "weights";
  wanted.pool = pool;
  growing.chunk_bytes = C;
  growing.label = "cache";
  growing.pool = pool;
  assert_ok(gmlake_alloc_with(lake, &wanted, LEGACY, &p));
  assert_int_equal(event_count, 2);
  for (i = 0; i < 2; i++) { /* GROW, ALLOC */
    assert_string_equal(events[i].label, "weights");
    assert_ptr_equal(events[i].pool, pool);
  }
  forget();
  q = take(512);
  for (i = 0; i < event_count; i++) {
    assert_null(events[i].label);
    assert_null(events[i].pool);
  }
  forget();
  drop(q);
  assert_null(events[0].label);
  forget();
  assert_ok(gmlake_buffer_create(lake, &growing, &buffer));
  assert_int_equal(events[0].kind, GMLAKE_STEP_BUFFER);
  assert_string_equal(events[0].label, "cache");
  assert_ptr_equal(events[0].pool, pool);
  assert_ok(gmlake_buffer_destroy(lake, buffer, LEGACY));
  drop(p);
  assert_ok(gmlake_pool_destroy(lake, pool));
  pool = NULL;
  end();
}

/* ---- Buffers --------------------------------------------------------------------------------- */

static void buffers_are_no_requests(void **state) {
  gmlake_buffer *buffer;
  (void)state;
  begin(8);
  buffer = open_buffer(4);
  expect("BUFFER 0 #0 elsewhere 128/262144 NONE: a buffer was created; 0 0");
  step(gmlake_buffer_resize(lake, buffer, 3 * C, LEGACY));
  expect("GROW 0 #0 0 128/0 LEGACY: the lake created chunks; 1 0",
         "GROW 0 #0 0 128/0 LEGACY: the lake created chunks; 2 0",
         "GROW 0 #0 0 128/0 LEGACY: the lake created chunks; 3 0",
         "COMMIT 0 #0 elsewhere 384/0 LEGACY: the range has memory; 3 384");
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  expect("DISCARD 0 #0 elsewhere 256/0 LEGACY: the range has none any more; 3 128");
  step(gmlake_buffer_resize(lake, buffer, C, LEGACY));
  nothing_told();
  assert_int_equal(trim_to(0), 2 * C);
  expect("TRIM 0 #0 0 256/0 NONE: the lake returned free chunks to the driver; 1 128");
  assert_error(gmlake_buffer_resize(lake, buffer, 5 * C, LEGACY), INVALID_ARGUMENT);
  step(gmlake_buffer_destroy(lake, buffer, A));
  expect("DISCARD 0 #0 elsewhere 128/0 LEGACY: the range has none any more; 1 0",
         "END 0 #0 elsewhere 0/0 LEGACY: a buffer was destroyed; 1 0");
  end();
}

/* ---- Everything together --------------------------------------------------------------------- */

#define SLOTS 64
#define HELD 512
#define REQUESTS 65536

/* What the events add up to. They come one at a time, whatever threads there are. */
static struct tally {
  uint64_t count[GMLAKE_STEP_END + 1], served[6], answered;
  uint64_t grown, trimmed, driver_ns, step_ns;
  struct {
    uint64_t address;
    size_t bytes, asked_bytes;
  } held[HELD];
  size_t held_count;
  unsigned char is_known[REQUESTS]; /* attempts that are over */
  uint64_t spent[REQUESTS];         /* in steps on behalf of an attempt */
  uint64_t newest;
  const char *broken;
} t;

static void broken(const char *what) {
  if (!t.broken) t.broken = what;
}

static void tally_alloc(const gmlake_step *e) {
  size_t i;
  if (!e->request || e->request >= REQUESTS || t.is_known[e->request]++)
    broken("an attempt without a number of its own");
  if (e->request > t.newest) t.newest = e->request;
  t.answered++;
  t.driver_ns += e->driver_ns;
  if (e->request < REQUESTS && t.spent[e->request] > e->driver_ns)
    broken("an attempt that takes less time than its steps");
  if (e->state < 1 || e->state > 5 || (e->state == 5) != !e->address)
    broken("a state that is not the attempt's");
  else
    t.served[e->state]++;
  if (!e->address) return;
  for (i = 0; i < t.held_count; i++)
    if (t.held[i].address == e->address) broken("an address is given away twice");
  if (t.held_count == HELD) abort();
  t.held[t.held_count].address = e->address;
  t.held[t.held_count].bytes = e->bytes;
  t.held[t.held_count++].asked_bytes = e->asked_bytes;
  if (e->asked_bytes > e->bytes) broken("less than was asked for");
}

static void tally_free(const gmlake_step *e) {
  size_t i = 0;
  while (i < t.held_count && t.held[i].address != e->address) i++;
  if (i == t.held_count)
    broken("a free of what is not held");
  else if (t.held[i].bytes != e->bytes || t.held[i].asked_bytes != e->asked_bytes)
    broken("a free of other bytes than were given away");
  else
    t.held[i] = t.held[--t.held_count];
}

static void tally(void *user, const gmlake_step *e) {
  if (user != &t || e->kind < GMLAKE_STEP_ALLOC || e->kind > GMLAKE_STEP_END) abort();
  t.count[e->kind] += e->kind != GMLAKE_STEP_ALLOC || e->address;
  if (!e->reason || !*e->reason) broken("no reason");
  if (e->kind != GMLAKE_STEP_ALLOC && e->state) broken("a state of no attempt");
  if (e->kind != GMLAKE_STEP_ALLOC && e->request < REQUESTS && t.is_known[e->request])
    broken("a step of an attempt that is over");
  if (e->kind == GMLAKE_STEP_ALLOC) tally_alloc(e);
  if (e->kind == GMLAKE_STEP_FREE) tally_free(e);
  if (e->kind == GMLAKE_STEP_GROW) t.grown += e->bytes;
  if (e->kind == GMLAKE_STEP_TRIM) t.trimmed += e->bytes;
  if (e->kind != GMLAKE_STEP_ALLOC) t.step_ns += e->driver_ns;
  if (e->kind != GMLAKE_STEP_ALLOC && e->request < REQUESTS) t.spent[e->request] += e->driver_ns;
  if (t.grown - t.trimmed != e->reserved_bytes) broken("reserved memory does not add up");
}

static void assert_adds_up(void) {
  gmlake_stats now = stats();
  uint64_t bytes = 0, asked = 0;
  size_t i;
  if (t.broken) fail_msg("%s", t.broken);
  assert_int_equal(t.answered, t.newest);
  assert_int_equal(t.count[GMLAKE_STEP_ALLOC], now.allocation_count);
  assert_int_equal(t.count[GMLAKE_STEP_FREE], now.free_count);
  assert_int_equal(t.count[GMLAKE_STEP_SPLIT], now.split_count);
  assert_int_equal(t.count[GMLAKE_STEP_STITCH], now.stitch_count);
  assert_int_equal(t.count[GMLAKE_STEP_REUSE], now.stitch_reuse_count);
  assert_int_equal(t.count[GMLAKE_STEP_EVICT], now.stitch_evict_count);
  assert_int_equal(t.count[GMLAKE_STEP_WAIT], now.stream_wait_count + now.host_wait_count);
  assert_int_equal(t.grown - t.trimmed, now.reserved_bytes);
  assert_int_equal(t.held_count, now.live_count);
  for (i = 0; i < t.held_count; i++) {
    gmlake_allocation_info info;
    void *ptr = (void *)(uintptr_t)t.held[i].address;
    assert_ok(gmlake_get_allocation(lake, ptr, &info));
    assert_int_equal(info.bytes, t.held[i].bytes);
    assert_int_equal(info.requested_bytes, t.held[i].asked_bytes);
    bytes += t.held[i].bytes;
    asked += t.held[i].asked_bytes;
  }
  assert_int_equal(bytes, now.active_bytes - now.buffer_bytes);
  assert_true(asked <= now.requested_bytes);
  assert_true(t.driver_ns <= now.driver_ns);
  assert_true(t.step_ns <= now.driver_ns);
}

static gmlake_paper paper;

static void choose_policy(unsigned number) {
  if (number == 1) {
    gmlake_paper_init(&paper);
    paper.chunk_bytes = C;
    paper.limit_bytes = 0;
    policy = gmlake_policy_paper(&paper);
  } else {
    memset(&policy, 0, sizeof(policy));
    policy.struct_bytes = sizeof(policy);
    policy.user = &policy;
    policy.evict = evict_all;
    policy.coalesce = toss;
  }
  desc.policy = number ? &policy : NULL;
}

static uint64_t random_state;

static size_t below(size_t bound) {
  random_state ^= random_state << 13;
  random_state ^= random_state >> 7;
  random_state ^= random_state << 17;
  return (size_t)(random_state % bound);
}

static struct program {
  void *blocks[SLOTS];
  gmlake_pool *pools[2];
  gmlake_buffer *buffer;
  gmlake_stream streams[4];
  int has_faults;
} r;

static void trade_at_random(gmlake_stream stream) {
  size_t i = below(SLOTS);
  gmlake_alloc_desc wanted = request(1 + below(3) * below(3 * C), (unsigned)below(8), NULL);
  if (below(2)) wanted.bytes = (1 + below(4)) * C;
  if (below(3)) wanted.flags = 0;
  if (!below(3)) wanted.pool = r.pools[below(2)];
  if (r.blocks[i] && !below(8)) (void)gmlake_record_stream(lake, r.blocks[i], r.streams[below(3)]);
  if (!r.blocks[i])
    (void)gmlake_alloc_with(lake, &wanted, stream, &r.blocks[i]);
  else if (!gmlake_free(lake, r.blocks[i], stream))
    r.blocks[i] = NULL;
}

static void fail_at_random(void) {
  memset(faults, 0, sizeof(faults));
  host_fail_in = 0;
  if (!r.has_faults || below(3)) return;
  if (below(3))
    fail_call((int)below(ON_KINDS), 1 + (long)below(8),
              below(2) ? GMLAKE_ERROR_DRIVER : GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, below(4) == 0);
  else
    host_fail_in = 1 + (long)below(8);
}

static void act_at_random(void) {
  gmlake_stream stream = r.streams[below(4)];
  size_t what = below(40), i = below(2);
  if (what == 0 && stream != NONE) gmlake_mock_stream_hold(mock, stream);
  if (what <= 2 && what && stream != NONE) gmlake_mock_stream_finish(mock, stream);
  if (what == 3) (void)gmlake_trim(lake, below(24) * C, NULL);
  if (what == 4 && r.pools[i] && !gmlake_pool_destroy(lake, r.pools[i])) r.pools[i] = NULL;
  if (what == 5 && !r.pools[i]) {
    gmlake_pool_desc wanted;
    memset(&wanted, 0, sizeof(wanted));
    (void)gmlake_pool_create(lake, &wanted, &r.pools[i]);
  }
  if (what == 6 && r.buffer) (void)gmlake_buffer_resize(lake, r.buffer, below(8) * C, stream);
  if (what == 7) fail_at_random();
  if (what >= 8) trade_at_random(stream);
}

static void run_at_random(uint64_t seed) {
  size_t i;
  random_state = seed * 0x9E3779B97F4A7C15u;
  memset(&r, 0, sizeof(r));
  memset(&t, 0, sizeof(t));
  prepare(48);
  desc.observer.fn = tally;
  desc.observer.user = &t;
  desc.cross_stream = seed & 1 ? GMLAKE_WAIT_FIRST : GMLAKE_GROW_FIRST;
  desc.stitched_bytes_max = seed & 4 ? 16 * C : 0;
  desc.limit_bytes = seed & 8 ? 24 * C : 0;
  choose_policy((unsigned)(seed % 3));
  use_faults();
  open_lake();
  for (i = 0; i < 4; i++) r.streams[i] = i == 3 ? NONE : i ? open_stream() : LEGACY;
  if (seed & 16) r.buffer = open_buffer(8);
  r.has_faults = seed % 5 > 1;
  for (i = 0; i < 3000; i++) {
    act_at_random();
    if (i % 64 == 0) assert_ok(gmlake_check(lake));
    if (i % 64 == 0 && !host_fail_in) assert_adds_up();
  }
  memset(faults, 0, sizeof(faults));
  host_fail_in = 0;
  assert_adds_up();
  for (i = 1; i < 5 && !r.buffer && !r.has_faults; i++)
    assert_int_equal(t.served[i], stats().state_count[i - 1]);
  if (!r.has_faults && !r.buffer) assert_int_equal(t.served[5], stats().state_count[4]);
  for (i = 0; i < 3; i++) gmlake_mock_stream_finish(mock, r.streams[i]);
  for (i = 0; i < SLOTS; i++)
    if (r.blocks[i]) drop(r.blocks[i]);
  assert_int_equal(t.held_count, 0);
  finish();
}

static void random_programs_add_up(void **state) {
  uint64_t seed;
  (void)state;
  (void)alarm(patience());
  for (seed = 1; seed <= 60; seed++) run_at_random(seed);
  (void)alarm(0);
}

/* ---- Threads --------------------------------------------------------------------------------- */

#define THREADS 4

static struct thread {
  pthread_t id;
  uint64_t random;
  gmlake_stream stream;
  int failed;
} threads[THREADS];

static void *trade_on_a_thread(void *argument) {
  struct thread *self = (struct thread *)argument;
  void *blocks[16];
  size_t i;
  memset(blocks, 0, sizeof(blocks));
  for (i = 0; i < 4000; i++) {
    void **block = &blocks[(self->random = self->random * 6364136223846793005u + 1) >> 60];
    size_t bytes = 1 + (size_t)((self->random >> 20) % (3 * C));
    gmlake_result result = GMLAKE_OK;
    if (*block) {
      result = gmlake_free(lake, *block, self->stream);
      *block = NULL;
    } else {
      result = gmlake_alloc(lake, bytes, self->stream, block);
      if (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY) result = GMLAKE_OK;
    }
    if (!result && i % 500 == 0) result = gmlake_trim(lake, 8 * C, NULL);
    if (result) self->failed = 1;
  }
  for (i = 0; i < 16; i++)
    if (blocks[i] && gmlake_free(lake, blocks[i], self->stream)) self->failed = 1;
  return NULL;
}

static void threads_are_told_in_order(unsigned number) {
  size_t i;
  (void)alarm(patience());
  memset(&t, 0, sizeof(t));
  prepare(64);
  memset(&desc.host, 0, sizeof(desc.host)); /* the fixture's own counts on one thread */
  desc.observer.fn = tally;
  desc.observer.user = &t;
  choose_policy(number);
  open_lake();
  for (i = 0; i < THREADS; i++) {
    threads[i].random = i + 1;
    threads[i].stream = i ? open_stream() : LEGACY;
    threads[i].failed = 0;
    assert_int_equal(pthread_create(&threads[i].id, NULL, trade_on_a_thread, &threads[i]), 0);
  }
  for (i = 0; i < THREADS; i++) {
    assert_int_equal(pthread_join(threads[i].id, NULL), 0);
    assert_false(threads[i].failed);
  }
  assert_adds_up();
  assert_int_equal(t.held_count, 0);
  finish();
  (void)alarm(0);
}

static void threads_without_a_policy(void **state) {
  (void)state;
  threads_are_told_in_order(0);
}

static void threads_with_the_papers_policy(void **state) {
  (void)state;
  threads_are_told_in_order(1);
}

static void threads_with_another_policy(void **state) {
  (void)state;
  threads_are_told_in_order(2);
}

/* ---- Observers and host allocators that call the lake ---------------------------------------- */

static size_t next_row, refused;

/* One more call of the table at a time, in the middle of a call of the lake's. */
static void call_the_lake(void) {
  gmlake_error_info info;
  assert_error(every_rows[next_row].call(), INVALID_ARGUMENT);
  assert_ok(gmlake_get_last_error(lake, &info));
  assert_error(info.result, INVALID_ARGUMENT);
  assert_string_equal(info.text,
                      "called from the observer or the host allocator: return from it first");
  next_row = (next_row + 1) % EVERY_ROWS;
  refused++;
}

static int is_calling;

static void call_from_observer(void *user, const gmlake_step *event) {
  (void)user, (void)event;
  if (is_calling) call_the_lake();
}

static void *call_from_malloc(void *user, size_t bytes) {
  if (is_calling) call_the_lake();
  return host_malloc(user, bytes);
}

static void call_from_free(void *user, void *ptr) {
  if (is_calling) call_the_lake();
  host_free(user, ptr);
}

static void trade_until_all_were_refused(void) {
  void *small;
  refused = 0;
  open_lake();
  every_open();
  is_calling = 1;
  while (refused < EVERY_ROWS) {
    gmlake_alloc_desc wanted = request(C, 0, NULL);
    wanted.user_data = 1; /* so that a note is allocated, and freed */
    assert_ok(gmlake_alloc_with(lake, &wanted, LEGACY, &small));
    assert_ok(gmlake_free(lake, small, LEGACY));
  }
  is_calling = 0;
  every_close();
  finish();
}

static void observers_that_call_get_an_answer(void **state) {
  (void)state;
  prepare_told(8);
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  prepare_told(8);
  desc.flags = GMLAKE_SINGLE_THREADED;
  desc.observer.fn = call_from_observer;
  trade_until_all_were_refused();
  (void)alarm(0);
}

static void host_allocators_that_call_get_an_answer(void **state) {
  (void)state;
  prepare_told(8);
  memset(&desc.observer, 0, sizeof(desc.observer));
  desc.host.malloc_fn = call_from_malloc;
  trade_until_all_were_refused();
  prepare_told(8);
  memset(&desc.observer, 0, sizeof(desc.observer));
  desc.host.free_fn = call_from_free;
  trade_until_all_were_refused();
  (void)alarm(0);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(growth_then_exact_range),
      cmocka_unit_test(none_stream),
      cmocka_unit_test(split),
      cmocka_unit_test(stitch_then_reuse),
      cmocka_unit_test(shortfall_is_created_and_stitched),
      cmocka_unit_test(windows_above_the_threshold_are_evicted),
      cmocka_unit_test(trim),
      cmocka_unit_test(pool_goes),
      cmocka_unit_test(steps_have_the_time_of_their_calls),
      cmocka_unit_test(evictions_share_their_time),
      cmocka_unit_test(stream_waits_for_another),
      cmocka_unit_test(a_stream_waits_for_two),
      cmocka_unit_test(host_waits),
      cmocka_unit_test(pending_free),
      cmocka_unit_test(failed_attempt),
      cmocka_unit_test(retries_have_numbers_of_their_own),
      cmocka_unit_test(growth_that_cannot_be_undone),
      cmocka_unit_test(plans_have_reasons),
      cmocka_unit_test(labels_and_pools_are_told),
      cmocka_unit_test(buffers_are_no_requests),
      cmocka_unit_test(random_programs_add_up),
      cmocka_unit_test(observers_that_call_get_an_answer),
      cmocka_unit_test(host_allocators_that_call_get_an_answer),
      cmocka_unit_test(threads_without_a_policy),
      cmocka_unit_test(threads_with_the_papers_policy),
      cmocka_unit_test(threads_with_another_policy),
  };
  return cmocka_run_group_tests_name("observer", tests, NULL, NULL);
}
