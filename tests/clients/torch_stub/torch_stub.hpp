/* As much of torch's headers as examples/torch/gmlake_torch.cpp needs, to compile and run it where
   no torch is, over a driver without a device (tests/gpu/fake_cuda.c). Names and signatures are
   torch's, in the form of release 2.TORCH_STUB_MINOR: 11, or 12. The latter is that of a tree of
   April 2026; createOrIncrefPool has the fourth argument of 2.12 itself, whose type and meaning no
   source at hand tells. What torch gives a default is pure here, so that the allocator has to
   override it. */
#pragma once

#if !defined(TORCH_STUB_MINOR)
#define TORCH_STUB_MINOR 12
#endif

#include "gpu/fake_cuda.h"

#include <array>
#include <atomic>
#include <cuda_runtime_api.h>
#include <functional>
#include <map>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <unordered_map>
#include <unordered_set>
#include <utility>
#include <vector>

/* ---- Errors --------------------------------------------------------------------------------- */

#define C10_LIKELY(condition) (__builtin_expect(!!(condition), 1))
#define C10_UNLIKELY(condition) (__builtin_expect(!!(condition), 0))

namespace c10 {

struct Error : std::runtime_error {
  using std::runtime_error::runtime_error;
};
struct OutOfMemoryError : Error {
  using Error::Error;
};

template <class... Parts>
std::string joined(const Parts &...parts) {
  std::ostringstream text;
  (text << ... << parts);
  return text.str();
}

/* Texts of TORCH_WARN. */
inline std::vector<std::string> &warnings() {
  static std::vector<std::string> texts;
  return texts;
}

} // namespace c10

#define TORCH_STUB_CHECK(error, condition, ...)                   \
  do {                                                            \
    if (!(condition)) throw c10::error(c10::joined(__VA_ARGS__)); \
  } while (0)
#define TORCH_CHECK_WITH(...) TORCH_STUB_CHECK(__VA_ARGS__, "")
#define TORCH_CHECK(...) TORCH_STUB_CHECK(Error, __VA_ARGS__, "")
#define TORCH_WARN(...) c10::warnings().push_back(c10::joined(__VA_ARGS__))
#define C10_CUDA_CHECK(call)                                                 \
  do {                                                                       \
    const cudaError_t stub_error = (call);                                   \
    TORCH_CHECK(stub_error == cudaSuccess, "CUDA error: ", int(stub_error)); \
  } while (0)

/* ---- c10 ------------------------------------------------------------------------------------ */

namespace c10 {

using DeviceIndex = int8_t;
using StreamId = int64_t;
using approx_time_t = int64_t;
enum class DeviceType : int8_t { CPU = 0, CUDA = 1 };
constexpr DeviceType kCUDA = DeviceType::CUDA;

class Device {
 public:
  Device(DeviceType type, DeviceIndex index) : type_(type), index_(index) {}
  DeviceType type() const { return type_; }
  DeviceIndex index() const { return index_; }

 private:
  DeviceType type_;
  DeviceIndex index_;
};

using DeleterFnPtr = void (*)(void *);
class DataPtr {
 public:
  DataPtr(void *data, void *context, DeleterFnPtr deleter, Device device)
      : data_(data), context_(context, deleter), device_(device) {}
  void *get() const { return data_; }
  DeleterFnPtr get_deleter() const { return context_.get_deleter(); }
  Device device() const { return device_; }

