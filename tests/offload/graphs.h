/* The stage of graphs: tensors and operators become a graph; a planner or the line itself makes a
   plan of it, or it is compiled to a memgraph; a run executes that on the mock. Each run ends with
   the bytes of one that moves nothing. Each memgraph is right, and runs in any order with those
   bytes. */
#if !defined(OFFLOAD_GRAPHS_H)
#define OFFLOAD_GRAPHS_H

#include "memgraphs.h"
#include "graph.h"
#include "player.h"
#include "watch.h"

#define EVENTS 64
#define ACTS 64

typedef struct act { /* of a run: a word, and its number */
  char verb;
  uint32_t number, tensor;
} act;

typedef struct machine {
  gmlake_offload_backend *mock;
  gmlake_offload_run *run;
  const gmlake_offload_plan *plan; /* that jobs get, or NULL */
  int is_memgraph;                 /* it has one job, a memgraph */
} machine;

static struct graph_world {
  gmlake_offload_graph *graph;
  gmlake_offload_graph_info info;
  uint32_t ids[NAMES]; /* of tensors; NONE: not declared yet */
  int is_random;       /* tensors are t0, t1, ... */
  uint64_t seed;       /* [random] */
  gmlake_offload_planner *planner;
  gmlake_offload_job_info job;
  gmlake_offload_plan *plan;
  gmlake_offload_plan_info planned;
  size_t next_event, next_node; /* that the line has not named yet */
  gmlake_offload_event events[EVENTS];
  size_t event_count;
  machine machine;
  act acts[ACTS];
  size_t act_count;
  int has_failed; /* the run */
  int may_fail, host_is_scarce;
  uint64_t fail_at; /* of the run's mock */
  gmlake_offload_run_stats stats;
  gmlake_offload_mock_census census;
  gmlake_offload_memgraph *memgraph;
  gmlake_offload_memgraph_info compiled;
} g;

#if defined(GRAPHS_DEVICE)
#include GRAPHS_DEVICE /* in the mock's place */
#else
#define IS_MOCK 1
static uint64_t digest_of(const machine *m, const gmlake_offload_mock_census *census) {
  (void)m;
  return census->digest;
}
static void be_odd(int how) { (void)how; }
#endif

static uint32_t id_of(const operand *of) {
  const uint32_t id = g.ids[of->name];
  if (g.is_random) return player.program->names[of->name] % 1000 - 1u;
  return id == NONE ? 77777 : id;
}

/* A call that has to succeed. Where one was made to fail it may say so, and the line ends. */
static void must(gmlake_offload_result result, const char *what) {
  if (result == GMLAKE_OFFLOAD_OK) return;
  if (!g.may_fail || (result != GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY &&
                      result != GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY &&
                      result != GMLAKE_OFFLOAD_ERROR_BACKEND))
    broken("%s: %s", gmlake_offload_result_name(result), what);
  g.has_failed = 1;
  longjmp(verdict.out, GIVE_UP);
}

#define MUST(call) must(call, #call)

/* Building a graph: what failed for want of host memory can be tried again. */
#define TRY(result, call) \
  do {                    \
    (result) = (call);    \
  } while (g.may_fail && (result) == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY)

/* ---- Figures --------------------------------------------------------------------------------- */

enum { OF_GRAPH, OF_JOB, OF_PLAN, OF_RUN, OF_CENSUS, OF_WATCH, OF_MEMGRAPH };

#define GRAPH_FIGURE(name, field) \
  { name, OF_GRAPH, offsetof(gmlake_offload_graph_info, field) }
#define PLAN_FIGURE(name, field) \
  { name, OF_PLAN, offsetof(gmlake_offload_plan_info, field) }
#define RUN_FIGURE(name, field) \
  { name, OF_RUN, offsetof(gmlake_offload_run_stats, field) }
#define CENSUS_FIGURE(name, field) \
  { name, OF_CENSUS, offsetof(gmlake_offload_mock_census, field) }
#define NODE_FIGURE(name, field) \
  { name, OF_MEMGRAPH, offsetof(gmlake_offload_memgraph_info, field) }

