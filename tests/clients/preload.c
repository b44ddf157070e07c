/* A program that takes stream-ordered memory, and knows nothing of lakes. test_clients.sh runs it
   on the fake driver with libgmlake_preload.so and without.

     client_preload HOW WHOSE CASE
   HOW: linked, dlsym or proc: how it finds the driver's functions. WHOSE: lake or driver: whose
   memory it has to get. CASE: memory, pools, streams, capture, fork, short (lake
   alone) or nothing. It answers 0 if all is as it has to be. */
#include "gpu/fake_cuda.h"

#include <dlfcn.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <sys/wait.h>
#include <unistd.h>

#include "part.h"
#include "patience.h"

#define MIB ((size_t)1 << 20)

#define FUNCTIONS(X)          \
  X(cuMemAllocAsync);         \
  X(cuMemAllocFromPoolAsync); \
  X(cuMemFreeAsync);          \
  X(cuMemFree);               \
  X(cuMemGetAddressRange);    \
  X(cuPointerGetAttribute);   \
  X(cuStreamDestroy);         \
  X(cuStreamBeginCapture);    \
  X(cuStreamEndCapture);      \
  X(cuMemPoolCreate);         \
  X(cuMemPoolDestroy);        \
  X(cuMemPoolSetAccess);      \
  X(cuMemPoolGetAttribute);   \
  X(cuMemPoolSetAttribute);   \
  X(cuMemPoolTrimTo);         \
  X(cuDeviceSetMemPool)
#define EXPORTED(name) NAME(name) /* cuMemFree_v2, where cuda.h makes cuMemFree that */
#define NAME(name) #name

static struct {
#define FIELD(name) __typeof__(name) *name
  FUNCTIONS(FIELD);
} cu;

typedef CUresult CUDAAPI proc_function(const char *, void **, int, cuuint64_t, int *);

extern const fake_cuda_control fake_control __asm__("fake_cuda_control"); /* a type has the name */
static int of_lake, failures;
static CUstream stream;

#define IS(condition)                                                         \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                             \
    }                                                                         \
  } while (0)
#define OK(call) IS((call) == CUDA_SUCCESS)

