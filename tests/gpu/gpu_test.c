/* What gpu_play cannot say of a GPU, through the machine's own driver: what the driver refuses,
   what its calls cost, two threads, a device that is full, that is lost, that others reach. Each
   case runs in a process of its own, so that none takes another down. With
   build/fake/libcuda.so.1 as the driver the same cases run, smaller, without a device. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#include "gmlake.h"

#include "gpu.h"
#include "gpu_fixture.h"
#include "gpu_costs.h"
#include "gpu_misuse.h"
#include "options.h"

/* ---- Another thread at work while a stream is captured --------------------------------------- */

#define WORKER_BLOCKS 12

typedef struct worker {
  gmlake *lake;
  CUstream streams[2];
  size_t step_count; /* shared */
  int stops;         /* shared */
} worker;

/* Blocks of two streams come and go, each filled and verified, in memory that is short. */
static void *work(void *user) {
  worker *w = (worker *)user;
  void *ptrs[WORKER_BLOCKS] = {NULL};
  size_t bytes[WORKER_BLOCKS], i, at;
  uint64_t random = options.seed;
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  for (i = 0; !__atomic_load_n(&w->stops, __ATOMIC_ACQUIRE); i++) {
    CUstream stream = w->streams[at = i % WORKER_BLOCKS, at % 2];
    if (ptrs[at]) {
      spin_on(stream, MS_NS / 5); /* so that work is pending */
      verify_on(stream, ptrs[at], bytes[at], (uint32_t)at);
      ok(gmlake_free(w->lake, ptrs[at], stream));
    }
    bytes[at] = random_bytes(&random, CHUNK / 2, 3 * CHUNK);
    ptrs[at] = take(w->lake, bytes[at], stream);
    fill_on(stream, ptrs[at], bytes[at], (uint32_t)at);
    if (i % 25 == 0) ok(gmlake_trim(w->lake, WORKER_BLOCKS * CHUNK, NULL));
    __atomic_store_n(&w->step_count, i + 1, __ATOMIC_RELEASE);
  }
  for (at = 0; at < WORKER_BLOCKS; at++)
    if (ptrs[at]) ok(gmlake_free(w->lake, ptrs[at], w->streams[at % 2]));
  return NULL;
}

/* Waits until the worker has come so much further. */
static void await_worker(worker *w, size_t steps) {
  const size_t until = __atomic_load_n(&w->step_count, __ATOMIC_ACQUIRE) + steps;
  while (__atomic_load_n(&w->step_count, __ATOMIC_ACQUIRE) < until) (void)usleep(100);
}

