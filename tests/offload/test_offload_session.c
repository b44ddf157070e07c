/* Sessions of gmlake_offload.h, on the mock: programs whose every word is checked, within a limit
   that the device itself holds at every moment; drift, failures, and what is refused. Memory is the
   mock's or a lake's, whose mock maps real memory; its events are then the session's queues'. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_OFFLOAD_LAKE
#include "gmlake.h"

#include "part.h"
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
  gmlake_backend *lake_mock, table; /* [a lake's memory] table: with the events of queues */
  gmlake *lake;
  gmlake_offload_lake of;
  play play;
} rig;

static int with_lake;    /* what rig_open takes memory from */
static int is_link_told; /* to its session, whose copies are too small to measure it */
static unsigned flags;   /* of its session */
static size_t host_max;  /* its bound of pinned memory */

/* ---- A lake whose events are those of the queues ---- */

static rig *lake_rig;

static gmlake_result answer(int code, int *out_code) {
  *out_code = code;
  return code ? GMLAKE_ERROR_DRIVER : GMLAKE_OK;
}
static gmlake_result lake_event_create(void *user, void **out_event, int *out_code) {
  (void)user;
  return answer(lake_rig->queues.event_create(lake_rig->queues.user, 0, out_event), out_code);
}
static gmlake_result lake_event_destroy(void *user, void *event, int *out_code) {
  (void)user;
  lake_rig->queues.event_destroy(lake_rig->queues.user, event);
  return answer(0, out_code);
}
static gmlake_result lake_event_record(void *user, void *event, gmlake_stream stream,
                                       int *out_code) {
  (void)user;
  return answer(lake_rig->queues.event_record(lake_rig->queues.user, event, stream), out_code);
}
static gmlake_result lake_event_query(void *user, void *event, int *out_done, int *out_code) {
  (void)user;
  return answer(lake_rig->queues.event_done(lake_rig->queues.user, event, out_done), out_code);
}
static gmlake_result lake_event_wait(void *user, void *event, int *out_code) {
  int done = 0, code = 0;
  (void)user;
  while (!code && !done) {
    code = lake_rig->queues.event_done(lake_rig->queues.user, event, &done);
    if (!done) gmlake_offload_mock_spend(lake_rig->mock, 1000);
  }
  return answer(code, out_code);
}
static gmlake_result lake_stream_wait(void *user, gmlake_stream stream, void *event,
                                      int *out_code) {
  (void)user;
  return answer(lake_rig->queues.stream_wait(lake_rig->queues.user, stream, event), out_code);
}

static size_t map_count; /* chunks that the lake mapped so far */
static uint64_t map_ns;  /* that each of them takes the host */
static int map_code;     /* with which it fails, or 0 */

static gmlake_result lake_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                              int *out_code) {
  if (map_code != 0) return answer(map_code, out_code);
  map_count++;
  gmlake_offload_mock_spend(lake_rig->mock, map_ns);
  return lake_rig->lake_mock->map(user, address, bytes, handle, out_code);
}

static void lake_open(rig *r, size_t limit) {
  gmlake_mock_desc mock_desc;
  gmlake_desc desc;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.capacity_bytes = 1024 * MIB;
  mock_desc.granularity_bytes = CHUNK;
  assert_int_equal(gmlake_mock_create(&mock_desc, &r->lake_mock), GMLAKE_OK);
  r->table = *r->lake_mock;
  r->table.event_create = lake_event_create;
  r->table.event_destroy = lake_event_destroy;
  r->table.event_record = lake_event_record;
  r->table.event_query = lake_event_query;
  r->table.event_wait = lake_event_wait;
  r->table.stream_wait = lake_stream_wait;
  r->table.map = lake_map;
  r->table.struct_bytes = offsetof(gmlake_backend, device_wait);
  desc.backend = &r->table;
  desc.chunk_bytes = CHUNK;
  desc.limit_bytes = limit;
  desc.cross_stream = GMLAKE_WAIT_FIRST;
  lake_rig = r;
  assert_int_equal(gmlake_create(&desc, &r->lake), GMLAKE_OK);
  r->of.lake = r->lake;
  r->of.chunk_bytes = CHUNK;
  assert_ok(gmlake_offload_lake_memory(&r->of, &r->memory));
}

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
  if (with_lake) {
    lake_open(r, device_bytes);
  } else {
    assert_ok(gmlake_offload_mock_get_memory(r->mock, CHUNK, &r->memory));
  }
  desc.flags = flags;
  desc.host_bytes_max = host_max;
  desc.queues = &r->queues;
  desc.memory = &r->memory;
  desc.limit_bytes = limit;
  desc.tensor_bytes_min = 1;
  if (is_link_told) desc.out_bytes_per_s = desc.in_bytes_per_s = bytes_per_s;
  if (is_link_told) desc.both_bytes_per_s = mock_desc.both_bytes_per_s;
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
  if (r->lake) {
    assert_int_equal(gmlake_check(r->lake), GMLAKE_OK);
    assert_int_equal(gmlake_destroy(r->lake), GMLAKE_OK);
    gmlake_mock_destroy(r->lake_mock);
  }
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

/* On a slow link more leaves than the planner moves for no time. What is planned is what happens:
   the schedule holds by the order of the calls, so nothing leaves or comes back on demand. No
   iteration is faster than what the statistics call the least. */
static void slow_links_are_planned_for(void **state) {
  static const double links[] = {4e9, 1e9, 3e8};
  size_t peak = native_peak(8, 256 * KIB), i, tenths;
  (void)state;
  for (i = 0; i < sizeof links / sizeof *links; i++) {
    for (tenths = 4; tenths < 9; tenths++) {
      rig r;
      gmlake_offload_session_stats stats, then;
      size_t limit = peak * tenths / 10 / CHUNK * CHUNK;
      int n;
      rig_open(&r, limit, limit, links[i], 0);
      play_setup(&r.play, 8, 256 * KIB);
      memset(&then, 0, sizeof then);
      for (n = 0; n < 10; n++) {
        uint64_t begin = rig_now(&r);
        play_train(&r.play, 8, 256 * KIB, 0);
        stats = play_stats(&r.play);
        assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
        if (n == 5) then = stats;
        if (n < 6) continue;
        assert_true(rig_now(&r) - begin + 10 * US >= stats.least_ns);
        assert_true(stats.least_ns >= stats.step_ns);
      }
      assert_int_equal(stats.demand_in_count, then.demand_in_count);
      assert_int_equal(stats.demand_out_count, then.demand_out_count);
      assert_true(stats.out_bytes - then.out_bytes <= 4 * stats.plan_out_bytes);
      assert_int_equal(stats.in_bytes - then.in_bytes, 4 * stats.plan_in_bytes);
      assert_true(stats.planned_bytes <= limit && stats.device_bytes_peak <= limit);
      rig_close(&r);
    }
  }
}

/* What a range mapped is unmapped when the host knows that its last use has ended: it does not wait
   for what the stream was given since. */
static void only_the_last_use_is_waited_for(void **state) {
  rig r;
  void *ranges[3], *ptr, *stream = &stream_of_the_program;
  uint64_t begin;
  size_t i;
  (void)state;
  with_lake = 1;
  rig_open(&r, 0, 4 * CHUNK, 8e9, 0);
  with_lake = 0;
  for (i = 0; i < 3; i++)
    assert_int_equal(r.memory.reserve(r.memory.user, CHUNK, &ranges[i], &ptr), 0);
  assert_int_equal(r.memory.commit(r.memory.user, ranges[0], CHUNK, stream), 0);
  assert_ok(gmlake_offload_mock_work(r.mock, stream, 1000 * US, NULL, NULL));
  assert_int_equal(r.memory.discard(r.memory.user, ranges[0], CHUNK, stream), 0);
  assert_int_equal(r.memory.commit(r.memory.user, ranges[1], CHUNK, stream), 0); /* that chunk */
  assert_int_equal(r.memory.commit(r.memory.user, ranges[2], CHUNK, stream), 0);
  assert_ok(gmlake_offload_mock_work(r.mock, stream, 100000 * US, NULL, NULL));
  assert_int_equal(r.memory.discard(r.memory.user, ranges[2], CHUNK, stream), 0);
  begin = rig_now(&r);
  assert_int_equal(r.memory.commit(r.memory.user, ranges[0], CHUNK, stream), 0);
  assert_in_range(rig_now(&r) - begin, 1, 2000 * US);
  assert_int_equal(gmlake_check(r.lake), GMLAKE_OK);
  for (i = 0; i < 2; i++)
    assert_int_equal(r.memory.discard(r.memory.user, ranges[i], CHUNK, stream), 0);
  for (i = 0; i < 3; i++) r.memory.release(r.memory.user, ranges[i], stream);
  rig_close(&r);
}

/* The rest of a rig's checks: bytes that are still under way, and what the device held. */
static void rig_settle(const rig *r, size_t limit) {
  assert_int_equal(r->queues.stream_sync(r->queues.user, r->play.stream), 0);
  assert_int_equal(play_wrong, 0);
  assert_true(play_stats(&r->play).device_bytes_peak <= limit);
  if (r->lake) {
    gmlake_stats stats;
    memset(&stats, 0, sizeof stats);
    assert_int_equal(gmlake_get_stats(r->lake, &stats), GMLAKE_OK);
    assert_true(stats.reserved_bytes_peak <= limit);
  } else {
    assert_true(rig_census(r).device_bytes_peak <= limit);
  }
}

/* No pointer changes while more than a thousand tensors leave and come back, in memory of a lake,
   and what each pointer reads is right. */
