/* examples/torch/offload.hpp, on the mock: what gmlake_torch's sessions do with tensors. */
#define GMLAKE_IMPLEMENTATION
#define GMLAKE_BACKEND_MOCK
#define GMLAKE_STATIC
#define GMLAKE_BFC_IMPLEMENTATION
#define GMLAKE_BFC_STATIC
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_BACKEND_MOCK
#define GMLAKE_OFFLOAD_STATIC
#include "../../examples/torch/lake.hpp"

#include "../../gmlake_offload.h"

#include "../../examples/torch/offload.hpp"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>

using namespace gmlake_torch;

#define check(condition) ((condition) ? (void)0 : broken(#condition, __LINE__))
static void broken(const char *what, int line) {
  std::fprintf(stderr, "torch_offload.cpp:%d: %s\n", line, what);
  std::exit(1);
}

static const size_t MIB = size_t(1) << 20, TENSOR = 4 * MIB;

/* Work on a tensor: its first and last bytes are expected to be `before`, and become `after`. */
struct Work {
  char *ptr;
  size_t bytes;
  int before, after; /* -1: whatever; as before */
};
static void work(void *user) {
  const Work *const w = static_cast<Work *>(user);
  if (w->before >= 0) check(w->ptr[0] == w->before && w->ptr[w->bytes - 1] == w->before);
  if (w->after >= 0) std::memset(w->ptr, w->after, w->bytes);
}

/* A session with a limit, on a mock of its own, and tensors. */
struct Scene {
  gmlake_offload_backend *mock = nullptr;
  gmlake_offload_queues queues{};
  gmlake_offload_memory memory{};
  std::unique_ptr<Offload> offload;
  std::deque<Work> works;
  size_t limit = 0;         /* as the lake was told */
  size_t others = 0;        /* bytes that others use */
  char a = 0, b = 0, c = 0; /* their addresses are streams */

  explicit Scene(size_t limit_bytes);
  ~Scene() {
    for (char *stream : {&a, &b, &c}) check(!queues.stream_sync(queues.user, stream));
    offload.reset();
    gmlake_offload_mock_destroy(mock);
  }
  void open(size_t limit_bytes) {
    OffloadOptions options;
    options.limit_bytes = limit_bytes;
    check(!offload->open(options));
    check(limit == limit_bytes);
  }
  char *alloc(size_t bytes = TENSOR) {
    gmlake_error_info info{};
    void *ptr = nullptr;
    check(offload->alloc(bytes, &a, &ptr, &info) == GMLAKE_OK);
    return static_cast<char *>(ptr);
  }
  void use(void *stream, char *ptr, int before, int after) {
    works.push_back({ptr, TENSOR, before, after});
    check(!gmlake_offload_mock_work(mock, stream, 1000000, work, &works.back()));
  }
  /* The stream's later work comes after what is queued on the other one: programs say so. */
  void follow(void *stream, void *other) {
    void *event = nullptr;
    check(!queues.event_create(queues.user, 0, &event));
    check(!queues.event_record(queues.user, event, other));
    check(!queues.stream_wait(queues.user, stream, event));
    queues.event_destroy(queues.user, event);
  }
  /* An operator that reads and writes the tensor. */
  void step(char *ptr, int before, int after, void *stream = nullptr);
  std::vector<char *> make(int count);
  /* Each tensor in turn, so that by the limit the others leave. */
  void iterate(const std::vector<char *> &tensors, int before, int after);
};

