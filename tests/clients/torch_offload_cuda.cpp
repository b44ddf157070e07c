/* A training loop as gmlake_torch runs it, without torch: an allocator on a lake, a session as its
   guest, and the driver's streams and copies. Words that are wrong, memory above the limit or
   addresses that change fail. On the driver without a device, or a real one.

     client_torch_offload_cuda LIMIT_MIB CHUNK_MIB [checked]
     client_torch_offload_cuda varying

   The second has a limit of 64 MiB, and memory beside the session that comes and goes. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_BFC_STATIC
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_STATIC
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define GMLAKE_OFFLOAD_LAKE
#include "examples/torch/lake.hpp"

#include "gmlake_offload.h"

#include "examples/torch/offload.hpp"

extern "C" { /* its members have the names of functions, which C++ otherwise refuses */
#include "bench/gpu.h"
}

#include <cstdio>
#include <cstdlib>
#include <cstring>

using namespace gmlake_torch;

#define check(condition) ((condition) ? (void)0 : broken(#condition, __LINE__))
[[noreturn]] static void broken(const char *what, int line) {
  std::fprintf(stderr, "torch_offload_cuda.cpp:%d: %s\n", line, what);
  std::exit(1);
}

static const size_t MIB = size_t(1) << 20, WEIGHT = 8 * MIB, LITTLE = 300000;
static const size_t LAYERS = 12, VARYING_LIMIT = 64 * MIB, OTHERS = 2560 * 1024;
static const uint32_t ITERATIONS = 12;

struct Scene {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUstream stream = nullptr;
  CUdeviceptr wrong = 0;
  gmlake_offload_lake source{};
  std::unique_ptr<Device> device;
  std::unique_ptr<Offload> offload;
  uint64_t made = 0; /* what the last operator has made */
  const bool has_pool;

  Scene(size_t limit_bytes, size_t chunk_bytes, bool is_checked, bool has_own_pool);

  void make_device(size_t chunk_bytes);
  void make_session(size_t limit_bytes, size_t chunk_bytes, bool is_checked);
  gmlake_stats stats(bool of_pool) {
    gmlake_stats out{};
    check(!(of_pool ? gmlake_pool_get_stats(source.lake, source.pool, &out)
                    : gmlake_get_stats(source.lake, &out)));
    return out;
  }

  uint64_t alloc(size_t bytes);
  void free(uint64_t address) {
    size_t bytes = 0;
    check(device->free_at(reinterpret_cast<void *>(address), &bytes));
  }
  void step(uint64_t key, const std::vector<uint64_t> &reads, const std::vector<uint64_t> &writes);
  void fill(uint64_t address, size_t bytes, uint32_t seed) {
    check(!gpu_fill(&gpu, &kernels, stream, address, bytes / 4, seed));
  }
  void verify(uint64_t address, uint32_t seed) {
    check(!gpu_verify(&gpu, &kernels, stream, address, WEIGHT / 4, seed, wrong));
  }
  uint64_t wrong_count() {
    uint64_t count = 0;
    check(!gpu.cuCtxSynchronize() && !gpu.cuMemcpyDtoH(&count, wrong, sizeof count));
    return count;
  }

  std::vector<uint64_t> make_weights();
  /* Forward and backward; small memory beside it is the lake's own. */
  void iterate(const std::vector<uint64_t> &weights, uint32_t iteration);
  /* Work on some weights while others have so much memory, and then on six. */
  void vary(const std::vector<uint64_t> &weights, uint32_t first, size_t others_bytes);
};

