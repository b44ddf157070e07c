/* build/offload_session: recorded graphs, executed as a program would that a session serves: it
   allocates and frees as the graph says, names what each operator uses, and launches it. On a GPU
   operators are stand-ins (standin.h); else everything is on a mock's clock, with the lake's own
   calls at their cost. The text of --help says what it takes and what its columns mean. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_BACKEND_CUDA
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#define GMLAKE_OFFLOAD_LAKE
#include "gmlake_offload.h"

#include "../../examples/mock_lake.h"
#include "../graph.h"
#include "../options.h"
#include "calls.h"
#include "figures.h"
#include "standin.h"

#define MIB ((size_t)1 << 20)
#define SMALL_BYTES \
  (w->opts->small_mib * MIB) /* smaller tensors are blocks of the lake and never leave */

static const char about[] =
    "Runs recorded graphs as programs under a session of gmlake_offload.h, in less than their\n"
    "memory. Without GRAPH: resnet50-b64 and llama-7b-lora-b8-1k of bench/graphs. GRAPH is a\n"
    ".gmgraph file, or transformer:1:LAYERS:TOKENS:WIDTH; or what examples/torch/session.hpp "
    "wrote\n"
    "of a real program: with .gmcalls in its name it is played on the mock, a row an iteration.\n";
static const char columns[] =
    "\nTwo rows for each graph: `none` has no limit, `part` runs in --part of what that one held.\n"
    "Columns:\n"
    "  MiB        the chunks of the lake and the session\n"
    "  lake GB    the most that the lake held; in `part` that is its limit\n"
    "  round      the tensors in whole chunks, by the tensors, at the peak\n"
    "  ms         an iteration; ratio: by that of `none`, or by bound ms if that is longer\n"
    "  bound ms   what the plan's copies take at least: `out GB` and `in GB`\n"
    "  least ms   no plan for that memory is faster that recomputes nothing\n"
    "  demand     tensors that were fetched, and that left, on demand, in an iteration\n"
    "  drift      iterations that went another way, plans: new schedules; by iterations\n"
    "  maps       chunks that the lake mapped in an iteration; on the mock only\n"
    "  calls      of the lake to the driver in an iteration, and their time\n"
    "  waits      of the host in the lake, in all measured iterations; on the mock only\n"
    "  same       whether each iteration's operators read what they read in `none`\n"
    "  pinned GB  the most that was pinned\n"
    "Rows of a recorded iteration: its steps; ms, those that it took when it was recorded, and "
    "those\n"
    "of its steps alone; GB that left and that came back; then as above, in this iteration; and at "
    "its\n"
    "end the session's memory, and its mode: 0 learning, 1 planned, 2 drifted.\n";

typedef struct settings {
  int json, mock, gpu, busy, waits;
  uint64_t iterations, settle, chunk_mib, small_mib, divide, launch_ns, ahead, tries, vary,
      limit_mib, repeat;
  double part, link;
} settings;

/* Where a program runs: a session on a lake on a device. */
typedef struct world {
  const settings *opts;
  const gmlake_offload_graph *graph;
  gmlake_offload_graph_info info;
  gmlake_offload_backend *backend;
  gmlake_offload_backend session_table; /* of backend; [mock] its calls take time, */
  gmlake_offload_backend free_table;    /* [mock] and those of this one take none */
  gmlake_backend *lake_mock;
  gmlake_backend table; /* of lake_mock, with the events of session_table */
  gmlake *lake;
  gmlake_offload_lake of;
  gmlake_offload_memory memory;
  gmlake_offload_session *session;
  void *stream;
  standin standin;
  uint32_t *ids; /* of the session's tensors; NONE: a block of the lake */
  void **ptrs;
  uint32_t *first, *last; /* operators by tensor, in their order; NONE: never used */
  void **launched;        /* [mock] events behind the last operators */
  uint64_t launch_count;
  uint64_t iteration, charged_ns, host_waits, maps;
  int failed;
  gmlake_offload_error_info error; /* of the first call of the session that failed */
} world;

typedef struct outcome {
  double ms, round;
  size_t peak; /* of the lake */
  gmlake_offload_session_stats before, after;
  double calls, driver_ms, maps; /* of the lake, in an iteration */
  uint64_t host_waits, count, wrong;
  uint64_t totals[256];
} outcome;

static gpu_driver gpu;
static char mock_stream;

/* ---- The device ---- */

static void charge(world *w) {
  gmlake_mock_census census;
  if (!w->lake_mock) return;
  gmlake_mock_get_census(w->lake_mock, &census);
  gmlake_offload_mock_spend(w->backend, census.modelled_ns - w->charged_ns);
  w->charged_ns = census.modelled_ns;
}

/* The lake's events are those of session_table (mock_lake.h); what counts finds the world here. */
static world *lake_world;

static gmlake_result lake_event_wait(void *user, void *event, int *out_code) {
  int done = 0, code = 0;
  (void)user;
  while (!code && !done) {
    code = lake_world->free_table.event_done(lake_world->session_table.user, event, &done);
    if (!done) gmlake_offload_mock_spend(lake_world->backend, 1000);
  }
  lake_world->host_waits++;
  return mock_lake_answer(code, out_code);
}
static gmlake_result lake_map(void *user, uint64_t address, size_t bytes, uint64_t handle,
                              int *out_code) {
  lake_world->maps++;
  return lake_world->lake_mock->map(user, address, bytes, handle, out_code);
}

/* What the calls of session_table cost the host, after what the lake did before. To queue a copy
   takes as long as to launch. */
