/* The device of tests/play is here the driver without one (fake_cuda.h), behind the CUDA backend.
   It takes the place of the mock that small_lake.h names. A call that is to fail fails below the
   backend: the driver refuses one of the calls that the entry makes, by a number of its own, and
   what the backend has to make of that number is what the player expects to be told. */
#if !defined(FAKE_DEVICE_H)
#define FAKE_DEVICE_H

#define gmlake_mock_create device_create
#define gmlake_mock_destroy device_destroy
#define gmlake_mock_get_census device_get_census
#define gmlake_mock_stream_create device_stream_create
#define gmlake_mock_stream_destroy device_stream_destroy
#define gmlake_mock_stream_hold device_stream_hold
#define gmlake_mock_stream_finish device_stream_finish
#define gmlake_mock_capture_begin device_capture_begin
#define gmlake_mock_capture_end device_capture_end
#define gmlake_mock_stream_set_lag(device, stream, ns) judge(0, "no lags of streams")
#define gmlake_mock_set_clock(device, ns) judge(0, "no clock to be set")

#define HELD_NS ((uint64_t)10 * 1000 * 1000 * 1000) /* work that does not end by itself */
#define DEVICES 4                                   /* the first, and all its peers */

/* Every other lake shares its memory by fabric handles, and can do no other. */
static int is_fabric;
#define SHARED_AS (is_fabric ? GMLAKE_HANDLE_FABRIC : GMLAKE_HANDLE_POSIX_FD)

static void device_get_census(gmlake_backend *device, gmlake_mock_census *out);

#include "play/judge.h"

static const fake_cuda_control *fake;
static gpu_driver gpu; /* the same driver, for the program around the lake */
static gpu_kernels kernels;
static CUcontext context;

/* What a line may ask for that is not here: a line with both words is not played. */
static const struct absence {
  const char *word, *other;
} absent[] = {
    {" t:", ""},
    {"wait-soon", ""},
    {" gA:", ""},
    {" gB:", ""},       /* a clock that may be set */
    {"fill", ""},       /* memory that the host fills */
    {"addresses=", ""}, /* figures of the mock, and its number of errors */
    {"driver-host-waits=", ""},
    {"told-code=1234", ""},
    {"WAIT~", ""}, /* what two waits took, to the nanosecond */
    {"hA EA", ""}, /* work that does not end: here it is captured with the rest */
    /* the legacy stream waits for the others' work, and theirs for its, of streams that end too */
    {"z1:0@A T:5", ""},
    {"fail:wait=1N", ""},
    {"D0 host-waits=2", ""},
    {"D0 host-waits=3", ""},
    {"shows@A", ""},
    {"numbers=38", ""},
    {"host-waits=38", ""},
    {"may-end", "host-waits=1"},
    {"may-end", "off:q=p behind:A=0"},
};

static int is_playable(const char *words) {
  const size_t count = sizeof(absent) / sizeof(absent[0]);
  size_t i = 0;
  while (i < count && (!strstr(words, absent[i].word) || !strstr(words, absent[i].other))) i++;
  return i == count;
}

/* By its path: there may be a real driver on the machine. */
static int open_driver(void) {
  if (!fake && gpu_open(&gpu, FAKE_PATH))
    fake = (const fake_cuda_control *)dlsym(gpu.library, "fake_cuda_control");
  if (!fake) (void)fprintf(stderr, "%s: make it, and run from the repository's root\n", FAKE_PATH);
  return fake != NULL;
}

static void check(CUresult code, const char *what) { judge(code == CUDA_SUCCESS, what); }

/* The program's calls stand between these two. Nothing else leaves a context current. */
static void make_current(void) { check(gpu.cuCtxPushCurrent(context), "cuCtxPushCurrent"); }

static void make_none_current(void) {
  CUcontext popped;
  check(gpu.cuCtxPopCurrent(&popped), "cuCtxPopCurrent");
}

static gmlake_result device_create(const gmlake_mock_desc *desc_of, gmlake_backend **out) {
  fake_cuda_options options;
  gmlake_result result;
  if (!open_driver()) return GMLAKE_ERROR_NO_DRIVER;
  memset(&options, 0, sizeof(options));
  options.device_count = DEVICES;
  options.device_bytes = desc_of->capacity_bytes;
  options.granularity_bytes = desc_of->granularity_bytes;
  options.bookkeeping_only = desc_of->bookkeeping_only;
  options.fabric = options.no_posix_fd = is_fabric = !is_fabric;
  fake->reset(&options);
  result = gmlake_cuda_create(0, out);
  if (result) return result;
  check(gpu.cuDevicePrimaryCtxRetain(&context, 0), "cuDevicePrimaryCtxRetain");
  make_current();
  check(gpu_load_kernels(&gpu, &kernels), "kernels");
  make_none_current();
  return GMLAKE_OK;
}

static void device_destroy(gmlake_backend *device) { gmlake_cuda_destroy(device); }