static const figure graph_figures[] = {
    GRAPH_FIGURE("peak", peak_bytes),
    GRAPH_FIGURE("op_most", op_bytes_max),
    GRAPH_FIGURE("persistent", persistent_bytes),
    GRAPH_FIGURE("tensor_bytes", tensor_bytes),
    GRAPH_FIGURE("graph_time", time_ns),
    GRAPH_FIGURE("accesses", access_count),
    GRAPH_FIGURE("dependencies", dependency_count),
    GRAPH_FIGURE("ops", op_count),
    {"unplanned", OF_JOB, offsetof(gmlake_offload_job_info, unplanned_bytes)},
    {"planned", OF_JOB, offsetof(gmlake_offload_job_info, planned_bytes)},
    PLAN_FIGURE("events", event_count),
    PLAN_FIGURE("plan_peak", peak_bytes),
    PLAN_FIGURE("plan_out", out_bytes),
    PLAN_FIGURE("added", added_ns),
    PLAN_FIGURE("plan_time", time_ns),
    RUN_FIGURE("time", time_ns),
    RUN_FIGURE("stall", stall_ns),
    RUN_FIGURE("device", device_bytes),
    RUN_FIGURE("device_peak", device_bytes_peak),
    RUN_FIGURE("outs", out_count),
    RUN_FIGURE("ins", in_count),
    RUN_FIGURE("on_demand_outs", on_demand_out_count),
    RUN_FIGURE("on_demand_ins", on_demand_in_count),
    RUN_FIGURE("remade", recompute_count),
    RUN_FIGURE("voids", void_count),
    RUN_FIGURE("iterations", iteration_count),
    CENSUS_FIGURE("reruns", rerun_count),
    CENSUS_FIGURE("out_busy", out_busy_ns),
    CENSUS_FIGURE("in_busy", in_busy_ns),
    {"ahead", OF_WATCH, offsetof(struct watch, most_under_way)}, /* operators at once */
    NODE_FIGURE("nodes", node_count),
    NODE_FIGURE("edges", edge_count),
    NODE_FIGURE("memory_edges", memory_edge_count),
    NODE_FIGURE("offloads", offload_count),
    NODE_FIGURE("reloads", reload_count),
    NODE_FIGURE("offload_bytes", offload_bytes),
    NODE_FIGURE("reload_bytes", reload_bytes),
    NODE_FIGURE("arena", device_bytes),
    NODE_FIGURE("homes", home_bytes),
    NODE_FIGURE("host", host_bytes),
    NODE_FIGURE("simulated", time_ns),
};
#define GRAPH_FIGURES (sizeof(graph_figures) / sizeof(graph_figures[0]))

static void seal_graph(const operation *o) {
  gmlake_offload_result result;
  TRY(result, gmlake_offload_graph_seal(g.graph));
  if (o->verb != 's') JUDGE_OK(result);
  if (o->verb == 's' && !ends_as_said(o, result)) return;
  JUDGE_OK(gmlake_offload_graph_get_info(g.graph, &g.info));
}

static const void *graph_figure_of(int from) {
  static const operation seal;
  if (from == OF_GRAPH && !g.info.op_count) seal_graph(&seal);
  if (from == OF_GRAPH) return &g.info;
  if (from == OF_JOB) return &g.job;
  if (from == OF_PLAN) return &g.planned;
  if (from == OF_WATCH) return &watch;
  if (from == OF_MEMGRAPH) return &g.compiled;
  if (!g.machine.mock) return NULL;
  g.stats.struct_bytes = 0;
  JUDGE_OK(gmlake_offload_run_get_stats(g.machine.run, &g.stats));
  gmlake_offload_mock_get_census(g.machine.mock, &g.census);
  if (from == OF_CENSUS) return &g.census;
  return &g.stats;
}

/* ---- Graphs ---------------------------------------------------------------------------------- */

static gmlake_offload_result declare(const operand *of) {
  static const char kinds[] = "pi?o";
  gmlake_offload_tensor_desc desc;
  gmlake_offload_result result;
  memset(&desc, 0, sizeof desc);
  desc.bytes = of->bytes;
  desc.device = (uint32_t)of->device;
  desc.kind = GMLAKE_OFFLOAD_INTERMEDIATE;
  if (of->kind) desc.kind = (gmlake_offload_kind)(strchr(kinds, of->kind) - kinds);
  TRY(result, gmlake_offload_add_tensor(g.graph, &desc, &g.ids[of->name]));
  return result;
}