Scene::Scene(size_t limit_bytes) {
  gmlake_offload_mock_desc desc{};
  check(!gmlake_offload_mock_create(&desc, &mock));
  check(!gmlake_offload_mock_get_queues(mock, &queues));
  check(!gmlake_offload_mock_get_memory(mock, MIB, &memory));
  offload.reset(new Offload(
      queues, memory, [] { return size_t(0); }, [this](size_t bytes) { limit = bytes; }, {},
      [this] { return others + offload->stats().device_bytes; }));
  open(limit_bytes);
}
void Scene::step(char *ptr, int before, int after, void *stream) {
  const uint64_t address = reinterpret_cast<uint64_t>(ptr) + 5; /* of any byte */
  const uint64_t both[2] = {address, address};
  stream = stream ? stream : &a;
  check(!offload->step(7, both, 1, 1, stream));
  use(stream, ptr, before, after);
}
std::vector<char *> Scene::make(int count) {
  std::vector<char *> tensors;
  for (int i = 0; i < count; i++) {
    tensors.push_back(alloc());
    check(tensors.back() != nullptr);
    step(tensors.back(), -1, i);
  }
  return tensors;
}
void Scene::iterate(const std::vector<char *> &tensors, int before, int after) {
  for (size_t i = 0; i < tensors.size(); i++)
    step(tensors[i], static_cast<int>(i) + before, static_cast<int>(i) + after);
  gmlake_offload_mock_spend(mock, 5000000); /* the device is behind by less than an iteration */
  check(!offload->mark());
}

/* Eight tensors where there is room for four. */
static void program() {
  Scene scene(18 * MIB);
  std::vector<char *> tensors = scene.make(8);
  for (int i = 0; i < 20; i++) scene.iterate(tensors, i, i + 1);
  const gmlake_offload_session_stats stats = scene.offload->stats();
  check(stats.device_bytes_peak <= 16 * MIB && stats.tensor_bytes == 8 * TENSOR);
  check(stats.out_count && stats.in_count && stats.plan_count);
  for (size_t i = 0; i < tensors.size(); i++) scene.offload->free(tensors[i], &scene.a);
  check(scene.offload->stats().tensor_count == 0);
}

/* What no operator names stays, although it is used. So does what a raw pointer was taken of. */
static void stays() {
  Scene scene(26 * MIB);
  char *const workspace = scene.alloc(), *const raw = scene.alloc();
  scene.step(raw, -1, 100);
  scene.use(&scene.a, workspace, -1, 101);
  check(!scene.offload->keep(reinterpret_cast<uint64_t>(raw + 77), &scene.a));
  check(!scene.offload->keep(12345, &scene.a)); /* another's */
  std::vector<char *> tensors = scene.make(8);
  for (int i = 0; i < 4; i++) {
    scene.iterate(tensors, i, i + 1);
    scene.use(&scene.a, workspace, 101, 101);
    scene.use(&scene.a, raw, 100, 100);
  }
  check(scene.offload->stats().out_count > 0);
}

/* What an operator has made may leave as soon as it is said to be made. */
static void made() {
  Scene scene(18 * MIB);
  const uint64_t none = 0;
  std::vector<char *> tensors;
  for (int i = 0; i < 8; i++) {
    check(!scene.offload->step(1, &none, 0, 0, &scene.a));
    tensors.push_back(scene.alloc());
    check(tensors.back() != nullptr);
    scene.use(&scene.a, tensors.back(), -1, i);
    const uint64_t last = reinterpret_cast<uint64_t>(tensors.back());
    check(!scene.offload->made(&last, 1));
  }
  scene.iterate(tensors, 0, 1);
}

/* What operators only read may leave, too. */
static void reads() {
  Scene scene(18 * MIB);
  std::vector<char *> tensors;
  for (int i = 0; i < 8; i++) {
    tensors.push_back(scene.alloc());
    check(tensors.back() != nullptr);
    scene.use(&scene.a, tensors.back(), -1, i);
    const uint64_t address = reinterpret_cast<uint64_t>(tensors.back());
    check(!scene.offload->step(1, &address, 1, 0, &scene.a));
  }
  scene.iterate(tensors, 0, 1);
}

static void streams() {
  Scene scene(18 * MIB);
  std::vector<char *> tensors = scene.make(3);
  scene.follow(&scene.b, &scene.a);
  scene.step(tensors[0], 0, 50, &scene.b);
  scene.follow(&scene.c, &scene.a);
  scene.offload->record_stream(tensors[1], &scene.b);
  scene.offload->record_stream(tensors[1], &scene.c);
  scene.offload->record_stream(tensors[2], &scene.c);
  scene.offload->free(tensors[2], &scene.a); /* it follows what the stream has so far */
  for (int i = 0; i < 30; i++) scene.use(&scene.c, tensors[1], 1, 1); /* takes long */
  scene.offload->free(tensors[1], &scene.a); /* others get its memory behind that */
  std::vector<char *> others = scene.make(4);
  scene.iterate(others, 0, 1);
  scene.follow(&scene.a, &scene.b);
  scene.step(tensors[0], 50, 51);
}

