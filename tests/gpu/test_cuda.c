/* Tests of the CUDA backend over a driver without a device (fake_cuda.h): how the entry points are
   found, what every number of the driver becomes, which context is current, captures, peers, handle
   types, forks, a driver that goes away. What a lake does over it, and what comes of calls that
   fail, is in test_cuda_rows.c and test_cuda_faults.c. */
#if !defined(_GNU_SOURCE)
#define _GNU_SOURCE 1 /* gmlake.h wants it, and is not the first header here */
#endif
#include <cuda.h>
#include <dlfcn.h>
#include <stddef.h>
#include <stdio.h>

#include "fake_cuda.h"
#include "gpu.h"
#include "host.h"

/* The backend looks for the driver and for host memory through the test. */
static void *hook_dlopen(const char *name, int flags);
static void *hook_dlsym(void *module, const char *name);
static FILE *hook_fopen(const char *name, const char *mode);
#define fopen(name, mode) hook_fopen(name, mode)
#define dlopen(name, flags) hook_dlopen(name, flags)
#define dlsym(module, name) hook_dlsym(module, name)
#define GMLAKE_MALLOC(bytes) host_malloc(NULL, bytes)
#define GMLAKE_FREE(ptr) host_free(NULL, ptr)
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#include "gmlake.h"
#undef fopen
#undef dlopen
#undef dlsym

#include <pthread.h>
#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "cases.h"

#if !defined(BUILD)
#define BUILD "build" /* the Makefile's folder */
#endif
#define FAKE_PATH BUILD "/fake/libcuda.so.1"
#define MIB ((size_t)1 << 20)
#define CHUNK (2 * MIB)

#define assert_ok(call) assert_int_equal(call, GMLAKE_OK)
#define assert_error(call, name) assert_int_equal(call, GMLAKE_ERROR_##name)
#define count_of(array) (sizeof(array) / sizeof((array)[0]))

/* ---- The driver's library, as the backend sees it -------------------------------------------- */

static struct loader {
  int is_absent;      /* there is no library */
  const char *hidden; /* this is not exported */
  int has_old;        /* older forms are exported too, by the names without _v2 */
  size_t count;
} loader;

#define FUNCTIONS 64
static const char *asked[FUNCTIONS]; /* in order, by who opened the library last */

static void *fake_module; /* of build/fake */

static void *hook_dlopen(const char *name, int flags) {
  assert_string_equal(name, "libcuda.so.1");
  assert_int_equal(flags, RTLD_NOW | RTLD_LOCAL);
  return loader.is_absent ? NULL : fake_module;
}

static void *hook_dlsym(void *module, const char *name) {
  void *address;
  assert_ptr_equal(module, fake_module);
  if (loader.count < FUNCTIONS) asked[loader.count] = name;
  loader.count++;
  if (loader.hidden && strcmp(name, loader.hidden) == 0) return NULL;
  address = dlsym(module, name);
  if (!address && loader.has_old) {
    char younger[64];
    (void)snprintf(younger, sizeof(younger), "%s_v2", name);
    address = dlsym(module, younger);
  }
  return address;
}

/* ---- Fixture --------------------------------------------------------------------------------- */

static const fake_cuda_control *fake;
static gpu_driver gpu; /* the same driver, for what the program around the lake does */
static gmlake_backend *cuda;
static gmlake *lake;
static int code; /* the driver's number of the last call of the table */

static fake_cuda_census census(void) {
  fake_cuda_census now;
  fake->get_census(&now);
  return now;
}

/* A fresh driver. NULL: the defaults. */
static void start(const fake_cuda_options *options) {
  fake->reset(options);
  memset(&loader, 0, sizeof(loader));
  host_bytes = host_fail_in = 0;
  cuda = NULL;
  lake = NULL;
}

static void assert_nothing_left(void) {
  const fake_cuda_census now = census();
  assert_int_equal(now.handles, 0);
  assert_int_equal(now.mappings, 0);
  assert_int_equal(now.reservations, 0);
  assert_int_equal(now.allocations, 0);
  assert_int_equal(now.events, 0);
  assert_int_equal(now.streams, 0);
  assert_int_equal(now.modules, 0);
  assert_int_equal(now.graphs, 0);
  assert_int_equal(now.hosts, 0);
  assert_int_equal(now.physical_bytes, 0);
  assert_int_equal(now.retains, 0);
  assert_int_equal(now.pushed, 0);
  assert_int_equal(host_bytes, 0);
}

static void open_backend(const fake_cuda_options *options) {
  start(options);
  assert_ok(gmlake_cuda_create(0, &cuda));
}

static void close_backend(void) {
  gmlake_cuda_destroy(cuda);
  assert_nothing_left();
}

static fake_cuda_options devices(int count) {
  fake_cuda_options options;
  memset(&options, 0, sizeof(options));
  options.device_count = count;
  return options;
}

/* The program around a lake: contexts, kernels and streams of device 0. Nothing is current. */
static struct program {
  CUcontext context;
  gpu_kernels kernels;
  CUstream streams[2];
} program;

#define run(call) assert_int_equal(call, CUDA_SUCCESS)