static int find_functions(const char *how) {
  void *const library = dlopen("libcuda.so.1", RTLD_NOW);
  void *found = NULL;
  proc_function *proc;
  if (strcmp(how, "linked") == 0) {
#define LINKED(name) cu.name = name
    FUNCTIONS(LINKED);
    return 1;
  }
  if (strcmp(how, "dlsym") == 0) {
#define FOUND(name)                       \
  found = dlsym(library, EXPORTED(name)); \
  memcpy(&cu.name, &found, sizeof(found))
    FUNCTIONS(FOUND);
    return cu.cuMemAllocAsync != NULL;
  }
  found = dlsym(library, "cuGetProcAddress_v2");
  memcpy(&proc, &found, sizeof(found));
  if (!proc || proc("cuGetProcAddress", &found, 12000, 0, NULL)) return 0;
  memcpy(&proc, &found, sizeof(found)); /* as the runtime library does */
#define ASKED(name)                                  \
  if (proc(#name, &found, 12080, 0, NULL)) return 0; \
  memcpy(&cu.name, &found, sizeof(found))
  FUNCTIONS(ASKED);
  return 1;
}

static fake_cuda_census census(void) {
  fake_cuda_census out;
  fake_control.get_census(&out);
  return out;
}

/* Whether so many allocations of the driver's are live, if it is the driver's turn; else none. */
static void holds(size_t count) { IS(census().allocations == (of_lake ? 0 : count)); }

static CUdeviceptr take(size_t bytes) {
  CUdeviceptr ptr = 0;
  OK(cu.cuMemAllocAsync(&ptr, bytes, stream));
  IS(ptr != 0);
  OK(cuMemsetD8Async(ptr, 7, bytes, stream));
  return ptr;
}

static void case_memory(void) {
  CUdeviceptr base = 0, inside, ptr = take(3 * MIB + 5), other;
  unsigned long long types = 77;
  size_t bytes = 0;
  holds(1);
  inside = of_lake ? ptr + MIB : ptr;
  OK(cu.cuMemGetAddressRange(&base, &bytes, inside));
  IS(base == ptr);
  IS(bytes == (of_lake ? 3 * MIB + 5 : 4 * MIB));
  base = 0;
  OK(cu.cuPointerGetAttribute(&base, CU_POINTER_ATTRIBUTE_RANGE_START_ADDR, inside));
  IS(base == ptr);
  OK(cu.cuPointerGetAttribute(&types, CU_POINTER_ATTRIBUTE_ALLOWED_HANDLE_TYPES, inside));
  IS(types == 0); /* nobody may export what other blocks lie in */
  OK(cu.cuMemFreeAsync(ptr, stream));
  other = take(3 * MIB);
  if (of_lake) IS(other == ptr); /* the stream's own memory, at once */
  OK(cu.cuMemFree(other));       /* legal for such memory, too */
  IS(cu.cuMemFree(other) != CUDA_SUCCESS);
  IS(cu.cuMemFreeAsync(ptr + 5, stream) != CUDA_SUCCESS);
  OK(cuStreamSynchronize(stream));
  IS(cu.cuMemAllocAsync(&ptr, (size_t)1 << 40, stream) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuMemAlloc(&ptr, MIB)); /* not stream-ordered: the driver's */
  IS(census().allocations == 1);
  OK(cu.cuMemFree(ptr));
  holds(0);
}

static uint64_t attribute(CUmemoryPool pool, CUmemPool_attribute which) {
  uint64_t value = 77;
  OK(cu.cuMemPoolGetAttribute(pool, which, &value));
  return value;
}

static void case_pools(void) {
  CUmemPoolProps props;
  CUmemAccessDesc access;
  CUmemoryPool pool, shared, first;
  CUdeviceptr a, b, c;
  uint64_t value = 5;
  memset(&props, 0, sizeof(props));
  memset(&access, 0, sizeof(access));
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cu.cuMemPoolCreate(&pool, &props));
  props.handleTypes = CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR;
  OK(cu.cuMemPoolCreate(&shared, &props));
  OK(cu.cuMemAllocFromPoolAsync(&a, 4 * MIB, pool, stream));
  holds(1);
  OK(cu.cuMemAllocFromPoolAsync(&b, 4 * MIB, shared, stream)); /* it can be exported */
  IS(census().allocations == (of_lake ? 1 : 2));
  OK(cu.cuMemFreeAsync(b, stream));
  IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == (of_lake ? 4 * MIB : 0));
  IS(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == (of_lake ? 4 * MIB : 0));
  IS(attribute(shared, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD, &value));
  IS(attribute(pool, CU_MEMPOOL_ATTR_RELEASE_THRESHOLD) == 5);
  OK(cu.cuMemFreeAsync(a, stream));
  IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == (of_lake ? 4 * MIB : 0));
  value = 0;
  OK(cu.cuMemPoolSetAttribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH, &value));
  IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_HIGH) == 0);
  OK(cuStreamSynchronize(stream));
  OK(cu.cuMemPoolTrimTo(pool, 0));
  IS(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  OK(cuDeviceGetDefaultMemPool(&first, 0));
  OK(cu.cuDeviceSetMemPool(0, shared)); /* now cuMemAllocAsync means it */
  OK(cu.cuMemAllocAsync(&c, MIB, stream));
  IS(census().allocations == 1);
  OK(cu.cuMemFreeAsync(c, stream));
  OK(cu.cuDeviceSetMemPool(0, first));
  OK(cuStreamSynchronize(stream));
  c = take(MIB);
  holds(1);
  OK(cu.cuMemFreeAsync(c, stream));
  access.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  access.location.id = 1;
  access.flags = CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
  OK(cu.cuMemPoolSetAccess(pool, &access, 1)); /* another device may reach it */
  OK(cu.cuMemAllocFromPoolAsync(&a, MIB, pool, stream));
  OK(cuStreamSynchronize(stream));
  IS(census().allocations == 1);
  OK(cu.cuMemFreeAsync(a, stream));
  OK(cu.cuMemPoolDestroy(pool));
  OK(cu.cuMemPoolDestroy(shared));
}

