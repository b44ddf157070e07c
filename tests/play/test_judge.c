/* Whether the judge sees. In each row a line is played, and then the row does what a bad lake might
   do: calls of the driver through the judged table, memory handed over, figures that are wrong. The
   rule that this breaks has to be the verdict. A judge that has gone blind fails here, whatever the
   lake does right. */
#include "lake.h"

#include "cases.h"

static int code;
static int own_descriptor = -1; /* that a row has left */

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
static void serves_b(void) { hand_a_to(2, 0, 0); }
static void serves_nobody(void) { hand_a_to(NOBODY, 0, 0); }
static void serves_pool_0(void) { hand_a_to(1, 0, 1); }

static void serves_though_exported(void) {
  map_at(w.starts[0])->of->grains[0].is_exported = 1;
  hand_a_to(1, 0, 0);
}

static void changes_an_import(void) {
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
static void promises_too_much(void) { promises(1); }
static void promises_too_little(void) { promises((size_t)-2); }

static void serves_a_capture_of_pool_0(void) { hand_a_to(2, 2, 1); }
static void serves_a_capture_of_pool_1(void) { hand_a_to(2, 2, 2); }

/* A borrower has it. */
static void lends_a(void) {
  block copy = w.blocks[0];
  copy.at = w.starts[0];
  copy.bytes = UNIT;
  copy.id = ++w.next_id;
  w.pools[1].is_lent = 1;
  hand_over(&copy, &w.lines[2].now, 0, 1, 0);
}

static void serves_unmapped(void) {
  w.blocks[0].at += (uint64_t)1 << 40;
  hand_a_to(1, 0, 0);
}

static void serves_without_access(void) {
  map_at(w.blocks[0].at)->is_accessible = 0;
  give_back(&w.blocks[0]);
  hand_a_to(1, 0, 0);
}

static void shares_a_chunk(void) {
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

static void records_on_b(void) {
  w.named = 1;
  (void)judged.event_record(judged.user, a_fence(), w.lines[2].value, &code);
}

static void records_on_a(void) {
  w.named = 1;
  (void)judged.event_record(judged.user, a_fence(), w.lines[1].value, &code);
}

static void makes_a_wait(void) {
  w.named = 1;
  w.is_recalled = 0;
  (void)judged.stream_wait(judged.user, w.lines[1].value, w.event, &code);
}

static void waits_for_the_device(void) { (void)judged.device_wait(judged.user, &code); }

static void copies(void) {
  char host[16];
  (void)judged.copy(judged.user, w.starts[0], host, sizeof(host), 1, &code);
}

static void copies_nothing(void) {
  char host[16];
  (void)judged.copy(judged.user, UNIT, host, sizeof(host), 1, &code);
}

static void waits_for_no_copy(void) { (void)judged.copy(judged.user, 0, NULL, 0, 1, &code); }

static void copies_on(void) {
  copies();
  judge_step();
}

static void has_host_memory_in_a_strict_mode(void) {
  void *host;
  (void)judged.host_alloc(judged.user, 16, &host, &code);
}

static void opens_to_others(void) {
  (void)judged.set_access(judged.user, w.starts[0], UNIT, w.peers, 1, &code);
}

static void writes_behind(void) {
  char *host = (char *)host_malloc(NULL, 5);
  host[5] = 0;
  host_free(NULL, host);
}

static void forgets_contents(void) {
  memset((void *)(uintptr_t)w.blocks[0].at, 0, GRAIN);
  judge_stamps(&w.blocks[0]);
}

static void frees_without_a_trace(void) { judge_freed(&w.blocks[0], 0); }

static void frees_and_writes(void) {
  memset((void *)(uintptr_t)w.blocks[0].at, 0, GRAIN);
  judge_freed(&w.blocks[0], 1);
}

static void forgets_the_mode(void) {
  int mode = (w.mode + 1) % 3;
  must(mock->capture_exchange(mock->user, &mode, &code), "the row's exchange");
  judge_step();
}

static void uses_a_lost_device(void) {
  lake->lost = GMLAKE_ERROR_DEVICE_LOST;
  (void)judged.device_wait(judged.user, &code);
}

static void asks_a_lost_device(void) {
  lake->lost = GMLAKE_ERROR_DEVICE_LOST;
  (void)judged.is_capturing(judged.user, w.lines[1].value, &code, &code);
}

static void asks_a_stream_that_is_gone(void) {
  (void)judged.is_capturing(judged.user, w.lines[1].value, &code, &code);
}

static void ends_an_event_twice(void) {
  void *event = a_fence();
  must(judged.event_destroy(judged.user, event, &code), "the row's event");
  event_leave(event);
}

static void asks_for_ever(void) {
  for (;;) (void)judged.event_query(judged.user, w.event, &code, &code);
}

static void leaves_memory(void) {
  uint64_t left;
  w.is_relaxed = 1;
  must(judged.create(judged.user, UNIT, 0, &left, &code), "the row's memory");
}

static void leaves_a_descriptor(void) { own_descriptor = dup(STDERR_FILENO); }

static void recalls_early(void) { judge_recall(1, 2); }

static void recalls_from_under(void) {
  map_at(w.starts[1])->of->grains[0].is_borrowed = 1;
  judge_recall(1, 2);
}

/* ---- Figures --------------------------------------------------------------------------------- */

static void counts_a_block_too_many(void) {
  w.blocks[0].id = 0;
  judge_step();
}
static void tells_other_sizes(void) {
  w.blocks[0].asked--;
  judge_step();
}
static void tells_other_bytes(void) {
  w.blocks[0].bytes += GRAIN;
  judge_step();
}
static void counts_a_buffer_too_few(void) {
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

static void tells_another_place(void) {
  gmlake_map_entry info = told_of_a();
  info.address += GRAIN;
  judge_block(&w.blocks[0], &info, 0);
}
static void tells_another_size(void) {
  gmlake_map_entry info = told_of_a();
  info.bytes += GRAIN;
  judge_block(&w.blocks[0], &info, 0);
}
static void tells_another_stream(void) {
  gmlake_map_entry info = told_of_a();
  info.stream = w.lines[2].value;
  judge_block(&w.blocks[0], &info, 0);
}
static void tells_other_flags(void) {
  gmlake_map_entry info = told_of_a();
  info.flags |= GMLAKE_EXCLUSIVE;
  judge_block(&w.blocks[0], &info, 0);
}
static void tells_other_chunks(void) {
  block half = w.blocks[0];
  half.at += GRAIN;
  half.bytes -= GRAIN;
  judge_chunks(&half);
}
static void hides_a_buffers_chunk(void) {
  w.buffers[0].cells[1].id = 1;
  w.buffers[0].cells[1].at = w.buffers[0].at + w.chunk;
  judge_memory(&w.buffers[0]);
}
static void tells_a_hole(void) {
  w.buffers[0].cells[0].id = 0;
  judge_memory(&w.buffers[0]);
}
static void finds_no_buffer(void) {
  w.buffers[0].at = w.blocks[0].at;
  judge_memory(&w.buffers[0]);
}
static void tells_another_number(void) {
  const uint32_t chunk = w.came[0];
  w.wanted = "*";
  w.numbered[chunk]++;
  judge_came(&w.buffers[0], 0, 1, &chunk);
}
static void counts_for_another_pool(void) {
  w.blocks[0].pool = 1;
  judge_pool_figures(0);
}
static void stitches_a(void) { judge_pieces(&w.blocks[0], GMLAKE_NO_STITCH, w.pools); }
static void does_not_fill(void) { judge_filled(&w.blocks[0]); }
static void fills_too_much(void) {
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

static void tells_a_sixth_state(void) {
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
static void tells_an_attempt_too_many(void) {
  const gmlake_step e = an_attempt(2);
  observe(NULL, &e);
}
static void tells_a_free_too_many(void) {
  const gmlake_step e = a_step(GMLAKE_STEP_FREE);
  observe(NULL, &e);
}
static void tells_too_little_time(void) {
  const gmlake_step e = an_attempt(1);
  told.steps_of = e.request;
  told.steps_ns = 1;
  observe(NULL, &e);
}
static void tells_another_label(void) {
  gmlake_step e = an_attempt(1);
  told.done_for.request = e.request;
  e.label = "another";
  observe(NULL, &e);
}
static void tells_another_attempt(void) {
  gmlake_alloc_desc wanted;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = UNIT + 1;
  judge_attempt(&wanted, NULL, NULL, w.blocks[0].at, told.attempt.driver_ns);
}
static void tells_no_reason(void) {
  gmlake_step e = a_step(GMLAKE_STEP_TRIM);
  e.reason = "";
  observe(NULL, &e);
}
static void tells_growth_of_nothing(void) {
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

static void foretells_memory(void) {
  foretells(GMLAKE_OK, GMLAKE_NO_WAIT, 0, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
}
static void foretells_a_lack(void) {
  foretells(GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, GMLAKE_NO_WAIT, 0, GMLAKE_OK);
}
static void foretells_a_wait(void) { foretells(GMLAKE_OK, GMLAKE_DEVICE_WAIT, 0, GMLAKE_OK); }
static void foretells_growth(void) { foretells(GMLAKE_OK, GMLAKE_NO_WAIT, UNIT, GMLAKE_OK); }

/* Nothing but this may pass for a shortage. */
static void refuses_what_is_free(void) {
  judge(!is_servable(4 * UNIT, GMLAKE_NO_GROW, w.pools), "free chunks serve");
}
static void refuses_what_can_be_made(void) {
  judge(!is_servable(8 * UNIT, 0, w.pools), "new chunks serve");
}

static void says_nothing_of_a_failure(void) {
  static const op asked = {'+', 0, 0, 0, 0, 0, UNIT, 0, 0};
  now = &asked;
  (void)is_done(GMLAKE_ERROR_DRIVER, "gmlake_alloc", LACK, GMLAKE_OK);
}

static void makes_no_call(void) {}

/* ---- A policy -------------------------------------------------------------------------------- */

static void shows_what_lives(void) {
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

static void shows_other_bytes(void) {
  gmlake_request request = request_for_a();
  request.bytes++;
  judge_request(&request, 0);
}

static void shows_other_flags(void) {
  gmlake_request request = request_for_a();
  request.flags = GMLAKE_NO_STITCH;
  judge_request(&request, 0);
}

static void shows_another_stream(void) {
  gmlake_request request = request_for_a();
  request.stream = w.lines[2].value;
  judge_request(&request, 0);
}

static void shows_another_alignment(void) {
  gmlake_request request = request_for_a();
  request.alignment = UNIT;
  judge_request(&request, 0);
}

static void shows_another_pool(void) {
  const gmlake_request request = request_for_a();
  judge_request(&request, 1);
}

static void shows_other_figures(void) {
  const gmlake_request request = request_for_a();
  gmlake_view view;
  memset(&view, 0, sizeof(view));
  view.chunk_bytes = w.chunk;
  view.reserved_bytes = stats().reserved_bytes + 1;
  view.stitched_bytes_max = lake->desc.stitched_bytes_max;
  judge_view(&view, &request);
}

static void gives_a_plan_that_is_made(void) {
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

static void frees_another(void) {
  gmlake_piece piece;
  piece.home = (void *)(uintptr_t)w.blocks[0].at;
  piece.bytes = UNIT + GRAIN;
  w.leaving = &w.blocks[0];
  (void)on_coalesce(&asked, &piece);
}

/* ---- Calls that are to be refused, and what is told ------------------------------------------ */

static void serves_a_policy(void) { try_restricted(); }

static void serves_the_handler(void) {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  (void)on_oom(NULL, lake, &info);
}

static void tells_nothing(void) {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  on_log(NULL, GMLAKE_LOG_WARNING, &info);
}

/* ---- Locks ----------------------------------------------------------------------------------- */

static watched_lock own_lock;

static void takes_a_lock_twice(void) {
  lock_make(&own_lock);
  lock_take(&own_lock);
  lock_take(&own_lock);
}

static void takes_what_is_no_lock(void) {
  memset(&own_lock, 0xA5, sizeof(own_lock));
  lock_take(&own_lock);
}

static void ends_what_is_no_lock(void) {
  memset(&own_lock, 0xA5, sizeof(own_lock));
  lock_end(&own_lock);
}

static void gives_back_what_is_free(void) { lock_give(&lake->state_lock); }

static void ends_a_lock_that_is_held(void) {
  lock_take(&lake->state_lock);
  lock_end(&lake->state_lock);
}

static void plans_with_the_state_locked(void) {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  lock_take(&lake->driver_lock);
}

static void keeps_a_lock(void) {
  lock_make(&own_lock);
  lock_take(&own_lock);
  perform(&w.program->ops[0]);
}

static void leaves_a_lock(void) { lock_make(&own_lock); }

static void tells_with_a_lock(void) {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.call = info.text;
  info.text[0] = 'x';
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  on_log(NULL, GMLAKE_LOG_WARNING, &info);
}

static void lacks_with_a_lock(void) {
  gmlake_error_info info;
  memset(&info, 0, sizeof(info));
  info.result = GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  lock_take(&lake->driver_lock);
  (void)on_oom(NULL, lake, &info);
}

static void is_watched_without_a_lock(void) { observe(NULL, &told.attempt); }

/* Without the driver lock, or with both. */
static void chooses_alone(void) {
  gmlake_plan plan;
  gmlake_view view;
  memset(&plan, 0, sizeof(plan));
  memset(&view, 0, sizeof(view));
  on_choose(&asked, &view, NULL, &plan);
}

static void evicts_alone(void) {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  (void)on_evict(&asked, NULL, 0, NULL);
}

static void coalesces_with_a_lock(void) {
  gmlk_spinlock_lock(&lake->state_lock, lake->has_locks);
  (void)on_coalesce(&asked, NULL);
}

static void creates_for_no_planner(void) {
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

static void makes_a_lock_too_many(void) { is_created_on(properties_with_a_lock); }

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

static void blames_another_call(void) { is_created_on(properties_that_fail); }
static void fails_otherwise(void) { is_created_on(properties_that_fail_otherwise); }

/* ---- Rows ------------------------------------------------------------------------------------ */

static const struct misdeed {
  const char *name, *line;
  void (*act)(void);
  const char *rule;
} misdeeds[] = {
    {"memory_serves_twice", "{} +a=1@A", serves_twice, "two live blocks share memory: block a"},
    {"pending_memory_serves", "{} +a=1@A ua@A hA -a@A", serves_b,
     "handed over while work may still use it: stream A"},
    {"none_is_behind_nothing", "{} +a=1@A ua@A hA -a@A", serves_nobody,
     "handed over while work may still use it"},
    {"exported_memory_serves", "{} +a=1@A -a@A", serves_though_exported,
     "exported memory was handed over"},
    {"an_import_changes", "{share} +a=1/x xa ib=a", changes_an_import, "an import has changed"},
    {"a_budget_promises_too_much", "{} +a=1", promises_too_much,
     "what the budget promises is not served"},
    {"a_budget_keeps_memory_back", "{} +a=1", promises_too_little, "the budget keeps memory back"},
    {"a_graphs_memory_serves_outside", "{} P0 BA:0/0 +a=1@A EA", serves_pool_0,
     "two live blocks share memory"},
    {"a_graphs_free_memory_serves_outside", "{} P0 BA:0/0 +a=1@A -a@A EA", serves_pool_0,
     "memory of a graph was handed over outside captures"},
    {"a_graphs_memory_serves_another_pool", "{} P0 P1 BA:0/0 +a=1@A -a@A EA BB:1/1",
     serves_a_capture_of_pool_1, "memory of a graph went to another pool"},
    {"two_captures_share", "{} P0 BA:0/0 +a=1@A -a@A BB:0/1", serves_a_capture_of_pool_0,
     "two captures share memory"},
    {"a_capture_lends", "{} P0 BA:0/0 +a=1@A -a@A", lends_a, "a capture's memory was borrowed"},
    {"a_pools_memory_serves_another", "{} P0 +a=1@A/0 +b=1@A/0 -a@A", serves_twice,
     "a pool's memory serves another"},
    {"nothing_is_mapped", "{} +a=1@A", serves_unmapped, "a block lies where nothing is mapped"},
    {"access_lacks", "{} +a=1@A", serves_without_access, "a block lies in memory without access"},
    {"a_chunk_is_shared", "{} +a=1@A/x", shares_a_chunk, "EXCLUSIVE shares a chunk"},
    {"a_live_block_is_unmapped", "{} +a=1@A", unmaps, "a live block was unmapped: block a"},
    {"work_is_unmapped", "{} +a=1@A ua@A hA -a@A", unmaps,
     "unmapped while work may still use it: stream A"},
    {"a_graph_is_unmapped", "{} P0 BA:0/0 +a=1@A -a@A EA", unmaps, "unmapped under a graph"},
    {"another_stream_is_touched", "{may-end} +a=1@A", records_on_b,
     "a stream is touched that the call does not name"},
    {"a_stream_that_is_gone_is_touched", "{may-end} +a=1@A kA", records_on_a,
     "a call for a stream that is gone"},
    {"a_capture_is_recorded_on", "{} P0 BA:0/0", records_on_a,
     "an event is recorded where a capture forbids it"},
    {"a_capture_waits", "{} P0 BA:0/0", makes_a_wait,
     "a stream was made to wait where a capture forbids it"},
    {"a_communicator_waits", "{} mA:1", makes_a_wait,
     "a stream that communicates was made to wait"},
    {"the_device_is_waited_for", "{} P0 BA:0/0", waits_for_the_device,
     "the whole device is waited for though a capture forbids it"},
    {"what_is_used_is_copied", "{} +a=1@A hA ua@A", copies, "copied while work may still use it"},
    {"what_is_not_there_is_copied", "{} +a=1@A", copies_nothing, "what is copied is not mapped"},
    {"no_copy_is_waited_for", "{}", waits_for_no_copy, "a wait for copies where none runs"},
    {"a_copy_runs_on", "{} +a=1@A", copies_on, "a copy still runs when its call has ended"},
    {"the_mode_is_strict", "{}", has_host_memory_in_a_strict_mode,
     "a call that needs the relaxed capture mode"},
    {"others_get_access", "{} +a=1@A", opens_to_others,
     "access for other devices than the description names"},
    {"host_memory_is_overrun", "{}", writes_behind, "the lake: host memory was written around"},
    {"contents_change", "{} +a=1@A", forgets_contents,
     "a live block does not hold what was written to it"},
    {"the_mode_changes", "{mode:1}", forgets_the_mode, "the thread's capture mode has changed"},
    {"a_lost_device_is_used", "{}", uses_a_lost_device,
     "a device that is lost is asked for something"},
    {"a_lost_device_is_asked", "{}", asks_a_lost_device,
     "a device that is lost is asked whether a stream is captured"},
    {"a_stream_that_is_gone_is_asked", "{may-end} kA", asks_a_stream_that_is_gone,
     "a stream that is gone is asked whether it is captured"},
    {"an_event_ends_twice", "{}", ends_an_event_twice,
     "an event was destroyed that does not exist"},
    {"a_call_does_not_end", "{}", asks_for_ever, "the operation does not end"},
    {"memory_is_left", "{}", leaves_memory, "something is left when the lake is gone"},
    {"a_descriptor_is_left", "{share}", leaves_a_descriptor,
     "a descriptor is left when the lake is gone"},
    {"a_borrower_is_not_waited_for", "{} P0 BA:0/0 +a=1@A -a@A EA l0@A +b=1@A/t hA ub@A -b@A",
     recalls_early, "a pool is recalled while a borrower may still use it"},
    {"a_borrower_is_still_there", "{} P0 BA:0/0 +a=1@A -a@A EA l0@A +b=1@A/t", recalls_from_under,
     "a pool was recalled from under a borrowed block"},
    {"live_count_is_wrong", "{} +a=1@A", counts_a_block_too_many, "live_count"},
    {"requested_bytes_are_wrong", "{} +a=1@A", tells_other_sizes, "requested_bytes"},
    {"active_bytes_are_wrong", "{} +a=1@A", tells_other_bytes, "active_bytes"},
    {"buffer_count_is_wrong", "{} N0:4", counts_a_buffer_too_few, "buffer_bytes"},
    {"another_place_is_told", "{} +a=1@A", tells_another_place, "a block's ptr"},
    {"another_size_is_told", "{} +a=1@A", tells_another_size, "a block is rounded wrongly"},
    {"another_stream_is_told", "{} +a=1@A", tells_another_stream, "a block's stream"},
    {"other_flags_are_told", "{} +a=1@A", tells_other_flags, "a block's flags"},
    {"other_chunks_are_told", "{} +a=1@A", tells_other_chunks,
     "a block has other chunks than are told"},
    {"a_buffers_chunk_is_hidden", "{} N0:4 z0:1@A", hides_a_buffers_chunk,
     "a buffer has other chunks than are told"},
    {"a_buffers_hole_is_told", "{} N0:4 z0:1@A", tells_a_hole,
     "a hole of a buffer is told as a chunk"},
    {"no_buffer_is_found", "{} +a=1@A N0:4", finds_no_buffer,
     "something else than a buffer is found"},
    {"another_number_is_told", "{} N0:4 want:* C0:0,1", tells_another_number,
     "a chunk's number is another's"},
    {"a_pools_figures_are_anothers", "{} P0 +a=1@A", counts_for_another_pool, "a pool's figures"},
    {"freed_memory_is_not_filled", "{fill} +a=1", frees_without_a_trace,
     "freed memory is not filled"},
    {"memory_that_waits_is_filled", "{fill} +a=1", frees_and_writes, "freed memory has changed"},
    {"a_window_serves_no_stitch", "{} +c=3@n -c@n +d=1 +b=1 +e=1 -de +a=2", stitches_a,
     "NO_STITCH was stitched"},
    {"new_memory_is_not_filled", "{fill} +a=1", does_not_fill, "new memory is not filled"},
    {"free_memory_is_filled_as_new", "{fill} +b=1@n -b@n +a=512b", fills_too_much,
     "memory behind a new block is filled"},
    {"there_is_no_sixth_state", "{observed}", tells_a_sixth_state,
     "an attempt in a state that there is not"},
    {"an_attempt_too_many_is_told", "{observed}", tells_an_attempt_too_many,
     "an attempt that nobody made"},
    {"a_free_too_many_is_told", "{observed}", tells_a_free_too_many,
     "a free is told that is not made"},
    {"too_little_time_is_told", "{observed}", tells_too_little_time,
     "an attempt that takes less time than its steps"},
    {"another_label_is_told", "{observed}", tells_another_label,
     "a step is told with another label than its attempt"},
    {"another_attempt_is_told", "{observed} +a=1", tells_another_attempt,
     "an attempt is told as another one"},
    {"no_reason_is_told", "{observed}", tells_no_reason, "a step without a reason"},
    {"growth_of_nothing_is_told", "{observed}", tells_growth_of_nothing, "a step's reserved_bytes"},
    {"memory_is_foretold", "{}", foretells_memory, "foretold GMLAKE_OK"},
    {"a_lack_is_foretold", "{}", foretells_a_lack, "foretold GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY"},
    {"a_wait_is_foretold", "{}", foretells_a_wait, "foretold GMLAKE_OK, wait 1"},
    {"growth_is_foretold", "{}", foretells_growth, "foretold GMLAKE_OK, wait 0, new 1"},
    {"free_chunks_are_refused", "{cap:8} +a=4 -a", refuses_what_is_free, "free chunks serve"},
    {"new_chunks_are_refused", "{cap:8} +a=4 -a", refuses_what_can_be_made, "new chunks serve"},
    {"a_call_is_not_meddled_with", "{} in:map=2( T:0 ) +a=1", makes_no_call,
     "a call that was to be meddled with was not made"},
    {"an_error_says_nothing", "{}", says_nothing_of_a_failure, "the last error is another one"},
    {"what_lives_is_shown", "{} +a=1", shows_what_lives, "two live blocks share memory"},
    {"other_bytes_are_shown", "{} +a=1@A", shows_other_bytes, "a request's bytes"},
    {"other_flags_are_shown", "{} +a=1@A", shows_other_flags, "a request's flags"},
    {"another_stream_is_shown", "{} +a=1@A", shows_another_stream, "a request's stream"},
    {"another_alignment_is_shown", "{} +a=1@A", shows_another_alignment, "a request's alignment"},
    {"another_pool_is_shown", "{} +a=1@A P0", shows_another_pool, "a request's pool"},
    {"other_figures_are_shown", "{} +a=1@A", shows_other_figures, "a view's figures"},
    {"a_plan_is_made", "{} +a=1@A", gives_a_plan_that_is_made, "a plan to be made is not blank"},
    {"another_block_is_freed", "{} +a=1@A", frees_another,
     "a policy is told of another block than the one that is freed"},
    {"a_policy_is_served", "{}", serves_a_policy, "gmlake_alloc in a policy"},
    {"the_handler_is_served", "{} Q", serves_the_handler, "gmlake_alloc in the handler"},
    {"a_message_says_nothing", "{}", tells_nothing, "a message without a call or a text"},
    {"a_lock_is_taken_twice", "{}", takes_a_lock_twice, "a lock is taken by who holds it"},
    {"no_lock_is_taken", "{}", takes_what_is_no_lock, "a lock is taken that was not made"},
    {"no_lock_is_ended", "{}", ends_what_is_no_lock, "a lock is destroyed that was not made"},
    {"no_lock_is_given_back", "{}", gives_back_what_is_free,
     "a lock is given back by who does not hold it"},
    {"a_lock_ends_that_is_held", "{}", ends_a_lock_that_is_held,
     "a lock is destroyed while it is held"},
    {"locks_are_taken_in_the_wrong_order", "{}", plans_with_the_state_locked,
     "the planner's lock is taken by who holds the state lock"},
    {"a_lock_is_kept", "{} Q", keeps_a_lock, "a lock is held behind a call"},
    {"a_lock_is_left", "{}", leaves_a_lock, "a lock is left when the lake is gone"},
    {"the_logger_runs_with_a_lock", "{}", tells_with_a_lock, "the logger runs with a lock held"},
    {"the_handler_runs_with_a_lock", "{}", lacks_with_a_lock, "the handler runs with a lock held"},
    {"the_observer_runs_without_a_lock", "{observed}", is_watched_without_a_lock,
     "the observer is told without the state lock"},
    {"nobody_plans_who_asks_to_choose", "{}", chooses_alone, "choose is not asked as a planner"},
    {"the_state_is_locked_when_to_evict", "{}", evicts_alone, "evict is not asked as a planner"},
    {"the_state_is_locked_when_to_coalesce", "{}", coalesces_with_a_lock,
     "coalesce is asked with the state lock held"},
    {"nobody_plans_who_creates", "{}", creates_for_no_planner,
     "the driver is at work with other locks than a planner's"},
    {"a_lock_too_many_is_made", "{} Q", makes_a_lock_too_many,
     "gmlake_create makes other locks, or holds one"},
    {"another_call_is_blamed", "{} Q", blames_another_call, "gmlake_create says otherwise"},
    {"another_failure_is_told", "{} Q", fails_otherwise, "gmlake_create fails"},
};
#define OF_LOCKS 18 /* of them, at the end: with the lake's locks */
#define MISDEEDS (sizeof(misdeeds) / sizeof(misdeeds[0]))

/* What the judge has counted is one more than what the lake tells. */
static const struct slip {
  const char *name, *line;
  void *counted; /* of eight bytes */
  const char *rule;
} slips[] = {
    {"active_bytes_peak_is_wrong", "{}", &sums.active_peak, "active_bytes_peak"},
    {"requested_bytes_peak_is_wrong", "{}", &sums.requested_peak, "requested_bytes_peak"},
    {"allocation_count_is_wrong", "{}", &sums.allocations, "allocation_count"},
    {"free_count_is_wrong", "{}", &sums.frees, "free_count"},
    {"oom_count_is_wrong", "{}", &sums.lacks, "oom_count"},
    {"stream_wait_count_is_wrong", "{}", &w.stream_waits, "stream_wait_count"},
    {"host_wait_count_is_wrong", "{}", &w.host_waits, "host_wait_count"},
    {"event_count_is_wrong", "{}", &w.records, "event_count"},
    {"driver_call_count_is_wrong", "{}", &w.driver_calls, "driver_call_count"},
    {"metadata_bytes_are_wrong", "{}", &host_bytes, "metadata_bytes"},
    {"frees_are_not_told", "{observed} +a=1 -a", &told.count[GMLAKE_STEP_FREE],
     "told of other frees"},
    {"growth_is_not_told", "{observed} +a=1", &told.reserved_bytes, "told of other memory"},
    {"another_state_is_told", "{observed} +a=1", &told.states[1], "told of other states"},
};
#define SLIPS (sizeof(slips) / sizeof(slips[0]))

static struct misdeed of_slips[SLIPS]; /* as misdeeds */
static const struct misdeed *played;

static void slips_by_one(void) {
  void *counted = slips[played - of_slips].counted;
  uint64_t count;
  memcpy(&count, counted, sizeof(count));
  count++;
  memcpy(counted, &count, sizeof(count));
  judge_step();
}

/* Behind the line; there is no further word. It is done in a lake without locks, but for the
   last ones. */
static int acts(program *p, size_t at) {
  (void)p;
  (void)at;
  lake->has_locks = played >= &misdeeds[MISDEEDS - OF_LOCKS] && played < &misdeeds[MISDEEDS];
  played->act();
  lake->has_locks = 1;
  return 0;
}

static void the_judge_sees(void **state) {
  static program p;
  const char *wrong, *rule;
  size_t length;
  played = (const struct misdeed *)*state;
  memset(p.options, 0, sizeof(p.options));
  p.count = 0;
  wrong = program_read(&p, played->line);
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

int main(void) {
  size_t i;
  for (i = 0; i < MISDEEDS; i++) add_case(misdeeds[i].name, the_judge_sees, &misdeeds[i]);
  for (i = 0; i < SLIPS; i++) {
    const struct misdeed m = {slips[i].name, slips[i].line, slips_by_one, slips[i].rule};
    of_slips[i] = m;
    add_case(m.name, the_judge_sees, &of_slips[i]);
  }
  return run_cases("judge");
}