static void open_program(void) {
  CUcontext popped;
  size_t i;
  run(gpu.cuInit(0));
  run(gpu.cuDevicePrimaryCtxRetain(&program.context, 0));
  run(gpu.cuCtxPushCurrent(program.context));
  run(gpu_load_kernels(&gpu, &program.kernels));
  for (i = 0; i < 2; i++) run(gpu.cuStreamCreate(&program.streams[i], CU_STREAM_NON_BLOCKING));
  run(gpu.cuCtxPopCurrent(&popped));
}

static void close_program(void) {
  CUcontext popped;
  size_t i;
  run(gpu.cuCtxPushCurrent(program.context));
  for (i = 0; i < 2; i++) run(gpu.cuStreamDestroy(program.streams[i]));
  run(gpu.cuModuleUnload(program.kernels.module));
  run(gpu.cuCtxPopCurrent(&popped));
  run(gpu.cuDevicePrimaryCtxRelease(0));
}

/* What most cases begin and end with: two devices, a backend of the first, and a program. */
static int set_up(void **state) {
  const fake_cuda_options options = devices(2);
  (void)state;
  open_backend(&options);
  open_program();
  return 0;
}

static int tear_down(void **state) {
  (void)state;
  close_program();
  close_backend();
  return 0;
}

#define PREPARED(test) CASE_BETWEEN(set_up, tear_down, test)

static gmlake_desc small_desc(void) {
  gmlake_desc desc;
  memset(&desc, 0, sizeof(desc));
  desc.chunk_bytes = CHUNK;
  return desc;
}

static void open_lake(const gmlake_desc *desc) {
  assert_ok(gmlake_create(desc, &lake));
  assert_ok(gmlake_check(lake));
}

static void *take(size_t bytes, gmlake_stream stream) {
  void *ptr = NULL;
  assert_ok(gmlake_alloc(lake, bytes, stream, &ptr));
  assert_ok(gmlake_check(lake));
  assert_non_null(ptr);
  return ptr;
}

static void give(void *ptr, gmlake_stream stream) {
  assert_ok(gmlake_free(lake, ptr, stream));
  assert_ok(gmlake_check(lake));
}

static void close_lake(void) {
  assert_ok(gmlake_check(lake));
  assert_ok(gmlake_destroy(lake));
  lake = NULL;
}

/* ---- Finding the driver ---------------------------------------------------------------------- */

/* The function is not in the library. has_old: an older form is, which has other parameters and
   must not be taken, but for one. */
static void refuse_one(const char *name, int has_old) {
  const int has_id = strcmp(name, "cuStreamGetId") != 0;
  const int may_lack =
      !has_id || (has_old && strcmp(name, "cuDevicePrimaryCtxRelease_v2") == 0); /* is the same */
  const fake_cuda_options options = devices(1);
  start(&options);
  loader.hidden = name;
  loader.has_old = has_old;
  if (gmlake_cuda_create(0, &cuda) != (may_lack ? GMLAKE_OK : GMLAKE_ERROR_UNSUPPORTED))
    fail_msg("without %s", name);
  assert_int_equal(cuda != NULL, may_lack);
  if (cuda) assert_int_equal(cuda->stream_id != NULL, has_id);
  if (cuda && !cuda->stream_id) { /* streams that end untold could not be told apart */
    gmlake_desc desc = small_desc();
    desc.backend = cuda;
    desc.flags = GMLAKE_STREAMS_MAY_END;
    assert_error(gmlake_create(&desc, &lake), UNSUPPORTED);
  }
  close_backend();
}

CASE(test_missing_symbols) {
  const char *names[FUNCTIONS];
  size_t i, count;
  start(NULL);
  assert_ok(gmlake_cuda_create(0, &cuda));
  count = loader.count;
  close_backend();
  memcpy(names, asked, sizeof(names));
  for (i = 0; i < count; i++) {
    refuse_one(names[i], 0);
    refuse_one(names[i], 1);
  }
}

CASE(test_no_library) {
  start(NULL);
  loader.is_absent = 1;
  cuda = (gmlake_backend *)&code;
  assert_error(gmlake_cuda_create(0, &cuda), NO_DRIVER);
  assert_null(cuda);
  assert_error(gmlake_create(NULL, &lake), NO_DRIVER);
  assert_null(lake);
  assert_nothing_left();
}

/* ---- Opening a device ------------------------------------------------------------------------ */

typedef struct refusal {
  const char *function;
  CUresult code;
  gmlake_result result;
} refusal;