static void addresses_stay(void **state) {
  size_t limit = native_peak(6, 256 * KIB) * 6 / 10;
  char *ptrs[16];
  rig r;
  int i, n;
  (void)state;
  with_lake = 1;
  rig_open(&r, limit, limit, 8e9, 0);
  with_lake = 0;
  play_setup(&r.play, 6, 256 * KIB);
  for (i = 0; i < 6; i++) ptrs[i] = r.play.tensors[PLAY_W + i].ptr;
  for (n = 0; play_stats(&r.play).out_count + play_stats(&r.play).drop_count <= 1000; n++) {
    play_train(&r.play, 6, 256 * KIB, 0);
    for (i = 0; i < 6; i++) {
      uint32_t found;
      size_t offset;
      assert_ptr_equal(r.play.tensors[PLAY_W + i].ptr, ptrs[i]);
      assert_ok(gmlake_offload_session_find(r.play.session, ptrs[i] + 77, &found, &offset));
      assert_int_equal(found, r.play.tensors[PLAY_W + i].id);
      assert_int_equal(offset, 77);
    }
  }
  assert_int_equal(play_stats(&r.play).sync_count, 0);
  assert_int_equal(play_stats(&r.play).mode, GMLAKE_OFFLOAD_PLANNED);
  rig_settle(&r, limit);
  rig_close(&r);
}

/* What goes as planned maps each chunk once at each place, also where tensors leave in between. */
static void what_repeats_stays_mapped(void **state) {
  size_t peak = native_peak(8, 512 * KIB), tenths;
  (void)state;
  for (tenths = 5; tenths <= 10; tenths++) {
    size_t limit = tenths < 10 ? peak * tenths / 10 / CHUNK * CHUNK : 0, before, moved;
    rig r;
    int i;
    with_lake = 1;
    rig_open(&r, limit, limit, 2e10, 0);
    with_lake = 0;
    play_setup(&r.play, 8, 512 * KIB);
    for (i = 0; i < 12; i++) {
      play_train(&r.play, 8, 512 * KIB, 0);
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    }
    before = map_count;
    moved = play_stats(&r.play).in_bytes;
    for (i = 0; i < 4; i++) play_train(&r.play, 8, 512 * KIB, 0);
    moved = (play_stats(&r.play).in_bytes - moved) / CHUNK;
    assert_int_equal(limit != 0, moved != 0);
    assert_int_equal(play_stats(&r.play).drift_count, 0);
    print_message("%zu chunks back, %zu mapped\n", moved, map_count - before);
    assert_int_equal(map_count, before);
    rig_settle(&r, limit ? limit : 2 * peak);
    rig_close(&r);
  }
}

/* The same where weights that live for ever leave and come back among tensors that are soon dead:
   these never get a weight's addresses. */
static void weights_keep_their_addresses(void **state) {
  enum { LAYERS = 12 };
  size_t bytes = 512 * KIB, limit, before = 0;
  (void)state;
  for (limit = 6 * bytes; limit <= 9 * bytes; limit += bytes) {
    rig r;
    int i, n;
    with_lake = 1;
    rig_open(&r, limit, limit, 2e10, 0);
    with_lake = 0;
    for (i = 0; i < LAYERS; i++) assert_ok(play_step(&r.play, 106, NULL, NULL, PLAY_W + i, bytes));
    for (n = 0; n < 16; n++) {
      if (n == 12) before = map_count;
      assert_ok(gmlake_offload_session_mark(r.play.session));
      for (i = 0; i < LAYERS; i++) {
        int reads[] = {PLAY_W + i, i != 0 ? PLAY_A + i - 1 : -1, -1};
        assert_ok(play_step(&r.play, 100, reads, NULL, PLAY_A + i, bytes));
        if (i != 0) play_free(&r.play, (size_t)(PLAY_A + i - 1));
      }
      play_free(&r.play, (size_t)(PLAY_A + LAYERS - 1));
      if (n < 12) assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    }
    print_message("%zu mapped\n", map_count - before);
    assert_int_equal(map_count, before);
    rig_settle(&r, limit);
    rig_close(&r);
  }
}

/* What the host takes to map memory, while it learns, is no part of a step's time. */
static void mapping_takes_no_step_longer(void **state) {
  rig r;
  int i;
  (void)state;
  with_lake = 1;
  rig_open(&r, 0, 0, 8e9, 0);
  with_lake = 0;
  map_ns = 1000 * US;
  play_setup(&r.play, 8, 256 * KIB);
  map_count = 0;
  for (i = 0; i < 4; i++) {
    play_train(&r.play, 8, 256 * KIB, 0);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  }
  assert_true(map_count > 10);
  assert_int_equal(play_stats(&r.play).mode, GMLAKE_OFFLOAD_PLANNED);
  assert_in_range(play_stats(&r.play).step_ns, 33 * 100 * US, 33 * 100 * US + 100 * US);
  map_ns = 0;
  rig_close(&r);
}

/* One step more at any place of one iteration: bytes are right, the limit holds, and three
   iterations later nothing is fetched on demand any more. */
static void drift_at_any_step(void **state) {
  size_t limit = native_peak(5, 128 * KIB) * 6 / 10;
  int at, i;
  (void)state;
  for (at = 0; at < 5; at++) {
    gmlake_offload_session_stats stats, then;
    rig r;
    rig_open(&r, limit, limit, 8e9, .3);
    play_setup(&r.play, 5, 128 * KIB);
    for (i = 0; i < 12; i++) {
      play_train(&r.play, 5, 128 * KIB, i == 5 ? 1u << at : 0);
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
      stats = play_stats(&r.play);
      assert_int_equal(stats.drift_count, i >= 5);
      if (i == 5) assert_int_equal(stats.mode, GMLAKE_OFFLOAD_DRIFTED);
      if (i == 8) then = stats;
    }
    assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
    assert_int_equal(stats.demand_in_count, then.demand_in_count);
    rig_settle(&r, limit);
    rig_close(&r);
  }
}

/* A program that changes for good is learnt again. */
static void another_order_is_learnt(void **state) {
  size_t limit = native_peak(6, 128 * KIB) * 6 / 10;
  gmlake_offload_session_stats stats;
  uint64_t plans = 0;
  rig r;
  int i;
  (void)state;
  rig_open(&r, limit, limit, 8e9, 0);
  play_setup(&r.play, 6, 128 * KIB);
  for (i = 0; i < 16; i++) {
    play_train(&r.play, 6, 128 * KIB, i >= 6 ? 0x2A : 0);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i == 5) plans = stats.plan_count;
  }
  assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
  assert_true(stats.plan_count > plans);
  assert_true(stats.drift_count >= 1 && stats.drift_count <= 2);
  rig_settle(&r, limit);
  rig_close(&r);
}

/* Other sizes in the same order are no drift; two iterations alike get a plan of their own. */
static void sizes_vary(void **state) {
  size_t limit = native_peak(6, 256 * KIB) * 6 / 10;
  gmlake_offload_session_stats stats;
  uint64_t plans = 0;
  rig r;
  int i;
  (void)state;
  rig_open(&r, limit, limit, 8e9, 0);
  play_setup(&r.play, 6, 256 * KIB);
  for (i = 0; i < 20; i++) {
    play_train(&r.play, 6, i < 14 ? (size_t)(128 + play_random(&r.play) % 128) * KIB : 128 * KIB,
               0);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i == 13) plans = stats.plan_count;
  }
  assert_int_equal(stats.drift_count, 0);
  assert_true(stats.plan_count > plans);
  rig_settle(&r, limit);
  rig_close(&r);
}

/* A schedule is not carried out in an iteration whose tensors are much smaller than those that it
   is for: there they fit, and nothing has to leave. In the next one it holds again. */
static void a_schedule_is_for_its_sizes(void **state) {
  size_t limit = native_peak(6, 256 * KIB) * 8 / 10;
  gmlake_offload_session_stats stats, then;
  rig r;
  int i;
  (void)state;
  rig_open(&r, limit, limit, 8e9, 0);
  play_setup(&r.play, 6, 256 * KIB);
  for (i = 0; i < 12; i++) {
    then = play_stats(&r.play);
    play_train(&r.play, 6, i % 2 && i > 4 ? 32 * KIB : 256 * KIB, 0);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i <= 4) continue;
    assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
    assert_true((stats.out_count + stats.drop_count > then.out_count + then.drop_count) ==
                (i % 2 == 0));
  }
  assert_int_equal(stats.drift_count, 0);
  rig_settle(&r, limit);
  rig_close(&r);
}

/* While no plan holds: what is used at the end of an iteration comes back as soon as there is room,
   though that is a hundred steps before. */
static void what_is_used_late_comes_back_early(void **state) {
  enum { STATES = 8, STEPS = 100 };
  const size_t bytes = 4 * CHUNK;
  uint64_t begun = 0, taken;
  rig r;
  int i, n;
  (void)state;
  rig_open(&r, 10 * bytes, 10 * bytes, 2e8, 0); /* a copy takes 13 steps */
  for (i = 0; i < STATES; i++) assert_ok(play_step(&r.play, 1, NULL, NULL, i, bytes));
  for (n = 0; n < 2; n++) {
    assert_ok(gmlake_offload_session_mark(r.play.session));
    for (i = 0; i < STATES; i++) assert_ok(play_step(&r.play, 2, NULL, NULL, STATES + i, bytes));
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    begun = rig_now(&r);
    for (i = 0; i < STATES; i++) play_free(&r.play, (size_t)(STATES + i));
    for (i = 0; i < STEPS; i++) assert_ok(play_step(&r.play, 3, NULL, NULL, -1, 0));
    for (i = 0; i < STATES; i++) {
      int reads[] = {i, -1};
      assert_ok(play_step(&r.play, 4, reads, NULL, -1, 0));
    }
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  }
  taken = rig_now(&r) - begun;
  print_message("%llu us, of which the steps %d\n", (unsigned long long)taken / US,
                100 * (STEPS + STATES));
  assert_true(taken < 100 * US * (STEPS + STATES) * 11 / 10);
  rig_close(&r);
}

