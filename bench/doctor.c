/* Says what this machine's driver, devices and limits allow, and which features of gmlake work
   here: each is tried, and where it does not work the reason is told. Usage: doctor */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_CUDA
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <stdio.h>
#include <sys/resource.h>
#include <sys/utsname.h>
#include <unistd.h>

#include <cuda.h>
#include "gpu.h"
#include "options.h"

#define MIB ((size_t)1 << 20)
#define COLUMN 34

static struct doctor {
  gpu_driver gpu;
  gmlake_backend *backend;
  gmlake_device_properties device;
  size_t chunk; /* of the lake */
  int missing;  /* features that do not work */
} doctor;

static void tell(const char *what, const char *text) { printf("  %-*s %s\n", COLUMN, what, text); }

/* A feature, and what was tried for it. Why not: the lake's text, else `otherwise`. */
static void judge(const char *feature, gmlake *lake, gmlake_result result, const char *otherwise) {
  gmlake_error_info error;
  char text[512];
  if (result == GMLAKE_OK) {
    tell(feature, "works");
    return;
  }
  doctor.missing++;
  if (lake && gmlake_get_last_error(lake, &error) == GMLAKE_OK && error.result == result)
    snprintf(text, sizeof(text), "does not: %s: %s", error.call, error.text);
  else
    snprintf(text, sizeof(text), "does not: %s%s%s", gmlake_result_name(result),
             *otherwise ? ": " : "", otherwise);
  tell(feature, text);
}

/* ---- The host ---- */

static void tell_limit(const char *what, int which, const char *use) {
  struct rlimit limit;
  char text[128];
  if (getrlimit(which, &limit)) return;
  if (limit.rlim_cur == RLIM_INFINITY)
    snprintf(text, sizeof(text), "no limit; %s", use);
  else
    snprintf(text, sizeof(text), "%llu; %s", (unsigned long long)limit.rlim_cur, use);
  tell(what, text);
}

static void examine_host(void) {
  struct utsname system;
  char text[256];
  puts("host");
  if (!uname(&system)) {
    snprintf(text, sizeof(text), "%.60s %.60s, %.40s, %ld processors", system.sysname,
             system.release, system.machine, sysconf(_SC_NPROCESSORS_ONLN));
    tell("system", text);
  }
  snprintf(
      text, sizeof(text), "%.1f GiB; GMLAKE_SLEEP_KEEP pins as much as it keeps",
      (double)sysconf(_SC_PHYS_PAGES) * (double)sysconf(_SC_PAGESIZE) / (1024.0 * (double)MIB));
  tell("memory", text);
  tell_limit("locked memory (ulimit -l), bytes", RLIMIT_MEMLOCK,
             "for programs that lock memory themselves");
  tell_limit("open files (ulimit -n)", RLIMIT_NOFILE, "each exported chunk takes one");
}

/* The mock needs no GPU: CI and trials run on it. */
static void examine_mock(void) {
  gmlake_mock_desc desc;
  gmlake_backend *mock = NULL;
  uint64_t one = 0, handle = 0;
  gmlake_result result;
  int code;
  memset(&desc, 0, sizeof(desc));
  result = gmlake_mock_create(&desc, &mock);
  if (!result) result = mock->reserve(mock->user, 4 * MIB, 2 * MIB, &one, &code);
  if (!result) result = mock->create(mock->user, 2 * MIB, 0, &handle, &code);
  if (!result) result = mock->map(mock->user, one, 2 * MIB, handle, &code);
  if (!result) result = mock->map(mock->user, one + 2 * MIB, 2 * MIB, handle, &code);
  judge("the mock, with memory mapped twice", NULL, result,
        "it needs memfd_create; bookkeeping_only works");
  gmlake_mock_destroy(mock);
}

/* ---- A device ---- */

static gmlake *open_lake(unsigned handle_types) {
  gmlake_error_info error;
  gmlake_desc desc;
  gmlake *lake = NULL;
  gmlake_result result;
  memset(&desc, 0, sizeof(desc));
  memset(&error, 0, sizeof(error));
  desc.backend = doctor.backend;
  desc.handle_types = handle_types;
  desc.out_error = &error;
  result = gmlake_create(&desc, &lake);
  if (!result && gmlake_get_desc(lake, &desc) == GMLAKE_OK) doctor.chunk = desc.chunk_bytes;
  if (result && !handle_types) judge("a lake", NULL, result, error.text);
  return lake;
}