/* Each call of create fails in turn; what came before is undone. */
CASE(test_create_failures) {
  static const refusal refusals[] = {
      {"cuInit", CUDA_ERROR_STUB_LIBRARY, GMLAKE_ERROR_NO_DRIVER},
      {"cuInit", CUDA_ERROR_NO_DEVICE, GMLAKE_ERROR_NO_DEVICE},
      {"cuInit", CUDA_ERROR_NOT_INITIALIZED, GMLAKE_ERROR_FORKED},
      {"cuInit", CUDA_ERROR_DEINITIALIZED, GMLAKE_ERROR_SHUTTING_DOWN},
      {"cuInit", CUDA_ERROR_UNKNOWN, GMLAKE_ERROR_DRIVER},
      {"cuDeviceGet", CUDA_ERROR_INVALID_DEVICE, GMLAKE_ERROR_NO_DEVICE},
      {"cuDeviceGetAttribute", CUDA_ERROR_INVALID_VALUE, GMLAKE_ERROR_UNSUPPORTED},
      {"cuDevicePrimaryCtxRetain", CUDA_ERROR_OUT_OF_MEMORY, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY},
      {"cuDevicePrimaryCtxRetain", CUDA_ERROR_UNKNOWN, GMLAKE_ERROR_DRIVER},
      {"cuDeviceGetName", CUDA_ERROR_UNKNOWN, GMLAKE_ERROR_DRIVER},
      {"cuDeviceTotalMem_v2", CUDA_ERROR_ILLEGAL_ADDRESS, GMLAKE_ERROR_DEVICE_LOST},
      {"cuDeviceGetCount", CUDA_ERROR_UNKNOWN, GMLAKE_ERROR_DRIVER},
      {"cuMemGetAllocationGranularity", CUDA_ERROR_NOT_SUPPORTED, GMLAKE_ERROR_UNSUPPORTED}};
  size_t i;
  for (i = 0; i < count_of(refusals); i++) {
    start(NULL);
    fake->fail_function(refusals[i].function, 1, refusals[i].code, 0);
    assert_int_equal(gmlake_cuda_create(0, &cuda), refusals[i].result);
    assert_string_equal(fake->failed(), refusals[i].function);
    assert_null(cuda);
    fake->fail_function(refusals[i].function, 1, refusals[i].code, 0);
    assert_int_equal(gmlake_create(NULL, &lake), refusals[i].result);
    assert_null(lake);
    assert_nothing_left();
  }
}

CASE(test_create_arguments) {
  start(NULL);
  assert_error(gmlake_cuda_create(0, NULL), INVALID_ARGUMENT);
  cuda = (gmlake_backend *)&code;
  host_fail_in = 1;
  assert_error(gmlake_cuda_create(0, &cuda), OUT_OF_HOST_MEMORY);
  assert_null(cuda);
  assert_int_equal(loader.count, 0);
  gmlake_cuda_destroy(NULL);
  assert_nothing_left();
}

static const char *meminfo; /* what the system says; NULL: it has no such file */
static int meminfo_count;   /* of its files that are read */

static FILE *hook_fopen(const char *name, const char *mode) {
  static char text[256];
  assert_string_equal(name, "/proc/meminfo");
  assert_string_equal(mode, "r");
  meminfo_count++;
  if (!meminfo) return NULL;
  (void)snprintf(text, sizeof(text), "%s", meminfo);
  return fmemopen(text, strlen(text), mode);
}

/* Of an integrated device what Linux has available counts, or, where it does not say, what the
   driver says. Another device's memory is its own. */
CASE(test_integrated) {
  static const struct {
    const char *meminfo;
    int integrated;
    size_t free_bytes;
  } rows[] = {
      {"MemTotal:  9 kB\nMemFree:  8 kB\nMemAvailable:  4097 kB\nBuffers: 3 kB\n", 1, 4097 * 1024},
      {"MemAvailable: 999999999 kB\n", 1, 64 * MIB},           /* not more than there is */
      {"MemFree: 7 kB\nNotMemAvailable: 6 kB\n", 1, 64 * MIB}, /* Linux before 3.14 */
      {NULL, 1, 64 * MIB},
      {"MemAvailable: 4097 kB\n", 0, 64 * MIB},
  };
  fake_cuda_options options = devices(1);
  gmlake_device_properties properties;
  gmlake_desc desc = small_desc();
  size_t i, free_bytes, total_bytes;
  void *ptr = NULL;
  options.device_bytes = 64 * MIB;
  for (i = 0; i < count_of(rows); i++) {
    options.integrated = rows[i].integrated;
    meminfo = rows[i].meminfo;
    meminfo_count = 0;
    open_backend(&options);
    assert_ok(cuda->get_properties(cuda->user, &properties, &code));
    assert_int_equal(properties.is_integrated, rows[i].integrated);
    assert_int_equal(properties.device_bytes, 64 * MIB);
    assert_ok(cuda->get_memory_info(cuda->user, &free_bytes, &total_bytes, &code));
    assert_int_equal(free_bytes, rows[i].free_bytes);
    assert_int_equal(total_bytes, 64 * MIB);
    assert_int_equal(meminfo_count, rows[i].integrated);
    close_backend();
  }
  options.integrated = 1; /* the page cache is no reason to refuse, what the host uses is */
  options.device_bytes = 16 * MIB;
  meminfo = "MemFree: 0 kB\nMemAvailable: 8192 kB\n";
  open_backend(&options);
  desc.backend = cuda;
  desc.driver_free_bytes_min = 6 * MIB;
  open_lake(&desc);
  give(take(CHUNK, NULL), NULL);
  assert_error(gmlake_alloc(lake, 3 * CHUNK, NULL, &ptr), LIMIT_REACHED);
  assert_error(gmlake_pool_sleep(lake, NULL, GMLAKE_SLEEP_KEEP, NULL), UNSUPPORTED);
  assert_ok(gmlake_pool_sleep(lake, NULL, GMLAKE_SLEEP_DROP, NULL));
  close_lake();
  close_backend();
}