/* After close all is there, and nothing is served; open goes on. */
static void closes() {
  Scene scene(18 * MIB);
  std::vector<char *> tensors = scene.make(8);
  scene.iterate(tensors, 0, 1);
  check(!scene.offload->close(&scene.a));
  check(scene.limit == 0 && !scene.alloc());
  check(scene.offload->stats().device_bytes == 8 * TENSOR);
  for (int i = 0; i < 8; i++) scene.use(&scene.a, tensors[size_t(i)], i + 1, i + 1);
  scene.offload->free(tensors[7], &scene.a);
  tensors.pop_back();
  check(!scene.offload->close(&scene.a));
  scene.open(18 * MIB);
  OffloadOptions again;
  check(scene.offload->open(again) && scene.offload->error() == "a session is open already");
  for (int i = 1; i < 4; i++) scene.iterate(tensors, i, i + 1);
  check(scene.offload->stats().device_bytes <= 16 * MIB);
}

/* Small requests are the lake's. */
static void refuses() {
  Scene scene(18 * MIB);
  check(!scene.alloc(MIB - 1) && scene.alloc(MIB) && scene.alloc(MIB + 1));
}

static void graphs() {
  Scene scene(34 * MIB);
  std::vector<char *> tensors = scene.make(8);
  uint64_t graph = 0;
  check(!scene.offload->begin_capture(&scene.b));
  const uint64_t used[2] = {reinterpret_cast<uint64_t>(tensors[2]),
                            reinterpret_cast<uint64_t>(tensors[3])};
  check(!scene.offload->step(1, used, 1, 1, &scene.b));
  check(!scene.offload->make_room(MIB)); /* nothing moves */
  check(!scene.offload->mark());
  check(!scene.offload->end_capture(&graph) && graph);
  check(!scene.offload->close(&scene.a));
  scene.open(14 * MIB);
  for (int i = 0; i < 3; i++) {
    scene.iterate(tensors, i, i + 1);
    check(!scene.offload->replay(graph, &scene.a));
    scene.use(&scene.a, tensors[2], 3 + i, 60);
    scene.use(&scene.a, tensors[3], 4 + i, 4 + i);
    for (int k = 4; k < 8; k++) scene.step(tensors[size_t(k)], k + i + 1, k + i + 1);
    check(!scene.offload->replay(graph, &scene.a));
    scene.use(&scene.a, tensors[2], 60, 3 + i);
  }
  scene.offload->free(tensors[3], &scene.a);
  check(!scene.offload->replay(graph, &scene.a));
  scene.use(&scene.a, tensors[2], 5, 5);
  check(!scene.offload->replay(99, &scene.a)); /* captured before the session: nothing is its own */
}

/* What other streams used stays while a graph is captured: nobody may wait for them. */
static void freed_in_capture() {
  Scene scene(34 * MIB);
  std::vector<char *> tensors = scene.make(2);
  uint64_t graph = 0;
  scene.follow(&scene.c, &scene.a);
  scene.offload->record_stream(tensors[0], &scene.c);
  for (int i = 0; i < 30; i++) scene.use(&scene.c, tensors[0], 0, 0);
  check(!scene.offload->begin_capture(&scene.b));
  const size_t held = scene.offload->stats().device_bytes;
  scene.offload->free(tensors[0], &scene.a);
  check(scene.offload->stats().device_bytes == held);
  check(!scene.offload->end_capture(&graph));
  check(scene.offload->stats().device_bytes == held - TENSOR);
  scene.iterate(scene.make(4), 0, 1);
}

/* Memory that others need is the session's no longer. */
static void makes_room() {
  Scene scene(34 * MIB);
  std::vector<char *> tensors = scene.make(8);
  check(!scene.offload->mark());
  check(scene.offload->make_room(6 * MIB));
  for (size_t i = 0; i < tensors.size(); i++) scene.step(tensors[i], int(i), int(i)); /* at once */
  check(scene.offload->stats().device_bytes <= 26 * MIB);
  for (int i = 0; i < 3; i++) scene.iterate(tensors, i, i + 1);
  check(scene.offload->stats().device_bytes <= 26 * MIB);
}

