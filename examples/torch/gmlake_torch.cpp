/* torch's allocator of device memory on lakes: a subclass of torch's own interface, with graphs,
   memory pools, statistics, history and errors. `python3 -m pip install --no-build-isolation
   ./examples/torch` builds it against the headers of that Python's torch; gmlake_torch/__init__.py
   loads it.

   A device's lake is created when the device is first used, and lives as long as the process,
   because torch frees tensors until the very end. adapter.h lists the environment variables that
   configure it. lake.hpp has everything that needs no torch.

   How torch's words map to the lake's: a memory pool (MempoolId_t) is a gmlake_pool; requests on a
   stream for which the filter of beginAllocateToPool says yes go to that pool; a graph's capture is
   a gmlake capture of each stream that takes part. A segment is a chunk; only in snapshots are
   chunks side by side one, unless a tracker follows them. No block is split off from
   a segment that cannot be given back, so inactive_split counts nothing, as with torch's expandable
   segments; max_split_size and oversize stay what they are by default. */
#include <c10/core/impl/GPUTrace.h>
#include <c10/cuda/CUDACachingAllocator.h>
#include <c10/cuda/CUDAException.h>
#include <c10/cuda/CUDAFunctions.h>
#include <c10/cuda/CUDAGuard.h>
#include <torch/version.h>

#include <cuda_runtime_api.h>

#define GMLAKE_IMPLEMENTATION
#define GMLAKE_STATIC
#define GMLAKE_OFFLOAD_IMPLEMENTATION
#define GMLAKE_OFFLOAD_STATIC
#define GMLAKE_OFFLOAD_BACKEND_CUDA
#define GMLAKE_OFFLOAD_LAKE
#include "adapter.h"
#include "gmlake_offload.h"
#include "lake.hpp"
#include "offload.hpp"
#include "sharing.hpp"

#include <array>
#include <chrono>
#include <cstdio>
#include <deque>
#include <set>
#include <string>
#include <type_traits>

#if TORCH_VERSION_MAJOR != 2 || TORCH_VERSION_MINOR < 11
#error "gmlake_torch needs torch 2.11 or later: the interface of older allocators differs"
#endif
#if !defined(GMLAKE_TORCH_COMMIT)
#define GMLAKE_TORCH_COMMIT "unknown" /* torch.version.git_version: see setup.py */
#endif

namespace {

namespace cca = c10::cuda::CUDACachingAllocator;
using c10::DeviceIndex;
using cca::TraceEntry;
using gmlake_torch::Block;
using gmlake_torch::Counter;
using gmlake_torch::Failure;
using gmlake_torch::Figures;
using PoolId = std::decay_t<decltype(cca::SegmentInfo().owner_private_pool_id)>;
using GatheredContext = std::decay_t<decltype(*cca::BlockInfo().context_when_allocated)>;
using ContextPtr = std::shared_ptr<GatheredContext>;
void delete_block(void *ptr);

/* ---- Texts ---------------------------------------------------------------------------------- */

[[noreturn]] void throw_error(const std::string &text) { TORCH_CHECK(false, text); }
[[noreturn]] void raise_invalid(const void *ptr) {
  char text[64];
  std::snprintf(text, sizeof text, "invalid device pointer: %p", ptr);
  throw_error(text);
}

/* Where nothing may be raised. */
void warn(const std::string &text) noexcept {
  try {
    TORCH_WARN("gmlake: ", text);
  } catch (...) {
  }
}

std::string size_text(size_t bytes) {
  char text[64];
  const double value = static_cast<double>(bytes);
  if (bytes <= 1024)
    std::snprintf(text, sizeof text, "%zu bytes", bytes);
  else if (bytes <= 1048576)
    std::snprintf(text, sizeof text, "%.2f KiB", value / 1024);
  else if (bytes <= 1073741824)
    std::snprintf(text, sizeof text, "%.2f MiB", value / 1048576);
  else
    std::snprintf(text, sizeof text, "%.2f GiB", value / 1073741824);
  return text;
}

/* What the lake knows of why memory ran out. */
std::string causes_text(const gmlake_error_info &info) {
  std::string text = " The lake holds " + size_text(info.reserved_bytes) + ": " +
                     size_text(info.live_here_bytes) + " live here, " + size_text(info.free_bytes) +
                     " free (" + size_text(info.largest_bytes) + " in one piece, " +
                     size_text(info.stitchable_bytes) + " that can be stitched), " +
                     size_text(info.pending_bytes) + " that other streams or graphs use, " +
                     size_text(info.elsewhere_bytes) + " in other pools.";
  if (info.limit_bytes) text += " Its limit is " + size_text(info.limit_bytes) + ".";
  if (info.sleeping_bytes) text += " " + size_text(info.sleeping_bytes) + " sleep.";
  return text;
}

std::string failure_text(const char *call, int device, const Failure &failure) {
  std::string text = std::string("gmlake: device ") + std::to_string(device) + ": " + call + ": " +
                     gmlake_result_name(failure.result) + ": " +
                     (failure.reason.empty() ? failure.info.text : failure.reason);
  if (failure.info.call) text += std::string(" (") + failure.info.call;
  if (failure.info.call && failure.info.driver_code)
    text += ", driver's code " + std::to_string(failure.info.driver_code);
  return failure.info.call ? text + ")" : text;
}

/* ---- History -------------------------------------------------------------------------------- */

int64_t now_us() {
  return std::chrono::duration_cast<std::chrono::microseconds>(
             std::chrono::system_clock::now().time_since_epoch())
      .count();
}

/* The last entries, up to a number. */
template <class Entry>
class Ring {
 public:
  void set_capacity(size_t count) {
    capacity_ = std::max<size_t>(count, 1);
    entries_.clear();
  }
  void add(const Entry &entry) {
    if (entries_.size() == capacity_) entries_.pop_front();
    entries_.push_back(entry);
  }
  std::vector<Entry> get() const { return {entries_.begin(), entries_.end()}; }

 private:
  std::deque<Entry> entries_;
  size_t capacity_ = 1;
};

/* What torch records of one device's memory. */
class History {
 public:
  explicit History(DeviceIndex device) : device_(device) {}

