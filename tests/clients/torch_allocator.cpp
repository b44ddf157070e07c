/* examples/torch/gmlake_torch.cpp and lake.hpp through torch's interface, over a driver without a
   device: see torch_stub/torch_stub.hpp. Compiled with the newest form of that interface, and with
   the oldest. usage: client_torch_allocator [CASE...], with the fake driver on the library path:
   those cases, or all, each in a process of its own */
#include "../../examples/torch/gmlake_torch.cpp"

#include "part.h"
#include "patience.h"
#include "torch_stub/own_allocator.hpp"

extern "C" { /* its members have the names of functions, which C++ otherwise refuses */
#include "bench/gpu.h"
}

#include <csignal>
#include <cstring>
#include <dirent.h>
#include <fstream>
#include <iterator>
#include <sys/wait.h>
#include <thread>

static const size_t MIB = size_t(1) << 20;

/* One that main runs. */
struct Case {
  const char *name;
  void (*run)();
  static std::vector<Case> &all() {
    static std::vector<Case> cases;
    return cases;
  }
  Case(const char *own_name, void (*function)()) : name(own_name), run(function) {
    for (const Case &other : all())
      if (!std::strcmp(other.name, name)) std::abort(); /* only the first would run */
    all().push_back(*this);
  }
};
static const PoolId kPool{0, 7};

#define check(condition) ((condition) ? (void)0 : broken(#condition, __LINE__))
static void broken(const char *what, int line) {
  std::fprintf(stderr, "torch_allocator.cpp:%d: %s\n", line, what);
  std::exit(1);
}
static void cu(CUresult code) { check(code == CUDA_SUCCESS); }

static cca::CUDAAllocator &torch_allocator() { return *cca::allocator.load(); }
static void *take(size_t bytes) { return torch_allocator().raw_alloc(bytes); }
static void give(void *ptr) { torch_allocator().raw_delete(ptr); }
static void empty_cache() { torch_allocator().emptyCache({0, 0}); }
static void end_pool(PoolId pool) { torch_allocator().endAllocateToPool(0, pool); }
static void release_pool(PoolId pool) { torch_allocator().releasePool(0, pool); }
static int use_count(PoolId pool) { return torch_allocator().getPoolUseCount(0, pool); }
static bool is_live(PoolId pool, const std::unordered_set<void *> &expected) {
  return torch_allocator().checkPoolLiveAllocations(0, pool, expected);
}

using Stream = c10::cuda::CUDAStream;
static const Stream kLegacy(0, 0);
static Stream new_stream() { return c10::cuda::getStreamFromPool(0); }
static void on(const Stream &stream) { c10::cuda::setCurrentCUDAStream(stream); }
/* One of the driver's own, which torch does not own, is the current one. */
static CUstream on_external() {
  CUstream raw;
  cu(cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING));
  on(c10::cuda::getStreamFromExternal(raw, 0));
  return raw;
}
/* A tensor: what streams are recorded on. */
using Tensor = std::unique_ptr<c10::DataPtr>;
static Tensor make_tensor(size_t bytes) {
  return Tensor(new c10::DataPtr(torch_allocator().allocate(bytes)));
}
static Tensor tensor_of(void *ptr) {
  const c10::Device device(c10::DeviceType::CUDA, 0);
  return Tensor(new c10::DataPtr(ptr, ptr, torch_allocator().raw_deleter(), device));
}
static void record_on(const Tensor &tensor, const Stream &stream) {
  torch_allocator().recordStream(*tensor, stream);
}

/* The text of the error that the function raises; "": it raised none. */
template <class E, class Function>
static std::string error_of(Function function) {
  try {
    function();
  } catch (const E &error) {
    return error.what();
  }
  return "";
}
static bool has(const std::string &text, const char *part) {
  return text.find(part) != std::string::npos;
}
template <class Function>
static bool raises(const char *text, Function function) {
  return has(error_of<c10::Error>(function), text);
}
static bool is_refused(size_t bytes) {
  return !error_of<c10::OutOfMemoryError>([&] { give(take(bytes)); }).empty();
}

static CUdeviceptr at(const void *ptr, size_t offset = 0) {
  return reinterpret_cast<CUdeviceptr>(ptr) + offset;
}
static uint32_t word_at(const void *ptr) {
  uint32_t word = 0;
  cu(cuCtxSynchronize());
  cu(cuMemcpyDtoH(&word, at(ptr), sizeof word));
  return word;
}
extern "C" const fake_cuda_control fake_control __asm__("fake_cuda_control");
static fake_cuda_census census() {
  fake_cuda_census now;
  fake_control.get_census(&now);
  return now;
}
static size_t descriptor_count() {
  size_t count = 0;
  DIR *const directory = opendir("/proc/self/fd");
  while (readdir(directory)) count++;
  (void)closedir(directory);
  return count;
}

/* torch is up, with as many devices. What hangs is ended. */
static void start(int device_count = 1) {
  (void)alarm(patience());
  cu(cuInit(0));
  c10::cuda::SetDevice(0);
  if (!cca::allocator.load()) cca::allocator.store(&torch_stub::own_allocator());
  check(!gmlake_torch_enable());
  torch_allocator().init(device_count);
}
static cca::DeviceStats stats(c10::DeviceIndex device = 0) {
  return torch_allocator().getDeviceStats(device);
}
static int64_t reserved() { return stats().reserved_bytes[0].current; }
static int64_t reserved_after_empty() {
  empty_cache();
  return reserved();
}
static int64_t live_count() { return stats().allocation[0].current; }
static int64_t live_bytes() { return stats().allocated_bytes[0].current; }
static int64_t active_bytes() { return stats().active_bytes[0].current; }
static gmlake_torch::Device &lake_device() { return *the_allocator().device_of(0); }
static gmlake_stats lake_stats() {
  gmlake_stats now{};
  check(gmlake_get_stats(lake_of(0), &now) == GMLAKE_OK);
  return now;
}
static gmlake_map_entry info_of(const void *ptr) {
  gmlake_map_entry info{};
  check(gmlake_find(lake_of(0), ptr, &info) == GMLAKE_OK);
  return info;
}

/* Work for a stream that does not end before somebody waits for it. */
static gpu_driver gpu;
static gpu_kernels kernels;
static void load_kernels() {
  if (!gpu.library) check(gpu_open(&gpu, "libcuda.so.1") && !gpu_load_kernels(&gpu, &kernels));
}
static void hold(CUstream stream) {
  load_kernels();
  cu(gpu_spin(&gpu, &kernels, stream, uint64_t(10) * 1000 * 1000 * 1000));
}

static const Case case_enable("enable", [] {
  static torch_stub::OwnAllocator other; /* in use */
  other.init(1);
  cca::allocator.store(&other);
  check(has(gmlake_torch_enable(), "in use already"));
  cca::allocator.store(&torch_stub::own_allocator());
  check(!gmlake_torch_enable() && !gmlake_torch_enable());
  check(torch_allocator().name() == "gmlake" && !torch_allocator().initialized());
  check(c10::allocator_of_cuda() == &torch_allocator());
  start(2);
  check(torch_allocator().initialized() && torch_allocator().isEnabled());
  check(!lake_of(0) && !lake_of(-1) && !lake_of(64) && stats().max_split_size == -1);
  check(std::string(gmlake_torch_built_for()) == TORCH_VERSION " unknown");
  check(raises("invalid device pointer", [&] { give(&other); }));
  torch_allocator().enable(false); /* all is torch's own allocator's */
  {
    const c10::DataPtr data = torch_allocator().allocate(MIB);
    check(data.get() && data.get_deleter() == torch_allocator().raw_deleter());
    check(data.get_deleter() == &torch_stub::delete_uncached);
  }
  void *const early = take(MIB);
  check(early && !lake_of(0) && !torch_allocator().isEnabled());
  torch_allocator().enable(true);
  void *const late = take(MIB);
  check(lake_of(0) && live_count() == 1);
  give(early); /* to whom it is */
  give(late);
  check(live_count() == 0);
  check(raises("invalid device pointer: torch's own", [&] { give(late); }));
  check(raises("did you call init", [] { (void)stats(5); }));
});

static const Case case_memory("memory", [] {
  size_t bytes = 0;
  start();
  const Stream side = new_stream();
  {
    const c10::DataPtr none = torch_allocator().allocate(0);
    const c10::DataPtr some = torch_allocator().allocate(1000);
    check(!none.get() && some.get() && some.device().index() == 0);
    check(torch_allocator().getBaseAllocation(some.get(), &bytes) == some.get() && bytes == 1024);
    check(live_bytes() == 1024);
    torch_allocator().recordStream(some, side);
    torch_allocator().recordStream(none, side);
    const c10::DataPtr large = torch_allocator().allocate(3 * MIB);
    cca::DeviceStats s = stats();
    check(s.allocation[0].current == 2 && s.allocation[1].current == 1); /* the second is small */
    check(s.allocated_bytes[1].current == 1024 && s.requested_bytes[1].current == 1000);
    check(s.allocated_bytes[2].current == int64_t(3 * MIB) && s.active[2].current == 1);
    check(s.segment[0].current == s.num_device_alloc);
  }
  cca::DeviceStats s = stats();
  check(s.allocated_bytes[0].current == 0 && s.active[0].current == 0);
  check(s.requested_bytes[0].current == 0 && s.allocation[0].allocated == 2);
  check(s.allocation[0].freed == 2 && s.allocated_bytes[0].peak == int64_t(3 * MIB + 1024));
  check(s.requested_bytes[0].peak == int64_t(3 * MIB + 1000));
  check(s.num_device_alloc > 0 && s.reserved_bytes[0].current > 0);
  torch_allocator().resetPeakStats(0);
  torch_allocator().resetAccumulatedStats(0);
  check(stats().allocated_bytes[0].peak == 0 && stats().allocation[0].allocated == 0);
  check(stats().reserved_bytes[0].peak == s.reserved_bytes[0].current);
  check(stats().num_device_alloc == 0);
  check(raises("invalid device pointer", [&] { give(&bytes); }));
  check(has(
      error_of<c10::OutOfMemoryError>([] { (void)torch_allocator().allocate(size_t(1) << 61); }),
      "more than 1EB"));
  give(nullptr);
  size_t largest = 0;
  torch_allocator().cacheInfo(0, &largest);
  check(largest > 100 * MIB);
  empty_cache();
  check(reserved() == 0 && census().handles == 0);
  check(stats().num_device_free > 0 && stats().segment[0].current == 0);
});

/* Blocks are of the stream that is current, or that is named; external streams may be gone. Frees
   on torch's own streams, which are never destroyed, need no event each. */
