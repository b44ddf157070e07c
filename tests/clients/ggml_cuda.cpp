/* examples/llama.cpp/gmlake-cuda.cuh on the fake driver, as the patched ggml-cuda.cu calls it.
   test_clients.sh runs it with each value of the variables that the header reads.

     client_ggml_cuda off | lake | kv | peers | unsupported | refused | bfc | ledger |
     ledger_refused
   It answers 0 if all is as it has to be. */
#include <stdio.h>

#include "examples/llama.cpp/gmlake-cuda.cuh"
#include "examples/llama.cpp/gmlake-bfc.cuh"
#include "examples/llama.cpp/gmlake.cu"
#include "gpu/fake_cuda.h"

#define MIB ((size_t)1 << 20)

extern const fake_cuda_control control __asm__("fake_cuda_control");
static int failures;

#define IS(condition)                                                         \
  do {                                                                        \
    if (!(condition)) {                                                       \
      fprintf(stderr, "%s:%d: not so: %s\n", __FILE__, __LINE__, #condition); \
      failures++;                                                             \
    }                                                                         \
  } while (0)

static bool has_logged(const char *text) { return logged.find(text) != std::string::npos; }

static unsigned char byte_at(const void *base, size_t offset) {
  unsigned char byte = 77;
  IS(cuMemcpyDtoH(&byte, (CUdeviceptr)base + offset, 1) == CUDA_SUCCESS);
  return byte;
}

/* A buffer, a pool, and what the lake then says is free. */
static void use(const gmlake_ggml_device *d) {
  void *weights = nullptr;
  size_t actual = 0;
  IS(gmlake_ggml_get(0) == d);
  IS(gmlake_alloc(d->lake, 3 * MIB, GMLAKE_STREAM_NONE, &weights) == GMLAKE_OK);
  {
    gmlake_ggml_pool pool(d);
    void *const part = pool.alloc(5000, &actual);
    IS(part && actual == 5120);
    pool.free(part, actual);
  }
  d->wait(0);
  IS(gmlake_free(d->lake, weights, GMLAKE_STREAM_NONE) == GMLAKE_OK);
  IS(gmlake_ggml_idle_bytes(0) >= 4 * MIB);
}

/* Under a ledger a pool's end leaves memory that another process gets. */
static void use_ledger(const gmlake_ggml_device *d, const char *file) {
  ledger other;
  size_t actual = 0;
  gmlake_budget budget = gmlake_budget();
  IS(gmlake_get_budget(d->lake, &budget) == GMLAKE_OK);
  IS(ledger_open(&other, file, budget.total_bytes, 0, 100000, gmlake_oom_handler()) == 0);
  IS(other.page->entries[0].floor_bytes == 3 * MIB && other.page->entries[0].weight == 2);
  {
    gmlake_ggml_pool pool(d);
    pool.free(pool.alloc(300 * MIB, &actual), actual);
  }
  for (int i = 0; i < 2; i++) {
    (void)usleep(3000);
    gmlake_ggml_pool pool(d);
    pool.free(pool.alloc(MIB, &actual), actual); /* a step: it tells; and it gives back */
    other.page->entries[other.slot].wish_bytes = budget.total_bytes;
    if (!i) IS(ledger_ask(&other, 200 * MIB) == 200 * MIB);
  }
  gmlake_stats stats = gmlake_stats();
  IS(gmlake_get_stats(d->lake, &stats) == GMLAKE_OK && stats.reserved_bytes <= 110 * MIB);
  IS(!other.page->entries[0].asked_bytes);
  ledger_close(&other);
  IS(unlink(file) == 0);
}

/* The pool without virtual memory: it gives back what is free before it takes more, but where
   graphs may have it. */
static void use_bfc(bool keeps) {
  size_t actual = 0;
  (void)ggml_cuda_info();
  {
    gmlake_bfc_pool pool(gmlake_bfc_source_of(0), gmlake_bfc_keeps(0));
    for (size_t bytes = 20 * MIB; bytes <= 80 * MIB; bytes += 20 * MIB)
      pool.free(pool.alloc(bytes, &actual), actual);
    fake_cuda_census census;
    control.get_census(&census);
    IS(gmlake_bfc_keeps(0) == keeps && (census.allocations == 1) == !keeps);
    IS(census.allocations > 0);
    std::string end;
    try {
      (void)pool.alloc((size_t)1 << 40, &actual);
    } catch (const std::runtime_error &error) {
      end = error.what();
    }
    IS(end.find("gmlake: a pool: the device has no memory left") == 0);
  }
  fake_cuda_census census;
  control.get_census(&census);
  IS(census.allocations == 0);
}

/* New memory is zero, also where another buffer wrote before. */
static void grow(const gmlake_ggml_device *d) {
  const gmlake_ggml_range part = {6 * MIB, 3 * MIB};
  for (int i = 0; i < 2; i++) {
    gmlake_ggml_growing *const cache = gmlake_ggml_growing::create(d, 64 * MIB);
    IS(cache && cache->keep(&part, 1));
    IS(byte_at(cache->base(), 6 * MIB) == 0 && byte_at(cache->base(), 9 * MIB - 1) == 0);
    IS(cudaMemsetAsync((char *)cache->base() + 6 * MIB, 1, 3 * MIB, nullptr) == CUDA_SUCCESS);
    delete cache;
  }
}

static void start(int device_count, int no_vmm) {
  fake_cuda_options options = fake_cuda_options();
  options.device_count = device_count;
  options.no_vmm = no_vmm;
  options.seed = 1;
  control.reset(&options);
}

int main(int argc, char **argv) {
  const std::string what = argc == 2 ? argv[1] : "";
  const gmlake_ggml_device *d = nullptr;
  std::string end;
  start(what == "peers" ? 2 : 1, what == "unsupported");
  if (what == "refused") control.fail_function("cuMemAddressReserve", 1, CUDA_ERROR_UNKNOWN, 1);
  try {
    d = gmlake_ggml_get(0);
  } catch (const std::runtime_error &error) {
    end = error.what();
  }
  IS(gmlake_ggml_grows() == (what == "kv"));
  if (what == "off") IS(!d && logged.empty() && gmlake_ggml_idle_bytes(0) == 0);
  if (what == "lake" || what == "kv" || what == "peers") {
    IS(d && has_logged("gmlake: device 0: a lake serves"));
    if (d) use(d);
    if (d && what == "kv") grow(d);
  }
  if (what == "peers" && d) {
    gmlake_desc desc;
    IS(gmlake_get_desc(d->lake, &desc) == GMLAKE_OK);
    IS(desc.peer_count == 1 && desc.peer_devices[0] == 1);
  }
  if (what == "unsupported") {
    IS(!d && end.empty() && has_logged("ggml's own memory is used"));
    IS(!gmlake_ggml_get(0));
  }
  IS(gmlake_bfc_is_used() == (what == "bfc"));
  if (what == "ledger" && d) use_ledger(d, (std::string(getenv("FILE")) + ".0").c_str());
  if (what == "bfc") use_bfc(getenv("GGML_CUDA_DISABLE_GRAPHS") == nullptr);
  if (what == "refused") IS(!d && end.find("gmlake: ") == 0);
  if (what == "ledger_refused") IS(end.find("gmlake: GGML_CUDA_GMLAKE_LEDGER has to be") == 0);
  if (what.empty()) failures++;
  if (failures) fprintf(stderr, "logged: %s\nended: %s\n", logged.c_str(), end.c_str());
  return failures != 0;
}
