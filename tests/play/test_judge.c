/* Whether the judge sees. In each row a line is played, and then the row does what a bad lake might
   do: calls of the driver through the judged table, memory handed over, figures that are wrong. The
   rule that this breaks has to be the verdict. A judge that has gone blind fails here, whatever the
   lake does right. */
#include "lake.h"

#include "cases.h"

static int code;
static int own_descriptor = -1; /* that a row has left */

/* ---- What a row is --------------------------------------------------------------------------- */

typedef struct misdeed {
  void (*act)(void);
  const char *line, *rule;
  int has_locks;
} misdeed;

static const misdeed *played;

/* Behind the line; there is no further word. */
static int acts(program *p, size_t at) {
  (void)p;
  (void)at;
  lake->has_locks = played->has_locks;
  played->act();
  lake->has_locks = 1;
  return 0;
}

static void the_judge_sees(void **state) {
  static program p;
  const char *wrong, *rule;
  size_t length;
  played = (const misdeed *)*state;
  wrong = program_of(&p, played->line);
  if (wrong) fail_msg("not of the language: %s", wrong);
  rule = play(&p, acts);
  if (own_descriptor >= 0) (void)close(own_descriptor);
  own_descriptor = -1;
  if (!rule) fail_msg("nothing is found");
  length = strlen(played->rule);
  if (strncmp(rule, played->rule, length) ||
      (rule[length] && rule[length] != ':' && strncmp(rule, "foretold", 8)))
    fail_msg("found: %s; there is: %s", rule, played->rule);
}

/* MISDEED(name, line, rule) { what is done behind the line }, in a lake without locks; LOCKED: with
   them. */
#define MISDEED(name, line, rule) CASE_OF(misdeed, the_judge_sees, (void), name, line, rule, 0)
#define LOCKED(name, line, rule) CASE_OF(misdeed, the_judge_sees, (void), name, line, rule, 1)

/* ---- Memory ---------------------------------------------------------------------------------- */

static void *a_fence(void) {
  void *event = NULL;
  must(judged.event_create(judged.user, &event, &code), "the row's event");
  return event;
}

/* Block a's memory, handed to a stream's new block. */
static void hand_a_to(int on, int graph, int pool) {
  block copy = w.blocks[0];
  if (!copy.id) {
    copy.at = w.starts[0];
    copy.bytes = UNIT;
  }
  copy.id = ++w.next_id;
  copy.pool = pool;
  hand_over(&copy, on < 0 ? &w.known : &w.lines[on].now, graph, 0, pool);
}

static void serves_twice(void) { hand_a_to(1, 0, 0); }

MISDEED(memory_serves_twice, "{} +a=1@A", "two live blocks share memory: block a") {
  serves_twice();
}
MISDEED(a_pools_memory_serves_another, "{} P0 +a=1@A/0 +b=1@A/0 -a@A",
        "a pool's memory serves another") {
  serves_twice();
}
MISDEED(pending_memory_serves, "{} +a=1@A ua@A hA -a@A",
        "handed over while work may still use it: stream A") {
  hand_a_to(2, 0, 0);
}
MISDEED(none_is_behind_nothing, "{} +a=1@A ua@A hA -a@A",
        "handed over while work may still use it") {
  hand_a_to(NOBODY, 0, 0);
}

static void serves_pool_0(void) { hand_a_to(1, 0, 1); }

MISDEED(a_graphs_memory_serves_outside, "{} P0 BA:0/0 +a=1@A EA", "two live blocks share memory") {
  serves_pool_0();
}
MISDEED(a_graphs_free_memory_serves_outside, "{} P0 BA:0/0 +a=1@A -a@A EA",
        "memory of a graph was handed over outside captures") {
  serves_pool_0();
}

MISDEED(exported_memory_serves, "{} +a=1@A -a@A", "exported memory was handed over") {
  map_at(w.starts[0])->of->grains[0].is_exported = 1;
  hand_a_to(1, 0, 0);
}

