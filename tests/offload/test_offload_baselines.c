/* The plans of bench/offload/baselines.h: expected events on small graphs, and runs of random ones
   that end with the bytes of a run that moves nothing. */
#include "offload_fixture.h"
#include "offload/baselines.h"

static const baseline_link link_55 = {55e9, 55e9, 10000}; /* 55 MB: 1.01 ms */

static uint32_t named(gmlake_offload_graph *graph, const char *name, uint64_t time_ns, uint32_t a,
                      uint32_t b, uint32_t c) {
  gmlake_offload_op_desc desc;
  uint32_t reads[2], id;
  memset(&desc, 0, sizeof desc);
  desc.name = name;
  desc.time_ns = time_ns;
  desc.reads = reads;
  desc.writes = &c;
  if (a != NONE) reads[desc.read_count++] = a;
  if (b != NONE) reads[desc.read_count++] = b;
  desc.write_count = c != NONE;
  assert_ok(gmlake_offload_add_op(graph, &desc, &id));
  return id;
}

static gmlake_offload_plan_info plan_info(const gmlake_offload_plan *plan) {
  gmlake_offload_plan_info info;
  assert_ok(gmlake_offload_plan_get_info(plan, &info));
  return info;
}

static void check_event(const gmlake_offload_event *event, gmlake_offload_action action,
                        uint32_t tensor_id, uint32_t trigger, uint32_t op_id) {
  assert_int_equal(event->action, action);
  assert_int_equal(event->tensor, tensor_id);
  assert_int_equal(event->trigger, trigger);
  assert_int_equal(event->op, op_id);
  assert_int_equal(event->delay_ns, 0);
}

typedef struct outcome {
  gmlake_offload_run_stats stats;
  uint64_t digest;
} outcome;