 private:
  void *data_;
  std::unique_ptr<void, DeleterFnPtr> context_;
  Device device_;
};

struct Stream {
  Device device;
  StreamId id;
};
struct Allocator {
  virtual ~Allocator() = default;
  virtual DataPtr allocate(size_t bytes) = 0;
  virtual DeleterFnPtr raw_deleter() const { return nullptr; }
  virtual void copy_data(void *to, const void *from, size_t bytes) const = 0;
};
inline Allocator *&allocator_of_cuda() {
  static Allocator *allocator = nullptr;
  return allocator;
}
inline void SetAllocator(DeviceType, Allocator *allocator, uint8_t) {
  allocator_of_cuda() = allocator;
}

struct GatheredContext {
  virtual ~GatheredContext() = default;
};

/* What a profiler was told last. */
struct Profiler {
  bool is_on = false;
  void *ptr = nullptr;
  int64_t bytes = 0, asked = 0;
  size_t live = 0, held = 0;
};
inline Profiler &profiler() {
  static Profiler state;
  return state;
}
inline bool memoryProfilingEnabled() { return profiler().is_on; }
inline void reportMemoryUsageToProfiler(void *ptr, int64_t bytes, size_t live, size_t held,
                                        Device) {
  profiler().ptr = ptr;
  profiler().bytes = bytes;
  profiler().live = live;
  profiler().held = held;
}
inline void reportOutOfMemoryToProfiler(int64_t asked, size_t live, size_t held, Device) {
  profiler().asked = asked;
  profiler().live = live;
  profiler().held = held;
}

class FreeMemoryCallback {
 public:
  virtual ~FreeMemoryCallback() = default;
  virtual bool Execute() = 0;
};
struct FreeMemoryRegistry {
  std::map<std::string, std::function<std::unique_ptr<FreeMemoryCallback>()>> makers;
  std::vector<std::string> Keys() const {
    std::vector<std::string> names;
    for (const auto &maker : makers) names.push_back(maker.first);
    return names;
  }
  std::unique_ptr<FreeMemoryCallback> Create(const std::string &name) { return makers[name](); }
};
inline FreeMemoryRegistry *FreeCudaMemoryCallbacksRegistry() {
  static FreeMemoryRegistry registry;
  return &registry;
}

namespace impl {
struct Tracer { /* Python's part of the sanitizer */
  std::vector<uintptr_t> allocations, deallocations;
  void trace_gpu_memory_allocation(DeviceType, uintptr_t ptr) { allocations.push_back(ptr); }
  void trace_gpu_memory_deallocation(DeviceType, uintptr_t ptr) { deallocations.push_back(ptr); }
};
struct PyInterpreter {
  Tracer *tracer;
  Tracer *operator->() const { return tracer; }
};
struct GPUTrace {
  static const PyInterpreter *&state() {
    static const PyInterpreter *interpreter = nullptr;
    return interpreter;
  }
  static const PyInterpreter *get_trace() { return state(); }
};
} // namespace impl

/* ---- What allocators of all devices have in common ------------------------------------------ */

using MempoolId_t = std::pair<unsigned long long, unsigned long long>;

namespace CachingDeviceAllocator {

#if TORCH_STUB_MINOR >= 12
using StreamOfInfo = void *;
#else
using StreamOfInfo = cudaStream_t;
#endif

struct Stat {
  int64_t current = 0, peak = 0, allocated = 0, freed = 0;
};
using StatArray = std::array<Stat, 3>;
struct DeviceStats {
  StatArray allocation, segment, active, inactive_split;
  StatArray allocated_bytes, reserved_bytes, active_bytes, inactive_split_bytes, requested_bytes;
  int64_t num_alloc_retries = 0, num_ooms = 0, num_sync_all_streams = 0;
  int64_t num_device_alloc = 0, num_device_free = 0, max_split_size = 0;
#if TORCH_STUB_MINOR >= 12
  int64_t num_oom_rejections = 0;
#endif
  Stat oversize_allocations, oversize_segments;
};

typedef std::shared_ptr<GatheredContext> (*CreateContextFn)();

enum struct RecordContext { NEVER = 0, STATE = 1, ALLOC = 2, ALL = 3 };

struct BlockInfo {
  size_t size = 0, requested_size = 0;
  int32_t gc_counter = 0;
  bool allocated = false, active = false;
  std::shared_ptr<GatheredContext> context_when_allocated;
};
struct SegmentInfo {
  DeviceIndex device = 0;
  int32_t registration_counter = -1;
  size_t address = 0, total_size = 0, requested_size = 0, allocated_size = 0, active_size = 0;
  StreamOfInfo stream = nullptr;
  bool is_large = false, is_expandable = false;
  MempoolId_t owner_private_pool_id = {0, 0};
  std::vector<BlockInfo> blocks;
  std::shared_ptr<GatheredContext> context_when_allocated;
};
union trace_time_ {
  time_t t_;
  approx_time_t approx_t_;
};

struct TraceEntry {
  enum Action {
    ALLOC,
    FREE_REQUESTED,
    FREE_COMPLETED,
    SEGMENT_ALLOC,
    SEGMENT_FREE,
    SEGMENT_MAP,
    SEGMENT_UNMAP,
    SNAPSHOT,
    OOM
  };
  TraceEntry(Action action, DeviceIndex device, size_t address, size_t size, StreamOfInfo stream,
             MempoolId_t pool, approx_time_t time,
             std::shared_ptr<GatheredContext> context = nullptr, std::string compile = "",
             std::string metadata = "")
      : action_(action),
        device_(device),
        addr_(address),
        context_(std::move(context)),
        stream_(stream),
        size_(size),
        mempool_(pool),
        compile_context_(std::move(compile)),
        user_metadata_(std::move(metadata)) {
    time_.approx_t_ = time;
  }
  Action action_;
  DeviceIndex device_;
  size_t addr_;
  std::shared_ptr<GatheredContext> context_;
  StreamOfInfo stream_;
  size_t size_;
  MempoolId_t mempool_{0, 0};
  trace_time_ time_{};
  std::string compile_context_, user_metadata_;
};

struct AnnotationEntry {
  AnnotationEntry(DeviceIndex device, approx_time_t time) : device_(device) {
    time_.approx_t_ = time;
  }
  void recordUserMetadata(const std::string &name, std::string value) {
    metadata_[name] = std::move(value);
  }
  DeviceIndex device_;
  trace_time_ time_{};
  std::unordered_map<std::string, std::string> metadata_;
};
using AllocatorTraceTracker = std::function<void(const TraceEntry &)>;

} // namespace CachingDeviceAllocator

struct DeviceAllocator : Allocator {
  virtual void recordStream(const DataPtr &ptr, Stream stream) = 0;
  virtual std::pair<size_t, size_t> getMemoryInfo(DeviceIndex device) = 0;
};

/* ---- c10::cuda ------------------------------------------------------------------------------ */

namespace cuda {

inline DeviceIndex &current_device_index() {
  static thread_local DeviceIndex index = 0;
  return index;
}
/* Makes the device's primary context current. */
inline void SetDevice(DeviceIndex index) {
  static CUcontext contexts[8];
  CUdevice device;
  if (!contexts[index]) {
    (void)cuDeviceGet(&device, index);
    (void)cuDevicePrimaryCtxRetain(&contexts[index], device);
  }
  (void)cuCtxSetCurrent(contexts[index]);
  current_device_index() = index;
}
inline cudaError_t GetDevice(DeviceIndex *out) {
  *out = current_device_index();
  return cudaSuccess;
}

class CUDAGuard {
 public:
  explicit CUDAGuard(DeviceIndex index) : former_(current_device_index()) { SetDevice(index); }
  ~CUDAGuard() { SetDevice(former_); }

