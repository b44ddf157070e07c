// Shows how to test a program on a machine without a GPU. The mock takes the place of the driver.
// The test lets every driver call that the program causes fail once: in round n the n-th call.
// After each failure the program must leak nothing and be able to go on. Then the mock is told what
// kernels touch, and two mistakes that everybody makes are found: a stream that was not recorded,
// and a write to memory that is free.
//
// Compile and run it in the directory of gmlake.h:
//   c++ -std=c++11 -I. examples/ci_mock.cpp -o ci_mock -lpthread -ldl && ./ci_mock
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#include "gmlake.h"

#include <cstdio>
#include <cstring>
#include <initializer_list>
#include <new>
#include <vector>

// The code under test. Its weights stay; its activations are freed after each inference.
class Engine {
 public:
  explicit Engine(const gmlake_backend *backend) {
    gmlake_desc desc = gmlake_desc();
    desc.backend = backend;
    if (gmlake_create(&desc, &lake_) != GMLAKE_OK) throw std::bad_alloc();
  }
  Engine(const Engine &) = delete;
  ~Engine() {
    unload();
    gmlake_destroy(lake_);
  }

  bool load(std::size_t layers) {
    weights_.resize(layers);
    for (void *&weights : weights_)
      if (gmlake_alloc(lake_, 5 << 20, nullptr, &weights) != GMLAKE_OK) return false;
    return true;
  }

  bool infer(std::size_t batch) {
    void *activations = nullptr;
    if (gmlake_alloc(lake_, batch << 20, nullptr, &activations) != GMLAKE_OK) return false;
    std::memset(activations, 0, batch << 20);
    return gmlake_free(lake_, activations, nullptr) == GMLAKE_OK;
  }

  void unload() {
    for (void *weights : weights_) gmlake_free(lake_, weights, nullptr);
    weights_.clear();
  }

 private:
  gmlake *lake_ = nullptr;
  std::vector<void *> weights_;
};

static bool use(Engine &engine) { return engine.load(3) && engine.infer(2) && engine.infer(9); }

// Lets the n-th driver call from now on fail. Returns true if the engine goes on and leaks nothing.
// Sets *failed to false if the engine made fewer calls than n: then every call has had its turn.
static bool survives(gmlake_backend *backend, unsigned n, bool *failed) {
  gmlake_mock_census census;
  gmlake_mock_get_census(backend, &census);
  const auto before = census.failed_count;
  gmlake_mock_fail_at(backend, census.call_count + n, GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY, 0);
  try {
    Engine engine(backend);
    use(engine);
    gmlake_mock_fail_at(backend, 0, GMLAKE_OK, 0); // no more failures: now it must work
    engine.unload();
    if (!use(engine)) return false;
  } catch (const std::bad_alloc &) {
    // The failure was in gmlake_create. That is allowed, but nothing may leak.
  }
  gmlake_mock_get_census(backend, &census);
  *failed = census.failed_count > before;
  return census.handle_count == 0 && census.mapping_count == 0 && census.reservation_count == 0;
}

// Copies results on a stream of their own, while the next step computes. A kernel is a call of
// gmlake_mock_use here: it says which memory the kernel uses, and on which stream.
static bool copies_results(gmlake_backend *backend, gmlake *lake, bool records) {
  gmlake_stream compute = nullptr, copy = nullptr;
  void *results = nullptr, *computed = nullptr;
  int code = 0;
  gmlake_mock_stream_create(backend, &compute);
  gmlake_mock_stream_create(backend, &copy);
  gmlake_alloc(lake, 3 << 20, compute, &results);
  gmlake_mock_use(backend, lake, results, 3 << 20, compute);
  backend->event_create(backend->user, &computed, &code);
  backend->event_record(backend->user, computed, compute, &code);
  backend->stream_wait(backend->user, copy, computed, &code);
  backend->event_destroy(backend->user, computed, &code);
  gmlake_mock_use(backend, lake, results, 3 << 20, copy);
  if (records) gmlake_record_stream(lake, results, copy); // else memory serves again too early
  const bool freed = gmlake_free(lake, results, compute) == GMLAKE_OK;
  if (!freed) { // the error says which stream, which memory, and what to do
    gmlake_error_info error;
    gmlake_get_last_error(lake, &error);
    std::printf("%s: %s\n", error.call, error.text);
    gmlake_record_stream(lake, results, copy);
    gmlake_free(lake, results, compute);
  }
  for (gmlake_stream stream : {compute, copy}) {
    gmlake_forget_stream(lake, stream);
    gmlake_mock_stream_destroy(backend, stream);
  }
  return freed;
}

// Keeps a pointer too long. GMLAKE_FILL finds it when the memory serves again, and says where.
static void writes_late(gmlake *lake) {
  void *weights = nullptr, *other = nullptr;
  gmlake_alloc(lake, 3 << 20, nullptr, &weights);
  gmlake_free(lake, weights, nullptr);
  static_cast<char *>(weights)[1000] = 1;
  gmlake_alloc(lake, 3 << 20, nullptr, &other);
  gmlake_free(lake, other, nullptr);
}

static void count_error(void *user, int level, const gmlake_error_info *error) {
  if (level == GMLAKE_LOG_ERROR) ++*static_cast<int *>(user);
  std::printf("%s: %s\n", error->call, error->text);
}

static bool finds_mistakes(gmlake_backend *backend) {
  gmlake_desc desc = gmlake_desc();
  gmlake *lake = nullptr;
  int errors = 0;
  desc.backend = backend;
  desc.flags = GMLAKE_FILL;
  desc.logger.fn = count_error;
  desc.logger.user = &errors;
  if (gmlake_create(&desc, &lake) != GMLAKE_OK) return false;
  const bool right = copies_results(backend, lake, true) && errors == 0;
  const bool found = !copies_results(backend, lake, false);
  writes_late(lake);
  return gmlake_destroy(lake) == GMLAKE_OK && right && found && errors == 1;
}

int main() {
  gmlake_mock_desc desc = gmlake_mock_desc();
  gmlake_backend *backend = nullptr;
  desc.capacity_bytes = 64 << 20;
  if (gmlake_mock_create(&desc, &backend) != GMLAKE_OK) return 1;
  bool ok = true, failed = true;
  unsigned n = 0;
  while (ok && failed) ok = survives(backend, ++n, &failed);
  std::printf("%u failures injected, %s\n", n - 1, ok ? "all survived" : "the last one not");
  const bool finds = finds_mistakes(backend);
  gmlake_mock_destroy(backend);
  return ok && n > 10 && finds ? 0 : 1;
}