/* Three blocks of a chunk each; of what the outer two leave a block is stitched. */
static gmlake_result try_stitching(gmlake *lake) {
  const size_t bytes = doctor.chunk;
  void *part[3], *whole = NULL;
  gmlake_alloc_desc wanted;
  gmlake_stats stats;
  gmlake_result result = GMLAKE_OK;
  size_t i;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = 2 * bytes;
  wanted.flags = GMLAKE_NO_GROW;
  for (i = 0; i < 3 && !result; i++) result = gmlake_alloc(lake, bytes, NULL, &part[i]);
  if (result) return result;
  (void)gmlake_free(lake, part[0], NULL);
  (void)gmlake_free(lake, part[2], NULL);
  result = gmlake_alloc_with(lake, &wanted, NULL, &whole);
  if (!result && gmlake_get_stats(lake, &stats) == GMLAKE_OK && !stats.stitch_count)
    result = GMLAKE_ERROR_UNSUPPORTED;
  (void)gmlake_free(lake, whole, NULL);
  (void)gmlake_free(lake, part[1], NULL);
  return result;
}

static gmlake_result try_buffer(gmlake *lake) {
  gmlake_buffer *buffer = NULL;
  gmlake_buffer_desc wanted;
  gmlake_buffer_info info;
  gmlake_result result;
  memset(&wanted, 0, sizeof(wanted));
  wanted.max_bytes = 64 * MIB;
  result = gmlake_buffer_create(lake, &wanted, &buffer);
  if (!result) result = gmlake_buffer_get_info(lake, buffer, &info);
  if (!result) result = gmlake_buffer_resize(lake, buffer, 3 * info.chunk_bytes, NULL);
  if (!result)
    result = gmlake_buffer_discard(lake, buffer, info.chunk_bytes, info.chunk_bytes, NULL);
  if (buffer) (void)gmlake_buffer_destroy(lake, buffer, NULL);
  return result;
}

static gmlake_result try_sleep(gmlake *lake, gmlake_sleep_mode mode) {
  gmlake_alloc_desc wanted;
  gmlake_pool *pool = NULL;
  void *block = NULL;
  gmlake_result result = gmlake_pool_create(lake, NULL, &pool), woken;
  memset(&wanted, 0, sizeof(wanted));
  wanted.bytes = 3 * MIB;
  wanted.pool = pool;
  if (!result) result = gmlake_alloc_with(lake, &wanted, NULL, &block);
  if (!result) {
    result = gmlake_pool_sleep(lake, pool, mode, NULL);
    woken = gmlake_pool_wake(lake, pool);
    if (!result) result = woken;
  }
  if (block) (void)gmlake_free(lake, block, NULL);
  if (pool) (void)gmlake_pool_destroy(lake, pool);
  return result;
}

static void examine_handles(void) {
  static const struct kind {
    unsigned type;
    const char *name;
  } kinds[] = {{GMLAKE_HANDLE_POSIX_FD, "chunks as file descriptors"},
               {GMLAKE_HANDLE_FABRIC, "chunks as fabric handles"}};
  size_t i;
  for (i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
    gmlake *lake = doctor.device.handle_types & kinds[i].type ? open_lake(kinds[i].type) : NULL;
    void *block = NULL;
    gmlake_result result = lake ? gmlake_alloc(lake, MIB, NULL, &block) : GMLAKE_ERROR_UNSUPPORTED;
    judge(kinds[i].name, lake, result, lake ? "" : "the device has none");
    if (lake) {
      (void)gmlake_free(lake, block, NULL);
      (void)gmlake_destroy(lake);
    }
  }
}