/* The other thread's calls do not spoil the capture, and its memory is not the graph's. */
static void capture_beside(worker *w, gmlake_pool *pool, CUstream stream, CUgraphExec *exec) {
  CUgraph graph = NULL;
  void *ptr;
  size_t i;
  ok(gmlake_capture_begin(w->lake, stream, pool));
  cu(rig.gpu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (i = 0; i < 40; i++) {
    ptr = take(w->lake, MIB, stream);
    fill_on(stream, ptr, MIB, (uint32_t)i);
    await_worker(w, 10);
    verify_on(stream, ptr, MIB, (uint32_t)i);
    ok(gmlake_free(w->lake, ptr, stream));
  }
  cu(rig.gpu.cuStreamEndCapture(stream, &graph));
  ok(gmlake_capture_end(w->lake, stream));
  cu(rig.gpu.cuGraphInstantiateWithFlags(exec, graph, 0));
  cu(rig.gpu.cuGraphDestroy(graph));
}

static void case_other_thread(void) {
  static worker w;
  gmlake_desc desc = small_chunks((3 * WORKER_BLOCKS + 4) * CHUNK);
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  gmlake_stats before, after;
  CUgraphExec exec = NULL;
  gmlake_pool *pool;
  pthread_t thread;
  size_t i;
  desc.cross_stream = GMLAKE_WAIT_FIRST; /* so that streams wait for each other, too */
  w.lake = new_lake(&desc);
  pool = new_pool(w.lake);
  for (i = 0; i < 2; i++) w.streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
  require(pthread_create(&thread, NULL, work, &w) == 0, "no thread");
  await_worker(&w, 50);
  before = stats_of(w.lake);
  capture_beside(&w, pool, stream, &exec);
  after = stats_of(w.lake);
  for (i = 0; i < scale(250, 5); i++) cu(rig.gpu.cuGraphLaunch(exec, stream));
  await_stream(stream);
  __atomic_store_n(&w.stops, 1, __ATOMIC_RELEASE);
  require(pthread_join(thread, NULL) == 0, "no join");
  require(after.stitch_count > before.stitch_count &&
              after.stream_wait_count > before.stream_wait_count,
          "nothing was tested: the other thread did not stitch, or no stream waited");
  tell("%llu driver calls during the capture",
       (unsigned long long)(after.driver_call_count - before.driver_call_count));
  require_no_wrong_words("two threads");
  cu(rig.gpu.cuGraphExecDestroy(exec));
  ok(gmlake_pool_destroy(w.lake, pool));
  close_lake(w.lake);
}

/* ---- A full device --------------------------------------------------------------------------- */

#define HOGS_MAX 256
#define FULL_BLOCKS 2048

/* Takes memory past the lake until about so much is left. */
static size_t hog_all_but(size_t left_bytes, CUmemGenericAllocationHandle *hogs) {
  CUmemAllocationProp prop;
  size_t bytes = 2 * GIB, count = 0;
  memset(&prop, 0, sizeof(prop));
  prop.type = CU_MEM_ALLOCATION_TYPE_PINNED;
  prop.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  prop.location.id = rig.device;
  for (; bytes >= 16 * MIB; bytes /= 2) {
    while (count < HOGS_MAX && free_memory() >= left_bytes + bytes)
      cu(rig.gpu.cuMemCreate(&hogs[count++], bytes, &prop, 0));
  }
  return count;
}

/* Blocks of one size, all filled, until the lake has no more. Answers how many. */
static size_t fill_lake(gmlake *lake, CUstream *streams, size_t bytes, void **blocks) {
  gmlake_error_info info;
  gmlake_result result = GMLAKE_OK;
  size_t count = 0;
  while (count < FULL_BLOCKS) {
    CUstream stream = streams[count % 2];
    result = gmlake_alloc(lake, bytes, stream, &blocks[count]);
    if (result) break;
    fill_on(stream, blocks[count], bytes, (uint32_t)count);
    count++;
  }
  require(result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, "a full device is %s",
          gmlake_result_name(result));
  ok(gmlake_get_last_error(lake, &info));
  require(info.result == result && info.asked_bytes == bytes && info.limit_bytes == 0 &&
              info.live_bytes == count * bytes && info.reserved_bytes >= info.live_bytes &&
              info.free_bytes < bytes && info.driver_free_bytes < bytes + 128 * MIB,
          "the report: asked %zu live %zu reserved %zu free %zu driver-free %zu, %zu blocks",
          info.asked_bytes, info.live_bytes, info.reserved_bytes, info.free_bytes,
          info.driver_free_bytes, count);
  return count;
}

static void case_full(void) {
  static CUmemGenericAllocationHandle hogs[HOGS_MAX];
  static void *blocks[FULL_BLOCKS];
  const size_t left = scale(4 * GIB, 256 * MIB), bytes = scale(32 * MIB, 4 * MIB);
  const gmlake_desc desc = small_chunks(0);
  CUstream streams[2];
  gmlake *lake;
  size_t i, count, hog_count;
  for (i = 0; i < 2; i++) streams[i] = new_stream(CU_STREAM_NON_BLOCKING);
  hog_count = hog_all_but(left, hogs);
  lake = new_lake(&desc);
  count = fill_lake(lake, streams, bytes, blocks);
  for (i = 0; i < count; i++) {
    verify_on(streams[i % 2], blocks[i], bytes, (uint32_t)i);
    ok(gmlake_free(lake, blocks[i], streams[i % 2]));
  }
  tell("%zu blocks of %zu MiB", count, bytes / MIB);
  require_no_wrong_words("a full device");
  close_lake(lake);
  while (hog_count) cu(rig.gpu.cuMemRelease(hogs[--hog_count]));
  for (i = 0; i < 2; i++) cu(rig.gpu.cuStreamDestroy(streams[i]));
}

/* ---- A lost device --------------------------------------------------------------------------- */

static void case_fault(void) {
  const gmlake_desc desc = small_chunks(2 * CHUNK);
  gmlake *lake = new_lake(&desc);
  CUstream first = new_stream(CU_STREAM_NON_BLOCKING), second = new_stream(CU_STREAM_NON_BLOCKING);
  void *ptr = take(lake, 2 * CHUNK, first), *other = NULL, *small = NULL;
  gmlake_error_info info;
  gmlake_result result;
  fill_on(first, NULL, 64, 1);            /* address 0 */
  result = gmlake_free(lake, ptr, first); /* may see it already */
  require(result == GMLAKE_OK || result == GMLAKE_ERROR_DEVICE_LOST, "free is %s",
          gmlake_result_name(result));
  require(rig.gpu.cuStreamSynchronize(first) != CUDA_SUCCESS, "a write to address 0 succeeded");
  result = gmlake_alloc(lake, 2 * CHUNK, second, &other); /* has to look for completed work */
  require(result == GMLAKE_ERROR_DEVICE_LOST && !other, "after a fault alloc is %s",
          gmlake_result_name(result));
  ok(gmlake_get_last_error(lake, &info));
  require(info.result == GMLAKE_ERROR_DEVICE_LOST && info.driver_code, "driver code %d",
          info.driver_code);
  error(gmlake_alloc(lake, 512, first, &small), DEVICE_LOST);
  error(gmlake_trim(lake, 0, NULL), DEVICE_LOST);
  ok(gmlake_check(lake));
  result = gmlake_destroy(lake);
  tell("driver code %d in %s; destroy is %s", info.driver_code, info.call,
       gmlake_result_name(result));
}

/* ---- Peers ----------------------------------------------------------------------------------- */

typedef struct peer {
  CUdevice device;
  CUcontext context;
  gpu_kernels kernels;
  CUdeviceptr wrong;
} peer;

/* Each device writes the whole block and the other one reads it. */
static void exchange_words(const peer *p, const void *ptr, size_t bytes) {
  const CUdeviceptr words = (CUdeviceptr)(uintptr_t)ptr;
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_fill(&rig.gpu, &p->kernels, NULL, words, bytes / 4, 21));
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  verify_on(NULL, ptr, bytes, 21);
  fill_on(NULL, ptr, bytes, 22);
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_verify(&rig.gpu, &p->kernels, NULL, words, bytes / 4, 22, p->wrong));
  cu(rig.gpu.cuCtxSynchronize());
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
}