static const gmlk_mock_costs *costs_of(const world *w) {
  return &gmlk_mock_cost_table[w->opts->busy ? GMLAKE_MOCK_COSTS_BUSY : GMLAKE_MOCK_COSTS_REPLAYED];
}
static int paid_copy(void *user, const gmlake_offload_copy *copy, void *stream) {
  charge(lake_world);
  gmlake_offload_mock_spend(lake_world->backend, lake_world->opts->launch_ns);
  return lake_world->free_table.copy(user, copy, stream);
}
static int paid_record(void *user, void *event, void *stream) {
  charge(lake_world);
  gmlake_offload_mock_spend(lake_world->backend, costs_of(lake_world)->event_record);
  return lake_world->free_table.event_record(user, event, stream);
}
static int paid_wait(void *user, void *stream, void *event) {
  charge(lake_world);
  gmlake_offload_mock_spend(lake_world->backend, costs_of(lake_world)->stream_wait);
  return lake_world->free_table.stream_wait(user, stream, event);
}
static int paid_query(void *user, void *event, int *out_done) {
  charge(lake_world);
  gmlake_offload_mock_spend(lake_world->backend, costs_of(lake_world)->event_query);
  return lake_world->free_table.event_done(user, event, out_done);
}

static int open_mock(world *w) {
  gmlake_offload_mock_desc desc;
  gmlake_mock_desc lake_desc;
  memset(&desc, 0, sizeof desc);
  memset(&lake_desc, 0, sizeof lake_desc);
  desc.divisor = (size_t)1 << 40; /* of pinned memory: next to no bytes */
  desc.bookkeeping_only = 1;
  desc.copy_ns = 10000;
  if (w->opts->link > 0) {
    desc.out_bytes_per_s = desc.in_bytes_per_s = w->opts->link * 1e9;
    desc.both_bytes_per_s = w->opts->link * 1e9 * 101 / 55; /* as an H200's */
  }
  lake_desc.capacity_bytes = (size_t)141 << 30;
  lake_desc.bookkeeping_only = 1;
  lake_desc.costs = w->opts->busy ? GMLAKE_MOCK_COSTS_BUSY : GMLAKE_MOCK_COSTS_REPLAYED;
  if (gmlake_offload_mock_create(&desc, &w->backend) ||
      gmlake_mock_create(&lake_desc, &w->lake_mock))
    return 0;
  w->table = mock_lake_table(w->lake_mock, &w->session_table);
  w->table.event_wait = lake_event_wait;
  w->table.map = lake_map;
  w->stream = &mock_stream;
  lake_world = w;
  w->free_table = w->session_table = *w->backend;
  w->session_table.copy = paid_copy;
  w->session_table.event_record = paid_record;
  w->session_table.stream_wait = paid_wait;
  w->session_table.event_done = paid_query;
  return 1;
}