static void examine_peers(int device, int count) {
  char what[64];
  int other, can;
  for (other = 0; other < count; other++) {
    if (other == device) continue;
    can = 0;
    (void)doctor.gpu.cuDeviceCanAccessPeer(&can, device, other);
    snprintf(what, sizeof(what), "access from device %d", other);
    judge(what, NULL, can ? GMLAKE_OK : GMLAKE_ERROR_UNSUPPORTED, "the driver says no");
  }
}

static void examine_device(int device, int count) {
  gmlake_result result = gmlake_cuda_create(device, &doctor.backend);
  size_t free_bytes = 0, total_bytes = 0;
  gmlake *lake;
  char text[160];
  int code;
  printf("device %d\n", device);
  if (result) {
    judge("virtual memory management", NULL, result, "gmlake_bfc.h works without it");
    return;
  }
  (void)doctor.backend->get_properties(doctor.backend->user, &doctor.device, &code);
  (void)doctor.backend->get_memory_info(doctor.backend->user, &free_bytes, &total_bytes, &code);
  tell("name", doctor.device.name);
  snprintf(text, sizeof(text), "%.1f GiB%s, %.1f free; in steps of %zu KiB",
           (double)total_bytes / (1024.0 * (double)MIB),
           doctor.device.is_integrated ? " of the host's" : "",
           (double)free_bytes / (1024.0 * (double)MIB), doctor.device.granularity_bytes >> 10);
  tell("memory", text);
  lake = open_lake(0);
  if (lake) {
    judge("virtual memory management", lake, GMLAKE_OK, "");
    snprintf(text, sizeof(text), "%zu MiB", doctor.chunk / MIB);
    tell("a lake's chunks", text);
    judge("stitching", lake, try_stitching(lake), "");
    judge("growing buffers", lake, try_buffer(lake), "");
    judge("sleep, contents dropped", lake, try_sleep(lake, GMLAKE_SLEEP_DROP), "");
    judge("sleep, contents kept", lake, try_sleep(lake, GMLAKE_SLEEP_KEEP), "");
    (void)gmlake_destroy(lake);
  }
  judge("GMLAKE_STREAMS_MAY_END", NULL,
        doctor.backend->stream_id ? GMLAKE_OK : GMLAKE_ERROR_UNSUPPORTED,
        "the driver has no cuStreamGetId: it is older than 12.0, and gmlake_create refuses it");
  examine_handles();
  examine_peers(device, count);
  gmlake_cuda_destroy(doctor.backend);
}

static void examine_devices(void) {
  int version = 0, count = 0, device;
  char text[96];
  puts("driver");
  if (!gpu_open(&doctor.gpu, "libcuda.so.1") && !doctor.gpu.library) {
    judge("libcuda.so.1", NULL, GMLAKE_ERROR_NO_DRIVER, "the file is missing; the mock needs none");
    return;
  }
  if (!doctor.gpu.cuInit || doctor.gpu.cuInit(0) != CUDA_SUCCESS) {
    judge("libcuda.so.1", NULL, GMLAKE_ERROR_NO_DEVICE, "it starts no device");
    return;
  }
  (void)doctor.gpu.cuDriverGetVersion(&version);
  (void)doctor.gpu.cuDeviceGetCount(&count);
  snprintf(text, sizeof(text), "CUDA %d.%d, %d device%s", version / 1000, version % 1000 / 10,
           count, count == 1 ? "" : "s");
  tell("libcuda.so.1", text);
  for (device = 0; device < count; device++) examine_device(device, count);
}

int main(int argc, char **argv) {
  const option_reader reader = {
      "doctor",
      "",
      "Says what this machine's driver, devices and limits allow, and which features of gmlake\n"
      "work here. Each is tried. It succeeds whatever it finds.\n",
      "",
      NULL,
      0};
  int help, first = options_parse(&reader, argc, argv, &help);
  if (help) {
    options_help(&reader);
    return 0;
  }
  if (first < argc) {
    fprintf(stderr, "doctor: %s: it takes no argument\n", argv[first]);
    return 2;
  }
  examine_host();
  examine_mock();
  examine_devices();
  printf("%d feature%s %s not work here\n", doctor.missing, doctor.missing == 1 ? "" : "s",
         doctor.missing == 1 ? "does" : "do");
  return 0;
}