Scene::Scene(size_t limit_bytes, size_t chunk_bytes, bool is_checked, bool has_own_pool)
    : has_pool(has_own_pool) {
  CUcontext context = nullptr;
  const uint64_t zero = 0;
  check(gpu_open(&gpu, "libcuda.so.1") && !gpu.cuInit(0));
  check(!gpu.cuDevicePrimaryCtxRetain(&context, 0) && !gpu.cuCtxSetCurrent(context));
  check(!gpu_load_kernels(&gpu, &kernels));
  check(!gpu.cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING));
  check(!gpu.cuMemAlloc(&wrong, sizeof zero) && !gpu.cuMemcpyHtoD(wrong, &zero, sizeof zero));
  make_device(chunk_bytes);
  make_session(limit_bytes, chunk_bytes, is_checked);
}
void Scene::make_device(size_t chunk_bytes) {
  gmlake_desc desc{};
  gmlake_backend *backend = nullptr;
  Device::Hooks hooks;
  hooks.on_segment = [](bool, uint64_t, size_t, PoolId) {};
  hooks.wait_device = [this] { check(!gpu.cuCtxSynchronize()); };
  check(gmlake_cuda_create(0, &backend) == GMLAKE_OK);
  desc.backend = backend;
  desc.chunk_bytes = chunk_bytes;
  device.reset(new Device(desc, hooks));
}
void Scene::make_session(size_t limit_bytes, size_t chunk_bytes, bool is_checked) {
  gmlake_offload_cuda_desc desc{};
  gmlake_offload_backend *backend = nullptr;
  gmlake_offload_queues queues{};
  gmlake_offload_memory memory{};
  OffloadOptions options;
  source.lake = device->lake();
  source.chunk_bytes = chunk_bytes;
  if (has_pool) {
    gmlake_pool_desc own{};
    own.chunk_bytes = 2 * chunk_bytes;
    check(!gmlake_pool_create(source.lake, &own, &source.pool));
  }
  check(!gmlake_offload_cuda_create(&desc, &backend));
  check(!gmlake_offload_cuda_get_queues(backend, &queues));
  check(!gmlake_offload_lake_memory(&source, &memory));
  offload.reset(new Offload(
      queues, memory, [this] { return device->memory().reserved(); },
      [this](size_t bytes) { device->memory().set_limit(bytes); },
      has_pool ? Offload::HeldFn([this] { return stats(true).reserved_bytes; }) : nullptr,
      [this] { return stats(false).active_bytes; }));
  device->set_guest(offload.get());
  options.limit_bytes = limit_bytes;
  options.flags = is_checked ? GMLAKE_OFFLOAD_CHECKED : 0;
  check(!offload->open(options));
}
uint64_t Scene::alloc(size_t bytes) {
  try {
    return reinterpret_cast<uint64_t>(device->alloc(bytes, stream, nullptr)->ptr);
  } catch (const Failure &failure) {
    broken(failure.info.text, __LINE__);
  }
}
void Scene::step(uint64_t key, const std::vector<uint64_t> &reads,
                 const std::vector<uint64_t> &writes) {
  std::vector<uint64_t> all(reads);
  all.insert(all.end(), writes.begin(), writes.end());
  if (made && offload->made(&made, 1)) broken(offload->error().c_str(), __LINE__);
  made = 0;
  if (offload->step(key, all.data(), reads.size(), writes.size(), stream))
    broken(offload->error().c_str(), __LINE__);
}
std::vector<uint64_t> Scene::make_weights() {
  std::vector<uint64_t> weights;
  for (uint32_t i = 0; i < LAYERS; i++) {
    step(1, {}, {});
    weights.push_back(made = alloc(WEIGHT));
    fill(weights.back(), WEIGHT, i);
  }
  return weights;
}
void Scene::iterate(const std::vector<uint64_t> &weights, uint32_t iteration) {
  std::vector<uint64_t> activations, smalls;
  for (uint32_t i = 0; i < LAYERS; i++) {
    step(2 + i, {weights[i]}, {});
    activations.push_back(alloc(WEIGHT));
    made = activations.back();
    verify(weights[i], i + iteration);
    fill(activations.back(), WEIGHT, 1000 + i);
    smalls.push_back(alloc(LITTLE));
    fill(smalls.back(), LITTLE, 7);
  }
  for (uint32_t i = LAYERS; i-- > 0;) {
    step(100 + i, {weights[i], activations[i]}, {weights[i]});
    verify(weights[i], i + iteration);
    verify(activations[i], 1000 + i);
    fill(weights[i], WEIGHT, i + iteration + 1);
    free(activations[i]);
    free(smalls[i]);
  }
  check(!offload->mark());
}
void Scene::vary(const std::vector<uint64_t> &weights, uint32_t first, size_t others_bytes) {
  const size_t at_once = (VARYING_LIMIT - others_bytes - 8 * MIB) / WEIGHT;
  std::vector<uint64_t> others, named;
  for (size_t bytes = 0; bytes + OTHERS <= others_bytes; bytes += OTHERS) {
    step(5, {}, {});
    others.push_back(alloc(OTHERS));
    fill(others.back(), OTHERS, 7);
  }
  for (size_t i = 0; i < at_once && i < 6; i++) named.push_back(weights[(first + i) % LAYERS]);
  step(6, named, {});
  for (uint64_t other : others) free(other);
  for (size_t i = 0; i < 2; i++) {
    named.clear();
    for (size_t k = 0; k < 6; k++) named.push_back(weights[6 * i + k]);
    step(7 + i, named, {});
    for (size_t k = 0; k < 6; k++) verify(named[k], static_cast<uint32_t>(6 * i + k));
  }
  check(!offload->mark() && device->memory().reserved() <= VARYING_LIMIT);
}