static void too_much() {
  Scene scene(10 * MIB);
  std::vector<char *> tensors = scene.make(4);
  uint64_t all[4];
  for (size_t i = 0; i < 4; i++) all[i] = reinterpret_cast<uint64_t>(tensors[i]);
  check(scene.offload->step(1, all, 4, 0, &scene.a) == GMLAKE_OFFLOAD_ERROR_OUT_OF_DEVICE_MEMORY);
  check(scene.offload->error().find("OUT_OF_DEVICE_MEMORY: ") != std::string::npos);
  scene.iterate(tensors, 0, 1);
  gmlake_error_info info{};
  void *ptr = nullptr;
  check(scene.offload->alloc(11 * MIB, &scene.a, &ptr, &info) == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY);
  check(!ptr && info.asked_bytes == 11 * MIB && info.limit_bytes == 10 * MIB && info.text[0]);
}

/* Training of six layers whose activations are made again in the backward pass, unless the session
   says that they are kept. Returns how many are. */
static int train_regions(Scene &scene, const std::vector<char *> &weights, int others) {
  uint64_t regions[6];
  int kept[6], count = 0;
  char *made[6];
  const auto compute = [&](size_t i) {
    const uint64_t weight = reinterpret_cast<uint64_t>(weights[i]);
    check(!scene.offload->step(11, &weight, 1, 0, &scene.a));
    made[i] = scene.alloc();
    scene.use(&scene.a, made[i], -1, 50 + static_cast<int>(i));
  };
  for (size_t i = 0; i < 6; i++) {
    check(!scene.offload->region(&regions[i], &kept[i]) && regions[i]);
    compute(i);
    check(!scene.offload->region_end());
    count += kept[i];
    if (!kept[i]) scene.offload->free(made[i], &scene.a);
  }
  for (size_t i = 6; i-- != 0;) {
    if (!kept[i]) {
      check(!scene.offload->recompute(regions[i]));
      compute(i);
      scene.others += static_cast<size_t>(others); /* what it makes elsewhere */
      check(!scene.offload->region_end());
      scene.others -= static_cast<size_t>(others);
    }
    const uint64_t address = reinterpret_cast<uint64_t>(made[i]);
    check(!scene.offload->step(12, &address, 1, 0, &scene.a));
    scene.use(&scene.a, made[i], 50 + static_cast<int>(i), 0);
    scene.offload->free(made[i], &scene.a);
  }
  gmlake_offload_mock_spend(scene.mock, 100000000);
  check(!scene.offload->mark());
  return count;
}

/* All are kept where there is room, fewer if each takes others' memory, too. */
static void regions() {
  const size_t limit = 12 * TENSOR + 2 * MIB;
  uint64_t region;
  int kept = 0, fewer = 0, is_kept;
  {
    Scene scene(limit);
    const std::vector<char *> weights = scene.make(6);
    for (int i = 0; i < 12; i++) kept = train_regions(scene, weights, 0);
    check(kept == 6 && scene.offload->stats().kept_region_count == 6);
    check(!scene.offload->region(&region, &is_kept) && is_kept);
    check(!scene.offload->close(&scene.a)); /* in a region */
    check(!scene.offload->region(&region, &is_kept) && !region && !is_kept);
    check(!scene.offload->recompute(1) && !scene.offload->region_end());
    scene.open(limit);
    check(!scene.offload->region(&region, &is_kept) && region);
    check(!scene.offload->region_end());
  }
  Scene scene(limit);
  const std::vector<char *> weights = scene.make(6);
  for (int i = 0; i < 12; i++) fewer = train_regions(scene, weights, 12 * MIB);
  check(fewer < kept);
}

int main() {
  program();
  stays();
  made();
  reads();
  streams();
  closes();
  freed_in_capture();
  refuses();
  graphs();
  makes_room();
  too_much();
  regions();
  return 0;
}