 private:
  DeviceIndex former_;
};

/* torch's own streams have odd ids; an external stream's id is its handle. */
class CUDAStream {
 public:
  CUDAStream(DeviceIndex index, StreamId id) : index_(index), id_(id) {}
  StreamId id() const { return id_; }
  DeviceIndex device_index() const { return index_; }
  static std::vector<cudaStream_t> &own() {
    static std::vector<cudaStream_t> streams;
    return streams;
  }
  cudaStream_t stream() const {
    if (!id_) return nullptr;
    return id_ & 1 ? own()[static_cast<size_t>(id_ >> 1)] : reinterpret_cast<cudaStream_t>(id_);
  }

 private:
  DeviceIndex index_;
  StreamId id_;
};
inline CUDAStream getStreamFromPool(DeviceIndex index) {
  cudaStream_t stream = nullptr;
  CUDAGuard guard(index);
  (void)cuStreamCreate(&stream, CU_STREAM_NON_BLOCKING);
  CUDAStream::own().push_back(stream);
  return CUDAStream(index, static_cast<StreamId>(CUDAStream::own().size() - 1) * 2 + 1);
}
inline CUDAStream getStreamFromExternal(cudaStream_t stream, DeviceIndex index) {
  return CUDAStream(index, reinterpret_cast<StreamId>(stream));
}
inline std::map<DeviceIndex, CUDAStream> &current_streams() {
  static thread_local std::map<DeviceIndex, CUDAStream> streams;
  return streams;
}
inline CUDAStream getCurrentCUDAStream(DeviceIndex index) {
  const auto found = current_streams().find(index);
  return found == current_streams().end() ? CUDAStream(index, 0) : found->second;
}
inline void setCurrentCUDAStream(CUDAStream stream) {
  current_streams().erase(stream.device_index());
  current_streams().emplace(stream.device_index(), stream);
}

/* ---- The allocator's interface -------------------------------------------------------------- */

namespace CUDACachingAllocator {

using c10::CachingDeviceAllocator::AllocatorTraceTracker;
using c10::CachingDeviceAllocator::BlockInfo;
using c10::CachingDeviceAllocator::CreateContextFn;
using c10::CachingDeviceAllocator::DeviceStats;
using c10::CachingDeviceAllocator::RecordContext;
using c10::CachingDeviceAllocator::SegmentInfo;
using c10::CachingDeviceAllocator::TraceEntry;

struct AllocatorState {
  virtual ~AllocatorState() = default;
};
struct AllocatorConfigInfo {
  size_t max_split_size = 0;
};
struct SnapshotInfo {
  std::vector<SegmentInfo> segments;
  std::vector<std::vector<TraceEntry>> device_traces;
  std::vector<CachingDeviceAllocator::AnnotationEntry> external_annotations;
  AllocatorConfigInfo config_metadata;
};
struct CheckpointDelta {
  std::vector<void *> ptrs_freed;
  std::vector<DataPtr> dataptrs_allocd;
};
using OutOfMemoryObserver =
    std::function<void(int64_t device, size_t allocated, size_t total, size_t free)>;
#if TORCH_STUB_MINOR >= 12
using OomRejectionObserver =
    std::function<void(int64_t device, size_t asked, size_t allocated, size_t total)>;
#endif
struct ShareableHandle {
  ptrdiff_t offset;
  std::string handle;
};
struct StreamSegmentSize {
  cudaStream_t stream;
  bool is_small_pool;
  size_t total_size;
};

/* Of PYTORCH_CUDA_ALLOC_CONF. */
struct CUDAAllocatorConfig {
  static double &fraction() {
    static double value = 1;
    return value;
  }
  static double per_process_memory_fraction() { return fraction(); }
};

/* What torch's interface has under one name, in the form of the release. */
class CUDAAllocator : public DeviceAllocator {
 public:
  void recordStream(const DataPtr &ptr, Stream stream) override {
    recordStream(ptr, CUDAStream(stream.device.index(), stream.id));
  }
  std::pair<size_t, size_t> getMemoryInfo(DeviceIndex) override { return {0, 0}; }
#if TORCH_STUB_MINOR >= 12
  virtual std::shared_ptr<GatheredContext> getContextForPointer(const void *ptr) = 0;
  virtual void attachOomRejectionObserver(OomRejectionObserver observer) = 0;
#endif
  virtual void *raw_alloc(size_t bytes) = 0;
  virtual void *raw_alloc_with_stream(size_t bytes, cudaStream_t stream) = 0;
  virtual void raw_delete(void *ptr) = 0;
  virtual void init(int device_count) = 0;
  virtual bool initialized() = 0;
  virtual void setMemoryFraction(double fraction, DeviceIndex device) = 0;
  virtual void enable(bool value) = 0;
  virtual bool isEnabled() const = 0;
  virtual void cacheInfo(DeviceIndex device, size_t *largest) = 0;
  virtual void *getBaseAllocation(void *ptr, size_t *bytes) = 0;
  virtual void recordStream(const DataPtr &ptr, CUDAStream stream) = 0;
  virtual DeviceStats getDeviceStats(DeviceIndex device) = 0;
  virtual void resetAccumulatedStats(DeviceIndex device) = 0;
  virtual void resetPeakStats(DeviceIndex device) = 0;
  virtual void beginAllocateToPool(DeviceIndex device, MempoolId_t pool,
                                   std::function<bool(cudaStream_t)> filter) = 0;
  virtual void endAllocateToPool(DeviceIndex device, MempoolId_t pool) = 0;
  virtual void releasePool(DeviceIndex device, MempoolId_t pool) = 0;
  virtual int getPoolUseCount(DeviceIndex device, MempoolId_t pool) = 0;
  virtual bool checkPoolLiveAllocations(DeviceIndex device, MempoolId_t pool,
                                        const std::unordered_set<void *> &expected) = 0;
  virtual ShareableHandle shareIpcHandle(void *ptr) = 0;
  virtual std::shared_ptr<void> getIpcDevPtr(std::string handle) = 0;
  virtual bool isHistoryEnabled() = 0;
  virtual void recordAnnotation(const std::vector<std::pair<std::string, std::string>> &) = 0;
  virtual void attachOutOfMemoryObserver(OutOfMemoryObserver observer) = 0;
  virtual void attachAllocatorTraceTracker(AllocatorTraceTracker tracker) = 0;
  virtual void enablePeerAccess(DeviceIndex from, DeviceIndex to) = 0;
  virtual cudaError_t memcpyAsync(void *to, int to_device, const void *from, int from_device,
                                  size_t bytes, cudaStream_t stream, bool has_peer_access) = 0;
  virtual std::shared_ptr<AllocatorState> getCheckpointState(DeviceIndex device,
                                                             MempoolId_t pool) = 0;
  virtual CheckpointDelta setCheckpointPoolState(DeviceIndex device,
                                                 std::shared_ptr<AllocatorState> state) = 0;
  virtual std::string name() = 0;
  virtual double getMemoryFraction(DeviceIndex device) = 0;
  virtual void emptyCache(MempoolId_t pool = {0, 0}) = 0;
  virtual void pushCompileContext(std::string &text) = 0;
  virtual void popCompileContext() = 0;
  virtual std::vector<StreamSegmentSize> getExpandableSegmentSizes(DeviceIndex device) = 0;
  virtual void recordHistory(bool is_enabled, CreateContextFn recorder, size_t entry_count,
                             RecordContext when, bool does_clear,
                             const std::vector<std::string> &skipped) = 0;
  virtual void setUserMetadata(const std::string &text) = 0;
  virtual std::string getUserMetadata() = 0;
  virtual void setUseOnOOM(DeviceIndex device, MempoolId_t pool, bool value) = 0;
  virtual void setNoSplit(DeviceIndex device, MempoolId_t pool) = 0;
  virtual SnapshotInfo snapshot(MempoolId_t pool = {0, 0}, bool has_traces = true) = 0;
#if TORCH_STUB_MINOR >= 12
  virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                                  std::shared_ptr<CUDAAllocator> source, bool fourth = false) = 0;
#else
  virtual void createOrIncrefPool(DeviceIndex device, MempoolId_t pool,
                                  std::shared_ptr<CUDAAllocator> source) = 0;
#endif
};

inline std::atomic<CUDAAllocator *> allocator{nullptr};

} // namespace CUDACachingAllocator
} // namespace cuda
} // namespace c10