  void start(bool is_enabled, cca::CreateContextFn recorder, size_t entry_count,
             cca::RecordContext when, bool does_clear, const std::vector<std::string> &skipped) {
    TORCH_CHECK(when == cca::RecordContext::NEVER || recorder);
    std::lock_guard<std::mutex> lock(mutex_);
    skipped_ = {skipped.begin(), skipped.end()};
    recorder_.store(is_enabled ? recorder : nullptr);
    when_.store(is_enabled ? when : cca::RecordContext::NEVER);
    if (!is_enabled || does_clear || entry_count != entry_count_) ring_.set_capacity(entry_count);
    entry_count_ = entry_count;
    is_enabled_.store(is_enabled);
    update();
  }
  bool is_enabled() const { return is_enabled_.load(); }

  /* pre: no lock is held: the recorder may want the interpreter's. */
  ContextPtr gather(cca::RecordContext level) const {
    if (C10_LIKELY(when_.load(std::memory_order_relaxed) < level)) return nullptr;
    const cca::CreateContextFn recorder = recorder_.load();
    return recorder ? recorder() : nullptr;
  }

  bool is_wanted() const { return is_wanted_.load(std::memory_order_relaxed); }

  /* Whether somebody, NCCL for example, follows which segments there are: snapshots then have to
     show what is told. */
  bool is_tracked() {
    std::lock_guard<std::mutex> lock(mutex_);
    return !trackers_.empty();
  }

  void add(TraceEntry::Action action, size_t address, size_t bytes, cudaStream_t stream,
           PoolId pool, ContextPtr context) {
    if (C10_LIKELY(!is_wanted())) return;
    std::lock_guard<std::mutex> lock(mutex_);
    const bool keeps = when_.load() >= cca::RecordContext::ALLOC;
    TraceEntry entry(action, device_, address, bytes, stream, pool, {}, keeps ? context : nullptr,
                     notes().compile.empty() ? "N/A" : notes().compile.back(), notes().metadata);
    entry.time_.t_ = now_us();
    for (const auto &tracker : trackers_) try { /* NCCL's throws; nobody here can undo */
        tracker(entry);
      } catch (const std::exception &error) {
        warn(std::string("who tracks memory failed: ") + error.what());
      }
    if (is_enabled_ && !skipped_.count(name_of(action))) ring_.add(entry);
  }

  std::vector<TraceEntry> entries() {
    std::lock_guard<std::mutex> lock(mutex_);
    return ring_.get();
  }
  void add_tracker(cca::AllocatorTraceTracker tracker) {
    std::lock_guard<std::mutex> lock(mutex_);
    trackers_.push_back(std::move(tracker));
    update();
  }
  /* What the thread says of itself. */
  struct Notes {
    std::vector<std::string> compile;
    std::string metadata;
  };
  static Notes &notes() { /* also of a thread that has ended: torch frees until the very end */
    static auto &none = *new Notes;
    static thread_local bool has_ended = false;
    struct Own : Notes {
      ~Own() { has_ended = true; }
    };
    if (has_ended) return none;
    static thread_local Own own;
    return own;
  }

 private:
  /* By the order of the enumeration. */
  static const char *name_of(TraceEntry::Action action) {
    static const char *const names[] = {"alloc",         "free_requested", "free_completed",
                                        "segment_alloc", "segment_free",   "segment_map",
                                        "segment_unmap", "snapshot",       "oom"};
    return names[action];
  }
  void update() { is_wanted_.store(is_enabled_ || !trackers_.empty()); }

  const DeviceIndex device_;
  std::atomic<bool> is_wanted_{false}, is_enabled_{false};
  std::atomic<cca::CreateContextFn> recorder_{nullptr};
  std::atomic<cca::RecordContext> when_{cca::RecordContext::NEVER};
  std::mutex mutex_; /* protects what follows; taken inside calls of the lake */
  size_t entry_count_ = 0;
  std::set<std::string> skipped_;
  Ring<TraceEntry> ring_;
  std::vector<cca::AllocatorTraceTracker> trackers_;
};

/* ---- Statistics ------------------------------------------------------------------------------ */

template <class Stats>
void put_stats(Stats &out, const Counter *counters) {
  for (size_t kind = 0; kind < gmlake_torch::KINDS; kind++) {
    out[kind].current += counters[kind].current;
    out[kind].peak += counters[kind].peak;
    out[kind].allocated += counters[kind].allocated;
    out[kind].freed += counters[kind].freed;
  }
}

/* ---- The allocator -------------------------------------------------------------------------- */

/* The fraction of PYTORCH_CUDA_ALLOC_CONF, where torch has it. */
template <class Config>
auto configured_fraction(int) -> decltype(Config::per_process_memory_fraction()) {
  return Config::per_process_memory_fraction();
}
template <class Config>
double configured_fraction(...) {
  return 1;
}

/* One device. The lake is made when it is first needed. */
struct Place {
  explicit Place(DeviceIndex index) : index(index), history(index) {}

  const DeviceIndex index;
  History history;
  std::atomic<gmlake_torch::Device *> device{nullptr};
  std::atomic<double> fraction{configured_fraction<cca::CUDAAllocatorConfig>(0)};
  std::mutex mutex; /* making the device */
};

/* torch's interface, and torch's own allocator, whose place the lakes take. */
template <class Interface, class = void>
class Former : public Interface {
 protected:
  Interface *former_ = nullptr;
};
/* createOrIncrefPool has one argument more from torch 2.12 on: what it says goes to torch's own
   allocator, where the pool is that one's. */
template <class Base, class Function = decltype(&Base::createOrIncrefPool)>
class Pools;
template <class Base, class Class, class Source, class... More>
class Pools<Base, void (Class::*)(DeviceIndex, PoolId, Source, More...)> : public Base {
 public:
  void createOrIncrefPool(DeviceIndex index, PoolId pool, Source source, More... more) override {
    if (create_pool(index, pool, source != nullptr))
      this->former_->createOrIncrefPool(index, pool, std::move(source), more...);
  }

