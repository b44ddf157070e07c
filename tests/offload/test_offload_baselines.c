/* The plans of bench/offload/baselines.h: expected events on small graphs, and runs of random ones
   that end with the bytes of a run that moves nothing. */
#include "graphs.h"
#include "offload/baselines.h"

static const baseline_link link_55 = {55e9, 55e9, 10000};
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
  machine m = new_machine(limit_bytes, 1 << 16, 110e9);
  outcome o;
  uint32_t id;
  assert_ok(gmlake_offload_run_add_job(m.run, graph, plan, &id));
  assert_ok(gmlake_offload_run_iterations(m.run, 2));
  o.stats = stats_of(&m);
  o.digest = end_machine(&m);
  return o;
}

/* ---- vDNN ------------------------------------------------------------------------------------ */

/* x and z are read by convolutions, y by what is none, too. */
#define NETWORK                                                                             \
  "x=55000000b y=110000000b z=55000000b >x:1000 x>y:5000 y>y:1000 y>z:1000 z>a=1000b:5000 " \
  "a>b=1000b:5000 z,b>c=1000b:5000 y,c>d=1000b:1000 y,d>e=1000b:1000 x,e>:1000"

enum { X, Y, Z };

static gmlake_offload_graph *make_network(baseline_view *out_view) {
  static const char *const names[] = {
      "rand.default",       "convolution.default", "relu_.default", "convolution.default",
      "mean.dim",           "nll_loss_backward",   "mean_backward", "convolution_backward",
      "threshold_backward", "convolution_backward"};
  gmlake_offload_graph *graph = graph_of(NETWORK, MIB);
  size_t i;
  assert_true(baseline_view_make(out_view, graph, &link_55));
  for (i = 0; i < 10; i++) out_view->ops[i].name = names[i];
  return graph;
}

/* The copy of y takes a millisecond longer than the layer that reads it: the next one waits. Both
   come back with the first layer of the backward pass and with the one that takes y. */
