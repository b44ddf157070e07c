/* gmlake_offload.h's CUDA backend over the driver without a device (cuda_machine.h): plans and
   memgraphs give the bytes of a run that moves nothing, in steady state the driver is asked for
   nothing new, and whatever call fails, nothing stays behind. */
#define _GNU_SOURCE
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#include "memgraphs.h"

#include <cuda.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "gpu/fake_cuda.h"
#include "gpu.h"
#include "offload/standin.h"

#define GRAPHS_DEVICE "cuda_machine.h"
#include "graphs.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif

/* ---- Rows ------------------------------------------------------------------------------------ */

/* Some layers forth and back, with weights w and state m. */
#define LAYERS(count)                                                                         \
  "w=300k+4bp k0=40ki m=500kp [" count " k#,w>k#+1=200k+#6b:30 ] k" count ">g=37b:20 [" count \
  " k~+1,g>g:40 ] g,m>m:25 m,w>w:25 "
#define PLANNED "{overhead:.5 min:1b} " LAYERS("8") "plan plan_peak<.75*peak "

static const row rows[] = {
    /* The same bytes with any plan, limit, depth and delay, from cuMemAlloc or the caller's
       memory. */
    {"plans", PLANNED "{ahead:(0|1|2|3|0|1) jobs:(1|2|1|2|1|2) limit:plan_peak*(1|2|1|2|1|2) "
                      "jitter:.0(0|1|2|3|4|5) device:(512|0|512|0|512|0)} run:4 outs>0 ins>0 "
                      "device_peak<=plan_peak*(1|2|1|2|1|2)"},
    {"no_plan",
     PLANNED "{unplanned:1 jobs:(1|2) limit:plan_peak*(1|2) jitter:.0(6|7)} run:4 outs>0 "
             "ins>0 device_peak<=plan_peak*(1|2)"},
    {"no_limit", PLANNED "{ahead:1 jobs:2 jitter:.05} run:4"},
    {"a_refusal_is_a_limit",
     PLANNED "{ahead:(2|3) jobs:(1|2) device:plan_peak*(1|2) jitter:.0(8|9)} run:4 outs>0 ins>0"},
    /* In any order, on one stream and on several. */
    {"memgraphs",
     LAYERS("8") "seal {tight align:512b reload:1 alloc:1} compile offloads>0 reloads>0 "
                 "{order:(0|1|3|0|1|3) streams:(1|1|1|2|2|3) "
                 "jitter:.0(0|1|2|3|4|5)} execute:4"},
    /* Of operators a stand-in knows one at a time on a device. */
    {"memgraphs_of_two_devices",
     "{tight reload:1 alloc:1} random:(3|4|5|9|10|11),60,2 compile {order:(0|1|3|0|1|3) "
     "streams:(1|1|2|2|3|3) ahead:2 jitter:.0(0|1|2|3|4|5) device:(512|0|512|0|512|0)} execute:4"},
    /* Peers that cannot be enabled cost no bytes; tensors that nobody fills are zeros. */
    {"odd_devices_give_the_same_bytes",
     "random:(3|4|5|9),60,2 odd:(4|4|5|5) {tight jitter:.01} compile execute:4"},
    /* After some iterations no stream, event or pinned piece more is asked for. */
    {"steady_state_asks_for_nothing",
     PLANNED "{ahead:3 limit:plan_peak jitter:.01} run:10 odd:(1|2|3) run:10"},
};

static const row fault_rows[] = {
    {"runs", LAYERS("2") "seal {limit:op_most ahead:2 device:(0|512)} faults run:2"},
    {"memgraphs", LAYERS("2") "seal {tight} faults compile {ahead:(0|2) device:(512|0)} execute:2"},
    {"memgraphs_of_two_devices",
     "random:(3|4),12,2 {tight} faults compile {ahead:(0|2) device:(512|0)} execute:2"},
};
#define ROWS (sizeof(rows) / sizeof(rows[0]))
#define FAULT_ROWS (sizeof(fault_rows) / sizeof(fault_rows[0]))

static void a_row(void **state) { play_row(state, &graphs, NULL); }
static void whatever_fails(void **state) { play_row(state, &graphs, play_faults); }

/* Where nothing can be asked about any more, what is under way ends before its memory goes. */
CASE(questions_fail_for_good) {
  unsigned n;
  for (n = 1; n < 40; n++)
    play_text(LAYERS("2") "seal odd:%u {limit:op_most jobs:2 ahead:3 device:512 jitter:.%02u} "
                          "run:2!B",
              ODD_QUERIES + n, n);
}