 protected:
  /* Creates the pool, or counts its owners up. Whether torch's own allocator has to, too. */
  virtual bool create_pool(DeviceIndex index, PoolId pool, bool has_source) = 0;
};
template <class Function>
struct ArgumentOf;
template <class Class, class Argument>
struct ArgumentOf<void (Class::*)(Argument)> {
  using type = Argument;
};
/* From torch 2.12 on an observer is told of requests that torch refuses before it asks the driver.
   The lake refuses none so, but torch's own allocator may, in pools with own allocators. */
template <class Interface>
class Former<Interface, std::void_t<decltype(&Interface::attachOomRejectionObserver)>>
    : public Former<Interface, int> {
 public:
  using Observer = typename ArgumentOf<decltype(&Interface::attachOomRejectionObserver)>::type;
  void attachOomRejectionObserver(Observer observer) override {
    this->former_->attachOomRejectionObserver(std::move(observer));
  }
};

/* A pool that has an allocator of its own (MemPool(allocator)) is that of torch's own allocator,
   `former_`, with all that it allocates: torch knows when such memory may be used again. */
class LakeAllocator final : public Pools<Former<cca::CUDAAllocator>> {
 public:
  /* ---- Allocating ---- */

  c10::DataPtr allocate(size_t bytes) override {
    TORCH_CHECK_WITH(OutOfMemoryError, bytes < (size_t(1) << 60),
                     "CUDA out of memory. Tried to allocate more than 1EB memory.");
    const DeviceIndex device = current_device();
    if (is_elsewhere(device)) return former_->allocate(bytes);
    void *const ptr =
        bytes ? take(device, bytes, c10::cuda::getCurrentCUDAStream(device)) : nullptr;
    return {ptr, ptr, &delete_block, c10::Device(c10::DeviceType::CUDA, device)};
  }
  c10::DeleterFnPtr raw_deleter() const override {
    return is_enabled_ ? &delete_block : former_->raw_deleter();
  }
  void copy_data(void *to, const void *from, size_t bytes) const override {
    C10_CUDA_CHECK(cudaMemcpy(to, from, bytes, cudaMemcpyDeviceToDevice));
  }
  void *raw_alloc(size_t bytes) override {
    const DeviceIndex device = current_device();
    if (!bytes) return nullptr;
    if (is_elsewhere(device)) return former_->raw_alloc(bytes);
    return take(device, bytes, c10::cuda::getCurrentCUDAStream(device));
  }
  void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) override {
    if (!bytes) return nullptr;
    const DeviceIndex device = current_device();
    const c10::cuda::CUDAStream current = c10::cuda::getCurrentCUDAStream(device);
    if (is_elsewhere(device, stream)) return former_->raw_alloc_with_stream(bytes, stream);
    if (handle_of(current) == stream) return take(device, bytes, current);
    return take(device, bytes, stream, stream != nullptr);
  }
  void raw_delete(void *ptr) override {
    if (!ptr || gmlake_torch::is_child()) return;
    const size_t count = place_count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; i++)
      if (give(*places_[i], ptr)) return;
    if (!uses_former_) raise_invalid(ptr);
    former_->raw_delete(ptr);
  }
  void recordStream(const c10::DataPtr &ptr, c10::cuda::CUDAStream stream) override {
    if (ptr.get_deleter() != &delete_block) { /* which of them is its own torch's allocator knows */
      if (uses_former_) former_->recordStream(ptr, stream);
      return;
    }
    if (!ptr.get()) return;
    Place *place = nullptr;
    Block *const block = find(ptr.get(), &place);
    if (!block) raise_invalid(ptr.get());
    guarded("gmlake_record_stream", place->index, [&] {
      place->device.load()->record_stream(block, handle_of(stream), is_foreign(stream));
    });
  }
  void *getBaseAllocation(void *ptr, size_t *out_bytes) override {
    Block *const block = find_for_others(ptr, nullptr);
    if (!block) return former_->getBaseAllocation(ptr, out_bytes);
    if (out_bytes) *out_bytes = block->bytes;
    return block->ptr;
  }

  /* ---- Life ---- */

  void init(int device_count) override {
    for (int i = static_cast<int>(places_.size()); i < device_count; i++)
      places_.push_back(std::make_unique<Place>(static_cast<DeviceIndex>(i)));
    former_->init(device_count);
    place_count_.store(places_.size(), std::memory_order_release);
  }
  /* pre: nothing is on a GPU yet. */
  void set_former(cca::CUDAAllocator *former) { former_ = former; }
  bool initialized() override { return place_count_.load() != 0; }
  std::string name() override { return "gmlake"; }
  /* Not enabled: torch's own allocator serves all, without a cache. */
  void enable(bool value) override {
    if (!value) uses_former_ = true;
    former_->enable(value);
    is_enabled_ = value;
  }
  bool isEnabled() const override { return is_enabled_; }

  double getMemoryFraction(DeviceIndex device) override { return place(device).fraction.load(); }
  void setMemoryFraction(double fraction, DeviceIndex device) override {
    if (!(0 <= fraction && fraction <= 1))
      throw_error("invalid fraction:" + std::to_string(fraction) + ". Please set within [0, 1].");
    place(device).fraction.store(fraction);
    if (gmlake_torch::Device *const lake = place(device).device.load()) limit(place(device), *lake);
  }
  void emptyCache(PoolId pool = {0, 0}) override {
    if (uses_former_) former_->emptyCache(pool);
    for (const auto &entry : places_)
      if (gmlake_torch::Device *const device = entry->device.load()) {
        const ContextPtr context = entry->history.gather(cca::RecordContext::ALL);
        guarded("gmlake_trim", entry->index, [&] { device->trim(pool, context); });
      }
  }
  void cacheInfo(DeviceIndex index, size_t *largest) override {
    gmlake_budget budget{};
    guarded("gmlake_get_budget", index, [&] {
      const gmlake_result result = gmlake_get_budget(device(index).lake(), &budget);
      if (result != GMLAKE_OK) throw failure_of(index, result);
    });
    *largest = std::max(*largest, budget.allocatable_bytes);
  }
  std::vector<cca::StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex) override { return {}; }

  /* ---- Statistics ---- */

  cca::DeviceStats getDeviceStats(DeviceIndex index) override {
    cca::DeviceStats out = uses_former_ ? former_->getDeviceStats(index) : cca::DeviceStats();
    gmlake_torch::Device *const device = place(index).device.load();
    out.max_split_size = -1;
    if (!device) return out;
    const Figures figures = device->figures();
    put_stats(out.allocation, figures.allocation);
    put_stats(out.segment, figures.segment);
    put_stats(out.active, figures.active);
    put_stats(out.allocated_bytes, figures.allocated_bytes);
    put_stats(out.reserved_bytes, figures.reserved_bytes);
    put_stats(out.active_bytes, figures.active_bytes);
    put_stats(out.requested_bytes, figures.requested_bytes);
    out.num_alloc_retries += figures.retry_count;
    out.num_ooms += figures.oom_count;
    out.num_sync_all_streams += figures.host_wait_count;
    out.num_device_alloc += figures.create_count;
    out.num_device_free += figures.release_count;
    return out;
  }
  void resetAccumulatedStats(DeviceIndex index) override {
    if (uses_former_) former_->resetAccumulatedStats(index);
    if (gmlake_torch::Device *const device = place(index).device.load())
      device->reset_accumulated();
  }
  void resetPeakStats(DeviceIndex index) override {
    if (uses_former_) former_->resetPeakStats(index);
    if (gmlake_torch::Device *const device = place(index).device.load()) device->reset_peaks();
  }

  /* ---- History ---- */

  cca::SnapshotInfo snapshot(PoolId pool = {0, 0}, bool has_traces = true) override {
    cca::SnapshotInfo out{};
    if (uses_former_) out.segments = former_->snapshot(pool, false).segments;
    for (const auto &place : places_) {
      if (has_traces)
        out.device_traces.push_back(place->history.entries());
      else
        out.device_traces.emplace_back();
      size_t active = 0;
      if (gmlake_torch::Device *const device = place->device.load())
        for (const auto &segment :
             place->history.is_tracked() ? device->chunk_segments() : device->segments()) {
          if (pool != PoolId{0, 0} && pool != segment.pool) continue;
          out.segments.push_back(segment_info(place->index, segment));
          active += out.segments.back().active_size;
        }
      place->history.add(TraceEntry::SNAPSHOT, 0, active, nullptr, pool, nullptr);
    }
    {
      std::lock_guard<std::mutex> lock(notes_mutex_);
      out.external_annotations = notes_.get();
    }
    out.config_metadata.max_split_size = SIZE_MAX;
    return out;
  }
  void recordHistory(bool is_enabled, cca::CreateContextFn recorder, size_t entry_count,
                     cca::RecordContext when, bool does_clear,
                     const std::vector<std::string> &skipped) override {
    {
      std::lock_guard<std::mutex> lock(notes_mutex_);
      does_note_ = is_enabled;
      notes_.set_capacity(entry_count);
    }
    for (const auto &place : places_)
      place->history.start(is_enabled, recorder, entry_count, when, does_clear, skipped);
  }
  bool isHistoryEnabled() override { return place(current_device()).history.is_enabled(); }
  void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &pairs) override {
    if (!does_note_) return;
    cca_annotation note(current_device(), c10::approx_time_t{});
    for (const auto &pair : pairs) note.recordUserMetadata(pair.first, pair.second);
    note.time_.t_ = now_us();
    std::lock_guard<std::mutex> lock(notes_mutex_);
    notes_.add(note);
  }
  void pushCompileContext(std::string &text) override {
    if (does_note_) History::notes().compile.push_back(text);
  }
  void popCompileContext() override {
    if (does_note_ && !History::notes().compile.empty()) History::notes().compile.pop_back();
  }
  void setUserMetadata(const std::string &text) override { History::notes().metadata = text; }
  std::string getUserMetadata() override { return History::notes().metadata; }
  /* torch 2.12 and later ask. */
  ContextPtr getContextForPointer(const void *ptr) {
    Place *place = nullptr;
    return find(ptr, &place)
               ? std::static_pointer_cast<GatheredContext>(place->device.load()->context_of(ptr))
               : nullptr;
  }
  void attachOutOfMemoryObserver(cca::OutOfMemoryObserver observer) override {
    former_->attachOutOfMemoryObserver(observer);
    std::lock_guard<std::mutex> lock(notes_mutex_);
    observers_.push_back(std::move(observer));
  }
  void attachAllocatorTraceTracker(cca::AllocatorTraceTracker tracker) override {
    for (const auto &place : places_) place->history.add_tracker(tracker);
    former_->attachAllocatorTraceTracker(std::move(tracker));
  }

  /* ---- Pools and graphs ---- */

  void beginAllocateToPool(DeviceIndex index, PoolId pool,
                           std::function<bool(cudaStream_t)> filter) override {
    const cudaStream_t current = c10::cuda::getCurrentCUDAStream(index).stream();
    guarded("gmlake_capture_begin", index, [&] {
      TORCH_CHECK(
          device(index).begin_route(
              pool, [filter](void *stream) { return filter(static_cast<cudaStream_t>(stream)); },
              current),
          "beginAllocateToPool: already recording to mempool_id");
    });
    if (is_elsewhere(index, pool)) try {
        former_->beginAllocateToPool(index, pool, std::move(filter));
      } catch (...) {
        (void)device(index).end_route(pool);
        throw;
      }
  }
  void endAllocateToPool(DeviceIndex index, PoolId pool) override {
    if (is_elsewhere(index, pool)) former_->endAllocateToPool(index, pool);
    TORCH_CHECK(device(index).end_route(pool),
                "endAllocatePool: not currently recording to mempool_id");
  }
  void releasePool(DeviceIndex index, PoolId pool) override {
    if (is_elsewhere(index, pool)) former_->releasePool(index, pool);
    TORCH_CHECK(device(index).release_pool(pool), "releasePool: there is no such pool");
  }
  int getPoolUseCount(DeviceIndex index, PoolId pool) override {
    return device(index).pool_use_count(pool);
  }
  bool create_pool(DeviceIndex index, PoolId pool, bool has_source) override {
    if (has_source) uses_former_ = true;
    guarded("gmlake_pool_create", index, [&] { device(index).retain_pool(pool, has_source); });
    return is_elsewhere(index, pool);
  }
  void setUseOnOOM(DeviceIndex index, PoolId pool, bool value) override {
    if (is_elsewhere(index, pool)) return former_->setUseOnOOM(index, pool, value);
    guarded("gmlake_pool_create", index, [&] { device(index).set_serves_oom(pool, value); });
  }
  void setNoSplit(DeviceIndex index, PoolId pool) override {
    if (is_elsewhere(index, pool)) return former_->setNoSplit(index, pool);
    guarded("gmlake_pool_create", index, [&] { device(index).set_exclusive(pool); });
  }
  bool checkPoolLiveAllocations(DeviceIndex index, PoolId pool,
                                const std::unordered_set<void *> &expected) override {
    std::unordered_set<void *> live;
    if (is_elsewhere(index, pool)) return former_->checkPoolLiveAllocations(index, pool, expected);
    TORCH_CHECK(device(index).pool_live(pool, live), "Could not find pool of id");
    return live == expected;
  }
  std::shared_ptr<cca::AllocatorState> getCheckpointState(DeviceIndex index, PoolId pool) override {
    auto state = std::make_shared<State>();
    if (is_elsewhere(index, pool)) return former_->getCheckpointState(index, pool);
    state->checkpoint = device(index).checkpoint(pool);
    TORCH_CHECK(state->checkpoint, "Could not find pool of id");
    return state;
  }
  cca::CheckpointDelta setCheckpointPoolState(DeviceIndex index,
                                              std::shared_ptr<cca::AllocatorState> any) override {
    const auto state = std::dynamic_pointer_cast<State>(any);
    if (!state && uses_former_) return former_->setCheckpointPoolState(index, any);
    TORCH_CHECK(state, "gmlake: setCheckpointPoolState: the state is another allocator's");
    cca::CheckpointDelta out;
    std::vector<void *> live;
    ContextPtr context = place(index).history.gather(cca::RecordContext::STATE);
    guarded("gmlake_free", index,
            [&] { device(index).restore(*state->checkpoint, context, out.ptrs_freed, live); });
    for (void *ptr : live)
      out.dataptrs_allocd.emplace_back(ptr, ptr, &delete_block,
                                       c10::Device(c10::DeviceType::CUDA, index));
    return out;
  }

  /* ---- Other devices and processes ---- */

  void enablePeerAccess(DeviceIndex from, DeviceIndex to) override {
    c10::cuda::CUDAGuard guard(from);
    const cudaError_t error = cudaDeviceEnablePeerAccess(to, 0);
    if (error == cudaErrorPeerAccessAlreadyEnabled)
      (void)cudaGetLastError();
    else
      C10_CUDA_CHECK(error);
    const gmlake_result result = device(to).memory().add_peer(from);
    if (result != GMLAKE_OK)
      throw_error("gmlake: device " + std::to_string(from) +
                  " cannot access the memory of device " + std::to_string(to) + ": " +
                  gmlake_result_name(result));
  }
  cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device, size_t bytes,
                          cudaStream_t stream, bool has_peer_access) override {
    if (has_peer_access || from_device == to_device)
      return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
    return cudaMemcpyPeerAsync(to, to_device, from, from_device, bytes, stream);
  }
  cca::ShareableHandle shareIpcHandle(void *ptr) override {
    Place *place = nullptr;
    if (!find_for_others(ptr, &place)) return former_->shareIpcHandle(ptr);
    cca::ShareableHandle out{};
    out.handle = gmlake_torch::export_block(*place->device.load(), ptr, &out.offset).text();
    return out;
  }
  /* Of a process with torch's own allocator: that knows the handle. */
  std::shared_ptr<void> getIpcDevPtr(std::string handle) override {
    return gmlake_torch::SharedRange::is_one(handle) ? import_range(handle, current_device())
                                                     : former_->getIpcDevPtr(std::move(handle));
  }

  /* NULL if the device has no lake. */
  gmlake_torch::Device *device_of(int index) {
    if (index < 0 || static_cast<size_t>(index) >= place_count_.load(std::memory_order_acquire))
      return nullptr;
    return places_[static_cast<size_t>(index)]->device.load();
  }
  gmlake *lake_of(int index) {
    gmlake_torch::Device *const device = device_of(index);
    return device ? device->lake() : nullptr;
  }

 private:
  using cca_annotation = std::decay_t<decltype(cca::SnapshotInfo().external_annotations.front())>;

  struct State : cca::AllocatorState {
    std::shared_ptr<gmlake_torch::Checkpoint> checkpoint;
  };

  static DeviceIndex current_device() {
    DeviceIndex device = 0;
    C10_CUDA_CHECK(c10::cuda::GetDevice(&device));
    return device;
  }

  Place &place(DeviceIndex index) {
    if (index < 0 || static_cast<size_t>(index) >= place_count_.load(std::memory_order_acquire))
      throw_error("Invalid device argument " + std::to_string(index) + ": did you call init?");
    return *places_[static_cast<size_t>(index)];
  }

  gmlake_torch::Device &device(DeviceIndex index) {
    Place &p = place(index);
    gmlake_torch::Device *const device = p.device.load(std::memory_order_acquire);
    return C10_LIKELY(device != nullptr) ? *device : make_device(p);
  }

  Failure failure_of(DeviceIndex index, gmlake_result result) {
    Failure failure{result, {}};
    (void)gmlake_get_last_error(lake_of(index), &failure.info);
    return failure;
  }

  /* Memory of a process whose torch is on lakes, too. */
  std::shared_ptr<void> import_range(const std::string &handle, DeviceIndex device) {
    auto *const range = new gmlake_torch::ImportedRange(this->device(device),
                                                        gmlake_torch::SharedRange::read(handle));
    return std::shared_ptr<void>(range->ptr(), [range, device](void *) {
      try { /* a deleter may not raise: at the process's end the driver may be gone already */
        c10::cuda::CUDAGuard guard(device);
        if (cudaDeviceSynchronize() == cudaSuccess) delete range; /* nothing uses it any more */
      } catch (...) {
      }
    });
  }

  /* Runs the function; its Failure becomes torch's error. */
  template <class Function>
  auto guarded(const char *call, DeviceIndex index, Function function) -> decltype(function()) {
    try {
      return function();
    } catch (const Failure &failure) {
      throw_error(failure_text(call, index, failure));
    }
  }

  /* As GMLAKE_TORCH_LEDGER says. */
  static void join(const Place &place, gmlake_torch::Device &device) {
    const char *const name = std::getenv("GMLAKE_TORCH_LEDGER");
    size_t floor_bytes = 0, weight = 1;
    if (!name || !*name) return;
    if (!read_number("GMLAKE_TORCH_LEDGER_FLOOR_BYTES", &floor_bytes))
      throw_error("gmlake: GMLAKE_TORCH_LEDGER_FLOOR_BYTES has to be a number of bytes");
    if (!read_number("GMLAKE_TORCH_LEDGER_WEIGHT", &weight) || !weight || weight > 1000000)
      throw_error("gmlake: GMLAKE_TORCH_LEDGER_WEIGHT has to be a number up to 1000000");
    try {
      device.join(std::string(name) + "." + std::to_string(place.index), floor_bytes,
                  static_cast<unsigned>(weight));
    } catch (const std::runtime_error &error) {
      throw_error("gmlake: GMLAKE_TORCH_LEDGER: " + std::string(error.what()));
    }
  }

  gmlake_torch::Device &make_device(Place &place) {
    std::lock_guard<std::mutex> lock(place.mutex);
    if (gmlake_torch::Device *const device = place.device.load()) return *device;
    TORCH_CHECK(!gmlake_torch::is_child(),
                "Cannot re-initialize CUDA in forked subprocess: use the spawn start method");
    int peers[DEVICES_MAX];
    char why[512] = "";
    gmlake_desc desc{};
    gmlake_backend *backend = nullptr;
    c10::cuda::CUDAGuard guard(place.index);
    desc.device = place.index;
    const gmlake_result result = gmlake_cuda_create(place.index, &backend);
    if (result != GMLAKE_OK)
      throw_error("gmlake: device " + std::to_string(place.index) +
                  ": gmlake_cuda_create: " + gmlake_result_name(result));
    desc.backend = backend;
    if (backend->stream_id)
      desc.flags = GMLAKE_STREAMS_MAY_END; /* nobody says when an external stream is destroyed */
    else
      TORCH_WARN("gmlake: the driver of device ", place.index, " is older than CUDA 12 and gives ",
                 "streams no ids: call gmlake_torch.forget_stream before an external stream is ",
                 "destroyed");
    gmlake_device_properties properties{};
    int code = 0;
    if (backend->get_properties(backend->user, &properties, &code) == GMLAKE_OK)
      desc.handle_types = properties.handle_types & GMLAKE_HANDLE_POSIX_FD; /* to share tensors */
    if (!configure(&desc, peers, why, sizeof why)) {
      gmlake_cuda_destroy(backend);
      throw_error(std::string("gmlake: ") + why);
    }
    std::unique_ptr<gmlake_torch::Device> device;
    try {
      guarded("gmlake_create", place.index, [&] {
        device = std::make_unique<gmlake_torch::Device>(desc, hooks(place));
        limit(place, *device);
        join(place, *device);
      });
    } catch (...) {
      device = nullptr;
      unconfigure(place.index);
      gmlake_cuda_destroy(backend);
      throw;
    }
    begin_profile(device->lake(), place.index);
    place.device.store(device.get(), std::memory_order_release);
    return *device.release(); /* it lives as long as the process */
  }

  gmlake_torch::Device::Hooks hooks(Place &place) {
    gmlake_torch::Device::Hooks hooks;
    const DeviceIndex index = place.index;
    hooks.on_segment = [&place](bool is_made, uint64_t address, size_t bytes, PoolId pool) {
      const gmlake_torch::Asker *const asker = gmlake_torch::Asker::now();
      place.history.add(
          is_made ? TraceEntry::SEGMENT_ALLOC : TraceEntry::SEGMENT_FREE, address, bytes,
          static_cast<cudaStream_t>(asker ? asker->stream : nullptr), pool,
          asker ? std::static_pointer_cast<GatheredContext>(asker->context) : nullptr);
    };
    hooks.make_room = [] {
      bool did = false;
      for (const auto &name : c10::FreeCudaMemoryCallbacksRegistry()->Keys()) try {
          did |= c10::FreeCudaMemoryCallbacksRegistry()->Create(name)->Execute();
        } catch (const std::exception &error) { /* the lake is in the middle of a call */
          warn("the callback " + name + " for free memory failed: " + error.what());
        }
      return did;
    };
    hooks.wait_device = [index] {
      c10::cuda::CUDAGuard guard(index);
      C10_CUDA_CHECK(cudaDeviceSynchronize());
    };
    return hooks;
  }

  /* Tells the lake what setMemoryFraction said. */
  static void limit(const Place &place, gmlake_torch::Device &device) {
    const double fraction = place.fraction.load();
    size_t free = 0, total = 0;
    c10::cuda::CUDAGuard guard(place.index);
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    device.memory().set_limit(
        fraction < 1
            ? std::max<size_t>(1, static_cast<size_t>(fraction * static_cast<double>(total)))
            : 0);
  }

  Block *find(const void *ptr, Place **out_place) {
    const size_t count = place_count_.load(std::memory_order_acquire);
    for (size_t i = 0; i < count; i++) {
      gmlake_torch::Device *const device = places_[i]->device.load(std::memory_order_acquire);
      Block *const block = device ? device->find(ptr) : nullptr;
      if (out_place && block) *out_place = places_[i].get();
      if (block) return block;
    }
    return nullptr;
  }

  /* The same for who will keep the address: the block stays there. NULL: torch's own allocator may
     have it. */
  Block *find_for_others(const void *ptr, Place **out_place) {
    Place *place = nullptr;
    Block *const block = find(ptr, &place);
    if (!block && !uses_former_) raise_invalid(ptr);
    if (out_place) *out_place = place;
    if (block) try {
        place->device.load()->pin(block, c10::cuda::getCurrentCUDAStream(place->index).stream());
      } catch (const Failure &failure) {
        TORCH_CHECK_WITH(OutOfMemoryError, false,
                         "gmlake: a tensor for others cannot stay on the device: ", failure.reason);
      }
    return block;
  }

  bool is_elsewhere(DeviceIndex index, PoolId pool) {
    return uses_former_ && device(index).is_elsewhere(pool);
  }
  bool is_elsewhere(DeviceIndex index, cudaStream_t stream) {
    return C10_UNLIKELY(uses_former_) &&
           (!is_enabled_ || device(index).is_elsewhere(static_cast<void *>(stream)));
  }
  bool is_elsewhere(DeviceIndex index) {
    return C10_UNLIKELY(uses_former_) &&
           is_elsewhere(index, handle_of(c10::cuda::getCurrentCUDAStream(index)));
  }

  /* 0 is the id of every device's legacy stream, which most programs use alone. */
  static cudaStream_t handle_of(const c10::cuda::CUDAStream &stream) {
    return stream.id() ? stream.stream() : nullptr;
  }

  /* torch never destroys its own streams: their ids are 0 and odd numbers. */
  static bool is_foreign(const c10::cuda::CUDAStream &stream) {
    return stream.id() != 0 && !(stream.id() & 1);
  }
  void *take(DeviceIndex index, size_t bytes, const c10::cuda::CUDAStream &stream) {
    return take(index, bytes, handle_of(stream), is_foreign(stream));
  }
  void *take(DeviceIndex index, size_t bytes, cudaStream_t stream, bool is_foreign) {
    gmlake_torch::Device &device = this->device(index);
    Place &place = *places_[static_cast<size_t>(index)];
    ContextPtr context = place.history.gather(cca::RecordContext::STATE);
    Block *block = nullptr;
    try {
      block = device.alloc(bytes, stream, context, is_foreign);
    } catch (const Failure &failure) {
      refuse(place, device, bytes, stream, context, failure);
    }
    if (C10_UNLIKELY(place.history.is_wanted()))
      place.history.add(TraceEntry::ALLOC, reinterpret_cast<size_t>(block->ptr), bytes, stream,
                        pool_of(block), std::move(context));
    if (const auto *interpreter = c10::impl::GPUTrace::get_trace(); C10_UNLIKELY(interpreter))
      (*interpreter)
          ->trace_gpu_memory_allocation(c10::kCUDA, reinterpret_cast<uintptr_t>(block->ptr));
    tell_profiler(place, device, block->ptr, static_cast<int64_t>(block->bytes));
    return block->ptr;
  }

  /* Returns whether the block is of this device. */
  bool give(Place &place, void *ptr) {
    gmlake_torch::Device *const device = place.device.load(std::memory_order_acquire);
    size_t bytes = 0;
    const auto *const interpreter = c10::impl::GPUTrace::get_trace();
    if (!device) return false;
    if (C10_UNLIKELY(place.history.is_wanted())) tell_history(place, *device, ptr);
    if (C10_UNLIKELY(interpreter) && device->find(ptr))
      (*interpreter)->trace_gpu_memory_deallocation(c10::kCUDA, reinterpret_cast<uintptr_t>(ptr));
    try {
      if (!device->free_at(ptr, &bytes)) return false;
    } catch (const Failure &failure) { /* a deleter may not raise */
      warn(failure_text("gmlake_free", place.index, failure));
    }
    tell_profiler(place, *device, ptr, -static_cast<int64_t>(bytes));
    return true;
  }
  /* Before the free: else the history could have the next allocation at the address first. */
  static void tell_history(Place &place, gmlake_torch::Device &device, void *ptr) {
    Block *const block = device.find(ptr);
    if (!block) return;
    ContextPtr context = place.history.gather(cca::RecordContext::ALL);
    if (!context) context = std::static_pointer_cast<GatheredContext>(block->context);
    for (auto action : {TraceEntry::FREE_REQUESTED, TraceEntry::FREE_COMPLETED})
      place.history.add(action, reinterpret_cast<size_t>(ptr), block->requested,
                        static_cast<cudaStream_t>(block->stream), pool_of(block), context);
  }

  static PoolId pool_of(const Block *block) { return block->pool ? block->pool->id : PoolId{0, 0}; }

  void tell_profiler(Place &place, gmlake_torch::Device &device, void *ptr, int64_t bytes) {
    if (C10_LIKELY(!c10::memoryProfilingEnabled())) return;
    c10::reportMemoryUsageToProfiler(ptr, bytes, static_cast<size_t>(device.allocated_bytes()),
                                     device.memory().reserved(),
                                     c10::Device(c10::DeviceType::CUDA, place.index));
  }

  /* Raises torch's error for an allocation that failed. */
  [[noreturn]] void refuse(Place &place, gmlake_torch::Device &device, size_t bytes,
                           cudaStream_t stream, const ContextPtr &context, const Failure &failure) {
    if (failure.result != GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY &&
        failure.result != GMLAKE_ERROR_LIMIT_REACHED)
      throw_error(failure_text("gmlake_alloc", place.index, failure));
    size_t free = 0, total = 0;
    const size_t rounded = (bytes + 511) / 512 * 512, limit = device.memory().limit();
    c10::cuda::CUDAGuard guard(place.index);
    C10_CUDA_CHECK(cudaMemGetInfo(&free, &total));
    device.count_oom();
    const size_t live = static_cast<size_t>(device.allocated_bytes());
    const size_t held = device.memory().reserved(), in_pools = device.pool_bytes();
    place.history.add(TraceEntry::OOM, free, rounded, stream, {0, 0}, context);
    c10::reportOutOfMemoryToProfiler(static_cast<int64_t>(rounded), live, held,
                                     c10::Device(c10::DeviceType::CUDA, place.index));
    std::vector<cca::OutOfMemoryObserver> observers;
    {
      std::lock_guard<std::mutex> lock(notes_mutex_);
      observers = observers_;
    }
    for (const auto &observer : observers)
      observer(place.index, rounded, limit ? limit : total, free);
    std::string text = "CUDA out of memory. Tried to allocate " + size_text(rounded) + ". GPU " +
                       std::to_string(place.index) + " has a total capacity of " +
                       size_text(total) + " of which " + size_text(free) + " is free. ";
    if (limit) text += size_text(limit) + " allowed; ";
    text += "Of the allocated memory " + size_text(live) + " is allocated by PyTorch, ";
    if (in_pools)
      text += "with " + size_text(in_pools) + " held by private pools (e.g., CUDA Graphs), ";
    text += "and " + size_text(held - std::min(held, live)) +
            " is reserved by PyTorch but unallocated.";
    text += failure.reason.empty() ? causes_text(failure.info)
                                   : " The session that offloads says: " + failure.reason + ".";
    TORCH_CHECK_WITH(OutOfMemoryError, false, text);
  }

  cca::SegmentInfo segment_info(DeviceIndex index, const gmlake_torch::Segment &segment) {
    cca::SegmentInfo out;
    out.device = index;
    out.address = segment.address;
    out.total_size = segment.bytes;
    out.stream = static_cast<cudaStream_t>(segment.stream);
    out.is_large = true;
    out.is_expandable = true;
    out.owner_private_pool_id = segment.pool;
    /* NCCL registers the segments of a pool in this order, the same in every process. */
    out.registration_counter = static_cast<decltype(out.registration_counter)>(segment.order);
    for (const auto &piece : segment.pieces) {
      cca::BlockInfo block;
      block.size = piece.bytes;
      block.requested_size = piece.requested;
      block.allocated = piece.is_live;
      block.active = piece.is_active;
      block.context_when_allocated = std::static_pointer_cast<GatheredContext>(piece.context);
      if (piece.is_live) out.allocated_size += piece.bytes;
      if (piece.is_active) out.active_size += piece.bytes;
      if (piece.is_active) out.requested_size += piece.requested;
      out.blocks.push_back(std::move(block));
    }
    return out;
  }

  std::vector<std::unique_ptr<Place>> places_; /* grows in init alone */
  std::atomic<size_t> place_count_{0};
  std::atomic<bool> is_enabled_{true}, does_note_{false}, uses_former_{false};
  std::mutex notes_mutex_; /* protects what follows */
  Ring<cca_annotation> notes_;
  std::vector<cca::OutOfMemoryObserver> observers_;
};