static uint64_t host_ns(void) {
  struct timespec now;
  assert_int_equal(clock_gettime(CLOCK_MONOTONIC, &now), 0);
  return (uint64_t)now.tv_sec * 1000000000u + (uint64_t)now.tv_nsec;
}

/* A clock in nanoseconds that goes on, as the host's does. */
PREPARED(test_clock) {
  const struct timespec pause = {0, 5000000};
  uint64_t outside, inside, first, last;
  outside = host_ns();
  first = cuda->clock_ns(cuda->user);
  inside = host_ns();
  assert_int_equal(nanosleep(&pause, NULL), 0);
  inside = host_ns() - inside;
  last = cuda->clock_ns(cuda->user);
  outside = host_ns() - outside;
  assert_in_range(last - first, inside, outside);
}

/* ---- Handle types ---------------------------------------------------------------------------- */

static unsigned handle_types_of(void) {
  gmlake_device_properties properties;
  assert_ok(cuda->get_properties(cuda->user, &properties, &code));
  return properties.handle_types;
}

/* A chunk made with these types: what the driver was asked for. */
static CUmemAllocationProp created_with(unsigned handle_types) {
  uint64_t handle = 0;
  assert_ok(cuda->create(cuda->user, CHUNK, handle_types, &handle, &code));
  assert_int_equal(code, 0);
  assert_int_not_equal(handle, 0);
  assert_ok(cuda->release(cuda->user, handle, &code));
  return census().last_create;
}

static void assert_types(const fake_cuda_options *options, unsigned handle_types) {
  static const unsigned all[] = {0, GMLAKE_HANDLE_POSIX_FD, GMLAKE_HANDLE_WIN32,
                                 GMLAKE_HANDLE_FABRIC,
                                 GMLAKE_HANDLE_POSIX_FD | GMLAKE_HANDLE_FABRIC};
  gmlake_desc desc = small_desc();
  uint64_t handle = 77, before;
  size_t i;
  open_backend(options);
  desc.backend = cuda;
  assert_int_equal(handle_types_of(), handle_types);
  assert_int_equal(census().handles, 0); /* trying left nothing */
  for (i = 0; i < count_of(all); i++) {
    desc.handle_types = all[i];
    if ((all[i] & ~handle_types) == 0) {
      open_lake(&desc);
      assert_int_equal(created_with(all[i]).requestedHandleTypes, all[i]);
      give(take(CHUNK, NULL), NULL);
      close_lake();
      continue;
    }
    before = fake->calls();
    code = 5;
    assert_error(cuda->create(cuda->user, CHUNK, all[i], &handle, &code), UNSUPPORTED);
    assert_int_equal(code, 0);
    assert_int_equal(handle, 77);
    assert_int_equal(fake->calls(), before);
    assert_error(gmlake_create(&desc, &lake), UNSUPPORTED);
  }
  close_backend();
}

CASE(test_handle_types) {
  fake_cuda_options options = devices(1);
  assert_types(&options, GMLAKE_HANDLE_POSIX_FD);
  options.fabric = 1;
  assert_types(&options, GMLAKE_HANDLE_POSIX_FD | GMLAKE_HANDLE_FABRIC);
  options.fabric = 2; /* the attribute is there, the permission is not */
  assert_types(&options, GMLAKE_HANDLE_POSIX_FD);
  options.fabric = 1;
  options.no_posix_fd = 1;
  assert_types(&options, GMLAKE_HANDLE_FABRIC);
  options.fabric = 0;
  assert_types(&options, 0);
}

/* Chunks of a lake are made with its types; the flag for network cards follows the device. */
CASE(test_created_properties) {
  gmlake_desc desc = small_desc();
  CUmemAllocationProp prop;
  int no_rdma;
  for (no_rdma = 0; no_rdma < 2; no_rdma++) {
    fake_cuda_options options = devices(2);
    options.no_rdma = no_rdma;
    start(&options);
    desc.device = 1;
    desc.handle_types = GMLAKE_HANDLE_POSIX_FD;
    open_lake(&desc);
    give(take(CHUNK, NULL), NULL);
    prop = census().last_create;
    assert_int_equal(prop.type, CU_MEM_ALLOCATION_TYPE_PINNED);
    assert_int_equal(prop.requestedHandleTypes, CU_MEM_HANDLE_TYPE_POSIX_FILE_DESCRIPTOR);
    assert_int_equal(prop.location.type, CU_MEM_LOCATION_TYPE_DEVICE);
    assert_int_equal(prop.location.id, 1);
    assert_int_equal(prop.allocFlags.gpuDirectRDMACapable, !no_rdma);
    assert_int_equal(prop.allocFlags.compressionType, 0);
    assert_int_equal(prop.allocFlags.usage, 0);
    assert_null(prop.win32HandleMetaData);
    close_lake();
    assert_nothing_left();
  }
}

/* ---- Numbers of the driver ------------------------------------------------------------------- */

