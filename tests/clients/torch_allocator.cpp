/* examples/torch/gmlake_torch.cpp through torch's interface, over a driver without a device: see
   torch_stub/torch_stub.hpp. Compiled with the newest form of that interface, and with
   the oldest. usage: client_torch_allocator CASE, with the fake driver on the library path */
#include "../../examples/torch/gmlake_torch.cpp"

#include "part.h"
#include "patience.h"
#include "torch_stub/own_allocator.hpp"

extern "C" { /* its members have the names of functions, which C++ otherwise refuses */
#include "bench/gpu.h"
}

#include <csignal>
#include <dirent.h>
#include <sys/wait.h>
#include <thread>

static const size_t MIB = size_t(1) << 20;
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

static void case_enable() {
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
  check(has(error_of<c10::Error>([&] { give(&other); }), "invalid device pointer"));
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
  check(lake_of(0) && stats().allocation[0].current == 1);
  give(early); /* to whom it is */
  give(late);
  check(stats().allocation[0].current == 0);
  check(has(error_of<c10::Error>([&] { give(late); }), "invalid device pointer: torch's own"));
  check(has(error_of<c10::Error>([] { (void)stats(5); }), "did you call init"));
}

static void case_memory() {
  size_t bytes = 0;
  start();
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  {
    const c10::DataPtr none = torch_allocator().allocate(0);
    const c10::DataPtr some = torch_allocator().allocate(1000);
    check(!none.get() && some.get() && some.device().index() == 0);
    check(torch_allocator().getBaseAllocation(some.get(), &bytes) == some.get() && bytes == 1024);
    check(stats().allocated_bytes[0].current == 1024);
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
  check(has(error_of<c10::Error>([&] { give(&bytes); }), "invalid device pointer"));
  check(has(
      error_of<c10::OutOfMemoryError>([] { (void)torch_allocator().allocate(size_t(1) << 61); }),
      "more than 1EB"));
  give(nullptr);
  size_t largest = 0;
  torch_allocator().cacheInfo(0, &largest);
  check(largest > 100 * MIB);
  empty_cache();
  check(stats().reserved_bytes[0].current == 0 && census().handles == 0);
  check(stats().num_device_free > 0 && stats().segment[0].current == 0);
}

static gmlake_stream stream_of(const void *ptr) {
  gmlake_allocation_info info{};
  check(gmlake_get_allocation(lake_of(0), ptr, &info) == GMLAKE_OK);
  return info.stream;
}

/* Blocks are of the stream that is current, or that is named; external streams may be gone. */
static void case_streams() {
  start();
  const c10::cuda::CUDAStream legacy(0, 0), side = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(side);
  void *const a = take(MIB);
  check(stream_of(a) == side.stream());
  cu(cuMemsetD32Async(at(a), 1, MIB / 4, side.stream()));
  give(a);
  void *const again = take(MIB);
  check(again == a); /* its own stream has it at once */
  c10::cuda::setCurrentCUDAStream(legacy);
  void *const b = take(MIB);
  check(b != a && !stream_of(b));
  give(again);
  void *const c = torch_allocator().raw_alloc_with_stream(MIB, side.stream());
  check(c && stream_of(c) == side.stream());
  give(b);
  give(c);
  for (int i = 0; i < 20; i++) {
    CUstream raw;
    cu(cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING));
    c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(raw, 0));
    void *const d = take(MIB);
    cu(cuMemsetD32Async(at(d), static_cast<unsigned>(i), MIB / 4, raw));
    check(word_at(d) == static_cast<uint32_t>(i));
    c10::cuda::setCurrentCUDAStream(legacy);
    cu(cuStreamDestroy(raw));
    give(d);
  }
  empty_cache();
  check(stats().reserved_bytes[0].current == 0);
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
}

/* What has memory that it can do without. */
static void *spare = nullptr;
struct GiveSpare : c10::FreeMemoryCallback {
  bool Execute() override {
    const bool did = spare != nullptr;
    give(std::exchange(spare, nullptr));
    return did;
  }
};

/* The fake device has 1 GiB. */
static void case_out_of_memory() {
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
  check(has(error_of<c10::Error>([] { torch_allocator().setMemoryFraction(1.5, 0); }),
            "invalid fraction"));
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
  check(is_refused(size_t(2) << 30));
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
}

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