MISDEED(an_import_changes, "{share} +a=1/x xa ib=a", "an import has changed") {
  ((unsigned char *)w.blocks[1].shown)[UNIT - 1]++;
  judge_stamps(&w.blocks[1]);
}

/* A budget of so many chunks more than there are. */
static void promises(size_t chunks) {
  gmlake_budget budget;
  must(gmlake_get_budget(lake, &budget), "gmlake_get_budget");
  budget.allocatable_bytes += chunks * w.chunk;
  judge_promise(&budget);
}
MISDEED(a_budget_promises_too_much, "{} +a=1", "what the budget promises is not served") {
  promises(1);
}
MISDEED(a_budget_keeps_memory_back, "{} +a=1", "the budget keeps memory back") {
  promises((size_t)-2);
}

MISDEED(two_captures_share, "{} P0 BA:0/0 +a=1@A -a@A BB:0/1", "two captures share memory") {
  hand_a_to(2, 2, 1);
}
MISDEED(a_graphs_memory_serves_another_pool, "{} P0 P1 BA:0/0 +a=1@A -a@A EA BB:1/1",
        "memory of a graph went to another pool") {
  hand_a_to(2, 2, 2);
}

/* A borrower has it. */
MISDEED(a_capture_lends, "{} P0 BA:0/0 +a=1@A -a@A", "a capture's memory was borrowed") {
  block copy = w.blocks[0];
  copy.at = w.starts[0];
  copy.bytes = UNIT;
  copy.id = ++w.next_id;
  w.pools[1].is_lent = 1;
  hand_over(&copy, &w.lines[2].now, 0, 1, 0);
}

MISDEED(nothing_is_mapped, "{} +a=1@A", "a block lies where nothing is mapped") {
  w.blocks[0].at += (uint64_t)1 << 40;
  hand_a_to(1, 0, 0);
}

MISDEED(access_lacks, "{} +a=1@A", "a block lies in memory without access") {
  map_at(w.blocks[0].at)->is_accessible = 0;
  give_back(&w.blocks[0]);
  hand_a_to(1, 0, 0);
}

MISDEED(a_chunk_is_shared, "{} +a=1@A/x", "EXCLUSIVE shares a chunk") {
  block half = w.blocks[0];
  half.bytes = GRAIN;
  map_at(half.at)->of->grains[1].owner = half.id + 1;
  judge_exclusive(&half, UNIT);
}

static void unmaps(void) {
  w.is_relaxed = 1;
  const uint64_t at = w.starts[0] / UNIT * UNIT;
  (void)judged.unmap(judged.user, at, map_at(at)->of->bytes, &code);
}

MISDEED(a_live_block_is_unmapped, "{} +a=1@A", "a live block was unmapped: block a") { unmaps(); }
MISDEED(work_is_unmapped, "{} +a=1@A ua@A hA -a@A",
        "unmapped while work may still use it: stream A") {
  unmaps();
}
MISDEED(a_graph_is_unmapped, "{} P0 BA:0/0 +a=1@A -a@A EA", "unmapped under a graph") { unmaps(); }

MISDEED(another_stream_is_touched, "{may-end} +a=1@A",
        "a stream is touched that the call does not name") {
  w.named = 1;
  (void)judged.event_record(judged.user, a_fence(), w.lines[2].value, &code);
}

static void records_on_a(void) {
  w.named = 1;
  (void)judged.event_record(judged.user, a_fence(), w.lines[1].value, &code);
}

MISDEED(a_stream_that_is_gone_is_touched, "{may-end} +a=1@A kA",
        "a call for a stream that is gone") {
  records_on_a();
}
MISDEED(a_capture_is_recorded_on, "{} P0 BA:0/0",
        "an event is recorded where a capture forbids it") {
  records_on_a();
}

static void makes_a_wait(void) {
  w.named = 1;
  w.is_recalled = 0;
  (void)judged.stream_wait(judged.user, w.lines[1].value, w.event, &code);
}