static gmlake_result expected_result(int number) {
  static const int lost[] = {214, 220, 226, 700, 702, 710, 714, 715, 716, 717, 718, 719, 721};
  static const int capturing[] = {900, 901, 902, 903, 904, 905, 906, 907};
  size_t i;
  for (i = 0; i < count_of(lost); i++)
    if (number == lost[i]) return GMLAKE_ERROR_DEVICE_LOST;
  for (i = 0; i < count_of(capturing); i++)
    if (number == capturing[i]) return GMLAKE_ERROR_CAPTURING;
  if (number == 1) return GMLAKE_ERROR_INVALID_ARGUMENT;
  if (number == 2) return GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY;
  if (number == 3) return GMLAKE_ERROR_FORKED;
  if (number == 4) return GMLAKE_ERROR_SHUTTING_DOWN;
  if (number == 34) return GMLAKE_ERROR_NO_DRIVER;
  if (number == 100 || number == 101) return GMLAKE_ERROR_NO_DEVICE;
  return number == 801 ? GMLAKE_ERROR_UNSUPPORTED : GMLAKE_ERROR_DRIVER;
}

/* Every number, from a call that fails on a device that lives and on one that is lost: only the
   unknown ones make the difference. */
CASE(test_results) {
  uint64_t handle = 77;
  int number, dead;
  for (dead = 0; dead < 2; dead++) {
    open_backend(NULL);
    if (dead) fake->lose(CUDA_ERROR_LAUNCH_FAILED);
    for (number = 1; number <= 1001; number++) {
      gmlake_result expected = expected_result(number);
      if (dead && expected == GMLAKE_ERROR_DRIVER) expected = GMLAKE_ERROR_DEVICE_LOST;
      fake->fail_function("cuMemCreate", 1, (CUresult)number, 0);
      if (cuda->create(cuda->user, CHUNK, 0, &handle, &code) != expected || code != number)
        fail_msg("%d did not become %s", number, gmlake_result_name(expected));
      assert_int_equal(handle, 77);
    }
    close_backend();
  }
}

/* ---- The table's entries, and the current context -------------------------------------------- */

static struct outputs { /* what the entries write, and the next ones use */
  size_t free_bytes, total_bytes;
  uint64_t address, handle, imported;
  void *event, *host;
  uint64_t id;
  int done, mode, is_capturing;
  gmlake_handle shared;
} out;

/* The table's entries, in an order in which each finds what it needs and nothing is left at the
   end, and the driver's functions that each calls. Of the mode: there, and back. */
typedef struct entry {
  gmlake_result (*call)(void);
  const char *functions;
} entry;
static entry entries[32];
static size_t entry_count;

#define ENTRY_OF(name, names)                                                         \
  static gmlake_result name(void);                                                    \
  __attribute__((constructor(100 + __LINE__))) static void name##_is_an_entry(void) { \
    const entry added = {name, names};                                                \
    entries[entry_count++] = added;                                                   \
  }                                                                                   \
  static gmlake_result name(void)
#define ENTRY(name, functions, call, ...) \
  ENTRY_OF(name, functions) { return cuda->call(cuda->user, __VA_ARGS__, &code); }
#define STREAM ((gmlake_stream)program.streams[0])
#define MIDDLE (out.address + CHUNK)
ENTRY(do_memory_info, "cuMemGetInfo_v2", get_memory_info, &out.free_bytes, &out.total_bytes)
ENTRY(do_reserve, "cuMemAddressReserve", reserve, 4 * CHUNK, 4 * CHUNK, &out.address)
ENTRY(do_create, "cuMemCreate", create, CHUNK, GMLAKE_HANDLE_POSIX_FD, &out.handle)
ENTRY(do_export, "cuMemExportToShareableHandle", export_handle, out.handle, &out.shared)
ENTRY(do_import, "cuMemImportFromShareableHandle", import_handle, &out.shared, &out.imported)
ENTRY_OF(do_release_import, "cuMemRelease") {
  const gmlake_result result = cuda->release(cuda->user, out.imported, &code);
  if (!result) assert_int_equal(close(out.shared.fd), 0);
  return result;
}
ENTRY(do_map, "cuMemMap", map, MIDDLE, CHUNK, out.handle)
ENTRY(do_set_access, "cuMemSetAccess", set_access, MIDDLE, CHUNK, NULL, 0)
ENTRY(do_event_create, "cuEventCreate", event_create, &out.event)
ENTRY(do_event_record, "cuEventRecord", event_record, out.event, NULL)
ENTRY(do_event_query, "cuEventQuery", event_query, out.event, &out.done)
ENTRY(do_event_wait, "cuEventSynchronize", event_wait, out.event)
ENTRY_OF(do_event_wait_any, "cuEventQuery") {
  unsigned place;
  return cuda->event_wait_any(cuda->user, &out.event, 1, &place, &code);
}
ENTRY(do_stream_wait, "cuStreamWaitEvent", stream_wait, (gmlake_stream)(uintptr_t)1, out.event)
ENTRY(do_stream_id, "cuStreamIsCapturing cuStreamGetId", stream_id, STREAM, &out.id)
ENTRY(do_is_capturing, "cuStreamIsCapturing", is_capturing, STREAM, &out.is_capturing)
ENTRY_OF(do_device_wait, "cuCtxSynchronize") { return cuda->device_wait(cuda->user, &code); }
ENTRY(do_host_alloc, "cuMemHostRegister_v2", host_alloc, CHUNK, &out.host)
ENTRY(do_copy_out, "cuMemcpyDtoHAsync_v2 cuStreamSynchronize", copy, MIDDLE, out.host, CHUNK, 1)
ENTRY(do_copy_in, "cuMemcpyHtoDAsync_v2 cuStreamSynchronize", copy, MIDDLE, out.host, CHUNK, 0)
ENTRY(do_copy_wait, "cuStreamSynchronize", copy, 0, NULL, 0, 0)
ENTRY(do_host_free, "cuMemHostUnregister", host_free, out.host)
ENTRY(do_exchange, "cuThreadExchangeStreamCaptureMode cuThreadExchangeStreamCaptureMode",
      capture_exchange, &out.mode)
