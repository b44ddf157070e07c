/* What ggml's CUDA backend needs of a lake, in C++11 and without CUDA: a pool for the temporaries
   of kernels, and memory that follows use inside a buffer whose addresses stay. gmlake-cuda.cuh
   connects it to CUDA, gmlake.patch to ggml and llama.cpp.

   Nothing here names a stream. ggml forks captured streams onto others, and destroys streams before
   what was used on them; a lake that knows no stream does not mind. The price: whoever gives memory
   back waits for the device, as cudaFree does.

   Include it behind ggml's own common.cuh, which declares ggml_cuda_pool. */
#if !defined(GMLAKE_GGML_H)
#define GMLAKE_GGML_H

#include "gmlake.h"

#include <stdio.h>
#include <stdlib.h>

#include <vector>

/* For what ggml's interfaces cannot report; ggml ends the program there, too. */
#if !defined(GMLAKE_GGML_ABORT)
#define GMLAKE_GGML_ABORT(text) (fprintf(stderr, "gmlake: %s\n", text), abort())
#endif

struct gmlake_ggml_range {
  size_t offset, bytes;
};

/* A device with its lake. It outlives all that is made of it. */
struct gmlake_ggml_device {
  gmlake *lake;
  int device;
  /* Returns when no work on the device is pending. */
  void (*wait)(int device);
  /* Clears these ranges behind base, and returns when that is done. */
  void (*zero)(int device, void *base, const gmlake_ggml_range *ranges, size_t count);
  /* May be NULL. Called often, with no lock held: gives others what they asked for. */
  void (*step)(int device);
};

static inline void gmlake_ggml_must(const gmlake_ggml_device *device, gmlake_result result,
                                    const char *call) {
  char text[320];
  gmlake_error_info info = gmlake_error_info();
  if (result == GMLAKE_OK) return;
  (void)gmlake_get_last_error(device->lake, &info);
  snprintf(text, sizeof text, "%s: %s: %s", call, gmlake_result_name(result), info.text);
  GMLAKE_GGML_ABORT(text);
}

/* ---- The pool: a stack that grows ------------------------------------------------------------ */

/* By the rules of ggml_cuda_pool_vmm: sizes are multiples of 128 bytes, and blocks are freed in the
   reverse order of their allocation. The stack lies in one buffer of the lake, which keeps its
   addresses and only grows. So what a graph was captured with and what runs without a graph use the
   same memory. */
class gmlake_ggml_pool : public ggml_cuda_pool {
 public:
  /* max_bytes: of addresses; less where so much is not left. 0: 32 GiB as ggml reserves, but at
     most a quarter of the device's memory: a lake has addresses for 128 times that. */
  explicit gmlake_ggml_pool(const gmlake_ggml_device *device, size_t max_bytes = 0);
  gmlake_ggml_pool(const gmlake_ggml_pool &) = delete;
  gmlake_ggml_pool &operator=(const gmlake_ggml_pool &) = delete;
  /* Waits for the device. pre: graphs that use the pool's memory do not run again. */
  ~gmlake_ggml_pool() override;

  void *alloc(size_t size, size_t *actual_size) override;
  void free(void *ptr, size_t size) override;

 private:
  const gmlake_ggml_device *device_;
  gmlake_buffer *buffer_;
  char *base_;
  size_t max_bytes_, used_bytes_, committed_bytes_;
};

inline gmlake_ggml_pool::gmlake_ggml_pool(const gmlake_ggml_device *device, size_t max_bytes)
    : device_(device),
      buffer_(nullptr),
      base_(nullptr),
      max_bytes_(0),
      used_bytes_(0),
      committed_bytes_(0) {
  gmlake_buffer_desc desc = gmlake_buffer_desc();
  gmlake_buffer_info info = gmlake_buffer_info();
  gmlake_budget budget = gmlake_budget();
  gmlake_result result;
  size_t least;
  if (!max_bytes) {
    gmlake_ggml_must(device_, gmlake_get_budget(device_->lake, &budget), "gmlake_get_budget");
    max_bytes = budget.total_bytes / 4;
    if (max_bytes > (size_t)1 << 35) max_bytes = (size_t)1 << 35;
  }
  desc.label = "ggml pool";
  least = max_bytes / 64;
  do {
    desc.max_bytes = max_bytes;
    result = gmlake_buffer_create(device_->lake, &desc, &buffer_);
    max_bytes /= 2;
  } while (result == GMLAKE_ERROR_OUT_OF_DEVICE_MEMORY && max_bytes > least);
  gmlake_ggml_must(device_, result, "gmlake_buffer_create");
  gmlake_ggml_must(device_, gmlake_buffer_get_info(device_->lake, buffer_, &info),
                   "gmlake_buffer_get_info");
  base_ = (char *)info.ptr;
  max_bytes_ = desc.max_bytes;
}