MISDEED(a_capture_waits, "{} P0 BA:0/0", "a stream was made to wait where a capture forbids it") {
  makes_a_wait();
}
MISDEED(a_communicator_waits, "{} mA:1", "a stream that communicates was made to wait") {
  makes_a_wait();
}

MISDEED(the_device_is_waited_for, "{} P0 BA:0/0",
        "the whole device is waited for though a capture forbids it") {
  (void)judged.device_wait(judged.user, &code);
}

static void copies(void) {
  char host[16];
  (void)judged.copy(judged.user, w.starts[0], host, sizeof(host), 1, &code);
}

MISDEED(what_is_used_is_copied, "{} +a=1@A hA ua@A", "copied while work may still use it") {
  copies();
}

MISDEED(what_is_not_there_is_copied, "{} +a=1@A", "what is copied is not mapped") {
  char host[16];
  (void)judged.copy(judged.user, UNIT, host, sizeof(host), 1, &code);
}

MISDEED(no_copy_is_waited_for, "{}", "a wait for copies where none runs") {
  (void)judged.copy(judged.user, 0, NULL, 0, 1, &code);
}

MISDEED(a_copy_runs_on, "{} +a=1@A", "a copy still runs when its call has ended") {
  copies();
  judge_step();
}

MISDEED(the_mode_is_strict, "{}", "a call that needs the relaxed capture mode") {
  void *host;
  (void)judged.host_alloc(judged.user, 16, &host, &code);
}

MISDEED(others_get_access, "{} +a=1@A", "access for other devices than the description names") {
  (void)judged.set_access(judged.user, w.starts[0], UNIT, w.peers, 1, &code);
}

MISDEED(host_memory_is_overrun, "{}", "the lake: host memory was written around") {
  char *host = (char *)host_malloc(NULL, 5);
  host[5] = 0;
  host_free(NULL, host);
}

MISDEED(contents_change, "{} +a=1@A", "a live block does not hold what was written to it") {
  memset((void *)(uintptr_t)w.blocks[0].at, 0, GRAIN);
  judge_stamps(&w.blocks[0]);
}

MISDEED(freed_memory_is_not_filled, "{fill} +a=1", "freed memory is not filled") {
  judge_freed(&w.blocks[0], 0);
}

MISDEED(memory_that_waits_is_filled, "{fill} +a=1", "freed memory has changed") {
  memset((void *)(uintptr_t)w.blocks[0].at, 0, GRAIN);
  judge_freed(&w.blocks[0], 1);
}

MISDEED(the_mode_changes, "{mode:1}", "the thread's capture mode has changed") {
  int mode = (w.mode + 1) % 3;
  must(mock->capture_exchange(mock->user, &mode, &code), "the row's exchange");
  judge_step();
}

MISDEED(a_lost_device_is_used, "{}", "a device that is lost is asked for something") {
  lake->lost = GMLAKE_ERROR_DEVICE_LOST;
  (void)judged.device_wait(judged.user, &code);
}

MISDEED(a_lost_device_is_asked, "{}",
        "a device that is lost is asked whether a stream is captured") {
  lake->lost = GMLAKE_ERROR_DEVICE_LOST;
  (void)judged.is_capturing(judged.user, w.lines[1].value, &code, &code);
}

MISDEED(a_stream_that_is_gone_is_asked, "{may-end} kA",
        "a stream that is gone is asked whether it is captured") {
  (void)judged.is_capturing(judged.user, w.lines[1].value, &code, &code);
}

MISDEED(an_event_ends_twice, "{}", "an event was destroyed that does not exist") {
  void *event = a_fence();
  must(judged.event_destroy(judged.user, event, &code), "the row's event");
  event_leave(event);
}

MISDEED(a_call_does_not_end, "{}", "the operation does not end") {
  for (;;) (void)judged.event_query(judged.user, w.event, &code, &code);
}

static void leaves_memory(void) {
  uint64_t left;
  w.is_relaxed = 1;
  must(judged.create(judged.user, UNIT, 0, &left, &code), "the row's memory");
}