CASE(vdnn_moves_what_convolutions_read) {
  gmlake_offload_graph *waits;
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  gmlake_offload_op_desc wait;
  baseline_view view;
  gmlake_offload_graph *graph = make_network(&view);
  outcome o;
  assert_true(vdnn_plan(&view, 0, &waits, &plan));
  assert_int_equal(info_of(waits).op_count, 12);
  assert_int_equal(info_of(waits).op_order[4], 10);
  assert_int_equal(info_of(waits).op_order[9], 11); /* y's layer waits for x: 1 us more */
  assert_ok(gmlake_offload_get_op(waits, 10, &wait));
  assert_string_equal(wait.name, "wait");
  assert_int_equal(wait.time_ns, 1010 * US + 1);
  assert_int_equal(plan_info(plan).event_count, 6);
  e = plan_info(plan).events;
  check_event(&e[0], GMLAKE_OFFLOAD_SWAP_OUT, X, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_DROP, X, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_SWAP_OUT, Y, 2, 2);
  check_event(&e[3], GMLAKE_OFFLOAD_DROP, Y, 10, 3);
  check_event(&e[4], GMLAKE_OFFLOAD_SWAP_IN, Y, 4, 3);
  check_event(&e[5], GMLAKE_OFFLOAD_SWAP_IN, X, 6, 1);
  o = run_plan(waits, plan, 0);
  assert_int_equal(o.stats.void_count + o.stats.on_demand_in_count, 0);
  assert_int_equal(o.stats.stall_ns, 0);
  assert_int_equal(o.stats.out_count, 4);
  assert_int_equal(o.stats.device_bytes_peak, 165000000 + 2000);
  assert_true(o.digest == run_plan(waits, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(waits);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(graph);
}

CASE(vdnn_moves_all_feature_maps) {
  gmlake_offload_graph *waits;
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  gmlake_offload_graph *graph = make_network(&view);
  outcome o;
  assert_true(vdnn_plan(&view, 1, &waits, &plan));
  assert_int_equal(plan_info(plan).event_count, 9);
  e = plan_info(plan).events;
  check_event(&e[3], GMLAKE_OFFLOAD_SWAP_OUT, Z, 10, 3);
  check_event(&e[5], GMLAKE_OFFLOAD_DROP, Z, 4, 4);
  check_event(&e[6], GMLAKE_OFFLOAD_SWAP_IN, Z, 4, 4); /* with the first layer */
  check_event(&e[7], GMLAKE_OFFLOAD_SWAP_IN, Y, 5, 3); /* with z's */
  check_event(&e[8], GMLAKE_OFFLOAD_SWAP_IN, X, 6, 1);
  o = run_plan(waits, plan, 0);
  assert_int_equal(o.stats.on_demand_in_count, 0);
  assert_true(o.digest == run_plan(waits, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(waits);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(graph);
}

/* ---- Capuchin -------------------------------------------------------------------------------- */

/* a's gap is the longest, b's lies in it; c makes the peak. */
#define GAPS                                                                               \
  "i=1000bi a=55000000b b=55000000b c=55000000b i>a:1000 i>b:1000 >:2000 >c:1000 c>:2000 " \
  "b>:1100 a>:1000"

enum { A = 1, B };

CASE(capuchin_takes_the_longest_free_time) {
  gmlake_offload_graph *graph = graph_of(GAPS, MIB);
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  capuchin c;
  outcome o;
  assert_true(baseline_view_make(&view, graph, &link_55));
  assert_true(capuchin_choose(&c, &view, 120000000));
  assert_int_equal(c.pair_count, 1);
  assert_int_equal(c.pairs[0].tensor, A);
  assert_int_equal(c.pairs[0].cost_ns, 0);
  capuchin_free(&c);
  assert_true(capuchin_choose(&c, &view, 60000000));
  assert_int_equal(c.pair_count, 2);
  plan = capuchin_plan(&c);
  assert_non_null(plan);
  assert_int_equal(plan_info(plan).event_count, 4);
  e = plan_info(plan).events;
  check_event(&e[0], GMLAKE_OFFLOAD_SWAP_OUT, A, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_SWAP_OUT, B, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_SWAP_IN, B, 3, 1); /* operator 4 ends too late */
  check_event(&e[3], GMLAKE_OFFLOAD_SWAP_IN, A, 4, 0);
  o = run_plan(graph, plan, 0);
  assert_int_equal(o.stats.device_bytes_peak, 110000000 + 1000);
  assert_int_equal(o.stats.on_demand_in_count + o.stats.void_count, 0);
  assert_true(o.digest == run_plan(graph, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  capuchin_free(&c);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(graph);
}

/* Over a slow link making a again costs less than what is exposed of its swap. b can then not be
   moved for less than its own millisecond, either. */
CASE(capuchin_recomputes_where_swaps_are_exposed) {
  baseline_link slow = {5e9, 5e9, 10000};
  gmlake_offload_graph *graph = graph_of(GAPS, MIB);
  gmlake_offload_plan *plan;
  const gmlake_offload_event *e;
  baseline_view view;
  capuchin c;
  outcome o;
  assert_true(baseline_view_make(&view, graph, &slow));
  assert_true(capuchin_choose(&c, &view, 60000000));
  assert_int_equal(c.pair_count, 2);
  assert_true(c.pairs[0].recompute && c.pairs[1].recompute);
  assert_int_equal(c.pairs[0].cost_ns, MS);
  plan = capuchin_plan(&c);
  assert_non_null(plan);
  e = plan_info(plan).events;
  assert_int_equal(plan_info(plan).event_count, 4);
  check_event(&e[0], GMLAKE_OFFLOAD_DROP, A, 0, 0);
  check_event(&e[1], GMLAKE_OFFLOAD_DROP, B, 1, 1);
  check_event(&e[2], GMLAKE_OFFLOAD_RECOMPUTE, B, 4, 1);
  check_event(&e[3], GMLAKE_OFFLOAD_RECOMPUTE, A, 5, 0);
  o = run_plan(graph, plan, 0);
  assert_int_equal(o.stats.recompute_count, 4);
  assert_int_equal(o.stats.out_count, 0);
  assert_true(o.digest == run_plan(graph, NULL, 0).digest);
  gmlake_offload_plan_destroy(plan);
  capuchin_free(&c);
  baseline_view_free(&view);
  gmlake_offload_graph_destroy(graph);
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
CASE(capuchin_learns_from_late_swaps) {
  gmlake_offload_graph *graph = graph_of(GAPS, MIB);
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_run_desc desc;
  gmlake_offload_backend *mock;
  gmlake_offload_run_stats stats;
  gmlake_offload_plan *plans[6];
  baseline_view view;
  feedback f;
  uint64_t stall[6];
  uint32_t id, i;
  memset(&mock_desc, 0, sizeof mock_desc);
  memset(&desc, 0, sizeof desc);
  mock_desc.divisor = 1 << 16;
  mock_desc.in_bytes_per_s = 33e9;
  assert_ok(gmlake_offload_mock_create(&mock_desc, &mock));
  desc.backend = mock;
  desc.observe_fn = feed_back;
  desc.user = &f;
  assert_true(baseline_view_make(&view, graph, &link_55));
  assert_true(capuchin_choose(&f.capuchin, &view, 120000000));
  assert_ok(gmlake_offload_run_create(&desc, &f.run));
  assert_ok(gmlake_offload_run_add_job(f.run, graph, NULL, &id));
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
  gmlake_offload_graph_destroy(graph);
}

/* ---- Random graphs --------------------------------------------------------------------------- */

CASE(baselines_give_the_same_bytes) {
  uint64_t seed;
  size_t remade = 0, moved = 0;
  for (seed = 0; seed < 60; seed++) {
    gmlake_offload_graph *graph = random_graph(seed, 5 + (size_t)seed, 0), *waits;
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

int main(void) { return run_cases("offload_baselines"); }