/* Where there is not room for all of them on the device. */
CASE(tensors_begin_as_zeros) {
  zero_sides = 0;
  play_text(LAYERS("2") "seal odd:%d {limit:600k jitter:.02} run:0", ODD_ZEROS);
  assert_int_equal(zero_sides, 3);
}

/* ---- What lines cannot say ------------------------------------------------------------------- */

static fake_cuda_census fake_census(void) {
  fake_cuda_census census;
  control->get_census(&census);
  return census;
}

/* What Linux says is available. */
static size_t available_bytes(void) {
  FILE *file = fopen("/proc/meminfo", "r");
  char line[256];
  size_t kib = 0;
  while (file && !kib && fgets(line, sizeof line, file))
    (void)sscanf(line, "MemAvailable: %zu kB", &kib);
  if (file) (void)fclose(file);
  return kib << 10;
}

static void assert_nothing_left(size_t resting) {
  const fake_cuda_census census = fake_census();
  assert_int_equal(census.streams + census.events + census.modules + census.hosts, 0);
  assert_int_equal(census.allocations + census.pending + census.retains + census.pushed, 0);
  assert_int_equal(host_bytes, resting);
}

/* Pieces of pinned memory do not overlap, and join again: one segment serves them all. */
CASE(pinned_memory_is_used_again) {
  enum { PIECES = 64 };
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  char *ptrs[PIECES] = {NULL};
  size_t sizes[PIECES], i, n, round;
  void *all, *more, *none;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.host_bytes = (size_t)255 << 20;
  desc.host_bytes_max = (size_t)600 << 20;
  desc.launch_fn = device_launch;
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(fake_census().hosts, 1);
  random_state = 7;
  for (round = 0; round < 3000; round++) {
    i = random_below(PIECES);
    if (ptrs[i]) {
      for (n = 0; n < sizes[i]; n += 512) assert_int_equal(ptrs[i][n], (char)i);
      backend->host_free(backend->user, ptrs[i], sizes[i]);
      ptrs[i] = NULL;
      continue;
    }
    sizes[i] = 1 + random_below(100000);
    assert_int_equal(backend->host_alloc(backend->user, sizes[i], (void **)&ptrs[i]), 0);
    memset(ptrs[i], (int)i, sizes[i]);
  }
  for (i = 0; i < PIECES; i++) {
    if (ptrs[i]) backend->host_free(backend->user, ptrs[i], sizes[i]);
  }
  assert_int_equal(backend->host_alloc(backend->user, (size_t)256 << 20, &all), 0);
  assert_int_equal(fake_census().hosts, 1);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(fake_census().hosts, 2);
  assert_int_equal(backend->host_alloc(backend->user, SIZE_MAX, &none), 1);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)45 << 20, &none),
                   1); /* 44 are left */
  backend->host_free(backend->user, all, (size_t)256 << 20);
  backend->host_free(backend->user, more, (size_t)300 << 20); /* segments stay apart */
  assert_int_equal(backend->host_alloc(backend->user, (size_t)256 << 20, &all), 0);
  assert_int_equal(backend->host_alloc(backend->user, (size_t)300 << 20, &more), 0);
  assert_int_equal(fake_census().hosts, 2);
  gmlake_offload_cuda_destroy(backend);
  gmlake_offload_cuda_destroy(NULL);
  assert_nothing_left(0);
}

/* Pinned memory is the backend's own pages, which a child has not; where the driver does not take
   these it is the driver's. At most so much is pinned: half of what the host has, if none is
   said. */
CASE(pinned_memory_is_registered) {
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  int is_refused, status;
  for (is_refused = 0; is_refused < 2; is_refused++) {
    void *ptr, *more;
    pid_t child;
    start_fake(0, 0);
    memset(&desc, 0, sizeof desc);
    desc.host_bytes_max = 20 * MIB;
    if (is_refused) control->fail_function("cuMemHostRegister_v2", 1, CUDA_ERROR_NOT_SUPPORTED, 0);
    assert_ok(gmlake_offload_cuda_create(&desc, &backend));
    assert_int_equal(backend->host_alloc(backend->user, 3 * MIB, &ptr), 0);
    assert_int_equal(backend->host_alloc(backend->user, 13 * MIB, &more), 0);
    assert_int_equal(fake_census().hosts, 1);
    memset(ptr, 1, 3 * MIB);
    child = fork();
    if (child == 0) {
      (void)signal(SIGSEGV, SIG_DFL);
      _exit(((volatile char *)ptr)[5] != 1);
    }
    assert_int_equal(waitpid(child, &status, 0), child);
    assert_int_equal(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV, !is_refused);
    assert_int_equal(backend->host_alloc(backend->user, 5 * MIB, &ptr), 1); /* 4 are left */
    assert_int_equal(backend->host_alloc(backend->user, 4 * MIB, &ptr), 0);
    assert_int_equal(fake_census().hosts, 2);
    gmlake_offload_cuda_destroy(backend);
    assert_nothing_left(0);
  }
  desc.host_bytes_max = 0;
  start_fake(0, 0);
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(backend->host_alloc(backend->user, available_bytes() / 4 * 3, &desc.user), 1);
  gmlake_offload_cuda_destroy(backend);
}