static void add_operator(const operation *o) {
  gmlake_offload_op_desc desc;
  gmlake_offload_result result;
  uint32_t ids[OPERANDS], id;
  size_t i;
  memset(&desc, 0, sizeof desc);
  for (i = 0; i < (size_t)o->read_count + o->write_count; i++) {
    const operand *of = &o->operands[i];
    if (of->is_made && g.ids[of->name] == NONE) JUDGE_OK(declare(of));
    ids[i] = id_of(of);
  }
  desc.name = "operator";
  desc.reads = ids;
  desc.read_count = o->read_count;
  desc.writes = ids + o->read_count;
  desc.write_count = o->write_count;
  desc.time_ns = o->time_ns != UINT64_MAX ? o->time_ns : 1000;
  TRY(result, gmlake_offload_add_op(g.graph, &desc, &id));
  (void)ends_as_said(o, result);
}

static void take_graph(gmlake_offload_graph *graph) {
  gmlake_offload_graph_destroy(g.graph);
  g.graph = graph;
  JUDGE_OK(gmlake_offload_graph_get_info(g.graph, &g.info));
}

/* One that bench/graphs has. */
static void read_graph(const operation *o) {
  const size_t length = strcspn(o->text, ",");
  char path[200], error[300];
  graph file;
  (void)snprintf(path, sizeof path, "bench/graphs/%.*s.gmgraph.gz", (int)length, o->text);
  if (!graph_load(path, &file, error, sizeof error)) broken("%s", error);
  take_graph(graph_make(&file, strtoul(o->text + length + 1, NULL, 10), error, sizeof error));
  graph_free(&file);
}