static int open_gpu(world *w) {
  gmlake_offload_cuda_desc desc;
  CUstream stream = NULL;
  memset(&desc, 0, sizeof desc);
  if (gmlake_offload_cuda_create(&desc, &w->backend) ||
      gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return 0;
  w->session_table = *w->backend;
  w->stream = (void *)stream;
  return standin_create(&w->standin, &gpu, w->graph, 256);
}

/* The lake's blocks need memory that the session has. */
static int make_room(void *user, gmlake *lake, const gmlake_error_info *info) {
  size_t bytes = 0;
  (void)lake;
  return gmlake_offload_session_make_room(((world *)user)->session, info->asked_bytes, &bytes) ==
             GMLAKE_OFFLOAD_OK &&
         bytes != 0;
}

/* The lake would warn of blocks that are live at its end: those of small tensors are. */
static void say_nothing(void *user, int level, const gmlake_error_info *info) {
  (void)user, (void)level, (void)info;
}

/* A world in which the lake holds at most lake_bytes and the session session_bytes; 0: no limit. */
static int open_world(world *w, const settings *opts, const gmlake_offload_graph *graph,
                      size_t lake_bytes, size_t session_bytes) {
  gmlake_offload_session_desc desc;
  gmlake_desc lake_desc;
  gmlake_pool_desc pool_desc;
  size_t n;
  memset(w, 0, sizeof *w);
  w->opts = opts;
  w->graph = graph;
  (void)gmlake_offload_graph_get_info(graph, &w->info);
  n = w->info.tensor_count;
  w->ids = (uint32_t *)malloc(n * sizeof *w->ids);
  w->ptrs = (void **)calloc(n, sizeof *w->ptrs);
  w->first = (uint32_t *)malloc(2 * n * sizeof *w->first);
  w->launched = (void **)calloc(opts->ahead, sizeof *w->launched);
  if (!w->ids || !w->ptrs || !w->first || !w->launched ||
      !(opts->mock ? open_mock(w) : open_gpu(w)))
    return 0;
  w->last = w->first + n;
  memset(&lake_desc, 0, sizeof lake_desc);
  lake_desc.backend = opts->mock ? &w->table : NULL;
  lake_desc.chunk_bytes = opts->chunk_mib * MIB;
  lake_desc.limit_bytes = lake_bytes;
  lake_desc.cross_stream = GMLAKE_WAIT_FIRST;
  lake_desc.logger.fn = say_nothing;
  lake_desc.oom.fn = make_room;
  lake_desc.oom.user = w;
  if (gmlake_create(&lake_desc, &w->lake)) return 0;
  memset(&pool_desc, 0, sizeof pool_desc);
  w->of.chunk_bytes = opts->chunk_mib * MIB;
  pool_desc.chunk_bytes = 2 * w->of.chunk_bytes; /* so that no block shares the session's chunks */
  if (gmlake_pool_create(w->lake, &pool_desc, &w->of.pool)) return 0;
  w->of.lake = w->lake;
  if (gmlake_offload_lake_memory(&w->of, &w->memory)) return 0;
  memset(&desc, 0, sizeof desc);
  desc.backend = &w->session_table;
  desc.memory = &w->memory;
  desc.limit_bytes = session_bytes;
  desc.try_count_max = opts->tries;
  return !gmlake_offload_session_create(&desc, &w->session);
}

static void finish(world *w) {
  charge(w);
  w->failed |= w->session_table.stream_sync(w->session_table.user, w->stream);
  if (!w->opts->waits) return;
  w->failed |= w->session_table.stream_sync(w->session_table.user, w->session_table.out_stream);
  w->failed |= w->session_table.stream_sync(w->session_table.user, w->session_table.in_stream);
}

static void close_world(world *w) {
  size_t i;
  if (w->backend && w->stream) finish(w);
  gmlake_offload_session_destroy(w->session);
  if (w->of.pool) (void)gmlake_pool_destroy(w->lake, w->of.pool);
  if (w->lake) (void)gmlake_destroy(w->lake);
  for (i = 0; w->launched && i < w->opts->ahead; i++)
    if (w->launched[i]) w->session_table.event_destroy(w->session_table.user, w->launched[i]);
  free(w->launched);
  if (w->opts->mock) {
    gmlake_mock_destroy(w->lake_mock);
    gmlake_offload_mock_destroy(w->backend);
  } else {
    if (w->standin.gpu) standin_destroy(&w->standin);
    if (w->stream) (void)gpu.cuStreamDestroy((CUstream)w->stream);
    gmlake_offload_cuda_destroy(w->backend);
  }
  free(w->ids);
  free(w->ptrs);
  free(w->first);
}

/* ---- The program ---- */

static gmlake_offload_tensor_desc tensor_of(const world *w, uint32_t tensor) {
  gmlake_offload_tensor_desc desc;
  memset(&desc, 0, sizeof desc);
  (void)gmlake_offload_get_tensor(w->graph, tensor, &desc);
  return desc;
}

static gmlake_offload_op_desc op_of(const world *w, size_t position) {
  gmlake_offload_op_desc desc;
  memset(&desc, 0, sizeof desc);
  (void)gmlake_offload_get_op(w->graph, w->info.op_order[position], &desc);
  return desc;
}

static int is_made(gmlake_offload_kind kind) {
  return kind == GMLAKE_OFFLOAD_INTERMEDIATE || kind == GMLAKE_OFFLOAD_OUTPUT;
}

/* As large as in the graph, or smaller where iterations vary. */
static uint64_t varied(const world *w, uint64_t size) {
  uint64_t percent = w->iteration * 37 % 101 * w->opts->vary / 100; /* 37: neighbours differ */
  return w->opts->mock ? size - size / 100 * percent : size;
}

static void note_use(world *w, uint32_t tensor, size_t position) {
  if (w->first[tensor] == GMLAKE_OFFLOAD_NONE) w->first[tensor] = (uint32_t)position;
  w->last[tensor] = (uint32_t)position;
}

/* Keeps what went wrong first: what follows from it hides it. */
static void call(world *w, gmlake_offload_result result) {
  if (result == GMLAKE_OFFLOAD_OK || w->failed) return;
  w->failed = 1;
  (void)gmlake_offload_session_get_error(w->session, &w->error);
}

static void make(world *w, uint32_t tensor) {
  gmlake_offload_tensor_desc desc = tensor_of(w, tensor);
  size_t bytes = is_made(desc.kind) ? (size_t)varied(w, desc.bytes) : desc.bytes;
  if (bytes < SMALL_BYTES) {
    w->ids[tensor] = GMLAKE_OFFLOAD_NONE;
    w->failed |= gmlake_alloc(w->lake, bytes ? bytes : 1, w->stream, &w->ptrs[tensor]) != GMLAKE_OK;
  } else {
    call(w, gmlake_offload_session_alloc(w->session, bytes, w->stream, &w->ids[tensor],
                                         &w->ptrs[tensor]));
  }
}

static void unmake(world *w, uint32_t tensor) {
  if (w->ids[tensor] == GMLAKE_OFFLOAD_NONE) {
    w->failed |= gmlake_free(w->lake, w->ptrs[tensor], w->stream) != GMLAKE_OK;
  } else {
    call(w, gmlake_offload_session_free(w->session, w->ids[tensor], w->stream));
  }
  w->ids[tensor] = GMLAKE_OFFLOAD_NONE;
}

/* Begins a step that uses these tensors of the session. */
static void begin(world *w, const uint32_t *reads, size_t read_count, const uint32_t *writes,
                  size_t write_count, uint64_t key, uint32_t *ids) {
  gmlake_offload_step step;
  size_t i;
  memset(&step, 0, sizeof step);
  step.stream = w->stream;
  step.key = key;
  step.reads = ids;
  for (i = 0; i < read_count; i++)
    if (w->ids[reads[i]] != GMLAKE_OFFLOAD_NONE) ids[step.read_count++] = w->ids[reads[i]];
  step.writes = ids + step.read_count;
  for (i = 0; i < write_count; i++)
    if (w->ids[writes[i]] != GMLAKE_OFFLOAD_NONE)
      ids[step.read_count + step.write_count++] = w->ids[writes[i]];
  call(w, gmlake_offload_session_begin(w->session, &step));
}

static void setup(world *w) {
  size_t i, n, position;
  for (i = 0; i < w->info.tensor_count; i++)
    w->ids[i] = w->first[i] = w->last[i] = GMLAKE_OFFLOAD_NONE;
  for (position = 0; position < w->info.op_count; position++) {
    gmlake_offload_op_desc op = op_of(w, position);
    for (n = 0; n < op.read_count; n++) note_use(w, op.reads[n], position);
    for (n = 0; n < op.write_count; n++) note_use(w, op.writes[n], position);
  }
  for (i = 0; i < w->info.tensor_count && !w->failed; i++) {
    gmlake_offload_tensor_desc desc = tensor_of(w, (uint32_t)i);
    if (is_made(desc.kind)) continue;
    begin(w, NULL, 0, NULL, 0, 0, NULL);
    make(w, (uint32_t)i);
    if (!w->failed && !w->opts->mock)
      w->failed |= standin_fill(&w->standin, 0, (uint32_t)i, w->ptrs[i], desc.bytes, 0, w->stream);
    call(w, gmlake_offload_session_end(w->session));
  }
}

/* A driver's queue holds so many launches: then the host waits for the first one of them. */
static void wait_for_the_queue(world *w) {
  void **event = &w->launched[w->launch_count++ % w->opts->ahead];
  int done = *event == NULL;
  if (done) w->failed |= w->session_table.event_create(w->session_table.user, 0, 0, event);
  while (!done && !w->failed) {
    w->failed |= w->free_table.event_done(w->session_table.user, *event, &done);
    if (!done) gmlake_offload_mock_spend(w->backend, 1000);
  }
  w->failed |= w->free_table.event_record(w->session_table.user, *event, w->stream);
}

static void launch(world *w, size_t position, const gmlake_offload_op_desc *op, void **ptrs) {
  gmlake_offload_launch what;
  size_t i;
  if (w->opts->mock) {
    charge(w);
    gmlake_offload_mock_spend(w->backend, w->opts->launch_ns);
    wait_for_the_queue(w);
    w->failed |= gmlake_offload_mock_work(w->backend, w->stream, varied(w, op->time_ns), NULL,
                                          NULL) != GMLAKE_OFFLOAD_OK;
    return;
  }
  memset(&what, 0, sizeof what);
  what.graph = w->graph;
  what.op = w->info.op_order[position];
  what.iteration = w->iteration;
  what.desc = *op;
  for (i = 0; i < op->read_count; i++) ptrs[i] = w->ptrs[op->reads[i]];
  what.reads = ptrs;
  for (i = 0; i < op->write_count; i++) ptrs[op->read_count + i] = w->ptrs[op->writes[i]];
  what.writes = ptrs + op->read_count;
  w->failed |= standin_launch(&w->standin, &what, w->stream);
}

static int is_in(const uint32_t *ids, size_t count, uint32_t id) {
  size_t i;
  for (i = 0; i < count; i++)
    if (ids[i] == id) return 1;
  return 0;
}

static int is_freed(const world *w, uint32_t tensor, size_t position) {
  return w->last[tensor] == position && is_made(tensor_of(w, tensor).kind);
}

static void iterate(world *w) {
  uint32_t ids[4096];
  void *ptrs[4096];
  size_t position, i;
  call(w, gmlake_offload_session_mark(w->session));
  for (position = 0; position < w->info.op_count && !w->failed; position++) {
    gmlake_offload_op_desc op = op_of(w, position);
    if (op.read_count + op.write_count > 4096) w->failed = 1;
    if (w->failed) return;
    begin(w, op.reads, op.read_count, op.writes, op.write_count, op.time_ns, ids);
    for (i = 0; i < op.write_count; i++)
      if (w->first[op.writes[i]] == position && is_made(tensor_of(w, op.writes[i]).kind))
        make(w, op.writes[i]);
    if (!w->failed) launch(w, position, &op, ptrs);
    call(w, gmlake_offload_session_end(w->session));
    for (i = 0; i < op.read_count && !w->failed; i++)
      if (is_freed(w, op.reads[i], position)) unmake(w, op.reads[i]);
    for (i = 0; i < op.write_count && !w->failed; i++)
      if (is_freed(w, op.writes[i], position) && !is_in(op.reads, op.read_count, op.writes[i]))
        unmake(w, op.writes[i]);
  }
  if (w->opts->waits) finish(w);
  w->iteration++;
}

/* ---- Measuring ---- */

static double now_ms(const world *w) {
  struct timespec t;
  uint64_t ns = 0;
  if (w->opts->mock) {
    (void)w->backend->now(w->backend->user, &ns);
    return (double)ns / 1e6;
  }
  (void)clock_gettime(CLOCK_MONOTONIC, &t);
  return (double)t.tv_sec * 1e3 + (double)t.tv_nsec / 1e6;
}

static gmlake_offload_session_stats stats_of(const world *w) {
  gmlake_offload_session_stats stats;
  stats.struct_bytes = 0;
  (void)gmlake_offload_session_get_stats(w->session, &stats);
  return stats;
}

static void complain(const world *w) {
  gmlake_error_info lake_info;
  memset(&lake_info, 0, sizeof lake_info);
  if (w->lake) (void)gmlake_get_last_error(w->lake, &lake_info);
  fprintf(stderr, "iteration %llu failed: %s %s%s%s\n", (unsigned long long)w->iteration,
          gmlake_offload_result_name(w->error.result), w->error.text,
          lake_info.text[0] ? "; lake: " : "", lake_info.text);
}

/* Runs the iterations. Host waits are counted from the end of the settling ones on. */
static int measure(world *w, outcome *o) {
  gmlake_stats before, after;
  uint64_t i, waits, maps;
  double begin_ms;
  memset(&before, 0, sizeof before);
  memset(&after, 0, sizeof after);
  setup(w);
  for (i = 0; i < w->opts->settle && !w->failed; i++) {
    iterate(w);
    if (i == 0) finish(w); /* so that the second one may be planned */
  }
  finish(w);
  o->before = stats_of(w);
  waits = w->host_waits;
  maps = w->maps;
  (void)gmlake_get_stats(w->lake, &before);
  begin_ms = now_ms(w);
  for (i = 0; i < w->opts->iterations && !w->failed; i++) iterate(w);
  finish(w);
  o->ms = (now_ms(w) - begin_ms) / (double)w->opts->iterations;
  o->after = stats_of(w);
  o->host_waits = w->host_waits - waits;
  o->maps = (double)(w->maps - maps) / (double)w->opts->iterations;
  (void)gmlake_get_stats(w->lake, &after);
  o->peak = after.reserved_bytes_peak;
  o->calls =
      (double)(after.driver_call_count - before.driver_call_count) / (double)w->opts->iterations;
  o->driver_ms = (double)(after.driver_ns - before.driver_ns) / 1e6 / (double)w->opts->iterations;
  if (!w->opts->mock && !w->failed)
    w->failed |= standin_totals(&w->standin, o->totals, w->iteration, &o->wrong) != CUDA_SUCCESS;
  o->count = w->iteration;
  if (w->failed) complain(w);
  return !w->failed;
}

static int is_same(const outcome *a, const outcome *b) {
  return a->count == b->count && b->wrong == 0 &&
         memcmp(a->totals, b->totals, a->count * sizeof *a->totals) == 0;
}

static void print_row(const settings *opts, const char *name, const char *way, const outcome *o,
                      const outcome *none) {
  const gmlake_offload_session_stats *s = &o->after;
  double bound = (double)s->link_bound_ns / 1e6, n = (double)opts->iterations;
  double least = none->ms > bound ? none->ms : bound;
  printf(
      opts->json
          ? "{\"graph\":\"%s\",\"way\":\"%s\",\"chunk_mib\":%llu,\"lake_gb\":%.3f,"
            "\"round\":%.4f,\"ms\":%.3f,\"ratio\":%.4f,\"bound_ms\":%.3f,\"least_ms\":%.3f,"
            "\"out_gb\":%.3f,\"in_gb\":%.3f,\"demand_in\":%.2f,\"demand_out\":%.2f,"
            "\"drifts\":%.2f,\"plans\":%.2f,"
            "\"maps\":%.1f,\"calls\":%.1f,\"driver_ms\":%.3f,\"host_waits\":%llu,\"same\":\"%s\","
            "\"pinned_gb\":%.3f}\n"
          : "%-20s %-6s %3llu %8.3f %6.4f %9.3f %6.3f %8.3f %8.3f %7.3f %7.3f %6.1f %6.1f "
            "%5.2f %5.2f %7.1f %7.1f %7.3f %5llu  %s %.3f\n",
      name, way, (unsigned long long)opts->chunk_mib, (double)o->peak / 1e9, o->round, o->ms,
      o->ms / least, bound, (double)s->least_ns / 1e6, (double)s->plan_out_bytes / 1e9,
      (double)s->plan_in_bytes / 1e9, (double)(s->demand_in_count - o->before.demand_in_count) / n,
      (double)(s->demand_out_count - o->before.demand_out_count) / n,
      (double)(s->drift_count - o->before.drift_count) / n,
      (double)(s->plan_count - o->before.plan_count) / n, o->maps, o->calls, o->driver_ms,
      (unsigned long long)o->host_waits,
      opts->mock         ? "-"
      : is_same(none, o) ? "yes"
                         : "NO",
      (double)s->host_bytes_peak / 1e9);
  (void)fflush(stdout);
}

/* What whole chunks add at the peak of the graph's tensors of the session. */
static double rounding(const world *w) {
  size_t chunk = w->of.chunk_bytes, bytes = 0, rounded = 0, most = 0, most_rounded = 0, i, n;
  for (i = 0; i < w->info.op_count; i++) {
    gmlake_offload_op_desc op = op_of(w, i);
    size_t k;
    for (k = 0; k < 2; k++) {
      for (n = 0; n < (k ? op.read_count : 0) + op.write_count; n++) {
        uint32_t t = n < op.write_count ? op.writes[n] : op.reads[n - op.write_count];
        gmlake_offload_tensor_desc desc = tensor_of(w, t);
        size_t whole = (desc.bytes + chunk - 1) / chunk * chunk;
        if (desc.bytes < SMALL_BYTES || !is_made(desc.kind)) continue;
        if (k == 0 && w->first[t] == i) bytes += desc.bytes, rounded += whole;
        if (k == 1 && w->last[t] == i &&
            (n < op.write_count || !is_in(op.writes, op.write_count, t)))
          bytes -= desc.bytes, rounded -= whole;
      }
      if (rounded > most_rounded) most_rounded = rounded, most = bytes;
    }
  }
  for (i = 0; i < w->info.tensor_count; i++) {
    gmlake_offload_tensor_desc desc = tensor_of(w, (uint32_t)i);
    if (desc.bytes < SMALL_BYTES || is_made(desc.kind)) continue;
    most += desc.bytes;
    most_rounded += (desc.bytes + chunk - 1) / chunk * chunk;
  }
  return most ? (double)most_rounded / (double)most : 1;
}

static int run_way(const settings *opts, const gmlake_offload_graph *graph, size_t lake_bytes,
                   size_t session_bytes, outcome *o) {
  world w;
  int ok;
  memset(o, 0, sizeof *o);
  ok = open_world(&w, opts, graph, lake_bytes, session_bytes);
  if (!ok) fprintf(stderr, "the device, the lake or the session could not be opened\n");
  ok = ok && measure(&w, o);
  if (ok) o->round = rounding(&w);
  close_world(&w);
  return ok;
}

/* ---- Recorded calls ---- */

typedef struct player {
  world *w;
  const calls *c;
  uint32_t *ids;     /* the session's numbers by those of the recording */
  uint32_t *named;   /* by the step that begins */
  uint64_t *regions; /* as ids */
  size_t region_count;
  uint64_t due_ns; /* of the open step, which is not launched yet */
  int is_due;
  void *stream; /* of it */
  uint64_t us, steps, steps_ns, driver_ns, maps;
  double ms;
  gmlake_offload_session_stats stats;
} player;

static void *stream_of(uint64_t number) {
  static char streams[CALL_STREAMS];
  return &streams[number];
}

/* The open step runs: behind what it allocates, before anything is freed. */
static void play_step(player *p) {
  world *w = p->w;
  if (!p->is_due) return;
  p->is_due = 0;
  charge(w);
  gmlake_offload_mock_spend(w->backend, w->opts->launch_ns);
  wait_for_the_queue(w);
  w->failed |=
      gmlake_offload_mock_work(w->backend, p->stream, p->due_ns, NULL, NULL) != GMLAKE_OFFLOAD_OK;
}

static void play_begin(player *p, size_t i, const uint64_t *n, size_t count) {
  gmlake_offload_step step;
  size_t k;
  memset(&step, 0, sizeof step);
  for (k = 3; k < count; k++) p->named[k - 3] = p->ids[n[k]];
  step.key = n[0];
  p->stream = p->w->stream = step.stream = stream_of(n[1]);
  step.reads = p->named;
  step.read_count = (size_t)n[2];
  step.writes = p->named + n[2];
  step.write_count = count - 3 - (size_t)n[2];
  call(p->w, gmlake_offload_session_begin(p->w->session, &step));
  p->is_due = 1;
  p->due_ns = p->c->step_ns[i];
  p->steps++;
  p->steps_ns += p->due_ns;
}

/* What the iteration took that ends here; the first one is what came before the first mark. */
static void play_row(player *p, uint64_t us) {
  world *w = p->w;
  gmlake_offload_session_stats s;
  gmlake_stats lake;
  double ms;
  finish(w);
  ms = now_ms(w);
  s = stats_of(w);
  memset(&lake, 0, sizeof lake);
  (void)gmlake_get_stats(w->lake, &lake);
  printf(w->opts->json
             ? "{\"iteration\":%llu,\"steps\":%llu,\"ms\":%.3f,\"recorded_ms\":%.3f,"
               "\"steps_ms\":%.3f,\"out_gb\":%.3f,\"in_gb\":%.3f,\"demand_in\":%llu,"
               "\"demand_out\":%llu,\"drifts\":%llu,\"plans\":%llu,\"maps\":%llu,"
               "\"driver_ms\":%.3f,\"device_gb\":%.3f,\"mode\":%d,\"peak_gb\":%.3f,"
               "\"pinned_gb\":%.3f,\"bound_ms\":%.3f,\"least_ms\":%.3f}\n"
             : "%5llu %7llu %9.1f %9.1f %9.1f %8.3f %8.3f %6llu %6llu %5llu %5llu %7llu %8.2f "
               "%8.3f %d\n",
         (unsigned long long)w->iteration, (unsigned long long)p->steps, ms - p->ms,
         (double)(us - p->us) / 1e3, (double)p->steps_ns / 1e6,
         (double)(s.out_bytes - p->stats.out_bytes) / 1e9,
         (double)(s.in_bytes - p->stats.in_bytes) / 1e9,
         (unsigned long long)(s.demand_in_count - p->stats.demand_in_count),
         (unsigned long long)(s.demand_out_count - p->stats.demand_out_count),
         (unsigned long long)(s.drift_count - p->stats.drift_count),
         (unsigned long long)(s.plan_count - p->stats.plan_count),
         (unsigned long long)(w->maps - p->maps), (double)(lake.driver_ns - p->driver_ns) / 1e6,
         (double)s.device_bytes / 1e9, (int)s.mode, (double)s.device_bytes_peak / 1e9,
         (double)s.host_bytes_peak / 1e9, (double)s.link_bound_ns / 1e6, (double)s.least_ns / 1e6);
  (void)fflush(stdout);
  w->iteration++;
  p->stats = s;
  p->ms = ms;
  p->us = us;
  p->steps = p->steps_ns = 0;
  p->driver_ns = lake.driver_ns;
  p->maps = w->maps;
}

static void play_region(player *p) {
  int is_kept = 0;
  uint64_t region = 0;
  call(p->w, gmlake_offload_session_region(p->w->session, &region, &is_kept));
  p->regions[p->region_count++] = region;
}

static void play_call(player *p, size_t i) {
  const one_call *one = &p->c->calls[i];
  const uint64_t *n = p->c->numbers + one->numbers;
  gmlake_offload_session *s = p->w->session;
  void *ptr;
  size_t given;
  const int is_region =
      one->what == CALL_REGION || one->what == CALL_AGAIN || one->what == CALL_REGION_END;
  if (one->what != CALL_ALLOC && one->what != CALL_PIN && one->what != CALL_UNPIN) play_step(p);
  if (is_region && p->w->opts->repeat != 0) return; /* what it decides these calls do not follow */
  switch (one->what) {
  case CALL_LIMIT:
    if (p->w->opts->limit_mib == 0) call(p->w, gmlake_offload_session_set_limit(s, (size_t)n[0]));
    return;
  case CALL_ALLOC:
    call(p->w, gmlake_offload_session_alloc(s, (size_t)n[1], stream_of(n[2]), &p->ids[n[0]], &ptr));
    return;
  case CALL_FREE:
    call(p->w, gmlake_offload_session_free(s, p->ids[n[0]], stream_of(n[1])));
    return;
  case CALL_BEGIN:
    play_begin(p, i, n, one->count);
    return;
  case CALL_END:
    call(p->w, gmlake_offload_session_end(s));
    return;
  case CALL_MARK:
    play_row(p, one->us);
    call(p->w, gmlake_offload_session_mark(s));
    return;
  case CALL_PIN:
    call(p->w, gmlake_offload_session_pin(s, p->ids[n[0]], stream_of(n[1])));
    return;
  case CALL_UNPIN:
    call(p->w, gmlake_offload_session_unpin(s, p->ids[n[0]], stream_of(n[1])));
    return;
  case CALL_HOLD:
    call(p->w, gmlake_offload_session_hold(s, n[0] != 0));
    return;
  case CALL_ROOM:
    call(p->w, gmlake_offload_session_make_room(s, (size_t)n[0], &given));
    return;
  case CALL_REGION:
    play_region(p);
    return;
  case CALL_AGAIN:
    call(p->w, gmlake_offload_session_recompute(
                   s, n[0] != 0 && n[0] <= p->region_count ? p->regions[n[0] - 1] : 0));
    return;
  case CALL_REGION_END:
    call(p->w, gmlake_offload_session_region_end(s, (size_t)n[0]));
    return;
  default:
    return; /* a time, which was read before, or what others need */
  }
}

/* Plays the iteration once more, with the tensors that there are now. 0: out of memory. */
static int play_once_more(player *p, const again *a) {
  uint32_t *ids = (uint32_t *)calloc(p->c->tensors + 1, sizeof *ids);
  size_t i;
  if (!ids) return 0;
  memcpy(ids, p->ids, p->c->tensors * sizeof *ids);
  for (i = 0; i < p->c->tensors; i++)
    if (a->partner[i] != UINT32_MAX) p->ids[i] = ids[a->partner[i]];
  free(ids);
  p->region_count = a->regions;
  p->us = p->c->calls[a->from].us;
  for (i = a->from + 1; i <= a->to && !p->w->failed; i++) play_call(p, i);
  return 1;
}

/* All calls, and then the last iteration so many times more. */
static int play(world *w, const calls *c, uint64_t repeat, const again *a) {
  player p;
  size_t i, end = repeat ? a->to + 1 : c->count;
  memset(&p, 0, sizeof p);
  p.w = w;
  p.c = c;
  p.ids = (uint32_t *)calloc(c->tensors + 1, sizeof *p.ids);
  p.named = (uint32_t *)calloc(c->most_numbers + 1, sizeof *p.named);
  p.regions = (uint64_t *)calloc(c->count + 1, sizeof *p.regions);
  if (p.ids == NULL || p.named == NULL || p.regions == NULL) w->failed = 1;
  p.stats = stats_of(w);
  for (i = 0; i < end && !w->failed; i++) play_call(&p, i);
  for (; repeat && !w->failed; repeat--) w->failed |= !play_once_more(&p, a);
  if (w->failed) complain(w);
  if (!w->failed && end == c->count && c->count) play_row(&p, c->calls[c->count - 1].us);
  free(p.ids);
  free(p.named);
  free(p.regions);
  return !w->failed;
}

static int is_recorded(const char *path) { return strstr(path, ".gmcalls") != NULL; }

static int run_calls(const settings *opts, const char *path) {
  char error[300] = "out of memory";
  calls c;
  again a = {0, 0, 0, NULL};
  world w;
  settings on_mock = *opts;
  size_t limit = opts->limit_mib * MIB;
  int ok = calls_read(&c, path, error, sizeof error) && calls_time_steps(&c);
  const char *why = ok && opts->repeat ? calls_again(&c, &a) : NULL;
  if (why) snprintf(error, sizeof error, "%.100s: %s", path, why);
  ok = ok && !why;
  if (!ok) fprintf(stderr, "%s\n", error);
  on_mock.mock = 1;
  if (ok) {
    if (!opts->json)
      printf(
          "%s, on the mock\n    #   steps        ms  recorded     steps   out GB    in GB "
          "demand in, out drift plans   maps calls ms session GB mode\n",
          path);
    ok = open_world(&w, &on_mock, NULL, 0, limit) && play(&w, &c, opts->repeat, &a);
    close_world(&w);
  }
  free(a.partner);
  calls_close(&c);
  return ok;
}

static int run_graph(const settings *opts, const char *path) {
  char error[300], name[64];
  outcome none, o;
  size_t small, limit, chunk = opts->chunk_mib * MIB;
  gmlake_offload_graph *graph = graph_open(path, opts->divide, error, sizeof error);
  int ok;
  if (!graph) {
    fprintf(stderr, "%s\n", error);
    return 0;
  }
  graph_name(path, name, sizeof name);
  ok = run_way(opts, graph, 0, 0, &none);
  if (ok) {
    print_row(opts, name, "none", &none, &none);
    small = none.peak > none.after.device_bytes_peak ? none.peak - none.after.device_bytes_peak : 0;
    limit = (size_t)(opts->part * (double)none.peak) / chunk * chunk;
    ok = limit > small && run_way(opts, graph, limit, limit - small, &o);
    if (ok) print_row(opts, name, "part", &o, &none);
  }
  gmlake_offload_graph_destroy(graph);
  return ok;
}

static void print_heading(const settings *opts) {
  printf(
      "on %s\ngraph                way    MiB  lake GB  round        ms  ratio bound ms least ms "
      " out "
      "GB   in GB  demand in, out drift plans   maps   calls calls ms waits same pinned GB\n",
      opts->mock ? "the mock" : "the GPU");
}

int main(int argc, char **argv) {
  static const char *const names[] = {"bench/graphs/resnet50-b64.gmgraph.gz",
                                      "bench/graphs/llama-7b-lora-b8-1k.gmgraph.gz"};
  settings opts = {0, 0, 0, 0, 0, 10, 6, 16, 16, 1, 5000, 1024, 0, 0, 0, 0, .6, 0};
  const option_row rows[] = {
      {"json", OPTION_FLAG, &opts.json, 0, 0, NULL, "print one JSON object a row"},
      {"mock", OPTION_FLAG, &opts.mock, 0, 0, NULL, "on a mock's clock, also where there is a GPU"},
      {"gpu", OPTION_FLAG, &opts.gpu, 0, 0, NULL, "without a GPU only say so"},
      {"busy", OPTION_FLAG, &opts.busy, 0, 0, NULL,
       "the mock's calls take what they took in torch's programs, among others"},
      {"wait", OPTION_FLAG, &opts.waits, 0, 0, NULL,
       "behind each iteration the program waits for the device, and so for copies"},
      {"iterations", OPTION_COUNT, &opts.iterations, 1, 200, "N",
       "measure N iterations; default 10"},
      {"settle", OPTION_COUNT, &opts.settle, 2, 50, "N", "run N before these; default 6"},
      {"chunk-mib", OPTION_POWER, &opts.chunk_mib, 2, 512, "N", "chunks of N MiB; default 16"},
      {"small-mib", OPTION_COUNT, &opts.small_mib, 1, 512, "N",
       "tensors below N MiB are blocks of the lake"},
      {"divide", OPTION_COUNT, &opts.divide, 1, 1 << 20, "N",
       "divide the sizes and times of graphs by N; default 1"},
      {"launch-ns", OPTION_COUNT, &opts.launch_ns, 0, 1e9, "N",
       "the mock's host takes N ns for each operator; default 5000"},
      {"ahead", OPTION_COUNT, &opts.ahead, 1, 1 << 20, "N",
       "the mock's host is at most N operators ahead; default 1024"},
      {"tries", OPTION_COUNT, &opts.tries, 0, 1e6, "N", "plans to try; default: the planner's"},
      {"vary", OPTION_COUNT, &opts.vary, 0, 90, "PERCENT",
       "the mock's operators, and what they make, are up to PERCENT smaller, all of an iteration "
       "by the same"},
      {"limit-mib", OPTION_COUNT, &opts.limit_mib, 0, 1 << 24, "N",
       "play recorded calls with this limit; default: the limits that the session had"},
      {"repeat", OPTION_COUNT, &opts.repeat, 0, 1000, "N",
       "play the last whole iteration of recorded calls N times more; regions are not told"},
      {"link-gb", OPTION_NUMBER, &opts.link, 0, 1e6, "GB",
       "the mock's link moves GB/s in each direction; default: an H200's, 55"},
      {"part", OPTION_NUMBER, &opts.part, .01, 1, "PART",
       "run in PART of the memory that the lake holds without a limit; default .6"}};
  const option_reader reader = {
      "offload_session",         "[OPTION]... [GRAPH]...", about, columns, rows,
      sizeof rows / sizeof *rows};
  int first = options_read(&reader, argc, argv), i, ok = 1, count = 0;
  CUcontext context = NULL;
  if (!opts.mock &&
      (!gpu_open(&gpu, "libcuda.so.1") || gpu.cuInit(0) || gpu.cuDeviceGetCount(&count) || !count))
    opts.mock = 1;
  if (opts.mock && opts.gpu) {
    printf("skipped: no GPU\n");
    return 0;
  }
  if (!opts.mock && (gpu.cuDevicePrimaryCtxRetain(&context, 0) || gpu.cuCtxSetCurrent(context))) {
    fprintf(stderr, "the device has no context\n");
    return 1;
  }
  if (!opts.json && !(first < argc && is_recorded(argv[first]))) print_heading(&opts);
  for (i = first; i < argc; i++)
    ok &= is_recorded(argv[i]) ? run_calls(&opts, argv[i]) : run_graph(&opts, argv[i]);
  for (i = 0; first == argc && i < 2; i++) ok &= run_graph(&opts, names[i]);
  if (context) (void)gpu.cuDevicePrimaryCtxRelease(0);
  return ok ? 0 : 1;
}
