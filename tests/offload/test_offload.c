/* Graphs of gmlake_offload.h, plans, runs and memgraphs: rows (graph_rows.h), each of them a line
   of language.h, and what only C can say: callbacks, the caller's operators and memory. Random
   graphs are in test_offload_random.c and test_turnip.c. */
#define _GNU_SOURCE 1
#include "offload_fixture.h"
#include "graph_rows.h"
#include "graphs.h"
#include "options.h"

/* ---- Graphs ---------------------------------------------------------------------------------- */

static void check_graph_error(const gmlake_offload_graph *graph, gmlake_offload_result result,
                              uint32_t op_id, uint32_t tensor_id) {
  gmlake_offload_error_info info;
  assert_ok(gmlake_offload_graph_get_error(graph, &info));
  assert_int_equal(info.result, result);
  assert_int_equal(info.op, op_id);
  assert_int_equal(info.tensor, tensor_id);
  assert_true(strlen(info.text) > 10);
}

CASE(graph_errors_have_names) {
  gmlake_offload_graph *graph = new_graph(0);
  uint32_t a = made(graph, MIB), b = made(graph, MIB),
           in = tensor(graph, MIB, GMLAKE_OFFLOAD_INPUT);
  gmlake_offload_graph_info info;
  gmlake_offload_op_desc desc;
  uint32_t id;
  assert_error(try_op(graph, 1, 99, NONE, a, NONE, &id), UNKNOWN_ID);
  check_graph_error(graph, GMLAKE_OFFLOAD_ERROR_UNKNOWN_ID, 0, 99);
  assert_int_equal(id, NONE);
  assert_error(try_op(graph, 1, in, NONE, a, a, &id), DUPLICATE_ID);
  check_graph_error(graph, GMLAKE_OFFLOAD_ERROR_DUPLICATE_ID, 0, a);
  assert_error(try_tensor(graph, 1, (gmlake_offload_kind)9, 0, &id), INVALID_ARGUMENT);
  assert_error(gmlake_offload_add_transfer(graph, a, b, 1, &id), INVALID_ARGUMENT);
  assert_error(gmlake_offload_add_transfer(graph, a, 77, 1, &id), UNKNOWN_ID);
  op(graph, 1, b, NONE, a);
  assert_error(gmlake_offload_graph_seal(graph), READ_BEFORE_WRITE);
  check_graph_error(graph, GMLAKE_OFFLOAD_ERROR_READ_BEFORE_WRITE, 0, b);
  assert_error(gmlake_offload_graph_get_info(graph, &info), NOT_SEALED);
  assert_ok(gmlake_offload_get_op(graph, 0, &desc));
  assert_string_equal(desc.name, "operator");
  assert_true(desc.read_count == 1 && desc.reads[0] == b && desc.writes[0] == a);
  assert_error(gmlake_offload_get_op(graph, 1, &desc), UNKNOWN_ID);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* ---- Planners -------------------------------------------------------------------------------- */

static gmlake_offload_planner *new_planner(unsigned flags, size_t target_bytes) {
  gmlake_offload_planner_desc desc;
  gmlake_offload_planner *planner;
  memset(&desc, 0, sizeof desc);
  desc.flags = flags;
  desc.target_bytes = target_bytes;
  desc.host = counted;
  assert_ok(gmlake_offload_planner_create(&desc, &planner));
  return planner;
}

static uint32_t add_job(gmlake_offload_planner *planner, const gmlake_offload_graph *graph) {
  gmlake_offload_job_desc desc;
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  assert_ok(gmlake_offload_add_job(planner, &desc, &job));
  return job;
}

static gmlake_offload_job_info job_info(const gmlake_offload_planner *planner, uint32_t job) {
  gmlake_offload_job_info info;
  info.struct_bytes = 0;
  assert_ok(gmlake_offload_get_job_info(planner, job, &info));
  return info;
}

/* ---- Times, jobs ----------------------------------------------------------------------------- */

CASE(times_drift_and_plans_follow) {
  gmlake_offload_graph *valley = graph_of(VALLEY, MIB);
  gmlake_offload_planner *planner = new_planner(0, 0);
  uint32_t job = add_job(planner, valley), second, i;
  int replanned;
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_true(replanned); /* a job came */
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_false(replanned);
  assert_ok(gmlake_offload_observe(planner, job, 0, 10 * MS)); /* mean: 6 ms */
  assert_int_equal(job_info(planner, job).time_ns, 36 * MS);
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_false(replanned);
  for (i = 0; i < 20; i++) assert_ok(gmlake_offload_observe(planner, job, 0, 10 * MS));
  assert_true(job_info(planner, job).drift > .12);
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_true(replanned);
  assert_int_equal(job_info(planner, job).plan_count, 2);
  assert_true(job_info(planner, job).drift < .001);
  second = add_job(planner, valley);
  assert_int_equal(second, 1);
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_true(replanned);
  assert_ok(gmlake_offload_remove_job(planner, job));
  assert_error(gmlake_offload_remove_job(planner, job), UNKNOWN_ID);
  assert_error(gmlake_offload_observe(planner, job, 0, 1), UNKNOWN_ID);
  assert_ok(gmlake_offload_update(planner, &replanned));
  assert_true(replanned);
  assert_int_equal(add_job(planner, valley), 0);
  assert_ok(gmlake_offload_remove_job(planner, 0));
  assert_ok(gmlake_offload_remove_job(planner, 1));
  assert_ok(gmlake_offload_update(planner, &replanned)); /* nothing is left to plan */
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(valley);
  assert_int_equal(host_bytes, 0);
}

/* ---- Runs ------------------------------------------------------------------------------------ */

/* A run that tells a planner what operators take, and takes its plans. */
typedef struct loop {
  gmlake_offload_planner *planner;
  gmlake_offload_run *run;
  gmlake_offload_plan *plans[16]; /* all that were made, to the end */
  size_t plan_count;
} loop;

static void loop_observe(void *user, uint32_t job, uint32_t op_id, uint64_t time_ns) {
  assert_ok(gmlake_offload_observe(((loop *)user)->planner, job, op_id, time_ns));
}

static void loop_update(loop *l, uint32_t jobs) {
  uint32_t j;
  int replanned;
  assert_ok(gmlake_offload_update(l->planner, &replanned));
  for (j = 0; replanned && j < jobs; j++) {
    gmlake_offload_plan *plan;
    if (gmlake_offload_take_plan(l->planner, j, &plan)) continue;
    assert_true(l->plan_count < 16);
    l->plans[l->plan_count++] = plan;
    assert_ok(gmlake_offload_run_set_plan(l->run, j, plan));
  }
}

CASE(jobs_come_and_go_while_others_run) {
  gmlake_offload_graph *valley = graph_of(VALLEY, MIB);
  gmlake_offload_run_desc desc;
  machine m = new_machine(0, 1 << 14, 0);
  loop l;
  uint32_t id, i;
  memset(&l, 0, sizeof l);
  memset(&desc, 0, sizeof desc);
  gmlake_offload_run_destroy(m.run);
  desc.backend = m.mock;
  desc.observe_fn = loop_observe;
  desc.user = &l;
  desc.host = counted;
  assert_ok(gmlake_offload_run_create(&desc, &m.run));
  l.run = m.run;
  l.planner = new_planner(0, 0);
  (void)add_job(l.planner, valley);
  assert_ok(gmlake_offload_run_add_job(m.run, valley, NULL, &id));
  loop_update(&l, 1);
  assert_ok(gmlake_offload_run_iterations(m.run, 2));
  assert_int_equal(stats_of(&m).device_bytes_peak, 301 * MIB);
  (void)add_job(l.planner, valley); /* a second one comes: both take twice the time */
  assert_ok(gmlake_offload_run_add_job(m.run, valley, NULL, &id));
  for (i = 0; i < 12; i++) {
    loop_update(&l, 2);
    assert_ok(gmlake_offload_run_iterations(m.run, 1));
  }
  assert_true(job_info(l.planner, 0).time_ns > 60 * MS);
  assert_true(job_info(l.planner, 0).plan_count > 2);
  assert_ok(gmlake_offload_run_reset_peaks(m.run));
  assert_ok(gmlake_offload_run_iterations(m.run, 2));
  assert_int_equal(stats_of(&m).device_bytes_peak, 602 * MIB);
  assert_ok(gmlake_offload_run_remove_job(m.run, 0)); /* the first one leaves */
  assert_ok(gmlake_offload_remove_job(l.planner, 0));
  for (i = 0; i < 12; i++) {
    loop_update(&l, 2);
    assert_ok(gmlake_offload_run_iterations(m.run, 1));
  }
  assert_true(job_info(l.planner, 1).time_ns < 40 * MS);
  assert_ok(gmlake_offload_run_reset_peaks(m.run));
  assert_ok(gmlake_offload_run_set_limit(m.run, 301 * MIB));
  assert_ok(gmlake_offload_run_iterations(m.run, 2));
  assert_int_equal(stats_of(&m).device_bytes_peak, 301 * MIB);
  assert_int_equal(stats_of(&m).on_demand_out_count, 0);
  (void)end_machine(&m);
  for (i = 0; i < l.plan_count; i++) gmlake_offload_plan_destroy(l.plans[i]);
  gmlake_offload_planner_destroy(l.planner);
  gmlake_offload_graph_destroy(valley);
  assert_int_equal(host_bytes, 0);
}

/* ---- Wrong arguments ------------------------------------------------------------------------- */

CASE(wrong_arguments_are_refused) {
  gmlake_offload_graph *graph = NULL, *open = new_graph(0);
  gmlake_offload_planner_desc planner_desc;
  gmlake_offload_planner *planner;
  gmlake_offload_run_desc run_desc;
  gmlake_offload_run *run;
  gmlake_offload_mock_desc mock_desc;
  gmlake_offload_backend *mock;
  gmlake_offload_job_desc job_desc;
  uint32_t id;
  assert_error(gmlake_offload_graph_create(NULL, NULL), INVALID_ARGUMENT);
  assert_error(gmlake_offload_add_op(graph, NULL, &id), INVALID_ARGUMENT);
  assert_error(gmlake_offload_graph_seal(NULL), INVALID_ARGUMENT);
  memset(&planner_desc, 0, sizeof planner_desc);
  planner_desc.flags = 1u << 20;
  assert_error(gmlake_offload_planner_create(&planner_desc, &planner), INVALID_ARGUMENT);
  planner_desc.flags = 0;
  planner_desc.smoothing = 2;
  assert_error(gmlake_offload_planner_create(&planner_desc, &planner), INVALID_ARGUMENT);
  planner_desc.smoothing = 0;
  planner_desc.overhead_max = -1;
  assert_error(gmlake_offload_planner_create(&planner_desc, &planner), INVALID_ARGUMENT);
  assert_null(planner);
  memset(&run_desc, 0, sizeof run_desc);
  assert_error(gmlake_offload_run_create(&run_desc, &run), INVALID_ARGUMENT);
  memset(&mock_desc, 0, sizeof mock_desc);
  mock_desc.jitter = 1;
  assert_error(gmlake_offload_mock_create(&mock_desc, &mock), INVALID_ARGUMENT);
  planner = new_planner(0, 0);
  memset(&job_desc, 0, sizeof job_desc);
  assert_error(gmlake_offload_add_job(planner, &job_desc, &id), INVALID_ARGUMENT);
  job_desc.graph = open;
  assert_error(gmlake_offload_add_job(planner, &job_desc, &id), NOT_SEALED);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(open);
  graph = graph_make_product(2, 2, 64);
  planner = new_planner(0, 0);
  job_desc.graph = graph;
  assert_error(gmlake_offload_add_job(planner, &job_desc, &id), WRONG_DEVICE);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
  gmlake_offload_graph_destroy(NULL);
  gmlake_offload_planner_destroy(NULL);
  gmlake_offload_run_destroy(NULL);
  gmlake_offload_plan_destroy(NULL);
  gmlake_offload_mock_destroy(NULL);
}

CASE(sums_of_jobs_do_not_overflow) {
  gmlake_offload_graph *graph = new_graph(0);
  gmlake_offload_planner *planner = new_planner(0, 0);
  gmlake_offload_job_desc desc;
  machine m = new_machine(0, 1 << 14, 0);
  uint32_t id;
  (void)made(graph, SIZE_MAX / 8 + 1); /* that nothing uses */
  op(graph, 1, NONE, NONE, NONE);
  assert_ok(gmlake_offload_graph_seal(graph));
  memset(&desc, 0, sizeof desc);
  desc.graph = graph;
  assert_ok(gmlake_offload_add_job(planner, &desc, &id));
  assert_error(gmlake_offload_add_job(planner, &desc, &id), SIZE_OVERFLOW);
  assert_error(gmlake_offload_observe(planner, 0, 0, UINT64_MAX / 32), INVALID_ARGUMENT);
  assert_ok(gmlake_offload_run_add_job(m.run, graph, NULL, &id));
  assert_error(gmlake_offload_run_add_job(m.run, graph, NULL, &id), SIZE_OVERFLOW);
  (void)end_machine(&m);
  gmlake_offload_planner_destroy(planner);
  gmlake_offload_graph_destroy(graph);
}

CASE(results_have_names) {
  int i;
  for (i = 0; i <= GMLAKE_OFFLOAD_ERROR_BACKEND; i++) {
    const char *name = gmlake_offload_result_name((gmlake_offload_result)i);
    assert_true(!strncmp(name, "GMLAKE_OFFLOAD_", 15) && !strchr(name, '?'));
  }
  assert_string_equal(gmlake_offload_result_name((gmlake_offload_result)99),
                      "GMLAKE_OFFLOAD_ERROR_?");
}

/* ---- Graphs of several devices --------------------------------------------------------------- */

/* Every dependency is kept by the order, and operators touch their own device. */
static void check_order(const gmlake_offload_graph *graph) {
  gmlake_offload_graph_info info = info_of(graph);
  unsigned char *written = (unsigned char *)calloc(info.tensor_count, 1);
  size_t i, n;
  assert_non_null(written);
  for (i = 0; i < info.op_count; i++) {
    gmlake_offload_op_desc o;
    gmlake_offload_tensor_desc t;
    assert_ok(gmlake_offload_get_op(graph, info.op_order[i], &o));
    for (n = 0; n < o.read_count; n++) {
      assert_ok(gmlake_offload_get_tensor(graph, o.reads[n], &t));
      assert_true(t.device == o.device);
      assert_true(written[o.reads[n]] || t.kind <= GMLAKE_OFFLOAD_INPUT);
    }
    for (n = 0; n < o.write_count; n++) {
      assert_ok(gmlake_offload_get_tensor(graph, o.writes[n], &t));
      assert_true(t.device == o.device || (o.flags & GMLAKE_OFFLOAD_TRANSFER));
      written[o.writes[n]] = 1;
    }
  }
  free(written);
}

CASE(made_up_graphs_are_sound) {
  unsigned devices;
  for (devices = 1; devices <= 8; devices++) {
    gmlake_offload_graph *product = graph_make_product(devices, 4, 1024);
    gmlake_offload_graph *transformer = graph_make_transformer(devices, 3, 512, 1024);
    gmlake_offload_graph *random = graph_make_random(devices, 300, 50, devices);
    assert_non_null(product);
    assert_non_null(transformer);
    assert_non_null(random);
    assert_int_equal(info_of(random).device_count, devices);
    assert_true(info_of(random).op_count >= 300);
    assert_int_equal(info_of(product).device_count, devices);
    assert_int_equal(info_of(transformer).device_count, devices);
    check_order(product);
    check_order(transformer);
    check_order(random);
    if (devices == 1) assert_int_equal(info_of(product).op_count, 64 + 48);
    gmlake_offload_graph_destroy(product);
    gmlake_offload_graph_destroy(transformer);
    gmlake_offload_graph_destroy(random);
  }
  assert_null(graph_make_product(9, 4, 1024));
  assert_null(graph_make_random(9, 300, 50, 1));
  assert_null(graph_make_random(1, 0, 50, 1));
  assert_null(graph_make_random(1, 300, 7, 1));
  assert_null(graph_make_random(1, 300, 4097, 1));
}

/* ---- Plans and jobs at the edges ------------------------------------------------------------- */

static gmlake_offload_event event_of(gmlake_offload_action action, uint32_t tensor_id,
                                     uint32_t trigger, uint32_t op_id) {
  gmlake_offload_event event;
  memset(&event, 0, sizeof event);
  event.action = action;
  event.tensor = tensor_id;
  event.trigger = trigger;
  event.op = op_id;
  return event;
}

static gmlake_offload_plan *plan_of(const gmlake_offload_graph *graph,
                                    const gmlake_offload_event *events, size_t count) {
  gmlake_offload_plan *plan;
  assert_ok(gmlake_offload_plan_create(graph, events, count, &counted, &plan));
  return plan;
}

/* A job leaves while one of its tensors is being copied and another waits for its turn; its graph
   and plan go at once, its number is the next one's, of another graph. */
CASE(jobs_leave_nothing_behind) {
  gmlake_offload_graph *graph = new_graph(0), *other = new_graph(0);
  uint32_t p = tensor(graph, 500 * MIB, GMLAKE_OFFLOAD_PERSISTENT);
  uint32_t q = tensor(graph, 500 * MIB, GMLAKE_OFFLOAD_PERSISTENT), id, i;
  machine m = new_machine(0, 1 << 14, 0);
  gmlake_offload_event events[3];
  gmlake_offload_plan *plan;
  void *device, *host;
  op(graph, MS, p, q, NONE);
  assert_ok(gmlake_offload_graph_seal(graph));
  for (i = 0; i < 40; i++) op(other, MS, NONE, NONE, made(other, MIB));
  assert_ok(gmlake_offload_graph_seal(other));
  events[0] = event_of(GMLAKE_OFFLOAD_SWAP_OUT, p, 0, 0);
  events[1] = event_of(GMLAKE_OFFLOAD_SWAP_OUT, q, 0, 0);
  events[2] = event_of(GMLAKE_OFFLOAD_SWAP_IN, p, 0, 0);
  events[2].delay_ns = 20 * MS;
  events[0].action = (gmlake_offload_action)4;
  assert_error(gmlake_offload_plan_create(graph, events, 3, NULL, &plan), INVALID_ARGUMENT);
  assert_null(plan);
  events[0].action = GMLAKE_OFFLOAD_SWAP_OUT;
  plan = plan_of(graph, events, 3);
  assert_error(gmlake_offload_run_add_job(m.run, other, plan, &id), WRONG_PLAN);
  assert_ok(gmlake_offload_run_add_job(m.run, graph, plan, &id));
  assert_ok(gmlake_offload_run_iterations(m.run, 1));
  assert_error(gmlake_offload_run_locate(m.run, 1, p, &device, &host), UNKNOWN_ID);
  assert_error(gmlake_offload_run_locate(m.run, id, 2, &device, &host), UNKNOWN_ID);
  assert_ok(gmlake_offload_run_remove_job(m.run, id));
  assert_int_equal(stats_of(&m).device_bytes, 0); /* its copy has ended */
  gmlake_offload_plan_destroy(plan);
  gmlake_offload_graph_destroy(graph);
  assert_ok(gmlake_offload_run_add_job(m.run, other, NULL, &id));
  assert_int_equal(id, 0);
  assert_ok(gmlake_offload_run_iterations(m.run, 1));
  assert_int_equal(stats_of(&m).device_bytes, 0);
  assert_int_equal(stats_of(&m).out_count, 1);
  (void)end_machine(&m);
  gmlake_offload_graph_destroy(other);
  assert_int_equal(host_bytes, 0);
}

typedef struct visitor {
  gmlake_offload_run *run;
  const gmlake_offload_graph *graph;
  uint32_t out; /* an OUTPUT */
  int outputs, jobs;
} visitor;

static void visit_op(void *user, uint32_t job, uint32_t op_id, uint64_t time_ns) {
  visitor *v = (visitor *)user;
  uint32_t id;
  (void)job, (void)op_id, (void)time_ns;
  for (; v->jobs < 40; v->jobs++) {
    assert_ok(gmlake_offload_run_add_job(v->run, v->graph, NULL, &id));
  }
}

static void visit_iteration(void *user, uint32_t job, uint64_t iteration) {
  visitor *v = (visitor *)user;
  void *device, *host;
  (void)iteration;
  assert_ok(gmlake_offload_run_locate(v->run, job, v->out, &device, &host));
  v->outputs += device != NULL;
  assert_error(gmlake_offload_run_iterations(v->run, 1), INVALID_ARGUMENT);
  if (job % 2 == 1) assert_ok(gmlake_offload_run_remove_job(v->run, job));
}

/* Jobs are added after an operator, others leave after their iteration, of which the outputs are
   still there. */
CASE(callbacks_see_outputs_and_change_jobs) {
  gmlake_offload_graph *graph = new_graph(0);
  gmlake_offload_run_desc desc;
  machine m = new_machine(0, 1 << 14, 0);
  visitor v;
  uint32_t id;
  memset(&v, 0, sizeof v);
  memset(&desc, 0, sizeof desc);
  v.graph = graph;
  v.out = tensor(graph, MIB, GMLAKE_OFFLOAD_OUTPUT);
  op(graph, MS, NONE, NONE, v.out);
  op(graph, MS, NONE, NONE, NONE);
  assert_ok(gmlake_offload_graph_seal(graph));
  gmlake_offload_run_destroy(m.run);
  desc.backend = m.mock;
  desc.observe_fn = visit_op;
  desc.iteration_fn = visit_iteration;
  desc.user = &v;
  desc.host = counted;
  assert_ok(gmlake_offload_run_create(&desc, &m.run));
  v.run = m.run;
  assert_ok(gmlake_offload_run_add_job(m.run, graph, NULL, &id));
  assert_ok(gmlake_offload_run_iterations(m.run, 1));
  assert_int_equal(v.outputs, 1);
  assert_ok(gmlake_offload_run_iterations(m.run, 2)); /* 41, of which 20 leave after the first */
  assert_int_equal(v.outputs, 1 + 20 + 2 * 21);
  assert_int_equal(stats_of(&m).iteration_count, 1 + 20 + 2 * 21);
  assert_int_equal(stats_of(&m).device_bytes, 0);
  (void)end_machine(&m);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

/* ---- Operators of the caller ----------------------------------------------------------------- */

#define OWN_BYTES 1001 /* no whole words */

typedef struct own {
  int launches, fills, fail_launch, fail_fill; /* the call of that number fails; 0: none does */
} own;

/* The sum, byte by byte, of what it reads and of the number that `user` points to. */
static void own_sum(const void *user, void *const *reads, size_t read_count, unsigned char *out) {
  size_t i, n;
  for (i = 0; i < OWN_BYTES; i++) {
    unsigned sum = *(const unsigned char *)user;
    for (n = 0; n < read_count; n++) sum += (unsigned)(n + 3) * ((unsigned char *)reads[n])[i];
    out[i] = (unsigned char)sum;
  }
}

static int own_launch(void *user, const gmlake_offload_launch *launch, void *stream) {
  own *o = (own *)user;
  assert_null(stream);
  if (++o->launches == o->fail_launch) return 1;
  own_sum(launch->desc.user, launch->reads, launch->desc.read_count,
          (unsigned char *)launch->writes[0]);
  return 0;
}

static int own_fill(void *user, uint32_t job, uint32_t id, void *ptr, size_t bytes, int on_host,
                    void *stream) {
  own *o = (own *)user;
  assert_null(stream);
  assert_true(job == 0 && (on_host == 0 || on_host == 1));
  if (++o->fills == o->fail_fill) return 1;
  memset(ptr, (int)id + 5, bytes);
  return 0;
}

/* w leads to a, b and c, and these and w to the next w. */
static gmlake_offload_graph *own_graph(unsigned char numbers[4]) {
  gmlake_offload_graph *graph = new_graph(0);
  gmlake_offload_op_desc desc, got;
  uint32_t w = tensor(graph, OWN_BYTES, GMLAKE_OFFLOAD_PERSISTENT), made_ids[3], reads[3], i, id;
  for (i = 0; i < 3; i++) made_ids[i] = made(graph, OWN_BYTES);
  memset(&desc, 0, sizeof desc);
  desc.time_ns = US;
  desc.reads = reads;
  desc.write_count = 1;
  for (i = 0; i < 4; i++) {
    desc.user = &numbers[i];
    desc.read_count = i < 3 ? 1 : 3;
    reads[0] = i == 0 ? w : made_ids[i - 1];
    if (i == 3) reads[0] = made_ids[0], reads[1] = w, reads[2] = made_ids[2];
    desc.writes = i < 3 ? &made_ids[i] : &w;
    assert_ok(gmlake_offload_add_op(graph, &desc, &id));
    assert_ok(gmlake_offload_get_op(graph, id, &got));
    assert_ptr_equal(got.user, &numbers[i]);
  }
  assert_ok(gmlake_offload_graph_seal(graph));
  return graph;
}

/* Three iterations under a limit; `bytes` gets the last w. */
static gmlake_offload_result own_run(const gmlake_offload_graph *graph, own *o, size_t limit,
                                     uint64_t *out_digest, unsigned char *bytes) {
  gmlake_offload_mock_desc desc;
  gmlake_offload_run_desc run_desc;
  gmlake_offload_result result;
  void *device, *host;
  machine m;
  uint32_t job;
  memset(&desc, 0, sizeof desc);
  memset(&run_desc, 0, sizeof run_desc);
  desc.launch_fn = own_launch;
  desc.fill_fn = own_fill;
  desc.user = o;
  desc.host = run_desc.host = counted;
  assert_ok(gmlake_offload_mock_create(&desc, &m.mock));
  run_desc.backend = m.mock;
  run_desc.limit_bytes = limit;
  assert_ok(gmlake_offload_run_create(&run_desc, &m.run));
  result = gmlake_offload_run_add_job(m.run, graph, NULL, &job);
  if (!result) result = gmlake_offload_run_iterations(m.run, 3);
  if (!result) {
    assert_true(limit == 0 || stats_of(&m).out_count != 0);
    assert_ok(gmlake_offload_run_locate(m.run, job, 0, &device, &host));
    memcpy(bytes, device ? device : host, OWN_BYTES);
  }
  *out_digest = end_machine(&m);
  return result;
}

CASE(operators_of_the_caller) {
  unsigned char numbers[4] = {11, 22, 33, 44}, w[OWN_BYTES], a[OWN_BYTES], b[OWN_BYTES],
                c[OWN_BYTES], bytes[OWN_BYTES];
  gmlake_offload_graph *graph = own_graph(numbers);
  void *reads[4] = {w, a, b, NULL}, *last[3] = {a, w, c};
  uint64_t digest, other;
  own o = {0, 0, 0, 0};
  size_t i;
  memset(w, 5, sizeof w);
  for (i = 0; i < 3; i++) { /* as it should be */
    own_sum(&numbers[0], &reads[0], 1, a);
    own_sum(&numbers[1], &reads[1], 1, b);
    own_sum(&numbers[2], &reads[2], 1, c);
    own_sum(&numbers[3], last, 3, bytes);
    memcpy(w, bytes, sizeof w);
  }
  assert_ok(own_run(graph, &o, 0, &digest, bytes));
  assert_memory_equal(bytes, w, sizeof w);
  assert_ok(own_run(graph, &o, 3 * OWN_BYTES, &other, bytes)); /* one of four is away */
  assert_memory_equal(bytes, w, sizeof w);
  assert_true(other == digest && o.launches == 24 && o.fills == 2);
  numbers[2]++; /* the digest shows what they write */
  assert_ok(own_run(graph, &o, 0, &other, bytes));
  assert_true(other != digest);
  memset(&o, 0, sizeof o);
  o.fail_launch = 7;
  assert_error(own_run(graph, &o, 0, &other, bytes), BACKEND);
  assert_int_equal(o.launches, 7);
  memset(&o, 0, sizeof o);
  o.fail_fill = 1;
  assert_error(own_run(graph, &o, 0, &other, bytes), BACKEND);
  assert_int_equal(o.launches, 0);
  gmlake_offload_graph_destroy(graph);
  assert_int_equal(host_bytes, 0);
}

static void a_row(void **state) { play_row(state, &graphs, NULL); }
static void whatever_fails(void **state) { play_row(state, &graphs, play_faults); }

int main(int argc, char **argv) {
  const char *wanted = NULL;
  const option_row options[] = {
      {"play", OPTION_TEXT, &wanted, 0, 0, "LINE", "plays a line of language.h"},
      {"trace", OPTION_FLAG, &is_traced, 0, 0, NULL, "says what is done"}};
  const option_reader reader = {"test_offload", "[OPTION]...", "", "", options, 2};
  size_t i;
  options_alone(&reader, argc, argv);
  if (wanted) {
    const char *rule = play_line(wanted, &graphs, NULL);
    (void)printf("%s\n", rule ? rule : "nothing is found");
    return rule != NULL;
  }
  for (i = 0; i < GRAPH_ROWS; i++) add_case(graph_rows[i].name, a_row, &graph_rows[i]);
  for (i = 0; i < GRAPH_FAULT_ROWS; i++)
    add_case(graph_fault_rows[i].name, whatever_fails, &graph_fault_rows[i]);
  return run_cases("graphs");
}
