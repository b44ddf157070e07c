/* Sessions of gmlake_offload.h, on the mock: programs whose every word is checked, within a limit
   that the device itself holds at every moment; drift, failures, and what is refused. */
#include "session_play.h"

#define CHUNK (64 * KIB)

static void play_launch(play *p, play_work *work) {
  assert_ok(gmlake_offload_mock_work((gmlake_offload_backend *)p->device, p->stream, p->time_ns,
                                     play_execute, work));
}

typedef struct rig {
  gmlake_offload_backend *mock;
  gmlake_offload_queues queues;
  gmlake_offload_memory memory;
  play play;
} rig;

static char stream_of_the_program;

static void rig_open(rig *r, size_t limit, size_t device_bytes, double bytes_per_s, double jitter) {
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_session_desc desc;
  size_t i;
  memset(r, 0, sizeof *r);
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.device_bytes = device_bytes;
  mock_desc.out_bytes_per_s = mock_desc.in_bytes_per_s = bytes_per_s;
  mock_desc.both_bytes_per_s = bytes_per_s * 1.8;
  mock_desc.jitter = mock_desc.copy_jitter = jitter;
  mock_desc.host = counted;
  assert_ok(gmlake_offload_mock_create(&mock_desc, &r->mock));
  assert_ok(gmlake_offload_mock_get_queues(r->mock, &r->queues));
  assert_ok(gmlake_offload_mock_get_memory(r->mock, CHUNK, &r->memory));
  desc.queues = &r->queues;
  desc.memory = &r->memory;
  desc.limit_bytes = limit;
  desc.tensor_bytes_min = 1;
  desc.host = counted;
  assert_ok(gmlake_offload_session_create(&desc, &r->play.session));
  r->play.device = r->mock;
  r->play.stream = &stream_of_the_program;
  r->play.chunk = CHUNK;
  r->play.time_ns = 100 * US;
  for (i = 0; i < PLAY_TENSORS; i++) r->play.tensors[i].id = NONE;
  play_wrong = 0;
}

static gmlake_offload_mock_census rig_census(const rig *r) {
  gmlake_offload_mock_census census;
  gmlake_offload_mock_get_census(r->mock, &census);
  return census;
}

static void rig_close(rig *r) {
  assert_int_equal(r->queues.stream_sync(r->queues.user, r->play.stream), 0);
  assert_int_equal(play_wrong, 0);
  gmlake_offload_session_destroy(r->play.session);
  assert_int_equal(rig_census(r).event_count, 0);
  assert_int_equal(rig_census(r).host_bytes, 0);
  assert_int_equal(rig_census(r).race_count, 0);
  gmlake_offload_mock_destroy(r->mock);
  assert_int_equal(host_bytes, 0);
}

static uint64_t rig_now(const rig *r) {
  uint64_t ns;
  assert_int_equal(r->mock->now(r->mock->user, &ns), 0);
  return ns;
}

/* The most that training takes if nothing moves. */
static size_t native_peak(int layers, size_t bytes) {
  rig r;
  size_t peak;
  int i;
  rig_open(&r, 0, 0, 8e9, 0);
  play_setup(&r.play, layers, bytes);
  for (i = 0; i < 3; i++) play_train(&r.play, layers, bytes, 0);
  peak = r.play.native_peak;
  assert_int_equal(play_stats(&r.play).device_bytes_peak, peak);
  assert_int_equal(play_stats(&r.play).out_count, 0);
  rig_close(&r);
  return peak;
}

/* The second iteration is planned already. From the third on nothing is fetched on demand, the host
   waits for nothing, and an iteration takes no longer than without a limit. */
static void training_in_less_memory(void **state) {
  rig r;
  gmlake_offload_session_stats stats, then;
  size_t limit = native_peak(8, 256 * KIB) * 6 / 10;
  int i;
  (void)state;
  rig_open(&r, limit, limit, 8e9, 0);
  play_setup(&r.play, 8, 256 * KIB);
  memset(&then, 0, sizeof then);
  for (i = 0; i < 12; i++) {
    uint64_t begin = rig_now(&r);
    play_train(&r.play, 8, 256 * KIB, 0);
    stats = play_stats(&r.play);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    assert_int_equal(stats.mode, i == 0 ? GMLAKE_OFFLOAD_LEARNING : GMLAKE_OFFLOAD_PLANNED);
    if (i == 2) then = stats;
    if (i < 3) continue;
    assert_in_range(rig_now(&r) - begin, stats.step_ns, stats.step_ns + 10 * US);
  }
  assert_int_equal(stats.plan_count, 2);
  assert_int_equal(stats.drift_count, 0);
  assert_int_equal(stats.sync_count, 0);
  assert_int_equal(stats.demand_in_count, then.demand_in_count);
  assert_int_equal(stats.demand_out_count, then.demand_out_count);
  assert_int_equal(stats.out_bytes - then.out_bytes, 9 * stats.plan_out_bytes);
  assert_int_equal(stats.in_bytes - then.in_bytes, 9 * stats.plan_in_bytes);
  assert_true(stats.link_bound_ns != 0 && stats.plan_out_bytes != 0);
  assert_true(stats.unplanned_bytes > limit && stats.planned_bytes <= limit);
  assert_true(stats.device_bytes_peak <= limit);
  assert_true(rig_census(&r).device_bytes_peak <= limit);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_in_less_memory),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