static const Case case_streams("streams", [] {
  start();
  const Stream side = new_stream(), other = new_stream();
  on(other);
  void *const live = take(512);
  on(side);
  for (int i = 0; i < 9; i++) give(take(512));
  on(other);
  give(take(512)), give(live); /* the stream is known to stay */
  check(lake_stats().event_count == 0);
  on(side);
  void *const a = take(MIB);
  check(info_of(a).stream == side.stream());
  cu(cuMemsetD32Async(at(a), 1, MIB / 4, side.stream()));
  give(a);
  void *const again = take(MIB);
  check(again == a); /* its own stream has it at once */
  on(kLegacy);
  void *const b = take(MIB);
  check(b != a && !info_of(b).stream);
  give(again);
  void *const c = torch_allocator().raw_alloc_with_stream(MIB, side.stream());
  check(c && info_of(c).stream == side.stream());
  give(b);
  give(c);
  for (int i = 0; i < 20; i++) {
    const CUstream raw = on_external();
    void *const d = take(MIB);
    cu(cuMemsetD32Async(at(d), static_cast<unsigned>(i), MIB / 4, raw));
    check(word_at(d) == static_cast<uint32_t>(i));
    on(kLegacy);
    cu(cuStreamDestroy(raw));
    give(d);
  }
  check(reserved_after_empty() == 0);
});

/* A stream that is destroyed before its blocks are freed is not named any more, and no free waits
   for it. */
static const Case case_streams_end("streams_end", [] {
  start();
  CUstream raw = on_external();
  void *x = take(3 * MIB), *const y = take(MIB);
  give(x); /* parked */
  check(active_bytes() == int64_t(MIB));
  check(take(3 * MIB) == x); /* the stream is there, and gets it back */
  hold(raw);
  cu(cuStreamDestroy(raw));
  give(x), give(y);
  const CUstream next = on_external();
  check(next == raw); /* another stream of the same value: it does not get it */
  void *const z = take(3 * MIB);
  check(z != x);
  give(z), give(take(300 * MIB));
  check(census().pending > 0);
  check(reserved_after_empty() == 0 && active_bytes() == 0);
});

/* Freed, and used on another stream: active until that has completed. A foreign stream may be gone:
   it is asked only when it is named again. */
static const Case case_recorded("recorded", [] {
  start();
  const Stream own = new_stream();
  for (int is_foreign = 0; is_foreign < 2; is_foreign++) {
    const CUstream raw = on_external();
    const Stream side = is_foreign ? c10::cuda::getStreamFromExternal(raw, 0) : new_stream();
    on(own);
    Tensor tensor = make_tensor(2 * MIB);
    record_on(tensor, own); /* nothing */
    check(!lake_device().find(tensor->get())->has_uses);
    record_on(tensor, side);
    hold(side.stream());
    tensor = nullptr;
    check(live_bytes() == 0 && active_bytes() == int64_t(2 * MIB));
    check(stats().active[2].current == 1 && stats().requested_bytes[0].current == 2 << 20);
    const cca::BlockInfo block = torch_allocator().snapshot().segments.at(0).blocks.at(0);
    check(block.active && !block.allocated);
    cu(cuStreamSynchronize(side.stream()));
    check(active_bytes() == (is_foreign ? int64_t(2 * MIB) : 0));
    on(side);
    if (is_foreign) give(take(512)); /* it is still there */
    check(active_bytes() == 0 && stats().active[2].current == 0);
    check(stats().requested_bytes[0].current == 0 && reserved_after_empty() == 0);
  }
});

/* What has memory that it can do without, or says so. */
static void *spare = nullptr;
static int boasts = 0;
struct GiveSpare : c10::FreeMemoryCallback {
  bool Execute() override {
    const bool did = spare != nullptr || boasts-- > 0;
    give(std::exchange(spare, nullptr));
    return did;
  }
};

/* The fake device has 1 GiB. */
static const Case case_out_of_memory("out_of_memory", [] {
  std::vector<std::array<size_t, 3>> seen;
  start();
  c10::FreeCudaMemoryCallbacksRegistry()->makers["spare"] = [] {
    return std::unique_ptr<c10::FreeMemoryCallback>(new GiveSpare);
  };
  torch_allocator().attachOutOfMemoryObserver(
      [&](int64_t device, size_t asked, size_t total, size_t free) {
        check(device == 0);
        seen.push_back({asked, total, free});
      });
  check(raises("invalid fraction", [] { torch_allocator().setMemoryFraction(1.5, 0); }));
  torch_allocator().setMemoryFraction(0.25, 0);
  void *const kept = take(100 * MIB);
  spare = take(100 * MIB);
  void *const served = take(120 * MIB); /* in the spare one's place */
  check(served && !spare && stats().num_alloc_retries > 0 && seen.empty());
  const std::string text = error_of<c10::OutOfMemoryError>([] { (void)take(100 * MIB - 100); });
  check(has(text,
            "CUDA out of memory. Tried to allocate 100.00 MiB. GPU 0 has a total capacity of "));
  check(
      has(text, "256.00 MiB allowed; Of the allocated memory 220.00 MiB is allocated by PyTorch"));
  check(has(text, " The lake holds ") && has(text, " live here, "));
  check(seen.size() == 1 && seen[0][0] == 100 * MIB && seen[0][1] == 256 * MIB);
  check(stats().num_ooms == 1 && c10::profiler().asked == int64_t(100 * MIB));
  torch_allocator().setMemoryFraction(1.0, 0);
  give(take(100 * MIB));
  give(kept), give(served);
  const int64_t retries = stats().num_alloc_retries;
  boasts = 2;
  check(is_refused(size_t(2) << 30) && stats().num_alloc_retries == retries + 3);
  torch_allocator().setMemoryFraction(1e-9, 0); /* below what is held: nothing more is created */
  give(take(200 * MIB));
  check(is_refused(700 * MIB));
});

struct Stack : c10::GatheredContext {
  static int &count() {
    static int made = 0;
    return made;
  }
  int number = ++count();
};
static std::shared_ptr<c10::GatheredContext> gather() { return std::make_shared<Stack>(); }

static void record(bool is_enabled, cca::RecordContext when,
                   const std::vector<std::string> &skipped = {}) {
  torch_allocator().recordHistory(is_enabled, gather, 100, when, true, skipped);
}

static size_t count_of(const cca::SnapshotInfo &snapshot, TraceEntry::Action action) {
  size_t count = 0;
  for (const TraceEntry &entry : snapshot.device_traces[0]) count += entry.action_ == action;
  return count;
}

static const Case case_history("history", [] {
  start();
  record(true, cca::RecordContext::ALL);
  check(torch_allocator().isHistoryEnabled());
  std::string compile = "0/0";
  torch_allocator().pushCompileContext(compile);
  torch_allocator().recordAnnotation({{"name", "step"}});
  void *const a = take(5 * MIB), *const b = take(1000);
  give(b);
  cca::SnapshotInfo shown = torch_allocator().snapshot();
  const auto &trace = shown.device_traces[0];
  check(count_of(shown, TraceEntry::ALLOC) == 2);
  check(count_of(shown, TraceEntry::FREE_REQUESTED) == 1);
  check(count_of(shown, TraceEntry::FREE_COMPLETED) == 1);
  check(count_of(shown, TraceEntry::SEGMENT_ALLOC) > 0);
  for (const TraceEntry &entry : trace) {
    check(entry.compile_context_ == compile && entry.time_.t_ > 0);
    check(entry.context_ || entry.action_ == TraceEntry::SNAPSHOT);
  }
  check(shown.external_annotations.size() == 1);
  give(take(48)); /* beside a, in its last chunk */
  empty_cache();
  check(count_of(torch_allocator().snapshot(), TraceEntry::SEGMENT_FREE) == 0);
  give(a);
  empty_cache();
  check(count_of(torch_allocator().snapshot(), TraceEntry::SEGMENT_FREE) > 0);
  torch_allocator().popCompileContext();
  record(true, cca::RecordContext::ALL, {"free_completed"});
  torch_allocator().setUserMetadata("mine");
  std::thread([] { check(torch_allocator().getUserMetadata().empty()); }).join();
  give(take(1000));
  shown = torch_allocator().snapshot();
  check(!count_of(shown, TraceEntry::FREE_COMPLETED));
  check(count_of(shown, TraceEntry::FREE_REQUESTED) == 1);
  check(shown.device_traces[0][0].user_metadata_ == "mine");
  void *const known = take(1000);
#if TORCH_STUB_MINOR >= 12
  check(torch_allocator().getContextForPointer(known));
  check(!torch_allocator().getContextForPointer(&shown));
#endif
  give(known);
  record(false, cca::RecordContext::NEVER);
  const int made = Stack::count();
  give(take(1000));
  check(made == Stack::count() && !torch_allocator().isHistoryEnabled());
});

/* Segments together have what the lake holds, and every byte once. */
static std::vector<cca::SegmentInfo> whole_segments() {
  const std::vector<cca::SegmentInfo> out = torch_allocator().snapshot().segments;
  size_t bytes = 0, live = 0;
  for (const cca::SegmentInfo &segment : out) {
    size_t inside = 0;
    for (const cca::BlockInfo &block : segment.blocks) {
      inside += block.size;
      live += block.allocated ? block.size : 0;
      check(!block.allocated || (block.requested_size && block.requested_size <= block.size));
    }
    check(inside == segment.total_size && inside);
    bytes += inside;
  }
  check(bytes == static_cast<size_t>(reserved()) && live == static_cast<size_t>(live_bytes()));
  return out;
}

/* A stitched block is a segment. */
static const Case case_segments("segments", [] {
  std::vector<void *> blocks;
  size_t stitched_count = 0;
  start();
  torch_allocator().setMemoryFraction(.0625, 0); /* 64 MiB */
  record(true, cca::RecordContext::ALL);
  on(new_stream()), give(take(MIB));
  on(new_stream()), give(take(2 * MIB)); /* memory of two streams, side by side */
  check(whole_segments().size() == 1 && whole_segments()[0].blocks.size() == 1);
  empty_cache();
  for (int i = 0; i < 16; i++) blocks.push_back(take(4 * MIB));
  for (size_t i = 0; i < 16; i += 2) give(blocks[i]);
  void *const stitched = take(14 * MIB);
  for (const cca::SegmentInfo &segment : whole_segments()) {
    for (const cca::BlockInfo &block : segment.blocks)
      check(!block.allocated || block.context_when_allocated);
    if (segment.address != at(stitched)) continue;
    stitched_count++;
    check(segment.blocks.size() == 1 && segment.allocated_size == 14 * MIB);
  }
  check(stitched_count == 1 && live_bytes() == (8 * 4 + 14) << 20);
});

static cca::SnapshotInfo snapshot_of(PoolId pool) { return torch_allocator().snapshot(pool); }

/* Requests on every stream go to the pool. */
static void begin_pool(PoolId pool) {
  torch_allocator().beginAllocateToPool(0, pool, [](cudaStream_t) { return true; });
}

/* Who registers segments, as NCCL does. */
struct Registry {
  std::map<size_t, std::pair<size_t, PoolId>> segments;
  std::vector<size_t> order; /* of those that it was told of, as they came */
  bool does_throw = false;