/* Where each iteration has another order, schedules are soon given up. Once iterations are alike
   again, there is one that is followed. */
static void schedules_in_vain_are_given_up(void **state) {
  size_t limit = native_peak(8, 128 * KIB) * 6 / 10;
  gmlake_offload_session_stats stats;
  uint64_t plans = 0;
  rig r;
  int i;
  (void)state;
  rig_open(&r, limit, limit, 8e9, 0);
  play_setup(&r.play, 8, 128 * KIB);
  for (i = 0; i < 60; i++) {
    play_train(&r.play, 8, 128 * KIB, i < 40 ? (unsigned)i * 37 : 0x55);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i == 3) plans = stats.plan_count;
    if (i > 3 && i < 40) assert_int_equal(stats.plan_count, plans);
  }
  assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
  assert_true(plans <= 2 && stats.plan_count > plans);
  rig_settle(&r, limit);
  rig_close(&r);
}

/* Idle pinned memory of another size is used again, too: sizes that change take no more of it than
   what is away at once. */
static void pinned_memory_of_other_sizes_is_used_again(void **state) {
  enum { TENSORS = 16 };
  size_t most = 0;
  rig r;
  int i, n;
  (void)state;
  rig_open(&r, 16 * CHUNK, 16 * CHUNK, 8e9, 0);
  for (n = 0; n < 60; n++) {
    assert_ok(gmlake_offload_session_mark(r.play.session));
    for (i = 0; i < TENSORS; i++)
      assert_ok(play_step(&r.play, 1, NULL, NULL, i, (1 + play_random(&r.play) % 256) * KIB));
    for (i = TENSORS; i-- > 0;) {
      int reads[] = {i, -1};
      assert_ok(play_step(&r.play, 2, reads, NULL, -1, 0));
      play_free(&r.play, (size_t)i);
    }
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  }
  most = rig_census(&r).host_bytes_peak;
  print_message("%zu pinned, %zu lived at once\n", most, r.play.native_peak);
  assert_true(most != 0 && most <= r.play.native_peak);
  rig_close(&r);
}

/* A tensor that the host has, and that was fetched and used, leaves on the program's stream: what
   is made next takes its memory, and its step runs beside the copies out that are queued. */
static void what_the_host_has_leaves_before_copies(void **state) {
  int read[] = {0, -1};
  uint64_t begin;
  size_t out;
  rig r;
  (void)state;
  with_lake = 1;
  rig_open(&r, 3 * CHUNK, 3 * CHUNK, 1e8, 0);
  with_lake = 0;
  assert_ok(play_step(&r.play, 0, NULL, NULL, 0, CHUNK));
  assert_ok(gmlake_offload_session_make_room(r.play.session, SIZE_MAX, &out));
  assert_ok(play_step(&r.play, 1, read, NULL, -1, 0));
  assert_ok(play_step(&r.play, 2, NULL, NULL, 1, 2 * CHUNK));
  assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  begin = rig_now(&r);
  assert_ok(gmlake_offload_session_make_room(r.play.session, SIZE_MAX, &out)); /* 1, then 0 */
  assert_int_equal(play_stats(&r.play).drop_count, 1);
  assert_ok(play_step(&r.play, 3, NULL, NULL, 2, CHUNK));
  assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  assert_in_range(rig_now(&r) - begin, 100 * US, 1400 * US); /* the copy takes 1,311 */
  rig_close(&r);
}

/* A network whose weights never change: five tensors have to be away, and the host has the bytes of
   four of them already. */
static void frozen_weights_leave_without_copies(void **state) {
  enum { LAYERS = 8, BYTES = 4 * CHUNK };
  size_t limit = (2 * LAYERS - 5) * BYTES;
  gmlake_offload_session_stats stats;
  rig r;
  int n, i;
  (void)state;
  rig_open(&r, limit, limit, 4e9, 0);
  for (i = 0; i < LAYERS; i++) assert_ok(play_step(&r.play, 1, NULL, NULL, PLAY_W + i, BYTES));
  for (n = 0; n < 12; n++) {
    play_mark(&r.play);
    r.play.time_ns = 20 * US;
    for (i = 0; i < LAYERS; i++) {
      int reads[] = {PLAY_W + i, i != 0 ? PLAY_A + i - 1 : -1, -1};
      assert_ok(play_step(&r.play, 2, reads, NULL, PLAY_A + i, BYTES));
    }
    r.play.time_ns = 200 * US;
    for (i = LAYERS; i-- > 0;) {
      int first[] = {PLAY_W + i, -1}, then[] = {PLAY_A + i, -1};
      assert_ok(play_step(&r.play, 3, first, NULL, -1, 0));
      assert_ok(play_step(&r.play, 4, then, NULL, -1, 0)); /* its next use is farther away */
      play_free(&r.play, (size_t)(PLAY_A + i));
    }
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  }
  stats = play_stats(&r.play);
  assert_int_equal(stats.plan_out_bytes, BYTES);
  assert_int_equal(stats.plan_in_bytes, 5 * BYTES);
  assert_true(stats.drop_count >= 4 * 8); /* after the first iterations */
  rig_settle(&r, limit);
  rig_close(&r);
}

/* Frozen weights go first where that saves copies out. */
static void frozen_weights_go_first(void **state) {
  static const struct {
    int layers, weight, activation, forth_us, back_us; /* chunks of each; a step's time */
    double bytes_per_s;
    size_t limit, most; /* chunks; that leave by a copy in an iteration */
  } rows[] = {{12, 1, 1, 61, 114, 2e9, 8, 5},
              {11, 4, 3, 42, 22, 3e9, 40, 0},
              {5, 4, 2, 43, 36, 6e9, 18, 0},
              {12, 3, 3, 59, 125, 4e9, 28, 12}};
  size_t row;
  (void)state;
  for (row = 0; row < sizeof rows / sizeof *rows; row++) {
    const size_t limit = rows[row].limit * CHUNK;
    int n, i, layers = rows[row].layers;
    rig r;
    rig_open(&r, limit, limit, rows[row].bytes_per_s, 0);
    for (i = 0; i < layers; i++)
      assert_ok(play_step(&r.play, 1, NULL, NULL, PLAY_W + i, (size_t)rows[row].weight * CHUNK));
    for (n = 0; n < 12; n++) {
      play_mark(&r.play);
      r.play.time_ns = (uint64_t)rows[row].forth_us * US;
      for (i = 0; i < layers; i++) {
        int reads[] = {PLAY_W + i, i != 0 ? PLAY_A + i - 1 : -1, -1};
        assert_ok(
            play_step(&r.play, 2, reads, NULL, PLAY_A + i, (size_t)rows[row].activation * CHUNK));
      }
      r.play.time_ns = (uint64_t)rows[row].back_us * US;
      for (i = layers; i-- > 0;) {
        int reads[] = {PLAY_W + i, PLAY_A + i, -1};
        assert_ok(play_step(&r.play, 3, reads, NULL, -1, 0));
        play_free(&r.play, (size_t)(PLAY_A + i));
      }
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    }
    assert_true(play_stats(&r.play).plan_out_bytes <= rows[row].most * CHUNK);
    rig_close(&r);
  }
}

/* These programs take what their plan tells, although copies out go on when an iteration has ended:
   what is made then gets other chunks. */
static void copies_across_the_turn_hold_nobody_up(void **state) {
  static const struct {
    int layers;
    size_t chunks;
    uint64_t us;
    size_t limit;
  } rows[] = {{3, 6, 204, 66}, {8, 6, 94, 149}, {4, 5, 134, 82}};
  size_t row;
  (void)state;
  with_lake = is_link_told = 1;
  for (row = 0; row < sizeof rows / sizeof *rows; row++) {
    const size_t limit = rows[row].limit * CHUNK;
    gmlake_offload_session_stats stats;
    uint64_t ns = 0;
    rig r;
    int n;
    rig_open(&r, limit, limit, 2e9, 0);
    r.play.time_ns = rows[row].us * US;
    play_setup(&r.play, rows[row].layers, rows[row].chunks * CHUNK);
    for (n = 0; n < 20; n++) {
      play_train(&r.play, rows[row].layers, rows[row].chunks * CHUNK, 0);
      if (n < 12) assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
      if (n == 11) ns = rig_now(&r);
    }
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    ns = (rig_now(&r) - ns) / 8;
    stats = play_stats(&r.play);
    print_message("%u us, told %u\n", (unsigned)(ns / US),
                  (unsigned)((stats.step_ns + stats.plan_added_ns) / US));
    assert_in_range(ns * 100 / (stats.step_ns + stats.plan_added_ns), 97, 102);
    rig_close(&r);
  }
  with_lake = is_link_told = 0;
}

/* The plan's count after 16 iterations of training, of which the first ones have longer steps.
   *out_ns: an iteration, as learnt then. */
static uint64_t plans_after_slow_steps(int slow, uint64_t slow_ns, uint64_t *out_ns) {
  size_t limit = native_peak(6, 128 * KIB) * 6 / 10;
  gmlake_offload_session_stats stats;
  rig r;
  int i;
  rig_open(&r, limit, limit, 8e9, 0);
  r.play.time_ns = slow_ns;
  play_setup(&r.play, 6, 128 * KIB);
  for (i = 0; i < 16; i++) {
    if (i == slow) r.play.time_ns = 100 * US;
    play_train(&r.play, 6, 128 * KIB, 0);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i == 3) assert_int_equal(stats.plan_count, 2);
    if (i == 3) assert_int_equal(stats.step_ns / slow_ns, 25);
  }
  assert_int_equal(stats.drift_count, 0);
  assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
  *out_ns = stats.step_ns;
  rig_settle(&r, limit);
  rig_close(&r);
  return stats.plan_count;
}

/* After four and nine iterations that were alike the steps are timed again. The plan changes if
   they are faster by a sixteenth. */