/* ---- CUDA's runtime ------------------------------------------------------------------------- */

inline cudaError_t torch_stub_error(CUresult code) {
  static_assert(int(CUDA_SUCCESS) == int(cudaSuccess), "");
  return code == CUDA_ERROR_PEER_ACCESS_ALREADY_ENABLED ? cudaErrorPeerAccessAlreadyEnabled
         : code == CUDA_SUCCESS                         ? cudaSuccess
                                                        : cudaErrorOther;
}
inline CUdeviceptr torch_stub_address(const void *ptr) {
  return reinterpret_cast<CUdeviceptr>(ptr);
}

inline cudaError_t cudaDeviceEnablePeerAccess(int peer, unsigned) {
  CUcontext context = nullptr;
  {
    c10::cuda::CUDAGuard guard(static_cast<c10::DeviceIndex>(peer));
    (void)cuCtxGetCurrent(&context);
  }
  return torch_stub_error(cuCtxEnablePeerAccess(context, 0));
}
inline cudaError_t cudaDeviceSynchronize() { return torch_stub_error(cuCtxSynchronize()); }
inline cudaError_t cudaFree(void *ptr) {
  return torch_stub_error(cuMemFree(torch_stub_address(ptr)));
}
inline cudaError_t cudaGetLastError() { return cudaSuccess; }
inline cudaError_t cudaMalloc(void **out, size_t bytes) {
  CUdeviceptr address = 0;
  const CUresult code = cuMemAlloc(&address, bytes);
  *out = reinterpret_cast<void *>(address);
  return torch_stub_error(code);
}
inline cudaError_t cudaMemcpyAsync(void *to, const void *from, size_t bytes, cudaMemcpyKind,
                                   cudaStream_t stream) {
  return torch_stub_error(
      cuMemcpyDtoDAsync(torch_stub_address(to), torch_stub_address(from), bytes, stream));
}
inline cudaError_t cudaMemcpy(void *to, const void *from, size_t bytes, cudaMemcpyKind kind) {
  const cudaError_t error = cudaMemcpyAsync(to, from, bytes, kind, nullptr);
  return error == cudaSuccess ? cudaDeviceSynchronize() : error;
}
inline cudaError_t cudaMemcpyPeerAsync(void *to, int, const void *from, int, size_t bytes,
                                       cudaStream_t stream) {
  return cudaMemcpyAsync(to, from, bytes, cudaMemcpyDeviceToDevice, stream);
}
inline cudaError_t cudaMemGetInfo(size_t *out_free, size_t *out_total) {
  return torch_stub_error(cuMemGetInfo(out_free, out_total));
}
inline cudaError_t cudaStreamIsCapturing(cudaStream_t stream, cudaStreamCaptureStatus *out) {
  CUstreamCaptureStatus status = CU_STREAM_CAPTURE_STATUS_NONE;
  const CUresult code = cuStreamIsCapturing(stream, &status);
  *out = status == CU_STREAM_CAPTURE_STATUS_NONE ? cudaStreamCaptureStatusNone
                                                 : cudaStreamCaptureStatusActive;
  return torch_stub_error(code);
}