  void see(const TraceEntry &entry) {
    TORCH_CHECK(!does_throw, "no more registrations");
    if (entry.action_ == TraceEntry::SEGMENT_ALLOC) {
      check(segments.emplace(entry.addr_, std::make_pair(entry.size_, entry.mempool_)).second);
      order.push_back(entry.addr_);
    }
    if (entry.action_ == TraceEntry::SEGMENT_FREE) {
      check(segments.erase(entry.addr_) == 1);
      order.erase(std::remove(order.begin(), order.end(), entry.addr_), order.end());
      (void)word_at(reinterpret_cast<void *>(entry.addr_)); /* still mapped */
    }
  }
  /* All of a snapshot's are, in this order: blocks over several are cut. */
  void check_all() const {
    const std::vector<cca::SegmentInfo> shown = whole_segments();
    std::map<size_t, int> counters;
    for (const cca::SegmentInfo &segment : shown) {
      const auto known = segments.find(segment.address);
      check(known != segments.end() && known->second.first == segment.total_size);
      check(known->second.second == segment.owner_private_pool_id);
      counters[segment.address] = segment.registration_counter;
      check(segment.registration_counter > 0);
    }
    for (size_t i = 1; i < order.size(); i++) check(counters[order[i - 1]] < counters[order[i]]);
    check(shown.size() == segments.size());
  }
};

/* It sees each segment once, and its end before the memory is gone. */
static const Case case_trackers("trackers", [] {
  Registry registry;
  std::vector<void *> blocks;
  start();
  give(take(1000));
  empty_cache();
  for (int i = 0; i < 20; i++) blocks.push_back(take(10 * MIB));
  for (size_t i = 0; i < 20; i += 2) give(blocks[i]);
  void *const stitched = take(70 * MIB);
  torch_allocator().attachAllocatorTraceTracker(
      [&](const TraceEntry &entry) { registry.see(entry); });
  for (const cca::SegmentInfo &segment : torch_allocator().snapshot().segments)
    registry.segments[segment.address] = {segment.total_size, segment.owner_private_pool_id};
  begin_pool(kPool);
  void *const of_pool = take(9 * MIB);
  end_pool(kPool);
  registry.check_all();
  check(snapshot_of(kPool).segments.size() >= 4);
  void *const more = take(200 * MIB);
  give(stitched);
  empty_cache();
  registry.check_all();
  give(of_pool);
  release_pool(kPool);
  give(more);
  for (size_t i = 1; i < 20; i += 2) give(blocks[i]);
  empty_cache();
  check(registry.segments.empty() && c10::warnings().empty());
  registry.does_throw = true; /* in the middle of calls of the lake and of torch's */
  give(take(50 * MIB));
  check(live_bytes() == 0);
  empty_cache();
  check(!c10::warnings().empty() && has(c10::warnings()[0], "no more registrations"));
  check(reserved() == 0);
});