static void slow_steps_are_timed_again(void **state) {
  uint64_t ns;
  (void)state;
  assert_int_equal(plans_after_slow_steps(4, 400 * US, &ns), 3);
  assert_in_range(ns, 2500 * US, 2600 * US);
  assert_int_equal(plans_after_slow_steps(9, 400 * US, &ns), 3);
  assert_in_range(ns, 2500 * US, 2600 * US);
  assert_int_equal(plans_after_slow_steps(14, 400 * US, &ns), 2);
  assert_int_equal(plans_after_slow_steps(4, 105 * US, &ns), 2);
  assert_int_equal(plans_after_slow_steps(4, 50 * US, &ns), 2);
  assert_in_range(ns, 1250 * US, 1300 * US);
}

/* Another limit is planned for from the next iteration on, also where that would only have looked
   at the times again. */
static void a_limit_set_in_any_iteration_is_planned_for(void **state) {
  size_t limit = native_peak(6, 128 * KIB) * 8 / 10;
  int at, i;
  (void)state;
  for (at = 3; at < 14; at++) {
    gmlake_offload_session_stats stats;
    rig r;
    rig_open(&r, limit, limit, 8e9, 0);
    play_setup(&r.play, 6, 128 * KIB);
    for (i = 0; i < 16; i++) {
      play_train(&r.play, 6, 128 * KIB, 0);
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
      if (i == at) assert_ok(gmlake_offload_session_set_limit(r.play.session, limit - 4 * CHUNK));
      stats = play_stats(&r.play);
      assert_int_equal(stats.plan_count, i == 0 ? 0 : i == 1 ? 1 : i <= at ? 2 : 3);
      if (i > at) assert_true(stats.planned_bytes <= limit - 4 * CHUNK);
    }
    rig_settle(&r, limit);
    rig_close(&r);
  }
}

/* What the statistics say that a plan adds is what iterations then take, where calls of the host
   take no time. */
static void what_a_plan_adds_is_told(void **state) {
  size_t peak = native_peak(8, 256 * KIB), tenths, added = 0;
  (void)state;
  for (tenths = 3; tenths < 9; tenths++) {
    size_t limit = peak * tenths / 10 / CHUNK * CHUNK;
    gmlake_offload_session_stats stats;
    uint64_t begin = 0, ns;
    rig r;
    int n;
    with_lake = 1;
    rig_open(&r, limit, limit, 1e9, 0);
    with_lake = 0;
    r.play.session->desc.out_bytes_per_s = r.play.session->desc.in_bytes_per_s = 1e9;
    r.play.session->desc.both_bytes_per_s = 1.8e9;
    play_setup(&r.play, 8, 256 * KIB);
    for (n = 0; n < 14; n++) {
      if (n == 13) begin = rig_now(&r);
      play_train(&r.play, 8, 256 * KIB, 0);
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    }
    ns = rig_now(&r) - begin;
    stats = play_stats(&r.play);
    print_message("%u us, told %u + %u\n", (unsigned)(ns / US), (unsigned)(stats.step_ns / US),
                  (unsigned)(stats.plan_added_ns / US));
    added += stats.plan_added_ns != 0;
    assert_in_range(stats.step_ns + stats.plan_added_ns, ns - ns / 10, ns + ns / 10);
    rig_settle(&r, limit);
    rig_close(&r);
  }
  assert_true(added >= 3);
}

/* ---- Random programs ---- */

#define RANDOM_LIVE 24

/* A random step of a program that `seed` and `at` decide: makes, uses or frees tensors. What a step
   does is the same in each iteration, as far as its tensors live. */
static void random_step(play *p, uint64_t seed, size_t at) {
  uint64_t x = play_mix(seed + at * 77);
  size_t a = x % RANDOM_LIVE, b = (x >> 8) % RANDOM_LIVE, c = (x >> 16) % RANDOM_LIVE;
  int reads[3], writes[2], count = 0;
  if (x >> 60 < 3 && p->tensors[c].id != NONE) {
    play_free(p, c);
    return;
  }
  if (p->tensors[a].id != NONE) reads[count++] = (int)a;
  if (p->tensors[b].id != NONE && b != a) reads[count++] = (int)b;
  reads[count] = -1;
  writes[0] = p->tensors[c].id != NONE && c != a && c != b ? (int)c : -1;
  writes[1] = -1;
  (void)play_step(p, at, reads, writes, p->tensors[c].id == NONE ? (int)c : -1,
                  (size_t)(1 + (x >> 24) % 512) * KIB);
}

/* What a program does that is no step. */
static void random_event(play *p, uint64_t seed, size_t limit) {
  gmlake_offload_session *s = p->session;
  uint64_t x = play_mix(seed);
  size_t out, a = (x >> 8) % RANDOM_LIVE;
  if (x % 4 == 0 && p->tensors[a].id != NONE) {
    if (gmlake_offload_session_pin(s, p->tensors[a].id, p->stream) == GMLAKE_OFFLOAD_OK)
      assert_ok(gmlake_offload_session_unpin(s, p->tensors[a].id, p->stream));
  } else if (x % 4 == 1) {
    (void)gmlake_offload_session_make_room(s, (x >> 16) % (4 * MIB), &out);
  } else if (x % 4 == 2) {
    assert_ok(gmlake_offload_session_set_limit(s, limit - (x >> 16) % (limit / 8)));
  }
}

/* Without marks its iterations are alike but for the thirteenth. The statistics at the end. */
static gmlake_offload_session_stats random_program(uint64_t seed, int lake, int unmarked) {
  gmlake_offload_session_stats stats;
  size_t limit = (size_t)(4 + seed % 5) * MIB, length = 40 + seed % 60, i, n;
  rig r;
  with_lake = lake;
  host_max = seed % 7 == 0 ? 12 * MIB : 0;
  rig_open(&r, limit, limit, 2e9 * (double)(1 + seed % 9), .5);
  with_lake = 0;
  host_max = 0;
  r.play.tolerant = 1; /* a step may be too large, or pinned memory at its bound */
  r.play.unmarked = unmarked;
  for (n = 0; n < (unmarked ? 16 : 10); n++) {
    play_mark(&r.play);
    for (i = 0; i < length; i++) {
      random_step(&r.play, seed, i);
      if (play_mix(seed ^ (n << 20) ^ i) % 97 == 0 && (n == 12 || !unmarked))
        random_step(&r.play, seed + 1, i);
      if (play_mix(seed ^ (n << 21) ^ i) % 53 == 0) random_event(&r.play, seed + n * 99 + i, limit);
      if (seed % 3 == 0) gmlake_offload_mock_spend(r.mock, 50 * US);
    }
    assert_ok(gmlake_offload_session_set_limit(r.play.session, limit));
    if (seed % 2 == 0) (void)r.queues.stream_sync(r.queues.user, r.play.stream);
  }
  rig_settle(&r, limit);
  stats = play_stats(&r.play);
  rig_close(&r);
  return stats;
}

static void random_programs(void **state) {
  uint64_t seed;
  (void)state;
  for (seed = 1; seed <= part_of(120); seed++) (void)random_program(seed, seed % 4 == 0, 0);
}

static void random_programs_without_marks(void **state) {
  uint64_t seed, found = 0, planned = 0, drifted = 0, count = part_of(60);
  (void)state;
  for (seed = 1; seed <= count; seed++) {
    gmlake_offload_session_stats stats = random_program(seed, seed % 4 == 0, 1);
    found += stats.iteration_count != 0;
    planned += stats.plan_count != 0;
    drifted += stats.drift_count != 0;
  }
  print_message("%u found, %u planned, %u drifted of %u\n", (unsigned)found, (unsigned)planned,
                (unsigned)drifted, (unsigned)count);
  assert_true(found >= count * 4 / 5 && planned >= count * 2 / 5 && drifted >= count / 4);
}

/* ---- Iterations that nobody marks ---- */

/* Training is found, learnt and planned. An iteration of another order is noticed, and three later
   nothing is fetched on demand any more. */
static void iterations_are_found(void **state) {
  size_t limit = native_peak(6, 128 * KIB) * 6 / 10;
  gmlake_offload_session_stats stats, then;
  rig r;
  int i, odd;
  (void)state;
  for (odd = 0; odd < 6; odd++) {
    rig_open(&r, limit, limit, 8e9, .3);
    r.play.unmarked = 1;
    play_setup(&r.play, 6, 128 * KIB);
    for (i = 0; i < 24; i++) {
      play_train(&r.play, 6, 128 * KIB, i == 12 ? 1u << odd : 0);
      assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
      stats = play_stats(&r.play);
      if (i < 12) assert_int_equal(stats.drift_count, 0);
      if (i == 1) assert_int_equal(stats.iteration_count, 0);
      if (i == 8) then = stats;
      if (i == 11) assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
      if (i == 11) assert_int_equal(stats.demand_in_count, then.demand_in_count);
      if (i == 18) then = stats;
    }
    assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
    assert_int_equal(stats.demand_in_count, then.demand_in_count);
    assert_true(stats.drift_count == 1 || stats.drift_count == 2); /* 2: it was the first step */
    assert_true(stats.iteration_count >= 18 && stats.iteration_count <= 24);
    assert_true(stats.in_count != 0);
    rig_settle(&r, limit);
    rig_close(&r);
  }
}

/* What is repeated within an iteration is no iteration, however long: a program that adds up the
   gradients of some batches drifts no more when that is known. */