MISDEED(memory_is_left, "{}", "something is left when the lake is gone") { leaves_memory(); }

MISDEED(a_descriptor_is_left, "{share}", "a descriptor is left when the lake is gone") {
  own_descriptor = dup(STDERR_FILENO);
}

MISDEED(a_borrower_is_not_waited_for, "{} P0 BA:0/0 +a=1@A -a@A EA l0@A +b=1@A/t hA ub@A -b@A",
        "a pool is recalled while a borrower may still use it") {
  judge_recall(1, 2);
}

MISDEED(a_borrower_is_still_there, "{} P0 BA:0/0 +a=1@A -a@A EA l0@A +b=1@A/t",
        "a pool was recalled from under a borrowed block") {
  map_at(w.starts[1])->of->grains[0].is_borrowed = 1;
  judge_recall(1, 2);
}

/* ---- Figures --------------------------------------------------------------------------------- */

MISDEED(live_count_is_wrong, "{} +a=1@A", "live_count") {
  w.blocks[0].id = 0;
  judge_step();
}
MISDEED(requested_bytes_are_wrong, "{} +a=1@A", "requested_bytes") {
  w.blocks[0].asked--;
  judge_step();
}
MISDEED(active_bytes_are_wrong, "{} +a=1@A", "active_bytes") {
  w.blocks[0].bytes += GRAIN;
  judge_step();
}
MISDEED(buffer_count_is_wrong, "{} N0:4", "buffer_bytes") {
  w.buffers[0].value = NULL;
  judge_step();
}

/* ---- Blocks ---------------------------------------------------------------------------------- */

/* What the lake tells of block a, for the row to change. */
static gmlake_map_entry told_of_a(void) {
  gmlake_map_entry info;
  must(gmlake_find(lake, (void *)(uintptr_t)w.blocks[0].at, &info), "the row's block");
  return info;
}

MISDEED(another_place_is_told, "{} +a=1@A", "a block's ptr") {
  gmlake_map_entry info = told_of_a();
  info.address += GRAIN;
  judge_block(&w.blocks[0], &info, 0);
}
MISDEED(another_size_is_told, "{} +a=1@A", "a block is rounded wrongly") {
  gmlake_map_entry info = told_of_a();
  info.bytes += GRAIN;
  judge_block(&w.blocks[0], &info, 0);
}
MISDEED(another_stream_is_told, "{} +a=1@A", "a block's stream") {
  gmlake_map_entry info = told_of_a();
  info.stream = w.lines[2].value;
  judge_block(&w.blocks[0], &info, 0);
}
MISDEED(other_flags_are_told, "{} +a=1@A", "a block's flags") {
  gmlake_map_entry info = told_of_a();
  info.flags |= GMLAKE_EXCLUSIVE;
  judge_block(&w.blocks[0], &info, 0);
}
MISDEED(other_chunks_are_told, "{} +a=1@A", "a block has other chunks than are told") {
  block half = w.blocks[0];
  half.at += GRAIN;
  half.bytes -= GRAIN;
  judge_chunks(&half);
}
MISDEED(a_buffers_chunk_is_hidden, "{} N0:4 z0:1@A", "a buffer has other chunks than are told") {
  w.buffers[0].cells[1].id = 1;
  w.buffers[0].cells[1].at = w.buffers[0].at + w.chunk;
  judge_memory(&w.buffers[0]);
}
MISDEED(a_buffers_hole_is_told, "{} N0:4 z0:1@A", "a hole of a buffer is told as a chunk") {
  w.buffers[0].cells[0].id = 0;
  judge_memory(&w.buffers[0]);
}
MISDEED(no_buffer_is_found, "{} +a=1@A N0:4", "something else than a buffer is found") {
  w.buffers[0].at = w.blocks[0].at;
  judge_memory(&w.buffers[0]);
}
MISDEED(another_number_is_told, "{} N0:4 want:* C0:0,1", "a chunk's number is another's") {
  const uint32_t chunk = w.came[0];
  w.wanted = "*";
  w.numbered[chunk]++;
  judge_came(&w.buffers[0], 0, 1, &chunk);
}
MISDEED(a_pools_figures_are_anothers, "{} P0 +a=1@A", "a pool's figures") {
  w.blocks[0].pool = 1;
  judge_pool_figures(0);
}
MISDEED(a_window_serves_no_stitch, "{} +c=3@n -c@n +d=1 +b=1 +e=1 -de +a=2",
        "NO_STITCH was stitched") {
  judge_pieces(&w.blocks[0], GMLAKE_NO_STITCH, w.pools);
}
MISDEED(new_memory_is_not_filled, "{fill} +a=1", "new memory is not filled") {
  judge_filled(&w.blocks[0]);
}
MISDEED(free_memory_is_filled_as_new, "{fill} +b=1@n -b@n +a=512b",
        "memory behind a new block is filled") {
  const block *b = &w.blocks[0];
  memset((void *)(uintptr_t)(b->at + b->bytes), GMLAKE_FILL_NEW, GRAIN);
  judge_unfilled(b);
}

