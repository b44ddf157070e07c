/* Random and recorded graphs: what a plan promises holds where it is run on the mock; every run
   ends with the bytes of one that moves nothing, whatever the plan, the limit and the jitter. */
#include "graphs.h"

#include <math.h>

#define SEEDS part_of(150)

/* ---- Planners -------------------------------------------------------------------------------- */

static gmlake_offload_plan *plan_of(const gmlake_offload_graph *graph,
                                    const gmlake_offload_planner_desc *desc) {
  gmlake_offload_planner *planner;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_plan *plan, *again;
  gmlake_offload_plan_info info;
  uint32_t job;
  memset(&job_desc, 0, sizeof job_desc);
  job_desc.graph = graph;
  assert_ok(gmlake_offload_planner_create(desc, &planner));
  assert_ok(gmlake_offload_add_job(planner, &job_desc, &job));
  assert_ok(gmlake_offload_replan(planner));
  assert_ok(gmlake_offload_take_plan(planner, job, &plan));
  gmlake_offload_planner_destroy(planner);
  info = plan_info(plan); /* is what plans by hand may be */
  assert_ok(gmlake_offload_plan_create(graph, info.events, info.event_count, &counted, &again));
  gmlake_offload_plan_destroy(again);
  return plan;
}

static gmlake_offload_planner_desc planner_desc(unsigned flags, double overhead_max) {
  gmlake_offload_planner_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.flags = flags;
  desc.overhead_max = overhead_max;
  desc.tensor_bytes_min = 1;
  desc.host = counted;
  return desc;
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* Once it is in step with the plan: the time of an iteration, on the mock. The peak is that of all
   iterations. */
static double settled_ns(const gmlake_offload_graph *graph, const gmlake_offload_plan *plan,
                         size_t limit_bytes, size_t *out_peak_bytes) {
  machine m = new_machine(limit_bytes, 1 << 16, 0);
  gmlake_offload_run_stats stats[2];
  uint32_t id, i;
  assert_ok(gmlake_offload_run_add_job(m.run, graph, NULL, &id));
  assert_ok(gmlake_offload_run_set_plan(m.run, id, plan));
  for (i = 0; i < 2; i++) {
    assert_ok(gmlake_offload_run_iterations(m.run, 2));
    stats[i] = stats_of(&m);
  }
  assert_int_equal(census_of(m.mock).device_bytes_peak, stats[1].device_bytes_peak);
  (void)end_machine(&m);
  *out_peak_bytes = stats[1].device_bytes_peak;
  return (double)(stats[1].time_ns - stats[0].time_ns) / 2;
}

CASE(planned_runs_give_the_same_bytes) {
  unsigned seed;
  for (seed = 0; seed < SEEDS; seed++) {
    const unsigned jobs = 1 + seed % 3;
    play_text(
        "{divisor:65536 min:1b overhead:%s%s} random:%u,%u %s plan {jobs:%u} run:4 {jitter:.4} "
        "run:4 {limit:plan_peak*%u} run:4 {limit:op_most} run:4 {unplanned:1} run:4 "
        "{unplanned:0 ahead:%u} run:4 {device:op_most limit:0} run:4 "
        "{device:0 limit:plan_peak*%u} run:4",
        seed % 2 ? ".3" : "0", seed % 3 ? "" : " paper", 1000 + seed, 5 + seed % 90,
        seed % 3 ? "" : "{target:op_most}", jobs, jobs, 1 + seed % 4, jobs);
  }
}

/* Without jitter a plan of one job keeps to its peak and takes the time that it says. Once it is in
   step it moves nothing on demand, but where an operator waits for a swap in, which then may come
   at once. A plan that moves nothing adds no time. In paper mode the peak counts what comes back
   from the copy's end on, so the run has no limit. */
CASE(plans_hold_without_jitter) {
  static const char *const flags[] = {"", "overhead:.3 "};
  unsigned seed;
  for (seed = 0; seed < SEEDS; seed++) {
    play_text(
        "{divisor:65536 min:1b %s} random:%u,%u plan added<=events*1e18 {limit:plan_peak} run:8 "
        "note run:8 +on_demand_outs=0 +on_demand_ins<=added*100 +time<=8.004*plan_time+1000",
        flags[seed % 2], 2000 + seed, 5 + seed % 90);
    play_text(
        "{divisor:65536 min:1b paper} random:%u,%u plan plan_peak>=op_most run:8 note run:8 "
        "+on_demand_ins=0 +time<=8.004*plan_time+1000",
        3000 + seed, 5 + seed % 90);
  }
}

/* Any events at all. */
CASE(nonsense_gives_the_same_bytes) {
  static const char *const actions[] = {"out", "in", "drop"};
  unsigned seed;
  for (seed = 0; seed < SEEDS; seed++) {
    gmlake_offload_graph *graph = random_graph(3000 + seed, 5 + seed % 60, 0);
    const gmlake_offload_graph_info info = info_of(graph);
    char events[3200];
    int at = 0;
    unsigned i, count = random_below(65);
    events[0] = '\0';
    for (i = 0; i < count; i++) {
      const char *action = actions[random_below(3)];
      unsigned tensor_id = random_below((uint32_t)info.tensor_count);
      unsigned op_id = random_below((uint32_t)info.op_count);
      unsigned trigger = random_below(2) ? op_id : random_below((uint32_t)info.op_count);
      unsigned delay = random_below(3) ? random_below(2000) : 0;
      char text[16];
      (void)snprintf(text, sizeof text, "%u", trigger);
      at += snprintf(events + at, sizeof events - (size_t)at, "%s:t%u,%s,%u,%u ", action, tensor_id,
                     random_below(9) ? text : "none", op_id, delay);
    }
    gmlake_offload_graph_destroy(graph);
    play_text(
        "{divisor:65536} random:%u,%u %s by-hand {jobs:%u} run:4 "
        "{jitter:.5 ahead:%u limit:op_most+%u*1048576} run:4",
        3000 + seed, 5 + seed % 60, events, 1 + seed % 2, seed % 5, random_below(20));
  }
}

CASE(more_allowed_is_never_worse) {
  static const double allowed[] = {0,   .004, .01, .013, .02, .034, .05, .07, .1,
                                   .15, .2,   .25, .4,   .5,  .7,   1,   1.7};
  size_t seed, i, better = 0;
  for (seed = 1; seed <= part_of(25); seed++) {
    size_t least = SIZE_MAX;
    for (i = 0; i < sizeof allowed / sizeof *allowed; i++) {
      play_text("{overhead:%g tries:12 min:1b} random:%zu,60 plan", allowed[i], seed);
      assert_true(g.job.planned_bytes <= least);
      better += g.job.planned_bytes < least;
      least = g.job.planned_bytes;
    }
  }
  assert_true(better > 60 / test_part());
}

/* ---- Recorded graphs ------------------------------------------------------------------------- */

CASE(recorded_graphs) {
  static const struct recorded {
    const char *name, *overhead, *peak; /* of the graph's, at most */
  } all[] = {{"vgg16-b64", ".0971", ".7759"},    {"vgg16-b2", "0", ".98"},
             {"resnet50-b64", ".05", ".7"},      {"densenet121-b64", ".05", ".75"},
             {"llama-7b-prefill-4k", "0", ".7"}, {"llama-7b-lora-b8-1k", ".05", ".4"}};
  size_t i;
  for (i = 0; i < 2 * sizeof all / sizeof *all; i++)
    play_text(
        "{divisor:16777216 overhead:%s} recorded:%s,%zu plan plan_peak<%s*peak "
        "{limit:plan_peak} run:2",
        all[i / 2].overhead, all[i / 2].name, i % 2, all[i / 2].peak);
}

/* In the memory that the plan says it takes the time that the plan says, also where operators wait
   for memory that others could take. */
CASE(waits_hold_in_the_planned_memory) {
  play_text(
      "{divisor:16777216 overhead:(.05|.1|.3|.5)} recorded:vgg16-b64,1 plan "
      "{limit:plan_peak} run:2 note run:2 +time<=2.002*plan_time");
}

/* ---- Parts of the planner, against what finds the same by looking at everything -------------- */

/* Whether some gap at the peak could be swapped, by trying all of them. */
static int peak_can_be_lowered(gmlo_cyclic *c, int64_t *out_bytes) {
  size_t slot = gmlo_profile_peak(&c->profile, out_bytes), i;
  for (i = 0; i < c->part_count; i++) {
    const gmlo_part *part = &c->parts[i];
    gmlo_gap placed = c->gaps[part->use];
    gmlo_candidate k;
    if (slot < part->first || slot >= part->end || placed.state != GMLO_KEPT) continue;
    (void)gmlo_candidate_of(c, part, slot, &k);
    if (gmlo_swap_place(c, &k, &placed) && gmlo_swap_helps(c, &k, &placed)) return 1;
  }
  return 0;
}

/* Makes the parts of a circle's gaps. */
static int make_parts(gmlo_cyclic *c, const gmlake_offload_planner *planner, uint32_t job,
                      gmlo_preference order) {
  if (!gmlo_cyclic_begin(c, planner, job, 1)) return 0;
  c->mode.order = order;
  return gmlo_parts_make(c);
}

/* Swapping ends where no candidate of the peak can be swapped, also behind waits and behind swaps
   that were taken back. */
CASE(no_candidate_is_missed) {
  uint64_t seed;
  size_t swapped = 0;
  int64_t bytes;
  for (seed = 1; seed <= 150; seed += test_part()) {
    gmlake_offload_graph *graph = random_graph(seed, 20 + seed % 100, 0);
    gmlake_offload_planner_desc desc;
    gmlake_offload_job_desc job;
    gmlake_offload_planner *planner;
    gmlo_cyclic c;
    uint32_t id;
    size_t i, slot;
    memset(&desc, 0, sizeof desc);
    memset(&job, 0, sizeof job);
    desc.tensor_bytes_min = 1;
    desc.host = counted;
    job.graph = graph;
    assert_ok(gmlake_offload_planner_create(&desc, &planner));
    assert_ok(gmlake_offload_add_job(planner, &job, &id));
    assert_true(make_parts(&c, planner, id, (gmlo_preference)(1 + seed % 3)));
    for (i = 0; i < 6; i++) {
      assert_int_equal(gmlo_swap_down(&c, 0), 1);
      assert_false(peak_can_be_lowered(&c, &bytes));
      slot = gmlo_profile_peak(&c.profile, &bytes);
      if (i % 2) (void)gmlo_swap_prune(&c, bytes);
      if (i % 2 == 0) gmlo_stall_before(&c, slot, 100 * US);
    }
    for (i = 0; i < c.use_count; i++) swapped += c.gaps[i].state == GMLO_SWAPPED;
    gmlo_cyclic_leave(&c);
    gmlake_offload_planner_destroy(planner);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(swapped > 1000 / test_part());
  assert_int_equal(host_bytes, 0);
}

/* x cannot be copied out before y is made, but it can be dropped there as soon as its gap beside v
   has brought a copy to the host. That is done later, since at first the peak is at y. */
CASE(what_became_clean_is_tried_again) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t z = tensor(graph, 50 * MIB, GMLAKE_OFFLOAD_PERSISTENT), x = made(graph, 100 * MIB);
  uint32_t v = made(graph, 290 * MIB), y = made(graph, 300 * MIB), id;
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job;
  gmlake_offload_planner *planner;
  int64_t bytes;
  gmlo_cyclic c;
  op(graph, MS, NONE, NONE, x);
  op(graph, 3 * MS, NONE, NONE, NONE);
  op(graph, 10 * MS, NONE, NONE, v);
  op(graph, 10 * MS, v, NONE, NONE);
  op(graph, 6 * MS, NONE, NONE, NONE);
  op(graph, MS, x, z, NONE);
  op(graph, 2 * MS, NONE, NONE, y);
  op(graph, 4 * MS, NONE, NONE, NONE);
  op(graph, MS, x, z, NONE);
  assert_ok(gmlake_offload_graph_seal(graph));
  memset(&desc, 0, sizeof desc);
  memset(&job, 0, sizeof job);
  desc.host = counted;
  job.graph = graph;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  assert_ok(gmlake_offload_add_job(planner, &job, &id));
  assert_true(make_parts(&c, planner, id, GMLO_LARGEST));
  (void)gmlo_profile_peak(&c.profile, &bytes);
  assert_int_equal(bytes, 450 * MIB);
  assert_int_equal(gmlo_swap_down(&c, 0), 1);
  (void)gmlo_profile_peak(&c.profile, &bytes);
  assert_int_equal(bytes, 300 * MIB);
  gmlo_cyclic_leave(&c);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* A planner of so many jobs that execute the graph. */
static gmlake_offload_planner *planner_of(const gmlake_offload_graph *graph, uint32_t jobs,
                                          unsigned flags, double overhead) {
  gmlake_offload_planner_desc desc = planner_desc(flags, overhead);
  gmlake_offload_job_desc job;
  gmlake_offload_planner *planner;
  uint32_t j, id;
  memset(&job, 0, sizeof job);
  job.graph = graph;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  for (j = 0; j < jobs; j++) assert_ok(gmlake_offload_add_job(planner, &job, &id));
  assert_ok(gmlake_offload_replan(planner));
  return planner;
}

/* [H1] A simulation of one job takes the time and the memory that the mock takes. */
CASE(simulations_are_as_runs) {
  uint64_t seed;
  size_t moved = 0, peak;
  for (seed = 0; seed < SEEDS; seed++) {
    gmlake_offload_graph *graph = random_graph(5000 + seed, 5 + (size_t)seed % 90, 0);
    gmlake_offload_planner *planner =
        planner_of(graph, 1, seed % 2 ? GMLAKE_OFFLOAD_PAPER : 0, seed % 4 ? .3 : 0);
    gmlake_offload_plan *plan;
    double ns = 0;
    assert_ok(gmlake_offload_take_plan(planner, 0, &plan));
    assert_ok(gmlo_simulate_plan(planner, &planner->jobs[0], plan, &ns));
    assert_true(fabs(settled_ns(graph, plan, plan_info(plan).peak_bytes, &peak) - ns) <= 100);
    moved += plan_info(plan).event_count != 0;
    gmlake_offload_plan_destroy(plan);
    gmlake_offload_planner_destroy(planner);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(moved > SEEDS / 2);
  assert_int_equal(host_bytes, 0);
}

/* Where the plan in paper mode adds no more time than is allowed, on the mock, the default takes no
   more memory there. */
CASE(paper_mode_is_never_better) {
  uint64_t seed;
  size_t compared = 0;
  for (seed = 541; seed < 541 + SEEDS; seed++) {
    gmlake_offload_graph *graph = random_graph(seed, 20 + (size_t)seed % 60, 0);
    double overhead = seed % 3 == 2 ? .05 : 0, base_ns = (double)info_of(graph).time_ns;
    gmlake_offload_planner_desc desc = planner_desc(0, overhead),
                                paper = planner_desc(GMLAKE_OFFLOAD_PAPER, 0);
    gmlake_offload_plan *rival = plan_of(graph, &paper), *plan = plan_of(graph, &desc);
    size_t peak;
    if (settled_ns(graph, rival, 0, &peak) <= base_ns * (1 + overhead)) {
      compared++;
      assert_true(plan_info(plan).peak_bytes <= peak);
    }
    gmlake_offload_plan_destroy(rival);
    gmlake_offload_plan_destroy(plan);
    gmlake_offload_graph_destroy(graph);
  }
  assert_true(compared > 50 / test_part());
  assert_int_equal(host_bytes, 0);
}

/* A chain in which each operator reads a parameter of its own: as many candidates as operators. */
static gmlake_offload_graph *chain(size_t count) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t x = tensor(graph, MIB, GMLAKE_OFFLOAD_INPUT);
  for (; count != 0; count--) {
    uint32_t w = tensor(graph, 4 * MIB, GMLAKE_OFFLOAD_PERSISTENT), y = made(graph, MIB);
    op(graph, 20 * US, x, w, y);
    x = y;
  }
  assert_ok(gmlake_offload_graph_seal(graph));
  return graph;
}

/* [R2] A try ends soon after its steps are spent, and is a plan. */
CASE(work_is_bounded) {
  gmlake_offload_graph *graph = chain(3000);
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job;
  gmlake_offload_planner *planner;
  gmlo_search search;
  uint64_t work, spent[3];
  size_t peaks[3], i;
  uint32_t id;
  memset(&desc, 0, sizeof desc);
  memset(&job, 0, sizeof job);
  desc.host = counted;
  job.graph = graph;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  assert_ok(gmlake_offload_add_job(planner, &job, &id));
  for (i = 0, work = 200000; i < 3; i++, work *= 4) {
    memset(&search, 0, sizeof search);
    search.planner = planner;
    search.share = 1;
    search.overhead = .05;
    search.work_left = work;
    assert_true(gmlo_search_try(&search, 0, 0, 0));
    spent[i] = search.try_work;
    peaks[i] = search.best->info.peak_bytes;
    gmlake_offload_plan_destroy(search.best);
    assert_true(spent[i] <= work + work / 4);
  }
  assert_true(spent[0] < spent[1]);
  assert_true(peaks[0] > peaks[1] && peaks[1] >= peaks[2]);
  assert_true(peaks[0] < info_of(graph).peak_bytes);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

int main(void) { return run_cases("offload_random"); }
