/* A stand-in for torch's own allocator, as far as gmlake_torch.cpp needs it: for pools, each
   segment of which is one block, and what other streams were recorded on waits for events; and for
   what is not to be cached. And the allocator of such a pool. */
#pragma once

#include "torch_stub.hpp"

#include <memory>

namespace torch_stub {

namespace cca = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using c10::MempoolId_t;

inline void delete_own(void *ptr);
/* Serves pools, and all when it is disabled. One thread at a time, one device. */
class OwnAllocator : public cca::CUDAAllocator {
 public:
  /* ---- What does nothing, or next to nothing ---- */

  void copy_data(void *, const void *, size_t) const override {}
  void init(int count) override { count_ = count; }
  bool initialized() override { return count_ != 0; }
  void setMemoryFraction(double, DeviceIndex) override {}
  double getMemoryFraction(DeviceIndex) override { return 1; }
  bool isEnabled() const override { return true; }
  void cacheInfo(DeviceIndex, size_t *) override {}
  void *getBaseAllocation(void *ptr, size_t *) override { return ptr; }
  void resetAccumulatedStats(DeviceIndex) override {}
  void resetPeakStats(DeviceIndex) override {}
  bool checkPoolLiveAllocations(DeviceIndex, MempoolId_t,
                                const std::unordered_set<void *> &) override {
    return false;
  }
  cca::ShareableHandle shareIpcHandle(void *) override { return {}; }
  bool isHistoryEnabled() override { return false; }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &) override {}
  void attachOutOfMemoryObserver(cca::OutOfMemoryObserver) override {}
#if TORCH_STUB_MINOR >= 12
  std::shared_ptr<c10::GatheredContext> getContextForPointer(const void *) override { return {}; }
  void attachOomRejectionObserver(cca::OomRejectionObserver) override { rejection_count++; }
  int rejection_count = 0; /* observers that were attached */
  int fourth_count = 0;    /* pools with a fourth argument that is not 0 */
#endif
  void enablePeerAccess(DeviceIndex, DeviceIndex) override {}
  cudaError_t memcpyAsync(void *, int, const void *, int, size_t, cudaStream_t, bool) override {
    return cudaSuccess;
  }
  std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex, MempoolId_t) override {
    return {};
  }
  cca::CheckpointDelta setCheckpointPoolState(DeviceIndex,
                                              std::shared_ptr<cca::AllocatorState>) override {
    return {};
  }
  std::string name() override { return "native"; }
  void pushCompileContext(std::string &) override {}
  void popCompileContext() override {}
  std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { return {}; }
  void recordHistory(bool, cca::CreateContextFn, size_t, cca::RecordContext, bool,
                     const std::vector<std::string> &) override {}
  void setUserMetadata(const std::string &) override {}
  std::string getUserMetadata() override { return ""; }
  void setUseOnOOM(DeviceIndex, MempoolId_t, bool) override {}
  void setNoSplit(DeviceIndex, MempoolId_t) override {}

  /* ---- What the lakes leave to it ---- */

  c10::DataPtr allocate(size_t bytes) override {
    void *const ptr = bytes ? raw_alloc(bytes) : nullptr;
    return {ptr, ptr, raw_deleter(), c10::Device(c10::DeviceType::CUDA, 0)};
  }
  void *raw_alloc(size_t bytes) override {
    return raw_alloc_with_stream(bytes, c10::cuda::getCurrentCUDAStream(0).stream());
  }
  void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    if (!is_enabled_) {
      void *ptr = nullptr;
      (void)cudaMalloc(&ptr, bytes);
      uncached_.insert(ptr);
      return ptr;
    }
    for (const auto &route : routes_) {
      if (!route.second(stream)) continue;
      for (auto &entry : blocks_) {
        Block &block = entry.second;
        if (block.pool == route.first && block.stream == stream && block.bytes == bytes &&
            block.is_free && is_done(block)) {
          block.is_free = false;
          return entry.first;
        }
      }
      void *const ptr = pools_[route.first].source->raw_alloc(bytes);
      blocks_[ptr] = Block{bytes, stream, route.first};
      tell(cca::TraceEntry::SEGMENT_ALLOC, ptr);
      return ptr;
    }
    throw c10::Error("torch's own allocator is asked for what is in no pool");
  }
  c10::DeleterFnPtr raw_deleter() const override;
  void enable(bool value) override { is_enabled_ = value; }
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    throw c10::Error("torch's own allocator does not know " + handle);
  }
  void raw_delete(void *ptr) override {
    if (uncached_.erase(ptr)) return (void)cudaFree(ptr);
    const auto it = blocks_.find(ptr);
    if (it == blocks_.end()) throw c10::Error("invalid device pointer: torch's own");
    it->second.is_free = true;
    for (const cudaStream_t stream : it->second.used) {
      CUevent event = nullptr;
      (void)cuEventCreate(&event, CU_EVENT_DISABLE_TIMING);
      (void)cuEventRecord(event, stream);
      it->second.events.push_back(event);
    }
    it->second.used.clear();
  }
  using cca::CUDAAllocator::recordStream;
  void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override {
    if (ptr.get_deleter() != &delete_own) return;
    blocks_.at(ptr.get()).used.push_back(stream.stream());
    record_count++;
  }
  int record_count = 0; /* streams that blocks were recorded on */
  cca::DeviceStats getDeviceStats(DeviceIndex) override {
    cca::DeviceStats stats;
    for (const auto &entry : blocks_)
      stats.reserved_bytes[0].current += static_cast<int64_t>(entry.second.bytes);
    return stats;
  }
  void beginAllocateToPool(DeviceIndex, MempoolId_t pool,
                           std::function<bool(cudaStream_t)> filter) override {
    routes_[pool] = std::move(filter);
    pools_[pool].count++;
  }
  void endAllocateToPool(DeviceIndex, MempoolId_t pool) override { routes_.erase(pool); }