/* ---- Steps that the observer is told --------------------------------------------------------- */

static gmlake_step a_step(gmlake_step_kind kind) {
  gmlake_step e;
  memset(&e, 0, sizeof(e));
  e.kind = kind;
  e.reason = "a row";
  e.reserved_bytes = told.reserved_bytes;
  e.active_bytes = told.active_bytes;
  return e;
}

MISDEED(there_is_no_sixth_state, "{observed}", "an attempt in a state that there is not") {
  gmlake_step e = a_step(GMLAKE_STEP_ALLOC);
  e.state = 6;
  observe(NULL, &e);
}
/* An attempt that failed; number 1 is the next one. */
static gmlake_step an_attempt(uint64_t number) {
  gmlake_step e = a_step(GMLAKE_STEP_ALLOC);
  e.state = 5;
  e.asked_bytes = 1;
  e.request = told.newest + number;
  return e;
}
MISDEED(an_attempt_too_many_is_told, "{observed}", "an attempt that nobody made") {
  const gmlake_step e = an_attempt(2);
  observe(NULL, &e);
}
MISDEED(a_free_too_many_is_told, "{observed}", "a free is told that is not made") {
  const gmlake_step e = a_step(GMLAKE_STEP_FREE);
  observe(NULL, &e);
}
MISDEED(too_little_time_is_told, "{observed}", "an attempt that takes less time than its steps") {
  const gmlake_step e = an_attempt(1);
  told.steps_of = e.request;
  told.steps_ns = 1;
  observe(NULL, &e);
}
MISDEED(another_label_is_told, "{observed}", "a step is told with another label than its attempt") {
  gmlake_step e = an_attempt(1);
  told.done_for.request = e.request;
  e.label = "another";
  observe(NULL, &e);
}
MISDEED(another_attempt_is_told, "{observed} +a=1", "an attempt is told as another one") {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = UNIT + 1;
  judge_attempt(&wanted, NULL, NULL, w.blocks[0].at, told.attempt.driver_ns);
}
MISDEED(no_reason_is_told, "{observed}", "a step without a reason") {
  gmlake_step e = a_step(GMLAKE_STEP_TRIM);
  e.reason = "";
  observe(NULL, &e);
}
MISDEED(growth_of_nothing_is_told, "{observed}", "a step's reserved_bytes") {
  gmlake_step e = a_step(GMLAKE_STEP_GROW);
  e.bytes = UNIT;
  observe(NULL, &e);
}

/* ---- What was foretold, and refused ---------------------------------------------------------- */

/* Foretells a request for one chunk, and it ends so. */
static void foretells(gmlake_result said, gmlake_wait wait, size_t new_bytes, gmlake_result end) {
  forecast f;
  memset(&f, 0, sizeof(f));
  f.is_asked = 1;
  f.before = stats();
  f.said.result = said;
  f.said.wait = wait;
  f.said.new_bytes = new_bytes;
  judge_forecast(&f, end);
}