static void repeats_within_an_iteration(void **state) {
  gmlake_offload_session_stats stats;
  uint64_t drifts = 0, iterations = 0;
  int i, n, batch, w[] = {0, 1, -1}, last[] = {3, -1};
  rig r;
  (void)state;
  rig_open(&r, 16 * CHUNK, 16 * CHUNK, 8e9, 0);
  r.play.unmarked = 1;
  for (i = 0; i < 4; i++) assert_ok(play_step(&r.play, 9, NULL, NULL, i, 2 * CHUNK));
  for (i = 0; i < 12; i++) {
    for (batch = 0; batch < 4; batch++) {
      for (n = 0; n < 20; n++) {
        int reads[] = {n % 3, 4 + (n + 1) % 2, -1};
        if (n == 0) reads[1] = -1;
        assert_ok(play_step(&r.play, (uint64_t)n, reads, NULL, 4 + n % 2, 2 * CHUNK));
        if (n != 0) play_free(&r.play, (size_t)(4 + (n + 1) % 2));
      }
      play_free(&r.play, 5);
    }
    assert_ok(play_step(&r.play, 77, w, last, -1, 0));
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
    stats = play_stats(&r.play);
    if (i == 7) drifts = stats.drift_count, iterations = stats.iteration_count;
  }
  assert_int_equal(stats.drift_count, drifts);
  assert_int_equal(stats.iteration_count, iterations + 4);
  assert_true(drifts != 0); /* a batch was taken for an iteration */
  assert_int_equal(stats.mode, GMLAKE_OFFLOAD_PLANNED);
  rig_settle(&r, 16 * CHUNK);
  rig_close(&r);
}

/* Steps that name nothing are no iterations, however they repeat; a mark ends the search. */
static void what_is_not_searched(void **state) {
  int i, n, read[] = {0, -1};
  rig r;
  (void)state;
  rig_open(&r, 0, 0, 8e9, 0);
  for (i = 0; i < 90; i++) assert_ok(play_step(&r.play, 9, NULL, NULL, i, CHUNK));
  assert_int_equal(play_stats(&r.play).iteration_count, 0);
  for (i = 0; i < 70; i++) assert_ok(play_step(&r.play, (uint64_t)i % 7, read, NULL, -1, 0));
  assert_true(play_stats(&r.play).iteration_count > 3);
  n = (int)play_stats(&r.play).iteration_count;
  assert_ok(gmlake_offload_session_mark(r.play.session));
  for (i = 0; i < 70; i++) assert_ok(play_step(&r.play, (uint64_t)i % 7, read, NULL, -1, 0));
  assert_int_equal(play_stats(&r.play).iteration_count, n + 1);
  rig_close(&r);
}

/* An iteration may have many steps: the row of their prints grows, and in the end goes around. */
static void rhythms(void **state) {
  gmlo_rhythm r;
  uint64_t i, period;
  (void)state;
  memset(&r, 0, sizeof r);
  for (i = 0; i < 3000; i++) { /* 1,000 steps, of which each but the last is there three times */
    period = gmlo_rhythm_note(&r, &counted, i % 1000 == 999 ? 7 : play_mix(i % 1000 % 333), 1);
    if (i < 665) assert_int_equal(period, 0);
    if (i >= 665 && i < 999) assert_int_equal(period, 333);
    if (i == 999 || i == 1999) assert_int_equal(period, 0);
    if (i >= 2998) assert_int_equal(period, 1000);
  }
  for (; i < 3100; i++) assert_int_equal(gmlo_rhythm_note(&r, &counted, play_mix(~i), 1), 0);
  host_fail_in = 1;
  for (; i < 2 * GMLO_BEATS_MAX; i++) (void)gmlo_rhythm_note(&r, &counted, play_mix(~i), 1);
  assert_int_equal(r.capacity, GMLO_BEATS_MAX);
  for (i = 0; i < 40; i++) period = gmlo_rhythm_note(&r, &counted, i % 2, 1);
  assert_int_equal(period, 2);
  for (i = 0; i < 40; i++) period = gmlo_rhythm_note(&r, &counted, i % 2, 0);
  assert_int_equal(period, 2);
  for (i = 0; i < 40; i++) period = gmlo_rhythm_note(&r, &counted, 5 + i % 2, 0);
  assert_int_equal(period, 0); /* they name nothing */
  gmlo_free(&counted, r.beats);
  assert_int_equal(host_bytes, 0);
}

/* ---- Regions ---- */

#define DEPTH 8
#define ALL ((1u << DEPTH) - 1)
#define REGION_BYTES (256 * KIB)

typedef struct regions_scene {
  size_t limit, bytes;
  double link;
  int is_told;        /* the session knows how fast the link is */
  unsigned odd, more; /* see play_train_regions */
  int layers, iterations;
} regions_scene;

typedef struct regions_outcome {
  uint64_t ns; /* of the last iteration */
  int kept;
  uint64_t weights; /* their values at the end */
  size_t peak;
  gmlake_offload_session_stats stats;
} regions_outcome;

static void regions_open(rig *r, const regions_scene *scene) {
  int i;
  rig_open(r, scene->limit, scene->limit, scene->link, 0);
  if (scene->is_told) {
    r->play.session->desc.out_bytes_per_s = r->play.session->desc.in_bytes_per_s = scene->link;
    r->play.session->desc.both_bytes_per_s = scene->link * 1.8;
  }
  for (i = 0; i < scene->layers; i++)
    assert_ok(play_step(&r->play, 106, NULL, NULL, PLAY_W + i, scene->bytes));
}

/* How many regions the last of so many iterations keeps. */
static int regions_iterate(rig *r, const regions_scene *scene, int count, uint64_t *out_ns) {
  int i, kept = 0;
  for (i = 0; i < count; i++) {
    uint64_t begin = rig_now(r);
    kept = play_train_regions(&r->play, scene->layers, scene->bytes, scene->odd, scene->more);
    assert_int_equal(r->queues.stream_sync(r->queues.user, r->play.stream), 0);
    if (out_ns != NULL) *out_ns = rig_now(r) - begin;
  }
  return kept;
}

static regions_outcome regions_run(regions_scene scene) {
  regions_outcome out;
  rig r;
  int i;
  memset(&out, 0, sizeof out);
  regions_open(&r, &scene);
  out.kept = regions_iterate(&r, &scene, scene.iterations, &out.ns);
  assert_ok(gmlake_offload_session_mark(r.play.session));
  out.stats = play_stats(&r.play);
  out.peak = r.play.native_peak;
  for (i = 0; i < scene.layers; i++)
    out.weights = play_mix(out.weights ^ r.play.tensors[PLAY_W + i].value);
  assert_int_equal(out.stats.region_count, scene.layers);
  assert_int_equal(out.stats.kept_region_count, out.kept);
  if (scene.limit != 0) rig_settle(&r, scene.limit);
  rig_close(&r);
  return out;
}

static regions_scene regions_of(size_t limit, double link) {
  regions_scene scene;
  memset(&scene, 0, sizeof scene);
  scene.limit = limit;
  scene.link = link;
  scene.bytes = REGION_BYTES;
  scene.layers = DEPTH;
  scene.is_told = 1;
  scene.iterations = 24;
  return scene;
}

/* Where there is memory for all that a program gives up and makes again, it does that no more. The
   first such iteration is planned already, so nothing drifts, and takes as long as was foretold. */
static void regions_are_kept_where_memory_allows(void **state) {
  regions_outcome before = regions_run(regions_of(0, 8e9)), after;
  size_t limit = before.peak + 3 * DEPTH * REGION_BYTES;
  regions_scene scene;
  (void)state;
  assert_int_equal(before.kept, 0); /* nobody says how much there is */
  after = regions_run(regions_of(limit, 8e9));
  assert_int_equal(after.kept, DEPTH);
  assert_int_equal(after.stats.drift_count, 0);
  assert_int_equal(after.stats.out_count, 0);
  assert_true(after.weights == before.weights);
  assert_in_range(before.ns - after.ns, DEPTH * 200 * US - 5 * US, DEPTH * 200 * US + 50 * US);
  assert_in_range(after.ns, after.stats.step_ns, after.stats.step_ns + 20 * US);
  scene = regions_of(limit, 8e9); /* one step more than was foretold: that is learnt */
  scene.more = ALL;
  after = regions_run(scene);
  assert_int_equal(after.kept, DEPTH);
  assert_in_range(after.stats.drift_count, 1, 2);
  assert_true(after.stats.mode == GMLAKE_OFFLOAD_PLANNED && after.weights == before.weights);
}

/* With less memory as many are kept as make an iteration shorter. None is longer than if all were
   executed again, as those are whose second steps are others. */
static void regions_are_kept_as_far_as_it_pays(void **state) {
  static const double links[] = {2e9, 1e9};
  regions_outcome none = regions_run(regions_of(0, 8e9)), odd, some;
  size_t i, n, by = test_part() > 1 ? 4 : 2;
  (void)state;
  for (i = 0; i < 2; i++) {
    for (n = 8; n < 13; n += by) {
      regions_scene scene = regions_of(none.peak * n / 8 / CHUNK * CHUNK, links[i]);
      some = regions_run(scene);
      scene.odd = ALL;
      odd = regions_run(scene);
      print_message("%u of %u kept, %u us, told %u + %u; none: %u us\n", (unsigned)some.kept,
                    (unsigned)DEPTH, (unsigned)(some.ns / US), (unsigned)(some.stats.step_ns / US),
                    (unsigned)(some.stats.plan_added_ns / US), (unsigned)(odd.ns / US));
      assert_int_equal(odd.kept, 0);
      assert_int_equal(some.stats.drift_count, 0);
      assert_true(some.kept > 0 && (some.kept < DEPTH || n > 8));
      assert_true(some.ns < odd.ns - odd.ns / 20);
      assert_in_range(some.stats.step_ns + some.stats.plan_added_ns, some.ns - some.ns / 20,
                      some.ns + some.ns / 20);
      assert_true(some.weights == none.weights);
    }
  }
}

/* A session that takes the link to be fast keeps too many. It measures that the iterations became
   longer, and goes back for good. */
