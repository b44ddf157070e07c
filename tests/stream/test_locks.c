/* The lake's and the mock's locks, of which every row of tests/play is judged (judge.h): here what
   no row says. */
#include "play/lake.h"

#include "cases.h"
#include "unit/every_call.h"

/* Plays a line; `look` is called before its first word and behind each. */
static void plays(const char *line, void (*look)(void)) {
  static program p;
  const char *wrong = program_of(&p, line), *rule;
  if (wrong) fail_msg("not of the language: %s", wrong);
  beside = look;
  rule = play(&p, NULL);
  beside = NULL;
  if (rule) fail_msg("word %zu: %s", verdict.at + 1, rule);
}

static void is_well(const char *after) { judge(!w.locks_held, after); }

static void damage(void) {
  const uint64_t turns = w.turns;
  lake->stats.active_bytes++;
  judge(gmlake_check(lake) == GMLAKE_ERROR_CORRUPT, "no damage is found");
  is_well("gmlake_check");
  judge(w.turns == turns + 1, "gmlake_check does not wait for who plans");
  lake->stats.active_bytes--;
}

CASE(a_check_that_finds_damage) { plays("{} +a=1", damage); }

/* Whatever they answer. */
static void call_the_lake(void) {
  const uint64_t asked = w.state_locks;
  gmlake_error_info error;
  size_t i;
  (void)gmlake_get_last_error(lake, &error);
  judge(w.state_locks > asked, "get_last_error");
  memset(&every, 0, sizeof(every));
  every.chunk = w.chunk;
  every.stream = value_in(1);
  every.live = &every;
  every.pool = w.pools[1].value;
  every.buffer = w.buffers[0].value;
  for (i = 0; every.buffer && i < EVERY_ROWS; i++) {
    const uint64_t before = w.state_locks;
    if (every_rows[i].call == call_destroy) continue;
    (void)every_rows[i].call();
    judge(w.state_locks > before, every_rows[i].name);
    is_well(every_rows[i].name);
  }
  if (every.buffer) (void)gmlake_buffer_resize(lake, every.buffer, 0, NULL);
}

CASE(every_call_takes_the_state_lock) { plays("{share} P0 N0:4", call_the_lake); }

#define MOCK_CALL(call) ((void)(call), is_well(#call))

static void call_the_mock(void) {
  gmlake_stream stream = NULL;
  gmlake_mock_census now_there;
  MOCK_CALL(gmlake_mock_stream_create(mock, &stream));
  MOCK_CALL((gmlake_mock_get_census(mock, &now_there), 0));
  MOCK_CALL((gmlake_mock_fail_at(mock, 0, GMLAKE_OK, 0), 0));
  MOCK_CALL((gmlake_mock_stream_hold(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_finish(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_set_lag(mock, stream, 9), 0));
  MOCK_CALL((gmlake_mock_set_clock(mock, 9), 0));
  MOCK_CALL(gmlake_mock_capture_begin(mock, NULL)); /* refused */
  MOCK_CALL(gmlake_mock_capture_begin(mock, stream));
  MOCK_CALL(gmlake_mock_capture_end(mock, stream));
  MOCK_CALL(gmlake_mock_capture_end(mock, stream)); /* refused */
  MOCK_CALL((gmlake_mock_stream_destroy(mock, stream), 0));
  MOCK_CALL((gmlake_mock_stream_destroy(mock, stream), 0)); /* there is none */
  MOCK_CALL(mock->clock_ns(mock->user));
}

CASE(the_mocks_calls_give_back_its_own) { plays("{}", call_the_mock); }

/* lock_give spoils what the mock has of the call. */
static void fail_the_mock(void) {
  gmlake_mock_census now_there;
  uint64_t handle = 0;
  int code = 0;
  gmlake_mock_get_census(mock, &now_there);
  gmlake_mock_fail_at(mock, now_there.call_count + 1, GMLAKE_ERROR_DRIVER, 0);
  judge(mock->create(mock->user, UNIT, 0, &handle, &code) == GMLAKE_ERROR_DRIVER, "create fails");
  judge(code == 999, "the mock's answer is read behind its lock"); /* CUDA_ERROR_UNKNOWN */
}

CASE(the_mocks_answers_are_read_under_its_lock) { plays("{}", fail_the_mock); }

/* Another thread's growth is over in the middle of this shrink, and the buffer is empty then. */
static int shrink_while_it_is_busy(void *user, gmlake *of, const gmlake_error_info *info) {
  gmlake_buffer *busy = w.buffers[0].value;
  (void)user;
  (void)info;
  busy->is_busy = 1;
  judge(gmlake_buffer_resize(of, busy, UNIT, NULL) == GMLAKE_ERROR_INVALID_ARGUMENT,
        "a growth in the handler");
  judge(
      says("called_from_the_out-of-memory_handler,_which_may_free,_trim_and_put_to_sleep_only", 81),
      "the refusal says something else");
  return 0;
}

static void use_handler(void) { lake->desc.oom.fn = shrink_while_it_is_busy; }
static void end_growth(void) {
  if (w.buffers[0].value) w.buffers[0].value->is_busy = 0;
}

/* A shrink in the out-of-memory handler is refused where it is a growth when its turn comes. */
CASE(a_handlers_shrink_becomes_a_growth_while_it_waits) {
  before_turn = end_growth;
  plays("{cap:4 exact} N0:4 z0:2 in:turn=2( z0:0 ) +a=8!O buffer-bytes=0", use_handler);
  before_turn = NULL;
}

int main(void) { return run_cases("locks"); }
