/* Drives the library of examples/torch as torch does, over a driver without a device.
   usage: torch LIBRARY CASE, with the fake driver first on the library path; see test_clients.sh */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1
#endif
#include "gpu/fake_cuda.h"
#include "gpu.h"

#include <pthread.h>
#include <setjmp.h>
#include <sys/wait.h>

#define MIB ((size_t)1 << 20)
#define LONG_NS ((uint64_t)10 * 1000 * 1000 * 1000) /* work that does not end by itself */

#define check(condition)                                                  \
  do {                                                                    \
    if (!(condition)) {                                                   \
      fprintf(stderr, "%s:%d: not %s\n", __FILE__, __LINE__, #condition); \
      exit(1);                                                            \
    }                                                                     \
  } while (0)
#define cu(call) check((call) == CUDA_SUCCESS)

typedef void raise_fn(const char *function, const char *file, unsigned line, const char *text);
typedef void raise_text_fn(const char *text);

static struct {
  void *(*malloc)(size_t bytes, int device, void *stream);
  void (*free)(void *ptr, size_t bytes, int device, void *stream);
  void (*record_stream)(void *ptr, void *stream);
  void (*empty_cache)(void);
  void (*refuse_capture)(void);
  void (*set_raise)(raise_fn *fn);
  void (*set_raise_text)(raise_text_fn *fn);
  void (*forget_stream)(void *stream);
  int (*mark_stream)(int device, void *stream, int kind);
  void (*streams_stay)(void);
  int (*reset_peaks)(int device);
  int (*stats_json)(int device, char *buffer, size_t size);
} torch;

static void *library;
static gpu_driver gpu;
static gpu_kernels kernels;
static const fake_cuda_control *fake;
static CUstream streams[2];

static void find(void *in, const char *name, void *out) {
  void *const symbol = dlsym(in, name);
  if (!symbol) fprintf(stderr, "%s\n", dlerror());
  check(symbol);
  memcpy(out, &symbol, sizeof symbol);
}

static void load(const char *path) {
  library = dlopen(path, RTLD_NOW | RTLD_LOCAL);
  if (!library) fprintf(stderr, "%s\n", dlerror());
  check(library);
  find(library, "gmlake_torch_malloc", (void *)&torch.malloc);
  find(library, "gmlake_torch_free", (void *)&torch.free);
  find(library, "gmlake_torch_record_stream", (void *)&torch.record_stream);
  find(library, "gmlake_torch_empty_cache", (void *)&torch.empty_cache);
  find(library, "gmlake_torch_refuse_capture", (void *)&torch.refuse_capture);
  find(library, "gmlake_torch_set_raise", (void *)&torch.set_raise);
  find(library, "gmlake_torch_set_raise_text", (void *)&torch.set_raise_text);
  find(library, "gmlake_torch_forget_stream", (void *)&torch.forget_stream);
  find(library, "gmlake_torch_mark_stream", (void *)&torch.mark_stream);
  find(library, "gmlake_torch_streams_stay", (void *)&torch.streams_stay);
  find(library, "gmlake_torch_reset_peaks", (void *)&torch.reset_peaks);
  find(library, "gmlake_torch_stats_json", (void *)&torch.stats_json);
  check(gpu_open(&gpu, "libcuda.so.1"));
  find(gpu.library, "fake_cuda_control", (void *)&fake);
}

/* As the runtime library does before torch allocates. */
static CUcontext make_current(int device) {
  CUcontext context;
  cu(gpu.cuInit(0));
  cu(gpu.cuDevicePrimaryCtxRetain(&context, device));
  cu(gpu.cuCtxSetCurrent(context));
  return context;
}

static CUcontext start_work(void) {
  const CUcontext context = make_current(0);
  cu(gpu_load_kernels(&gpu, &kernels));
  cu(gpu.cuStreamCreate(&streams[0], CU_STREAM_NON_BLOCKING));
  cu(gpu.cuStreamCreate(&streams[1], CU_STREAM_NON_BLOCKING));
  return context;
}

/* The number that the statistics give under that name. */
static unsigned long long stat_of(int device, const char *name) {
  char text[4096], key[64];
  const char *found;
  check(torch.stats_json(device, text, sizeof text) > 0);
  snprintf(key, sizeof key, "\"%s\": ", name);
  found = strstr(text, key);
  check(found);
  return strtoull(found + strlen(key), NULL, 10);
}

/* ---- Cases ---------------------------------------------------------------------------------- */

static void case_memory(void) {
  CUcontext context, current;
  void *a;
  CUdeviceptr wrong;
  uint64_t wrong_count = 0;
  check(!torch.malloc(0, 0, NULL) && fake->calls() == 0); /* nothing is opened for nothing */
  a = torch.malloc(3 * MIB + 1, 0, NULL);
  check(a && (uintptr_t)a % 512 == 0);
  context = (CUcontext)&wrong;
  cu(gpu.cuCtxGetCurrent(&context));
  check(!context); /* there was none, and is none */
  context = start_work();
  cu(gpu.cuMemAlloc(&wrong, sizeof wrong_count));
  cu(gpu.cuMemcpyHtoD(wrong, &wrong_count, sizeof wrong_count));
  cu(gpu_fill(&gpu, &kernels, NULL, (CUdeviceptr)a, 3 * MIB / 4, 7));
  cu(gpu_verify(&gpu, &kernels, NULL, (CUdeviceptr)a, 3 * MIB / 4, 7, wrong));
  torch.free(a, 3 * MIB + 1, 0, NULL);
  check(torch.malloc(3 * MIB + 1, 0, NULL) == a); /* its own stream: at once */
  cu(gpu.cuCtxSynchronize());
  cu(gpu.cuMemcpyDtoH(&wrong_count, wrong, sizeof wrong_count));
  check(!wrong_count);
  cu(gpu.cuCtxGetCurrent(&current));
  check(current == context);
  torch.free(NULL, 0, 0, NULL);
  check(stat_of(0, "allocation_count") == 2 && stat_of(0, "free_count") == 1);
}

/* Memory whose work does not end is freed on one stream and asked for on another. */
static void pass_between_streams(void) {
  void *a;
  start_work();
  a = torch.malloc(4 * MIB, 0, streams[0]);
  cu(gpu_spin(&gpu, &kernels, streams[0], LONG_NS));
  torch.free(a, 4 * MIB, 0, streams[0]);
  check(torch.malloc(4 * MIB, 0, streams[1]));
}

static void case_grow(void) {
  pass_between_streams();
  check(stat_of(0, "stream_wait_count") == 0 && stat_of(0, "reserved_bytes") == 8 * MIB);
}

static void case_wait(void) { /* GMLAKE_TORCH_CROSS_STREAM=wait */
  pass_between_streams();
  check(stat_of(0, "stream_wait_count") == 1 && stat_of(0, "reserved_bytes") == 4 * MIB);
}

static void case_record_stream(void) {
  void *a, *b;
  start_work();
  torch.record_stream(NULL, streams[1]);
  a = torch.malloc(4 * MIB, 0, NULL);
  torch.record_stream(a, streams[1]);
  cu(gpu_spin(&gpu, &kernels, streams[1], LONG_NS));
  torch.free(a, 4 * MIB, 0, NULL);
  b = torch.malloc(4 * MIB, 0, NULL);
  check(b && b != a && stat_of(0, "pending_bytes") == 4 * MIB);
  cu(gpu.cuStreamSynchronize(streams[1]));
  torch.record_stream(b, streams[1]); /* names the stream: what is recorded there is asked about */
  check(torch.malloc(4 * MIB, 0, NULL) == a);
}

static void case_empty_cache(void) {
  void *a, *b;
  torch.empty_cache(); /* there is no lake yet */
  a = torch.malloc(4 * MIB, 0, NULL);
  b = torch.malloc(4 * MIB, 0, NULL);
  torch.free(a, 4 * MIB, 0, NULL);
  check(stat_of(0, "reserved_bytes") == 8 * MIB);
  torch.empty_cache();
  check(stat_of(0, "reserved_bytes") == 4 * MIB);
  torch.free(b, 4 * MIB, 0, NULL);
  torch.empty_cache();
  check(stat_of(0, "reserved_bytes") == 0);
}

/* The first device's memory cannot be returned, which is said; the second's is. */
static void case_empty_cache_fails(void) { /* on two devices */
  void *a, *b;
  a = torch.malloc(4 * MIB, 0, NULL);
  b = torch.malloc(4 * MIB, 1, NULL);
  torch.free(a, 4 * MIB, 0, NULL);
  torch.free(b, 4 * MIB, 1, NULL);
  fake->fail_function("cuMemUnmap", 1, CUDA_ERROR_INVALID_VALUE, 0);
  torch.empty_cache();
  check(stat_of(0, "reserved_bytes") > 0 && stat_of(1, "reserved_bytes") == 0);
}

/* External streams come and go with work still to do, and their values come back as others. Not
   told, the lake notices; told, it needs not ask. */
static void come_and_go(int is_told) {
  int round, i, reused = 0;
  start_work();
  torch.forget_stream(streams[0]); /* there is no lake yet */
  check(torch.mark_stream(0, streams[0], 1) && torch.mark_stream(-1, streams[0], 1));
  for (round = 0; round < 200; round++) {
    CUstream former, next;
    void *a, *b;
    unsigned value = 0;
    cu(gpu.cuStreamCreate(&former, CU_STREAM_NON_BLOCKING));
    a = torch.malloc(MIB, 0, former);
    for (i = 0; i < 20; i++) cu(gpu.cuMemsetD32Async((CUdeviceptr)a, 1, MIB / 4, former));
    torch.free(a, MIB, 0, former);
    if (is_told) torch.forget_stream(former);
    cu(gpu.cuStreamDestroy(former));
    cu(gpu.cuStreamCreate(&next, CU_STREAM_NON_BLOCKING));
    reused += next == former;
    b = torch.malloc(MIB, 0, next);
    cu(gpu.cuMemsetD32Async((CUdeviceptr)b, 2, MIB / 4, next));
    cu(gpu.cuCtxSynchronize());
    cu(gpu.cuMemcpyDtoH(&value, (CUdeviceptr)b, sizeof value));
    check(value == 2);
    torch.free(b, MIB, 0, next);
    if (is_told) torch.forget_stream(next);
    cu(gpu.cuStreamDestroy(next));
  }
  check(reused);
  cu(gpu.cuCtxSynchronize());
  torch.empty_cache();
  check(stat_of(0, "reserved_bytes") == 0);
}

static void case_untold(void) { come_and_go(0); }

static void case_told(void) {
  torch.streams_stay();
  come_and_go(1);
}

/* The events that two small blocks need, each freed on a stream of its own. */
static unsigned long long count_events(void) {
  void *a, *b;
  start_work();
  a = torch.malloc(4096, 0, streams[0]);
  b = torch.malloc(4096, 0, streams[1]);
  torch.free(a, 4096, 0, streams[0]);
  torch.free(b, 4096, 0, streams[1]);
  return stat_of(0, "event_count");
}

static void case_streams_end(void) { check(count_events() == 2); }

static void case_streams_stay(void) {
  torch.streams_stay();
  check(count_events() == 0);
}

/* Graphs are captured that nobody tells the lake of: what it asks does not spoil them. */
static void case_captures(void) {
  CUgraph graph;
  void *a;
  int mode, is_known;
  start_work();
  for (mode = 0; mode < 3; mode++)
    for (is_known = 0; is_known < 2; is_known++) {
      CUstream stream;
      cu(gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
      if (is_known) torch.free(torch.malloc(MIB, 0, stream), MIB, 0, stream);
      cu(gpu.cuStreamBeginCapture(stream, (CUstreamCaptureMode)mode));
      a = torch.malloc(MIB, 0, stream);
      check(a);
      cu(gpu.cuMemsetD32Async((CUdeviceptr)a, 1, MIB / 4, stream));
      cu(gpu.cuStreamEndCapture(stream, &graph));
      cu(gpu.cuGraphDestroy(graph));
      torch.free(a, MIB, 0, stream);
    }
}

/* A DataLoader's worker: a child of fork that lets go of what it inherited. */
static void case_fork(void) {
  void *a = torch.malloc(4 * MIB, 0, NULL);
  const pid_t child = fork();
  int status = -1;
  if (child == 0) {
    torch.free(a, 4 * MIB, 0, NULL);
    torch.forget_stream((void *)16);
    exit(0);
  }
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
  check(!torch.mark_stream(0, NULL, 1) && !torch.mark_stream(0, NULL, 0));
  torch.free(a, 4 * MIB, 0, NULL);
}

static void case_stats(void) {
  char whole[4096], part[4096];
  void *a;
  int length, size;
  check(torch.stats_json(0, whole, sizeof whole) == -1 && !*whole);
  check(torch.stats_json(-1, NULL, 0) == -1 && torch.stats_json(64, NULL, 0) == -1);
  check(torch.reset_peaks(0) == -1);
  a = torch.malloc(3 * MIB, 0, NULL);
  length = torch.stats_json(0, whole, sizeof whole);
  check(length == (int)strlen(whole) && torch.stats_json(0, NULL, 0) == length);
  check(!strncmp(whole, "{\"utilization\": 0.7500, ", 24) && whole[length - 1] == '}');
  check(stat_of(0, "active_bytes_peak") == 3 * MIB);
  check(stat_of(0, "driver_call_count") && stat_of(0, "driver_ns"));
  for (size = 1; size <= length + 1; size++) {
    memset(part, '#', sizeof part);
    check(torch.stats_json(0, part, (size_t)size) == length);
    check((int)strlen(part) == size - 1 && !strncmp(part, whole, (size_t)size - 1));
    check(part[size] == '#');
  }
  torch.free(a, 3 * MIB, 0, NULL);
  check(stat_of(0, "active_bytes_peak") == 3 * MIB);
  check(torch.reset_peaks(0) == 0 && stat_of(0, "active_bytes_peak") == 0);
  puts(whole);
}

static int is_writable_from(void *ptr, int device) {
  CUmemLocation location;
  unsigned long long flags = 0;
  memset(&location, 0, sizeof location);
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  cu(gpu.cuMemGetAccess(&flags, &location, (CUdeviceptr)ptr));
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

static void case_devices(void) { /* GMLAKE_TORCH_PEERS=0,1, on two devices of three */
  void *a, *b;
  start_work();
  a = torch.malloc(3 * MIB, 0, NULL);
  b = torch.malloc(5 * MIB, 1, NULL);
  check(a && b && !torch.malloc(MIB, 3, NULL));
  check(stat_of(0, "active_bytes") == 3 * MIB && stat_of(1, "active_bytes") == 5 * MIB);
  check(torch.stats_json(2, NULL, 0) == -1);
  check(is_writable_from(a, 0) && is_writable_from(a, 1) && !is_writable_from(a, 2));
  check(is_writable_from(b, 0) && is_writable_from(b, 1));
  torch.record_stream(b, (void *)1); /* finds the second lake */
  torch.free(b, 5 * MIB, 1, NULL);
  torch.free(a, 3 * MIB, 0, NULL);
  torch.empty_cache();
  check(stat_of(0, "reserved_bytes") == 0);
}

static jmp_buf raised;
static char raised_text[1024];

static void raise_here(const char *function, const char *file, unsigned line, const char *text) {
  check(!strcmp(function, "gmlake_torch") && strstr(file, "gmlake_pluggable.c") && line);
  snprintf(raised_text, sizeof raised_text, "%s", text);
  longjmp(raised, 1); /* as an exception would: past the library's frames */
}

/* Calls malloc; 1: it raised. */
static int raises(size_t bytes, int device) {
  *raised_text = '\0';
  if (setjmp(raised)) return 1;
  (void)torch.malloc(bytes, device, NULL);
  return 0;
}

static void case_limit(
    void) { /* GMLAKE_TORCH_LIMIT_BYTES=8388608, GMLAKE_TORCH_CHUNK_BYTES=4194304 */
  void *a = torch.malloc(5 * MIB, 0, NULL);
  check(a && stat_of(0, "reserved_bytes") == 8 * MIB && stat_of(0, "chunk_count") == 2);
  check(!torch.malloc(4 * MIB, 0, NULL)); /* torch raises by itself */
  torch.set_raise(raise_here);
  check(raises(4 * MIB, 0));
  check(!strncmp(raised_text, "CUDA out of memory. Tried to allocate 4.00 MiB on device 0", 58));
  check(strstr(raised_text, "holds 8.00 MiB, 5.00 live, 3.00 free") &&
        strstr(raised_text, "limit 8.00"));
  check(raises(SIZE_MAX - 5, 0) && raises(MIB, -1));
  check(!raises(MIB, 0) && stat_of(0, "live_count") == 2);
  if (!setjmp(raised)) {
    torch.refuse_capture();
    check(!"refused");
  }
  check(strstr(raised_text, "use gmlake_torch"));
  torch.set_raise(NULL);
  check(!torch.malloc(4 * MIB, 0, NULL));
  check(stat_of(0, "oom_count") == 4);
}

static void raise_text_here(const char *text) {
  raise_here("gmlake_torch", "gmlake_pluggable.c", 1, text);
}

static void case_raise_text(void) { /* GMLAKE_TORCH_LIMIT_BYTES=8388608: the shell reads */
  torch.set_raise_text(raise_text_here);
  check(raises(9 * MIB, 0) && !strncmp(raised_text, "CUDA out of memory. Tried", 25));
  torch.set_raise_text(NULL); /* it cannot be raised, but is told */
  check(!raises(10 * MIB, 0) && !*raised_text);
}

/* The environment cannot be read, or there is no such device: the shell reads what is said. */
static void case_refused(void) {
  check(!torch.malloc(MIB, 0, NULL) && torch.stats_json(0, NULL, 0) == -1);
  torch.set_raise(raise_here);
  check(raises(MIB, 0) && raises(MIB, 0));
}

/* Said, and nothing else happens. */
static void case_misuse(void) {
  char *a = (char *)torch.malloc(MIB, 0, NULL);
  torch.free(a + 512, 512, 0, NULL);
  torch.record_stream(a + 512, (void *)1);
  torch.free(a, MIB, 1, NULL); /* that device has no lake */
  torch.free(a, MIB, 0, NULL);
  torch.free(a, MIB, 0, NULL);
  torch.refuse_capture();
  check(stat_of(0, "free_count") == 1);
}

static void *malloc_once(void *out) {
  *(void **)out = torch.malloc(MIB, 0, NULL);
  return NULL;
}

static void case_threads(void) { /* they make one lake */
  pthread_t threads[8];
  void *blocks[8];
  fake_cuda_census census;
  size_t i;
  for (i = 0; i < 8; i++) check(!pthread_create(&threads[i], NULL, malloc_once, &blocks[i]));
  for (i = 0; i < 8; i++) check(!pthread_join(threads[i], NULL) && blocks[i]);
  check(stat_of(0, "live_count") == 8);
  fake->get_census(&census);
  check(census.retains == 1);
}

/* What calls answer that Python does not look at. */
static void capture_nothing(void) {
  void *(*pool_open)(int device);
  int (*pool_close)(int device, void *pool);
  int (*capture_begin)(int device, void *stream, void *pool);
  int (*capture_end)(int device, void *stream);
  void *pool;
  find(library, "gmlake_cupy_pool_open", (void *)&pool_open);
  find(library, "gmlake_cupy_pool_close", (void *)&pool_close);
  find(library, "gmlake_cupy_capture_begin", (void *)&capture_begin);
  find(library, "gmlake_cupy_capture_end", (void *)&capture_end);
  check(pool_close(5, NULL) == 0);
  pool = pool_open(0);
  check(pool && !capture_begin(0, streams[0], pool));
  check(pool_close(0, pool) != 0 && !capture_end(0, streams[0]) && !pool_close(0, pool));
}

static void case_cupy(void) { /* gmlake_cupy.so: the stream is what CuPy passes through */
  void *(*cupy_malloc)(void *stream, size_t bytes, int device);
  void (*cupy_free)(void *stream, void *ptr, int device);
  void (*set_limit)(int device, size_t bytes);
  int (*usage)(int device, size_t *out_used, size_t *out_held);
  void *a, *b;
  size_t used, held;
  find(library, "gmlake_cupy_malloc", (void *)&cupy_malloc);
  find(library, "gmlake_cupy_free", (void *)&cupy_free);
  find(library, "gmlake_cupy_set_limit", (void *)&set_limit);
  find(library, "gmlake_cupy_usage", (void *)&usage);
  start_work();
  set_limit(-1, 1), set_limit(64, 1); /* no such devices */
  check(usage(63, &used, &used) == -1);
  check(!cupy_malloc(NULL, 0, 0));
  a = cupy_malloc(streams[0], 4 * MIB, 0);
  check(!usage(0, &used, &held) && used == 4 * MIB && held == 4 * MIB);
  cu(gpu_spin(&gpu, &kernels, streams[0], LONG_NS));
  cupy_free(streams[0], a, 0);
  b = cupy_malloc(streams[1], 4 * MIB, 0);
  check(b && b != a); /* that stream has work to do */
  check(cupy_malloc(streams[0], 4 * MIB, 0) == a);
  check(!cupy_malloc(NULL, 2048 * MIB, 0));
  capture_nothing();
}

static struct {
  void *(*open)(void *stream, void *owner, void (*keep)(void *owner), void (*let_go)(void *owner),
                int stays);
  void (*close)(void *lane);
  void *(*malloc)(void *lane, size_t bytes, int device);
  void (*free)(void *lane, void *ptr, int device);
} lanes;

static void keep(void *owner) { check(owner); }

/* CuPy lets go of a stream, and so destroys it. */
static void let_go(void *owner) { cu(gpu.cuStreamDestroy((CUstream)owner)); }

static void *new_lane(CUstream *stream, int stays) {
  void *lane;
  cu(gpu.cuStreamCreate(stream, CU_STREAM_NON_BLOCKING));
  lane = lanes.open(*stream, *stream, keep, let_go, stays);
  check(lane);
  return lane;
}

static void start_lanes(void) {
  find(library, "gmlake_cupy_lane_open", (void *)&lanes.open);
  find(library, "gmlake_cupy_lane_close", (void *)&lanes.close);
  find(library, "gmlake_cupy_lane_malloc", (void *)&lanes.malloc);
  find(library, "gmlake_cupy_lane_free", (void *)&lanes.free);
  start_work();
}

/* How often a lane's allocations and frees call the driver, once its memory is there. */
static uint64_t calls_of_lane(int stays) {
  CUstream stream;
  void *const lane = new_lane(&stream, stays), *const kept = lanes.malloc(lane, MIB, 0);
  uint64_t before;
  int i;
  before = fake->calls();
  for (i = 0; i < 100; i++) lanes.free(lane, lanes.malloc(lane, MIB / 2, 0), 0);
  before = fake->calls() - before;
  lanes.free(lane, kept, 0);
  lanes.close(lane);
  return before;
}

/* A lake does not ask for streams that stay, also where it asks for others. */
static void case_cupy_calls(void) {
  start_lanes();
  (void)calls_of_lane(0); /* creates the lake and its first chunk */
  check(calls_of_lane(1) == 0);
  check(calls_of_lane(0) >= 200);
  check(calls_of_lane(1) == 0);
}

static const struct {
  const char *name;
  void (*run)(void);
} cases[] = {{"memory", case_memory},
             {"grow", case_grow},
             {"wait", case_wait},
             {"record_stream", case_record_stream},
             {"empty_cache", case_empty_cache},
             {"empty_cache_fails", case_empty_cache_fails},
             {"untold", case_untold},
             {"told", case_told},
             {"streams_end", case_streams_end},
             {"streams_stay", case_streams_stay},
             {"captures", case_captures},
             {"fork", case_fork},
             {"raise_text", case_raise_text},
             {"stats", case_stats},
             {"devices", case_devices},
             {"limit", case_limit},
             {"refused", case_refused},
             {"misuse", case_misuse},
             {"threads", case_threads},
             {"cupy", case_cupy},
             {"cupy_calls", case_cupy_calls}};

int main(int argc, char **argv) {
  size_t i;
  check(argc == 3);
  load(argv[1]);
  for (i = 0; i < sizeof cases / sizeof *cases; i++)
    if (!strcmp(argv[2], cases[i].name)) {
      cases[i].run();
      return 0;
    }
  fprintf(stderr, "no such case: %s\n", argv[2]);
  return 2;
}