inline gmlake_ggml_pool::~gmlake_ggml_pool() {
  device_->wait(device_->device);
  gmlake_ggml_must(device_, gmlake_buffer_destroy(device_->lake, buffer_, GMLAKE_STREAM_NONE),
                   "gmlake_buffer_destroy");
}

inline void *gmlake_ggml_pool::alloc(size_t size, size_t *actual_size) {
  const size_t alignment = 128;
  gmlake_buffer_info info = gmlake_buffer_info();
  char *ptr;
  if (size > max_bytes_ - used_bytes_ || max_bytes_ - used_bytes_ - size < alignment)
    GMLAKE_GGML_ABORT("the pool's addresses are used up: give gmlake_ggml_pool a larger max_bytes");
  size = (size + alignment - 1) / alignment * alignment;
  if (device_->step && !used_bytes_) device_->step(device_->device);
  if (size > committed_bytes_ - used_bytes_) {
    gmlake_ggml_must(
        device_,
        gmlake_buffer_resize(device_->lake, buffer_, used_bytes_ + size, GMLAKE_STREAM_NONE),
        "gmlake_buffer_resize");
    gmlake_ggml_must(device_, gmlake_buffer_get_info(device_->lake, buffer_, &info),
                     "gmlake_buffer_get_info");
    committed_bytes_ = info.committed_bytes;
  }
  ptr = base_ + used_bytes_;
  used_bytes_ += size;
  *actual_size = size;
  return ptr;
}

inline void gmlake_ggml_pool::free(void *ptr, size_t size) {
  if (size > used_bytes_ || ptr != base_ + (used_bytes_ - size))
    GMLAKE_GGML_ABORT("blocks are freed in the reverse order of their allocation");
  used_bytes_ -= size;
}

/* ---- Memory that follows use ----------------------------------------------------------------- */

/* Addresses for a whole KV cache, and memory where it is used. New memory is zero, because kernels
   of the attention read cells that are masked. Calls on one object come one at a time. */
class gmlake_ggml_growing {
 public:
  /* NULL: there are no addresses left. */
  static gmlake_ggml_growing *create(const gmlake_ggml_device *device, size_t bytes);
  gmlake_ggml_growing(const gmlake_ggml_growing &) = delete;
  gmlake_ggml_growing &operator=(const gmlake_ggml_growing &) = delete;
  /* Waits for the device. */
  ~gmlake_ggml_growing();

  void *base() const { return base_; }
  /* Gives memory to the chunks that these ranges touch, and takes it from all others. Waits for the
     device only if it takes some. false: memory ran out; then all that had memory and is in a range
     still has it. pre: ranges lie inside. */
  bool keep(const gmlake_ggml_range *ranges, size_t count);
  /* What has memory now, in order. */
  std::vector<gmlake_ggml_range> committed() const { return runs(has_, std::vector<char>(), 1); }

 private:
  gmlake_ggml_growing(const gmlake_ggml_device *device, gmlake_buffer *buffer,
                      const gmlake_buffer_info &info, size_t bytes);
  std::vector<gmlake_ggml_range> runs(const std::vector<char> &in, const std::vector<char> &not_in,
                                      int any) const;
  bool commit(const std::vector<gmlake_ggml_range> &ranges);
  void discard(const std::vector<gmlake_ggml_range> &ranges);

  const gmlake_ggml_device *device_;
  gmlake_buffer *buffer_;
  void *base_;
  size_t bytes_, chunk_bytes_;
  std::vector<char> has_; /* by chunk: it is memory */
};