/* Never destroyed: torch frees until the process ends. */
LakeAllocator &the_allocator() {
  static LakeAllocator *const allocator = new LakeAllocator;
  return *allocator;
}

void delete_block(void *ptr) { the_allocator().raw_delete(ptr); }

} // namespace

static gmlake *lake_of(int device) { return the_allocator().lake_of(device); }

/* ---- What Python calls ---------------------------------------------------------------------- */

/* The torch that this was built for: release and commit. */
API const char *gmlake_torch_built_for(void) noexcept {
  return TORCH_VERSION " " GMLAKE_TORCH_COMMIT;
}

/* Makes the lakes torch's allocator. NULL: done, or done before; else why not. */
API const char *gmlake_torch_enable(void) noexcept {
  LakeAllocator &own = the_allocator();
  cca::CUDAAllocator *const former = cca::allocator.load();
  if (former == &own) return nullptr;
  if (former->initialized())
    return "torch's own allocator is in use already: call enable() before anything is on a GPU";
  own.set_former(former);
  cca::allocator.store(&own);
  c10::SetAllocator(c10::DeviceType::CUDA, &own, 0xff);
  return nullptr;
}

/* Call it before a stream is destroyed on which tensors that live on were recorded. */
API void gmlake_torch_forget_stream(void *stream) noexcept {
  for (int device = 0; device < DEVICES_MAX; device++)
    if (gmlake *const lake = lake_of(device)) (void)gmlake_forget_stream(lake, stream);
}