static outcome run_plan(const gmlake_offload_graph *graph, const gmlake_offload_plan *plan,
                        size_t limit_bytes) {
  gmlake_offload_mock_census census;
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_run_desc desc;
  gmlake_offload_backend *mock;
  gmlake_offload_run *run;
  outcome o;
  uint32_t id;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  memset(&o, 0, sizeof o);
  mock_desc.divisor = 1 << 16;
  mock_desc.copy_ns = 10000;
  mock_desc.both_bytes_per_s = 110e9;
  assert_ok(gmlake_offload_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.limit_bytes = limit_bytes;
  assert_ok(gmlake_offload_run_create(&desc, &run));
  assert_ok(gmlake_offload_run_add_job(run, graph, plan, &id));
  assert_ok(gmlake_offload_run_iterations(run, 2));
  assert_ok(gmlake_offload_run_get_stats(run, &o.stats));
  gmlake_offload_mock_get_census(mock, &census);
  assert_int_equal(census.race_count, 0);
  o.digest = census.digest;
  gmlake_offload_run_destroy(run);
  gmlake_offload_mock_destroy(mock);
  return o;
}

/* ---- vDNN ------------------------------------------------------------------------------------ */

typedef struct network {
  gmlake_offload_graph *graph;
  uint32_t x, y, z; /* read by two convolutions, and by what is none */
} network;

static network make_network(void) {
  network n;
  uint32_t g[5], i;
  n.graph = new_graph(0);
  n.x = made(n.graph, 55000000);
  n.y = made(n.graph, 110000000);
  n.z = made(n.graph, 55000000);
  for (i = 0; i < 5; i++) g[i] = made(n.graph, 1000);
  (void)named(n.graph, "rand.default", MS, NONE, NONE, n.x);
  (void)named(n.graph, "convolution.default", 5 * MS, n.x, NONE, n.y);
  (void)named(n.graph, "relu_.default", MS, n.y, NONE, n.y);
  (void)named(n.graph, "convolution.default", MS, n.y, NONE, n.z);
  (void)named(n.graph, "mean.dim", 5 * MS, n.z, NONE, g[0]);
  (void)named(n.graph, "nll_loss_backward", 5 * MS, g[0], NONE, g[1]);
  (void)named(n.graph, "mean_backward", 5 * MS, n.z, g[1], g[2]);
  (void)named(n.graph, "convolution_backward", MS, n.y, g[2], g[3]);
  (void)named(n.graph, "threshold_backward", MS, n.y, g[3], g[4]);
  (void)named(n.graph, "convolution_backward", MS, n.x, g[4], NONE);
  assert_ok(gmlake_offload_graph_seal(n.graph));
  return n;
}

/* The copy of y takes a millisecond longer than the layer that reads it: the next one waits. Both
   come back with the first layer of the backward pass and with the one that takes y. */
static void vdnn_moves_what_convolutions_read(void **state) {
  network n = make_network();
  gmlake_offload_graph *waits;
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  gmlake_offload_op_desc wait;
  baseline_view view;
  outcome o;
  (void)state;
  assert_true(baseline_view_make(&view, n.graph, &link_55));
  assert_true(vdnn_plan(&view, 0, &waits, &plan));
  assert_int_equal(info_of(waits).op_count, 12);
  assert_int_equal(info_of(waits).op_order[4], 10);
  assert_int_equal(info_of(waits).op_order[9], 11); /* y's layer waits for x: 1 us more */
  assert_ok(gmlake_offload_get_op(waits, 10, &wait));
  assert_string_equal(wait.name, "wait");
  assert_int_equal(wait.time_ns, 1010 * US + 1);
  assert_int_equal(plan_info(plan).event_count, 6);
  e = plan_info(plan).events;
  check_event(&e[0], GMLAKE_OFFLOAD_SWAP_OUT, n.x, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_DROP, n.x, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_SWAP_OUT, n.y, 2, 2);
  check_event(&e[3], GMLAKE_OFFLOAD_DROP, n.y, 10, 3);
  check_event(&e[4], GMLAKE_OFFLOAD_SWAP_IN, n.y, 4, 3);
  check_event(&e[5], GMLAKE_OFFLOAD_SWAP_IN, n.x, 6, 1);
  o = run_plan(waits, plan, 0);
  assert_int_equal(o.stats.void_count + o.stats.passive_in_count, 0);
  assert_int_equal(o.stats.stall_ns, 0);
  assert_int_equal(o.stats.out_count, 4);
  assert_int_equal(o.stats.device_bytes_peak, 165000000 + 2000);
  assert_true(o.digest == run_plan(waits, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(waits);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(n.graph);
}

static void vdnn_moves_all_feature_maps(void **state) {
  network n = make_network();
  gmlake_offload_graph *waits;
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  outcome o;
  (void)state;
  assert_true(baseline_view_make(&view, n.graph, &link_55));
  assert_true(vdnn_plan(&view, 1, &waits, &plan));
  assert_int_equal(plan_info(plan).event_count, 9);
  e = plan_info(plan).events;
  check_event(&e[3], GMLAKE_OFFLOAD_SWAP_OUT, n.z, 10, 3);
  check_event(&e[5], GMLAKE_OFFLOAD_DROP, n.z, 4, 4);
  check_event(&e[6], GMLAKE_OFFLOAD_SWAP_IN, n.z, 4, 4); /* with the first layer */
  check_event(&e[7], GMLAKE_OFFLOAD_SWAP_IN, n.y, 5, 3); /* with z's */
  check_event(&e[8], GMLAKE_OFFLOAD_SWAP_IN, n.x, 6, 1);
  o = run_plan(waits, plan, 0);
  assert_int_equal(o.stats.passive_in_count, 0);
  assert_true(o.digest == run_plan(waits, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(waits);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(n.graph);
}

/* ---- Capuchin -------------------------------------------------------------------------------- */

/* a's gap is the longest, b's lies in it; c makes the peak. */
typedef struct gaps {
  gmlake_offload_graph *graph;
  uint32_t in, a, b, c;
} gaps;

static gaps make_gaps(void) {
  gaps g;
  g.graph = new_graph(0);
  g.in = tensor(g.graph, 1000, GMLAKE_OFFLOAD_INPUT);
  g.a = made(g.graph, 55000000);
  g.b = made(g.graph, 55000000);
  g.c = made(g.graph, 55000000);
  op(g.graph, MS, g.in, NONE, g.a);
  op(g.graph, MS, g.in, NONE, g.b);
  op(g.graph, 2 * MS, NONE, NONE, NONE);
  op(g.graph, MS, NONE, NONE, g.c);
  op(g.graph, 2 * MS, g.c, NONE, NONE);
  op(g.graph, 1100 * US, g.b, NONE, NONE);
  op(g.graph, MS, g.a, NONE, NONE);
  assert_ok(gmlake_offload_graph_seal(g.graph));
  return g;
}

static void capuchin_takes_the_longest_free_time(void **state) {
  gaps g = make_gaps();
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  capuchin c;
  outcome o;
  (void)state;
  assert_true(baseline_view_make(&view, g.graph, &link_55));
  assert_true(capuchin_choose(&c, &view, 120000000));
  assert_int_equal(c.pair_count, 1);
  assert_int_equal(c.pairs[0].tensor, g.a);
  assert_int_equal(c.pairs[0].cost_ns, 0);
  capuchin_free(&c);
  assert_true(capuchin_choose(&c, &view, 60000000));
  assert_int_equal(c.pair_count, 2);
  plan = capuchin_plan(&c);
  assert_non_null(plan);
  assert_int_equal(plan_info(plan).event_count, 4);
  e = plan_info(plan).events;
  check_event(&e[0], GMLAKE_OFFLOAD_SWAP_OUT, g.a, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_SWAP_OUT, g.b, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_SWAP_IN, g.b, 3, 1); /* operator 4 ends too late */
  check_event(&e[3], GMLAKE_OFFLOAD_SWAP_IN, g.a, 4, 0);
  o = run_plan(g.graph, plan, 0);
  assert_int_equal(o.stats.device_bytes_peak, 110000000 + 1000);
  assert_int_equal(o.stats.passive_in_count + o.stats.void_count, 0);
  assert_true(o.digest == run_plan(g.graph, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  capuchin_free(&c);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(g.graph);
}

/* Over a slow link making a again costs less than what is exposed of its swap. b can then not be
   moved for less than its own millisecond, either. */
static void capuchin_recomputes_where_swaps_are_exposed(void **state) {
  baseline_link slow = {5e9, 5e9, 10000};
  gaps g = make_gaps();
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  capuchin c;
  outcome o;
  (void)state;
  assert_true(baseline_view_make(&view, g.graph, &slow));
  assert_true(capuchin_choose(&c, &view, 60000000));
  assert_int_equal(c.pair_count, 2);
  assert_true(c.pairs[0].recompute && c.pairs[1].recompute);
  assert_int_equal(c.pairs[0].cost_ns, MS);
  plan = capuchin_plan(&c);
  assert_non_null(plan);
  e = plan_info(plan).events;
  assert_int_equal(plan_info(plan).event_count, 4);
  check_event(&e[0], GMLAKE_OFFLOAD_DROP, g.a, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_DROP, g.b, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_RECOMPUTE, g.b, 4, 1);
  check_event(&e[3], GMLAKE_OFFLOAD_RECOMPUTE, g.a, 5, 0);
  o = run_plan(g.graph, plan, 0);
  assert_int_equal(o.stats.recompute_count, 4);
  assert_int_equal(o.stats.out_count, 0);
  assert_true(o.digest == run_plan(g.graph, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  capuchin_free(&c);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(g.graph);
}

typedef struct feedback {
  capuchin capuchin;
  gmlake_offload_run *run;
} feedback;

static void feed_back(void *user, uint32_t job, uint32_t op_id, uint64_t time_ns) {
  feedback *f = (feedback *)user;
  (void)time_ns;
  capuchin_observe(&f->capuchin, f->run, job, op_id);
}

/* The link is slower than Capuchin was told: a comes late, by less after every iteration, until its
   in-trigger is an operator earlier and it comes in time. */
static void capuchin_learns_from_late_swaps(void **state) {
  gaps g = make_gaps();
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_run_desc desc;
  gmlake_offload_backend *mock;
  gmlake_offload_run_stats stats;
  gmlake_offload_plan *plans[6];
  baseline_view view;
  feedback f;
  uint64_t stall[6];
  uint32_t id, i;
  (void)state;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.divisor = 1 << 16;
  mock_desc.in_bytes_per_s = 33e9;
  assert_ok(gmlake_offload_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.observe_fn = feed_back;
  desc.user = &f;
  assert_true(baseline_view_make(&view, g.graph, &link_55));
  assert_true(capuchin_choose(&f.capuchin, &view, 120000000));
  assert_ok(gmlake_offload_run_create(&desc, &f.run));
  assert_ok(gmlake_offload_run_add_job(f.run, g.graph, NULL, &id));
  for (i = 0; i < 6; i++) {
    plans[i] = capuchin_plan(&f.capuchin);
    assert_non_null(plans[i]);
    assert_ok(gmlake_offload_run_set_plan(f.run, 0, plans[i]));
    stats.struct_bytes = 0;
    assert_ok(gmlake_offload_run_get_stats(f.run, &stats));
    stall[i] = stats.stall_ns;
    assert_ok(gmlake_offload_run_iterations(f.run, 1));
    assert_ok(gmlake_offload_run_get_stats(f.run, &stats));
    stall[i] = stats.stall_ns - stall[i];
  }
  assert_true(stall[0] > 500 * US);
  assert_int_equal(stall[5], 0);
  assert_int_equal(plan_info(plans[0]).events[1].trigger, 4);
  assert_int_equal(plan_info(plans[5]).events[1].trigger, 3);
  gmlake_offload_run_destroy(f.run);
  for (i = 0; i < 6; i++) gmlake_offload_plan_destroy(plans[i]);
  gmlake_offload_mock_destroy(mock);
  capuchin_free(&f.capuchin);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(g.graph);
}

/* ---- Random graphs --------------------------------------------------------------------------- */

static void baselines_give_the_same_bytes(void **state) {
  uint64_t seed;
  size_t remade = 0, moved = 0;
  (void)state;
  for (seed = 0; seed < 60; seed++) {
    gmlake_offload_graph *graph = random_graph(seed, 5 + (size_t)seed), *waits;
    baseline_link link = {seed % 2 ? 55e9 : 2e9, seed % 2 ? 55e9 : 2e9, 10000};
    gmlake_offload_graph_info info = info_of(graph);
    uint64_t digest = run_plan(graph, NULL, 0).digest;
    gmlake_offload_plan *plan;
    baseline_view view;
    capuchin c;
    size_t budget = info.op_bytes_max + (info.peak_bytes - info.op_bytes_max) / 3;
    outcome o;
    assert_true(baseline_view_make(&view, graph, &link));
    assert_true(capuchin_choose(&c, &view, budget));
    plan = capuchin_plan(&c);
    assert_non_null(plan);
    o = run_plan(graph, plan, budget);
    assert_true(o.digest == digest);
    assert_true(o.stats.device_bytes_peak <= budget);
    remade += o.stats.recompute_count;
    gmlake_offload_plan_destroy(plan);
    capuchin_free(&c);
    view.ops[info.op_count / 2].name = "backward";
    assert_true(vdnn_plan(&view, 1, &waits, &plan));
    o = run_plan(waits, plan, 0);
    assert_true(o.digest == run_plan(waits, NULL, 0).digest);
    moved += o.stats.out_count;
    gmlake_offload_plan_destroy(plan);
    gmlake_offload_graph_destroy(waits);
    baseline_view_free(&view);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(remade > 50 && moved > 200);
}

int main(void) {
  const struct CMUnitTest tests[] = {
      cmocka_unit_test(vdnn_moves_what_convolutions_read),
      cmocka_unit_test(vdnn_moves_all_feature_maps),
      cmocka_unit_test(capuchin_takes_the_longest_free_time),
      cmocka_unit_test(capuchin_recomputes_where_swaps_are_exposed),
      cmocka_unit_test(capuchin_learns_from_late_swaps),
      cmocka_unit_test(baselines_give_the_same_bytes),
  };
  return cmocka_run_group_tests(tests, NULL, NULL);
}