#if TORCH_STUB_MINOR >= 12
  void createOrIncrefPool(DeviceIndex, MempoolId_t pool, std::shared_ptr<cca::CUDAAllocator> source,
                          bool fourth) override {
    fourth_count += fourth;
#else
  void createOrIncrefPool(DeviceIndex, MempoolId_t pool,
                          std::shared_ptr<cca::CUDAAllocator> source) override {
#endif
    if (source) pools_[pool].source = std::move(source);
    pools_[pool].count++;
  }
  void releasePool(DeviceIndex, MempoolId_t pool) override { pools_[pool].count--; }
  int getPoolUseCount(DeviceIndex, MempoolId_t pool) override { return pools_[pool].count; }
  void emptyCache(MempoolId_t pool) override {
    for (auto it = blocks_.begin(); it != blocks_.end();) {
      if (!it->second.is_free || (pool != MempoolId_t{0, 0} && pool != it->second.pool)) {
        ++it;
        continue;
      }
      tell(cca::TraceEntry::SEGMENT_FREE, it->first);
      (void)cudaDeviceSynchronize();
      (void)is_done(it->second);
      pools_[it->second.pool].source->raw_delete(it->first);
      it = blocks_.erase(it);
    }
  }
  void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) override {
    trackers_.push_back(std::move(tracker));
  }
  cca::SnapshotInfo snapshot(MempoolId_t pool, bool) override {
    cca::SnapshotInfo out;
    for (const auto &entry : blocks_) {
      if (pool != MempoolId_t{0, 0} && pool != entry.second.pool) continue;
      out.segments.emplace_back();
      out.segments.back().address = reinterpret_cast<size_t>(entry.first);
      out.segments.back().total_size = entry.second.bytes;
      out.segments.back().owner_private_pool_id = entry.second.pool;
    }
    return out;
  }

 private:
  struct Block {
    size_t bytes = 0;
    cudaStream_t stream = nullptr;
    MempoolId_t pool{0, 0};
    bool is_free = false;
    std::vector<cudaStream_t> used;
    std::vector<CUevent> events;
    Block() = default;
    Block(size_t size, cudaStream_t own, MempoolId_t id) : bytes(size), stream(own), pool(id) {}
  };
  struct Pool {
    std::shared_ptr<cca::CUDAAllocator> source;
    int count = 0;
  };

  /* Whether no recorded stream uses it any more. */
  static bool is_done(Block &block) {
    while (!block.events.empty() && cuEventQuery(block.events.back()) == CUDA_SUCCESS) {
      (void)cuEventDestroy(block.events.back());
      block.events.pop_back();
    }
    return block.events.empty();
  }
  void tell(cca::TraceEntry::Action action, void *ptr) {
    const Block &block = blocks_[ptr];
    cca::TraceEntry entry(action, 0, reinterpret_cast<size_t>(ptr), block.bytes, block.stream,
                          block.pool, 0);
    for (const auto &tracker : trackers_) tracker(entry);
  }

  int count_ = 0;
  bool is_enabled_ = true;
  std::unordered_set<void *> uncached_;
  std::map<void *, Block> blocks_;
  std::map<MempoolId_t, Pool> pools_;
  std::map<MempoolId_t, std::function<bool(cudaStream_t)>> routes_;
  std::vector<cca::AllocatorTraceTracker> trackers_;
};

/* The allocator of a pool. It raises the first so many times. */
class Source final : public OwnAllocator {
 public:
  int failures = 0;
  size_t count = 0; /* of what is out */
  void *raw_alloc(size_t bytes) override {
    void *ptr = nullptr;
    if (failures-- > 0) throw c10::Error("the source fails");
    if (cudaMalloc(&ptr, bytes) == cudaSuccess) count++;
    return ptr;
  }
  void raw_delete(void *ptr) override {
    if (cudaFree(ptr) == cudaSuccess) count--;
  }
};

inline OwnAllocator &own_allocator() {
  static OwnAllocator *const own = new OwnAllocator;
  return *own;
}
inline void delete_own(void *ptr) { own_allocator().raw_delete(ptr); }
inline void delete_uncached(void *ptr) { own_allocator().raw_delete(ptr); }
inline c10::DeleterFnPtr OwnAllocator::raw_deleter() const {
  return is_enabled_ ? &delete_own : &delete_uncached;
}

} // namespace torch_stub