static void what_does_not_pay_is_taken_back(void **state) {
  regions_outcome none = regions_run(regions_of(0, 1e9)), odd, some;
  regions_scene scene = regions_of(none.peak * 3 / 4 / CHUNK * CHUNK, 1e9);
  (void)state;
  scene.is_told = 0;
  scene.iterations = 9;
  assert_true(regions_run(scene).kept > 0);
  scene.iterations = 24;
  some = regions_run(scene);
  scene.odd = ALL;
  odd = regions_run(scene);
  assert_int_equal(some.kept, 0);
  assert_in_range(some.stats.drift_count, 1, 2);
  assert_true(some.ns <= odd.ns && some.weights == none.weights);
}

/* Another limit, or other sizes, and it is decided anew; in between, nothing is kept that would not
   fit. */
static void regions_are_decided_anew(void **state) {
  size_t most = regions_run(regions_of(0, 1e9)).peak + 3 * DEPTH * REGION_BYTES;
  size_t less = (most - 2 * DEPTH * REGION_BYTES) / CHUNK * CHUNK;
  regions_scene scene = regions_of(most, 1e9);
  int kept;
  rig r;
  (void)state;
  regions_open(&r, &scene);
  assert_int_equal(regions_iterate(&r, &scene, 12, NULL), DEPTH);
  assert_ok(gmlake_offload_session_set_limit(r.play.session, less));
  assert_int_equal(regions_iterate(&r, &scene, 1, NULL), 0);
  kept = regions_iterate(&r, &scene, 16, NULL);
  assert_in_range(kept, 1, DEPTH - 1);
  assert_ok(gmlake_offload_session_set_limit(r.play.session, less + CHUNK));
  assert_int_equal(regions_iterate(&r, &scene, 12, NULL), kept);
  assert_ok(gmlake_offload_session_set_limit(r.play.session, most));
  assert_int_equal(regions_iterate(&r, &scene, 20, NULL), DEPTH);
  scene.bytes = REGION_BYTES * 3 / 2;
  kept = regions_iterate(&r, &scene, 30, NULL);
  assert_in_range(kept, 1, DEPTH - 1);
  scene.bytes = REGION_BYTES;
  assert_int_equal(regions_iterate(&r, &scene, 30, NULL), DEPTH);
  rig_settle(&r, most);
  rig_close(&r);
}

/* Memory that nobody can give up ends it, too. */
static void regions_make_room(void **state) {
  size_t most = regions_run(regions_of(0, 1e9)).peak + 3 * DEPTH * REGION_BYTES, out;
  regions_scene scene = regions_of(most, 1e9);
  rig r;
  (void)state;
  regions_open(&r, &scene);
  assert_int_equal(regions_iterate(&r, &scene, 12, NULL), DEPTH);
  assert_ok(gmlake_offload_session_make_room(r.play.session, CHUNK, &out));
  assert_int_equal(out, REGION_BYTES);
  assert_int_equal(regions_iterate(&r, &scene, 1, NULL), DEPTH);
  assert_ok(gmlake_offload_session_make_room(r.play.session, most, &out));
  assert_int_equal(regions_iterate(&r, &scene, 12, NULL), 0);
  rig_close(&r);
}

/* Without host memory for the decision the session goes on without it. Whether the n-th request in
   the call that decides was the last one. */
static int undecided(long n) {
  regions_scene scene = regions_of(40 * CHUNK, 1e9);
  int last;
  rig r;
  scene.layers = 3;
  regions_open(&r, &scene);
  (void)regions_iterate(&r, &scene, 6, NULL);
  r.play.unmarked = 1;
  host_fail_in = n;
  assert_ok(gmlake_offload_session_mark(r.play.session));
  last = host_fail_in != 0;
  host_fail_in = 0;
  if (last) assert_non_null(r.play.session->proposal.slot_of);
  (void)regions_iterate(&r, &scene, 1, NULL);
  r.play.unmarked = 0;
  (void)regions_iterate(&r, &scene, 3, NULL);
  rig_settle(&r, scene.limit);
  rig_close(&r);
  return last;
}

static void deciding_without_host_memory(void **state) {
  long n = 1;
  (void)state;
  while (!undecided(n)) n += test_part() * (n < 60 ? 1 : 499);
  assert_true(n > 100);
}

/* Programs whose regions match or not, whose sizes, depths and limits change at any time. */
static void regions_at_random(void **state) {
  uint64_t seed;
  size_t kept = 0;
  (void)state;
  for (seed = 1; seed <= 10; seed += (uint64_t)test_part()) {
    uint64_t random = play_mix(seed);
    size_t most = CHUNK * (60 + random % 100);
    regions_scene scene = regions_of(most, 5e8 * (double)(1 + random / 128 % 8));
    int phase;
    rig r;
    scene.is_told = (int)(random >> 12 & 1);
    regions_open(&r, &scene);
    for (phase = 0; phase < 6; phase++) {
      random = play_mix(random);
      scene.layers = 2 + (int)(random % (DEPTH - 1));
      scene.odd = (unsigned)(random >> 8 & random >> 24) & ALL;
      scene.more = (unsigned)(random >> 40 & random >> 50) & ALL;
      if ((random >> 16 & 3) == 0) scene.bytes = CHUNK * (1 + random % 5);
      if ((random >> 18 & 3) == 0) {
        assert_ok(gmlake_offload_session_set_limit(r.play.session, most - CHUNK * (random % 20)));
      }
      kept += (size_t)regions_iterate(&r, &scene, 1 + (int)(random >> 20 & 15), NULL);
    }
    rig_settle(&r, most);
    rig_close(&r);
  }
  assert_true(test_part() > 1 || kept > 5);
}

/* ---- Failures ---- */

/* A program that repeats what fails. Whether all of it went through without a failure. */
static int stubborn_program(size_t limit, uint64_t fail_at, long host_fail) {
  gmlake_offload_mock_census census;
  int i, n, done;
  rig r;
  rig_open(&r, limit, limit, 8e9, .2);
  r.play.tolerant = 1;
  for (i = 0; i < 4; i++) {
    n = 0;
    while (play_step(&r.play, 1, NULL, NULL, PLAY_W + i, 256 * KIB) != GMLAKE_OFFLOAD_OK)
      assert_true(++n < 5);
  }
  gmlake_offload_mock_fail_at(r.mock, fail_at != 0 ? rig_census(&r).call_count + fail_at : 0);
  host_fail_in = host_fail;
  for (i = 0; i < 3 * 8; i++) {
    int reads[] = {PLAY_W + i % 4, -1}, writes[] = {PLAY_W + (i + 1) % 4, -1};
    if (i % 8 == 0) {
      gmlake_offload_result result = gmlake_offload_session_mark(r.play.session);
      assert_ok(result);
    }
    n = 0;
    while (play_step(&r.play, 2, reads, writes, r.play.tensors[PLAY_A].id == NONE ? PLAY_A : -1,
                     100 * KIB) != GMLAKE_OFFLOAD_OK) {
      gmlake_offload_error_info info;
      assert_ok(gmlake_offload_session_get_error(r.play.session, &info));
      assert_true(info.text[0] != '\0');
      assert_true(++n < 5);
    }
    if (i % 2 == 1) play_free(&r.play, PLAY_A);
    gmlake_offload_mock_spend(r.mock, 100 * US);
  }
  census = rig_census(&r);
  done = host_fail != 0 ? host_fail_in != 0 : 0;
  gmlake_offload_mock_fail_at(r.mock, 0);
  if (fail_at != 0) done = r.mock != NULL && census.call_count < fail_at;
  host_fail_in = 0;
  rig_settle(&r, limit);
  rig_close(&r);
  return done;
}

static void every_call_fails_once(void **state) {
  uint64_t n = 1;
  (void)state;
  while (!stubborn_program(13 * 64 * KIB, n, 0)) n += test_part();
  assert_true(n > 100);
}

static void every_host_allocation_fails_once(void **state) {
  long n = 1;
  (void)state;
  while (!stubborn_program(13 * 64 * KIB, 0, n)) n += test_part();
  assert_true(n > 20);
}

/* A tensor that was copied to the host, but whose memory could not be given up, stays. What writes
   it next does so behind the copy. Whether the failure came. */
static int written_after_a_failure(uint64_t fail_at, long host_fail, int pins) {
  size_t out;
  int writes[] = {0, -1}, failed;
  play_work *work;
  uint64_t calls;
  rig r;
  rig_open(&r, 4 * CHUNK, 4 * CHUNK, 1e8, 0);
  assert_ok(play_step(&r.play, 1, NULL, NULL, 0, 2 * CHUNK));
  calls = rig_census(&r).call_count + fail_at;
  gmlake_offload_mock_fail_at(r.mock, fail_at != 0 ? calls : 0);
  host_fail_in = host_fail;
  (void)gmlake_offload_session_make_room(r.play.session, 1, &out);
  failed = host_fail != 0 ? host_fail_in == 0 : rig_census(&r).call_count >= calls;
  gmlake_offload_mock_fail_at(r.mock, 0);
  host_fail_in = 0;
  if (pins) {
    assert_ok(gmlake_offload_session_pin(r.play.session, r.play.tensors[0].id, r.play.stream));
    r.play.tensors[0].value = 77;
    work = (play_work *)calloc(1, sizeof *work);
    assert_non_null(work);
    work->writes[work->write_count++] = r.play.tensors[0];
    play_launch(&r.play, work);
    assert_ok(gmlake_offload_session_unpin(r.play.session, r.play.tensors[0].id, r.play.stream));
  }
  assert_ok(play_step(&r.play, 2, NULL, writes, -1, 0));
  rig_settle(&r, 4 * CHUNK);
  rig_close(&r);
  return failed;
}

static void writes_wait_for_copies_in_vain(void **state) {
  long n;
  (void)state;
  for (n = 1; written_after_a_failure((uint64_t)n, 0, 0); n++) continue;
  assert_true(n > 3);
  for (n = 1; written_after_a_failure(0, n, n % 2); n++) continue;
  assert_true(n > 6);
}