/* Half of the host's memory by default, but never less than what is pinned at create. */
CASE(what_is_pinned_at_create_is_allowed) {
  gmlake_offload_cuda_desc desc;
  memset(&desc, 0, sizeof desc);
  assert_int_equal(gmlo_pinned_max(&desc, 24 * MIB), 12 * MIB);
  assert_int_equal(gmlo_pinned_max(&desc, 0), SIZE_MAX / 2);
  desc.host_bytes = 13 * MIB;
  assert_int_equal(gmlo_pinned_max(&desc, 24 * MIB), 13 * MIB);
  assert_int_equal(gmlo_pinned_max(&desc, 0), SIZE_MAX / 2);
  desc.host_bytes_max = 14 * MIB;
  assert_int_equal(gmlo_pinned_max(&desc, 24 * MIB), 14 * MIB);
}

/* The limit of a container, which is not in what the system has. */
CASE(a_container_limits_pinned_memory) {
  assert_int_equal(gmlo_host_left(4 * MIB, SIZE_MAX, SIZE_MAX), 4 * MIB); /* no file, or "max" */
  assert_int_equal(gmlo_host_left(4 * MIB, SIZE_MAX, 77), 4 * MIB);
  assert_int_equal(gmlo_host_left(4 * MIB, 3 * MIB, MIB), 2 * MIB);
  assert_int_equal(gmlo_host_left(4 * MIB, 3 * MIB, 3 * MIB + 1), 2); /* 0 would be no limit */
  assert_int_equal(gmlo_host_left(0, 3 * MIB, MIB), 0);
}

/* A divided copy to the host has gaps, where they are not refused. When a part is refused those
   before it have ended. */
CASE(copies_to_the_host_are_divided) {
  enum { BYTES = 20 * MIB };
  gmlake_offload_copy copy = {0, 0, NULL, NULL, BYTES, 1};
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  uint64_t calls[3], before;
  void *from, *to;
  int way;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  assert_int_equal(backend->device_alloc(backend->user, 0, BYTES, &copy.device_ptr), 0);
  assert_int_equal(backend->host_alloc(backend->user, BYTES, &from), 0);
  assert_int_equal(backend->host_alloc(backend->user, BYTES, &to), 0);
  memset(from, 7, BYTES);
  copy.host_ptr = from;
  assert_int_equal(backend->copy(backend->user, &copy, backend->out_stream), 0);
  copy.host_ptr = to;
  copy.to_host = 1;
  for (way = 0; way < 3; way++) { /* whole, divided, divided in vain */
    copy.is_divided = way != 0;
    if (way == 2) control->fail_function("cuMemsetD8Async", 1, CUDA_ERROR_NOT_SUPPORTED, 0);
    memset(to, 1, BYTES);
    before = control->calls();
    assert_int_equal(backend->copy(backend->user, &copy, backend->out_stream), 0);
    calls[way] = control->calls() - before;
    assert_int_equal(backend->stream_sync(backend->user, backend->out_stream), 0);
    assert_memory_equal(from, to, BYTES);
  }
  assert_int_equal(calls[1], calls[0] + 4); /* three parts, two gaps; */
  assert_int_equal(calls[2], calls[0] + 5); /* and one behind the last copy's 4 MiB */
  control->fail_function("cuMemcpyDtoHAsync_v2", 2, CUDA_ERROR_UNKNOWN, 0);
  assert_int_equal(backend->copy(backend->user, &copy, backend->out_stream), 1);
  assert_int_equal(fake_census().pending, 0);
  gmlake_offload_cuda_destroy(backend);
}

/* What was queued has ended before its memory goes. */
CASE(work_ends_with_its_backend) {
  gmlake_offload_copy copy = {0, 1, NULL, NULL, 4096, 0};
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  unsigned seed;
  for (seed = 1; seed < 9; seed++) {
    start_fake(seed, 0);
    memset(&desc, 0, sizeof desc);
    assert_ok(gmlake_offload_cuda_create(&desc, &backend));
    assert_int_equal(backend->device_alloc(backend->user, 0, 4096, &copy.device_ptr), 0);
    assert_int_equal(backend->host_alloc(backend->user, 4096, &copy.host_ptr), 0);
    assert_int_equal(backend->copy(backend->user, &copy, backend->out_stream), 0);
    gmlake_offload_cuda_destroy(backend);
    assert_int_equal(fake_census().pending, 0);
  }
}