static void peer_open(peer *p) {
  const uint64_t zero = 0;
  cu(rig.gpu.cuDevicePrimaryCtxRetain(&p->context, p->device));
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(gpu_load_kernels(&rig.gpu, &p->kernels));
  cu(rig.gpu.cuMemAlloc(&p->wrong, sizeof(zero)));
  cu(rig.gpu.cuMemcpyHtoD(p->wrong, &zero, sizeof(zero)));
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
}

static void peer_close(const peer *p) {
  uint64_t wrong = 1;
  cu(rig.gpu.cuCtxSetCurrent(p->context));
  cu(rig.gpu.cuMemcpyDtoH(&wrong, p->wrong, sizeof(wrong)));
  cu(rig.gpu.cuMemFree(p->wrong));
  cu(rig.gpu.cuModuleUnload(p->kernels.module));
  cu(rig.gpu.cuCtxSetCurrent(rig.context));
  cu(rig.gpu.cuDevicePrimaryCtxRelease(p->device));
  require(wrong == 0, "%llu words wrong on the peer", (unsigned long long)wrong);
}

static void case_peers(void) {
  const int peer_devices[] = {1};
  gmlake_desc desc = small_chunks(0);
  gmlake *lake;
  void *keep[3], *window, *block;
  int can = 0;
  peer p;
  size_t round, i;
  memset(&p, 0, sizeof(p));
  if (rig.device_count < 2) skip("one device");
  cu(rig.gpu.cuDeviceGet(&p.device, 1));
  cu(rig.gpu.cuDeviceCanAccessPeer(&can, p.device, rig.device));
  if (!can) skip("the devices cannot access each other");
  peer_open(&p);
  desc.peer_devices = peer_devices;
  desc.peer_count = 1;
  lake = new_lake(&desc);
  for (round = 0; round < 3; round++) { /* anew after each trim */
    block = take(lake, 5 * MIB, NULL);
    window = take_window(lake, NULL, keep, 3);
    exchange_words(&p, block, 5 * MIB);
    exchange_words(&p, window, 3 * CHUNK);
    for (i = 0; i < 3; i++) exchange_words(&p, keep[i], CHUNK);
    ok(gmlake_free(lake, window, NULL));
    ok(gmlake_free(lake, block, NULL));
    for (i = 0; i < 3; i++) ok(gmlake_free(lake, keep[i], NULL));
    ok(gmlake_trim(lake, round == 1 ? 2 * CHUNK : 0, NULL));
  }
  require_no_wrong_words("a peer");
  peer_close(&p);
  close_lake(lake);
}

/* ---- Running the cases ----------------------------------------------------------------------- */

typedef struct test_case {
  const char *name;
  void (*run)(void);
  int opens_rig;
} test_case;