/* A commit of the mock's memory that fails has taken nothing: the next one, on another stream,
   waits for what left. It fails where the stream's row of `queued` entries has to grow. */
static int commit_fails(int queued) {
  void *ranges[3], *ptr, *streams[3];
  int code, i;
  rig r;
  rig_open(&r, 2 * CHUNK, 2 * CHUNK, 1e9, 0);
  for (i = 0; i < 3; i++) {
    streams[i] = &ranges[i];
    assert_int_equal(r.memory.reserve(r.memory.user, CHUNK, &ranges[i], &ptr), 0);
  }
  for (i = 0; i < 2; i++)
    assert_int_equal(r.memory.commit(r.memory.user, ranges[i], CHUNK, streams[0]), 0);
  assert_ok(gmlake_offload_mock_work(r.mock, streams[0], MS, NULL, NULL));
  assert_int_equal(r.memory.discard(r.memory.user, ranges[0], CHUNK, streams[0]), 0);
  for (i = 0; i < queued; i++)
    assert_ok(gmlake_offload_mock_work(r.mock, streams[1], 0, NULL, NULL));
  host_fail_in = 1;
  code = r.memory.commit(r.memory.user, ranges[2], CHUNK, streams[1]);
  host_fail_in = 0;
  if (code != 0) assert_int_equal(r.memory.commit(r.memory.user, ranges[2], CHUNK, streams[2]), 0);
  for (i = 0; i < 3; i++) assert_int_equal(r.queues.stream_sync(r.queues.user, streams[i]), 0);
  assert_int_equal(rig_census(&r).device_bytes_peak, 2 * CHUNK);
  assert_int_equal(r.memory.discard(r.memory.user, ranges[1], CHUNK, streams[0]), 0);
  assert_int_equal(r.memory.discard(r.memory.user, ranges[2], CHUNK, streams[0]), 0);
  rig_close(&r);
  return code != 0;
}

static void commits_that_fail_take_nothing(void **state) {
  int queued, failures = 0;
  (void)state;
  for (queued = 0; queued < 40; queued++) failures += commit_fails(queued);
  assert_true(failures > 3 && failures < 40);
}

/* ---- A run in a lake ---- */

static void *seen[4]; /* by tensor: where the lake's run had it first */
static size_t moved, launched;
static int (*run_launch)(void *user, const gmlake_offload_launch *launch, uint64_t token);

static int watch_launch(void *user, const gmlake_offload_launch *launch, uint64_t token) {
  size_t i;
  for (i = 0; i < launch->desc.write_count; i++) {
    uint32_t id = launch->desc.writes[i];
    moved += seen[id] != NULL && seen[id] != launch->writes[i];
    seen[id] = launch->writes[i];
  }
  launched++;
  return run_launch(user, launch, token);
}

/* The digest of a thousand iterations in so many tensors' room, in a lake or not. */
static uint64_t run_digest(const gmlake_offload_graph *graph, size_t limit, int lake) {
  gmlake_offload_run_desc desc;
  gmlake_offload_run_stats stats;
  gmlake_offload_backend table;
  gmlake_offload_run *run;
  uint64_t digest;
  uint32_t job;
  rig r;
  with_lake = lake;
  rig_open(&r, limit, limit, 8e9, 0);
  with_lake = 0;
  memset(&desc, 0, sizeof desc);
  memset(seen, 0, sizeof seen);
  table = *r.mock;
  run_launch = table.launch;
  table.launch = watch_launch;
  desc.backend = &table;
  desc.limit_bytes = limit;
  desc.memory = lake ? &r.memory : NULL;
  desc.memory_stream = GMLAKE_STREAM_NONE;
  desc.host = counted;
  assert_ok(gmlake_offload_run_create(&desc, &run));
  assert_ok(gmlake_offload_run_add_job(run, graph, NULL, &job));
  moved = 0;
  assert_ok(gmlake_offload_run_iterations(run, 1000));
  stats.struct_bytes = 0;
  assert_ok(gmlake_offload_run_get_stats(run, &stats));
  assert_true(limit == 0 || (stats.in_count >= 500 && stats.device_bytes_peak <= limit));
  if (lake) assert_int_equal(moved, 0);
  if (lake) rig_settle(&r, limit);
  digest = rig_census(&r).digest;
  gmlake_offload_run_destroy(run);
  rig_close(&r);
  return digest;
}