/* As in adapter.h; -1: the device has no lake. */
API int gmlake_torch_stats_json(int device, char *buffer, size_t size) noexcept {
  return write_stats(lake_of(device), buffer, size);
}
API int gmlake_torch_reset_peaks(int device) noexcept {
  gmlake *const lake = lake_of(device);
  return lake && gmlake_reset_peaks(lake) == GMLAKE_OK ? 0 : -1;
}

/* ---- Sessions that offload ------------------------------------------------------------------- */

#include "offload_calls.hpp"

namespace {

void *session_stream(int device) {
  return c10::cuda::getCurrentCUDAStream(static_cast<DeviceIndex>(device)).stream();
}

std::unique_ptr<gmlake_torch::Offload> make_session(int device, size_t chunk_bytes,
                                                    const char **out_why) {
  gmlake_torch::Device *const place = the_allocator().device_of(device);
  gmlake_offload_cuda_desc desc{};
  gmlake_offload_backend *backend = nullptr;
  gmlake_offload_memory memory{};
  gmlake_desc lake{};
  static auto &lakes = *new std::map<int, gmlake_offload_lake>; /* by device; used until the end */
  *out_why = "the device has no lake: call gmlake_torch.enable() before anything is on a GPU";
  if (!place) return nullptr;
  desc.device = device;
  const gmlake_offload_result result = gmlake_offload_cuda_create(&desc, &backend);
  *out_why = result == GMLAKE_OFFLOAD_ERROR_UNSUPPORTED
                 ? "the device is integrated, its memory is the host's: to offload frees nothing"
                 : "no streams for copies can be made on the device";
  if (result != GMLAKE_OFFLOAD_OK) return nullptr;
  (void)gmlake_get_desc(place->lake(), &lake);
  gmlake_offload_lake &source = lakes[device];
  source.lake = place->lake();
  source.chunk_bytes = chunk_bytes ? chunk_bytes : lake.chunk_bytes;
  if (!source.pool) { /* chunks of its own: else small blocks take those that a plan counts on */
    gmlake_pool_desc own{};
    own.chunk_bytes = 2 * source.chunk_bytes; /* of its blocks: there are none */
    own.label = "offload";
    *out_why = "a pool for the session's memory could not be made";
    if (gmlake_pool_create(source.lake, &own, &source.pool) != GMLAKE_OK) return nullptr;
  }
  *out_why = "chunk_bytes is no size that a buffer of the lake can have";
  if (gmlake_offload_lake_memory(&source, &memory) != GMLAKE_OFFLOAD_OK) return nullptr;
  auto made = std::make_unique<gmlake_torch::Offload>(
      *backend, memory, [place] { return place->memory().reserved(); },
      [place](size_t bytes) { place->memory().set_session_limit(bytes); },
      [&source] {
        gmlake_stats stats{};
        (void)gmlake_pool_get_stats(source.lake, source.pool, &stats);
        return size_t(stats.reserved_bytes);
      },
      [place] {
        gmlake_stats stats{};
        (void)gmlake_get_stats(place->lake(), &stats);
        return size_t(stats.active_bytes);
      });
  place->set_guest(made.get());
  return made;
}

} // namespace