/* The order of the operators begins so. */
static void compare_order(const operation *o) {
  size_t i;
  for (i = 0; i < o->arg_count; i++)
    if (g.info.op_order[i] != (uint32_t)o->args[i]) broken("operator %u", g.info.op_order[i]);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* With the limits of the options, or without any. */
static void open_mock(machine *m, int is_limited, size_t divisor) {
  gmlake_offload_mock_desc desc;
  memset(&desc, 0, sizeof desc);
  desc.divisor = option_is_set(OPT_DIVISOR) ? option_bytes(OPT_DIVISOR) : divisor;
  desc.copy_ns = 10000;
  desc.both_bytes_per_s = player.options[OPT_BOTH];
  desc.host = counted;
  if (is_limited) {
    desc.device_bytes = option_bytes(OPT_DEVICE);
    desc.jitter = player.options[OPT_JITTER];
  }
  MUST(gmlake_offload_mock_create(&desc, &m->mock));
  if (is_limited) gmlake_offload_mock_fail_at(m->mock, g.fail_at);
}

/* memgraph: the run's only job; or NULL. The first calls of the backend are for its arenas. */
static void open_machine(machine *m, const gmlake_offload_memgraph *memgraph, int is_limited) {
  static const unsigned orders[] = {0, GMLAKE_OFFLOAD_FIXED_OPS, GMLAKE_OFFLOAD_FIXED_ORDER,
                                    GMLAKE_OFFLOAD_SIMULATED_ORDER};
  gmlake_offload_run_desc desc;
  gmlake_offload_result result;
  uint32_t id;
  memset(&desc, 0, sizeof desc);
  open_mock(m, is_limited, memgraph ? 1 : 1 << 14);
  desc.host = counted;
  desc.backend = is_limited ? watched(m->mock) : m->mock;
  if (is_limited) {
    desc.limit_bytes = option_bytes(OPT_LIMIT);
    desc.flags = (option_is_set(OPT_LRU) ? GMLAKE_OFFLOAD_LRU : 0) |
                 orders[(size_t)player.options[OPT_ORDER] % 4];
    desc.launch_ahead_max = (uint32_t)player.options[OPT_AHEAD];
    desc.stream_count = (uint32_t)player.options[OPT_STREAMS];
    if (desc.launch_ahead_max) desc.stream_count = 1;
  }
  MUST(gmlake_offload_run_create(&desc, &m->run));
  m->is_memgraph = memgraph != NULL;
  if (!memgraph) return;
  result = gmlake_offload_run_add_memgraph(m->run, memgraph, &id);
  if (IS_MOCK && is_limited && g.fail_at == 1)
    JUDGE(result == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
  if (IS_MOCK && is_limited && g.fail_at == 1 + g.info.device_count)
    JUDGE(result == GMLAKE_OFFLOAD_ERROR_OUT_OF_HOST_MEMORY);
  MUST(result);
}

static gmlake_offload_result write_input(const machine *m, const act *a) {
  gmlake_offload_tensor_desc desc;
  gmlake_offload_result result;
  void *device, *host;
  JUDGE_OK(gmlake_offload_get_tensor(g.graph, a->tensor, &desc));
  result = gmlake_offload_run_locate(m->run, 0, a->tensor, &device, &host);
  if (result != GMLAKE_OFFLOAD_OK) return result;
  JUDGE(device != NULL || host != NULL);
  if (device) memset(device, (int)a->number, desc.bytes / m->mock->divisor);
  if (host) memset(host, (int)a->number, desc.bytes / m->mock->divisor);
  return result;
}

/* A run that has failed says so again. */
static gmlake_offload_result execute(const machine *m, uint32_t iterations) {
  const gmlake_offload_result result = gmlake_offload_run_iterations(m->run, iterations);
  if (result) JUDGE(gmlake_offload_run_iterations(m->run, 0) == result);
  return result;
}

static gmlake_offload_result do_act(const machine *m, const act *a) {
  uint32_t id;
  if (a->verb == 'J') return gmlake_offload_run_add_job(m->run, g.graph, m->plan, &id);
  if (strchr("UE", a->verb)) return execute(m, a->number);
  if (a->verb == 'L') return gmlake_offload_run_remove_job(m->run, a->number);
  if (a->verb == 'T') return write_input(m, a);
  return gmlake_offload_run_set_plan(m->run, a->number, a->verb == 'K' ? m->plan : NULL);
}

/* What was written, as a digest. */
static uint64_t close_machine(machine *m) {
  gmlake_offload_mock_census census;
  uint64_t digest;
  gmlake_offload_mock_get_census(m->mock, &census);
  JUDGE(census.race_count == 0);
  digest = digest_of(m, &census);
  gmlake_offload_run_destroy(m->run);
  gmlake_offload_mock_get_census(m->mock, &census);
  JUDGE(census.host_bytes == 0);
  JUDGE(census.device_bytes == 0);
  gmlake_offload_mock_destroy(m->mock);
  memset(m, 0, sizeof *m);
  return digest;
}

static gmlake_offload_memgraph_desc memgraph_desc(size_t bytes) {
  gmlake_offload_memgraph_desc desc = compile_desc(g.graph, bytes);
  if (option_is_set(OPT_ALIGN)) desc.align_bytes = option_bytes(OPT_ALIGN);
  if (option_is_set(OPT_MIN)) desc.tensor_bytes_min = option_bytes(OPT_MIN);
  if (option_is_set(OPT_PAPER)) desc.flags = GMLAKE_OFFLOAD_PAPER;
  if (option_is_set(OPT_ALLOC)) desc.alloc_ahead_ns = (uint64_t)(player.options[OPT_ALLOC] - 1);
  if (option_is_set(OPT_RELOAD)) desc.reload_ahead_ns = (uint64_t)(player.options[OPT_RELOAD] - 1);
  desc.copy_ns = (uint64_t)player.options[OPT_COPY];
  return desc;
}

/* The same with no plan and no limit. One job then takes what its graph says. */
static uint64_t digest_alone(int is_memgraph) {
  gmlake_offload_memgraph_desc desc = memgraph_desc(0);
  gmlake_offload_memgraph *all = NULL;
  gmlake_offload_run_stats stats;
  uint64_t digest;
  machine m;
  size_t i, jobs = 0;
  memset(&m, 0, sizeof m);
  g.fail_at = 0; /* that was for the other one */
  if (is_memgraph) JUDGE_OK(gmlake_offload_memgraph_create(&desc, &all));
  open_machine(&m, all, 0);
  for (i = 0; i < g.act_count; i++) {
    JUDGE_OK(do_act(&m, &g.acts[i]));
    jobs += g.acts[i].verb == 'J';
  }
  stats.struct_bytes = 0;
  JUDGE_OK(gmlake_offload_run_get_stats(m.run, &stats));
  if (jobs == 1 && stats.iteration_count) JUDGE(stats.device_bytes_peak == g.info.peak_bytes);
  if (jobs == 1 && IS_MOCK) JUDGE(stats.stall_ns == 0);
  digest = close_machine(&m);
  gmlake_offload_memgraph_destroy(all);
  return digest;
}

static void note_fault(void) {
  gmlake_offload_mock_census census;
  if (g.host_is_scarce) player.reached = host_fail_in == 0;
  if (!g.machine.mock || g.fail_at == 0) return;
  gmlake_offload_mock_get_census(g.machine.mock, &census);
  player.reached = census.call_count >= g.fail_at;
}

static void end_run(void) {
  const int is_memgraph = g.machine.is_memgraph;
  uint64_t digest;
  note_fault();
  if (!g.machine.mock) return;
  gmlake_offload_mock_fail_at(g.machine.mock, 0);
  digest = close_machine(&g.machine);
  host_fail_in = g.host_is_scarce = 0;
  if (!g.has_failed) JUDGE(digest == digest_alone(is_memgraph));
  g.act_count = 0;
  g.has_failed = 0;
}

static void do_fault(const operation *o) {
  g.may_fail |= o->args[0] != 0;
  if (o->verb == 'F') g.fail_at = (uint64_t)o->args[0];
  if (o->verb == 'H') host_fail_in = (long)o->args[0];
  if (o->verb == 'H') g.host_is_scarce = o->args[0] != 0;
}

static void act_on_run(const operation *o) {
  act *a;
  (void)graph_figure_of(OF_GRAPH);
  if (!g.machine.mock) {
    open_machine(&g.machine, o->verb == 'E' ? g.memgraph : NULL, 1);
    g.machine.plan = option_is_set(OPT_UNPLANNED) ? NULL : g.plan;
  }
  if (o->verb == 'K') g.machine.plan = g.plan;
  if (o->verb == 'U' && g.act_count == 0) {
    operation job;
    size_t i;
    memset(&job, 0, sizeof job);
    job.verb = 'J';
    for (i = 0; i < (option_is_set(OPT_JOBS) ? (size_t)player.options[OPT_JOBS] : 1); i++)
      act_on_run(&job);
  }
  JUDGE(g.act_count < ACTS);
  a = &g.acts[g.act_count++];
  a->verb = o->verb;
  a->number = (uint32_t)o->args[0];
  a->tensor = o->read_count ? id_of(&o->operands[0]) : NONE;
  if (g.may_fail) {
    MUST(do_act(&g.machine, a));
  } else if (!ends_as_said(o, do_act(&g.machine, a))) {
    g.act_count--;
    g.has_failed |= o->verb == 'U' || o->verb == 'E';
  }
}

/* ---- Plans ----------------------------------------------------------------------------------- */

/* The present plan is this one. */
static void take_plan(gmlake_offload_plan *plan) {
  end_run();
  gmlake_offload_plan_destroy(g.plan);
  g.plan = plan;
  JUDGE_OK(gmlake_offload_plan_get_info(plan, &g.planned));
  g.next_event = 0;
}

static void make_plan(void) {
  gmlake_offload_planner_desc desc;
  gmlake_offload_job_desc job_desc;
  gmlake_offload_plan *plan;
  uint32_t job, count = option_is_set(OPT_JOBS) ? (uint32_t)player.options[OPT_JOBS] : 1;
  memset(&desc, 0, sizeof desc);
  memset(&job_desc, 0, sizeof job_desc);
  desc.flags = option_is_set(OPT_PAPER) ? GMLAKE_OFFLOAD_PAPER : 0;
  desc.target_bytes = option_bytes(OPT_TARGET);
  desc.out_bytes_per_s = desc.in_bytes_per_s = player.options[OPT_LINK];
  desc.both_bytes_per_s = player.options[OPT_BOTH];
  desc.overhead_max = player.options[OPT_OVERHEAD];
  desc.tensor_bytes_min = option_bytes(OPT_MIN);
  desc.try_count_max = option_bytes(OPT_TRIES);
  desc.host = counted;
  job_desc.graph = g.graph;
  job_desc.swap_ratio_max = player.options[OPT_RATIO];
  MUST(gmlake_offload_planner_create(&desc, &g.planner));
  while (count-- > 0) MUST(gmlake_offload_add_job(g.planner, &job_desc, &job));
  JUDGE(gmlake_offload_take_plan(g.planner, 0, &plan) == GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID);
  MUST(gmlake_offload_replan(g.planner));
  g.job.struct_bytes = 0;
  MUST(gmlake_offload_get_job_info(g.planner, 0, &g.job));
  MUST(gmlake_offload_take_plan(g.planner, 0, &plan));
  gmlake_offload_planner_destroy(g.planner);
  g.planner = NULL;
  take_plan(plan);
}

/* Of the line's own plan, or the next one of the present plan. */
static void do_event(const operation *o) {
  static const char verbs[] = "oixy";
  gmlake_offload_event event;
  const gmlake_offload_event *is;
  memset(&event, 0, sizeof event);
  event.action = (gmlake_offload_action)(strchr(verbs, o->verb) - verbs);
  event.tensor = id_of(&o->operands[0]);
  event.trigger = (uint32_t)o->args[0];
  event.op = (uint32_t)o->args[1];
  event.delay_ns = (uint64_t)o->args[2];
  if (!o->is_expected) {
    JUDGE(g.event_count < EVENTS);
    g.events[g.event_count++] = event;
    return;
  }
  if (g.next_event == g.planned.event_count) broken("there is no further event");
  is = &g.planned.events[g.next_event++];
  if (is->action != event.action || is->tensor != event.tensor || is->trigger != event.trigger ||
      is->op != event.op || is->delay_ns != event.delay_ns)
    broken("it is %d of tensor %u at %u, of %u, %lluns later", (int)is->action, is->tensor,
           is->trigger, is->op, (unsigned long long)is->delay_ns);
}

static void plan_by_hand(const operation *o) {
  gmlake_offload_plan *plan;
  const gmlake_offload_result result =
      gmlake_offload_plan_create(g.graph, g.events, g.event_count, &counted, &plan);
  g.event_count = 0;
  if (ends_as_said(o, result)) take_plan(plan);
}

/* ---- Memgraphs ------------------------------------------------------------------------------- */

/* What lives on has the same places when an iteration begins and ends, an output none at first. */
static void look_at_places(void) {
  size_t t, homes = 0;
  for (t = 0; t < g.info.tensor_count; t++) {
    gmlake_offload_tensor_desc desc;
    gmlake_offload_place begin, end;
    JUDGE_OK(gmlake_offload_get_tensor(g.graph, (uint32_t)t, &desc));
    JUDGE_OK(gmlake_offload_memgraph_get_place(g.memgraph, (uint32_t)t, &begin, &end));
    if (desc.kind == GMLAKE_OFFLOAD_OUTPUT) {
      JUDGE(begin.device_offset == GMLAKE_OFFLOAD_NOWHERE);
      JUDGE(begin.host_offset == GMLAKE_OFFLOAD_NOWHERE);
      JUDGE(end.device_offset != GMLAKE_OFFLOAD_NOWHERE ||
            end.host_offset != GMLAKE_OFFLOAD_NOWHERE);
    }
    if (desc.kind > GMLAKE_OFFLOAD_INPUT) continue;
    JUDGE(begin.device_offset == end.device_offset && begin.host_offset == end.host_offset);
    if (begin.device_offset != GMLAKE_OFFLOAD_NOWHERE) homes += desc.bytes;
  }
  JUDGE(homes == g.compiled.home_bytes);
}

/* What devices have: what their largest operators take, and a share of the rest. */
static void share_memory(gmlake_offload_memgraph_desc *desc, size_t *by_device) {
  size_t d, t, all = 0;
  for (t = 0; t < g.info.tensor_count; t++) all += g.graph->tensors[t].bytes;
  for (d = 0; d < g.info.device_count; d++) {
    const size_t least = least_bytes(desc, (uint32_t)d);
    by_device[d] = least;
    if (all > least) by_device[d] += (size_t)((double)(all - least) * player.options[OPT_SPARE]);
  }
  desc->bytes_by_device = by_device;
}

static void compile_graph(const operation *o) {
  gmlake_offload_memgraph_desc desc = memgraph_desc(size_arg(o, 0));
  size_t by_device[RANDOM_DEVICES];
  end_run();
  gmlake_offload_memgraph_destroy(g.memgraph);
  g.memgraph = NULL;
  g.next_node = 0;
  if (option_is_set(OPT_TIGHT)) share_memory(&desc, by_device);
  if (g.may_fail) {
    MUST(gmlake_offload_memgraph_create(&desc, &g.memgraph));
    MUST(gmlake_offload_memgraph_check(g.memgraph, NULL));
    return;
  }
  if (!ends_as_said(o, gmlake_offload_memgraph_create(&desc, &g.memgraph))) return;
  g.compiled = memgraph_info(g.memgraph);
  look_at_places();
  assert_right(g.memgraph);
  assert_runs(g.memgraph, 4, 1 + size_arg(o, 0) / 64 + g.seed);
}

/* The memgraph's next node does that, at that place, and waits for that node among others, or for
   none. */
static void compare_node(const operation *o) {
  gmlake_offload_node node;
  const int is_op = o->verb == 'n';
  const size_t first = is_op ? 1 : 0;
  size_t i;
  JUDGE_OK(gmlake_offload_memgraph_get_node(g.memgraph, (uint32_t)g.next_node++, &node));
  JUDGE(node.kind == (is_op            ? GMLAKE_OFFLOAD_NODE_OP
                      : o->verb == 'O' ? GMLAKE_OFFLOAD_NODE_OFFLOAD
                                       : GMLAKE_OFFLOAD_NODE_RELOAD));
  JUDGE((is_op ? node.op : node.tensor) == (is_op ? (uint32_t)o->args[0] : id_of(o->operands)));
  if (o->arg_count <= first) return;
  JUDGE((is_op ? node.write_offsets[0] : node.device_offset) == size_arg(o, first));
  if (o->arg_count <= first + 1) return;
  JUDGE((node.before_count == 0) == (o->args[first + 1] == ANY));
  if (node.before_count == 0) return;
  for (i = 0; i < node.before_count && node.before[i] != (uint32_t)o->args[first + 1];) i++;
  JUDGE(i < node.before_count && node.memory[i] == (o->arg_count > first + 2));
}

/* ---- The stage ------------------------------------------------------------------------------- */

static void graph_stage_begin(void) {
  size_t i;
  memset(&g, 0, sizeof g);
  be_odd(0);
  for (i = 0; i < NAMES; i++) g.ids[i] = NONE;
}

static void graph_stage_perform(const operation *o) {
  gmlake_offload_graph_desc desc;
  gmlake_offload_result result;
  if (o->verb == '{') {
    end_run();
    return;
  }
  if (strchr("|FH", o->verb)) {
    do_fault(o);
    return;
  }
  if (o->verb == 'W') {
    g.is_random = 1;
    g.seed = (uint64_t)o->args[0];
    take_graph(random_graph(g.seed, (size_t)o->args[1], (uint32_t)o->args[2]));
  }
  if (o->verb == '@') read_graph(o);
  if (!g.graph) {
    memset(&desc, 0, sizeof desc);
    desc.flags = option_is_set(OPT_UNORDERED) ? GMLAKE_OFFLOAD_UNORDERED : 0;
    desc.host = counted;
    TRY(result, gmlake_offload_graph_create(&desc, &g.graph));
    JUDGE_OK(result);
  }
  if (strchr("PBC", o->verb)) (void)graph_figure_of(OF_GRAPH);
  if (o->verb == '+') (void)ends_as_said(o, declare(&o->operands[0]));
  if (o->verb == '>') add_operator(o);
  if (o->verb == 's') seal_graph(o);
  if (o->verb == 'Z') compare_order(o);
  if (o->verb == 'P') make_plan();
  if (strchr("oixy", o->verb)) do_event(o);
  if (o->verb == 'B') plan_by_hand(o);
  if (strchr("JLKkUTE", o->verb)) act_on_run(o);
  if (o->verb == 'Q') be_odd((int)o->args[0]);
  if (o->verb == 'C') compile_graph(o);
  if (strchr("nOI", o->verb)) compare_node(o);
}

static void graph_stage_end(void) {
  end_run();
  note_fault();
  host_fail_in = 0;
  gmlake_offload_planner_destroy(g.planner);
  gmlake_offload_memgraph_destroy(g.memgraph);
  gmlake_offload_plan_destroy(g.plan);
  gmlake_offload_graph_destroy(g.graph);
}

static const stage graphs = {(size_t)1 << 20, graph_figures,     GRAPH_FIGURES,
                             graph_figure_of, graph_stage_begin, graph_stage_perform,
                             graph_stage_end};

/* The graph that a line's words make, sealed, and the memgraph that it is compiled to, or NULL; for
   the caller to destroy. */
static inline gmlake_offload_graph *memgraph_of(const char *line, size_t unit,
                                                gmlake_offload_memgraph **out_memgraph) {
  static program p;
  gmlake_offload_graph *graph;
  const char *wrong;
  size_t i;
  program_free(&p);
  p.unit = unit;
  wrong = program_read(&p, line);
  if (wrong) fail_msg("not of the language: %s", wrong);
  memset(&player, 0, sizeof player);
  player.program = &p;
  player.stage = &graphs;
  if (setjmp(verdict.out)) fail_msg("%s", verdict.rule);
  graph_stage_begin();
  for (i = 0; i < p.count; i++) perform_op(&p.ops[i]);
  (void)graph_figure_of(OF_GRAPH);
  graph = g.graph;
  *out_memgraph = g.memgraph;
  g.graph = NULL;
  g.memgraph = NULL;
  return graph;
}

static inline gmlake_offload_graph *graph_of(const char *line, size_t unit) {
  gmlake_offload_memgraph *none;
  return memgraph_of(line, unit, &none);
}

/* ---- A machine by itself, for what lines cannot say ------------------------------------------ */

static inline machine new_machine(size_t limit_bytes, size_t divisor, double both_bytes_per_s) {
  machine m = {NULL, NULL, NULL, 0};
  gmlake_offload_mock_desc mock;
  gmlake_offload_run_desc desc;
  memset(&mock, 0, sizeof mock);
  memset(&desc, 0, sizeof desc);
  mock.divisor = divisor;
  mock.copy_ns = 10000;
  mock.both_bytes_per_s = both_bytes_per_s;
  mock.host = desc.host = counted;
  assert_ok(gmlake_offload_mock_create(&mock, &m.mock));
  desc.backend = m.mock;
  desc.limit_bytes = limit_bytes;
  assert_ok(gmlake_offload_run_create(&desc, &m.run));
  return m;
}

static inline gmlake_offload_run_stats stats_of(const machine *m) {
  gmlake_offload_run_stats stats;
  stats.struct_bytes = 0;
  assert_ok(gmlake_offload_run_get_stats(m->run, &stats));
  return stats;
}

/* Ends it; what was written, as a digest. */
static inline uint64_t end_machine(machine *m) {
  gmlake_offload_mock_census census = census_of(m->mock);
  assert_int_equal(census.race_count, 0);
  gmlake_offload_run_destroy(m->run);
  assert_int_equal(census_of(m->mock).device_bytes + census_of(m->mock).host_bytes, 0);
  gmlake_offload_mock_destroy(m->mock);
  return census.digest;
}

/* Plays a line whose numbers are printed. */
static inline void play_text(const char *format, ...) {
  char line[4000];
  const char *rule;
  va_list list;
  va_start(list, format);
  (void)vsnprintf(line, sizeof line, format, list);
  va_end(list);
  rule = play_line(line, &graphs, NULL);
  if (rule) fail_msg("%s: %s", rule, line);
}

#endif /* OFFLOAD_GRAPHS_H */