/* No address changes, and the results are those of a run in which nothing moves. */
static void runs_keep_addresses_in_a_lake(void **state) {
  gmlake_offload_graph *graph = new_graph(0);
  size_t bytes = 2 * CHUNK - 200, before;
  uint32_t p = tensor(graph, bytes, GMLAKE_OFFLOAD_PERSISTENT), a = made(graph, bytes),
           b = made(graph, bytes), c = made(graph, bytes);
  (void)state;
  op(graph, 10 * US, p, NONE, a);
  op(graph, 10 * US, a, NONE, b);
  op(graph, 10 * US, a, b, c); /* p is away */
  op(graph, 10 * US, c, p, p);
  assert_ok(gmlake_offload_graph_seal(graph));
  before = host_bytes;
  host_bytes = 0; /* rig_close counts what is left of the rig */
  assert_true(run_digest(graph, 6 * CHUNK, 1) == run_digest(graph, 0, 0));
  host_bytes = before;
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* ---- Particular cases ---- */

static void a_drivers_error(void **state) {
  static const int codes[] = {700, 1};
  static const char *const said[] = {"said 700;", "said 2;"};
  size_t i;
  (void)state;
  for (i = 0; i < 2; i++) {
    rig r;
    gmlake_offload_error_info info;
    uint32_t id;
    void *ptr;
    with_lake = 1;
    rig_open(&r, 4 * CHUNK, 4 * CHUNK, 8e9, 0);
    with_lake = 0;
    map_code = codes[i];
    assert_error(gmlake_offload_session_alloc(r.play.session, CHUNK, r.play.stream, &id, &ptr),
                 BACKEND);
    map_code = 0;
    assert_ok(gmlake_offload_session_get_error(r.play.session, &info));
    assert_non_null(strstr(info.text, said[i]));
    assert_ok(gmlake_offload_session_alloc(r.play.session, CHUNK, r.play.stream, &id, &ptr));
    rig_close(&r);
  }
}

static void too_large_a_step(void **state) {
  rig r;
  gmlake_offload_error_info info;
  gmlake_offload_session_stats before, after;
  gmlake_offload_step step;
  uint32_t ids[3], id;
  void *ptr;
  size_t i;
  (void)state;
  rig_open(&r, 4 * CHUNK, 4 * CHUNK, 8e9, 0);
  for (i = 0; i < 3; i++) {
    assert_ok(
        gmlake_offload_session_alloc(r.play.session, 2 * CHUNK - 5, r.play.stream, &ids[i], &ptr));
  }
  memset(&step, 0, sizeof step);
  step.stream = r.play.stream;
  step.reads = ids;
  step.read_count = 3;
  before = play_stats(&r.play);
  assert_error(gmlake_offload_session_begin(r.play.session, &step), OUT_OF_DEVICE_MEMORY);
  after = play_stats(&r.play);
  assert_memory_equal(&before, &after, sizeof before);
  assert_ok(gmlake_offload_session_get_error(r.play.session, &info));
  assert_string_equal(info.text,
                      "this step needs 393216 bytes at once, in whole chunks, with what "
                      "may not leave; the limit is 262144");
  step.read_count = 2;
  assert_ok(gmlake_offload_session_begin(r.play.session, &step));
  assert_error(gmlake_offload_session_alloc(r.play.session, CHUNK + 1, r.play.stream, &id, &ptr),
               OUT_OF_DEVICE_MEMORY);
  assert_ok(gmlake_offload_session_get_error(r.play.session, &info));
  assert_non_null(strstr(info.text, "393216 bytes"));
  assert_ok(gmlake_offload_session_end(r.play.session));
  assert_ok(gmlake_offload_session_alloc(r.play.session, 1, r.play.stream, &id, &ptr));
  rig_close(&r);
}

/* What dies while it is away is not fetched, and what is never used again is not brought back. */
static void dead_tensors(void **state) {
  rig r;
  int i, n;
  (void)state;
  rig_open(&r, 5 * CHUNK, 5 * CHUNK, 8e9, 0);
  for (n = 0; n < 6; n++) {
    assert_ok(gmlake_offload_session_mark(r.play.session));
    for (i = 0; i < 8; i++) assert_ok(play_step(&r.play, (uint64_t)i, NULL, NULL, i, 2 * CHUNK));
    for (i = 0; i < 8; i++) play_free(&r.play, (size_t)i);
    assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  }
  assert_int_equal(play_stats(&r.play).in_count, 0);
  assert_true(play_stats(&r.play).out_count > 0);
  assert_int_equal(play_stats(&r.play).device_bytes, 0);
  assert_int_equal(play_stats(&r.play).tensor_count, 0);
  rig_close(&r);
}

/* In a session that is held nothing moves; pinned tensors stay. */
static void held_and_pinned(void **state) {
  rig r;
  int two[] = {0, 1, -1}, i;
  gmlake_offload_step step;
  uint64_t calls;
  size_t out;
  (void)state;
  rig_open(&r, 4 * CHUNK, 4 * CHUNK, 8e9, 0);
  for (i = 0; i < 4; i++) assert_ok(play_step(&r.play, 0, NULL, NULL, i, 2 * CHUNK));
  assert_ok(play_step(&r.play, 1, two, NULL, -1, 0)); /* 2 and 3 are away */
  assert_ok(gmlake_offload_session_hold(r.play.session, 1));
  calls = rig_census(&r).call_count;
  memset(&step, 0, sizeof step);
  step.stream = r.play.stream;
  step.reads = &r.play.tensors[0].id;
  step.read_count = 1;
  assert_ok(gmlake_offload_session_begin(r.play.session, &step));
  assert_ok(gmlake_offload_session_end(r.play.session));
  step.reads = &r.play.tensors[2].id;
  assert_error(gmlake_offload_session_begin(r.play.session, &step), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_pin(r.play.session, r.play.tensors[2].id, r.play.stream),
               INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_mark(r.play.session), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_make_room(r.play.session, 1, &out));
  assert_int_equal(out, 0);
  assert_int_equal(rig_census(&r).call_count, calls);
  assert_ok(gmlake_offload_session_hold(r.play.session, 0));
  assert_ok(gmlake_offload_session_pin(r.play.session, r.play.tensors[2].id, r.play.stream));
  assert_ok(gmlake_offload_session_make_room(r.play.session, SIZE_MAX, &out));
  assert_int_equal(play_stats(&r.play).device_bytes, 2 * CHUNK); /* the pinned one */
  assert_ok(gmlake_offload_session_unpin(r.play.session, r.play.tensors[2].id, r.play.stream));
  assert_error(gmlake_offload_session_unpin(r.play.session, r.play.tensors[2].id, r.play.stream),
               UNKNOWN_ID);
  assert_ok(gmlake_offload_session_make_room(r.play.session, 1, &out));
  assert_int_equal(out, 2 * CHUNK);
  rig_close(&r);
}

/* Under GMLAKE_OFFLOAD_CHECKED nothing is mapped where a tensor is away. */
static void what_is_away_is_unmapped(void **state) {
  rig r;
  size_t out;
  (void)state;
  with_lake = 1;
  flags = GMLAKE_OFFLOAD_CHECKED;
  rig_open(&r, 4 * CHUNK, 8 * CHUNK, 8e9, 0);
  with_lake = 0;
  flags = 0;
  assert_ok(play_step(&r.play, 0, NULL, NULL, 0, 2 * CHUNK));
  assert_true(gmlake_mock_has_access(r.lake_mock, r.play.tensors[0].ptr, 2 * CHUNK, 0));
  assert_ok(gmlake_offload_session_make_room(r.play.session, 1, &out));
  assert_false(gmlake_mock_has_access(r.lake_mock, r.play.tensors[0].ptr, 1, 0));
  assert_ok(play_step(&r.play, 0, (int[]){0, -1}, NULL, -1, 0));
  assert_true(gmlake_mock_has_access(r.lake_mock, r.play.tensors[0].ptr, 2 * CHUNK, 0));
  rig_close(&r);
}

/* What was learnt is a graph that planners take. */
static void the_graph_that_was_learnt(void **state) {
  gmlake_offload_graph *graph;
  gmlake_offload_graph_info info;
  rig r;
  (void)state;
  rig_open(&r, 0, 0, 8e9, 0);
  assert_error(gmlake_offload_session_take_graph(r.play.session, &graph), NOT_SEALED);
  play_setup(&r.play, 4, 128 * KIB);
  play_train(&r.play, 4, 128 * KIB, 0);
  play_train(&r.play, 4, 128 * KIB, 0);
  play_train(&r.play, 4, 128 * KIB, 0);
  assert_int_equal(r.queues.stream_sync(r.queues.user, r.play.stream), 0);
  assert_ok(gmlake_offload_session_mark(r.play.session));
  assert_ok(gmlake_offload_session_take_graph(r.play.session, &graph));
  assert_ok(gmlake_offload_graph_get_info(graph, &info));
  assert_int_equal(info.op_count, 4 + 1 + 2 * 4 + 4);
  assert_int_equal(info.persistent_bytes, 4 * 3 * 128 * KIB);
  assert_int_equal(info.peak_bytes, r.play.native_peak);
  gmlake_offload_graph_destroy(graph);
  rig_close(&r);
}

static void wrong_arguments(void **state) {
  gmlake_offload_session_desc desc;
  gmlake_offload_session_stats stats;
  gmlake_offload_session *session;
  gmlake_offload_step step;
  uint32_t id = 7;
  size_t offset;
  void *ptr;
  rig r;
  (void)state;
  rig_open(&r, 0, 0, 8e9, 0);
  memset(&desc, 0, sizeof desc);
  memset(&step, 0, sizeof step);
  assert_error(gmlake_offload_session_create(NULL, &session), INVALID_ARGUMENT);
  assert_null(session);
  assert_error(gmlake_offload_session_create(&desc, &session), INVALID_ARGUMENT);
  desc.queues = &r.queues;
  desc.memory = &r.memory;
  desc.flags = 1u << 30;
  assert_error(gmlake_offload_session_create(&desc, &session), INVALID_ARGUMENT);
  desc.flags = 0;
  desc.in_bytes_per_s = -1;
  assert_error(gmlake_offload_session_create(&desc, &session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_create(&desc, NULL), INVALID_ARGUMENT);
  session = r.play.session;
  assert_error(gmlake_offload_session_end(session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_begin(session, NULL), INVALID_ARGUMENT);
  step.reads = &id;
  step.read_count = 1;
  assert_error(gmlake_offload_session_begin(session, &step), UNKNOWN_ID);
  step.reads = NULL;
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  step.read_count = 0;
  assert_ok(gmlake_offload_session_begin(session, &step));
  assert_error(gmlake_offload_session_begin(session, &step), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_mark(session), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_hold(session, 1), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_end(session));
  assert_error(gmlake_offload_session_free(session, 7, NULL), UNKNOWN_ID);
  assert_error(gmlake_offload_session_pin(session, 7, NULL), UNKNOWN_ID);
  assert_error(gmlake_offload_session_alloc(session, SIZE_MAX, NULL, &id, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_alloc(session, 1, NULL, NULL, &ptr), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_find(session, &r, &id, &offset), UNKNOWN_ID);
  assert_error(gmlake_offload_session_get_stats(session, NULL), INVALID_ARGUMENT);
  stats.struct_bytes = 3;
  assert_error(gmlake_offload_session_get_stats(session, &stats), INVALID_ARGUMENT);
  rig_close(&r);
}

static void wrong_regions(void **state) {
  gmlake_offload_session *session;
  uint64_t region;
  int is_kept;
  rig r;
  (void)state;
  rig_open(&r, 0, 0, 8e9, 0);
  session = r.play.session;
  assert_error(gmlake_offload_session_region_end(session, 0), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_region(session, NULL, &is_kept), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_region(session, &region, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_recompute(session, 0), UNKNOWN_ID);
  assert_error(gmlake_offload_session_recompute(session, 1), UNKNOWN_ID);
  assert_ok(gmlake_offload_session_region(session, &region, &is_kept));
  assert_error(gmlake_offload_session_region(session, &region, &is_kept), INVALID_ARGUMENT);
  assert_error(gmlake_offload_session_recompute(session, region), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_session_region_end(session, 0));
  assert_ok(gmlake_offload_session_recompute(session, region));
  assert_ok(gmlake_offload_session_region_end(session, 0));
  assert_error(gmlake_offload_session_region(NULL, &region, &is_kept), INVALID_ARGUMENT);
  rig_close(&r);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(training_in_less_memory),
      cmocka_unit_test(slow_links_are_planned_for),
      cmocka_unit_test(only_the_last_use_is_waited_for),
      cmocka_unit_test(addresses_stay),
      cmocka_unit_test(what_repeats_stays_mapped),
      cmocka_unit_test(weights_keep_their_addresses),
      cmocka_unit_test(mapping_takes_no_step_longer),
      cmocka_unit_test(drift_at_any_step),
      cmocka_unit_test(another_order_is_learnt),
      cmocka_unit_test(sizes_vary),
      cmocka_unit_test(a_schedule_is_for_its_sizes),
      cmocka_unit_test(what_is_used_late_comes_back_early),
      cmocka_unit_test(schedules_in_vain_are_given_up),
      cmocka_unit_test(pinned_memory_of_other_sizes_is_used_again),
      cmocka_unit_test(what_the_host_has_leaves_before_copies),
      cmocka_unit_test(frozen_weights_leave_without_copies),
      cmocka_unit_test(frozen_weights_go_first),
      cmocka_unit_test(copies_across_the_turn_hold_nobody_up),
      cmocka_unit_test(slow_steps_are_timed_again),
      cmocka_unit_test(a_limit_set_in_any_iteration_is_planned_for),
      cmocka_unit_test(what_a_plan_adds_is_told),
      cmocka_unit_test(random_programs),
      cmocka_unit_test(random_programs_without_marks),
      cmocka_unit_test(iterations_are_found),
      cmocka_unit_test(repeats_within_an_iteration),
      cmocka_unit_test(what_is_not_searched),
      cmocka_unit_test(rhythms),
      cmocka_unit_test(regions_are_kept_where_memory_allows),
      cmocka_unit_test(regions_are_kept_as_far_as_it_pays),
      cmocka_unit_test(what_does_not_pay_is_taken_back),
      cmocka_unit_test(regions_are_decided_anew),
      cmocka_unit_test(regions_make_room),
      cmocka_unit_test(deciding_without_host_memory),
      cmocka_unit_test(regions_at_random),
      cmocka_unit_test(every_call_fails_once),
      cmocka_unit_test(every_host_allocation_fails_once),
      cmocka_unit_test(writes_wait_for_copies_in_vain),
      cmocka_unit_test(commits_that_fail_take_nothing),
      cmocka_unit_test(runs_keep_addresses_in_a_lake),
      cmocka_unit_test(a_drivers_error),
      cmocka_unit_test(too_large_a_step),
      cmocka_unit_test(dead_tensors),
      cmocka_unit_test(held_and_pinned),
      cmocka_unit_test(what_is_away_is_unmapped),
      cmocka_unit_test(the_graph_that_was_learnt),
      cmocka_unit_test(wrong_arguments),
      cmocka_unit_test(wrong_regions),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