CASE(wrong_descriptions_are_refused) {
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  fake_cuda_options none;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  assert_error(gmlake_offload_cuda_create(NULL, &backend), INVALID_ARGUMENT);
  assert_error(gmlake_offload_cuda_create(&desc, NULL), INVALID_ARGUMENT);
  desc.launch_fn = device_launch;
  desc.alloc_fn = device_take;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.alloc_fn = NULL;
  desc.host.free_fn = host_free;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.host.free_fn = NULL;
  desc.host_bytes = 2;
  desc.host_bytes_max = 1;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.host_bytes = desc.host_bytes_max = SIZE_MAX;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  desc.host_bytes = desc.host_bytes_max = 0;
  desc.device = -1;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device = 1; /* there is one device */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
  memset(&none, 0, sizeof none);
  none.device_count = -1;
  control->reset(&none);
  desc.device = 0;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
}

/* There a copy on the host takes as much memory as the tensor did, and nothing is pinned for it. */
CASE(integrated_devices_are_refused) {
  static const int devices[] = {1, 0};
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  fake_cuda_options one;
  const size_t resting = host_bytes;
  int is_several;
  memset(&one, 0, sizeof one);
  one.integrated = 1;
  one.device_count = 2;
  for (is_several = 0; is_several < 2; is_several++) {
    control->reset(&one);
    memset(&desc, 0, sizeof desc);
    desc.host = counted;
    desc.host_bytes = 1;
    desc.devices = is_several ? devices : NULL;
    desc.device_count = is_several ? 2 : 0;
    assert_error(gmlake_offload_cuda_create(&desc, &backend), UNSUPPORTED);
    assert_null(backend);
    assert_int_equal(fake_census().hosts, 0);
    assert_nothing_left(resting);
    desc.allow_integrated = 1;
    assert_ok(gmlake_offload_cuda_create(&desc, &backend));
    assert_int_equal(fake_census().hosts, 1);
    gmlake_offload_cuda_destroy(backend);
    control->fail_function("cuDeviceGetAttribute", 1, CUDA_ERROR_INVALID_VALUE, 0);
    assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
    assert_nothing_left(resting);
  }
}

CASE(wrong_devices_are_refused) {
  static const int devices[] = {0, 1, -1};
  gmlake_offload_memgraph *m;
  gmlake_offload_graph *graph = memgraph_of("random:3,12,2 compile", MIB, &m);
  gmlake_offload_run_desc run_desc;
  gmlake_offload_run *run;
  uint32_t job;
  gmlake_offload_cuda_desc desc;
  gmlake_offload_backend *backend;
  size_t resting = host_bytes;
  start_fake(0, 0);
  memset(&desc, 0, sizeof desc);
  desc.host = counted;
  desc.launch_fn = device_launch;
  desc.device_count = 1;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.devices = devices;
  desc.device_count = 0;
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device_count = 3; /* the last one is -1 */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), INVALID_ARGUMENT);
  desc.device_count = 2; /* there is one */
  assert_error(gmlake_offload_cuda_create(&desc, &backend), BACKEND);
  assert_null(backend);
  assert_nothing_left(resting);
  desc.device_count = 1; /* the graph has two */
  assert_ok(gmlake_offload_cuda_create(&desc, &backend));
  memset(&run_desc, 0, sizeof run_desc);
  run_desc.backend = backend;
  assert_ok(gmlake_offload_run_create(&run_desc, &run));
  assert_error(gmlake_offload_run_add_memgraph(run, m, &job), OUT_OF_DEVICE_MEMORY);
  gmlake_offload_run_destroy(run);
  gmlake_offload_cuda_destroy(backend);
  assert_nothing_left(resting);
  gmlake_offload_memgraph_destroy(m);
  gmlake_offload_graph_destroy(graph);
}

int main(void) {
  size_t i;
  if (!gpu_open(&gpu, BUILD "/fake/libcuda.so.1")) {
    fprintf(stderr, "%s\n", dlerror());
    return 1;
  }
  control = (const fake_cuda_control *)dlsym(gpu.library, "fake_cuda_control");
  if (!control) return 1;
  for (i = 0; i < ROWS; i++) add_case(rows[i].name, a_row, &rows[i]);
  for (i = 0; i < FAULT_ROWS; i++) add_case(fault_rows[i].name, whatever_fails, &fault_rows[i]);
  return run_cases("offload_cuda");
}