inline gmlake_ggml_growing *gmlake_ggml_growing::create(const gmlake_ggml_device *device,
                                                        size_t bytes) {
  gmlake_buffer_desc desc = gmlake_buffer_desc();
  gmlake_buffer_info info = gmlake_buffer_info();
  gmlake_buffer *buffer;
  desc.max_bytes = bytes;
  desc.label = "ggml growing";
  if (gmlake_buffer_create(device->lake, &desc, &buffer) != GMLAKE_OK) return nullptr;
  gmlake_ggml_must(device, gmlake_buffer_get_info(device->lake, buffer, &info),
                   "gmlake_buffer_get_info");
  return new gmlake_ggml_growing(device, buffer, info, bytes);
}

inline gmlake_ggml_growing::gmlake_ggml_growing(const gmlake_ggml_device *device,
                                                gmlake_buffer *buffer,
                                                const gmlake_buffer_info &info, size_t bytes)
    : device_(device),
      buffer_(buffer),
      base_(info.ptr),
      bytes_(bytes),
      chunk_bytes_(info.chunk_bytes),
      has_((bytes + info.chunk_bytes - 1) / info.chunk_bytes, 0) {}

inline gmlake_ggml_growing::~gmlake_ggml_growing() {
  device_->wait(device_->device);
  gmlake_ggml_must(device_, gmlake_buffer_destroy(device_->lake, buffer_, GMLAKE_STREAM_NONE),
                   "gmlake_buffer_destroy");
}

/* The runs of chunks that are in one set and, unless any is set, not in the other. */
inline std::vector<gmlake_ggml_range> gmlake_ggml_growing::runs(const std::vector<char> &in,
                                                                const std::vector<char> &not_in,
                                                                int any) const {
  std::vector<gmlake_ggml_range> out;
  for (size_t i = 0; i < in.size(); i++) {
    const size_t offset = i * chunk_bytes_;
    const size_t bytes = bytes_ - offset < chunk_bytes_ ? bytes_ - offset : chunk_bytes_;
    const gmlake_ggml_range one = {offset, bytes};
    if (!in[i] || (!any && not_in[i])) continue;
    if (!out.empty() && out.back().offset + out.back().bytes == offset)
      out.back().bytes += bytes;
    else
      out.push_back(one);
  }
  return out;
}

inline void gmlake_ggml_growing::discard(const std::vector<gmlake_ggml_range> &ranges) {
  for (size_t i = 0; i < ranges.size(); i++)
    gmlake_ggml_must(device_,
                     gmlake_buffer_discard(device_->lake, buffer_, ranges[i].offset,
                                           ranges[i].bytes, GMLAKE_STREAM_NONE),
                     "gmlake_buffer_discard");
}

/* All of them, or none. */
inline bool gmlake_ggml_growing::commit(const std::vector<gmlake_ggml_range> &ranges) {
  for (size_t i = 0; i < ranges.size(); i++)
    if (gmlake_buffer_commit(device_->lake, buffer_, ranges[i].offset, ranges[i].bytes, NULL,
                             GMLAKE_STREAM_NONE) != GMLAKE_OK) {
      discard(std::vector<gmlake_ggml_range>(ranges.begin(), ranges.begin() + (ptrdiff_t)i));
      return false;
    }
  if (!ranges.empty()) device_->zero(device_->device, base_, ranges.data(), ranges.size());
  return true;
}

inline bool gmlake_ggml_growing::keep(const gmlake_ggml_range *ranges, size_t count) {
  std::vector<char> wanted(has_.size(), 0);
  std::vector<gmlake_ggml_range> missing, surplus;
  for (size_t i = 0; i < count; i++) {
    size_t chunk = ranges[i].offset / chunk_bytes_;
    if (ranges[i].offset > bytes_ || ranges[i].bytes > bytes_ - ranges[i].offset)
      GMLAKE_GGML_ABORT("a range lies outside of the buffer");
    for (; ranges[i].bytes && chunk * chunk_bytes_ < ranges[i].offset + ranges[i].bytes; chunk++)
      wanted[chunk] = 1;
  }
  missing = runs(wanted, has_, 0);
  surplus = runs(has_, wanted, 0);
  if (!surplus.empty()) {
    device_->wait(device_->device);
    discard(surplus);
    for (size_t i = 0; i < has_.size(); i++) has_[i] = has_[i] && wanted[i];
  }
  if (!commit(missing)) return false;
  has_ = wanted;
  if (device_->step) device_->step(device_->device);
  return true;
}

#endif