MISDEED(memory_is_foretold, "{}", "foretold GMLAKE_OK") {
  foretells(GMLAKE_OK, GMLAKE_NO_WAIT, 0, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
}
MISDEED(a_lack_is_foretold, "{}", "foretold GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY") {
  foretells(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0, GMLAKE_OK);
}
MISDEED(a_wait_is_foretold, "{}", "foretold GMLAKE_OK, wait 1") {
  foretells(GMLAKE_OK, GMLAKE_DEVICE_WAIT, 0, GMLAKE_OK);
}
MISDEED(growth_is_foretold, "{}", "foretold GMLAKE_OK, wait 0, new 1") {
  foretells(GMLAKE_OK, GMLAKE_NO_WAIT, UNIT, GMLAKE_OK);
}

/* Nothing but this may pass for a shortage. */
MISDEED(free_chunks_are_refused, "{cap:8} +a=4 -a", "free chunks serve") {
  judge(!is_servable(4 * UNIT, GMLAKE_NO_GROW, w.pools), "free chunks serve");
}
MISDEED(new_chunks_are_refused, "{cap:8} +a=4 -a", "new chunks serve") {
  judge(!is_servable(8 * UNIT, 0, w.pools), "new chunks serve");
}

MISDEED(an_error_says_nothing, "{}", "the last error is another one") {
  static const op asked = {'+', 0, 0, 0, 0, 0, UNIT, 0, 0};
  now = &asked;
  (void)is_done(GMLAKE_ERROR_DRIVER, "gmlake_alloc", LACK, GMLAKE_OK);
}

MISDEED(a_call_is_not_meddled_with, "{} in:map=2( T:0 ) +a=1",
        "a call that was to be meddled with was not made") {}

/* ---- A policy -------------------------------------------------------------------------------- */

MISDEED(what_lives_is_shown, "{} +a=1", "two live blocks share memory") {
  gmlake_piece piece;
  gmlake_view view;
  gmlake_request request;
  memset(&view, 0, sizeof(view));
  memset(&request, 0, sizeof(request));
  piece.home = (void *)(uintptr_t)w.blocks[0].at;
  piece.bytes = UNIT;
  view.chunk_bytes = w.chunk;
  view.blocks = &piece;
  view.block_count = 1;
  request.bytes = request.alignment = GRAIN;
  request.number = 1;
  judge_view(&view, &request);
}

/* The request for a, the line's first word, as a policy is to be shown it. */
static gmlake_request request_for_a(void) {
  gmlake_request request;
  memset(&request, 0, sizeof(request));
  w.at = 0;
  w.named = 1;
  request.number = 1;
  request.bytes = UNIT;
  request.alignment = GRAIN;
  request.stream = w.lines[1].value;
  judge_request(&request, 0);
  return request;
}

MISDEED(other_bytes_are_shown, "{} +a=1@A", "a request's bytes") {
  gmlake_request request = request_for_a();
  request.bytes++;
  judge_request(&request, 0);
}

MISDEED(other_flags_are_shown, "{} +a=1@A", "a request's flags") {
  gmlake_request request = request_for_a();
  request.flags = GMLAKE_NO_STITCH;
  judge_request(&request, 0);
}

MISDEED(another_stream_is_shown, "{} +a=1@A", "a request's stream") {
  gmlake_request request = request_for_a();
  request.stream = w.lines[2].value;
  judge_request(&request, 0);
}

MISDEED(another_alignment_is_shown, "{} +a=1@A", "a request's alignment") {
  gmlake_request request = request_for_a();
  request.alignment = UNIT;
  judge_request(&request, 0);
}

MISDEED(another_pool_is_shown, "{} +a=1@A P0", "a request's pool") {
  const gmlake_request request = request_for_a();
  judge_request(&request, 1);
}

MISDEED(other_figures_are_shown, "{} +a=1@A", "a view's figures") {
  const gmlake_request request = request_for_a();
  gmlake_view view;
  memset(&view, 0, sizeof(view));
  view.chunk_bytes = w.chunk;
  view.reserved_bytes = stats().reserved_bytes + 1;
  view.stitched_bytes_max = lake->desc.stitched_bytes_max;
  judge_view(&view, &request);
}

MISDEED(a_plan_is_made, "{} +a=1@A", "a plan to be made is not blank") {
  const gmlake_request request = request_for_a();
  gmlake_piece piece;
  gmlake_plan plan;
  gmlake_view view;
  memset(&view, 0, sizeof(view));
  memset(&plan, 0, sizeof(plan));
  plan.pieces = &piece;
  plan.piece_capacity = 1;
  plan.state = 1;
  on_choose(&asked, &view, &request, &plan);
}

MISDEED(another_block_is_freed, "{} +a=1@A",
        "a policy is told of another block than the one that is freed") {
  gmlake_piece piece;
  piece.home = (void *)(uintptr_t)w.blocks[0].at;
  piece.bytes = UNIT + GRAIN;
  w.leaving = &w.blocks[0];
  (void)on_coalesce(&asked, &piece);
}

/* ---- Calls that are to be refused, and what is told ------------------------------------------ */

MISDEED(a_policy_is_served, "{}", "gmlake_alloc in a policy") { try_restricted(); }

MISDEED(the_handler_is_served, "{} Q", "gmlake_alloc in the handler") {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  (void)on_oom(NULL, lake, &info);
}

MISDEED(a_message_says_nothing, "{}", "a message without a call or a text") {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  on_log(NULL, GMLAKE_LOG_WARNING, &info);
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static watched_lock own_lock;

LOCKED(a_lock_is_taken_twice, "{}", "a lock is taken by who holds it") {
  lock_make(&own_lock);
  lock_take(&own_lock);
  lock_take(&own_lock);
}

LOCKED(no_lock_is_taken, "{}", "a lock is taken that was not made") {
  memset(&own_lock, 0xA5, sizeof(own_lock));
  lock_take(&own_lock);
}

LOCKED(no_lock_is_ended, "{}", "a lock is destroyed that was not made") {
  memset(&own_lock, 0xA5, sizeof(own_lock));
  lock_end(&own_lock);
}

LOCKED(no_lock_is_given_back, "{}", "a lock is given back by who does not hold it") {
  lock_give(&lake->state_lock);
}

LOCKED(a_lock_ends_that_is_held, "{}", "a lock is destroyed while it is held") {
  lock_take(&lake->state_lock);
  lock_end(&lake->state_lock);
}

LOCKED(locks_are_taken_in_the_wrong_order, "{}",
       "the planner's lock is taken by who holds the state lock") {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  lock_take(&lake->driver_lock);
}

LOCKED(a_lock_is_kept, "{} Q", "a lock is held behind a call") {
  lock_make(&own_lock);
  lock_take(&own_lock);
  perform(&w.program->ops[0]);
}

LOCKED(a_lock_is_left, "{}", "a lock is left when the lake is gone") { lock_make(&own_lock); }

LOCKED(the_logger_runs_with_a_lock, "{}", "the logger runs with a lock held") {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.call = info.text;
  info.text[0] = 'x';
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  on_log(NULL, GMLAKE_LOG_WARNING, &info);
}

LOCKED(the_handler_runs_with_a_lock, "{}", "the handler runs with a lock held") {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  lock_take(&lake->driver_lock);
  (void)on_oom(NULL, lake, &info);
}

LOCKED(the_observer_runs_without_a_lock, "{observed}",
       "the observer is told without the state lock") {
  observe(NULL, &told.attempt);
}

/* Without the driver lock, or with both. */
LOCKED(nobody_plans_who_asks_to_choose, "{}", "choose is not asked as a planner") {
  gmlake_plan plan;
  gmlake_view view;
  memset(&plan, 0, sizeof(plan));
  memset(&view, 0, sizeof(view));
  on_choose(&asked, &view, NULL, &plan);
}

LOCKED(the_state_is_locked_when_to_evict, "{}", "evict is not asked as a planner") {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  (void)on_evict(&asked, NULL, 0, NULL);
}

LOCKED(the_state_is_locked_when_to_coalesce, "{}", "coalesce is asked with the state lock held") {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  (void)on_coalesce(&asked, NULL);
}

LOCKED(nobody_plans_who_creates, "{}", "the driver is at work with other locks than a planner's") {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  leaves_memory();
}

/* The next lake asks this for its device's properties. */
static void is_created_on(gmlake_result (*get_properties)(void *, gmlake_device_properties *,
                                                          int *)) {
  (void)end_lake();
  judged.get_properties = get_properties;
  create_lake();
}

static gmlake_result properties_with_a_lock(void *user, gmlake_device_properties *out,
                                            int *out_code) {
  lock_make(&own_lock);
  return mock->get_properties(user, out, out_code);
}

LOCKED(a_lock_too_many_is_made, "{} Q", "gmlake_create makes other locks, or holds one") {
  is_created_on(properties_with_a_lock);
}

static gmlake_result properties_that_fail(void *user, gmlake_device_properties *out,
                                          int *out_code) {
  (void)user;
  (void)out;
  w.hits += 2;
  w.injected[ON_MAP] = BIT(GMLAKE_ERROR_DRIVER); /* as if that had failed, and this otherwise */
  w.injected[ON_PROPERTIES] = BIT(GMLAKE_ERROR_UNSUPPORTED);
  w.injected[ON_ANY] = w.injected[ON_MAP] | w.injected[ON_PROPERTIES];
  *out_code = w.hit_code = 999;
  return GMLAKE_ERROR_DRIVER;
}

static gmlake_result properties_that_fail_otherwise(void *user, gmlake_device_properties *out,
                                                    int *out_code) {
  (void)properties_that_fail(user, out, out_code);
  return GMLAKE_ERROR_CAPTURING;
}

LOCKED(another_call_is_blamed, "{} Q", "gmlake_create says otherwise") {
  is_created_on(properties_that_fail);
}
LOCKED(another_failure_is_told, "{} Q", "gmlake_create fails") {
  is_created_on(properties_that_fail_otherwise);
}

/* ---- Counting -------------------------------------------------------------------------------- */

/* The judge has counted one more than what the lake tells. */
static void slip(void *counted) {
  uint64_t count;
  memcpy(&count, counted, sizeof(count));
  count++;
  memcpy(counted, &count, sizeof(count));
  judge_step();
}

MISDEED(active_bytes_peak_is_wrong, "{}", "active_bytes_peak") { slip(&sums.active_peak); }
MISDEED(requested_bytes_peak_is_wrong, "{}", "requested_bytes_peak") { slip(&sums.requested_peak); }
MISDEED(allocation_count_is_wrong, "{}", "allocation_count") { slip(&sums.allocations); }
MISDEED(free_count_is_wrong, "{}", "free_count") { slip(&sums.frees); }
MISDEED(oom_count_is_wrong, "{}", "oom_count") { slip(&sums.lacks); }
MISDEED(stream_wait_count_is_wrong, "{}", "stream_wait_count") { slip(&w.stream_waits); }
MISDEED(host_wait_count_is_wrong, "{}", "host_wait_count") { slip(&w.host_waits); }
MISDEED(event_count_is_wrong, "{}", "event_count") { slip(&w.records); }
MISDEED(driver_call_count_is_wrong, "{}", "driver_call_count") { slip(&w.driver_calls); }
MISDEED(metadata_bytes_are_wrong, "{}", "metadata_bytes") { slip(&host_bytes); }
MISDEED(frees_are_not_told, "{observed} +a=1 -a", "told of other frees") {
  slip(&told.count[GMLAKE_STEP_FREE]);
}
MISDEED(growth_is_not_told, "{observed} +a=1", "told of other memory") {
  slip(&told.reserved_bytes);
}
MISDEED(another_state_is_told, "{observed} +a=1", "told of other states") { slip(&told.states[1]); }

int main(void) { return run_cases("judge"); }