ENTRY(do_event_destroy, "cuEventDestroy_v2", event_destroy, out.event)
ENTRY(do_unmap, "cuMemUnmap", unmap, MIDDLE, CHUNK)
ENTRY(do_release, "cuMemRelease", release, out.handle)
ENTRY(do_unreserve, "cuMemAddressFree", unreserve, out.address, 4 * CHUNK)
static gmlake_result do_host_alloc_all(void) {
  return cuda->host_alloc(cuda->user, SIZE_MAX, &out.host, &code);
}
static gmlake_result do_host_alloc_much(void) {
  return cuda->host_alloc(cuda->user, SIZE_MAX / 4, &out.host, &code);
}

static void prepare_outputs(void) {
  memset(&out, 0x5A, sizeof(out));
  out.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  out.shared.type = GMLAKE_HANDLE_POSIX_FD;
  out.shared.bytes = CHUNK;
}

/* Each fails because its function does, and because its context cannot be had: nothing is written.
   Another device's context is current, which must not answer for it. */
static void fail_entry(const entry *e, const char *function, CUresult number,
                       gmlake_result expected) {
  const struct outputs before = out;
  fake->fail_function(function, 1, number, 0);
  if (e->call() != expected) fail_msg("%s in an entry: the wrong result", function);
  assert_int_equal(code, number);
  assert_memory_equal(&before, &out, sizeof(out));
}

PREPARED(test_entries) {
  CUcontext other;
  size_t i;
  prepare_outputs();
  run(gpu.cuDevicePrimaryCtxRetain(&other, 1));
  run(gpu.cuCtxPushCurrent(other));
  for (i = 0; i < entry_count; i++) {
    const entry *e = &entries[i];
    char names[96], *rest, *name;
    (void)snprintf(names, sizeof(names), "%s", e->functions);
    for (name = strtok_r(names, " ", &rest); name; name = strtok_r(NULL, " ", &rest)) {
      fail_entry(e, name, CUDA_ERROR_INVALID_VALUE, GMLAKE_ERROR_INVALID_ARGUMENT);
      fail_entry(e, name, CUDA_ERROR_UNKNOWN, GMLAKE_ERROR_DRIVER);
      if (e->call != do_exchange) /* the mode is the thread's: it needs no context */
        fail_entry(e, "cuCtxGetCurrent", CUDA_ERROR_INVALID_CONTEXT, GMLAKE_ERROR_DEVICE_LOST);
      code = 5;
      assert_ok(e->call());
      assert_int_equal(code, 0);
      assert_int_equal(census().pushed, 1);
    }
  }
  run(gpu.cuCtxPopCurrent(&other));
  run(gpu.cuDevicePrimaryCtxRelease(1));
  assert_true(out.free_bytes > 0 && out.free_bytes <= out.total_bytes);
  assert_int_equal(out.address % (4 * CHUNK), 0);
  assert_int_equal(out.done, 1);
}