/* Requests on streams that are captured go to the pool. */
static void begin_graph(PoolId pool) {
  torch_allocator().beginAllocateToPool(0, pool, [](cudaStream_t stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cu(cuStreamIsCapturing(stream, &status));
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
}
/* As CUDAGraph does: torch first, then the driver; and the same at the end. */
static void begin_capture(PoolId pool, const Stream &stream) {
  on(stream);
  begin_graph(pool);
  cu(cuStreamBeginCapture(stream.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
}
static void stop_capture(const Stream &stream) {
  CUgraph graph;
  cu(cuStreamEndCapture(stream.stream(), &graph));
  cu(cuGraphDestroy(graph));
}
static void end_capture(PoolId pool, const Stream &stream) {
  stop_capture(stream);
  end_pool(pool);
}
static void follow(const Stream &stream, const Stream &other) {
  CUevent event;
  cu(cuEventCreate(&event, CU_EVENT_DISABLE_TIMING));
  cu(cuEventRecord(event, other.stream()));
  cu(cuStreamWaitEvent(stream.stream(), event, 0));
  cu(cuEventDestroy(event));
}
static int64_t pool_bytes() { return static_cast<int64_t>(lake_device().pool_bytes()); }

/* A graph on two streams; its memory stays with the pool, and serves the next graph. */
static const Case case_graphs("graphs", [] {
  start();
  const Stream a = new_stream(), b = new_stream();
  on(a);
  void *const outside = take(MIB);
  begin_capture(kPool, a);
  check(raises("already recording", [] { begin_pool(kPool); }));
  void *const once = take(MIB);
  give(once);
  Tensor first = make_tensor(MIB);
  check(first->get() == once);
  follow(b, a); /* joins the capture */
  on(b);
  void *const side = take(MIB); /* only now the lake learns of it */
  check(info_of(side).pool && info_of(once).pool == info_of(side).pool);
  record_on(first, b);
  on(kLegacy);
  give(outside); /* waits for the end */
  void *const host = take(MIB);
  check(!info_of(host).pool); /* the legacy stream is not captured */
  give(side);
  follow(a, b);
  end_capture(kPool, a);
  check(raises("not currently recording", [] { end_pool(kPool); }));
  check(is_live(kPool, {once}) && !is_live(kPool, {once, host}));
  const int64_t held = pool_bytes();
  first = nullptr;
  on(a);
  give(take(MIB));
  check(pool_bytes() == held);
  begin_capture(kPool, a);
  void *const next = take(MIB);
  check(pool_bytes() == held);
  end_capture(kPool, a);
  empty_cache();
  check(pool_bytes() == held && use_count(kPool) == 2);
  release_pool(kPool), release_pool(kPool);
  give(next);
  empty_cache();
  check(pool_bytes() == 0);
  give(host);
});

/* A MemPool: what one thread allocates. */
static const Case case_mempools("mempools", [] {
  start();
  const auto here = std::this_thread::get_id();
  torch_allocator().createOrIncrefPool(0, kPool, nullptr);
  torch_allocator().beginAllocateToPool(
      0, kPool, [here](cudaStream_t) { return std::this_thread::get_id() == here; });
  void *const in = take(MIB), *elsewhere = nullptr;
  std::thread([&] { elsewhere = take(MIB); }).join();
  end_pool(kPool);
  void *const out = take(MIB);
  check(info_of(in).pool && !info_of(elsewhere).pool && !info_of(out).pool);
  check(use_count(kPool) == 2 && pool_bytes() == 2 << 20 && is_live(kPool, {in}));
  release_pool(kPool), release_pool(kPool);
  check(raises("no such pool", [] { release_pool(kPool); }));
  empty_cache();
  check(is_live(kPool, {in})); /* it has a live block */
  give(in);
  empty_cache();
  check(raises("Could not find pool", [] { (void)is_live(kPool, {}); }));
  give(out), give(elsewhere);
});

/* Pools that serve others when memory has run out, and pools that were released. */
static const Case case_pools_serve("pools_serve", [] {
  std::vector<void *> in;
  start();
  torch_allocator().setMemoryFraction(.03125, 0); /* 32 MiB */
  torch_allocator().createOrIncrefPool(0, kPool, nullptr);
  begin_pool(kPool);
  for (int i = 0; i < 20; i++) in.push_back(take(MIB));
  end_pool(kPool), release_pool(kPool);
  for (size_t i = 0; i < 20; i += 2) give(in[i]); /* half of each chunk */
  void *const block = take(12 * MIB);
  check(pool_bytes() == 20 << 20 && is_refused(MIB));
  torch_allocator().setUseOnOOM(0, kPool, true);
  void *more = take(MIB);
  check(info_of(more).pool && info_of(more).pool == info_of(in[1]).pool);
  give(more);
  for (size_t i = 1; i < 20; i += 2) give(in[i]);
  release_pool(kPool); /* no use is left: it goes when memory runs out */
  more = take(19 * MIB);
  check(!info_of(more).pool && pool_bytes() == 0);
  give(more), give(block);
});

/* torch 2.12 ends a capture's pool and begins it again while the stream is captured, and allocates
   on the legacy stream meanwhile: for generators that register late. */
static const Case case_pool_begins_again("pool_begins_again", [] {
  start();
  const Stream a = new_stream();
  begin_capture(kPool, a);
  void *const first = take(MIB);
  end_pool(kPool);
  on(kLegacy);
  Tensor state = make_tensor(8);
  on(a);
  begin_graph(kPool);
  void *const second = take(MIB);
  check(second != first && info_of(second).pool == info_of(first).pool);
  check(!info_of(state->get()).pool);
  give(first);
  check(take(MIB) == first);
  end_capture(kPool, a);
  for (int replay = 0; replay < 3; replay++) record_on(state, a);
  state = nullptr;
  give(second);
  check(live_count() == 1);
});

/* Graph trees: the state after a graph comes back at the same addresses. */
static const Case case_checkpoints("checkpoints", [] {
  start();
  const Stream a = new_stream();
  const auto restored = [](const std::shared_ptr<cca::AllocatorState> &state) {
    return torch_allocator().setCheckpointPoolState(0, state);
  };
  begin_capture(kPool, a);
  void *const x = take(3 * MIB), *const y = take(MIB);
  give(take(5 * MIB));
  end_capture(kPool, a);
  auto point = torch_allocator().getCheckpointState(0, kPool);
  check(raises("Could not find pool", [] {
    (void)torch_allocator().getCheckpointState(0, {0, 9});
  }));
  give(x); /* its tensor dies; the graph will write it again */
  check(is_live(kPool, {y}));
  begin_capture(kPool, a);
  void *const z = take(2 * MIB);
  check(z != x);                   /* of another size: it does not get what the checkpoint keeps */
  check(take(3 * MIB - 512) == x); /* of about the same size: it does */
  end_capture(kPool, a);
  auto second = torch_allocator().getCheckpointState(0, kPool);
  cca::CheckpointDelta delta = restored(point);
  check(delta.ptrs_freed.size() == 3 && delta.dataptrs_allocd.size() == 2);
  check(is_live(kPool, {x, y}) && live_count() == 2);
  for (c10::DataPtr &data : delta.dataptrs_allocd) (void)new c10::DataPtr(std::move(data));
  delta = restored(second);
  check(delta.ptrs_freed.size() == 2 && delta.dataptrs_allocd.size() == 3);
  check(is_live(kPool, {x, y, z}));
  delta.dataptrs_allocd.clear(); /* frees all three */
  check(active_bytes() == 0);
  empty_cache();
  check(pool_bytes() > 0);
  while (use_count(kPool)) release_pool(kPool);
  empty_cache();
  check(pool_bytes() > 0); /* the checkpoints keep it */
  point = second = nullptr;
  empty_cache();
  check(pool_bytes() == 0);
});

/* A block of a checkpoint that another stream used serves nobody else, also after it came back. */
static const Case case_checkpoints_recorded("checkpoints_recorded", [] {
  start();
  const Stream a = new_stream(), b = new_stream();
  begin_capture(kPool, a);
  Tensor x = make_tensor(3 * MIB);
  void *const at_x = x->get();
  end_capture(kPool, a);
  const auto point = torch_allocator().getCheckpointState(0, kPool);
  record_on(x, b);
  x = nullptr;
  for (int i = 0; i < 2; i++) {
    begin_capture(kPool, a);
    void *const same = take(3 * MIB);
    check(same != at_x);
    give(same);
    end_capture(kPool, a);
    (void)torch_allocator().setCheckpointPoolState(0, point); /* which lets go of x at once */
  }
});

/* Ten thousand blocks that are sent and dropped leave nothing behind, in neither process: here one
   process is both. */
static const Case case_sharing("sharing", [] {
  start();
  std::vector<void *> blocks = {take(1000), take(3 * MIB), take(70 * MIB)};
  for (size_t i = 0; i < blocks.size(); i++)
    cu(cuMemsetD32Async(at(blocks[i]), static_cast<unsigned>(i + 5), 250, nullptr));
  cu(cuCtxSynchronize());
  fake_cuda_census before{};
  size_t descriptors = 0;
  const int64_t held = reserved();
  const size_t segments = torch_allocator().snapshot().segments.size();
  for (int i = 0; i < 10000; i++) {
    if (i == 30) before = census(), descriptors = descriptor_count();
    const size_t which = static_cast<size_t>(i) % blocks.size();
    const cca::ShareableHandle handle = torch_allocator().shareIpcHandle(blocks[which]);
    const std::shared_ptr<void> base = torch_allocator().getIpcDevPtr(handle.handle);
    check(base && base.get() != blocks[which]);
    if (i % 500 == 0) {
      check(reserved() == held); /* another process's memory is no segment */
      check(torch_allocator().snapshot().segments.size() == segments);
      const std::shared_ptr<void> again = torch_allocator().getIpcDevPtr(handle.handle);
      check(again != base); /* another range of addresses, with the same memory */
      check(word_at(static_cast<char *>(again.get()) + handle.offset) == which + 5);
      check(word_at(static_cast<char *>(base.get()) + handle.offset) == which + 5);
    }
  }
  const fake_cuda_census after = census();
  check(after.handles == before.handles && after.mappings == before.mappings);
  check(after.reservations == before.reservations && descriptor_count() == descriptors);
  check(after.physical_bytes == before.physical_bytes);
  const size_t chunk_count = lake_stats().chunk_count;
  for (void *block : blocks) give(block);
  empty_cache();
  check(census().handles == 0); /* each chunk had one descriptor, and one to be sent */
  check(descriptors - descriptor_count() == 2 * chunk_count);
  const auto refuses = [](const char *text) {
    return error_of<std::exception>([&] { (void)torch_allocator().getIpcDevPtr(text); });
  };
  check(has(refuses("gmlake1"), "cannot be read") &&
        has(refuses("gmlake1 1 2 3"), "cannot be read"));
  check(has(refuses("e"), "torch's own allocator does not know e"));
  const std::string gone = "gmlake1 " + std::to_string(getpid()) + " 1000 1 2097152";
  check(has(refuses(gone.c_str()), "cannot be had"));
  check(raises("invalid device pointer", [&] { (void)torch_allocator().shareIpcHandle(&blocks); }));
  check(census().reservations == before.reservations);
});

static bool can_reach(const void *ptr, int device) {
  unsigned long long flags = 0;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  cu(cuMemGetAccess(&flags, &location, at(ptr)));
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* What there was before peer access is reached, and what comes later; what is gone is not. */
static const Case case_peers("peers", [] {
  start(3);
  void *const early = take(3 * MIB);
  check(can_reach(early, 0) && !can_reach(early, 1));
  torch_allocator().enablePeerAccess(1, 0);
  torch_allocator().enablePeerAccess(1, 0);
  void *const late = take(40 * MIB);
  check(can_reach(early, 1) && can_reach(static_cast<char *>(late) + 40 * MIB - 1, 1));
  c10::cuda::SetDevice(1);
  void *const other = take(3 * MIB);
  check(!can_reach(other, 0) && lake_of(1) && lake_of(0) != lake_of(1));
  cu(cuMemsetD32Async(at(other), 9, 3 * MIB / 4, nullptr));
  cu(cuCtxSynchronize());
  torch_allocator().enablePeerAccess(0, 1);
  check(can_reach(other, 0));
  c10::cuda::SetDevice(0);
  check(torch_allocator().memcpyAsync(early, 0, other, 1, 3 * MIB, nullptr, true) == cudaSuccess);
  check(word_at(early) == 9);
  give(late);
  empty_cache();
  check(!can_reach(early, 2));
  torch_allocator().enablePeerAccess(2, 0);
  check(can_reach(early, 2) && can_reach(early, 1));
  check(the_allocator().device_of(0)->memory().add_peer(99) != GMLAKE_OK);
  check(stats(1).allocated_bytes[0].current == int64_t(3 * MIB));
  give(other), give(early); /* from any device */
  check(stats(0).allocation[0].current == 0 && stats(1).allocation[0].current == 0);
});

static const Case case_profiler("profiler", [] {
  c10::impl::Tracer tracer;
  const c10::impl::PyInterpreter interpreter{&tracer};
  start();
  c10::profiler().is_on = true;
  c10::impl::GPUTrace::state() = &interpreter;
  void *const a = take(1000);
  check(c10::profiler().ptr == a && c10::profiler().bytes == 1024 && c10::profiler().live == 1024);
  check(c10::profiler().held == static_cast<size_t>(reserved()));
  give(a);
  check(c10::profiler().bytes == -1024 && c10::profiler().live == 0);
  const std::vector<uintptr_t> both{reinterpret_cast<uintptr_t>(a)};
  check(tracer.allocations == both && tracer.deallocations == both);
});

/* Whether what the function returns in a child of fork is true. */
template <class Function>
static bool is_so_in_child(Function function) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) {
    (void)alarm(patience());
    _exit(!function());
  }
  return waitpid(child, &status, 0) == child && status == 0;
}

/* A worker of a DataLoader has copies of tensors and no device. It ends graphs and pools, of which
   it has copies, whoever held a lock meanwhile: a filter is called with that of the routes. */
static const Case case_fork("fork", [] {
  start();
  void *const a = take(MIB);
  check(is_so_in_child([&] { return give(a), true; }));
  torch_allocator().createOrIncrefPool(0, kPool, nullptr);
  torch_allocator().beginAllocateToPool(0, kPool, [](cudaStream_t) {
    return is_so_in_child([] {
      const bool is_sole = use_count(kPool) == 1; /* MemPool wants that */
      release_pool(kPool);
      torch_allocator().emptyCache(kPool);
      return is_sole;
    });
  });
  void *const in = take(MIB);
  check(info_of(in).pool); /* the filter said yes */
  end_pool(kPool);
  check(use_count(kPool) == 2);
  give(in), give(a);
  check(live_count() == 0);
});

static const Case case_threads("threads", [] {
  start();
  for (int i = 0; i < 4; i++) (void)new_stream(); /* before the threads: the list has no lock */
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; k++)
    threads.emplace_back([k] {
      c10::cuda::SetDevice(0);
      std::vector<void *> mine;
      if (k & 1) on(c10::cuda::CUDAStream(0, 2 * k + 1));
      for (int i = 0; i < 2000; i++) {
        mine.push_back(take(static_cast<size_t>(i * 7919 % 3000000 + 1)));
        if (mine.size() > 8) {
          give(mine[static_cast<size_t>(i) % 8]);
          mine.erase(mine.begin() + i % 8);
        }
      }
      for (void *ptr : mine) give(ptr);
    });
  for (std::thread &thread : threads) thread.join();
  check(live_count() == 0 && stats().allocation[0].allocated == 8000);
});

static const char *open_session(size_t limit_bytes) {
  return gmlake_torch_offload_open(0, limit_bytes, 0, 0, 2 * MIB, 0);
}
static const char *name_tensor(const void *ptr, size_t reads, size_t writes) {
  const uint64_t both[2] = {at(ptr, 100), at(ptr, 100)};
  return gmlake_torch_offload_step(1, both, reads, writes);
}
static const char *name_all(const std::vector<void *> &tensors) {
  return gmlake_torch_offload_step(1, reinterpret_cast<const uint64_t *>(tensors.data()),
                                   tensors.size(), 0);
}
static gmlake_offload_session_stats session() { return sessions().by_device[0]->stats(); }
/* The session of gmlake_offload.h inside. */
gmlake_torch::Session &inside(gmlake_torch::Offload &offload);
template <gmlake_torch::Session gmlake_torch::Offload::*Member>
struct Inside {
  friend gmlake_torch::Session &inside(gmlake_torch::Offload &offload) { return offload.*Member; }
};
template struct Inside<&gmlake_torch::Offload::session_>;

/* An iteration has ended. The thread that plans has, too, so that no case depends on its speed. */
static bool mark() {
  const bool is_done = !gmlake_torch_offload_mark();
  const gmlake_offload_session *s = inside(*sessions().by_device[0]).get();
  while (s && s->worker.is_running && !gmlo_load(&s->worker.done)) std::this_thread::yield();
  return is_done;
}

/* Twelve tensors of 8 MiB in a session with 64. */
static const Case case_offload("offload", [] {
  std::vector<void *> tensors;
  uint64_t graph = 0;
  char text[2048];
  start();
  check(has(open_session(64 * MIB), "has no lake") && !gmlake_torch_offload_close());
  torch_allocator().setMemoryFraction(.5, 0);
  void *const before = take(8 * MIB); /* what is made outside stays */
  check(!open_session(64 * MIB) && has(open_session(64 * MIB), "open already"));
  for (unsigned i = 0; i < 12; i++) {
    tensors.push_back(take(8 * MIB));
    check(!name_tensor(tensors[i], i & 1, !(i & 1))); /* to be read is enough to leave */
    cu(cuMemsetD32Async(at(tensors[i]), i, 2 * MIB, nullptr));
  }
  for (int turn = 0; turn < 3; turn++) {
    for (unsigned i = 0; i < 12; i++) {
      check(!name_tensor(tensors[i], 1, 0) && word_at(tensors[i]) == i);
      give(take(300000));
    }
    check(mark());
  }
  check(live_bytes() == 13 * 8 * static_cast<int64_t>(MIB));
  check(stats().reserved_bytes[0].peak <= 64 * static_cast<int64_t>(MIB));
  check(gmlake_torch_offload_stats_json(0, text, sizeof text) > 0 && has(text, "\"drop_count\""));
  check(gmlake_torch_offload_stats_json(1, nullptr, 0) == -1);
  give(take(MIB - 512)); /* below half a chunk they are the lake's */
  check(session().tensor_count == 12 && has(name_all(tensors), "OUT_OF_DEVICE_MEMORY: "));
  void *const large = take(2 * MIB);
  check(session().tensor_count == 13);
  give(large);
  check(!gmlake_torch_offload_keep(at(tensors[0])) && !gmlake_torch_offload_keep(at(before)));
  check(has(gmlake_torch_offload_begin_capture(), "OUT_OF_DEVICE_MEMORY"));
  check(!gmlake_torch_offload_end_capture(&graph) && !gmlake_torch_offload_replay(graph));
  const std::string refused = error_of<c10::OutOfMemoryError>([] { give(take(64 * MIB)); });
  check(has(refused.c_str(), "offloads says: ") && has(refused.c_str(), "; raise limit_bytes."));
  check(has(refused.c_str(), "this step needs ") && word_at(tensors[0]) == 0);
  {
    const c10::DataPtr data = torch_allocator().allocate(8 * MIB);
    const std::string why = error_of<c10::Error>([&] {
      for (int i = 0; i < 64; i++) torch_allocator().recordStream(data, new_stream());
    });
    check(has(why.c_str(), "more than 62 streams")); /* the session would not wait for it */
  }
  check(!gmlake_torch_offload_close() && !name_tensor(tensors[1], 1, 0));
  for (unsigned i = 0; i < 12; i++) check(word_at(tensors[i]) == i);
  check(is_refused(600 * MIB)); /* half of the device is the limit again */
  for (void *ptr : tensors) give(ptr);
  give(before);
  check(live_bytes() == 0);
});

/* ---- Sessions: words that are wrong, and memory above the limit, fail ---- */

static const size_t WEIGHT = 4 * MIB, LITTLE = 300000, LAYERS = 12, VARYING_LIMIT = 32 * MIB;
static const size_t OTHERS = 2560 * 1024;
static const uint32_t ITERATIONS = 12;

struct Training {
  Stream own = kLegacy; /* torch's */
  CUstream stream = nullptr;
  CUdeviceptr wrong = 0;
  void *made = nullptr; /* what the last operator has made */
  std::vector<void *> weights;

  explicit Training(size_t limit_bytes, size_t count = LAYERS, bool is_checked = false);
  ~Training() { check_words(); }
  gmlake_torch::Memory &memory() const { return lake_device().memory(); }

  /* What follows runs on that stream. */
  void turn_to(const Stream &next) {
    on(next);
    stream = next.stream();
  }
  void step(uint64_t key, std::vector<void *> reads, const std::vector<void *> &writes);
  void fill(const void *ptr, size_t bytes, uint32_t seed) {
    cu(gpu_fill(&gpu, &kernels, stream, at(ptr), bytes / 4, seed));
  }
  void verify(const void *ptr, uint32_t seed) {
    cu(gpu_verify(&gpu, &kernels, stream, at(ptr), WEIGHT / 4, seed, wrong));
  }
  /* The tensor has the words of one seed, and gets those of another. */
  void use(const void *ptr, uint32_t before, uint32_t after) {
    verify(ptr, before);
    fill(ptr, WEIGHT, after);
  }
  void check_words() const {
    uint64_t count = 0;
    cu(cuCtxSynchronize());
    cu(cuMemcpyDtoH(&count, wrong, sizeof count));
    check(count == 0);
  }

  /* Makes weights: the i-th has the words of the seed i. */
  void make(size_t count) {
    for (size_t i = 0; i < count; i++) {
      step(1, {}, {});
      weights.push_back(made = take(WEIGHT));
      fill(made, WEIGHT, static_cast<uint32_t>(i));
    }
  }
  /* Each weight in turn, so that by the limit the others leave; seeds go up by one. */
  void each(uint32_t iteration) {
    for (uint32_t i = 0; i < weights.size(); i++) {
      step(7, {weights[i]}, {weights[i]});
      use(weights[i], i + iteration, i + iteration + 1);
    }
    check(mark());
  }
  /* Forward and backward; small memory beside it is the lake's own. */
  void iterate(uint32_t iteration);

  /* Work on some weights while others have so much memory, and then on six. */
  void vary(uint32_t first, size_t others_bytes);
};
Training::Training(size_t limit_bytes, size_t count, bool is_checked) {
  const uint64_t zero = 0;
  (void)setenv("GMLAKE_TORCH_CHUNK_BYTES", std::to_string(2 * MIB).c_str(), 1);
  start();
  load_kernels();
  cu(cuMemAlloc(&wrong, sizeof zero));
  cu(cuMemcpyHtoD(wrong, &zero, sizeof zero));
  turn_to(own = new_stream());
  give(take(LITTLE)); /* makes the lake */
  empty_cache();
  check(!gmlake_torch_offload_open(0, limit_bytes, 0, 0, 2 * MIB, is_checked));
  make(count);
}
void Training::step(uint64_t key, std::vector<void *> reads, const std::vector<void *> &writes) {
  const uint64_t last = at(made);
  const size_t read_count = reads.size();
  std::vector<uint64_t> all;
  if (made) check(!gmlake_torch_offload_made(&last, 1));
  made = nullptr;
  reads.insert(reads.end(), writes.begin(), writes.end());
  for (const void *ptr : reads) all.push_back(at(ptr, 5)); /* of any byte */
  const char *const why = gmlake_torch_offload_step(key, all.data(), read_count, writes.size());
  if (why) broken(why, __LINE__);
}
void Training::iterate(uint32_t iteration) {
  std::vector<void *> activations, smalls;
  for (uint32_t i = 0; i < LAYERS; i++) {
    step(2 + i, {weights[i]}, {});
    activations.push_back(made = take(WEIGHT));
    verify(weights[i], i + iteration);
    fill(activations.back(), WEIGHT, 1000 + i);
    smalls.push_back(take(LITTLE));
    fill(smalls.back(), LITTLE, 7);
  }
  for (uint32_t i = LAYERS; i-- > 0;) {
    step(100 + i, {weights[i], activations[i]}, {weights[i]});
    verify(activations[i], 1000 + i);
    use(weights[i], i + iteration, i + iteration + 1);
    give(activations[i]);
    give(smalls[i]);
  }
  check(mark());
}
void Training::vary(uint32_t first, size_t others_bytes) {
  const size_t at_once = (VARYING_LIMIT - others_bytes - WEIGHT) / WEIGHT;
  std::vector<void *> others, named;
  for (size_t bytes = 0; bytes + OTHERS <= others_bytes; bytes += OTHERS) {
    step(5, {}, {});
    others.push_back(take(OTHERS));
    fill(others.back(), OTHERS, 7);
  }
  for (size_t i = 0; i < at_once && i < 6; i++) named.push_back(weights[(first + i) % LAYERS]);
  step(6, named, {});
  for (void *other : others) give(other);
  for (size_t i = 0; i < 2; i++) {
    named.assign(weights.begin() + long(6 * i), weights.begin() + long(6 * i + 6));
    step(7 + i, named, {});
    for (size_t k = 0; k < 6; k++) verify(named[k], static_cast<uint32_t>(6 * i + k));
  }
  check(mark() && memory().reserved() <= VARYING_LIMIT);
}

static void train(bool is_checked) {
  const size_t limit_bytes = 32 * MIB;
  Training t(limit_bytes, LAYERS, is_checked);
  for (uint32_t i = 0; i < ITERATIONS; i++) {
    t.iterate(i);
    check(t.memory().reserved() <= limit_bytes);
  }
  t.check_words();
  const gmlake_offload_session_stats stats = session();
  check(stats.tensor_count == LAYERS && stats.plan_count > 0);
  check(stats.out_count > ITERATIONS && stats.in_count > ITERATIONS);
  check(is_checked || stats.sync_count == 0); /* the host has waited for nothing */
  check(!gmlake_torch_offload_close());
  for (uint32_t i = 0; i < LAYERS; i++) t.verify(t.weights[i], i + ITERATIONS);
  check(t.memory().limit() == 0);
  for (void *weight : t.weights) give(weight);
  check(session().tensor_count == 0);
}
static const Case case_train("train", [] { train(false); });
static const Case case_train_checked("train_checked", [] { train(true); });

static std::string text_of(const std::string &path) {
  std::ifstream file(path);
  return {std::istreambuf_iterator<char>(file), {}};
}
static size_t count_of(const std::string &text, const std::string &word) {
  size_t count = 0;
  for (size_t at = text.find(word); at != text.npos; at = text.find(word, at + 1)) count++;
  return count;
}

/* What is planned is told, and recorded with what lived before. */
static const Case case_session_plan("session_plan", [] {
  char folder[] = "/tmp/gmlake_plan_XXXXXX";
  const char *json = "";
  check(mkdtemp(folder));
  const std::string path = std::string(folder) + "/run.gmcalls", other = path + ".other";
  check(has(gmlake_torch_offload_plan_json(0, &json), "had no session yet") && !json);
  Training t(32 * MIB);
  check(has(gmlake_torch_offload_plan_json(0, &json), "NOT_SEALED: no iteration is planned yet"));
  check(has(gmlake_torch_offload_record(nullptr), "could not be written"));
  check(has(gmlake_torch_offload_record("/no/such/folder"), "the file cannot be written"));
  check(!gmlake_torch_offload_keep(at(t.weights[0])) && !gmlake_torch_offload_record(path.c_str()));
  check(has(gmlake_torch_offload_record(other.c_str()), "is recorded into another one"));
  for (uint32_t i = 0; i < ITERATIONS; i++) t.iterate(i);
  check(!gmlake_torch_offload_plan_json(0, &json));
  const std::string text = json;
  check(text.find("{\"time_ns\": ") == 0 && text.find("\"steps\": [[0, ") != text.npos);
  check(count_of(text, "], [") == 2 * LAYERS - 1 + 2 * LAYERS - 1 + /* steps, tensors, moves */
                                      count_of(text.substr(text.find("moves")), "], ["));
  check(!gmlake_torch_offload_record(nullptr));
  const std::string calls = text_of(path);
  check(count_of(calls, "\nalloc ") == LAYERS * (ITERATIONS + 1));
  check(calls.find("gmcalls 1\nlimit ") == 0 && count_of(calls, "\nmark ") == ITERATIONS);
  /* Until an operator names it; and of those before, the first weight and the last one. */
  check(count_of(calls, "\npin ") == LAYERS * ITERATIONS + 2);
  check(count_of(calls, "\ntime ") == 2 * LAYERS && count_of(calls, "\nothers ") == 1);
  (void)std::remove(path.c_str());
  check(!rmdir(folder) && !gmlake_torch_offload_close());
  for (void *weight : t.weights) give(weight);
});

/* Others need more and less, at random and for some time; then always the same. */
static const Case case_train_varying("train_varying", [] {
  Training t(VARYING_LIMIT);
  const uint32_t part = test_part();
  uint32_t seed = 1;
  for (uint32_t i = 0; i < 400 / part; i++) {
    const size_t least = i * part / 50 % 2 ? 0 : 10 * MIB;
    seed = seed * 1664525u + 1013904223u;
    t.vary(seed >> 8, least + (seed >> 12) % (12 * MIB));
  }
  for (uint32_t i = 0; i < 200 / part; i++) t.vary(0, 5 * MIB);
  const uint64_t plan_count = session().plan_count;
  const int64_t created = stats().num_device_alloc;
  for (uint32_t i = 0; i < 100 / part; i++) t.vary(0, 5 * MIB);
  check(stats().num_device_alloc == created); /* nothing goes to and fro */
  check(session().plan_count == plan_count);
});

/* What no operator names stays, although it is used. So does what a raw pointer was taken of. */
static const Case case_session_stays("session_stays", [] {
  Training t(26 * MIB, 8);
  void *const workspace = take(WEIGHT), *const raw = take(WEIGHT);
  t.step(7, {raw}, {raw});
  t.fill(raw, WEIGHT, 100), t.fill(workspace, WEIGHT, 101);
  check(!gmlake_torch_offload_keep(at(raw, 77)) && !gmlake_torch_offload_keep(12345));
  for (uint32_t i = 0; i < 4; i++) {
    t.each(i);
    t.verify(raw, 100), t.verify(workspace, 101);
  }
  check(session().out_count > 0);
});

/* ---- Sessions: small tensors that last lie in slabs of two chunks, which leave together ---- */

struct Slabs {
  static constexpr size_t kBytes = MIB - 512; /* of each; four in a slab */
  Training t{64 * MIB, 1};
  std::vector<void *> small;

  void add(uint32_t seed) {
    check(!gmlake_torch_offload_lasting(1));
    small.push_back(take(kBytes));
    check(!gmlake_torch_offload_lasting(0));
    t.fill(small.back(), kBytes, seed);
  }
  void verify(size_t i, uint32_t seed) {
    cu(gpu_verify(&gpu, &kernels, t.stream, at(small[i]), kBytes / 4, seed, t.wrong));
  }
  void read(const std::vector<size_t> &which) {
    std::vector<void *> read;
    for (size_t i : which) read.push_back(small[i]);
    t.step(8, read, {});
  }
  /* All tensors leave, but those of so many bytes that have to stay. */
  void leave(size_t stays) {
    size_t given = 0;
    t.step(7, t.weights, {});
    check(mark());
    check(inside(*sessions().by_device[0]).make_room(WEIGHT * 100, &given) == GMLAKE_OFFLOAD_OK);
    check(session().device_bytes == stays);
  }
};

static const Case case_session_slabs("session_slabs", [] {
  Slabs s;
  for (uint32_t i = 0; i < 8; i++) {
    s.t.step(1, {}, {});
    s.add(i);
    s.t.made = s.small.back();
  }
  check(session().tensor_count == 1 + 2);
  for (uint32_t i = 0; i < 8; i++) { /* what is beside it stays as it is */
    s.leave(0);
    s.t.step(9, {}, {s.small[i]});
    s.t.fill(s.small[i], Slabs::kBytes, 100 + i);
    s.leave(0);
    s.read({i, (i + 1) % 8});
    s.verify(i, 100 + i), s.verify((i + 1) % 8, i == 7 ? 100 : i + 1);
  }
  for (size_t i = 0; i < 3; i++) give(s.small[i]);
  check(session().tensor_count == 1 + 2); /* the fourth is there */
  s.read({3});
  s.verify(3, 103);
  give(s.small[3]);
  check(session().tensor_count == 1 + 1);
  check(!gmlake_torch_offload_close());
  for (size_t i = 4; i < 8; i++) s.verify(i, static_cast<uint32_t>(100 + i)), give(s.small[i]);
  check(session().tensor_count == 1);
});

/* One that no operator has named keeps its slab on the device. */
static const Case case_session_unnamed("session_unnamed", [] {
  const size_t slab_bytes = 4 * MIB;
  Slabs s;
  s.add(0);
  s.add(1);
  for (int i = 0; i < 2; i++) { /* to name one twice does not name the other */
    s.leave(slab_bytes);
    s.read({1});
  }
  s.leave(slab_bytes);
  s.verify(0, 0);
  s.read({0});
  s.leave(0);
  s.add(2); /* in a slab that is away: its copy is stale */
  s.read({2});
  s.leave(0);
  s.read({0, 1, 2});
  for (uint32_t i = 0; i < 3; i++) s.verify(i, i);
  s.add(3);
  give(s.small[3]); /* unnamed: the slab may leave again */
  s.leave(0);
  s.add(4); /* where that one was */
  check(s.small[4] == s.small[3]);
  s.read({4, 0});
  s.verify(4, 4), s.verify(0, 0);
  s.leave(0);
  for (size_t i : {0, 1, 2, 4}) give(s.small[i]);
});

/* What an optimizer needs for a short time beside what it keeps takes no room for long, although
   the last of it lay in another slab. */
static const Case case_session_slab_room("session_slab_room", [] {
  Slabs s;
  for (uint32_t i = 0; i < 8; i++) {
    std::vector<void *> others;
    s.add(i);
    check(!gmlake_torch_offload_lasting(1));
    for (int k = 0; k < 5; k++) others.push_back(take(Slabs::kBytes));
    check(!gmlake_torch_offload_lasting(0));
    for (void *other : others) give(other);
    s.read({i});
    check(session().tensor_count == 1 + i / 4 + 1);
    if (i == 5) s.leave(0);
  }
  s.leave(0);
  for (uint32_t i = 0; i < 8; i++) s.read({i}), s.verify(i, i), give(s.small[i]);
  check(session().tensor_count == 1);
});

/* Others get the memory of what was freed behind all that used it. */
static const Case case_session_streams("session_streams", [] {
  Training t(18 * MIB, 3);
  const Stream b = new_stream(), c = new_stream();
  void *const moved = t.weights[0];
  Tensor first = tensor_of(t.weights[1]), second = tensor_of(t.weights[2]);
  follow(b, t.own);
  t.turn_to(b);
  t.step(7, {moved}, {moved});
  t.use(moved, 0, 50);
  follow(c, t.own);
  t.turn_to(t.own);
  record_on(first, b), record_on(first, c), record_on(second, c);
  second = nullptr; /* follows what the stream has so far */
  hold(t.stream = c.stream());
  for (int i = 0; i < 30; i++) t.verify(first->get(), 1);
  t.turn_to(t.own);
  first = nullptr;
  t.weights.clear();
  t.make(4);
  t.each(0);
  follow(t.own, b);
  t.step(7, {moved}, {moved});
  t.verify(moved, 50);
});

/* After close all is there, and nothing is served; open goes on. */
static const Case case_session_closes("session_closes", [] {
  Training t(18 * MIB, 8);
  t.each(0);
  check(!gmlake_torch_offload_close() && t.memory().limit() == 0);
  give(take(WEIGHT));
  check(session().tensor_count == 8 && session().device_bytes == 8 * WEIGHT);
  for (uint32_t i = 0; i < 8; i++) t.use(t.weights[i], i + 1, i + 2);
  give(t.weights.back());
  t.weights.pop_back();
  check(!gmlake_torch_offload_close() && !open_session(18 * MIB));
  check(sessions().by_device[0]->open({}) &&
        sessions().open.load()->error() == "a session is open already");
  for (uint32_t i = 2; i < 5; i++) t.each(i);
  check(session().device_bytes <= 16 * MIB);
});

/* A graph's tensors are there when it is replayed; and what it has named may be freed. */
static const Case case_session_graphs("session_graphs", [] {
  Training t(34 * MIB, 8);
  uint64_t graph = 0;
  void *const written = t.weights[2], *const read = t.weights[3];
  t.turn_to(new_stream());
  check(!gmlake_torch_offload_begin_capture());
  t.step(1, {written}, {read});
  check(!sessions().open.load()->make_room(MIB) && mark()); /* nothing moves */
  check(!gmlake_torch_offload_end_capture(&graph) && graph);
  t.turn_to(t.own);
  check(!gmlake_torch_offload_close() && !open_session(14 * MIB));
  for (uint32_t i = 0; i < 3; i++) {
    t.each(i);
    check(!gmlake_torch_offload_replay(graph));
    t.use(written, 3 + i, 60);
    t.verify(read, 4 + i);
    for (size_t k = 4; k < 8; k++) t.step(7, {t.weights[k]}, {});
    check(!gmlake_torch_offload_replay(graph));
    t.use(written, 60, 3 + i);
  }
  give(read);
  check(!gmlake_torch_offload_replay(graph));
  t.verify(written, 5);
  check(!gmlake_torch_offload_replay(99)); /* captured before the session: nothing is its own */
});

/* What other streams used stays while a graph is captured: nobody may wait for them. */
static const Case case_session_captures("session_captures", [] {
  Training t(34 * MIB, 2);
  uint64_t graph = 0;
  const Stream c = new_stream();
  Tensor freed = tensor_of(t.weights[0]);
  follow(c, t.own);
  record_on(freed, c);
  hold(t.stream = c.stream());
  t.verify(freed->get(), 0);
  t.turn_to(t.own);
  check(!gmlake_torch_offload_begin_capture());
  const size_t held = session().device_bytes;
  freed = nullptr;
  check(session().device_bytes == held);
  check(!gmlake_torch_offload_end_capture(&graph) && session().device_bytes == held - WEIGHT);
  t.weights.clear();
  t.make(4);
  t.each(0);
});

/* Memory that others need is the session's no longer. */
static const Case case_session_makes_room("session_makes_room", [] {
  Training t(34 * MIB, 8);
  check(mark());
  (void)on_external();
  void *const others = take(8 * MIB); /* of the lake: the stream may end */
  check(others && session().device_bytes <= 26 * MIB);
  t.turn_to(t.own);
  for (uint32_t i = 0; i < 4; i++) {
    t.each(i);
    check(session().device_bytes <= 26 * MIB);
  }
});

/* Training of six layers whose activations are made again in the backward pass, unless the session
   says that they are kept. Returns how many are. `is_early`: memory is had before the operator that
   fills it is seen, as Tensor.to does. */
static int train_regions(Training &t, size_t others_bytes, bool is_early) {
  uint64_t regions[6];
  int kept[6], count = 0;
  void *made[6];
  const auto compute = [&](size_t i) {
    if (is_early) made[i] = take(WEIGHT);
    t.step(11, {t.weights[i]}, is_early ? std::vector<void *>{made[i]} : std::vector<void *>{});
    if (!is_early) made[i] = take(WEIGHT);
    t.fill(made[i], WEIGHT, 50 + static_cast<uint32_t>(i));
  };
  for (size_t i = 0; i < 6; i++) {
    check(!gmlake_torch_offload_region(&regions[i], &kept[i]) && regions[i]);
    compute(i);
    check(!gmlake_torch_offload_region_end());
    count += kept[i];
    if (!kept[i]) give(made[i]);
  }
  for (size_t i = 6; i-- != 0;) {
    if (!kept[i]) {
      std::vector<void *> others;
      check(!gmlake_torch_offload_recompute(regions[i]));
      compute(i);
      for (size_t k = 0; k < others_bytes; k += MIB)
        others.push_back(take(MIB - 512)); /* elsewhere */
      check(!gmlake_torch_offload_region_end());
      for (void *other : others) give(other);
    }
    t.step(12, {made[i]}, {});
    t.verify(made[i], 50 + static_cast<uint32_t>(i));
    give(made[i]);
  }
  cu(cuCtxSynchronize());
  check(mark());
  return count;
}
static int kept_regions(Training &t, size_t others_bytes, bool is_early = false) {
  int kept = 0;
  for (int i = 0; i < 40; i++) kept = train_regions(t, others_bytes, is_early);
  return kept;
}

static const size_t REGIONS_LIMIT = 12 * WEIGHT + 4 * MIB;

/* All are kept where there is room. */
static const Case case_regions("regions", [] {
  uint64_t region;
  int is_kept;
  Training t(REGIONS_LIMIT, 6);
  check(kept_regions(t, 0) == 6 && session().kept_region_count == 6);
  check(!gmlake_torch_offload_region(&region, &is_kept) && is_kept);
  check(!gmlake_torch_offload_close()); /* in a region */
  check(!gmlake_torch_offload_region(&region, &is_kept) && !region && !is_kept);
  check(!gmlake_torch_offload_recompute(1) && !gmlake_torch_offload_region_end());
  check(!open_session(REGIONS_LIMIT));
  check(!gmlake_torch_offload_region(&region, &is_kept) && region);
  check(!gmlake_torch_offload_region_end());
});

/* Also where a layer's memory is had before its first operator is seen: it is the region's. */
static const Case case_regions_allocate_first("regions_allocate_first", [] {
  Training t(REGIONS_LIMIT, 6);
  check(kept_regions(t, 0, true) == 6);
});

/* Fewer if each takes others' memory, too. */
static const Case case_regions_of_others("regions_of_others", [] {
  Training t(REGIONS_LIMIT, 6);
  const int kept = kept_regions(t, 2 * MIB);
  check(kept > 0 && kept < 6);
});

/* ---- What went wrong once ---- */

/* Gives memory of cudaMalloc, but the first so many times. */
static std::shared_ptr<torch_stub::Source> source_of(int failures) {
  auto source = std::make_shared<torch_stub::Source>();
  source->failures = failures;
  return source;
}

/* Pools with an allocator of their own are torch's own allocator's: what a side stream uses is not
   given out again, be it freed inside use_mem_pool or not; and a source that raises does no harm.
   */
static const Case case_sources("sources", [] {
  start();
  auto source = source_of(1);
  const Stream side = new_stream();
  on(new_stream());
  const cudaStream_t main = c10::cuda::getCurrentCUDAStream(0).stream();
  std::map<size_t, size_t> registered;
  torch_allocator().attachAllocatorTraceTracker([&](const TraceEntry &entry) {
    if (entry.mempool_ != kPool) return;
    if (entry.action_ == TraceEntry::SEGMENT_ALLOC) registered[entry.addr_] = entry.size_;
    if (entry.action_ == TraceEntry::SEGMENT_FREE) registered.erase(entry.addr_);
  });
#if TORCH_STUB_MINOR >= 12
  torch_allocator().attachOomRejectionObserver([](int64_t, size_t, size_t, size_t) {});
  check(torch_stub::own_allocator().rejection_count == 1); /* it alone may refuse so */
  torch_allocator().createOrIncrefPool(0, kPool, source, true);
  check(torch_stub::own_allocator().fourth_count == 1);
#else
  torch_allocator().createOrIncrefPool(0, kPool, source);
#endif
  begin_pool(kPool);
  check(raises("the source fails", [] { (void)take(MIB); }));
  give(take(MIB));
  end_pool(kPool);
  for (int inside = 0; inside < 2; inside++) {
    begin_pool(kPool);
    Tensor data = make_tensor(4 * MIB);
    void *const ptr = data->get();
    cu(cuMemsetD32Async(at(ptr), 0xAAAAAAAA, MIB, side.stream()));
    torch_allocator().enable(!inside); /* what is there has its streams recorded either way */
    record_on(data, side);
    torch_allocator().enable(true);
    if (!inside) end_pool(kPool);
    data = nullptr;
    if (!inside) begin_pool(kPool);
    void *const next = take(4 * MIB);
    cu(cuMemsetD32Async(at(next), 0x11111111, MIB, main));
    check(word_at(next) == 0x11111111);
    give(next);
    end_pool(kPool);
  }
  check(torch_stub::own_allocator().record_count == 2);
  check(source->count > 0 && registered.size() == source->count);
  check(snapshot_of(kPool).segments.size() == source->count);
  const int64_t held = reserved();
  void *const block = take(MIB); /* outside: the lake's */
  check(reserved() > held && use_count(kPool));
  give(block);
  while (use_count(kPool)) release_pool(kPool);
  torch_allocator().emptyCache(kPool);
  check(source->count == 0 && registered.empty());
  empty_cache();
  check(reserved() == 0);
});

/* Nothing that the lake calls leaves it locked: its hooks fail, and then it goes on. */
struct Fails : c10::FreeMemoryCallback {
  bool Execute() override { throw c10::Error("the callback fails"); }
};
static const Case case_hooks("hooks", [] {
  start();
  const Stream side = new_stream();
  on(new_stream());
  Tensor data = make_tensor(8 * MIB);
  record_on(data, side);
  fake_control.fail_function("cuStreamIsCapturing", 1, CUDA_ERROR_ILLEGAL_ADDRESS, 1);
  data = nullptr; /* a deleter: it may not raise */
  give(take(8 * MIB));
  fake_control.fail_function("cuStreamIsCapturing", 0, CUDA_SUCCESS, 0);
  c10::FreeCudaMemoryCallbacksRegistry()->makers["fails"] = [] {
    return std::unique_ptr<c10::FreeMemoryCallback>(new Fails);
  };
  void *const most = take(900 * MIB);
  check(is_refused(900 * MIB) && !c10::warnings().empty());
  give(most);
  give(take(900 * MIB));
  int asked = 0;
  on(kLegacy);
  void *const legacy = take(MIB);
  on(side);
  torch_allocator().beginAllocateToPool(0, kPool, [&](cudaStream_t) -> bool {
    if (asked++) throw c10::Error("the filter fails");
    return false;
  });
  give(legacy); /* does not ask */
  check(asked == 1);
  end_pool(kPool);
});

/* A capture that failed, whose pool nobody ends, keeps no other one from its stream. */
static const Case case_failed_capture("failed_capture", [] {
  start();
  const Stream side = new_stream();
  on(side);
  begin_graph({0, 1}); /* the driver's begin fails */
  give(take(MIB));
  begin_capture({0, 2}, side);
  give(take(MIB));
  stop_capture(side); /* it fails: nobody ends the pool */
  give(take(64 * MIB));
  begin_capture({0, 3}, side);
  void *const block = take(MIB);
  end_capture({0, 3}, side);
  end_pool({0, 2}); /* as torch 2.13 does */
  give(block);
});

/* A capture that the driver ends, and torch does not: as one of torch 2.12 that failed. Returns a
   block of it that lives on, if it is to keep one. */
static void *fail_capture(PoolId pool, bool keeps) {
  const Stream side = new_stream();
  begin_capture(pool, side);
  give(take(32 * MIB));
  void *const block = keeps ? take(16 * MIB) : nullptr;
  stop_capture(side);
  return block;
}

/* Failed captures give their memory back. */
static const Case case_failed_give_back("failed_give_back", [] {
  start();
  for (unsigned i = 0; i < 5; i++) (void)fail_capture({0, 10 + i}, false);
  check(reserved() >= int64_t(32 * MIB) && reserved_after_empty() == 0);
  check(use_count({0, 10}) == 0 && census().handles == 0);
  for (unsigned i = 0; i < 30; i++) (void)fail_capture({0, 20 + i}, false);
  give(take(900 * MIB)); /* of 1 GiB: out of memory is enough */
  void *const live = fail_capture({0, 50}, true);
  check(reserved_after_empty() >= int64_t(16 * MIB));
  give(live);
  check(reserved_after_empty() == 0);
  std::thread([] { (void)fail_capture({0, 51}, false); }).join();
  check(reserved_after_empty() == 0); /* the thread is gone */
});

/* Of two graphs that share a pool one fails, before the other one or after it. */
static const Case case_failed_shares("failed_shares", [] {
  const PoolId pool{0, 60};
  start();
  for (int fails_first = 0; fails_first < 2; fails_first++) {
    if (fails_first) (void)fail_capture(pool, false);
    (void)fail_capture(pool, false);
    end_pool(pool); /* it is a good one */
    if (!fails_first) (void)fail_capture(pool, false);
    check(reserved_after_empty() >= int64_t(32 * MIB)); /* the good one's */
    check(use_count(pool) == 1);
    release_pool(pool);
    check(reserved_after_empty() == 0 && use_count(pool) == 0);
  }
});

/* Others ask between the driver's end of a good capture and torch's: its graph keeps its memory. */
static const Case case_late_end("late_end", [] {
  const PoolId pool{0, 70};
  start();
  (void)fail_capture(pool, false);
  std::thread([] { empty_cache(); }).join();
  std::thread([] { check(is_refused(1000 * MIB)); }).join();
  check(reserved() >= int64_t(32 * MIB) && use_count(pool) == 1);
  end_pool(pool);
  check(reserved_after_empty() >= int64_t(32 * MIB));
  release_pool(pool);
  check(reserved_after_empty() == 0);
  /* Torch ends a failed one late: the use comes back while the pool is there, and only then. */
  void *const block = fail_capture(pool, true);
  empty_cache();
  check(use_count(pool) == 0);
  end_pool(pool);
  check(use_count(pool) == 1);
  give(block);
  check(reserved_after_empty() >= int64_t(32 * MIB));
  release_pool(pool);
  check(reserved_after_empty() == 0);
  (void)fail_capture(pool, false);
  empty_cache();
  check(raises("not currently recording", [&] { end_pool(pool); }));
});

/* Frees of blocks of external streams while another library captures: its capture is not broken,
   and nothing is lost. */
static const Case case_foreign_capture("foreign_capture", [] {
  CUstream theirs;
  CUgraph graph;
  std::vector<void *> all;
  start();
  cu(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  (void)on_external();
  for (int i = 0; i < 5; i++) all.push_back(take(60 * MIB));
  cu(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (void *ptr : all) give(ptr);
  cu(cuStreamEndCapture(theirs, &graph));
  cu(cuGraphDestroy(graph));
  fake_control.fail_function("cuCtxSynchronize", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 1);
  on(kLegacy);
  check(is_refused(900 * MIB)); /* what cannot be waited for stays parked */
  fake_control.fail_function("cuCtxSynchronize", 0, CUDA_SUCCESS, 0);
  give(take(900 * MIB));
  empty_cache();
  check(reserved() == 0);
});

/* A MemPool's end gives back its own memory and nobody else's, and no record of it stays, though a
   block lives on. */
static const Case case_pools_end("pools_end", [] {
  start();
  size_t before = 0;
  give(take(256 * MIB));
  for (unsigned i = 0; i < 300; i++) {
    const PoolId pool{0, 100 + i};
    torch_allocator().createOrIncrefPool(0, pool, nullptr);
    begin_pool(pool);
    void *const block = take(32 * MIB);
    end_pool(pool);
    release_pool(pool);
    if (i % 7) give(block);
    release_pool(pool);
    torch_allocator().emptyCache(pool);
    if (i % 7 == 0) give(block); /* the pool went first */
    if (i % 7 == 0) torch_allocator().emptyCache(pool);
    check(reserved() == int64_t(256 * MIB));
    if (i == 50) before = lake_stats().metadata_bytes;
  }
  check(lake_stats().metadata_bytes <= before + 4096);
});

/* The fraction of torch's configuration, and a session's limit beside the program's. */
static const Case case_limits("limits", [] {
  cca::CUDAAllocatorConfig::fraction() = .5;
  start();
  give(take(MIB));
  check(torch_allocator().getMemoryFraction(0) == .5 && is_refused(600 * MIB));
  const gmlake_torch::Memory &memory = the_allocator().device_of(0)->memory();
  check(!gmlake_torch_offload_open(0, 64 * MIB, 0, 0, 2 * MIB, 0));
  check(memory.limit() == 64 * MIB);
  torch_allocator().setMemoryFraction(.25, 0);
  check(memory.limit() == 64 * MIB);
  torch_allocator().setMemoryFraction(.03125, 0); /* the smaller one counts */
  check(memory.limit() == 32 * MIB && is_refused(40 * MIB));
  torch_allocator().setMemoryFraction(.25, 0);
  check(!gmlake_torch_offload_close() && memory.limit() == 256 * MIB);
  check(has(gmlake_torch_offload_open(0, 0, 0, 0, 4 * MIB, 0), "chunk_bytes is 4194304, and"));
  check(has(gmlake_torch_offload_open(0, 0, 0, MIB, 0, 0), "first session on this device had 0"));
  check(has(gmlake_torch_offload_open(0, 0, 0, 0, 2 * MIB, 1), "is_checked"));
  check(!gmlake_torch_offload_open(0, 0, 0, 0, 0, 0) && !gmlake_torch_offload_close());
  torch_allocator().setMemoryFraction(1.0, 0);
  give(take(800 * MIB));
});

/* Under a ledger what is free goes to a process that has less than its share, and what is short is
   asked of one that has more. */
static const Case case_ledger("ledger", [] {
  const std::string name = "/dev/shm/gmlake_torch." + std::to_string(getpid()), file = name + ".0";
  const auto reserved = [] { return the_allocator().device_of(0)->memory().reserved(); };
  ledger other;
  check(!setenv("GMLAKE_TORCH_LEDGER", name.c_str(), 1));
  check(!setenv("GMLAKE_TORCH_LEDGER_WEIGHT", "0", 1));
  start();
  check(raises("GMLAKE_TORCH_LEDGER_WEIGHT has to be a number up to 1000000", [] { take(MIB); }));
  check(!setenv("GMLAKE_TORCH_LEDGER_WEIGHT", "1", 1));
  void *const live = take(64 * MIB);
  give(take(256 * MIB));
  usleep(3000);
  give(take(MIB)); /* tells what it holds */
  check(reserved() >= int64_t(320 * MIB));
  gmlake_budget budget{};
  check(gmlake_get_budget(lake_of(0), &budget) == GMLAKE_OK);
  check(ledger_open(&other, file.c_str(), budget.total_bytes, 0, 100, gmlake_oom_handler{}) == 0);
  ledger_entry &entry = other.page->entries[other.slot];
  entry.wish_bytes = 900 * MIB;
  check(ledger_ask(&other, 180 * MIB) == 180 * MIB);
  usleep(3000);
  give(take(MIB)); /* gives back */
  check(reserved() <= int64_t(142 * MIB) && !other.page->entries[0].asked_bytes);
  entry.wish_bytes = 0;
  entry.held_bytes = 700 * MIB; /* too much: it is asked, and does not answer */
  check(is_refused(1100 * MIB) && entry.asked_bytes > 0);
  give(live);
  const auto share =
      std::make_unique<gmlake_share>(file, budget.total_bytes, 0, 1, gmlake_oom_handler{});
  const pid_t child = fork();
  if (!child) { /* its end is not the parent's */
    share->step(lake_of(0));
    share->~gmlake_share();
    _exit(0);
  }
  int status = 1;
  check(child > 0 && waitpid(child, &status, 0) == child && !status);
  check(other.page->entries[0].is_used && other.page->entries[2].is_used);
  ledger_close(&other);
  check(!unlink(file.c_str()));
});

/* What other processes were told of, or a pointer to it, stays. */
static const Case case_sharing_in_session("sharing_in_session", [] {
  start();
  give(take(MIB));
  check(!gmlake_torch_offload_open(0, 64 * MIB, 0, 0, 2 * MIB, 0));
  const auto named = [](size_t bytes) {
    void *const ptr = take(bytes);
    const uint64_t address = at(ptr);
    check(!gmlake_torch_offload_step(1, &address, 0, 1));
    return ptr;
  };
  void *const sent = named(16 * MIB), *const based = named(16 * MIB);
  const std::string handle = torch_allocator().shareIpcHandle(sent).handle;
  size_t bytes = 0;
  check(torch_allocator().getBaseAllocation(based, &bytes) == based && bytes == 16 * MIB);
  cu(cuMemsetD32Async(at(based), 77, 4 * MIB, nullptr));
  for (int i = 0; i < 6; i++) (void)named(16 * MIB);
  check(torch_allocator().shareIpcHandle(sent).handle == handle && word_at(based) == 77);
  check(!gmlake_torch_offload_lasting(1));
  void *const beside[] = {named(1000), named(1000)}; /* in one slab */
  cu(cuMemsetD32Async(at(beside[0]), 5, 250, nullptr));
  cu(cuMemsetD32Async(at(beside[1]), 6, 250, nullptr));
  cu(cuCtxSynchronize());
  const cca::ShareableHandle second = torch_allocator().shareIpcHandle(beside[1]);
  const std::shared_ptr<void> there = torch_allocator().getIpcDevPtr(second.handle);
  check(word_at(static_cast<char *>(there.get()) + second.offset) == 6);
});

/* A static object frees when all others are gone. */
struct Late {
  void *ptr = nullptr;
  ~Late() {
    if (!ptr) return;
    give(ptr);
    empty_cache();
  }
};
static Late late;
static const Case case_exit("exit", [] {
  start();
  record(true, cca::RecordContext::ALL);
  torch_allocator().setUserMetadata("a text that is longer than what a string has room for itself");
  c10::DataPtr *const data = new c10::DataPtr(torch_allocator().allocate(8 * MIB));
  torch_allocator().recordStream(*data, new_stream());
  late.ptr = data->get();
});

/* ---- What lake.hpp counts and finds blocks with ---- */

namespace gmlake_torch {

static const Case case_table("table", [] {
  std::vector<Block> blocks(5000);
  Table table;
  unsigned seed = 7;
  std::set<size_t> in;
  for (size_t i = 0; i < blocks.size(); i++)
    blocks[i].ptr = reinterpret_cast<void *>((i * 7919 % 5003 + 1) * kGrain);
  for (int step = 0; step < 60000; step++) {
    seed = seed * 1664525u + 1013904223u;
    const size_t i = (seed >> 8) % blocks.size();
    check((table.find(blocks[i].ptr) == &blocks[i]) == (in.count(i) != 0));
    if (in.erase(i))
      table.remove(table.slot(blocks[i].ptr));
    else
      in.insert(i), table.add(&blocks[i]);
  }
  for (size_t i = 0; i < blocks.size(); i++)
    check((table.find(blocks[i].ptr) != nullptr) == (in.count(i) != 0));
});

static std::vector<Counter *> lists(Figures &f) {
  return {f.allocation, f.allocated_bytes, f.active, f.active_bytes, f.requested_bytes};
}

static void check_same(Figures &seen, Figures &expected) {
  for (size_t i = 0; i < lists(seen).size(); i++)
    for (int kind = 0; kind < KINDS; kind++) {
      const Counter &a = lists(seen)[i][kind], &b = lists(expected)[i][kind];
      check(a.current == b.current && a.allocated == b.allocated && a.freed == b.freed);
      check(i == 4 ? a.peak >= b.peak : a.peak == b.peak); /* what is late counts in whole */
    }
}

/* The ledger against counters that are kept as torch keeps them, one by one. What is late is told
   to it, as the lake does, and counts as large. */
static const Case case_figures("figures", [] {
  struct Entry {
    size_t bytes, requested;
  };
  std::vector<Entry> live;
  std::vector<size_t> late;
  Figures expected, seen;
  Ledger ledger;
  Ledger::Late now;
  unsigned seed = 11;
  const auto each = [&](const Entry &e, Kind kind_then, bool is_all, bool is_active,
                        void (Counter::*change)(size_t)) {
    for (int kind : {ALL, kind_then}) {
      if (is_all) (expected.allocation[kind].*change)(1);
      if (is_all) (expected.allocated_bytes[kind].*change)(e.bytes);
      if (is_active) (expected.active[kind].*change)(1);
      if (is_active) (expected.active_bytes[kind].*change)(e.bytes);
      if (is_active) (expected.requested_bytes[kind].*change)(e.requested);
    }
  };
  for (int step = 0; step < 20000; step++) {
    seed = seed * 1664525u + 1013904223u;
    const unsigned act = (seed >> 8) % 100, pick = (seed >> 16);
    if (act < 45 || live.empty()) {
      const size_t requested = size_t(pick % 4000 + 1) * 997;
      live.push_back({(requested + kGrain - 1) / kGrain * kGrain, requested});
      ledger.up(kind_of(live.back().bytes), live.back().bytes, requested);
      ledger.note(now);
      each(live.back(), kind_of(live.back().bytes), true, true, &Counter::up);
    } else if (act < 90) {
      std::swap(live[pick % live.size()], live.back());
      const Entry e = live.back();
      const bool is_late = act < 55 && kind_of(e.bytes) == LARGE;
      live.pop_back();
      ledger.down(kind_of(e.bytes), e.bytes, e.requested);
      each(e, kind_of(e.bytes), true, !is_late, &Counter::down);
      if (!is_late) continue;
      late.push_back(e.bytes);
      now.count++, now.bytes += static_cast<int64_t>(e.bytes);
      for (int kind : {ALL, LARGE}) { /* late ones count as asked for in whole */
        Counter &requested = expected.requested_bytes[kind];
        requested.current += static_cast<int64_t>(e.bytes - e.requested);
        requested.freed -= static_cast<int64_t>(e.bytes - e.requested);
      }
    } else if (act < 98 && !late.empty()) {
      const size_t bytes = late.back();
      late.pop_back();
      now.count--, now.bytes -= static_cast<int64_t>(bytes);
      each({bytes, bytes}, LARGE, false, true, &Counter::down);
    } else if (act >= 98 && pick % 20 == 0) {
      act == 98 ? ledger.reset_peaks(now) : ledger.reset_accumulated(now);
      for (Counter *counters : lists(expected))
        for (int kind = 0; kind < KINDS; kind++)
          act == 98 ? counters[kind].reset_peak() : counters[kind].reset_accumulated();
    }
    ledger.read(seen, now);
    check_same(seen, expected);
    check(ledger.live_bytes() == expected.allocated_bytes[ALL].current);
  }
});

} // namespace gmlake_torch

/* Runs the case in this process. */
static int run(const char *name) {
  for (const Case &one : Case::all()) {
    if (std::strcmp(name, one.name)) continue;
    one.run();
    if (lake_of(0)) check(gmlake_check(lake_of(0)) == GMLAKE_OK);
    return 0;
  }
  std::fprintf(stderr, "no such case: %s\n", name);
  return 2;
}

/* Runs the case in a process of its own. Returns whether it failed. */
static bool has_failed(char *program, const char *name) {
  int status = -1;
  const pid_t child = fork();
  if (child == 0) (void)execl("/proc/self/exe", program, name, nullptr);
  if (waitpid(child, &status, 0) == child && status == 0) return false;
  std::fprintf(stderr, "%s: status %d\n", name, status);
  return true;
}

int main(int argc, char **argv) {
  int failures = 0;
  if (argc == 2) return run(argv[1]);
  for (int i = 1; i < argc; i++) failures += has_failed(argv[0], argv[i]);
  if (argc == 1)
    for (const Case &one : Case::all()) failures += has_failed(argv[0], one.name);
  return failures != 0;
}