/* The value of a pool that was destroyed with live memory comes back. */
static void case_reused_pool(void) {
  CUmemPoolProps props;
  CUmemoryPool pool, shared;
  CUdeviceptr a;
  memset(&props, 0, sizeof(props));
  props.allocType = CU_MEM_ALLOCATION_TYPE_PINNED;
  props.location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  OK(cu.cuMemPoolCreate(&pool, &props));
  OK(cu.cuMemAllocFromPoolAsync(&a, 4 * MIB, pool, stream));
  OK(cu.cuMemPoolDestroy(pool));
  OK(cu.cuMemPoolCreate(&shared, &props));
  IS(shared == pool);
  IS(attribute(shared, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  OK(cu.cuMemFreeAsync(a, stream));
  IS(attribute(shared, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
  OK(cu.cuMemPoolDestroy(shared));
}

static CUcontext shared_context;
static int is_over;

static void *take_and_give(void *unused) {
  CUstream own;
  (void)unused;
  if (cuCtxSetCurrent(shared_context) || cuStreamCreate(&own, CU_STREAM_NON_BLOCKING)) return NULL;
  while (!__atomic_load_n(&is_over, __ATOMIC_ACQUIRE)) {
    CUdeviceptr ptr = 0;
    if (!cu.cuMemAllocAsync(&ptr, MIB, own)) (void)cu.cuMemFreeAsync(ptr, own);
  }
  (void)cu.cuStreamDestroy(own);
  return NULL;
}

/* A child gets an error, whatever the parent's threads were in the middle of. */
static void case_fork(void) {
  pthread_t threads[4];
  size_t i;
  OK(cuCtxGetCurrent(&shared_context));
  for (i = 0; i < 4; i++) IS(pthread_create(&threads[i], NULL, take_and_give, NULL) == 0);
  for (i = 0; i < 200 / test_part(); i++) {
    CUdeviceptr ptr = 0;
    int status = 1;
    const pid_t child = fork();
    if (child == 0) {
      (void)alarm(patience());
      _exit(cu.cuMemAllocAsync(&ptr, MIB, stream) == CUDA_SUCCESS);
    }
    IS(waitpid(child, &status, 0) == child);
    IS(status == 0);
  }
  __atomic_store_n(&is_over, 1, __ATOMIC_RELEASE);
  for (i = 0; i < 4; i++) IS(pthread_join(threads[i], NULL) == 0);
}

/* A stream is destroyed, and its value comes back, with work of the former one still to do. */
static void case_streams(void) {
  const CUstream former = stream;
  CUdeviceptr a, b;
  int i;
  for (i = 0; i < 20; i++) {
    OK(cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
    a = take(8 * MIB);
    OK(cu.cuMemAllocAsync(&b, 2 * MIB, stream)); /* nothing uses it */
    OK(cu.cuMemFreeAsync(a, stream));
    OK(cu.cuStreamDestroy(stream));
    OK(cu.cuMemFreeAsync(b, former)); /* on another stream than it is of */
  }
  stream = former;
  OK(cuCtxSynchronize());
  holds(0);
}

/* Calls under capture go to the driver, which here refuses to allocate. A captured free gives the
   block to the graph, and the capture is not spoilt. When all that was made of the graph is gone, a
   trim gives the block back. */
static void case_capture(void) {
  CUdeviceptr kept = take(MIB), ptr;
  CUgraphExec exec;
  CUmemoryPool pool;
  CUstream second;
  CUgraph graph;
  OK(cuDeviceGetDefaultMemPool(&pool, 0));
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cuStreamSynchronize(stream));
  OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cuMemsetD8Async(kept, 1, MIB, stream));
  if (of_lake) OK(cu.cuMemFreeAsync(kept, stream));
  if (of_lake) IS(cu.cuMemFreeAsync(kept, stream) == CUDA_ERROR_INVALID_VALUE); /* twice */
  OK(cu.cuMemAllocAsync(&ptr, MIB, second));
  OK(cu.cuMemFreeAsync(ptr, second));
  OK(cu.cuStreamEndCapture(stream, &graph));
  OK(cuGraphInstantiateWithFlags(&exec, graph, 0));
  OK(cuGraphDestroy(graph));
  ptr = take(MIB);
  IS(ptr != kept);
  OK(cu.cuMemFreeAsync(ptr, stream));
  OK(cuGraphLaunch(exec, stream));
  if (of_lake) {
    IS(cu.cuMemFree(kept) == CUDA_ERROR_INVALID_VALUE);
    OK(cuStreamSynchronize(second));
    OK(cu.cuMemPoolTrimTo(pool, 0));
    IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
    OK(cuGraphLaunch(exec, stream)); /* its memory is still there */
    OK(cuGraphExecDestroy(exec));
    IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == MIB);
    OK(cu.cuMemPoolTrimTo(pool, 0));
    IS(attribute(pool, CU_MEMPOOL_ATTR_USED_MEM_CURRENT) == 0);
    IS(attribute(pool, CU_MEMPOOL_ATTR_RESERVED_MEM_CURRENT) == 0);
  }
  OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  IS(cu.cuMemAllocAsync(&ptr, MIB, stream) == CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED);
  IS(cu.cuStreamEndCapture(stream, &graph) != CUDA_SUCCESS); /* spoilt by the driver's answer */
  ptr = take(MIB);                                           /* and the lake serves on */
  OK(cu.cuMemFreeAsync(ptr, stream));
  OK(cu.cuStreamDestroy(second));
}

/* Memory that a graph has had serves requests again where there is no other; and a capture that is
   going on meanwhile is not spoilt. */
static void case_short(void) {
  CUdeviceptr kept = take(600 * MIB), ptr;
  CUstream second;
  CUgraph graph, other;
  OK(cuStreamCreate(&second, CU_STREAM_NON_BLOCKING));
  OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  OK(cu.cuMemFreeAsync(kept, stream));
  OK(cu.cuStreamEndCapture(stream, &graph));
  IS(cu.cuMemAllocAsync(&ptr, 700 * MIB, second) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cuGraphDestroy(graph));
  OK(cu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
  IS(cu.cuMemAllocAsync(&ptr, 700 * MIB, second) == CUDA_ERROR_OUT_OF_MEMORY);
  OK(cu.cuStreamEndCapture(stream, &other));
  OK(cuGraphDestroy(other));
  OK(cu.cuMemAllocAsync(&ptr, 700 * MIB, second));
  OK(cu.cuMemFreeAsync(ptr, second));
  OK(cu.cuStreamDestroy(second));
}

int main(int argc, char **argv) {
  CUcontext context;
  CUdevice device;
  if (argc != 4 || !find_functions(argv[1])) {
    fprintf(stderr, "usage: client_preload linked|dlsym|proc lake|driver CASE\n");
    return 2;
  }
  of_lake = strcmp(argv[2], "lake") == 0;
  if (cuInit(0) || cuDeviceGet(&device, 0) || cuDevicePrimaryCtxRetain(&context, device) ||
      cuCtxSetCurrent(context) || cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING))
    return 2;
  if (strcmp(argv[3], "memory") == 0) case_memory();
  if (strcmp(argv[3], "pools") == 0) case_pools(), case_reused_pool();
  if (strcmp(argv[3], "streams") == 0) case_streams();
  if (strcmp(argv[3], "capture") == 0) case_capture();
  if (strcmp(argv[3], "fork") == 0) case_fork();
  if (strcmp(argv[3], "short") == 0) case_short();
  return failures != 0;
}