/* Pinned memory is the backend's own pages, which a child of fork has not. */
PREPARED(test_host_memory) {
  const size_t hosts = census().hosts;
  pid_t child;
  int status;
  prepare_outputs();
  assert_ok(do_host_alloc());
  assert_int_equal(census().hosts, hosts + 1);
  memset(out.host, 1, CHUNK);
  child = fork();
  if (!child) {
    (void)signal(SIGSEGV, SIG_DFL);
    _exit(((volatile char *)out.host)[CHUNK - 1] != 1);
  }
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_true(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  assert_ok(do_host_free());
  assert_int_equal(census().hosts, hosts);
  /* Where there is nothing to register it is the driver's. */
  fake->fail_function("cuMemHostRegister_v2", 1, CUDA_ERROR_NOT_SUPPORTED, 0);
  assert_ok(do_host_alloc());
  assert_int_equal(census().hosts, hosts + 1);
  memset(out.host, 1, CHUNK);
  assert_ok(do_host_free());
  assert_int_equal(census().hosts, hosts);
  assert_error(do_host_alloc_all(), OUT_OF_HOST_MEMORY);
  assert_error(do_host_alloc_much(), OUT_OF_HOST_MEMORY);
}

/* Copies, on two streams that the first ones make, while the program captures. Each call waits for
   the copy before. */
PREPARED(test_copies) {
  const size_t streams = 2 + count_of(program.streams);
  CUgraph graph;
  size_t i;
  prepare_outputs();
  assert_ok(do_reserve());
  assert_ok(do_create());
  assert_ok(do_map());
  assert_ok(do_set_access());
  fake->fail_function("cuMemHostRegister_v2", 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
  assert_error(do_host_alloc(), OUT_OF_HOST_MEMORY);
  assert_ok(do_host_alloc());
  fake->fail_function("cuStreamCreate", 1, CUDA_ERROR_OUT_OF_MEMORY, 0);
  assert_error(do_copy_in(), OUT_OF_DEVICE_MEMORY);
  run(gpu.cuStreamBeginCapture(program.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
  out.mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  assert_ok(do_exchange());
  assert_int_equal(out.mode, CU_STREAM_CAPTURE_MODE_GLOBAL);
  for (i = 0; i < CHUNK; i++) ((unsigned char *)out.host)[i] = (unsigned char)(i * 7);
  assert_ok(do_copy_in());
  assert_ok(do_copy_wait());
  memset(out.host, 0, CHUNK);
  assert_ok(do_copy_out());
  fake->fail_function("cuStreamSynchronize", 1, CUDA_ERROR_INVALID_VALUE, 0);
  assert_error(do_copy_in(), INVALID_ARGUMENT);
  assert_int_equal(census().pending, 0);
  memset(out.host, 0, CHUNK);
  assert_ok(do_copy_out());
  assert_ok(do_copy_wait());
  for (i = 0; i < CHUNK; i++)
    assert_int_equal(((unsigned char *)out.host)[i], (unsigned char)(i * 7));
  assert_ok(do_exchange());
  assert_int_equal(out.mode, CU_STREAM_CAPTURE_MODE_RELAXED);
  run(gpu.cuStreamEndCapture(program.streams[0], &graph));
  run(gpu.cuGraphDestroy(graph));
  assert_int_equal(census().streams, streams);
  assert_ok(do_host_free());
  assert_ok(do_unmap());
  assert_ok(do_release());
  assert_ok(do_unreserve());
}

/* Only what the granularity does not give already is asked of the driver. */
PREPARED(test_alignment) {
  uint64_t address;
  size_t alignment;
  for (alignment = 512; alignment <= ((size_t)1 << 30); alignment *= 2) {
    assert_ok(cuda->reserve(cuda->user, CHUNK, alignment, &address, &code));
    assert_int_equal(address % alignment, 0);
    assert_int_equal(address % CHUNK, 0);
    assert_int_equal(census().last_alignment, alignment <= CHUNK ? 0 : alignment);
    assert_ok(cuda->unreserve(cuda->user, address, CHUNK, &code));
  }
}

/* ---- Captures -------------------------------------------------------------------------------- */

/* The entries alone do not exchange the mode: without the lake's exchange a capture is spoilt, so
   test_cuda_rows.c can see one that is missing. */
PREPARED(test_capture_spoilt) {
  CUgraph graph = NULL;
  prepare_outputs();
  assert_ok(do_event_create());
  assert_ok(cuda->event_record(cuda->user, out.event, program.streams[1], &code));
  run(gpu.cuCtxSetCurrent(program.context));
  run(gpu.cuStreamBeginCapture(program.streams[0], CU_STREAM_CAPTURE_MODE_GLOBAL));
  (void)do_event_query();
  assert_int_equal(gpu.cuStreamEndCapture(program.streams[0], &graph),
                   CUDA_ERROR_STREAM_CAPTURE_INVALIDATED);
  assert_null(graph);
  run(gpu.cuCtxSetCurrent(NULL));
  assert_ok(do_event_destroy());
}

/* ---- Peers ----------------------------------------------------------------------------------- */

PREPARED(test_too_many_peers) {
  int peers[GMLK_PEERS_MAX + 1] = {0};
  uint64_t before;
  before = fake->calls();
  code = 5;
  assert_error(cuda->set_access(cuda->user, CHUNK, CHUNK, peers, count_of(peers), &code),
               INVALID_ARGUMENT);
  assert_int_equal(code, 0);
  assert_int_equal(fake->calls(), before);
}

/* ---- A child of fork ------------------------------------------------------------------------- */

static int child_failures;

#define CHILD(condition)                                              \
  do {                                                                \
    if (!(condition)) {                                               \
      fprintf(stderr, "child: %s (line %d)\n", #condition, __LINE__); \
      child_failures++;                                               \
    }                                                                 \
  } while (0)
#define FORKED(call) CHILD((call) == GMLAKE_ERROR_FORKED)

static void use_table_in_child(void) {
  gmlake_device_properties properties;
  size_t i;
  prepare_outputs();
  for (i = 0; i < entry_count; i++) {
    code = 5;
    FORKED(entries[i].call());
    CHILD(code == 0);
  }
  code = 5;
  FORKED(cuda->get_properties(cuda->user, &properties, &code));
  CHILD(code == 0);
}

static int child_main(void) {
  const uint64_t before = fake->calls();
  const size_t held = host_bytes;
  gmlake_backend *another = cuda;
  child_failures = 0;
  use_table_in_child();
  FORKED(gmlake_destroy(lake));
  gmlake_cuda_destroy(cuda);
  CHILD(fake->calls() == before);
  CHILD(host_bytes < held); /* the backend's record alone */
  FORKED(gmlake_cuda_create(0, &another));
  CHILD(!another);
  return child_failures != 0;
}

/* A lake with a backend of its own, and a table by itself. */
PREPARED(test_forked) {
  gmlake_desc desc = small_desc();
  int status = 0;
  pid_t child;
  open_lake(&desc);
  give(take(4 * CHUNK, program.streams[0]), program.streams[0]);
  fflush(NULL);
  child = fork();
  assert_true(child >= 0);
  if (child == 0) _exit(child_main());
  assert_int_equal(waitpid(child, &status, 0), child);
  assert_int_equal(status, 0);
  give(take(16 * CHUNK, NULL), NULL);
  close_lake();
}

/* ---- Streams that are destroyed untold ------------------------------------------------------- */

/* 709 and 400 tell of a stream where the context is alive, of the context where it is not. */
PREPARED(test_stream_gone) {
  static const CUresult numbers[] = {CUDA_ERROR_INVALID_HANDLE, CUDA_ERROR_CONTEXT_IS_DESTROYED};
  gmlake_stream stream;
  uint64_t id = 77;
  size_t i;
  stream = (gmlake_stream)program.streams[0];
  assert_ok(do_event_create());
  for (i = 0; i < count_of(numbers); i++) {
    fake->fail_function("cuEventRecord", 1, numbers[i], 0);
    assert_error(cuda->event_record(cuda->user, out.event, stream, &code), INVALID_ARGUMENT);
    assert_int_equal(code, numbers[i]);
    fake->fail_function("cuStreamGetId", 1, numbers[i], 0);
    assert_error(cuda->stream_id(cuda->user, stream, &id, &code), INVALID_ARGUMENT);
    assert_int_equal(code, numbers[i]);
    assert_int_equal(id, 77);
    fake->fail_function("cuStreamWaitEvent", 1, numbers[i], 0);
    assert_error(do_stream_wait(), DRIVER);
  }
  assert_ok(do_event_destroy());
  close_program();
  open_program();
  assert_ok(do_event_create());
  fake->lose(CUDA_ERROR_LAUNCH_FAILED);
  for (i = 0; i < count_of(numbers); i++) {
    fake->fail_function("cuEventRecord", 1, numbers[i], 0);
    assert_error(do_event_record(), DEVICE_LOST);
    assert_int_equal(code, numbers[i]);
  }
  assert_ok(do_event_destroy());
}

/* Whether a stream is captured, its capture spoilt or not; and whether the legacy stream may be
   used meanwhile. To ask spoils nothing. */
PREPARED(test_is_capturing) {
  static const unsigned kinds[] = {CU_STREAM_DEFAULT, CU_STREAM_NON_BLOCKING};
  CUcontext popped;
  int is, spoils;
  size_t i;
  run(gpu.cuCtxPushCurrent(program.context));
  for (i = 0; i < count_of(kinds); i++)
    for (spoils = 0; spoils < 2; spoils++) {
      CUgraph graph = NULL;
      CUstream stream;
      CUevent event;
      run(gpu.cuStreamCreate(&stream, kinds[i]));
      run(gpu.cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
      run(gpu.cuStreamBeginCapture(stream, CU_STREAM_CAPTURE_MODE_GLOBAL));
      if (spoils) assert_int_not_equal(gpu.cuEventQuery(event), CUDA_SUCCESS);
      is = 7;
      assert_ok(cuda->is_capturing(cuda->user, (gmlake_stream)stream, &is, &code));
      assert_int_equal(is, 1);
      assert_error(cuda->stream_id(cuda->user, (gmlake_stream)stream, &out.id, &code), CAPTURING);
      assert_ok(cuda->is_capturing(cuda->user, NULL, &is, &code));
      assert_int_equal(is, !i);
      assert_ok(cuda->is_capturing(cuda->user, (gmlake_stream)program.streams[0], &is, &code));
      assert_int_equal(is, 0);
      assert_int_equal(gpu.cuStreamEndCapture(stream, &graph) == CUDA_SUCCESS, !spoils);
      is = 7;
      assert_ok(cuda->is_capturing(cuda->user, (gmlake_stream)stream, &is, &code));
      assert_int_equal(is, 0);
      if (graph) run(gpu.cuGraphDestroy(graph));
      run(gpu.cuEventDestroy(event));
      run(gpu.cuStreamDestroy(stream));
    }
  run(gpu.cuCtxPopCurrent(&popped));
}

/* ---- Main ------------------------------------------------------------------------------------ */

/* The fake, by its path: there may be a real driver on the machine. */
static int open_fake(void) {
  void *control;
  if (!gpu_open(&gpu, FAKE_PATH)) return 0;
  fake_module = gpu.library;
  control = dlsym(fake_module, "fake_cuda_control");
  fake = (const fake_cuda_control *)control;
  return fake != NULL;
}

int main(void) {
  if (open_fake()) return run_cases("cuda");
  fprintf(stderr, "%s: make it, and run from the repository's root\n", FAKE_PATH);
  return 1;
}