static void case_history() {
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
  size_t total = 0, live = 0;
  for (const cca::SegmentInfo &segment : shown.segments)
    for (const cca::BlockInfo &block : segment.blocks) {
      total += block.size;
      live += block.allocated ? block.size : 0;
      check(!block.allocated || block.context_when_allocated);
    }
  check(total == static_cast<size_t>(stats().reserved_bytes[0].current) && live == 5 * MIB);
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
}

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
  /* It is a snapshot's; what lies in it is whole. */
  size_t check_segment(const cca::SegmentInfo &segment) const {
    const auto known = segments.find(segment.address);
    size_t inside = 0, live = 0;
    for (const cca::BlockInfo &block : segment.blocks) { /* those over several are cut */
      inside += block.size;
      live += block.allocated ? block.size : 0;
      check(!block.allocated || (block.requested_size && block.requested_size <= block.size));
    }
    check(inside == segment.total_size && segment.registration_counter > 0);
    check(known != segments.end() && known->second.first == segment.total_size);
    check(known->second.second == segment.owner_private_pool_id);
    return live;
  }
  /* All of a snapshot's are, in this order. */
  void check_all() const {
    const std::vector<cca::SegmentInfo> shown = torch_allocator().snapshot().segments;
    std::map<size_t, int> counters;
    size_t bytes = 0, live = 0;
    for (const cca::SegmentInfo &segment : shown) {
      live += check_segment(segment);
      bytes += segment.total_size;
      counters[segment.address] = segment.registration_counter;
    }
    for (size_t i = 1; i < order.size(); i++) check(counters[order[i - 1]] < counters[order[i]]);
    check(live == static_cast<size_t>(stats().allocated_bytes[0].current));
    check(bytes == static_cast<size_t>(stats().reserved_bytes[0].current));
    check(shown.size() == segments.size());
  }
};

/* It sees each segment once, and its end before the memory is gone. */
static void case_trackers() {
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
  torch_allocator().endAllocateToPool(0, kPool);
  registry.check_all();
  check(snapshot_of(kPool).segments.size() >= 4);
  void *const more = take(200 * MIB);
  give(stitched);
  empty_cache();
  registry.check_all();
  give(of_pool);
  torch_allocator().releasePool(0, kPool);
  give(more);
  for (size_t i = 1; i < 20; i += 2) give(blocks[i]);
  empty_cache();
  check(registry.segments.empty() && c10::warnings().empty());
  registry.does_throw = true; /* in the middle of calls of the lake and of torch's */
  give(take(50 * MIB));
  check(stats().allocated_bytes[0].current == 0);
  empty_cache();
  check(!c10::warnings().empty() && has(c10::warnings()[0], "no more registrations"));
  check(gmlake_check(lake_of(0)) == GMLAKE_OK && stats().reserved_bytes[0].current == 0);
}