static const test_case cases[] = {
    {"misuse", case_misuse, 0},
    {"other-thread", case_other_thread, 1},
    {"full", case_full, 1},
    {"commit-costs", case_commit_costs, 1},
    {"sleep-costs", case_sleep_costs, 1},
    {"peers", case_peers, 1},
    {"fault", case_fault, 1},
};

static void run_here(void *user) {
  const test_case *c = (const test_case *)user;
  if (c->opens_rig) rig_open();
  c->run();
  result_of_case->state = PASSED;
}

static void run_in_child(const test_case *c) {
  const int status = run_apart(run_here, (void *)(uintptr_t)c);
  if (!WIFSIGNALED(status)) return;
  result_of_case->state = FAILED;
  tell("%sended by signal %d%s", result_of_case->text[0] ? ", then " : "", WTERMSIG(status),
       WTERMSIG(status) == SIGALRM ? ": it hangs; " PATIENCE_TEXT : "");
}

/* One line. Answers the state. */
static int run_case(const test_case *c) {
  static const char *const words[] = {"FAILED", "ok", "FAILED", "skipped"};
  const uint64_t start = now_ns();
  memset(result_of_case, 0, sizeof(*result_of_case));
  run_in_child(c);
  if (result_of_case->state == RUNNING) tell("%sno end", result_of_case->text[0] ? ", " : "");
  printf("%s: %s (%.1f s)%s%s\n", c->name, words[result_of_case->state],
         (double)(now_ns() - start) / 1e9, result_of_case->text[0] ? " " : "",
         result_of_case->text);
  (void)fflush(stdout);
  return result_of_case->state;
}

static void find_here(void *user) {
  if (!rig_find()) return;
  rig_describe();
  *(struct rig *)user = rig;
}

/* Fills in what is known of the device. The parent never calls the driver: a child of fork could
   not. */
static int find_device(void) {
  struct rig *found = (struct rig *)shared_bytes(sizeof(rig));
  (void)run_apart(find_here, found);
  rig = *found;
  (void)munmap(found, sizeof(rig));
  return rig.device_bytes != 0;
}

/* ---- Options --------------------------------------------------------------------------------- */

static int parse_arguments(int argc, char **argv) {
  static const char about[] =
      "Tests the CUDA backend on the first GPU; without one it says so and succeeds. Without\n"
      "CASE, all of them.\n";
  const option_row rows[] = {
      {"seed", OPTION_COUNT, &options.seed, 1, 1e18, "N", "of all that is random; default 1"},
      {"fake", OPTION_TEXT, &options.fake_path, 0, 0, "FILE",
       "the driver without a device; default " BUILD "/fake/libcuda.so.1"},
      {"table", OPTION_FLAG, &options.prints_table, 0, 0, NULL,
       "print every row of the misuse case"},
  };
  const option_reader reader = {
      "gpu_test", "[OPTION]... [CASE]...", about, "\ncases:", rows, count_of(rows)};
  int help, first = options_parse(&reader, argc, argv, &help);
  size_t i;
  if (!help) return first;
  options_help(&reader);
  for (i = 0; i < count_of(cases); i++) printf(" %s", cases[i].name);
  printf("\n");
  exit(0);
}

static const test_case *find_case(const char *name) {
  size_t i;
  for (i = 0; i < count_of(cases); i++)
    if (!strcmp(cases[i].name, name)) return &cases[i];
  fprintf(stderr, "gpu_test: %s: no such case; gpu_test --help names them\n", name);
  exit(2);
}

int main(int argc, char **argv) {
  const test_case *chosen[count_of(cases)];
  const int first = parse_arguments(argc, argv);
  size_t i, count = (size_t)(argc - first), states[4] = {0, 0, 0, 0};
  if (count > count_of(cases)) {
    fprintf(stderr, "gpu_test: %zu cases are named, there are %zu\n", count, count_of(cases));
    return 2;
  }
  for (i = 0; i < count; i++) chosen[i] = find_case(argv[(size_t)first + i]);
  for (i = 0; !count && i < count_of(cases); i++) chosen[i] = &cases[i];
  if (!count) count = count_of(cases);
  result_of_case = (outcome *)shared_bytes(sizeof(outcome));
  if (!find_device()) {
    printf("skipped: no GPU\n");
    return 0;
  }
  printf("%s, %.1f GiB, driver %d, seed %llu\n", rig.name, (double)rig.device_bytes / (double)GIB,
         rig.version, (unsigned long long)options.seed);
  for (i = 0; i < count; i++) states[run_case(chosen[i])]++;
  printf("%zu passed, %zu failed\n", states[PASSED], states[FAILED] + states[RUNNING]);
  return states[FAILED] + states[RUNNING] ? 1 : 0;
}