/* Others need more and less, at random and for some time; then always the same. */
static int varying() {
  Scene scene(VARYING_LIMIT, 2 * MIB, false, true);
  const std::vector<uint64_t> weights = scene.make_weights();
  uint32_t seed = 1;
  for (uint32_t i = 0; i < 400; i++) {
    const size_t least = i / 50 % 2 ? 0 : 20 * MIB;
    seed = seed * 1664525u + 1013904223u;
    scene.vary(weights, seed >> 8, least + (seed >> 12) % (25 * MIB));
  }
  for (uint32_t i = 0; i < 200; i++) scene.vary(weights, 0, 10 * MIB);
  const uint64_t plan_count = scene.offload->stats().plan_count;
  const size_t own_bytes = scene.stats(true).reserved_bytes;
  for (uint32_t i = 0; i < 100; i++) {
    scene.vary(weights, 0, 10 * MIB);
    check(scene.stats(true).reserved_bytes == own_bytes); /* nothing goes to and fro */
  }
  check(scene.offload->stats().plan_count == plan_count && scene.wrong_count() == 0);
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 2 && !std::strcmp(argv[1], "varying")) std::_Exit(varying());
  const size_t limit = argc > 2 ? size_t(std::atoi(argv[1])) * MIB : 64 * MIB;
  const size_t chunk = argc > 2 ? size_t(std::atoi(argv[2])) * MIB : 2 * MIB;
  const bool is_checked = argc > 3 && !std::strcmp(argv[3], "checked");
  Scene scene(limit, chunk, is_checked, false);
  const std::vector<uint64_t> weights = scene.make_weights();
  for (uint32_t i = 0; i < ITERATIONS; i++) {
    scene.iterate(weights, i);
    check(scene.device->memory().reserved() <= limit);
  }
  check(scene.wrong_count() == 0);
  const gmlake_offload_session_stats stats = scene.offload->stats();
  check(stats.tensor_count == LAYERS && stats.plan_count > 0);
  check(stats.out_count > ITERATIONS && stats.in_count > ITERATIONS);
  check(is_checked || stats.sync_count == 0); /* the host has waited for nothing */
  check(!scene.offload->close(scene.stream));
  for (uint32_t i = 0; i < LAYERS; i++) scene.verify(weights[i], i + ITERATIONS);
  check(scene.wrong_count() == 0 && scene.device->memory().limit() == 0);
  for (uint64_t weight : weights) scene.free(weight);
  std::printf("%zu of %zu MiB\n", scene.device->memory().reserved() / MIB,
              2 * LAYERS * WEIGHT / MIB);
  std::_Exit(std::fflush(stdout));
}