/* Graphs: a capture into a pool, checkpoints, and the pool's end. */
static void case_pools() {
  CUgraph graph;
  start();
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(side);
  torch_allocator().beginAllocateToPool(0, kPool, [&](cudaStream_t stream) {
    CUstreamCaptureStatus status;
    cu(cuStreamIsCapturing(stream, &status));
    return status != CU_STREAM_CAPTURE_STATUS_NONE;
  });
  check(has(error_of<c10::Error>([] { begin_pool(kPool); }), "already recording"));
  cu(cuStreamBeginCapture(side.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  void *const a = take(MIB), *const b = take(MIB);
  cu(cuMemsetD32Async(at(a), 3, MIB / 4, side.stream()));
  give(b);
  check(take(MIB) == b);
  cu(cuStreamEndCapture(side.stream(), &graph));
  torch_allocator().endAllocateToPool(0, kPool);
  check(has(error_of<c10::Error>([] { torch_allocator().endAllocateToPool(0, kPool); }),
            "not currently recording"));
  check(torch_allocator().getPoolUseCount(0, kPool) == 1);
  check(torch_allocator().checkPoolLiveAllocations(0, kPool, {a, b}));
  check(!torch_allocator().checkPoolLiveAllocations(0, kPool, {a}));
  const auto state = torch_allocator().getCheckpointState(0, kPool);
  give(b);
  cca::CheckpointDelta delta = torch_allocator().setCheckpointPoolState(0, state);
  check(delta.ptrs_freed == std::vector<void *>{a} && delta.dataptrs_allocd.size() == 2);
  delta.dataptrs_allocd.clear(); /* which frees both */
  check(torch_allocator().checkPoolLiveAllocations(0, kPool, {}));
  check(has(error_of<c10::Error>([] {
              (void)torch_allocator().getCheckpointState(0, {0, 9});
            }),
            "Could not find pool"));
  const int64_t held = stats().reserved_bytes[0].current;
  empty_cache();
  check(stats().reserved_bytes[0].current == held); /* the graph may run */
  cu(cuGraphDestroy(graph));
  torch_allocator().releasePool(0, kPool);
  check(has(error_of<c10::Error>([] { torch_allocator().releasePool(0, kPool); }), "no such pool"));
  check(stats().reserved_bytes[0].current == held); /* a checkpoint is left */
}

/* Ten thousand blocks that are sent and dropped leave nothing behind, in neither process: here one
   process is both. */
static void case_sharing() {
  start();
  std::vector<void *> blocks = {take(1000), take(3 * MIB), take(70 * MIB)};
  for (size_t i = 0; i < blocks.size(); i++)
    cu(cuMemsetD32Async(at(blocks[i]), static_cast<unsigned>(i + 5), 250, nullptr));
  cu(cuCtxSynchronize());
  fake_cuda_census before{};
  size_t descriptors = 0;
  const int64_t held = stats().reserved_bytes[0].current;
  const size_t segments = torch_allocator().snapshot().segments.size();
  for (int i = 0; i < 10000; i++) {
    if (i == 30) before = census(), descriptors = descriptor_count();
    const size_t which = static_cast<size_t>(i) % blocks.size();
    const cca::ShareableHandle handle = torch_allocator().shareIpcHandle(blocks[which]);
    const std::shared_ptr<void> base = torch_allocator().getIpcDevPtr(handle.handle);
    check(base && base.get() != blocks[which]);
    if (i % 500 == 0) {
      check(stats().reserved_bytes[0].current == held); /* another process's memory is no segment */
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
  gmlake_stats lake{};
  check(gmlake_get_stats(lake_of(0), &lake) == GMLAKE_OK);
  for (void *block : blocks) give(block);
  empty_cache();
  check(census().handles == 0); /* each chunk had one descriptor, and one to be sent */
  check(descriptors - descriptor_count() == 2 * lake.chunk_count);
  const auto refuses = [](const char *text) {
    return error_of<std::exception>([&] { (void)torch_allocator().getIpcDevPtr(text); });
  };
  check(has(refuses("gmlake1"), "cannot be read") &&
        has(refuses("gmlake1 1 2 3"), "cannot be read"));
  check(has(refuses("e"), "torch's own allocator does not know e"));
  const std::string gone = "gmlake1 " + std::to_string(getpid()) + " 1000 1 2097152";
  check(has(refuses(gone.c_str()), "cannot be had"));
  check(has(error_of<c10::Error>([&] { (void)torch_allocator().shareIpcHandle(&blocks); }),
            "invalid device pointer"));
  check(census().reservations == before.reservations);
}

static bool can_reach(const void *ptr, int device) {
  unsigned long long flags = 0;
  CUmemLocation location{};
  location.type = CU_MEM_LOCATION_TYPE_DEVICE;
  location.id = device;
  cu(cuMemGetAccess(&flags, &location, at(ptr)));
  return flags == CU_MEM_ACCESS_FLAGS_PROT_READWRITE;
}

/* What there was before peer access is reached, and what comes later; what is gone is not. */
static void case_peers() {
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
}

static void case_profiler() {
  c10::impl::Tracer tracer;
  const c10::impl::PyInterpreter interpreter{&tracer};
  start();
  c10::profiler().is_on = true;
  c10::impl::GPUTrace::state() = &interpreter;
  void *const a = take(1000);
  check(c10::profiler().ptr == a && c10::profiler().bytes == 1024 && c10::profiler().live == 1024);
  check(c10::profiler().held == static_cast<size_t>(stats().reserved_bytes[0].current));
  give(a);
  check(c10::profiler().bytes == -1024 && c10::profiler().live == 0);
  const std::vector<uintptr_t> both{reinterpret_cast<uintptr_t>(a)};
  check(tracer.allocations == both && tracer.deallocations == both);
}

/* A worker of a DataLoader: it has copies of tensors and no device. */
static void case_fork() {
  int status = -1;
  start();
  void *const a = take(MIB);
  const pid_t child = fork();
  if (child == 0) {
    give(a);
    _exit(0);
  }
  check(waitpid(child, &status, 0) == child && WIFEXITED(status) && !WEXITSTATUS(status));
  give(a);
  check(stats().allocation[0].current == 0);
}

static void case_threads() {
  start();
  std::vector<std::thread> threads;
  for (int k = 0; k < 4; k++)
    threads.emplace_back([k] {
      c10::cuda::SetDevice(0);
      std::vector<void *> mine;
      if (k & 1) c10::cuda::setCurrentCUDAStream(c10::cuda::CUDAStream(0, 2 * k + 1));
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
  check(stats().allocation[0].current == 0 && stats().allocation[0].allocated == 8000);
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
}

static const char *open_session(size_t limit_bytes) {
  return gmlake_torch_offload_open(0, limit_bytes, 0, 0, 2 * MIB, 0);
}
static const char *name_tensor(const void *ptr, size_t reads, size_t writes) {
  const uint64_t both[2] = {at(ptr, 100), at(ptr, 100)};
  return gmlake_torch_offload_step(1, both, reads, writes);
}

/* Twelve tensors of 8 MiB in a session with 64. */
static void case_offload() {
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
    check(!name_tensor(tensors[i], 0, 1));
    cu(cuMemsetD32Async(at(tensors[i]), i, 2 * MIB, nullptr));
  }
  for (int turn = 0; turn < 3; turn++) {
    for (unsigned i = 0; i < 12; i++) {
      check(!name_tensor(tensors[i], 1, 0) && word_at(tensors[i]) == i);
      give(take(300000));
    }
    check(!gmlake_torch_offload_mark());
  }
  check(stats().allocated_bytes[0].current == 13 * 8 * static_cast<int64_t>(MIB));
  check(stats().reserved_bytes[0].peak <= 64 * static_cast<int64_t>(MIB));
  check(gmlake_torch_offload_stats_json(0, text, sizeof text) > 0 && has(text, "\"drop_count\""));
  check(gmlake_torch_offload_stats_json(1, nullptr, 0) == -1);
  check(!gmlake_torch_offload_keep(at(tensors[0])) && !gmlake_torch_offload_keep(at(before)));
  check(has(gmlake_torch_offload_begin_capture(), "OUT_OF_DEVICE_MEMORY"));
  check(!gmlake_torch_offload_end_capture(&graph) && !gmlake_torch_offload_replay(graph));
  const std::string refused = error_of<c10::OutOfMemoryError>([] { give(take(64 * MIB)); });
  check(has(refused.c_str(), "offloads says: ") && has(refused.c_str(), "; raise limit_bytes."));
  check(has(refused.c_str(), "this step needs ") && word_at(tensors[0]) == 0);
  {
    const c10::DataPtr data = torch_allocator().allocate(8 * MIB);
    const std::string why = error_of<c10::Error>([&] {
      for (int i = 0; i < 64; i++)
        torch_allocator().recordStream(data, c10::cuda::getStreamFromPool(0));
    });
    check(has(why.c_str(), "more than 62 streams")); /* the session would not wait for it */
  }
  check(!gmlake_torch_offload_close() && !name_tensor(tensors[1], 1, 0));
  for (unsigned i = 0; i < 12; i++) check(word_at(tensors[i]) == i);
  check(is_refused(600 * MIB)); /* half of the device is the limit again */
  for (void *ptr : tensors) give(ptr);
  give(before);
  check(stats().allocated_bytes[0].current == 0 && gmlake_check(lake_of(0)) == GMLAKE_OK);
}

/* ---- Training in a session: words that are wrong, and memory above the limit, fail ---- */

static const size_t WEIGHT = 8 * MIB, LITTLE = 300000, LAYERS = 12, VARYING_LIMIT = 64 * MIB;
static const size_t OTHERS = 2560 * 1024;
static const uint32_t ITERATIONS = 12;

struct Training {
  gpu_driver gpu;
  gpu_kernels kernels;
  CUstream stream = nullptr;
  CUdeviceptr wrong = 0;
  void *made = nullptr; /* what the last operator has made */
  std::vector<void *> weights;

  Training(size_t limit_bytes, size_t chunk_bytes, bool is_checked);
  gmlake_offload_session_stats session() const { return sessions().by_device[0]->stats(); }
  gmlake_torch::Memory &memory() const { return the_allocator().device_of(0)->memory(); }

  void step(uint64_t key, std::vector<void *> reads, const std::vector<void *> &writes);
  void fill(const void *ptr, size_t bytes, uint32_t seed) {
    cu(gpu_fill(&gpu, &kernels, stream, at(ptr), bytes / 4, seed));
  }
  void verify(const void *ptr, uint32_t seed) {
    cu(gpu_verify(&gpu, &kernels, stream, at(ptr), WEIGHT / 4, seed, wrong));
  }
  uint64_t wrong_count() const {
    uint64_t count = 0;
    cu(cuCtxSynchronize());
    cu(cuMemcpyDtoH(&count, wrong, sizeof count));
    return count;
  }

  /* Forward and backward; small memory beside it is the lake's own. */
  void iterate(uint32_t iteration);

  /* Work on some weights while others have so much memory, and then on six. */
  void vary(uint32_t first, size_t others_bytes);
};
Training::Training(size_t limit_bytes, size_t chunk_bytes, bool is_checked) {
  const uint64_t zero = 0;
  (void)setenv("GMLAKE_TORCH_CHUNK_BYTES", std::to_string(chunk_bytes).c_str(), 1);
  start();
  check(gpu_open(&gpu, "libcuda.so.1") && !gpu_load_kernels(&gpu, &kernels));
  cu(cuMemAlloc(&wrong, sizeof zero));
  cu(cuMemcpyHtoD(wrong, &zero, sizeof zero));
  const c10::cuda::CUDAStream own = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(own);
  stream = own.stream();
  give(take(LITTLE)); /* makes the lake */
  empty_cache();
  check(!gmlake_torch_offload_open(0, limit_bytes, 0, 0, chunk_bytes, is_checked));
  for (uint32_t i = 0; i < LAYERS; i++) {
    step(1, {}, {});
    weights.push_back(made = take(WEIGHT));
    fill(made, WEIGHT, i);
  }
}
void Training::step(uint64_t key, std::vector<void *> reads, const std::vector<void *> &writes) {
  const uint64_t last = at(made);
  const size_t read_count = reads.size();
  std::vector<uint64_t> all;
  if (made) check(!gmlake_torch_offload_made(&last, 1));
  made = nullptr;
  reads.insert(reads.end(), writes.begin(), writes.end());
  for (const void *ptr : reads) all.push_back(at(ptr));
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
    verify(weights[i], i + iteration);
    verify(activations[i], 1000 + i);
    fill(weights[i], WEIGHT, i + iteration + 1);
    give(activations[i]);
    give(smalls[i]);
  }
  check(!gmlake_torch_offload_mark());
}
void Training::vary(uint32_t first, size_t others_bytes) {
  const size_t at_once = (VARYING_LIMIT - others_bytes - 8 * MIB) / WEIGHT;
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
  check(!gmlake_torch_offload_mark() && memory().reserved() <= VARYING_LIMIT);
}

static void train(size_t limit, size_t chunk, bool is_checked) {
  Training t(limit * MIB, chunk * MIB, is_checked);
  for (uint32_t i = 0; i < ITERATIONS; i++) {
    t.iterate(i);
    check(t.memory().reserved() <= limit * MIB);
  }
  check(t.wrong_count() == 0);
  const gmlake_offload_session_stats stats = t.session();
  check(stats.tensor_count == LAYERS && stats.plan_count > 0);
  check(stats.out_count > ITERATIONS && stats.in_count > ITERATIONS);
  check(is_checked || stats.sync_count == 0); /* the host has waited for nothing */
  check(!gmlake_torch_offload_close());
  for (uint32_t i = 0; i < LAYERS; i++) t.verify(t.weights[i], i + ITERATIONS);
  check(t.wrong_count() == 0 && t.memory().limit() == 0);
  for (void *weight : t.weights) give(weight);
}
static void case_train() { train(64, 2, false); }
static void case_train_wide() { train(96, 4, false); }
static void case_train_tight() { train(48, 2, false); }
static void case_train_checked() { train(64, 2, true); }

/* Others need more and less, at random and for some time; then always the same. */
static void case_train_varying() {
  Training t(VARYING_LIMIT, 2 * MIB, false);
  const uint32_t part = test_part();
  uint32_t seed = 1;
  for (uint32_t i = 0; i < 400 / part; i++) {
    const size_t least = i * part / 50 % 2 ? 0 : 20 * MIB;
    seed = seed * 1664525u + 1013904223u;
    t.vary(seed >> 8, least + (seed >> 12) % (25 * MIB));
  }
  for (uint32_t i = 0; i < 200 / part; i++) t.vary(0, 10 * MIB);
  const uint64_t plan_count = t.session().plan_count;
  const int64_t created = stats().num_device_alloc;
  for (uint32_t i = 0; i < 100 / part; i++) t.vary(0, 10 * MIB);
  check(stats().num_device_alloc == created); /* nothing goes to and fro */
  check(t.session().plan_count == plan_count && t.wrong_count() == 0);
}

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
static void case_sources() {
  start();
  auto source = source_of(1);
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(0));
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
#endif
  torch_allocator().createOrIncrefPool(0, kPool, source);
  begin_pool(kPool);
  check(has(error_of<c10::Error>([] { (void)take(MIB); }), "the source fails"));
  give(take(MIB));
  torch_allocator().endAllocateToPool(0, kPool);
  for (int inside = 0; inside < 2; inside++) {
    begin_pool(kPool);
    auto data = std::make_unique<c10::DataPtr>(torch_allocator().allocate(4 * MIB));
    void *const ptr = data->get();
    cu(cuMemsetD32Async(at(ptr), 0xAAAAAAAA, MIB, side.stream()));
    torch_allocator().enable(!inside); /* what is there has its streams recorded either way */
    torch_allocator().recordStream(*data, side);
    torch_allocator().enable(true);
    if (!inside) torch_allocator().endAllocateToPool(0, kPool);
    data = nullptr;
    if (!inside) begin_pool(kPool);
    void *const next = take(4 * MIB);
    cu(cuMemsetD32Async(at(next), 0x11111111, MIB, main));
    check(word_at(next) == 0x11111111);
    give(next);
    torch_allocator().endAllocateToPool(0, kPool);
  }
  check(torch_stub::own_allocator().record_count == 2);
  check(source->count > 0 && registered.size() == source->count);
  check(snapshot_of(kPool).segments.size() == source->count);
  const int64_t held = stats().reserved_bytes[0].current;
  void *const block = take(MIB); /* outside: the lake's */
  check(stats().reserved_bytes[0].current > held && torch_allocator().getPoolUseCount(0, kPool));
  give(block);
  while (torch_allocator().getPoolUseCount(0, kPool)) torch_allocator().releasePool(0, kPool);
  torch_allocator().emptyCache(kPool);
  check(source->count == 0 && registered.empty());
  empty_cache();
  check(stats().reserved_bytes[0].current == 0);
}

/* Nothing that the lake calls leaves it locked: its hooks fail, and then it goes on. */
struct Fails : c10::FreeMemoryCallback {
  bool Execute() override { throw c10::Error("the callback fails"); }
};
static void case_hooks() {
  start();
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromPool(0));
  auto data = std::make_unique<c10::DataPtr>(torch_allocator().allocate(8 * MIB));
  torch_allocator().recordStream(*data, side);
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
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
  int asked = 0;
  c10::cuda::setCurrentCUDAStream(c10::cuda::CUDAStream(0, 0));
  void *const legacy = take(MIB);
  c10::cuda::setCurrentCUDAStream(side);
  torch_allocator().beginAllocateToPool(0, kPool, [&](cudaStream_t) -> bool {
    if (asked++) throw c10::Error("the filter fails");
    return false;
  });
  give(legacy); /* does not ask */
  check(asked == 1);
  torch_allocator().endAllocateToPool(0, kPool);
}

static void begin_graph(PoolId pool) {
  torch_allocator().beginAllocateToPool(0, pool, [](cudaStream_t stream) {
    CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
    cu(cuStreamIsCapturing(stream, &status));
    return status == CU_STREAM_CAPTURE_STATUS_ACTIVE;
  });
}

/* A capture that failed, whose pool nobody ends, keeps no other one from its stream. */
static void case_failed_capture() {
  CUgraph graph;
  start();
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  c10::cuda::setCurrentCUDAStream(side);
  begin_graph({0, 1}); /* the driver's begin fails */
  give(take(MIB));
  begin_graph({0, 2});
  cu(cuStreamBeginCapture(side.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  give(take(MIB));
  cu(cuStreamEndCapture(side.stream(), &graph)); /* it fails: nobody ends the pool */
  cu(cuGraphDestroy(graph));
  give(take(64 * MIB));
  begin_graph({0, 3});
  cu(cuStreamBeginCapture(side.stream(), CU_STREAM_CAPTURE_MODE_GLOBAL));
  void *const block = take(MIB);
  cu(cuStreamEndCapture(side.stream(), &graph));
  torch_allocator().endAllocateToPool(0, {0, 3});
  torch_allocator().endAllocateToPool(0, {0, 2}); /* as torch 2.13 does */
  give(block);
  cu(cuGraphDestroy(graph));
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
}

/* A capture that the driver ends, and torch does not: as one of torch 2.12 that failed. Returns a
   block of it that lives on, if it is to keep one. */
static void *fail_capture(PoolId pool, bool keeps) {
  const c10::cuda::CUDAStream side = c10::cuda::getStreamFromPool(0);
  CUgraph graph;
  c10::cuda::setCurrentCUDAStream(side);
  begin_graph(pool);
  cu(cuStreamBeginCapture(side.stream(), CU_STREAM_CAPTURE_MODE_RELAXED));
  give(take(32 * MIB));
  void *const block = keeps ? take(16 * MIB) : nullptr;
  cu(cuStreamEndCapture(side.stream(), &graph));
  cu(cuGraphDestroy(graph));
  return block;
}
static int64_t reserved() { return stats().reserved_bytes[0].current; }
static int64_t reserved_after_empty() {
  empty_cache();
  return reserved();
}

/* Failed captures give their memory back. */
static void case_failed_give_back() {
  start();
  for (unsigned i = 0; i < 5; i++) (void)fail_capture({0, 10 + i}, false);
  check(reserved() >= int64_t(32 * MIB) && reserved_after_empty() == 0);
  check(torch_allocator().getPoolUseCount(0, {0, 10}) == 0 && census().handles == 0);
  for (unsigned i = 0; i < 30; i++) (void)fail_capture({0, 20 + i}, false);
  give(take(900 * MIB)); /* of 1 GiB: out of memory is enough */
  void *const live = fail_capture({0, 50}, true);
  check(reserved_after_empty() >= int64_t(16 * MIB));
  give(live);
  check(reserved_after_empty() == 0);
  std::thread([] { (void)fail_capture({0, 51}, false); }).join();
  check(reserved_after_empty() == 0); /* the thread is gone */
  check(gmlake_check(lake_of(0)) == GMLAKE_OK);
}

/* Of two graphs that share a pool one fails, before the other one or after it. */
static void case_failed_shares() {
  const PoolId pool{0, 60};
  start();
  for (int fails_first = 0; fails_first < 2; fails_first++) {
    if (fails_first) (void)fail_capture(pool, false);
    (void)fail_capture(pool, false);
    torch_allocator().endAllocateToPool(0, pool); /* it is a good one */
    if (!fails_first) (void)fail_capture(pool, false);
    check(reserved_after_empty() >= int64_t(32 * MIB)); /* the good one's */
    check(torch_allocator().getPoolUseCount(0, pool) == 1);
    torch_allocator().releasePool(0, pool);
    check(reserved_after_empty() == 0 && torch_allocator().getPoolUseCount(0, pool) == 0);
  }
}

/* Others ask between the driver's end of a good capture and torch's: its graph keeps its memory. */
static void case_late_end() {
  const PoolId pool{0, 70};
  start();
  (void)fail_capture(pool, false);
  std::thread([] { empty_cache(); }).join();
  std::thread([] { check(is_refused(1000 * MIB)); }).join();
  check(reserved() >= int64_t(32 * MIB) && torch_allocator().getPoolUseCount(0, pool) == 1);
  torch_allocator().endAllocateToPool(0, pool);
  check(reserved_after_empty() >= int64_t(32 * MIB));
  torch_allocator().releasePool(0, pool);
  check(reserved_after_empty() == 0);
  /* Torch ends a failed one late: the use comes back while the pool is there, and only then. */
  void *const block = fail_capture(pool, true);
  empty_cache();
  check(torch_allocator().getPoolUseCount(0, pool) == 0);
  torch_allocator().endAllocateToPool(0, pool);
  check(torch_allocator().getPoolUseCount(0, pool) == 1);
  give(block);
  check(reserved_after_empty() >= int64_t(32 * MIB));
  torch_allocator().releasePool(0, pool);
  check(reserved_after_empty() == 0);
  (void)fail_capture(pool, false);
  empty_cache();
  check(has(error_of<c10::Error>([&] { torch_allocator().endAllocateToPool(0, pool); }),
            "not currently recording"));
}

/* Frees of blocks of external streams while another library captures: its capture is not broken,
   and nothing is lost. */
static void case_foreign_capture() {
  CUstream raw, theirs;
  CUgraph graph;
  std::vector<void *> all;
  start();
  cu(cuStreamCreate(&raw, CU_STREAM_NON_BLOCKING));
  cu(cuStreamCreate(&theirs, CU_STREAM_NON_BLOCKING));
  c10::cuda::setCurrentCUDAStream(c10::cuda::getStreamFromExternal(raw, 0));
  for (int i = 0; i < 5; i++) all.push_back(take(60 * MIB));
  cu(cuStreamBeginCapture(theirs, CU_STREAM_CAPTURE_MODE_GLOBAL));
  for (void *ptr : all) give(ptr);
  cu(cuStreamEndCapture(theirs, &graph));
  cu(cuGraphDestroy(graph));
  fake_control.fail_function("cuCtxSynchronize", 1, CUDA_ERROR_STREAM_CAPTURE_UNSUPPORTED, 1);
  c10::cuda::setCurrentCUDAStream(c10::cuda::CUDAStream(0, 0));
  check(is_refused(900 * MIB)); /* what cannot be waited for stays parked */
  fake_control.fail_function("cuCtxSynchronize", 0, CUDA_SUCCESS, 0);
  give(take(900 * MIB));
  empty_cache();
  check(stats().reserved_bytes[0].current == 0);
}

/* A MemPool's end gives back its own memory and nobody else's, and no record of it stays, though a
   block lives on. */
static void case_pools_end() {
  start();
  const auto metadata = [] {
    gmlake_stats now{};
    check(gmlake_get_stats(lake_of(0), &now) == GMLAKE_OK);
    return now.metadata_bytes;
  };
  size_t before = 0;
  give(take(256 * MIB));
  for (unsigned i = 0; i < 300; i++) {
    const PoolId pool{0, 100 + i};
    torch_allocator().createOrIncrefPool(0, pool, nullptr);
    begin_pool(pool);
    void *const block = take(32 * MIB);
    torch_allocator().endAllocateToPool(0, pool);
    torch_allocator().releasePool(0, pool);
    if (i % 7) give(block);
    torch_allocator().releasePool(0, pool);
    torch_allocator().emptyCache(pool);
    if (i % 7 == 0) give(block); /* the pool went first */
    if (i % 7 == 0) torch_allocator().emptyCache(pool);
    check(stats().reserved_bytes[0].current == int64_t(256 * MIB));
    if (i == 50) before = metadata();
  }
  check(metadata() <= before + 4096);
}

/* The fraction of torch's configuration, and a session's limit beside the program's. */
static void case_limits() {
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
  torch_allocator().setMemoryFraction(1.0, 0);
  give(take(800 * MIB));
}

/* What other processes were told of, or a pointer to it, stays. */
static void case_sharing_in_session() {
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
}

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
static void case_exit() {
  start();
  record(true, cca::RecordContext::ALL);
  torch_allocator().setUserMetadata("a text that is longer than what a string has room for itself");
  c10::DataPtr *const data = new c10::DataPtr(torch_allocator().allocate(8 * MIB));
  torch_allocator().recordStream(*data, c10::cuda::getStreamFromPool(0));
  late.ptr = data->get();
}

static const struct {
  const char *name;
  void (*run)();
} cases[] = {{"enable", case_enable},
             {"memory", case_memory},
             {"streams", case_streams},
             {"out_of_memory", case_out_of_memory},
             {"history", case_history},
             {"trackers", case_trackers},
             {"pools", case_pools},
             {"sharing", case_sharing},
             {"peers", case_peers},
             {"profiler", case_profiler},
             {"fork", case_fork},
             {"threads", case_threads},
             {"offload", case_offload},
             {"train", case_train},
             {"train_wide", case_train_wide},
             {"train_tight", case_train_tight},
             {"train_checked", case_train_checked},
             {"train_varying", case_train_varying},
             {"sources", case_sources},
             {"hooks", case_hooks},
             {"failed_capture", case_failed_capture},
             {"failed_give_back", case_failed_give_back},
             {"failed_shares", case_failed_shares},
             {"late_end", case_late_end},
             {"foreign_capture", case_foreign_capture},
             {"pools_end", case_pools_end},
             {"limits", case_limits},
             {"sharing_in_session", case_sharing_in_session},
             {"exit", case_exit}};

int main(int argc, char **argv) {
  for (const auto &one : cases)
    if (argc == 2 && !std::strcmp(argv[1], one.name)) {
      if (one.run == case_threads) /* before the threads: the list of streams has no lock */
        for (int i = 0; i < 4; i++) {
          cu(cuInit(0));
          (void)c10::cuda::getStreamFromPool(0);
        }
      one.run();
      return 0;
    }
  std::fprintf(stderr, "usage: %s CASE\n", argv[0]);
  return 2;
}