/* What is accessible is so to the devices that the description names, and to no others. */
static void judge_access(const map *m) {
  const unsigned peers = (1u << desc.peer_count) - 1; /* devices 1 and up */
  CUmemLocation location;
  unsigned long long flags;
  memset(&location, 0, sizeof(location));
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  for (; m->is_accessible && location.id < DEVICES; location.id++) {
    check(gpu.cuMemGetAccess(&flags, &location, (CUdeviceptr)m->at), "cuMemGetAccess");
    judge(flags == ((peers << 1 | 1u) >> location.id & 1 ? CU_MEM_ACCESS_FLAGS_PROT_READWRITE
                                                         : CU_MEM_ACCESS_FLAGS_PROT_NONE),
          "other devices may use the memory than the description names");
  }
}

static void device_get_census(gmlake_backend *device, gmlake_mock_census *out) {
  fake_cuda_census now_there;
  size_t i;
  (void)device;
  fake->get_census(&now_there);
  for (i = 0; w.called[ON_ACCESS] && i < w.map_count; i++) judge_access(w.maps[i]);
  judge(!now_there.pushed, "the thread's stack of contexts has changed");
  memset(out, 0, sizeof(*out));
  out->handle_count = now_there.handles;
  out->mapping_count = now_there.mappings;
  out->reservation_count = now_there.reservations;
  out->event_count = now_there.events;
  out->host_count = now_there.hosts;
  out->physical_bytes = now_there.physical_bytes;
}

/* A blocking stream: the legacy stream may not be used while it is captured. */
static gmlake_result device_stream_create(gmlake_backend *device, gmlake_stream *out) {
  CUstream stream;
  (void)device;
  make_current();
  check(gpu.cuStreamCreate(&stream, CU_STREAM_DEFAULT), "cuStreamCreate");
  make_none_current();
  *out = (gmlake_stream)stream;
  return GMLAKE_OK;
}

static void device_stream_destroy(gmlake_backend *device, gmlake_stream stream) {
  (void)device;
  check(gpu.cuStreamDestroy((CUstream)stream), "cuStreamDestroy");
}

static void device_stream_hold(gmlake_backend *device, gmlake_stream stream) {
  (void)device;
  make_current();
  check(gpu_spin(&gpu, &kernels, (CUstream)stream, HELD_NS), "cuLaunchKernel");
  make_none_current();
}

static void device_stream_finish(gmlake_backend *device, gmlake_stream stream) {
  CUstreamCaptureMode mode = CU_STREAM_CAPTURE_MODE_RELAXED;
  (void)device;
  make_current();
  check(gpu.cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  check(gpu.cuStreamSynchronize((CUstream)stream), "cuStreamSynchronize");
  check(gpu.cuThreadExchangeStreamCaptureMode(&mode), "cuThreadExchangeStreamCaptureMode");
  make_none_current();
}

/* In each of the modes in turn. */
static gmlake_result device_capture_begin(gmlake_backend *device, gmlake_stream stream) {
  const CUresult code =
      gpu.cuStreamBeginCapture((CUstream)stream, (CUstreamCaptureMode)(w.serial % 3));
  (void)device;
  return code ? GMLAKE_ERROR_DRIVER : GMLAKE_OK;
}

static gmlake_result device_capture_end(gmlake_backend *device, gmlake_stream stream) {
  CUgraph graph = NULL;
  (void)device;
  if (gpu.cuStreamEndCapture((CUstream)stream, &graph)) return GMLAKE_ERROR_DRIVER;
  check(gpu.cuGraphDestroy(graph), "cuGraphDestroy");
  return GMLAKE_OK;
}

/* Of each call the driver refuses in turn the question for the current context, its change, and
   what is asked for. A number that says nothing of the device is refused there alone: with no
   context current it would be taken for the device's. */
static int device_fails(int kind, gmlake_result *result, int *code) {
  const int is_unknown = *result == GMLAKE_ERROR_DRIVER;
  const uint64_t place = kind == ON_EXCHANGE ? 1 : is_unknown ? 3 : w.all_calls % 3 + 1;
  if (kind == ON_PROPERTIES) return *code = 1234, 0; /* the backend has them at hand */
  switch (*result) {
  case GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY:
    *code = CUDA_ERROR_OUT_OF_MEMORY;
    if (kind == ON_HOST_ALLOC) *result = GMLAKE_ERROR_OUT_OF_HOST_MEMORY;
    break;
  case GMLAKE_ERROR_OUT_OF_HOST_MEMORY:
    *code = kind == ON_HOST_ALLOC ? CUDA_ERROR_OUT_OF_MEMORY : CUDA_ERROR_UNKNOWN;
    break;
  case GMLAKE_ERROR_INVALID_ARGUMENT:
    *code = kind == ON_RECORD && place == 3 ? CUDA_ERROR_INVALID_HANDLE : CUDA_ERROR_INVALID_VALUE;
    break;
  case GMLAKE_ERROR_UNSUPPORTED:
    *code = CUDA_ERROR_NOT_SUPPORTED;
    break;
  case GMLAKE_ERROR_DEVICE_LOST:
    *code = CUDA_ERROR_ILLEGAL_ADDRESS;
    break;
  case GMLAKE_ERROR_SHUTTING_DOWN:
    *code = CUDA_ERROR_DEINITIALIZED;
    break;
  default:
    *code = CUDA_ERROR_UNKNOWN;
    break;
  }
  fake->fail_function(NULL, place, (CUresult)*code, 0);
  return 1;
}

#endif
